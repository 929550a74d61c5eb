// Losses, the scaler's state, its counts and its warning on the GPU are the CPU's.
#include <doctest/doctest.h>

#include "halftape/tests/support/warnings.h"
#include "updates.h"
#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

using namespace halftape;
using namespace halftape::testing;
using namespace halftape::testing::updates;

TEST_CASE("the GPU pushes numbers into a ring as the CPU does") {
  for (const Dtype d : kFloats) {
    for (const Dtype given : kFloats) {
      CAPTURE(d);
      CAPTURE(given);
      const Array here = draw({6}, d, Lies::Spaced, 1), count = full({}, 2, kInt64, kCPU);
      const Array there = on_gpu(here), count_there = on_gpu(count);
      for (uint64_t i = 0; i < 9; ++i) {
        const Array value = draw({}, given, 10 + i);
        cpu_backend().run(Push{here, count, value});
        backend(kCUDA).run(Push{there, count_there, on_gpu(value)});
        CHECK(differ_on_gpu(there, here) == "");  // and what lies between its elements
      }
      CHECK(read_int64(count_there) == 11);
      CHECK(read_int64(count) == 11);
    }
  }
}

TEST_CASE("a loss is scaled and looked at on the GPU as on the CPU") {
  for (const Dtype d : kFloats) {
    for (const double loss : {0.75, -3e4, 1e-7, kInf, kNaN}) {
      for (const bool begins : {false, true}) {
        for (const double bad : {0.0, 1.0}) {
          CAPTURE(d);
          CAPTURE(loss);
          const auto scaling = [&](Device device) {
            CheckedScale s{.scale = full({}, 1024, kFloat32, device),
                           .nonfinite = full({}, bad, kFloat32, device),
                           .begins = begins};
            s.x = full({}, loss, d, device);
            s.y = full({}, 5, d == kFloat64 ? d : kFloat32, device);
            s.factor = full({}, 5, kFloat32, device);
            s.inverse = full({}, 5, kFloat32, device);
            s.found_inf = full({}, 5, kFloat32, device);
            s.first = full({}, 5, kInt64, device);
            return s;
          };
          const CheckedScale here = scaling(kCPU), there = scaling(kCUDA);
          cpu_backend().run(here);
          backend(kCUDA).run(there);
          const auto same = [](const Array& a, const Array& b) {
            const double x = read_double(a), y = read_double(b);
            CHECK((x == y || (std::isnan(x) && std::isnan(y))));
          };
          same(here.y, there.y);
          same(here.nonfinite, there.nonfinite);
          same(here.factor, there.factor);
          same(here.inverse, there.inverse);
          same(here.found_inf, there.found_inf);
          same(here.first, there.first);
          CHECK(read_double(here.nonfinite) ==
                (std::isfinite(loss) && (begins || bad == 0) ? 0 : 1));
          CHECK(read_double(here.found_inf) == read_double(here.nonfinite));
          CHECK(read_double(here.first) == -1);
        }
      }
    }
  }
}

TEST_CASE("the scaler's state and counts on the GPU are the CPU's after any run of verdicts") {
  for (const int64_t hysteresis : {1, 3}) {
    for (const size_t optimizers : {1u, 3u, 300u}) {
      CAPTURE(hysteresis);
      CAPTURE(optimizers);
      const ScaleLaw law{.growth_interval = 3, .hysteresis = hysteresis};
      const Array scale = one(1024), trackers = full({2}, 0, kInt32, kCPU),
                  counts = full({8}, 0, kInt64, kCPU);
      const Array s = on_gpu(scale), t = on_gpu(trackers), c = on_gpu(counts);
      uint32_t bits = 12345;
      for (int step = 0; step < 40; ++step) {
        bits = bits * 1664525 + 1013904223;
        std::vector<CheckResult> here, there;
        const size_t bad = bits >> 8 & 1 ? (bits >> 9) % optimizers : optimizers;
        for (size_t i = 0; i < optimizers; ++i) {
          const bool found = i == bad || (bad < optimizers && i == optimizers - 1);
          here.push_back({one(found ? 1 : 0),
                          full({1}, found ? static_cast<int64_t>(i + 7) : -1, kInt64, kCPU),
                          static_cast<int64_t>(10 * i)});
          there.push_back(
              {on_gpu(here.back().found_inf), on_gpu(here.back().first), here.back().list});
        }
        const Array loss = one(bits >> 20 & 3 ? 0 : 1);
        const bool with_loss = step % 2 == 0, counted = step % 5 != 4;
        cpu_backend().transition({scale, trackers, counted ? counts : Array(), here,
                                  with_loss ? loss : Array(), 0, law});
        backend(kCUDA).transition(
            {s, t, counted ? c : Array(), there, with_loss ? on_gpu(loss) : Array(), 0, law});
        CHECK(differ_on_gpu(s, scale) == "");
        CHECK(differ_on_gpu(t, trackers) == "");
        CHECK(differ_on_gpu(c, counts) == "");
      }
      CHECK(s.version() == scale.version());
    }
  }
}

