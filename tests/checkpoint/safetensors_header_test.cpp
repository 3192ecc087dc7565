#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "support/message_of.h"

namespace capstan {
namespace {

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), std::ssize(file),
                                  "m.safetensors");
}
std::string refusal(const std::string& file) {
  return message_of(Fault::file, [&] { parse(file); });
}

std::string length_of(uint64_t n) {
  std::string s(8, '\0');
  for (size_t i = 0; i < 8; ++i) s[i] = static_cast<char>((n >> (8 * i)) & 0xff);
  return s;
}
std::string file_of(const std::string& header, size_t data_bytes) {
  return length_of(header.size()) + header + std::string(data_bytes, 'x');
}
std::string tensor(const char* dtype, const char* shape, const char* offsets) {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}
// Of a file with one tensor "a".
std::string refusal(const char* dtype, const char* shape, const char* offsets, size_t data_bytes) {
  return refusal(file_of("{\"a\":" + tensor(dtype, shape, offsets) + "}", data_bytes));
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirData) {
  const auto h =
      parse(file_of(R"({"a":)" + tensor("BF16", "[2, 3]", "[4, 16]") + R"(,"z":)" +
                        tensor("F32", "[]", "[0, 4]") + R"(,"__metadata__":{"k":"v"}}  )",
                    16));
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].name, "z");
  EXPECT_TRUE(h.tensors[0].shape.empty());
  EXPECT_EQ(h.tensors[1].name, "a");
  EXPECT_EQ(h.tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(h.tensors[1].type.dtype, DType::bf16);
  EXPECT_EQ(h.find("a"), &h.tensors[1]);
  EXPECT_EQ(h.find("b"), nullptr);
  EXPECT_EQ(h.metadata, (std::map<std::string, std::string>{{"k", "v"}}));
}

TEST(SafetensorsHeader, AFileMayBeEmptyOfTensorsAndTensorsOfValues) {
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
  const auto h = parse(file_of("{\"a\":" + tensor("F32", "[0, 5]", "[0, 0]") + "}", 0));
  EXPECT_EQ(h.tensors.at(0).nbytes(), 0);
}

TEST(SafetensorsHeader, KnowsTypesThatItHasNoOwnTypeFor) {
  for (const char* type : {"I64", "I16", "I8", "BOOL"}) {
    const auto h = parse(file_of("{\"a\":" + tensor(type, "[0]", "[0, 0]") + "}", 0));
    EXPECT_FALSE(h.tensors.at(0).type.dtype.has_value());
  }
}

TEST(SafetensorsHeader, LengthMustLieWithinTheFile) {
  EXPECT_EQ(refusal("1234567"),
            "m.safetensors: expected a safetensors file, found 7 bytes, fewer than the 8 of the "
            "header's length; download or copy it again");
  EXPECT_EQ(refusal(length_of(3) + "{}"),
            "m.safetensors: expected a header of at most 2 bytes, found a length of 3; the file is "
            "truncated or is not a safetensors file: download or copy it again");
  EXPECT_NE(refusal(length_of(UINT64_MAX) + "{}").find("a length of 18446744073709551615"),
            std::string::npos);
  EXPECT_NE(refusal("").find("found 0 bytes"), std::string::npos);
}

TEST(SafetensorsHeader, LengthIsAtMostTheFormatsLimit) {
  const std::string file = length_of(100'000'001) + "{}" + std::string(100'000'000, ' ');
  EXPECT_NE(refusal(file).find("at most 100000000 bytes, found a length of 100000001"),
            std::string::npos);
}

TEST(SafetensorsHeader, SaysWhatAnotherKindOfFileLooksLike) {
  EXPECT_NE(refusal("version https://git-lfs.github.com/spec/v1\n").find("git lfs pull"),
            std::string::npos);
  EXPECT_NE(refusal("PK\x03\x04 some zip with a pickle").find("pickle"), std::string::npos);
  EXPECT_NE(refusal("<!DOCTYPE html><html>").find("web page"), std::string::npos);
}

TEST(SafetensorsHeader, MustBeStrictJsonObjectInUtf8) {
  EXPECT_NE(refusal(file_of(" {}", 0)).find("begins with {"), std::string::npos);
  EXPECT_NE(refusal(file_of("[]", 0)).find("begins with {"), std::string::npos);
  EXPECT_NE(refusal(file_of("", 0)).find("begins with {"), std::string::npos);
  EXPECT_TRUE(refusal(file_of("{\"a\":", 0)).starts_with("m.safetensors (header):1:6: not valid"));
  EXPECT_NE(refusal(file_of("{\"\xff\":1}", 0)).find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal(file_of("{}{}", 0)).find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal(file_of("{\"a\":" + std::string(1000, '['), 0)).find("nested"),
            std::string::npos);
}

