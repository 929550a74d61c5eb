// Gather and the scatters: what they pick, the order of their sums, and indices out of range;
// positions from index arrays and from masks.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "halftape/core/bit_cast.h"
#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::kMostDtypes;
using testing::message;
using testing::values;

namespace {

using Values = std::vector<double>;

Array list(const Shape& shape, const Values& v, Dtype dtype) {
  const Array a(shape, kFloat64, kCPU);
  std::copy(v.begin(), v.end(), a.data<double>());
  return a.to(dtype);
}
Array indices(const Shape& shape, const std::vector<int64_t>& v) {
  const Array a(shape, kInt64, kCPU);
  std::copy(v.begin(), v.end(), a.data<int64_t>());
  return a;
}
Values gather(const Array& x, int dim, const Array& index) {
  const Array y(index.shape(), x.dtype(), kCPU);
  cpu_backend().gather(y, x, dim, index);
  return values(y);
}

}  // namespace

TEST_CASE("gather picks along one dimension in every dtype") {
  for (const Dtype d : kMostDtypes) {
    CAPTURE(d);
    const bool logical = d == kBool;  // holds 0 and 1 only
    const Array x = list({2, 3}, logical ? Values{0, 1, 0, 1, 1, 0} : Values{1, 2, 3, 4, 5, 6}, d);
    CHECK(gather(x, 1, indices({2, 2}, {2, 1, 0, 0})) ==
          (logical ? Values{0, 1, 1, 1} : Values{3, 2, 4, 4}));
    CHECK(gather(x, 0, indices({1, 3}, {1, 0, 1})) ==
          (logical ? Values{1, 1, 0} : Values{4, 2, 6}));
    CHECK(gather(x.transpose(0, 1), 0, indices({3, 2}, {0, 1, 2, 0, 1, 1})) ==
          (logical ? Values{0, 1, 0, 1, 1, 1} : Values{1, 5, 3, 4, 2, 5}));
    CHECK(gather(x, 1, indices({2, 0}, {})).empty());
  }
}

TEST_CASE("gathering rows gives the same by the fast path and by single elements") {
  const Array x = list({4, 3}, {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}, kFloat16);
  const Array rows = indices({5, 1}, {3, 0, 3, 2, 1});
  const Values expected = {30, 31, 32, 0, 1, 2, 30, 31, 32, 20, 21, 22, 10, 11, 12};
  CHECK(gather(x, 0, rows.expand({5, 3})) == expected);
  CHECK(gather(x, 0, rows.expand({5, 3}).clone()) == expected);
  // From a slice of rows that lie apart, and from columns.
  const Array wide(Shape{4, 7}, kFloat16, kCPU);
  cpu_backend().copy(wide.slice(1, 2, 5), x);
  CHECK(gather(wide.slice(1, 2, 5), 0, rows.expand({5, 3})) == expected);
  CHECK(gather(x.transpose(0, 1).clone().transpose(0, 1), 0, rows.expand({5, 3})) == expected);
  CHECK(gather(x, 0, indices({0, 1}, {}).expand({0, 3})).empty());
}

