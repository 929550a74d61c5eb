// Run logs and event files, whose every call fails once: each row is there whole or not at all, and
// what was written without an error is there.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "halftape/tests/faults/places.h"
#include "halftape/tests/support/event_file.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

constexpr int kRows = 4;

/// The n-th writing, and whether it went through. One that fails does not end the run.
template <class F>
void write_all(std::vector<bool>& written, Said& first, F write) {
  for (int i = 0; i < kRows; ++i) try {
      write(i);
      written.push_back(true);
    } catch (const Error& error) {
      written.push_back(false);
      if (!first) first = error.what();
    } catch (const std::bad_alloc& error) {
      written.push_back(false);
      if (!first) first = error.what();
    }
}

/// True if `found` are the pieces in their order, and lack none that was written.
bool in_order(const std::vector<std::string>& found, const std::vector<std::string>& pieces,
              const std::vector<bool>& written) {
  size_t at = 0;
  for (size_t i = 0; i < written.size(); ++i)
    if (at < found.size() && found[at] == pieces[i])
      ++at;
    else if (written[i])
      return false;
  return at == found.size();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
    lines.push_back(text.substr(at, end + 1 - at));
  return lines;
}

}  // namespace

TEST_CASE("a run log that fails anywhere has whole rows, and goes on when it can") {
  std::optional<TempFolder> folder;
  const std::vector<std::string> rows{"2,0\n", "3,0\n", "4,0\n", "5,0\n"};
  // New; continued; with a row that a kill left open, in a number or in a text.
  for (const std::string before :
       {"", "step,x\n1,0\n", "step,x\n1,0\n2,12", "step,x\n1,0\n\"\n2"}) {
    CAPTURE(before);
    const bool is_new = before.empty();
    const std::string kept = is_new ? "step,x\n" : "step,x\n1,0\n",
                      rest = is_new ? "" : before.substr(kept.size());
    std::vector<bool> written;
    const Warnings warnings;
    const Places places = at_every_place(
        [&] {
          folder.emplace();
          written.clear();
          if (!is_new) write_bytes(*folder / "run.csv", before);
        },
        [&] {
          RunLog log(*folder / "run.csv");
          Said first;
          write_all(written, first, [&](int i) { log.write({{"step", i + 2}, {"x", 0}}); });
          if (first) throw Error(*first);
        },
        [&](const Kind& kind, const Said&) {
          if (!std::filesystem::exists(*folder / "run.csv")) {
            CHECK(written.empty());
            return;
          }
          const std::string text = read_bytes(*folder / "run.csv");
          const bool dropped = std::filesystem::exists(*folder / "run.csv.dropped");
          if (written.empty() && text == before) {  // it did not open
            CHECK((!dropped || !rest.empty()));
            return;
          }
          if (dropped)
            CHECK(read_bytes(*folder / "run.csv.dropped") == rest);
          else
            CHECK(rest.empty());
          const bool headed = text.starts_with(kept);
          CHECK((headed || (is_new && text.empty())));
          // A disk that is gone cannot take half a row back; who opens the log next drops it.
          if (!kind.persists) CHECK((text.empty() || text.back() == '\n'));
          if (headed) CHECK(in_order(lines_of(text.substr(kept.size())), rows, written));
          RunLog again(*folder / "run.csv");
          again.write({{"step", 9}, {"x", 0}});
          CHECK(read_bytes(*folder / "run.csv").ends_with("\n9,0\n"));
        });
    std::vector<std::string> made{"fopen", "open", "flock"};
    if (!is_new) made.emplace_back("read");
    if (!rest.empty()) made.insert(made.end(), {"fwrite", "fclose"});
    check_tried(places, 5, kRows, made);
    MESSAGE(places.number(), " places");
  }
}

TEST_CASE("rows are dropped all at once, or not") {
  const TempFolder folder;
  const auto path = folder / "run.csv";
  const std::string before = "step\n1\n2\n3\n", after = "step\n1\n";
  std::optional<RunLog> log;
  const Warnings warnings;
  const Places places = at_every_place(
      [&] {
        log.reset();
        write_bytes(path, before);
        log.emplace(path);
      },
      [&] { log->drop_from("step", 2); },
      [&](const Kind& kind, const Said& said) {
        const std::string now = read_bytes(path);
        CHECK((now == after || (said && now == before)));
        if (!kind.persists) CHECK(!std::filesystem::exists(path.string() + ".partial"));
        // The log goes on in the file that is there now, or says that it cannot.
        bool wrote = true;
        try {
          log->write({{"step", 9}});
        } catch (const FileError&) {
          wrote = false;
        }
        CHECK(read_bytes(path) == now + (wrote ? "9\n" : ""));
      });
  check_tried(places, 5, 1, {"fopen", "read", "open", "pwrite", "fsync", "rename", "flock"});
  MESSAGE(places.number(), " places");
}

TEST_CASE("an event file that fails anywhere has whole events") {
  std::optional<TempFolder> folder;
  std::vector<std::string> events;
  std::vector<bool> written;
  const Warnings warnings;
  const auto write = [&] {
    tensorboard::SummaryWriter writer(*folder / "log");
    Said first;
    write_all(written, first, [&](int i) { writer.add_scalar("loss", i, i, 1.5); });
    if (first) throw Error(*first);
  };
  const auto only_file = [&] {
    return read_bytes(std::filesystem::directory_iterator(*folder / "log")->path());
  };
  folder.emplace();
  write();
  events = read_events(only_file()).events;
  events.erase(events.begin());  // the header has the time
  REQUIRE(events.size() == kRows);
  const Places places = at_every_place(
      [&] {
        folder.emplace();
        written.clear();
      },
      write,
      [&](const Kind& kind, const Said&) {
        if (written.empty()) return;  // nothing was opened
        EventFile found = read_events(only_file());
        if (!found.whole && kind.persists) return;  // half an event cannot be taken back
        REQUIRE(found.whole);
        REQUIRE(!found.events.empty());
        found.events.erase(found.events.begin());
        CHECK(in_order(found.events, events, written));
      });
  check_tried(places, 5, kRows + 1, {"mkdir", "fopen"});
  MESSAGE(places.number(), " places");
}
