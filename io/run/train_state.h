// One checkpoint of a whole run: stop anywhere, resume, and get the bits of the run that never
// stopped.
#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "halftape/core/random/random.h"
#include "halftape/io/formats/serialize.h"
#include "halftape/optim/async/async_optimizer.h"
#include "halftape/optim/optimizer.h"

namespace halftape {

/// Everything that the next step of a run depends on, in one safetensors file: the added parts, the
/// step, and the default random generators of all devices.
///
///     TrainState state;
///     state.add("model", model);
///     state.add("optimizer", optimizer);
///     state.add("scaler", scaler);
///     Checkpoints checkpoints("run1");
///     if (checkpoints.load_latest(state)) …             // the second time
///     for (; state.step < steps; ) { …; ++state.step; if (…) checkpoints.save(state); }
///
/// Parts are kept by reference and must live as long as the TrainState. A name has no dots. The
/// model's tensors are "model.0.weight" and so on. An optimizer's state is saved by these names,
/// whatever the order of its parameters, so their modules must be added, too; LBFGS's is refused in
/// another order.
///
/// Not saved, and needed unchanged to resume: the program, its options and data, and on a GPU the
/// device. Not saved either: gradients. A run that adds up those of several batches for one step
/// saves after the step.
class TrainState {
 public:
  using Numbers = std::map<std::string, double>;
  using Text = std::map<std::string, std::string>;

  /// What no add() takes.
  struct OtherPart {
    template <class T>
    OtherPart(const T&) {  // NOLINT: a conversion, so that the error names the user's line
      static_assert(sizeof(T*) == 0,
                    "TrainState: save a part of this type by add_numbers() or add_text()");
    }
  };

  TrainState();
  ~TrainState();
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  int64_t step = 0;

  void add(const std::string& name, nn::Module& module);
  template <HoldsModule Holder>
  void add(const std::string& name, const Holder& module) {
    add(name, static_cast<nn::Module&>(*module));
  }
  void add(const std::string& name, optim::Optimizer& optimizer);
  /// Saving waits for the step in flight, and saves its new weights beside the model's: the resumed
  /// run is as stale as the saved one.
  void add(const std::string& name, optim::AsyncOptimizer& optimizer);
  /// A generator of your own, such as a sampler's.
  void add(const std::string& name, Generator& generator);
  /// An object whose state is numbers by name: an amp::GradScaler, a learning-rate scheduler.
  template <class Part>
  requires requires(Part& part, const Numbers& saved) {
    { part.state_dict() } -> std::convertible_to<Numbers>;
    part.load_state_dict(saved);
  }
  void add(const std::string& name, Part& part) {
    add_numbers(
        name, [&part] { return part.state_dict(); },
        [&part](const Numbers& saved) { part.load_state_dict(saved); });
  }
  /// Says in a sentence what to do with other parts, where compilers would list every add().
  void add(const std::string& name, OtherPart part);
  /// Anything else, such as the position in the data. `load` throws, changing nothing, for a state
  /// that does not fit. Doubles keep all their bits; save integers beyond 2^53 as text.
  void add_numbers(const std::string& name, std::function<Numbers()> save,
                   std::function<void(const Numbers&)> load);
  /// Anything that is saved as text.
  void add_text(const std::string& name, std::function<Text()> save,
                std::function<void(const Text&)> load);

  /// Writes the whole file or none, as safetensors::save_file(). Waits for the devices.
  void save(const std::filesystem::path& path) const;
  /// Compares parts, names, shapes, dtypes and parameter groups before anything changes, and throws
  /// an Error that lists all mismatches. If a part then throws, the parts loaded before it get
  /// their former state back. Throws FileError if the file is damaged or no TrainState saved it.
  void load(const std::filesystem::path& path);

 private:
  struct Part;
  void add(Part part);

  std::vector<Part> parts_;
  std::vector<std::pair<std::string, nn::Module*>> modules_;
};

}  // namespace halftape
