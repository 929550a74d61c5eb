// AnyModule: what it holds, what it calls, and what it says when that does not fit.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

using namespace halftape;
using doctest::Contains;
using nn::AnyModule;
using nn::AnyValue;

namespace {

struct AdderImpl : nn::Module {
  explicit AdderImpl(int plus = 0) : Module("Adder"), offset(plus) {}
  int forward(int a, int b) const { return a + b + offset; }
  std::shared_ptr<Module> clone(const std::optional<Device>& = {}) const override {
    return std::make_shared<AdderImpl>(*this);
  }
  int offset;
};
HALFTAPE_MODULE(Adder);

struct Join : nn::Module {
  std::string forward(std::string a, const std::string& b, std::string&& c, const char* d) {
    ++calls;
    return a + b + c + d;
  }
  int calls = 0;
};

struct Scale : nn::Module {
  Tensor forward(const Tensor& x, double by = 2, int times = 1) const {
    return x * std::pow(by, times);
  }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(2.0)}, {2, AnyValue(1)})
};

struct Gap : nn::Module {
  int forward(int a, int b = 1, int c = 2) { return a + b + c; }
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(1)})
};

struct Relative : AdderImpl {};

}  // namespace

TEST_CASE("AnyModule calls forward of a module given by pointer, by value and by holder") {
  CHECK(AnyModule(std::make_shared<AdderImpl>(1)).forward<int>(2, 3) == 6);
  CHECK(AnyModule(AdderImpl(1)).forward<int>(2, 3) == 6);
  CHECK(AnyModule(Adder(1)).forward<int>(2, 3) == 6);
  const nn::Linear linear(3, 2);
  const Tensor x = ones({4, 3});
  CHECK(AnyModule(linear).forward(x).equal(linear(x)));
  CHECK(AnyModule(Adder()).any_forward(2, 3).get<int>() == 5);
}

TEST_CASE(
    "AnyModule passes values, const references, rvalues and literals, and leaves its caller's") {
  AnyModule any(Join{});
  const std::string a = "a long enough string to be on the heap, ";
  std::string b = a;
  CHECK(any.forward<std::string>(a, b, b, "end") == a + a + a + "end");
  CHECK(b == a);
  CHECK(any.get<Join>().calls == 1);
}

TEST_CASE("copies of AnyModule share the module, a clone does not") {
  AnyModule any(Adder(1));
  const AnyModule copy = any;
  const AnyModule clone = any.clone();
  any.get<AdderImpl>().offset = 10;
  CHECK(copy.forward<int>(0, 0) == 10);
  CHECK(clone.forward<int>(0, 0) == 1);
  CHECK(clone.ptr() != any.ptr());
  CHECK(AnyModule().clone().is_empty());
  CHECK_THROWS_WITH_AS(AnyModule(Join{}).clone(), Contains("clone() has not been implemented"),
                       Error);
  // A class that inherits another's clone() would come back as that other class.
  CHECK_THROWS_WITH_AS(AnyModule(Relative{}).clone(), Contains("is null"), Error);
}

TEST_CASE("AnyModule gives its module back as what it was put in as, and only that") {
  const auto add = std::make_shared<AdderImpl>(7);
  AnyModule any;
  CHECK(any.is_empty());
  any = add;
  CHECK_FALSE(any.is_empty());
  CHECK(&any.get<AdderImpl>() == add.get());
  CHECK(any.get<Adder>().ptr() == add);
  CHECK(any.ptr() == add);
  CHECK(any.ptr<AdderImpl>() == add);
  CHECK(any.type_info() == typeid(AdderImpl));
  CHECK_THROWS_WITH_AS(any.get<Join>(), Contains("Attempted to cast module of type"), Error);
  CHECK_THROWS_WITH_AS(any.ptr<Relative>(), Contains("AdderImpl to type"), Error);
  CHECK_THROWS_WITH_AS(any.get<nn::Linear>(), Contains("to type halftape::nn::LinearImpl"), Error);
  any = std::make_shared<Join>();
  CHECK(any.forward<std::string>(std::string("a"), std::string("b"), std::string("c"), "d") ==
        "abcd");
  CHECK(add.use_count() == 1);
}

