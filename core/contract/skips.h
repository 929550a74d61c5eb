// What is said of skipped steps, by whoever notices them: a device or a scaler.
#pragma once
#include <cstdint>
#include <string>

namespace halftape {

/// "GradScaler: 10 steps in a row were skipped, the scale is 64; …" and where to look.
std::string tell_skips(const char* scaler, int64_t in_row, float scale, bool bad_loss);

}  // namespace halftape
