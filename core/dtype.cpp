#include "halftape/core/dtype.h"

namespace halftape {

std::string_view name(Dtype d) {
  constexpr std::string_view names[] = {"bool",    "uint8",    "int32",   "int64",
                                        "float16", "bfloat16", "float32", "float64"};
  return names[static_cast<size_t>(d)];
}

std::ostream& operator<<(std::ostream& out, Dtype d) { return out << name(d); }

Dtype promote(Dtype a, Dtype b) {
  constexpr auto B = Dtype::Bool, U = Dtype::UInt8, I = Dtype::Int32, L = Dtype::Int64,
                 H = Dtype::Float16, F = Dtype::BFloat16, S = Dtype::Float32, D = Dtype::Float64;
  constexpr Dtype table[8][8] = {
      //          bool u8 i32 i64 f16 bf16 f32 f64
      /* bool  */ {B, U, I, L, H, F, S, D},
      /* uint8 */ {U, U, I, L, H, F, S, D},
      /* int32 */ {I, I, I, L, H, F, S, D},
      /* int64 */ {L, L, L, L, H, F, S, D},
      /* f16   */ {H, H, H, H, H, S, S, D},
      /* bf16  */ {F, F, F, F, S, F, S, D},
      /* f32   */ {S, S, S, S, S, S, S, D},
      /* f64   */ {D, D, D, D, D, D, D, D},
  };
  return table[static_cast<size_t>(a)][static_cast<size_t>(b)];
}

}  // namespace halftape
