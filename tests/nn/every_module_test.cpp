// The same checks for every module of nn, and for every function with options of its own. The uses
// stand in tests/vectors/module_cases.txt, the kinds in tests/support/module_kinds_*.cpp. A module
// or a function that a header declares and they lack is a failure.
#include <doctest/doctest.h>

#include <regex>
#include <set>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/modules/declared_modules.h"
#include "halftape/tests/support/modules/declared_options.h"
#include "halftape/tests/support/rows/module_rows.h"

using namespace halftape;
using testing::differ;
using testing::expected;
using testing::inputs_of;
using testing::Kind;
using testing::made;
using testing::ModuleRow;
using testing::Use;

namespace {
/// What the error of a part of the module begins with, as a regular expression: "0 (Linear): ".
const std::string kPlace = "([\\w.]+ \\(\\w+\\): )?";
}  // namespace

TEST_CASE("every module and function has PyTorch's values and gradients, in float64 and float32") {
  for (const Dtype dtype : {kFloat64, kFloat32})
    for (const ModuleRow& row : testing::module_rows()) {
      INFO(row.name() << " " << name(dtype));
      CHECK(differs(row, row.c, dtype) == "");
    }
}

TEST_CASE("the function of a module's options gives what the module gives") {
  for (const ModuleRow& row : testing::module_rows()) {
    const Use use = made(row, kFloat64);
    if (!use.function) continue;
    INFO(row.name());
    const TensorList x = inputs_of(row, kFloat64);
    CHECK(testing::same_bits(use.function(x), use.forward(x)));
  }
}

TEST_CASE("every module's and function's gradients are what finite differences say") {
  for (const ModuleRow& row : testing::module_rows()) {
    if (row.c.is("@steps")) continue;
    INFO(row.name());
    const Use use = made(row, kFloat64);
    const TensorList given = inputs_of(row, kFloat64);
    TensorList inputs;
    double shift = 1e-3;
    for (const Tensor& x : given) {  // no two equal, and none at a kink
      if (!x.defined() || !x.requires_grad()) continue;
      inputs.push_back(
          (x.detach() + (arange(x.numel(), x.options()).reshape(x.sizes()) * 0.618).frac() * shift)
              .requires_grad_());
      shift *= 1.3;
    }
    if (use.module)
      for (const Tensor& p : use.module->parameters())
        if (p.requires_grad()) inputs.push_back(p);
    if (inputs.empty()) continue;
    CHECK(autograd::gradcheck(
        [&](const TensorList& leaves) {
          TensorList x = given;
          size_t next = 0;
          for (Tensor& each : x)
            if (each.defined() && each.requires_grad()) each = leaves[next++];
          return use.forward(x);
        },
        inputs,
        {.eps = 1e-6, .atol = 1e-6, .rtol = 1e-5, .fast_mode = !get_default_device().is_cpu()}));
  }
}

TEST_CASE("every module and function gives halves for halves, near float64's result") {
  for (const Dtype dtype : {kFloat16, kBFloat16})
    for (const ModuleRow& row : testing::module_rows()) {
      INFO(row.name() << " " << name(dtype));
      const Tensor y = made(row, dtype).forward(inputs_of(row, dtype));
      if (row.c.options.empty() || row.c.options[0].first != "dtype") CHECK(y.dtype() == dtype);
      CHECK(differ(y, expected(row), {.eps = row.kind->held.half_eps}) == "");
    }
}

TEST_CASE("autocast makes of every module's and function's result what its category says") {
  for (const ModuleRow& row : testing::module_rows()) {
    INFO(row.name());
    const Cast cast = row.c.is("@keep") ? Cast::Keep : row.kind->held.cast;
    const Use use = made(row, kFloat32);
    const amp::autocast region(get_default_device().type(), kBFloat16);
    const auto dtype_for = [&](Dtype dtype) { return use.forward(inputs_of(row, dtype)).dtype(); };
    if (cast == Cast::Refuse) {
      CHECK_THROWS_AS(dtype_for(kFloat32), Error);
      continue;
    }
    CHECK(dtype_for(kFloat32) == (cast == Cast::Lower ? kBFloat16 : kFloat32));
    if (inputs_of(row, kFloat32)[0].is_floating_point() || cast != Cast::Keep)
      CHECK(dtype_for(kBFloat16) == (cast == Cast::Float32 ? kFloat32 : kBFloat16));
  }
}

TEST_CASE("the cases have every module that a header declares, and every function with options") {
  std::set<std::string> tested{
      // module_list_test.cpp, fused_mlp_test.cpp
      "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "FusedMLP",
  };
  for (const ModuleRow& row : testing::module_rows()) tested.insert(row.kind->name);
  const std::set<std::string> modules = testing::declared_modules();
  CHECK(modules.size() > 130);
  for (const std::string& name : modules) CHECK_MESSAGE(tested.count(name), name, " is missing");
  std::set<std::string> called{
      // Their gradients are drawn: activation_test.cpp. attention_test.cpp.
      "gumbel_softmax",
      "multi_head_attention_forward",
  };
  for (const Kind& kind : testing::module_kinds()) called.insert(kind.function);
  const std::set<std::string> functions = testing::functions_with_options();
  CHECK(functions.size() > 70);
  for (const std::string& name : functions) CHECK_MESSAGE(called.count(name), name, " is missing");
}

TEST_CASE("a wrong input is refused by name, with its sizes; what refuses none takes all") {
  std::set<std::string> refused;
  for (const ModuleRow& row : testing::module_rows()) {
    INFO(row.name());
    const Shape& wrong = row.kind->held.wrong;
    TensorList x = inputs_of(row, kFloat32);
    x[0] = ones(wrong.empty() ? Shape{6, 4} : wrong);
    const Use use = made(row, kFloat32);
    if (wrong.empty()) {
      CHECK_NOTHROW(use.forward(x));
      continue;
    }
    if (!refused.insert(row.kind->name).second) continue;
    std::ostringstream sizes;
    sizes << ' ' << wrong;
    const std::string said = testing::message([&] { use.forward(x); });
    CAPTURE(said);
    if (use.module) {
      nn::Module model;
      model.register_module("part", use.module);
      const std::string placed = testing::message([&] { use.forward(x); });
      CAPTURE(placed);
      CHECK((placed.starts_with("part (") || placed.starts_with("part.")));
      CHECK(placed.ends_with(said));
    }
    CHECK(std::regex_search(said, std::regex("^" + kPlace + "\\w+: ")));
    // Indices are refused for their dtype, and dimensions that are not there for their number.
    const bool named = testing::has(said, sizes.str()) ||
                       testing::has(said, "indices are float32, expected int64") ||
                       testing::has(said, "dimension 1 is out of range for 1 dimensions");
    CHECK(named);
  }
  CHECK(refused.size() > 100);
}

TEST_CASE("where whole numbers will not do for floats, or these for them, the dtype is named") {
  int refused = 0;
  for (const ModuleRow& row : testing::module_rows()) {
    INFO(row.name());
    TensorList x = inputs_of(row, kFloat32);
    for (Tensor& each : x)
      if (each.defined()) each = each.detach().to(each.is_floating_point() ? kInt64 : kFloat32);
    const Use use = made(row, kFloat32);
    const std::string said = testing::message([&] { use.forward(x); });
    if (said.empty()) continue;  // numbers that move, or are converted
    ++refused;
    CAPTURE(said);
    CHECK(std::regex_search(said, std::regex("^" + kPlace + "\\w+: .*(int64|float32|integral)")));
  }
  CHECK(refused > 200);
}
