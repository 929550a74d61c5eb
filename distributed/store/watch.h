// Notices within two seconds that a process of a group has died, and within the timeout that one
// has stopped or is cut off, whatever the others are doing.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "halftape/distributed/store/store.h"

namespace halftape::distributed {

/// What a process does, as told to the others in errors: "all_reduce 1234 (bucket 3)".
struct Progress {
  uint64_t number = 0;     // of the collective call, counted from 1; equal on all ranks
  uint64_t signature = 0;  // of its kind, shape and dtype; equal on all ranks
  bool inside = false;     // it runs; else it has ended
  std::string call;        // for people
};

struct WatchOptions {
  int rank = 0, size = 1;
  milliseconds timeout{60000};  // of silence
  milliseconds period{250};     // between two signs of life
};

/// One for each process of a group; rank 0's listens, and the others hold a connection to it. Every
/// process gives a sign of life in each period, from a thread of its own, with its Progress, and is
/// told what has failed:
/// * a process that ended without leave(), or was killed: its connection closes;
/// * one that was silent for the timeout: stopped, or cut off;
/// * two that are in the same collective with different signatures: their programs have parted.
///   That is noticed once both were inside for two periods.
/// * one that has left, while another one is in a later collective for two periods.
/// rank 0's own death or silence is noticed by each of the others. Once rank 0 has left and ended,
/// nobody watches the rest. A process that was itself stopped does not take the others for silent.
class Watch {
 public:
  /// Meets the others by way of the store: rank 0 writes its address there. Throws Error after the
  /// timeout, naming the ranks that did not come. `failed` is called at most once, on the thread of
  /// the watch, perhaps before the constructor has returned, and must not end the watch. Its text
  /// is equal on all ranks that hear of the same failure, a sentence such as "rank 2 of 4 (host b,
  /// pid 4711) has died during all_reduce 1234 (bucket 3)". `host` is this machine's address
  /// or name as the others reach it; empty: the machine's name, and 127.0.0.1 where the others do
  /// not find that. The store is used during the call alone.
  Watch(Store& store, const WatchOptions& options, std::function<void(const std::string&)> failed,
        const std::string& host = "");
  /// Without leave(), the others are told that this process "has left without goodbye". Waits for
  /// up to a period, to tell them.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// A number that rank 0 has drawn, which all ranks know once they have met.
  uint64_t session() const;
  /// Sets what this process tells of itself. Cheap: no message is sent.
  void set_progress(Progress progress);
  /// What is known of the others, for an error on this rank: the failure if there was one, else
  /// which ranks are not inside the collective `number`, and what they do instead: "rank 1 of 4
  /// (host b, pid 12) has not come: it has ended all_reduce 1233". Waits for up to two periods.
  std::string diagnosis(uint64_t number);
  /// Says goodbye: what ends from now on is no failure. Waits until the others have said it, too,
  /// or for `at_most`, or until one has failed. `failed` is not called from then on. Calls of
  /// others that need this rank then fail with "… has left the group".
  void leave(milliseconds at_most);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halftape::distributed
