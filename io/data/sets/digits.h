// The data set in the box: 1,797 handwritten digits of 8x8 pixels, for work without a download.
#pragma once

#include "halftape/io/formats/images.h"

namespace halftape::data {

/// The UCI handwritten digits that scikit-learn carries (`load_digits`), embedded: 8x8 pixels of
/// the 17 levels 0..16, ten classes, 1,442 images to train on and 355 to test on. The split is
/// fixed: within each class, in the file's order, every fifth sample is for testing; both parts
/// keep the file's order. The 13 writers are not kept apart, so the test accuracy says nothing
/// about a new writer's hand. E. Alpaydin and C. Kaynak, CC BY 4.0, doi:10.24432/C50P49; see
/// DIGITS_LICENSE.txt.
Split digits();

}  // namespace halftape::data
