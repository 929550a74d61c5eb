// Reductions, running ones, sorting orders and windows of the contract.
#include <doctest/doctest.h>

#include "halftape/core/formula/reduce.h"
#include "halftape/tests/support/placed.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("reductions, argmax and argmin give the same bits in every layout") {
  auto reduce = [](const Shape& s, const Dims& dims, Dtype from, Dtype to) {
    ReduceOps::each([&](auto tag) {
      using Op = typename decltype(tag)::type;
      check({Op::name,
             {numbers(reduced_shape(s, dims, false), to)},
             {numbers(s, from, 2)},
             [dims](const Arrays& y, const Arrays& x) {
               tested().reduce(ReduceOps::index<Op>(), y[0], x[0], dims);
             }});
    });
  };
  auto argmax = [](const Shape& s, int dim, Dtype d) {
    check({"argmax",
           {numbers(reduced_shape(s, {dim}, false), kInt64)},
           {numbers(s, d, 2, dim == 0)},
           [dim](const Arrays& y, const Arrays& x) { tested().argmax(y[0], x[0], dim); }});
    check({"argmin",
           {numbers(reduced_shape(s, {dim}, false), kInt64)},
           {numbers(s, d, 2, dim == 0)},
           [dim](const Arrays& y, const Arrays& x) { tested().argmin(y[0], x[0], dim); }});
  };
  for (const Dtype d : floats) {
    for (const Dims& dims :
         {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{1, 2}, Dims{}}) {
      reduce({13, 131, 5}, dims, d, d);
      if (dims.size() == 1) argmax({13, 131, 5}, static_cast<int>(dims[0]), d);
    }
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{31}, int64_t{33},
                            int64_t{1000}, int64_t{4097}, many(100003, 20011)}) {
      reduce({n}, {0}, d, compute_dtype(d));
      if (n > 0) argmax({n}, 0, d);
    }
    const int64_t n = many(8200, 2100);
    for (const Shape& s : {Shape{3, n}, Shape{n, 3}, Shape{260, 130}}) {
      reduce(s, {0}, d, d);
      reduce(s, {1}, d, d);
      argmax(s, 0, d), argmax(s, 1, d);
    }
  }
  for (const Dtype d : whole) {
    for (const Dims& dims : {Dims{0}, Dims{1}, Dims{0, 1}}) reduce({65, 257}, dims, d, kInt64);
    argmax({65, 257}, 0, d), argmax({65, 257}, 1, d);
  }
}

TEST_CASE("running reductions and sorting orders give the same bits in every layout") {
  auto scan = [](const Shape& s, int dim, Dtype from, Dtype to) {
    for (const bool reverse : {false, true})
      ReduceOps::each([&](auto tag) {
        using Op = typename decltype(tag)::type;
        check({std::string("scan of ") + Op::name,
               {numbers(s, to)},
               {numbers(s, from, 2)},
               [=](const Arrays& y, const Arrays& x) {
                 tested().scan(ReduceOps::index<Op>(), y[0], x[0], dim, reverse);
               }});
      });
  };
  auto argsort = [](const Shape& s, int dim, Dtype d) {
    Shape few = s;  // the first third of the order only
    if (!s.empty()) few[dim] = s[dim] / 3;
    for (const bool descending : {false, true})
      for (const Shape& wanted : {s, few})
        check({"argsort",
               {numbers(wanted, kInt64)},
               {numbers(s, d, 2)},
               [=](const Arrays& y, const Arrays& x) {
                 tested().argsort(y[0], x[0], dim, descending);
               }});
  };
  for (const Dtype d : floats) {
    for (const Shape& s : {Shape{5, 33, 3}, Shape{3, 0, 2}, Shape{2, 7, 40}})
      for (const int dim : {0, 1, 2}) scan(s, dim, d, d), argsort(s, dim, d);
    for (const Shape& s : {Shape{}, Shape{1}, Shape{31}, Shape{33}, Shape{many(20011, 5003)}})
      scan(s, 0, d, compute_dtype(d)), argsort(s, 0, d);
    const Shape lines{3, many(9001, 2500)};
    scan(lines, 0, d, d), argsort({3, many(9001, 300)}, 0, d);
    scan(lines, 1, d, d), argsort(lines, 1, d);
  }
  for (const Dtype d : whole)
    for (const int dim : {0, 1})
      scan({65, 131}, dim, d, kInt64), argsort({many(65, 9), 131}, dim, d);
}

TEST_CASE("windows are copied, added up and searched to the same bits in every layout") {
  const auto each = [](const Shape& lead, const Shape& lengths, const Windows& w, Dtype from,
                       Dtype to) {
    Shape image = lead, spread = lead, count = lead;
    for (int64_t n : lengths) image.push_back(n);
    for (int64_t n : w.size) spread.push_back(n);
    for (int i = 0; i < w.dims(); ++i) {
      const int64_t n = (lengths[i] + 2 * w.padding[i] - w.span(i)) / w.stride[i] + 1;
      spread.push_back(n), count.push_back(n);
    }
    check({"unfold",
           {numbers(spread, from)},
           {numbers(image, from, 2)},
           [&](const Arrays& y, const Arrays& x) { tested().unfold(y[0], x[0], w); }});
    check({"fold",
           {numbers(image, to)},
           {numbers(spread, from, 2, false)},
           [&](const Arrays& y, const Arrays& x) { tested().fold(y[0], x[0], w); }});
    check({"argmax_windows",
           {numbers(count, kInt64)},
           {numbers(image, from, 2)},
           [&](const Arrays& y, const Arrays& x) { tested().argmax_windows(y[0], x[0], w); }});
  };
  for (const Dtype d : floats) {
    const Dtype wider = compute_dtype(d);
    each({}, {9}, {3, 1, 1, 0}, d, d);
    each({3}, {many(5003, 1003)}, {4, 3, 2, 2}, d, wider);
    each({2, 3}, {7, 33}, {{3, 2}, {1, 2}, {2, 1}, {1, 0}}, d, d);
    each({5}, {3, 4, 5}, {{2, 1, 3}, {1, 2, 1}, {1, 1, 2}, {1, 0, 2}}, wider, d);
    each({0, 2}, {4, 4}, {{2, 2}, {2, 2}, {1, 1}, {0, 0}}, d, d);
  }
  for (const Dtype d : whole) each({2, 3}, {6, 8}, {{2, 3}, {2, 1}, {1, 1}, {1, 1}}, d, kInt64);
}
