// What changes while training runs: loss, accuracy and scale, one line a run.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "page.h"
#include "report.h"

namespace report {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Epochs when their length is known and there are some, else steps.
struct Time {
  double per_x, end;
  std::string_view name;
};
Time time_axis(const Report& r);

/// The colour of run i wherever it appears.
std::string colour(const std::vector<Run>& runs, size_t i);
void legend(Page& page, const Report& r);
void loss_chart(Page& page, const Report& r, const Time& time);
void accuracy_chart(Page& page, const Report& r);
void scale_chart(Page& page, const Report& r, const Time& time);

}  // namespace report
