#include "train/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ops/elementwise.h"

namespace capstan {
namespace {

using Do = PipelineAction::Do;

// The most micro-batches that are in flight on a stage at a time.
int64_t most_in_flight(const std::vector<PipelineAction>& actions) {
  std::map<int, int> left;  // actions, by micro-batch
  for (const PipelineAction& a : actions) ++left[a.micro];
  int first = 0, begun = 0, most = 0;  // the oldest in flight is `first`
  for (const PipelineAction& a : actions) {
    begun = std::max(begun, a.micro + 1);
    most = std::max(most, begun - first);
    --left[a.micro];
    while (first < begun && left[first] == 0) ++first;
  }
  return most;
}

}  // namespace

Pipeline::Pipeline(Queue& q, const Parts& parts, const PipelineOptions& options,
                   const BatchLimits& limits, DeviceBatch::Arrays arrays)
    : parts_(parts), options_(options), asks_ahead_(!parts.pipe().all().waits_on_device()) {
  const PipelineSchedule& longest = schedule_for(options.micro_batches);
  slots_ = longest.slots;
  for (size_t i = 0; i < parts.size(); ++i)
    names_.push_back({fmt::format("forward {}", i), fmt::format("backward {}", i),
                      fmt::format("weights {}", i), fmt::format("idle forward {}", i),
                      fmt::format("idle backward {}", i), fmt::format("idle weights {}", i)});
  const int64_t in_flight = most_in_flight(longest.actions);
  const Ranks sharing = parts.params().mesh().context().ranks();
  rooms_.reserve(static_cast<size_t>(in_flight));
  for (int64_t i = 0; i < in_flight; ++i)
    rooms_.emplace_back(q, limits, parts.config(), arrays, sharing);
  batches_.resize(rooms_.size());
  kept_.resize(static_cast<size_t>(slots_));
  for (auto& slot : kept_)
    for (size_t i = 0; i < parts.size(); ++i) slot.push_back(parts[i].make_kept());
  const auto make = [&](const char* name) {
    return q.arena().make(
        Category::communication, parts_.params().types().compute,
        {parts_[0].share_of(limits.tokens / sharing.size), parts_.config().hidden}, name);
  };
  bool in = false, out = false, gradients_in = false, gradients_out = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    in |= !parts[i].is_first();
    out |= !parts[i].is_last();
    gradients_out |= parts[i].sends_gradients();
    gradients_in |= parts[i].receives_gradients();
  }
  const Buffer x = q.arena().make(Category::communication, DType::f32, {1}, "first message");
  parts_.pipe().connect(q, x);
  if (in) link(Way::down).landing = make("from the stage before");
  if (out) link(Way::down).outbox = make("to the next stage");
  if (gradients_in) link(Way::up).landing = make("gradients from the next stage");
  if (gradients_out) link(Way::up).outbox = make("gradients to the stage before");
}

int Pipeline::piece_of(const PipelineAction& a) const {
  return a.chunk * parts_.pipe().stages() + parts_.pipe().stage();
}

bool Pipeline::receives(const PipelineAction& a) const {
  switch (a.what) {
    case Do::forward: return !part_of(a).is_first();
    case Do::backward: return part_of(a).receives_gradients();
    case Do::weights: return false;
  }
  return false;
}

const PipelineSchedule& Pipeline::schedule_for(int64_t micro_batches) {
  const auto [it, is_new] = schedules_.try_emplace(micro_batches);
  if (is_new) {
    const PipelineShape shape{parts_.pipe().stages(), options_.chunks,
                              static_cast<int>(micro_batches)};
    const auto all = pipeline_schedule(options_.kind, shape);
    it->second = all[static_cast<size_t>(parts_.pipe().stage())];
  }
  return it->second;
}

