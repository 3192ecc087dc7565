#pragma once

#include "tiny_model.h"

namespace capstan::cli_test {

// Fine-tunings of a tiny model on short records.
class Finetune : public TinyModel {
 protected:
  // Of every length.
  static nlohmann::json record(int i) {
    return {{"instruction", "Say " + std::to_string(i)},
            {"input", ""},
            {"output", std::to_string(i) + std::string(static_cast<size_t>(i), '.')}};
  }
  Finetune() : TinyModel(30, record) {}

  static Words finetune(const Words& more = {}) {
    Words words = {"finetune_full",
                   "tiny/final",
                   "--data=JSON",
                   "--data.json_path=data.jsonl",
                   "--train.epochs=1",
                   "--train.global_batch_size=8",
                   "--train.micro_batch_size=4",
                   "--train.lr_warmup_steps=0",
                   "--eval.max_new_tokens=4",
                   "--out_dir=out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

}  // namespace capstan::cli_test
