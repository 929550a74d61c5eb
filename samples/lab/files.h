// What a run leaves beside its page: tables for scripts, and histograms for TensorBoard.
#pragma once
#include <filesystem>
#include <optional>

#include "lab_run.h"

namespace lab {

/// The powers of two that have columns: 2^-48 … 2^15. What lies beyond counts in the nearest.
inline constexpr int kFirstBin = -48, kLastBin = 15;

/// ledger.csv, overflows.csv, alarms.csv and an event file for TensorBoard. ledger.csv has a line
/// for each place and sampled step: total = zero + subnormal + normal + large + inf + nan, and the
/// bins sum up to subnormal + normal + large. Throws FileError.
void write_files(const std::filesystem::path& folder, const LabRun& run);

/// Numbers of one class of their own dtype in `counts`.
struct Classes {
  int64_t zero, subnormal, normal, large, inf, nan;
};
Classes classes_of(const halftape::amp::ExponentCounts& counts, halftape::Dtype dtype);

/// Numbers at 2^bin, with those beyond the first and the last.
int64_t bin(const halftape::amp::ExponentCounts& counts, int exponent);

/// "value", "gradient", "sum" or "parameter".
const char* kind_name(halftape::amp::LedgerPlace::Kind kind);
/// "forward", "backward", …
const char* where_name(halftape::amp::Overflow::Where where);
const char* alarm_name(halftape::amp::Alarm::Kind kind);

}  // namespace lab