TEST_CASE("AnyModule appends the defaults that FORWARD_HAS_DEFAULT_ARGS gives") {
  const AnyModule any(Scale{});
  const Tensor x = ones({2});
  CHECK(any.forward(x).equal(2 * x));
  CHECK(any.forward(x, 3.0).equal(3 * x));
  CHECK(any.forward(x, 3.0, 2).equal(9 * x));
  const char* range = "expects at least 1 argument(s) and at most 3 argument(s), but received ";
  CHECK_THROWS_WITH_AS(any.forward(), Contains((range + std::string("0.")).c_str()), Error);
  CHECK_THROWS_WITH_AS(any.forward(x, 3.0, 2, 1), Contains((range + std::string("4.")).c_str()),
                       Error);
  CHECK(AnyModule(Gap{}).forward<int>(1, 1, 1) == 3);
  CHECK_THROWS_WITH_AS(AnyModule(Gap{}).forward<int>(1), Contains("has to give #1 to #2"), Error);
}

TEST_CASE("AnyModule says which argument or result does not fit, and does not call then") {
  AnyModule any(Adder{});
  CHECK_THROWS_WITH_AS(
      any.forward<int>(1, 2, 3),
      Contains("AdderImpl's forward() method expects 2 argument(s), but received 3. If "), Error);
  CHECK_THROWS_WITH_AS(any.forward<int>(), Contains("`FORWARD_HAS_DEFAULT_ARGS` macro."), Error);
  CHECK_THROWS_WITH_AS(any.forward<int>(1, 2.0),
                       "Expected argument #1 to be of type int, but received value of type double",
                       Error);
  CHECK_THROWS_WITH_AS(any.forward<float>(1, 2),
                       "Attempted to cast AnyValue to float, but its actual type is int", Error);
  AnyModule join(Join{});
  CHECK_THROWS_AS(join.forward<std::string>("a", "b", "c", "d"), Error);
  CHECK(join.get<Join>().calls == 0);
}

TEST_CASE("an empty AnyModule throws from every call, and a null pointer is not held") {
  const AnyModule any;
  CHECK_THROWS_WITH_AS(any.forward(1), "Cannot call forward() on an empty AnyModule", Error);
  CHECK_THROWS_WITH_AS(any.get<AdderImpl>(), "Cannot call get() on an empty AnyModule", Error);
  CHECK_THROWS_WITH_AS(any.get<Adder>(), "Cannot call get() on an empty AnyModule", Error);
  CHECK_THROWS_WITH_AS(any.ptr(), "Cannot call ptr() on an empty AnyModule", Error);
  CHECK_THROWS_WITH_AS(any.ptr<AdderImpl>(), "Cannot call ptr() on an empty AnyModule", Error);
  CHECK_THROWS_WITH_AS(any.type_info(), "Cannot call type_info() on an empty AnyModule", Error);
  AnyModule held(Adder(1));
  CHECK_THROWS_WITH_AS(held = std::shared_ptr<Join>(), Contains("is null"), Error);
  CHECK(held.forward<int>(1, 1) == 3);
}

TEST_CASE("AnyValue holds the decayed type and converts to nothing else") {
  AnyValue value(5);
  CHECK(value.type_info() == typeid(int));
  CHECK(value.get<int>() == 5);
  CHECK(*value.try_get<int>() == 5);
  CHECK(value.try_get<float>() == nullptr);
  CHECK(value.try_get<int64_t>() == nullptr);
  CHECK_THROWS_WITH_AS(value.get<float>(),
                       "Attempted to cast AnyValue to float, but its actual type is int", Error);
  const std::string text = "text";
  CHECK(AnyValue(text).get<std::string>() == "text");
  CHECK(AnyValue("literal").get<const char*>() == std::string("literal"));
  AnyValue copy = value;
  *copy.try_get<int>() = 6;
  CHECK(value.get<int>() == 5);
  value = std::move(copy);
  CHECK(value.get<int>() == 6);
}
