#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// What is wrong with the markup, or "": elements nest, attributes are quoted and not doubled, and &
// begins one of the entities that XML has. Enough of XML for what we write.
inline std::string fault_in_markup(std::string_view text) {
  std::vector<std::string> open;
  std::vector<std::string> attributes;
  const auto near = [&](const char* what, size_t at) {
    return std::string(what) + " near '" + std::string(text.substr(at, 60)) + "'";
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '&') {
      const std::string_view rest = text.substr(at);
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known = known || rest.starts_with(entity);
      if (!known) return near("a bare &", at);
    }
    if (c == '>') return near("a bare >", at);
    if (c != '<') continue;
    const size_t begin = at;
    if (text.substr(at).starts_with("<!doctype html>")) {
      at = text.find('>', at);
      continue;
    }
    const bool closing = text.substr(at + 1, 1) == "/";
    size_t end = at + (closing ? 2 : 1);
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) ++end;
    const std::string name(text.substr(at + (closing ? 2 : 1), end - at - (closing ? 2 : 1)));
    if (name.empty()) return near("a bare <", begin);
    attributes.clear();
    for (at = end; at < text.size() && text[at] != '>' && text[at] != '/'; ++at) {
      if (std::isspace(static_cast<unsigned char>(text[at]))) continue;
      const size_t equals = text.find("=\"", at);
      const size_t quote = equals == text.npos ? text.npos : text.find('"', equals + 2);
      if (quote == text.npos) return near("an attribute without quotes", begin);
      attributes.emplace_back(text.substr(at, equals - at));
      if (attributes.back().find_first_of(" <>'") != std::string::npos)
        return near("an attribute without a value", begin);
      if (text.substr(equals + 2, quote - equals - 2).find('<') != text.npos)
        return near("a < in an attribute", begin);
      at = quote;
    }
    std::sort(attributes.begin(), attributes.end());
    if (std::adjacent_find(attributes.begin(), attributes.end()) != attributes.end())
      return near("an attribute twice", begin);
    const bool empty = text.substr(at, 2) == "/>";
    if (empty) ++at;
    if (at >= text.size() || text[at] != '>') return near("a tag without its end", begin);
    if (closing) {
      if (open.empty() || open.back() != name) return near("the end of another element", begin);
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "no end of <" + open.back() + ">";
}

inline size_t count_of(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++n;
  return n;
}

}  // namespace capstan
