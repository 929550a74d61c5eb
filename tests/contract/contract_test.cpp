// The contract of core/contract/backend.h, call by call, for the backend of the default device: the
// same bits for any number of threads, any alignment and any layout, and no byte written beside the
// output.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "halftape/autograd/tensor_options.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"
#include "halftape/core/machine/threads.h"

using namespace halftape;

namespace {

using Arrays = std::vector<Array>;
Backend& tested() { return backend(get_default_device()); }

/// f(bytes of the element, their number) for every element of a strided array, in row-major order.
template <class F>
void elements(const Array& a, F f) {
  Dims at = Dims::filled(a.dim(), 0);
  const auto item = static_cast<int64_t>(element_size(a.dtype()));
  const int last = a.dim() - 1;
  const int64_t length = a.dim() ? a.size(last) : 1, step = a.dim() ? a.strides()[last] : 0;
  for (int64_t i = 0; i < a.numel(); i += length) {
    int64_t offset = 0;
    for (int d = 0; d < last; ++d) offset += at[d] * a.strides()[d];
    for (int64_t j = 0; j < length; ++j)
      f(static_cast<char*>(a.raw()) + (offset + j * step) * item, static_cast<size_t>(item));
    for (int d = last - 1; d >= 0 && ++at[d] == a.size(d); --d) at[d] = 0;
  }
}

constexpr char kGuard = 0x5a;  // what lies between and around the elements

enum class Layout { AsIs, Plain, Offset, Transposed, Stepped };
constexpr const char* names[] = {"as is", "plain", "offset", "transposed", "stepped"};

/// The elements of `from` in another layout; the rest of the buffer is guard bytes. Not made with
/// copy(), which is itself under test.
Array placed(const Array& from, Layout layout) {
  if (layout == Layout::AsIs) return from;
  const Shape& shape = from.shape();
  const int last = from.dim() - 1;
  Shape room = shape;
  Array to;
  if (layout == Layout::Transposed && last > 0) {
    for (int d = 0; d <= last; ++d) room[d] = shape[last - d];
    Dims order;
    for (int d = 0; d <= last; ++d) order.push_back(last - d);
    to = Array(room, from.dtype(), kCPU).permute(order);
  } else if (layout == Layout::Stepped && last >= 0) {
    room[last] = 3 * shape[last] + 2;
    to = Array(room, from.dtype(), kCPU).slice(last, 1, 1 + 3 * shape[last], 3);
  } else if (layout == Layout::Plain) {
    to = Array(shape, from.dtype(), kCPU);
  } else {  // one element beside every alignment
    to = Array({from.numel() + 2}, from.dtype(), kCPU)
             .as_strided(shape, contiguous_strides(shape), 1);
  }
  std::memset(to.buffer()->bytes(), kGuard, to.buffer()->size());
  std::string bytes;
  elements(from, [&](char* p, size_t n) { bytes.append(p, n); });
  const char* next = bytes.data();
  elements(to, [&](char* p, size_t n) { std::memcpy(p, next, n), next += n; });
  return to;
}

/// The elements' bytes, which become guard bytes; "touched" appended if other bytes have changed.
/// All NaNs are one: which sign a NaN of two NaNs has is left open by IEEE, and by compilers.
std::string taken(const Array& a) {
  std::string bytes;
  visit(a.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    elements(a, [&](char* p, size_t n) {
      T x;
      std::memcpy(&x, p, n);
      const bool nan = convert<double>(x) != convert<double>(x);
      bytes.append(nan ? "NaN\0\0\0\0\0" : p, n);
      std::memset(p, kGuard, n);
    });
  });
  const auto* all = static_cast<const char*>(a.buffer()->bytes());
  for (size_t i = 0; i < a.buffer()->size(); ++i)
    if (all[i] != kGuard) return bytes + "touched";
  return bytes;
}

/// The array's whole buffer as bytes.
Array bytes_of(const Array& a) {
  const auto size = static_cast<int64_t>(a.buffer()->size());
  return {a.buffer(), {size}, {1}, 0, kUInt8};
}
/// The array with all that lies around it, on the tested device.
Array there(const Array& a) {
  if (get_default_device().is_cpu()) return a;
  return {bytes_of(a).to(get_default_device()).buffer(), a.shape(), a.strides(), a.offset(),
          a.dtype()};
}

