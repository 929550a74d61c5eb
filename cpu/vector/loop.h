// Loading and storing chunks of any dtype and stride, and the walk over strided arrays in fixed
// tiles.
#pragma once
#include <algorithm>
#include <array>

#include "halftape/core/contract/collapsed.h"
#include "halftape/cpu/runtime/parallel.h"
#include "halftape/cpu/vector/chunk.h"

namespace halftape::cpu {

/// n elements, `stride` apart, into lanes; the rest of the last chunk is 1, harmless to every
/// formula.
template <class S>
using Load = void (*)(const void* from, int64_t stride, int64_t n, S* lanes);
template <class S>
using Store = void (*)(const S* lanes, int64_t n, void* to, int64_t stride);

/// The loads and stores of each dtype, in the order of the dtypes: compiled once, in lanes.cpp.
template <class S>
struct LaneCopies {
  static const std::array<Load<S>, std::size(kDtypeTraits)> load;
  static const std::array<Store<S>, std::size(kDtypeTraits)> store;
};
extern template struct LaneCopies<float>;
extern template struct LaneCopies<double>;
extern template struct LaneCopies<int64_t>;

template <class S>
Load<S> loader(Dtype d) {
  return LaneCopies<S>::load[static_cast<size_t>(d)];
}
template <class S>
Store<S> storer(Dtype d) {
  return LaneCopies<S>::store[static_cast<size_t>(d)];
}

/// f(Type<…>{}) with the unsigned integer of a dtype's size, to move its elements as they are.
template <class F>
decltype(auto) with_word(Dtype d, const F& f) {
  switch (element_size(d)) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

template <class S>
const Chunk<S>& at(const S* lanes, int64_t i) {
  return *reinterpret_cast<const Chunk<S>*>(lanes + i);
}
template <class S>
Chunk<S>& at(S* lanes, int64_t i) {
  return *reinterpret_cast<Chunk<S>*>(lanes + i);
}

inline constexpr int64_t kTile = 16384;   // elements that one task works on
inline constexpr int64_t kAlone = 65536;  // elements for which waking another thread is too dear

/// The number of items, of so many elements each, that one task takes.
inline int64_t grain(int64_t items, int64_t elements) {
  if (items * elements <= kAlone) return std::max<int64_t>(1, items);
  return std::max<int64_t>(1, kTile / std::max<int64_t>(1, elements));
}

/// task(i) for every i below `count`: on the pool, unless all tasks together have few elements.
template <class F>
void parallel_tasks(int64_t count, int64_t elements, const F& task) {
  if (elements > kAlone) return parallel_for(count, task);
  for (int64_t i = 0; i < count; ++i) task(i);
}

/// One array's part in a walk over blocks of lanes: where those are, and what is to be copied.
template <class S>
class Lanes {
 public:
  static constexpr int64_t kMost = 512;  // elements of a block
  /// How many of the remaining elements make the next block: whole chunks, or the end of the last.
  static int64_t block(int64_t rest) {
    return rest < kLanes ? rest : std::min(kMost, rest / kLanes * kLanes);
  }

  explicit Lanes(Dtype d) : dtype_(d) {}
  /// The lanes of a block: its memory itself where that holds whole chunks of S, side by side.
  S* at(char* memory, int64_t step, int64_t n) {
    return dense(step) && n % kLanes == 0 ? reinterpret_cast<S*>(memory) : copy_;
  }
  S* read(char* memory, int64_t step, int64_t n) {
    S* lanes = at(memory, step, n);
    if (lanes != copy_) return lanes;
    if (!dense(step)) {
      loader<S>(dtype_)(memory, step, n, copy_);
    } else {  // less than a chunk: what loader() does, without a call
      std::fill_n(copy_, kLanes, S(1));
      std::copy_n(reinterpret_cast<const S*>(memory), n & (kLanes - 1), copy_);
    }
    return lanes;
  }
  void write(const S* lanes, char* memory, int64_t step, int64_t n) const {
    if (lanes == copy_) storer<S>(dtype_)(copy_, n, memory, step);
  }
  /// Lanes of zeros for blocks of up to n elements.
  S* zeros(int64_t n) {
    std::fill_n(copy_, (n + kLanes - 1) / kLanes * kLanes, S(0));
    return copy_;
  }
  int64_t item() const { return static_cast<int64_t>(element_size(dtype_)); }  // bytes

 private:
  bool dense(int64_t step) const { return dtype_ == dtype_of<S> && step == 1; }

  Dtype dtype_;
  alignas(64) S copy_[kMost];
};

/// The walk over arrays of one shape, run by run.
template <size_t N>
class Walk : public CollapsedDims<N> {
 public:
  using Pointers = std::array<char*, N>;
  using Steps = std::array<int64_t, N>;  // in elements
  using CollapsedDims<N>::CollapsedDims, CollapsedDims<N>::shape, CollapsedDims<N>::operands;

  /// f(pointers, steps, n): every run of the innermost dimension, cut into fixed tiles over the
  /// pool.
  template <class F>
  void run(const F& f) const {
    run(&call<F>, &f);
  }
  /// Plans the walk as well, but not for a few contiguous elements.
  template <class F>
  static void run(const std::array<const Array*, N>& arrays, const F& f) {
    bool plain = arrays[0]->numel() <= kAlone;
    Pointers first;
    Steps ones;
    for (size_t a = 0; a < N; ++a) {
      first[a] = static_cast<char*>(arrays[a]->raw());
      ones[a] = 1;
      plain = plain && arrays[a]->contiguous();
    }
    if (plain)
      call<F>(&f, first, ones, arrays[0]->numel());
    else
      Walk(arrays).run(f);
  }

 private:
  // Compiled once for every N, not for every f.
  using Body = void (*)(const void* f, const Pointers&, const Steps&, int64_t n);
  template <class F>
  static void call(const void* f, const Pointers& at, const Steps& steps, int64_t n) {
    (*static_cast<const F*>(f))(at, steps, n);
  }

  void run(Body body, const void* f) const {
    const int inner = shape.size() - 1;
    const int64_t length = shape[inner];
    int64_t rows = 1;
    for (int d = 0; d < inner; ++d) rows *= shape[d];
    if (rows == 0 || length == 0) return;
    const int64_t pieces = (length + kTile - 1) / kTile;  // of a long row
    const int64_t rows_per_tile = std::max<int64_t>(1, kTile / std::min(length, kTile));
    const int64_t row_tiles = (rows + rows_per_tile - 1) / rows_per_tile;
    Steps steps;
    for (size_t a = 0; a < N; ++a) steps[a] = operands[a].strides[inner] / operands[a].item;
    parallel_tasks(row_tiles * pieces, rows * length, [&](int64_t tile) {
      const int64_t start = tile % pieces * kTile, n = std::min(kTile, length - start);
      const int64_t first = tile / pieces * rows_per_tile,
                    last = std::min(rows, first + rows_per_tile);
      Pointers at;
      for (size_t a = 0; a < N; ++a) at[a] = operands[a].base + start * operands[a].strides[inner];
      Dims index = Dims::filled(inner, 0);  // of the row; counted on, as divisions cost more
      int64_t rest = first;
      for (int d = inner - 1; d >= 0; --d) {
        index[d] = rest % shape[d];
        for (size_t a = 0; a < N; ++a) at[a] += index[d] * operands[a].strides[d];
        rest /= shape[d];
      }
      for (int64_t row = first; row < last; ++row) {
        body(f, at, steps, n);
        for (int d = inner - 1; d >= 0; --d) {
          const bool carry = ++index[d] == shape[d];
          if (carry) index[d] = 0;
          const int64_t moved = carry ? 1 - shape[d] : 1;
          for (size_t a = 0; a < N; ++a) at[a] += moved * operands[a].strides[d];
          if (!carry) break;
        }
      }
    });
  }
};

/// What is done with arrays that are walked over together: bit a stands for array a. A missing one
/// has lanes of zeros.
struct Use {
  uint32_t read = 0, written = 0, missing = 0;
  bool reads(size_t a) const { return read >> a & 1; }
  bool writes(size_t a) const { return written >> a & 1; }
  bool misses(size_t a) const { return missing >> a & 1; }
};

/// f(lanes of each array, whole chunks of lanes, elements) for blocks of arrays of one shape, of
/// lanes of S. An array that `use` does not name has no lanes.
template <class S, size_t N, class Use, class F>
void each_block(const std::array<const Array*, N>& arrays, const Use& use, const F& f) {
  const auto blocks = [&]<size_t... A>(std::index_sequence<A...>) {
    return [&](std::array<char*, N> at, const std::array<int64_t, N>& steps, int64_t length) {
      std::array<Lanes<S>, N> copies{Lanes<S>(arrays[A]->dtype())...};
      std::array<S*, N> lanes;
      std::array<int64_t, N> item;  // bytes from one element to the next
      for (size_t a = 0; a < N; ++a) {
        item[a] = steps[a] * copies[a].item();
        if (use.misses(a)) lanes[a] = copies[a].zeros(Lanes<S>::block(length));
      }
      for (int64_t n; length > 0; length -= n) {
        n = Lanes<S>::block(length);
        for (size_t a = 0; a < N; ++a)
          if (use.reads(a))
            lanes[a] = copies[a].read(at[a], steps[a], n);
          else if (use.writes(a))
            lanes[a] = copies[a].at(at[a], steps[a], n);
        f(lanes, (n + kLanes - 1) / kLanes * kLanes, n);
        for (size_t a = 0; a < N; ++a) {
          if (use.writes(a)) copies[a].write(lanes[a], at[a], steps[a], n);
          at[a] += n * item[a];
        }
      }
    };
  };
  Walk<N>::run(arrays, blocks(std::make_index_sequence<N>()));
}

}  // namespace halftape::cpu
