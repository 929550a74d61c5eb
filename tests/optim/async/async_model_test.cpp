// The protocol of an asynchronous step as two programs of a few operations, walked through in every
// order in which two threads can run them; and the real threads' order held against it.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "halftape/tests/support/delayed.h"

using namespace halftape;
using namespace halftape::testing;
using optim::Meeting;

namespace {

// What the threads share. Two gradient buffers are enough: those of step k + 2 are those of step k.
enum Shared : unsigned { kModel = 1, kNewest = 2, kGrad0 = 4, kGrad1 = 8, kVerdicts = 16 };

/// How far both threads have come, as fences tell.
struct Counts {
  int handed = 0, taken = 0, verdicts = 0, done = 0;
};

/// One operation: it may begin once `waits` holds, reads and writes for a while, and ends by
/// changing a count.
struct Operation {
  std::string name;
  std::function<bool(const Counts&)> waits = [](const Counts&) { return true; };
  unsigned reads = 0, writes = 0;
  std::function<void(Counts&)> ends = [](Counts&) {};
  std::optional<Meeting> meeting = {};
};
using Program = std::vector<Operation>;

unsigned grad(int k) { return k % 2 == 0 ? kGrad0 : kGrad1; }

Program caller(int steps) {
  Program p;
  for (int k = 0; k < steps; ++k) {
    p.push_back({.name = "forward", .reads = kModel});
    if (k > 0)
      p.push_back({.name = "await verdict",
                   .waits = [=](const Counts& c) { return c.verdicts >= k; },
                   .reads = kVerdicts,
                   .meeting = Meeting::Await});
    p.push_back({.name = "backward", .reads = kModel, .writes = grad(k)});
    p.push_back({.name = "wait",
                 .waits = [](const Counts& c) { return c.done == c.handed; },
                 .meeting = Meeting::Wait});
    p.push_back(
        {.name = "publish", .reads = kNewest, .writes = kModel, .meeting = Meeting::Publish});
    p.push_back(
        {.name = "hand over", .ends = [](Counts& c) { ++c.handed; }, .meeting = Meeting::HandOver});
  }
  p.push_back({.name = "wait",
               .waits = [](const Counts& c) { return c.done == c.handed; },
               .meeting = Meeting::Wait});
  p.push_back({.name = "publish", .reads = kNewest, .writes = kModel, .meeting = Meeting::Publish});
  return p;
}

Program worker(int steps) {
  Program p;
  for (int k = 0; k < steps; ++k) {
    p.push_back({.name = "take",
                 .waits = [=](const Counts& c) { return c.handed > k; },
                 .ends = [](Counts& c) { ++c.taken; }});
    p.push_back({.name = "check", .writes = grad(k), .meeting = Meeting::Check});
    p.push_back({.name = "verdict",
                 .writes = kVerdicts,
                 .ends = [](Counts& c) { ++c.verdicts; },
                 .meeting = Meeting::Verdict});
    p.push_back({.name = "update",
                 .reads = grad(k),
                 .writes = kNewest,
                 .ends = [](Counts& c) { ++c.done; },
                 .meeting = Meeting::Update});
  }
  return p;
}

/// Depth first over all interleavings. Where an operation is under way is part of the state, so
/// that two of them overlap wherever nothing keeps them apart.
class Walk {
 public:
  Walk(const Program& a, const Program& b) : programs_{&a, &b} { paths = visit({}); }
  double paths = 0;  // interleavings
  std::set<std::string> faults;
  size_t states() const { return seen_.size(); }

 private:
  struct State {
    std::array<size_t, 2> at{};
    std::array<bool, 2> inside{};
    auto operator<=>(const State&) const = default;
  };

  Counts counts(const State& s) const {
    Counts c;
    for (size_t t = 0; t < 2; ++t)
      for (size_t i = 0; i < s.at[t]; ++i) (*programs_[t])[i].ends(c);
    return c;
  }