/// One call: `out` are written or changed in place from what they hold, `in` are read.
struct Call {
  std::string name;
  Arrays out, in;
  std::function<void(const Arrays& y, const Arrays& x)> go;
  bool rows_out = false;  // outputs are only tried contiguous
};

std::string run(const Call& c, int threads, Layout out, Layout in) {
  set_num_threads(threads);
  Arrays y, x;
  for (const Array& a : c.out) y.push_back(there(placed(a, out)));
  for (const Array& a : c.in) x.push_back(there(placed(a, in)));
  c.go(y, x);
  std::string bytes;
  for (const Array& a : y)
    bytes += taken({bytes_of(a).to(kCPU).buffer(), a.shape(), a.strides(), a.offset(), a.dtype()});
  return bytes;
}

/// Of the layouts that are one for arrays of these shapes, the first.
Layout distinct(const Arrays& arrays, Layout layout) {
  int dims = 0;
  for (const Array& a : arrays) dims = std::max(dims, a.dim());
  if (arrays.empty()) return Layout::Plain;
  if (dims == 0 || (dims == 1 && layout == Layout::Transposed))
    return std::min(layout, Layout::Offset);
  return layout;
}

/// Which way of running the call gives other bits than one thread on contiguous arrays. Empty:
/// none.
std::string differs(const Call& c) {
  const int before = get_num_threads();
  const std::string expected = run(c, 1, Layout::Plain, Layout::Plain);
  std::string wrong = expected.ends_with("touched") ? " [writes beside its output]" : "";
  std::set<std::tuple<int, Layout, Layout>> tried{{1, Layout::Plain, Layout::Plain}};
  auto check = [&](int threads, Layout out, Layout in) {
    out = c.rows_out && out > Layout::Offset ? Layout::Plain : distinct(c.out, out);
    in = distinct(c.in, in);
    if (!get_default_device().is_cpu()) threads = 1;  // which are the CPU's
    if (!tried.insert({threads, out, in}).second) return;
    if (run(c, threads, out, in) == expected) return;
    wrong += " [" + std::to_string(threads) + " threads, out " + names[static_cast<int>(out)] +
             ", in " + names[static_cast<int>(in)] + "]";
  };
  if (get_default_device().is_cpu())
    for (const int threads : {2, 3, 4, 8}) check(threads, Layout::Plain, Layout::Plain);
  const Layout others[] = {Layout::Offset, Layout::Transposed, Layout::Stepped};
  for (const Layout l : others) check(1, l, l), check(3, l, l);
  for (const Layout l : others) check(2, Layout::Plain, l), check(4, l, Layout::Plain);
  check(1, Layout::Stepped, Layout::Transposed);
  // A dimension of stride 0 against its own copy, one input and dimension at a time.
  for (size_t i = 0; i < c.in.size(); ++i) {
    for (int d = 0; d < c.in[i].dim() && c.in[i].numel() > 0; ++d) {
      Call repeated = c;
      repeated.in[i] = c.in[i].slice(d, 0, 1).expand(c.in[i].shape());
      if (run(repeated, 1, Layout::Plain, Layout::Plain) !=
          run(repeated, 3, Layout::Plain, Layout::AsIs))
        wrong += " [input " + std::to_string(i) + " repeated along " + std::to_string(d) + "]";
    }
  }
  set_num_threads(before);
  return wrong;
}

void check(const Call& c) {
  const auto wrong = differs(c);
  std::ostringstream what;
  what << c.name << ' ' << c.out[0].dtype() << ' ' << c.out[0].shape() << wrong;
  CHECK_MESSAGE(wrong.empty(), what.str());
}

