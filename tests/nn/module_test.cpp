// Module: what it registers, walks, converts, prints and clones. And ModuleHolder.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

using namespace halftape;
using doctest::Contains;
using Names = std::vector<std::string>;

struct Plain : nn::Module {};
struct AroundPlain : nn::Cloneable<AroundPlain> {
  AroundPlain() { AroundPlain::reset(); }
  void reset() override { register_module("plain", std::make_shared<Plain>()); }
};

namespace {

struct Leaf : nn::Module {
  explicit Leaf(double value = 1) {
    w = register_parameter("w", full({2}, value));
    b = register_buffer("b", full({2}, value));
  }
  Tensor w, b;
};

/// root(a: Leaf, inner: (a: Leaf, b: Leaf))
struct Tree : nn::Module {
  Tree() : Module("Tree") {
    a = register_module("a", std::make_shared<Leaf>(1));
    inner = register_module("inner", std::make_shared<nn::Module>("Inner"));
    inner->register_module("a", std::make_shared<Leaf>(2));
    inner->register_module("b", std::make_shared<Leaf>(3));
    own = register_parameter("own", ones({1}));
  }
  std::shared_ptr<Leaf> a;
  std::shared_ptr<nn::Module> inner;
  Tensor own;
};

struct CloneableNet : nn::Cloneable<CloneableNet> {
  CloneableNet() { CloneableNet::reset(); }
  void reset() override {
    fc = register_module("fc", nn::Linear(3, 2));
    scale = register_parameter("scale", ones({2}));
    seen = register_buffer("seen", zeros({1}, kInt64));
  }
  nn::Linear fc{nullptr};
  Tensor scale, seen;
  int steps = 0;
};

/// Registers in the constructor what reset() forgets.
struct Forgetful : nn::Cloneable<Forgetful> {
  Forgetful() { w = register_parameter("w", ones({1})); }
  Tensor w;
};

}  // namespace

TEST_CASE("a module's name is what it was given, or that of its class") {
  CHECK(Plain().name() == "Plain");
  CHECK(Tree().name() == "Tree");
  CHECK(nn::Linear(1, 1)->name() == "halftape::nn::LinearImpl");
}

TEST_CASE("names must be there, without dots, and each once") {
  Plain m;
  CHECK_THROWS_WITH_AS(m.register_parameter("", ones({1})), "Parameter name must not be empty",
                       Error);
  CHECK_THROWS_WITH_AS(m.register_parameter("a.b", ones({1})),
                       Contains("Parameter name must not contain a dot (got 'a.b')"), Error);
  CHECK_THROWS_WITH_AS(m.register_buffer("", ones({1})), "Buffer name must not be empty", Error);
  CHECK_THROWS_WITH_AS(m.register_module("x.", nn::Linear(1, 1)),
                       Contains("Submodule name must not contain a dot (got 'x.')"), Error);
  m.register_parameter("p", ones({1}));
  m.register_buffer("p", ones({1}));
  m.register_module("p", nn::Linear(1, 1));
  CHECK_THROWS_WITH_AS(m.register_parameter("p", ones({1})), "Parameter 'p' already defined",
                       Error);
  CHECK_THROWS_WITH_AS(m.register_buffer("p", ones({1})), "Buffer 'p' already defined", Error);
  CHECK_THROWS_WITH_AS(m.register_module("p", nn::Linear(1, 1)), "Submodule 'p' already defined",
                       Error);
  CHECK_THROWS_WITH_AS(m.register_module("null", std::shared_ptr<Plain>()), Contains("empty"),
                       Error);
}

TEST_CASE("an undefined parameter keeps its name and is not seen; asking it for a gradient warns") {
  std::string warned;
  const auto before = set_warning_handler([&](const std::string& text) { warned += text; });
  Plain m;
  m.register_parameter("none", Tensor(), false);
  CHECK(warned.empty());
  m.register_parameter("other", Tensor());
  set_warning_handler(before);
  CHECK(warned.find("Ignoring the `requires_grad=true` function parameter") != std::string::npos);
  CHECK(m.parameters().empty());
  CHECK(m.named_parameters().is_empty());
  CHECK_THROWS_AS(m.register_parameter("none", ones({1})), Error);
  CHECK_NOTHROW(m.to(kFloat64));
}

