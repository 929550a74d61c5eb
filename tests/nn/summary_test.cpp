// summary(): the numbers are those that one counts by hand, and the model is afterwards as before.
#include "halftape/nn/summary.h"

#include <doctest/doctest.h>

#include "halftape/amp/autocast.h"
#include "halftape/autograd/autograd.h"
#include "halftape/nn/modules.h"
#include "halftape/tests/support/failing.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/printed.h"

using namespace halftape;
using namespace halftape::nn;
using testing::message;
using testing::printed;

namespace {

/// Calls one layer twice, as programs for LibTorch call it, and holds it under two names.
struct NetImpl : Module {
  NetImpl() {
    twice = register_module("twice", Linear(4, 4));
    register_module("alias", twice);
    head = register_module("head", Linear(LinearOptions(4, 2).bias(false)));
  }
  Tensor forward(const Tensor& x, const Tensor& y) {
    return head->forward(twice->forward(twice->forward(x))) + y;
  }
  Linear twice{nullptr}, head{nullptr};
};
HALFTAPE_MODULE(Net);

struct FailingImpl : Module {
  FailingImpl() {
    norm = register_module("norm", BatchNorm1d(3));
    table = register_module("table", Embedding(EmbeddingOptions(5, 3).max_norm(0.1)));
    drop = register_module("drop", Dropout());
  }
  Tensor forward(const Tensor& x) {
    norm->train();
    rand({7});
    const Tensor y = norm(table(x.to(kInt64)).flatten(0, 1));
    HALFTAPE_CHECK(!fails, "failed as asked");
    return drop(y);
  }
  bool fails = false;
  BatchNorm1d norm{nullptr};
  Embedding table{nullptr};
  Dropout drop{nullptr};
};
HALFTAPE_MODULE(Failing);

}  // namespace

TEST_CASE("summary prints a model's modules, what they give, and sums") {
  Sequential net(
      {{"conv", Conv2d(1, 2, 3)}, {"act", ReLU()}, {"flat", Flatten()}, {"fc", Linear(8, 1000)}});
  net->ptr(0)->parameters()[0].requires_grad_(false);
  CHECK(printed(summary(net, {5, 1, 4, 4})) ==
        "module            output        parameters   bytes\n"
        "Sequential        [5, 1000]\n"
        "  conv (Conv2d)   [5, 2, 2, 2]          20      80\n"
        "  act (ReLU)      [5, 2, 2, 2]\n"
        "  flat (Flatten)  [5, 8]\n"
        "  fc (Linear)     [5, 1000]          9,000  36,000\n"
        "9,020 parameters, 9,002 of them trained\n"
        "bytes: 36,080 of parameters, 0 of buffers, 20,480 of outputs of layers; 56,560 in all\n");
  CHECK(printed(summary(net)).starts_with("module            parameters   bytes\nSequential\n"));
}

TEST_CASE("summary counts a module with two names and a tied weight once, and its calls") {
  Net net;
  const Summary s = summary(net, {3, 4}, {3, 2});
  REQUIRE(s.rows.size() == 4);
  CHECK(s.rows[0].kind == "Net");
  CHECK(s.rows[0].outputs.at(0).sizes == Shape{3, 2});
  CHECK(s.rows[1].calls == 2);
  CHECK(s.rows[1].parameters == 20);
  CHECK(s.rows[2].path == "alias");
  CHECK(s.rows[2].repeated);
  CHECK(s.rows[3].calls == 1);
  CHECK(s.parameters == 28);
  CHECK(s.output_bytes == 4 * (2 * 12 + 6));
  CHECK(printed(s).find(
            "\n  twice (Linear)  [3, 4] x2          20     80\n  alias (Linear)  as above\n") !=
        std::string::npos);

  struct Tied : Module {
    Tied() {
      const Tensor w = register_parameter("in", ones({4, 4}));
      register_parameter("out", w);
    }
  };
  CHECK(summary(Tied()).parameters == 16);
}

TEST_CASE("summary counts the bytes of buffers, those of one with two names once") {
  // A mean and a variance of three float32 numbers, and an int64 count.
  const Summary s = summary(Sequential(Linear(4, 3), BatchNorm1d(3)));
  CHECK(s.buffer_bytes == 12 + 12 + 8);
  CHECK(printed(s).find(", 32 of buffers; ") != std::string::npos);
  struct Tied : Module {
    Tied() {
      const Tensor b = register_buffer("one", ones({5}, kFloat16));
      register_buffer("other", b);
    }
  };
  CHECK(summary(Tied()).buffer_bytes == 10);
}

TEST_CASE("summary gives a buffer with two names its own bytes back") {
  struct Net : nn::Module {
    Tensor a = register_buffer("a", zeros({2})), b = register_buffer("b", a);
    nn::Linear layer = register_module("layer", nn::Linear(2, 2));
    Tensor forward(const Tensor& x) { return layer(x) + a; }
  };
  const auto net = std::make_shared<Net>();
  const void* const bytes = net->a.const_data_ptr();
  summary(net, {1, 2});
  CHECK(net->a.const_data_ptr() == bytes);
}

TEST_CASE("summary refuses a null pointer and an empty holder") {
  const std::string refusal = "summary: no model, but a null pointer or an empty holder";
  const std::shared_ptr<LinearImpl> none;
  CHECK(message([&] { summary(none); }) == refusal);
  CHECK(message([&] { summary(none, {3, 4}); }) == refusal);
  CHECK(message([&] { summary(Linear(nullptr), {3, 4}); }) == refusal);
}

