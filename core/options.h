// Options in LibTorch's style: a value, its chainable setter and its getter, in one line.
#pragma once

/// HALFTAPE_ARG(double, lr) = 1e-3;  gives  options.lr(0.1)  and  options.lr().
#define HALFTAPE_ARG(T, name)                        \
 public:                                             \
  auto name(const T& value)->decltype(*this) {       \
    this->name##_ = value;                           \
    return *this;                                    \
  }                                                  \
  const T& name() const noexcept { return name##_; } \
  T& name() noexcept { return name##_; }             \
                                                     \
 private:                                            \
  T name##_ /* the initialiser follows the macro */
