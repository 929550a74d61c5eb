#include "halftape/core/shape.h"

#include <algorithm>
#include <cstdlib>

#include "halftape/core/buffer.h"

namespace halftape {

void Dims::too_many() {
  HALFTAPE_CHECK(false, "shapes have at most ", kMaxDims, " dimensions");
  std::abort();
}

void Dims::insert(int at, int64_t v) {
  if (size_ == kMaxDims) too_many();
  std::copy_backward(begin() + at, end(), end() + 1);
  values_[static_cast<size_t>(at)] = v;
  ++size_;
}

void Dims::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --size_;
}

bool Dims::contains(int64_t v) const { return std::find(begin(), end(), v) != end(); }

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '[';
  for (int i = 0; i < dims.size(); ++i) out << (i ? ", " : "") << dims[i];
  return out << ']';
}

void size_overflow(int64_t a, const char* op, int64_t b) {
  HALFTAPE_CHECK(false, "size ", a, op, b, " does not fit 64 bits");
  std::abort();
}

int64_t lay_out(const Shape& shape, Strides& strides) {
  int64_t n = 1;
  bool empty = false;
  for (int i = shape.size() - 1; i >= 0; --i) {
    const int64_t size = shape[i];
    HALFTAPE_CHECK(size >= 0, "shape ", shape, " has a negative size");
    strides[i] = n;
    if (size == 0)  // counts as 1: (2^40, 2^40, 0) must not look harmless, as its strides overflow
      empty = true;
    else
      HALFTAPE_CHECK(!__builtin_mul_overflow(n, size, &n), "shape ", shape,
                     " has a number of elements that does not fit 64 bits");
  }
  return empty ? 0 : n;
}

int64_t numel(const Shape& shape) {
  Strides unused;
  return lay_out(shape, unused);
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  lay_out(shape, strides);
  return strides;
}

bool overlaps_itself(const Shape& shape, const Strides& strides) {
  if (shape.contains(0) || is_contiguous(shape, strides)) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // distances and sizes
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] > 1) dims.emplace_back(std::abs(strides[i]), shape[i]);
  std::sort(dims.begin(), dims.end());
  int64_t extent = 0;
  bool disjoint = true;  // each stride beyond all that the smaller ones reach
  for (const auto& [stride, n] : dims) {
    disjoint &= stride > extent;
    extent += (n - 1) * stride;
  }
  if (disjoint || dims[0].first == 0) return !disjoint;
  if (numel(shape) > extent + 1) return true;  // more elements than places
  auto places = host_room<std::vector<size_t>>(static_cast<uint64_t>(numel(shape)));
  places.push_back(0);
  for (const auto& [stride, n] : dims) {
    const size_t before = places.size();
    for (size_t i = before; i < before * static_cast<size_t>(n); ++i)
      places.push_back(places[i - before] + static_cast<size_t>(stride));
  }
  const size_t reach = static_cast<size_t>(extent) + 1;
  auto taken = on_host(reach / 8, [&] { return std::vector<bool>(reach); });
  for (const size_t place : places) {
    if (taken[place]) return true;
    taken[place] = true;
  }
  return false;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  Shape out = a.size() >= b.size() ? a : b;
  const int n = out.size();
  for (int i = 1; i <= n; ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1, y = i <= b.size() ? b[b.size() - i] : 1;
    HALFTAPE_CHECK(x == y || x == 1 || y == 1, op, ": shapes ", a, " and ", b,
                   " do not broadcast: dimension ", n - i, " is ", x, " against ", y,
                   " (equal sizes or 1 are needed)");
    out[n - i] = x == 1 ? y : x;
  }
  return out;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (int i = 1; i <= from.size(); ++i) {
    const int64_t x = from[from.size() - i];
    if (x != 1 && x != to[to.size() - i]) return false;
  }
  return true;
}

int wrap_dim(const char* op, int64_t dim, int rank) {
  const int64_t n = std::max(rank, 1);
  HALFTAPE_CHECK(dim >= -n && dim < n, op, ": dimension ", dim, " is out of range for ", rank,
                 " dimensions (expected ", -n, " to ", n - 1, ")");
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

Dims wrap_dims(const char* op, const Dims& dims, int rank) {
  Dims out;
  if (dims.empty())
    for (int i = 0; i < rank; ++i) out.push_back(i);
  for (int64_t d : dims) {
    const int w = wrap_dim(op, d, rank);
    HALFTAPE_CHECK(!out.contains(w), op, ": dimension ", w, " appears twice in ", dims);
    out.push_back(w);
  }
  if (rank == 0) return {};
  std::sort(out.begin(), out.end());
  return out;
}

Shape reduced_shape(const Shape& shape, const Dims& dims, bool keepdim) {
  Shape out;
  for (int i = 0; i < shape.size(); ++i) {
    if (!dims.contains(i))
      out.push_back(shape[i]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

Shape infer_shape(const char* op, const Shape& wanted, int64_t count, const Shape& from) {
  Shape out = wanted;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < wanted.size(); ++i) {
    HALFTAPE_CHECK(wanted[i] >= -1, op, ": size ", wanted[i], " in ", wanted, " is negative");
    if (wanted[i] == -1) {
      HALFTAPE_CHECK(unknown < 0, op, ": only one size of ", wanted, " can be -1");
      unknown = i;
    } else {
      known = checked_mul(known, wanted[i]);
    }
  }
  if (unknown >= 0) {
    HALFTAPE_CHECK(known != 0 && count % known == 0, op, ": ", from, " has ", count,
                   " elements, which ", wanted, " cannot hold");
    out[unknown] = count / known;
    known = count;
  }
  HALFTAPE_CHECK(known == count, op, ": ", from, " has ", count, " elements, but ", wanted, " has ",
                 known);
  return out;
}

}  // namespace halftape
