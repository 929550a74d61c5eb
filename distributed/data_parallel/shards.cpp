#include "halftape/distributed/data_parallel/shards.h"

#include <optional>
#include <utility>

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/random/random.h"
#include "halftape/distributed/collectives.h"
#include "halftape/distributed/data_parallel/impl.h"

namespace halftape::distributed {
namespace {

void add_to(const Array& sum, const Array& x) {
  backend(sum.device()).binary(BinaryOps::index<formula::Add>(), sum, sum, x);
}

/// The sum of arrays that come one by one, in the order of reduce_tree(): at most log2(n) + 1 of
/// them are kept.
class TreeSum {
 public:
  void add(Array x) {
    int level = 0;
    for (; !parts_.empty() && parts_.back().first == level; ++level) {
      Array left = std::move(parts_.back().second);
      parts_.pop_back();
      add_to(left, x);
      x = std::move(left);
    }
    parts_.emplace_back(level, std::move(x));
  }
  Array take() {
    Array sum = std::move(parts_.back().second);
    for (parts_.pop_back(); !parts_.empty(); parts_.pop_back()) {
      add_to(parts_.back().second, sum);
      sum = std::move(parts_.back().second);
    }
    return sum;
  }

 private:
  std::vector<std::pair<int, Array>> parts_;  // level: log2 of how many are in it
};

/// Philox tells seeds that differ in a bit apart; this keeps sums of step and shard from meeting.
uint64_t mixed(uint64_t seed, uint64_t step, uint64_t shard) {
  uint64_t x = 0;
  for (const uint64_t part : {seed, step, shard}) {
    x = (x ^ part) + 0x9e3779b97f4a7c15;  // the finalizer of SplitMix64 (Steele et al. 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
  }
  return x;
}

/// The mark of the sum of gradients with these marks.
GradMark sum_of(const GradMark& a, const GradMark& b) {
  if (!a.known) return b;
  if (!b.known || a.tag == b.tag) return a;
  return {true, a.tag ? a.tag->plus(b.tag) : b.tag->plus(a.tag)};
}

}  // namespace

class Shards::Loop {
 public:
  Loop(std::shared_ptr<DistributedDataParallel::Impl> ddp, uint64_t step, uint64_t seed)
      : ddp_(std::move(ddp)), step_(step), seed_(seed) {}
  ~Loop() {
    if (!running_) return;
    ddp_->in_loop = false;
    ddp_->left_early = true;
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int64_t count() const { return ddp_->options.shards; }
  int64_t own() const { return count() / ddp_->group->size(); }
  Shard shard() const { return {ddp_->group->rank() * own() + done_, count()}; }

  void begin() {
    ddp_->check_usable();
    HALFTAPE_CHECK(!ddp_->in_loop, "shards: a loop over shards runs already");
    HALFTAPE_CHECK(ddp_->no_sync == 0, "shards: not under no_sync(); the loop itself adds up");
    for (size_t i = 0; i < ddp_->params.size(); ++i)
      HALFTAPE_CHECK(!ddp_->params[i].grad().defined(), "shards: ", ddp_->names[i],
                     " has a gradient already; call optimizer.zero_grad() before the loop");
    gradients_.resize(ddp_->buckets.size());
    marks_.resize(ddp_->params.size());
    defined_.resize(ddp_->params.size());
    random_.emplace(get_random_state());
    before_ = ddp_->buffer_values();
    running_ = ddp_->in_loop = true;
    begin_shard();
  }

  /// Takes in what a shard has given; after the last one, what all ranks have.
  void end_shard() {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < ddp_->params.size(); ++i) {
      const Tensor& g = ddp_->params[i].grad();
      if (!g.defined()) continue;
      defined_[i] = true;
      marks_[i] = sum_of(marks_[i], mark_of(g));
    }
    for (size_t b = 0; b < gradients_.size(); ++b) gradients_[b].add(ddp_->buckets[b].copied());
    for (const Tensor& p : ddp_->params) p.mutable_grad() = Tensor();
    const BufferValues after = ddp_->buffer_values();
    const Tensor ends = ddp_->ends_of(after.floats);
    ends_ = ends.defined() && ends_.defined() ? maximum(ends_, ends) : ends;
    if (after.floats.defined()) buffers_.add(after.floats);
    if (done_ == 0) first_ = after;
    if (++done_ < own()) return begin_shard();
    random_.reset();
    finish();
    running_ = ddp_->in_loop = false;
  }

 private:
  void begin_shard() {
    if (done_ > 0) ddp_->set_buffers(before_);
    manual_seed(mixed(seed_, step_, static_cast<uint64_t>(shard().index)));
  }

  void finish() {
    Reduction reduction{.partial = ddp_->has_sharded_optimizer(), .op = ReduceOp::Sum};
    for (TreeSum& sum : gradients_) ddp_->reduce(reduction, sum.take());
    const std::vector<bool> anywhere = ddp_->any_rank(defined_);
    finish_buffers();
    ddp_->finish(reduction, defined_, anywhere, marks_, count());
  }

  void finish_buffers() {
    BufferValues values = first_;
    if (values.floats.defined()) {
      values.floats = buffers_.take();
      ddp_->group->all_reduce(Tensor(values.floats), ReduceOp::Sum, {.label = "buffers"});
      divide(values.floats, count());
      ddp_->keep_equal(values.floats, ends_);
    }
    if (values.integers.defined())
      ddp_->group->broadcast(Tensor(values.integers), 0, {.label = "buffers"});
    ddp_->set_buffers(values);
  }

  std::shared_ptr<DistributedDataParallel::Impl> ddp_;
  uint64_t step_, seed_;
  int64_t done_ = 0;
  bool running_ = false;
  std::vector<TreeSum> gradients_;  // of each bucket
  TreeSum buffers_;
  Tensor ends_;  // of the buffers of the shards that are done
  std::vector<GradMark> marks_;
  std::vector<bool> defined_;
  BufferValues before_, first_;
  std::optional<RandomScope> random_;  // of a loop that runs
};

Tensor Shard::of(const Tensor& batch) const {
  HALFTAPE_CHECK(batch.defined() && batch.dim() > 0 && batch.size(0) % count == 0,
                 "Shard::of: a batch of ", batch.defined() && batch.dim() > 0 ? batch.size(0) : 0,
                 " rows is not ", count, " equal shards; drop the last, smaller batch");
  const int64_t rows = batch.size(0) / count;
  return batch.slice(0, index * rows, (index + 1) * rows);
}

Shards::Shards(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}
Shards::~Shards() = default;
Shards::Shards(Shards&&) noexcept = default;

Shards::iterator Shards::begin() {
  loop_->begin();
  iterator first;
  first.loop_ = loop_.get();
  first.left_ = loop_->own();
  return first;
}
Shard Shards::iterator::operator*() const { return loop_->shard(); }
Shards::iterator& Shards::iterator::operator++() {
  loop_->end_shard();
  --left_;
  return *this;
}

Shards DistributedDataParallel::shards(uint64_t step, uint64_t seed) {
  return Shards(std::make_shared<Shards::Loop>(impl_, step, seed));
}

}  // namespace halftape::distributed
