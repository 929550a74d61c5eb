// cuBLASLt as its header and its guide describe it; programs link it instead of libcublasLt.
// Products are summed in increasing k, in float32 (float64 for float64), and rounded once. It
// refuses what the real one refuses, and follows the settings where the real one promises nothing:
// * ReLU swallows NaN, as max(x, 0) does.
// * The workspace is overwritten with NaN when the product runs.
// * A bias gradient is overwritten, also when beta is 1.
// * With beta = 0, C is not read.
#include "cublaslt/cublaslt.h"

#include <cstring>

struct cublasLtContext {
  int device;
};

namespace simt::cublaslt {
namespace {

template <class T, class Opaque, class... Fields>
cublasStatus_t make(Opaque* opaque, Fields... fields) {
  new (opaque->data) T{fields...};
  return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Opaque, class... Fields>
cublasStatus_t create(Opaque** made, Fields... fields) {
  if (!made) return CUBLAS_STATUS_INVALID_VALUE;
  *made = new Opaque;
  return make<T>(*made, fields...);
}
template <class Opaque>
cublasStatus_t destroy(Opaque* opaque) {
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

/// A field of a descriptor that is read or written.
struct Field {
  void* address;
  std::size_t size;
};
template <class T>
Field field(T& value) {
  return {&value, sizeof value};
}
cublasStatus_t set(Field f, const void* value, std::size_t size) {
  if (!f.address || !value || size != f.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(f.address, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t get(Field f, void* value, std::size_t size, std::size_t* written) {
  if (written) *written = f.size;
  if (size == 0 && written) return CUBLAS_STATUS_SUCCESS;
  if (!f.address || !value || size != f.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, f.address, size);
  return CUBLAS_STATUS_SUCCESS;
}

Field field_of(Operation& o, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return field(o.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return field(o.scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return field(o.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return field(o.a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return field(o.b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return field(o.c);
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
      return field(o.fill);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return field(o.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return field(o.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return field(o.bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return field(o.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return field(o.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return field(o.aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return field(o.aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return field(o.aux_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return field(o.multiprocessors);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return field(o.fast_accumulation);
    default:
      return {nullptr, 0};
  }
}

Field field_of(Layout& l, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return field(l.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return field(l.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return field(l.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return field(l.columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return field(l.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return field(l.count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return field(l.stride);
    default:
      return {nullptr, 0};
  }
}

Field field_of(Preference& p, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return field(p.search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return field(p.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return field(p.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return field(p.alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return field(p.alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return field(p.alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return field(p.alignment_d);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return field(p.waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return field(p.implementations);
    default:
      return {nullptr, 0};
  }
}

/// As call() for the runtime API.
template <class Body>
cublasStatus_t library_call(Body&& body) {
  const std::lock_guard lock(world().mutex);
  if (settings.devices == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (world().devices[current_device].surfaced != cudaSuccess)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  return body();
}

struct StatusText {
  cublasStatus_t status;
  const char *name, *text;
};
constexpr StatusText kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires a feature absent from the device architecture"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the functionality requested is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR",
     "the functionality requested requires a license"},
};
const StatusText* find_status(cublasStatus_t status) {
  for (const StatusText& s : kStatuses)
    if (s.status == status) return &s;
  return nullptr;
}

}  // namespace
}  // namespace simt::cublaslt

using namespace simt;
using namespace simt::cublaslt;

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  const auto* known = find_status(status);
  return known ? known->name : "unknown";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  const auto* known = find_status(status);
  return known ? known->text : "unknown";
}
const char* cublasGetStatusName(cublasStatus_t status) { return cublasLtGetStatusName(status); }
const char* cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return library_call([&] {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    if (forbidden_by_capture()) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{current_device};
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t o, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (!o || size < sizeof *o) return CUBLAS_STATUS_INVALID_VALUE;
  return make<Operation>(o, compute, scale);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* o, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const std::lock_guard lock(world().mutex);
  ++world().counters.matmul_descriptors;
  return create<Operation>(o, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o) { return destroy(o); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  if (!o) return CUBLAS_STATUS_INVALID_VALUE;
  return set(field_of(in<Operation>(o), attribute), value, size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t size, size_t* written) {
  if (!o) return CUBLAS_STATUS_INVALID_VALUE;
  return get(field_of(in<Operation>(o), attribute), value, size, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  if (!l || size < sizeof *l) return CUBLAS_STATUS_INVALID_VALUE;
  return make<Layout>(l, type, std::int32_t{CUBLASLT_ORDER_COL}, rows, columns, ld);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  return create<Layout>(l, type, std::int32_t{CUBLASLT_ORDER_COL}, rows, columns, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return destroy(l); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t size) {
  if (!l) return CUBLAS_STATUS_INVALID_VALUE;
  return set(field_of(in<Layout>(l), attribute), value, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                void* value, size_t size, size_t* written) {
  if (!l) return CUBLAS_STATUS_INVALID_VALUE;
  return get(field_of(in<Layout>(l), attribute), value, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t size) {
  if (!p || size < sizeof *p) return CUBLAS_STATUS_INVALID_VALUE;
  return make<Preference>(p);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  return create<Preference>(p);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return destroy(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  if (!p) return CUBLAS_STATUS_INVALID_VALUE;
  return set(field_of(in<Preference>(p), attribute), value, size);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void* value, size_t size, size_t* written) {
  if (!p) return CUBLAS_STATUS_INVALID_VALUE;
  return get(field_of(in<Preference>(p), attribute), value, size, written);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  return library_call([&] {
    if (!handle || !o || !a || !b || !c || !d || !preference || wanted < 1 || !results || !found)
      return CUBLAS_STATUS_INVALID_VALUE;
    ++world().counters.heuristics;
    *found = 0;
    const Problem p{in<Operation>(o), in<Layout>(a), in<Layout>(b), in<Layout>(c), in<Layout>(d)};
    if (const auto e = check(p)) return e;
    if (!settings.refuses.when_called && refuse(p)) return cublasStatus_t(settings.refuses.status);
    const Preference& asked = in<Preference>(preference);
    const std::uint32_t item = std::uint32_t(size_of(p.a.type));
    if (asked.alignment_a < item || asked.alignment_b < item ||
        asked.alignment_c < size_of(p.c.type) || asked.alignment_d < size_of(p.d.type))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = {};
    new (results[0].algo.data) Algorithm(algorithm_for(p, asked));
    results[0].workspaceSize = in<Algorithm>(&results[0].algo).workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  return library_call([&] {
    if (!handle || !o || !a_layout || !b_layout || !c_layout || !d_layout)
      return CUBLAS_STATUS_INVALID_VALUE;
    return multiply({in<Operation>(o), in<Layout>(a_layout), in<Layout>(b_layout),
                     in<Layout>(c_layout), in<Layout>(d_layout)},
                    alpha, a, b, beta, c, d, algorithm, workspace, workspace_bytes, stream);
  });
}

}  // extern "C"
