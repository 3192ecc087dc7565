#pragma once

#include <nlohmann/json.hpp>

#include "program.h"

namespace capstan::cli_test {

// A tiny model under checkpoints/tiny/final, and records to train adapters of it on.
class Lora : public Cli {
 protected:
  Lora() {
    std::string jsonl;
    for (int i = 0; i < 24; ++i)
      jsonl += nlohmann::json{{"instruction", "Say " + std::to_string(i)},
                              {"output", std::to_string(i * i)}}
                   .dump() +
               "\n";
    write("data.jsonl", jsonl);
    train_tiny({"--out_dir=checkpoints/tiny", "--train.max_seq_length=512",
                "--data.val_split_fraction=0"});
  }
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