  double visit(const State& s) {
    if (const auto known = seen_.find(s); known != seen_.end()) return known->second;
    const Counts c = counts(s);
    if (c.handed - c.done > 1) faults.insert("more than one step in flight");
    double ways = 0;
    bool stuck = true, finished = true;
    for (size_t t = 0; t < 2; ++t) {
      if (s.at[t] == programs_[t]->size()) continue;
      finished = false;
      const Operation& mine = (*programs_[t])[s.at[t]];
      State after = s;
      if (s.inside[t]) {
        after.inside[t] = false;
        ++after.at[t];
      } else {
        if (!mine.waits(c)) continue;
        if (s.inside[1 - t]) {
          const Operation& other = (*programs_[1 - t])[s.at[1 - t]];
          if ((mine.writes & (other.reads | other.writes)) || (mine.reads & other.writes))
            faults.insert("race: " + std::min(mine.name, other.name) + " and " +
                          std::max(mine.name, other.name));
        }
        after.inside[t] = true;
      }
      stuck = false;
      ways += visit(after);
    }
    if (finished) ways = 1;
    if (stuck && !finished) faults.insert("deadlock");
    seen_[s] = ways;
    return ways;
  }

  std::array<const Program*, 2> programs_;
  std::map<State, double> seen_;
};

std::string joined(const std::set<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : "; ") + line;
  return all;
}

/// The faults of the programs when one thing is forgotten.
std::string without(const std::function<void(Program&, Program&)>& forget) {
  Program a = caller(4), b = worker(4);
  forget(a, b);
  return joined(Walk(a, b).faults);
}
void forget_waiting(Program& p, const std::string& name) {
  for (Operation& o : p)
    if (o.name == name) o.waits = [](const Counts&) { return true; };
}
void drop(Program& p, const std::string& name) {
  std::erase_if(p, [&](const Operation& o) { return o.name == name; });
}

}  // namespace

TEST_CASE("in all interleavings of 4 steps nothing is read while written, and nobody is stuck") {
  const Program a = caller(4), b = worker(4);
  const Walk walk(a, b);
  CHECK(joined(walk.faults) == "");
  CHECK(walk.states() > 100);  // the fences leave room to overlap
  CHECK(walk.paths > 1e6);
}

TEST_CASE("the walk finds what is wrong with a protocol from which a fence was taken") {
  CHECK(without([](Program& a, Program&) { drop(a, "wait"); }) ==
        "more than one step in flight; race: publish and update");
  CHECK(without([](Program& a, Program&) { forget_waiting(a, "await verdict"); }) ==
        "race: await verdict and verdict");
  CHECK(without([](Program&, Program& b) { forget_waiting(b, "take"); }) ==
        "deadlock; race: await verdict and verdict; race: backward and check; race: backward and "
        "update; race: publish and update");
  CHECK(without([](Program&, Program& b) {
          for (Operation& o : b)
            if (o.name == "verdict") o.ends = [](Counts&) {};
        }) == "deadlock");
  // One gradient buffer instead of two.
  CHECK(without([](Program& a, Program& b) {
          for (Program* p : {&a, &b})
            for (Operation& o : *p)
              for (unsigned* mask : {&o.reads, &o.writes})
                if (*mask & kGrad1) *mask = (*mask & ~kGrad1) | kGrad0;
        }) == "race: backward and update");
  // One set of weights instead of two.
  CHECK(without([](Program&, Program& b) {
          for (Operation& o : b)
            if (o.name == "update") o.writes = kModel;
        }) == "race: backward and update; race: forward and update");
}

namespace {

std::mutex log_mutex;
std::map<std::thread::id, std::vector<Meeting>> meetings;

std::vector<Meeting> of(const Program& p) {
  std::vector<Meeting> list;
  for (const Operation& o : p)
    if (o.meeting) list.push_back(*o.meeting);
  return list;
}

}  // namespace

TEST_CASE("the real threads meet in the order of the two programs") {
  const TensorList model = first_weights();
  optim::AsyncOptimizer optimizer(make_sgd(model));
  meetings.clear();
  optim::set_meeting_hook([](Meeting m) {
    const std::lock_guard lock(log_mutex);
    meetings[std::this_thread::get_id()].push_back(m);
  });
  const Turn turn{.scale = 4.0};
  std::optional<optim::AsyncStep> before;
  for (int k = 0; k < 4; ++k) {
    const Tensor loss = batch_loss(model, k);
    if (before) CHECK(before->applied());
    loss.backward(full({}, *turn.scale));
    before = optimizer.step(options_of(turn));
  }
  optimizer.synchronize();
  optim::set_meeting_hook(nullptr);
  REQUIRE(meetings.size() == 2);
  for (const auto& [thread, order] : meetings)
    CHECK(order == of(thread == std::this_thread::get_id() ? caller(4) : worker(4)));
}
