// The cases of tests/vectors/module_cases.txt, made and compared with what PyTorch made of them
// (modules.txt).
#pragma once
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

/// A case and its kind.
struct ModuleRow {
  Case c;
  const Kind* kind;
  const std::string& name() const { return c.name; }
};

/// All cases; with those that are only printed.
std::vector<ModuleRow> module_rows(bool printed = false);

/// The inputs; those that are differentiated are leaves in this dtype.
TensorList inputs_of(const ModuleRow& row, Dtype dtype);

/// The case made, in this dtype, with PyTorch's parameters; or another case in its place.
Use made(const ModuleRow& row, const Case& c, Dtype dtype);
inline Use made(const ModuleRow& row, Dtype dtype) { return made(row, row.c, dtype); }

/// Of the result: that of the inputs, unless an option says another.
Dtype result_dtype(const ModuleRow& row, Dtype dtype);

/// What PyTorch's result is.
const std::vector<double>& expected(const ModuleRow& row);

/// How the result, its shape, the gradients, and what the call changed differ from PyTorch's, by
/// 1e-10 in float64 and 1e-5 in float32; empty if they do not. Of another case in the row's place.
std::string differs(const ModuleRow& row, const Case& c, Dtype dtype);

}  // namespace halftape::testing
