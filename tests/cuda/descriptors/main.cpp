// Every kind of product that the backend asks for, described to the real cuBLASLt: its functions
// for descriptors need no GPU, and refuse attributes and sizes that they do not know.
#include <cstdio>
#include <exception>
#include <initializer_list>

#include "halftape/cuda/gemm/gemm_descriptors.h"

namespace {

using namespace halftape;
using namespace halftape::cuda;

int described = 0;

void describe(const Product& p) {
  for (const bool reduced : {false, true}) {
    const Problem problem = problem_of(p, reduced);
    const Operation o = operation(problem);
    const MatrixLayout d = layout(problem.d, p.count), a = layout(problem.a, p.count),
                       b = layout(problem.b, p.count);
    const Preference wanted = preference(problem, size_t{32} << 20);
    if (vector_of(p)) set(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_of(p));
    if (p.finish.aux) set(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.finish.aux);
    ++described;
  }
}

void describe_all() {
  alignas(16) static char memory[16];
  constexpr std::pair<Dtype, Dtype> kDtypes[] = {{kFloat16, kFloat16},  {kBFloat16, kBFloat16},
                                                 {kFloat16, kFloat32},  {kFloat32, kFloat32},
                                                 {kBFloat16, kFloat32}, {kFloat64, kFloat64}};
  for (const auto& [factors, result] : kDtypes)
    for (const Epilogue e :
         {Epilogue::None, Epilogue::Relu, Epilogue::Gelu, Epilogue::DRelu, Epilogue::DGelu})
      for (const bool vector : {false, true})
        for (const bool aux : {false, true})
          for (const bool turned_a : {false, true})
            for (const bool turned_b : {false, true})
              for (const int64_t count : {1, 3, 32768})
                for (const int64_t m : {1, 10, 256})
                  for (const int64_t n : {1, 10, 256})
                    for (const int64_t k : {1, 784}) {
                      const bool gradient = e == Epilogue::DRelu || e == Epilogue::DGelu,
                                 relu = e == Epilogue::Relu || e == Epilogue::DRelu;
                      Product p{.m = m,
                                .n = n,
                                .k = k,
                                .count = count,
                                .d = {memory, result, n, 1, m * n},
                                .a = {memory, factors, turned_a ? 1 : k, turned_a ? m : 1, m * k},
                                .b = {memory, factors, turned_b ? 1 : n, turned_b ? k : 1, 0},
                                .bias = {},
                                .alpha = 1,
                                .beta = 0};
                      if (vector && !gradient) p.bias = {memory, result, 1};
                      p.finish.epilogue = e;
                      if (vector && (gradient || e == Epilogue::None) && aux)
                        p.bias = {}, p.finish.bias_grad = memory;
                      if (e != Epilogue::None && (aux || gradient))
                        p.finish.aux = memory,
                        p.finish.aux_next = relu ? relu_mask_bytes(n) * 8 : (n + 7) / 8 * 8;
                      describe(p);
                    }
}

}  // namespace

int main() {
  try {
    describe_all();
  } catch (const std::exception& e) {
    std::printf("after %d products: %s\n", described, e.what());
    return 1;
  }
  std::printf("cuBLASLt %zu knows how to describe %d products\n", cublasLtGetVersion(), described);
  return 0;
}
