#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace capstan {

// How many ways a run's ranks share its work. Ranks that share the data are neighbours, so that
// those of a stage are on as few machines as possible: rank = stage * data ranks + data rank.
struct MeshShape {
  int pipeline = 1;   // stages: each has some of the model's blocks
  bool ring = false;  // the last stage also sends to the first: a stage has several chunks

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
  const Communicator& data() const { return data_; }  // the ranks of this stage
  const Pipe& pipe() const { return pipe_; }

  // Of any of the ranks.
  int stage_of(int rank) const { return rank / data_.size(); }
  int data_rank_of(int rank) const { return rank % data_.size(); }

  // Communicator::digest of each of its groups, by name. Ranks that have a name in common must
  // agree.
  using Digests = std::vector<std::pair<std::string, uint64_t>>;
  Digests digests() const;
  // Seconds that this rank has waited for collectives.
  double waited() const;

 private:
  template <class Body>
  void for_groups(const Body& body) const;

  Communicator all_, data_;
  Pipe pipe_;
};

// The place of a rank among those that share the data, in a mesh of this shape.
Ranks data_ranks(const Ranks& all, const MeshShape& shape);

}  // namespace capstan
