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
  // Alpaca form. Used if there are neither messages nor text.
  std::string instruction = {}, input = {}, output = {};
  // Chat form: system?, then user and assistant in turn, ending with assistant. Contents are
  // unchanged from the file.
  std::vector<Message> messages = {};
  // A document; all of it is a target.
  std::string text = {};
  // With the Alpaca form: the system message.
  std::string system = {};

  bool is_chat() const { return !messages.empty(); }
  bool is_document() const { return !text.empty(); }
  bool operator==(const Record&) const = default;
};

// The names of a record's fields in a file. An empty name: there is no such field.
struct RecordFields {
  std::string instruction = "instruction", input = "input", output = "output";
  // Names that the user gave to the fields of the other forms; empty: the usual ones.
  std::string system = {}, messages = {}, text = {};
  // The user named fields of the Alpaca form: records have this form, with these names. (A record
  // has one of the forms whose names were given; without any, its fields decide.)
  bool named = false;
};

// Version of the record parser, part of the token cache key: increase it if the same file gives
// other records.
inline constexpr int kRecordReader = 2;

}  // namespace capstan
