// The NCCL engine on the rig: four devices, and a fake NCCL in FAKE_NCCL, a file.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "halftape/core/machine/os.h"
#include "halftape/cuda/runtime/runtime.h"
#include "rig_ranks.h"
#include "settings.h"

namespace halftape::testing {

FakeNccl& fake() {
  static FakeNccl* const one = [] {
    std::string why_not;
    void* const library = os::load_library(FAKE_NCCL, why_not);
    const auto get = reinterpret_cast<decltype(&fake_nccl)>(os::symbol(library, "fake_nccl"));
    return get();
  }();
  return *one;
}
std::string fake_file() { return FAKE_NCCL; }

}  // namespace halftape::testing

int main(int argc, char** argv) {
  using namespace halftape;
  setenv("HALFTAPE_NCCL_LIBRARY", FAKE_NCCL, 1);
  simt::settings.devices = 4;
  std::string why_not;
  cuda::Runtime* const rig = cuda::halftape_cuda_open(&why_not);
  if (!rig) {
    std::fprintf(stderr, "the rig does not start: %s\n", why_not.c_str());
    return 2;
  }
  cuda::use_runtime(rig);
  doctest::Context context(argc, argv);
  return context.run();
}
