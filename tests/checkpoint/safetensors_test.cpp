#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using namespace std::string_literals;

template <class T>
std::vector<T> values(const SafetensorsFile& file, const char* name) {
  const StoredTensor* t = file.header().find(name);
  if (t == nullptr) return {};
  EXPECT_EQ(t->type.dtype, dtype_of<T>);
  std::vector<T> out(static_cast<size_t>(t->numel()));
  file.read_to(reinterpret_cast<std::byte*>(out.data()), *t, 0, t->numel());
  return out;
}

template <class T>
void append(SafetensorsWriter& file, const std::vector<T>& data) {
  file.append(std::as_bytes(std::span(data)));
}

TEST(Safetensors, ReadsWhatThePythonLibraryWrote) {
  TempFolder folder;
  write_text(
      folder / "a.safetensors",
      "\xd0\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},\"n\":{\"dtype\":\"I64\","
      "\"shape\":[1],\"data_offsets\":[0,8]},\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],"
      "\"data_offsets\":[8,24]},\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":"
      "[24,28]}}     \x07\0\0\0\0\0\0\0\0\0\xc0?\0\0\0\xc0\0\0@@\0\0\x80>\0<\0\xb8"s);
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(values<float>(file, "b.weight"), (std::vector<float>{1.5f, -2, 3, 0.25f}));
  const auto a = values<f16>(file, "a");
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(static_cast<float>(a[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(a[1]), -0.5f);
  EXPECT_FALSE(file.header().find("n")->type.dtype) << "I64 is not ours";
}

TEST(Safetensors, WritesWhatItReads) {
  TempFolder folder;
  const auto path = folder / "a.safetensors";
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const std::vector<bf16> y = {bf16(1.5f)};
  const std::vector<uint8_t> z = {7, 8, 9};
  SafetensorsWriter out(path,
                        {{"x", DType::f32, {2, 3}},
                         {"y é \"q\"", DType::bf16, {}},
                         {"z", DType::u8, {3}},
                         {"none", DType::i32, {0}}},
                        {{"format", "pt"}});
  out.append(std::as_bytes(std::span(x)).first(10));  // pieces need not be tensors
  out.append(std::as_bytes(std::span(x)).subspan(10));
  append(out, y);
  append(out, z);
  EXPECT_FALSE(std::filesystem::exists(path)) << "not before it is complete";
  out.commit();

  const SafetensorsFile file(path);
  EXPECT_EQ(file.header().data_begin % 8, 0);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(values<float>(file, "x"), x);
  EXPECT_EQ(values<bf16>(file, "y é \"q\"").at(0).bits, y[0].bits);
  EXPECT_EQ(values<uint8_t>(file, "z"), z);
  EXPECT_EQ(file.header().find("x")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(values<int32_t>(file, "none").empty());
}

TEST(Safetensors, AnEmptyFileOfTensorsIsWhole) {
  TempFolder folder;
  SafetensorsWriter(folder / "a", {}, {}).commit();
  EXPECT_TRUE(SafetensorsFile(folder / "a").header().tensors.empty());
}

TEST(Safetensors, AnIncompleteFileNeverAppears) {
  TempFolder folder;
  write_text(folder / "a", "the one before");
  {
    SafetensorsWriter out(folder / "a", {{"x", DType::f32, {2}}}, {});
    EXPECT_NE(message_of(Fault::bug, [&] { out.commit(); }).find("bytes written, not"),
              std::string::npos);
  }
  EXPECT_EQ(read_text(folder / "a"), "the one before");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.part"));
}

TEST(Safetensors, ErrorsNameTheFile) {
  TempFolder folder;
  const auto path = folder / "none.safetensors";
  EXPECT_EQ(message_of(Fault::file, [&] { SafetensorsFile file(path); }),
            path.string() + ": cannot open: No such file or directory");
  write_text(path, "");
  EXPECT_NE(message_of(Fault::file, [&] { SafetensorsFile file(path); }).find("found 0 bytes"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::file, [&] { SafetensorsFile file(folder.path()); })
                .find("expected a file, found a folder"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
