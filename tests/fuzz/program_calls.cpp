// The instructions that compute.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "halftape/halftape.h"
#include "program.h"

namespace halftape::fuzz {

struct Program::Operation {
  const char* name;
  double (*f)(double, double);
  Tensor (*call)(const Tensor&, const Tensor&);
  Tensor& (*in_place)(Tensor&, const Tensor&) = nullptr;
  bool compares = false;  // gives bools
};

const Program::Operation& Program::operation() {
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
       [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
      {"minimum", [](double a, double b) { return std::min(a, b); },
       [](const Tensor& a, const Tensor& b) { return minimum(a, b); }},
      {"eq", [](double a, double b) -> double { return a == b; },
       [](const Tensor& a, const Tensor& b) { return a.eq(b); }, nullptr, true},
      {"ne", [](double a, double b) -> double { return a != b; },
       [](const Tensor& a, const Tensor& b) { return a.ne(b); }, nullptr, true},
      {"lt", [](double a, double b) -> double { return a < b; },
       [](const Tensor& a, const Tensor& b) { return a.lt(b); }, nullptr, true},
      {"ge", [](double a, double b) -> double { return a >= b; },
       [](const Tensor& a, const Tensor& b) { return a.ge(b); }, nullptr, true},
      {"logical_and", [](double a, double b) -> double { return a != 0 && b != 0; },
       [](const Tensor& a, const Tensor& b) { return logical_and(a, b); }, nullptr, true},
      {"logical_or", [](double a, double b) -> double { return a != 0 || b != 0; },
       [](const Tensor& a, const Tensor& b) { return logical_or(a, b); }, nullptr, true},
      {"logical_xor", [](double a, double b) -> double { return (a != 0) != (b != 0); },
       [](const Tensor& a, const Tensor& b) { return logical_xor(a, b); }, nullptr, true}};
  return kOperations[in_.below(std::size(kOperations))];
}

void Program::binary() {
  const Operation& op = operation();
  const Register a = any(), b = any();
  trace_ << ' ' << op.name << "(" << a.tensor.sizes() << ", " << b.tensor.sizes() << ")";
  const Tensor y = op.call(a.tensor, b.tensor);
  const auto sizes = broadcast(a.plain.sizes, b.plain.sizes);
  if (!sizes) throw MustRefuse{"shapes that do not fit"};
  keep(y, computed(op.compares ? kBool : result_dtype(a.plain, b.plain), *sizes,
                   [&](const Index& i) { return op.f(a.plain.value(i), b.plain.value(i)); }));
}

struct Program::Function {
  const char* name;
  double (*f)(double);
  Tensor (*call)(const Tensor&);
  Tensor& (*in_place)(Tensor&) = nullptr;
};

const Program::Function& Program::function() {
  static const Function kFunctions[] = {
      {"neg", [](double v) { return -v; }, [](const Tensor& x) { return -x; },
       [](Tensor& x) -> Tensor& { return x.neg_(); }},
      {"relu", [](double v) { return v > 0 ? v : 0; }, [](const Tensor& x) { return relu(x); },
       [](Tensor& x) -> Tensor& { return relu_(x); }},
      {"abs", [](double v) { return std::abs(v); }, [](const Tensor& x) { return x.abs(); },
       [](Tensor& x) -> Tensor& { return x.abs_(); }},
      {"sign", [](double v) -> double { return (v > 0) - (v < 0); },
       [](const Tensor& x) { return x.sign(); }, [](Tensor& x) -> Tensor& { return x.sign_(); }},
      {"square", [](double v) { return v * v; }, [](const Tensor& x) { return x.square(); },
       [](Tensor& x) -> Tensor& { return x.square_(); }},
      {"clamp", [](double v) { return std::clamp(v, -1., 2.); },
       [](const Tensor& x) { return x.clamp(x.dtype() == kUInt8 ? 0 : -1, 2); },
       [](Tensor& x) -> Tensor& { return x.clamp_(x.dtype() == kUInt8 ? 0 : -1, 2); }},
      {"floor", [](double v) { return v; }, [](const Tensor& x) { return x.floor(); }},
      {"round", [](double v) { return v; }, [](const Tensor& x) { return x.round(); }},
      {"zero", [](double) { return 0.; }, [](const Tensor& x) { return zeros_like(x); },
       [](Tensor& x) -> Tensor& { return x.zero_(); }}};
  return kFunctions[in_.below(std::size(kFunctions))];
}

void Program::write_all(const Plain& to, Dtype from, const std::function<double(const Index&)>& f) {
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

void Program::assign() {
  Register to = any();
  const Register from = any();
  const auto fits = [&](const Plain& p) {
    if (broadcast(to.plain.sizes, p.sizes) != to.plain.sizes)
      throw MustRefuse{"a shape that does not fit"};
  };
  const auto value = [&](const Index& i) { return from.plain.value(i); };
  switch (in_.below(5)) {
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
    case 2: {
      const Function& op = function();
      if (!op.in_place || to.plain.dtype == kBool) return;
      trace_ << ' ' << op.name << "_(" << to.tensor.sizes() << ")";
      op.in_place(to.tensor);
      write_all(to.plain, to.plain.dtype,
                [&](const Index& i) { return stored(op.f(to.plain.value(i)), to.plain.dtype); });
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

void Program::unary() {
  const Register x = any();
  const Plain& p = x.plain;
  const auto map = [&](Dtype dtype, auto f) {
    return computed(dtype, p.sizes, [&](const Index& i) { return f((*p.storage)[p.at(i)]); });
  };
  switch (in_.below(8)) {
    case 0:
    case 1:
    case 2: {
      if (p.dtype == kBool) return;
      const Function& op = function();
      trace_ << ' ' << op.name;
      keep(op.call(x.tensor), map(p.dtype, op.f));
      break;
    }
    case 3: {
      if (p.dim() == 0) return;
      const int64_t d = any_dim(p);
      trace_ << " sort(" << d << ")";
      const Tensor y = std::get<0>(x.tensor.sort(d));
      keep(y, computed(p.dtype, p.sizes, [&](Index i) {
             const int64_t place = std::exchange(i[d], 0);
             std::vector<double> line;
             for (; i[d] < p.sizes[d]; ++i[d]) line.push_back((*p.storage)[p.at(i)]);
             std::ranges::sort(line);
             return line[place];
           }));
      break;
    }
    case 4: {
      const Dtype dtype = any_dtype();
      trace_ << " to(" << dtype << ")";
      const bool negative = std::ranges::any_of(*p.storage, [](double v) { return v < 0; });
      if (dtype == kUInt8 && negative) return;  // C++ and the formats differ
      keep(x.tensor.to(dtype, false, true),
           map(dtype, [&](double v) { return stored(v, dtype, p.dtype); }));
      break;
    }
    case 5:
      trace_ << " clone";
      keep(x.tensor.clone(), map(p.dtype, [](double v) { return v; }));
      break;
    case 6: {
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

void Program::reduce() {
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
  switch (in_.below(7)) {
    case 0: {
      trace_ << " amin(" << d << ")";
      const Tensor y = x.tensor.amin(Dims{d});
      if (p.sizes[d] == 0 && product(kept) > 0) throw MustRefuse{"the least of nothing"};
      keep(y, fold(p.dtype, 1e300, [](double a, double b) { return std::min(a, b); }));
      break;
    }
    case 1:
      trace_ << " any(" << d << ")";
      keep(x.tensor.any(Dims{d}),
           fold(kBool, 0, [](double a, double b) -> double { return a != 0 || b != 0; }));
      break;
    case 2:
      trace_ << " all(" << d << ")";
      keep(x.tensor.all(Dims{d}),
           fold(kBool, 1, [](double a, double b) -> double { return a != 0 && b != 0; }));
      break;
    case 3:
      trace_ << " count_nonzero(" << d << ")";
      keep(x.tensor.count_nonzero(Dims{d}),
           fold(kInt64, 0, [](double a, double b) { return a + (b != 0); }));
      break;
    case 4:
      trace_ << " sum(" << d << ")";
      keep(x.tensor.sum(Dims{d}), fold(sum_dtype(p.dtype), 0, std::plus<>()));
      break;
    case 5: {
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

void Program::join() {
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

std::pair<Tensor, Index> Program::positions(int64_t n, int64_t size) {
  Index at(n);
  for (int64_t& i : at) i = in_.below(16) == 0 ? in_.between(-2, size + 1) : in_.below(size);
  return {tensor(at, kInt64), at};
}

void Program::check_positions(const Index& at, int64_t size, const Index& picked) {
  for (const int64_t i : at)
    if ((i < -size || i >= size) && product(picked) > 0) throw MustRefuse{"an index out of range"};
}

void Program::indexed() {
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

void Program::write() {
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

void Program::product_of_two() {
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

}  // namespace halftape::fuzz
