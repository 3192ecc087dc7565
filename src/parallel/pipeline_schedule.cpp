#include "parallel/pipeline_schedule.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "base/error.h"

namespace capstan {
namespace {

using Do = PipelineAction::Do;

constexpr const char* name_of(Do what) {
  switch (what) {
    case Do::forward: return "forward";
    case Do::backward: return "backward";
    case Do::weights: return "weights";
  }
  return "?";
}

// Which passes of which micro-batches and pieces are done.
class Progress {
 public:
  explicit Progress(const PipelineShape& shape)
      : shape_(shape), done_(3, std::vector<bool>(size())) {}

  bool done(Do what, int micro, int piece) const { return done_[what][at(micro, piece)]; }
  void finish(Do what, int micro, int piece) { done_[what][at(micro, piece)] = true; }
  // Whether what it needs of other actions is done; not whether it is done itself.
  bool ready(Do what, int micro, int piece) const {
    switch (what) {
      case Do::forward: return piece == 0 || done(Do::forward, micro, piece - 1);
      case Do::backward:
        return done(Do::forward, micro, piece) &&
               (piece + 1 == shape_.pieces() || done(Do::backward, micro, piece + 1));
      case Do::weights: return done(Do::backward, micro, piece);
    }
    return false;
  }

 private:
  size_t size() const { return static_cast<size_t>(shape_.micros * shape_.pieces()); }
  size_t at(int micro, int piece) const {
    return static_cast<size_t>(micro * shape_.pieces() + piece);
  }

  PipelineShape shape_;
  std::vector<std::vector<bool>> done_;
};

// A micro-batch and a chunk of a stage.
struct Item {
  int micro = 0, chunk = 0;
};

// The order in which a stage takes items: as many micro-batches as there are stages through one
// chunk, then the same through the next. Several chunks need whole groups of them: the last one has
// micro-batches that do not exist.
std::vector<Item> order_of(const PipelineShape& s, bool back) {
  std::vector<Item> order;
  for (int first = 0; first < s.micros; first += s.stages)
    for (int c = 0; c < s.chunks; ++c)
      for (int micro = first; micro < first + s.stages; ++micro)
        if (s.chunks > 1 || micro < s.micros) order.push_back({micro, back ? s.chunks - 1 - c : c});
  return order;
}

// Items whose forward pass may be done before their backward pass: as many as fill the pipeline.
int most_in_flight(const PipelineShape& s, int stage) {
  const int below = s.stages - stage - 1;
  if (s.chunks == 1) return std::min(below + 1, s.micros);
  const int groups = (s.micros + s.stages - 1) / s.stages;
  return std::min(2 * below + (s.chunks - 1) * s.stages + 1, groups * s.stages * s.chunks);
}

// Gives items slots, and appends their actions.
class Writer {
 public:
  explicit Writer(const PipelineShape& shape)
      : chunks_(shape.chunks), slot_of_(static_cast<size_t>(shape.micros * shape.chunks), -1) {}

  // `last`: the item is not needed any more afterwards.
  void add(Do what, const Item& item, bool last) {
    int& slot = slot_of_[static_cast<size_t>(item.micro * chunks_ + item.chunk)];
    if (what == Do::forward) {
      if (free_.empty()) free_.push_back(schedule.slots++);
      const auto lowest = std::min_element(free_.begin(), free_.end());
      slot = *lowest;
      free_.erase(lowest);
    }
    schedule.actions.push_back({what, item.micro, item.chunk, slot});
    if (last) free_.push_back(slot);
  }

  PipelineSchedule schedule;

