#include "hub/needed_files.h"

#include <algorithm>
#include <regex>

#include "base/error.h"

namespace capstan {
namespace {

bool matches(const std::string& name, const char* pattern) {
  return std::regex_match(name, std::regex(pattern));
}

}  // namespace

std::vector<HubFile> needed_files(const std::string& repository, const HubTree& tree,
                                  bool tokenizer_only) {
  constexpr const char* kTokenizer =
      "tokenizer[^/]*\\.(json|model)|special_tokens_map\\.json|added_tokens\\.json|vocab\\.json|"
      "merges\\.txt|chat_template\\.(json|jinja)|(config|generation_config)\\.json";
  constexpr const char* kBeside = "adapter_config\\.json|(LICENSE|NOTICE|USE_POLICY)(\\.(txt|md))?";
  // The first of these that a repository has.
  constexpr const char* kWeights[] = {
      "model(-[0-9]+-of-[0-9]+)?\\.safetensors|model\\.safetensors\\.index\\.json",
      "pytorch_model(-[0-9]+-of-[0-9]+)?\\.bin|pytorch_model\\.bin\\.index\\.json",
      "adapter_model\\.safetensors",
  };
  std::vector<HubFile> needed;
  const auto take = [&](const char* pattern) {
    const size_t before = needed.size();
    for (const HubFile& f : tree.files)
      if (matches(f.path, pattern)) needed.push_back(f);
    return needed.size() > before;
  };
  take(kTokenizer);
  if (!tokenizer_only) {
    take(kBeside);
    bool found = false;
    for (const char* pattern : kWeights) found = found || take(pattern);
    std::string there;
    for (const HubFile& f : tree.files)
      if (there.size() < 300) there += (there.empty() ? "" : ", ") + f.path;
    require(found, Fault::usage,
            "{}: expected model.safetensors, pytorch_model.bin, shards of either, or "
            "adapter_model.safetensors; it has {}",
            repository, there.empty() ? "no files" : there);
  }
  require(!needed.empty(), Fault::usage, "{}: has no tokenizer", repository);
  std::sort(needed.begin(), needed.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return needed;
}

}  // namespace capstan
