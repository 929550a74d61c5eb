// An infinity or a NaN is planted in random programs: the Inspector names the op that made it.
#include <doctest/doctest.h>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/random_programs.h"

using namespace halftape;
using namespace halftape::testing;
using amp::Overflow;

namespace {

struct Planted : autograd::Function<Planted> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x, int64_t element,
                        double bad, bool in_forward) {
    context->saved_data["element"] = element;
    context->saved_data["bad"] = bad;
    context->saved_data["in_forward"] = in_forward;
    return in_forward ? with(x, element, bad) : x.clone();
  }
  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          autograd::variable_list g) {
    if (context->saved_data["in_forward"].toBool()) return {g[0], {}, {}, {}};
    return {
        with(g[0], context->saved_data["element"].toInt(), context->saved_data["bad"].toDouble()),
        {},
        {},
        {}};
  }
  static Tensor with(const Tensor& x, int64_t element, double bad) {
    const NoGradGuard no_grad;
    Tensor y = x.detach().clone(), flat = y.reshape({-1});
    flat.slice(0, element, element + 1).fill_(bad);
    return flat.reshape(x.sizes());
  }
};

}  // namespace

TEST_CASE("the op that was planted is named in each of 1,000 random programs") {
  Author author(8);
  int named = 0, skipped = 0, programs = 0, false_alarms = 0;
  for (; skipped < 1000 && programs < 4000; ++programs) {
    Program p = author.write();
    nn::Module model;
    TensorList leaves;
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      std::vector<double> v;
      for (int64_t k = 0; k < numel(p.inputs[i]); ++k) v.push_back(author.number(-2, 2));
      leaves.push_back(model.register_parameter("x" + std::to_string(i),
                                                tensor(v, kFloat64).reshape(p.inputs[i])));
    }
    amp::GradScaler scaler({.init_scale = 1024});
    amp::Inspector inspector(model, scaler, {.every = 0});
    const auto step = [&] {
      TensorList values = leaves;
      for (const Step& s : p.steps) values.push_back(s.eager(values));
      Tensor sum = zeros({}, kFloat64);
      for (const Tensor& v : values) sum = sum + v.sum();
      for (const Tensor& x : leaves) x.mutable_grad() = {};
      scaler.scale(sum).backward();
      inspector.step();
      scaler.update(1024);
    };
    step();
    if (!inspector.overflows().empty()) {
      ++false_alarms;
      continue;
    }
    const auto at = static_cast<size_t>(author.number(0, static_cast<double>(p.steps.size())));
    const double where = author.number(0, 1), kind = author.number(0, 1);
    const bool forward = programs % 2 == 0;
    p.steps[at].eager = [=, eager = p.steps[at].eager](const TensorList& v) {
      const Tensor x = eager(v);
      const auto element = static_cast<int64_t>(where * static_cast<double>(x.numel()));
      const double inf = std::numeric_limits<double>::infinity();
      const double bad = kind < 0.3 ? inf : kind < 0.6 ? -inf : std::nan("");
      return Planted::apply(x, element, bad, forward);
    };
    step();
    if (inspector.overflows().empty()) continue;  // no gradient and no loss came to know of it
    ++skipped;
    const Overflow o = *inspector.last_overflow();
    const bool right = o.op == "Function" && o.nan == (kind >= 0.6) &&
                       (o.where == Overflow::Where::Forward) == forward;
    named += right;
    INFO("program " << programs << ", planted at step " << at << ":" << p.text());
    CHECK_MESSAGE(right, o);
  }
  CHECK(skipped == 1000);
  CHECK(named == 1000);
  CHECK(false_alarms == 0);
  MESSAGE(named, " of ", skipped, " planted ops named, in ", programs, " programs");
}
