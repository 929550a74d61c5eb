#include "halftape/tests/faults/history.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

namespace halftape::testing {
namespace {

namespace fs = std::filesystem;

/// A file's bytes, and those that it had since it was flushed.
struct Content {
  std::vector<std::string> versions{""};  // the first is on the disk
};

/// A change of names in one folder, which the disk has or has not.
struct Names {
  std::string folder;
  std::vector<std::pair<std::string, std::optional<int64_t>>> set;  // to a file, or to nothing
};

constexpr int64_t kFolder = -1;

class Simulation {
 public:
  Simulation(const std::string& root, int most)
      : root_(root), most_(most), names_{{root, kFolder}} {}

  void apply(const Change& c) {
    if (c.kind == Change::Create) {
      files_[c.file] = {};
      name(c.path, c.file);
    } else if (c.kind == Change::Write || c.kind == Change::Resize) {
      write(c);
    } else if (c.kind == Change::Flush) {
      std::vector<std::string>& versions = files_[c.file].versions;
      versions.erase(versions.begin(), versions.end() - 1);
    } else if (c.kind == Change::Rename) {
      waiting_.push_back({folder_of(c.to), {{c.path, {}}, {c.to, file_at(c.path)}}});
    } else if (c.kind == Change::Remove) {
      name(c.path, {});
    } else if (c.kind == Change::MakeFolder) {
      name(c.path, kFolder);
    } else if (c.kind == Change::FlushFolder) {
      for (const Names& n : waiting_)
        if (n.folder == c.path) take(names_, n);
      std::erase_if(waiting_, [&](const Names& n) { return n.folder == c.path; });
    } else {
      mark_ = c.position;
    }
  }

  /// What the disk may hold now, each state once.
  void states(const std::function<void(const Disk&, int64_t)>& check) {
    // All subsets of the names and, for each, the two plain contents of the files first.
    const size_t subsets = size_t{1} << std::min<size_t>(waiting_.size(), 10);
    for (size_t subset = 0; subset < subsets; ++subset)
      for (const bool newest : {false, true})
        report(
            subset, [&](const Content& c) { return newest ? c.versions.back() : c.versions[0]; },
            check);
    const bool torn = std::any_of(files_.begin(), files_.end(),
                                  [](const auto& file) { return file.second.versions.size() > 1; });
    for (int i = 0; torn && i < most_; ++i)
      report(
          random_() % subsets, [&](const Content& c) { return drawn(c); }, check);
  }
  int64_t count() const { return static_cast<int64_t>(seen_.size()); }

 private:
  static std::string folder_of(const std::string& path) { return fs::path(path).parent_path(); }
  void name(const std::string& path, std::optional<int64_t> file) {
    waiting_.push_back({folder_of(path), {{path, file}}});
  }
  static void take(std::map<std::string, int64_t>& names, const Names& change) {
    for (const auto& [path, file] : change.set)
      if (file)
        names[path] = *file;
      else
        names.erase(path);
  }
  int64_t file_at(const std::string& path) const {
    std::map<std::string, int64_t> names = names_;
    for (const Names& n : waiting_) take(names, n);
    return names.at(path);
  }

  void write(const Change& c) {
    std::string bytes = files_[c.file].versions.back();
    if (c.kind == Change::Resize) {
      bytes.resize(c.position);
    } else {
      bytes.resize(std::max(bytes.size(), c.position + c.bytes.size()));
      bytes.replace(c.position, c.bytes.size(), c.bytes);
    }
    files_[c.file].versions.push_back(std::move(bytes));
  }

  std::string drawn(const Content& c) {
    const auto any = [&]() -> const std::string& {
      return c.versions[random_() % c.versions.size()];
    };
    const size_t size = any().size(), block = random_() % 2 ? 512 : 4096;
    const size_t flushed = c.versions[0].size();
    std::string bytes(size, '\0');
    for (size_t at = 0; at < size; at += block) {
      if (at >= flushed && random_() % 4 == 0) continue;  // zeros
      const std::string& from = any();
      for (size_t i = at; i < std::min({at + block, size, from.size()}); ++i) bytes[i] = from[i];
    }
    return bytes;
  }

  void report(size_t subset, const std::function<std::string(const Content&)>& content,
              const std::function<void(const Disk&, int64_t)>& check) {
    std::map<std::string, int64_t> names = names_;
    for (size_t i = 0; i < waiting_.size(); ++i)
      if (i >= 10 || subset >> i & 1) take(names, waiting_[i]);
    Disk disk;
    std::map<int64_t, std::string> contents;  // two names of one file have the same bytes
    std::string key = std::to_string(mark_);
    for (const auto& [path, file] : names) {
      const auto above = names.find(folder_of(path));  // the folder may not be there
      if (path != root_ && (above == names.end() || !disk.contains(above->first))) continue;
      if (file != kFolder && !contents.contains(file)) contents[file] = content(files_[file]);
      disk[path] = file == kFolder ? std::nullopt : std::optional(contents[file]);
      key += '\n' + path + ' ' + (file == kFolder ? "" : contents[file]);
    }
    if (seen_.insert(std::hash<std::string>()(key)).second) check(disk, mark_);
  }

  std::string root_;
  int most_;
  int64_t mark_ = 0;
  std::map<std::string, int64_t> names_;  // on the disk
  std::vector<Names> waiting_;            // not flushed
  std::map<int64_t, Content> files_;
  std::set<size_t> seen_;
  std::minstd_rand random_{1};
};

}  // namespace

int64_t after_power_failures(const fs::path& root, const std::vector<Change>& changes, int most,
                             const std::function<void(const Disk&, int64_t mark)>& check) {
  Simulation simulation(root.string(), most);
  simulation.states(check);
  for (const Change& change : changes) {
    simulation.apply(change);
    simulation.states(check);
  }
  return simulation.count();
}

}  // namespace halftape::testing
