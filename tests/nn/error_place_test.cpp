// Errors of forward() name the module's place in its model.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <string>

#include "halftape/tests/support/message.h"

using namespace halftape;
using doctest::Contains;
using testing::message;

namespace {

struct EncoderImpl : nn::Cloneable<EncoderImpl> {
  EncoderImpl() { EncoderImpl::reset(); }
  void reset() override {
    fc1 = register_module("fc1", nn::Linear(4, 4));
    fc2 = register_module("fc2", nn::Linear(9, 2));
  }
  Tensor forward(const Tensor& x) const {
    if (x.dim() == 1) return matmul(x, ones({7, 7}));
    return fc2->forward(relu(fc1->forward(x)));
  }
  nn::Linear fc1{nullptr}, fc2{nullptr};
};
HALFTAPE_MODULE(Encoder);

struct Deep : nn::Cloneable<Deep> {
  Deep() { Deep::reset(); }
  void reset() override { encoder = register_module("encoder", Encoder()); }
  Tensor forward(const Tensor& x) const { return encoder->forward(x); }
  Tensor called(const Tensor& x) const { return encoder(x); }
  Encoder encoder{nullptr};
};

const std::string kFeatures = "linear: input [1, 4] has 4 features, weight [2, 9] expects 9";

}  // namespace

TEST_CASE("an error in forward() begins with the path and the kind of the layer") {
  const Deep model;
  const Tensor x = ones({1, 4});
  CHECK(message([&] { model.forward(x); }) == "encoder.fc2 (Linear): " + kFeatures);
  CHECK(message([&] { model.called(x); }) == "encoder.fc2 (Linear): " + kFeatures);
  CHECK(message([&] { model.encoder->fc2(x); }) == "encoder.fc2 (Linear): " + kFeatures);
  CHECK_THROWS_AS(model.forward(x), Error);
  // The names are those of the last error only.
  CHECK(message([&] { linear(x, ones({2, 9})); }) == kFeatures);
  CHECK(message([&] { nn::Linear(9, 2)(x); }) == kFeatures);
}

TEST_CASE("an op of a module's own forward() is named where the module is called as model(x)") {
  const Deep model;
  const Tensor x = ones({3});
  CHECK_THROWS_WITH_AS(model.called(x), Contains("encoder (Encoder): matmul: "), Error);
  CHECK(message([&] { model.forward(x); }).starts_with("matmul: "));
  const nn::Sequential parts(nn::Identity(), model.encoder);
  CHECK_THROWS_WITH_AS(parts(x), Contains("1 (Encoder): matmul: "), Error);
  CHECK_THROWS_WITH_AS(parts->forward(ones({1, 4})), Contains("1.fc2 (Linear): linear: "), Error);
}

TEST_CASE("a module that belongs to no other has the place of the one that calls it") {
  struct Caller : nn::Module {
    Tensor forward(const Tensor& x) const {
      const PlaceScope scope(*this);
      return nn::Linear(9, 2)(x);
    }
  };
  const auto caller = std::make_shared<Caller>();
  const Tensor x = ones({1, 4});
  CHECK(message([&] { caller->forward(x); }) == kFeatures);
  nn::Module model;
  model.register_module("last", caller);
  CHECK(message([&] { caller->forward(x); }) == "last (Caller): " + kFeatures);
}

TEST_CASE("Linear layers that run as one op are named one by one in errors") {
  const nn::Sequential net(nn::Linear(4, 3), nn::ReLU(), nn::Linear(3, 2));
  net->ptr<nn::LinearImpl>(2)->to(kFloat64);
  nn::Module model;
  model.register_module("net", net);
  CHECK_THROWS_WITH_AS(net(ones({1, 4})),
                       Contains("net.2 (Linear): linear: dtypes float32 and float64"), Error);
  CHECK_THROWS_WITH_AS(net(ones({1, 5})), Contains("net.0 (Linear): linear: input [1, 5]"), Error);
  net->to(kFloat32);
  const Tensor y = net(ones({1, 4})).sum();
  {
    const NoGradGuard no_grad;
    net->ptr<nn::LinearImpl>(2)->weight.mul_(2);
  }
  CHECK_THROWS_WITH_AS(y.backward(), Contains("that `linear` needs was changed in place"), Error);
}

TEST_CASE("a module after an LSTM says what it got and what to do") {
  const nn::Sequential net(nn::LSTM(3, 4), nn::Linear(4, 2));
  CHECK_THROWS_WITH_AS(
      net(ones({2, 1, 3})),
      Contains("1 (Linear): Expected argument #0 to be of type halftape::Tensor, but received "
               "value of type std::tuple<"),
      Error);
  CHECK_THROWS_WITH_AS(net(ones({2, 1, 3})),
                       Contains("put one between them whose forward() takes this tuple and "
                                "returns the std::get<0>() of it"),
                       Error);
}

TEST_CASE("a path follows registrations, replacements, clones and moves") {
  Deep model;
  const Tensor x = ones({1, 4});
  const auto where = [&](const nn::Linear& layer) {
    const std::string text = message([&] { layer(ones({1, 1})); });
    return text.substr(0, text.find(" (Linear)"));
  };
  const auto copy = std::dynamic_pointer_cast<Deep>(model.clone());
  CHECK(where(copy->encoder->fc2) == "encoder.fc2");
  CHECK(where(std::dynamic_pointer_cast<EncoderImpl>(model.encoder->clone())->fc2) == "fc2");
  nn::Module top;
  top.register_module("deep", copy);
  CHECK(where(copy->encoder->fc2) == "deep.encoder.fc2");
  const nn::Linear last = copy->encoder->fc2;
  copy->encoder->replace_module("fc2", nn::Linear(9, 2));
  CHECK(where(last).starts_with("linear: "));
  top.unregister_module("deep");
  CHECK(where(copy->encoder->fc1) == "encoder.fc1");
  nn::ModuleList list(last, nn::Linear(4, 4));
  const nn::Linear first(4, 4);
  list->insert(0, first);
  CHECK(where(first) == "0");
  CHECK(where(last) == "1");
  nn::ModuleDict dict;
  dict->insert("a", first.ptr());
  CHECK(where(first) == "a");
  dict->pop("a");
  CHECK(where(first).starts_with("linear: "));
}

TEST_CASE("an error of layers that run as one names the layer") {
  const nn::Sequential net(nn::Linear(4, 3), nn::ReLU(), nn::Linear(3, 2));
  net->at<nn::LinearImpl>(2).weight.set_data(ones({6}));
  CHECK_THROWS_WITH_AS(net->forward(ones({1, 4})), Contains("2 (Linear): "), Error);
}

TEST_CASE("the kind of a class leaves out namespaces, arguments of templates and Impl") {
  nn::Module model;
  const auto fc = nn::utils::weight_norm(nn::Linear(3, 2));
  model.register_module("fc", fc);
  CHECK_THROWS_WITH_AS(fc->forward(ones({1, 4})), Contains("fc (WeightNorm): linear: "), Error);
}
