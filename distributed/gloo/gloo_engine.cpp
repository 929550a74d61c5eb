// The engine of the CPU: Gloo's connections, and a ring with Halftape's arithmetic.
#include <atomic>
#include <string>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/machine/os.h"
#include "halftape/distributed/engine/engine.h"
#include "halftape/distributed/engine/mix.h"
#include "halftape/distributed/gloo/meeting.h"
#include "halftape/distributed/gloo/reduce.h"
#include "halftape/distributed/gloo/ring.h"
#include "halftape/distributed/gloo/wire.h"

namespace halftape::distributed {
namespace {

class GlooEngine final : public Engine {
 public:
  explicit GlooEngine(std::shared_ptr<gloo::Context> context) : wire_(std::move(context)) {}

  const char* name() const override { return "gloo"; }
  bool reaches(DeviceType device) const override { return device == DeviceType::CPU; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, uint64_t tag,
                milliseconds timeout) override {
    check_peers(sends);
    check_peers(receives);
    guarded([&] {
      const Deadline deadline(timeout);
      std::vector<Wire::Transfer> transfers;
      const auto tag_of = [&](const Message& m) {
        return mix(tag, static_cast<uint64_t>(m.dtype));
      };
      for (const Message& m : receives)
        transfers.push_back(wire_.receive(m.peer, m.bytes, m.size, tag_of(m)));
      for (const Message& m : sends)
        transfers.push_back(wire_.send(m.peer, m.bytes, m.size, tag_of(m)));
      for (Wire::Transfer& t : transfers) wire_.finish(t, deadline);
    });
  }

  bool all_reduce(void* elements, int64_t count, Dtype dtype, ReduceOp op, uint64_t tag,
                  milliseconds timeout) override {
    Reduction* const reduce = reduction(dtype, op);
    if (!reduce) return false;
    const size_t element_size =
        visit(dtype, [](auto t) { return sizeof(typename decltype(t)::type); });
    const auto n = static_cast<size_t>(count);
    // What only some ranks call, or with another count, waits for others instead of mixing them.
    const uint64_t kind = static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(op);
    guarded([&] {
      ring(wire_, elements, n, element_size, reduce, mix(mix(tag, n), kind), Deadline(timeout));
    });
    return true;
  }

  void abort() noexcept override {
    const os::NoPipeSignal no_pipe_signal;
    aborted_ = true;
    wire_.close();
  }

 private:
  void check_peers(std::span<const Message> messages) const {
    for (const Message& m : messages)
      HALFTAPE_CHECK(m.peer >= 0 && m.peer < wire_.size() && m.peer != wire_.rank(),
                     "exchange: there is no peer ", m.peer, " of rank ", wire_.rank(), " of ",
                     wire_.size());
  }

  /// Runs f(); after an error of its, and after abort(), nothing is run any more.
  template <class F>
  void guarded(const F& f) {
    const os::NoPipeSignal no_pipe_signal;
    if (!aborted_ && failure_.empty()) {
      try {
        f();
        if (!aborted_) return;
      } catch (const std::exception& e) {
        failure_ = sentence(e);
        wire_.close();  // so that the peers do not wait for this one
      }
    }
    detail::fail("gloo, rank ", wire_.rank(), " of ", wire_.size(), ": ",
                 aborted_ ? "the group was aborted" : failure_);
  }

  Wire wire_;
  std::atomic<bool> aborted_{false};
  std::string failure_;  // of the first call that failed
};

}  // namespace
}  // namespace halftape::distributed

extern "C" __attribute__((visibility("default"))) int halftape_gloo_version() {
  return halftape::distributed::kEngineVersion;
}

extern "C" __attribute__((visibility("default"))) halftape::distributed::Engine* halftape_gloo_open(
    const halftape::distributed::EngineSetup& setup, std::string* why_not) {
  using namespace halftape::distributed;
  const halftape::os::NoPipeSignal no_pipe_signal;  // which Gloo's thread inherits
  try {
    return new GlooEngine(meet(setup));
  } catch (const std::exception& e) {
    *why_not = sentence(e);
    return nullptr;
  }
}
