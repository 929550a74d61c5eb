// Functional: functions as modules.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

using namespace halftape;
using namespace halftape::nn;

TEST_CASE("a functional is its function, with the arguments that it was given") {
  const Tensor x = tensor({-1.0, 2.0});
  CHECK(Functional(halftape::sigmoid)(x).equal(sigmoid(x)));
  CHECK(Functional([](const Tensor& t) { return t * 3; })(x).equal(x * 3));
  const auto scaled = [](const Tensor& t, double a, const Tensor& b) { return t * a + b; };
  CHECK(Functional(scaled, 2.0, ones({2}))(x).equal(x * 2 + 1));
}

TEST_CASE("functionals stand in a Sequential beside modules, and are listed with them") {
  Sequential model(Linear(2, 3), Functional(halftape::sigmoid), Linear(3, 1));
  CHECK(model->parameters().size() == 4);
  CHECK(model->named_parameters().contains("2.weight"));
  CHECK(model->children().size() == 3);
  CHECK(model->children()[1]->name() == "halftape::nn::FunctionalImpl");
  CHECK(model->forward(ones({5, 2})).sizes() == Shape{5, 1});
}
