#pragma once

#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "model/transformer.h"

namespace capstan {

// What one stage of a pipeline has of a model: parts of consecutive blocks. Part i of the stage is
// piece i * stages + stage of the model. A model on one rank is one part.
class Parts {
 public:
  Parts(Transformer& whole) : parts_{&whole} {}
  Parts(std::vector<Transformer*> parts, Pipe pipe)
      : parts_(std::move(parts)), pipe_(std::move(pipe)) {}

  size_t size() const { return parts_.size(); }
  Transformer& operator[](size_t i) const { return *parts_[i]; }
  Parameters& params() const { return parts_[0]->params(); }
  const ModelConfig& config() const { return parts_[0]->config(); }
  const Pipe& pipe() const { return pipe_; }
  int64_t blocks() const;

  // Calls body(part, index, in) for each part in order. `in` is the residual stream of so many
  // tokens (those of this rank, if it shares them), from the stage before; what body returns goes
  // to the next stage. Requests memory for `in`, and returns when the next stage has what it gets.
  template <class Body>
  void pass_through(Queue& q, int64_t tokens, const Body& body) const {
    for (size_t i = 0; i < size(); ++i) {
      Buffer in;
      if (!parts_[i]->is_first()) in = receive(q, tokens);
      send(q, body(*parts_[i], i, std::move(in)));
    }
  }

 private:
  Buffer receive(Queue& q, int64_t tokens) const;
  void send(Queue& q, const Buffer& out) const;

  std::vector<Transformer*> parts_;
  Pipe pipe_;
};

}  // namespace capstan
