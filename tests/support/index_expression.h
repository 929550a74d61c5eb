// Random index expressions, and by their definition what they pick: a reference for Tensor::index.
#pragma once
#include <random>
#include <string>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {

/// What stands between brackets, and for each element of the result, in row-major order, the flat
/// position of its source.
struct IndexExpression {
  std::vector<indexing::TensorIndex> items;
  std::string text;  // as in Python
  Shape shape;
  std::vector<int64_t> position;
};

class IndexDice {
 public:
  explicit IndexDice(unsigned seed) : bits_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  Shape draw_shape(int64_t most) {
    Shape shape;
    const int64_t rank = 1 + below(4);
    for (int64_t d = 0; d < rank; ++d) shape.push_back(below(12) == 0 ? 0 : 1 + below(most));
    return shape;
  }

  IndexExpression draw(const Shape& of) {
    shape_ = of;
    strides_ = contiguous_strides(of);
    out_ = {};
    axes_.clear();
    base_ = dim_ = 0;
    added_ = 0;
    common_ =
        below(3) == 0 ? Shape{1 + below(3), 1 + below(3)} : Shape{below(10) ? 1 + below(4) : 0};
    const int rank = of.size();
    const int named = static_cast<int>(below(rank + 1)), at = static_cast<int>(below(named + 1));
    const bool dots = below(2) == 0;
    while (dim_ < at) item(at);
    if (dots) say(below(2) ? indexing::TensorIndex("...") : indexing::Ellipsis, "...");
    if (dots)
      for (int k = named; k < rank; ++k) whole();
    const int end = dots ? rank : named;
    while (dim_ < end) item(end);
    while (dim_ < rank) whole();
    if ((dots || named == rank) && below(8) == 0) say(indexing::None, "None"), axes_.push_back({});
    finish();
    out_.text += "]";
    return std::move(out_);
  }

 private:
  /// An axis of the result: positions from + step·i for count of i, or from + step·numbers[…].
  struct Axis {
    int64_t from = 0, step = 0, count = 1;
    bool picked = false;
    Shape shape = {};
    std::vector<int64_t> numbers = {};
  };

  void say(const indexing::TensorIndex& item, const std::string& text) {
    out_.items.push_back(item);
    out_.text += (out_.text.empty() ? "x[" : ", ") + text;
  }
  void whole() {
    axes_.push_back({.step = strides_[dim_], .count = shape_[dim_]});
    ++dim_;
  }

  /// Something for the next dimension (or several, before `end`), or beside it.
  void item(int end) {
    const int64_t n = shape_[dim_];
    switch (below(n == 0 ? 4 : 9)) {
      case 0:
        if (++added_ > 2) return slice(n);  // a shape has eight dimensions
        say(indexing::None, "None");
        axes_.push_back({});
        return;
      case 1:
        if (below(3) || ++added_ > 2) return slice(n);
        say(true, "True");
        axes_.push_back({.picked = true, .shape = {1}, .numbers = {0}});
        return;
      case 2:
        return mask(end);
      case 3:
        return slice(n);
      case 4: {
        const int64_t i = below(2 * n) - n;
        if (below(2))
          say(i, std::to_string(i));
        else
          say(tensor(i, kInt64), "T(" + std::to_string(i) + ")");
        base_ += (i < 0 ? i + n : i) * strides_[dim_++];
        return;
      }
      default:
        return numbers(n);
    }
  }

  void slice(int64_t n) {
    std::optional<int64_t> bounds[2];
    std::string text[2];
    for (int k = 0; k < 2; ++k)
      if (below(3)) bounds[k] = below(2 * n + 4) - n - 2, text[k] = std::to_string(*bounds[k]);
    const int64_t step = below(2) ? 1 : 1 + below(3);
    say(indexing::Slice(bounds[0], bounds[1], step),
        text[0] + ":" + text[1] + ":" + std::to_string(step));
    auto clip = [n](int64_t i) { return std::min(std::max<int64_t>(i < 0 ? i + n : i, 0), n); };
    const int64_t from = clip(bounds[0].value_or(0)), to = clip(bounds[1].value_or(n));
    axes_.push_back({.from = from * strides_[dim_],
                     .step = step * strides_[dim_],
                     .count = to > from ? (to - from + step - 1) / step : 0});
    ++dim_;
  }