TEST_CASE("parameters come in order of registration, a module's own before those below it") {
  const Tree tree;
  CHECK(tree.named_parameters().keys() == Names{"own", "a.w", "inner.a.w", "inner.b.w"});
  CHECK(tree.named_buffers().keys() == Names{"a.b", "inner.a.b", "inner.b.b"});
  CHECK(tree.named_parameters(false).keys() == Names{"own"});
  CHECK(tree.parameters().size() == 4);
  CHECK(tree.buffers(false).empty());
  CHECK(tree.named_parameters()["a.w"].is_same(tree.a->w));
  CHECK_THROWS_WITH_AS(tree.named_parameters()["b.w"], "Parameter 'b.w' is not defined", Error);
}

TEST_CASE("modules() and named_modules() walk from the top, with the module itself or without") {
  const auto tree = std::make_shared<Tree>();
  CHECK(tree->named_modules().keys() == Names{"", "a", "inner", "inner.a", "inner.b"});
  CHECK(tree->named_modules("net").keys() ==
        Names{"net", "net.a", "net.inner", "net.inner.a", "net.inner.b"});
  CHECK(tree->named_modules("", false).keys() == Names{"a", "inner", "inner.a", "inner.b"});
  CHECK(tree->modules().front() == tree);
  CHECK(tree->modules(false).front() == tree->a);
  CHECK(tree->children() == std::vector<std::shared_ptr<nn::Module>>{tree->a, tree->inner});
  CHECK(tree->named_children().keys() == Names{"a", "inner"});
}

TEST_CASE("a module that no shared_ptr owns cannot give itself as one") {
  const Tree tree;
  CHECK_THROWS_WITH_AS(tree.modules(), Contains("retrieve your top-level module as a shared_ptr"),
                       Error);
  CHECK(tree.modules(false).size() == 4);
}

TEST_CASE("apply() hands over references, names and pointers, from the top") {
  const auto tree = std::make_shared<Tree>();
  Names names;
  tree->apply([&](nn::Module& m) { names.push_back(m.name()); });
  CHECK(names.size() == 5);
  CHECK(names.front() == "Tree");
  names.clear();
  tree->apply([&](const std::string& name, nn::Module&) { names.push_back(name); }, "t");
  CHECK(names == Names{"t", "t.a", "t.inner", "t.inner.a", "t.inner.b"});
  std::vector<std::shared_ptr<nn::Module>> seen;
  tree->apply([&](const std::shared_ptr<nn::Module>& m) { seen.push_back(m); });
  CHECK(seen == tree->modules());
  names.clear();
  tree->apply([&](const std::string& name, const std::shared_ptr<nn::Module>& m) {
    if (m->as<Leaf>()) names.push_back(name);
  });
  CHECK(names == Names{"a", "inner.a", "inner.b"});
  const Tree& constant = *tree;
  int count = 0;
  constant.apply([&](const nn::Module&) { ++count; });
  constant.apply([&](const std::string&, const nn::Module&) { ++count; });
  CHECK(count == 10);
  count = 0;
  Tree().apply([count](nn::Module&) mutable { ++count; });  // no shared_ptr is asked for
}

TEST_CASE("apply() may replace the submodules of what it is called with") {
  const auto tree = std::make_shared<Tree>();
  tree->apply([](nn::Module& m) {
    if (m.named_children().contains("b")) m.replace_module("b", nn::Identity());
  });
  CHECK(tree->inner->named_children()["b"]->as<nn::Identity>());
}

TEST_CASE("submodules can be replaced and taken out") {
  Tree tree;
  const auto other = tree.replace_module("a", std::make_shared<Leaf>(7));
  CHECK(tree.named_children()["a"] == other);
  CHECK(tree.named_children().keys() == Names{"a", "inner"});
  const nn::Linear fc = tree.replace_module("inner", nn::Linear(2, 2));
  CHECK(tree.named_parameters()["inner.weight"].is_same(fc->weight));
  tree.unregister_module("a");
  CHECK(tree.children().size() == 1);
  CHECK_THROWS_WITH_AS(tree.replace_module("a", other), "Submodule 'a' is not defined", Error);
  CHECK_THROWS_WITH_AS(tree.unregister_module("a"), "No Module with name `a` is registered", Error);
}

TEST_CASE("as() gives the module as its class or its holder's, and null as another") {
  const nn::Linear fc(3, 4);
  const std::shared_ptr<nn::Module> base = fc.ptr();
  CHECK(base->as<nn::Linear>() == fc.get());
  CHECK(base->as<nn::LinearImpl>() == fc.get());
  CHECK(base->as<nn::Module>() == fc.get());
  CHECK(base->as<nn::ReLU>() == nullptr);
  const nn::Module& constant = *base;
  CHECK(constant.as<nn::Linear>() == fc.get());
  CHECK(constant.as<const nn::LinearImpl>() == fc.get());
}

