// For the tests of an MLP's fused loss: tasks, and the errors of their results.
#pragma once
#include <cmath>
#include <iostream>
#include <map>

#include "../on_gpu.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/unary.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/nonfinite.h"
#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

namespace halftape::testing::mlp_losses {

using testing::kInf, testing::kNaN;
using testing::normal;

const std::optional<OpId> kActivations[] = {std::nullopt,
                                            UnaryOps::index<formula::Relu>(),
                                            UnaryOps::index<formula::GeluTanh>(),
                                            UnaryOps::index<formula::Silu>(),
                                            UnaryOps::index<formula::Tanh>(),
                                            UnaryOps::index<formula::Sigmoid>()};
constexpr size_t kRelu = 1, kGelu = 2;

struct Case {
  Dtype dtype;
  std::vector<int64_t> widths;  // in, hidden …, out
  int64_t rows;
  size_t activation = kRelu;
  bool classes = false, biased = true;
  Dtype parameters = kFloat32;
  double g = 256;
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << c.dtype << ", parameters " << c.parameters << ", " << c.rows << " rows of";
  for (const int64_t w : c.widths) out << ' ' << w;
  return out << ", activation " << c.activation << (c.classes ? ", classes" : ", distances")
             << (c.biased ? ", biases" : ", no biases") << ", g " << c.g;
}

inline Array unwritten(const Shape& shape, Dtype dtype) { return full(shape, kNaN, dtype, kCPU); }

/// A task on the CPU with all results wanted.
inline MlpLoss task_of(const Case& c, uint64_t seed) {
  const int64_t in = c.widths.front(), out = c.widths.back();
  MlpLoss m{.x = normal({c.rows, in}, c.dtype, seed, 1),
            .target = normal({c.rows, out}, kFloat32, seed + 1, 1),
            .weights = {}};
  if (c.classes) {
    m.target = Array({c.rows}, kInt64, kCPU);
    for (int64_t i = 0; i < c.rows; ++i) m.target.data<int64_t>()[i] = i * 7919 % out;
  }
  for (size_t l = 0; l + 1 < c.widths.size(); ++l) {
    const int64_t from = c.widths[l], to = c.widths[l + 1];
    m.weights.push_back(
        normal({to, from}, c.parameters, seed + 2 + l, std::sqrt(2 / static_cast<double>(from))));
    m.biases.push_back(c.biased ? normal({to}, c.parameters, seed + 20 + l, 0.3) : Array());
    m.dweights.push_back(unwritten({to, from}, kFloat32));
    m.dbiases.push_back(c.biased ? unwritten({to}, kFloat32) : Array());
  }
  m.activation = kActivations[c.activation];
  m.loss = unwritten({}, kFloat32);
  m.g = full({}, c.g, kFloat32, kCPU);
  m.dx = unwritten({c.rows, in}, c.dtype);
  return m;
}

template <class F>
inline MlpLoss with_each(MlpLoss m, const F& f) {
  for (Array* a : {&m.x, &m.target, &m.loss, &m.g, &m.dx}) *a = f(*a);
  for (auto* list : {&m.weights, &m.biases, &m.dweights, &m.dbiases})
    for (Array& a : *list) a = f(a);
  return m;
}
inline MlpLoss on_gpu(const MlpLoss& m) {
  return with_each(m, [](const Array& a) { return testing::on_gpu(a); });
}
/// The same task with new outputs on the CPU.
inline MlpLoss again(MlpLoss m) {
  const auto fresh = [](Array& a) {
    if (a.defined()) a = unwritten(a.shape(), a.dtype());
  };
  fresh(m.loss), fresh(m.dx);
  for (auto* list : {&m.dweights, &m.dbiases})
    for (Array& a : *list) fresh(a);
  return m;
}
inline MlpLoss in_float64(const MlpLoss& m) {
  const Dtype low = m.x.dtype();
  MlpLoss d = again(m);
  for (auto* list : {&d.weights, &d.biases})
    for (Array& a : *list)
      if (a.defined()) a = a.to(low);
  return with_each(d, [](const Array& a) {
    return a.defined() && is_floating_point(a.dtype()) ? a.to(kFloat64) : a;
  });
}

struct Named {
  std::string name;
  Array a;
};
inline std::vector<Named> results(const MlpLoss& m) {
  std::vector<Named> all{{"loss", m.loss}, {"dx", m.dx}};
  for (size_t l = 0; l < m.weights.size(); ++l) {
    if (!m.dweights.empty()) all.push_back({"dweight " + std::to_string(l), m.dweights[l]});
    if (!m.dbiases.empty()) all.push_back({"dbias " + std::to_string(l), m.dbiases[l]});
  }
  std::erase_if(all, [](const Named& n) { return !n.a.defined(); });
  return all;
}

/// Empty if the norm of the difference is at most `allowed` of the norm.
inline std::string far_apart(const MlpLoss& gpu, const MlpLoss& right, double allowed) {
  const auto got = results(gpu), wanted = results(right);
  for (size_t i = 0; i < got.size(); ++i) {
    const Array a = got[i].a.to(kCPU).to(kFloat64), b = wanted[i].a.to(kFloat64);
    double distance = 0, size = 0;
    for (int64_t k = 0; k < a.numel(); ++k) {
      const double x = a.data<double>()[k], y = b.data<double>()[k];
      distance += (x - y) * (x - y), size += y * y;
    }
    if (!(std::sqrt(distance) <= allowed * std::sqrt(size) + 1e-7))
      return got[i].name + " is off by " + std::to_string(std::sqrt(distance / size)) +
             " of its size";
  }
  return "";
}

inline void check_case(const Case& c, uint64_t seed) {
  CAPTURE(c);
  const MlpLoss cpu = task_of(c, seed), gpu = on_gpu(cpu), exact = in_float64(cpu);
  backend(kCUDA).run(gpu);
  cpu_backend().run(cpu);
  cpu_backend().run(exact);
  const double eps = epsilon(c.dtype);
  // Two roundings may differ now and then; all roundings, one for each layer and direction.
  CHECK(far_apart(gpu, cpu, 1.5 * eps) == "");
  CHECK(far_apart(gpu, exact, 4 * eps * static_cast<double>(c.widths.size())) == "");
}

#if defined(HALFTAPE_SIMT)
/// The number of launches of kernels whose names contain this.
template <class F>
inline std::map<std::string, int> launched(const F& f) {
  simt::reset_counters();
  f();
  std::map<std::string, int> counts;
  for (const std::string& name : simt::launched_kernels())
    ++counts[name.find("mlp_tiles") != std::string::npos    ? "tiles"
             : name.find("add_blocks") != std::string::npos ? "sums"
                                                            : name];
  return counts;
}
#endif

}  // namespace halftape::testing::mlp_losses
