#include "halftape/distributed/gloo/ring.h"

#include <algorithm>
#include <vector>

#include "halftape/distributed/engine/mix.h"

namespace halftape::distributed {
namespace {

constexpr size_t kSegmentBytes = size_t{1} << 20;  // stays in a cache until it is reduced

struct Span {
  size_t first, count;  // in elements
};

/// The elements are cut into a chunk for each rank, and each chunk into segments. In step s a rank
/// sends chunk rank - s to the next one, and adds what comes to chunk rank - s - 1. After n - 1
/// steps chunk rank + 1 is complete, and in as many further ones the complete chunks go around.
class Ring {
 public:
  Ring(Wire& wire, void* elements, size_t count, size_t element_size, Reduction* reduce)
      : wire_(wire),
        bytes_(static_cast<char*>(elements)),
        count_(count),
        element_size_(element_size),
        reduce_(reduce),
        n_(static_cast<size_t>(wire.size())),
        chunk_((count + n_ - 1) / n_),
        segment_(std::clamp(kSegmentBytes / element_size, size_t{1}, (chunk_ + 1) / 2)),
        segments_((chunk_ + segment_ - 1) / segment_) {
    for (std::vector<char>& room : rooms_) room.resize(segment_ * element_size_);
  }

  void run(uint64_t tag, const Deadline& deadline) {
    const size_t steps = 2 * (n_ - 1) * segments_;
    // A segment is sent on one step after it came, so with several there is time for the next one
    // to come while one is reduced.
    const size_t ahead = segments_ > 1 ? 1 : 0;
    for (size_t i = 0; i < steps + ahead; ++i) {
      if (i < steps) begin(i, tag);
      if (i >= ahead) end(i - ahead, deadline);
    }
  }

 private:
  /// The segment of number i that the rank `before` places before this one sends.
  Span span(size_t i, size_t before) const {
    const size_t place = static_cast<size_t>(wire_.rank()) + 2 * n_ - before - i / segments_;
    const size_t chunk = place % n_;
    const size_t first = std::min(chunk * chunk_ + i % segments_ * segment_, count_);
    const size_t end = std::min({first + segment_, (chunk + 1) * chunk_, count_});
    return {first, end - std::min(first, end)};
  }
  char* at(Span s) const { return bytes_ + s.first * element_size_; }
  bool is_sum(size_t i) const { return i < (n_ - 1) * segments_; }

  void begin(size_t i, uint64_t tag) {
    const auto rank = static_cast<size_t>(wire_.rank());
    const Span out = span(i, 0), in = span(i, 1);
    char* const to = is_sum(i) ? rooms_[i % 2].data() : at(in);
    incoming_[i % 2] = wire_.receive(static_cast<int>((rank + n_ - 1) % n_), to,
                                     in.count * element_size_, mix(tag, i));
    outgoing_[i % 2] = wire_.send(static_cast<int>((rank + 1) % n_), at(out),
                                  out.count * element_size_, mix(tag, i));
  }

  void end(size_t i, const Deadline& deadline) {
    const Span in = span(i, 1);
    wire_.finish(incoming_[i % 2], deadline);
    if (is_sum(i)) reduce_(at(in), rooms_[i % 2].data(), in.count);
    wire_.finish(outgoing_[i % 2], deadline);
  }

  Wire& wire_;
  char* const bytes_;
  const size_t count_, element_size_;
  Reduction* const reduce_;
  const size_t n_, chunk_, segment_, segments_;
  std::vector<char> rooms_[2];
  Wire::Transfer incoming_[2], outgoing_[2];
};

}  // namespace

void ring(Wire& wire, void* elements, size_t count, size_t element_size, Reduction* reduce,
          uint64_t tag, const Deadline& deadline) {
  if (count == 0 || wire.size() == 1) return;
  Ring(wire, elements, count, element_size, reduce).run(tag, deadline);
}

}  // namespace halftape::distributed
