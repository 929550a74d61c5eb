// The process that serves the table of a TcpStore, and what is said on its connections.
#pragma once
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "halftape/distributed/store/tcp_store.h"
#include "halftape/distributed/store/wire.h"

namespace halftape::distributed {

/// The first byte of a message. A client asks one thing at a time.
enum class StoreCall : uint8_t {
  Hello = 1,  // text: kStoreProtocol; answered by the same
  Set,        // text key, text value; Done
  Get,        // text key; Done, text value, once there is one
  Add,        // text key, number64; Done, number64, or Refused
  Missing,    // text keys; Done, number32 each: the places of those that have no value
  Wait,       // text keys; Done, once all have a value
  Done,
  Refused  // text: why
};
inline constexpr char kStoreProtocol[] = "halftape store 1";
inline constexpr size_t kLongestStoreMessage = size_t{4} << 20;

/// One thread answers all clients, and waits for none of them.
class TcpStore::Server {
 public:
  explicit Server(uint16_t port);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  uint16_t port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    wire::Channel channel;
    Clock::time_point came;
    bool greeted = false;
    bool wants_value = false;          // Get, not Wait
    std::vector<std::string> waits{};  // for these keys, the last one first; empty: does not wait
  };
  void run();
  void accept_all();
  void read(Guest& guest);
  void answer_all(Guest& guest);
  void answer(Guest& guest, wire::Reader request);
  void answer_if_complete(Guest& guest);
  void wake_waiting();
  std::vector<std::string> keys_in(wire::Reader& request) const;

  os::Socket listener_;
  uint16_t port_;
  os::Wake wake_;
  Clock::time_point accepts_from_{};  // not before, as the system had no place for another
  std::list<Guest> guests_;
  std::unordered_map<std::string, std::string> table_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace halftape::distributed
