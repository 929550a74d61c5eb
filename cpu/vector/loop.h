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
inline void parallel_tasks(int64_t count, int64_t elements, FunctionRef<void(int64_t i)> task) {
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
  /// Whether memory holds lanes.
  bool dense(int64_t step) const { return dtype_ == dtype_of<S> && step == 1; }

 private:
  Dtype dtype_;
  alignas(64) S copy_[kMost];
};

/// Runs of n elements, one after the other: where each begins in each array, and the steps along
/// it, in elements.
template <size_t N>
struct WalkedRuns {
  std::array<char*, N> at;
  std::array<int64_t, N> steps;
  int64_t n, rows = 1;

  WalkedRuns(const std::array<char*, N>& begin, int64_t length) : at(begin), n(length) {
    steps.fill(1);
  }
  /// From an element of a row on.
  WalkedRuns(const CollapsedDims<N>& all, int64_t start, int64_t row) : all_(&all) {
    const int inner = all.shape.size() - 1;
    index_ = Dims::filled(inner, 0);
    for (size_t a = 0; a < N; ++a) {
      const Operand& o = all.operands[a];
      at[a] = o.base + start * o.strides[inner];
      steps[a] = o.strides[inner] / o.item;
      down_[a] = inner > 0 ? o.strides[inner - 1] : 0;
    }
    for (int d = inner - 1; d >= 0; --d) {
      index_[d] = row % all.shape[d];
      for (size_t a = 0; a < N; ++a) at[a] += index_[d] * all.operands[a].strides[d];
      row /= all.shape[d];
    }
    if (inner > 0) below_ = all.shape[inner - 1] - index_[inner - 1];
  }
  /// Goes on to the run after the next `count` ones; false after the last one.
  bool next(int64_t count = 1) {
    rows -= count - 1, below_ -= count - 1;
    for (size_t a = 0; a < N && count > 1; ++a) at[a] += (count - 1) * down_[a];
    if (--rows == 0) return false;
    for (size_t a = 0; a < N; ++a) at[a] += down_[a];
    if (--below_ == 0) carry();
    return true;
  }
  /// Runs until a dimension or all of them end.
  int64_t below() const { return std::min(rows, below_); }
  /// Bytes from a run of array a to the one below it.
  int64_t down(size_t a) const { return down_[a]; }
  /// Whether array a's next run follows this one in memory, or is this one again.
  bool follows(size_t a, int64_t item) const { return rows > 1 && down_[a] == n * item; }
  bool repeats(size_t a) const { return rows > 1 && down_[a] == 0; }

 private:
  /// From the end of the last dimension but one to the start of the next.
  void carry() {
    const int last = index_.size() - 1;
    below_ = all_->shape[last];
    for (int d = last; d >= 0; --d) {
      for (size_t a = 0; a < N; ++a) at[a] -= all_->shape[d] * all_->operands[a].strides[d];
      if (d == 0) return;
      for (size_t a = 0; a < N; ++a) at[a] += all_->operands[a].strides[d - 1];
      if (++index_[d - 1] < all_->shape[d - 1]) return;
      index_[d - 1] = 0;
    }
  }

  const CollapsedDims<N>* all_ = nullptr;
  Dims index_;  // of the run, but in the last dimension; divisions cost more
  std::array<int64_t, N> down_{};
  int64_t below_ = 1;  // runs until a dimension ends
};

/// The walk over arrays of one shape, run by run.
template <size_t N>
class Walk : public CollapsedDims<N> {
 public:
  using CollapsedDims<N>::CollapsedDims, CollapsedDims<N>::shape, CollapsedDims<N>::operands;

  /// f(runs) for the runs of the innermost dimension: cut into fixed tiles over the pool.
  void run(FunctionRef<void(WalkedRuns<N>& runs)> f) const {
    const int inner = shape.size() - 1;
    const int64_t length = shape[inner];
    int64_t rows = 1;
    for (int d = 0; d < inner; ++d) rows *= shape[d];
    if (rows == 0 || length == 0) return;
    const int64_t pieces = (length + kTile - 1) / kTile;  // of a long row
    const int64_t rows_per_tile = std::max<int64_t>(1, kTile / std::min(length, kTile));
    const int64_t row_tiles = (rows + rows_per_tile - 1) / rows_per_tile;
    parallel_tasks(row_tiles * pieces, rows * length, [&](int64_t task) {
      const int64_t start = task % pieces * kTile, first = task / pieces * rows_per_tile;
      WalkedRuns<N> runs(*this, start, first);
      runs.n = std::min(kTile, length - start);
      runs.rows = std::min(rows - first, rows_per_tile);
      f(runs);
    });
  }
  /// Plans the walk as well, but not for a few contiguous elements.
  [[gnu::always_inline]] static void run(const std::array<const Array*, N>& arrays,
                                         FunctionRef<void(WalkedRuns<N>& runs)> f) {
    bool plain = arrays[0]->numel() <= kAlone;
    std::array<char*, N> first;
    for (size_t a = 0; a < N; ++a) {
      first[a] = static_cast<char*>(arrays[a]->raw());
      plain = plain && arrays[a]->contiguous();
    }
    if (!plain) return plan_and_run(arrays, f);
    WalkedRuns<N> all(first, arrays[0]->numel());
    f(all);
  }

