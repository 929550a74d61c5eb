// A trace names the ops, rules and steps of a training step, with their times, in nesting order.
#include "halftape/io/run/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <locale>
#include <thread>

#include <halftape/halftape.h>

#include "halftape/autograd/tape/op_timer.h"
#include "halftape/autograd/tape/value_watcher.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

struct Event {
  std::string name, category;
  double began, took;
  int thread;
};
std::vector<Event> traced_events(const std::filesystem::path& path) {
  const std::string text = testing::read_bytes(path);
  std::vector<Event> all;
  for (size_t at = text.find("{\"name\""); at != text.npos; at = text.find("{\"name\"", at + 1)) {
    char name[100], category[100];
    Event e{};
    REQUIRE(
        std::sscanf(
            &text[at],
            R"({"name":"%99[^"]","cat":"%99[^"]","ph":"X","ts":%lf,"dur":%lf,"pid":1,"tid":%d})",
            name, category, &e.began, &e.took, &e.thread) == 5);
    e.name = name;
    e.category = category;
    all.push_back(e);
  }
  return all;
}

}  // namespace

TEST_CASE(
    "a trace holds ops, backward rules, optimizer steps and the user's spans, and then stops") {
  TempFolder folder;
  nn::Sequential model(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 2));
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  const auto step = [&] {
    const Trace::Span span("my \\ step");
    optimizer.zero_grad();
    mse_loss(model->forward(ones({3, 4})), zeros({3, 2})).backward();
    optimizer.step();
  };
  step();
  const int watchers = detail::tape_watchers;  // an earlier case may have lost one
  {
    const Trace trace(folder / "trace.json");
    CHECK(has(message([&] { Trace second(folder / "other.json"); }), "another trace is recording"));
    step();
    std::thread([&] { (void)ones({2}).tanh(); }).join();
  }
  step();
  CHECK(OpWatcher::current() == nullptr);
  const std::string text = testing::read_bytes(folder / "trace.json");
  CHECK(text.starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
  CHECK(text.ends_with("\n]}\n"));
  CHECK(has(text, "\"args\":{\"output\":\"float32 [3, 8]\",\"bytes\":96,\"CPU memory\":"));
  CHECK(has(text, "{\"ph\":\"C\",\"name\":\"CPU memory\",\"pid\":1,\"ts\":"));
  CHECK(detail::tape_watchers == watchers);
  const std::vector<Event> all = traced_events(folder / "trace.json");
  const auto count = [&](const std::string& name, const std::string& category) {
    return std::count_if(all.begin(), all.end(),
                         [&](const Event& e) { return e.name == name && e.category == category; });
  };
  CHECK(count("tanh", "op") >= 2);
  CHECK(count("tanh", "backward") == 1);
  CHECK(count("Optimizer::step", "step") == 1);
  CHECK(count("my \\\\ step", "user") == 1);
  const auto user =
      std::find_if(all.begin(), all.end(), [](const Event& e) { return e.category == "user"; });
  REQUIRE(user != all.end());
  int others = 0;
  for (const Event& e : all) {
    CHECK(e.began >= 0);
    CHECK(e.took >= 0);
    others += e.thread != user->thread;
    if (e.thread == user->thread) {
      CHECK(e.began >= user->began);
      CHECK(e.began + e.took <= user->began + user->took + 0.01);
    }
  }
  CHECK(others == 1);
}

TEST_CASE("an op that outlives its trace is in none") {
  TempFolder folder;
  Trace first(folder / "1.json");
  OpWatcher* const watcher = OpWatcher::current();
  const int64_t began = watcher->began();
  first.stop();
  watcher->ended("late", OpWatcher::Phase::Op, began);
  {
    const Trace second(folder / "2.json");
    watcher->ended("later", OpWatcher::Phase::Op, began);
    watcher->ended("good", OpWatcher::Phase::Op, watcher->began());
  }
  CHECK(traced_events(folder / "1.json").empty());
  REQUIRE(traced_events(folder / "2.json").size() == 1);
  CHECK(traced_events(folder / "2.json")[0].name == "good");
}

TEST_CASE("numbers have no groups of digits, whatever the program's locale") {
  struct Groups : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  TempFolder folder;
  const std::locale before = std::locale::global(std::locale(std::locale(), new Groups));
  {
    const Trace trace(folder / "trace.json");
    (void)(ones({5000}, requires_grad()) + 1);
  }
  const std::string said = message([] { (void)(ones({5000}) + ones({4000})); });
  std::locale::global(before);
  const std::string text = testing::read_bytes(folder / "trace.json");
  CHECK(has(text, "\"bytes\":20000,"));
  CHECK(has(text, "[5000]"));
  CHECK(has(said, "[5000]"));
}

TEST_CASE("a trace that cannot be written throws from stop() and warns from its destructor") {
  std::string warned;
  const auto before = set_warning_handler([&](const std::string& m) { warned += m; });
  const auto nowhere = std::filesystem::path("/nowhere/at/all.json").make_preferred();
  CHECK(has(message<FileError>([&] {
              Trace trace(nowhere);
              trace.stop();
            }),
            nowhere.string()));
  CHECK(warned.empty());
  { const Trace trace(nowhere); }
  CHECK(has(warned, nowhere.string()));
  set_warning_handler(before);
}
