// Encodes a file of records as fine-tuning does and prints how long it takes:
//   bench_tokenize FOLDER RECORDS.json [REPEATS]
// RECORDS.json is a list of {"instruction", "input", "output"}. Each record is Alpaca's prompt and
// its response, encoded as one text, and the prompt once more for its length. OMP_NUM_THREADS sets
// the threads. bench/tokenize_peer.py measures LitGPT on the same.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "data/tokenizer/tokenizer_folder.h"

namespace {

using namespace capstan;

struct Record {
  std::string prompt, response;
};

std::vector<Record> read_records(const std::string& path) {
  std::vector<Record> records;
  for (const auto& r : parse_json(read_text(path), path)) {
    records.push_back(
        {fmt::format("Below is an instruction that describes a task. Write a response that "
                     "appropriately completes the request.\n\n### Instruction:\n{}\n\n### "
                     "Response:\n",
                     r["instruction"].get<std::string>()),
         r["output"].get<std::string>()});
  }
  return records;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(const std::string& folder, const std::string& path, int repeats) {
  auto start = std::chrono::steady_clock::now();
  const auto tokenizer = load_tokenizer(folder);
  const double load = seconds_since(start);
  const std::vector<Record> records = read_records(path);
  size_t bytes = 0;
  for (const Record& r : records) bytes += 2 * r.prompt.size() + r.response.size();

  for (int n = 0; n < repeats; ++n) {
    std::vector<size_t> tokens(records.size());
    start = std::chrono::steady_clock::now();
    parallel_for(static_cast<int64_t>(records.size()), 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Record& r = records[static_cast<size_t>(i)];
        tokens[static_cast<size_t>(i)] =
            tokenizer->encode(r.prompt + r.response).size() + tokenizer->encode(r.prompt).size();
      }
    });
    const double time = seconds_since(start);
    size_t total = 0;
    for (const size_t t : tokens) total += t;
    fmt::print(
        "load {:.3f} s, {} records in {:.3f} s: {:.0f} records/s, {:.1f} MB/s, {} tokens, "
        "{} threads\n",
        load, records.size(), time, static_cast<double>(records.size()) / time,
        static_cast<double>(bytes) / time / 1e6, total, num_threads());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_tokenize FOLDER RECORDS.json [REPEATS]\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 3);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return e.exit_code();
  }
}
