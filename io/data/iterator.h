// A loader's iterator, which fetches a batch when it is first dereferenced or compared.
#pragma once
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "halftape/core/check.h"

namespace halftape::data {
namespace detail {

/// The state that copies of an iterator share.
template <class Batch>
class Cursor {
 public:
  explicit Cursor(std::function<std::optional<Batch>()> next) : next_(std::move(next)) {}
  bool over() {
    look();
    return state_ == State::Over;
  }
  Batch& get() {
    HALFTAPE_CHECK(!over(), "Attempted to dereference iterator that was past the end");
    return *batch_;
  }
  void advance() {
    if (state_ == State::Fresh) fetch();
    HALFTAPE_CHECK(state_ != State::Over, "Attempted to increment iterator past the end");
    fetch();
  }
  /// Does not fetch.
  bool known_over() const { return state_ == State::Over; }

 private:
  // Failed: fetching the last batch threw; the next look fetches the one after it.
  enum class State { Fresh, Holding, Failed, Over };
  void look() {
    if (state_ == State::Fresh || state_ == State::Failed) fetch();
  }
  void fetch() {
    state_ = State::Failed;
    batch_.reset();
    batch_ = next_();
    state_ = batch_ ? State::Holding : State::Over;
  }

  std::function<std::optional<Batch>()> next_;
  std::optional<Batch> batch_;
  State state_ = State::Fresh;
};

}  // namespace detail

/// An input iterator over batches. Copies advance together.
template <class Batch>
class Iterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = Batch;
  using pointer = Batch*;
  using reference = Batch&;
  using iterator_category = std::input_iterator_tag;

  /// Past the end.
  Iterator() = default;
  explicit Iterator(std::shared_ptr<detail::Cursor<Batch>> cursor) : cursor_(std::move(cursor)) {}

  Iterator& operator++() {
    HALFTAPE_CHECK(cursor_, "Incrementing the DataLoader's past-the-end iterator is not allowed");
    cursor_->advance();
    return *this;
  }
  void operator++(int) { ++*this; }
  Batch& operator*() const {
    HALFTAPE_CHECK(cursor_, "Dereferencing the DataLoader's past-the-end iterator is not allowed");
    return cursor_->get();
  }
  Batch* operator->() const { return &**this; }
  /// Two that are not at the end are equal if one is a copy of the other.
  bool operator==(const Iterator& other) const {
    if (cursor_ && other.cursor_) return cursor_ == other.cursor_;
    return at_end() && other.at_end();
  }

 private:
  bool at_end() const { return !cursor_ || cursor_->over(); }
  std::shared_ptr<detail::Cursor<Batch>> cursor_;
};

}  // namespace halftape::data
