// An optimizer whose state is spread over the ranks: ZeRO stage 1, Rajbhandari et al. 2020,
// arXiv:1910.02054. Spelled as torch.distributed.optim.
#pragma once
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "halftape/distributed/data_parallel/bucket.h"
#include "halftape/distributed/data_parallel/data_parallel.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::distributed {

/// Which elements of which parameters a rank updates: its part of each lot. A lot is a bucket of
/// the DistributedDataParallel, so that parts are those whose gradients this rank has; without one,
/// the parameters of one group, dtype and device.
class StateShards {
 public:
  explicit StateShards(std::shared_ptr<ProcessGroup> group,
                       const std::vector<optim::OptimizerParamGroup>& groups = {});
  /// For an optimizer with these groups. From now on each rank gets its part of the gradients
  /// alone.
  StateShards(DistributedDataParallel& ddp, const std::vector<optim::OptimizerParamGroup>& groups);
  ProcessGroup& group() const { return *group_; }
  /// Whether the gradients come in parts.
  bool takes_parts() const { return attached_ != nullptr; }
  /// While it lives, there are pieces: of the parameters of these groups, divided anew if groups
  /// have come since. At its end they let go of the parameters' bytes, so that flatten() may move
  /// them.
  class [[nodiscard]] Pieces {
   public:
    [[nodiscard]] Pieces(StateShards& of, const std::vector<optim::OptimizerParamGroup>& groups)
        : Pieces(of) {
      of_.plan(groups);  // if it throws, ~Pieces() runs
    }
    ~Pieces() { of_.release(); }
    Pieces(const Pieces&) = delete;
    Pieces& operator=(const Pieces&) = delete;

   private:
    explicit Pieces(StateShards& of) : of_(of) {}
    StateShards& of_;
  };
  /// Throws where gradients would not be used, or not be reduced.
  void check_reduced() const;
  /// Whether ranks share the parameter: not one that was frozen when the DistributedDataParallel
  /// was made.
  bool has(const Tensor& parameter) const { return places_.count(parameter.impl()) > 0; }
  /// This rank's elements of a parameter, a 1-D tensor that shares their bytes; without elements
  /// where it has none.
  const Tensor& piece(const Tensor& parameter) const { return place(parameter).piece; }
  /// The pieces of these parameters that have elements, with their parts of the gradients.
  std::vector<Tensor> with_gradients(const std::vector<Tensor>& parameters) const;
  /// This rank's part of the state of a whole parameter.
  optim::ParamState cut(const Tensor& parameter, const optim::ParamState& whole) const;
  /// The state of a whole parameter, of which each rank has its part. Called by all ranks.
  optim::ParamState join(const Tensor& parameter, const optim::ParamState& part) const;
  /// Sends the updated elements of these parameters' lots to all ranks, unless the host sees that
  /// the step was skipped.
  void gather(const std::vector<std::vector<Tensor>>& updated, const StepControl& control) const;

 private:
  struct Place {
    size_t lot;
    int64_t begin, end;  // this rank's elements of the parameter
    Tensor piece;
  };
  void plan(const std::vector<optim::OptimizerParamGroup>& groups);
  void release();
  void add_lot(Bucket lot);
  void add_group(const std::vector<Tensor>& params);
  const Place& place(const Tensor& parameter) const;

  std::shared_ptr<ProcessGroup> group_;
  std::weak_ptr<DistributedDataParallel::Impl> ddp_;
  std::shared_ptr<const void> attached_;           // to the DistributedDataParallel
  std::vector<std::shared_ptr<void>> agreements_;  // of scalers, without one
  size_t planned_ = 0;                             // groups
  std::vector<Bucket> lots_;
  std::unordered_map<const halftape::detail::TensorImpl*, Place> places_;
};

