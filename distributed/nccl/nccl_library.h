// NCCL, loaded at run time: neither its header nor its library is needed to build.
#pragma once
#include <cstddef>
#include <string>

namespace halftape::distributed::nccl {

// The part of NCCL's C interface that is used here, as nccl.h of NCCL 2.14 declares it, under
// NVIDIA's names. It has not changed since (compared with that of 2.28.9).

struct ncclComm;  // opaque
using ncclComm_t = ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

/// ncclConfig_t of 2.14. Later ones are longer; NCCL goes by `size` and `version`, and takes its
/// defaults for the rest.
struct ncclConfig_t {
  size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  // 0: calls return ncclInProgress instead of waiting
  int padding = 0;
};

inline constexpr int kLeastVersion = 21400;

/// The functions. `stream` is a cudaStream_t.
struct Library {
  std::string file;
  int version = 0;  // 22809 is 2.28.9

  ncclResult_t (*GetVersion)(int* version) = nullptr;
  ncclResult_t (*GetUniqueId)(ncclUniqueId* id) = nullptr;
  ncclResult_t (*CommInitRankConfig)(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                     ncclConfig_t* config) = nullptr;
  ncclResult_t (*CommFinalize)(ncclComm_t comm) = nullptr;
  ncclResult_t (*CommDestroy)(ncclComm_t comm) = nullptr;
  ncclResult_t (*CommAbort)(ncclComm_t comm) = nullptr;
  ncclResult_t (*CommGetAsyncError)(ncclComm_t comm, ncclResult_t* error) = nullptr;
  const char* (*GetErrorString)(ncclResult_t result) = nullptr;
  const char* (*GetLastError)(ncclComm_t comm) = nullptr;
  ncclResult_t (*GroupStart)() = nullptr;
  ncclResult_t (*GroupEnd)() = nullptr;
  ncclResult_t (*Send)(const void* bytes, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, void* stream) = nullptr;
  ncclResult_t (*Recv)(void* bytes, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       void* stream) = nullptr;
  ncclResult_t (*AllReduce)(const void* from, void* to, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, void* stream) = nullptr;

  /// "unhandled cuda error (…)", with NCCL's own words about the last error.
  std::string text_of(ncclResult_t result) const;
};

/// Loads libnccl.so.2, or the file that HALFTAPE_NCCL_LIBRARY names. Throws Error, with the remedy,
/// if it is not there, is none, or is too old.
Library load();

}  // namespace halftape::distributed::nccl
