// Attention, head by head, a block of queries at a time: a block's scores stay in the cache between
// the products, and memory grows with the number of keys. Blocks are those of the shape alone, and
// come in order: same bits for any number of threads.
#include <algorithm>
#include <limits>

#include "halftape/core/formula/philox.h"
#include "halftape/cpu/fused.h"
#include "halftape/cpu/rows.h"

namespace halftape::cpu {
namespace {

constexpr int64_t kQueries = 32;  // of a block: packing keys and values is a small part then

int64_t whole_chunks(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

/// Uninitialised and row-major. For one task: no other backend hears of it.
Array matrix(int64_t rows, int64_t columns, Dtype dtype) {
  const Shape shape{rows, columns};
  return {allocate(byte_count(shape, dtype)), shape, {columns, 1}, 0, dtype};
}

/// Queries [i0, i1), and how many keys they see.
struct Block {
  int64_t i0, i1, keys;
  int64_t rows() const { return i1 - i0; }
  Array queries(const Array& x) const { return x.slice(0, i0, i1); }
  Array seen(const Array& x) const { return x.slice(0, 0, keys); }
  /// The part of a task's own matrix.
  Array scores(const Array& x) const { return x.slice(0, 0, rows()).slice(1, 0, keys); }
};

/// What one task needs to work on heads. S: float or double.
template <class S>
class Heads {
 public:
  Heads(CpuBackend& on, const Attention& a, int64_t blocks_of_scores)
      : on_(on), a_(a), queries_(a.q.size(2)), keys_(a.k.size(2)), low_(a.q.dtype()) {
    const int64_t rows = std::min(queries_, kQueries);
    for (int64_t n = 0; n < blocks_of_scores; ++n)
      scores_[n] = matrix(rows, whole_chunks(keys_), dtype_of<S>);
  }

  void forward(int64_t head) const {
    const Array q = wide(a_.q, head), k = wide(a_.k, head), v = wide(a_.v, head),
                y = of(a_.y, head);
    each_block([&](const Block& b) {
      products(b, q, k);
      each_row(b, head, [&](const Row& row) { weights(row); });
      on_.gemm({.d = b.queries(y), .a = b.scores(scores_[0]), .b = b.seen(v)});
    });
  }

  void backward(const AttentionGrad& d, int64_t head) const {
    const Array q = wide(a_.q, head), k = wide(a_.k, head), v = wide(a_.v, head),
                g = wide(d.g, head);
    const Array dk = sums(d.dk, head), dv = sums(d.dv, head);
    const bool of_scores = d.dq.defined() || dk.defined();
    const double before = is_one_block() ? 0 : 1;
    each_block([&](const Block& b) {
      products(b, q, k);
      if (of_scores)
        on_.gemm({.d = b.scores(scores_[1]), .a = b.queries(g), .b = b.seen(v).transpose(0, 1)});
      each_row(b, head, [&](const Row& row) { slopes(row, of_scores, dv.defined()); });
      const Array p = b.scores(scores_[0]), ds = of_scores ? b.scores(scores_[1]) : Array();
      if (dv.defined())
        on_.gemm({.d = b.seen(dv), .a = p.transpose(0, 1), .b = b.queries(g), .beta = before});
      if (d.dq.defined())
        on_.gemm({.d = b.queries(of(d.dq, head)), .a = ds, .b = b.seen(k), .alpha = a_.scale});
      if (dk.defined())
        on_.gemm({.d = b.seen(dk),
                  .a = ds.transpose(0, 1),
                  .b = b.queries(q),
                  .alpha = a_.scale,
                  .beta = before});
    });
    if (dk.defined() && !adds_in_place(d.dk)) copy(of(d.dk, head), dk);
    if (dv.defined() && !adds_in_place(d.dv)) copy(of(d.dv, head), dv);
  }

 private:
  /// One query's scores.
  struct Row {
    int64_t r, head, i;    // of the block; of all
    int64_t length, keys;  // those it sees, and those of its block
    S *extra, *rounded;    // room for one more row
    int64_t padded() const { return whole_chunks(length); }
  };

  Array of(const Array& x, int64_t head) const {
    const int64_t heads = a_.q.size(1);
    return x.select(0, head / heads).select(0, head % heads);
  }
  /// Converted once: all blocks read it.
  Array wide(const Array& x, int64_t head) const {
    Array here = of(x, head);
    if (here.dtype() == dtype_of<S>) return here;
    Array y = matrix(here.size(0), here.size(1), dtype_of<S>);
    copy(y, here);
    return y;
  }
  template <class F>
  void each_block(const F& f) const {
    for (int64_t i = 0; i < queries_; i += kQueries) {
      const int64_t end = std::min(i + kQueries, queries_);
      f(Block{i, end, a_.causal ? std::min(end, keys_) : keys_});
    }
  }
  template <class F>
  void each_row(const Block& b, int64_t head, const F& f) const {
    parallel_ranges(b.rows(), grain(b.rows(), b.keys), [&](int64_t begin, int64_t end) {
      const int64_t room = whole_chunks(keys_);
      const Scratch<S> extra(2 * room);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t i = b.i0 + r;
        f(Row{r, head, i, a_.causal ? std::min(i + 1, keys_) : keys_, b.keys, extra.data(),
              extra.data() + room});
      }
    });
  }

  /// One block has all queries and keys: nothing is added up.
  bool is_one_block() const { return queries_ <= kQueries && (!a_.causal || keys_ <= queries_); }
  bool adds_in_place(const Array& gradient) const {
    return gradient.dtype() == dtype_of<S> || is_one_block();
  }
  /// Where the gradient of a head's keys or values is added up, from 0 on.
  Array sums(const Array& gradient, int64_t head) const {
    if (!gradient.defined()) return {};
    const Array here = of(gradient, head);
    Array sums = adds_in_place(gradient) ? here : matrix(here.size(0), here.size(1), dtype_of<S>);
    if (!is_one_block()) fill(sums, 0);
    return sums;
  }

  void products(const Block& b, const Array& q, const Array& k) const {
    on_.gemm({.d = b.scores(scores_[0]), .a = b.queries(q), .b = b.seen(k).transpose(0, 1)});
  }
  S* lanes(int n, const Row& row) const {
    return static_cast<S*>(scores_[n].raw()) + row.r * scores_[n].strides()[0];
  }
  /// Rounds a row to the dtype of the inputs; behind the keys that its query sees it becomes 0.
  void round(S* x, const Row& row) const {
    if (low_ != dtype_of<S>) {
      storer<S>(low_)(x, row.length, row.rounded, 1);
      loader<S>(low_)(row.rounded, 1, row.length, x);
    }
    std::fill(x + row.length, x + row.keys, S(0));
  }

  /// q·kᵀ, as gemm left it, becomes scores.
  void finish(S* s, const Row& row) const {
    const S scale = static_cast<S>(a_.scale);
    for (int64_t j = 0; j < row.padded(); j += kLanes) at(s, j) = scale * at(s, j);
    const Array& m = a_.mask;
    if (!m.defined()) return;
    const int64_t heads = a_.q.size(1);
    const int64_t at_row = row.head / heads * m.strides()[0] + row.head % heads * m.strides()[1] +
                           row.i * m.strides()[2];
    loader<S>(m.dtype())(
        static_cast<const char*>(m.raw()) + at_row * static_cast<int64_t>(element_size(m.dtype())),
        m.strides()[3], row.length, row.extra);
    for (int64_t j = 0; j < row.padded(); j += kLanes)
      at(s, j) = m.dtype() == kBool ? where(at(row.extra, j) != S(0), at(s, j),
                                            -std::numeric_limits<S>::infinity())
                                    : at(s, j) + at(row.extra, j);
  }

  /// extra ← 1 for the weights of a row that stay, 0 for the others.
  void draw(const Row& row) const {
    if (a_.dropout == 0) return;
    const auto first = static_cast<uint64_t>((row.head * queries_ + row.i) * keys_);
    const auto n = static_cast<uint64_t>(row.length);
    for (uint64_t j = 0; j < n;) {
      const PhiloxBlock words = philox(a_.key.seed, a_.key.offset + (first + j) / 4, 0);
      for (uint64_t w = (first + j) % 4; w < 4 && j < n; ++w, ++j)
        row.extra[j] = static_cast<double>(uniform01(words.v[w])) < 1 - a_.dropout ? S(1) : S(0);
    }
    std::fill(row.extra + row.length, row.extra + row.padded(), S(0));
  }
  void drop(S* x, const Row& row) const {
    if (a_.dropout == 0) return;
    const S rest = static_cast<S>(1 - a_.dropout);
    for (int64_t j = 0; j < row.padded(); j += kLanes)
      at(x, j) = at(x, j) * at(row.extra, j) / rest;
  }

  /// Scores become weights.
  void weights(const Row& row) const {
    S* s = lanes(0, row);
    finish(s, row);
    auto [top, total] = Exponentials<S>(s, s, row.length, row.padded());
    if (a_.mask.defined() && top == -std::numeric_limits<S>::infinity()) {
      std::fill(s, s + row.padded(), S(0));
      top = 0, total = 1;
    } else {
      for (int64_t j = 0; j < row.padded(); j += kLanes) at(s, j) = at(s, j) / total;
    }
    a_.largest.template data<S>()[row.head * queries_ + row.i] = top;
    a_.total.template data<S>()[row.head * queries_ + row.i] = total;
    draw(row);
    drop(s, row);
    round(s, row);
  }

  /// Scores become weights and, if they are wanted, the gradients of weights those of scores.
  void slopes(const Row& row, bool of_scores, bool of_values) const {
    S* p = lanes(0, row);
    finish(p, row);
    std::fill(p + row.length, p + row.padded(), -std::numeric_limits<S>::infinity());
    const S top = a_.largest.template data<S>()[row.head * queries_ + row.i],
            total = a_.total.template data<S>()[row.head * queries_ + row.i];
    for (int64_t j = 0; j < row.padded(); j += kLanes)
      at(p, j) = each(at(p, j) - top, [](S x) { return math::power_of_e(x); }) / total;
    draw(row);
    if (of_scores) {
      S* d = lanes(1, row);
      std::fill(d + row.length, d + row.padded(), S(0));
      drop(d, row);
      Running<formula::Sum, S> sum;
      for (int64_t j = 0; j < row.padded(); j += kLanes) sum.add(at(d, j) * at(p, j));
      const S mean = sum.total();
      for (int64_t j = 0; j < row.padded(); j += kLanes) at(d, j) = at(p, j) * (at(d, j) - mean);
      round(d, row);
    }
    if (!of_values) return;
    drop(p, row);
    round(p, row);
  }

  CpuBackend& on_;
  const Attention& a_;
  const int64_t queries_, keys_;
  const Dtype low_;
  Array scores_[2];  // or weights; and the gradients of them
};

/// f(heads, head) for every head: on the pool, unless there are more threads than heads, which then
/// share the work within each.
template <class S, class F>
void each_head(CpuBackend& on, const Attention& a, int64_t blocks_of_scores, const F& f) {
  const int64_t count = a.q.size(0) * a.q.size(1);
  const auto work = [&](int64_t begin, int64_t end) {
    const Heads<S> heads(on, a, blocks_of_scores);
    for (int64_t head = begin; head < end; ++head) f(heads, head);
  };
  if (count < get_num_threads()) return work(0, count);
  parallel_ranges(count, grain(count, a.q.size(2) * a.k.size(2)), work);
}

}  // namespace

void attention(CpuBackend& on, const Attention& a) {
  with_float_type(a.q.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    each_head<S>(on, a, 1, [](const Heads<S>& heads, int64_t head) { heads.forward(head); });
  });
}

void attention_grad(CpuBackend& on, const AttentionGrad& d) {
  with_float_type(d.of.q.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const int64_t blocks = d.dq.defined() || d.dk.defined() ? 2 : 1;
    each_head<S>(on, d.of, blocks,
                 [&](const Heads<S>& heads, int64_t head) { heads.backward(d, head); });
  });
}

}  // namespace halftape::cpu
