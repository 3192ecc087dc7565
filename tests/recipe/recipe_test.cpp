#include "recipe/recipe.h"

#include <fmt/format.h>

#include <fstream>
#include <set>

#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using testing::Test;

const Option& option(std::string_view key) {
  return find_option(key);
}
Recipe with(std::string_view key, std::string_view text) {
  Recipe r;
  set_option(r, option(key), text);
  return r;
}
std::string refusal(std::string_view key, std::string_view text) {
  return message_of(Fault::usage, [&] { with(key, text); });
}

// A good value that is not the default.
std::string another_value(const Option& o) {
  const Recipe defaults;
  if (std::holds_alternative<int64_t Recipe::*>(o.field)) return "7";
  if (std::holds_alternative<double Recipe::*>(o.field)) return "0.12345678901234567";
  if (std::holds_alternative<bool Recipe::*>(o.field))
    return value_of(defaults, o) == "true" ? "false" : "true";
  for (const std::string_view choice : o.choices)
    if (choice != value_of(defaults, o)) return std::string(choice);
  return "a \"path\" with: # '\\ and ü";
}

TEST(Options, EachKeyIsThereOnceAndExplained) {
  std::set<std::string> keys;
  for (const Option& o : options()) {
    EXPECT_TRUE(keys.insert(o.key).second) << o.key << " is there twice";
    EXPECT_STRNE(o.help, "") << o.key;
    EXPECT_EQ(o.check == Check::oneof, !o.choices.empty()) << o.key;
    EXPECT_EQ(&find_option(o.key), &o);
  }
}

TEST(Options, NoTwoSetTheSameField) {
  for (const Option& o : options()) {
    Recipe r;
    set_option(r, o, another_value(o));
    for (const Option& other : options())
      EXPECT_EQ(value_of(r, other) != value_of(Recipe(), other), &o == &other)
          << o.key << " and " << other.key;
  }
}

TEST(Options, DefaultsAreGoodValues) {
  for (const Option& o : options()) {
    Recipe r;
    EXPECT_NO_THROW(set_option(r, o, value_of(Recipe(), o))) << o.key;
    EXPECT_EQ(value_of(r, o), value_of(Recipe(), o)) << o.key;
  }
}

TEST(SetOption, WhatValueOfSaysIsReadBackToTheBit) {
  for (const Option& o : options()) {
    Recipe r, back;
    set_option(r, o, another_value(o));
    set_option(back, o, value_of(r, o));
    EXPECT_EQ(value_of(back, o), value_of(r, o)) << o.key;
    if (const auto* field = std::get_if<double Recipe::*>(&o.field)) {
      EXPECT_EQ(back.*(*field), 0.12345678901234567);
    }
  }
}

TEST(SetOption, RefusesAnotherType) {
  EXPECT_EQ(refusal("train.max_steps", "ten"),
            "train.max_steps: expected a whole number above 0, found 'ten'");
  for (const char* text : {"", " 5", "5 ", "5.0", "1e3", "0x10", "5,", "99999999999999999999"})
    EXPECT_EQ(refusal("train.max_steps", text),
              fmt::format("train.max_steps: expected a whole number above 0, found '{}'", text));
  for (const char* text : {"", "fast", "1e-3x", "nan", "inf", "-inf", "1e999"})
    EXPECT_EQ(refusal("optimizer.lr", text),
              fmt::format("optimizer.lr: expected a number above 0, found '{}'", text));
  EXPECT_EQ(refusal("data.packed", "yes"), "data.packed: expected true or false, found 'yes'");
  EXPECT_EQ(refusal("train.schedule", "step"),
            "train.schedule: expected one of constant, linear, cosine, found 'step'");
}

TEST(SetOption, RefusesWhatIsOutOfRange) {
  for (const char* text : {"0", "-1"})
    EXPECT_EQ(refusal("train.max_steps", text),
              fmt::format("train.max_steps: expected a whole number above 0, found '{}'", text));
  EXPECT_EQ(refusal("optimizer.lr", "0"), "optimizer.lr: expected a number above 0, found '0'");
  EXPECT_EQ(refusal("seed", "-1"), "seed: expected a whole number, 0 or more, found '-1'");
  for (const char* text : {"1", "-0.1"})
    EXPECT_EQ(
        refusal("data.val_split_fraction", text),
        fmt::format("data.val_split_fraction: expected a number from 0 to below 1, found '{}'",
                    text));
}

