#include "model/parts.h"

namespace capstan {

int64_t Parts::blocks() const {
  int64_t count = 0;
  for (const Transformer* part : parts_) count += part->stage().end - part->stage().first;
  return count;
}

Buffer Parts::receive(Queue& q, int64_t tokens) const {
  Buffer in = q.arena().make(Category::activations, params().types().compute,
                             {tokens, config().hidden}, "stage input");
  Work work = pipe_.receive(q, Pipe::Way::down, in, 0);
  work.join(q);
  return in;
}

void Parts::send(Queue& q, const Buffer& out) const {
  if (!out) return;
  Work work = pipe_.send(q, Pipe::Way::down, out, 0);
  work.join(q);
}

}  // namespace capstan
