// What buckets on their way leave alone: marks of other gradients, and backward() itself.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <stdexcept>
#include <thread>

#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::on_ranks;

namespace {

/// Each parameter is a bucket.
constexpr DataParallelOptions kSmallBuckets{.bucket_bytes = 1, .first_bucket_bytes = 1};

/// A model with two layers, of which a pass may leave the last one out.
struct TwoLayers {
  nn::Linear first = nn::Linear(4, 4), last = nn::Linear(4, 4);
  nn::Sequential both{first, last};
  Tensor loss(bool with_last = true) {
    const Tensor h = first(ones({1, 4}));
    return (with_last ? last(h) : h).sum();
  }
};

/// What a scaler's step would object to in each gradient; "unknown" where it has no mark.
std::vector<std::string> objections(const std::vector<Tensor>& params, GradTag::Use use) {
  std::vector<std::string> all;
  for (const Tensor& p : params) {
    if (!p.grad().defined()) continue;
    const GradMark mark = mark_of(p.grad());
    all.push_back(!mark.known ? "unknown" : mark.tag ? mark.tag->objection("", use) : "");
  }
  return all;
}

void check_each(const std::vector<std::string>& texts, const std::string& part) {
  CHECK(!texts.empty());
  for (const std::string& text : texts) CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

/// Throws once, after the hooks of a DistributedDataParallel, which have sent both gradients.
void fail_at_second_gradient(const nn::Linear& net) {
  const auto arrived = std::make_shared<int>(0);
  for (const Tensor& p : net->parameters())
    p.register_post_accumulate_grad_hook([arrived](const Tensor&) {
      if (++*arrived == 2) throw std::runtime_error("a bad batch");
    });
}

}  // namespace

TEST_CASE(
    "flat gradients keep the mark of a scaled loss, whichever bucket is reduced or gathered") {
  for (const bool parts : {false, true})
    for (const bool overlap : {false, true})
      for (const bool with_last : {false, true})
        on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
          TwoLayers net;
          DataParallelOptions how = kSmallBuckets;
          how.overlap = overlap;
          DistributedDataParallel ddp(*net.both, how, group);
          const std::vector<Tensor> params = net.both->parameters();
          std::unique_ptr<optim::AdamW> optimizer;
          if (parts)
            optimizer = std::make_unique<ZeroRedundancyOptimizer<optim::AdamW>>(
                params, optim::AdamWOptions(), ddp);
          else
            optimizer = std::make_unique<optim::AdamW>(params, optim::AdamWOptions());
          optimizer->flatten();
          amp::GradScaler scaler({.init_scale = 1024});
          scaler.scale(net.loss(with_last)).backward();
          const auto scaled = [&] { return objections(params, GradTag::Use::Unscaled); };
          check_each(scaled(), "multiplied by the loss scale");
          CHECK(is_partial(params[0].grad()) == parts);
          ddp.gather_gradients();
          check_each(scaled(), "multiplied by the loss scale");
          CHECK_FALSE(is_partial(params[0].grad()));
          CHECK(scaler.step(*optimizer).applied());
        });
}

TEST_CASE("in flat storage a scaled loss on top of an unscaled one is noticed in every bucket") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    TwoLayers net;
    DistributedDataParallel ddp(*net.both, kSmallBuckets, group);
    const std::vector<Tensor> params = net.both->parameters();
    optim::SGD optimizer(params, optim::SGDOptions(0.1));
    optimizer.flatten();
    amp::GradScaler scaler({.init_scale = 1024});
    {
      const auto local = ddp.no_sync();
      net.loss().backward();
    }
    scaler.scale(net.loss()).backward();
    check_each(objections(params, GradTag::Use::Scaled), "that was not scaled were added");
  });
}

TEST_CASE("the verdict of unscale_() stays with flat gradients that are gathered") {
  on_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(4, 4);
    DistributedDataParallel ddp(*net, kSmallBuckets, group);
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(net->parameters(), optim::AdamWOptions(), ddp);
    optimizer.flatten();
    amp::GradScaler scaler;
    scaler.scale(net->forward(full({1, 4}, 1e36)).sum()).backward();
    scaler.unscale_(optimizer);
    ddp.gather_gradients();
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("a GradScaler found"), Error);
    CHECK_FALSE(scaler.step(optimizer).applied());
  });
}

