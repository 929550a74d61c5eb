#include <start.h>

#include <doctest/doctest.h>
#include <support/course.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

/// A host and a device that run beside each other, and the trace of both.
class Machine {
 public:
  /// The device does it as soon as it can.
  void launch(const std::string& name, int64_t takes) {
    host(name, 5);
    const int64_t begin = std::max(free_, now_);
    free_ = begin + takes;
    trace_.push_back({name, true, begin, free_});
  }
  /// The host does it by itself.
  void work(const std::string& name, int64_t takes) {
    // Not to end in the very microsecond in which the device goes from one work to the next.
    while (std::any_of(trace_.begin(), trace_.end(),
                       [&](const Event& e) { return e.on_device && e.end == now_ + takes; }))
      ++takes;
    host(name, takes);
  }
  /// The host asks for a number. Waits only if the device is not done.
  void ask(const std::string& name) {
    if (free_ - now_ + 3 >= 20) waits_.push_back(name);
    host(name, std::max<int64_t>(free_ - now_, 0) + 3);
  }
  int64_t left() const { return free_ - now_; }

  void expect_found() const {
    const std::vector<std::string> got = waits(trace_);
    const bool same = got == waits_;
    REQUIRE_MESSAGE(same,
                    course::text("you name ", list(got), "; the host waited in ", list(waits_)));
  }

 private:
  void host(const std::string& name, int64_t takes) {
    trace_.push_back({name, false, now_, now_ + takes});
    now_ += takes + 1;
  }
  static std::string list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "no call" : text;
  }

  std::vector<Event> trace_;
  std::vector<std::string> waits_;
  int64_t now_ = 0, free_ = 0;
};

void usual_step(Machine& machine) {
  machine.work("next batch", 40);
  machine.launch("forward", 300);
  machine.launch("backward", 600);
  machine.ask("loss.item()");
  machine.launch("unscale_", 60);
  machine.ask("result.applied()");
  machine.launch("update", 80);
}

}  // namespace

TEST_CASE("the two waits of a usual training step are named") {
  Machine machine;
  usual_step(machine);
  machine.expect_found();
}

TEST_CASE("and so they are in three steps, in order") {
  Machine machine;
  for (int step = 0; step < 3; ++step) usual_step(machine);
  machine.expect_found();
}

TEST_CASE("a host that does something long of its own does not wait") {
  Machine busy;
  busy.launch("forward", 1000);
  busy.work("read a file", 400);  // the device goes on meanwhile
  busy.ask("loss.item()");
  busy.expect_found();
  Machine slow;
  slow.launch("forward", 100);
  slow.ask("loss.item()");
  slow.launch("forward", 100);
  slow.work("read a file", 400);  // the device is done long before
  slow.expect_found();
}

TEST_CASE("a question about work that is done does not wait") {
  Machine machine;
  machine.launch("forward", 200);
  machine.ask("loss.item()");
  machine.ask("scaler.get_scale()");
  machine.work("print", 90);
  machine.expect_found();
}

TEST_CASE("a thousand random traces are read rightly") {
  course::Random random(12);
  for (int i = 0; i < 1000; ++i) {
    Machine machine;
    for (int call = 0; call < 30; ++call) {
      const std::string name = "call " + std::to_string(call);
      const auto takes = static_cast<int64_t>(random.below(300));
      const int64_t left = machine.left();
      switch (random.below(3)) {
        case 0:
          machine.launch(name, takes);
          break;
        case 1:  // never just as long as a wait would be
          machine.work(name, takes >= left - 15 && takes <= left + 15 ? left + 30 + takes : takes);
          break;
        default:
          machine.ask(name);
      }
    }
    machine.expect_found();
  }
}
