// One rank of a group over NCCL, on a real GPU: for scripts/gpu_check.
// usage: nccl_check RANK SIZE FOLDER; the folder is new, and all ranks are of this machine.
// Writes a line of JSON. Exit code 77: there is no GPU, or no NCCL.
#include <halftape/halftape.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "check_group.h"
#include "halftape/distributed/nccl/nccl_engine.h"

namespace {

using namespace halftape;
using std::chrono::milliseconds;

/// A group of one has no engine by itself; here it gets one.
std::shared_ptr<distributed::ProcessGroup> meet(int rank, int size, const std::string& folder,
                                                const char* phase, distributed::Summation how,
                                                milliseconds timeout) {
  const std::string place = folder + "/" + phase;
  if (size > 1)
    return distributed::new_process_group({.backend = "nccl",
                                           .timeout = timeout,
                                           .summation = how,
                                           .init_method = "file://" + place,
                                           .rank = rank,
                                           .world_size = size});
  distributed::FileStore store(place, timeout);
  return std::make_shared<distributed::ProcessGroup>(
      distributed::open_nccl({0, 1, &store, timeout, "", 0}), 0, 1,
      distributed::GroupOptions{timeout, how});
}

/// A call that the last rank does not make must end on the others within the timeout. Empty if it
/// does.
std::string check_hang(int rank, int size, const std::string& folder) {
  const milliseconds timeout(3000);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const auto group = meet(rank, size, folder, "hang", distributed::Summation::Engine, timeout);
    group->barrier();
    if (rank == size - 1) return "";  // waits for the others in its destructor
    group->all_reduce(ones(
        {1000}, TensorOptions(kFloat32).device(Device(kCUDA, static_cast<DeviceIndex>(rank)))));
    group->barrier();
    return "a call that one rank did not make has ended well";
  } catch (const Error& e) {
    std::fprintf(stderr, "as it should: %s\n", e.what());
    const auto took = std::chrono::steady_clock::now() - begin;
    return took < milliseconds(20000) ? "" : "the abort of a call took more than 20 s";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: nccl_check RANK SIZE FOLDER\n");
    return 2;
  }
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]);
  if (const std::string why_not = distributed::nccl_unavailable_reason(); !why_not.empty()) {
    std::printf("no NCCL: %s\n", why_not.c_str());
    return 77;
  }
  const Device device(kCUDA, static_cast<DeviceIndex>(rank % cuda::device_count()));
  std::string wrong;
  try {
    for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine}) {
      const bool tree = how == distributed::Summation::Tree;
      const auto group =
          meet(rank, size, argv[3], tree ? "tree" : "engine", how, milliseconds(60000));
      const testing::GroupFindings found = testing::check_group(*group, device, 25 << 18);
      std::printf(
          "{\"rank\": %d, \"ranks\": %d, \"sums\": \"%s\", \"all_reduce_25_MiB_us\": %.1f, "
          "\"nodes\": %lld}\n",
          rank, size, tree ? "tree" : "nccl", found.all_reduce_us,
          static_cast<long long>(found.nodes));
      if (wrong.empty()) wrong = found.wrong;
    }
    if (size > 1 && wrong.empty()) wrong = check_hang(rank, size, argv[3]);
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  if (!wrong.empty()) std::printf("rank %d: %s\n", rank, wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
