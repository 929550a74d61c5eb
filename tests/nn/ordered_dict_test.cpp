// OrderedDict: what it finds, in which order, and what it refuses.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

using namespace halftape;
using doctest::Contains;

using Dict = OrderedDict<std::string, int>;
using Names = std::vector<std::string>;

TEST_CASE("an ordered dict keeps the order of insertion through erasing and updating") {
  Dict dict{{"b", 1}, {"a", 2}, {"c", 3}};
  CHECK(dict.keys() == Names{"b", "a", "c"});
  CHECK(dict.values() == std::vector<int>{1, 2, 3});
  CHECK(dict.pairs()[1] == std::pair<std::string, int>("a", 2));
  CHECK(dict.items().size() == 3);
  CHECK(dict.front().key() == "b");
  CHECK(*dict.back() == 3);
  CHECK(dict[1].key() == "a");
  CHECK(dict["a"] == 2);
  dict.erase("a");
  dict.update(Dict{{"d", 4}});
  dict.insert("a", 5);
  CHECK(dict.keys() == Names{"b", "c", "d", "a"});
  dict["a"] = 6;
  Dict copy = dict;
  CHECK(copy["a"] == 6);
  copy.clear();
  CHECK(copy.is_empty());
  CHECK(dict.size() == 4);
  CHECK(dict.find("x") == nullptr);
  CHECK(*dict.find("d") == 4);
}

TEST_CASE("an ordered dict refuses keys it has, keys it has not, and the ends of nothing") {
  Dict dict("Penguin");
  CHECK(dict.key_description() == "Penguin");
  CHECK_THROWS_WITH_AS(dict.front(), Contains("front() on an empty"), Error);
  CHECK_THROWS_WITH_AS(dict.back(), Contains("back() on an empty"), Error);
  dict.insert("a", 1);
  CHECK_THROWS_WITH_AS(dict.insert("a", 2), "Penguin 'a' already defined", Error);
  CHECK_THROWS_WITH_AS(dict["b"], "Penguin 'b' is not defined", Error);
  CHECK_THROWS_WITH_AS(dict.erase("b"), "Penguin 'b' is not defined", Error);
  CHECK_THROWS_WITH_AS(dict[1], Contains("index 1 of 1"), Error);
  CHECK_THROWS_WITH_AS(dict.update(Dict{{"z", 1}, {"a", 2}}), Contains("'a' already"), Error);
  CHECK(dict.keys() == Names{"a"});  // nothing was taken over
}
