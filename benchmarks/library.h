// Which library a benchmark measures: the same source builds against LibTorch (benchmarks/compare)
// and against this library.
#pragma once
#ifdef HALFTAPE_BENCH_LIBTORCH
#include "amp.h"
namespace torch {
namespace amp = ::amp;
}
namespace lib = torch;
inline const char* library() { return "libtorch"; }
constexpr bool kHasFloat16 = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204;
struct Scaler : lib::amp::GradScaler {
  Scaler() : GradScaler(lib::kCPU, lib::amp::GradScalerOptions().init_scale(1024)) {}
};
#else
#include <halftape/halftape.h>
namespace lib = halftape;
inline const char* library() { return "halftape"; }
struct Scaler : lib::amp::GradScaler {
  Scaler() : GradScaler({.init_scale = 1024}) {}
};
#endif

/// Autocast on the CPU, where the mode asks for it. BFloat16 is what a user gets. LibTorch 1.13 has
/// no float16 there, and every LibTorch takes the machine's own instructions where there are some.
class Autocast {
 public:
  enum class Mode { Float32, BFloat16, ExactBFloat16, NativeBFloat16, Float16 };
  static bool has(Mode mode) {
#ifdef HALFTAPE_BENCH_LIBTORCH
    return mode != Mode::Float16 || kHasFloat16;
#else
    return mode != Mode::NativeBFloat16 || lib::has_native_bfloat16();
#endif
  }
  static const char* name(Mode mode) {
    return mode == Mode::Float32          ? "float32"
           : mode == Mode::BFloat16       ? "bfloat16"
           : mode == Mode::ExactBFloat16  ? "exact bfloat16"
           : mode == Mode::NativeBFloat16 ? "native bfloat16"
                                          : "float16 + scaler";
  }
  explicit Autocast(Mode mode)
      : guard_(lib::kCPU, mode == Mode::Float16 ? lib::kFloat16 : lib::kBFloat16,
               mode != Mode::Float32) {
#ifndef HALFTAPE_BENCH_LIBTORCH
    static const bool by_default = lib::uses_native_bfloat16();
    lib::set_native_bfloat16(mode == Mode::NativeBFloat16 ||
                             (mode != Mode::ExactBFloat16 && by_default));
#endif
  }

 private:
  lib::amp::autocast guard_;
};

/// Takes subnormal numbers for 0 for a scope, if it is told to.
class FlushDenormal {
 public:
  explicit FlushDenormal(bool on) { set(on); }
  ~FlushDenormal() { set(false); }
  FlushDenormal(const FlushDenormal&) = delete;
  FlushDenormal& operator=(const FlushDenormal&) = delete;

 private:
  static void set(bool on) {
#ifdef HALFTAPE_BENCH_LIBTORCH
    at::globalContext().setFlushDenormal(on);
#else
    lib::set_flush_denormal(on);
#endif
  }
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