TEST(SafetensorsHeader, ADuplicateKeyIsRefused) {
  const std::string a = "\"a\":" + tensor("U8", "[1]", "[0, 1]");
  EXPECT_NE(refusal(file_of("{" + a + "," + a + "}", 1)).find("key \"a\" appears twice"),
            std::string::npos);
  EXPECT_NE(
      refusal(file_of(R"({"a":{"dtype":"U8","dtype":"F32","shape":[],"data_offsets":[0,1]}})", 1))
          .find("key \"dtype\" appears twice"),
      std::string::npos);
}

TEST(SafetensorsHeader, MetadataMapsStringsToStrings) {
  EXPECT_EQ(refusal(file_of(R"({"__metadata__":{"a":"b","n":1}})", 0)),
            "m.safetensors (header):1:26: \"__metadata__\": expected a string for \"n\", found 1");
  EXPECT_NE(
      refusal(file_of(R"({"__metadata__":["a"]})", 0)).find("an object of strings, found a list"),
      std::string::npos);
}

TEST(SafetensorsHeader, FieldsMustBeThereAndOfTheirType) {
  EXPECT_EQ(refusal(file_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1)),
            "m.safetensors (header):1:2: \"a\": expected data_offsets, found none");
  EXPECT_EQ(refusal(file_of(R"({"a":[1]})", 1)),
            "m.safetensors (header):1:2: \"a\": expected an object with dtype, shape and "
            "data_offsets, found a list");
  EXPECT_NE(refusal(file_of(R"({"a":{"more":1}})", 1)).find("found \"more\""), std::string::npos);
  EXPECT_EQ(
      refusal("Q4", "[1]", "[0,1]", 1),
      "m.safetensors (header):1:7: \"a\": expected one of F64, F32, F16, BF16, I64, I32, I16, "
      "I8, U8, BOOL, found \"Q4\"");
  EXPECT_NE(refusal("U8", "1", "[0,1]", 1).find("expected a list in shape, found 1"),
            std::string::npos);
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[9223372036854775808]"}) {
    EXPECT_NE(refusal("U8", shape, "[0,1]", 1).find("expected whole numbers in shape, found"),
              std::string::npos)
        << shape;
  }
}

TEST(SafetensorsHeader, OffsetsMustLieWithinTheData) {
  for (const char* offsets : {"[0]", "[0,1,2]", "[]", "[1,0]", "[0,5]"}) {
    EXPECT_NE(refusal("U8", "[4]", offsets, 4).find("expected two offsets within 4 bytes of data"),
              std::string::npos)
        << offsets;
  }
}

TEST(SafetensorsHeader, ShapeTimesTypeMustBeTheBytes) {
  EXPECT_EQ(refusal("F32", "[3]", "[0,8]", 8),
            "m.safetensors (header):1:33: \"a\": expected 12 bytes for [3] of F32, found 8");
}

TEST(SafetensorsHeader, ShapeTimesTypeMustNotOverflow) {
  // 2^62 * 4 bytes is 2^64, which wraps to 0: the size of the data.
  EXPECT_EQ(refusal("F32", "[4611686018427387904]", "[0,0]", 0),
            "m.safetensors (header):1:21: \"a\": expected a size that fits 64 bits, found "
            "[4611686018427387904] of F32");
  EXPECT_NE(refusal("U8", "[4294967296,4294967296]", "[0,0]", 0).find("fits 64 bits"),
            std::string::npos);
}

std::string two(const char* a, const char* b, size_t data_bytes) {
  return file_of("{\"a\":" + tensor("U8", "[4]", a) + ",\"b\":" + tensor("U8", "[4]", b) + "}",
                 data_bytes);
}

TEST(SafetensorsHeader, DataHasNoGapNorOverlapNorRest) {
  EXPECT_NO_THROW(parse(two("[4,8]", "[0,4]", 8)));
  EXPECT_NE(
      refusal(two("[0,4]", "[5,9]", 9))
          .find("\"b\": expected data from byte 4 on, where \"a\" ends, found 5: there is a gap"),
      std::string::npos);
  EXPECT_NE(refusal(two("[0,4]", "[3,7]", 7)).find("found 3: they overlap"), std::string::npos);
  EXPECT_NE(refusal(two("[0,4]", "[0,4]", 4)).find("found 0: they overlap"), std::string::npos);
  EXPECT_NE(refusal(two("[1,5]", "[5,9]", 9)).find("where the header ends"), std::string::npos);
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]", 9)),
            "m.safetensors (header): expected 8 bytes of data, as the last offset says, found 9; "
            "the file is damaged: download or copy it again");
  EXPECT_NE(refusal(two("[0,4]", "[4,8]", 7)).find("within 7 bytes of data"), std::string::npos);
}

TEST(SafetensorsHeader, EveryTruncationIsDetected) {
  const std::string file = two("[0,4]", "[4,8]", 8);
  for (size_t n = 0; n < file.size(); ++n) {
    EXPECT_THROW(parse(file.substr(0, n)), Error) << n;
  }
}

}  // namespace
}  // namespace capstan
