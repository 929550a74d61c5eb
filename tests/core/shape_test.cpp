// Shapes: broadcasting, wrapped dimensions, and size arithmetic that notices overflow.
#include <doctest/doctest.h>

#include <string>

#include "halftape/core/array_ref.h"
#include "halftape/core/shape.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/printed.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::printed;

namespace {

constexpr int64_t big = int64_t{1} << 40;

}  // namespace

TEST_CASE("shapes print as tuples and compare by rank and sizes") {
  CHECK(printed(Shape{}) == "[]");
  CHECK(printed(Shape{2}) == "[2]");
  CHECK(printed(Shape{2, 3}) == "[2, 3]");
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{2});
  CHECK_FALSE(Shape{2} == Shape{2, 1});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
}

TEST_CASE("dimensions are inserted and erased in place") {
  Dims d{1, 3};
  d.insert(1, 2);
  d.insert(0, 0);
  d.push_back(4);
  CHECK(d == Dims{0, 1, 2, 3, 4});
  CHECK(d.front() == 0);
  CHECK(d.back() == 4);
  d.erase(2);
  CHECK(d == Dims{0, 1, 3, 4});
  CHECK(d.contains(3));
  CHECK_FALSE(d.contains(2));
  CHECK(d.vec() == std::vector<int64_t>{0, 1, 3, 4});
}

TEST_CASE("a shape holds ten dimensions, and an eleventh is an error") {
  Dims d = Dims::filled(10, 1);
  CHECK(d.size() == 10);
  CHECK(message([&] { d.push_back(1); }) == "shapes have at most 10 dimensions");
  CHECK(d.size() == 10);
  CHECK(has(message([] { Shape{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; }), "at most 10"));
  CHECK(has(message([] { Shape(std::vector<int64_t>(100, 1)); }), "at most 10"));
}

TEST_CASE("numel is the product of the sizes, and 1 without dimensions") {
  CHECK(numel({}) == 1);
  CHECK(numel({0}) == 0);
  CHECK(numel({2, 3, 4}) == 24);
  CHECK(numel({5, 0, 7}) == 0);
  CHECK(numel({(int64_t{1} << 62), 1}) == int64_t{1} << 62);
  CHECK(numel({0x7fffffffffffffff}) == 0x7fffffffffffffff);
}

TEST_CASE("a number of elements beyond 63 bits is an error, also beside a size of 0") {
  CHECK(has(message([] { numel({int64_t{1} << 62, 2}); }), "does not fit 64 bits"));
  CHECK(message([] {
          numel({big, big});
        }) == "shape [" + printed(big) + ", " + printed(big) +
                  "] has a number of elements that does not fit 64 bits");
  CHECK(has(message([] { numel({big, big, 0}); }), "does not fit"));
  CHECK(has(message([] { numel({0, big, big}); }), "does not fit"));
  CHECK(has(message([] { contiguous_strides({2, big, big}); }), "does not fit"));
}

TEST_CASE("a negative size is an error that shows the shape") {
  CHECK(message([] { numel({2, -3}); }) == "shape [2, -3] has a negative size");
  CHECK(has(message([] { numel({0, -1}); }), "negative"));
}

TEST_CASE("checked arithmetic throws instead of wrapping around") {
  constexpr int64_t most = 0x7fffffffffffffff;
  CHECK(checked_mul(most, 1) == most);
  CHECK(checked_mul(-most, 1) == -most);
  CHECK(checked_add(most, -1) == most - 1);
  CHECK(has(message([] { checked_mul(most, 2); }), "9223372036854775807 x 2"));
  CHECK(has(message([] { checked_mul(most, -2); }), "does not fit"));
  CHECK(has(message([] { checked_add(most, 1); }), "9223372036854775807 + 1"));
}

TEST_CASE("contiguous strides count elements from the right and a size of 1 may have any stride") {
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({}) == Strides{});
  CHECK(contiguous_strides({2, 0, 4}) == Strides{4, 4, 1});
  CHECK(is_contiguous({2, 3}, {3, 1}));
  CHECK(is_contiguous({2, 1, 3}, {3, 99, 1}));
  CHECK(is_contiguous({}, {}));
  CHECK(is_contiguous({0, 3}, {3, 1}));
  CHECK_FALSE(is_contiguous({2, 3}, {1, 2}));
  CHECK_FALSE(is_contiguous({2, 3}, {6, 2}));
  CHECK_FALSE(is_contiguous({2, 3}, {0, 1}));
}

