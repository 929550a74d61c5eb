#include "halftape/io/run/checkpoints.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "halftape/core/machine/os.h"
#include "halftape/core/machine/warn.h"
#include "halftape/io/file/file.h"

namespace halftape {
namespace fs = std::filesystem;
namespace {

constexpr const char *kPrefix = "step-", *kSuffix = ".safetensors";
constexpr size_t kDigits = 19;  // of the largest step, so that names sort as numbers do

fs::path name_of(int64_t step) {
  const std::string digits = std::to_string(step);
  return kPrefix + std::string(kDigits - digits.size(), '0') + digits + kSuffix;
}

bool is_ours(const std::string& name) {
  const size_t digits = std::string(kPrefix).size();
  return name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789", digits) == digits + kDigits &&
         name.size() == name_of(0).string().size();
}

}  // namespace

Checkpoints::Checkpoints(const fs::path& folder, int64_t keep)
    : folder_(absolute_path("Checkpoints", folder)), keep_(keep) {
  HALFTAPE_CHECK(keep_ >= 1, "Checkpoints: keep is ", keep_, ", expected at least 1");
}

std::vector<fs::path> Checkpoints::files() const {
  std::vector<fs::path> found;
  int error = 0;
  for (const std::string& name : os::names_in(folder_, error))
    if (is_ours(name)) found.push_back(folder_ / name);
  if (error != 0 && error != ENOENT)
    fail_file("Checkpoints", folder_,
              "expected a folder that can be read: ", std::generic_category().message(error));
  std::sort(found.begin(), found.end());
  return found;
}

fs::path Checkpoints::save(const TrainState& state) const {
  HALFTAPE_CHECK(state.step >= 0, "Checkpoints: the step is ", state.step, ", expected 0 or more");
  const std::lock_guard one_save(saving_->mutex);
  std::error_code error;
  make_folders("Checkpoints", folder_);
  if (!saving_->tried || (saving_->lock && !os::locks(saving_->lock, folder_))) {
    saving_->lock = lock_path("Checkpoints", folder_, "its checkpoints");
    saving_->tried = true;
  }
  fs::path path = folder_ / name_of(state.step);
  state.save(path);
  std::vector<fs::path> present = files();
  std::erase_if(present, [&](const fs::path& p) { return p > path; });
  for (size_t i = 0; i + static_cast<size_t>(keep_) < present.size(); ++i)
    if (!fs::remove(present[i], error) && error)
      warn("Checkpoints: " + present[i].string() + " could not be removed: " + error.message());
  return path;
}

std::optional<fs::path> Checkpoints::load_latest(TrainState& state) const {
  std::vector<fs::path> present = files();
  std::string problems;
  for (auto path = present.rbegin(); path != present.rend(); ++path) {
    std::optional<fs::path> found = *path;  // once the state is loaded, nothing may fail
    const std::string warning = "Checkpoints: resumed from " + path->string() +
                                ", as newer files are damaged:\n" + problems;
    try {
      state.load(*path);
    } catch (const FileError& damage) {
      // One that this user may not read, or for which no file can be opened now, may be sound.
      std::error_code error;
      if (fs::exists(*path, error) && !std::ifstream(*path)) throw;
      problems += std::string(problems.empty() ? "" : "\n") + damage.what();
      continue;
    }
    if (!problems.empty()) warn(warning);
    return found;
  }
  if (!present.empty())
    fail_file("Checkpoints", folder_,
              "expected one sound checkpoint, found none; move them away to begin anew\n",
              problems);
  return {};
}

}  // namespace halftape