TEST_CASE("a module does not become a part of its own part") {
  nn::Sequential outer, middle, inner;
  outer->push_back(middle);
  middle->push_back(inner);
  CHECK_THROWS_WITH_AS(inner->push_back(outer), Contains("a part of its own part"), Error);
  CHECK_THROWS_WITH_AS(inner->push_back(inner), Contains("the module itself"), Error);
  CHECK(outer->parameters().empty());  // ends
}

TEST_CASE("modules nest 500 deep and no deeper, built from either end") {
  nn::Sequential top(nn::Linear(2, 2));
  for (int depth = 2; depth < 500; ++depth) {
    nn::Sequential outer;
    outer->push_back(top);
    top = outer;
  }
  CHECK_THROWS_WITH_AS(nn::Sequential()->push_back(top),
                       Contains("modules are nested more than 500 deep"), Error);
  const Tensor x = ones({1, 2});
  CHECK(top(x).sizes() == Shape{1, 2});
  CHECK(top->named_parameters().keys()[0].size() == 499 * 2 + std::string("weight").size());
  CHECK(top->modules().size() == 500);
  top->to(kFloat64);
  top->eval();
  top->zero_grad();
  std::ostringstream text;
  text << *top;
  CHECK(top->clone()->parameters().size() == 2);

  const auto root = std::make_shared<nn::Module>();
  std::shared_ptr<nn::Module> last = root;
  for (int depth = 1; depth < 500; ++depth)
    last = last->register_module("m", std::make_shared<nn::Module>());
  CHECK_THROWS_WITH_AS(last->register_module("m", std::make_shared<nn::Module>()),
                       Contains("nested more than 500 deep; a ModuleList holds them side by side"),
                       Error);
  CHECK(root->modules().size() == 500);
}

TEST_CASE("train() and eval() reach every submodule") {
  Tree tree;
  tree.eval();
  tree.apply([](const nn::Module& m) { CHECK_FALSE(m.is_training()); });
  tree.inner->train();
  CHECK_FALSE(tree.is_training());
  CHECK(tree.inner->children()[0]->is_training());
}

TEST_CASE("to() converts in place: handles, gradients and requires_grad stay") {
  CloneableNet net;
  const Tensor handle = net.fc->weight;
  net.scale.requires_grad_(false);
  net.fc(ones({1, 3})).sum().backward();
  net.to(kBFloat16);
  CHECK(net.fc->weight.is_same(handle));
  CHECK(handle.dtype() == kBFloat16);
  CHECK(handle.grad().dtype() == kBFloat16);
  CHECK(handle.requires_grad());
  CHECK_FALSE(net.scale.requires_grad());
  CHECK(net.seen.dtype() == kInt64);
  net.to(get_default_device(), kFloat64, true);
  CHECK(net.scale.dtype() == kFloat64);
  net.fc(ones({1, 3}, kFloat64)).sum().backward();
  CHECK(handle.grad().dtype() == kFloat64);
  CHECK_THROWS_WITH_AS(net.to(kInt32), Contains("int32 is not a floating-point dtype"), Error);
}

TEST_CASE("zero_grad() drops gradients, or fills them with zeros") {
  CloneableNet net;
  net.fc(ones({1, 3})).sum().backward();
  const Tensor g = net.fc->weight.grad();
  net.zero_grad(false);
  CHECK(net.fc->weight.grad().is_same(g));
  CHECK(g.equal(zeros({2, 3})));
  CHECK_FALSE(net.scale.grad().defined());
  net.fc->weight.mutable_grad() = full({1, 1}, 8.0).expand({2, 3});  // six elements that are one
  net.zero_grad(false);
  CHECK(net.fc->weight.grad().equal(zeros({2, 3})));
  net.zero_grad();
  CHECK_FALSE(net.fc->weight.grad().defined());
}

TEST_CASE("a program may have zero_grad() keep gradients, modules' and optimizers'") {
  CHECK(zero_grad_sets_to_none());
  CloneableNet net;
  optim::SGD optimizer(net.fc->parameters(), 0.1);
  net.fc(ones({1, 3})).sum().backward();
  set_zero_grad_sets_to_none(false);
  net.zero_grad();
  CHECK(net.fc->weight.grad().equal(zeros({2, 3})));
  net.fc(ones({1, 3})).sum().backward();
  optimizer.zero_grad();
  CHECK(net.fc->weight.grad().equal(zeros({2, 3})));
  set_zero_grad_sets_to_none(true);
  optimizer.zero_grad();
  CHECK_FALSE(net.fc->weight.grad().defined());
}

