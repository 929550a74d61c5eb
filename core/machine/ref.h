// Intrusive reference counting: the count stands in the object.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace halftape {

/// Base of objects held by Ref<T>. The count is atomic: handles may be copied in any thread.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  /// Must be called before Ref::if_alive() is called with this object.
  void watch() const noexcept { watched_ = true; }
  int64_t use_count() const noexcept { return count_.load(std::memory_order_acquire); }

 protected:
  ~RefCounted() = default;

 private:
  template <class T>
  friend class Ref;
  void add_ref() const noexcept {
    // No other thread can see a new object: the first reference needs no locked instruction.
    if (count_.load(std::memory_order_relaxed) == 0)
      count_.store(1, std::memory_order_relaxed);
    else
      count_.fetch_add(1, std::memory_order_relaxed);
  }
  bool drop_ref() const noexcept {
    // The only holder needs no locked instruction: no other thread can copy the handle.
    if (!watched_ && count_.load(std::memory_order_acquire) == 1) return true;
    return count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  bool add_ref_if_alive() const noexcept {
    int64_t n = count_.load(std::memory_order_relaxed);
    while (n > 0 && !count_.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel)) {
    }
    return n > 0;
  }
  mutable std::atomic<int64_t> count_{0};
  mutable bool watched_ = false;
};

/// How the last Ref disposes of its object; overloaded where destruction must not recurse (nodes).
template <class T>
void dispose(T* object) noexcept {
  delete object;
}

/// A shared handle to a RefCounted object; null by default.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_) object_->add_ref();
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U> other)
  noexcept : object_(other.leak()) {}  // NOLINT: a derived handle is a base handle
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ && object_->drop_ref()) dispose(object_);
  }
  /// A handle to a watched object, or null if its last handle is already gone. The object's memory
  /// must still exist.
  static Ref if_alive(T* object) noexcept {
    Ref ref;
    if (object->add_ref_if_alive()) ref.object_ = object;
    return ref;
  }
  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(const Ref&) const = default;
  /// Gives the reference away without releasing it.
  T* leak() noexcept { return std::exchange(object_, nullptr); }
  /// Takes over what leak() gave away.
  static Ref adopt(T* leaked) noexcept {
    Ref ref;
    ref.object_ = leaked;
    return ref;
  }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(
      new T(std::forward<Args>(args)...));  // NOLINT: the one place that news a counted object
}

}  // namespace halftape
