#include "checkpoint/pickle.h"

#include <algorithm>
#include <set>

#include "base/json_text.h"
#include "checkpoint/pickle_machine.h"

namespace capstan {
namespace {

using Kind = PickleMachine::Kind;
using Value = PickleMachine::Value;

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

// Turns the machine's result into tensors.
class StateDictionary {
 public:
  explicit StateDictionary(const PickleMachine& machine) : machine_(machine) {}

  std::vector<PickledTensor> tensors(const Value& dictionary) const {
    std::vector<PickledTensor> out;
    std::set<std::string_view> names;
    for (size_t i = 0; i < dictionary.items.size(); i += 2) {
      const Value& key = machine_[dictionary.items[i]];
      const Value& value = machine_[dictionary.items[i + 1]];
      if (value.kind != Kind::tensor) continue;
      if (key.kind != Kind::text || !is_printable(key.text) || key.text == "__metadata__")
        machine_.refuse("expected a tensor's name in ASCII, found {}", in_quotes(key.text));
      if (!names.insert(key.text).second)
        machine_.refuse("{}: expected each name once, found it twice", in_quotes(key.text));
      out.push_back(tensor(std::string(key.text), value));
    }
    return out;
  }

  // The one in `root`, or root itself.
  const Value& find_model(const Value& root) const {
    if (root.kind != Kind::dict)
      machine_.refuse("expected a dictionary of tensors, found something else");
    for (size_t i = 0; i < root.items.size(); i += 2) {
      const Value& key = machine_[root.items[i]];
      const Value& value = machine_[root.items[i + 1]];
      const bool model =
          key.kind == Kind::text && (key.text == "model" || key.text == "state_dict");
      if (model && value.kind == Kind::dict) return value;
    }
    return root;
  }

 private:
  std::vector<int64_t> numbers(const std::string& name, size_t index, const char* what) const {
    const Value& tuple = machine_[index];
    std::vector<int64_t> out;
    for (const size_t item : tuple.items) {
      if (machine_[item].kind != Kind::number || machine_[item].number < 0)
        machine_.refuse("{}: expected whole numbers as its {}, found others", in_quotes(name),
                        what);
      out.push_back(machine_[item].number);
    }
    if (tuple.kind != Kind::tuple)
      machine_.refuse("{}: expected a tuple as its {}, found something else", in_quotes(name),
                      what);
    return out;
  }

  PickledTensor tensor(const std::string& name, const Value& value) const {
    const Value& storage = machine_[value.items[0]];
    const Value& offset = machine_[value.items[1]];
    if (storage.kind != Kind::storage || offset.kind != Kind::number || offset.number < 0)
      machine_.refuse("{}: expected a storage and an offset, found something else",
                      in_quotes(name));
    PickledTensor t{name,
                    std::string(storage.text),
                    *storage.type,
                    storage.number,
                    offset.number,
                    numbers(name, value.items[2], "size"),
                    numbers(name, value.items[3], "stride")};
    check(t);
    return t;
  }

  void check(const PickledTensor& t) const {
    const auto refuse = [&](const char* why) {
      machine_.refuse("{}: {}: size {}, stride {}, from value {} of {}", in_quotes(t.name), why,
                      to_string(t.shape), to_string(t.strides), t.first, t.storage_values);
    };
    if (t.shape.size() != t.strides.size() || t.shape.size() > kMostDimensions)
      refuse("expected as many strides as sizes, and at most 8");
    int64_t bytes = t.type.size, end = t.first;
    bool overflow = false, empty = false;
    for (size_t d = 0; d < t.shape.size(); ++d) {
      int64_t last = 0;
      empty |= t.shape[d] == 0;
      overflow |= __builtin_mul_overflow(bytes, t.shape[d], &bytes);
      overflow |= __builtin_mul_overflow(std::max<int64_t>(t.shape[d] - 1, 0), t.strides[d], &last);
      overflow |= __builtin_add_overflow(end, last, &end);
    }
    if (overflow) refuse("expected a size that fits 64 bits, found a larger one");
    if (empty ? t.first > t.storage_values : end >= t.storage_values)
      refuse("expected a tensor within its storage, found one that exceeds it");
  }

  static constexpr size_t kMostDimensions = 8;
  const PickleMachine& machine_;
};

}  // namespace

std::vector<PickledTensor> read_pickle(std::span<const std::byte> pickle, std::string_view where) {
  PickleMachine machine(pickle, where);
  const size_t root = machine.run();
  const StateDictionary dictionary(machine);
  return dictionary.tensors(dictionary.find_model(machine[root]));
}

}  // namespace capstan
