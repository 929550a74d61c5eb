// The checkpoints of a run in a folder: the last few are kept, and the newest good one is found.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "halftape/io/run/train_state.h"

namespace halftape {

/// step-0000000000000001000.safetensors and its like in one folder, which belongs to one run.
class Checkpoints {
 public:
  /// The folder is made at the first save. `keep`: how many files stay, at least 1.
  explicit Checkpoints(std::filesystem::path folder, int64_t keep = 3);

  /// Saves the state under its step, then removes the oldest files beyond `keep`. Files of later
  /// steps, which a run that went back will overwrite, are not counted and stay.
  /// Throws FileError when the new file cannot be written; then no file is removed.
  std::filesystem::path save(const TrainState& state) const;
  /// Loads the newest file that is sound and gives its path; a warning names each newer one and
  /// what is wrong with it. Empty: there is none in the folder, or no folder.
  /// Throws FileError when there are files and none is sound, and Error when a sound file does not
  /// fit the run, for an older one would not either.
  std::optional<std::filesystem::path> load_latest(TrainState& state) const;
  /// From the oldest to the newest.
  std::vector<std::filesystem::path> files() const;

 private:
  std::filesystem::path folder_;
  int64_t keep_;
};

}  // namespace halftape
