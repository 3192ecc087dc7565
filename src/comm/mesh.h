#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace capstan {

// How many ways a run's ranks share its work. Those that exchange most are neighbours, so that they
// are on as few machines as possible:
//
//   rank = ((stage * batch ranks + batch rank) * context + context rank) * tensor + tensor rank
//
// where ranks with the same batch rank have the same micro-batches.
struct MeshShape {
  int pipeline = 1;   // stages: each has some of the model's blocks
  int tensor = 1;     // ranks that share each layer
  int context = 1;    // ranks that share each sequence
  bool ring = false;  // the last stage also sends to the first: a stage has several chunks

  // Ranks that share each layer exchange half of their tokens while they compute with the others.
  bool overlap = false;
  // Their micro-batches are padded for that, so that both halves begin at aligned addresses.
  bool padded_to_overlap = false;

  // Micro-batches have a multiple of so many tokens.
  int token_multiple() const { return tensor * context * (padded_to_overlap ? 16 : 1); }
  int ranks() const { return pipeline * tensor * context; }  // with the same micro-batches
  bool operator==(const MeshShape&) const = default;
};

// The stages of a pipeline, as one of them. What a pass hands on goes down, from each stage to the
// next one, gradients go up.
class Pipe {
 public:
  enum class Way : uint8_t { down, up };

  Pipe() = default;  // one stage
  // All ranks make theirs together; `members` are this rank's stages, in their order.
  Pipe(const Communicator& all, const Members& members, bool ring);

  int stage() const { return stages_.rank(); }
  int stages() const { return stages_.size(); }
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == stages(); }

  // To the next stage of that way, and from the one before. Both stages name the message by the
  // same number. Messages of a way arrive in the order in which they are sent.
  [[nodiscard]] Work send(Queue& q, Way way, Tensor x, int64_t message) const;
  [[nodiscard]] Work receive(Queue& q, Way way, Tensor x, int64_t message) const;

  // Passes x along every link once, in an order in which no stage waits for another way: for
  // transports that connect two ranks, and wait for both, when they are first used.
  void connect(Queue& q, Tensor x) const;

  const Communicator& all() const { return stages_; }
  // The first and the last stage; one rank for the stages between them.
  const Communicator& ends() const { return ends_; }

 private:
  friend class Mesh;
  static size_t index(Way way) { return static_cast<size_t>(way); }
  static constexpr int64_t kMessages = 4000;  // that have different names in messages

  Communicator stages_, ends_;
  Communicator out_[2], in_[2];      // by way
  std::vector<Communicator> links_;  // the same, in an order that all stages have in common
};

// A run's ranks in the order of a mesh, as seen by one of them.
class Mesh {
 public:
  Mesh() = default;  // one rank
  // Ranks that share the data alone.
  Mesh(Communicator all) : all_(all), data_(std::move(all)) {}
  // All ranks make theirs together. Throws Fault::usage if the shape does not divide them.
  Mesh(const Communicator& all, const MeshShape& shape);

  const Communicator& all() const { return all_; }
  // The ranks with the same part of the model, who add their gradients: of this stage, and with the
  // same share of each layer. Those that share a sequence are neighbours among them.
  const Communicator& data() const { return data_; }
  const Communicator& tensor() const { return tensor_; }    // those that share each layer
  const Communicator& context() const { return context_; }  // those that share each sequence
  const Pipe& pipe() const { return pipe_; }
  const MeshShape& shape() const { return shape_; }
  // This rank among those that have micro-batches of their own.
  Ranks batches() const;

  // Of any of the ranks.
  int stage_of(int rank) const { return rank / (data_.size() * shape_.tensor); }
  int data_rank_of(int rank) const { return rank / shape_.tensor % data_.size(); }
  int tensor_rank_of(int rank) const { return rank % shape_.tensor; }
  // The rank of another stage, or of another data rank, with this one's share of each layer.
  int rank_of(int stage, int data_rank) const {
    return (stage * data_.size() + data_rank) * shape_.tensor + tensor_.rank();
  }

  // Communicator::digest of each of its groups, by name. Ranks that have a name in common must
  // agree.
  using Digests = std::vector<std::pair<std::string, uint64_t>>;
  Digests digests() const;
  // Seconds that this rank has waited for collectives.
  double waited() const;

 private:
  template <class Body>
  void for_groups(const Body& body) const;

  MeshShape shape_;
  Communicator all_, data_, tensor_, context_;
  Pipe pipe_;
};

// The place of a rank among those that have micro-batches of their own, and among those that share
// each layer, and each sequence, in a mesh of this shape.
Ranks batch_ranks(const Ranks& all, const MeshShape& shape);
Ranks tensor_ranks(const Ranks& all, const MeshShape& shape);
Ranks context_ranks(const Ranks& all, const MeshShape& shape);

}  // namespace capstan
