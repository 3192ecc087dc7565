// The slow parts of the references, optimised.
#include "ops/reference.h"

#include "ops/attention_reference.h"
#include "ops/head_loss_reference.h"

namespace capstan::test {

double dot(const double* a, const double* b, int64_t n, double start) {
  for (int64_t i = 0; i < n; ++i) start += a[i] * b[i];
  return start;
}

double error(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return INFINITY;
  Values difference(found);
  for (size_t i = 0; i < found.size(); ++i) difference[i] -= expected[i];
  const double size = norm(expected);
  return size > 0 ? norm(difference) / size : norm(difference);
}

double gradient_error(const std::function<double(const Values&)>& f, const Values& at,
                      const Values& gradient, int directions) {
  if (gradient.size() != at.size()) return INFINITY;
  double worst = 0;
  for (int k = 0; k < directions; ++k) {
    const Rng rng({.seed = 99, .step = static_cast<uint64_t>(k)});
    Values direction(at.size()), up(at), down(at);
    // Error of the differences: h^2 from the third derivative, 2^-53 / h from rounding.
    const double h = 1e-5;
    for (size_t i = 0; i < at.size(); ++i) {
      direction[i] = 2.0 * static_cast<double>(rng.uniform(i)) - 1.0;
      up[i] += h * direction[i];
      down[i] -= h * direction[i];
    }
    const double difference = (f(up) - f(down)) / (2 * h);
    const double size =
        norm(gradient) * norm(direction) / std::sqrt(static_cast<double>(at.size()));
    const double off = std::abs(difference - dot(gradient, direction));
    const double relative = size > 0 ? off / size : off;
    if (std::isnan(relative)) return relative;
    worst = std::max(worst, relative);
  }
  return worst;
}

Values product_f64(int64_t M, int64_t N, int64_t K, const Values& a, bool a_turned, const Values& b,
                   bool b_turned) {
  Values c(idx(M * N));
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k)
        c[idx(m * N + n)] +=
            a[idx(a_turned ? k * M + m : m * K + k)] * b[idx(b_turned ? n * K + k : k * N + n)];
  return c;
}

Values values_of(Queue& q, const Tensor& t) {
  Values result;
  if (t.numel() == 0) return result;
  const int64_t D = t.dim(-1);
  std::vector<std::byte> row(idx(D * size_of(t.dtype())));
  for (int64_t r = 0; r < t.numel() / D; ++r) {
    int64_t offset = 0, rest = r;
    for (int i = t.rank() - 2; i >= 0; --i) {
      offset += rest % t.dim(i) * t.stride(i);
      rest /= t.dim(i);
    }
    auto* const address = static_cast<std::byte*>(t.raw()) + offset * size_of(t.dtype());
    q.download(row.data(), Tensor(address, t.dtype(), {D}));
    const Tensor host(row.data(), t.dtype(), {D});
    for (int64_t d = 0; d < D; ++d) switch (t.dtype()) {
        case DType::f32: result.push_back(double{host.as<float>()[d]}); break;
        case DType::bf16: result.push_back(double{float(host.as<bf16>()[d])}); break;
        case DType::f16: result.push_back(double{float(host.as<f16>()[d])}); break;
        case DType::i32: result.push_back(host.as<int32_t>()[d]); break;
        case DType::u8: result.push_back(host.as<uint8_t>()[d]); break;
        case DType::f64: result.push_back(host.as<double>()[d]); break;
      }
  }
  return result;
}

Buffer buffer_of(Queue& q, DType dtype, const Shape& shape, const Values& values) {
  Buffer buffer = q.arena().make(Category::data, dtype, shape, "test operand");
  std::vector<std::byte> bytes(idx(shape.numel() * size_of(dtype)));
  const Tensor host(bytes.data(), dtype, shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const auto value = static_cast<float>(values.at(idx(i)));
    switch (dtype) {
      case DType::f32: host.as<float>()[i] = value; break;
      case DType::bf16: host.as<bf16>()[i] = bf16(value); break;
      case DType::f16: host.as<f16>()[i] = f16(value); break;
      case DType::i32: host.as<int32_t>()[i] = static_cast<int32_t>(values[idx(i)]); break;
      case DType::u8: host.as<uint8_t>()[i] = static_cast<uint8_t>(values[idx(i)]); break;
      case DType::f64: host.as<double>()[i] = values[idx(i)]; break;
    }
  }
  q.upload(buffer, bytes.data());
  return buffer;
}

Values normal_values(int64_t n, uint64_t seed, double std) {
  const Rng rng({.seed = seed});
  Values result(idx(n));
  for (size_t i = 0; i < result.size(); ++i) {
    const auto words = rng.draws(i);
    const double u = (words[0] + 1.0) * 0x1p-32, angle = words[1] * 0x1p-32 * 2 * M_PI;
    result[i] = std * std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }
  return result;
}

AttentionValues attention_f64(const Layout& l, const Values& q, const Values& k, const Values& v,
                              double scale) {
  const int64_t T = l.tokens(), D = l.D;
  AttentionValues r{Values(q.size(), 0.0), Values(idx(l.H * T))};
  int64_t first = 0;
  for (const int64_t length : l.lengths) {
    for (int64_t t = first; t < first + length; ++t)
      for (int64_t h = 0; h < l.H; ++h) {
        const int64_t begin = l.window > 0 ? std::max(first, t - l.window + 1) : first;
        const double* const query = q.data() + (t * l.H + h) * D;
        const auto row = [&](int64_t s) { return (s * l.K + h / (l.H / l.K)) * D; };
        Values p;
        for (int64_t s = begin; s <= t; ++s) p.push_back(scale * dot(query, k.data() + row(s), D));
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - top);
        for (int64_t s = begin; s <= t; ++s)
          for (int64_t d = 0; d < D; ++d)
            r.o_THD[idx((t * l.H + h) * D + d)] += p[idx(s - begin)] / sum * v[idx(row(s) + d)];
        r.lse_HT[idx(h * T + t)] = top + std::log(sum);
      }
    first += length;
  }
  return r;
}

double largest_difference(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = std::abs(a[i] - b[i]);
    if (std::isnan(off)) return off;
    worst = std::max(worst, off);
  }
  return worst;
}

HeadReference head_loss_f64(const Values& x, const Values& w, const Values& labels, int64_t D,
                            bool gradients) {
  const auto V = static_cast<int64_t>(w.size()) / D;
  HeadReference r;
  if (gradients) r.dx.resize(x.size()), r.dw.resize(w.size());
  Values p(idx(V));
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == kIgnore) continue;
    const size_t row = t * idx(D), label = static_cast<size_t>(labels[t]);
    for (size_t v = 0; v < p.size(); ++v) p[v] = dot(&x[row], &w[v * idx(D)], D);
    const double top = *std::max_element(p.begin(), p.end()), target = p[label];
    double sum = 0;
    for (double& l : p) sum += l = std::exp(l - top);
    r.loss += std::log(sum) + top - target;
    if (!gradients) continue;
    for (size_t v = 0; v < p.size(); ++v) {
      const double dlogit = p[v] / sum - (v == label ? 1 : 0);
      for (size_t d = 0; d < idx(D); ++d) {
        r.dx[row + d] += dlogit * w[v * idx(D) + d];
        r.dw[v * idx(D) + d] += dlogit * x[row + d];
      }
    }
  }
  return r;
}

}  // namespace capstan::test
