#include "doctor/secrets.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "base/url.h"

namespace capstan {
namespace {

constexpr std::string_view kMask = "***";

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

// The end of the name or value that begins at `at`.
size_t end_of_word(std::string_view text, size_t at) {
  while (at < text.size() && in_word(text[at])) ++at;
  return at;
}

// The end of the value that begins at `at`: of its quotes, or before the next blank or separator.
size_t end_of_value(std::string_view text, size_t at) {
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) {
    const size_t close = text.find(text[at], at + 1);
    return close == std::string_view::npos ? text.size() : close + 1;
  }
  return std::min(text.find_first_of(" \t\r\n,;&)]}", at), text.size());
}

// Where the value of the name that ends at `at` begins: after "=", ":" or one blank, and quotes
// that close the name. No value: the end of the text.
size_t value_after(std::string_view text, size_t at) {
  const size_t begin = at;
  while (at < text.size() && (text[at] == '"' || text[at] == '\'')) ++at;
  while (at < text.size() && is_blank(text[at])) ++at;
  if (at < text.size() && (text[at] == '=' || text[at] == ':')) ++at;
  if (at == begin) return text.size();
  while (at < text.size() && is_blank(text[at])) ++at;
  return at < text.size() && text[at] != '\n' ? at : text.size();
}

bool is_known_token(std::string_view word) {
  constexpr std::string_view kBeginnings[] = {"hf_", "ghp_", "gho_", "github_pat_", "sk-", "xoxb-"};
  return word.size() >= 12 && std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                                          [&](auto b) { return word.starts_with(b); });
}

// Names of settings, of which some are about a secret without being one.
bool is_harmless(std::string_view lower) {
  constexpr std::string_view kHarmless[] = {"tokenizer", "tokens", "max_new_token",
                                            "keep",      "keys",   "lora_key"};
  return std::any_of(std::begin(kHarmless), std::end(kHarmless),
                     [&](auto word) { return lower.find(word) != std::string_view::npos; });
}

std::string without_passwords(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t scheme = text.find("://", at);
    if (scheme == std::string_view::npos) {
      out += text.substr(at);
      break;
    }
    const size_t end = std::min(text.find_first_of(" \t\r\n\"'<>", scheme), text.size());
    out += text.substr(at, scheme - at);
    out += without_password(text.substr(scheme, end - scheme));
    at = end;
  }
  return out;
}

}  // namespace

bool names_secret(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (is_harmless(lower)) return false;
  constexpr std::string_view kWords[] = {"token",         "secret", "password", "passwd",
                                         "passphrase",    "apikey", "_key",     "credential",
                                         "authorization", "cookie"};
  return lower == "key" || std::any_of(std::begin(kWords), std::end(kWords), [&](auto word) {
           return lower.find(word) != std::string_view::npos;
         });
}

std::string masked(std::string_view text, std::string_view home) {
  const std::string safe = without_passwords(text);
  const std::string_view in = safe;
  std::string out;
  for (size_t at = 0; at < in.size();) {
    const size_t end = end_of_word(in, at);
    const std::string_view word = in.substr(at, end - at);
    if (word.empty()) {
      out += in[at++];
      continue;
    }
    at = end;
    if (is_known_token(word)) {
      out += kMask;
      continue;
    }
    out += word;
    if (!names_secret(word)) continue;
    size_t value = value_after(in, end);
    if (value >= in.size()) continue;
    if (const std::string_view scheme = in.substr(value, end_of_word(in, value) - value);
        scheme == "Bearer" || scheme == "Basic")
      value = value_after(in, value + scheme.size());
    out += in.substr(end, value - end);
    const size_t value_end = end_of_value(in, value);
    const std::string_view secret = in.substr(value, value_end - value);
    out += secret == "null" || secret.empty() ? secret : kMask;
    at = value_end;
  }
  return home.size() > 1 ? replaced(std::move(out), home, "~") : out;
}

}  // namespace capstan
