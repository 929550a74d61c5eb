// How modules print: as LibTorch prints the cases of tests/vectors/module_cases.txt.
#include <doctest/doctest.h>

#include "halftape/tests/support/printed.h"
#include "halftape/tests/support/rows/module_rows.h"

using namespace halftape;
using testing::ModuleRow;
using testing::printed;

namespace {

/// What the LibTorch of module_texts.txt lacks: PyTorch's text, spelled as LibTorch spells others.
const std::map<std::string, std::string> kOurTexts{
    {"Hardsigmoid", "Hardsigmoid()"},
    {"Hardswish", "Hardswish()"},
    {"GaussianNLLLoss", "GaussianNLLLoss()"},
    {"GaussianNLLLoss.none", "GaussianNLLLoss()"},
    {"GaussianNLLLoss.sum", "GaussianNLLLoss()"},
    {"GaussianNLLLoss.full", "GaussianNLLLoss()"},
    {"LPPool3d", "LPPool3d(norm_type=2, kernel_size=[2, 2, 2], stride=[2, 2, 2], ceil_mode=false)"},
    {"LPPool3d.numbers",
     "LPPool3d(norm_type=3, kernel_size=[2, 2, 2], stride=[1, 1, 1], ceil_mode=false)"},
    {"LPPool3d.ceil",
     "LPPool3d(norm_type=3, kernel_size=[2, 2, 2], stride=[2, 2, 2], ceil_mode=true)"},
    {"CircularPad1d", "CircularPad1d(padding=[1, 0])"},
    {"CircularPad2d", "CircularPad2d(padding=[1, 0, 1, 1])"},
    {"CircularPad3d", "CircularPad3d(padding=[1, 0, 1, 1, 0, 1])"},
    {"ZeroPad1d", "ZeroPad1d(padding=[1, 0])"},
    {"ZeroPad3d", "ZeroPad3d(padding=[1, 0, 1, 1, 0, 1])"},
    {"Upsample.exact", "Upsample(size=[3, 7], mode=kNearestExact)"},
    {"LayerNorm.numbers", "LayerNorm([5], eps=0.01, elementwise_affine=true, bias=false)"},
    {"RMSNorm", "RMSNorm([4, 5], eps=None, elementwise_affine=true)"},
    {"RMSNorm.eps", "RMSNorm([5], eps=0.01, elementwise_affine=true)"},
    {"RMSNorm.plain", "RMSNorm([5], eps=None, elementwise_affine=false)"},
};

}  // namespace

TEST_CASE("every module prints as LibTorch's") {
  if (!get_default_device().is_cpu()) return;  // weights print where they are
  std::map<std::string, std::string> texts;
  std::ifstream in(std::string(HALFTAPE_TEST_DATA) + "/vectors/module_texts.txt");
  std::string* text = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.substr(0, 3) == "== ")
      text = &texts[line.substr(3)];
    else
      *text += (text->empty() ? "" : "\n") + line;
  }
  CHECK(texts.size() > 200);
  for (const ModuleRow& row : testing::module_rows(true)) {
    if (std::islower(row.name()[0])) continue;  // a function
    INFO(row.name());
    std::string ours = printed(*row.kind->make(row.c, kFloat64).module);
    for (size_t at = 0; (at = ours.find("halftape::nn::", at)) != std::string::npos;)
      ours.replace(at, std::string("halftape").size(), "torch");
    const auto own = kOurTexts.find(row.name());
    CHECK(ours == (own == kOurTexts.end() ? texts[row.name()] : "torch::nn::" + own->second));
    CHECK((own == kOurTexts.end() || !texts.count(row.name())));
  }
}
