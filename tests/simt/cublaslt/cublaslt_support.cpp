// The products that the rig's cuBLASLt refuses, as the real one does.
#include "cublaslt/cublaslt.h"

namespace simt::cublaslt {

std::size_t size_of(int type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF ? 2
         : type == CUDA_R_32F                      ? 4
         : type == CUDA_R_64F                      ? 8
                                                   : 0;
}
bool is_16bit(int type) { return size_of(type) == 2; }

namespace {

bool known_epilogue(std::uint32_t e) {
  for (const auto known :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_AUX,
        CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB})
    if (e == std::uint32_t(known)) return true;
  return false;
}

bool valid(const Layout& l) {
  const std::uint64_t least = l.order == CUBLASLT_ORDER_COL ? l.rows : l.columns;
  return l.rows && l.columns && l.ld >= std::int64_t(least) && l.count >= 1 && l.stride >= 0;
}

cublasStatus_t check_shapes(const Problem& p) {
  const bool turned_a = p.o.a != CUBLAS_OP_N, turned_b = p.o.b != CUBLAS_OP_N;
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (!valid(*l) || l->count != p.d.count) return CUBLAS_STATUS_INVALID_VALUE;
  if ((turned_a ? p.a.columns : p.a.rows) != p.m() ||
      (turned_b ? p.b.rows : p.b.columns) != p.n() ||
      (turned_b ? p.b.columns : p.b.rows) != p.k() || p.c.rows != p.m() || p.c.columns != p.n())
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.d.count > 1 && p.d.stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t check(const Problem& p) {
  if (const auto e = check_shapes(p)) return e;
  const Operation& o = p.o;
  if (!known_epilogue(o.epilogue)) return CUBLAS_STATUS_INVALID_VALUE;
  const Epilogue e(o.epilogue);
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (!size_of(l->type) || (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW))
      return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.a.type != p.b.type || p.c.type != p.d.type || p.c.order != p.d.order ||
      o.c != CUBLAS_OP_N || o.fill != CUBLAS_FILL_MODE_FULL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool doubles = p.a.type == CUDA_R_64F;
  const bool computes =
      doubles ? o.compute == CUBLAS_COMPUTE_64F || o.compute == CUBLAS_COMPUTE_64F_PEDANTIC
              : o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                    (p.a.type == CUDA_R_32F && (o.compute == CUBLAS_COMPUTE_32F_FAST_16F ||
                                                o.compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                                                o.compute == CUBLAS_COMPUTE_32F_FAST_TF32));
  if (!computes || o.scale != (doubles ? CUDA_R_64F : CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.d.type != p.a.type && !(is_16bit(p.a.type) && p.d.type == CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      o.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;

  if (doubles || p.d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e.vector() && o.bias_type != -1 && o.bias_type != p.d.type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // The factor whose rows are summed is ordered so that they are long.
  if ((e.sums_a && o.a != CUBLAS_OP_N) || (e.sums_b && o.b != CUBLAS_OP_T))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((e.sums_a || e.sums_b) && is_16bit(p.a.type) && p.d.type == CUDA_R_32F &&
      !settings.wide_bias_gradients)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e.vector() && p.d.count > 1 && o.bias_stride == 0 && !e.bias)
    return CUBLAS_STATUS_NOT_SUPPORTED;  // bias gradients of a batch would share one vector
  if (e.aux) {
    if (!e.masks() && o.aux_type != -1 && o.aux_type != p.d.type)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.aux_ld % (e.masks() ? 128 : 8) || o.aux_ld < std::int64_t(p.m()))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.d.count > 1 && o.aux_stride == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

namespace {
bool is_among_refused(const Problem& p) {
  switch (settings.refuses.of) {
    case Refusals::Epilogues:
      return p.o.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    case Refusals::Halves:
      return is_16bit(p.a.type);
    case Refusals::All:
      return true;
    default:
      return false;
  }
}
}  // namespace

bool refuse(const Problem& p) {
  if (settings.refuses.left == 0 || !is_among_refused(p)) return false;
  if (settings.refuses.left > 0) --settings.refuses.left;
  return true;
}

std::uint32_t kind_of(const Problem& p) {
  std::uint32_t kind = 0;
  for (const std::uint32_t part :
       {std::uint32_t(p.a.type), std::uint32_t(p.d.type), std::uint32_t(p.o.a),
        std::uint32_t(p.o.b), p.o.epilogue, std::uint32_t(p.d.order)})
    kind = kind * 1000003u + part;
  return kind;
}

constexpr std::uint64_t kWorkspace = 4096;  // bytes, for products with a long sum

Algorithm algorithm_for(const Problem& p, const Preference& wanted) {
  return {.workspace = p.k() >= 64 && wanted.workspace >= kWorkspace ? kWorkspace : 0,
          .alignment_a = wanted.alignment_a,
          .alignment_b = wanted.alignment_b,
          .alignment_c = wanted.alignment_c,
          .alignment_d = wanted.alignment_d,
          .kind = kind_of(p)};
}

}  // namespace simt::cublaslt
