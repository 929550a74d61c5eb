// Where the elements of the gradients lie among the numbers that fp16 has.
#pragma once

#include "page.h"
#include "report.h"

namespace report {

void histograms(Page& page, const Report& r);
/// The unscaled histograms also show the effect of other scales: a power of two shifts them.
void scale_table(Page& page, const Report& r);

}  // namespace report