void Pipeline::run(Queue& q, const Step& step, const Source& source) {
  actions_ = &schedule_for(step.micro_batches).actions;
  source_ = &source;
  loaded_ = 0;
  for (Link& l : links_) l.next = 0;
  for (const PipelineAction& a : *actions_) {
    if (asks_ahead_)
      for (const Way way : {Way::down, Way::up}) ask(q, way);
    load(a);
    const double start = q.now(), waited = q.waited();
    perform(q, a, step);
    passes_[a.what].seconds += q.now() - start;
    passes_[a.what].waited += q.waited() - waited;
    ++passes_[a.what].count;
  }
  for (Link& l : links_) l.sending.join(q);
  actions_ = nullptr;
}

void Pipeline::rehearse(Queue& q, const Step& step, bool idle) {
  for (size_t i = 0; i < parts_.size(); ++i)
    for (const Do what : {Do::forward, Do::backward, Do::weights}) {
      if (what == Do::weights && when_weights() == Transformer::Weights::now) continue;
      const PipelineAction a{what, 0, static_cast<int>(i), 0};
      batches_[0] = idle ? Batch() : rooms_[0].largest();
      loaded_ = 1;
      if (!idle && receives(a)) {
        Link& l = link(what == Do::forward ? Way::down : Way::up);
        l.receiving = parts_.pipe().receive(q, what == Do::forward ? Way::down : Way::up,
                                            rows_for(l.landing, batches_[0].tokens()), 0);
      }
      perform(q, a, step);
    }
  for (Link& l : links_) l.sending.join(q);
}

void Pipeline::rehearse_step(Queue& q, Step step) {
  const int64_t full = int64_t{3} * parts_.pipe().stages() * options_.chunks;
  step.micro_batches = std::min(options_.micro_batches, full);
  run(q, step,
      {[&] { return rooms_[0].largest().tokens(); },
       [](const DeviceBatch& room) { return room.largest(); }});
}

void Pipeline::load(const PipelineAction& a) {
  for (; loaded_ <= a.micro; ++loaded_) {
    DeviceBatch& room = rooms_[static_cast<size_t>(loaded_ % rooms())];
    batch_of(loaded_) = source_->next(room);
  }
}

void Pipeline::ask(Queue& q, Way way) {
  Link& l = link(way);
  if (l.receiving.pending() || actions_ == nullptr) return;
  const Do what = way == Way::down ? Do::forward : Do::backward;
  for (; l.next < actions_->size(); ++l.next) {
    const PipelineAction& a = (*actions_)[l.next];
    if (a.what != what || !receives(a)) continue;
    if (a.micro > loaded_) return;  // not known yet
    const int64_t tokens = a.micro == loaded_        ? source_->next_tokens()
                           : batch_of(a.micro).ids_T ? batch_of(a.micro).tokens()
                                                     : 0;
    if (tokens == 0) continue;  // all stages know that there is no message
    ++l.next;
    l.receiving = parts_.pipe().receive(q, way, rows_for(l.landing, tokens), a.micro);
    return;
  }
}

void Pipeline::begin_pass(const PipelineAction& a, const Step& step) {
  parts_.params().begin_micro_batch(a.micro == 0, a.micro + 1 == step.micro_batches);
}

void Pipeline::perform(Queue& q, const PipelineAction& a, const Step& step) {
  const Batch& batch = batch_of(a.micro);
  begin_pass(a, step);
  if (!batch.ids_T) return stay_idle(q, a);
  switch (a.what) {
    case Do::forward: return forward(q, a, batch, step);
    case Do::backward: return backward(q, a, batch, step);
    case Do::weights: return weights(q, a, batch, step);
  }
}

void Pipeline::stay_idle(Queue& q, const PipelineAction& a) {
  const Part& names = names_[static_cast<size_t>(a.chunk)];
  const Arena::Slot slot{a.slot, slots_};
  const std::string& name = a.what == Do::forward    ? names.idle_forward
                            : a.what == Do::backward ? names.idle_backward
                                                     : names.idle_weights;
  const auto phase = q.arena().phase(name.c_str(), slot);
  Transformer& part = part_of(a);
  switch (a.what) {
    case Do::forward: return part.idle_forward(q);
    case Do::backward: part.idle_backward(q, when_weights()); break;
    case Do::weights: part.idle_backward_weights(q); break;
  }
  parts_.params().end_micro_batch(q);
}

