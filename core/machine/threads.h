// The number of threads of the CPU backend. Results do not depend on it.
#pragma once

namespace halftape {

/// At least 1. By default HALFTAPE_NUM_THREADS, else OMP_NUM_THREADS, else the number of hardware
/// threads that the process may use.
void set_num_threads(int n);
int get_num_threads();

}  // namespace halftape
