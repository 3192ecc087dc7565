#pragma once

#include <filesystem>
#include <string>
#include <string_view>

// capstan plan --html: a plan as one page that opens from disk and needs no other file or network.
//
// The page is plan_page/page.html with the plan's JSON (--json) in it, unchanged but for escapes;
// its script draws everything from that, and leaves out what the JSON does not have. Without
// scripts the page shows title and verdict. Throws Fault::file if the text is not an object of
// JSON.
namespace capstan::cli {

std::string plan_page(std::string_view plan_json);

// Replaces an existing file when the page is complete. Throws Fault::file if it cannot be written.
void write_plan_page(const std::filesystem::path& path, std::string_view plan_json);

}  // namespace capstan::cli
