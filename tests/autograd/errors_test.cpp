// Every op refuses at least three wrong calls; the error names the op and the mistake.
#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <set>
#include <stdexcept>

#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/errors.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/ops.h"

using namespace halftape;
using testing::draw_all;
using testing::has;
using testing::message;
using testing::names;
using testing::OpRow;

namespace {

/// Does the text name what was wrong: a shape, a number, a dtype? The digits of a name, as conv2d's
/// and kFloat32's, are no number.
bool says_what(const std::string& text) {
  static const std::regex number("\\b[0-9]+\\b");
  for (const Dtype d : testing::kAllDtypes)
    if (has(text, name(d))) return true;
  return has(text, "[") || has(text, "divided by zero") || std::regex_search(text, number);
}

/// The op's name without the _ of its in-place form.
std::string base(std::string op) {
  if (op.back() == '_') op.pop_back();
  return op;
}

/// Ops that take any one tensor, and refuse only an undefined one. (But positive() refuses bool,
/// and flipud() a number.)
const std::map<std::string, Tensor (*)(const Tensor&)> kTakeAny = {
    {"clone", [](const Tensor& x) { return clone(x); }},
    {"contiguous", [](const Tensor& x) { return contiguous(x); }},
    {"positive", positive},
    {"logical_not", logical_not},
    {"isnan", isnan},
    {"isinf", isinf},
    {"isfinite", isfinite},
    {"isposinf", isposinf},
    {"isneginf", isneginf},
    {"unique_consecutive",
     [](const Tensor& x) { return std::get<1>(unique_consecutive(x, true)); }},
    {"_unique2", [](const Tensor& x) { return std::get<1>(_unique2(x, true, true)); }},
    {"nonzero", nonzero},
    {"argwhere", argwhere},
    {"flipud", flipud},
    {"msort", msort},
    {"atleast_1d", atleast_1d},
    {"atleast_2d", atleast_2d},
    {"atleast_3d", atleast_3d}};

/// The rows without those that also square the result.
std::vector<OpRow> plain_rows() {
  std::vector<OpRow> rows;
  for (const OpRow& row : testing::op_table())
    if (!has(row.name, " squared")) rows.push_back(row);
  return rows;
}

/// The error of a row called with other inputs; empty if the op takes them, even if the row then
/// looks at a missing element.
std::string refusal(const OpRow& row, const TensorList& inputs) {
  try {
    return message([&] { row.call(inputs); });
  } catch (const std::out_of_range&) {
    return {};
  }
}

/// Inputs of a row with mistakes that suit any op. Some ops accept some of them.
std::vector<TensorList> mistakes(const OpRow& row) {
  const TensorList right = draw_all(row);
  std::vector<TensorList> all;
  const auto with = [&](size_t i, const Tensor& wrong) {
    all.push_back(right);
    all.back()[i] = wrong;
  };
  for (size_t i = 0; i < right.size(); ++i) {
    if (i < row.needed) with(i, Tensor());
    with(i, ones({7, 11}, kFloat64));
    with(i, ones({2, 1, 7, 11}, kFloat64));
    with(i, ones({}, kFloat64));
    with(i, ones({0, 13}, kFloat64));
    with(i, ones(row.shapes[i], kBool));
    with(i, ones(row.shapes[i], kInt64));
    with(i, ones(row.shapes[i], kFloat32));
  }
  for (const Dtype d : {kBool, kInt64}) {
    all.emplace_back();
    for (const Tensor& x : right) all.back().push_back(x.to(d));
  }
  return all;
}

/// The errors of a row's backward pass: for a gradient of another shape, and for a second pass over
/// a released graph.
std::vector<std::string> refusals_of_gradients(const OpRow& row) {
  TensorList x;
  for (const Tensor& t : draw_all(row)) x.push_back(t.requires_grad_());
  const Tensor y = row.call(x);
  if (!y.requires_grad()) return {};
  const auto pass = [&](const Tensor& g) {
    return message([&] { autograd::grad({y}, x, {g}, false, false, true); });
  };
  const std::string other_shape = pass(ones({7, 11}, kFloat64));
  CHECK_MESSAGE(has(other_shape, "[7, 11]"), row.name, " said: ", other_shape);
  CHECK(pass(ones_like(y)) == "");
  return {other_shape, pass(ones_like(y))};
}

}  // namespace

TEST_CASE("an undefined tensor is refused by name, as each argument of each op") {
  for (const OpRow& row : plain_rows()) {
    INFO(row.name);
    const TensorList right = draw_all(row);
    for (size_t i = 0; i < right.size(); ++i) {
      TensorList wrong = right;
      wrong[i] = Tensor();
      const std::string text = refusal(row, wrong);
      if (i >= row.needed)
        CHECK(text == "");
      else
        CHECK_MESSAGE((names(text, row.op()) && has(text, "undefined")), "said: ", text);
    }
  }
}

TEST_CASE("ops that refuse only undefined tensors take every other") {
  for (const auto& [op, call] : kTakeAny) {
    for (const Dtype d : testing::kAllDtypes) {
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 0}, Shape{2, 3, 1}}) {
        const Tensor x = testing::counted(shape, d);
        if ((op == "positive" && d == kBool) || (op == "flipud" && shape.empty()))
          CHECK_THROWS_AS(call(x), Error);
        else if (op == "nonzero" || op == "argwhere")
          CHECK(call(x).size(1) == x.dim());
        else
          CHECK(call(x).numel() == x.numel());
      }
    }
  }
}

TEST_CASE("every op has at least three error cases, and every message names the op") {
  std::map<std::string, std::set<std::string>> said;
  for (const OpRow& row : plain_rows()) {
    said[base(row.op())];
    for (const TensorList& wrong : mistakes(row)) {
      const std::string text = refusal(row, wrong);
      if (text.empty()) continue;
      CHECK_MESSAGE(names(text, row.op()), row.name, " said: ", text);
      CHECK_MESSAGE(says_what(text), row.name, " said: ", text);
      said[base(row.op())].insert(text);
    }
    // The errors of a composed op's nodes name other ops, and do not count.
    for (const std::string& text : refusals_of_gradients(row))
      if (names(text, row.op())) said[base(row.op())].insert(text);
  }
  for (const testing::ErrorCase& wrong : testing::error_table()) {
    INFO(wrong.op);
    const std::string text = message(wrong.call);
    CHECK_MESSAGE(names(text, wrong.op), "said: ", text);
    for (const std::string& w : wrong.words) CHECK_MESSAGE(has(text, w), w, ", said: ", text);
    said[base(wrong.op)].insert(text);
  }
  int64_t cases = 0;
  for (const auto& entry : said) {
    const size_t count = entry.second.size(), least = kTakeAny.count(entry.first) ? 1 : 3;
    CHECK_MESSAGE(count >= least, entry.first, " has ", count);
    cases += static_cast<int64_t>(count);
  }
  MESSAGE(said.size(), " ops refuse ", cases, " mistakes, each by name");
}
