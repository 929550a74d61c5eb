// What the numbers of a run say: one sentence, and the figures behind it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "lab_run.h"

namespace lab {

/// The error of weight gradients, relative to their norm, that counts as good: 1 %; or 2, 5 or 10 %
/// where no scale suits all modules at less, since 16 bits round more than that.
double good_error(const halftape::amp::ScaleTrials& trials);

/// Gradients of a module's ops that are stored in 16 bits, at one scale of ScaleTrials.
struct ModuleLoss {
  std::string module;  // "fc1"; "(outside)" of ops in no module
  double lost = 0;     // share of its activation gradients that became 0; NaN: it has none
  double error = 0;    // of its weight gradients, the largest; NaN: it has no weights
};
/// For each module that has weights, in their order, then for those that only have gradients in 16
/// bits.
std::vector<ModuleLoss> losses(const halftape::amp::ScaleTrials& trials, size_t trial);

/// A module's path as it is shown: "(outside)" for none.
std::string shown(std::string_view module);

/// The scales at which the weight gradients of all modules are good; nothing if there is none.
struct Range {
  std::optional<double> smallest, largest;
  bool open = false;  // the largest that was tried is still good
};
Range useful_range(const halftape::amp::ScaleTrials& trials, double error);

/// In plain text: "gradients within 1 % of float32 for scales from 2^9 to 2^37; the scaler stood at
/// 2^16".
std::string verdict(const LabRun& run);

/// "2^9" for a power of two, else the plain number.
std::string power_text(double value);

/// A table for the terminal: for each module, the share of its activation gradients that is lost
/// and the error of its weight gradients, at the scales 2^exponents. Scales that were not tried are
/// left out.
std::string scale_table(const LabRun::Trials& trials, const std::vector<int>& exponents);

}  // namespace lab
