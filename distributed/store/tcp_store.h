// A Store over TCP: one process serves the table, the others ask it.
#pragma once
#include <memory>
#include <string>

#include "halftape/distributed/store/store.h"

namespace halftape::distributed {

struct TcpStoreOptions {
  uint16_t port = 29500;   // 0 with is_server: one that is free; see TcpStore::port()
  bool is_server = false;  // this process serves the table, on all of its addresses
  milliseconds timeout{60000};
};

/// Spelled as c10d::TCPStore. The client's constructor waits for the server until the timeout. The
/// table lives as long as the server's object. Bytes of a client that does not speak this protocol
/// end its connection, and nothing else. The table has no password: whoever reaches the port may
/// write to it, so keep the port within the machines of the group.
class TcpStore final : public Store {
 public:
  TcpStore(std::string host, const TcpStoreOptions& options);
  ~TcpStore() override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  milliseconds timeout() const override;
  void set_timeout(milliseconds timeout) override;
  /// Where the server listens.
  const std::string& host() const;
  uint16_t port() const;  // the one found, if 0 was asked for

 private:
  class Client;
  class Server;
  std::unique_ptr<Server> server_;  // null unless is_server
  std::unique_ptr<Client> client_;
};

}  // namespace halftape::distributed
