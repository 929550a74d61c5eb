// Every rule on the GPU gives the CPU's bits: parameters, their state and their copies.
#include <doctest/doctest.h>

#include "updates.h"
#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

using namespace halftape;
using namespace halftape::testing;
using namespace halftape::testing::updates;

TEST_CASE("every rule on the GPU gives the CPU's bits however parameters are kept and lie") {
  for (const UpdateRule& rule : kRules) {
    std::vector<Kept> kept = many_kept();
    const Array found = one(0), inverse = one(0.3), clip = one(0.7);
    for (int step = 0; step < 4; ++step) {
      std::vector<UpdateSlot> here, there;
      for (const Kept& k : kept) {
        here.push_back(k.slot(k.here, rule));
        there.push_back(k.slot(k.there, rule));
      }
      const bool scaled = step == 1 || step == 2, clips = step > 1;
      cpu_backend().update(here, rule,
                           {.found_inf = scaled ? found : Array(),
                            .inv_scale = scaled ? inverse : Array(),
                            .clip = clips ? clip : Array()});
      backend(kCUDA).update(there, rule,
                            {.found_inf = scaled ? on_gpu(found) : Array(),
                             .inv_scale = scaled ? on_gpu(inverse) : Array(),
                             .clip = clips ? on_gpu(clip) : Array()});
    }
    // Adam's corrections: the devices' pow() may differ in a double's last bit.
    const double ulps = std::holds_alternative<AdamRule>(rule) ? 1 : 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      CAPTURE(rule.index());
      CAPTURE(i);
      CHECK(kept[i].differ(ulps) == "");
    }
  }
}

TEST_CASE(
    "an update clips the gradients as they are clipped by themselves, also when it is skipped") {
  const UpdateRule rule = kRules[3];
  for (const bool skipped : {false, true}) {
    for (const double factor : {0.3, 1.0}) {
      CAPTURE(skipped);
      CAPTURE(factor);
      const std::vector<Kept> kept = many_kept();
      std::vector<UpdateSlot> unfused, fused;
      std::vector<std::vector<Array>> others;
      std::vector<Array> grads;
      for (const Kept& k : kept) {
        unfused.push_back(k.slot(k.there, rule));
        grads.push_back(unfused.back().grad);
        others.push_back(on_gpu(k.here));
        fused.push_back(k.slot(others.back(), rule));
      }
      const Array found = on_gpu(one(skipped ? 1 : 0)), clip = on_gpu(one(factor));
      backend(kCUDA).unscale(grads, clip);
      backend(kCUDA).update(unfused, rule, {.found_inf = found});
      backend(kCUDA).update(fused, rule, {.found_inf = found, .clip = clip});
      for (size_t i = 0; i < kept.size(); ++i) {
        CAPTURE(i);
        const std::vector<Array>&here = kept[i].here, &there = kept[i].there, &mine = others[i];
        for (size_t k = 0; k < here.size(); ++k) {
          if (!here[k].defined()) continue;
          CHECK(differ_on_gpu(mine[k], on_cpu(there[k])) == "");
          CHECK(mine[k].version() == there[k].version());
        }
        if (here[1].numel() > 0)  // gradients are others, and the parameters if that was the plan
          CHECK((differ_on_gpu(mine[1], here[1]) == "") == (factor == 1));
        if (here[0].numel() > 1) CHECK((differ_on_gpu(mine[0], here[0]) == "") == skipped);
      }
    }
  }
}

TEST_CASE("a parameter of many blocks is told its count of steps by a launch before") {
  std::vector<Kept> kept;
  kept.emplace_back(Shape{(1 << 21) + 5}, kFloat16, kFloat16, kFloat32, Weights::Stochastic,
                    Lies::Plain, Lies::Plain);
  const UpdateRule rule = kRules[3];
  for (int step = 0; step < 2; ++step) {
    const UpdateSlot here = kept[0].slot(kept[0].here, rule),
                     there = kept[0].slot(kept[0].there, rule);
    cpu_backend().update({&here, 1}, rule, {});
    backend(kCUDA).update({&there, 1}, rule, {});
  }
  CHECK(kept[0].differ(1) == "");
}

#if defined(HALFTAPE_SIMT)
TEST_CASE("all threads of an update begin with the same count, whichever comes first") {
  simt::in_every_order([] {
    for (const Weights kind : {Weights::Stochastic, Weights::Kahan}) {
      const Kept kept({3000}, kFloat16, kFloat16, kFloat32, kind, Lies::Plain, Lies::Plain);
      const UpdateRule rule = kRules[3];
      for (int step = 0; step < 2; ++step) {
        const UpdateSlot here = kept.slot(kept.here, rule), there = kept.slot(kept.there, rule);
        cpu_backend().update({&here, 1}, rule, {});
        backend(kCUDA).update({&there, 1}, rule, {});
      }
      CHECK(kept.differ(1) == "");
    }
  });
}
#endif

TEST_CASE("an update that the device says to skip changes nothing there") {
  std::vector<Kept> kept = many_kept();
  const StepControl skip{on_gpu(one(1)), on_gpu(one(0.5))};
  for (const UpdateRule& rule : kRules) {
    std::vector<UpdateSlot> slots;
    for (const Kept& k : kept) slots.push_back(k.slot(k.there, rule));
    backend(kCUDA).update(slots, rule, skip);
  }
  for (const Kept& k : kept)
    for (size_t i = 0; i < k.here.size(); ++i)
      if (k.here[i].defined()) CHECK(differ_on_gpu(k.there[i], k.here[i]) == "");
}
