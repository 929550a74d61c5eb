#include "halftape/tests/support/rows/module_rows.h"
#include "halftape/tests/support/counted.h"

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

namespace halftape::testing {

namespace {

const Vectors& torch() {
  static const Vectors vectors("modules.txt");
  return vectors;
}

}  // namespace

std::vector<ModuleRow> module_rows(bool printed) {
  std::vector<ModuleRow> rows;
  for (const Case& c :
       option_text::read_cases(std::string(HALFTAPE_TEST_DATA) + "/vectors/module_cases.txt")) {
    if (!printed && c.is("@print")) continue;
    const Kind* kind = nullptr;
    for (const Kind& k : module_kinds())
      if (k.name == c.kind()) kind = &k;
    HALFTAPE_CHECK(kind, c.name, " is of no kind that module_kinds.h has");
    rows.push_back({c, kind});
  }
  return rows;
}

TensorList inputs_of(const ModuleRow& row, Dtype dtype) {
  const std::string at = torch().has(row.name() + "/leaves") ? row.name() : row.kind->name;
  TensorList all;
  for (const double leaf : torch()[at + "/leaves"]) {
    const std::string number = std::to_string(all.size());
    if (leaf == -2) {  // none
      all.emplace_back();
      continue;
    }
    Shape shape;
    for (const double size : torch()[at + "/shape" + number])
      shape.push_back(static_cast<int64_t>(size));
    const Tensor x = torch().tensor(at + "/in" + number, shape);
    all.push_back(x.to(leaf < 0 ? kInt64 : dtype).requires_grad_(leaf > 0));
  }
  return all;
}

Use made(const ModuleRow& row, const Case& c, Dtype dtype) {
  Use use = row.kind->make(c, dtype);
  if (!use.module) return use;
  const NoGradGuard no_grad;
  use.module->train(!c.is("@eval"));
  for (const auto& p : use.module->named_parameters())
    if (!c.is("@start"))
      p.value().copy_(torch().tensor(row.name() + "/parameter/" + p.key(), p.value().sizes()));
  return use;
}
Dtype result_dtype(const ModuleRow& row, Dtype dtype) {
  for (const auto& [name, text] : row.c.options)
    if (name == "dtype") return option_text::value<Dtype>(text);
  return dtype;
}

const std::vector<double>& expected(const ModuleRow& row) { return torch()[row.name() + "/value"]; }

std::string differs(const ModuleRow& row, const Case& c, Dtype dtype) {
  const Use use = made(row, c, dtype);
  const auto wrong = [&](const std::string& what, const Tensor& got) -> std::string {
    const bool wide = result_dtype(row, dtype) == kFloat64;
    const double eps = (wide ? row.kind->held.torch_eps : 1e-5) / epsilon(got.dtype());
    const std::string said = differ(got, torch()[row.name() + what], {.eps = eps});
    return said.empty() ? said : what + ": " + said;
  };
  TensorList inputs = inputs_of(row, dtype), wanted;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    wanted.push_back(inputs[i]);
    names.push_back("/grad/in" + std::to_string(i));
  }
  if (use.module)
    for (const auto& p : use.module->named_parameters()) {
      wanted.push_back(p.value());
      names.push_back("/grad/" + p.key());
    }
  const Tensor y = use.forward(inputs);
  if (y.dtype() != result_dtype(row, dtype)) return "a result of " + std::string(name(y.dtype()));
  std::vector<double> sizes(y.sizes().begin(), y.sizes().end());
  if (sizes != torch()[row.name() + "/sizes"]) return "a result of another shape";
  if (const std::string said = wrong("/value", y); !said.empty()) return said;
  if (use.module)
    for (const auto& b : use.module->named_buffers())
      if (torch().has(row.name() + "/after/" + b.key()))
        if (const std::string said = wrong("/after/" + b.key(), b.value()); !said.empty())
          return said;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const std::string what = "/after/in" + std::to_string(i); torch().has(row.name() + what))
      if (const std::string said = wrong(what, inputs[i]); !said.empty()) return said;
  if (names.empty() || row.c.is("@value")) return {};
  if (y.requires_grad() != torch().has(row.name() + names[0])) return "another requires_grad()";
  if (!y.requires_grad()) return {};
  const TensorList grads = autograd::grad({y}, wanted, {counting(y)}, {}, false, true);
  for (size_t i = 0; i < grads.size(); ++i)
    if (const std::string said =
            wrong(names[i], grads[i].defined() ? grads[i] : zeros_like(wanted[i]));
        !said.empty())
      return said;
  return {};
}

}  // namespace halftape::testing
