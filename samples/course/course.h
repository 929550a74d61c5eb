// What the programs of the course have in common: their command line, one training, tables that are
// printed and kept as CSV.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "digits.h"

namespace course {

/// The word after a program's name: where its figure goes, and which first weights it takes.
struct Arguments {
  std::string name;              // "03_loss_weight"
  std::filesystem::path folder;  // empty: print only
  uint64_t seed = 0;
};
/// Calls `body`, and returns the exit code: 0; 2 for wrong arguments; 1 for what went wrong.
/// Programs whose numbers do not depend on the seed take none.
enum class Seed { Taken, None };
int run(int argc, char** argv, const std::string& name, const std::string& what, Seed seed,
        const std::function<void(const Arguments&)>& body);

/// The digits that come with the library.
const sample::Dataset& digits();
sample::Samples select(const sample::Samples& all, const halftape::Tensor& indices);
/// f of each parameter, one after the other in one row.
halftape::Tensor row_of(const halftape::nn::Sequential& model,
                        const std::function<halftape::Tensor(const halftape::Tensor&)>& f);

/// A training of the digits by a network 64-64-64-10, in batches of 128, by Adam with a learning
/// rate that falls from `lr`: 12 steps an epoch, as samples/train_digits.
struct Recipe {
  halftape::Dtype dtype = halftape::kFloat16;  // of the matrix products, by autocast
  double loss_weight = 1;
  halftape::amp::GradScalerOptions scaler = {.enabled = false};
  uint64_t seed = 0;
  int64_t epochs = 60;
  double lr = 1e-3;
  int64_t hidden_layers = 2;
};

class Training {
 public:
  explicit Training(const Recipe& recipe);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  int64_t steps() const { return recipe_.epochs * kStepsPerEpoch; }
  /// Draws the next batch, and sets the learning rate: the begin of a step, for programs that take
  /// the rest of it themselves.
  const sample::Samples& next_batch();
  /// Takes a step, and returns whether the scaler let it through.
  bool step();
  /// Takes `count` steps, or all that are left.
  void run(int64_t count = -1);
  /// The weighted loss of the last step's batch, with the weights as they are now.
  halftape::Tensor loss() const { return loss(recipe_.dtype); }
  halftape::Tensor loss(halftape::Dtype dtype) const;
  /// In percent of the 355 images that were held back.
  double accuracy() const;

  halftape::nn::Sequential model;
  halftape::optim::Adam optimizer;
  halftape::amp::GradScaler scaler;

 private:
  static constexpr int64_t kBatch = 128, kStepsPerEpoch = 12;
  Recipe recipe_;
  int64_t step_ = 0;
  halftape::Tensor order_;
  sample::Samples batch_;
};

/// Columns of numbers and words. A column's format is fmt's, for each of its numbers, as it is
/// printed; the CSV has them with six digits.
class Table {
 public:
  struct Column {
    std::string name, format = "{:g}";
  };
  using Cell = std::variant<double, std::string>;
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);
  /// Words stand to the left, numbers to the right.
  void print() const;
  std::string csv() const;
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace course
