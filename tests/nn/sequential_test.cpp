// Sequential and Functional.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

using namespace halftape;
using doctest::Contains;
using Names = std::vector<std::string>;

namespace {

struct Count : nn::Cloneable<Count> {
  explicit Count(int step = 1) : by(step) {}
  int forward(int x) const { return x + by; }
  int by;
};
struct Sum : nn::Cloneable<Sum> {
  int forward(int a, int b) const { return a + b; }
};
HALFTAPE_MODULE_IMPL(Counter, Count);
Tensor twice(const Tensor& x) { return 2 * x; }

}  // namespace

TEST_CASE("Sequential calls its parts in order, whatever they are made of") {
  const nn::Linear first(3, 4), last(4, 2);
  const nn::Sequential net(
      first, relu, nn::Sequential(nn::Tanh(), nn::Identity()),
      [](const Tensor& x) { return x + 1; }, nn::TanhImpl(), nn::AnyModule(last));
  const Tensor x = randn({5, 3});
  CHECK(net(x).equal(last(tanh(tanh(relu(first(x))) + 1))));
  CHECK(net->forward(x).equal(net(x)));
  CHECK(net->named_parameters().keys() == Names{"0.weight", "0.bias", "5.weight", "5.bias"});
}

TEST_CASE("Sequential passes values of any type, several to the first part") {
  const nn::Sequential net(Sum{}, Count(1), std::make_shared<Count>(10));
  CHECK(net->forward<int>(2, 3) == 16);
  CHECK_THROWS_WITH_AS(net->forward<float>(2, 3),
                       "The type of the return value is int, but you asked for type float", Error);
  CHECK_THROWS_WITH_AS(net->forward<int>(2), Contains("expects 2 argument(s), but received 1"),
                       Error);
  const nn::Sequential nested(net, Count(100));
  CHECK(nested->forward<int>(2, 3) == 116);
  CHECK(nn::Sequential(Counter(2), Counter(3))->forward<int>(1) == 6);
}

TEST_CASE("an empty Sequential has no forward()") {
  const nn::Sequential net;
  CHECK(net->is_empty());
  CHECK_THROWS_WITH_AS(net(ones({1})), "Cannot call forward() on an empty Sequential", Error);
}

TEST_CASE("parts of Sequential go by their number or their name") {
  nn::Sequential net(
      {{"fc", nn::Linear(3, 4)}, {std::string("act"), std::make_shared<nn::ReLUImpl>()}});
  net->push_back(nn::Linear(4, 4));
  net->push_back("twice", twice);
  net->push_back("any", nn::AnyModule(nn::Tanh()));
  CHECK(net->named_children().keys() == Names{"fc", "act", "2", "twice", "any"});
  CHECK(net->size() == 5);
  CHECK_THROWS_WITH_AS(net->push_back("fc", nn::ReLU()), "Submodule 'fc' already defined", Error);
  CHECK(net->size() == 5);
  OrderedDict<std::string, nn::AnyModule> dict;
  dict.insert("a", nn::AnyModule(nn::ReLU()));
  dict.insert("b", nn::AnyModule(nn::Tanh()));
  CHECK(nn::Sequential(dict)->named_children().keys() == Names{"a", "b"});
}

TEST_CASE("Sequential gives its parts by position, as what they are") {
  const nn::Sequential net(nn::Linear(3, 4), nn::ReLU());
  CHECK(&net->at<nn::LinearImpl>(0) == net[0].get());
  CHECK(net->ptr<nn::ReLUImpl>(1) == net->ptr(1));
  CHECK(net[1]->as<nn::ReLU>());
  CHECK_THROWS_WITH_AS(net->at<nn::ReLUImpl>(0), Contains("Attempted to cast module of type"),
                       Error);
  CHECK_THROWS_WITH_AS(net->ptr(2), Contains("Index out of range: 2"), Error);
  CHECK_THROWS_WITH_AS(net[7], Contains("Index out of range"), Error);
  size_t count = 0;
  for (const nn::AnyModule& part : *net) count += !part.is_empty();
  CHECK(count == 2);
}

