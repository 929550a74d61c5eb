// How many bytes arrays hold in the CPU's memory. cuda/cuda.h has the same for GPUs.
#pragma once
#include <cstdint>

namespace halftape::cpu {

/// Bytes of the blocks that arrays hold in the CPU's memory, rounded up as they were allocated;
/// without memory of others (from_blob(), files) and without blocks kept for reuse. Each other
/// thread may be up to 64 KiB behind.
int64_t memory_allocated();
/// The most there ever were at once, since the start or the last reset; to 64 KiB for each thread.
int64_t max_memory_allocated();
/// Begins anew with what is allocated now.
void reset_peak_memory_stats();

/// Bytes that were taken from the system and not given back: those of arrays, and blocks kept for
/// reuse. Blocks above 32 KiB that lie idle while 16 times the bytes of all kept ones are taken
/// (and at least 1 GiB) go back, and all of them when more than 1 GiB would be kept.
int64_t memory_reserved();
/// Gives back what is kept for reuse, but for the small blocks of other threads, at most 1 MiB
/// each.
void empty_cache();

}  // namespace halftape::cpu
