// One thing that a program waits for, timed from outside by benchmarks/cold_start:
//   bench_cold_start print|hello|write|read|load FILE
#include <halftape/halftape.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace halftape;
constexpr int64_t kTensors = 25, kWidth = 1024;  // of float32: 100 MiB

void write(const std::string& file) {
  safetensors::Tensors tensors;
  for (int64_t i = 0; i < kTensors; ++i) tensors.insert(std::to_string(i), randn({kWidth, kWidth}));
  safetensors::save_file(tensors, file);
}

/// What loading cannot be quicker than: into the same memory again and again.
void read(const std::string& file) {
  std::vector<char> piece(1 << 20);
  std::filebuf from;
  from.pubsetbuf(nullptr, 0);
  if (!from.open(file, std::ios::in | std::ios::binary)) std::exit(1);
  while (from.sgetn(piece.data(), static_cast<std::streamsize>(piece.size())) > 0) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "bench_cold_start: see benchmarks/cold_start\n"), 2;
  const std::string what = argv[1], file = argv[2];
  if (what == "write") write(file);
  if (what == "read") read(file);
  if (what == "load" && safetensors::load_file(file).size() != kTensors) return 1;
  if (what == "hello") {
    const Tensor x = ones({4, 4});
    std::cout << matmul(x, x) << std::endl;
  }
  std::cout << what << std::endl;
}
