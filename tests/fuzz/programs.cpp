// Programs of calls on small tensors that share memory, beside a plain interpreter of their values.
//
// A program is a list of instructions in bytes. Values are whole numbers of at most 512, so that
// every result is exact in float32 and has one right value in each dtype. The library may refuse an
// instruction with an Error, and then must not have changed a value.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include "halftape/halftape.h"
#include "target.h"

namespace halftape::fuzz {
namespace {

using Index = std::vector<int64_t>;

constexpr Dtype kDtypes[] = {kFloat32,  kInt64, kFloat64, kFloat16,
                             kBFloat16, kBool,  kUInt8,   kInt32};
constexpr double kLargest = 512;  // of a value; a larger one ends its storage

int kind(Dtype d) { return is_floating_point(d) ? 2 : d == kBool ? 0 : 1; }

/// One value of the dtype `from` as this dtype stores it: halves by way of float32; integers wrap,
/// but what comes from a float stops at the ends of the range.
double stored(double value, Dtype dtype, Dtype from = kInt64) {
  return visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (is_narrow(dtype_of<T>))
      return static_cast<double>(convert<float>(convert<T>(static_cast<float>(value))));
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      if (!is_floating_point(from))
        return static_cast<double>(static_cast<T>(static_cast<int64_t>(value)));
    return convert<double>(convert<T>(value));
  });
}

