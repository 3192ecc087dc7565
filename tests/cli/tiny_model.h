#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "program.h"

namespace capstan::cli_test {

// A tiny model under checkpoints/tiny/final, made by the program itself, and data.jsonl to train it
// on, with record(0) to record(count - 1).
class TinyModel : public Cli {
 protected:
  TinyModel(int count, const std::function<nlohmann::json(int)>& record) {
    std::string jsonl;
    for (int i = 0; i < count; ++i) jsonl += record(i).dump() + "\n";
    write("data.jsonl", jsonl);
    train_tiny({"--out_dir=checkpoints/tiny", "--train.max_seq_length=512",
                "--data.val_split_fraction=0"});
  }
};

}  // namespace capstan::cli_test
