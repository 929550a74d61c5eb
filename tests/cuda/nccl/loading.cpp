// What is missing is named, with the remedy; and the ranks agree on an engine.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "halftape/core/machine/os.h"
#include "halftape/cuda/runtime/runtime.h"
#include "halftape/distributed/engine/choice.h"
#include "halftape/distributed/nccl/nccl_library.h"
#include "rig_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;

namespace {

/// HALFTAPE_NCCL_LIBRARY for as long as it lives; null: not set.
class Variable {
 public:
  explicit Variable(const char* file) { set(file); }
  ~Variable() { set(fake_file().c_str()); }

 private:
  static void set(const char* file) {
    if (file)
      setenv("HALFTAPE_NCCL_LIBRARY", file, 1);
    else
      unsetenv("HALFTAPE_NCCL_LIBRARY");
  }
};

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
  return true;
}

std::string real_library() {
  for (const char* place :
       {"/usr/local/cuda/lib/libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2"})
    if (std::filesystem::exists(place)) return place;
  return "";
}

std::string opening(int size = 1) {
  MemoryStore store(milliseconds(5000));
  return on_threads(1, [&](int r) {
    (void)open_nccl({r, size, &store, milliseconds(5000), "", r});
  })[0];
}

}  // namespace

TEST_CASE("a file that is not there, or is no NCCL") {
  {
    const Variable variable("/nowhere/libnccl.so.2");
    has(nccl_unavailable_reason(), "HALFTAPE_NCCL_LIBRARY: there is no file /nowhere/libnccl.so.2");
    has(opening(), "there is no file /nowhere/libnccl.so.2");
  }
  const std::string text =
      (std::filesystem::temp_directory_path() / ("no_nccl_" + std::to_string(os::process_id())))
          .string();
  std::ofstream(text) << "no library";
  {
    const Variable variable(text.c_str());
    has(nccl_unavailable_reason(), text + " does not load: ");
  }
  std::filesystem::remove(text);
  std::string why_not;
  if (os::load_library("libnccl.so.2", why_not)) return;  // this system has one
  const Variable variable(nullptr);
  has(nccl_unavailable_reason(), "NCCL is not installed: libnccl.so.2 was not found by the system");
  has(nccl_unavailable_reason(),
      "install NVIDIA's package libnccl2, or name the file by "
      "HALFTAPE_NCCL_LIBRARY, or use the backend \"gloo\"");
}

TEST_CASE("a version before 2.14 is refused by its number") {
  const Fresh fresh;
  CHECK(nccl_unavailable_reason().empty());
  fake().set_version(2804);
  has(nccl_unavailable_reason(), "is version 2.8.4; Halftape needs 2.14.0 or later");
  fake().set_version(21304);
  has(opening(), "is version 2.13.4; Halftape needs 2.14.0 or later");
  fake().set_version(21400);
  CHECK(nccl_unavailable_reason().empty());
}

TEST_CASE("without a GPU there is nothing to start") {
  cuda::Runtime* const rig = cuda::use_runtime(nullptr);
  const std::string reason = nccl_unavailable_reason(), error = opening();
  cuda::use_runtime(rig);
  CHECK(reason == "it was taken away");
  has(error, "NCCL: there is no GPU to use: it was taken away; use the backend \"gloo\"");
}

TEST_CASE("the real NCCL loads, and says what it lacks, where there is no driver") {
  const std::string file = real_library();
  std::string why_not;
  if (file.empty() || os::load_library("libcuda.so.1", why_not)) {
    MESSAGE("left out: it needs NCCL, and a machine without a driver");
    return;
  }
  const Variable variable(file.c_str());
  CHECK(nccl::load().version >= nccl::kLeastVersion);
  CHECK(nccl::load().text_of(nccl::ncclInvalidArgument).find("invalid argument") !=
        std::string::npos);
  // The rig is a GPU for Halftape, and none for NCCL.
  const std::string error = opening();
  has(error, "NCCL: making the communicator of rank 0 of 1 on cuda:0 (ncclCommInitRankConfig): ");
  has(error, "CUDA driver version is insufficient");
}

TEST_CASE("ranks agree on an engine, or all of them say why not") {
  struct Case {
    std::vector<std::string> asked, obstacle;
    std::string choice, error;
  };
  for (const Case& c : {
           Case{{"", "", ""}, {"", "", ""}, "nccl", ""},
           Case{{"", "", ""}, {"", "no GPU", ""}, "gloo", ""},
           Case{{"nccl", "nccl", "nccl"}, {"", "", ""}, "nccl", ""},
           Case{{"gloo", "gloo", "gloo"}, {"", "", ""}, "gloo", ""},
           Case{{"nccl", "nccl", "nccl"},
                {"", "", "no GPU"},
                "",
                "rank 2 of 3 cannot use NCCL: no GPU"},
           Case{{"nccl", "gloo", "nccl"},
                {"", "", ""},
                "",
                "rank 0 asks for the backend \"nccl\", rank 1 for \"gloo\""},
           Case{{"", "gloo", ""},
                {"", "", ""},
                "",
                "rank 0 asks for the backend whichever fits, rank 1 for \"gloo\""},
       }) {
    MemoryStore store(milliseconds(5000));
    std::vector<std::string> choices(3);
    const auto errors = on_threads(3, [&](int r) {
      const auto i = static_cast<size_t>(r);
      choices[i] = agreed_backend(c.asked[i], c.obstacle[i], r, 3, store);
    });
    for (size_t r = 0; r < 3; ++r) {
      CHECK(choices[r] == c.choice);
      has(errors[r], c.error);
      CHECK(errors[r].empty() == c.error.empty());
    }
  }
}
