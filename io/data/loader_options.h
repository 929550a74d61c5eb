// How a DataLoader loads.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>

#include "halftape/core/check.h"
#include "halftape/core/device.h"
#include "halftape/core/options.h"
#include "halftape/io/data/queue.h"

namespace halftape::data {

struct DataLoaderOptions {
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}  // NOLINT: as LibTorch

  /// Examples in a batch.
  HALFTAPE_ARG(size_t, batch_size) = 1;
  /// Threads that load ahead; with 0 the caller loads, when it asks for a batch.
  HALFTAPE_ARG(size_t, workers) = 0;
  /// How many batches may be loaded ahead; by default twice the workers.
  HALFTAPE_ARG(std::optional<size_t>, max_jobs);
  /// How long to wait for a worker's batch before an Error is thrown; by default for ever.
  HALFTAPE_ARG(std::optional<std::chrono::milliseconds>, timeout);
  /// True: batches come in the sampler's order; false: as workers finish them.
  HALFTAPE_ARG(bool, enforce_ordering) = true;
  /// Leaves out a last batch with fewer examples; loaders of stateful datasets refuse it.
  HALFTAPE_ARG(bool, drop_last) = false;
  /// Copies the tensors of a batch into pinned memory, so that to(kCUDA, true) does not wait; does
  /// nothing where there is no such GPU.
  HALFTAPE_ARG(bool, pin_memory) = false;
  /// The GPU for which memory is pinned: each process of several names its own.
  HALFTAPE_ARG(Device, pin_memory_device) = kCUDA;
};

/// The same with every default filled in.
struct FullDataLoaderOptions {
  /// Throws for a batch without examples, for too many workers, and for workers without jobs.
  explicit FullDataLoaderOptions(const DataLoaderOptions& options)
      : batch_size(options.batch_size()),
        workers(options.workers()),
        max_jobs(options.max_jobs().value_or(2 * options.workers())),
        timeout(options.timeout()),
        enforce_ordering(options.enforce_ordering()),
        drop_last(options.drop_last()),
        pin_memory(options.pin_memory()),
        pin_memory_device(options.pin_memory_device()) {
    HALFTAPE_CHECK(batch_size > 0, "DataLoader: batch_size is 0; it must be at least 1");
    detail::check_threads("DataLoader: workers", workers);
    HALFTAPE_CHECK(workers == 0 || max_jobs > 0, "DataLoader: max_jobs is 0 with ", workers,
                   " workers; it must be at least 1");
    HALFTAPE_CHECK(!pin_memory || pin_memory_device.is_cuda(), "DataLoader: pin_memory_device is ",
                   pin_memory_device, "; it must be a GPU");
  }

  size_t batch_size, workers, max_jobs;
  std::optional<std::chrono::milliseconds> timeout;
  bool enforce_ordering, drop_last, pin_memory;
  Device pin_memory_device;
};

}  // namespace halftape::data
