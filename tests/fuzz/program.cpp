#include "program.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>

#include "halftape/autograd/ops/creation/create.h"

namespace halftape::fuzz {
namespace {

constexpr double kLargest = 512;  // of a value; a larger one ends its storage

}  // namespace

bool Program::run() {
  for (int i = 0; i < 3; ++i) make();
  int done = 0, steps = 0;
  for (; !in_.done() && steps < 40; ++steps) {
    trace_.str("");
    done += step();
  }
  return 2 * done >= steps;
}

bool Program::step() {
  using Calls = std::vector<void (Program::*)()>;
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

void Program::check(const Register& r, size_t i) const {
  const auto fail = [&](const std::string& what) {
    throw Finding("register " + std::to_string(i) + " after" + trace_.str() + ": " + what);
  };
  if (r.tensor.dtype() != r.plain.dtype) {
    std::ostringstream text;
    text << "dtype " << r.tensor.dtype() << ", expected " << r.plain.dtype;
    fail(text.str());
  }
  const Shape& shape = r.tensor.sizes();
  if (!std::ranges::equal(shape, r.plain.sizes)) fail("another shape");
  const Tensor values = r.tensor.to(kFloat64).contiguous();
  const double* found = values.data_ptr<double>();
  for_each_index(r.plain.sizes, [&](const Index& index) {
    const double expected = (*r.plain.storage)[r.plain.at(index)];
    if (*found != expected)
      fail("found " + std::to_string(*found) + ", expected " + std::to_string(expected));
    ++found;
  });
}

Program::Register& Program::any() {
  return registers_[in_.below(static_cast<int64_t>(registers_.size()))];
}

Dtype Program::any_dtype() {
  static constexpr Dtype kDtypes[] = {kFloat32, kInt64, kFloat64, kFloat16, kBFloat16,
                                      kBool,    kUInt8, kInt32,   kInt8,    kInt16};
  return kDtypes[in_.below(std::size(kDtypes))];
}

void Program::keep(Tensor tensor, Plain plain) {
  if (registers_.size() < 6)
    registers_.push_back({std::move(tensor), std::move(plain)});
  else
    registers_[in_.below(6)] = {std::move(tensor), std::move(plain)};
}

int64_t Program::any_dim(const Plain& p) { return p.dim() == 0 ? 0 : in_.below(p.dim()); }

void Program::make() {
  const Dtype dtype = any_dtype();
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

void Program::view() {
  const Register r = any();
  Plain p = r.plain;
  Tensor t = r.tensor;
  const int64_t d = any_dim(p);
  switch (in_.below(11)) {
    case 0: {  // squeeze
      if (p.dim() == 0) return;
      trace_ << " squeeze(" << d << ")";
      t = t.squeeze(d);
      if (p.sizes[d] != 1) break;
      p.sizes.erase(p.sizes.begin() + d);
      p.strides.erase(p.strides.begin() + d);
      break;
    }
    case 1: {  // movedim
      if (p.dim() == 0) return;
      const int64_t e = any_dim(p);
      trace_ << " movedim(" << d << ", " << e << ")";
      t = t.movedim(d, e);
      for (Index* of : {&p.sizes, &p.strides}) {
        const int64_t moved = (*of)[d];
        of->erase(of->begin() + d);
        of->insert(of->begin() + e, moved);
      }
      break;
    }
    case 2: {  // the last part of a split
      if (p.dim() == 0 || p.sizes[d] == 0) return;
      const int64_t size = in_.between(1, 2), from = (p.sizes[d] - 1) / size * size;
      trace_ << " split(" << size << ", " << d << ")";
      t = t.split(size, d).back();
      p.offset += from * p.strides[d];
      p.sizes[d] -= from;
      break;
    }
    case 3: {  // slice
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
    case 4: {  // select
      if (p.dim() == 0 || p.sizes[d] == 0) return;
      const int64_t i = in_.below(p.sizes[d]);
      trace_ << " select(" << d << ", " << i << ")";
      t = t.select(d, i);
      p.offset += i * p.strides[d];
      p.sizes.erase(p.sizes.begin() + d);
      p.strides.erase(p.strides.begin() + d);
      break;
    }
    case 5: {  // transpose
      const int64_t e = any_dim(p);
      if (p.dim() == 0) return;
      trace_ << " transpose(" << d << ", " << e << ")";
      t = t.transpose(d, e);
      std::swap(p.sizes[d], p.sizes[e]);
      std::swap(p.strides[d], p.strides[e]);
      break;
    }
    case 6: {  // expand
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
    case 7: {  // unsqueeze
      const int64_t at = in_.between(0, p.dim());
      if (p.dim() > 3) return;
      trace_ << " unsqueeze(" << at << ")";
      t = t.unsqueeze(at);
      p.sizes.insert(p.sizes.begin() + at, 1);
      p.strides.insert(p.strides.begin() + at, 0);
      break;
    }
    case 8: {  // diagonal
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
    case 9: {  // windows that overlap
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

namespace {

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