 private:
  int chunks_;
  std::vector<int> slot_of_, free_;
};

// Forward passes until the pipeline is full, then one backward and one forward pass in turn. What
// is left out, because there is no such micro-batch, lets nobody wait longer.
PipelineSchedule one_f_one_b(const PipelineShape& s, int stage) {
  const auto forwards = order_of(s, false), backwards = order_of(s, true);
  const auto ahead = static_cast<size_t>(most_in_flight(s, stage) - 1);
  Writer writer(s);
  const auto add = [&](Do what, const Item& item) {
    if (item.micro < s.micros) writer.add(what, item, what == Do::backward);
  };
  for (size_t i = 0; i < forwards.size() + ahead; ++i) {
    if (i < forwards.size()) add(Do::forward, forwards[i]);
    if (i >= ahead) add(Do::backward, backwards[i - ahead]);
  }
  return std::move(writer.schedule);
}

// The same, with the gradients of weights `stage` micro-batches later: a stage near the end of the
// pipeline, which keeps few micro-batches in flight, has room to put them off, and does them while
// it would wait at the end.
PipelineSchedule zero_bubble(const PipelineShape& s, int stage) {
  const int ahead = most_in_flight(s, stage) - 1;
  Writer writer(s);
  for (int i = 0; i < s.micros + ahead + stage; ++i) {
    const int backward = i - ahead, weights = backward - stage;
    if (i < s.micros) writer.add(Do::forward, {i, 0}, false);
    if (backward >= 0 && backward < s.micros) writer.add(Do::backward, {backward, 0}, false);
    if (weights >= 0 && weights < s.micros) writer.add(Do::weights, {weights, 0}, true);
  }
  return std::move(writer.schedule);
}

void check_shape(PipelineKind kind, const PipelineShape& s) {
  require(s.stages > 0 && s.chunks > 0 && s.micros > 0, Fault::bug,
          "a pipeline of {} stages, {} chunks and {} micro-batches", s.stages, s.chunks, s.micros);
  require(kind != PipelineKind::zero_bubble || s.chunks == 1, Fault::bug,
          "a zero-bubble pipeline has one chunk, not {}", s.chunks);
}

// Runs the actions of all stages in their order, each when what it needs is done. Calls
// visit(stage, action) for each; throws if none can run.
template <class Visit>
void walk(const PipelineShape& s, std::span<const PipelineSchedule> all, const Visit& visit) {
  Progress progress(s);
  std::vector<size_t> next(all.size());
  size_t left = 0;
  for (const PipelineSchedule& one : all) left += one.actions.size();
  while (left > 0) {
    const size_t before = left;
    for (size_t stage = 0; stage < all.size(); ++stage)
      for (; next[stage] < all[stage].actions.size(); ++next[stage], --left) {
        const PipelineAction& a = all[stage].actions[next[stage]];
        const int piece = s.piece_of(static_cast<int>(stage), a.chunk);
        if (!progress.ready(a.what, a.micro, piece)) break;
        visit(static_cast<int>(stage), a);
        progress.finish(a.what, a.micro, piece);
      }
    if (left < before) continue;
    for (size_t stage = 0; stage < all.size(); ++stage)
      if (next[stage] < all[stage].actions.size()) {
        const PipelineAction& a = all[stage].actions[next[stage]];
        fail(Fault::bug,
             "pipeline: all stages wait; stage {} for the {} pass of micro-batch {}, "
             "chunk {}",
             stage, name_of(a.what), a.micro, a.chunk);
      }
  }
}

// Messages between stages, which are on their way in the order in which they were sent. A link has
// room for one: a stage that sends a second one waits until the other takes the first.
class Links {
 public:
  Links(const PipelineShape& s, std::span<const PipelineSchedule> all)
      : s_(s), all_(all), next_(all.size()), began_(all.size()), links_(2 * all.size()) {}

