#include "tensor/cuda/graphs.h"

#include <algorithm>

#include "tensor/cuda/check.h"

namespace capstan::cuda {

Graphs::~Graphs() {
  for (auto& [key, entry] : entries_)
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
}

GraphUse Graphs::begin(cudaStream_t stream, const Key& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) {
    if (entries_.size() < kMostSeen) entries_[key] = {};
    return GraphUse::none;
  }
  it->second.used = ++clock_;
  if (it->second.graph != nullptr) {
    check(cudaGraphLaunch(it->second.graph, stream), "launch a graph");
    return GraphUse::replayed;
  }
  // If more keys repeat than graphs are kept, the existing ones stay.
  if (full() && clock_ - oldest()->second.used < int64_t{4 * kMost}) return GraphUse::none;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "record a graph");
  return GraphUse::recording;
}

void Graphs::end(cudaStream_t stream, const Key& key, bool complete) {
  cudaGraph_t recorded = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream, &recorded);
  if (!complete) {
    // Errors during the recording were reported by the op that saw them: clear them.
    cudaGetLastError();
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    return;
  }
  check(status, "record a graph");
  size_t nodes = 0;
  const cudaError_t counted = cudaGraphGetNodes(recorded, nullptr, &nodes);
  if (counted == cudaSuccess) make_room(nodes);
  cudaGraphExec_t graph = nullptr;
  const cudaError_t made =
      counted == cudaSuccess ? cudaGraphInstantiate(&graph, recorded, 0) : counted;
  cudaGraphDestroy(recorded);
  check(made, "make a graph");
  Entry& entry = entries_[key];
  entry.graph = graph;
  entry.nodes = nodes;
  ++graphs_;
  nodes_ += nodes;
  check(cudaGraphLaunch(graph, stream), "launch a graph");
}

void Graphs::make_room(size_t nodes) {
  while (graphs_ > 0 && (graphs_ >= kMost || nodes_ + nodes > kMostNodes)) {
    const auto last = oldest();
    // It may still be running; the driver keeps it until it ends.
    check(cudaGraphExecDestroy(last->second.graph), "forget a graph");
    --graphs_;
    nodes_ -= last->second.nodes;
    entries_.erase(last);
  }
}

Graphs::Entries::iterator Graphs::oldest() {
  auto found = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (it->second.graph != nullptr &&
        (found == entries_.end() || it->second.used < found->second.used))
      found = it;
  return found;
}

}  // namespace capstan::cuda
