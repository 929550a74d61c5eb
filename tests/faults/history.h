// What a piece of work did to files, call by call, and what a disk may hold of it after a power
// failure.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace halftape::testing {

/// One call that changed files. A file is known by its number, as its names change.
struct Change {
  enum Kind { Create, Write, Resize, Flush, Rename, Remove, MakeFolder, FlushFolder, Mark } kind;
  std::string path = {}, to = {};
  int64_t file = 0;
  uint64_t position = 0;  // of a write; the new size; the number of a mark
  std::string bytes = {};
};

/// Records the changes below a folder as long as it lives.
class Recording {
 public:
  explicit Recording(const std::filesystem::path& root);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// Notes that something has come to its end.
  void mark(int64_t number);
  const std::vector<Change>& changes() const;
};

/// Files by name, and folders, which have no bytes.
using Disk = std::map<std::string, std::optional<std::string>>;

/// Calls `check` with what the disk may hold below `root`, an empty folder at first, after a power
/// failure at every point of `changes`, and with the last mark before it. Nothing is in order but
/// by a flush: of what was not flushed, each change of a name is kept or not, and each block of a
/// file is from before or after any write, or zero; its size is any that it had. Only a rename is
/// whole. Where there are more than `most` states of one point, that many are drawn. States that
/// differ in nothing come once. Returns their number.
int64_t after_power_failures(const std::filesystem::path& root, const std::vector<Change>& changes,
                             int most, const std::function<void(const Disk&, int64_t mark)>& check);

}  // namespace halftape::testing