/// Numbers of every kind, the same for the same seed: mostly in [-8, 8), a few of them special.
Array numbers(const Shape& shape, Dtype dtype, uint32_t seed = 1, bool special = true) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double specials[] = {
      inf,    -inf, std::numeric_limits<double>::quiet_NaN(), -0.0, 0.0, 1e-40, 6e-8, 65504, -1e30,
      1e-310, 1};
  const Array a(shape, dtype, kCPU);
  visit(dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    T* out = a.data<T>();
    uint32_t state = seed;
    for (int64_t i = 0; i < a.numel(); ++i) {
      state = state * 1664525u + 1013904223u;
      const double x = static_cast<double>(state >> 8) * 0x1p-20 - 8;
      out[i] = convert<T>(
          special && is_floating_point(dtype) && i % 37 == 5 ? specials[state >> 16 & 7] : x);
    }
  });
  return a;
}
/// The same with 1 for 0, to divide by.
Array divisors(const Shape& shape, Dtype dtype, uint32_t seed) {
  const Array a = numbers(shape, dtype, seed);
  visit(dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    std::replace(a.data<T>(), a.data<T>() + a.numel(), convert<T>(0), convert<T>(1));
  });
  return a;
}
Array integers(const Shape& shape, int64_t limit, uint32_t seed = 1) {
  const Array a(shape, kInt64, kCPU);
  for (int64_t i = 0; i < a.numel(); ++i)
    a.data<int64_t>()[i] = (seed = seed * 1664525u + 1013904223u, (seed >> 8) % limit);
  return a;
}

const std::vector<Dtype> floats = {kFloat32, kFloat64, kFloat16, kBFloat16};
const std::vector<Dtype> whole = {kBool, kUInt8, kInt32, kInt64};
/// A length that takes several of the device's tiles: the CPU's are larger, and a GPU's threads may
/// be simulated one after the other.
int64_t many(int64_t on_cpu, int64_t on_gpu) {
  return get_default_device().is_cpu() ? on_cpu : on_gpu;
}
// Around a chunk of 32 lanes and across the tiles of 16384 elements; dimensions that merge and that
// do not.
const std::vector<Shape> small = {{},   {0},    {1},       {7},     {31},
                                  {33}, {1000}, {3, 0, 2}, {7, 33}, {3, 5, 2}};
std::vector<Shape> large() {
  return {{many(100003, 70001)}, {517, many(193, 33)}, {2, many(20011, 5003)}};
}

}  // namespace

