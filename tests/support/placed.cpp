#include "halftape/tests/support/placed.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "halftape/core/formula/number_class.h"
#include "halftape/core/machine/threads.h"

namespace halftape::testing {
namespace {

/// Calls f(address, step, length) for every row of a strided array, in order; step in elements.
template <class F>
void each_row(const Array& a, F f) {
  Dims at = Dims::filled(a.dim(), 0);
  const auto item = static_cast<int64_t>(element_size(a.dtype()));
  const int last = a.dim() - 1;
  const int64_t length = a.dim() ? a.size(last) : 1, step = a.dim() ? a.strides()[last] : 0;
  for (int64_t i = 0; i < a.numel(); i += length) {
    int64_t offset = 0;
    for (int d = 0; d < last; ++d) offset += at[d] * a.strides()[d];
    f(static_cast<char*>(a.raw()) + offset * item, step, length);
    for (int d = last - 1; d >= 0 && ++at[d] == a.size(d); --d) at[d] = 0;
  }
}

/// An integer as large as a T.
template <class T>
using Word =
    std::conditional_t<sizeof(T) == 1, uint8_t,
                       std::conditional_t<sizeof(T) == 2, uint16_t,
                                          std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

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
  visit(from.dtype(), [&]<class T>(Type<T>) {
    std::vector<Word<T>> words(static_cast<size_t>(from.numel()));
    Word<T>* next = words.data();
    each_row(from, [&](char* row, int64_t step, int64_t length) {
      const auto* x = reinterpret_cast<const Word<T>*>(row);
      for (int64_t i = 0; i < length; ++i) *next++ = x[i * step];
    });
    next = words.data();
    each_row(to, [&](char* row, int64_t step, int64_t length) {
      auto* x = reinterpret_cast<Word<T>*>(row);
      for (int64_t i = 0; i < length; ++i) x[i * step] = *next++;
    });
  });
  return to;
}

/// The elements' bytes, which become guard bytes; "touched" appended if other bytes have changed.
/// All NaNs are equal, because IEEE and compilers leave open which sign the NaN of two NaNs has.
std::string taken(const Array& a) {
  std::string bytes(static_cast<size_t>(a.numel()) * element_size(a.dtype()), '\0');
  visit(a.dtype(), [&]<class T>(Type<T>) {
    Word<T> nan = 0, guard = 0;
    std::memcpy(&nan, "NaN", std::min(sizeof nan, size_t{3}));
    std::memset(&guard, kGuard, sizeof guard);
    char* next = bytes.data();
    each_row(a, [&](char* row, int64_t step, int64_t length) {
      auto* x = reinterpret_cast<Word<T>*>(row);
      for (int64_t i = 0; i < length; ++i, next += sizeof(T)) {
        Word<T> word = std::exchange(x[i * step], guard);
        if constexpr (is_floating_point(dtype_of<T>))
          if ((word & ClassBorders<T>::magnitude) > ClassBorders<T>::infinite) word = nan;
        std::memcpy(next, &word, sizeof word);
      }
    });
  });
  const auto* all = static_cast<const char*>(a.buffer()->bytes());
  const size_t size = a.buffer()->size();
  for (size_t i = 0; i < size; ++i)
    if (all[i] != kGuard) return bytes + "touched";
  return bytes;
}

/// The array's whole buffer as bytes.
Array bytes_of(const Array& a) {
  const auto size = static_cast<int64_t>(a.buffer()->size());
  return {a.buffer(), {size}, {1}, 0, kUInt8};
}

std::string run(const PlacedCall& c, int threads, Layout out, Layout in) {
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

/// The first of the layouts that are the same for arrays of these shapes.
Layout distinct(const Arrays& arrays, Layout layout) {
  int dims = 0;
  for (const Array& a : arrays) dims = std::max(dims, a.dim());
  if (arrays.empty()) return Layout::Plain;
  if (dims == 0 || (dims == 1 && layout == Layout::Transposed))
    return std::min(layout, Layout::Offset);
  return layout;
}

/// The ways of running the call that give other bits than one thread on contiguous arrays.
std::string differs(const PlacedCall& c) {
  const int before = get_num_threads();
  const std::string expected = run(c, 1, Layout::Plain, Layout::Plain);
  std::string wrong = expected.ends_with("touched") ? " [writes beside its output]" : "";
  std::set<std::tuple<int, Layout, Layout>> tried{{1, Layout::Plain, Layout::Plain}};
  auto check = [&](int threads, Layout out, Layout in) {
    out = c.rows_out && out > Layout::Offset ? Layout::Plain : distinct(c.out, out);
    in = distinct(c.in, in);
    if (!get_default_device().is_cpu()) threads = 1;  // the CPU's alone
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
      PlacedCall repeated = c;
      repeated.in[i] = c.in[i].slice(d, 0, 1).expand(c.in[i].shape());
      if (run(repeated, 1, Layout::Plain, Layout::Plain) !=
          run(repeated, 3, Layout::Plain, Layout::AsIs))
        wrong += " [input " + std::to_string(i) + " repeated along " + std::to_string(d) + "]";
    }
  }
  set_num_threads(before);
  return wrong;
}

}  // namespace

void check(const PlacedCall& c) {
  const auto wrong = differs(c);
  std::ostringstream what;
  what << c.name << ' ' << c.out[0].dtype() << ' ' << c.out[0].shape() << wrong;
  CHECK_MESSAGE(wrong.empty(), what.str());
}

Array there(const Array& a) {
  if (get_default_device().is_cpu()) return a;
  return {bytes_of(a).to(get_default_device()).buffer(), a.shape(), a.strides(), a.offset(),
          a.dtype()};
}

Array numbers(const Shape& shape, Dtype dtype, uint32_t seed, bool special) {
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

Array divisors(const Shape& shape, Dtype dtype, uint32_t seed) {
  const Array a = numbers(shape, dtype, seed);
  visit(dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    std::replace(a.data<T>(), a.data<T>() + a.numel(), convert<T>(0), convert<T>(1));
  });
  return a;
}

Array integers(const Shape& shape, int64_t limit, uint32_t seed) {
  const Array a(shape, kInt64, kCPU);
  for (int64_t i = 0; i < a.numel(); ++i)
    a.data<int64_t>()[i] = (seed = seed * 1664525u + 1013904223u, (seed >> 8) % limit);
  return a;
}

}  // namespace halftape::testing
