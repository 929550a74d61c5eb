// An optimizer whose state is spread over the ranks: ZeRO stage 1, Rajbhandari et al. 2020,
// arXiv:1910.02054. Spelled as torch.distributed.optim.
#pragma once
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "halftape/distributed/process_group.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::distributed {

/// Which elements of which parameters a rank updates: its part, of equal size for all, of the
/// elements of each group and dtype, one after the other.
class StateShards {
 public:
  explicit StateShards(std::shared_ptr<ProcessGroup> group);
  ProcessGroup& group() const { return *group_; }
  /// Divides the parameters anew, if groups have come since, and follows those that have other
  /// bytes by now.
  void plan(const std::vector<optim::OptimizerParamGroup>& groups);
  /// This rank's elements of a parameter, a 1-D tensor that shares their bytes; without elements
  /// where it has none.
  const Tensor& piece(const Tensor& parameter) const;
  /// The pieces of these parameters that have elements, with their parts of the gradients.
  std::vector<Tensor> with_gradients(const std::vector<Tensor>& parameters) const;
  /// This rank's part of the state of a whole parameter.
  optim::ParamState cut(const Tensor& parameter, const optim::ParamState& whole) const;
  /// The state of a whole parameter, of which each rank has its part. Called by all ranks.
  optim::ParamState join(const Tensor& parameter, const optim::ParamState& part) const;
  /// Sends the updated elements of these parameters' lots to all ranks.
  void gather(const std::vector<Tensor>& parameters) const;
  /// Lets go of the parameters' bytes until plan(), so that flatten() may move them.
  void release();

 private:
  /// Parameters of one group, dtype and device.
  struct Lot {
    std::vector<Tensor> params;
    std::vector<int64_t> offsets;  // of each, in elements of the lot
    int64_t numel = 0, each = 0;   // elements of all, and of a rank's part
  };
  struct Place {
    size_t lot;
    int64_t offset;      // of the parameter in its lot
    int64_t begin, end;  // this rank's elements of the parameter
    Tensor piece;
  };
  void add_group(const std::vector<Tensor>& params);
  const Place& place(const Tensor& parameter) const;
  std::pair<int64_t, int64_t> range(const Lot& lot, int64_t offset, int64_t numel, int rank) const;

  std::shared_ptr<ProcessGroup> group_;
  size_t planned_ = 0;  // groups
  std::vector<Lot> lots_;
  std::unordered_map<const halftape::detail::TensorImpl*, Place> places_;
};

/// An Optimizer, such as optim::AdamW, that keeps and updates 1/size() of its state on each rank,
/// and sends the updated parameters around:
///
///     distributed::ZeroRedundancyOptimizer<optim::AdamW> optimizer(
///         model->parameters(), optim::AdamWOptions(1e-3));
///
/// Gradients must be the same on all ranks, as DistributedDataParallel leaves them. The parameters
/// get the bits that the Optimizer itself would give them. Each rank keeps (4 + 8)/size() bytes for
/// a 16-bit parameter with a master and two moments instead of 12. All ranks step together.
///
/// state_dict() and files have the form of the Optimizer's, whatever the number of ranks; call
/// consolidate_state() on all ranks before one of them saves. Loading takes such a state on every
/// rank. Contiguous parameters alone; Weights::Stochastic is refused, whose random numbers depend
/// on where an element lies.
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
      : Optimizer(std::forward<Params>(params), defaults), shards_(std::move(group)) {}

  /// Brings the whole state to every rank, until the next step, for state_dict() and for saving.
  /// Called by all ranks. Spelled as torch's consolidate_state_dict().
  void consolidate_state() {
    shards_.plan(this->param_groups());
    for (const Tensor& p : this->parameters()) {
      if (const auto& part = this->state_of(shards_.piece(p)); this->state_of(p).empty())
        this->state(p) = shards_.join(p, part);
    }
    shards_.release();
  }

 protected:
  void update(const optim::OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override {
    HALFTAPE_CHECK(this->state_of_rule(options).weights != optim::Weights::Stochastic,
                   "ZeroRedundancyOptimizer: Weights::Stochastic draws by an element's place, "
                   "which differs by rank; use Master or Kahan");
    shards_.plan(this->param_groups());
    // A state that was loaded, or brought together, is divided again.
    for (const Tensor& p : params) {
      if (this->state_of(p).empty()) continue;
      const optim::ParamState whole = std::move(this->state(p));
      this->state(p).clear();
      if (const Tensor& piece = shards_.piece(p); piece.numel() > 0)
        this->state(piece) = shards_.cut(p, whole);
    }
    const std::vector<Tensor> pieces = shards_.with_gradients(params);
    if (!pieces.empty()) Optimizer::update(options, pieces, control);
    shards_.gather(params);
    shards_.release();
  }

 private:
  StateShards shards_;
};

}  // namespace halftape::distributed
