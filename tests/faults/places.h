// Runs a piece of work with each of its calls for files, or each of its allocations, failing.
#pragma once
#include <doctest/doctest.h>

#include <cerrno>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/tests/faults/system_calls.h"
#include "halftape/tests/support/failing.h"

namespace halftape::testing {

struct Kind {
  std::string_view name;
  bool memory = false;  // an operator new fails, not a call for files
  int error = 0;
  bool persists = false, half = false;  // as Fault's
};

inline constexpr Kind kMemory{.name = "an allocation", .memory = true};
inline constexpr Kind kKinds[] = {
    {.name = "an input or output error", .error = EIO},
    {.name = "no space", .error = ENOSPC},
    {.name = "interrupted", .error = EINTR},
    {.name = "too many files", .error = EMFILE},
    {.name = "half a write", .half = true},
    {.name = "half a write, and no space", .error = ENOSPC, .half = true},
    {.name = "the disk is gone", .error = EIO, .persists = true},
    {.name = "no space any more", .error = ENOSPC, .persists = true},
    kMemory};

/// What a piece of work said when it failed; nothing if it came to its end.
using Said = std::optional<std::string>;

/// Calls `work` with the n-th call failing. False if it has fewer calls. Adds the name of the call
/// that failed first to `failed`.
inline bool fails_at(const Kind& kind, int64_t nth, const std::function<void()>& work, Said& said,
                     std::set<std::string>* failed = nullptr) {
  said.reset();
  FailingCalls calls(kind.memory ? Fault{} : Fault{nth, kind.error, kind.persists, kind.half});
  if (kind.memory) fail_new(nth);
  std::string foreign;
  try {
    work();
  } catch (const Error& error) {
    said = error.what();
  } catch (const std::bad_alloc& error) {
    said = error.what();
    if (!kind.memory) foreign = *said;
  } catch (const std::exception& error) {
    foreign = error.what();
  }
  const int64_t left = fail_new(0);
  calls.stop();
  const bool reached = kind.memory ? left == 0 : calls.failed() != nullptr;
  const std::string kind_of(kind.name), call = calls.failed() ? calls.failed() : "none";
  CAPTURE(kind_of);
  CAPTURE(nth);
  CAPTURE(call);
  CHECK_MESSAGE(foreign.empty(), "neither an Error nor std::bad_alloc: ", foreign);
  CHECK_MESSAGE((reached || !said), "fails without a reason: ", *said);
  CHECK(said.value_or("reason") != "");
  if (failed && calls.failed()) failed->insert(call);
  return reached;
}

/// Where a piece of work was made to fail.
struct Places {
  struct OfKind {
    int number = 0;
    std::set<std::string> calls;  // which failed first
  };
  std::map<std::string_view, OfKind> of;  // by the kind's name

  int number() const {
    int all = 0;
    for (const auto& [kind, places] : of) all += places.number;
    return all;
  }
};

/// For each kind and each place: `prepare`, `work` with a failure there, `after` with what it said.
inline Places at_every_place(const std::function<void()>& prepare,
                             const std::function<void()>& work,
                             const std::function<void(const Kind&, const Said&)>& after) {
  Places places;
  for (const Kind& kind : kKinds) {
    Places::OfKind& of_kind = places.of[kind.name];
    for (int64_t nth = 1;; ++nth) {
      prepare();
      Said said;
      if (!fails_at(kind, nth, work, said, &of_kind.calls)) {
        CHECK(!said);
        break;
      }
      ++of_kind.number;
      const std::string kind_of(kind.name);
      CAPTURE(kind_of);
      CAPTURE(nth);
      CAPTURE(said.value_or("nothing"));
      after(kind, said);
    }
  }
  return places;
}

/// Checks that failures reached the work: where system_calls.cpp no longer sees the library's
/// calls, nothing was tried, and all else holds of itself. `least` is a floor of the calls for
/// files and `writes` of those that write; `made` are some that the work surely makes, "fopen" also
/// as fopen64.
inline void check_tried(const Places& places, int least, int writes,
                        const std::vector<std::string>& made) {
  for (const Kind& kind : kKinds) {
    const std::string kind_of(kind.name);
    CAPTURE(kind_of);
    const Places::OfKind& here = places.of.at(kind.name);
    CHECK(here.number >= (kind.memory ? 1 : kind.half ? writes : least));
    if (kind.memory || kind.half) continue;  // of which only writes fail by half
    for (const std::string& call : made) {
      CAPTURE(call);
      CHECK((here.calls.contains(call) || (call == "fopen" && here.calls.contains("fopen64"))));
    }
  }
}

}  // namespace halftape::testing