  // Whether the stage's next action can go on, which it then does.
  bool step(size_t stage) {
    if (next_[stage] == all_[stage].actions.size()) return false;
    const PipelineAction& a = all_[stage].actions[next_[stage]];
    const int piece = s_.piece_of(static_cast<int>(stage), a.chunk);
    const bool down = a.what == Do::forward;
    const int to = down ? piece + 1 : piece - 1;
    if (!began_[stage]) {
      const bool receives = a.what != Do::weights && (down ? piece > 0 : piece + 1 < s_.pieces());
      if (receives && !take(stage, a, piece, down)) return false;
      began_[stage] = true;
      return true;
    }
    if (a.what != Do::weights && to >= 0 && to < s_.pieces()) {
      auto& link = into(static_cast<size_t>(to % s_.stages), down);
      if (link.size() == 1) return false;
      link.push_back({a.micro, to});
    }
    began_[stage] = false;
    ++next_[stage];
    return true;
  }
  bool done(size_t stage) const { return next_[stage] == all_[stage].actions.size(); }

 private:
  struct Message {
    int micro, piece;  // that it is for
  };
  std::deque<Message>& into(size_t stage, bool down) { return links_[2 * stage + (down ? 1 : 0)]; }
  bool take(size_t stage, const PipelineAction& a, int piece, bool down) {
    auto& link = into(stage, down);
    if (link.empty()) return false;
    require(link.front().micro == a.micro && link.front().piece == piece, Fault::bug,
            "pipeline: stage {}, {} pass of micro-batch {}, chunk {}: what arrives first is for "
            "micro-batch {}, piece {}",
            stage, name_of(a.what), a.micro, a.chunk, link.front().micro, link.front().piece);
    link.pop_front();
    return true;
  }

  const PipelineShape& s_;
  std::span<const PipelineSchedule> all_;
  std::vector<size_t> next_;
  std::vector<bool> began_;
  std::vector<std::deque<Message>> links_;
};

void check_links(const PipelineShape& s, std::span<const PipelineSchedule> all) {
  Links links(s, all);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < all.size(); ++stage)
      while (links.step(stage)) moved = true;
  }
  for (size_t stage = 0; stage < all.size(); ++stage)
    require(links.done(stage), Fault::bug,
            "pipeline: with one message on each link, stage {} waits for ever", stage);
}

}  // namespace

std::vector<PipelineSchedule> pipeline_schedule(PipelineKind kind, const PipelineShape& shape) {
  check_shape(kind, shape);
  std::vector<PipelineSchedule> all;
  for (int stage = 0; stage < shape.stages; ++stage)
    all.push_back(kind == PipelineKind::zero_bubble ? zero_bubble(shape, stage)
                                                    : one_f_one_b(shape, stage));
  return all;
}

void check(PipelineKind kind, const PipelineShape& s, std::span<const PipelineSchedule> all) {
  check_shape(kind, s);
  require(std::ssize(all) == s.stages, Fault::bug, "pipeline: {} schedules for {} stages",
          all.size(), s.stages);
  const int passes = kind == PipelineKind::zero_bubble ? 3 : 2;
  for (int stage = 0; stage < s.stages; ++stage) {
    const PipelineSchedule& one = all[static_cast<size_t>(stage)];
    require(std::ssize(one.actions) == int64_t{passes} * s.micros * s.chunks, Fault::bug,
            "pipeline: stage {} has {} actions, expected {}", stage, one.actions.size(),
            passes * s.micros * s.chunks);
    Progress mine(s);
    std::vector<std::optional<Item>> slots(static_cast<size_t>(one.slots));
    for (const PipelineAction& a : one.actions) {
      const auto wrong = [&](const char* why) {
        fail(Fault::bug, "pipeline: stage {}, {} pass of micro-batch {}, chunk {}, slot {}: {}",
             stage, name_of(a.what), a.micro, a.chunk, a.slot, why);
      };
      if (a.micro < 0 || a.micro >= s.micros || a.chunk < 0 || a.chunk >= s.chunks ||
          a.what >= passes)
        wrong("there is no such pass");
      if (a.slot < 0 || a.slot >= one.slots) wrong("there is no such slot");
      const int piece = s.piece_of(stage, a.chunk);
      if (mine.done(a.what, a.micro, piece)) wrong("was done before");
      mine.finish(a.what, a.micro, piece);
      auto& held = slots[static_cast<size_t>(a.slot)];
      if (a.what == Do::forward) {
        if (held) wrong("the slot is taken");
        held = Item{a.micro, a.chunk};
      } else if (!held || held->micro != a.micro || held->chunk != a.chunk) {
        wrong("the slot has something else");
      }
      if (a.what + 1 == passes) held.reset();
    }
  }
  walk(s, all, [](int, const PipelineAction&) {});
  check_links(s, all);
}