TEST_CASE("copies, casts, constants and reads give the same bits anyhow") {
  for (const Dtype to : {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    for (const Dtype from : {kBool, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
      for (const Shape& s : {Shape{7, 33}, Shape{33}, Shape{0}, Shape{130, 130}})
        check({"copy", {numbers(s, to)}, {numbers(s, from)}, [](const Arrays& y, const Arrays& x) {
                 tested().copy(y[0], x[0]);
               }});
  for (const Dtype d : floats) {
    for (const Shape& s : small)
      check({"fill", {numbers(s, d)}, {}, [](const Arrays& y, const Arrays&) {
               tested().fill(y[0], 0.1);
             }});
    check({"copy",
           {numbers({2, many(20011, 5003)}, d)},
           {numbers({2, many(20011, 5003)}, kFloat32)},
           [](const Arrays& y, const Arrays& x) { tested().copy(y[0], x[0]); }});
    check({"copy_across and read",
           {numbers({1000}, d), numbers({1000}, d)},
           {numbers({1000}, d)},
           [](const Arrays& y, const Arrays& x) {
             const Array from = x[0].to_contiguous(), to(y[1].shape(), y[1].dtype(), kCPU);
             tested().copy_across(y[0], from, false);
             tested().read(to.raw(), from);
             tested().copy(y[1], to.to(get_default_device()));
           },
           true});
  }
}

TEST_CASE("element-wise kernels of one argument and their gradients give the same bits anyhow") {
  const Params<double> p{1.5, 2.5};
  const Params<Scalar> numbered{p.a, p.b};
  UnaryOps::each([&](auto tag) {
    using Op = typename decltype(tag)::type;
    const OpId op = UnaryOps::index<Op>();
    auto value = [&](const Shape& s, Dtype d) {
      check({Op::name, {numbers(s, d)}, {numbers(s, d, 2)}, [=](const Arrays& y, const Arrays& x) {
               tested().unary(op, y[0], x[0], numbered);
             }});
    };
    for (const Dtype d : floats) {
      for (const Shape& s : {Shape{33}, Shape{0}, Shape{7, 33}}) {
        value(s, d);
        check({std::string(Op::name) + "_grad",
               {numbers(s, d)},
               {numbers(s, d, 2), numbers(s, d, 3)},
               [=](const Arrays& y, const Arrays& x) {
                 tested().unary_grad(op, y[0], x[0], x[1], p);
               }});
      }
    }
    value({65, 257}, kFloat32);
    if constexpr (Op::integers)
      for (const Dtype d : {kUInt8, kInt32, kInt64}) value({7, 33}, d);
  });
  for (const Dtype d : floats)
    for (const auto& shapes : {small, large()})
      for (const Shape& s : shapes)
        check({"gelu", {numbers(s, d)}, {numbers(s, d, 2)}, [&](const Arrays& y, const Arrays& x) {
                 tested().unary(UnaryOps::index<formula::Gelu>(), y[0], x[0], numbered);
               }});
}

TEST_CASE("element-wise kernels of two arguments and where give the same bits anyhow") {
  auto binary = [](const char* name, OpId op, const Shape& s, Dtype y, Dtype a, Dtype b) {
    check({name,
           {numbers(s, y)},
           {numbers(s, a, 2), is_floating_point(b) ? numbers(s, b, 3) : divisors(s, b, 3)},
           [op](const Arrays& to, const Arrays& x) { tested().binary(op, to[0], x[0], x[1]); }});
  };
  BinaryOps::each([&](auto tag) {
    using Op = typename decltype(tag)::type;
    const OpId op = BinaryOps::index<Op>();
    for (const Shape& s : {Shape{33}, Shape{0}, Shape{7, 33}}) {
      if constexpr (Op::of_integers) {
        for (const Dtype d : whole) binary(Op::name, op, s, d, d, d);
        continue;
      }
      for (const Dtype d : floats) binary(Op::name, op, s, Op::compares ? kBool : d, d, d);
      if (!Op::of_floats)
        for (const Dtype d : whole) binary(Op::name, op, s, Op::compares ? kBool : d, d, d);
      binary(Op::name, op, s, Op::compares ? kBool : kFloat32, kFloat16, kBFloat16);
      binary(Op::name, op, s, Op::compares ? kBool : kFloat16, kInt64, kFloat16);
    }
  });
  for (const Shape& s : large())
    for (const Dtype d : floats) binary("mul", BinaryOps::index<formula::Mul>(), s, d, d, d);
  for (const auto* dtypes : {&floats, &whole})
    for (const Dtype d : *dtypes)
      for (const Shape& s : {Shape{7, 33}, Shape{1000}, Shape{130, 130}})
        check({"where",
               {numbers(s, d)},
               {numbers(s, kBool, 2), numbers(s, d, 3), numbers(s, d, 4)},
               [](const Arrays& y, const Arrays& x) { tested().where(y[0], x[0], x[1], x[2]); }});
}

TEST_CASE("reductions, argmax and argmin give the same bits anyhow") {
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

TEST_CASE("running reductions and sorting orders give the same bits anyhow") {
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
    for (const int dim : {0, 1}) scan(lines, dim, d, d), argsort(lines, dim, d);
  }
  for (const Dtype d : whole)
    for (const int dim : {0, 1}) scan({65, 131}, dim, d, kInt64), argsort({65, 131}, dim, d);
}

TEST_CASE("windows are added up and searched to the same bits anyhow") {
  const auto each = [](const Shape& lead, const Shape& lengths, const Windows& w, Dtype from,
                       Dtype to) {
    Shape whole = lead, apart = lead, count = lead;
    for (int64_t n : lengths) whole.push_back(n);
    for (int64_t n : w.size) apart.push_back(n);
    for (int i = 0; i < w.dims(); ++i) {
      const int64_t n = (lengths[i] + 2 * w.padding[i] - w.span(i)) / w.stride[i] + 1;
      apart.push_back(n), count.push_back(n);
    }
    check({"fold",
           {numbers(whole, to)},
           {numbers(apart, from, 2, false)},
           [&](const Arrays& y, const Arrays& x) { tested().fold(y[0], x[0], w); }});
    check({"argmax_windows",
           {numbers(count, kInt64)},
           {numbers(whole, from, 2)},
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

TEST_CASE("matrix products give the same bits anyhow") {
  struct Size {
    int64_t m, n, k;
  };
  // Single tiles, several, one row or column beyond a tile of 128 x 256, and products so small that
  // Eigen takes another path.
  for (const Size z : {Size{1, 1, 1}, Size{2, 5, 3}, Size{5, 6, 7}, Size{33, 31, 9},
                       Size{1, 1, 1000}, Size{129, 1, 100}, Size{1, 257, 100}, Size{129, 257, 40},
                       Size{70, 260, 300}, Size{3, 4, 0}, Size{0, 4, 3}, Size{3, 0, 3}}) {
    for (const Dtype d : floats) {
      const auto random = [d](const Shape& s, uint32_t seed) { return numbers(s, d, seed, false); };
      for (const double beta : {0.0, 0.5})
        check({"gemm",
               {random({z.m, z.n}, 1)},
               {random({z.m, z.k}, 2), random({z.k, z.n}, 3)},
               [beta](const Arrays& y, const Arrays& x) {
                 tested().gemm({.d = y[0], .a = x[0], .b = x[1], .alpha = 1, .beta = beta});
               }});
      check({"gemm, batched with bias",
             {random({2, z.m, z.n}, 1)},
             {random({2, z.m, z.k}, 2), random({2, z.k, z.n}, 3), random({z.n}, 4)},
             [](const Arrays& y, const Arrays& x) {
               tested().gemm({.d = y[0], .a = x[0], .b = x[1], .bias = &x[2], .alpha = -1.5});
             }});
    }
  }
}

TEST_CASE("what follows a product inside its call gives the same bits anyhow") {
  for (const Shape& z : {Shape{5, 6, 7}, Shape{33, 31, 9}, Shape{3, 8, 0}, Shape{129, 257, 40}}) {
    for (const Dtype d : floats) {
      const auto random = [d](const Shape& s, uint32_t seed) { return numbers(s, d, seed, false); };
      const Array a = random({z[0], z[2]}, 2), b = random({z[2], z[1]}, 3),
                  y = random({z[0], z[1]}, 1), columns = random({z[1]}, 4),
                  rows = random({z[0]}, 5);
      check({"gemm with relu", {y}, {a, b, columns}, [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0],
                              .a = x[0],
                              .b = x[1],
                              .bias = &x[2],
                              .alpha = 0.5,
                              .epilogue = Epilogue::Relu});
             }});
      check({"gemm with gelu", {y, y}, {a, b, columns}, [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0],
                              .a = x[0],
                              .b = x[1],
                              .bias = &x[2],
                              .beta = 0.5,
                              .epilogue = Epilogue::Gelu,
                              .aux = out[1]});
             }});
      check({"gemm with gelu's gradient",
             {y, columns},
             {a, b, y},
             [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0],
                              .a = x[0],
                              .b = x[1],
                              .epilogue = Epilogue::DGelu,
                              .aux = x[2],
                              .bias_grad = out[1]});
             }});
      // A library may sum in another order: whole numbers, whose sums are exact.
      const Array whole({z[0], z[2]}, kInt64, kCPU);
      backend(kCPU).random(whole, Distribution::Bits, -3, 4, {.seed = 1, .offset = 0});
      check({"gemm with a bias's gradient",
             {y, rows},
             {whole.to(d), b},
             [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0], .a = x[0], .b = x[1], .bias_grad = out[1]});
             }});
    }
  }
}

