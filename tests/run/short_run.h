#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "run/run.h"
#include "support/temp_folder.h"

// What the tests of whole runs share: a recipe and its inputs, of a run that takes no time.
namespace capstan::test {

// What a run tells the tests need not show, unless one of them fails: gtest says so there, too.
struct Quiet {
  Quiet() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
  }
  ~Quiet() {
    const std::string told = testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    if (testing::Test::HasFailure()) std::fputs(told.c_str(), stdout);
  }
};

// Three steps, whose output is in `folder`/out.
inline Recipe short_recipe(const TempFolder& folder) {
  Recipe r = defaults_of(Task::pretrain);
  r.out_dir = folder / "out";
  r.logger_name = Logger::csv;
  r.max_tokens = std::nullopt;
  r.global_batch_size = 4;
  r.micro_batch_size = 2;
  r.max_steps = 3;
  r.lr_warmup_steps = 0;
  r.matmul_precision = MatmulPrecision::highest;  // on a GPU, too
  return r;
}

// Samples of 3 to 11 tokens.
inline Dataset short_samples(int64_t count) {
  Dataset data;
  for (int64_t s = 0; s < count; ++s)
    data.add(std::vector<int32_t>(static_cast<size_t>(3 + s % 9), static_cast<int32_t>(s % 31)), 1);
  return data;
}

// A model of 31 tokens, `train` samples and `held_out` ones.
inline RunInputs short_inputs(int64_t train, int64_t held_out) {
  RunInputs in;
  in.tokenizer = std::make_shared<ByteTokenizer>();
  in.model.config.vocab = 31;
  in.model.config.hidden = 16;
  in.model.config.intermediate = 24;
  in.model.config.layers = 2;
  in.model.config.heads = in.model.config.kv_heads = 2;
  in.model.config.head_dim = 8;
  in.model.name = "a small model";
  in.data.train = short_samples(train);
  in.data.validation = short_samples(held_out);
  in.max_seq_length = 16;
  in.is_text = true;
  return in;
}

}  // namespace capstan::test
