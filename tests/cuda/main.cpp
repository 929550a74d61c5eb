// Runs test cases on a GPU or on the rig. The default device is the GPU, so that cases without
// devices run there.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "halftape/autograd/tensor_options.h"
#include "halftape/core/machine/cpu_capability.h"
#include "halftape/core/machine/os.h"
#include "halftape/cuda/cuda.h"
#include "halftape/cuda/runtime/runtime.h"
#if defined(HALFTAPE_SIMT)
#include <fstream>
#include <iostream>

#include "observed.h"
#include "runtime/device.h"
#include "settings.h"

namespace {
/// HALFTAPE_SIMT_ORDER: the order in which the threads of a block run.
simt::Order order() {
  const char* said = std::getenv("HALFTAPE_SIMT_ORDER");
  if (said && std::strcmp(said, "reverse") == 0) return simt::Order::Reverse;
  if (said && std::strcmp(said, "random") == 0) return simt::Order::Random;
  return simt::Order::Forward;
}

/// HALFTAPE_SIMT_LATE: work is done when somebody waits for it, as on a GPU that runs late.
simt::Mode mode() {
  return halftape::os::is_asked_for("HALFTAPE_SIMT_LATE") ? simt::Mode::Deferred
                                                          : simt::Mode::Immediate;
}

/// HALFTAPE_SIMT_SHARED: the bytes of shared memory that a block may ask for.
size_t shared_memory() {
  const char* said = std::getenv("HALFTAPE_SIMT_SHARED");
  return said ? std::strtoul(said, nullptr, 10) : simt::settings.shared_memory;
}

/// HALFTAPE_SIMT_TALLY: the file for the tally, written at the end. An old one is removed first.
class TallyFile {
 public:
  TallyFile() {
    if (const char* said = std::getenv("HALFTAPE_SIMT_TALLY")) path_ = said;
    if (!path_.empty()) std::remove(path_.c_str());
  }
  void write() const {
    const simt::Tally tally = simt::tally();
    std::cout << tally.line() << std::endl;
    if (!path_.empty()) {
      std::ofstream out(path_);
      tally.write(out);
    }
  }

 private:
  std::string path_;
};
}  // namespace
#endif

int main(int argc, char** argv) {
  using namespace halftape;
#if defined(HALFTAPE_SIMT)
  simt::settings.order = order();
  simt::settings.mode = mode();
  simt::settings.shared_memory = shared_memory();
  simt::settings.devices = 2;
  const TallyFile tally;
  std::string why_not;
  cuda::Runtime* const rig = cuda::halftape_cuda_open(&why_not);
  if (!rig) {
    std::fprintf(stderr, "the rig does not start: %s\n", why_not.c_str());
    return 2;
  }
  static testing::ObservedRuntime observed(*rig);
  cuda::use_runtime(&observed);
#else
  if (!cuda::is_available()) {
    std::fprintf(stderr, "no GPU: %s\n", cuda::unavailable_reason().c_str());
    return 2;
  }
#endif
  set_native_bfloat16(false);  // products of the device are compared with exact sums
  set_default_device(kCUDA);
  doctest::Context context;
  // Not for a GPU: errors that a kernel cannot throw, five million launches, and writes of the host
  // through a pointer.
  context.addFilter("test-case-exclude",
                    "an integer divided by zero*,a million nodes*,*through a plain pointer*");
  context.applyCommandLine(argc, argv);
  const int result = context.run();
#if defined(HALFTAPE_SIMT)
  tally.write();
#endif
  return result;
}
