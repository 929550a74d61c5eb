// Names under which there is a device or a pipe: no format replaces them, waits for them or reads
// them without end.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

#if defined(__linux__)
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

using namespace halftape;
namespace fs = std::filesystem;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

using FileCall = std::pair<const char*, std::function<void(const fs::path&)>>;

const FileCall kSaves[] = {
    {"safetensors",
     [](const fs::path& p) {
       safetensors::save_file({{"x", ones({2})}}, p);
     }},
    {"npy", [](const fs::path& p) { npy::save(p, ones({2})); }},
    {"npz",
     [](const fs::path& p) {
       npy::savez(p, {{"x", ones({2})}});
     }},
    {"deflated npz",
     [](const fs::path& p) {
       npy::savez_compressed(p, {{"x", ones({2})}});
     }},
    {"pt",
     [](const fs::path& p) {
       pt::save_file({{"x", ones({2})}}, p);
     }},
    {"picture",
     [](const fs::path& p) {
       image::save(p, ones({1, 2, 2}));
     }},
    {"module", [](const fs::path& p) { save(nn::Linear(2, 2), p); }},
    {"tensor", [](const fs::path& p) { save(ones({2}), p); }},
    {"training", [](const fs::path& p) { TrainState().save(p); }},
    {"sampler", [](const fs::path& p) { save(data::samplers::SequentialSampler(3), p); }},
    {"optimizer",
     [](const fs::path& p) { save(optim::SGD({ones({2})}, optim::SGDOptions(0.1)), p); }},
    {"trace", [](const fs::path& p) { Trace(p).stop(); }},
};

const FileCall kLoads[] = {
    {"safetensors", [](const fs::path& p) { safetensors::load_file(p); }},
    {"npy", [](const fs::path& p) { npy::load(p); }},
    {"npz", [](const fs::path& p) { npy::load_npz(p); }},
    {"pt", [](const fs::path& p) { pt::load_file(p); }},
    {"picture", [](const fs::path& p) { image::load(p); }},
    {"module", [](const fs::path& p) { load(nn::Linear(2, 2), p); }},
    {"tensor",
     [](const fs::path& p) {
       Tensor x;
       load(x, p);
     }},
    {"training", [](const fs::path& p) { TrainState().load(p); }},
    {"sampler",
     [](const fs::path& p) {
       data::samplers::SequentialSampler sampler(3);
       load(sampler, p);
     }},
    {"optimizer",
     [](const fs::path& p) {
       optim::SGD optimizer({ones({2})}, optim::SGDOptions(0.1));
       load(optimizer, p);
     }},
    {"idx", [](const fs::path& p) { data::read_idx(p, p); }},
    {"csv", [](const fs::path& p) { data::read_csv(p); }},
    {"text", [](const fs::path& p) { data::read_text(p); }},
    {"run log", [](const fs::path& p) { RunLog log(p); }},
};

/// A device that gives zeros without end, as /dev/zero. A save that replaced it would do no harm,
/// unlike one of the machine's own. False where only root may make one.
bool make_device(const fs::path& path) {
  return mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 5)) == 0;
}

}  // namespace

TEST_CASE("no format replaces a device or a pipe, itself or behind a link") {
  const TempFolder folder;
  REQUIRE(mkfifo((folder / "pipe.png").c_str(), 0600) == 0);
  fs::create_symlink(folder / "pipe.png", folder / "link.png");
  const bool device = make_device(folder / "device.png");
  if (device) fs::create_symlink(folder / "device.png", folder / "device link.png");
  for (const FileCall& call : kSaves)
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      CAPTURE(std::string(call.first));
      CAPTURE(entry.path());
      const std::string said = message<FileError>([&] { call.second(entry.path()); });
      CHECK_MESSAGE(has(said, "replacing a device, pipe or socket"), said);
    }
  CHECK(fs::is_fifo(folder / "pipe.png"));
  CHECK(fs::is_symlink(folder / "link.png"));
  if (device) CHECK(fs::is_character_file(folder / "device.png"));
}

TEST_CASE("no format waits for a pipe or reads a device without end") {
  const TempFolder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const FileCall& call : kLoads)
    for (const fs::path& path : {folder / "pipe", fs::path("/dev/zero"), fs::path("/dev/null")}) {
      CAPTURE(std::string(call.first));
      CAPTURE(path);
      alarm(10);  // rather than wait for ever
      const std::string said = message<FileError>([&] { call.second(path); });
      alarm(0);
      CHECK_MESSAGE(has(said, "expected a regular file, found a device, pipe or socket"), said);
    }
  // Event files are named by their folder.
  for (const fs::path& path : {folder / "pipe", fs::path("/dev/zero")}) {
    CAPTURE(path);
    CHECK(has(message<FileError>([&] { tensorboard::SummaryWriter writer(path); }),
              "expected a folder that can be written to"));
  }
}
#endif
