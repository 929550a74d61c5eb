// A backend that passes every call on to another one, and looks at it first.
#pragma once
#include <string>
#include <vector>

#include "halftape/core/contract/backend.h"

namespace halftape {

class ForwardingBackend : public Backend {
 public:
  /// The arrays of a call, undefined ones among them. An array that is read and written is among
  /// the writes.
  struct Touched {
    std::vector<const Array*> writes = {}, reads = {};
  };

  explicit ForwardingBackend(Backend& to) : to_(to) {}
  Backend& to() const { return to_; }

#define HALFTAPE_CALL override
#include "halftape/core/contract/calls.inc"
  Queues* queues() override { return to_.queues(); }

 protected:
  /// before() of these calls as of one.
  void see(std::span<const Call> calls);
  /// Comes before each call, which it may refuse by throwing. `call`: "gemm", or the formula's name
  /// ("tanh", "tanh_grad"); a copy between dtypes is a "cast"; the names of calls that run at once
  /// are joined by ", ".
  virtual void before(const std::string& call, const Touched& touched) = 0;

 private:
  Backend& seen(const std::string& call, const Touched& touched) {
    before(call, touched);
    return to_;
  }
  Backend& seen(const Call& call);
  Backend& to_;
};

}  // namespace halftape
