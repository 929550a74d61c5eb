// The end of a watch of all ranks but 0.
#include <thread>

#include "halftape/core/check.h"
#include "halftape/distributed/store/table.h"
#include "halftape/distributed/store/watch_sides.h"

namespace halftape::distributed::watch {
namespace {

constexpr milliseconds kConnectTime{3000};  // for a stranger at an old address, which says nothing

}  // namespace

Client::Client(const WatchOptions& options, std::string host, int64_t pid, Store& store)
    : Side(options) {
  mine_.rank = options.rank, mine_.size = options.size;
  mine_.host = std::move(host), mine_.pid = pid, mine_.state = Member::State::Here;
  root_.size = options.size;
  const auto deadline = Clock::now() + options.timeout;
  milliseconds pause(1);
  std::string why;
  for (;;) {
    // The address may be that of a process that has ended, and be replaced soon.
    try {
      if (store.check({kAddressKey})) {
        connect(Address::of(store.get(kAddressKey)));
        return;
      }
      why = "it has not written its address to the store";
    } catch (const os::SocketFailure& failure) {
      why = failure.what();
    } catch (const wire::Malformed& malformed) {
      why = malformed.what_without_backtrace();
    }
    HALFTAPE_CHECK(Clock::now() + pause < deadline, "Watch: rank ", options.rank, " of ",
                   options.size, " has not reached rank 0 within ", seconds_text(options.timeout),
                   " (", why,
                   "): has rank 0 ended, or is the store that of an earlier run? Give every run a "
                   "store, or a PrefixStore, of its own");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 2 + milliseconds(1), milliseconds(50));
  }
}

void Client::connect(const Address& address) {
  std::vector<std::string> hosts{address.host};
  if (address.maybe_here) hosts.push_back("127.0.0.1");
  std::string why;
  for (const std::string& host : hosts) {
    try {
      const auto deadline = Clock::now() + std::min(kConnectTime, options_.timeout);
      os::Socket socket = os::connect_to(host, address.port, deadline);
      const std::string greeting = wire::receive_message(socket, 1024, deadline);
      wire::Reader text(greeting);
      if (text.number8() != static_cast<uint8_t>(Note::Greeting) ||
          text.text(sizeof(kProtocol)) != kProtocol || text.number64() != address.id)
        throw wire::Malformed("another process listens there");
      root_.host = text.text(kLongestHost);
      root_.pid = static_cast<int64_t>(text.number64());
      root_.state = Member::State::Here;
      wire::Writer hello = note(Note::Hello);
      hello.number64(address.token).number32(static_cast<uint32_t>(options_.rank));
      hello.number32(static_cast<uint32_t>(options_.size)).text(mine_.host);
      hello.number64(static_cast<uint64_t>(mine_.pid));
      channel_ = wire::Channel(std::move(socket), kLongestNote);
      channel_.send(hello.bytes());
      session = address.id;
      return;
    } catch (const std::runtime_error& failure) {
      why += (why.empty() ? "" : "; ") + host + ":" + std::to_string(address.port) + ": " +
             failure.what();
    }
  }
  throw wire::Malformed(why);
}

void Client::listen(os::Deadline until) {
  std::vector<os::PolledSocket> polled{channel_.polled()};
  os::poll_sockets(polled, &wake_, until);
  clock_.tick();
  if (!channel_.is_open()) return;
  if (polled[0].writable) channel_.flush();
  if (!polled[0].readable) return;
  const bool lives = channel_.receive();
  try {
    while (const std::optional<std::string> message = channel_.next()) hear(*message);
    if (lives) return;
  } catch (const wire::Malformed&) {
    // A process whose memory is broken is as good as dead.
  }
  channel_.close();
  closed_ = true;
}

void Client::hear(const std::string& message) {
  wire::Reader text(message);
  const auto kind = static_cast<Note>(text.number8());
  root_.heard = clock_.now();
  switch (kind) {
    case Note::AllHere:
      all_here = true;
      return;
    case Note::AllLeft:
      all_left = true;
      return;
    case Note::Beat:
      return root_.learn(read_progress(text), clock_.now());
    case Note::Failed:
      if (told_.empty()) told_ = text.text(kLongestNote);
      return;
    case Note::Goodbye:
      root_.learn(read_progress(text), clock_.now());
      root_.state = Member::State::Left;
      return;
    case Note::Dropped:
      root_.learn(read_progress(text), clock_.now());
      root_.state = Member::State::Gone;
      return;
    case Note::Answer:
      answered = text.number64();
      answer = text.text(kLongestNote);
      return;
    default:
      throw wire::Malformed("an unknown note");
  }
}

void Client::beat(const Progress& mine) {
  mine_.learn(mine, clock_.now());
  wire::Writer beat = note(Note::Beat);
  write_progress(beat, mine);
  if (!channel_.has_unsent()) channel_.send(beat.bytes());
}

std::string Client::judge() {
  using State = Member::State;
  if (closed_ && (mine_.state == State::Left || all_left)) all_left = true;
  if (!told_.empty()) return told_;
  if (mine_.state == State::Left || all_left) return {};
  if (root_.state == State::Gone) return has_dropped(root_);
  if (root_.state == State::Left) {
    // While rank 0 is there, it judges that itself.
    const bool needs_it = mine_.progress.inside && mine_.progress.number > root_.progress.number &&
                          clock_.now() - mine_.since >= 2 * options_.period;
    return closed_ && needs_it ? is_needed(root_, mine_) : "";
  }
  if (closed_) return has_died(root_);
  if (clock_.now() - root_.heard > options_.timeout) return is_silent(root_, options_.timeout);
  // Rank 0 started before, and says itself who has not come.
  if (!all_here && clock_.now() > options_.timeout + 8 * options_.period)
    return who(root_) + " has not said within " + seconds_text(options_.timeout) +
           " that all ranks have come";
  return {};
}

void Client::tell(const std::string& failure) {
  // Of what rank 0 has told it need not be told.
  if (told_.empty()) channel_.send(note(Note::Failed).text(failure).bytes());
}

void Client::say_goodbye(const Progress& mine) {
  mine_.learn(mine, clock_.now());
  mine_.state = Member::State::Left;
  wire::Writer goodbye = note(Note::Goodbye);
  write_progress(goodbye, mine);
  channel_.send(goodbye.bytes());
}

void Client::ask(uint64_t question, uint64_t number) {
  channel_.send(note(Note::Ask).number64(question).number64(number).bytes());
}

void Client::finish(bool dropped, const Progress& mine) {
  if (dropped) {
    wire::Writer text = note(Note::Dropped);
    write_progress(text, mine);
    channel_.send(text.bytes());
  }
  close_all({&channel_}, Clock::now() + options_.period);
}

}  // namespace halftape::distributed::watch
