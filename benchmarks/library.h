// Which library a benchmark measures: the same source builds against LibTorch (benchmarks/compare)
// and against this library.
#pragma once
#ifdef HALFTAPE_BENCH_LIBTORCH
#include <ATen/autocast_mode.h>
#include <torch/torch.h>
namespace lib = torch;
inline const char* library() { return "libtorch"; }
#else
#include <halftape/halftape.h>
namespace lib = halftape;
inline const char* library() { return "halftape"; }
#endif

/// Autocast on the CPU, where the mode asks for it. LibTorch 1.13 has no float16 there, and its
/// bfloat16 is always the machine's own, where that has one.
class Autocast {
 public:
  enum class Mode { Float32, BFloat16, NativeBFloat16, Float16 };
  static bool has(Mode mode) {
#ifdef HALFTAPE_BENCH_LIBTORCH
    return mode != Mode::Float16;
#else
    return mode != Mode::NativeBFloat16 || lib::has_native_bfloat16();
#endif
  }
  static const char* name(Mode mode) {
    return mode == Mode::Float32          ? "float32"
           : mode == Mode::BFloat16       ? "bfloat16"
           : mode == Mode::NativeBFloat16 ? "native bfloat16"
                                          : "float16 + scaler";
  }
#ifdef HALFTAPE_BENCH_LIBTORCH
  explicit Autocast(Mode mode) : before_(at::autocast::is_cpu_enabled()) {
    at::autocast::set_cpu_enabled(mode != Mode::Float32);
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_cpu_enabled(before_);
  }

 private:
  bool before_;
#else
  explicit Autocast(Mode mode)
      : guard_(lib::kCPU, mode == Mode::Float16 ? lib::kFloat16 : lib::kBFloat16,
               mode != Mode::Float32) {
    if (lib::has_native_bfloat16()) lib::set_native_bfloat16(mode == Mode::NativeBFloat16);
  }

 private:
  lib::amp::autocast guard_;
#endif
};

/// Numbers that are the same everywhere: from −size to size.
class FixedNumbers {
 public:
  void fill(const lib::Tensor& t, double size) {
    float* x = t.template data_ptr<float>();
    for (int64_t i = 0; i < t.numel(); ++i) {
      state_ = state_ * 1664525 + 1013904223;
      x[i] = static_cast<float>(size * (static_cast<double>(state_) * 0x1p-31 - 1));
    }
  }

 private:
  uint32_t state_ = 1;
};
