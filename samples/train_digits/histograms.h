// Where the elements of the gradients lie among the numbers that fp16 has.
#pragma once

#include "page.h"
#include "report.h"

namespace report {

void histograms(Page& page, const Report& r);
/// What other scales would do follows from the unscaled histograms: a power of two shifts them.
void scale_table(Page& page, const Report& r);

}  // namespace report
