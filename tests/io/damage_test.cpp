// Files that were cut, had bits flipped, or were torn by a kill or a full disk: the damage is
// always noticed, and the former file is always there.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

#include <halftape/halftape.h>

#include "halftape/io/file/crc.h"
#include "halftape/io/file/file.h"
#include "halftape/tests/io/file/files.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define HALFTAPE_POSIX 1
#else
#define HALFTAPE_POSIX 0
#endif

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

namespace {

safetensors::Tensors few() {
  return {{"weight", testing::bytes_of_all_kinds(kFloat32, {3, 2})},
          {"half", testing::bytes_of_all_kinds(kFloat16, {5})},
          {"mask", testing::bytes_of_all_kinds(kBool, {3})},
          {"count", testing::bytes_of_all_kinds(kInt64, {})}};
}

}  // namespace

TEST_CASE("every truncation of a safetensors file is refused") {
  TempFolder folder;
  safetensors::save_file(few(), folder / "whole");
  const std::string whole = read_bytes(folder / "whole");
  int refused = 0;
  for (size_t n = 0; n < whole.size(); ++n) {
    write_bytes(folder / "cut", whole.substr(0, n));
    refused += !message<FileError>([&] { (void)safetensors::load_file(folder / "cut"); }).empty();
  }
  CHECK(refused == static_cast<int>(whole.size()));
  MESSAGE(refused, " of ", whole.size(), " truncations refused");
}

TEST_CASE("every flip of a single bit of a safetensors file is refused") {
  TempFolder folder;
  safetensors::save_file(few(), folder / "whole", {{"note", "some metadata"}});
  const std::string whole = read_bytes(folder / "whole");
  size_t refused = 0;
  for (size_t i = 0; i < whole.size() * 8; ++i) {
    std::string damaged = whole;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    write_bytes(folder / "flipped", damaged);
    const std::string said =
        message<FileError>([&] { (void)safetensors::load_file(folder / "flipped"); });
    CHECK_MESSAGE(!said.empty(), "bit ", i % 8, " of byte ", i / 8, " was not noticed");
    refused += !said.empty();
  }
  MESSAGE(refused, " of ", whole.size() * 8, " flips of one bit refused");
}

TEST_CASE("bytes exchanged, zeroed or appended are refused") {
  TempFolder folder;
  safetensors::save_file(few(), folder / "whole");
  const std::string whole = read_bytes(folder / "whole");
  const auto refused = [&](const std::string& bytes) {
    write_bytes(folder / "damaged", bytes);
    return !message<FileError>([&] { (void)safetensors::load_file(folder / "damaged"); }).empty();
  };
  CHECK(refused(whole + '\0'));
  CHECK(refused(whole + whole));
  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    std::string exchanged = whole;
    std::swap(exchanged[i], exchanged[i + 1]);
    if (exchanged != whole) CHECK_MESSAGE(refused(exchanged), "bytes ", i, " and the next");
    std::string zeroed = whole;
    std::fill(zeroed.begin() + static_cast<std::ptrdiff_t>(i), zeroed.end(), '\0');
    if (zeroed != whole) CHECK_MESSAGE(refused(zeroed), "zeros from byte ", i, " on");
  }
}

TEST_CASE("a missing file, a folder and a device are told apart") {
  TempFolder folder;
  const auto said = [](const std::filesystem::path& path) {
    return message<FileError>([&] { (void)safetensors::load_file(path); });
  };
  CHECK(
      has(said(folder / "none"), (folder / "none").string() + ": expected a file, found nothing"));
  CHECK(has(said(folder.path()), "expected a file, found a folder"));
  if (std::filesystem::exists("/dev/zero"))
    CHECK(has(said("/dev/zero"), "expected a regular file"));
}

TEST_CASE("a file that is cut while it is read is refused") {
  TempFolder folder;
  write_bytes(folder / "x", "ten bytes.");
  InputFile file("data", folder / "x");
  std::filesystem::resize_file(folder / "x", 4);
  char bytes[10];
  CHECK(has(message([&] { file.read_at(0, bytes, 10, "the words"); }),
            "the words: expected 10 bytes from byte 0 on, found the end after 4: the file is "
            "truncated"));
}

