// Every option of a module is set by a case of tests/vectors/module_cases.txt, in which it matters:
// without it the case does not give what PyTorch gives with it.
#include <doctest/doctest.h>

#include <algorithm>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/modules/declared_options.h"
#include "halftape/tests/support/rows/module_rows.h"

using namespace halftape;
using testing::Case;
using testing::inputs_of;
using testing::Kind;
using testing::made;
using testing::ModuleRow;

namespace {

/// Whether the case is another one without its option or word of this number, and those behind it.
bool matters(const ModuleRow& row, size_t number) {
  Case without = row.c;
  if (number < row.c.words.size())
    without.words.resize(number);
  else
    without.options.erase(without.options.begin() +
                          static_cast<std::ptrdiff_t>(number - row.c.words.size()));
  try {
    return !differs(row, without, kFloat64).empty();
  } catch (const std::exception&) {
    return true;
  }
}

/// Options that no case can set: where they are tested.
const std::map<std::string, std::string> kOtherOptions{
    {"inplace", "the next test"},
    {"sparse", "refused: embedding_test.cpp"},
    {"skip_nonfinite", "PyTorch has none: norm_test.cpp"},
    {"normalize.out", "where the result goes: norm_test.cpp"},
    {"rrelu.training", "draws: activation_test.cpp"},
    {"ConvTranspose1d.padding_mode", "only zeros: conv_test.cpp"},
    {"ConvTranspose2d.padding_mode", "the same"},
    {"ConvTranspose3d.padding_mode", "the same"},
    {"AvgPool1d.divisor_override", "of two and three dimensions"},
    {"Transformer.custom_encoder", "a module: transformer_test.cpp"},
    {"Transformer.custom_decoder", "the same"},
};
/// Options of no kind.
const std::set<std::string> kOtherClasses{
    "GumbelSoftmaxFuncOptions",              // draw: activation_test.cpp
    "MultiheadAttentionForwardFuncOptions",  // most are MultiheadAttention's: attention_test.cpp
    "FusedMLPOptions",                       // not in PyTorch: fused_mlp_test.cpp
    "RNNOptionsBase",                        // of no user
};

}  // namespace

TEST_CASE("every option of every kind is set in a case, where it matters") {
  const auto declared = testing::declared_options();
  std::map<std::string, std::set<std::string>> set;  // by kind
  for (const ModuleRow& row : testing::module_rows()) {
    if (row.kind->options.empty()) continue;
    const auto& order = declared.at(row.kind->options);
    for (size_t i = 0; i < row.c.words.size() + row.c.options.size(); ++i) {
      const std::string option =
          i < row.c.words.size() ? order.at(i) : row.c.options[i - row.c.words.size()].first;
      if (set[row.kind->name].count(option)) continue;
      if (matters(row, i)) set[row.kind->name].insert(option);
    }
  }
  for (const Kind& kind : testing::module_kinds()) {
    if (kind.options.empty()) continue;
    for (const std::string& option : declared.at(kind.options)) {
      const bool other =
          kOtherOptions.count(option) || kOtherOptions.count(kind.name + '.' + option);
      CHECK_MESSAGE(set[kind.name].count(option) != other, kind.name, ": no case sets ", option);
    }
  }
  std::set<std::string> classes = kOtherClasses;
  for (const Kind& kind : testing::module_kinds()) classes.insert(kind.options);
  for (const auto& item : declared)
    CHECK_MESSAGE(classes.count(item.first), item.first, ": of no kind");
}

TEST_CASE("whatever has the option inplace writes to its input what it gives otherwise") {
  const auto declared = testing::declared_options();
  int tested = 0;
  for (ModuleRow& row : testing::module_rows()) {
    if (row.kind->options.empty()) continue;
    const auto& options = declared.at(row.kind->options);
    if (std::find(options.begin(), options.end(), "inplace") == options.end()) continue;
    INFO(row.name());
    const Tensor x = inputs_of(row, kFloat32)[0].detach(), given = x.clone();
    manual_seed(3);
    const Tensor apart = made(row, kFloat32).forward({x});
    CHECK(testing::same_bits(x, given));
    row.c.options.emplace_back("inplace", "true");
    manual_seed(3);
    const Tensor y = made(row, kFloat32).forward({x});
    CHECK(testing::same_bits(y, apart));
    CHECK(testing::same_bits(x, apart));
    CHECK(y.data_ptr() == x.data_ptr());
    // What backward needs is saved before it is overwritten.
    const Tensor leaf = given.clone().requires_grad_();
    CHECK_NOTHROW(made(row, kFloat32).forward({leaf * 1}).sum().backward());
    ++tested;
  }
  const nn::RReLU evaluated(nn::RReLUOptions().lower(0.25).upper(0.75).inplace(true));
  evaluated->eval();
  const Tensor leaf = tensor({-4.f, 2.f}).requires_grad_();
  CHECK_NOTHROW(evaluated->forward(leaf * 1).sum().backward());
  CHECK(leaf.grad().equal(tensor({0.5f, 1.f})));
  CHECK(tested > 25);
}
