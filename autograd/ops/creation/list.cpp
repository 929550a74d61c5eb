#include "halftape/autograd/ops/creation/list.h"

#include <algorithm>
#include <cstring>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/tensor.h"

namespace halftape::detail {
namespace {

enum class Sort : uint8_t { Bool, Integer, Float };
Sort sort(Dtype d) {
  return d == kBool ? Sort::Bool : is_floating_point(d) ? Sort::Float : Sort::Integer;
}

/// "2, 3" as LibTorch writes sizes inside a sentence.
std::string joined(const Shape& sizes) {
  std::string text;
  for (int64_t s : sizes) text += (text.empty() ? "" : ", ") + std::to_string(s);
  return text;
}

}  // namespace

int64_t TensorDataContainer::as_int64(Scalar value) {
  check_fits("tensor", value, kInt64);
  return value.to_int64();
}

TensorDataContainer::TensorDataContainer() : dtype_(get_default_dtype()), sizes_{0} {}

TensorDataContainer::TensorDataContainer(const std::vector<bool>& values) {
  auto bytes = host_room<std::vector<uint8_t>>(values.size());
  bytes.assign(values.begin(), values.end());
  assign(bytes.data(), bytes.size(), kBool);
}

void TensorDataContainer::assign(const void* values, size_t count, Dtype dtype) {
  kind_ = Kind::Block;
  dtype_ = dtype;
  sizes_ = {static_cast<int64_t>(count)};
  block_ = Array(sizes_, dtype, Device(kCPU));
  if (count > 0) std::memcpy(block_.raw(), values, count * element_size(dtype));
}

void TensorDataContainer::assign(std::vector<TensorDataContainer> list) {
  kind_ = Kind::List;
  if (list.empty()) {
    *this = TensorDataContainer();
    return;
  }
  const TensorDataContainer& first = list[0];
  dtype_ = first.dtype_;
  for (size_t i = 1; i < list.size(); ++i) {
    const TensorDataContainer& other = list[i];
    HALFTAPE_CHECK(other.sizes_ == first.sizes_,
                   "tensor: Expected all sub-lists to have sizes: ", joined(first.sizes_),
                   " (e.g. ", first, "), but got sub-list ", other,
                   " with sizes: ", joined(other.sizes_), ", as element ", i, " of its list");
    HALFTAPE_CHECK(sort(other.dtype_) == sort(first.dtype_),
                   "tensor: Expected all elements of the tensor to have the same scalar type: ",
                   type_name(first.dtype_),
                   ", but got element of scalar type: ", type_name(other.dtype_), ", in element ",
                   i, " of its list: ", other, "; write all numbers alike, as 1.0 or as 1");
    dtype_ = promote(dtype_, other.dtype_);
  }
  sizes_ = first.sizes_;
  sizes_.insert(0, static_cast<int64_t>(list.size()));
  list_ = std::move(list);
}

Scalar TensorDataContainer::scalar() const {
  HALFTAPE_CHECK(
      is_scalar(),
      "Can only call `scalar()` on a TensorDataContainer that has `is_scalar() == true`");
  return scalar_;
}
const std::vector<TensorDataContainer>& TensorDataContainer::init_list() const {
  HALFTAPE_CHECK(
      is_init_list(),
      "Can only call `init_list()` on a TensorDataContainer that has `is_init_list() == true`");
  return list_;
}
const Array& TensorDataContainer::tensor() const {
  HALFTAPE_CHECK(
      is_tensor(),
      "Can only call `tensor()` on a TensorDataContainer that has `is_tensor() == true`");
  return block_;
}

template <class T>
void TensorDataContainer::collect(std::vector<T>& out, Dtype dtype) const {
  if (is_scalar()) {
    check_fits("tensor", scalar_, dtype);
    out.push_back(scalar_.to<T>());
  } else if (is_tensor()) {
    const Array same = block_.to(dtype_of<T>);
    const T* v = same.data<T>();
    out.insert(out.end(), v, v + same.numel());
  } else {
    for (const auto& part : list_) part.collect(out, dtype);
  }
}

Array TensorDataContainer::flatten(Dtype dtype) const {
  if (is_tensor()) return block_.to(dtype);
  const auto block = [&](auto t) {
    using T = typename decltype(t)::type;
    auto values = host_room<std::vector<T>>(static_cast<uint64_t>(numel(sizes_)));
    collect(values, dtype);
    Array host(sizes_, dtype_of<T>, Device(kCPU));
    std::copy(values.begin(), values.end(), host.data<T>());
    return host.to(dtype);
  };
  return is_floating_point(dtype_) ? block(Type<double>{}) : block(Type<int64_t>{});
}

std::ostream& operator<<(std::ostream& out, const TensorDataContainer& c) {
  if (c.is_scalar()) {
    const Scalar s = c.scalar();
    if (s.is_floating_point()) return out << s.to_double();
    return out << s.to_int64();
  }
  out << '{';
  if (c.is_init_list()) {
    for (size_t i = 0; i < c.init_list().size(); ++i) out << (i ? ", " : "") << c.init_list()[i];
  } else {
    for (int64_t i = 0; i < c.tensor().numel(); ++i) {
      out << (i ? ", " : "");
      const Array one = c.tensor().select(0, i);
      if (is_floating_point(c.scalar_type()))
        out << read_double(one);
      else
        out << read_int64(one);
    }
  }
  return out << '}';
}

}  // namespace halftape::detail
