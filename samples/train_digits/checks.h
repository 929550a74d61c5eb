// What a device's arithmetic is held to before its training is believed.
#pragma once

#include <halftape/halftape.h>

#include <string>
#include <vector>

struct Check {
  std::string what;  // "amp: a captured step leaves the same bits"
  bool passed;
};

/// Some steps of a small network on `device`, in float32, in fp16 with a GradScaler and in bf16,
/// with x (N, features) and y (N) of so many classes. Loss and gradients of the first step have to
/// be the CPU's to 32 epsilon of the dtype, times the largest gradient of a layer; a second run has
/// to leave the same bits, and so has a captured step.
std::vector<Check> check_steps(halftape::Device device, const halftape::Tensor& x,
                               const halftape::Tensor& y, int64_t classes);

bool all_passed(const std::vector<Check>& checks);

/// "checks on cuda:0: 12 of 12 passed", or the number and the names of those that did not.
std::string verdict(halftape::Device device, const std::vector<Check>& checks);