int64_t product(const Index& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Calls f with every index of a tensor of these sizes, in row-major order.
void for_each_index(const Index& sizes, const std::function<void(const Index&)>& f) {
  Index index(sizes.size(), 0);
  for (int64_t n = product(sizes); n > 0; --n) {
    f(index);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

/// A tensor as the interpreter sees it: a window on shared numbers.
struct Plain {
  std::shared_ptr<std::vector<double>> storage;
  Dtype dtype = kFloat32;
  Index sizes, strides;
  int64_t offset = 0;

  Plain() = default;
  /// Fresh and row-major.
  Plain(Dtype of, const Index& shape)
      : storage(std::make_shared<std::vector<double>>(product(shape))),
        dtype(of),
        sizes(shape),
        strides(shape.size()) {
    int64_t stride = 1;
    for (size_t d = strides.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= shape[d];
    }
  }
  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  int64_t at(const Index& index) const {
    return std::inner_product(index.begin(), index.end(), strides.begin(), offset);
  }
  /// The value at an index of a shape to which this one is broadcast.
  double value(const Index& index) const {
    int64_t position = offset;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] != 1) position += strides[d] * index[index.size() - sizes.size() + d];
    return (*storage)[position];
  }
};

/// f of the index, as a new tensor.
Plain computed(Dtype dtype, const Index& sizes, const std::function<double(const Index&)>& f) {
  Plain y(dtype, sizes);
  size_t i = 0;
  for_each_index(sizes, [&](const Index& index) { (*y.storage)[i++] = stored(f(index), dtype); });
  return y;
}

/// The shape of both together; none if they do not fit.
std::optional<Index> broadcast(const Index& a, const Index& b) {
  Index out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Dtype result_dtype(const Plain& a, const Plain& b) {
  if ((a.dim() == 0) == (b.dim() == 0)) return promote(a.dtype, b.dtype);
  const Dtype strong = a.dim() == 0 ? b.dtype : a.dtype;
  const Dtype weak = a.dim() == 0 ? a.dtype : b.dtype;
  return kind(weak) > kind(strong) ? promote(strong, weak) : strong;
}

struct Register {
  Tensor tensor;
  Plain plain;
};

/// What the interpreter finds no meaning in, the library must refuse.
struct MustRefuse {
  const char* why;
};

class Program {
 public:
  explicit Program(std::string_view input) : in_(input) {}

  bool run() {
    for (int i = 0; i < 3; ++i) make();
    int done = 0, steps = 0;
    for (; !in_.done() && steps < 40; ++steps) {
      trace_.str("");
      done += step();
    }
    return 2 * done >= steps;
  }

 private:
  using Calls = std::vector<void (Program::*)()>;

  /// One instruction; false if the library refused it.
  bool step() {
    static const Calls calls = {&Program::make,    &Program::view,   &Program::view,
                                &Program::binary,  &Program::assign, &Program::assign,
                                &Program::unary,   &Program::reduce, &Program::join,
                                &Program::indexed, &Program::write,  &Program::product_of_two};
    bool taken = true;
    bool must_refuse = false;
    try {
      (this->*calls[in_.below(static_cast<int64_t>(calls.size()))])();
    } catch (const MustRefuse& refused) {
      must_refuse = true;
      trace_ << " (" << refused.why << ")";
    } catch (const Error& error) {
      taken = false;
      trace_ << " -> " << error.what();
    }
    if (must_refuse) throw Finding("accepted" + trace_.str());
    for (size_t i = 0; i < registers_.size(); ++i) check(registers_[i], i);
    std::erase_if(registers_, [](const Register& r) {
      return std::ranges::any_of(*r.plain.storage, [](double v) { return std::abs(v) > kLargest; });
    });
    while (registers_.size() < 2) make();
    return taken;
  }

  void check(const Register& r, size_t i) const {
    const auto fail = [&](const std::string& what) {
      throw Finding("register " + std::to_string(i) + " after" + trace_.str() + ": " + what);
    };
    if (r.tensor.dtype() != r.plain.dtype) {
      std::ostringstream text;
      text << "dtype " << r.tensor.dtype() << ", expected " << r.plain.dtype;
      fail(text.str());
    }
    const Shape& shape = r.tensor.sizes();
    if (!std::equal(shape.begin(), shape.end(), r.plain.sizes.begin(), r.plain.sizes.end()))
      fail("another shape");
    const Tensor values = r.tensor.to(kFloat64).contiguous();
    const double* found = values.data_ptr<double>();
    for_each_index(r.plain.sizes, [&](const Index& index) {
      const double expected = (*r.plain.storage)[r.plain.at(index)];
      if (*found != expected)
        fail("found " + std::to_string(*found) + ", expected " + std::to_string(expected));
      ++found;
    });
  }

  Register& any() { return registers_[in_.below(static_cast<int64_t>(registers_.size()))]; }
  void keep(Tensor tensor, Plain plain) {
    if (registers_.size() < 6)
      registers_.push_back({std::move(tensor), std::move(plain)});
    else
      registers_[in_.below(6)] = {std::move(tensor), std::move(plain)};
  }
  int64_t any_dim(const Plain& p) { return p.dim() == 0 ? 0 : in_.below(p.dim()); }

  void make() {
    const Dtype dtype = kDtypes[in_.below(std::size(kDtypes))];
    Index sizes(in_.below(4));
    for (int64_t& n : sizes) n = in_.between(0, 3);
    const int64_t first = in_.between(-4, 4), step = in_.between(-2, 3);
    int64_t i = 0;
    Plain plain = computed(dtype, sizes, [&](const Index&) {
      const double value = static_cast<double>((first + step * i++) % 5);
      return dtype == kUInt8 ? std::abs(value) : value;
    });
    Tensor tensor = empty(Shape(sizes), dtype);
    i = 0;
    const Tensor flat = tensor.view(Shape{tensor.numel()});
    for (const double value : *plain.storage) flat.select(0, i++).fill_(value);
    trace_ << " make " << dtype;
    keep(tensor, plain);
  }

  void view() {
    const Register r = any();
    Plain p = r.plain;
    Tensor t = r.tensor;
    const int64_t d = any_dim(p);
    switch (in_.below(8)) {
      case 0: {  // slice
        if (p.dim() == 0) return;
        const int64_t from = in_.between(0, p.sizes[d]), to = in_.between(from, p.sizes[d]);
        const int64_t step = in_.between(1, 2);
        trace_ << " slice(" << d << ", " << from << ", " << to << ", " << step << ")";
        t = t.slice(d, from, to, step);
        p.offset += from * p.strides[d];
        p.sizes[d] = (to - from + step - 1) / step;
        p.strides[d] *= step;
        break;
      }
      case 1: {  // select
        if (p.dim() == 0 || p.sizes[d] == 0) return;
        const int64_t i = in_.below(p.sizes[d]);
        trace_ << " select(" << d << ", " << i << ")";
        t = t.select(d, i);
        p.offset += i * p.strides[d];
        p.sizes.erase(p.sizes.begin() + d);
        p.strides.erase(p.strides.begin() + d);
        break;
      }
      case 2: {  // transpose
        const int64_t e = any_dim(p);
        if (p.dim() == 0) return;
        trace_ << " transpose(" << d << ", " << e << ")";
        t = t.transpose(d, e);
        std::swap(p.sizes[d], p.sizes[e]);
        std::swap(p.strides[d], p.strides[e]);
        break;
      }
      case 3: {  // expand
        Index sizes = p.sizes;
        for (int64_t& n : sizes)
          if (n == 1) n = in_.between(0, 3);
        if (in_.below(2)) sizes.insert(sizes.begin(), in_.between(0, 3));
        trace_ << " expand";
        t = t.expand(Shape(sizes));
        Index strides(sizes.size(), 0);
        for (size_t i = 0; i < p.sizes.size(); ++i)
          if (p.sizes[i] != 1) strides[sizes.size() - p.sizes.size() + i] = p.strides[i];
        p.sizes = sizes;
        p.strides = strides;
        break;
      }
      case 4: {  // unsqueeze
        const int64_t at = in_.between(0, p.dim());
        if (p.dim() > 3) return;
        trace_ << " unsqueeze(" << at << ")";
        t = t.unsqueeze(at);
        p.sizes.insert(p.sizes.begin() + at, 1);
        p.strides.insert(p.strides.begin() + at, 0);
        break;
      }
      case 5: {  // diagonal
        if (p.dim() < 2) return;
        const int64_t e = d == 0 ? 1 : 0, a = std::min(d, e), b = std::max(d, e);
        const int64_t shift = in_.between(0, 1);
        trace_ << " diagonal(" << shift << ", " << a << ", " << b << ")";
        t = t.diagonal(shift, a, b);
        const int64_t n = std::max<int64_t>(0, std::min(p.sizes[a], p.sizes[b] - shift));
        if (n > 0) p.offset += shift * p.strides[b];
        const int64_t stride = p.strides[a] + p.strides[b];
        for (const int64_t gone : {b, a}) {
          p.sizes.erase(p.sizes.begin() + gone);
          p.strides.erase(p.strides.begin() + gone);
        }
        p.sizes.push_back(n);
        p.strides.push_back(stride);
        break;
      }
      case 6: {  // windows that overlap
        if (p.dim() == 0 || p.dim() > 3) return;
        const int64_t size = in_.between(1, 2);
        if (p.sizes[d] < size) return;
        trace_ << " unfold(" << d << ", " << size << ", 1)";
        t = t.unfold(d, size, 1);
        const int64_t stride = p.strides[d];
        p.sizes[d] -= size - 1;
        p.sizes.push_back(size);
        p.strides.push_back(stride);
        break;
      }
      default: {  // flattened; the library tells whether it is a view
        trace_ << " reshape";
        const Plain before = p;
        t = t.reshape(Shape{t.numel()});
        if (t.numel() > 0 && t.data_ptr() == r.tensor.data_ptr()) {
          p.sizes = {t.numel()};
          p.strides = {t.stride(0)};
        } else {
          Index flat;
          for_each_index(before.sizes, [&](const Index& i) { flat.push_back(before.at(i)); });
          p = computed(p.dtype, {t.numel()},
                       [&](const Index& i) { return (*before.storage)[flat[i[0]]]; });
        }
      }
    }
    keep(t, p);
  }

  using Function = double (*)(double, double);
  struct Operation {
    const char* name;
    Function f;
    Tensor (*call)(const Tensor&, const Tensor&);
    Tensor& (*in_place)(Tensor&, const Tensor&);
  };
  const Operation& operation() {
    static const Operation kOperations[] = {
        {"add", [](double a, double b) { return a + b; },
         [](const Tensor& a, const Tensor& b) { return a + b; },
         [](Tensor& a, const Tensor& b) -> Tensor& { return a.add_(b); }},
        {"mul", [](double a, double b) { return a * b; },
         [](const Tensor& a, const Tensor& b) { return a * b; },
         [](Tensor& a, const Tensor& b) -> Tensor& { return a.mul_(b); }},
        {"sub", [](double a, double b) { return a - b; },
         [](const Tensor& a, const Tensor& b) { return a - b; },
         [](Tensor& a, const Tensor& b) -> Tensor& { return a.sub_(b); }},
        {"maximum", [](double a, double b) { return std::max(a, b); },
         [](const Tensor& a, const Tensor& b) { return maximum(a, b); }, nullptr}};
    return kOperations[in_.below(std::size(kOperations))];
  }

  void binary() {
    const Operation& op = operation();
    const Register a = any(), b = any();
    trace_ << ' ' << op.name << "(" << a.tensor.sizes() << ", " << b.tensor.sizes() << ")";
    const Tensor y = op.call(a.tensor, b.tensor);
    const auto sizes = broadcast(a.plain.sizes, b.plain.sizes);
    if (!sizes) throw MustRefuse{"shapes that do not fit"};
    keep(y, computed(result_dtype(a.plain, b.plain), *sizes,
                     [&](const Index& i) { return op.f(a.plain.value(i), b.plain.value(i)); }));
  }

  /// Writes f of every index, values of the dtype `from`, into `to`: all are read before one is
  /// written.
  void write_all(const Plain& to, Dtype from, const std::function<double(const Index&)>& f) {
    std::vector<std::pair<int64_t, double>> written;
    for_each_index(to.sizes, [&](const Index& i) {
      written.push_back({to.at(i), stored(f(i), to.dtype, from)});
    });
    std::ranges::sort(written);
    for (size_t i = 1; i < written.size(); ++i)
      if (written[i].first == written[i - 1].first && written[i].second != written[i - 1].second)
        throw MustRefuse{"two values for one place"};
    for (const auto& [at, value] : written) (*to.storage)[at] = value;
  }

  void assign() {
    Register to = any();
    const Register from = any();
    const auto fits = [&](const Plain& p) {
      if (broadcast(to.plain.sizes, p.sizes) != to.plain.sizes)
        throw MustRefuse{"a shape that does not fit"};
    };
    const auto value = [&](const Index& i) { return from.plain.value(i); };
    switch (in_.below(4)) {
      case 0:
        trace_ << " copy_(" << to.tensor.sizes() << ", " << from.tensor.sizes() << ")";
        to.tensor.copy_(from.tensor);
        fits(from.plain);
        write_all(to.plain, from.plain.dtype, value);
        break;
      case 1: {
        const auto number = static_cast<double>(in_.between(0, 3));
        trace_ << " fill_(" << number << ")";
        to.tensor.fill_(number);
        write_all(to.plain, kFloat64, [&](const Index&) { return number; });
        break;
      }
      default: {
        const Operation& op = operation();
        if (!op.in_place) return;
        trace_ << ' ' << op.name << "_(" << to.tensor.sizes() << ", " << from.tensor.sizes() << ")";
        op.in_place(to.tensor, from.tensor);
        fits(from.plain);
        const Dtype dtype = result_dtype(to.plain, from.plain);
        write_all(to.plain, dtype, [&](const Index& i) {
          return stored(op.f(to.plain.value(i), from.plain.value(i)), dtype);
        });
      }
    }
  }

  void unary() {
    const Register x = any();
    const Plain& p = x.plain;
    const bool arithmetic = p.dtype != kBool;
    const auto map = [&](Dtype dtype, auto f) {
      return computed(dtype, p.sizes, [&](const Index& i) { return f((*p.storage)[p.at(i)]); });
    };
    switch (in_.below(6)) {
      case 0:
        if (!arithmetic) return;
        trace_ << " neg";
        keep(-x.tensor, map(p.dtype, [](double v) { return -v; }));
        break;
      case 1:
        if (!arithmetic) return;
        trace_ << " relu";
        keep(relu(x.tensor), map(p.dtype, [](double v) { return v > 0 ? v : 0; }));
        break;
      case 2: {
        const Dtype dtype = kDtypes[in_.below(std::size(kDtypes))];
        trace_ << " to(" << dtype << ")";
        const bool negative = std::ranges::any_of(*p.storage, [](double v) { return v < 0; });
        if (dtype == kUInt8 && negative) return;  // C++ and the formats differ
        keep(x.tensor.to(dtype, false, true), map(dtype, [](double v) { return v; }));
        break;
      }
      case 3:
        trace_ << " clone";
        keep(x.tensor.clone(), map(p.dtype, [](double v) { return v; }));
        break;
      case 4: {
        const int64_t d = any_dim(p);
        trace_ << " flip(" << d << ")";
        Tensor y = x.tensor.flip({d});
        keep(y, computed(p.dtype, p.sizes, [&](Index i) {
               if (!i.empty()) i[d] = p.sizes[d] - 1 - i[d];
               return (*p.storage)[p.at(i)];
             }));
        break;
      }
      default: {
        const int64_t d = any_dim(p), shift = in_.between(-4, 4);
        if (p.dim() == 0) return;
        trace_ << " roll(" << shift << ", " << d << ")";
        Tensor y = x.tensor.roll(shift, d);
        keep(y, computed(p.dtype, p.sizes, [&](Index i) {
               i[d] = ((i[d] - shift) % p.sizes[d] + p.sizes[d]) % p.sizes[d];
               return (*p.storage)[p.at(i)];
             }));
      }
    }
  }

  void reduce() {
    const Register x = any();
    const Plain& p = x.plain;
    if (p.dim() == 0) return;
    const int64_t d = any_dim(p);
    Index kept = p.sizes;
    kept.erase(kept.begin() + d);
    const auto fold = [&](Dtype dtype, double start, auto f) {
      return computed(dtype, kept, [&](Index i) {
        double sum = start;
        i.insert(i.begin() + d, 0);
        for (; i[d] < p.sizes[d]; ++i[d]) sum = f(sum, (*p.storage)[p.at(i)]);
        return sum;
      });
    };
    switch (in_.below(3)) {
      case 0:
        trace_ << " sum(" << d << ")";
        keep(x.tensor.sum(Dims{d}), fold(sum_dtype(p.dtype), 0, std::plus<>()));
        break;
      case 1: {
        trace_ << " amax(" << d << ")";
        const Tensor y = x.tensor.amax(Dims{d});
        if (p.sizes[d] == 0 && product(kept) > 0) throw MustRefuse{"the largest of nothing"};
        keep(y, fold(p.dtype, -1e300, [](double a, double b) { return std::max(a, b); }));
        break;
      }
      default: {
        trace_ << " cumsum(" << d << ")";
        const Tensor y = x.tensor.cumsum(d);
        keep(y, computed(sum_dtype(p.dtype), p.sizes, [&](Index i) {
               double sum = 0;
               for (const int64_t last = i[d]; i[d] >= 0; --i[d]) {
                 Index at = i;
                 at[d] = last - i[d];
                 sum += (*p.storage)[p.at(at)];
               }
               return sum;
             }));
      }
    }
  }

  void join() {
    const Register a = any(), b = any();
    const Plain &p = a.plain, &q = b.plain;
    if (in_.below(2)) {
      const Register mask = any();
      trace_ << " where(" << mask.tensor.sizes() << ", " << a.tensor.sizes() << ", "
             << b.tensor.sizes() << ")";
      const Tensor y = where(mask.tensor.ne(0), a.tensor, b.tensor);
      const auto two = broadcast(p.sizes, q.sizes);
      const auto all = two ? broadcast(*two, mask.plain.sizes) : std::nullopt;
      if (!all) throw MustRefuse{"shapes that do not fit"};
      return keep(y, computed(result_dtype(p, q), *all, [&](const Index& i) {
                    return mask.plain.value(i) != 0 ? p.value(i) : q.value(i);
                  }));
    }
    if (p.dim() == 0 || q.dim() == 0) return;
    const int64_t d = any_dim(p);
    trace_ << " cat(" << a.tensor.sizes() << ", " << b.tensor.sizes() << ", " << d << ")";
    const auto skipped = [](const Plain& x) { return x.dim() == 1 && x.sizes[0] == 0; };
    const Tensor y = cat({a.tensor, b.tensor}, d);
    if (skipped(p) || skipped(q)) return;  // such a tensor fits everywhere
    Index sizes = p.sizes;
    bool fits = p.dim() == q.dim();
    for (int64_t i = 0; fits && i < p.dim(); ++i) fits = i == d || p.sizes[i] == q.sizes[i];
    if (!fits) throw MustRefuse{"shapes that do not fit"};
    sizes[d] += q.sizes[d];
    keep(y, computed(promote(p.dtype, q.dtype), sizes, [&](Index i) {
           if (i[d] < p.sizes[d]) return (*p.storage)[p.at(i)];
           i[d] -= p.sizes[d];
           return (*q.storage)[q.at(i)];
         }));
  }

  /// Numbers that may lie outside the dimension.
  std::pair<Tensor, Index> positions(int64_t n, int64_t size) {
    Index at(n);
    for (int64_t& i : at) i = in_.below(16) == 0 ? in_.between(-2, size + 1) : in_.below(size);
    return {tensor(at, kInt64), at};
  }
  /// Where nothing is picked, a position does not matter.
  static void check_positions(const Index& at, int64_t size, const Index& picked) {
    for (const int64_t i : at)
      if ((i < -size || i >= size) && product(picked) > 0)
        throw MustRefuse{"an index out of range"};
  }

  void indexed() {
    const Register x = any();
    const Plain& p = x.plain;
    if (p.dim() == 0) return;
    const int64_t d = any_dim(p);
    const auto [index, at] = positions(in_.between(0, 3), p.sizes[d]);
    trace_ << " index_select(" << x.tensor.sizes() << ", " << d << ")";
    const Tensor y = x.tensor.index_select(d, index);
    Index sizes = p.sizes;
    sizes[d] = static_cast<int64_t>(at.size());
    check_positions(at, p.sizes[d], sizes);
    const Index picked = at;
    keep(y, computed(p.dtype, sizes, [&](Index i) {
           i[d] = (picked[i[d]] + p.sizes[d]) % p.sizes[d];
           return (*p.storage)[p.at(i)];
         }));
  }

  /// Several places at once.
  void write() {
    Register to = any();
    const Register from = any();
    const Plain& p = to.plain;
    if (in_.below(2)) {
      trace_ << " masked_fill_(" << to.tensor.sizes() << ", " << from.tensor.sizes() << ")";
      to.tensor.masked_fill_(from.tensor.ne(0), 2);
      if (broadcast(p.sizes, from.plain.sizes) != p.sizes)
        throw MustRefuse{"a shape that does not fit"};
      return write_all(p, p.dtype, [&](const Index& i) {
        return from.plain.value(i) != 0 ? 2 : (*p.storage)[p.at(i)];
      });
    }
    if (p.dim() == 0) return;
    const int64_t d = any_dim(p);
    const auto [index, at] = positions(in_.between(1, 3), p.sizes[d]);
    const Index picked = at;
    Index sizes = p.sizes;
    sizes[d] = static_cast<int64_t>(at.size());
    const bool same = in_.below(4) == 0;  // a source that shares the target's memory
    Register source{full(Shape(sizes), 1, p.dtype), {}};
    source.plain = computed(p.dtype, sizes, [](const Index&) { return 1; });
    if (same) source = {to.tensor.slice(d, 0, sizes[d]), p};
    if (same && sizes[d] > p.sizes[d]) return;
    if (same) source.plain.sizes = sizes;
    trace_ << " index_add_(" << to.tensor.sizes() << ", " << d << (same ? ", itself)" : ")");
    to.tensor.index_add_(d, index, source.tensor);
    check_positions(picked, p.sizes[d], sizes);
    write_all(p, p.dtype, [&](Index i) {
      double sum = (*p.storage)[p.at(i)];
      const int64_t here = i[d];
      for (size_t k = 0; k < picked.size(); ++k) {
        if ((picked[k] + p.sizes[d]) % p.sizes[d] != here) continue;
        i[d] = static_cast<int64_t>(k);
        sum += (*source.plain.storage)[source.plain.at(i)];
      }
      return sum;
    });
  }

  void product_of_two() {
    const Register a = any(), b = any();
    const Plain &p = a.plain, &q = b.plain;
    if (p.dim() != 2 || q.dim() != 2) return;
    trace_ << " matmul(" << a.tensor.sizes() << ", " << b.tensor.sizes() << ")";
    const Tensor y = matmul(a.tensor, b.tensor);
    if (p.sizes[1] != q.sizes[0] || p.dtype != q.dtype) throw MustRefuse{"what does not fit"};
    keep(y, computed(p.dtype, {p.sizes[0], q.sizes[1]}, [&](const Index& i) {
           double sum = 0;
           for (int64_t k = 0; k < p.sizes[1]; ++k)
             sum += (*p.storage)[p.at({i[0], k})] * (*q.storage)[q.at({k, i[1]})];
           return sum;
         }));
  }

  Reader in_;
  std::vector<Register> registers_;
  std::ostringstream trace_;
};

bool run_program(std::string_view input) { return Program(input).run(); }

/// Random bytes are programs.
std::vector<std::string> program_seeds() {
  std::mt19937_64 random(1);
  std::vector<std::string> seeds(8);
  for (std::string& seed : seeds)
    for (int i = 0; i < 160; ++i) seed += static_cast<char>(random());
  return seeds;
}

}  // namespace

std::span<const Target> program_targets() {
  static const Target kTargets[] = {{"program", &run_program, &program_seeds}};
  return kTargets;
}

}  // namespace halftape::fuzz