TEST_CASE("saving where there is no folder, or a folder stands, says so") {
  TempFolder folder;
  const auto said = [](const std::filesystem::path& path) {
    return message<FileError>([&] { safetensors::save_file(few(), path); });
  };
  CHECK(has(said(folder / "none" / "x"), (folder / "none" / "x").string() + ": creating the file"));
  CHECK(has(said(folder / "none" / "x"), "No such file or directory"));
  CHECK(has(said(folder.path()), "Is a directory"));
  CHECK(!said("").empty());
}

TEST_CASE("an output file that is not committed leaves nothing behind and the former file alone") {
  TempFolder folder;
  write_bytes(folder / "x", "former");
  {
    OutputFile file("test", folder / "x");
    file.write("new", 3);
    CHECK(std::filesystem::exists(folder / "x.partial"));
    CHECK(has(message<FileError>([&] { OutputFile second("test", folder / "x"); }),
              "another save of it is under way"));
  }
  CHECK(read_bytes(folder / "x") == "former");
  CHECK(!std::filesystem::exists(folder / "x.partial"));
  OutputFile file("test", folder / "x");
  file.write("neu", 3);
  file.write_at(2, "w", 1);
  CHECK(file.size() == 3);
  file.commit();
  CHECK(read_bytes(folder / "x") == "new");
}

#if HALFTAPE_POSIX

namespace {

/// All elements are `value`, so that a file torn between two saves would hold two values. On the
/// CPU, as a child process cannot use its parent's GPU.
safetensors::Tensors all_of(int64_t value) {
  safetensors::Tensors t;
  for (int i = 0; i < 8; ++i)
    t.insert(std::to_string(i), full({16, 1024}, value, TensorOptions(kInt64).device(kCPU)));
  return t;
}

int64_t the_value(const safetensors::Tensors& tensors) {
  const int64_t value = tensors["0"].flatten()[0].item<int64_t>();
  for (const auto& item : tensors)
    if (!item->eq(value).all().item<bool>()) return -1;
  return value;
}

}  // namespace

