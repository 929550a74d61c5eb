// Names and values in the order they were put in. Spelled as LibTorch's OrderedDict.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "halftape/core/check.h"

namespace halftape {

template <class Key, class Value>
class OrderedDict {
 public:
  class Item {
   public:
    Item(Key key, Value value) : pair_(std::move(key), std::move(value)) {}
    const Key& key() const { return pair_.first; }
    Value& value() { return pair_.second; }
    const Value& value() const { return pair_.second; }
    Value& operator*() { return pair_.second; }
    const Value& operator*() const { return pair_.second; }
    Value* operator->() { return &pair_.second; }
    const Value* operator->() const { return &pair_.second; }
    const std::pair<Key, Value>& pair() const { return pair_; }

   private:
    std::pair<Key, Value> pair_;
  };

  /// Throws when the key is there already.
  Value& insert(Key key, Value value) {
    HALFTAPE_CHECK(!contains(key), "\"", key, "\" is defined already");
    return items_.emplace_back(std::move(key), std::move(value)).value();
  }
  Value* find(const Key& key) {
    for (Item& item : items_)
      if (item.key() == key) return &item.value();
    return nullptr;
  }
  const Value* find(const Key& key) const { return const_cast<OrderedDict*>(this)->find(key); }
  bool contains(const Key& key) const { return find(key) != nullptr; }
  Value& operator[](const Key& key) {
    Value* found = find(key);
    HALFTAPE_CHECK(found, "\"", key, "\" is not defined");
    return *found;
  }
  const Value& operator[](const Key& key) const { return const_cast<OrderedDict&>(*this)[key]; }
  std::vector<Key> keys() const {
    std::vector<Key> all;
    for (const Item& item : items_) all.push_back(item.key());
    return all;
  }
  std::vector<Value> values() const {
    std::vector<Value> all;
    for (const Item& item : items_) all.push_back(item.value());
    return all;
  }
  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Item> items_;
};

}  // namespace halftape
