#pragma once

#include <nlohmann/json.hpp>

#include "program.h"

namespace capstan::cli_test {

using nlohmann::json;

// capstan plan, and what its JSON must be in every case.
class Plan : public Cli {
 protected:
  json plan(Words words, int code) const {
    words.insert(words.begin(), "plan");
    words.emplace_back("--json");
    const Outcome o = run(words);
    EXPECT_EQ(o.code, code) << o.err << o.out;
    EXPECT_LT(o.seconds, 5.0);
    const json out = json::parse(o.out, nullptr, false);
    EXPECT_EQ(out.value("fits", false), code == 0) << o.out << o.err;
    int64_t sum = 0;
    for (const auto& [name, bytes] : out["memory"]["by_category"].items())
      sum += bytes.get<int64_t>();
    EXPECT_EQ(out["memory"]["peak_bytes"], sum) << "categories are all there is";
    return out;
  }
  fs::path recipes = fs::path(CAPSTAN_SOURCE_DIR) / ".." / "shared" / "recipes";
};

}  // namespace capstan::cli_test