TEST_CASE("a bucket's collective raises the versions of its own gradients alone") {
  on_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(4, 4);
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
    optimizer.flatten();
    DistributedDataParallel ddp(*net, kSmallBuckets, group);
    const Tensor weight = net->weight, bias = net->bias;
    net->forward(ones({1, 4})).sum().backward();
    const Tensor x = ones({4}).requires_grad_(), saves = (x * weight.grad()).sum();
    bias.sum().backward();  // reduces what is there of the weight, too
    CHECK_THROWS_WITH_AS(saves.backward(), doctest::Contains("was changed in place"), Error);
    const Tensor other = std::exchange(weight.mutable_grad(), Tensor());
    const uint64_t before = other.version();
    bias.sum().backward();
    CHECK(bias.grad().equal(full({4}, 3.)));
    CHECK(other.version() == before);
  });
}

TEST_CASE("gradients that were sent before backward() failed are of no use") {
  for (const bool flat : {false, true})
    on_ranks(1, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Linear net(2, 2);
      optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
      if (flat) sgd.flatten();
      DistributedDataParallel ddp(*net, kSmallBuckets, group);
      fail_at_second_gradient(net);
      CHECK_THROWS_WITH(net->forward(ones({1, 2})).sum().backward(), "a bad batch");
      const auto refused = doctest::Contains("or one that failed");
      CHECK_THROWS_WITH_AS(sgd.step(), refused, Error);
      CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_({net->bias}, 1.0), refused, Error);
      CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_({net->weight}, 1.0), refused, Error);
      sgd.zero_grad();
      net->forward(ones({1, 2})).sum().backward();
      sgd.step();
    });
}

TEST_CASE("calls of a backward() that failed write to no gradient of a later one") {
  for (const bool flat : {false, true})
    for (const bool to_none : {false, true})
      on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
        nn::Linear net(2, 2);
        optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
        if (flat) sgd.flatten();
        DistributedDataParallel ddp(*net, kSmallBuckets, group);
        fail_at_second_gradient(net);
        const auto loss = [&] { return net->forward(full({1, 2}, group->rank() + 1.)).sum(); };
        // Rank 0 goes on while its calls wait for rank 1.
        if (group->rank() == 1) std::this_thread::sleep_for(milliseconds(100));
        CHECK_THROWS_WITH((loss() * 100).backward(), "a bad batch");
        for (const Tensor& p : net->parameters()) CHECK(p.grad().equal(zeros(p.sizes())));
        sgd.zero_grad(to_none);
        loss().backward();
        CHECK(net->weight.grad().equal(full({2, 2}, 1.5)));
        CHECK(net->bias.grad().equal(ones({2})));
        sgd.step();
        ddp.check_weights();
      });
}

TEST_CASE("a bucket is sent before the rules of earlier layers run") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    TwoLayers net;
    DistributedDataParallel ddp(*net.both, kSmallBuckets, group);
    int arrived = 0, sent = 0;
    for (const Tensor& p : net.last->parameters())
      p.register_post_accumulate_grad_hook([&](const Tensor&) { ++arrived; });
    const Tensor h = net.first(ones({3, 4}));
    h.register_hook([&](const Tensor&) {  // before the first layer's rule
      // A gradient that is sent has moved to its bucket.
      for (const Tensor& p : net.last->parameters())
        sent += p.grad().defined() && p.grad().array().buffer()->whole() != nullptr;
      CHECK_FALSE(net.first->weight.grad().defined());
    });
    net.last(h).sum().backward();
    CHECK(arrived == 2);
    CHECK(sent == 2);
  });
}

TEST_CASE("a layer with two names counts once") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear layer(4, 4);
    nn::Sequential model{layer, layer};
    DistributedDataParallel ddp(*model, kSmallBuckets, group);
    CHECK(ddp.buckets() == std::vector<std::vector<size_t>>{{1}, {0}});
    const auto loss = [&](int rank) {
      return model->forward(ones({3, 4}) * static_cast<double>(rank + 1)).sum();
    };
    loss(group->rank()).backward();
    const TensorList both = autograd::grad({(loss(0) + loss(1)) / 2}, layer->parameters());
    for (size_t i = 0; i < both.size(); ++i)
      CHECK(allclose(layer->parameters()[i].grad(), both[i], 1e-5, 1e-5));
  });
}
