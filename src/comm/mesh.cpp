#include "comm/mesh.h"

#include <fmt/format.h>

namespace capstan {
namespace {

using Way = Pipe::Way;

// A link goes from stage i to the next one. Links that share no stage are split off together:
// every second one, and the last one of a ring apart if their number is odd.
constexpr int kColours = 3;
int colour_of(int link, int stages) {
  return link + 1 == stages && stages % 2 == 1 ? 2 : link % 2;
}

}  // namespace

Pipe::Pipe(const Communicator& all, const Members& members, bool ring) {
  if (members.count == 1) return;
  // Stages that take the same micro-batches.
  const std::string share =
      members.stride == 1 ? "" : fmt::format(" of data rank {}", members.first);
  stages_ = all.split(members, "stages" + share, Lane::receive_down);
  const int count = members.count, links = ring ? count : count - 1, own = stages_.rank();
  const Members alone{.first = all.rank()};
  for (const Way way : {Way::down, Way::up})
    for (int colour = 0; colour < kColours; ++colour) {
      Members pair = alone;
      std::string name = "no link";
      bool sends = false;
      for (int link = 0; link < links; ++link) {
        const int next = (link + 1) % count;
        if (colour_of(link, count) != colour || (own != link && own != next)) continue;
        const int from = way == Way::down ? link : next, to = way == Way::down ? next : link;
        pair = {.first = members.at(from), .stride = members.at(to) - members.at(from), .count = 2};
        name =
            fmt::format("stage {} to {}, {}{}", from, to, way == Way::down ? "down" : "up", share);
        sends = own == from;
      }
      const Lane lanes[2][2] = {{Lane::receive_down, Lane::send_down},
                                {Lane::receive_up, Lane::send_up}};
      const Communicator group = all.split(pair, name, lanes[index(way)][sends ? 1 : 0]);
      if (pair.count == 1) continue;
      (sends ? out_ : in_)[index(way)] = group;
      links_.push_back(group);
    }
  const bool at_end = own == 0 || own + 1 == count;
  ends_ = all.split(at_end ? Members{.first = members.at(0),
                                     .stride = members.at(count - 1) - members.at(0),
                                     .count = 2}
                           : alone,
                    "first and last stage" + share, Lane::receive_up);
}

void Pipe::connect(Queue& q, Tensor x) const {
  for (const Communicator& link : links_) {
    Work work = link.pass(q, x);
    work.join(q);
  }
}

Work Pipe::send(Queue& q, Way way, Tensor x, int64_t message) const {
  return out_[index(way)].for_unit(static_cast<int>(message % kMessages)).pass(q, x);
}

Work Pipe::receive(Queue& q, Way way, Tensor x, int64_t message) const {
  return in_[index(way)].for_unit(static_cast<int>(message % kMessages)).pass(q, x);
}

Mesh::Mesh(const Communicator& all, const MeshShape& shape) : Mesh(all) {
  shape_ = shape;
  if (shape.ranks() == 1) return;
  require(
      all.size() % shape.ranks() == 0, Fault::usage,
      "pipeline_parallel {} × tensor_parallel {} × context_parallel {} does not divide {} ranks",
      shape.pipeline, shape.tensor, shape.context, all.size());
  const int tensor = shape.tensor, in_stage = all.size() / shape.pipeline;
  const int stage = all.rank() / in_stage, in_data = in_stage / tensor;
  const int share = all.rank() % tensor;
  const int of_batch = all.rank() / (tensor * shape.context) * tensor * shape.context;
  const auto name = [&](const char* what, int first) {
    return fmt::format("{} from rank {}", what, first);
  };
  if (in_data < all.size())
    data_ = all.split({.first = stage * in_stage + share, .stride = tensor, .count = in_data},
                      shape.ranks() == shape.pipeline ? fmt::format("data of stage {}", stage)
                                                      : name("data", stage * in_stage + share),
                      Lane::comm);
  if (tensor > 1) {
    const int first = all.rank() / tensor * tensor;
    tensor_ = all.split({.first = first, .count = tensor}, name("tensor", first), Lane::tensor);
  }
  if (shape.context > 1)
    context_ = all.split({.first = of_batch + share, .stride = tensor, .count = shape.context},
                         name("context", of_batch + share), Lane::context);
  pipe_ = Pipe(all, {.first = all.rank() % in_stage, .stride = in_stage, .count = shape.pipeline},
               shape.ring);
}

Ranks Mesh::batches() const {
  return batch_ranks(all_.ranks(), shape_);
}

template <class Body>
void Mesh::for_groups(const Body& body) const {
  body(all_);
  if (shape_.ranks() == 1) return;
  if (data_.size() < all_.size() && data_.size() > 1) body(data_);
  for (const Communicator* group : {&tensor_, &context_, &pipe_.all(), &pipe_.ends(),
                                    &pipe_.out_[0], &pipe_.out_[1], &pipe_.in_[0], &pipe_.in_[1]})
    if (group->size() > 1) body(*group);
}

Mesh::Digests Mesh::digests() const {
  Digests all;
  for_groups([&](const Communicator& group) {
    all.emplace_back(std::string(group.name()), group.digest());
  });
  return all;
}

double Mesh::waited() const {
  double seconds = 0;
  for_groups([&](const Communicator& group) { seconds += group.waited(); });
  return seconds;
}

Ranks batch_ranks(const Ranks& all, const MeshShape& shape) {
  const int each = shape.tensor * shape.context, count = all.size / shape.ranks();
  return {all.rank / each % count, count};
}

Ranks tensor_ranks(const Ranks& all, const MeshShape& shape) {
  return {all.rank % shape.tensor, shape.tensor};
}

Ranks context_ranks(const Ranks& all, const MeshShape& shape) {
  return {all.rank / shape.tensor % shape.context, shape.context};
}

}  // namespace capstan
