// A small MLP's loss and its gradients in one kernel (mlp_tiles.cuh). A second kernel adds up the
// sums of the first one's blocks, and does the work of a GradScaler.
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/unary.h"
#include "halftape/cuda/fused.h"
#include "halftape/cuda/mlp/mlp_tiles.cuh"
#include "halftape/cuda/runtime/last_block.cuh"
#include "halftape/cuda/update/scaler.cuh"

namespace halftape::cuda {
namespace {

/// A gradient or the loss: its place in the sums of a block, and the array for the total.
struct Output {
  char* to;  // null: not wanted
  Dtype dtype;
  float factor;
  int64_t end;
  int64_t position;  // in a GradientCheck; −1 if it is not checked
};
struct Outputs {
  Output list[2 * kFewLayers + 1];
  int count;
};

/// A GradScaler's scaled loss and check of gradients. The last block scales the loss.
struct LossCheck {
  bool scales = false, checks = false, divides = false;
  ScaledLoss scaling = {};
  const float* inverse = nullptr;  // null: 1 / the scale
  float* found_inf = nullptr;
  unsigned long long* first = nullptr;      // or null
  unsigned long long* first_bad = nullptr;  // the first gradient that is not finite, or kNone
  BlockCounter counter = {};

  __device__ void check(char* at, const Output& output) const {
    if (!checks || output.position < 0) return;
    const float by = inverse ? *inverse : 1 / *scaling.scale;
    if (check_element<float>(at, output.dtype, by, divides))
      atomicMin(first_bad, static_cast<unsigned long long>(output.position));
  }
  /// Called by one thread, after all blocks.
  __device__ void conclude() const {
    scaling.run<float>();
    if (!checks || *first_bad == kNone) return;
    *found_inf = 1;
    if (first && *first_bad < *first) *first = *first_bad;
  }
};

constexpr int kSlices = kThreads / kWarp;

/// Every block adds up 32 numbers; each of its warps takes the sums of every eighth block.
__global__ void add_blocks(const float* sums, int blocks, int64_t width,
                           const __grid_constant__ Outputs outputs,
                           const __grid_constant__ LossCheck loss_check) {
  __shared__ float of_slices[kSlices][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            slice = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t at = int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (at < width) {
#pragma unroll 8
    for (int b = slice; b < blocks; b += kSlices) sum += sums[b * width + at];
  }
  of_slices[slice][lane] = sum;
  __syncthreads();
  if (slice == 0 && at < width) {
    for (int s = 1; s < kSlices; ++s) sum += of_slices[s][lane];
    int i = 0;
    int64_t begin = 0;
    while (at >= outputs.list[i].end) begin = outputs.list[i++].end;
    const Output& output = outputs.list[i];
    if (output.to) {
      char* const to = output.to + (at - begin) * static_cast<int64_t>(element_size(output.dtype));
      store(to, output.dtype, sum * output.factor);
      loss_check.check(to, output);
    }
  }
  if (loss_check.scales && loss_check.counter.is_last() && threadIdx.x == 0) loss_check.conclude();
}

// ---------------------------------------------------------------- what is launched

char* bytes(const Array& a) { return a.defined() ? static_cast<char*>(a.raw()) : nullptr; }
Array entry(const std::vector<Array>& list, size_t l) { return list.empty() ? Array() : list[l]; }

std::optional<Activation> activation_of(const std::optional<OpId>& op) {
  if (!op) return Activation::None;
  if (*op == UnaryOps::index<formula::Relu>()) return Activation::Relu;
  if (*op == UnaryOps::index<formula::GeluTanh>()) return Activation::Gelu;
  if (*op == UnaryOps::index<formula::Silu>()) return Activation::Silu;
  if (*op == UnaryOps::index<formula::Tanh>()) return Activation::Tanh;
  if (*op == UnaryOps::index<formula::Sigmoid>()) return Activation::Sigmoid;
  return {};
}

/// True if the checked list holds only gradients that this call computes, each once.
bool all_found(const Outputs& outputs, const GradientCheck* check) {
  if (!check) return true;
  const auto wanted = std::count_if(check->grads.begin(), check->grads.end(),
                                    [](const Array& g) { return g.defined(); });
  const auto found = std::count_if(outputs.list, outputs.list + outputs.count,
                                   [](const Output& g) { return g.position >= 0; });
  return found == wanted && check->inv_scale.defined();
}

unsigned long long* position(const Array& a) {
  return a.defined() ? static_cast<unsigned long long*>(a.raw()) : nullptr;
}
LossCheck make_loss_check(const Queue& q, const CheckedScale* scaling, const GradientCheck* check,
                          const Array& first_bad) {
  LossCheck loss_check;
  if (!scaling) return loss_check;
  loss_check.scales = true;
  loss_check.scaling = scaled_loss(*scaling);
  loss_check.counter = block_counter(q);
  if (!check) return loss_check;
  loss_check.checks = true;
  loss_check.divides = check->divides;
  if (check->inv_scale.raw() != loss_check.scaling.inverse)
    loss_check.inverse = check->inv_scale.data<float>();
  loss_check.found_inf = check->found_inf.data<float>();
  loss_check.first = position(check->first), loss_check.first_bad = position(first_bad);
  if (check->divides)
    for (const Array& g : check->grads)
      if (g.defined()) g.bump_version();
  return loss_check;
}

/// The kernel of a Task and its launch.
struct Plan {
  void (*kernel)(Task) = nullptr;
  int rows = 0;      // of a tile: 16 for each warp
  size_t bytes = 0;  // of shared memory
};

/// Lays out the shared memory for tiles of so many rows; returns its bytes.
size_t place(Task& task, int rows, bool resident, int room_for_biases) {
  int at = 0;
  const auto take = [&](int elements) { return std::exchange(at, at + elements); };
  task.resident = resident;
  int largest = 0;
  for (int l = 0; l < task.count; ++l) {
    Layer& o = task.layers[l];
    const int size = padded(o.out) * stride_of(o.in);
    largest = std::max(largest, size);
    o.weight_at = resident ? take(size) : 0;
  }
  if (!resident) take(largest);
  task.other_input_at = take(rows * stride_of(task.layers[0].in));
  int shared_slopes[2] = {-1, -1}, widest[2] = {0, 0};  // of every other layer
  for (int l = 0; l < task.count; ++l)
    widest[l % 2] = std::max(widest[l % 2], rows * stride_of(task.layers[l].out));
  for (int l = 0; l < task.count; ++l) {
    Layer& o = task.layers[l];
    o.input_at = l == 0 || task.gradients ? take(rows * stride_of(o.in)) : 0;
    if (!task.gradients) continue;
    if (task.saves_input) {
      o.slope_at = take(rows * stride_of(o.out));
      continue;
    }
    int& mine = shared_slopes[l % 2];
    if (mine < 0) mine = take(widest[l % 2]);
    o.slope_at = mine;
  }
  task.biases_at = take(2 * (task.count * room_for_biases + kMostRows / 16));
  return static_cast<size_t>(at) * 2;
}

/// The first plan that fits into `room` bytes of shared memory; no kernel if none does.
Plan plan_of(Task& task, Dtype dtype, size_t room, int widest) {
  const bool half = dtype == kFloat16;
  for (const int rows : {kMostRows, kMostRows / 2, kMostRows / 4}) {
    const bool kept = widest <= kKeptWidth && task.count <= kKeptLayers && rows == kMostRows;
    for (const bool resident : {true, false}) {
      const size_t bytes = place(task, rows, resident, kept ? kKeptWidth : int{kSmallWidth});
      if (bytes > room) continue;
      if (kept)
        return {half ? mlp_tiles<Half, kKeptWidth> : mlp_tiles<BFloat16, kKeptWidth>, rows, bytes};
      return {half ? mlp_tiles<Half, kSmallWidth> : mlp_tiles<BFloat16, kSmallWidth>, rows, bytes};
    }
  }
  return {};
}

/// The position of a gradient in the checked list; −1 if it is not there.
int64_t position_of(const Array& gradient, const GradientCheck* check) {
  if (!check || !gradient.defined()) return -1;
  for (size_t i = 0; i < check->grads.size(); ++i) {
    const Array& g = check->grads[i];
    if (g.defined() && g.raw() == gradient.raw() && g.dtype() == gradient.dtype() &&
        g.numel() == gradient.numel())
      return static_cast<int64_t>(i);
  }
  return -1;
}

bool usable(const Array& a) { return !a.defined() || (packs(a.dtype()) && a.contiguous()); }

bool is_supported(const MlpLoss& m, const cudaDeviceProp& gpu) {
  if (!is_small(m) || !m.x.contiguous() || !m.target.contiguous()) return false;
  if (m.target.dtype() != kInt64 && !packs(m.target.dtype())) return false;
  if (!packs(m.x.dtype())) return false;
  if (m.dx.defined() && !(m.dx.contiguous() && m.dx.dtype() == m.dtype())) return false;
  return m.dtype() != kBFloat16 || gpu.major >= 8;  // older ones do not multiply bfloat16
}

/// Without its places in shared memory, which place() finds.
Layer layer_of(const Array& w, const Array& b, int gradient_at) {
  return {.weight = bytes(w),
          .bias = bytes(b),
          .weight_dtype = w.dtype(),
          .bias_dtype = b.defined() ? b.dtype() : kFloat32,
          .in = static_cast<int>(w.size(1)),
          .out = static_cast<int>(w.size(0)),
          .weight_at = 0,
          .input_at = 0,
          .slope_at = 0,
          .gradient_at = gradient_at};
}

/// Blocks of the plan's kernel that a multiprocessor runs at once. CUDA is asked once for each GPU.
int resident_blocks(const Context& context, const Plan& plan) {
  using Question = std::tuple<DeviceIndex, const void*, int, size_t>;
  static auto* const known = new std::map<Question, int>;  // NOLINT: for ever, as contexts are
  static std::mutex mutex;
  const auto* const kernel = reinterpret_cast<const void*>(plan.kernel);
  const std::lock_guard lock(mutex);
  const Question question{context.index(), kernel, plan.rows, plan.bytes};
  if (const auto answer = known->find(question); answer != known->end()) return answer->second;
  // The limit is the kernel's: a smaller one could reach another thread's launch of a larger
  // network.
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(context.properties().sharedMemPerBlockOptin)),
        "mlp_loss");
  int blocks = 1;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 2 * plan.rows, plan.bytes),
        "mlp_loss");
  known->emplace(question, blocks);
  return blocks;
}