TEST_CASE("a full disk leaves the former file, names the reason and removes what it wrote") {
  TempFolder folder;
  safetensors::save_file(all_of(1), folder / "x");
  const std::string former = read_bytes(folder / "x");
  // A limit on the size of files fails as a full disk does. It holds for a process, hence the
  // child.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    int kept = 0;
    for (const rlim_t most :
         {rlim_t{0}, rlim_t{5}, rlim_t{4096}, rlim_t{100'000}, rlim_t{former.size() - 1}}) {
      const rlimit limit{most, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        safetensors::save_file(all_of(2), folder / "x");
      } catch (const FileError& error) {
        kept += has(error.what(), "writing failed after ") && has(error.what(), "File too large") &&
                has(error.what(), "the former file is as it was") &&
                !std::filesystem::exists(folder / "x.partial") &&
                read_bytes(folder / "x") == former;
      }
    }
    const rlimit enough{former.size(), RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &enough);
    safetensors::save_file(all_of(2), folder / "x");
    _exit(kept);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
  CHECK(the_value(safetensors::load_file(folder / "x")) == 2);
}

namespace {

/// Something that a process writes for ever, until it is killed.
struct Saving {
  const char* name;
  std::function<void(const TempFolder&, int64_t former)> save;  // the versions after that one
  std::function<int64_t(const TempFolder&)> version;            // −1: torn
};

const Saving kSavings[] = {
    {"a checkpoint",
     [](const TempFolder& folder, int64_t former) {
       for (int64_t v = former + 1;; ++v) safetensors::save_file(all_of(v), folder / "x");
     },
     [](const TempFolder& folder) { return the_value(safetensors::load_file(folder / "x")); }},
    {"a sampler",
     [](const TempFolder& folder, int64_t former) {
       data::samplers::SequentialSampler sampler(size_t{1} << 40);
       (void)sampler.next(static_cast<size_t>(former));
       for (; sampler.next(1);) save(sampler, folder / "sampler");
     },
     [](const TempFolder& folder) {
       data::samplers::SequentialSampler sampler(size_t{1} << 40);
       load(sampler, folder / "sampler");
       return static_cast<int64_t>(sampler.index());
     }},
    {"a picture",
     [](const TempFolder& folder, int64_t former) {
       // The version as the bits of the picture.
       const TensorOptions cpu = TensorOptions(kFloat32).device(kCPU);
       for (int64_t v = former + 1;; ++v) {
         const Tensor bits = empty({1, 8, 400}, cpu);
         for (int64_t i = 0; i < bits.numel(); ++i)
           bits.data_ptr<float>()[i] = static_cast<float>(v >> i % 20 & 1);
         image::save(folder / "x.png", bits);
       }
     },
     [](const TempFolder& folder) {
       const Tensor bits = image::load(folder / "x.png");
       int64_t v = 0;
       for (int64_t i = 0; i < 20; ++i) v += int64_t{bits.data_ptr<float>()[i] > 0.5f} << i;
       for (int64_t i = 0; i < bits.numel(); ++i)
         if (bits.data_ptr<float>()[i] != static_cast<float>(v >> i % 20 & 1)) return int64_t{-1};
       return v;
     }},
    {"a run log",
     [](const TempFolder& folder, int64_t former) {
       RunLog log(folder / "log.csv");
       for (int64_t v = former + 1;; ++v) log.write({{"step", v}, {"twice", 2 * v}});
     },
     [](const TempFolder& folder) {
       RunLog(folder / "log.csv");  // drops half a row
       const std::string text = read_bytes(folder / "log.csv");
       std::string expected = "step,twice\n";
       int64_t v = 0;
       while (expected.size() < text.size() && ++v)
         expected += std::to_string(v) + ',' + std::to_string(2 * v) + '\n';
       return text == expected || text.empty() ? v : -1;
     }},
    {"an event file",
     [](const TempFolder& folder, int64_t former) {
       tensorboard::SummaryWriter writer(folder / std::to_string(former));
       for (int64_t v = former + 1;; ++v) writer.add_scalar("x", 0.5, v, 1.0);
     },
     [](const TempFolder& folder) {
       int64_t version = 0;
       for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
         if (entry.is_directory()) continue;
         const std::string bytes = read_bytes(entry.path());
         int64_t events = -1;  // the first one is the version of the format
         for (size_t at = 0; at + 12 <= bytes.size();) {
           uint64_t n = 0;
           uint32_t found = 0;
           std::memcpy(&n, bytes.data() + at, 8);
           std::memcpy(&found, bytes.data() + at + 8, 4);
           const uint32_t sum = crc32c(bytes.data() + at, 8);
           if (found != (sum >> 15 | sum << 17) + 0xa282ead8u) return int64_t{-1};
           at += 16 + n;
           events += at <= bytes.size();  // the last one may be cut off
         }
         if (events > 0)
           version = std::max<int64_t>(version,
                                       std::stoll(entry.path().parent_path().filename()) + events);
       }
       return version;
     }}};

}  // namespace

// HALFTAPE_KILLS sets how often, of all kinds together: 400 take 20 s.
TEST_CASE("after kill -9 during a save the last good file loads") {
  const char* wanted = std::getenv("HALFTAPE_KILLS");
  const int kills = wanted ? std::atoi(wanted) : 25;
  constexpr int kinds = static_cast<int>(std::size(kSavings));
  std::optional<TempFolder> folders[kinds];
  int64_t before[kinds] = {};
  uint32_t random = 12345;
  int good = 0, during = 0;
  for (int i = 0; i < kills; ++i) {
    const int kind = i % kinds;
    const Saving& saving = kSavings[kind];
    const std::string name = saving.name;
    CAPTURE(name);
    CAPTURE(i);
    std::optional<TempFolder>& folder = folders[kind];
    if (!folder) folder.emplace();
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      saving.save(*folder, before[kind]);
      _exit(0);
    }
    random = random * 1664525 + 1013904223;
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + (random >> 8) % 60'000));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder->path()))
      during += entry.path().extension() == ".partial";
    int64_t version = -1;
    try {
      version = saving.version(*folder);
    } catch (const FileError& error) {
      // Before its first save it may have written nothing.
      if (before[kind] == 0 && has(error.what(), "found nothing")) version = 0;
    }
    CHECK(version >= before[kind]);
    good += version >= before[kind];
    before[kind] = std::max(before[kind], version);
  }
  CHECK(good == kills);
  for (const int64_t saves : before) CHECK(saves > 0);
  CHECK(during > 0);
  MESSAGE(good, " of ", kills, " kills survived; ", during, " came in the middle of a save");
}

#endif