TEST_CASE("extend() appends what a container holds and shares it") {
  nn::Sequential a(nn::Linear(2, 2)), b{nn::Tanh(), nn::ReLU()};
  a->extend(*b);
  a->extend(std::vector<std::shared_ptr<nn::ReLUImpl>>{std::make_shared<nn::ReLUImpl>()});
  CHECK(a->size() == 4);
  CHECK(a[1] == b[0]);
  CHECK(a->named_children().keys() == Names{"0", "1", "2", "3"});
  b->extend(*b);  // itself
  CHECK(b->size() == 4);
  CHECK(b[2] == b[0]);
  nn::ModuleList list(nn::Linear(2, 2), nn::Tanh());
  list->extend(*list);
  CHECK(list->size() == 4);
  CHECK(list->ptr(3) == list->ptr(1));
  nn::ParameterList parameters(ones({2}), zeros({3}));
  *parameters += *parameters;
  CHECK(parameters->size() == 4);
}

TEST_CASE("a holder of Sequential is shared; its clone is another with the same names and values") {
  nn::Sequential net({{"fc", nn::Linear(3, 3)}, {"f", nn::Functional(twice)}});
  net->push_back(nn::Sequential(nn::Linear(3, 1)));
  net->eval();
  const nn::Sequential same(net);
  CHECK(same.get() == net.get());
  const nn::Sequential copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  CHECK(copy->named_children().keys() == net->named_children().keys());
  CHECK_FALSE(copy->is_training());
  CHECK_FALSE(copy[1]->is_training());
  const Tensor x = randn({2, 3}), y = net(x);
  CHECK(copy(x).equal(y));
  const NoGradGuard no_grad;
  for (const Tensor& p : copy->parameters()) p.zero_();
  CHECK(net(x).equal(y));
  CHECK_FALSE(copy(x).equal(y));
}

TEST_CASE("a model with a Sequential in it is cloned with it") {
  struct Model : nn::Cloneable<Model> {
    Model() { Model::reset(); }
    void reset() override {
      body = register_module("body", nn::Sequential(nn::Linear(2, 2), nn::Tanh()));
    }
    nn::Sequential body{nullptr};
  };
  const Model model;
  const auto copy = std::dynamic_pointer_cast<Model>(model.clone());
  const Tensor x = randn({3, 2});
  CHECK(copy->body(x).equal(model.body(x)));
  CHECK(copy->body.ptr() == copy->children()[0]);
  CHECK(copy->body[0] != model.body[0]);
}

TEST_CASE("a Sequential calls what takes the place of a part, and not what was taken out") {
  nn::Sequential net(nn::Linear(2, 3), nn::Linear(3, 3), nn::Tanh());
  nn::Module& base = *net;
  const nn::Linear other = base.replace_module("1", nn::Linear(3, 4));
  const Tensor x = ones({1, 2});
  CHECK(net(x).equal(tanh(other(net->at<nn::LinearImpl>(0).forward(x)))));
  CHECK_THROWS_WITH_AS(base.replace_module("1", nn::ReLU()),
                       Contains("part \"1\" is a halftape::nn::LinearImpl, whose place"), Error);
  CHECK(net->named_children()["1"] == other.ptr());
  base.unregister_module("2");
  CHECK(net(x).equal(other(net->at<nn::LinearImpl>(0).forward(x))));
  base.unregister_module("0");
  CHECK(net->clone()->named_children().keys() == Names{"1"});
  CHECK(net->size() == 1);
}

TEST_CASE("the loss of classes needs logits that have a dimension") {
  const nn::Sequential net{nn::Tanh()};
  CHECK_THROWS_WITH_AS(net->loss(ones({}), zeros({}, kInt64)), Contains("gives a 0-dim tensor"),
                       Error);
}

TEST_CASE("Functional binds further arguments, and must hold a function") {
  const Tensor x = tensor({-1.0, 2.0});
  CHECK(nn::Functional(relu)(x).equal(relu(x)));
  CHECK(nn::Functional(elu, 0.5, 2, 3)(x).equal(elu(x, 0.5, 2, 3)));
  CHECK(nn::Functional([](Tensor t) { return t; })(x).is_same(x));
  CHECK_THROWS_WITH_AS(nn::Functional(nn::FunctionalImpl::Function{}), Contains("empty"), Error);
}

TEST_CASE("Sequential prints its parts under their names") {
  std::ostringstream out;
  out << nn::Sequential({{"fc", nn::Linear(1, 2)}, {"f", nn::Functional(relu)}});
  CHECK(out.str() ==
        "halftape::nn::Sequential(\n"
        "  (fc): halftape::nn::Linear(in_features=1, out_features=2, bias=true)\n"
        "  (f): halftape::nn::Functional()\n"
        ")");
}
