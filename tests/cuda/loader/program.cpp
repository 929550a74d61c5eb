// Asks for a GPU and prints the answer. test.sh starts it from folders with planted libraries.
#include <cstdio>

#include "halftape/cuda/cuda.h"

int main() {
  std::puts(halftape::cuda::is_available() ? "available"
                                           : halftape::cuda::unavailable_reason().c_str());
}
