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

/// All that the next step of a run depends on, in one safetensors file: the parts that were added,
/// the step, and the default random generators of all devices.
///
///     TrainState state;
///     state.add("model", model);
///     state.add("optimizer", optimizer);
///     state.add("scaler", scaler);
///     Checkpoints checkpoints("run1");
///     if (checkpoints.load_latest(state)) …             // the second time
///     for (; state.step < steps; ) { …; ++state.step; if (…) checkpoints.save(state); }
///
/// Parts are kept by reference and must live as long. A name is a word without dots. The model's
/// tensors are "model.0.weight", and an optimizer's state goes by those names, whatever the order
/// of its parameters; their modules must have been added, too.
///
/// Not part of it, and to be the same in the resumed run: the program with its options and data,
/// and on a GPU the device.
class TrainState {
 public:
  using Numbers = std::map<std::string, double>;
  using Text = std::map<std::string, std::string>;

  TrainState() = default;
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  int64_t step = 0;

  void add(const std::string& name, nn::Module& module);
  template <HoldsModule Holder>
  void add(const std::string& name, const Holder& module) {
    add(name, static_cast<nn::Module&>(*module));
  }
  void add(const std::string& name, optim::Optimizer& optimizer);
  /// A step that it was handed is awaited, and kept with the weights that it led to, which the
  /// model has yet to get: the resumed run is as stale as the one that was saved.
  void add(const std::string& name, optim::AsyncOptimizer& optimizer);
  /// A generator of the user's own, for a sampler say.
  void add(const std::string& name, Generator& generator);
  /// What keeps its state as numbers by name: an amp::GradScaler, a learning-rate scheduler.
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
  /// Anything else: where the data stands, say. `load` throws, changing nothing, for a state that
  /// it cannot take. Doubles keep all their bits; larger integers go as text.
  void add_numbers(const std::string& name, std::function<Numbers()> save,
                   std::function<void(const Numbers&)> load);
  void add_text(const std::string& name, std::function<Text()> save,
                std::function<void(const Text&)> load);

  /// Whole or not at all, as safetensors::save_file(). Waits for the devices.
  void save(const std::filesystem::path& path) const;
  /// Parts, names, shapes, dtypes and parameter groups are compared before anything changes; Error
  /// lists all differences. When a part then refuses its state, those loaded before it get theirs
  /// back. FileError: the file is damaged, or was not saved by a TrainState.
  void load(const std::filesystem::path& path);

 private:
  /// A file's contents, before they are written.
  struct Draft {
    std::vector<safetensors::Tensors::Item> tensors;
    safetensors::Metadata metadata;
  };
  using Contents = safetensors::Contents;
  using Differences = std::vector<std::string>;
  struct Part {
    std::string name;
    const char* kind;
    std::function<void(Draft&)> save;
    std::function<void(const Contents&, Differences&)> compare;
    std::function<void(const Contents&)> load;
    bool follows_modules = false;  // looks at their weights, and is loaded again after them
  };
  using Groups = std::vector<optim::OptimizerParamGroup>;
  void add(Part part);
  bool is_module(const Part& part) const;
  std::map<const detail::TensorImpl*, std::string> parameter_names() const;
  void save_optimizer(const std::string& name, const Groups& groups,
                      const optim::OptimizerState& state, Draft& draft) const;
  void compare_optimizer(const std::string& name, const Groups& groups, const Contents& saved,
                         Differences& differences) const;
  optim::OptimizerState saved_optimizer(const std::string& name, const Groups& groups,
                                        const Contents& saved) const;
  void save_async(const std::string& name, optim::AsyncOptimizer& optimizer, Draft& draft) const;
  void load_async(const std::string& name, optim::AsyncOptimizer& optimizer,
                  const Contents& saved) const;
  void compare_parts(const Contents& saved, Differences& differences) const;
  void load_parts(const Contents& saved);

  std::vector<Part> parts_;
  std::vector<std::pair<std::string, nn::Module*>> modules_;
};

}  // namespace halftape
