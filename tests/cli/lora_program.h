#pragma once

#include "tiny_model.h"

namespace capstan::cli_test {

// Adapters are trained and used as a user does it.
class Lora : public TinyModel {
 protected:
  static nlohmann::json record(int i) {
    return {{"instruction", "Say " + std::to_string(i)}, {"output", std::to_string(i * i)}};
  }
  Lora() : TinyModel(24, record) {}

  static Words finetune(const Words& more = {}) {
    Words words = {"finetune",
                   "tiny/final",
                   "--data=JSON",
                   "--data.json_path=data.jsonl",
                   "--train.max_steps=6",
                   "--train.global_batch_size=4",
                   "--train.micro_batch_size=2",
                   "--train.lr_warmup_steps=0",
                   "--optimizer.lr=0.01",
                   "--eval.max_new_tokens=null",
                   "--out_dir=out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  double loss_of(const std::string& model, const Words& more = {}) const {
    Words words = {
        "evaluate", model, "--data=data.jsonl", "--data.prompt_style=alpaca", "--precision=32-true",
        "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out, nullptr, false).value("loss", -1.0);
  }
};

}  // namespace capstan::cli_test