TEST_CASE("summary takes inputs of any dtype, tensors, and models in half precision") {
  Linear half(4, 2);
  half->to(kBFloat16);
  const Summary s = summary(half, {3, 4});
  CHECK(s.rows.at(0).outputs.at(0).dtype == kBFloat16);
  CHECK(s.output_bytes == 12);
  CHECK(s.parameter_bytes == 20);
  CHECK(printed(s).find("Linear  [3, 2] bfloat16") != std::string::npos);

  Embedding table(10, 4);
  CHECK(summary(table, {{2, 3}, kInt64}).rows.at(0).outputs.at(0).sizes == Shape{2, 3, 4});
  CHECK(summary(*table, tensor({1, 9})).rows.at(0).outputs.at(0).sizes == Shape{2, 4});
  CHECK(message([&] { summary(table, tensor({1, 10})); }).find("10") != std::string::npos);

  Linear single(4, 2);
  const DeviceType device = get_default_device().type();
  const amp::autocast region(device, kFloat16);
  CHECK(summary(single.ptr(), {3, 4}).rows.at(0).outputs.at(0).dtype == kFloat16);
  CHECK(amp::is_autocast_enabled(device));
}

TEST_CASE("summary shows all that a recurrent layer gives, and pools their output alone") {
  const Summary s = summary(Sequential(LSTM(4, 5)), {7, 2, 4});
  REQUIRE(s.rows.at(1).outputs.size() == 3);
  CHECK(s.rows[1].outputs[0].sizes == Shape{7, 2, 5});
  CHECK(s.rows[1].outputs[2].sizes == Shape{1, 2, 5});
  CHECK(summary(MaxPool2d(2), {1, 4, 4}).rows.at(0).outputs.size() == 1);
  CHECK(summary(MaxPool2d(2), {1, 4, 4}).output_bytes == 16);
}

TEST_CASE("summary leaves modes, buffers, weights, gradients and generators, also when it throws") {
  for (const bool fails : {false, true}) {
    Failing net;
    net->fails = fails;
    net->drop->eval();
    net->table->weight.mutable_grad() = ones({5, 3});
    const TensorList tensors{net->norm->running_mean, net->norm->running_var,
                             net->norm->num_batches_tracked, net->table->weight};
    TensorList before;
    std::vector<uint64_t> versions;
    for (const Tensor& t : tensors)
      before.push_back(t.detach().clone()), versions.push_back(t.array().version());
    const Generator generator = get_generator();
    if (fails)
      CHECK(message([&] { summary(net, {2, 2}); }).find("failed as asked") != std::string::npos);
    else
      CHECK(summary(net, {2, 2}).rows.at(3).outputs.at(0).sizes == Shape{4, 3});
    for (size_t i = 0; i < tensors.size(); ++i) {
      CHECK(equal(tensors[i].detach(), before[i]));
      CHECK(tensors[i].array().version() == versions[i]);
    }
    CHECK(net->is_training());
    CHECK(net->norm->is_training());
    CHECK(!net->drop->is_training());
    CHECK(get_generator().offset == generator.offset);
    CHECK(get_generator().seed == generator.seed);
    CHECK(equal(net->table->weight.grad(), ones({5, 3})));
    CHECK(net->table->weight.requires_grad());
    CHECK(!nn::detail::result_watcher);
    CHECK(GradMode::is_enabled());
  }
}

TEST_CASE("summary of a model without parameters or parts, and of nothing at all") {
  CHECK(printed(summary(ReLU(), {2, 3})) ==
        "module  output  parameters  bytes\n"
        "ReLU    [2, 3]\n"
        "0 parameters\n"
        "bytes: 0 of parameters, 0 of buffers, 24 of outputs of layers; 24 in all\n");
  CHECK(message([] {
          summary(Sequential(), {2, 3});
        }).find("empty Sequential") != std::string::npos);
  CHECK(summary(Sequential()).rows.size() == 1);
}

namespace {
struct Place : nn::Module {
  Tensor forward(const Tensor& x) {
    device = x.device();
    return x;
  }
  Device device = kCPU;
};
}  // namespace

TEST_CASE("summary of a model without parameters makes its input on the default device") {
  Place place;
  summary(place, {2, 3});
  CHECK(place.device.type() == get_default_device().type());
}

TEST_CASE("summary without memory for the copies gives the model its own buffers back") {
  Sequential net(BatchNorm1d(3), Linear(3, 2));
  const auto* norm = net->ptr<BatchNorm1dImpl>(0).get();
  const void* own = norm->running_var.const_data_ptr();
  // The rig's own cudaFreeAsync() takes memory, and may not throw.
  if (!testing::can_fail_new() || !get_default_device().is_cpu()) return;
  int64_t nth = 0;
  for (bool failed = true; failed;) {
    testing::fail_new(++nth);
    try {
      summary(net, {4, 3});
    } catch (const std::exception&) {  // NOLINT: std::bad_alloc, or an error that says so
    }
    failed = testing::fail_new(0) == 0;
    CHECK(norm->running_var.const_data_ptr() == own);
    CHECK(net->is_training());
    CHECK(norm->is_training());
    CHECK(!nn::detail::result_watcher);
  }
  CHECK(nth > 20);
}

TEST_CASE("summary works in InferenceMode") {
  Sequential net(BatchNorm1d(3), Linear(3, 2));
  const InferenceMode mode;
  CHECK(summary(net, {4, 3}).rows.at(2).outputs.at(0).sizes == Shape{4, 2});
}
