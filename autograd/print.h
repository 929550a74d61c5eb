// Tensors as text.
#pragma once
#include <cstdint>
#include <ostream>

#include "halftape/core/dtype.h"

namespace halftape {

class Tensor;

/// LibTorch's printing: rows of numbers, then "[ CPUFloatType{2,3} ]". Matrices wider than the line
/// are cut into blocks of columns.
std::ostream& operator<<(std::ostream&, const Tensor&);
std::ostream& print(std::ostream&, const Tensor&, int64_t line_width);
/// To std::cout.
void print(const Tensor&, int64_t line_width = 80);
/// "Float", as it stands in a printed tensor's type.
const char* type_name(Dtype);

}  // namespace halftape
