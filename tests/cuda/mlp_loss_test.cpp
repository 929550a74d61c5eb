// An MLP's loss and gradients in one kernel: what the formula gives, in calls of its own, and what
// float64 gives; for every width, depth, batch, activation and loss that the kernel takes.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <map>

#include "../support/close.h"
#include "../support/message.h"
#include "halftape/core/contract/mlp_loss_unfused.h"
#include "halftape/core/formula/unary.h"
#include "on_gpu.h"
#if defined(HALFTAPE_SIMT)
#include "device.h"
#include "settings.h"
#endif

using namespace halftape;
using testing::message;
using testing::on_cpu;
using testing::on_gpu;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

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
std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << c.dtype << ", parameters " << c.parameters << ", " << c.rows << " rows of";
  for (const int64_t w : c.widths) out << ' ' << w;
  return out << ", activation " << c.activation << (c.classes ? ", classes" : ", distances")
             << (c.biased ? ", biases" : ", no biases") << ", g " << c.g;
}

Array normal(const Shape& shape, Dtype dtype, uint64_t seed, double spread) {
  const Array a(shape, dtype, kCPU);
  cpu_backend().random(a, Distribution::Normal, 0, spread, {.seed = seed, .offset = 0});
  return a;
}
Array unwritten(const Shape& shape, Dtype dtype) { return full(shape, kNaN, dtype, kCPU); }

