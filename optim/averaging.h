// Averages of a model's weights over the steps of a training, which often predict better than the
// last weights. As torch.optim.swa_utils.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/options.h"
#include "halftape/nn/module.h"

namespace halftape::optim {

struct AveragedModelOptions {
  HALFTAPE_ARG(std::optional<double>, decay) = {};  // none: the mean of all steps
  HALFTAPE_ARG(bool, use_buffers) = false;          // average floating-point buffers, too
};

/// Copies of everything that the next update depends on: "module." and the tensor's name, and
/// "n_averaged".
using AveragedModelState = std::map<std::string, Array>;

/// With a decay: the exponential moving average, average ← decay·average + (1 − decay)·weight.
/// Without: the mean of all (Izmailov et al. 2018, arXiv:1803.05407). The first update copies the
/// model.
///
///     AveragedModel averaged(*model, AveragedModelOptions().decay(0.999));
///     for (…) {
///       optimizer.step();
///       averaged.update_parameters(*model);
///     }
///     {
///       const auto in = averaged.swapped_in(*model);
///       evaluate(model);
///     }  // and the model has its own weights again
///
/// Averages of 16-bit tensors are float32: in 16 bits a step of 1 − decay would often be rounded
/// away. Each update copies the buffers from the model, unless use_buffers averages those that are
/// floating-point. Every model must have the first model's tensors by name, shape and dtype; the
/// error lists all mismatches. Throws unless decay is in [0, 1].
class AveragedModel {
 public:
  explicit AveragedModel(const nn::Module& model, const AveragedModelOptions& options = {});
  AveragedModel(AveragedModel&&) = default;  // a copy would have the same averages, not its own
  AveragedModel& operator=(AveragedModel&&) = default;

  /// Call it after an optimizer's step. If `skipped`, one number on the device, is not 0, there was
  /// no step, and nothing is averaged or counted. Waits for the device only until the first update
  /// that counts. With a GradScaler: amp::update_average.
  void update_parameters(const nn::Module& model, const Tensor& skipped = {});
  /// The number of updates that counted; waits for the device.
  int64_t n_averaged() const;
  /// The averages, under the model's names: parameters, then buffers.
  const OrderedDict<std::string, Tensor>& averages() const { return averages_; }

  /// swap_in() copies the averages into the model, rounded to its dtypes; swap_out() restores the
  /// model's own values bit for bit. The averages keep the buffers' values from in between, such as
  /// batch norm's statistics. A second swap_in(), a second swap_out(), one of another model, and an
  /// update in between throw.
  void swap_in(nn::Module& model);
  /// Gives the model its own weights back, as they were before swap_in().
  void swap_out(nn::Module& model);
  /// swap_in(), and swap_out() at the end of the scope.
  class [[nodiscard]] Swapped {
   public:
    [[nodiscard]] Swapped(AveragedModel& averaged, nn::Module& model)
        : averaged_(averaged), model_(model) {
      averaged_.swap_in(model_);
    }
    ~Swapped();
    Swapped(const Swapped&) = delete;
    Swapped& operator=(const Swapped&) = delete;

   private:
    AveragedModel& averaged_;
    nn::Module& model_;
  };
  Swapped swapped_in(nn::Module& model) { return {*this, model}; }
  /// Copies the averages into a model for good.
  void copy_to(nn::Module& model) const;

  /// Loading throws, changing nothing, when names, shapes or dtypes do not fit, with an error that
  /// lists all mismatches; and while the averages are in a model.
  AveragedModelState state_dict() const;
  /// Takes a state_dict() of the same parameters.
  void load_state_dict(const AveragedModelState& saved);

 private:
  OrderedDict<std::string, Tensor> tensors_of(const nn::Module& model) const;
  bool is_averaged(size_t i) const;
  void average(const Tensor& into, const Tensor& value, const Tensor& skipped) const;

  AveragedModelOptions options_;
  OrderedDict<std::string, Tensor> averages_;
  std::vector<Dtype> dtypes_;  // of the model's tensors
  size_t parameters_;          // the number of parameters; the other averages are of buffers
  Tensor n_averaged_;          // int64 on the device
  bool begun_ = false;         // n_averaged is known to be above 0
  std::vector<Tensor> own_;    // the model's values while the averages are in it
  std::vector<Tensor> lent_;   // and the parameters that hold the averages then
};

/// For update_bn(): resets the statistics of a model's batch norms. While it lives, the model is in
/// training mode, and the statistics are means over all batches.
class [[nodiscard]] FreshStatistics {
 public:
  [[nodiscard]] explicit FreshStatistics(nn::Module& model);
  ~FreshStatistics();
  bool any() const { return !momenta_.empty(); }
  FreshStatistics(const FreshStatistics&) = delete;
  FreshStatistics& operator=(const FreshStatistics&) = delete;

 private:
  nn::Module& model_;
  bool trained_;
  std::vector<std::optional<double>> momenta_;
};

/// Computes the running statistics of a model's batch norms anew, as means over the batches of a
/// loader: averaged weights need statistics of their own. Each batch, or its `data`, goes through
/// the model (a holder or a pointer) without gradients. Frozen batch norms are among them. As
/// torch.optim.swa_utils.update_bn.
///
///     averaged.copy_to(*model);
///     update_bn(*loader, model);
template <class Loader, class Model>
void update_bn(Loader&& loader, const Model& model) {
  const NoGradGuard no_grad;
  const FreshStatistics collecting(*model);
  if (!collecting.any()) return;
  for (const auto& batch : loader) {
    if constexpr (requires { batch.data; })
      model->forward(batch.data);
    else
      model->forward(batch);
  }
}

}  // namespace halftape::optim
