// Attention, a block of queries at a time: the memory that it takes grows with the number of keys,
// not with the number of scores.
#include <algorithm>
#include <limits>

#include "halftape/core/contract/unfused.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

constexpr int64_t kMostScores = 1 << 22;  // of a block, unless a query has more keys

/// Batches, heads and queries of a block. It has several heads only with all of their queries, and
/// several batches only with all of their heads: its scores lie one after the other in (B, H, L,
/// S).
struct Block {
  int64_t b0, b1, h0, h1, i0, i1;
  Array of(const Array& x) const {  // (B, H, L, …)
    return x.defined() ? heads(x).slice(2, i0, i1) : x;
  }
  Array heads(const Array& x) const { return x.slice(0, b0, b1).slice(1, h0, h1); }  // (B, H, …)
};

template <class F>
void each_block(const Attention& a, const F& f) {
  const int64_t batches = a.q.size(0), heads = a.q.size(1), queries = a.q.size(2),
                keys = a.k.size(2), most = std::max(kMostScores, keys);
  const int64_t i = std::min(most / keys, queries),
                h = i < queries ? 1 : std::min(most / keys / queries, heads),
                b = h < heads ? 1 : std::min(most / keys / queries / heads, batches);
  for (int64_t b0 = 0; b0 < batches; b0 += b)
    for (int64_t h0 = 0; h0 < heads; h0 += h)
      for (int64_t i0 = 0; i0 < queries; i0 += i)
        f(Block{b0, std::min(b0 + b, batches), h0, std::min(h0 + h, heads), i0,
                std::min(i0 + i, queries)});
}

class AttentionSteps {
 public:
  AttentionSteps(Backend& on, const Attention& a)
      : on_(on), a_(a), low_(a.q.dtype()), wide_(compute_dtype(low_)) {}

  void forward() const {
    each_block(a_, [&](const Block& block) {
      const Array s = scores(block), largest = block.of(a_.largest).unsqueeze(3),
                  total = block.of(a_.total).unsqueeze(3);
      on_.reduce(ReduceOps::index<formula::Max>(), largest.squeeze(3), s, {3});
      if (a_.mask.defined()) replace(largest, -std::numeric_limits<double>::infinity(), 0);
      exponentials(s, largest);
      on_.reduce(ReduceOps::index<formula::Sum>(), total.squeeze(3), s, {3});
      if (a_.mask.defined()) replace(total, 0, 1);
      on_.binary(BinaryOps::index<formula::Div>(), s, s, total.expand(s.shape()));
      on_.gemm({.d = block.of(a_.y), .a = dropped(s, block).to(low_), .b = block.heads(a_.v)});
    });
  }

  void backward(const AttentionGrad& d) const {
    const Array dk = sums(d.dk), dv = sums(d.dv);
    each_block(a_, [&](const Block& block) {
      const Array p = scores(block), g = block.of(d.g);
      exponentials(p, block.of(a_.largest).unsqueeze(3));
      on_.binary(BinaryOps::index<formula::Div>(), p, p,
                 block.of(a_.total).unsqueeze(3).expand(p.shape()));
      const double before = block.i0 == 0 ? 0 : 1;  // what earlier queries of the heads have added
      if (dv.defined())
        on_.gemm({.d = block.heads(dv),
                  .a = dropped(p, block).to(low_).transpose(2, 3),
                  .b = g,
                  .beta = before});
      if (!dk.defined() && !d.dq.defined()) return;
      Array s = empty_like(p);
      on_.gemm({.d = s, .a = g, .b = block.heads(a_.v).transpose(2, 3)});
      s = dropped(s, block);
      on_.softmax_grad(s, s, p, false);
      const Array ds = s.to(low_);
      if (d.dq.defined())
        on_.gemm({.d = block.of(d.dq), .a = ds, .b = block.heads(a_.k), .alpha = a_.scale});
      if (dk.defined())
        on_.gemm({.d = block.heads(dk),
                  .a = ds.transpose(2, 3),
                  .b = block.of(a_.q),
                  .alpha = a_.scale,
                  .beta = before});
    });
    if (d.dk.defined()) on_.copy(d.dk, dk);
    if (d.dv.defined()) on_.copy(d.dv, dv);
  }

