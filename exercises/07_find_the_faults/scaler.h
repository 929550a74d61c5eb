// What a scaler in exercise 7 does. This file is not for editing.
#pragma once
#include <functional>
#include <memory>
#include <vector>

/// Gradients, in groups. A group may be empty.
using Groups = std::vector<std::vector<float>>;

/// A GradScaler in small. Each training step calls step() once, then update() once.
class Scaler {
 public:
  virtual ~Scaler() = default;
  /// What gradients are multiplied by, as they are given to step().
  virtual float scale() const = 0;
  /// Divides all numbers of all groups by the scale, in place, whatever they are. True, the step
  /// may be applied, if all are finite; false if one is infinite or NaN.
  virtual bool step(Groups& gradients) = 0;
  /// Moves the scale: half of it after a step that found something, once; twice of it after
  /// `growth_interval` good steps in a row, counted since it last moved. Otherwise it stays.
  virtual void update() = 0;
};

/// A new scaler: make(first_scale, growth_interval). Powers of two as first scale make every
/// quotient exact.
using Make = std::function<std::unique_ptr<Scaler>(float, int)>;