TEST_CASE("relu's mask has one bit for each column, and its gradient reads them") {
  for (const Dtype d : floats) {
    for (const int64_t n : {3, 8, 130}) {
      const Array v = numbers({1, n}, d, 3), y({1, n}, d, kCPU),
                  mask({1, relu_mask_bytes(n)}, kUInt8, kCPU), g = full({1, n}, 2, d, kCPU);
      const Array host = full({1, 1}, 1, d, kCPU);
      backend(kCPU).gemm({.d = y, .a = host, .b = v, .epilogue = Epilogue::Relu, .aux = mask});
      for (int64_t j = 0; j < n; ++j) {
        const double x = read_double(v.select(1, j).select(0, 0));
        const bool passes = !(x <= 0);
        CHECK((mask.data<uint8_t>()[j / 8] >> j % 8 & 1) == passes);
        const double got = read_double(y.select(1, j).select(0, 0));
        CHECK((passes ? got == x || x != x : got == 0));
      }
      backend(kCPU).gemm({.d = y, .a = host, .b = g, .epilogue = Epilogue::DRelu, .aux = mask});
      for (int64_t j = 0; j < n; ++j)
        CHECK(read_double(y.select(1, j).select(0, 0)) ==
              2 * (mask.data<uint8_t>()[j / 8] >> j % 8 & 1));
    }
  }
}

