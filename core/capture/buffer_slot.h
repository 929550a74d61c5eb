// Room for one array in a larger one, lent to one holder at a time: what is made again and again,
// as a gradient is, and shall lie at a fixed place beside others of its kind.
#pragma once
#include <mutex>

#include "halftape/core/array.h"

namespace halftape {

class Place : public RefCounted {
 public:
  /// Elements of the 1-D contiguous array `all`, from number `at` on, in that shape.
  Place(const Array& all, int64_t at, const Shape& shape);
  ~Place();
  /// The bytes as an array that is like any other, with handles and a version of its own, and
  /// unique(). Undefined while another holds them, or a Graph whose replays write them. The step of
  /// a Graph has them for as long as the graph lives. Any thread may call.
  Array lend();
  /// Would it lend?
  bool free() const;
  /// Is this array what it has lent?
  bool has(const Array& a) const;
  const Shape& shape() const { return array_.shape(); }
  Dtype dtype() const { return array_.dtype(); }

  /// Graphs that were captured with these bytes.
  void hold_for_graph();
  void release_from_graph();
  const BufferPtr& buffer() const { return array_.buffer(); }

 private:
  mutable std::mutex mutex_;
  Array array_;  // over a part, whose buffer knows that this handle is nobody's
  int graphs_ = 0;
};

}  // namespace halftape