/// The number of blocks that the GPU runs at once, at most two on a multiprocessor and one for each
/// tile.
int64_t blocks_for_tiles(const Queue& q, const Plan& plan, int64_t rows) {
  const int64_t tiles = (rows + plan.rows - 1) / plan.rows;
  return std::min(tiles, int64_t{q.context.multiprocessors()} *
                             std::clamp(resident_blocks(q.context, plan), 1, 2));
}

}  // namespace

bool mlp_loss_fused(const MlpLoss& m, const CheckedScale* scaling, const GradientCheck* checked) {
  const auto activation = activation_of(m.activation);
  const cudaDeviceProp& gpu = Context::of(m.x).properties();
  if (!activation || !is_supported(m, gpu)) return false;
  const bool classes = m.target.dtype() == kInt64;

  Task task{};
  Outputs outputs{};
  task.count = static_cast<int>(m.weights.size());
  task.activation = *activation;
  task.saves_input = *activation == Activation::Gelu || *activation == Activation::Silu;
  task.gradients = m.dx.defined();
  int widest = 0;
  const auto add_output = [&](const Array& to, int64_t count, float factor) {
    task.width += count;
    outputs.list[outputs.count++] = {bytes(to), to.defined() ? to.dtype() : kFloat32, factor,
                                     task.width, position_of(to, checked)};
  };
  for (size_t l = 0; l < m.weights.size(); ++l) {
    const Array& w = m.weights[l];
    const Array b = entry(m.biases, l), dw = entry(m.dweights, l), db = entry(m.dbiases, l);
    for (const Array* a : {&w, &b, &dw, &db})
      if (!usable(*a)) return false;
    task.gradients = task.gradients || dw.defined() || db.defined();
    const Layer& o = task.layers[l] = layer_of(w, b, static_cast<int>(task.width));
    widest = std::max({widest, padded(o.in), padded(o.out)});
    add_output(dw, w.numel(), 1);
    add_output(db, o.out, 1);
  }
  if (!task.gradients) task.width = 0, outputs.count = 0;
  if (!all_found(outputs, checked)) return false;
  const int out = task.layers[task.count - 1].out;
  task.rows = m.x.size(0);
  const float mean = 1 / static_cast<float>(classes ? task.rows : task.rows * out);
  add_output(m.loss, 1, mean);

  const Plan plan = plan_of(task, m.dtype(), gpu.sharedMemPerBlockOptin, widest);
  if (!plan.kernel) return false;
  task.classes = classes;
  task.x_dtype = m.x.dtype(), task.target_dtype = m.target.dtype();
  task.target_bytes = static_cast<int64_t>(element_size(m.target.dtype())) * (classes ? 1 : out);
  task.x = bytes(m.x), task.target = bytes(m.target), task.dx = bytes(m.dx);
  task.g = m.g.defined() ? m.g.data<float>() : nullptr;
  task.factor = classes ? mean : 2 * mean;
  const Queue q = queue(m.x);
  task.range = {0, out, {"mlp_loss", "target"}, q.context.board()};

  const auto threads = static_cast<unsigned>(2 * plan.rows);
  const int64_t blocks = blocks_for_tiles(q, plan, task.rows);
  const Array sums({blocks, task.width}, kFloat32, m.x.device());
  task.sums = sums.data<float>();
  const Array first_bad = checked ? Array({}, kInt64, m.x.device()) : Array();
  const LossCheck loss_check = make_loss_check(q, scaling, checked, first_bad);
  task.first_bad = loss_check.first_bad;
  launch(q, "mlp_loss", plan.kernel, static_cast<unsigned>(blocks), threads, plan.bytes, task);
  if (!task.gradients && !m.loss.defined()) return true;
  launch(q, "mlp_loss sums", add_blocks, static_cast<unsigned>((task.width + kWarp - 1) / kWarp),
         kThreads, 0, task.sums, static_cast<int>(blocks), task.width, outputs, loss_check);
  return true;
}

}  // namespace halftape::cuda
