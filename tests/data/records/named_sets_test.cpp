#include "data/records/named_sets.h"

#include <gtest/gtest.h>

#include "data/data_source.h"
#include "data/errors.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

TEST(NamedSets, SayWhereToGetThemAndWhereToPutThem) {
  const TempFolder root;
  for (const NamedSet& set : named_sets()) {
    const std::string message =
        message_of(Fault::file, [&] { named_set_options(set.name, {}, root.path()); });
    const fs::path file = root.path() / set.folder / set.file;
    EXPECT_NE(message.find("expected " + file.string()), std::string::npos) << message;
    EXPECT_NE(message.find("https://"), std::string::npos) << message;
    EXPECT_NE(message.find("--data JSON --data.json_path FILE"), std::string::npos) << message;
  }
  const std::string alpaca =
      message_of(Fault::file, [&] { named_set_options(DataClass::alpaca, {}, root.path()); });
  EXPECT_NE(alpaca.find("curl -L -o " + root.path().string() +
                        "/alpaca/alpaca_data_cleaned_archive.json https://raw."),
            std::string::npos)
      << alpaca;
  const std::string deita =
      message_of(Fault::file, [&] { named_set_options(DataClass::deita, {}, root.path()); });
  EXPECT_NE(deita.find("split='test_sft'"), std::string::npos) << deita;
  EXPECT_EQ(find_named_set(DataClass::json), nullptr);
}

TEST(NamedSets, AreFoundUnderTheirNames) {
  const TempFolder root;
  fs::create_directory(root / "alpaca2k");
  const auto own = root.write("alpaca2k/alpaca2k_data_cleaned_archive.json", "[]");
  const DataOptions o = named_set_options(DataClass::alpaca2k, {}, root.path());
  EXPECT_EQ(o.path, own);
  EXPECT_EQ(o.validation_fraction, 0.05);
  EXPECT_EQ(o.style, "alpaca");

  const auto single = root.write("dolly.jsonl", "");
  const DataOptions dolly = named_set_options(DataClass::dolly, {}, root.path());
  EXPECT_EQ(dolly.path, single);
  EXPECT_EQ(dolly.fields.output, "response");

  fs::create_directory(root / "longform");
  const auto train = root.write("longform/train.json", "");
  const auto val = root.write("longform/val.json", "");
  const DataOptions longform = named_set_options(DataClass::longform, {}, root.path());
  EXPECT_EQ(longform.path, train);
  EXPECT_EQ(longform.validation_path, val);
  EXPECT_FALSE(longform.validation_fraction.has_value());
  EXPECT_EQ(longform.style, "longform");
}

// LitGPT's download_dir is the set's own folder.
TEST(NamedSets, MayBeInTheFolderItself) {
  const TempFolder root;
  fs::create_directory(root / "alpaca2k");
  fs::create_directory(root / "longform");
  const auto own = root.write("alpaca2k/alpaca2k_data_cleaned_archive.json", "[]");
  const auto train = root.write("longform/train.json", "");
  root.write("longform/val.json", "");
  for (const char* ending : {"", "/"})
    EXPECT_EQ(
        named_set_options(DataClass::alpaca2k, {}, (root / "alpaca2k").string() + ending).path,
        own);
  EXPECT_EQ(named_set_options(DataClass::longform, {}, root / "longform").path, train);
  const auto elsewhere = root.write("alpaca_data_cleaned_archive.json", "[]");
  EXPECT_EQ(named_set_options(DataClass::alpaca, {}, root.path()).path, elsewhere);
  EXPECT_NE(
      message_of(Fault::file, [&] { named_set_options(DataClass::flan, {}, root / "longform"); })
          .find("longform/flan/train.jsonl"),
      std::string::npos)
      << "a file of another set";
}

TEST(NamedSets, APathWins) {
  const DataOptions o = named_set_options(DataClass::lima, "my.json", "/nowhere");
  EXPECT_EQ(o.path, "my.json");
  EXPECT_EQ(o.validation_fraction, 0.1);
  EXPECT_TRUE(o.first_turn);
}

}  // namespace
}  // namespace capstan