 private:
  Array empty(const Shape& shape, Dtype dtype) const { return {shape, dtype, a_.q.device()}; }
  Array scalar(double value, const Shape& shape) const {
    return full({}, value, wide_, a_.q.device()).expand(shape);
  }
  Array sums(const Array& gradient) const {
    return gradient.defined() ? empty(gradient.shape(), wide_) : gradient;
  }

  /// scale·q·kᵀ + mask, −∞ where a key takes no part.
  Array scores(const Block& block) const {
    const Array q = block.of(a_.q), k = block.heads(a_.k);
    Array s = empty({q.size(0), q.size(1), q.size(2), k.size(2)}, wide_);
    on_.gemm({.d = s, .a = q, .b = k.transpose(2, 3), .alpha = a_.scale});
    const Array mask = a_.causal ? causal(block, s.shape()) : block.of(a_.mask);
    if (mask.defined() && mask.dtype() == kBool)
      on_.where(s, mask, s, scalar(-std::numeric_limits<double>::infinity(), s.shape()));
    else if (mask.defined())
      on_.binary(BinaryOps::index<formula::Add>(), s, s, mask);
    return s;
  }
  /// True where a query of the block comes at or behind a key.
  Array causal(const Block& block, const Shape& shape) const {
    const auto counted = [&](int64_t n) {  // 1 … n
      const Array ones = full({n}, 1, kInt64, a_.q.device());
      Array numbers = empty({n}, kInt64);
      on_.scan(ReduceOps::index<formula::Sum>(), numbers, ones, 0, false);
      return numbers;
    };
    const Array query = counted(block.i1).slice(0, block.i0, block.i1), key = counted(shape[3]);
    const Array seen = empty({query.size(0), key.size(0)}, kBool);
    on_.binary(BinaryOps::index<formula::Ge>(), seen, query.unsqueeze(1).expand(seen.shape()),
               key.expand(seen.shape()));
    return seen.expand(shape);
  }
  /// s ← e^(s − largest).
  void exponentials(const Array& s, const Array& largest) const {
    on_.binary(BinaryOps::index<formula::Sub>(), s, s, largest.expand(s.shape()));
    on_.unary(UnaryOps::index<formula::Exp>(), s, s, {});
  }
  void replace(const Array& x, double from, double to) const {
    const Array is = empty(x.shape(), kBool);
    on_.binary(BinaryOps::index<formula::Eq>(), is, x, scalar(from, x.shape()));
    on_.where(x, is, scalar(to, x.shape()), x);
  }
  /// x with some elements 0, in memory of its own unless nothing is dropped.
  Array dropped(const Array& x, const Block& block) const {
    if (a_.dropout == 0) return x;
    // random() begins at whole blocks of four numbers.
    const int64_t first =
        ((block.b0 * a_.q.size(1) + block.h0) * a_.q.size(2) + block.i0) * a_.k.size(2);
    const Array drawn = empty({first % 4 + x.numel()}, wide_);
    Array y = empty_like(x);
    RandomKey key = a_.key;
    key.offset += static_cast<uint64_t>(first / 4);
    on_.random(drawn, Distribution::Bernoulli, 1 - a_.dropout, 0, key);
    const Array kept = drawn.slice(0, first % 4, drawn.numel()).reshape(x.shape());
    on_.binary(BinaryOps::index<formula::Mul>(), y, x, kept);
    on_.binary(BinaryOps::index<formula::Div>(), y, y, scalar(1 - a_.dropout, x.shape()));
    return y;
  }

  Backend& on_;
  const Attention& a_;
  const Dtype low_, wide_;
};

}  // namespace

void unfused(Backend& on, const Attention& a) { AttentionSteps(on, a).forward(); }
void unfused(Backend& on, const AttentionGrad& d) { AttentionSteps(on, d.of).backward(d); }

}  // namespace halftape