double pipeline_seconds(const PipelineShape& s, std::span<const PipelineSchedule> all,
                        const PipelineCosts& costs) {
  const std::vector<PipelineCosts> same(all.size(), costs);
  return pipeline_seconds_by_stage(s, all, same);
}

double pipeline_seconds_by_stage(const PipelineShape& s, std::span<const PipelineSchedule> all,
                                 std::span<const PipelineCosts> by_stage) {
  std::vector<double> free(all.size());  // when a stage has nothing to do
  const auto cells = static_cast<size_t>(s.micros * s.pieces());
  std::vector<double> forward(cells), backward(cells);  // when the pass is done
  const auto at = [&](int micro, int piece) {
    return static_cast<size_t>(micro * s.pieces() + piece);
  };
  walk(s, all, [&](int stage, const PipelineAction& a) {
    const int piece = s.piece_of(stage, a.chunk);
    double& now = free[static_cast<size_t>(stage)];
    const PipelineCosts& costs = by_stage[static_cast<size_t>(stage)];
    const double send = s.stages > 1 ? costs.send : 0;
    switch (a.what) {
      case Do::forward:
        if (piece > 0) now = std::max(now, forward[at(a.micro, piece - 1)] + send);
        forward[at(a.micro, piece)] = now += costs.forward;
        break;
      case Do::backward:
        if (piece + 1 < s.pieces()) now = std::max(now, backward[at(a.micro, piece + 1)] + send);
        backward[at(a.micro, piece)] = now += costs.backward;
        break;
      case Do::weights: now += costs.weights; break;
    }
  });
  return *std::max_element(free.begin(), free.end());
}

std::vector<int> balanced_cuts(std::span<const double> blocks, int pieces, double before,
                               double after) {
  const int n = static_cast<int>(blocks.size());
  require(pieces > 0 && pieces <= n, Fault::bug, "{} blocks cannot be cut into {} pieces", n,
          pieces);
  std::vector<double> sums{0};
  for (const double cost : blocks) sums.push_back(sums.back() + cost);
  const auto cost = [&](int piece, int first, int end) {
    return sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(first)] +
           (piece == 0 ? before : 0) + (piece + 1 == pieces ? after : 0);
  };
  // least[p][e]: the cost of the most expensive of the pieces 0 … p, if they end at block e.
  const auto columns = static_cast<size_t>(n) + 1;
  std::vector<std::vector<double>> least(
      static_cast<size_t>(pieces),
      std::vector<double>(columns, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> begin(static_cast<size_t>(pieces), std::vector<int>(columns));
  for (int p = 0; p < pieces; ++p)
    for (int end = p + 1; end <= n - (pieces - 1 - p); ++end)
      for (int first = p == 0 ? 0 : p; first < (p == 0 ? 1 : end); ++first) {
        const auto row = static_cast<size_t>(p), to = static_cast<size_t>(end);
        const double here = cost(p, first, end);
        const double most =
            p == 0 ? here : std::max(here, least[row - 1][static_cast<size_t>(first)]);
        if (most >= least[row][to]) continue;
        least[row][to] = most;
        begin[row][to] = first;
      }
  std::vector<int> cuts(static_cast<size_t>(pieces) + 1, n);
  for (int p = pieces; p-- > 0;)
    cuts[static_cast<size_t>(p)] =
        begin[static_cast<size_t>(p)][static_cast<size_t>(cuts[static_cast<size_t>(p) + 1])];
  return cuts;
}

}  // namespace capstan