TEST(SetOption, RefusesWhatIsOutOfRangeAsAFloat) {
  EXPECT_EQ(refusal("optimizer.eps", "0"), "optimizer.eps: expected a number above 0, found '0'");
  EXPECT_EQ(refusal("optimizer.eps", "1e-46"),
            "optimizer.eps: expected a number above 0, found '1e-46', which is 0 as a float");
  EXPECT_EQ(refusal("optimizer.lr", "1e39"),
            "optimizer.lr: expected a number above 0, found '1e39', which is inf as a float");
  for (const char* key : {"optimizer.beta1", "optimizer.beta2", "optimizer.momentum"})
    EXPECT_EQ(refusal(key, "0.99999999"),
              fmt::format("{}: expected a number from 0 to below 1, found '0.99999999', which is 1 "
                          "as a float",
                          key));
}

TEST(SetOption, TakesTheEndsOfARange) {
  EXPECT_EQ(with("train.max_steps", "1").max_steps, 1);
  EXPECT_EQ(with("train.max_steps", "9223372036854775807").max_steps, INT64_MAX);
  EXPECT_EQ(with("train.lr_warmup_steps", "0").lr_warmup_steps, 0);
  EXPECT_EQ(with("data.val_split_fraction", "0").val_split_fraction, 0);
  EXPECT_EQ(with("optimizer.lr", "1e-30").lr, 1e-30);
  EXPECT_EQ(with("optimizer.beta2", "0.9999999").beta2, 0.9999999);
  EXPECT_EQ(with("out_dir", "").out_dir, "");
}

TEST(SetOption, LeavesTheRecipeAloneWhenItRefuses) {
  Recipe r;
  EXPECT_THROW(set_option(r, option("train.max_steps"), "0"), Error);
  EXPECT_EQ(r.max_steps, Recipe().max_steps);
}

TEST(FindOption, AnUnknownKeyNamesTheNearest) {
  const auto suggestion = [](const char* key) {
    return message_of(Fault::usage, [&] { find_option(key); });
  };
  EXPECT_EQ(suggestion("train.micro_batchsize"),
            "train.micro_batchsize: no such key (did you mean train.micro_batch_size?)");
  EXPECT_EQ(suggestion("lr"), "lr: no such key (did you mean optimizer.lr?)");
  EXPECT_EQ(suggestion("max_steps"), "max_steps: no such key (did you mean train.max_steps?)");
  EXPECT_EQ(suggestion("hidden"), "hidden: no such key (did you mean model.hidden_size?)");
  EXPECT_EQ(suggestion("outdir"), "outdir: no such key (did you mean out_dir?)");
  EXPECT_EQ(suggestion("train.beta1"), "train.beta1: no such key (did you mean optimizer.beta1?)");
  EXPECT_NE(suggestion("").find("no such key"), std::string::npos);
}

