// Arrays: views are other layouts of the same bytes, and share their version.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {

/// 0, 1, 2, … in this shape.
Array iota(const Shape& shape) {
  const Array a(shape, kInt64, kCPU);
  for (int64_t i = 0; i < a.numel(); ++i) a.data<int64_t>()[i] = i;
  return a;
}

/// The elements in row-major order, read through shape, strides and offset alone.
std::vector<int64_t> values(const Array& a) {
  std::vector<int64_t> out;
  const int64_t* first = a.data<int64_t>();
  Dims at = Dims::filled(a.dim(), 0);
  for (int64_t i = 0; i < a.numel(); ++i) {
    int64_t offset = 0;
    for (int d = 0; d < a.dim(); ++d) offset += at[d] * a.strides()[d];
    out.push_back(first[offset]);
    for (int d = a.dim() - 1; d >= 0 && ++at[d] == a.size(d); --d) at[d] = 0;
  }
  return out;
}
using Values = std::vector<int64_t>;

}  // namespace

TEST_CASE("a new array is contiguous, aligned, and shares no bytes") {
  const Array a({2, 3}, kFloat16, kCPU);
  CHECK(a.contiguous());
  CHECK(a.numel() == 6);
  CHECK(a.version() == 0);
  CHECK(a.unique());
  const Array same = a;  // NOLINT: the second handle is the point
  CHECK_FALSE(a.unique());
  CHECK(same.raw() == a.raw());
  CHECK_FALSE(Array().defined());
  CHECK(has(message([&] { a.data<float>(); }),
            "data: elements of float32 were asked of an array of float16"));
}

TEST_CASE("slices clip to the dimension as Python's do") {
  const Array a = iota({10});
  CHECK(values(a.slice(0, 2, 5)) == Values{2, 3, 4});
  CHECK(values(a.slice(0, -3, -1)) == Values{7, 8});
  CHECK(values(a.slice(0, 0, 10, 4)) == Values{0, 4, 8});
  CHECK(values(a.slice(0, 1, 8, 3)) == Values{1, 4, 7});
  CHECK(values(a.slice(0, 8, 1000)) == Values{8, 9});
  CHECK(values(a.slice(0, -1000, 2)) == Values{0, 1});
  CHECK(a.slice(0, 5, 5).numel() == 0);
  CHECK(a.slice(0, 7, 3).numel() == 0);
  CHECK(a.slice(0, 20, 30).numel() == 0);
  CHECK(values(a.slice(0, 3, 10, 100)) == Values{3});
  CHECK(has(message([&] { a.slice(0, 0, 1, 0); }), "step 0"));
  CHECK(has(message([&] { a.slice(0, 0, 1, -1); }), "step -1"));
}

TEST_CASE("a slice whose step is beyond any size holds the first element") {
  constexpr int64_t most = 0x7fffffffffffffff;
  CHECK(values(iota({10}).slice(0, 0, 10, most)) == Values{0});
  CHECK(values(iota({10}).slice(0, 4, most, most - 1)) == Values{4});
}

