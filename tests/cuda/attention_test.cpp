// The GPU's kernels for attention: how many, what memory they take, when they are not used, and
// random streams that move on.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/nonfinite.h"
#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

using namespace halftape;

namespace {

struct Sizes {
  int64_t B, H, L, S, E, F;
};
Array normal_on_gpu(const Shape& shape, Dtype dtype, uint64_t seed) {
  const Array x(shape, dtype, kCUDA);
  backend(kCUDA).random(x, Distribution::Normal, 0, 1, {.seed = seed, .offset = 0});
  return x;
}
AttentionGrad task_of(const Sizes& z, Dtype dtype) {
  const Dtype wide = compute_dtype(dtype);
  Attention a{.q = normal_on_gpu({z.B, z.H, z.L, z.E}, dtype, 1),
              .k = normal_on_gpu({z.B, z.H, z.S, z.E}, dtype, 2),
              .v = normal_on_gpu({z.B, z.H, z.S, z.F}, dtype, 3)};
  a.scale = 0.25;
  a.y = Array({z.B, z.H, z.L, z.F}, dtype, kCUDA);
  a.largest = Array({z.B, z.H, z.L}, wide, kCUDA), a.total = Array({z.B, z.H, z.L}, wide, kCUDA);
  return {.of = a,
          .g = normal_on_gpu({z.B, z.H, z.L, z.F}, dtype, 4),
          .dq = Array(a.q.shape(), dtype, kCUDA),
          .dk = Array(a.k.shape(), dtype, kCUDA),
          .dv = Array(a.v.shape(), dtype, kCUDA)};
}
void run(const AttentionGrad& d) {
  backend(kCUDA).run(d.of);
  backend(kCUDA).run(d);
}
std::vector<Array> results(const AttentionGrad& d) {
  return {d.of.y, d.of.largest, d.of.total, d.dq, d.dk, d.dv};
}
bool same(const Array& a, const Array& b) { return testing::same_bits(Tensor(a), Tensor(b)); }
void check_same(const AttentionGrad& a, const AttentionGrad& b) {
  for (size_t i = 0; i < results(a).size(); ++i) {
    CAPTURE(i);
    CHECK(same(results(a)[i], results(b)[i]));
  }
}
#if defined(HALFTAPE_SIMT)
/// The kernels of attention that this launches, without their namespace and dtype.
template <class Run>
std::string launched(const Run& f) {
  simt::reset_counters();
  f();
  CHECK(simt::counters().synchronisations == 0);
  std::string names;
  for (const std::string& name : simt::launched_kernels())
    if (const size_t at = name.find("::attention"); at != name.npos)
      names += name.substr(at + 2, name.find('<', at) - at - 2) + ' ';
  return names;
}
#endif

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("what attention's gradient is not asked for is left out, and the rest the same") {
    for (const int64_t width : {24, 100}) {
      const AttentionGrad all = task_of({2, 2, 70, 50, width, 8}, kFloat16);
      run(all);
      for (int wanted = 0; wanted < 8; ++wanted) {
        AttentionGrad some = task_of({2, 2, 70, 50, width, 8}, kFloat16);
        if (!(wanted & 1)) some.dq = {};
        if (!(wanted & 2)) some.dk = {};
        if (!(wanted & 4)) some.dv = {};
        run(some);
        if (wanted & 1) CHECK(same(some.dq, all.dq));
        if (wanted & 2) CHECK(same(some.dk, all.dk));
        if (wanted & 4) CHECK(same(some.dv, all.dv));
      }
    }
  }

  TEST_CASE("a masked key that is not finite enters no gradient, whatever the number of queries") {
    for (const int64_t queries : {32, 33, 50, 70}) {
      CAPTURE(queries);
      AttentionGrad d = task_of({1, 2, queries, 40, 16, 16}, kFloat16);
      const Array mask = full({40}, 1, kBool, kCUDA);
      backend(kCUDA).fill(mask.slice(0, 7, 8), 0);
      backend(kCUDA).fill(d.of.k.slice(2, 7, 8), testing::kNaN);
      d.of.mask = mask.expand({1, 2, queries, 40});
      run(d);
      const Array found = full({}, 0, kFloat32, kCUDA);
      for (const Array& a : {d.dk, d.dv})
        for (int64_t key = 0; key < 40; ++key) {
          backend(kCUDA).check_finite(std::array{a.slice(2, key, key + 1)}, found);
          CHECK(read_double(found) == 0);
        }
    }
  }

