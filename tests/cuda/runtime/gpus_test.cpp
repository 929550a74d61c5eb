// Several GPUs, on the rig: which of them a thread uses, and what one does to the others.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "halftape/cuda/copy.h"
#include "halftape/cuda/runtime/runtime.h"
#include "halftape/tests/support/message.h"
#include "rig.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

/// The bits of the devices that f() uses, in a thread that has chosen none.
unsigned devices_used_by(const std::function<void()>& f) {
  simt::reset_counters();
  std::thread(f).join();
  return simt::counters().contexts;
}

}  // namespace

TEST_CASE("a thread that does something about one GPU uses no other") {
  const Clean clean;
  const Device second(kCUDA, 1);
  const auto options = TensorOptions(kFloat32).device(second);
  const cuda::Stream stream(second);
  cuda::Event from(true, second), to(true, second);
  from.record(stream);
  to.record(stream);
  const Tensor x = ones({1000}, options);
  Tensor dropped = ones({1000}, options), of_graph;
  auto event = std::make_unique<cuda::Event>(false, second);
  auto moment = backend(second).queues()->now();
  auto graph = std::make_unique<Graph>(second, [&] { of_graph = x + 1; });
  graph->replay();
  const std::pair<const char*, std::function<void()>> acts[] = {
      {"asks a stream", [&] { CHECK(stream.query()); }},
      {"waits for a stream", [&] { stream.synchronize(); }},
      {"takes a stream", [&] { const cuda::Stream other(second, /*high_priority=*/true); }},
      {"asks an event", [&] { CHECK(to.query()); }},
      {"waits for an event", [&] { to.synchronize(); }},
      {"measures", [&] { CHECK(from.elapsed_time(to) >= 0); }},
      {"lets a stream wait", [&] { to.block(stream); }},
      {"records an event", [&] { from.record(stream); }},
      {"drops an event", [&] { event.reset(); }},
      {"drops a moment", [&] { moment.reset(); }},
      {"copies to the host", [&] { CHECK(x.cpu().to_vector<float>()[0] == 1); }},
      {"copies from pinned memory",
       [&] { (void)ones({10}, kCPU).pin_memory(second).to(second, true); }},
      {"loads batches into pinned memory",
       [&] {
         auto loader = data::make_data_loader(
             data::datasets::LabelledTensors(ones({4, 2}, kCPU), ones({4}, kCPU))
                 .map(data::transforms::Stack<>()),
             data::DataLoaderOptions(2).workers(1).pin_memory(true).pin_memory_device(second));
         for (auto& batch : *loader) CHECK(batch.data.is_pinned());
       }},
      {"lets go of memory", [&] { dropped = Tensor(); }},
      {"reads the figures", [&] { CHECK(cuda::memory_allocated(second) > 0); }},
      {"resets the figures", [&] { cuda::reset_peak_memory_stats(second); }},
      {"gives memory back", [&] { cuda::empty_cache(second); }},
      {"drops a graph", [&] { graph.reset(); }},
      {"lets go of a graph's memory", [&] { of_graph = Tensor(); }},
      {"waits for the device", [&] { cuda::synchronize(second); }},
  };
  for (const auto& act : acts) {
    CAPTURE(act.first);
    CHECK(devices_used_by(act.second) == 0b10);
  }
}

TEST_CASE("a model that moves to another GPU trains there") {
  const Clean clean;
  nn::Linear model(3, 2);
  for (const Device device : {Device(kCUDA, 0), Device(kCUDA, 1), Device(kCPU), Device(kCUDA, 0)}) {
    model->to(device);
    model->zero_grad();
    for (int i = 0; i < 2; ++i) model->forward(ones({4, 3}, device)).sum().backward();
    CHECK(model->weight.grad().device() == device);
    CHECK(model->weight.grad().cpu().eq(8).all().item<bool>());
  }
}

TEST_CASE("the kernel of an MLP is told once on each GPU how much shared memory it takes") {
  const Clean clean;
  const auto settings_of_a_step = [](Device device) {
    const nn::FusedMLP model(nn::FusedMLPOptions(61, 61, 5, 2));
    model->to(device);
    const Tensor x = ones({200, 61}, device),
                 y = zeros({200}, TensorOptions(kInt64).device(device));
    const amp::autocast half(device.type(), kFloat16);
    simt::reset_counters();
    model->loss(x, y).backward();
    cuda::synchronize(device);
    CHECK(isfinite(model->parameters()[0].grad()).all().item<bool>());
    return simt::counters().kernel_attributes;
  };
  for (const Device device : {Device(kCUDA, 0), Device(kCUDA, 1)}) {
    CHECK(settings_of_a_step(device) > 0);  // no other test has trained such a network
    CHECK(settings_of_a_step(device) == 0);
  }
}

TEST_CASE("to look for GPUs uses none, and one that another process holds hides no other one") {
  const Clean clean;
  std::unique_ptr<cuda::Runtime> opened;
  std::string why_not, text;
  CHECK(devices_used_by([&] { opened.reset(cuda::halftape_cuda_open(&why_not)); }) == 0);
  const simt::With held(now_with([](simt::Settings& s) {
    s.devices = 3;
    s.busy = 0b101;
  }));
  CHECK(devices_used_by([&] { opened.reset(cuda::halftape_cuda_open(&why_not)); }) == 0);
  CHECK(why_not == "");
  REQUIRE(opened);
  CHECK(opened->device_count() == 3);
  std::thread([&] {
    CHECK(opened->backend(1).allocate(8)->device() == Device("cuda:1"));
    try {
      (void)opened->backend(2);
    } catch (const Error& e) {
      text = e.what_without_backtrace();
    }
  }).join();
  CHECK(has(text, "cuda:2 cannot be used: CUDA-capable device(s) is/are busy or unavailable"));
}

TEST_CASE("kernels that do not load are for another architecture only if CUDA says so") {
  const Clean clean;
  const auto obstacle = [](unsigned foreign, unsigned busy) {
    const simt::With with(now_with([=](simt::Settings& s) {
      s.foreign = foreign;
      s.busy = busy;
    }));
    std::string text;
    std::thread([&] { text = cuda::kernels_obstacle(); }).join();
    return text;
  };
  CHECK(obstacle(0, 0) == "");
  CHECK(obstacle(1, 0) ==
        "the backend was not built for this GPU's architecture "
        "(cudaErrorNoKernelImageForDevice)");
  CHECK(obstacle(0, 1) ==
        "CUDA-capable device(s) is/are busy or unavailable "
        "(cudaErrorDevicesUnavailable)");
  CHECK(cuda::architecture_obstacle(75) == "");
  CHECK(cuda::architecture_obstacle(120) == "");
  CHECK(cuda::architecture_obstacle(70) ==
        "the backend was not built for this GPU's architecture (sm_70)");
}
#endif
