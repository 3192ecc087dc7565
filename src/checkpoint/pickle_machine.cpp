#include "checkpoint/pickle_machine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json_text.h"

namespace capstan {
namespace {

using Kind = PickleMachine::Kind;

// A dictionary of a thousand tensors takes some twenty thousand values.
constexpr size_t kMostValues = 1 << 21;
constexpr uint8_t kNewestProtocol = 5;

// The names that a pickle of tensors may use.
constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";

struct StorageName {
  std::string_view storage, dtype;
  StoredType type;
};
const std::array<StorageName, 10> kStorages = {{
    {"torch.FloatStorage", "torch.float32", {"F32", 4, DType::f32}},
    {"torch.BFloat16Storage", "torch.bfloat16", {"BF16", 2, DType::bf16}},
    {"torch.HalfStorage", "torch.float16", {"F16", 2, DType::f16}},
    {"torch.DoubleStorage", "torch.float64", {"F64", 8, DType::f64}},
    {"torch.LongStorage", "torch.int64", {"I64", 8, {}}},
    {"torch.IntStorage", "torch.int32", {"I32", 4, DType::i32}},
    {"torch.ShortStorage", "torch.int16", {"I16", 2, {}}},
    {"torch.CharStorage", "torch.int8", {"I8", 1, {}}},
    {"torch.ByteStorage", "torch.uint8", {"U8", 1, DType::u8}},
    {"torch.BoolStorage", "torch.bool", {"BOOL", 1, {}}},
}};

const StoredType* storage_type(std::string_view name) {
  for (const StorageName& s : kStorages)
    if (s.storage == name) return &s.type;
  return nullptr;
}

bool is_known(std::string_view name) {
  const auto is_dtype = [&](const StorageName& s) { return s.dtype == name; };
  return name == kOrderedDict || name == kSize || name == kTensor || name == kParameter ||
         storage_type(name) != nullptr || std::any_of(kStorages.begin(), kStorages.end(), is_dtype);
}

// Unchanged if it looks like a name, else escaped for the terminal.
std::string plain(const std::string& name) {
  const bool is_plain = name.size() < 100 && std::all_of(name.begin(), name.end(), [](char c) {
                          return c == '.' || c == '_' || (c >= '0' && c <= '9') ||
                                 (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
                        });
  return is_plain ? name : in_quotes(name);
}

}  // namespace

size_t PickleMachine::run() {
  size_t result = 0;
  while (step(result)) {
  }
  return result;
}

std::string_view PickleMachine::take(uint64_t bytes) {
  if (bytes > pickle_.size() - at_)
    refuse("expected {} more bytes, found the end: the file is damaged; download or copy it again",
           bytes);
  const std::string_view text = pickle_.substr(at_, bytes);
  at_ += bytes;
  return text;
}

std::string_view PickleMachine::take_line() {
  const size_t end = pickle_.find('\n', at_);
  if (end == std::string_view::npos)
    refuse("expected a line, found the end: the file is damaged; download or copy it again");
  const std::string_view line = pickle_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

uint64_t PickleMachine::take_number(int bytes) {
  uint64_t value = 0;
  const std::string_view text = take(static_cast<uint64_t>(bytes));
  for (size_t i = text.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(text[i]);
  return value;
}

size_t PickleMachine::add(Value value) {
  if (values_.size() >= kMostValues)
    refuse("expected at most {} values, found more; this is not a dictionary of tensors",
           kMostValues);
  values_.push_back(std::move(value));
  return values_.size() - 1;
}

size_t PickleMachine::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
    refuse("expected a value on the stack, found none");
  const size_t value = stack_.back();
  stack_.pop_back();
  return value;
}

std::vector<size_t> PickleMachine::pop_to_mark() {
  if (marks_.empty()) refuse("expected a mark on the stack, found none");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<size_t> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

PickleMachine::Value& PickleMachine::top(Kind kind, const char* what) {
  if (stack_.empty() || values_[stack_.back()].kind != kind)
    refuse("expected {} on the stack, found none", what);
  return values_[stack_.back()];
}

void PickleMachine::push_name(std::string_view module, std::string_view name) {
  std::string full = std::string(module) + "." + std::string(name);
  if (!is_known(full))
    refuse(
        "the pickle asks to run {}; Capstan executes nothing from a file. If you trust where it "
        "comes from, convert it to safetensors with the program that wrote it (transformers: "
        "save_pretrained(FOLDER, safe_serialization=True))",
        plain(full));
  push({.kind = Kind::name, .name = std::move(full)});
}

// ('storage', torch.FloatStorage, '0', 'cpu', 1200)
void PickleMachine::push_storage(size_t id) {
  const std::vector<size_t> parts = values_[id].items;
  const auto is = [&](size_t i, Kind kind) { return values_[parts[i]].kind == kind; };
  const bool ok = values_[id].kind == Kind::tuple && parts.size() == 5 && is(0, Kind::text) &&
                  values_[parts[0]].text == "storage" && is(1, Kind::name) && is(2, Kind::text) &&
                  is(4, Kind::number) && values_[parts[4]].number >= 0;
  const StoredType* type = ok ? storage_type(values_[parts[1]].name) : nullptr;
  if (type == nullptr) refuse("expected the description of a storage, found something else");
  push({.kind = Kind::storage,
        .number = values_[parts[4]].number,
        .text = values_[parts[2]].text,
        .type = type});
}

void PickleMachine::reduce() {
  const size_t arguments = pop(), callee = pop();
  if (values_[arguments].kind != Kind::tuple || values_[callee].kind != Kind::name)
    refuse("expected a name and its arguments, found something else");
  const std::string& name = values_[callee].name;
  const std::vector<size_t> items = values_[arguments].items;
  if (name == kOrderedDict && items.empty()) return push({.kind = Kind::dict});
  if (name == kSize && items.size() == 1 && values_[items[0]].kind == Kind::tuple)
    return stack_.push_back(items[0]);
  if (name == kTensor && items.size() >= 6)
    return push({.kind = Kind::tensor, .items = {items[0], items[1], items[2], items[3]}});
  if (name == kParameter && items.size() == 3 && values_[items[0]].kind == Kind::tensor)
    return stack_.push_back(items[0]);
  refuse("expected arguments that {} takes, found others", name);
}

// Ignores the attributes of a dictionary (state_dict's _metadata).
void PickleMachine::build() {
  pop();
  top(Kind::dict, "a dictionary");
}

void PickleMachine::memoize(uint64_t key) {
  if (stack_.empty()) refuse("expected a value to store in the memo, found none");
  memo_[key] = stack_.back();
}

bool PickleMachine::step(size_t& result) {
  const auto code = static_cast<uint8_t>(take(1)[0]);
  switch (code) {
    case 0x80:  // PROTO
      if (const uint64_t version = take_number(1); version > kNewestProtocol)
        refuse("expected protocol {} or lower, found {}", kNewestProtocol, version);
      return true;
    case 0x95: take(8); return true;  // FRAME
    case 'c': {                       // GLOBAL
      const std::string_view module = take_line();
      push_name(module, take_line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const size_t name = pop(), module = pop();
      if (values_[name].kind != Kind::text || values_[module].kind != Kind::text)
        refuse("expected a module and a name, found something else");
      push_name(values_[module].text, values_[name].text);
      return true;
    }
    case 'Q': push_storage(pop()); return true;  // BINPERSID
    case 'R': reduce(); return true;
    case 'b': build(); return true;
    case '.': result = pop(); return false;  // STOP
    default: break;
  }
  if (!step_number(code) && !step_text(code) && !step_memo(code) && !step_container(code))
    refuse(
        "expected an instruction that a dictionary of tensors needs, found 0x{:02x}; Capstan "
        "executes nothing from a file",
        code);
  return true;
}

bool PickleMachine::step_number(uint8_t code) {
  switch (code) {
    case 'N': push({}); return true;
    case 0x88: push({.kind = Kind::boolean, .number = 1}); return true;
    case 0x89: push({.kind = Kind::boolean}); return true;
    case 'K': push_number(static_cast<int64_t>(take_number(1))); return true;  // BININT1
    case 'M': push_number(static_cast<int64_t>(take_number(2))); return true;  // BININT2
    case 'J': push_number(static_cast<int32_t>(static_cast<uint32_t>(take_number(4)))); return true;
    case 'G':
      take(8);
      push({.kind = Kind::real});
      return true;  // BINFLOAT
    case 0x8a: {    // LONG1
      const auto bytes = static_cast<int>(take_number(1));
      if (bytes > 8) refuse("expected a number of 64 bits, found one of {} bytes", bytes);
      const uint64_t bits = take_number(bytes);
      const int unused = 64 - 8 * bytes;  // sign-extends by shifting up and down
      push_number(bytes == 0 ? 0 : static_cast<int64_t>(bits << unused) >> unused);
      return true;
    }
    default: return false;
  }
}

bool PickleMachine::step_text(uint8_t code) {
  int length_bytes = 0;
  switch (code) {
    case 'X': length_bytes = 4; break;   // BINUNICODE
    case 0x8c: length_bytes = 1; break;  // SHORT_BINUNICODE
    case 0x8d: length_bytes = 8; break;  // BINUNICODE8
    default: return false;
  }
  const uint64_t length = take_number(length_bytes);
  push({.kind = Kind::text, .text = take(length)});
  return true;
}

bool PickleMachine::step_memo(uint8_t code) {
  switch (code) {
    case 'q': memoize(take_number(1)); return true;  // BINPUT
    case 'r': memoize(take_number(4)); return true;  // LONG_BINPUT
    case 0x94: memoize(memo_.size()); return true;   // MEMOIZE
    case 'h':                                        // BINGET
    case 'j': {                                      // LONG_BINGET
      const uint64_t key = take_number(code == 'h' ? 1 : 4);
      const auto it = memo_.find(key);
      if (it == memo_.end()) refuse("expected a value {} in the memo, found none", key);
      stack_.push_back(it->second);
      return true;
    }
    default: return false;
  }
}

bool PickleMachine::step_container(uint8_t code) {
  switch (code) {
    case '(': marks_.push_back(stack_.size()); return true;
    case '}': push({.kind = Kind::dict}); return true;
    case ']': push({.kind = Kind::list}); return true;
    case ')': push({.kind = Kind::tuple}); return true;
    case 't': {
      std::vector<size_t> items = pop_to_mark();
      push({.kind = Kind::tuple, .items = std::move(items)});
      return true;
    }
    case 0x85:
    case 0x86:
    case 0x87: {  // TUPLE1, TUPLE2, TUPLE3
      std::vector<size_t> items(static_cast<size_t>(code - 0x84));
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      push({.kind = Kind::tuple, .items = std::move(items)});
      return true;
    }
    case 'a':
    case 's': {  // APPEND, SETITEM
      std::vector<size_t> items(code == 'a' ? 1 : 2);
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      auto& to = top(code == 'a' ? Kind::list : Kind::dict, "a list or dictionary").items;
      to.insert(to.end(), items.begin(), items.end());
      return true;
    }
    case 'e':
    case 'u': {  // APPENDS, SETITEMS
      const std::vector<size_t> items = pop_to_mark();
      auto& to = top(code == 'e' ? Kind::list : Kind::dict, "a list or dictionary").items;
      if (code == 'u' && items.size() % 2 != 0) refuse("expected pairs, found an odd number");
      to.insert(to.end(), items.begin(), items.end());
      return true;
    }
    default: return false;
  }
}

}  // namespace capstan
