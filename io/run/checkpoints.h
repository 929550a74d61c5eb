// The checkpoints of a run in a folder: keeps the last few, and finds the newest sound one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "halftape/io/run/train_state.h"

namespace halftape {

/// The files step-0000000000000001000.safetensors and so on in one folder, which belongs to one
/// run.
class Checkpoints {
 public:
  /// The first save makes the folder, and locks it against other objects and processes that save
  /// there; so does a save that finds it moved away or removed. `keep`: the number of files that
  /// stay, at least 1.
  explicit Checkpoints(const std::filesystem::path& folder, int64_t keep = 3);

  /// Saves the state under its step, then removes the oldest files beyond `keep`. Files of later
  /// steps stay and are not counted: a run that went back overwrites them. Throws FileError, and
  /// removes nothing, when the new file cannot be written.
  std::filesystem::path save(const TrainState& state) const;
  /// Loads the newest sound file and returns its path, or none without a file or a folder. A
  /// warning names each newer, damaged file and its damage. Throws FileError when all files are
  /// damaged, and Error when a sound file does not fit the run, because no older one would.
  std::optional<std::filesystem::path> load_latest(TrainState& state) const;
  /// The files from the oldest to the newest step.
  std::vector<std::filesystem::path> files() const;

 private:
  std::filesystem::path folder_;
  int64_t keep_;
  struct Saving {
    std::mutex mutex;  // one save at a time
    std::shared_ptr<const int> lock;
    bool tried = false;  // where there is no lock, one warning is enough
  };
  std::shared_ptr<Saving> saving_ = std::make_shared<Saving>();  // of all copies
};

}  // namespace halftape
