// The engine of GPUs: NCCL, which is loaded at run time.
#pragma once
#include <memory>
#include <string>

#include "halftape/distributed/engine/engine.h"

namespace halftape::distributed {

/// Why open_nccl() would fail in this process: there is no GPU, no NCCL, or an old one. Empty if
/// nothing is known against it.
std::string nccl_unavailable_reason();

/// Starts NCCL between the processes of a group. The process uses one GPU: number local_rank,
/// modulo the number of GPUs. Throws Error, with the reason and the remedy, after setup.timeout at
/// the latest. The variable HALFTAPE_NCCL_LIBRARY names another file than libnccl.so.2; with
/// NVIDIA's NCCL_COMM_BLOCKING=1 NCCL itself waits, without limit.
///
/// * Calls go into the GPU's current stream and return at once, but for the first one with a peer,
///   which makes the connection. Messages must lie on that GPU.
/// * all_reduce() is NCCL's, for int8, uint8, int32, int64, float16, bfloat16, float32 and float64.
/// * A thread looks after the calls: if one has not ended on the GPU within its timeout, counted
///   from the end of the one before it, or NCCL has noticed that a peer is gone, the communicator
///   is aborted. The GPU then goes on, with undefined numbers in the tensors of that call; the next
///   call, and check(), throw the reason.
/// * A Graph records the calls of its step, and replays them; all ranks must replay alike. Its
/// trial
///   makes the connections. Replays have no timeout of their own: abort() ends one that waits for a
///   lost peer. Destroy the graph before the group, whose destructor else waits 5 s and aborts.
std::unique_ptr<Engine> open_nccl(const EngineSetup& setup);

}  // namespace halftape::distributed