TEST_CASE("an index out of range is named with its position, and nothing is written") {
  const Array x = list({3, 2}, {1, 2, 3, 4, 5, 6}, kFloat32), y = full({2, 2}, 7, kFloat32, kCPU);
  const Array below = indices({2, 2}, {0, 2, -1, 0}), above = indices({2, 2}, {0, 1, 2, 3});
  CHECK(message([&] { cpu_backend().gather(y, x, 0, below); }) ==
        "gather: index -1 at position 2 is out of range [0, 3)");
  CHECK(message([&] { cpu_backend().gather(y, x, 0, above); }) ==
        "gather: index 3 at position 3 is out of range [0, 3)");
  CHECK(message([&] {
          cpu_backend().gather(y, x, 1, indices({2, 2}, {0, 0, 0, 2}));
        }) == "gather: index 2 at position 3 is out of range [0, 2)");
  CHECK(message([&] { cpu_backend().scatter_add(x, y, 0, above); }) ==
        "scatter_add: index 3 at position 3 is out of range [0, 3)");
  for (const int64_t far :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()})
    CHECK(message([&] {
            cpu_backend().gather(y, x, 0, indices({2, 2}, {far, 0, 0, 0}));
          }).find(std::to_string(far)) != std::string::npos);
  // The fast path for whole rows checks too.
  CHECK(message([&] {
          cpu_backend().gather(y, x, 0, indices({2, 1}, {0, 3}).expand({2, 2}));
        }) != "");
  CHECK(values(y) == Values(4, 7));
  CHECK(values(x) == Values{1, 2, 3, 4, 5, 6});
  const Array none({0, 2}, kFloat32, kCPU);
  CHECK(message([&] {
          cpu_backend().gather(y, none, 0, indices({2, 2}, {0, 0, 0, 0}));
        }) == "gather: index 0 at position 0 is out of range [0, 0)");
}

TEST_CASE("where an index repeats, its position is one in what was written once") {
  const Array x({3, 4}, kFloat32, kCPU), y({2, 4}, kFloat32, kCPU);
  const Array rows = indices({2, 1}, {0, 3}).expand({2, 4});
  CHECK(message([&] {
          cpu_backend().gather(y, x, 0, rows, {"embedding", "token"});
        }) == "embedding: token 3 at position 1 is out of range [0, 3)");
  CHECK(message([&] { cpu_backend().scatter(x, y, 0, rows); }) ==
        "scatter: index 3 at position 1 is out of range [0, 3)");
}

TEST_CASE("scatter writes where the index points, and the last of equal positions stays") {
  for (const Dtype d : kMostDtypes) {
    CAPTURE(d);
    const Array y = list({2, 3}, Values(6, 0), d);
    cpu_backend().scatter(y, list({2, 2}, {0, 1, 1, 0}, d), 1, indices({2, 2}, {2, 2, 0, 1}));
    CHECK(values(y) == Values{0, 0, 1, 1, 0, 0});
    cpu_backend().scatter(y.transpose(0, 1), list({1, 2}, {1, 1}, d), 0, indices({1, 2}, {1, 2}));
    CHECK(values(y) == Values{0, 1, 1, 1, 0, 1});
    cpu_backend().scatter(y, Array({0, 3}, d, kCPU), 0, indices({0, 3}, {}));
    CHECK(values(y) == Values{0, 1, 1, 1, 0, 1});
  }
  // Whole rows at once, also into rows that lie apart.
  const Array wide = full({4, 5}, 7, kFloat16, kCPU),
              rows = list({3, 2}, {1, 2, 3, 4, 5, 6}, kFloat16);
  cpu_backend().scatter(wide.slice(1, 1, 3), rows, 0, indices({3, 1}, {2, 0, 2}).expand({3, 2}));
  CHECK(values(wide) == Values{7, 3, 4, 7, 7, 7, 7, 7, 7, 7, 7, 5, 6, 7, 7, 7, 7, 7, 7, 7});
  // A NaN keeps its payload: nothing is computed.
  const Array nan = full({1}, 0, kFloat32, kCPU), to = full({1}, 0, kFloat32, kCPU);
  nan.data<float>()[0] = bit_cast<float>(0x7fc12345u);
  cpu_backend().scatter(to, nan, 0, indices({1}, {0}));
  CHECK(bit_cast<uint32_t>(to.data<float>()[0]) == 0x7fc12345u);
}

