// Inspector: a ledger of all numbers that a training step stores, the first overflow by name, and
// alarms.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "halftape/amp/grad_scaler.h"
#include "halftape/amp/inspector/ledger.h"
#include "halftape/nn/module.h"

namespace halftape::amp {

/// Something that deserves a look, with advice.
struct Alarm {
  enum class Kind : uint8_t {
    Lost,           // float16 turns many gradients into 0, and weight gradients are off by that
    Dead,           // all gradients that a module gets are 0
    Stagnant,       // updates are too small to change 16-bit parameters
    ScaleAtBound,   // the scale stands at min_scale or max_scale
    SkipsInRow,     // the scaler skips one step after the other
    ScheduleAhead,  // the learning rate moves at skipped steps, too
  } kind = Kind::Lost;
  int64_t step = 0;   // the one after which it was raised
  std::string where;  // a module's path, or a parameter's name; may be empty
  double value = 0;   // the share, error or count that raised it
  std::string text;   // what it means, and what to do
};
/// "step 40: fc1: …".
std::ostream& operator<<(std::ostream& out, const Alarm& alarm);

/// The first number of a skipped step that was infinite or NaN.
struct Overflow {
  int64_t step = 0;
  double scale = 1;  // of that step
  enum class Where : uint8_t {
    Loss,      // the loss itself, of an op that is not recorded, such as that of the data
    Forward,   // the value of `op`
    Backward,  // a gradient that the rule of `op` gave
    Unscale,   // a parameter's gradient, when it was divided by a scale below 1
  } where = Where::Backward;
  std::string op, module;  // "linear", "encoder.fc2"
  Dtype dtype = kFloat32;  // of the number
  bool nan = false;        // false: an infinity
  std::string parameter;   // the first one whose gradient is not finite; empty if unknown
  std::string call_site;   // of `op`; empty unless AnomalyMode was on
  /// A power of two times the scale, or less, found by computing the step again; nullopt if that
  /// was not done, 0 if no scale down to 2^-24 of it passes.
  std::optional<double> largest_scale_that_passes;
};
std::ostream& operator<<(std::ostream& out, const Overflow& overflow);

/// Thresholds of the alarms. A kind of alarm is raised once for each place, and again after it had
/// gone away.
struct AlarmOptions {
  double lost = 0.5;          // share of a module's gradients that float16 loses, …
  double error = 0.02;        // … while a weight gradient is off by this, relative to its norm
  double stagnant = 0.5;      // share of a 16-bit parameter that a step left unchanged, of the
                              // elements that have a gradient; at sampled steps
  int64_t skips_in_row = 10;  // see Alarm::Kind
  /// Called in step(). Null: a warning, as halftape::warn gives it.
  std::function<void(const Alarm&)> report = nullptr;
};

struct InspectorOptions {
  int64_t every = 20;          // steps between two samples of exponents; 0: none
  int64_t shadow_every = 200;  // steps between two shadows, which need a closure; 0: none
  bool values = true;          // count the values of forward, which name an overflow there
  int64_t kept = 100;          // samples in memory; older ones are dropped
  bool replay = true;  // compute a step that the scaler skipped again, if step() has a closure
  /// It must outlive the Inspector. For alarms about its learning rate, and none about weights that
  /// it keeps by another rule than Weights::Plain; it also names the parameter that was not finite
  /// once it was divided.
  const optim::Optimizer* optimizer = nullptr;
  AlarmOptions alarms = {};
};

/// Looks at the numbers that this thread's training steps store, from construction to destruction:
/// the values of recorded ops and their gradients, in the dtype in which they are stored, and the
/// gradients of parameters as they arrive. Changes nothing: a training has the same bits with it.
/// Destroy it in that thread.
///
///     amp::Inspector inspector(*model, scaler);
///     for (…) {
///       optimizer.zero_grad();
///       scaler.scale(loss_of(batch)).backward();
///       scaler.step(optimizer);
///       scaler.update();
///       inspector.step([&] { return loss_of(batch); });
///     }
///     for (const amp::Alarm& alarm : inspector.alarms()) std::cout << alarm << '\n';
///
/// Numbers are counted by class at every step, and by powers of two at every `every`-th. Tensors
/// that are not on the device of the first one are not looked at, and neither are tensors inside
/// fused operations (mlp_loss, FusedMLP), whose results alone are.
///
/// Of a step, the first 65,536 values and gradients are counted.
///
/// Whether a step was skipped the scaler says. Without one, and on a GPU between the steps at which
/// step() waits, those are meant that had a loss or a parameter's gradient that was not finite.
///
/// On a GPU, step() waits for the device at sampled steps, at those with a shadow, and at every one
/// that has a closure to replay a skipped step with. In the step of a Graph, whose replays count by
/// class, it never does; rows() then stays empty, and step() there takes no closure.
class Inspector {
 public:
  /// The model and the scaler must outlive this. Throws for options without sense, and while the
  /// thread has another ValueWatcher.
  Inspector(const nn::Module& model, const GradScaler& scaler,
            const InspectorOptions& options = {});
  ~Inspector();
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;

  /// Ends a training step; call it after scaler.update(). `loss_again` computes the loss of the
  /// same batch again, as before scaler.scale(). At every `shadow_every`-th step it is called
  /// twice, once with autocast to float32 instead, and after a skipped step once if `replay` is
  /// set, unless no parameter of the model requires grad; it draws the random numbers that followed
  /// the last step(). Weights, buffers, gradients and random generators stay as they are.
  void step(const std::function<Tensor()>& loss_again = nullptr);

  /// The number of calls of step(), or of replays of its Graph. This and all that follows waits for
  /// the device.
  int64_t steps();
  /// All places so far. Their order is that of their first appearance; it does not change.
  const std::vector<LedgerPlace>& places();
  /// For each place: its numbers of all steps so far.
  const std::vector<ClassCounts>& totals();
  /// The samples of the last `kept` sampled steps, oldest first, of places of gradients that are
  /// stored in 16 bits, and of parameters.
  const std::deque<LedgerRow>& rows() const;
  /// The last 1000 skipped steps, oldest first.
  const std::deque<Overflow>& overflows();
  /// The newest of them; nothing if no step was skipped.
  std::optional<Overflow> last_overflow();
  /// All alarms, oldest first.
  const std::vector<Alarm>& alarms();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halftape::amp
