#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace capstan {

enum class Role { system, user, assistant };
std::string_view name_of(Role role);

struct Message {
  Role role = Role::user;
  std::string content;

  bool operator==(const Message&) const = default;
};

// One record, in one of three forms.
struct Record {
  // Alpaca form. Used while there are neither messages nor text.
  std::string instruction = {}, input = {}, output = {};
  // Chat form: system?, then user and assistant in turn, ending with assistant. Contents as they
  // are in the file.
  std::vector<Message> messages = {};
  // A document, learned as it is.
  std::string text = {};
  // Beside the Alpaca form: what the model is told beforehand.
  std::string system = {};

  bool is_chat() const { return !messages.empty(); }
  bool is_document() const { return !text.empty(); }
  bool operator==(const Record&) const = default;
};

// What the fields of a record are called in a file. An empty name: there is no such field.
struct RecordFields {
  std::string instruction = "instruction", input = "input", output = "output";
  // Names that the user gave to the fields of other forms; empty: the usual ones.
  std::string system = {}, messages = {}, text = {};
  // The user gave names of the Alpaca form: records have it, under these names. (Of the forms whose
  // names were given a record has one; without any, the fields that are there tell.)
  bool named = false;
};

// How records are read, for the keys of cached tokens: another number where the same file gives
// other records.
inline constexpr int kRecordReader = 2;

}  // namespace capstan
