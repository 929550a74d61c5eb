// The newest good checkpoint of a folder, and how many are kept.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <thread>

#include "halftape/core/machine/os.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"

#if defined(__unix__)
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#endif

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::Warnings;
using testing::write_bytes;

namespace {

struct LinearRun {
  LinearRun() { state.add("model", model); }
  nn::Linear model{2, 2};
  TrainState state;
};

void damage(const std::filesystem::path& path) {
  std::string bytes = read_bytes(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(path, bytes);
}

std::vector<int64_t> steps(const Checkpoints& checkpoints) {
  std::vector<int64_t> all;
  for (const auto& path : checkpoints.files())
    all.push_back(std::stoll(path.filename().string().substr(5)));
  return all;
}

}  // namespace

TEST_CASE("the last few checkpoints are kept, and other files in the folder are left alone") {
  TempFolder folder;
  const Checkpoints checkpoints(folder / "a/b", 3);
  CHECK(checkpoints.files().empty());
  LinearRun run;
  for (const int64_t step : {1, 5, 9, 100, 20}) {
    run.state.step = step;
    checkpoints.save(run.state);
    write_bytes(folder / "a/b/step-12.safetensors", "mine");
    write_bytes(folder / "a/b/notes", "mine");
  }
  // 20 came from a run that went back: 100 is not counted.
  CHECK(steps(checkpoints) == std::vector<int64_t>{5, 9, 20, 100});
  run.state.step = 101;
  checkpoints.save(run.state);
  CHECK(steps(checkpoints) == std::vector<int64_t>{20, 100, 101});
  CHECK(read_bytes(folder / "a/b/notes") == "mine");
  run.state.step = -1;
  CHECK(has(message([&] { checkpoints.save(run.state); }), "the step is -1, expected 0 or more"));
  CHECK(steps(checkpoints) == std::vector<int64_t>{20, 100, 101});
  CHECK(
      has(message([&] { Checkpoints none(folder.path(), 0); }), "keep is 0, expected at least 1"));
}

TEST_CASE(
    "the newest sound checkpoint is loaded, and a warning says what was wrong with newer ones") {
  TempFolder folder;
  const Checkpoints checkpoints(folder.path(), 5);
  LinearRun run;
  CHECK(!checkpoints.load_latest(run.state));
  CHECK(!Checkpoints(folder / "none").load_latest(run.state));
  std::vector<std::filesystem::path> paths;
  std::vector<Tensor> weights;
  for (int64_t step = 1; step <= 4; ++step) {
    run.state.step = step;
    run.model->weight.detach().fill_(step);
    paths.push_back(checkpoints.save(run.state));
  }
  {
    const Warnings warnings;
    CHECK(checkpoints.load_latest(run.state) == paths[3]);
    CHECK(warnings.seen.empty());
  }
  damage(paths[3]);
  std::filesystem::resize_file(paths[2], 20);
  {
    const Warnings warnings;
    LinearRun resumed;
    CHECK(checkpoints.load_latest(resumed.state) == paths[1]);
    CHECK(resumed.state.step == 2);
    CHECK(resumed.model->weight.eq(2).all().item<bool>());
    REQUIRE(warnings.seen.size() == 1);
    CHECK(has(warnings.seen[0],
              "resumed from " + paths[1].string() + ", as newer files are damaged"));
    CHECK(has(warnings.seen[0], paths[3].string() + ": expected the check sum"));
    CHECK(has(warnings.seen[0], paths[2].string() + ": expected a header of at most 12 bytes"));
  }
  damage(paths[0]);
  damage(paths[1]);
  const std::string said = message<FileError>([&] { (void)checkpoints.load_latest(run.state); });
  CHECK(has(said, "expected one sound checkpoint, found none"));
  for (const auto& path : paths) CHECK(has(said, path.string()));
}

TEST_CASE("a sound checkpoint of another run is an error, not a reason to take an older one") {
  TempFolder folder;
  const Checkpoints checkpoints(folder.path());
  LinearRun run;
  run.state.step = 1;
  checkpoints.save(run.state);
  run.state.step = 2;
  checkpoints.save(run.state);
  nn::Linear other(3, 2);
  TrainState state;
  state.add("model", other);
  const std::string said = message([&] { (void)checkpoints.load_latest(state); });
  CHECK(has(said, "expected float32 [2, 3], found float32 [2, 2]"));
  CHECK(!has(said, "expected one sound checkpoint"));
}

TEST_CASE("a folder in which another run saves is refused to a second one, which may read") {
  TempFolder folder;
  LinearRun run;
  {
    const Checkpoints first(folder / "run", 3), copy = first;
    const auto path = first.save(run.state);
    const Checkpoints second(folder / "run");
    CHECK(second.load_latest(run.state) == path);
    CHECK(has(message<FileError>([&] { second.save(run.state); }),
              "another run has it open for its checkpoints; give each run a folder of its own"));
    CHECK(first.save(run.state) == path);
  }
  CHECK(!Checkpoints(folder / "run").save(run.state).empty());
}

TEST_CASE("a run whose folder was moved away or removed makes and locks it anew") {
  TempFolder folder;
  LinearRun run;
  const Checkpoints first(folder / "run", 1);
  first.save(run.state);
  if (os::kReplacesOpenFiles) {  // elsewhere a locked folder is not moved
    std::filesystem::rename(folder / "run", folder / "old");
    const Checkpoints second(folder / "run", 1);
    run.state.step = 5;
    second.save(run.state);
    run.state.step = 6;
    CHECK(has(message<FileError>([&] { first.save(run.state); }), "another run has it open"));
    CHECK(steps(second) == std::vector<int64_t>{5});
    CHECK(has(message<FileError>([&] { Checkpoints(folder / "old").save(run.state); }),
              "another run has it open"));  // until it has another one
    std::filesystem::remove_all(folder / "run");
    run.state.step = 7;
    first.save(run.state);
    CHECK(steps(first) == std::vector<int64_t>{7});
  }
  CHECK(has(message<FileError>([&] { Checkpoints(folder / "run").save(run.state); }),
            "another run has it open"));
}

TEST_CASE("a copy that was made before the first save may save, too") {
  TempFolder folder;
  LinearRun run;
  const Checkpoints first(folder / "run"), copy = first;
  first.save(run.state);
  run.state.step = 1;
  copy.save(run.state);
  CHECK(steps(first) == std::vector<int64_t>{0, 1});
}

TEST_CASE("a run keeps its folder, its log and its trace when the program goes elsewhere") {
  TempFolder folder;
  const auto before = std::filesystem::current_path();
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(folder / name);
  std::filesystem::current_path(folder / "a");
  LinearRun run;
  const Checkpoints checkpoints("run");
  checkpoints.save(run.state);
  RunLog log("log.csv");
  log.write({{"step", 0}});
  tensorboard::SummaryWriter events("events");
  {
    Trace trace("trace.json");
    std::filesystem::current_path(folder / "b");
  }
  run.state.step = 1;
  checkpoints.save(run.state);
  log.write({{"step", 1}});
  log.drop_from("step", 1);
  CHECK(std::filesystem::exists(events.path()));
  std::filesystem::create_directory("gone");
  std::filesystem::current_path("gone");
  std::filesystem::remove(folder / "b/gone");
  for (const char* path : {"", "run"}) {
    CHECK_THROWS_AS(Checkpoints{path}, FileError);
    CHECK_THROWS_AS(RunLog{path}, FileError);
    CHECK_THROWS_AS((void)Trace{path}, FileError);
  }
  CHECK_THROWS_AS(tensorboard::SummaryWriter("run"), FileError);
  std::filesystem::current_path(before);
  CHECK(std::filesystem::is_empty(folder / "b"));
  CHECK(steps(Checkpoints(folder / "a/run")) == std::vector<int64_t>{0, 1});
  CHECK(read_bytes(folder / "a/log.csv") == "step\n0\n");
  CHECK(std::filesystem::exists(folder / "a/trace.json"));
}

#if defined(__unix__)
TEST_CASE("a file that this user may not read is an error, not a reason to take an older one") {
  TempFolder folder;
  LinearRun run;
  const Checkpoints checkpoints(folder.path());
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  checkpoints.save(run.state);
  run.state.step = 1;
  const auto path = checkpoints.save(run.state);
  REQUIRE(chmod(checkpoints.files()[0].c_str(), 0444) == 0);
  REQUIRE(chmod(path.c_str(), 0) == 0);
  const bool root = geteuid() == 0;  // who may read all
  if (root) REQUIRE(seteuid(65534) == 0);
  const std::string said = message<FileError>([&] { (void)checkpoints.load_latest(run.state); });
  if (root) REQUIRE(seteuid(0) == 0);
  CHECK(has(said, "found one that does not open; check its permissions"));
  CHECK(run.state.step == 1);
}

TEST_CASE("the kernel gives the folder back when a run is killed") {
  TempFolder folder;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int error = 0;
    const os::PathLock lock = os::lock_path(folder.path(), error);
    (void)!write(ready[1], lock ? "y" : "n", 1);
    for (;;) pause();
  }
  char locked = 0;
  REQUIRE(read(ready[0], &locked, 1) == 1);
  CHECK(locked == 'y');
  LinearRun run;
  const Checkpoints checkpoints(folder.path());
  CHECK(has(message<FileError>([&] { checkpoints.save(run.state); }), "another run"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(message([&] { checkpoints.save(run.state); }).empty());
  close(ready[0]);
  close(ready[1]);
}
#endif

TEST_CASE("two threads may save in one folder by one object") {
  TempFolder folder;
  const Checkpoints checkpoints(folder / "run", 100);
  const auto save = [&](int64_t from) {
    LinearRun run;
    for (int64_t i = 0; i < 10; ++i) {
      run.state.step = from + 2 * i;
      checkpoints.save(run.state);
    }
  };
  const Warnings warnings;
  std::thread other([&] { save(1); });
  save(2);
  other.join();
  CHECK(warnings.seen.empty());
  CHECK(steps(checkpoints).size() == 20);
  LinearRun run;
  CHECK(checkpoints.load_latest(run.state));
  CHECK(run.state.step == 20);
}
