#include <fmt/format.h>

#include <set>

#include "recipe/check.h"
#include "recipe/values.h"
#include "support/message_of.h"

namespace capstan {
namespace {

Recipe with(std::string_view key, std::string_view text) {
  Recipe r;
  set_option(r, find_option(key), text);
  return r;
}
std::string refusal(std::string_view key, std::string_view text) {
  return message_of(Fault::usage, [&] { with(key, text); });
}

// A good value that is not the default.
std::string another_value(const Option& o) {
  const Recipe defaults;
  if (std::holds_alternative<int64_t Recipe::*>(o.field) ||
      std::holds_alternative<std::optional<int64_t> Recipe::*>(o.field))
    return "7";
  if (std::holds_alternative<double Recipe::*>(o.field) ||
      std::holds_alternative<std::optional<double> Recipe::*>(o.field))
    return o.check == Check::power_of_two ? "0.125" : "0.12345678901234567";
  if (std::holds_alternative<Betas Recipe::*>(o.field)) return "[0.5, 0.25]";
  if (std::holds_alternative<bool Recipe::*>(o.field) ||
      std::holds_alternative<std::optional<bool> Recipe::*>(o.field))
    return value_of(defaults, o) == "true" ? "false" : "true";
  if (std::holds_alternative<Devices Recipe::*>(o.field) ||
      std::holds_alternative<ExampleChoice Recipe::*>(o.field))
    return "3";
  if (std::holds_alternative<Activations Recipe::*>(o.field)) return "block:3";
  if (std::holds_alternative<std::optional<SplitNames> Recipe::*>(o.field)) return "[a, b]";
  for (const std::string& choice : choices_of(o))
    if (choice != value_of(defaults, o)) return choice;
  return "a \"path\" with: # '\\ and ü";
}

TEST(Options, EachKeyIsThereOnceAndExplained) {
  std::set<std::string> keys;
  for (const Option& o : options()) {
    EXPECT_TRUE(keys.insert(o.key).second) << o.key << " is there twice";
    EXPECT_STRNE(o.help, "") << o.key;
    EXPECT_NE(o.tasks, 0) << o.key;
    if (!choices_of(o).empty()) {
      EXPECT_TRUE(is_string(o)) << o.key;
    }
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

TEST(Options, DefaultsOfEveryCommandAreGoodValues) {
  for (const Task task : {Task::pretrain, Task::finetune_full, Task::finetune_lora, Task::demo}) {
    const Recipe defaults = defaults_of(task);
    for (const Option& o : options()) {
      Recipe r;
      const std::string value = value_of(defaults, o);
      EXPECT_NO_THROW(set_option(r, o, value)) << o.key;
      EXPECT_EQ(value_of(r, o), value) << o.key;
    }
  }
}

// LitGPT 0.5.13's own.
TEST(Options, DefaultsAreLitgpts) {
  const Recipe full = defaults_of(Task::finetune_full), lora = defaults_of(Task::finetune_lora),
               pre = defaults_of(Task::pretrain);
  EXPECT_EQ(full.out_dir, "out/finetune/full");
  EXPECT_EQ(lora.out_dir, "out/finetune/lora");
  EXPECT_EQ(pre.out_dir, "out/pretrain");
  EXPECT_TRUE(pre.devices.automatic);
  EXPECT_EQ(full.devices, Devices());
  EXPECT_EQ(full.global_batch_size, 16);
  EXPECT_EQ(full.micro_batch_size, 1);
  EXPECT_EQ(pre.global_batch_size, 512);
  EXPECT_EQ(pre.micro_batch_size, 4);
  EXPECT_EQ(full.save_interval, 1000);
  EXPECT_EQ(full.log_interval, 1);
  EXPECT_EQ(full.lr_warmup_steps, 100);
  EXPECT_EQ(pre.lr_warmup_steps, 2000);
  EXPECT_EQ(full.epochs, 5);
  EXPECT_EQ(lora.epochs, 5);
  EXPECT_EQ(pre.max_tokens, 3'000'000'000'000);
  EXPECT_FALSE(full.max_norm);
  EXPECT_EQ(pre.max_norm, 1);
  EXPECT_EQ(pre.min_lr, 4e-5);
  EXPECT_EQ(full.eval_interval, 600);
  EXPECT_EQ(lora.eval_interval, 100);
  EXPECT_EQ(pre.eval_interval, 1000);
  EXPECT_EQ(full.eval_max_new_tokens, 100);
  EXPECT_FALSE(pre.eval_max_new_tokens);
  EXPECT_EQ(full.logger_name, Logger::csv);
  EXPECT_EQ(pre.logger_name, Logger::tensorboard);
  EXPECT_EQ(full.seed, 1337);
  EXPECT_EQ(pre.seed, 42);
  EXPECT_EQ(lora.lora_r, 8);
  EXPECT_EQ(lora.lora_alpha, 16);
  EXPECT_EQ(lora.lora_dropout, 0.05);
  EXPECT_TRUE(lora.lora_query && lora.lora_value && !lora.lora_key && !lora.lora_head);
  EXPECT_EQ(full.lr, 1e-3);
  EXPECT_EQ(full.betas, (Betas{0.9, 0.999}));
}

TEST(Options, ConditionsNameKeysThatExist) {
  for (const Option& o : options())
    for (const Condition& c : o.needs) {
      EXPECT_EQ(c.otherwise.empty(), c.unmet == Condition::Unmet::allowed) << o.key;
      const std::string_view key = o.key;
      EXPECT_TRUE(!c.of_class || key.starts_with("data.") || key.starts_with("optimizer.")) << key;
      for (std::string_view rest = c.otherwise; rest.find('{') != std::string_view::npos;) {
        rest.remove_prefix(rest.find('{') + 1);
        EXPECT_NO_THROW(find_option(rest.substr(0, rest.find('}')))) << o.key;
      }
    }
}

TEST(SetOption, WhatValueOfSaysIsReadBackToTheBit) {
  for (const Option& o : options()) {
    Recipe r, back;
    set_option(r, o, another_value(o));
    set_option(back, o, value_of(r, o));
    EXPECT_EQ(value_of(back, o), value_of(r, o)) << o.key;
    if (const auto* field = std::get_if<double Recipe::*>(&o.field)) {
      EXPECT_EQ(back.*(*field), std::stod(another_value(o)));
    }
  }
}

TEST(SetOption, RefusesAnotherType) {
  EXPECT_EQ(refusal("train.max_steps", "ten"),
            "train.max_steps: expected a whole number above 0, found 'ten'");
  for (const char* text : {"", " 5", "5 ", "5.5", "0x10", "5,", "99999999999999999999"})
    EXPECT_EQ(refusal("train.max_steps", text),
              fmt::format("train.max_steps: expected a whole number above 0, found '{}'", text));
  EXPECT_EQ(refusal("train.max_tokens", "1.5B"),
            "train.max_tokens: expected a whole number above 0, found '1.5B'; write 1.5e9");
  for (const char* text : {"", "fast", "1e-3x", "nan", "inf", "-inf", "1e999", "null"})
    EXPECT_EQ(refusal("optimizer.lr", text),
              fmt::format("optimizer.lr: expected a number above 0, found '{}'", text));
  EXPECT_EQ(refusal("data.packed", "si"), "data.packed: expected true or false, found 'si'");
  EXPECT_EQ(refusal("train.schedule", "cosin"),
            "train.schedule: expected one of constant, linear, cosine, found 'cosin' (did you mean "
            "cosine?)");
  EXPECT_EQ(refusal("optimizer.betas", "0.9"),
            "optimizer.betas: expected two numbers like [0.9, 0.95], found '0.9'");
  EXPECT_EQ(refusal("optimizer.betas", "[0.9, 1]"),
            "optimizer.betas: expected a number from 0 to below 1, found '1'");
}

TEST(SetOption, TakesWholeNumbersInAnyForm) {
  EXPECT_EQ(with("train.max_tokens", "3e12").max_tokens, 3'000'000'000'000);
  EXPECT_EQ(with("train.max_steps", "25.0").max_steps, 25);
  EXPECT_EQ(with("train.max_steps", "9223372036854775807").max_steps, INT64_MAX);
}

TEST(SetOption, NullEmptiesWhatCanBeEmpty) {
  EXPECT_FALSE(with("train.save_interval", "null").save_interval);
  EXPECT_FALSE(with("train.max_norm", "null").max_norm);
  EXPECT_FALSE(with("data.prompt_style", "null").prompt_style);
  EXPECT_FALSE(with("data.prompt_style", "").prompt_style);
  EXPECT_FALSE(with("precision", "null").precision);
  EXPECT_FALSE(with("quantize", "null").quantize);
  EXPECT_EQ(with("resume", "null").resume, Resume());
}

TEST(SetOption, OfAClassOnlyTheNameCounts) {
  const auto optimizer = [](const std::string& text) {
    return std::string(name_of(with("optimizer", text).optimizer));
  };
  for (const char* module : {"", "torch.optim.", "bitsandbytes.optim.", "bnb.optim."})
    for (const std::string_view name : names_of<OptimizerClass>())
      EXPECT_EQ(optimizer(module + std::string(name)), name);
  EXPECT_EQ(with("optimizer", "bnb.optim.PagedAdamW8bit").optimizer,
            (OptimizerClass{OptimizerKind::adamw8bit, true}));
  EXPECT_EQ(with("data", "litgpt.data.Alpaca2k").data, DataClass::alpaca2k);
  EXPECT_NE(refusal("optimizer", "torch.optim.Adam").find("did you mean AdamW?"),
            std::string::npos);
}

TEST(SetOption, SomeChoicesHaveACount) {
  EXPECT_EQ(with("activations", "block").activations, Activations{.policy = Recompute::block});
  EXPECT_EQ(with("activations", "block:08").activations,
            (Activations{.policy = Recompute::block, .blocks = 8}));
  EXPECT_EQ(with("activations", "block:08").activations.text(), "block:8");
  EXPECT_TRUE(with("activations", "auto").activations.automatic);
  for (const char* text : {"block:", "block:0", "block:-1", "block:x", "block:1:2", "blok:8", ":8",
                           "none:2", "auto:2", "block[:N]"}) {
    const std::string message = refusal("activations", text);
    EXPECT_EQ(message.rfind(fmt::format("activations: expected one of none, selective[:N], "
                                        "block[:N], auto, found '{}'",
                                        text),
                            0),
              0u)
        << message;
  }
  EXPECT_NE(refusal("activations", "blok:8").find("did you mean block?"), std::string::npos);
}

TEST(SetOption, SomeValuesAreWordsOrNumbers) {
  using Kind = ExampleChoice::Kind;
  EXPECT_EQ(with("eval.evaluate_example", "random").evaluate_example.kind, Kind::random);
  EXPECT_EQ(with("eval.evaluate_example", "17").evaluate_example,
            (ExampleChoice{Kind::at_index, 17}));
  EXPECT_EQ(refusal("eval.evaluate_example", "-1"),
            "eval.evaluate_example: expected one of first, random or a whole number, found '-1'");
  EXPECT_TRUE(with("devices", "auto").devices.automatic);
  EXPECT_EQ(with("devices", "4").devices.count, 4);
  for (const char* text : {"[0, 1, 1]", "0,1,1", "0, 1, 1"}) {
    EXPECT_EQ(with("devices", text).devices.gpus, (std::vector<int64_t>{0, 1, 1})) << text;
    EXPECT_EQ(with("devices", text).devices.count, 3);
    EXPECT_EQ(with("devices", text).devices.text(), "[0, 1, 1]");
  }
  for (const char* text : {"all", "[]", "[0,", "[-1]", "0,", "[0, b]"})
    EXPECT_EQ(
        refusal("devices", text),
        fmt::format("devices: expected auto or a number, or GPUs as [0, 1], found '{}'", text));
}

TEST(SetOption, ResumeIsATruthAutoOrAFolder) {
  using Mode = Resume::Mode;
  for (const char* text : {"false", "no", "Off", "null", ""})
    EXPECT_EQ(with("resume", text).resume, Resume()) << text;
  for (const char* text : {"true", "Yes", "on"})
    EXPECT_EQ(with("resume", text).resume.mode, Mode::newest) << text;
  EXPECT_EQ(with("resume", "auto").resume.mode, Mode::newest_if_any);
  EXPECT_EQ(with("resume", "out/step-000010").resume, (Resume{Mode::folder, "out/step-000010"}));
}

TEST(SetOption, SplitNamesAreTwo) {
  for (const char* text : {"[train, val]", "train,val", "('train', 'val')"})
    EXPECT_EQ(with("data.split_names", text).split_names, (SplitNames{"train", "val"})) << text;
  for (const char* text : {"train", "[a, b, c]", "[, b]", "[]"})
    EXPECT_EQ(
        refusal("data.split_names", text),
        fmt::format("data.split_names: expected two names, as [train, val], found '{}'", text));
}

TEST(SetOption, AWordOfLitgptsThatIsNotHereSaysWhatToUse) {
  EXPECT_EQ(refusal("logger_name", "CSV"),
            "logger_name: expected one of csv, tensorboard, jsonl, mlflow, wandb or several as "
            "[csv, mlflow], found 'CSV' (did you mean csv?)");
}

TEST(SetOption, ALossScaleIsAPowerOfTwo) {
  for (const char* text : {"65536", "1", "0.5", "1e0"})
    EXPECT_EQ(with("train.loss_scale", text).loss_scale, std::stod(text)) << text;
  for (const char* text : {"3", "0", "-2", "inf", "nan", "65535"})
    EXPECT_NE(refusal("train.loss_scale", text).find("expected a power of two"), std::string::npos)
        << text;
}

TEST(SetOption, SeveralLoggersAreAList) {
  Recipe r;
  for (const char* text : {"[mlflow, csv]", "mlflow,csv", "[mlflow,csv,mlflow]"}) {
    set_option(r, find_option("logger_name"), text);
    EXPECT_EQ(r.logger_name.kinds, (std::vector{Logger::mlflow, Logger::csv})) << text;
    EXPECT_EQ(value_of(r, find_option("logger_name")), "[mlflow, csv]");
  }
  set_option(r, find_option("logger_name"), "wandb");
  EXPECT_EQ(r.logger_name, Loggers(Logger::wandb));
  EXPECT_FALSE(r.logger_name.has(Logger::csv));
  for (const char* text : {"[]", "[mlflow", "mlflow,", ""})
    EXPECT_NE(refusal("logger_name", text), "");
}

TEST(SetOption, EveryWordOfAChoiceIsTakenAndPrintedAsItsFirst) {
  for (const Option& o : options())
    for (std::string choice : choices_of(o)) {
      choice.resize(std::min(choice.find("[:N]"), choice.size()));
      if (choice == "N") choice = "7";
      Recipe r, back;
      EXPECT_NO_THROW(set_option(r, o, choice)) << o.key << " " << choice;
      EXPECT_NO_THROW(set_option(back, o, value_of(r, o))) << o.key << " " << choice;
      EXPECT_EQ(value_of(back, o), value_of(r, o)) << o.key << " " << choice;
    }
  EXPECT_EQ(with("accelerator", "gpu").accelerator, Accelerator::cuda);
  EXPECT_EQ(with("quantize", "nf4").quantize, Quantize::nf4);
}

TEST(SetOption, WhatCannotBeNullRefusesIt) {
  EXPECT_EQ(refusal("train.schedule", "null"),
            "train.schedule: expected one of constant, linear, cosine, found 'null'");
  EXPECT_EQ(refusal("out_dir", "null"), "out_dir: expected a path, found 'null'");
  EXPECT_EQ(refusal("out_dir", ""), "out_dir: expected a path, found ''");
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
  EXPECT_EQ(refusal("optimizer.eps", "1e-46"),
            "optimizer.eps: expected a number above 0, found '1e-46', which is 0 as a float");
  EXPECT_EQ(refusal("optimizer.lr", "1e39"),
            "optimizer.lr: expected a number above 0, found '1e39', which is inf as a float");
  EXPECT_EQ(refusal("optimizer.momentum", "0.99999999"),
            "optimizer.momentum: expected a number from 0 to below 1, found '0.99999999', which is "
            "1 as a float");
}

TEST(SetOption, LeavesTheRecipeAloneWhenItRefuses) {
  Recipe r;
  EXPECT_THROW(set_option(r, find_option("train.max_steps"), "0"), Error);
  EXPECT_EQ(r.max_steps, Recipe().max_steps);
}

TEST(FindOption, TakesLitgptsLongForms) {
  EXPECT_STREQ(find_option("optimizer.init_args.lr").key, "optimizer.lr");
  EXPECT_STREQ(find_option("optimizer.class_path").key, "optimizer");
  EXPECT_STREQ(find_option("data.init_args.mask_prompt").key, "data.mask_prompt");
  EXPECT_STREQ(find_option("model_config.n_layer").key, "model.num_hidden_layers");
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
  EXPECT_EQ(suggestion("train.betas"), "train.betas: no such key (did you mean optimizer.betas?)");
  EXPECT_EQ(suggestion("train.batch_size"),
            "train.batch_size: no such key (did you mean train.global_batch_size?)");
  EXPECT_EQ(suggestion("train.learning_rate"),
            "train.learning_rate: no such key (did you mean optimizer.lr?)");
  EXPECT_NE(suggestion("").find("no such key"), std::string::npos);
  EXPECT_NE(suggestion(std::string(100'000, 'x').c_str()).find("no such key"), std::string::npos);
}

TEST(FindOption, WhatIsLikeNoKeyNamesNone) {
  for (const char* key : {"train.foo", "foo", "optimizer.x", "colour", "train.", "data.xyz"})
    EXPECT_EQ(message_of(Fault::usage, [&] { find_option(key); }),
              fmt::format("{}: no such key", key));
  EXPECT_EQ(refusal("optimizer", "Adagrad").find("did you mean"), std::string::npos);
  EXPECT_NE(refusal("optimizer", "adamw").find("(did you mean AdamW?)"), std::string::npos)
      << "whatever the case";
}

TEST(CheckRecipe, NamesTheNearestBatchSizesThatWouldBe) {
  Recipe r;
  r.max_steps = 1;
  const auto complaint = [&](int64_t global, int64_t micro) {
    r.global_batch_size = global;
    r.micro_batch_size = micro;
    return message_of(Fault::usage, [&] { check_recipe(r, Task::finetune_full); });
  };
  EXPECT_EQ(
      complaint(32, 6),
      "train.global_batch_size: 32 is not a multiple of train.micro_batch_size 6; use 30 or 36, "
      "or train.micro_batch_size 2");
  EXPECT_EQ(complaint(5, 8),
            "train.global_batch_size: 5 is not a multiple of train.micro_batch_size 8; use 8");
  EXPECT_EQ(
      complaint(INT64_MAX, INT64_MAX - 1),
      "train.global_batch_size: 9223372036854775807 is not a multiple of train.micro_batch_size "
      "9223372036854775806; use 9223372036854775806 or 18446744073709551612");
  for (const auto& [global, micro] : {std::pair{32, 32}, {32, 1}, {30, 6}}) {
    r.global_batch_size = global;
    r.micro_batch_size = micro;
    EXPECT_NO_THROW(check_recipe(r, Task::finetune_full)) << global << " " << micro;
  }
}

TEST(CheckRecipe, TellsAllThatIsWrongAtOnce) {
  Recipe r;
  r.global_batch_size = 3;
  r.micro_batch_size = 2;
  r.min_lr = 1;
  r.rounding = Rounding::stochastic;
  r.devices.count = 65;
  const std::string message =
      message_of(Fault::usage, [&] { check_recipe(r, Task::finetune_full); });
  for (const char* part :
       {"train.global_batch_size: 3 is not", "train.min_lr: 1 is above optimizer.lr 0.001",
        "does not say how long to train", "set precision bf16-true",
        "devices: 65 requested; expected 1 to 64"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in:\n" << message;
}

TEST(CheckRecipe, StochasticRoundingIsForWeightsInBf16Alone) {
  Recipe r;
  r.max_steps = 1;
  set_option(r, find_option("optimizer.rounding"), "stochastic");
  for (const std::optional<Precision> precision :
       {std::optional<Precision>(), std::optional(Precision::f32_true),
        std::optional(Precision::bf16_mixed), std::optional(Precision::fp8_mixed)}) {
    r.precision = precision;
    const std::string message =
        message_of(Fault::usage, [&] { check_recipe(r, Task::finetune_full); });
    EXPECT_NE(message.find("optimizer.rounding: stochastic rounds bf16-true weights"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("set precision bf16-true"), std::string::npos) << message;
  }
  r.precision = Precision::bf16_true;
  EXPECT_NO_THROW(check_recipe(r, Task::finetune_full));
  EXPECT_EQ(defaults_of(Task::pretrain).rounding, Rounding::nearest);
}

TEST(Options, MatmulPrecisionIsOpenUnlessAsked) {
  Recipe r;
  EXPECT_EQ(r.matmul_precision, std::nullopt);
  set_option(r, find_option("matmul_precision"), "high");
  EXPECT_EQ(r.matmul_precision, MatmulPrecision::high);
  set_option(r, find_option("matmul_precision"), "null");
  EXPECT_EQ(r.matmul_precision, std::nullopt);
  const std::string message =
      message_of(Fault::usage, [&] { set_option(r, find_option("matmul_precision"), "medium"); });
  EXPECT_NE(message.find("highest, high"), std::string::npos) << message;
}

TEST(CheckRecipe, ACosineNeedsAnEnd) {
  Recipe r;
  r.max_time = 60;
  EXPECT_NE(message_of(Fault::usage, [&] { check_recipe(r, Task::finetune_full); })
                .find("train.max_time"),
            std::string::npos);
  r.schedule = LrDecay::constant;
  EXPECT_NO_THROW(check_recipe(r, Task::finetune_full));
  r.lr_warmup_fraction = 0.1;
  EXPECT_NE(message_of(Fault::usage, [&] { check_recipe(r, Task::finetune_full); })
                .find("a warm-up fraction is undefined"),
            std::string::npos);
  r.max_steps = 10;
  EXPECT_NO_THROW(check_recipe(r, Task::finetune_full));
}

}  // namespace
}  // namespace capstan