/// An Optimizer, such as optim::AdamW, that keeps and updates 1/size() of its state on each rank,
/// and sends the updated parameters around:
///
///     distributed::ZeroRedundancyOptimizer<optim::AdamW> optimizer(
///         model->parameters(), optim::AdamWOptions(1e-3));
///
/// Given the DistributedDataParallel of the parameters, it updates between the two halves of what
/// would be a reduction: each rank gets its part of the gradients, while backward() runs, and sends
/// its part of the parameters. So a step sends no more bytes than one without it:
///
///     distributed::ZeroRedundancyOptimizer<optim::AdamW> optimizer(
///         model->parameters(), optim::AdamWOptions(1e-3), ddp);
///
/// Then gradients are true in this rank's parts and zero elsewhere. A GradScaler comes to the same
/// verdict; clipping and other optimizers throw until ddp.gather_gradients(). So does backward() on
/// top of such gradients, and a step that would leave one of them unused.
///
/// Given a group, gradients must be the same on all ranks, whose scalers come to one verdict; a
/// step sends half as much again.
///
/// The parameters get the bits that the Optimizer itself would give them. Each rank keeps
/// (4 + 8)/size() bytes for a 16-bit parameter with a master and two moments instead of 12. All
/// ranks step together.
///
/// state_dict() and files have the form of the Optimizer's, whatever the number of ranks. They
/// throw after a step, until consolidate_state() was called on all ranks. Loading takes such a
/// state on every rank. Contiguous parameters alone; Weights::Stochastic is refused, whose random
/// numbers depend on where an element lies.
template <class Optimizer>
class ZeroRedundancyOptimizer : public Optimizer {
  static_assert(std::is_base_of_v<optim::RuleOptimizerBase, Optimizer>,
                "ZeroRedundancyOptimizer: elements must be updated independently of each other, "
                "as SGD, Adam and AdamW do");

 public:
  /// Parameters or groups of them, as the Optimizer takes them. `group`: the default one unless
  /// given.
  template <class Params, class Options>
  ZeroRedundancyOptimizer(Params&& params, const Options& defaults,
                          std::shared_ptr<ProcessGroup> group = nullptr)
      : Optimizer(std::forward<Params>(params), defaults),
        shards_(std::move(group), this->param_groups()) {}
  /// Throws for a parameter that requires grad and is not one of ddp's, which must outlive the last
  /// step.
  template <class Params, class Options>
  ZeroRedundancyOptimizer(Params&& params, const Options& defaults, DistributedDataParallel& ddp)
      : Optimizer(std::forward<Params>(params), defaults), shards_(ddp, this->param_groups()) {}

  bool is_collective() const override { return true; }

  /// Brings the whole state to every rank, until the next step, for state_dict() and for saving.
  /// Called by all ranks. Spelled as torch's consolidate_state_dict().
  void consolidate_state() {
    const StateShards::Pieces pieces(shards_, this->param_groups());
    for (const Tensor& p : optim::parameters_of(this->param_groups())) {
      if (!shards_.has(p)) continue;
      if (const auto& part = this->state_of(shards_.piece(p)); this->state_of(p).empty())
        this->state(p) = shards_.join(p, part);
    }
  }

 protected:
  void check_whole() const override {
    for (const Tensor& p : optim::parameters_of(this->param_groups()))
      HALFTAPE_CHECK(
          !shards_.has(p) || !this->state_of(p).empty() || this->state_of(shards_.piece(p)).empty(),
          "ZeroRedundancyOptimizer: this rank has its part of the state alone; call "
          "consolidate_state() on all ranks before one of them saves");
  }
  GradParts takes_parts() const override {
    return shards_.takes_parts() ? GradParts::Taken : GradParts::Refused;
  }
  Tensor whole_of(const Tensor& piece) const override {
    for (const Tensor& p : optim::parameters_of(this->param_groups()))
      if (shards_.has(p) && shards_.piece(p).is_same(piece)) return p;
    return piece;
  }
  void update_groups(const std::vector<std::vector<Tensor>>& ready,
                     const StepControl& control) override {
    const StateShards::Pieces pieces(shards_, this->param_groups());
    shards_.check_reduced();
    Optimizer::update_groups(ready, control);
    shards_.gather(ready, control);
  }
  void update(const optim::OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override {
    const optim::RuleState kept = this->state_of_rule(options);
    HALFTAPE_CHECK(kept.weights != optim::Weights::Stochastic,
                   "ZeroRedundancyOptimizer: Weights::Stochastic draws by an element's place, "
                   "which differs by rank; use Master or Kahan");
    for (const Tensor& p : params) {
      const Tensor& piece = shards_.piece(p);
      if (!this->state_of(p).empty()) {  // loaded, or brought together, and now divided again
        const optim::ParamState whole = std::move(this->state(p));
        this->state(p).clear();
        this->state(piece) = shards_.cut(p, whole);
      } else if (piece.numel() == 0 && this->state_of(piece).empty()) {
        // A rank that updates none of it keeps a state without elements, and so knows of one.
        this->make_state(piece, kept);
      }
    }
    const std::vector<Tensor> pieces = shards_.with_gradients(params);
    if (!pieces.empty()) Optimizer::update(options, pieces, control);
  }

 private:
  StateShards shards_;
};

}  // namespace halftape::distributed
