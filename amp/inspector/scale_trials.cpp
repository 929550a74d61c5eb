#include "halftape/amp/inspector/scale_trials.h"

#include <algorithm>
#include <cmath>

#include "halftape/amp/inspector/side_batch.h"

namespace halftape::amp {

double ScaleTrials::lost(size_t trial, size_t place) const {
  return lost_share(trials.at(trial).seen.at(place)[NumberClass::Zero], float32.at(place));
}

ScaleTrials try_scales(const nn::Module& model, const std::function<Tensor()>& loss, int first,
                       int last) {
  HALFTAPE_CHECK(loss, "try_scales: the loss is an empty function");
  HALFTAPE_CHECK(first >= -126 && first <= last && last <= 127, "try_scales: powers of two from ",
                 first, " to ", last, " are not within −126 … 127");
  SideBatch batch(model, loss, get_random_state(), true);
  ScaleTrials result;
  result.places = batch.places();
  result.float32 = result.reference = batch.float32();
  result.parameters = batch.parameters();
  for (int exponent = first; exponent <= last; ++exponent) {
    const double scale = std::ldexp(1.0, exponent);
    SideBatch::Result at = batch.at(scale, false);
    result.trials.push_back({scale, std::move(at.classes), std::move(at.errors), at.overflows});
    if (!at.overflows) result.reference_scale = scale;
  }
  if (std::any_of(result.trials.begin(), result.trials.end(),
                  [](const ScaleTrials::Trial& t) { return !t.overflows; }))
    result.reference = batch.at(result.reference_scale, true).bins;
  return result;
}

std::vector<UsefulScales> useful_scales(const ScaleTrials& trials, double error) {
  HALFTAPE_CHECK(error > 0, "useful_scales: an error of ", error, " is not positive");
  std::vector<UsefulScales> modules;
  for (size_t i = 0; i < trials.parameters.size(); ++i) {
    const std::string path(module_of(trials.parameters[i]));
    if (modules.empty() || modules.back().module != path) modules.push_back({path, {}, {}});
  }
  for (UsefulScales& m : modules)
    for (const ScaleTrials::Trial& trial : trials.trials) {
      bool good = true;
      for (size_t i = 0; i < trials.parameters.size(); ++i)
        // NaN: a gradient that is 0 in both has no relative error.
        if (module_of(trials.parameters[i]) == m.module && !std::isnan(trial.errors[i]))
          good &= trial.errors[i] <= error;
      if (!good) continue;
      if (!m.smallest) m.smallest = trial.scale;
      m.largest = trial.scale;
    }
  return modules;
}

}  // namespace halftape::amp