TEST_CASE("views of views compose") {
  const Array a = iota({4, 6});
  const Array b = a.slice(1, 1, 6, 2).transpose(0, 1);  // (3, 4): columns 1, 3, 5 as rows
  CHECK(b.shape() == Shape{3, 4});
  CHECK(values(b) == Values{1, 7, 13, 19, 3, 9, 15, 21, 5, 11, 17, 23});
  CHECK(values(b.select(0, -1)) == Values{5, 11, 17, 23});
  CHECK(values(b.select(1, 2).slice(0, 1, 3)) == Values{15, 17});
  CHECK(values(b.select(0, 1).select(0, 3)) == Values{21});
  CHECK(b.select(0, 0).unsqueeze(0).shape() == Shape{1, 4});
  CHECK(values(b.unsqueeze(1).squeeze(1)) == values(b));
  CHECK(values(iota({2, 3, 2}).permute({2, 0, 1})) == Values{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
  CHECK(values(b.to_contiguous()) == values(b));
  CHECK(b.to_contiguous().contiguous());
  CHECK(a.to_contiguous().raw() == a.raw());
  CHECK(a.clone().raw() != a.raw());
  CHECK(has(message([&] { b.select(0, 3); }), "index 3 is out of range for dimension 0 of [3, 4]"));
  CHECK(has(message([&] { b.select(1, -5); }), "index -5"));
}

TEST_CASE("expanding repeats an element by a stride of 0 and copies nothing") {
  const Array row = iota({3}), column = iota({2, 1});
  CHECK(values(row.expand({2, 3})) == Values{0, 1, 2, 0, 1, 2});
  CHECK(row.expand({2, 3}).strides() == Strides{0, 1});
  CHECK(row.expand({2, 3}).raw() == row.raw());
  CHECK(values(column.expand({2, 3})) == Values{0, 0, 0, 1, 1, 1});
  CHECK(row.expand({0, 3}).numel() == 0);
  CHECK(values(row.expand({2, 3}).transpose(0, 1)) == Values{0, 0, 1, 1, 2, 2});
  CHECK(message([&] { row.expand({3, 2}); }) == "expand: [3] does not broadcast to [3, 2]");
  CHECK_THROWS_AS(row.expand({1}), Error);
  CHECK_THROWS_AS(iota({1}).expand({int64_t{1} << 40, int64_t{1} << 40}), Error);
}

TEST_CASE("a reshape is a view where the strides allow it and a copy where they do not") {
  const Array a = iota({4, 6});
  const Array flat = a.reshape({24}), cut = a.reshape({2, 2, 3, 2});
  CHECK(flat.raw() == a.raw());
  CHECK(cut.raw() == a.raw());
  CHECK(values(cut) == values(a));
  // Four of six columns: rows can be split without a copy, but not joined.
  const Array half = a.slice(1, 0, 4);
  const Array rows = half.reshape({2, 2, 2, 2}), joined = half.reshape({16});
  CHECK(rows.raw() == half.raw());
  CHECK(values(rows) == values(half));
  CHECK(joined.raw() != half.raw());
  CHECK(values(joined) == values(half));
  // Every second element: one stride, so any shape is a view.
  const Array stepped = iota({12}).slice(0, 0, 12, 2);
  CHECK(stepped.reshape({2, 3}).raw() == stepped.raw());
  CHECK(values(stepped.reshape({3, 1, 2})) == Values{0, 2, 4, 6, 8, 10});
  const Array turned = a.transpose(0, 1);
  CHECK(turned.reshape({6, 2, 2}).raw() == turned.raw());
  CHECK(values(turned.reshape({6, 2, 2})) == values(turned));
  CHECK(turned.reshape({12, 2}).raw() != turned.raw());  // 6 and 2 cannot be joined in one stride
  CHECK(values(turned.reshape({12, 2})) == values(turned));
  CHECK(values(turned.reshape({8, 3})) == values(turned));
  // An expanded dimension can be split, too.
  const Array repeated = iota({2}).expand({6, 2});
  CHECK(repeated.reshape({2, 3, 2}).raw() == repeated.raw());
  CHECK(values(repeated.reshape({3, 4})) == values(repeated));
  CHECK(iota({0, 3}).reshape({3, 0}).shape() == Shape{3, 0});
  CHECK(iota({1}).slice(0, 0, 1).reshape({}).shape() == Shape{});
}

TEST_CASE("a dimension of size 1 never stands in the way of a view") {
  const Array column = iota({4, 6}).slice(1, 2, 3);  // (4, 1), strides (6, 1)
  Array out;
  REQUIRE(column.try_view({4}, out));
  CHECK(values(out) == Values{2, 8, 14, 20});
  REQUIRE(column.try_view({2, 2}, out));
  CHECK(values(out) == Values{2, 8, 14, 20});
  REQUIRE(column.try_view({1, 4, 1, 1}, out));
  CHECK(values(out) == Values{2, 8, 14, 20});
  CHECK(column.reshape({4}).raw() == column.raw());
}

TEST_CASE("a version belongs to the bytes: every view of them sees it rise") {
  const Array a = iota({4, 6});
  const std::vector<Array> views = {
      a.slice(0, 1, 3), a.transpose(0, 1),   a.select(0, 2),    a.reshape({24}),
      a.unsqueeze(0),   a.expand({2, 4, 6}), a.permute({1, 0}), a};
  a.bump_version();
  views[0].bump_version();
  for (const Array& v : views) CHECK(v.version() == 2);
  const Array copy = a.clone(), converted = a.to(kFloat32);
  CHECK(copy.version() == 0);
  copy.bump_version();
  converted.bump_version();
  CHECK(a.version() == 2);
  CHECK(a.to(kInt64).version() == 2);  // the same bytes, because it is that dtype already
}

TEST_CASE("a layout that reaches outside its buffer is refused with the numbers") {
  const Array a = iota({8});  // 64 bytes, which is also what the allocator gives
  CHECK(values(a.as_strided({2, 2}, {4, 1}, 2)) == Values{2, 3, 6, 7});
  CHECK(values(a.as_strided({3}, {-2}, 6)) == Values{6, 4, 2});
  CHECK(a.as_strided({0}, {1}, 100).numel() == 0);
  const std::string m = message([&] { a.as_strided({2, 2}, {7, 1}, 0); });
  CHECK(has(m, "as_strided: shape [2, 2] with strides [7, 1] and offset 0"));
  CHECK(has(m, "64 bytes"));
  CHECK_THROWS_AS(a.as_strided({2}, {1}, 7), Error);
  CHECK_THROWS_AS(a.as_strided({2}, {-1}, 0), Error);
  CHECK_THROWS_AS(a.as_strided({1}, {1}, -1), Error);
  CHECK_THROWS_AS(a.as_strided({3}, {int64_t{1} << 62}, 0), Error);
  CHECK_THROWS_AS(Array({-1}, kFloat32, kCPU), Error);
  CHECK(has(message([&] { a.as_strided({3}, {int64_t{1} << 62}, 0); }), "outside the 64 bytes"));
  CHECK(has(message([&] { a.as_strided({2}, {1}, int64_t{1} << 60); }), "outside the 64 bytes"));
}

TEST_CASE(
    "bytes beyond a size_t, and a dtype that does not exist, are refused before memory is taken") {
  const int64_t far = int64_t{1} << 62;
  const std::string beyond =
      "shape [4611686018427387904] of float32 has a number of bytes that does not fit " +
      std::to_string(8 * sizeof(size_t)) + " bits";
  CHECK(message([&] { Array({far}, kFloat32, kCPU); }) == beyond);
  CHECK(message([&] { byte_count({far}, kFloat32); }) == beyond);
  CHECK(message([&] { full({1}, 1, kFloat32, kCPU).expand({far}).clone(); }) == beyond);
  // 2^32 + 4 bytes would be 4 in a size_t of 32 bits.
  const Array wide = full({1}, 1, kFloat32, kCPU).expand({(int64_t{1} << 30) + 1});
  if (sizeof(size_t) == 4) {
    const std::string wraps =
        "shape [1073741825] of float32 has a number of bytes that does not fit 32 bits";
    CHECK(message([&] { Array(wide.shape(), kFloat32, kCPU); }) == wraps);
    CHECK(message([&] { wide.to_contiguous(); }) == wraps);
  } else {
    CHECK(byte_count(wide.shape(), kFloat32) == 4294967300);
  }
  CHECK(byte_count({3, 0, 5}, kFloat64) == 0);
  CHECK(byte_count({3, 5}, kFloat16) == 30);
  for (const int number : {10, 99, 255}) {
    const std::string unknown =
        "dtype " + std::to_string(number) + " does not exist; the last one is float64, dtype 9";
    CHECK(message([&] { Array({2}, static_cast<Dtype>(number), kCPU); }) == unknown);
    CHECK(message([&] { iota({2}).to(static_cast<Dtype>(number)); }) == unknown);
  }
}

TEST_CASE("a list too large for the host is an OutOfMemoryError with the figures") {
  CHECK(host_vector<int32_t>(3, 7) == std::vector<int32_t>{7, 7, 7});
  for (const auto& [n, bytes] : {std::pair{int64_t{1} << 44, "140737488355328"},
                                 {int64_t{1} << 61, "18446744073709551615"},
                                 {INT64_MAX, "18446744073709551615"}}) {
    const std::string m = message<OutOfMemoryError>([count = n] { host_vector<double>(count); });
    CHECK(has(m, std::string("out of memory: ") + bytes + " bytes asked for on cpu, "));
    CHECK(has(m, " bytes live in "));
  }
  CHECK(has(message([] { host_vector<double>(-1); }), "a list of -1 elements"));
}

TEST_CASE("one element is read back exactly, and more than one is refused") {
  CHECK(read_int64(iota({3}).slice(0, 2, 3)) == 2);
  CHECK(read_double(full({}, 0.1, kFloat64, kCPU)) == 0.1);
  CHECK(read_int64(full({1, 1}, int64_t{0x7ffffffffffffffd}, kInt64, kCPU)) == 0x7ffffffffffffffd);
  CHECK(has(message([] { read_double(iota({2, 3})); }), "[2, 3] has 6 elements"));
  CHECK(has(message([] { read_int64(iota({0})); }), "needs exactly one"));
}
