// ModuleList, ModuleDict, ParameterList and ParameterDict.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

using namespace halftape;
using doctest::Contains;
using Names = std::vector<std::string>;
using Pointer = std::shared_ptr<nn::Module>;

TEST_CASE("ModuleList numbers what it is given, by pointer, holder or value") {
  nn::ModuleList list(nn::Linear(2, 3), std::make_shared<nn::ReLUImpl>(), nn::TanhImpl());
  list->push_back(nn::Linear(3, 1));
  CHECK(list->size() == 4);
  CHECK(list->named_children().keys() == Names{"0", "1", "2", "3"});
  CHECK(list->named_parameters().keys() == Names{"0.weight", "0.bias", "3.weight", "3.bias"});
  CHECK(list->at<nn::LinearImpl>(3).options.in_features() == 3);
  CHECK(list->ptr<nn::ReLUImpl>(1) == list[1]);
  CHECK_THROWS_WITH_AS(list->at<nn::ReLUImpl>(0), Contains("Unable to cast"), Error);
  CHECK_THROWS_WITH_AS(list[4], Contains("Index out of range: 4 of a ModuleList of 4"), Error);
  Names seen;
  for (const auto& module : *list) seen.push_back(module->name());
  CHECK(seen[2] == "halftape::nn::TanhImpl");
}

TEST_CASE("ModuleList inserts before a position, and what follows moves on") {
  nn::ModuleList list(nn::Linear(1, 1), nn::Linear(2, 2));
  list->insert(1, nn::ReLU());
  list->insert(3, nn::Tanh());
  CHECK(list->named_children().keys() == Names{"0", "1", "2", "3"});
  CHECK(list->named_children()["1"]->as<nn::ReLU>());
  CHECK(list->named_children()["2"] == list[2]);
  CHECK(list->at<nn::LinearImpl>(2).options.in_features() == 2);
  CHECK(list[3]->as<nn::Tanh>());
  CHECK_THROWS_WITH_AS(list->insert(5, nn::ReLU()), Contains("Index out of range: 5"), Error);
  CHECK(list->size() == 4);
}

TEST_CASE("ModuleList extends by other lists; a clone has modules of its own") {
  nn::ModuleList a(nn::Linear(1, 1)), b{nn::ReLU(), nn::ModuleList{nn::Tanh(), nn::Tanh()}};
  a->extend(*b);
  CHECK(a->size() == 3);
  CHECK(a[2] == b[1]);
  a->eval();
  const nn::ModuleList copy = std::dynamic_pointer_cast<nn::ModuleListImpl>(a->clone());
  CHECK(copy->size() == 3);
  CHECK_FALSE(copy->is_training());
  CHECK(copy[0] != a[0]);
  CHECK(copy->parameters()[0].equal(a->parameters()[0]));
}

TEST_CASE("what replace_module() and unregister_module() change, a ModuleList has changed") {
  nn::ModuleList list(nn::Linear(1, 1), nn::ReLU(), nn::Tanh());
  list->replace_module("1", nn::Identity());
  CHECK(list[1]->as<nn::Identity>());
  CHECK(list->clone()->named_children()["1"]->as<nn::Identity>());
  list->unregister_module("0");
  CHECK(list->size() == 2);
  CHECK(list[0]->as<nn::Identity>());
  CHECK_THROWS_WITH_AS(list->insert(0, nn::ReLU()), Contains("\"0\" was taken out"), Error);
  CHECK(list->size() == 2);
  CHECK(list->named_children().keys() == Names{"1", "2"});
}

TEST_CASE("ModuleDict keeps the order of names; an update replaces in place") {
  const std::vector<std::pair<std::string, Pointer>> pairs = {{"fc", nn::Linear(1, 2).ptr()},
                                                              {"act", nn::ReLU().ptr()}};
  nn::ModuleDict dict(pairs);
  CHECK(dict->keys() == Names{"fc", "act"});
  CHECK(dict["fc"] == pairs[0].second);
  CHECK(dict->at<nn::LinearImpl>("fc").options.out_features() == 2);
  const OrderedDict<std::string, Pointer> more = {{"act", nn::Tanh().ptr()},
                                                  {"last", nn::Identity().ptr()}};
  dict->update(more);
  CHECK(dict->keys() == Names{"fc", "act", "last"});
  CHECK(dict["act"]->as<nn::Tanh>());
  CHECK(dict->named_children()["act"] == dict["act"]);
  dict->update(*nn::ModuleDict(more));
  CHECK(dict->values().size() == 3);
  CHECK(dict->items()[2].first == "last");
  CHECK_THROWS_WITH_AS(dict["none"], "Submodule 'none' is not defined", Error);
  CHECK_THROWS_WITH_AS(dict->pop("none"), Contains("'none' is not defined"), Error);
  CHECK(dict->pop("fc") == pairs[0].second);
  CHECK_FALSE(dict->contains("fc"));
  CHECK(dict->parameters().empty());
  const nn::ModuleDict copy = std::dynamic_pointer_cast<nn::ModuleDictImpl>(dict->clone());
  CHECK(copy->keys() == dict->keys());
  CHECK(copy["act"] != dict["act"]);
  dict->clear();
  CHECK(dict->empty());
  CHECK(copy->size() == 2);
}