class Yaml : public Test {
 protected:
  std::string write(std::string_view text) const {
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  Recipe read(std::string_view text) const {
    Recipe r;
    read_recipe(r, write(text));
    return r;
  }
  // The message of what is wrong, with the folder's name left out.
  std::string refusal(std::string_view text) const {
    std::string message = message_of(Fault::usage, [&] { read(text); });
    for (size_t at; (at = message.find(path)) != std::string::npos;)
      message.replace(at, path.size(), "r.yaml");
    return message;
  }

  TempFolder folder;
  std::string path = folder / "r.yaml";
};

TEST_F(Yaml, ARecipeIsReadBackAsItWasWritten) {
  Recipe r;
  for (const Option& o : options()) set_option(r, o, another_value(o));
  const Recipe back = read(recipe_yaml(r));
  for (const Option& o : options()) EXPECT_EQ(value_of(back, o), value_of(r, o)) << o.key;
  const Recipe defaults = read(recipe_yaml(Recipe()));
  for (const Option& o : options()) EXPECT_EQ(value_of(defaults, o), value_of(Recipe(), o));
}

TEST_F(Yaml, TakesKeysNestedAndFlat) {
  const Recipe nested = read("train:\n  max_steps: 5\n  schedule: linear\nseed: 3\n");
  const Recipe flat = read("train.max_steps: 5\ntrain.schedule: linear\nseed: 3\n");
  for (const Recipe& r : {nested, flat}) {
    EXPECT_EQ(r.max_steps, 5);
    EXPECT_EQ(r.schedule, "linear");
    EXPECT_EQ(r.seed, 3);
    EXPECT_EQ(r.lr, Recipe().lr);
  }
  const Recipe both = read("optimizer: SGD\noptimizer.lr: 0.5\n");
  EXPECT_EQ(both.optimizer, "SGD");
  EXPECT_EQ(both.lr, 0.5);
}

TEST_F(Yaml, TellsTheKeysThatHaveAValue) {
  Recipe r;
  EXPECT_EQ(read_recipe(r, write("train:\n  max_steps: 200\n  schedule:\nseed: 3\n")),
            (std::set<std::string>{"train.max_steps", "seed"}));
}

TEST_F(Yaml, NothingAndNullLeaveTheDefaults) {
  for (const char* text :
       {"", "# nothing\n", "{}", "train:\n", "train.max_steps: null\n", "train:\n  max_steps:\n"})
    EXPECT_EQ(recipe_yaml(read(text)), recipe_yaml(Recipe())) << text;
}

TEST_F(Yaml, AllErrorsAreReportedAtOnceEachWithItsPlace) {
  EXPECT_EQ(refusal("seed: 1\n"
                    "train:\n"
                    "  max_step: 3\n"
                    "  schedule: [linear]\n"
                    "optimizer.lr: -1\n"
                    "data:\n"
                    "    packed: maybe\n"),
            "r.yaml:3:3: train.max_step: no such key (did you mean train.max_steps?)\n"
            "r.yaml:4:3: train.schedule: expected one value, found a list\n"
            "r.yaml:5:1: optimizer.lr: expected a number above 0, found '-1'\n"
            "r.yaml:7:5: data.packed: expected true or false, found 'maybe'");
}

TEST_F(Yaml, RefusesAnUnknownKeyEvenWithoutAValue) {
  EXPECT_EQ(refusal("train.max_stepz:\n"),
            "r.yaml:1:1: train.max_stepz: no such key (did you mean train.max_steps?)");
}

TEST_F(Yaml, RefusesAKeyThatIsGivenTwice) {
  EXPECT_EQ(refusal("train.max_steps: 3\ntrain:\n  max_steps: 4\n"),
            "r.yaml:3:3: train.max_steps: given twice");
}

TEST_F(Yaml, RefusesWhatIsNoMap) {
  EXPECT_EQ(refusal("- 1\n- 2\n"), "r.yaml: expected keys and values");
  EXPECT_EQ(refusal("words\n"), "r.yaml: expected keys and values");
  EXPECT_EQ(refusal("[a, b]: 1\n"), "r.yaml:1:1: expected a key, found a list or a map");
}

TEST_F(Yaml, ASyntaxErrorHasItsPlace) {
  EXPECT_EQ(refusal("seed: 1\ntrain: {a: 1\n").rfind("r.yaml:", 0), 0u);
  EXPECT_EQ(refusal("seed: 1\n\tx: 2\n").rfind("r.yaml:2:", 0), 0u);
  EXPECT_EQ(refusal("seed: *nowhere\n").rfind("r.yaml:1:7:", 0), 0u);
}

TEST_F(Yaml, AMapInsideItselfIsAnErrorAndNotAnEndlessWalk) {
  EXPECT_NE(refusal("a: &a\n  b: *a\n").find("no such key"), std::string::npos);
}

TEST_F(Yaml, DeepNestingIsAnError) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "[";
  EXPECT_NE(refusal(text), "");
}

TEST_F(Yaml, AMissingFileAndAFolderAreErrorsOfTheFile) {
  Recipe r;
  const std::string missing = folder / "none.yaml";
  EXPECT_EQ(message_of(Fault::file, [&] { read_recipe(r, missing); }),
            missing + ": cannot be opened");
  EXPECT_EQ(message_of(Fault::file, [&] { read_recipe(r, folder.path()); }),
            folder.path().string() + ": is a folder; give a YAML file");
}

}  // namespace
}  // namespace capstan
