#include <algorithm>
#include <limits>

#include "halftape/core/contract/unfused.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

template <class Op>
constexpr OpId kUnary = UnaryOps::index<Op>();

/// True if the op's derivative needs the op's input.
bool saves_input(OpId op) {
  static constexpr auto all =
      UnaryOps::table([](auto tag) { return decltype(tag)::type::saves == Saves::Input; });
  return all[static_cast<size_t>(op)];
}

class Steps {
 public:
  Steps(Backend& on, const MlpLoss& m)
      : on_(on), m_(m), low_(m.dtype()), wide_(compute_dtype(low_)), layers_(m.weights.size()) {}

  void run() {
    forward();
    const Array slope = loss();  // gradient of the loss with respect to the outputs / factor_
    if (slope.defined()) backward(slope);
  }

 private:
  Array empty(const Shape& shape, Dtype dtype) const { return {shape, dtype, m_.x.device()}; }
  static Array at(const std::vector<Array>& list, size_t l) {
    return list.empty() ? Array() : list[l];
  }
  bool wants(size_t l) const { return at(m_.dweights, l).defined() || at(m_.dbiases, l).defined(); }

  void forward() {
    Array h = m_.x.to(low_);
    for (size_t l = 0; l < layers_; ++l) {
      inputs_.push_back(h);
      weights_.push_back(m_.weights[l].to(low_));
      const Array given = at(m_.biases, l), bias = given.defined() ? given.to(low_) : Array();
      const Array z = empty({h.size(0), weights_[l].size(0)}, wide_);
      on_.gemm({.d = z,
                .a = h,
                .b = weights_[l].transpose(0, 1),
                .bias = bias.defined() ? &bias : nullptr});
      if (l + 1 == layers_) {
        y_ = z;
      } else if (!m_.activation) {
        h = z.to(low_);
      } else {
        h = empty(z.shape(), low_);
        on_.unary(*m_.activation, h, z, {});
        saved_.push_back(saves_input(*m_.activation) ? z.to(low_) : h);
      }
    }
  }

  Array loss() {
    const bool classes = m_.target.dtype() == kInt64;
    const auto count = static_cast<double>(classes ? y_.size(0) : y_.numel());
    Array lost = empty(classes ? m_.target.shape() : y_.shape(), wide_), slope;
    factor_ = 1 / count;
    bool wanted = m_.dx.defined();
    for (size_t l = 0; l < layers_; ++l) wanted = wanted || wants(l);
    if (classes) {
      if (wanted) slope = empty(y_.shape(), wide_);
      on_.cross_entropy({.x = y_,
                         .target = m_.target.to_contiguous(),
                         .ignored = std::numeric_limits<int64_t>::min(),  // never a class
                         .loss = lost,
                         .grad = slope});
    } else {
      const Array difference = empty(y_.shape(), wide_);
      on_.binary(BinaryOps::index<formula::Sub>(), difference, y_, m_.target);
      on_.unary(kUnary<formula::Square>, lost, difference, {});
      if (wanted) slope = difference;
      factor_ *= 2;
    }
    if (m_.loss.defined()) {
      const Array sum = empty({}, wide_);
      on_.reduce(ReduceOps::index<formula::Sum>(), sum, lost.reshape({lost.numel()}), {0});
      on_.unary(kUnary<formula::DivScalar>, m_.loss, sum, {count});
    }
    return slope;
  }

  void backward(const Array& slope) {
    const Array by = empty({}, wide_);
    if (m_.g.defined())
      on_.unary(kUnary<formula::Affine>, by, m_.g, {factor_, 0});
    else
      on_.fill(by, factor_);
    Array d = empty(slope.shape(), low_);
    on_.binary(BinaryOps::index<formula::Mul>(), d, slope, by.expand(slope.shape()));
    for (size_t l = layers_; l-- > 0;) {
      if (const Array dw = at(m_.dweights, l); dw.defined())
        on_.gemm({.d = dw, .a = d.transpose(0, 1), .b = inputs_[l]});
      if (const Array db = at(m_.dbiases, l); db.defined())
        on_.reduce(ReduceOps::index<formula::Sum>(), db, d, {0});
      if (l == 0) {
        if (m_.dx.defined()) on_.gemm({.d = m_.dx, .a = d, .b = weights_[0]});
        return;
      }
      const Array below = empty(inputs_[l].shape(), m_.activation ? wide_ : low_);
      on_.gemm({.d = below, .a = d, .b = weights_[l]});
      d = below;
      if (!m_.activation) continue;
      d = empty(below.shape(), low_);
      on_.unary_grad(*m_.activation, d, below, saved_[l - 1], {});
    }
  }

  Backend& on_;
  const MlpLoss& m_;
  Dtype low_, wide_;
  size_t layers_;
  std::vector<Array> weights_, inputs_;  // of the layers, rounded
  std::vector<Array> saved_;             // for the derivatives of the activations
  Array y_;
  double factor_ = 1;
};

}  // namespace

void unfused(Backend& on, const MlpLoss& m) { Steps(on, m).run(); }

bool is_small(const MlpLoss& m) {
  const auto narrow = [](int64_t width) { return width > 0 && width <= kSmallWidth; };
  return is_16bit(m.dtype()) && m.x.size(0) > 0 && narrow(m.x.size(1)) &&
         m.weights.size() <= kFewLayers &&
         std::all_of(m.weights.begin(), m.weights.end(),
                     [&](const Array& w) { return narrow(w.size(0)); });
}

}  // namespace halftape
