// The number of threads of the CPU backend. Results do not depend on it.
#pragma once

namespace halftape {

/// At least 1. By default the number of hardware threads, or HALFTAPE_NUM_THREADS.
void set_num_threads(int n);
int get_num_threads();

}  // namespace halftape
