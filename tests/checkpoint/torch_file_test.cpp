// Reads what tools/golden/make_pickles.py wrote with torch.
#include "checkpoint/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include "base/files.h"
#include "checkpoint/convert.h"
#include "checkpoint/model_folder.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

fs::path pickle(const std::string& name) {
  return fs::path(CAPSTAN_SOURCE_DIR) / "tests/checkpoint/pickles" / name;
}

std::string refusal(const std::string& name) {
  return message_of(Fault::file, [&] { TorchFile file(pickle(name)); });
}

// In the order of rows, read in blocks of `block` values.
std::vector<float> values(const TensorFile& file, const StoredTensor& t, int64_t block = 1000) {
  std::vector<float> out(static_cast<size_t>(t.numel()));
  std::vector<std::byte> room;
  for (int64_t i = 0; i < t.numel(); i += block) {
    const int64_t n = std::min(block, t.numel() - i);
    convert(out.data() + i, DType::f32, file.read(t, i, n, room).data(), *t.type.dtype, n);
  }
  return out;
}

std::vector<float> ramp(int n, int first = 0, int step = 1) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(static_cast<float>(first + i * step) / 8);
  return x;
}

void expect_all(const TensorEntries& found) {
  EXPECT_EQ(found.size(), 13u);
  const auto check = [&](const char* name, std::string_view type, std::vector<int64_t> shape,
                         const std::vector<float>& expected) {
    const auto it = found.find(name);
    ASSERT_NE(it, found.end()) << name;
    EXPECT_EQ(it->second.tensor->type.name, type) << name;
    EXPECT_EQ(it->second.tensor->shape, shape) << name;
    if (expected.empty()) return;
    for (const int64_t block : {1, 2, 1000})
      EXPECT_EQ(values(*it->second.file, *it->second.tensor, block), expected) << name;
  };
  check("plain", "F32", {3, 5}, ramp(15));
  check("bf16", "BF16", {2, 4}, ramp(8));
  check("f16", "F16", {2, 4}, ramp(8));
  check("f64", "F64", {3}, {});
  check("i64", "I64", {5}, {});
  check("flag", "BOOL", {2}, {});
  check("scalar", "F32", {}, {2.5});
  check("empty", "F32", {0, 3}, {});
  check("rows", "F32", {3, 4}, ramp(12, 8));
  check("whole", "F32", {6, 4}, ramp(24));
  check("column", "F32", {4}, ramp(4, 1, 6));
  std::vector<float> turned, spread;
  for (int i = 0; i < 15; ++i) turned.push_back(static_cast<float>(i % 3 * 5 + i / 3) / 8);
  for (int i = 0; i < 12; ++i) spread.push_back(static_cast<float>(i / 3) / 8);
  check("turned", "F32", {5, 3}, turned);
  check("spread", "F32", {4, 3}, spread);
}

TensorEntries entries_of(const TensorFile& file) {
  TensorEntries found;
  for (const StoredTensor& t : file.tensors()) found[t.name] = {&file, &t};
  return found;
}

TEST(TorchFile, ReadsWhatTorchWrites) {
  for (const char* name : {"good.bin", "good_protocol4.bin", "good_nested.bin"}) {
    SCOPED_TRACE(name);
    const TorchFile file(pickle(name));
    expect_all(entries_of(file));
  }
}

TEST(TorchFile, ReadsTheStatesAndParametersOfModules) {
  for (const char* name : {"module.bin", "parameters.bin"}) {
    const TorchFile file(pickle(name));
    ASSERT_EQ(file.tensors().size(), 2u) << name;
    EXPECT_EQ(values(file, *file.find("weight")), ramp(6));
    EXPECT_EQ(values(file, *file.find("bias")), ramp(2));
  }
}

TEST(TorchFile, IsFoundInFoldersAndInShards) {
  expect_all(ModelFolder(pickle("shards")).tensors());
  TempFolder folder;
  fs::copy_file(pickle("good.bin"), folder / "pytorch_model.bin");
  expect_all(ModelFolder(folder.path()).tensors());
}

// `litgpt download` makes pickles of safetensors, under their names but for the ending.
TEST(TorchFile, IsFoundWhereLitGptPutsIt) {
  TempFolder one, shards;
  fs::copy_file(pickle("good.bin"), one / "model.bin");
  write_text(one / "lit_model.pth", "");
  expect_all(ModelFolder(one.path()).tensors());

  std::string index = read_text(pickle("shards") / "pytorch_model.bin.index.json");
  for (size_t at; (at = index.find(".bin\"")) != std::string::npos;)
    index.replace(at, 5, ".safetensors\"");
  write_text(shards / "model.safetensors.index.json", index);
  for (const auto& entry : fs::directory_iterator(pickle("shards")))
    if (entry.path().extension() == ".bin")
      fs::copy_file(entry.path(), shards.path() / entry.path().filename());
  expect_all(ModelFolder(shards.path()).tensors());
}