namespace {

/// A GradScaler's state, and the findings of one optimizer's step.
struct Scaler {
  Array scale = one(1024), trackers = full({2}, 2, kInt32, kCPU),
        counts = full({8}, 3, kInt64, kCPU);
  Array bad_loss, found_inf, first;
  Scaler(bool overflow, bool bad)
      : bad_loss(one(bad ? 1 : 0)),
        found_inf(one(overflow || bad ? 1 : 0)),
        first(full({1}, overflow ? 5 : -1, kInt64, kCPU)) {}
  Scaler there() const {
    Scaler s = *this;
    for (Array* a : {&s.scale, &s.trackers, &s.counts, &s.bad_loss, &s.found_inf, &s.first})
      *a = on_gpu(*a);
    return s;
  }
};

}  // namespace

TEST_CASE("an update that also moves the scale leaves what both leave one after the other") {
  const ScaleLaw law{.growth_interval = 3};
  const auto run = [&] {
    // One launch of few or of many blocks; several launches; kernels of several kinds; no
    // parameter.
    for (const int list : {0, 1, 2, 3, 4}) {
      for (const size_t r : {1u, 3u, 10u}) {
        const UpdateRule& rule = kRules[r];
        for (const auto& verdict : {std::pair{false, false}, {true, false}, {false, true}}) {
          const bool overflow = verdict.first, bad = verdict.second;
          std::vector<Kept> kept;
          const auto add = [&](const Shape& shape, Lies lies) {
            kept.emplace_back(shape, kFloat32, kFloat32, kFloat32, Weights::Plain, lies, lies);
          };
          if (list == 0) add({3000}, Lies::Plain), add({7}, Lies::Plain);
          if (list == 1 && r == 3) add({(1 << 21) + 5}, Lies::Plain);
          if (list == 2)
            for (int i = 0; i < 80; ++i) add({i % 5}, Lies::Plain);
          if (list == 3) add({40, 70}, Lies::Plain), add({40, 70}, Lies::Swapped);
          if (list == 4) add({0}, Lies::Plain);
          if (kept.empty()) continue;
          CAPTURE(list);
          CAPTURE(r);
          CAPTURE(overflow);
          CAPTURE(bad);
          const Scaler here(overflow, bad), there = here.there();
          const auto step = [&](Backend& on, const Scaler& s, bool gpu) {
            std::vector<UpdateSlot> slots;
            for (const Kept& k : kept) slots.push_back(k.slot(gpu ? k.there : k.here, rule));
            const CheckResult finding{s.found_inf, s.first, 9};
            const StepControl control{s.found_inf, gpu ? on_gpu(one(0.5)) : one(0.5)};
            on.run(ListUpdate{slots, rule, control},
                   Transition{s.scale, s.trackers, s.counts, {&finding, 1}, s.bad_loss, 0, law});
          };
          step(cpu_backend(), here, false);
#if defined(HALFTAPE_SIMT)
          simt::reset_counters();
#endif
          step(backend(kCUDA), there, true);
#if defined(HALFTAPE_SIMT)
          if (list == 0 || list == 4) CHECK(simt::launched_kernels().size() == 1);
#endif
          CHECK(differ_on_gpu(there.scale, here.scale) == "");
          CHECK(differ_on_gpu(there.trackers, here.trackers) == "");
          CHECK(differ_on_gpu(there.counts, here.counts) == "");
          CHECK(there.scale.version() == here.scale.version());
          for (const Kept& k : kept)
            for (size_t i = 0; i < k.here.size(); ++i)
              if (k.here[i].defined())
                CHECK(differ_on_gpu(k.there[i], k.here[i], r == 3 ? 1 : 0) == "");
          CHECK(read_double(there.scale) == (bad ? 1024 : overflow ? 512 : 2048));
        }
      }
    }
  };
#if defined(HALFTAPE_SIMT)
  simt::in_every_order(run);
#else
  run();
#endif
}

TEST_CASE("the GPU reports steps skipped in a row as the CPU does, at the next call, once") {
  testing::Warnings warnings;
  std::vector<std::string>& said = warnings.seen;
  const auto skip_on = [&](Device device, bool bad_loss) {
    const auto there = [&](const Array& a) { return device.is_cuda() ? on_gpu(a) : a; };
    const CheckResult finding{there(one(1)), there(full({1}, 0, kInt64, kCPU)), 1};
    const Array scale = there(one(1024)), trackers = there(full({2}, 0, kInt32, kCPU)),
                counts = there(full({8}, 0, kInt64, kCPU));
    for (int i = 0; i < 5; ++i)
      backend(device).transition({scale,
                                  trackers,
                                  counts,
                                  {&finding, 1},
                                  bad_loss ? there(one(1)) : Array(),
                                  3,
                                  {},
                                  [](int64_t in_row, float last, bool of_loss) {
                                    warn(std::to_string(in_row) + " " + std::to_string(last) +
                                         (of_loss ? " loss" : ""));
                                  }});
    backend(device).synchronize();
    backend(device).synchronize();
  };
  for (const bool bad_loss : {false, true}) {
    said.clear();
    skip_on(kCPU, bad_loss);
    skip_on(kCUDA, bad_loss);
    CHECK(said == std::vector<std::string>(2, bad_loss ? "3 1024.000000 loss" : "3 128.000000"));
  }
}
