#include "tensor/cuda/graphs.h"

#include <algorithm>
#include <utility>

#include "tensor/cuda/check.h"

namespace capstan::cuda {

Graphs::~Graphs() {
  discard(recorded_.parts);
  for (auto& [key, entry] : entries_) discard(entry.parts);
}

// A graph may still be running; the driver keeps it until it ends.
void Graphs::discard(Parts& parts) {
  for (cudaGraphExec_t part : parts)
    if (part != nullptr) cudaGraphExecDestroy(part);
  parts.clear();
}

GraphUse Graphs::begin(cudaStream_t stream, const Key& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) {
    if (entries_.size() < kMostSeen) entries_[key] = {};
    return GraphUse::none;
  }
  it->second.used = ++clock_;
  if (!it->second.parts.empty()) {
    replayed_ = &it->second;
    next_part_ = 0;
    launch_part(stream);
    return GraphUse::replayed;
  }
  // If more keys repeat than graphs are kept, the existing ones stay.
  if (full() && clock_ - oldest()->second.used < int64_t{4 * kMost}) return GraphUse::none;
  record(stream);
  return GraphUse::recording;
}

void Graphs::record(cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "record a graph");
  recording_ = true;
}

void Graphs::cut(cudaStream_t stream) {
  if (replayed_ == nullptr) end_part(stream);
}

void Graphs::resume(cudaStream_t stream) {
  if (replayed_ == nullptr)
    record(stream);
  else
    launch_part(stream);
}

void Graphs::launch_part(cudaStream_t stream) {
  require(next_part_ < replayed_->parts.size(), Fault::bug,
          "a graph of {} parts is cut more often than it was", replayed_->parts.size());
  if (cudaGraphExec_t part = replayed_->parts[next_part_++]; part != nullptr)
    check(cudaGraphLaunch(part, stream), "launch a graph");
}

void Graphs::end_part(cudaStream_t stream) {
  cudaGraph_t recorded = nullptr;
  recording_ = false;
  check(cudaStreamEndCapture(stream, &recorded), "record a graph");
  size_t nodes = 0;
  const cudaError_t counted = cudaGraphGetNodes(recorded, nullptr, &nodes);
  if (counted == cudaSuccess) make_room(recorded_.nodes + nodes);
  cudaGraphExec_t part = nullptr;
  cudaError_t made = counted;
  if (counted == cudaSuccess && nodes > 0) made = cudaGraphInstantiate(&part, recorded, 0);
  cudaGraphDestroy(recorded);
  check(made, "make a graph");
  recorded_.parts.push_back(part);
  recorded_.nodes += nodes;
  if (part != nullptr) check(cudaGraphLaunch(part, stream), "launch a graph");
}

void Graphs::end(cudaStream_t stream, const Key& key, bool complete) {
  if (Entry* const entry = std::exchange(replayed_, nullptr)) {
    require(!complete || next_part_ == entry->parts.size(), Fault::bug,
            "{} of the {} parts of a graph were used", next_part_, entry->parts.size());
    return;
  }
  if (complete) {
    end_part(stream);
    Entry& entry = entries_[key];
    entry.parts = std::exchange(recorded_.parts, {});
    entry.nodes = std::exchange(recorded_.nodes, 0);
    ++graphs_;
    nodes_ += entry.nodes;
    return;
  }
  if (std::exchange(recording_, false)) {
    cudaGraph_t recorded = nullptr;
    cudaStreamEndCapture(stream, &recorded);
    // Errors during the recording were reported by the op that saw them: clear them.
    cudaGetLastError();
    if (recorded != nullptr) cudaGraphDestroy(recorded);
  }
  discard(recorded_.parts);
  recorded_.nodes = 0;
}

void Graphs::make_room(size_t nodes) {
  while (graphs_ > 0 && (graphs_ >= kMost || nodes_ + nodes > kMostNodes)) {
    const auto last = oldest();
    discard(last->second.parts);
    --graphs_;
    nodes_ -= last->second.nodes;
    entries_.erase(last);
  }
}

Graphs::Entries::iterator Graphs::oldest() {
  auto found = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (!it->second.parts.empty() &&
        (found == entries_.end() || it->second.used < found->second.used))
      found = it;
  return found;
}

}  // namespace capstan::cuda