Buffer Pipeline::take(Queue& q, Way way, const Batch& batch, const char* name) {
  Link& l = link(way);
  Buffer taken = q.arena().make(Category::activations, l.landing->dtype(),
                                {parts_[0].share_of(batch.tokens()), parts_.config().hidden}, name);
  ask(q, way);  // if it has not been
  l.receiving.join(q);
  copy(q, taken, rows_for(l.landing, batch.tokens()));
  if (asks_ahead_) ask(q, way);
  return taken;
}

void Pipeline::hand_on(Queue& q, Way way, const Buffer& out, int64_t message) {
  Link& l = link(way);
  l.sending.join(q);
  const Tensor box = l.outbox->rows(0, out->dim(0));
  copy(q, box, out);
  l.sending = parts_.pipe().send(q, way, box, message);
}

GraphKey Pipeline::graph_key(const PipelineAction& a, const Batch& batch, const Step& step) const {
  const Pass pass = a.what == Do::forward ? Pass::forward : Pass::backward;
  const int64_t room = a.micro % rooms();
  return {batch.tokens(),
          batch.mask.documents,
          batch.mask.longest,
          batch.targets,
          parts_.params().schedule_key(pass) | int64_t{a.what} << 4 | int64_t{a.micro == 0} << 6 |
              int64_t{a.chunk} << 8 | int64_t{a.slot} << 24 | room << 40,
          std::bit_cast<intptr_t>(step.loss.raw())};
}

void Pipeline::forward(Queue& q, const PipelineAction& a, const Batch& batch, const Step& step) {
  Transformer& part = part_of(a);
  const auto phase =
      q.arena().phase(names_[static_cast<size_t>(a.chunk)].forward.c_str(), {a.slot, slots_});
  Buffer in, out;
  if (!part.is_first()) in = take(q, Way::down, batch, "stage input");
  q.graph(graph_key(a, batch, step),
          [&] { out = part.forward(q, batch, kept(a), std::move(in), step.key); });
  if (out) hand_on(q, Way::down, out, a.micro);
}

void Pipeline::backward(Queue& q, const PipelineAction& a, const Batch& batch, const Step& step) {
  Transformer& part = part_of(a);
  const auto phase =
      q.arena().phase(names_[static_cast<size_t>(a.chunk)].backward.c_str(), {a.slot, slots_});
  Buffer d;
  if (part.receives_gradients()) d = take(q, Way::up, batch, "stage output gradient");
  if (part.trains()) {
    Buffer d_in;
    q.graph(graph_key(a, batch, step), [&] {
      d_in = part.backward(q, batch, kept(a), step.scale, step.loss, std::move(d), when_weights());
    });
    if (part.sends_gradients()) hand_on(q, Way::up, d_in, a.micro);
  }
  parts_.params().end_micro_batch(q);
}

void Pipeline::weights(Queue& q, const PipelineAction& a, const Batch& batch, const Step& step) {
  const auto phase =
      q.arena().phase(names_[static_cast<size_t>(a.chunk)].weights.c_str(), {a.slot, slots_});
  q.graph(graph_key(a, batch, step), [&] { part_of(a).backward_weights(q, kept(a)); });
  parts_.params().end_micro_batch(q);
}

StageUnits units_of_stages(const ModelSpec& spec, const std::vector<int>& cuts, int stages) {
  StageUnits all(static_cast<size_t>(stages),
                 std::vector<bool>(static_cast<size_t>(spec.units()), false));
  const auto pieces = static_cast<int>(cuts.size()) - 1;
  for (int piece = 0; piece < pieces; ++piece) {
    std::vector<bool>& units = all[static_cast<size_t>(piece % stages)];
    for (int block = cuts[static_cast<size_t>(piece)]; block < cuts[static_cast<size_t>(piece) + 1];
         ++block)
      units[static_cast<size_t>(block) + 1] = true;
  }
  all.front().front() = true;
  all[static_cast<size_t>((pieces - 1) % stages)].back() = true;
  if (spec.head == spec.embedding) all[static_cast<size_t>((pieces - 1) % stages)].front() = true;
  return all;
}

}  // namespace capstan