  void numbers(int64_t n) {
    Shape shape = common_;
    if (shape.size() == 2 && below(3) == 0) shape.erase(0);
    for (int64_t& s : shape)
      if (below(4) == 0) s = 1;
    std::vector<int64_t> v(static_cast<size_t>(numel(shape)));
    for (int64_t& i : v) i = below(2 * n) - n;
    std::string text = "T([";
    for (int64_t i : v) text += std::to_string(i) + ",";
    text += "], dtype=torch.int64).view(";
    for (int64_t s : shape) text += std::to_string(s) + ",";
    say(tensor(v).reshape(shape).to(below(3) ? kInt64 : kInt32), text + ")");
    for (int64_t& i : v) i += i < 0 ? n : 0;
    axes_.push_back({.step = strides_[dim_], .picked = true, .shape = shape, .numbers = v});
    ++dim_;
  }

  /// True so often that its positions broadcast with the other lists, or not a mask after all.
  void mask(int end) {
    const int dims = 1 + static_cast<int>(below(std::min(end - dim_, 2)));
    Shape shape;
    for (int k = 0; k < dims; ++k) shape.push_back(shape_[dim_ + k]);
    const int64_t total = numel(shape), wanted = below(3) == 0 ? 1 : common_.back();
    if (wanted > total) return whole_slice();
    std::vector<bool> on(static_cast<size_t>(total));
    for (int64_t k = 0; k < wanted;) {
      const auto at = static_cast<size_t>(below(total));
      k += !on[at];
      on[at] = true;
    }
    std::string text = "T([";
    for (const bool b : on) text += b ? "True," : "False,";
    text += "], dtype=torch.bool).view(";
    for (int64_t s : shape) text += std::to_string(s) + ",";
    say(tensor(on).reshape(shape), text + ")");
    std::vector<Axis> columns(static_cast<size_t>(dims));
    size_t flat = 0;
    each_index(shape, [&](const Dims& i) {
      if (on[flat++])
        for (int k = 0; k < dims; ++k) columns[static_cast<size_t>(k)].numbers.push_back(i[k]);
    });
    for (Axis& a : columns) {
      a.step = strides_[dim_++];
      a.picked = true;
      a.shape = {wanted};
      axes_.push_back(a);
    }
  }
  void whole_slice() {
    say(indexing::Slice(), ":");
    whole();
  }

  void finish() {
    Shape common;
    int first = -1, last = -1, count = 0;
    for (int k = 0; k < static_cast<int>(axes_.size()); ++k) {
      const Axis& a = axes_[static_cast<size_t>(k)];
      if (!a.picked) continue;
      common = broadcast("reference", common, a.shape);
      first = first < 0 ? k : first, last = k, ++count;
    }
    const bool together = count == 0 || last - first == count - 1;
    // The result's dimensions: the common ones at `place`, the others in order around them.
    const int place = together ? std::max(first, 0) : 0;
    Shape shape;
    int others = 0;
    auto put_common = [&] {
      if (others != place || count == 0) return;
      for (int64_t s : common) shape.push_back(s);
    };
    put_common();
    for (const Axis& a : axes_) {
      if (a.picked) continue;
      shape.push_back(a.count);
      ++others;
      put_common();
    }
    out_.shape = shape;
    each_index(shape, [&](const Dims& i) {
      const int wide = count ? common.size() : 0;
      Dims inside;
      for (int k = 0; k < wide; ++k) inside.push_back(i[place + k]);
      int64_t at = base_;
      int next = 0;
      for (const Axis& a : axes_) {
        if (a.picked) {
          at += a.step * a.numbers[position(a.shape, inside)];
        } else {
          at += a.from + a.step * i[next < place ? next : next + wide];
          ++next;
        }
      }
      out_.position.push_back(at);
    });
  }

  std::mt19937 bits_;
  Shape shape_, common_;
  Strides strides_;
  IndexExpression out_;
  std::vector<Axis> axes_;
  int64_t base_ = 0;
  int dim_ = 0, added_ = 0;
};

}  // namespace halftape::testing
