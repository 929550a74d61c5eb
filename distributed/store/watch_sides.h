// The two kinds of ends of a watch: rank 0's, which listens, and the others'. Each belongs to the
// thread of its watch.
#pragma once
#include <algorithm>
#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "halftape/distributed/store/watch.h"
#include "halftape/distributed/store/wire.h"

namespace halftape::distributed::watch {

using Clock = std::chrono::steady_clock;

/// The first byte of a message.
enum class Note : uint8_t {
  Greeting = 1,  // of rank 0 to whoever connects: text kProtocol, number64 id, text host, number64
                 // pid
  Hello,         // number64 token, number32 rank, number32 size, text host, number64 pid
  AllHere,       // of rank 0
  Beat,          // progress
  Failed,        // text; from rank 0: the verdict; to rank 0: what it has missed about itself
  Goodbye,       // progress
  Dropped,       // goes without goodbye; progress
  AllLeft,       // of rank 0
  Ask,           // number64 of the question, number64 of the collective
  Answer         // number64 of the question, text
};
inline constexpr char kProtocol[] = "halftape watch 1";
inline constexpr size_t kLongestHost = 256, kLongestCall = 4096, kLongestNote = size_t{1} << 16;

/// Where rank 0 listens, in the store. Strangers that connect learn the id, but not the token.
struct Address {
  std::string host;
  bool maybe_here = false;  // where nothing answers at `host`: 127.0.0.1
  uint16_t port = 0;
  uint64_t id = 0, token = 0;
  std::string bytes() const;
  static Address of(const std::string& bytes);  // throws wire::Malformed
};
inline constexpr char kAddressKey[] = "watch/address";

wire::Writer note(Note kind);
void write_progress(wire::Writer& note, const Progress& progress);
Progress read_progress(wire::Reader& note);

/// The time in which this process ran. One that was stopped for an hour has not listened for an
/// hour, and must not take the others for silent before it has read what they sent.
class RunningClock {
 public:
  explicit RunningClock(milliseconds longest_step) : longest_(longest_step) {}
  milliseconds now() const { return std::chrono::duration_cast<milliseconds>(now_); }
  void tick() {
    const auto t = Clock::now();
    now_ += std::min<Clock::duration>(t - last_, longest_);
    last_ = t;
  }

 private:
  Clock::duration longest_, now_{};
  Clock::time_point last_ = Clock::now();
};

/// A process, as it is known at this end. Times are those of the RunningClock.
struct Member {
  enum class State : uint8_t { Absent, Here, Left, Gone };
  int rank = 0, size = 1;
  std::string host{};
  int64_t pid = 0;
  State state = State::Absent;
  Progress progress{};
  milliseconds heard{0};    // at that time
  milliseconds since{0};    // its progress is what it is
  milliseconds dropped{0};  // it went without goodbye, if it is Gone and its connection did not end
  void learn(const Progress& next, milliseconds now);
};

// Sentences.
std::string who(const Member& member);
std::string has_died(const Member& member);
std::string has_dropped(const Member& member);
std::string is_silent(const Member& member, milliseconds timeout);
/// Of one that has left, and one that is in a call that needs it.
std::string is_needed(const Member& left, const Member& inside);
/// Empty, or that two members are in the same collective with different signatures since `before`.
std::string have_parted(const std::vector<Member>& members, milliseconds before);
/// Who of the others is not in a collective, and does what instead.
std::string who_is_missing(const std::vector<Member>& members, int asker, uint64_t number,
                           milliseconds now, milliseconds period);
/// "rank 2", "ranks 2, 3 and 5".
std::string ranks_text(const std::vector<int>& ranks);

class Side {
 public:
  explicit Side(const WatchOptions& options) : options_(options), clock_(2 * options.period) {}
  virtual ~Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  /// Waits for messages, wake() of another thread, or `until`, and reads what has come.
  virtual void listen(os::Deadline until) = 0;
  virtual void beat(const Progress& mine) = 0;
  /// A failure that was noticed or told since the last time; empty: none. Not called after one.
  virtual std::string judge() = 0;
  virtual void tell(const std::string& failure) = 0;
  virtual void say_goodbye(const Progress& mine) = 0;
  virtual void ask(uint64_t question, uint64_t number) = 0;
  /// Sends what is not sent yet, and closes all connections; with `dropped` without goodbye.
  virtual void finish(bool dropped, const Progress& mine) = 0;
  void wake() noexcept { wake_.notify(); }

  uint64_t session = 0;  // rank 0's number; known once connected
  bool all_here = false, all_left = false;
  uint64_t answered = 0;  // the last question
  std::string answer;

 protected:
  const WatchOptions options_;
  RunningClock clock_;
  os::Wake wake_;
  std::string told_;  // by another process: the failure
};

/// Rank 0's.
class Server final : public Side {
 public:
  Server(const WatchOptions& options, std::string host, int64_t pid);
  /// Where it listens, but for the host.
  Address address() const;
  void listen(os::Deadline until) override;
  void beat(const Progress& mine) override;
  std::string judge() override;
  void tell(const std::string& failure) override;
  void say_goodbye(const Progress& mine) override;
  void ask(uint64_t question, uint64_t number) override;
  void finish(bool dropped, const Progress& mine) override;

 private:
  struct Guest {
    wire::Channel channel;
    Clock::time_point came;
    int rank = -1;  // until it says Hello
  };
  struct Question {
    int rank;
    uint64_t id, number;
    Clock::time_point due;  // when all have told their progress anew
  };
  void accept_all();
  void read(Guest& guest);
  void hear(Guest& guest, const std::string& message);
  void welcome(Guest& guest, wire::Reader& hello);
  void answer_questions();
  void send_to_all(const wire::Writer& message);
  std::string judge_meeting();
  std::string judge_ends() const;
  std::string judge_calls();

  os::Socket listener_;
  uint16_t port_;
  uint64_t token_;
  Clock::time_point accepts_from_{};
  std::list<Guest> guests_;
  std::vector<Member> members_;
  std::vector<int> dead_;
  std::vector<Question> questions_;
  bool calls_due_ = false;  // there was a beat since judge_calls()
};

/// The others'.
class Client final : public Side {
 public:
  /// Connects to the address in the store, until the timeout.
  Client(const WatchOptions& options, std::string host, int64_t pid, Store& store);
  void listen(os::Deadline until) override;
  void beat(const Progress& mine) override;
  std::string judge() override;
  void tell(const std::string& failure) override;
  void say_goodbye(const Progress& mine) override;
  void ask(uint64_t question, uint64_t number) override;
  void finish(bool dropped, const Progress& mine) override;

 private:
  void connect(const Address& address);
  void hear(const std::string& message);

  wire::Channel channel_;
  Member root_, mine_;
  bool closed_ = false;
};

/// Sends what the channels have not sent yet, until the deadline, and closes them so that the other
/// sides read it all.
void close_all(const std::vector<wire::Channel*>& channels, os::Deadline deadline);

}  // namespace halftape::distributed::watch
