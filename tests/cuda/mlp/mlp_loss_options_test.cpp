// Options of an MLP's fused loss: the wanted results, inputs that are not finite, and a
// GradScaler's check.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/message.h"
#include "mlp_losses.h"

using namespace halftape;
using namespace halftape::testing::mlp_losses;
using testing::message;
using testing::on_cpu;

TEST_SUITE("cuda") {
  TEST_CASE("what an MLP is not asked for is left alone, and g is 1 unless it is given") {
    Case c{kFloat16, {8, 24, 24, 3}, 150};
    c.g = 1;
    const MlpLoss cpu = task_of(c, 9), all = on_gpu(cpu);
    backend(kCUDA).run(all);
    MlpLoss some = on_gpu(cpu);
    some.g = {}, some.dx = {}, some.loss = {};
    some.dweights[1] = {}, some.dbiases.clear();
    backend(kCUDA).run(some);
    CHECK(testing::differ_on_gpu(some.dweights[0], on_cpu(all.dweights[0])) == "");
    CHECK(testing::differ_on_gpu(some.dweights[2], on_cpu(all.dweights[2])) == "");
    MlpLoss loss = on_gpu(cpu);
    loss.dx = {}, loss.dweights.clear(), loss.dbiases.clear();
    backend(kCUDA).run(loss);
    CHECK(testing::differ_on_gpu(loss.loss, on_cpu(all.loss)) == "");
    // Gradients of 16 bits are rounded once.
    MlpLoss rounded = on_gpu(cpu);
    rounded.dweights[0] = testing::on_gpu(unwritten({24, 8}, kFloat16));
    backend(kCUDA).run(rounded);
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
        backend(kCUDA).run(good);
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
          backend(kCUDA).run(bad);
          CHECK(std::isnan(read_double(bad.loss)));
          CHECK(found(bad));
        }
        Case over = c;
        over.g = 1e9;
        MlpLoss overflow = on_gpu(task_of(over, 4));
        backend(kCUDA).run(overflow);
        CHECK(std::isfinite(read_double(overflow.loss)));
        CHECK(found(overflow));
      }
    // One row of many, and one logit of −∞, which loses nothing where it is not the target.
    MlpLoss m = task_of({kFloat16, {8, 16, 4}, 20, kRelu, true}, 4);
    cpu_backend().fill(m.biases[1].slice(0, 3, 4), -kInf);
    for (int64_t i = 0; i < 20; ++i) m.target.data<int64_t>()[i] = i % 3;
    const MlpLoss gpu = on_gpu(m);
    backend(kCUDA).run(gpu);
    cpu_backend().run(m);
    CHECK(std::isfinite(read_double(m.loss)));
    CHECK(far_apart(gpu, m, 1.5 * epsilon(kFloat16)) == "");
  }

  TEST_CASE("an activation that is infinite beside a padded width is not NaN") {
    for (const Dtype dtype : {kFloat16, kBFloat16})
      for (size_t activation = 0; activation < std::size(kActivations); ++activation)
        for (const int64_t width : {24, 17, 32}) {
          const Case c{dtype, {8, width, width, 3}, 40, activation};
          CAPTURE(c);
          MlpLoss m = task_of(c, 4);
          cpu_backend().fill(m.x.slice(0, 3, 4).slice(1, 2, 3), kInf);
          const MlpLoss gpu = on_gpu(m);
          backend(kCUDA).run(gpu);
          cpu_backend().run(m);
          const double wanted = read_double(m.loss), got = read_double(gpu.loss);
          CHECK(std::isnan(got) == std::isnan(wanted));
          CHECK(std::isinf(got) == std::isinf(wanted));
          const bool saturates = activation >= 4;  // tanh and sigmoid
          CHECK(std::isfinite(wanted) == saturates);
          if (saturates) CHECK(std::abs(got - wanted) <= 16 * epsilon(dtype) * std::abs(wanted));
          for (size_t l = 1; l < m.dweights.size() && saturates; ++l) {
            const Array found = full({}, 0, kFloat32, kCPU);
            cpu_backend().check_finite(std::array{on_cpu(gpu.dweights[l])}, found);
            CHECK(read_double(found) == 0);
          }
        }
  }

  TEST_CASE("an MLP without inputs is left to the formula") {
    MlpLoss m = task_of({kFloat16, {8, 72, 3}, 40}, 4);
    m.x = Array({40, 0}, kFloat16, kCPU), m.dx = Array({40, 0}, kFloat16, kCPU);
    m.weights[0] = Array({72, 0}, kFloat32, kCPU), m.dweights[0] = Array({72, 0}, kFloat32, kCPU);
    const MlpLoss gpu = on_gpu(m);
    backend(kCUDA).run(gpu);
    cpu_backend().run(m);
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
        backend(kCUDA).run(there);
        backend(kCUDA).run(rounded_there);
        cpu_backend().run(m);
        cpu_backend().run(rounded);
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
                CheckedScale scaling;
                std::vector<Array> grads = {};
                Array inverse = {};
                bool divides = false;
                GradientCheck check() const {
                  return {grads, inverse, scaling.found_inf, scaling.first, divides};
                }
              };
              const auto prepared = [&] {
                Done d{.m = on_gpu(cpu), .scaling = {}};
                d.scaling = {.x = d.m.loss,
                             .y = one(5),
                             .scale = one(3),
                             .nonfinite = one(0),
                             .begins = begins,
                             .factor = one(5),
                             .inverse = one(0.25),
                             .found_inf = one(5),
                             .first = one(5, kInt64)};
                const auto &dw = d.m.dweights, &db = d.m.dbiases;
                d.grads = {Array(), dw[1], db[2], dw[0], Array(), db[0]};
                d.inverse = own_inverse ? one(0.125) : d.scaling.inverse;
                d.divides = divides;
                return d;
              };
              const Done unfused = prepared(), fused = prepared();
              Backend& gpu = backend(kCUDA);
              gpu.run(unfused.m);
              gpu.run(unfused.scaling);
              gpu.check(unfused.check());
              const auto run_fused = [&] { gpu.run(fused.m, fused.scaling, fused.check()); };
