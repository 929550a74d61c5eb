// Averages of a model's weights over the steps of a training, which often do better than the last
// ones. What torch.optim.swa_utils is for.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/options.h"
#include "halftape/nn/module.h"

namespace halftape::optim {

class AveragedModelOptions {
 public:
  HALFTAPE_ARG(std::optional<double>, decay) = {};  // none: all steps count the same
  HALFTAPE_ARG(bool, use_buffers) = false;          // average buffers, too
};

/// Everything that the next update depends on, as copies: "module." and the tensor's name, and
/// "n_averaged".
using AveragedModelState = std::map<std::string, Array>;

/// With a decay the exponential moving average, average ← decay·average + (1 − decay)·weight; else
/// the mean of all (Izmailov et al. 2018, arXiv:1803.05407). The first update copies the model.
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
/// Averages of 16-bit tensors are kept in float32: in 16 bits a step of 1 − decay would often be
/// rounded away. Buffers are copied from the model at each update, unless use_buffers averages
/// those that are floating-point. Models that are given must have the tensors of the first one by
/// name, shape and dtype; what is not so is thrown, all of it. Throws unless decay is in [0, 1].
class AveragedModel {
 public:
  explicit AveragedModel(const nn::Module& model, const AveragedModelOptions& options = {});

  /// After an optimizer's step. `skipped`, one number on the device that is not 0, says that there
  /// was none: then nothing is averaged or counted, and nobody waits but until the first update
  /// that counts. With a GradScaler: amp::update_average.
  void update_parameters(const nn::Module& model, const Tensor& skipped = {});
  /// How many updates counted; waits for the device.
  int64_t n_averaged() const;
  /// The averages, under the model's names: parameters, then buffers.
  const OrderedDict<std::string, Tensor>& averages() const { return averages_; }

  /// The averages into the model, rounded to its dtypes, until swap_out() gives it back its own
  /// values bit for bit. What became of the buffers in between, of batch norm's statistics say, is
  /// kept here. Throws when it is in already, or not; so does an update in between.
  void swap_in(nn::Module& model);
  void swap_out(nn::Module& model);
  /// swap_in(), and swap_out() at the end of the scope.
  class [[nodiscard]] Swapped {
   public:
    Swapped(AveragedModel& averaged, nn::Module& model) : averaged_(averaged), model_(model) {
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
  /// The averages into a model, for good.
  void copy_to(nn::Module& model) const;

  /// load throws, changing nothing, when names, shapes or dtypes do not fit; the error lists every
  /// difference.
  AveragedModelState state_dict() const;
  void load_state_dict(const AveragedModelState& saved);

 private:
  OrderedDict<std::string, Tensor> tensors_of(const nn::Module& model) const;
  bool is_averaged(size_t i) const;
  void average(const Tensor& into, const Tensor& value, const Tensor& skipped) const;

  AveragedModelOptions options_;
  OrderedDict<std::string, Tensor> averages_;
  std::vector<Dtype> dtypes_;  // of the model's tensors
  size_t parameters_;          // how many of them; the rest are buffers
  Tensor n_averaged_;          // int64 on the device
  bool begun_ = false;         // is n_averaged known to be above 0?
  std::vector<Tensor> own_;    // the model's values while the averages are in it
};

/// For update_bn(): while it lives, a model trains, and the statistics of its batch norms, which
/// start anew, are means over all batches.
class [[nodiscard]] FreshStatistics {
 public:
  explicit FreshStatistics(nn::Module& model);
  ~FreshStatistics();
  FreshStatistics(const FreshStatistics&) = delete;
  FreshStatistics& operator=(const FreshStatistics&) = delete;

 private:
  nn::Module& model_;
  bool trained_;
  std::vector<std::optional<double>> momenta_;
};

/// Makes the running statistics of a model's batch norms anew, as means over the batches of a
/// loader: averaged weights need statistics of their own. Each batch, or its `data`, goes through
/// the model, a holder or a pointer, without gradients. What torch.optim.swa_utils.update_bn does.
///
///     averaged.copy_to(*model);
///     update_bn(*loader, model);
template <class Loader, class Model>
void update_bn(Loader&& loader, const Model& model) {
  const NoGradGuard no_grad;
  const FreshStatistics collecting(*model);
  for (const auto& batch : loader) {
    if constexpr (requires { batch.data; })
      model->forward(batch.data);
    else
      model->forward(batch);
  }
}

}  // namespace halftape::optim
