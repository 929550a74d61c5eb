// A power failure at every point of a save, on a disk that keeps what it likes of all that was not
// flushed: what was saved loads, whole, and the run goes on.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "halftape/tests/faults/history.h"
#include "halftape/tests/faults/run.h"
#include "halftape/tests/faults/writers.h"
#include "halftape/tests/support/event_file.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using namespace halftape::testing;
namespace fs = std::filesystem;

namespace {

/// How many torn states of one point are looked at: HALFTAPE_CRASH_STATES.
constexpr int kDefaultStates = 160;
int most_states() {
  const char* wanted = std::getenv("HALFTAPE_CRASH_STATES");
  return wanted ? std::atoi(wanted) : kDefaultStates;
}

/// Makes a folder hold what a disk does, writing only what differs from what it was given before.
class Copy {
 public:
  explicit Copy(fs::path root) : root_(std::move(root)) {}
  void become(const Disk& disk, const fs::path& there) {
    fs::remove_all(root_);
    for (const auto& [path, bytes] : disk) {
      const fs::path here = root_ / fs::relative(path, there);
      if (bytes)
        write_bytes(here, *bytes);
      else
        fs::create_directories(here);
    }
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("after a power failure the last checkpoint or the one under way is found") {
  struct Case {
    const char* name;
    int64_t keep, saves;
    bool one_file;
  };
  int64_t all = 0;
  for (const Case& c :
       {Case{"a first save in a new folder", 3, 1, false},
        Case{"the last two of five", 2, 5, false}, Case{"one file, overwritten", 1, 4, true}}) {
    const std::string name = c.name;
    CAPTURE(name);
    const TempFolder folder, copies;
    const fs::path inside = "new/run";
    const fs::path root = c.one_file ? folder / inside : folder.path();
    std::vector<Change> changes;
    std::vector<std::string> saved_as(1);
    {
      Run run(0);
      if (c.one_file) fs::create_directories(root);
      Recording recording(root);
      const Checkpoints checkpoints(folder / inside, c.keep);
      for (int64_t i = 1; i <= c.saves; ++i) {
        run.step(1);
        saved_as.push_back(run.bytes());
        if (c.one_file) {
          run.state.save(folder / inside / "state");
        } else {
          checkpoints.save(run.state);
        }
        recording.mark(i);
      }
      changes = recording.changes();
    }
    Copy copy(copies / "disk");
    const Warnings warnings;
    Run resumed(0);
    const int64_t states =
        after_power_failures(root, changes, most_states(), [&](const Disk& disk, int64_t saved) {
          CAPTURE(saved);
          copy.become(disk, root);
          const fs::path there = c.one_file ? copy.root() : copy.root() / inside;
          const Checkpoints checkpoints(there, c.keep);
          resumed.state.step = 0;
          if (!c.one_file) {
            (void)checkpoints.load_latest(resumed.state);
          } else if (saved > 0 || fs::exists(there / "state")) {
            resumed.state.load(there / "state");
          }
          const int64_t step = resumed.state.step;
          CHECK((step == saved || step == saved + 1));
          if (step > 0) CHECK(resumed.bytes() == saved_as.at(static_cast<size_t>(step)));
          CHECK(warnings.seen.empty());
          resumed.state.step = 100;
          checkpoints.save(resumed.state);  // over what was begun
        });
    MESSAGE(name, ": ", states, " states at ", changes.size(), " points");
    all += states;
  }
  if (most_states() >= kDefaultStates) CHECK(all > 10'000);
}

TEST_CASE("after a power failure a file of any format is the former or the new one, whole") {
  int64_t all = 0;
  for (const Writer& writer : kWriters) {
    CAPTURE(writer.name);
    const TempFolder folder;
    const fs::path path = folder / writer.name;
    std::vector<std::string> saved_as;
    std::vector<Change> changes;
    {
      Recording recording(folder.path());
      for (const int version : {0, 1}) {
        writer.save(path, version);
        recording.mark(version + 1);
        saved_as.push_back(read_bytes(path));
      }
      changes = recording.changes();
    }
    const int64_t states = after_power_failures(
        folder.path(), changes, most_states(), [&](const Disk& disk, int64_t saved) {
          CAPTURE(saved);
          const auto found = disk.find(path.string());
          const std::string bytes = found == disk.end() ? "" : found->second.value();
          CHECK((bytes == saved_as[1] || (saved < 2 && bytes == saved_as[0]) ||
                 (saved == 0 && found == disk.end())));
        });
    MESSAGE(writer.name, ": ", states, " states at ", changes.size(), " points");
    all += states;
  }
  CHECK(all > 500);
}

TEST_CASE("after a power failure a run log has whole rows, and goes on") {
  const TempFolder folder, copies;
  std::vector<std::string> rows;
  std::vector<Change> changes;
  {
    Recording recording(folder.path());
    RunLog log(folder / "run/log.csv");
    const std::string text(300, 'x');  // rows lie across the blocks
    const auto write = [&](int from, int to) {
      for (int i = from; i < to; ++i) {
        log.write({{"step", i}, {"note", text}});
        if (rows.size() == static_cast<size_t>(i))
          rows.push_back(std::to_string(i) + ',' + text + '\n');
      }
    };
    write(0, 40);
    log.drop_from("step", 20);
    recording.mark(20);  // these rows were flushed with the whole file
    write(20, 60);
    changes = recording.changes();
  }
  const std::string header = "step,note\n";
  Copy copy(copies / "disk");
  const Warnings warnings;
  const int64_t states = after_power_failures(
      folder.path(), changes, most_states(), [&](const Disk& disk, int64_t flushed) {
        CAPTURE(flushed);
        copy.become(disk, folder.path());
        const fs::path path = copy.root() / "run/log.csv";
        const std::string found = fs::exists(path) ? read_bytes(path) : "";
        {
          RunLog log(path);
          log.write({{"step", 99}, {"note", "on"}});
        }
        const std::string text = read_bytes(path);
        const auto whole_rows = [&](const std::string& in) {
          size_t at = header.size(), n = 0;
          for (; n < rows.size() && at < in.size(); at += rows[n++].size())
            if (in.compare(at, rows[n].size(), rows[n]) != 0) break;
          return n;
        };
        const size_t kept = whole_rows(found);
        CHECK(kept >= static_cast<size_t>(flushed));
        std::string expected = header;
        for (size_t i = 0; i < kept; ++i) expected += rows[i];
        CHECK(text == expected + "99,on\n");
      });
  MESSAGE(states, " states at ", changes.size(), " points");
  if (most_states() >= kDefaultStates) CHECK(states > 3'000);
}

TEST_CASE("after a power failure an event file shows nothing that was not added") {
  const TempFolder folder, copies;
  std::vector<Change> changes;
  std::string whole;
  {
    const Recording recording(folder.path());
    tensorboard::SummaryWriter writer(folder / "run");
    for (int step = 0; step < 40; ++step)  // records lie across the blocks
      writer.add_text("note", std::string(300, 'x') + std::to_string(step), step);
    whole = read_bytes(writer.path());
    changes = recording.changes();
  }
  const std::vector<std::string> added = read_events(whole).events;
  REQUIRE(added.size() == 41);
  Copy copy(copies / "disk");
  bool some_are_lost = false;
  const int64_t states =
      after_power_failures(folder.path(), changes, most_states(), [&](const Disk& disk, int64_t) {
        copy.become(disk, folder.path());
        for (const auto& [path, bytes] : disk) {
          if (!bytes) continue;
          const EventFile found = read_events(*bytes);
          REQUIRE(found.events.size() <= added.size());
          CHECK(std::equal(found.events.begin(), found.events.end(), added.begin()));
          some_are_lost |= !found.whole;
        }
        // The next run has a file of its own.
        const fs::path next = [&] {
          tensorboard::SummaryWriter writer(copy.root() / "run");
          writer.add_scalar("loss", 1, 41);
          return writer.path();
        }();
        const EventFile file = read_events(read_bytes(next));
        CHECK((file.whole && file.events.size() == 2));
        for (const auto& [path, bytes] : disk)
          if (bytes) CHECK(read_bytes(copy.root() / fs::relative(path, folder.path())) == *bytes);
      });
  CHECK(some_are_lost);
  MESSAGE(states, " states at ", changes.size(), " points");
  if (most_states() >= kDefaultStates) CHECK(states > 1'000);
}
