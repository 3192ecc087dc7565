#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace capstan {
namespace {

// A [4, 6] tensor of i32 whose value at (i, j) is 10 i + j.
class TensorViews : public testing::Test {
 protected:
  TensorViews() {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 6; ++j) data_[static_cast<size_t>(i * 6 + j)] = 10 * i + j;
  }
  std::array<int32_t, 24> data_{};
  Tensor whole_{data_.data(), DType::i32, {4, 6}};
};

int32_t at(const Tensor& t, int64_t i, int64_t j) {
  return t.as<int32_t>()[i * t.stride(0) + j * t.stride(1)];
}

template <class Call>
void expect_bug(const Call& call) {
  try {
    call();
    ADD_FAILURE() << "did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::bug) << e.what();
  }
}

TEST(Shapes, CountCompareAndPrint) {
  EXPECT_EQ(Shape({2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape({5, 0}).numel(), 0);
  EXPECT_EQ(Shape().numel(), 0);
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_FALSE(Shape({2, 3}) == Shape({3, 2}));
  EXPECT_FALSE(Shape({2}) == Shape({2, 0}));
  EXPECT_EQ(to_string(Shape({2, 3})), "[2, 3]");
  EXPECT_EQ(to_string(Shape()), "[]");
}

TEST(Shapes, RefuseWhatTheyCannotHold) {
  expect_bug([] { Shape({1, 2, 3, 4, 5}); });
  expect_bug([] { Shape({2, -1}); });
}

TEST_F(TensorViews, AFreshTensorIsDense) {
  EXPECT_TRUE(whole_);
  EXPECT_TRUE(whole_.contiguous());
  EXPECT_EQ(whole_.stride(0), 6);
  EXPECT_EQ(whole_.stride(-1), 1);
  EXPECT_EQ(whole_.dim(-1), 6);
  EXPECT_EQ(whole_.dim(-2), 4);
  EXPECT_EQ(whole_.nbytes(), 96);
}

TEST_F(TensorViews, AnAbsentTensorIsFalse) {
  EXPECT_FALSE(Tensor());
  EXPECT_EQ(Tensor().numel(), 0);
}

TEST_F(TensorViews, RowsShareTheMemory) {
  const Tensor t = whole_.rows(1, 2);
  EXPECT_EQ(t.shape(), Shape({2, 6}));
  EXPECT_TRUE(t.contiguous());
  EXPECT_EQ(at(t, 0, 0), 10);
  EXPECT_EQ(at(t, 1, 5), 25);
  t.as<int32_t>()[0] = -1;
  EXPECT_EQ(at(whole_, 1, 0), -1);
  EXPECT_EQ(whole_.rows(4, 0).numel(), 0);
}

TEST_F(TensorViews, ColumnsKeepTheRowStride) {
  const Tensor t = whole_.cols(2, 3);
  EXPECT_EQ(t.shape(), Shape({4, 3}));
  EXPECT_FALSE(t.contiguous());
  EXPECT_EQ(at(t, 3, 2), 34);
  const Tensor inner = t.rows(1, 2).cols(1, 1);
  EXPECT_EQ(at(inner, 1, 0), 23);
  EXPECT_TRUE(whole_.rows(2, 1).cols(1, 2).contiguous());  // one row: its stride does not matter
}

TEST_F(TensorViews, HeadsOfASliceOfOneProduct) {
  const Tensor t = whole_.cols(2, 4).heads(2);
  EXPECT_EQ(t.shape(), Shape({4, 2, 2}));
  const int32_t* p = t.as<int32_t>();
  EXPECT_EQ(p[3 * t.stride(0) + 1 * t.stride(1) + 1], 35);
  EXPECT_EQ(t.stride(2), 1);
}

TEST_F(TensorViews, BytesAreSeenAsAnotherType) {
  std::vector<float> v = {1, 2, 3};
  const Tensor bytes(v.data(), DType::u8, {12});
  const Tensor floats = bytes.rows(4, 8).viewed_as(DType::f32);
  EXPECT_EQ(floats.shape(), Shape{2});
  EXPECT_EQ(floats.as<float>()[0], 2);
  EXPECT_THROW(bytes.rows(0, 6).viewed_as(DType::f32), Error);
}

TEST_F(TensorViews, ReshapeKeepsTheOrder) {
  const Tensor t = whole_.reshape({2, 12});
  EXPECT_EQ(at(t, 1, 0), 20);
  EXPECT_EQ(whole_.reshape({2, 2, 2, 3}).rank(), 4);
  EXPECT_EQ(whole_.reshape({24}).stride(0), 1);
}

TEST_F(TensorViews, ViewsThatDoNotFitThrow) {
  expect_bug([&] { whole_.rows(3, 2); });
  expect_bug([&] { whole_.rows(-1, 1); });
  expect_bug([&] { whole_.rows(1, INT64_MAX); });
  expect_bug([&] { whole_.cols(5, 2); });
  expect_bug([&] { whole_.cols(0, -1); });
  expect_bug([&] { whole_.heads(4); });
  expect_bug([&] { whole_.heads(0); });
  expect_bug([&] { whole_.reshape({2, 2, 6}).heads(2); });
  expect_bug([&] { whole_.reshape({5, 5}); });
  expect_bug([&] { whole_.cols(0, 3).reshape({12}); });
  expect_bug([&] { Tensor().rows(0, 0); });
}

TEST_F(TensorViews, AnotherTypeThrowsAndSaysBoth) {
  try {
    whole_.as<float>();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::bug);
    EXPECT_STREQ(e.what(), "tensor [4, 6] of i32 used as f32");
  }
}

TEST(Tensors, ViewsOfNoMemoryStayNull) {
  const Tensor t(nullptr, DType::f32, {8, 8});
  EXPECT_EQ(t.rows(4, 2).raw(), nullptr);
  EXPECT_EQ(t.cols(4, 4).heads(2).raw(), nullptr);
}

}  // namespace
}  // namespace capstan