  TEST_CASE("a graph with attention draws other weights in each replay, as calls would") {
    AttentionGrad captured = task_of({1, 2, 70, 70, 16, 16}, kFloat16);
    captured.of.dropout = 0.5;
    const auto step = [](AttentionGrad& d) {
      d.of.key = random_reserve(kCUDA, 2 * 70 * 70);
      run(d);
    };
    manual_seed(3);
    Graph graph(kCUDA, [&] { step(captured); });
    manual_seed(4);
    std::vector<AttentionGrad> plain;
    for (int i = 0; i < 3; ++i) {
      plain.push_back(task_of({1, 2, 70, 70, 16, 16}, kFloat16));
      plain[i].of.dropout = 0.5;
      step(plain[i]);
    }
    CHECK(!same(plain[0].of.y, plain[1].of.y));
    manual_seed(4);
    for (int i = 0; i < 3; ++i) {
      graph.replay();
      check_same(captured, plain[i]);
    }
  }

#if defined(HALFTAPE_SIMT)
  TEST_CASE("attention has the same bits in every order of threads") {
    for (const Sizes& z : {Sizes{1, 3, 150, 140, 16, 16}, Sizes{1, 1, 150, 140, 100, 128}})
      for (const Dtype dtype : {kFloat16, kBFloat16}) {
        AttentionGrad first = task_of(z, dtype);
        first.of.causal = true;
        run(first);
        simt::in_every_order([&] {
          AttentionGrad other = task_of(z, dtype);
          other.of.causal = true;
          run(other);
          check_same(other, first);
        });
      }
  }

  TEST_CASE("attention is one kernel, and its gradient three, whatever its sizes and options") {
    const auto check_kernels = [](AttentionGrad d) {
      const auto backward = [&] { backend(kCUDA).run(d); };
      CHECK(launched([&] { backend(kCUDA).run(d.of); }) == "attention ");
      CHECK(simt::counters().launches == 1);
      CHECK(launched(backward) == "attention_stats attention_dq attention_dk_dv ");
      CHECK(simt::counters().launches == 3);
      d.dq = {};
      CHECK(launched(backward) == "attention_stats attention_dk_dv ");
      d.dk = {}, d.dv = {}, d.dq = empty_like(d.of.q);
      CHECK(launched(backward) == "attention_stats attention_dq ");
    };
    check_kernels(task_of({1, 1, 1, 1, 1, 1}, kFloat16));
    check_kernels(task_of({2, 3, 65, 130, 128, 128}, kBFloat16));
    AttentionGrad d = task_of({2, 3, 65, 130, 64, 40}, kFloat16);
    d.of.dropout = 0.1;
    for (const Dtype dtype : {kBool, kFloat16, kBFloat16, kFloat32}) {
      d.of.mask = full({65, 1}, 1, dtype, kCUDA).expand({2, 3, 65, 130});
      check_kernels(d);
    }
    d.of.mask = {}, d.of.causal = true;
    d.of.q = d.of.q.transpose(0, 1).clone().transpose(0, 1);
    d.of.v = d.of.v.slice(1, 0, 1).expand({2, 3, 130, 40});
    check_kernels(d);
  }

  TEST_CASE("attention does by other calls what its kernels do not take") {
    const auto is_fused = [](const AttentionGrad& d) { return launched([&] { run(d); }) != ""; };
    CHECK(is_fused(task_of({1, 1, 5, 6, 8, 8}, kFloat16)));
    CHECK(!is_fused(task_of({1, 1, 5, 6, 8, 8}, kFloat32)));
    CHECK(!is_fused(task_of({1, 1, 5, 6, 8, 8}, kFloat64)));
    CHECK(!is_fused(task_of({1, 1, 5, 6, 129, 8}, kFloat16)));
    CHECK(!is_fused(task_of({1, 1, 5, 6, 8, 129}, kBFloat16)));
    AttentionGrad d = task_of({1, 1, 5, 6, 8, 8}, kFloat16);
    d.of.mask = full({1, 1, 5, 6}, 0.5, kFloat64, kCUDA);
    CHECK(!is_fused(d));
  }

  TEST_CASE("attention takes no memory but 16 bytes for each query in its gradient") {
    const AttentionGrad d = task_of({1, 2, 300, 300, 16, 16}, kFloat16);
    run(d);
    const auto peak = [](const auto& task) {
      const int64_t before = cuda::memory_allocated();
      cuda::reset_peak_memory_stats();
      backend(kCUDA).run(task);
      return cuda::max_memory_allocated() - before;
    };
    CHECK(peak(d.of) == 0);
    CHECK(peak(d) >= 16 * 600);
    CHECK(peak(d) < 16 * 600 + 512);
  }
#endif
}
