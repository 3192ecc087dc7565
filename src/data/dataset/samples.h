#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace capstan {

// Tokens [begin, end) of a sample that are targets of the loss.
struct TargetSpan {
  int32_t begin = 0, end = 0;

  bool operator==(const TargetSpan&) const = default;
};

// The source of a sample, and facts that only its text could tell. Also its format in a cache file.
struct SampleOrigin {
  enum Flags : int32_t {
    empty_response = 1,  // no target but the end token
    joined_input = 2,    // the style has no place for the input: it follows the instruction
    first_turn = 4,      // of a longer conversation: the style takes one turn
    chat = 8,            // rendered by a chat template
    styled_chat = 16,    // a conversation, rendered by a prompt style
    document = 32,       // plain text, or a chunk of it
    joined_system =
        64,  // the style has no place for the system message: it precedes the instruction
  };

  int32_t file = -1;  // index among the names, or none
  int32_t flags = 0;
  int64_t line = 0;  // from 1; 0 if unknown

  bool operator==(const SampleOrigin&) const = default;
};

// Samples as arrays owned by someone else. Sample i has tokens token_begin[i] … token_begin[i+1]
// and the spans span_begin[i] … span_begin[i+1], which are in order, disjoint and not empty.
struct SampleArrays {
  std::span<const int32_t> tokens;
  std::span<const int64_t> token_begin;  // size() + 1 values
  std::span<const TargetSpan> spans;
  std::span<const int64_t> span_begin;  // size() + 1 values
  std::span<const SampleOrigin> origins;

  int64_t size() const { return static_cast<int64_t>(origins.size()); }
};

// Samples and the owner of their memory: vectors, or a file in memory. Samples shared by several
// datasets do not change.
class Samples {
 public:
  virtual ~Samples() = default;
  virtual const SampleArrays& arrays() const = 0;
  virtual const std::vector<std::string>& files() const = 0;  // the names that origins refer to
};

// Samples in memory, which grow.
class OwnedSamples final : public Samples {
 public:
  OwnedSamples() { refresh(); }
  OwnedSamples(const OwnedSamples& other);
  explicit OwnedSamples(const Samples& other);
  OwnedSamples& operator=(const OwnedSamples&) = delete;

  // Needs at least two tokens, and spans in order and disjoint (Fault::bug). Drops empty spans and
  // joins adjacent ones.
  void add(std::span<const int32_t> tokens, std::span<const TargetSpan> spans,
           SampleOrigin origin = {});
  // The index of a name for origins; reuses an existing one.
  int32_t file(const std::string& name);

  const SampleArrays& arrays() const override { return arrays_; }
  const std::vector<std::string>& files() const override { return files_; }

 private:
  void refresh();

  std::vector<int32_t> tokens_;
  std::vector<int64_t> token_begin_{0}, span_begin_{0};
  std::vector<TargetSpan> spans_;
  std::vector<SampleOrigin> origins_;
  std::vector<std::string> files_;
  SampleArrays arrays_;
};

}  // namespace capstan