TEST_CASE("the sign of a zero in a small product does not depend on the layout") {
  for (const Dtype d : {kFloat32, kFloat64}) {
    const Array a = numbers({3, 1}, d, 2, false), b = full({1, 7}, -0.0, d, kCPU);
    check({"gemm of zeros", {numbers({3, 7}, d)}, {a, b}, [](const Arrays& y, const Arrays& x) {
             tested().gemm({.d = y[0], .a = x[0], .b = x[1]});
           }});
  }
}

TEST_CASE("softmax and its gradient give the same bits anyhow") {
  for (const Dtype d : floats) {
    for (const bool log : {false, true}) {
      for (const Shape& s :
           {Shape{}, Shape{1}, Shape{0}, Shape{3, 0}, Shape{7, 31}, Shape{3, 5, 33},
            Shape{many(3000, 300), 10}, Shape{3, many(9001, 5001)}}) {
        check({"softmax",
               {numbers(s, d)},
               {numbers(s, d, 2, s.size() != 2)},
               [log](const Arrays& y, const Arrays& x) { tested().softmax(y[0], x[0], log); },
               true});
        check({"softmax_grad",
               {numbers(s, d)},
               {numbers(s, d, 2, false), numbers(s, d, 3, false)},
               [log](const Arrays& y, const Arrays& x) {
                 tested().softmax_grad(y[0], x[0], x[1], log);
               },
               true});
      }
    }
  }
}

TEST_CASE("softmax writes an output of any layout, as the other kernels do") {
  const Array x = numbers({7, 31}, kFloat32, 2, false), y = numbers({7, 31}, kFloat32, 3, false);
  check({"softmax", {x}, {x}, [](const Arrays& to, const Arrays& from) {
           tested().softmax(to[0], from[0], false);
         }});
  check({"softmax_grad", {x}, {x, y}, [](const Arrays& to, const Arrays& from) {
           tested().softmax_grad(to[0], from[0], from[1], false);
         }});
}