 private:
  [[gnu::noinline]] static void plan_and_run(const std::array<const Array*, N>& arrays,
                                             FunctionRef<void(WalkedRuns<N>& runs)> f) {
    Walk(arrays).run(f);
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

/// The array that repeats one row beside others whose rows follow one another, as a bias does; N if
/// there is no such one.
template <class S, size_t N, class Use>
size_t repeated(const WalkedRuns<N>& runs, const Use& use) {
  size_t again = N;
  for (size_t a = 0; a < N; ++a) {
    if (runs.follows(a, sizeof(S)) || !(use.reads(a) || use.writes(a))) continue;
    if (again < N || use.writes(a) || !runs.repeats(a)) return N;
    again = a;
  }
  return again;
}
inline constexpr int64_t kRepeated = 1024;  // elements that are worked on at once then

/// What is done with a block: its lanes of each array, whole chunks of them, and its elements.
template <class S, size_t N>
using BlockFunction =
    FunctionRef<void(const std::array<S*, N>& lanes, int64_t n, int64_t elements)>;

/// Runs of lanes beside one that repeats, several at a time, for a step from one short row to the
/// next costs as much as some chunks.
template <class S, size_t N>
void repeat_runs(WalkedRuns<N>& runs, size_t again, BlockFunction<S, N> f) {
  alignas(64) S copies[kRepeated];
  const int64_t most = kRepeated / runs.n;
  std::array<S*, N> lanes;
  const char* copied = nullptr;
  int64_t count;
  do {
    for (size_t a = 0; a < N; ++a) lanes[a] = reinterpret_cast<S*>(runs.at[a]);
    for (int64_t i = 0; i < std::min(runs.rows, most) && copied != runs.at[again]; ++i)
      std::copy_n(lanes[again], runs.n, copies + i * runs.n);
    copied = runs.at[again];
    count = std::min(runs.below(), most);
    lanes[again] = copies;
    f(lanes, count * runs.n, count * runs.n);
  } while (runs.next(count));
}

/// f for the blocks of runs. Not inlined, so that there is one for a walk with and without a plan.
template <class S, class Use, size_t... A>
[[gnu::noinline]] void each_block_of(WalkedRuns<sizeof...(A)>& runs,
                                     const std::array<const Array*, sizeof...(A)>& arrays,
                                     const Use& use, BlockFunction<S, sizeof...(A)> f,
                                     std::index_sequence<A...>) {
  constexpr size_t N = sizeof...(A);
  std::array<Lanes<S>, N> copies{Lanes<S>(arrays[A]->dtype())...};
  std::array<S*, N> lanes{};
  bool in_place = runs.n >= kLanes;
  for (size_t a = 0; a < N; ++a) {
    if (use.misses(a)) lanes[a] = copies[a].zeros(Lanes<S>::block(runs.n));
    if (in_place && (use.reads(a) || use.writes(a))) in_place = copies[a].dense(runs.steps[a]);
    in_place &= !use.misses(a);
  }
  if (in_place && runs.n % kLanes == 0 && runs.n <= kRepeated / 4)
    if (const size_t again = repeated<S>(runs, use); again < N)
      return repeat_runs<S>(runs, again, f);
  do {
    std::array<char*, N> at = runs.at;
    const auto advance = [&](int64_t n) {
      for (size_t a = 0; a < N; ++a) at[a] += n * runs.steps[a] * copies[a].item();
    };
    int64_t rest = runs.n, n;
    if (in_place) {
      n = rest / kLanes * kLanes;
      for (size_t a = 0; a < N; ++a) lanes[a] = reinterpret_cast<S*>(at[a]);
      f(lanes, n, n);
      if (n == rest) continue;
      advance(n);
      rest -= n;
    }
    for (; rest > 0; rest -= n) {
      n = Lanes<S>::block(rest);
      for (size_t a = 0; a < N; ++a)
        if (use.reads(a))
          lanes[a] = copies[a].read(at[a], runs.steps[a], n);
        else if (use.writes(a))
          lanes[a] = copies[a].at(at[a], runs.steps[a], n);
      f(lanes, (n + kLanes - 1) / kLanes * kLanes, n);
      for (size_t a = 0; a < N; ++a)
        if (use.writes(a)) copies[a].write(lanes[a], at[a], runs.steps[a], n);
      if (n < rest) advance(n);
    }
  } while (runs.next());
}

/// f for blocks of arrays of one shape, of lanes of S. An array that `use` does not name has no
/// lanes.
template <class S, size_t N, class Use>
void each_block(const std::array<const Array*, N>& arrays, const Use& use,
                std::type_identity_t<BlockFunction<S, N>> f) {
  Walk<N>::run(arrays, [&](WalkedRuns<N>& runs) {
    each_block_of<S>(runs, arrays, use, f, std::make_index_sequence<N>());
  });
}

}  // namespace halftape::cpu