#if defined(HALFTAPE_SIMT)
              CHECK(launched(run_fused) == std::map<std::string, int>{{"tiles", 1}, {"sums", 1}});
#else
              run_fused();
#endif
              const auto all = [](const Done& d) {
                auto list = results(d.m);
                const CheckedScale& s = d.scaling;
                for (const Array& a : {s.y, s.nonfinite, s.factor, s.inverse, s.found_inf, s.first})
                  list.push_back({"of the scaling", a});
                return list;
              };
              const auto a = all(unfused), b = all(fused);
              for (size_t i = 0; i < a.size(); ++i) {
                CAPTURE(i);
                CAPTURE(a[i].name);
                CHECK(testing::same_bits(Tensor(a[i].a), Tensor(b[i].a)));
                CHECK(a[i].a.version() == b[i].a.version());
              }
              const double first = read_double(fused.scaling.first);
              CHECK(first == (trouble == Trouble::None        ? -1
                              : trouble == Trouble::InOneBias ? 2
                                                              : 1));
              CHECK(read_double(fused.scaling.nonfinite) == (trouble == Trouble::InLoss ? 1 : 0));
            }
    };
#if defined(HALFTAPE_SIMT)
    simt::in_every_order(run);
#else
    run();
#endif
    // The loss alone; and other gradients beside the MLP's, which take the single calls.
    MlpLoss m = on_gpu(task_of({kFloat16, {8, 24, 3}, 70}, 4));
    const CheckedScale scaling{
        .x = m.loss, .y = one(5), .scale = one(4), .nonfinite = one(1), .begins = true};
    const Array other = one(kNaN), found = one(0);
    const Array grads[] = {m.dweights[0], other};
    backend(kCUDA).run(m, scaling, GradientCheck{.grads = grads, .found_inf = found});
    CHECK(read_double(found) == 1);
    m.dx = {}, m.dweights.clear(), m.dbiases.clear();
    const double expected = 4 * read_double(m.loss);
    backend(kCUDA).run(m, scaling);
    CHECK(read_double(scaling.y) == expected);
    CHECK(read_double(scaling.nonfinite) == 0);
  }

  TEST_CASE("an MLP's target out of range is named") {
    MlpLoss m = task_of({kFloat16, {8, 16, 4}, 20, kRelu, true}, 4);
    m.target.data<int64_t>()[13] = 4;
    const std::string said = message([&] {
      const MlpLoss gpu = on_gpu(m);
      backend(kCUDA).run(gpu);
      backend(kCUDA).synchronize();
      read_double(gpu.loss);
    });
    CHECK(said.find("mlp_loss: target 4 at position 13 is out of range [0, 4)") !=
          std::string::npos);
  }
}
