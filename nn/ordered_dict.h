// Names and values in the order they were put in. Spelled as LibTorch's OrderedDict.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "halftape/core/check.h"

namespace halftape {

/// Lookup is a walk in short dictionaries, as those of modules, and by hash in those of large
/// files.
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

  /// key_description: what errors call a key.
  explicit OrderedDict(std::string key_description = "Key") : what_(std::move(key_description)) {}
  OrderedDict(std::initializer_list<Item> items) : OrderedDict() {
    for (const Item& item : items) insert(item.key(), item.value());
  }

  /// All at once, however many: throws when a key is there twice.
  explicit OrderedDict(std::vector<Item> items) : OrderedDict() {
    std::vector<const Key*> keys;
    keys.reserve(items.size());
    for (const Item& item : items) keys.push_back(&item.key());
    std::sort(keys.begin(), keys.end(), [](const Key* a, const Key* b) { return *a < *b; });
    for (size_t i = 1; i < keys.size(); ++i)
      HALFTAPE_CHECK(*keys[i - 1] < *keys[i], what_, " '", *keys[i], "' already defined");
    items_ = std::move(items);
    note_places();
  }

  /// Throws when the key is there already.
  Value& insert(Key key, Value value) {
    HALFTAPE_CHECK(!contains(key), what_, " '", key, "' already defined");
    items_.emplace_back(std::move(key), std::move(value));
    note_places();
    return items_.back().value();
  }
  /// All items of another one; throws, changing nothing, when a key is there already.
  void update(const OrderedDict& other) {
    for (const Item& item : other)
      HALFTAPE_CHECK(!contains(item.key()), what_, " '", item.key(), "' already defined");
    items_.insert(items_.end(), other.begin(), other.end());
    note_places();
  }
  void update(OrderedDict&& other) { update(std::as_const(other)); }
  /// Throws when the key is not there.
  void erase(const Key& key) {
    items_.erase(items_.begin() + (&at(key) - items_.data()));
    places_.clear();
    note_places();
  }
  void clear() {
    items_.clear();
    places_.clear();
  }
  void reserve(size_t count) { items_.reserve(count); }

  /// Null when the key is not there.
  Value* find(const Key& key) {
    Item* const item = find_item(key);
    return item ? &item->value() : nullptr;
  }
  const Value* find(const Key& key) const { return const_cast<OrderedDict*>(this)->find(key); }
  bool contains(const Key& key) const { return find(key) != nullptr; }
  Value& operator[](const Key& key) { return at(key).value(); }
  const Value& operator[](const Key& key) const { return const_cast<OrderedDict&>(*this)[key]; }
  /// The item at a position.
  Item& operator[](size_t index) {
    HALFTAPE_CHECK(index < size(), "OrderedDict: index ", index, " of ", size(), " items");
    return items_[index];
  }
  const Item& operator[](size_t index) const { return const_cast<OrderedDict&>(*this)[index]; }
  Item& front() {
    HALFTAPE_CHECK(!is_empty(), "Called front() on an empty OrderedDict");
    return items_.front();
  }
  const Item& front() const { return const_cast<OrderedDict*>(this)->front(); }
  Item& back() {
    HALFTAPE_CHECK(!is_empty(), "Called back() on an empty OrderedDict");
    return items_.back();
  }
  const Item& back() const { return const_cast<OrderedDict*>(this)->back(); }

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
  std::vector<std::pair<Key, Value>> pairs() const {
    std::vector<std::pair<Key, Value>> all;
    for (const Item& item : items_) all.push_back(item.pair());
    return all;
  }
  const std::vector<Item>& items() const { return items_; }
  const std::string& key_description() const { return what_; }
  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  static constexpr size_t kWalk = 32;  // up to so many items a walk is faster

  Item* find_item(const Key& key) {
    if (items_.size() > kWalk) {
      const auto place = places_.find(key);
      if (place == places_.end()) return nullptr;
      if (items_[place->second].key() == key) return &items_[place->second];
    }  // else the caller has sorted the items
    for (Item& item : items_)
      if (item.key() == key) return &item;
    return nullptr;
  }
  Item& at(const Key& key) {
    if (Item* const item = find_item(key)) return *item;
    detail::fail(what_, " '", key, "' is not defined");
  }
  /// Of the items that came last; of all, once they are many.
  void note_places() {
    if (items_.size() <= kWalk) return;
    for (size_t i = places_.size(); i < items_.size(); ++i) places_[items_[i].key()] = i;
  }

  std::vector<Item> items_;
  std::unordered_map<Key, size_t> places_;  // empty up to kWalk items
  std::string what_;
};

}  // namespace halftape