TEST_CASE("normalisation, its gradients and running statistics give the same bits anyhow") {
  for (const Dtype d : floats) {
    const Dtype wide = d == kFloat64 ? kFloat64 : kFloat32;
    const auto random = [](const Shape& s, Dtype dtype, uint32_t seed) {
      return numbers(s, dtype, seed, false);
    };
    // Statistics are contiguous, so they are outputs only here, and read back as they were written.
    const auto contiguous = [](const Array& a) { return empty_like(a); };
    for (const Shape& s : {Shape{31}, Shape{7, 33}, Shape{0, 3}, Shape{300, 5}, Shape{3, 1100}}) {
      const Shape length{s.back()}, rows = reduced_shape(s, {s.size() - 1}, false);
      for (const bool centred : {true, false}) {
        check({centred ? "row_norm" : "row_norm about 0",
               {random(s, d, 1), random(s, d, 2), random(length, d, 3), random(length, wide, 4),
                random(rows, wide, 5), random(rows, wide, 6)},
               {random(s, d, 7), random(length, wide, 8), random(length, d, 9), random(s, d, 10)},
               [&](const Arrays& y, const Arrays& x) {
                 Norm norm{.x = x[0], .weight = x[1], .bias = x[2], .eps = 1e-5};
                 if (centred) norm.mean = contiguous(y[4]);
                 norm.rstd = contiguous(y[5]);
                 tested().row_norm(y[0], norm);
                 tested().row_norm_grad({y[1], y[2], y[3]}, x[3], norm);
                 if (centred) tested().copy(y[4], norm.mean);
                 tested().copy(y[5], norm.rstd);
               }});
      }
    }
    for (const Shape& s : {Shape{5, 3, 1}, Shape{2, 3, 40}, Shape{3, 35, 33}, Shape{2, 2, 2500},
                           Shape{600, 33, 1}}) {
      const Shape channels{s[1]};
      for (const bool training : {true, false}) {
        check(
            {training ? "batch_norm" : "batch_norm in evaluation",
             {random(s, d, 1), random(s, d, 2), random(channels, d, 3), random(channels, wide, 4),
              random(channels, wide, 5), random(channels, d, 6), full({}, 3, kInt64, kCPU)},
             {random(s, d, 7), random(channels, wide, 8), random(channels, d, 9), random(s, d, 10)},
             [&](const Arrays& y, const Arrays& x) {
               Norm norm{.x = x[0], .weight = x[1], .bias = x[2], .eps = 1e-5};
               norm.mean = y[4].clone(), norm.rstd = y[4].clone();
               tested().batch_norm(y[0], norm, training,
                                   {.mean = y[4], .var = y[5], .batches = y[6], .momentum = -1});
               tested().batch_norm_grad({y[1], y[2], y[3]}, x[3], norm, training);
             }});
      }
    }
  }
}

TEST_CASE("cross_entropy gives the same bits anyhow") {
  for (const Dtype d : floats) {
    const Dtype wide = compute_dtype(d);
    for (const Shape& s : {Shape{5}, Shape{7, 31}, Shape{3, 5, 33}, Shape{many(3000, 300), 10},
                           Shape{3, many(9001, 5001)}}) {
      const Shape rows = reduced_shape(s, {s.size() - 1}, false);
      const int64_t C = s.back();
      const Array target(rows, kInt64, kCPU), weight = numbers({C}, wide, 4, false);
      for (int64_t i = 0; i < target.numel(); ++i)
        target.data<int64_t>()[i] = i % 4 == 3 ? -100 : i * 7919 % C;
      const Array there = target.to(get_default_device()),
                  weights = weight.to(get_default_device());
      for (const double smoothing : {0.0, 0.1}) {
        check({"cross_entropy",
               {numbers(rows, wide), numbers(rows, wide), numbers(s, wide)},
               {numbers(s, d, 2, false)},
               [&](const Arrays& y, const Arrays& x) {
                 tested().cross_entropy({.x = x[0],
                                         .target = there,
                                         .weight = smoothing == 0 ? Array() : weights,
                                         .smoothing = smoothing,
                                         .loss = y[0],
                                         .counted = y[1],
                                         .grad = y[2]});
               },
               true});
      }
    }
  }
}

TEST_CASE("gather, the scatters and random numbers give the same bits anyhow") {
  for (const auto* dtypes : {&floats, &whole}) {
    for (const Dtype d : *dtypes) {
      for (const int dim : {0, 1, 2}) {
        const Shape s{9, 11, 7};
        Shape picked = s;
        picked[dim] = 40;
        check(
            {"gather",
             {numbers(picked, d)},
             {numbers(s, d, 2), integers(picked, s[dim])},
             [dim](const Arrays& y, const Arrays& x) { tested().gather(y[0], x[0], dim, x[1]); }});
        check(
            {"scatter",
             {numbers(s, d, 3)},
             {numbers(picked, d, 2), integers(picked, s[dim])},
             [dim](const Arrays& y, const Arrays& x) { tested().scatter(y[0], x[0], dim, x[1]); }});
        if (d == kBool) continue;
        for (OpId op = 0; op < static_cast<OpId>(ReduceOps::size); ++op)
          check({"scatter_reduce",
                 {numbers(s, d, 3, false)},
                 {numbers(picked, d, 2, false), integers(picked, s[dim])},
                 [dim, op](const Arrays& y, const Arrays& x) {
                   tested().scatter_reduce(op, y[0], x[0], dim, x[1]);
                 }});
      }
      check({"gather of rows",
             {numbers({300, 33}, d)},
             {numbers({50, 33}, d, 2), integers({300, 33}, 50)},
             [](const Arrays& y, const Arrays& x) { tested().gather(y[0], x[0], 0, x[1]); }});
    }
  }
  for (const auto kind :
       {Distribution::Uniform, Distribution::Normal, Distribution::Bernoulli, Distribution::Bits})
    for (const Dtype d : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64})
      for (const Shape& s : {Shape{0}, Shape{1}, Shape{7, 33}, Shape{3, many(8193, 3001)}})
        check({"random", {numbers(s, d)}, {}, [kind](const Arrays& y, const Arrays&) {
                 tested().random(y[0], kind, 0.25, 5, {.seed = 7, .offset = 3});
               }});
}