TEST_CASE("shapes broadcast by NumPy's rule") {
  CHECK(broadcast("add", {2, 3}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast("add", {2, 3}, {3}) == Shape{2, 3});
  CHECK(broadcast("add", {3}, {2, 1}) == Shape{2, 3});
  CHECK(broadcast("add", {}, {4, 5}) == Shape{4, 5});
  CHECK(broadcast("add", {1, 5}, {4, 1}) == Shape{4, 5});
  CHECK(broadcast("add", {0}, {1}) == Shape{0});
  CHECK(broadcast("add", {1}, {2, 0}) == Shape{2, 0});
  CHECK(broadcasts_to({3}, {2, 3}));
  CHECK(broadcasts_to({2, 1}, {2, 0}));
  CHECK(broadcasts_to({}, {7}));
  CHECK_FALSE(broadcasts_to({2, 3}, {3}));
  CHECK_FALSE(broadcasts_to({3}, {1}));
  CHECK_FALSE(broadcasts_to({0}, {1}));
}

TEST_CASE("shapes that do not broadcast are both named, with the dimension at fault") {
  const std::string m = message([] { broadcast("add", {4, 2, 3}, {4, 3}); });
  CHECK(has(m, "add: shapes [4, 2, 3] and [4, 3]"));
  CHECK(has(m, "dimension 1 is 2 against 4"));
  CHECK(has(message([] { broadcast("mul", {0}, {2}); }), "mul: shapes [0] and [2]"));
}

TEST_CASE("negative dimensions count from the end, and a scalar takes 0 and -1") {
  CHECK(wrap_dim("sum", 2, 3) == 2);
  CHECK(wrap_dim("sum", -1, 3) == 2);
  CHECK(wrap_dim("sum", -3, 3) == 0);
  CHECK(wrap_dim("sum", 0, 0) == 0);
  CHECK(wrap_dim("sum", -1, 0) == 0);
  CHECK(message([] { wrap_dim("sum", 3, 3); }) ==
        "sum: dimension 3 is out of range for 3 dimensions (expected -3 to 2)");
  CHECK(has(message([] { wrap_dim("sum", -4, 3); }), "dimension -4"));
  CHECK(has(message([] { wrap_dim("sum", 1, 0); }), "dimension 1"));
}

TEST_CASE("wrap_dims wraps and sorts dimensions, refuses repetition; an empty list means all") {
  CHECK(wrap_dims("sum", {-1, 0}, 3) == Dims{0, 2});
  CHECK(wrap_dims("sum", {}, 3) == Dims{0, 1, 2});
  CHECK(wrap_dims("sum", {}, 0) == Dims{});
  CHECK(wrap_dims("sum", {0}, 0) == Dims{});
  CHECK(has(message([] { wrap_dims("sum", {1, -2}, 3); }), "sum: dimension 1 appears twice"));
  CHECK(reduced_shape({2, 3, 4}, {0, 2}, false) == Shape{3});
  CHECK(reduced_shape({2, 3, 4}, {0, 2}, true) == Shape{1, 3, 1});
  CHECK(reduced_shape({2}, {0}, false) == Shape{});
}

TEST_CASE("one size of -1 is inferred, and an impossible shape is an error with both counts") {
  CHECK(infer_shape("view", {2, -1}, 6, {6}) == Shape{2, 3});
  CHECK(infer_shape("view", {-1}, 0, {0}) == Shape{0});
  CHECK(infer_shape("view", {}, 1, {1}) == Shape{});
  CHECK(infer_shape("view", {3, 2}, 6, {6}) == Shape{3, 2});
  CHECK(message([] {
          infer_shape("view", {4}, 6, {2, 3});
        }) == "view: [2, 3] has 6 elements, but [4] has 4");
  CHECK(has(message([] { infer_shape("view", {4, -1}, 6, {6}); }), "[4, -1] cannot hold"));
  CHECK(has(message([] { infer_shape("view", {0, -1}, 0, {0}); }), "cannot hold"));
  CHECK(has(message([] { infer_shape("view", {-1, -1}, 4, {4}); }), "only one size"));
  CHECK(has(message([] { infer_shape("view", {-2}, 4, {4}); }), "size -2 in [-2] is negative"));
  CHECK(has(message([] { infer_shape("view", {big, big}, 4, {4}); }), "does not fit"));
}

TEST_CASE("a slice of a list shares its memory, and a slice beyond its end is refused") {
  const Shape shape{2, 3, 4};
  CHECK(Shape(shape.slice(1)) == Shape{3, 4});
  CHECK(shape.slice(1).data() == shape.begin() + 1);
  CHECK(Shape(shape.slice(0, 2)) == Shape{2, 3});
  CHECK(shape.slice(3).empty());
  CHECK(has(message([&] { shape.slice(4); }), "of 3"));
  CHECK(has(message([&] { shape.slice(1, 3); }), "3 numbers from 1 on, of 3"));

  const std::vector<int64_t> numbers{5, 6, 7};
  const ArrayRef<int64_t> list = numbers;
  CHECK(list.at(2) == 7);
  CHECK(list.slice(1).vec() == std::vector<int64_t>{6, 7});
  CHECK(list.slice(3).empty());
  CHECK(has(message([&] { list.at(3); }), "element 3 of 3"));
  CHECK(has(message([&] { list.slice(4); }), "of 3"));
}

TEST_CASE("more elements than places overlap, which costs no memory to see") {
  CHECK(overlaps_itself({999'001, 1000}, {1, 1}));
  CHECK(overlaps_itself({big, 1000}, {1, 2}));
  CHECK_FALSE(overlaps_itself({3, 4}, {4, 3}) != overlaps_itself({4, 3}, {3, 4}));
}
