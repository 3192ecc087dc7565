#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "checkpoint/tensor_file.h"

namespace capstan {

// The stack machine of Python's pickles, without the instructions that call functions. See
// pickle.h.
class PickleMachine {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,
    number,
    real,
    text,
    tuple,
    list,
    dict,     // items: key, value, key, value, …
    name,     // text: "torch._utils._rebuild_tensor_v2"
    storage,  // text: key; type; number: count of values
    tensor,   // items: storage, offset, size, stride
  };
  struct Value {
    Kind kind = Kind::none;
    int64_t number = 0;
    std::string_view text{};  // in the pickle
    std::string name{};
    const StoredType* type = nullptr;
    std::vector<size_t> items{};  // other values, by their index
  };

  PickleMachine(std::span<const std::byte> pickle, std::string_view where)
      : pickle_(reinterpret_cast<const char*>(pickle.data()), pickle.size()), where_(where) {}

  // Runs to the end; returns the index of the result.
  size_t run();
  const Value& operator[](size_t i) const { return values_[i]; }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Fault::file, "{}, byte {}: {}", where_, at_,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool step(size_t& result);  // false at the end
  bool step_number(uint8_t code);
  bool step_text(uint8_t code);
  bool step_memo(uint8_t code);
  bool step_container(uint8_t code);

  std::string_view take(uint64_t bytes);
  std::string_view take_line();
  uint64_t take_number(int bytes);

  size_t add(Value value);
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  void push_number(int64_t number) { push({.kind = Kind::number, .number = number}); }
  size_t pop();
  std::vector<size_t> pop_to_mark();
  Value& top(Kind kind, const char* what);

  void push_name(std::string_view module, std::string_view name);
  void push_storage(size_t id);
  void reduce();
  void build();
  void memoize(uint64_t key);

  std::string_view pickle_;
  std::string where_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<size_t> stack_, marks_;
  std::unordered_map<uint64_t, size_t> memo_;
};

}  // namespace capstan