TEST_CASE("flat_index counts from both ends, in the dimensions made one") {
  const Array y({3}, kInt64, kCPU);
  const Array a = indices({3}, {0, -1, 1}), b = indices({3}, {-3, 2, 0});
  const Array both[] = {a, b};
  cpu_backend().flat_index(y, both, {2, 3}, {"index"});
  CHECK(values(y) == Values{0, 5, 3});
  const Array grid({2, 2}, kInt64, kCPU);
  const Array spread[] = {indices({2, 1}, {1, -2}).expand({2, 2}),
                          indices({2}, {0, -1}).expand({2, 2})};
  cpu_backend().flat_index(grid, spread, {2, 4}, {"index"});
  CHECK(values(grid) == Values{4, 7, 0, 3});
  CHECK(message([&] {
          cpu_backend().flat_index(y, both, {2, 2}, {"index_put"});
        }) == "index_put: index -3 at position 0 is out of range [-2, 2)");
  CHECK(message([&] {
          cpu_backend().flat_index(y, both, {0, 3}, {"index"});
        }) == "index: index 0 at position 0 is out of range [0, 0)");
}

TEST_CASE("nonzero lists positions in row-major order, for every dtype and layout") {
  for (const Dtype d : kMostDtypes) {
    CAPTURE(d);
    const Array x = list({2, 3}, {0, 1, 0, 1, 0, 1}, d), y({3, 2}, kInt64, kCPU);
    cpu_backend().nonzero(y, x);
    CHECK(values(y) == Values{0, 1, 1, 0, 1, 2});
    cpu_backend().nonzero(y, x.transpose(0, 1));
    CHECK(values(y) == Values{0, 1, 1, 0, 2, 1});
  }
}

TEST_CASE("scatter_add adds where the index points, as often as it points there") {
  for (const Dtype d : {kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const Array y = list({2, 3}, {10, 20, 30, 40, 50, 60}, d);
    cpu_backend().scatter_add(y, list({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, d), 1,
                              indices({2, 4}, {0, 2, 0, 0, 1, 1, 2, 1}));
    CHECK(values(y) == Values{18, 20, 32, 40, 69, 67});
    cpu_backend().scatter_add(y.transpose(0, 1), list({1, 2}, {1, 2}, d), 0,
                              indices({1, 2}, {2, 0}));
    CHECK(values(y) == Values{18, 20, 33, 42, 69, 67});
    cpu_backend().scatter_add(y, Array({0, 3}, d, kCPU), 0, indices({0, 3}, {}));
    CHECK(values(y) == Values{18, 20, 33, 42, 69, 67});
  }
}

TEST_CASE("scatter_add of bools is true wherever something true was added") {
  const Array y = list({4}, {0, 1, 0, 0}, kBool);
  cpu_backend().scatter_add(y, list({4}, {1, 1, 0, 1}, kBool), 0, indices({4}, {0, 1, 2, 0}));
  CHECK(values(y) == Values{1, 1, 0, 0});
}

TEST_CASE("sums of halves are kept in float and rounded once") {
  const Array y = full({1}, 2048, kFloat16, kCPU), ones = full({4}, 1, kFloat16, kCPU);
  cpu_backend().scatter_add(y, ones, 0, indices({4}, {0, 0, 0, 0}));
  CHECK(values(y) == Values{2052});  // one by one, each would be rounded away
  // Beyond 256 bfloat16 counts in twos.
  const Array z = full({1}, 256, kBFloat16, kCPU);
  cpu_backend().scatter_add(z, ones.to(kBFloat16), 0, indices({4}, {0, 0, 0, 0}));
  CHECK(values(z) == Values{260});
}

TEST_CASE("scatter_add adds in the order of the index") {
  // 1e8 + 1 − 1e8 in float: the one is lost in this order, and kept in the other.
  const Array lost = full({1}, 0, kFloat32, kCPU), kept = full({1}, 0, kFloat32, kCPU);
  const Array zeros = indices({3}, {0, 0, 0});
  cpu_backend().scatter_add(lost, list({3}, {1e8, 1, -1e8}, kFloat32), 0, zeros);
  cpu_backend().scatter_add(kept, list({3}, {1e8, -1e8, 1}, kFloat32), 0, zeros);
  CHECK(values(lost) == Values{0});
  CHECK(values(kept) == Values{1});
}
