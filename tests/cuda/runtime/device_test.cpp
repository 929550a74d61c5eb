// The public interface of the GPU: availability, memory, streams, events, pinned memory.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <string>
#include <thread>

#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("a GPU says what it is") {
  CHECK(cuda::is_available());
  CHECK(cuda::unavailable_reason().empty());
  CHECK(cuda::device_count() >= 1);
  CHECK_FALSE(cuda::device_name().empty());
  CHECK(cuda::compute_capability() >= 75);
  const auto beyond = cuda::device_count();
  const std::string m = message([&] { zeros({1}, Device(kCUDA, beyond)); });
  CHECK(has(m, Device(kCUDA, beyond).str() + " is not available"));
  CHECK(has(m, "counted from 0"));
}

TEST_CASE("tensors travel to the GPU and back with the same bits") {
  for (const Dtype d :
       {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = (arange(0, 24, TensorOptions(kCPU)) - 3).reshape({4, 6}).to(d);
    const Tensor y = x.to(kCUDA);
    CHECK(y.is_cuda());
    CHECK(y.dtype() == d);
    CHECK(y.cpu().equal(x));
    CHECK(x.t().cuda().cpu().equal(x.t()));
    CHECK(y.slice(1, 1, 6, 2).cpu().equal(x.slice(1, 1, 6, 2)));
  }
  CHECK(zeros({0, 3}, kCUDA).cpu().sizes() == Shape{0, 3});
  CHECK(tensor(2.5, kCUDA).item() == 2.5);
  CHECK(message([] { ones({2}, kCUDA).data_ptr<float>(); }) != "");
}

TEST_CASE("tensors of two devices do not meet") {
  const Tensor here = ones({3}, kCPU), there = ones({3}, kCUDA);
  const std::string m = message([&] { here + there; });
  CHECK(has(m, "cpu"));
  CHECK(has(m, "cuda:0"));
}

TEST_CASE("gradients take the way back to the CPU") {
  const Tensor w = tensor({1.0, 2.0, 3.0}, TensorOptions(kCPU).requires_grad(true));
  (w.to(kCUDA) * tensor({4.0, 5.0, 6.0}, kCUDA)).sum().backward();
  CHECK(w.grad().device().is_cpu());
  CHECK(w.grad().to_vector() == std::vector<double>{4, 5, 6});
}

TEST_CASE("memory is counted while arrays hold it, and given back on request") {
  cuda::synchronize();
  cuda::empty_cache();
  const int64_t before = cuda::memory_allocated();
  cuda::reset_peak_memory_stats();
  {
    const Tensor a = empty({1 << 26}, TensorOptions(kFloat32).device(kCUDA));
    CHECK(cuda::memory_allocated() >= before + (256 << 20));
    CHECK(cuda::memory_reserved() >= cuda::memory_allocated());
  }
  cuda::synchronize();
  CHECK(cuda::memory_allocated() == before);
  CHECK(cuda::max_memory_allocated() >= before + (256 << 20));
  const int64_t kept = cuda::memory_reserved();
  CHECK(kept >= 256 << 20);  // for reuse
  cuda::empty_cache();
  CHECK(cuda::memory_reserved() <= kept - (256 << 20));
  cuda::reset_peak_memory_stats();
  CHECK(cuda::max_memory_allocated() == cuda::memory_allocated());
}

TEST_CASE("an array that the GPU cannot hold is refused with the figures, and work goes on") {
  const std::string m = message<OutOfMemoryError>(
      [] { empty({int64_t{1} << 46}, TensorOptions(kUInt8).device(kCUDA)); });
  CHECK(has(m, "cuda:0 is out of memory: 67108864.0 MiB asked for"));
  CHECK(has(m, "held by arrays"));
  CHECK(ones({3}, kCUDA).sum().item() == 3);
}

TEST_CASE("streams order their work, and events join them") {
  const cuda::Stream first = cuda::current_stream(), other;
  CHECK_FALSE(first == other);
  CHECK(other.device() == Device(kCUDA));
  Tensor x = zeros({1000}, kCUDA), y;
  x.add_(1);
  cuda::Event ready;
  ready.record();
  {
    const cuda::StreamGuard guard(other);
    CHECK(cuda::current_stream() == other);
    ready.block();
    y = x * 2;
    std::thread([&] { CHECK(cuda::current_stream() == first); }).join();
  }
  CHECK(cuda::current_stream() == first);
  other.synchronize();
  CHECK(other.query());
  CHECK(y.sum().item() == 2000);

  cuda::Event from(true), to(true);
  from.record();
  x.add_(1);
  to.record();
  to.synchronize();
  CHECK(to.query());
  CHECK(from.elapsed_time(to) >= 0);
  CHECK(has(message([&] { ready.elapsed_time(to); }), "enable_timing"));
}

TEST_CASE("streams are taken from a pool, of either priority") {
  std::vector<cuda::Stream> all;
  for (int i = 0; i < 70; ++i) all.emplace_back(Device(kCUDA), i % 2 == 1);
  CHECK(all[0] == all[64]);
  CHECK_FALSE(all[0] == all[1]);
  CHECK_FALSE(all[0] == all[2]);
}

TEST_CASE("pinned memory is the host's and the GPU's") {
  const Tensor x = arange(0, 1000, TensorOptions(kCPU)).to(kFloat32);
  CHECK_FALSE(x.is_pinned());
  const Tensor pinned = x.pin_memory();
  CHECK(pinned.is_pinned());
  CHECK(pinned.device().is_cpu());
  CHECK(pinned.equal(x));
  CHECK(pinned.pin_memory().is_same(pinned));
  const auto packed = nn::utils::rnn::pack_sequence({x, x}).pin_memory();
  CHECK(packed.data().is_pinned());
  CHECK(packed.batch_sizes().equal(nn::utils::rnn::pack_sequence({x, x}).batch_sizes()));
  const Tensor there = pinned.to(kCUDA, /*non_blocking=*/true);
  const Tensor back = (there * 2).to(kCPU, /*non_blocking=*/true);
  CHECK(back.is_pinned());
  cuda::synchronize();
  CHECK(back.equal(x * 2));
  CHECK(has(message([&] { there.pin_memory(); }), "pin_memory: only tensors on the CPU"));
}

TEST_CASE("new tensors go to the default device") {
  const Device before = get_default_device();
  set_default_device(kCUDA);
  CHECK(zeros({2}).is_cuda());
  CHECK(tensor({1.0, 2.0}).is_cuda());
  CHECK(nn::Linear(2, 3)->weight.is_cuda());
  CHECK_FALSE(zeros({2}, kCPU).is_cuda());
  set_default_device(kCPU);
  CHECK_FALSE(zeros({2}).is_cuda());
  set_default_device(before);
  CHECK_THROWS_AS(set_default_device(Device(kCUDA, cuda::device_count())), Error);
  CHECK(get_default_device() == before);
}

TEST_CASE("the same seed draws the same bits on both devices") {
  for (const Dtype d : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    manual_seed(3);
    const Tensor here = rand({3, 333}, TensorOptions(d).device(kCPU));
    manual_seed(3);
    const Tensor there = rand({3, 333}, TensorOptions(d).device(kCUDA));
    CHECK(there.cpu().equal(here));
  }
  manual_seed(3);
  const Tensor here = dropout(ones({1000}, kCPU), 0.3);
  manual_seed(3);
  CHECK(dropout(ones({1000}, kCUDA), 0.3).cpu().equal(here));
}

TEST_CASE("a scale, and a group of an optimizer, are for tensors of one device") {
  const Tensor here = ones({4}, TensorOptions(kCPU).requires_grad(true)),
               there = ones({4}, TensorOptions(kCUDA).requires_grad(true));
  optim::SGD of_there({there}, optim::SGDOptions(0.1)), both({here, there}, optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  scaler.scale((there * 2).sum().cpu()).backward();
  CHECK(testing::has(testing::message([&] { scaler.step(of_there); }),
                     "is on cuda:0, and the loss that was scaled on cpu"));
  here.mutable_grad() = ones({4}, kCPU);
  there.mutable_grad() = ones({4}, kCUDA);
  CHECK(testing::has(testing::message([&] { both.step(); }),
                     "one group has parameters on cpu and on cuda:0"));
  CHECK(here.detach().equal(ones({4}, kCPU)));
  optim::SGD apart(
      std::vector<optim::OptimizerParamGroup>{
          optim::OptimizerParamGroup(std::vector<Tensor>{here}),
          optim::OptimizerParamGroup(std::vector<Tensor>{there})},
      optim::SGDOptions(1));
  apart.step();
  CHECK(here.detach().equal(zeros({4}, kCPU)));
  CHECK(there.detach().cpu().equal(zeros({4}, kCPU)));
}

TEST_CASE("data sets and messages between ranks are on the CPU, whatever the default device is") {
  CHECK(data::datasets::Digits().images().device() == kCPU);
  CHECK(data::ByteVocabulary().encode("ab").device() == kCPU);
  CHECK(data::CharVocabulary("ab").encode("ab").device() == kCPU);
  CHECK(data::parse_csv("a\n1\n").values.device() == kCPU);
  const Tensor picture = ones({1, 2, 2}, TensorOptions().device(kCPU));
  CHECK(data::transforms::Normalize<>({0.5}, {0.5})(picture).device() == kCPU);
  const Tensor weight = ones({3}, requires_grad());
  REQUIRE(weight.device() != kCPU);
  distributed::ZeroRedundancyOptimizer<optim::AdamW> optimizer(
      std::vector{weight}, optim::AdamWOptions(0.1),
      std::make_shared<distributed::ProcessGroup>(nullptr, 0, 1));
  weight.sum().backward();
  optimizer.step();
  optimizer.consolidate_state();
  CHECK(optimizer.state_dict().state.size() == 1);
}

TEST_CASE("averages of a model with parts on two devices go on") {
  struct Net : nn::Module {
    Tensor weight = register_parameter("weight", ones({2}));
    Tensor buffer = register_buffer("buffer", zeros({2}).to(kCPU));
  } net;
  REQUIRE(net.weight.device() != kCPU);
  optim::AveragedModel averaged(net);
  for (const double value : {1.0, 3.0}) {
    const NoGradGuard no_grad;
    net.weight.fill_(value);
    averaged.update_parameters(net, zeros({1}));
  }
  averaged.copy_to(net);
  CHECK(net.weight.eq(2).all().item<bool>());
}
