// A store of files: a value is a file of its own, "k_" and the key. Temporary files begin with
// "t_", locks with "l_".
#include "halftape/distributed/store/file_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/core/machine/os.h"
#include "halftape/distributed/store/table.h"

namespace halftape::distributed {
namespace fs = std::filesystem;

namespace {

using FileClock = std::chrono::steady_clock;

std::string errno_text(int error) { return std::generic_category().message(error); }

/// A name of a file for a key: letters and digits stand for themselves, but capitals, which some
/// file systems take for small ones. Long names go into folders, as file systems end at 255 bytes.
std::string escaped(const std::string& key) {
  static constexpr char kDigits[] = "0123456789abcdef";
  static constexpr size_t kLongestName = 200;
  std::string name;
  size_t start = 0;
  for (const char c : key) {
    if (name.size() - start > kLongestName) {
      name += "+/k_";  // no file's name ends with a plus
      start = name.size();
    }
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-')
      name += c;
    else
      name.append({'%', kDigits[static_cast<uint8_t>(c) >> 4], kDigits[c & 15]});
  }
  return name;
}

/// The same path with another first letter of its last name.
fs::path sibling(const fs::path& file, const char* kind) {
  return file.parent_path() / (kind + file.filename().string().substr(1));
}

/// Sleeps a little longer each time.
class Patience {
 public:
  explicit Patience(milliseconds timeout) : deadline_(FileClock::now() + timeout) {}
  /// False, at once, after the timeout.
  bool sleep() {
    const auto now = FileClock::now();
    if (now >= deadline_) return false;
    std::this_thread::sleep_for(std::min<FileClock::duration>(next_, deadline_ - now));
    next_ = std::min<FileClock::duration>(next_ * 3 / 2, milliseconds(50));
    return true;
  }

 private:
  FileClock::time_point deadline_;
  FileClock::duration next_{milliseconds(1)};
};

/// A pipe, say, whose bytes would be waited for.
void refuse_what_no_store_writes(const fs::path& file) {
  std::error_code unreadable;
  const fs::file_status status = fs::status(file, unreadable);
  HALFTAPE_CHECK(!fs::exists(status) || fs::is_regular_file(status), "FileStore: ", file.string(),
                 " is no regular file, so no store wrote it; use a folder for this store alone");
}

/// Empty if there is none now. A file that another machine is replacing may be there and not be
/// readable for a moment.
std::optional<std::string> value_in(const fs::path& file) try {
  refuse_what_no_store_writes(file);
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream.tellg();
  if (!stream || size < 0) return std::nullopt;
  HALFTAPE_CHECK(static_cast<uint64_t>(size) <= kLongestValue, "FileStore: ", file.string(),
                 " has ", size, " bytes, and a value at most ", kLongestValue,
                 ", so no store wrote it; use a folder for this store alone");
  std::string value(static_cast<size_t>(size), '\0');
  stream.seekg(0).read(value.data(), size);
  if (!stream) return std::nullopt;
  return value;
} catch (const std::ios_base::failure&) {  // libstdc++'s buffer throws by itself
  return std::nullopt;
}

/// A name that no other thread, process or machine takes.
std::string unique_name() {
  static std::atomic<uint64_t> count{0};
  static const uint64_t random = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return os::host_name() + "_" + std::to_string(os::process_id()) + "_" + std::to_string(random) +
         "_" + std::to_string(count++);
}

void replace_value(const fs::path& file, const std::string& value) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  const fs::path fresh = file.parent_path() / ("t_" + unique_name());
  const int failed = os::write_new_file(fresh, value);
  HALFTAPE_CHECK(failed == 0, "FileStore: cannot write to the folder ", file.parent_path().string(),
                 ": ", errno_text(failed));
  // Windows does not replace a file while somebody reads it.
  for (Patience patience(milliseconds(5000));;) {
    fs::rename(fresh, file, error);
    if (!error) return;
    if (os::kReplacesOpenFiles || !patience.sleep()) break;
  }
  const std::string why = error.message();
  fs::remove(fresh, error);
  detail::fail("FileStore: cannot write ", file.string(), ": ", why);
}

/// Waits for other processes and threads that add.
os::PathLock lock_for_adding(const fs::path& file, Patience patience) {
  const fs::path path = sibling(file, "l");
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  const int made = os::write_new_file(path, "");
  HALFTAPE_CHECK(made == 0 || made == EEXIST, "FileStore: cannot write to the folder ",
                 path.parent_path().string(), ": ", errno_text(made));
  for (;;) {
    int error = 0;
    os::PathLock lock = os::lock_path(path, error);
    if (lock || error == 0) return lock;  // an unknown system has no locks
    HALFTAPE_CHECK(error == EAGAIN, "FileStore: add() cannot lock ", path.string(), ": ",
                   errno_text(error),
                   "; put the folder on a file system that has locks, or use a TcpStore");
    HALFTAPE_CHECK(patience.sleep(), "FileStore: add() waited for the lock of ", path.string(),
                   ": another process holds it, and may have been stopped");
  }
}

}  // namespace

FileStore::FileStore(fs::path folder, milliseconds timeout)
    : folder_(std::move(folder)), timeout_(checked_timeout("FileStore", timeout, milliseconds(0))) {
  HALFTAPE_CHECK(!folder_.empty(), "FileStore: the folder has no name");
  std::error_code error;
  fs::create_directories(folder_, error);
  std::error_code unknown;
  HALFTAPE_CHECK(fs::is_directory(folder_, unknown), "FileStore: ", folder_.string(),
                 " is no folder and cannot be made one",
                 error ? ": " + error.message() : std::string());
  folder_ = fs::absolute(folder_, error);  // a program may change its folder
  HALFTAPE_CHECK(!error, "FileStore: the current folder cannot be found: ", error.message());
}

fs::path FileStore::file_of(const std::string& key) const {
  check_store_key(key);
  return folder_ / ("k_" + escaped(key));
}

void FileStore::set(const std::string& key, const std::string& value) {
  check_store_value(key, value);
  replace_value(file_of(key), value);
}

std::string FileStore::get(const std::string& key) {
  const fs::path file = file_of(key);
  const milliseconds timeout = timeout_;
  for (Patience patience(timeout);;) {
    if (std::optional<std::string> value = value_in(file)) return *std::move(value);
    HALFTAPE_CHECK(patience.sleep(), "FileStore in ", folder_.string(), ": ",
                   without_value({key}, timeout));
  }
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  const fs::path file = file_of(key);
  const os::PathLock lock =
      lock_for_adding(file, Patience(std::max<milliseconds>(timeout_, milliseconds(5000))));
  // Nobody adds now, so a value that is there can be read.
  const std::optional<std::string> value = value_in(file);
  std::error_code ignored;
  HALFTAPE_CHECK(value || !fs::exists(file, ignored), "FileStore: cannot read ", file.string());
  const int64_t sum = sum_in_store(key, value.value_or("0"), amount);
  replace_value(file, std::to_string(sum));
  return sum;
}

bool FileStore::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) {
    std::error_code ignored;
    return fs::is_regular_file(file_of(key), ignored);
  });
}

void FileStore::wait(const std::vector<std::string>& keys) {
  std::vector<std::string> missing = keys;
  const milliseconds timeout = timeout_;
  for (Patience patience(timeout);;) {
    std::erase_if(missing, [this](const std::string& key) {
      refuse_what_no_store_writes(file_of(key));
      return check({key});
    });
    if (missing.empty()) return;
    HALFTAPE_CHECK(patience.sleep(), "FileStore in ", folder_.string(), ": ",
                   without_value(missing, timeout));
  }
}

}  // namespace halftape::distributed