TEST_CASE("unscale and the optimizer updates give the same bits anyhow") {
  const Array half = full({1}, 0.5, kFloat32, kCPU), zero = full({1}, 0, kFloat32, kCPU);
  const Array inverse = there(half), none = there(zero);
  const UpdateRule rules[] = {
      SgdRule{.lr = 0.1, .weight_decay = 0.01},
      SgdRule{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
      AdamRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
      AdamRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .amsgrad = true},
      RmspropRule{.lr = 0.1, .alpha = 0.9, .eps = 1e-8, .momentum = 0.9, .centered = true},
      AdagradRule{.lr = 0.1, .lr_decay = 0.1, .eps = 1e-8, .weight_decay = 0.01},
      LionRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.01}};
  for (const Dtype d : floats) {
    for (const Shape& s :
         {Shape{}, Shape{0}, Shape{31}, Shape{7, 33}, Shape{3, many(5477, 1500)}}) {
      const auto random = [&](uint32_t seed) { return numbers(s, d, seed, false); };
      for (const bool special : {false, true})
        check({"unscale",
               {numbers(s, d, 1, special), random(2), zero},
               {},
               [&](const Arrays& y, const Arrays&) {
                 tested().unscale(std::span(y.data(), 2), inverse, y[2]);
               }});
      check({"update, clipping",
             {random(1), random(2), zero},
             {},
             [&](const Arrays& y, const Arrays&) {
               const UpdateSlot slot{.param = y[0], .grad = y[1], .step = y[2]};
               tested().update({&slot, 1}, rules[0], {.found_inf = none, .clip = inverse});
             }});
      // Three moments, of which the rules take what they need; one of them may be missing.
      for (const UpdateRule& rule : rules) {
        for (const bool low : {false, true})
          check(
              {"update",
               {random(1), random(2), random(5), random(6), zero, numbers(s, kBFloat16, 7, false)},
               {random(3)},
               [&](const Arrays& y, const Arrays& x) {
                 UpdateSlot slot{.param = y[0], .grad = x[0], .step = y[4]};
                 for (int i = 0; i < 3; ++i) {
                   tested().unary(UnaryOps::index<formula::Abs>(), y[i + 1], y[i + 1], {});
                   slot.moments[i] = y[i + 1];
                 }
                 if (low) slot.low = y[5];
                 tested().update({&slot, 1}, rule, {.found_inf = none, .inv_scale = inverse});
               }});
      }
    }
  }
  for (const Dtype d : floats)
    for (const Dtype given : floats)
      check({"push",
             {numbers({9}, d), full({1}, 25, kInt64, kCPU)},
             {numbers({1}, given)},
             [](const Arrays& y, const Arrays& x) {
               tested().run(Push{y[0], y[1], x[0]});
             }});
  check({"transition",
         {full({1}, 1024, kFloat32, kCPU), full({2}, 0, kInt32, kCPU), full({8}, 0, kInt64, kCPU)},
         {half, full({1}, 4, kInt64, kCPU)},
         [](const Arrays& y, const Arrays& x) {
           const CheckResult result{x[0], x[1]};
           tested().transition({y[0], y[1], y[2], {&result, 1}});
         }});
}
