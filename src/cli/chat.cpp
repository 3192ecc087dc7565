#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/log.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/text_model.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

struct ChatOptions {
  std::string folder, base, prompt_style, system, quantize;
  PrecisionWords precision;
  int64_t context = 4096;
  std::string accelerator = "auto";
  GenerateOptions generate;
};

// The conversation so far, as the model reads it.
class Conversation {
 public:
  Conversation(TextModel& text, const std::string& system) : text_(text) {
    require(system.empty() || text.has_chat_template(), Fault::usage,
            "--system: this model has no chat template, so there is no place for a system message");
    if (!system.empty()) messages_.push_back({Role::system, system});
  }

  // Tokens up to the answer to this question. Drops the oldest turns if the context is too short.
  std::vector<int32_t> ask(const std::string& question, int64_t limit) {
    before_messages_ = messages_;
    before_history_ = history_;
    if (!text_.has_chat_template()) {
      std::vector<int32_t> tokens = history_;
      const auto turn = text_.prompt_tokens(question);
      if (std::ssize(tokens) + std::ssize(turn) > limit) tokens.clear();
      tokens.insert(tokens.end(), turn.begin(), turn.end());
      return history_ = tokens;
    }
    messages_.push_back({Role::user, question});
    std::vector<int32_t> tokens = text_.chat_tokens(messages_);
    while (std::ssize(tokens) > limit && turns() > 1) {
      const auto first = messages_.begin() + (messages_.front().role == Role::system ? 1 : 0);
      messages_.erase(first, first + 2);
      tokens = text_.chat_tokens(messages_);
    }
    return tokens;
  }

  // Forgets the last question.
  void drop_question() {
    messages_ = before_messages_;
    history_ = before_history_;
  }

  // `prompt` is the prompt that was asked; the answer continues its text.
  void answered(std::span<const int32_t> prompt, std::span<const int32_t> tokens) {
    history_.insert(history_.end(), tokens.begin(), tokens.end());
    history_.push_back(text_.tokenizer().eos());
    if (text_.has_chat_template())
      messages_.push_back({Role::assistant, text_.tokenizer().decode_after(prompt, tokens)});
  }

 private:
  int64_t turns() const {
    return std::count_if(messages_.begin(), messages_.end(),
                         [](const Message& m) { return m.role == Role::user; });
  }

  TextModel& text_;
  std::vector<Message> messages_, before_messages_;
  std::vector<int32_t> history_, before_history_;
};

bool read_question(std::string& question) {
  fmt::print(">> Prompt: ");
  std::fflush(stdout);
  if (!std::getline(std::cin, question)) return false;
  if (question.ends_with('\r')) question.pop_back();
  return !question.empty();
}

void run_chat(TextModel& text, ChatOptions& o) {
  Conversation conversation(text, o.system);
  std::vector<int32_t> in_cache;
  std::string question;
  for (uint64_t turn = 0; read_question(question); ++turn) {
    const std::vector<int32_t> prompt =
        conversation.ask(question, text.capacity() - o.generate.max_new_tokens);
    if (std::ssize(prompt) >= text.capacity()) {
      log::warn("this question alone has {}, but the context holds {}; ask a shorter one",
                count(std::ssize(prompt), "token"), text.capacity());
      conversation.drop_question();
      continue;
    }
    // Skips the part of the prompt that is already in the KV cache; at least one token is computed.
    const auto differs =
        std::mismatch(in_cache.begin(), in_cache.end(), prompt.begin(), prompt.end() - 1);
    o.generate.cached = differs.first - in_cache.begin();
    o.generate.sample = turn;
    fmt::print(">> Reply: ");
    const auto start = std::chrono::steady_clock::now();
    const std::vector<int32_t> answer = text.stream(prompt, o.generate);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fmt::print("\n");
    log::info("{}, {:.1f} tok/s", count(std::ssize(answer), "token"),
              static_cast<double>(answer.size()) / took.count());
    in_cache = prompt;
    if (!answer.empty()) in_cache.insert(in_cache.end(), answer.begin(), answer.end() - 1);
    conversation.answered(prompt, answer);
  }
}

}  // namespace

int chat(const Arguments& arguments) {
  CommandLine line("Chats with a model, which remembers the conversation. An empty line ends it.",
                   "capstan chat");
  ChatOptions o;
  line.required("checkpoint_dir", o.folder, "folder of the model or of an adapter");
  line.option("--base_model", o.base,
              "folder of the adapter's base model (default: the one the adapter names)");
  line.option("--prompt_style", o.prompt_style,
              "prompt style or chat template (default: the folder's)");
  line.option("--system", o.system, "system message");
  line.option("--context", o.context, "context length in tokens", {2});
  add_sampling(line, o.generate);
  add_precision(line, o.precision);
  add_quantize(line, o.quantize);
  add_accelerator(line, o.accelerator);
  if (!line.parse(arguments)) return 0;
  TextModel text(find_model(o.folder, o.base, o.quantize), o.prompt_style);
  const int64_t positions = std::min(o.context, text.config().max_positions);
  o.generate.max_new_tokens =
      std::min(o.generate.max_new_tokens, std::max<int64_t>(1, positions / 2));
  text.set_stops(o.generate);
  text.load(parse_accelerator(o.accelerator), o.precision, positions);
  run_chat(text, o);
  return 0;
}

}  // namespace capstan::cli