/// All of it wanted, on the CPU.
MlpLoss task_of(const Case& c, uint64_t seed) {
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
MlpLoss with_each(MlpLoss m, const F& f) {
  for (Array* a : {&m.x, &m.target, &m.loss, &m.g, &m.dx}) *a = f(*a);
  for (auto* list : {&m.weights, &m.biases, &m.dweights, &m.dbiases})
    for (Array& a : *list) a = f(a);
  return m;
}
MlpLoss on_gpu(const MlpLoss& m) {
  return with_each(m, [](const Array& a) { return testing::on_gpu(a); });
}
/// With outputs of its own, to be written on the CPU.
MlpLoss again(MlpLoss m) {
  const auto fresh = [](Array& a) {
    if (a.defined()) a = unwritten(a.shape(), a.dtype());
  };
  fresh(m.loss), fresh(m.dx);
  for (auto* list : {&m.dweights, &m.dbiases})
    for (Array& a : *list) fresh(a);
  return m;
}
MlpLoss in_float64(const MlpLoss& m) {
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
std::vector<Named> results(const MlpLoss& m) {
  std::vector<Named> all{{"loss", m.loss}, {"dx", m.dx}};
  for (size_t l = 0; l < m.weights.size(); ++l) {
    if (!m.dweights.empty()) all.push_back({"dweight " + std::to_string(l), m.dweights[l]});
    if (!m.dbiases.empty()) all.push_back({"dbias " + std::to_string(l), m.dbiases[l]});
  }
  std::erase_if(all, [](const Named& n) { return !n.a.defined(); });
  return all;
}

/// Empty when the distance of all elements together is at most `allowed` of their size.
std::string far_apart(const MlpLoss& gpu, const MlpLoss& right, double allowed) {
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

void check_case(const Case& c, uint64_t seed) {
  CAPTURE(c);
  const MlpLoss cpu = task_of(c, seed), gpu = on_gpu(cpu), exact = in_float64(cpu);
  backend(kCUDA).mlp_loss(gpu);
  cpu_backend().mlp_loss(cpu);
  cpu_backend().mlp_loss(exact);
  const double eps = epsilon(c.dtype);
  // Two roundings that fall to other sides now and then; and all roundings, one for each layer and
  // direction.
  CHECK(far_apart(gpu, cpu, 1.5 * eps) == "");
  CHECK(far_apart(gpu, exact, 4 * eps * static_cast<double>(c.widths.size())) == "");
}

#if defined(HALFTAPE_SIMT)
/// How often a kernel whose name has this in it ran.
template <class F>
std::map<std::string, int> launched(const F& f) {
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

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("an MLP's loss and gradients are the formula's, for every width, depth and batch") {
    uint64_t seed = 1;
    for (const int64_t width : {16, 24, 64, 128})
      for (const int depth : {1, 2, 4})
        for (const int64_t rows : {1, 15, 128, 129, 1000})
          for (const Dtype dtype : {kFloat16, kBFloat16}) {
            if (rows == 1000 && width == 128 && depth == 4 && dtype == kBFloat16) continue;
            Case c{dtype, {width}, rows};
            for (int l = 0; l < depth; ++l) c.widths.push_back(width);
            ++seed;
            c.widths.front() = seed % 3 == 0 ? 2 : seed % 3 == 1 ? width : 40;
            c.widths.push_back(seed % 4 == 0 ? 3 : seed % 4 == 1 ? 10 : seed % 4 == 2 ? 16 : width);
            c.activation = seed % 6;
            c.classes = seed / 6 % 2 == 0;
            c.biased = seed / 2 % 3 != 0;
            c.parameters = seed % 5 == 0 ? dtype : kFloat32;
            check_case(c, seed * 100);
          }
  }

  TEST_CASE("an MLP's loss and gradients are the formula's, for every activation and loss") {
    uint64_t seed = 7;
    for (const Dtype dtype : {kFloat16, kBFloat16})
      for (size_t activation = 0; activation < std::size(kActivations); ++activation)
        for (const bool classes : {false, true})
          for (const bool biased : {false, true})
            check_case(
                {dtype, {5, 24, 24, 7}, 37, activation, classes, biased, biased ? kFloat32 : dtype},
                ++seed * 100);
  }

  TEST_CASE("an MLP's blocks take many tiles, weights one at a time, and single layers") {
    // More tiles than blocks; the gradients stay in registers, or do not (too deep, too wide).
    check_case({kFloat16, {16, 16, 16}, 2500}, 1);
    check_case({kFloat16, {8, 16, 16, 16, 16, 16, 4}, 2500, kGelu, true}, 2);
    check_case({kFloat16, {72, 72, 3}, 1700, kRelu, true}, 3);
    // Not all weights have room beside the tile.
    check_case({kFloat16, {128, 128, 128, 128, 128, 10}, 300, kRelu, true, true, kFloat16}, 4);
    check_case({kBFloat16, {128, 128, 128, 128, 128, 128}, 70, kGelu}, 5);
    // The deepest; with an activation that needs its inputs, there is room for 32 rows alone.
    check_case({kFloat16, std::vector<int64_t>(9, 128), 40, kGelu, true}, 9);
    check_case({kFloat16, std::vector<int64_t>(9, 16), 40, kRelu}, 10);
    // No hidden layer.
    check_case({kFloat16, {20, 10}, 50, kRelu, true}, 6);
    check_case({kBFloat16, {128, 128}, 50}, 7);
    check_case({kFloat16, {1, 1}, 3}, 8);
  }

#if defined(HALFTAPE_SIMT)
  TEST_CASE("an MLP's loss and gradients have the same bits in every order of threads and run") {
    for (const Case& c :
         {Case{kFloat16, {64, 64, 64, 10}, 300, kRelu, true}, Case{kFloat16, {128, 128, 3}, 300}}) {
      CAPTURE(c);
      const MlpLoss cpu = task_of(c, 5), first = on_gpu(cpu);
      backend(kCUDA).mlp_loss(first);
      simt::in_every_order([&] {
        const MlpLoss other = on_gpu(cpu);
        backend(kCUDA).mlp_loss(other);
        const auto a = results(first), b = results(other);
        for (size_t i = 0; i < a.size(); ++i) {
          CAPTURE(a[i].name);
          CHECK(testing::differ_on_gpu(a[i].a, on_cpu(b[i].a)) == "");
        }
      });
    }
  }

  TEST_CASE("a small MLP is one kernel and a sum, and what the kernel does not take the formula") {
    const auto kernels = [](const MlpLoss& m) {
      return launched([&] { backend(kCUDA).mlp_loss(m); });
    };
    const std::map<std::string, int> at_once{{"tiles", 1}, {"sums", 1}};
    CHECK(kernels(on_gpu(task_of({kFloat16, {64, 64, 64, 64, 64, 16}, 300}, 1))) == at_once);
    MlpLoss loss_alone = on_gpu(task_of({kBFloat16, {3, 24, 5}, 300}, 1));
    loss_alone.dx = {};
    loss_alone.dweights.clear(), loss_alone.dbiases.clear();
    CHECK(kernels(loss_alone) == at_once);
    CHECK(kernels(on_gpu(task_of({kFloat16, {64, 129, 3}, 20}, 1))).count("tiles") == 0);
    CHECK(kernels(on_gpu(task_of({kFloat32, {64, 64, 3}, 20}, 1))).count("tiles") == 0);
    CHECK(kernels(on_gpu(task_of({kFloat64, {64, 3}, 20, 1, false, true, kFloat64}, 1)))
              .count("tiles") == 0);
    MlpLoss strided = on_gpu(task_of({kFloat16, {64, 64, 3}, 20}, 1));
    strided.weights[0] = strided.weights[0].transpose(0, 1);
    CHECK(kernels(strided).count("tiles") == 0);
    MlpLoss other = on_gpu(task_of({kFloat16, {64, 64, 3}, 20}, 1));
    other.activation = UnaryOps::index<formula::Softplus>();
    CHECK(kernels(other).count("tiles") == 0);
  }

  TEST_CASE("a captured step of a FusedMLP is the eager step bit for bit, in few nodes") {
    const Tensor x = randn({300, 64}, kFloat16), y = randn({300, 16}, kFloat32);
    enum class How { InOps, Unknown, Known };  // the scale, in forward
    const auto run = [&](bool captured, How how, int& nodes) {
      manual_seed(3);
      nn::FusedMLP model(64, 64, 4, 16);
      optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
      amp::GradScaler scaler({.growth_interval = 2});
      Tensor loss;
      const auto step = [&] {
        optimizer.zero_grad();
        {
          const amp::autocast region(kCUDA, kFloat16);
          if (how == How::InOps) {
            Tensor h = model->linears[0]->forward(x);
            for (size_t l = 1; l < 5; ++l) h = model->linears[l]->forward(relu(h));
            loss = mse_loss(h, y);
          } else {
            loss = model->loss(x, y, how == How::Known ? scaler.factor() : Tensor());
          }
        }
        scaler.scale(loss).backward();
        scaler.step(optimizer);
        scaler.update();
      };
      const auto times = [](int n, const auto& f) {
        for (int i = 0; i < n; ++i) f();
      };
      if (captured) {
        Graph graph(kCUDA, step);
        nodes = static_cast<int>(graph.size());
        times(3, [&] { graph.replay(); });
        simt::reset_counters();
        graph.replay();
        std::map<std::string, int> counts;
        for (const std::string& name : simt::launched_kernels()) ++counts[name];
        const char* const names[] = {"layers apart", "FusedMLP", "FusedMLP that knows the scale"};
        std::cout << "64-64-64-64-64-16, " << names[static_cast<int>(how)] << ": " << nodes
                  << " nodes\n";
        for (const auto& [name, n] : counts) std::cout << "  " << n << " " << name << '\n';
      } else {
        times(4, step);
      }
      TensorList all = model->parameters();
      all.push_back(loss);
      for (Tensor& t : all) t = t.detach().clone();
      return all;
    };
    int nodes = 0, none = 0, apart = 0;
    run(true, How::InOps, apart);
    const TensorList plain = run(false, How::Unknown, none);
    for (const How how : {How::Unknown, How::Known}) {
      const TensorList eager = run(false, how, none), captured = run(true, how, nodes);
      for (size_t i = 0; i < eager.size(); ++i) {
        CAPTURE(i);
        CHECK(testing::same_bits(eager[i], captured[i]));
        CHECK(testing::same_bits(eager[i], plain[i]));  // scales are powers of two
      }
      CHECK(nodes <= (how == How::Known ? 3 : 6));
      CHECK(2 * nodes < apart);
    }
  }
#endif

  TEST_CASE("what an MLP is not asked for is left alone, and g is 1 unless it is given") {
    Case c{kFloat16, {8, 24, 24, 3}, 150};
    c.g = 1;
    const MlpLoss cpu = task_of(c, 9), all = on_gpu(cpu);
    backend(kCUDA).mlp_loss(all);
    MlpLoss some = on_gpu(cpu);
    some.g = {}, some.dx = {}, some.loss = {};
    some.dweights[1] = {}, some.dbiases.clear();
    backend(kCUDA).mlp_loss(some);
    CHECK(testing::differ_on_gpu(some.dweights[0], on_cpu(all.dweights[0])) == "");
    CHECK(testing::differ_on_gpu(some.dweights[2], on_cpu(all.dweights[2])) == "");
    MlpLoss loss = on_gpu(cpu);
    loss.dx = {}, loss.dweights.clear(), loss.dbiases.clear();
    backend(kCUDA).mlp_loss(loss);
    CHECK(testing::differ_on_gpu(loss.loss, on_cpu(all.loss)) == "");
    // Gradients of 16 bits are rounded once.
    MlpLoss rounded = on_gpu(cpu);
    rounded.dweights[0] = testing::on_gpu(unwritten({24, 8}, kFloat16));
    backend(kCUDA).mlp_loss(rounded);
    CHECK(testing::differ_on_gpu(rounded.dweights[0], on_cpu(all.dweights[0]).to(kFloat16)) == "");
  }

  TEST_CASE("an MLP's inputs that are not finite come out so, and overflow is found") {
    const auto found = [](const MlpLoss& m) {
      std::vector<Array> grads = m.dweights;
      grads.insert(grads.end(), m.dbiases.begin(), m.dbiases.end());
      const Array flag = testing::on_gpu(full({}, 0, kFloat32, kCPU));
      backend(kCUDA).check_finite(grads, flag);
      return read_double(flag) != 0;
    };
    for (const bool classes : {false, true})
      for (size_t activation = 0; activation < std::size(kActivations); ++activation) {
        const Case c{kFloat16, {8, 24, 24, 5}, 150, activation, classes};
        CAPTURE(c);
        const MlpLoss good = on_gpu(task_of(c, 4));
        backend(kCUDA).mlp_loss(good);
        CHECK(!found(good));
        for (int where = 0; where < 4; ++where) {
          CAPTURE(where);
          MlpLoss bad = task_of(c, 4);
          const Array& a = where == 0   ? bad.x
                           : where == 1 ? bad.weights[1]
                           : where == 2 ? bad.biases[0]
                                        : bad.weights[2];
          cpu_backend().fill(a.reshape({a.numel()}).slice(0, 3, 4), kNaN);
          bad = on_gpu(bad);
          backend(kCUDA).mlp_loss(bad);
          CHECK(std::isnan(read_double(bad.loss)));
          CHECK(found(bad));
        }
        Case over = c;
        over.g = 1e9;
        MlpLoss overflow = on_gpu(task_of(over, 4));
        backend(kCUDA).mlp_loss(overflow);
        CHECK(std::isfinite(read_double(overflow.loss)));
        CHECK(found(overflow));
      }
    // One row of many, and one logit of −∞, which loses nothing where it is not the target.
    MlpLoss m = task_of({kFloat16, {8, 16, 4}, 20, kRelu, true}, 4);
    cpu_backend().fill(m.biases[1].slice(0, 3, 4), -kInf);
    for (int64_t i = 0; i < 20; ++i) m.target.data<int64_t>()[i] = i % 3;
    const MlpLoss gpu = on_gpu(m);
    backend(kCUDA).mlp_loss(gpu);
    cpu_backend().mlp_loss(m);
    CHECK(std::isfinite(read_double(m.loss)));
    CHECK(far_apart(gpu, m, 1.5 * epsilon(kFloat16)) == "");
  }

  TEST_CASE("an MLP's x is rounded as it is read") {
    for (const Dtype dtype : {kFloat16, kBFloat16}) {
      for (const int64_t in : {8, 64, 5}) {
        MlpLoss m = task_of({dtype, {in, 24, 4}, 300}, 4);
        m.dx = {};
        m.x = normal({300, in}, kFloat32, 5, 1);
        m.multiplied = dtype;
        MlpLoss rounded = again(m);
        rounded.x = m.x.to(dtype);
        const MlpLoss there = on_gpu(m), rounded_there = on_gpu(rounded);
        backend(kCUDA).mlp_loss(there);
        backend(kCUDA).mlp_loss(rounded_there);
        cpu_backend().mlp_loss(m);
        cpu_backend().mlp_loss(rounded);
        for (size_t i = 0; i < results(m).size(); ++i) {
          CHECK(
              testing::same_bits(Tensor(results(there)[i].a), Tensor(results(rounded_there)[i].a)));
          CHECK(testing::same_bits(Tensor(results(m)[i].a), Tensor(results(rounded)[i].a)));
        }
      }
    }
  }

  TEST_CASE("an MLP's loss is scaled, and its gradients judged, as by calls of their own") {
    enum class Trouble { None, Everywhere, InOneBias, InLoss };
    const auto one = [](double v, Dtype d = kFloat32) {
      return testing::on_gpu(full({}, v, d, kCPU));
    };
    const auto run = [&] {
      for (const Trouble trouble :
           {Trouble::None, Trouble::Everywhere, Trouble::InOneBias, Trouble::InLoss})
        for (const bool divides : {false, true})
          for (const bool own_inverse : {false, true})
            for (const bool begins : {false, true}) {
              CAPTURE(static_cast<int>(trouble));
              CAPTURE(divides);
              CAPTURE(own_inverse);
              CAPTURE(begins);
              Case c{kFloat16, {8, 24, 40, 3}, 700};
              if (trouble == Trouble::Everywhere) c.g = 1e9;
              if (trouble == Trouble::InOneBias) c.g = 1e5;
              MlpLoss cpu = task_of(c, 4);
              cpu.dbiases[2] = unwritten({3}, kFloat16);
              if (trouble == Trouble::InLoss) cpu_backend().fill(cpu.x.slice(0, 3, 4), kNaN);
              struct Done {
                MlpLoss m;
                LossScaling scaling;
                GradientCheck check;
              };
              const auto prepared = [&] {
                Done d{on_gpu(cpu), {}, {}};
                d.scaling = {.loss = d.m.loss,
                             .scaled = one(5),
                             .scale = one(3),
                             .bad_loss = one(0),
                             .begins = begins,
                             .factor = one(5),
                             .inverse = one(0.25),
                             .found_inf = one(5),
                             .first = one(5, kInt64)};
                const auto &dw = d.m.dweights, &db = d.m.dbiases;
                d.check = {.grads = {Array(), dw[1], db[2], dw[0], Array(), db[0]},
                           .inv_scale = own_inverse ? one(0.125) : d.scaling.inverse,
                           .found_inf = d.scaling.found_inf,
                           .first = d.scaling.first,
                           .divides = divides};
                return d;
              };
              const Done apart = prepared(), together = prepared();
              Backend& gpu = backend(kCUDA);
              gpu.mlp_loss(apart.m);
              gpu.scale_loss(apart.scaling);
              gpu.check(apart.check);
              const auto at_once = [&] {
                gpu.mlp_loss_and_scale(together.m, together.scaling, together.check);
              };
#if defined(HALFTAPE_SIMT)
              CHECK(launched(at_once) == std::map<std::string, int>{{"tiles", 1}, {"sums", 1}});
#else
              at_once();
#endif
              const auto all = [](const Done& d) {
                auto list = results(d.m);
                const LossScaling& s = d.scaling;
                for (const Array& a :
                     {s.scaled, s.bad_loss, s.factor, s.inverse, s.found_inf, s.first})
                  list.push_back({"of the scaling", a});
                return list;
              };
              const auto a = all(apart), b = all(together);
              for (size_t i = 0; i < a.size(); ++i) {
                CAPTURE(i);
                CAPTURE(a[i].name);
                CHECK(testing::same_bits(Tensor(a[i].a), Tensor(b[i].a)));
                CHECK(a[i].a.version() == b[i].a.version());
              }
              const double first = read_double(together.scaling.first);
              CHECK(first == (trouble == Trouble::None        ? -1
                              : trouble == Trouble::InOneBias ? 2
                                                              : 1));
              CHECK(read_double(together.scaling.bad_loss) == (trouble == Trouble::InLoss ? 1 : 0));
            }
    };
#if defined(HALFTAPE_SIMT)
    simt::in_every_order(run);
#else
    run();
#endif
    // The loss alone; and gradients that are not all the MLP's, which the steps take.
    MlpLoss m = on_gpu(task_of({kFloat16, {8, 24, 3}, 70}, 4));
    const LossScaling scaling{
        .loss = m.loss, .scaled = one(5), .scale = one(4), .bad_loss = one(1), .begins = true};
    const Array other = one(kNaN), found = one(0);
    backend(kCUDA).mlp_loss_and_scale(
        m, scaling, GradientCheck{.grads = {m.dweights[0], other}, .found_inf = found});
    CHECK(read_double(found) == 1);
    m.dx = {}, m.dweights.clear(), m.dbiases.clear();
    const double expected = 4 * read_double(m.loss);
    backend(kCUDA).mlp_loss_and_scale(m, scaling, {});
    CHECK(read_double(scaling.scaled) == expected);
    CHECK(read_double(scaling.bad_loss) == 0);
  }

  TEST_CASE("an MLP's target out of range is named") {
    MlpLoss m = task_of({kFloat16, {8, 16, 4}, 20, kRelu, true}, 4);
    m.target.data<int64_t>()[13] = 4;
    const std::string said = message([&] {
      const MlpLoss gpu = on_gpu(m);
      backend(kCUDA).mlp_loss(gpu);
      backend(kCUDA).synchronize();
      read_double(gpu.loss);
    });
    CHECK(said.find("mlp_loss: target 4 at position 13 is out of range [0, 4)") !=
          std::string::npos);
  }
}