TEST_CASE("a class without clone() says how to get one") {
  CHECK_THROWS_WITH_AS(Plain().clone(), Contains("clone() has not been implemented for Plain"),
                       Error);
  CHECK_THROWS_WITH_AS(Plain().clone(), Contains("nn::Cloneable<Plain>"), Error);
  CHECK_THROWS_WITH_AS(AroundPlain().clone(),
                       Contains("clone: the submodule Plain cannot be copied into the one that"),
                       Error);
}

TEST_CASE("a clone has the same values in tensors of its own, which its members are") {
  CloneableNet net;
  net.steps = 3;
  net.eval();
  net.to(kFloat64);
  net.scale.requires_grad_(false);
  const auto copy = std::dynamic_pointer_cast<CloneableNet>(net.clone());
  REQUIRE(copy);
  CHECK(copy->steps == 3);
  CHECK_FALSE(copy->is_training());
  const auto from = net.named_parameters(), to = copy->named_parameters();
  REQUIRE(from.keys() == to.keys());
  for (const auto& item : from) {
    const Tensor& t = to[item.key()];
    CHECK(t.equal(item.value()));
    CHECK(t.dtype() == kFloat64);
    CHECK(t.requires_grad() == item.value().requires_grad());
    CHECK(t.const_data_ptr() != item.value().const_data_ptr());
  }
  CHECK(copy->fc->weight.is_same(to["fc.weight"]));
  CHECK(copy->named_children()["fc"] == copy->fc.ptr());
  CHECK(copy->fc.get() != net.fc.get());
  CHECK(copy->seen.is_same(copy->named_buffers()["seen"]));
  CHECK_FALSE(copy->scale.requires_grad());
  copy->fc(ones({1, 3}, kFloat64)).sum().backward();
  CHECK_FALSE(net.fc->weight.grad().defined());
}

TEST_CASE("a clone that lacks what the original registered is refused with both lists") {
  CHECK_THROWS_WITH_AS(Forgetful().clone(), Contains("has the parameters {}"), Error);
  CHECK_THROWS_WITH_AS(Forgetful().clone(), Contains("original {w}: register each in reset()"),
                       Error);
  CloneableNet net;
  net.register_module("extra", nn::Identity());
  CHECK_THROWS_WITH_AS(net.clone(), Contains("submodules {fc}, and the original {fc, extra}"),
                       Error);
  CloneableNet other;
  other.replace_module("fc", nn::Bilinear(3, 1, 2));
  CHECK_THROWS_WITH_AS(other.clone(), Contains("registered a halftape::nn::LinearImpl where"),
                       Error);
}

TEST_CASE("a module prints itself and, indented, what is below it") {
  std::ostringstream out;
  out << Tree() << '\n' << nn::Linear(1, 2);
  const std::string leaf = nn::detail::name_of(typeid(Leaf));
  CHECK(out.str() == "Tree(\n  (a): " + leaf + "\n  (inner): Inner(\n    (a): " + leaf +
                         "\n    (b): " + leaf +
                         "\n  )\n)\nhalftape::nn::Linear(in_features=1, out_features=2, "
                         "bias=true)");
}

template <class M>
concept MadeOfZero = requires {
  M(0);
};

TEST_CASE("an empty holder is false and throws when it is used") {
  static_assert(!MadeOfZero<nn::Flatten>);  // 0 is no null pointer
  static_assert(!std::is_constructible_v<nn::Linear, const char*, int>);
  static_assert(!std::is_constructible_v<nn::Linear, std::shared_ptr<nn::Conv2dImpl>>);
  static_assert(std::is_convertible_v<std::shared_ptr<nn::LinearImpl>, nn::Linear>);
  CHECK_FALSE(nn::ReLU(0).is_empty());  // inplace=false
  const auto base = std::make_shared<nn::LinearImpl>(1, 2);
  CHECK(nn::Linear(base).ptr() == base);
  nn::Linear empty = nullptr;
  CHECK_FALSE(static_cast<bool>(empty));
  CHECK(empty.is_empty());
  CHECK_THROWS_WITH_AS(static_cast<void>(empty->weight), Contains("Accessing empty ModuleHolder"),
                       Error);
  CHECK_THROWS_AS(empty(ones({1})), Error);
  empty = nn::Linear(1, 1);
  const nn::Linear same(empty);
  CHECK(same.get() == empty.get());
}