TEST_CASE("ParameterList holds tensors as they were: those that train and those that do not") {
  const Tensor a = randn({1, 2}).requires_grad_(), b = randn({3});
  nn::ParameterList list(a, b);
  list->append(randn({2}));
  CHECK(list->size() == 3);
  CHECK(list[0].is_same(a));
  CHECK(list[0].requires_grad());
  CHECK_FALSE(list->at(1).requires_grad());
  CHECK(list->named_parameters().keys() == Names{"0", "1", "2"});
  nn::ParameterList other(a);
  *other += *list;
  other->extend(std::vector<Tensor>{b});
  CHECK(other->size() == 5);
  CHECK(other[4].is_same(b));
  CHECK_THROWS_WITH_AS(list[3], Contains("Index out of range"), Error);
  const nn::ParameterList copy = std::dynamic_pointer_cast<nn::ParameterListImpl>(list->clone());
  CHECK(copy[0].equal(a));
  CHECK_FALSE(copy[0].is_same(a));
  CHECK(copy[0].requires_grad());
  CHECK_FALSE(copy[1].requires_grad());
}

TEST_CASE("lists print and clone undefined parameters, too") {
  const nn::ParameterList list(Tensor(), ones({2}));
  nn::ParameterDict dict;
  dict->insert("none", Tensor());
  std::ostringstream out;
  out << list << '\n' << dict;
  CHECK(out.str() ==
        "halftape::nn::ParameterList(\n(0): Parameter containing: [undefined]\n"
        "(1): Parameter containing: [Float of size [2]]\n)\n"
        "halftape::nn::ParameterDict(\n(none): Parameter containing: [undefined]\n)");
  CHECK(list->clone()->parameters().size() == 1);
  CHECK(dict->clone()->as<nn::ParameterDict>()->contains("none"));
}

TEST_CASE("ParameterDict updates names that it has, all or none") {
  nn::ParameterDict dict(OrderedDict<std::string, Tensor>{{"a", ones({1})}, {"b", ones({2})}});
  nn::ParameterDict wrong, right;
  wrong->insert("a", zeros({1}));
  wrong->insert("c", zeros({1}));
  CHECK_THROWS_WITH_AS(dict->update(*wrong), "Parameter 'c' is not defined", Error);
  CHECK(dict["a"].equal(ones({1})));
  right->insert("a", zeros({1}));
  dict->update(*right);
  CHECK(dict->get("a").equal(zeros({1})));
  CHECK(dict->keys() == Names{"a", "b"});
  CHECK(dict->pop("b").equal(ones({2})));
  CHECK_FALSE(dict->contains("b"));
  CHECK_THROWS_WITH_AS(dict->pop("b"), "Parameter 'b' is not defined", Error);
  const nn::ParameterDict copy = std::dynamic_pointer_cast<nn::ParameterDictImpl>(dict->clone());
  dict->clear();
  CHECK(dict->empty());
  CHECK(copy->values()[0].equal(zeros({1})));
}

TEST_CASE("lists print what they hold") {
  std::ostringstream out;
  out << nn::ModuleList{nn::ReLU(), nn::Tanh()} << '\n' << nn::ParameterList(ones({1, 2}));
  CHECK(out.str() ==
        "halftape::nn::ModuleList(\n  (0): halftape::nn::ReLU()\n  (1): halftape::nn::Tanh()\n)\n"
        "halftape::nn::ParameterList(\n(0): Parameter containing: [Float of size [1, 2]]\n)");
}

TEST_CASE("what is added behind a module that was taken out gets a number that is free") {
  nn::Sequential parts(nn::Linear(2, 2), nn::Linear(2, 2));
  parts->unregister_module("0");
  parts->push_back(nn::ReLU());
  CHECK(parts->named_children().keys() == Names{"1", "2"});
  nn::ModuleList list(nn::Linear(2, 2), nn::Linear(2, 2));
  list->unregister_module("0");
  list->push_back(nn::ReLU());
  CHECK(list->named_children().keys() == Names{"1", "2"});
  CHECK_THROWS_WITH_AS(list->insert(1, nn::ReLU()), Contains("\"0\" was taken out"), Error);
}
