// Which engine the processes of a group use: all of them the same.
#pragma once
#include <string>

#include "halftape/distributed/store/store.h"

namespace halftape::distributed {

/// The engine of the group, equal on all ranks: `asked`, or, where that is empty, "nccl" if it
/// would start on all ranks, else "gloo". `nccl_obstacle` is why it would not start here; empty if
/// it would. Throws Error on all ranks, naming the rank, if the ranks ask for different engines, or
/// for NCCL where one of them has none.
std::string agreed_backend(const std::string& asked, const std::string& nccl_obstacle, int rank,
                           int size, Store& store);

}  // namespace halftape::distributed