TEST(TorchFile, SafetensorsAreTakenFirst) {
  TempFolder folder;
  fs::copy_file(pickle("bad_runs_system.bin"), folder / "pytorch_model.bin");
  EXPECT_THROW(ModelFolder f(folder.path()), Error);
  fs::copy_file(fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden/llama_mha/model.safetensors",
                folder / "model.safetensors");
  EXPECT_NO_THROW(ModelFolder f(folder.path()));
}

TEST(TorchFile, RunsNothingAndNamesWhatItWasAskedToRun) {
  const std::string message = refusal("bad_runs_system.bin");
  EXPECT_NE(message.find("bad_runs_system.bin (data.pkl), byte "), std::string::npos) << message;
  // The module of os.system is called posix, or nt.
  EXPECT_NE(message.find("the pickle asks to run posix.system; Capstan executes nothing"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("convert it to safetensors"), std::string::npos);
  EXPECT_NE(refusal("bad_runs_eval_protocol4.bin").find("asks to run builtins.eval;"),
            std::string::npos);
  EXPECT_NE(refusal("bad_other_storage.bin").find("asks to run torch.ComplexFloatStorage;"),
            std::string::npos);
  EXPECT_NE(refusal("bad_instance.bin").find("asks to run os.system;"), std::string::npos);
}

TEST(TorchFile, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"legacy", "found a bare pickle, as written by PyTorch before 1.6"},
      {"bad_sets_attributes", "expected a dictionary on the stack, found none"},
      {"bad_deep", "expected a dictionary of tensors, found something else"},
      {"bad_deep_lists", "expected a dictionary of tensors, found something else"},
      {"bad_huge_memo", "expected a value 4294967294 in the memo, found none"},
      {"bad_long_text", "expected 4294967295 more bytes, found the end"},
      {"bad_longer_text", "expected 18446744073709551615 more bytes, found the end"},
      {"bad_huge_number", "expected a number of 64 bits, found one of 255 bytes"},
      {"bad_no_end", "expected 1 more bytes, found the end"},
      {"bad_empty_pickle", "expected 1 more bytes, found the end"},
      {"bad_no_stack", "expected a value on the stack, found none"},
      {"bad_no_mark", "expected a mark on the stack, found none"},
      {"bad_list_root", "expected a dictionary of tensors, found something else"},
      {"bad_too_large", "\"a\": expected a tensor within its storage"},
      {"bad_offset_too_large", "size [3], stride [1], from value 2 of 4"},
      {"bad_stride_too_large", "expected a tensor within its storage"},
      {"bad_negative_size", "expected whole numbers as its size"},
      {"bad_negative_stride", "expected whole numbers as its stride"},
      {"bad_negative_offset", "expected a storage and an offset"},
      {"bad_overflow", "expected a size that fits 64 bits"},
      {"bad_spread_overflow", "expected a size that fits 64 bits"},
      {"bad_strides_missing", "expected as many strides as sizes"},
      {"bad_storage_says_more", "expected 8 values of F32 in data/0, found 16 bytes"},
      {"bad_storage_missing", "expected its data in data/\"7\", found no such file"},
      {"bad_storage_elsewhere", "found no such file in the archive"},
      {"bad_name_of_bytes", "expected a tensor's name in ASCII, found \"a\\u001b[31m"},
      {"bad_name_twice", "\"a\": expected each name once, found it twice"},
      {"bad_no_pickle", "expected data.pkl in the archive of torch.save, found none of 1 files"},
      {"bad_compressed", "expected a stored file, found it compressed"},
      {"bad_big_endian", "expected little-endian numbers"},
      {"bad_cut_short", "expected a zip archive's end, found none: it is truncated"},
      {"bad_place_outside", "found the end at"},
      {"bad_size_outside", "expected 2147483632 bytes at"},
      {"bad_endless_table", "expected a table of 2 files within"},
  };
  std::set<std::string> covered = {"bad_runs_system", "bad_runs_eval_protocol4",
                                   "bad_other_storage", "bad_instance"};
  for (const auto& [name, expected] : cases) {
    covered.insert(name);
    const std::string file = std::string(name) + ".bin", message = refusal(file);
    EXPECT_TRUE(message.starts_with(pickle(file).string())) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << name << ": " << message;
  }
  for (const auto& entry : fs::directory_iterator(pickle(""))) {
    const std::string name = entry.path().stem();
    EXPECT_TRUE(!name.starts_with("bad_") || covered.contains(name)) << name;
  }
}

// Whatever the bytes are: an error, or tensors that can be read.
TEST(TorchFile, SurvivesFlippedBitsAndTruncation) {
  TempFolder folder;
  const std::string good = read_text(pickle("good.bin"));
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    if (i % 8 == 0) bytes.resize(random() % good.size());
    for (int flips = i % 3; flips >= 0 && !bytes.empty(); --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    try {
      const TorchFile file(folder.write("x.bin", bytes));
      std::vector<std::byte> room;
      for (const StoredTensor& t : file.tensors())
        if (t.numel() < 10'000) file.read(t, 0, t.numel(), room);
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::file) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace capstan
