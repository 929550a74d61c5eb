// report.html: one file, nothing loaded from elsewhere, at most 300 KB however long the run.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "lab_run.h"
#include "page.h"

namespace lab {

std::string html(const LabRun& run);

// Its sections, in the order in which they appear.
void course(report::Page& page, const LabRun& run);       // scale, skips and loss over the steps
void heat_maps(report::Page& page, const LabRun& run);    // errors and shares lost by step
void ledger_view(report::Page& page, const LabRun& run);  // histograms, with a scale to move
void scales_view(report::Page& page, const LabRun& run);  // error and share lost over the scale

/// HTML of a plain text: "2^16" becomes 2 with a raised 16.
std::string with_powers(std::string_view text);
/// At most `most` of the numbers 0 … all − 1, evenly spread, the first and the last among them.
std::vector<size_t> spread(size_t all, size_t most);
/// "0.07" for 0.0007: a share in percent, without the sign; "–" for NaN.
std::string percent_number(double share);

/// For a region that scrolls sideways where the page is narrow, also by keyboard.
void open_wide(report::Page& page, std::string_view label);
void close_wide(report::Page& page);

/// Numbers x·S as a dtype sees them, by ⌊log2⌋: below `vanishes` they become 0, below `least` they
/// are subnormal, from `infinite` on they overflow.
struct Borders {
  int vanishes, least, infinite;
};
inline Borders borders_of(halftape::Dtype dtype) {
  return dtype == halftape::kBFloat16 ? Borders{-134, -126, 128} : Borders{-25, -14, 16};
}

}  // namespace lab
