// Devices as text, devices that do not exist; texts and types of errors.
#include <doctest/doctest.h>

#include <string>

#include "halftape/core/check.h"
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/cuda.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/printed.h"

using namespace halftape;
using testing::message;
using testing::printed;

TEST_CASE("a device is parsed from the text that it prints") {
  CHECK(Device("cpu") == Device(kCPU));
  CHECK(Device("cuda") == Device(kCUDA, 0));
  CHECK(Device("cuda:0") == Device(kCUDA, 0));
  CHECK(Device("cuda:12") == Device(kCUDA, 12));
  CHECK_FALSE(Device("cuda:1") == Device("cuda:2"));
  CHECK_FALSE(Device("cuda") == Device("cpu"));
  CHECK(printed(Device("cpu")) == "cpu");
  CHECK(printed(Device("cuda:3")) == "cuda:3");
  CHECK(Device().is_cpu());
  CHECK(Device("cuda:3").is_cuda());
  CHECK(Device("cuda:3").index() == 3);
}

TEST_CASE("text that is not a device is quoted in the error") {
  for (const char* wrong :
       {"", "gpu", "CPU", " cpu", "cuda ", "cud", "cuda1", ":0", "cuda:", "cuda:-1", "cuda:1x",
        "cuda: 1", "cuda:+1", "cuda:99999", "cuda:0:1", "cpu:", "cpu:1"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(Device{wrong}, Error);
    CHECK(message([&] { Device{wrong}; }).find("\"" + std::string(wrong) + "\"") !=
          std::string::npos);
  }
  CHECK(message([] { Device{"gpu"}; }) ==
        "device \"gpu\" is not known; use \"cpu\", \"cuda\" or \"cuda:N\"");
}

TEST_CASE("the CPU has a backend, and a device without one says what to use instead") {
  CHECK(&backend(kCPU) == &cpu_backend());
  CHECK(message([] { cpu_backend().allocate(8, true); }) ==
        "pin_memory: pinned memory belongs to a GPU; this device is the CPU");
  if (cuda::is_available()) return;
  const std::string m = message([] { backend(Device("cuda:1")); });
  CHECK(m.find("cuda:1 is not available: " + cuda::unavailable_reason()) == 0);
  CHECK(m.find("use \"cpu\"") != std::string::npos);
  CHECK(cuda::device_count() == 0);
  CHECK(cuda::memory_allocated() == 0);
  CHECK_THROWS_AS(cuda::synchronize(), Error);
}

TEST_CASE("a check evaluates the parts of its message only if it fails") {
  int evaluated = 0;
  auto part = [&] { return ++evaluated; };
  HALFTAPE_CHECK(true, "never read ", part());
  CHECK(evaluated == 0);
  const auto failing = [&] {
    HALFTAPE_CHECK(1 > 2, "sum: ", Shape{2, 3}, " of ", kFloat16, " on ", Device("cuda:1"), ' ',
                   part());
  };
  CHECK(message(failing) == "sum: [2, 3] of float16 on cuda:1 1");
}

TEST_CASE("every error of the library is an Error, which is a std::runtime_error") {
  CHECK_THROWS_AS(throw OutOfMemoryError("x"), Error);
  CHECK_THROWS_AS(throw Error("x"), std::runtime_error);
  // An else after the macro must belong to the if before it.
  bool reached = false;
  if (reached)
    HALFTAPE_CHECK(false, "not reached");
  else
    reached = true;
  CHECK(reached);
}
