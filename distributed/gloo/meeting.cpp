#include "halftape/distributed/gloo/meeting.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <string>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/machine/os.h"
#include "halftape/core/machine/sockets.h"
#include "halftape/core/start_thread.h"
#include "halftape/distributed/gloo/wire.h"

namespace halftape::distributed {
namespace {

using Clock = std::chrono::steady_clock;

/// Our table of keys and values, as Gloo asks for one. Gives up at one time for all of the keys,
/// and leaves the table's own timeout as it was.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(distributed::Store& store, Clock::time_point until)
      : store_(store), until_(until), timeout_(store.timeout()) {}
  ~GlooStore() override {
    try {
      store_.set_timeout(timeout_);
    } catch (const std::exception&) {  // NOLINT: a table that is out of reach fails at its next use
    }
  }
  GlooStore(const GlooStore&) = delete;
  GlooStore& operator=(const GlooStore&) = delete;

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    limit();
    const std::string value = store_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    limit();
    store_.wait(keys);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  void limit() {
    const auto left = std::chrono::duration_cast<milliseconds>(until_ - Clock::now());
    store_.set_timeout(std::max(left, milliseconds(1)));
  }

  distributed::Store& store_;
  const Clock::time_point until_;
  const milliseconds timeout_;
};

/// Where the other ranks reach this one.
std::shared_ptr<gloo::transport::Device> device_of(const std::string& host) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = host.empty() ? os::host_name() : host;
  if (!os::is_own_address(attributes.hostname)) {  // Gloo would refuse it, and lose memory
    HALFTAPE_CHECK(host.empty(), "\"", host, "\" is no address of this machine");
    // A machine whose name leads nowhere is one that nobody else reaches.
    attributes.hostname = "127.0.0.1";
  }
  return detail::starting_thread("Gloo's thread",
                                 [&] { return gloo::transport::tcp::CreateDevice(attributes); });
}

}  // namespace

std::shared_ptr<gloo::Context> meet(const EngineSetup& setup) {
  HALFTAPE_CHECK(setup.size >= 1 && setup.rank >= 0 && setup.rank < setup.size, "rank ", setup.rank,
                 " of ", setup.size, ": ranks are counted from 0");
  HALFTAPE_CHECK(setup.store || setup.size == 1, "there is no store to meet in");
  auto context = std::make_shared<gloo::rendezvous::Context>(setup.rank, setup.size);
  if (setup.size == 1) return context;
  auto device = device_of(setup.host);
  // Gloo waits five times as long for a connection.
  context->setTimeout(std::max(setup.timeout / 5, milliseconds(1)));
  GlooStore store(*setup.store, Clock::now() + setup.timeout);
  context->connectFullMesh(store, device);
  return context;
}

}  // namespace halftape::distributed
