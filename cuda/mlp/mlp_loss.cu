// A small MLP's loss and its gradients in one kernel, and a second that adds up what its blocks
// have, and may be a GradScaler's eyes. Each warp takes 16 rows through the layers and back in its
// registers: the outputs of one product are the operand of the next. What all rows of a tile give
// to a weight's gradient is a product across them, from shared memory.
//
// Of few, narrow layers the gradients stay in registers from tile to tile (kKept); others are added
// to the block's own sums in memory. After Müller 2021, "Real-time neural radiance caching",
// arXiv:2106.12372, section 4, which keeps the activations on the chip in the same way.
#include <algorithm>
#include <limits>
#include <utility>

#include "halftape/core/contract/mlp_loss_unfused.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"
#include "halftape/cuda/fused.h"
#include "halftape/cuda/mlp/mlp_tile.cuh"
#include "halftape/cuda/runtime/last_block.cuh"
#include "halftape/cuda/update/scaler.cuh"

namespace halftape::cuda {
namespace {

template <class T, int kWidth>
__global__ __launch_bounds__(2 * kMostRows, 1) void mlp_tiles(const __grid_constant__ Task task) {
  constexpr int K = kWidth / 16, kKept = kWidth <= kKeptWidth ? kKeptLayers : 0;
  T* const shared = reinterpret_cast<T*>(dynamic_shared());
  float* const biases = reinterpret_cast<float*>(shared + task.biases_at);
  const Lane lane;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp, tile = 16 * warps;
  const int last = task.count - 1;
  if (task.first_bad && blockIdx.x == 0 && threadIdx.x == 0) *task.first_bad = kNone;

  const auto stage_weight = [&](int l) {
    const Layer& o = task.layers[l];
    stage(shared + o.weight_at, o.weight, o.weight_dtype, 0, o.out, padded(o.out), o.in);
  };
  // A tile's x on its way into shared memory, and its targets into the cache.
  const auto stage_rows = [&](int64_t number, int at) {
    stage(shared + at, task.x, task.x_dtype, number * tile, task.rows, tile, task.layers[0].in);
    const int64_t begin = number * tile * task.target_bytes,
                  end = (number + 1) * tile < task.rows ? begin + tile * task.target_bytes
                                                        : task.rows * task.target_bytes;
    for (int64_t i = begin + 128 * int64_t{threadIdx.x}; i < end; i += 128 * int64_t{blockDim.x})
      prefetch(task.target + i);
  };
  for (int l = 0; l < task.count; ++l) {
    const Layer& o = task.layers[l];
    for (int i = static_cast<int>(threadIdx.x); i < kWidth; i += static_cast<int>(blockDim.x)) {
      float b = 0;
      if (o.bias && i < o.out)
        b = load_real(o.bias + i * static_cast<int>(element_size(o.bias_dtype)), o.bias_dtype);
      biases[l * kWidth + i] = as<float>(as<T>(b));
    }
    if (task.resident) stage_weight(l);
  }
  int held = -1;  // whose weight is there, when there is one at a time
  const auto weight_of = [&](int l) {
    if (!task.resident && held != l) {
      __syncthreads();
      stage_weight(l);
      cp_async_wait();
      __syncthreads();
      held = l;
    }
    return shared + task.layers[l].weight_at;
  };

  float kept[kKept ? kKept : 1][4][4] = {}, kept_biases[kKept ? kKept : 1][2] = {};
  float* const sums = task.sums + blockIdx.x * task.width;
  const float by = (task.g ? *task.g : 1) * task.factor;
  float lost = 0;
  int x_at = task.layers[0].input_at, other_at = task.other_input_at;
  stage_rows(blockIdx.x, x_at);
  for (int64_t number = blockIdx.x; number * tile < task.rows; number += gridDim.x) {
    cp_async_wait();
    __syncthreads();  // this tile's x is there, and nobody reads the last one's any more
    const int64_t next_number = number + gridDim.x;
    if (next_number * tile < task.rows) stage_rows(next_number, other_at);
    const T* const x = shared + x_at;
    x_at = std::exchange(other_at, x_at);
    const int own = 16 * warp + lane.g;
    const int64_t row0 = number * tile + own;
    const auto live = [&](int h) { return row0 + 8 * h < task.rows; };

    // Forward: a is what a layer reads, then what it gives.
    unsigned a[K][4] = {}, next[K][4] = {};
    const auto advance = [&] {
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[k][i] = next[k][i];
    };
    {
      const int in = task.layers[0].in;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (16 * k >= padded(in)) break;
        load_matrices<false>(a[k],
                             &x[(16 * warp + lane.down8) * stride_of(in) + 16 * k + lane.across8]);
      }
    }
    const int out = task.layers[last].out;
    int64_t target[2] = {-1, -1};  // classes; −1: of no row
    LogSum total[2];
    float hit[2] = {0, 0};  // the target's output
    if (task.classes) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!live(h)) continue;
        target[h] = reinterpret_cast<const int64_t*>(task.target)[row0 + 8 * h];
        if (task.range.holds(target[h])) continue;
        if (lane.t == 0) task.range.report(target[h], row0 + 8 * h);
        target[h] = -1;
      }
    }
    // Of classes the outputs are computed twice: for the sums of their rows, and for what follows.
    bool measured = !task.classes;
    for (int l = 0;;) {
      const Layer& o = task.layers[l];
      const int stride = stride_of(o.out);
      const auto hidden = [&](int j, const float(&c)[4][4], bool both) {
        T* const outputs = shared + task.layers[l + 1].input_at + own * stride + lane.t;
        T* const inputs = shared + o.slope_at + own * stride + lane.t;
        each_activation<T>(next, j, c, both, stride, task.activation,
                           [&](auto t, int at, int h, float u, float v) -> unsigned {
                             using Op = typename decltype(t)::type;
                             const unsigned y =
                                 live(h) ? pair_of<T>(Op::f(u), Op::f(v)) : 0;  // 0: of no row
                             if (task.gradients) *reinterpret_cast<unsigned*>(outputs + at) = y;
                             if (Op::saves == Saves::Input && task.gradients)
                               *reinterpret_cast<unsigned*>(inputs + at) = pair_of<T>(u, v);
                             return y;
                           });
      };
      const auto measure = [&](int j, const float(&c)[4][4], bool both) {
        const auto each = [&](const auto& f) {
          each_pair(both, [&](int q, int h) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int number_of = 32 * j + 8 * q + lane.t + i;
              if (number_of < out) f(number_of, h, c[q][2 * h + i]);
            }
          });
        };
        float top[2] = {total[0].top, total[1].top};
        each([&](int, int h, float v) { top[h] = formula::Max::step(top[h], v); });
        total[0].rise(top[0]), total[1].rise(top[1]);
        each([&](int i, int h, float v) {
          if (top[h] != -std::numeric_limits<float>::infinity()) total[h].sum += exp(v - top[h]);
          if (i == target[h]) hit[h] = v;
        });
      };
      const auto compare = [&](int j, const float(&c)[4][4], bool both) {
        const auto item = static_cast<int64_t>(element_size(task.target_dtype));
        T* const slope = shared + o.slope_at + own * stride + lane.t;
        each_pair(both, [&](int q, int h) {
          float e[2] = {0, 0};
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int number_of = 32 * j + 8 * q + lane.t + i;
            const float y = c[q][2 * h + i];
            if (number_of >= out || !live(h)) continue;
            if (task.classes) {
              if (target[h] >= 0)
                e[i] = exp(y - total[h].top) / total[h].sum - (number_of == target[h] ? 1.f : 0.f);
            } else {
              const int64_t at = (row0 + 8 * h) * out + number_of;
              e[i] = y - load_real(task.target + at * item, task.target_dtype);
              lost += e[i] * e[i];
            }
          }
          const unsigned d = pair_of<T>(e[0] * by, e[1] * by);
          next[2 * j + q / 2][q % 2 * 2 + h] = d;
          if (task.gradients)
            *reinterpret_cast<unsigned*>(slope + 8 * h * stride + 32 * j + 8 * q) = d;
        });
      };
      multiply<false>(a, padded(o.in), weight_of(l), stride_of(o.in), padded(o.out),
                      biases + l * kWidth, lane, [&](int j, const float(&c)[4][4], bool both) {
                        if (l < last)
                          hidden(j, c, both);
                        else if (!measured)
                          measure(j, c, both);
                        else
                          compare(j, c, both);
                      });
      if (l < last) {
        advance();
        ++l;
        continue;
      }
      if (measured) break;
      measured = true;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {  // the four lanes of a row
          total[h].join({__shfl_xor_sync(kWholeWarp, total[h].top, d),
                         __shfl_xor_sync(kWholeWarp, total[h].sum, d)});
          hit[h] += __shfl_xor_sync(kWholeWarp, hit[h], d);
        }
        if (target[h] >= 0 && lane.t == 0)
          lost += halftape::log(total[h].sum) - (hit[h] - total[h].top);
      }
      if (!task.gradients) break;
    }
    if (!task.gradients) continue;

    // Backward: a is the gradient at what a layer gives.
    advance();
    for (int l = last; l >= 0; --l) {
      const Layer& o = task.layers[l];
      const T* const d = shared + o.slope_at;
      const T* const h_in = l == 0 ? x : shared + o.input_at;
      __syncthreads();  // all rows of the gradient are there
      WarpPart part;
      for (int unit = warp; part.take(unit, warps, o); unit += warps) {
        if constexpr (kKept > 0) {
#pragma unroll
          for (int s = 0; s < kKept; ++s) {
            if (s != l) continue;
            float ones[4] = {};
            across_rows<T, 4>(kept[s], ones, d, stride_of(o.out), h_in, stride_of(o.in), part.row,
                              part.begin, part.end, tile, part.begin == 0, lane);
            kept_biases[s][0] += ones[0], kept_biases[s][1] += ones[2];
          }
        } else {
          const bool add = number != blockIdx.x;
          for (int begin = part.begin; begin < part.end; begin += 64) {
            float acc[8][4] = {}, ones[4] = {};
            across_rows<T, 8>(acc, ones, d, stride_of(o.out), h_in, stride_of(o.in), part.row,
                              begin, part.end, tile, begin == 0, lane);
            put(sums, acc, o, part.row, begin, part.end, add, lane);
            if (begin == 0) put_bias(sums, ones[0], ones[2], o, part.row, add, lane);
          }
        }
      }
      if (l == 0 && !task.dx) break;
      const int stride = stride_of(o.in);
      T* const below = shared + (l == 0 ? 0 : task.layers[l - 1].slope_at) + own * stride + lane.t;
      const T* const saved = task.saves_input ? below : shared + o.input_at + own * stride + lane.t;
      multiply<true>(
          a, padded(o.out), weight_of(l), stride, padded(o.in), nullptr, lane,
          [&](int j, const float(&c)[4][4], bool both) {
            if (l == 0) {
              each_pair(both, [&](int q, int h) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                  const int column = 32 * j + 8 * q + lane.t + i;
                  if (!live(h) || column >= o.in) continue;
                  reinterpret_cast<T*>(task.dx)[(row0 + 8 * h) * o.in + column] =
                      as<T>(c[q][2 * h + i]);
                }
              });
              return;
            }
            each_activation<T>(
                next, j, c, both, stride, task.activation,
                [&](auto t, int at, int h, float u, float v) -> unsigned {
                  using Op = typename decltype(t)::type;
                  const unsigned s = *reinterpret_cast<const unsigned*>(saved + at);
                  const unsigned y =
                      live(h) ? pair_of<T>(Op::df(u, low_of<T>(s)), Op::df(v, high_of<T>(s))) : 0;
                  *reinterpret_cast<unsigned*>(below + at) = y;
                  return y;
                });
          });
      advance();
    }
  }

  if constexpr (kKept > 0) {
#pragma unroll
    for (int l = 0; l < kKept; ++l) {
      WarpPart part;
      if (!task.gradients || l > last || !part.take(warp, warps, task.layers[l])) continue;
      put(sums, kept[l], task.layers[l], part.row, part.begin, part.end, false, lane);
      if (part.begin == 0)
        put_bias(sums, kept_biases[l][0], kept_biases[l][1], task.layers[l], part.row, false, lane);
    }
  }
  for (int d = 1; d < kWarp; d *= 2) lost += __shfl_xor_sync(kWholeWarp, lost, d);
  float* const of_warps = biases + task.count * kWidth;
  if (threadIdx.x % kWarp == 0) of_warps[warp] = lost;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < warps; ++w) lost += of_warps[w];
  sums[task.width - 1] = lost;
}

/// A gradient, or the loss: where the block's sums for it end, and where their sum goes.
struct Goal {
  char* to;  // null: nowhere
  Dtype dtype;
  float factor;
  int64_t end;
  int64_t position;  // in a GradientCheck; −1: it is none of its gradients
};
struct Goals {
  Goal goals[2 * kFewLayers + 1];
  int count;
};

/// What a GradScaler asks for besides, by the last block but for looking at gradients.
struct LossCheck {
  bool scales = false, checks = false, divides = false;
  ScaledLoss scaling = {};
  const float* inverse = nullptr;  // null: of the scaling's scale
  float* found_inf = nullptr;
  unsigned long long* first = nullptr;      // or null
  unsigned long long* first_bad = nullptr;  // of the gradients so far; kNone at first
  LastBlock ticket = {};

  __device__ void look(char* at, const Goal& goal) const {
    if (!checks || goal.position < 0) return;
    const float by = inverse ? *inverse : 1 / *scaling.scale;
    if (judge_element<float>(at, goal.dtype, by, divides))
      atomicMin(first_bad, static_cast<unsigned long long>(goal.position));
  }
  /// By one thread, when all else is done.
  __device__ void conclude() const {
    scaling.run<float>();
    if (!checks || *first_bad == kNone) return;
    *found_inf = 1;
    if (first && *first_bad < *first) *first = *first_bad;
  }
};

constexpr int kSlices = kThreads / kWarp;

/// Every block of this kernel takes 32 numbers, each of its warps every eighth block's sums of
/// them.
__global__ void add_blocks(const float* sums, int blocks, int64_t width,
                           const __grid_constant__ Goals goals,
                           const __grid_constant__ LossCheck judge) {
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
    while (at >= goals.goals[i].end) begin = goals.goals[i++].end;
    const Goal& goal = goals.goals[i];
    if (goal.to) {
      char* const to = goal.to + (at - begin) * static_cast<int64_t>(element_size(goal.dtype));
      store(to, goal.dtype, sum * goal.factor);
      judge.look(to, goal);
    }
  }
  if (judge.scales && judge.ticket.last_block() && threadIdx.x == 0) judge.conclude();
}

// ---------------------------------------------------------------- what is launched

char* bytes(const Array& a) { return a.defined() ? static_cast<char*>(a.raw()) : nullptr; }
Array entry(const std::vector<Array>& list, size_t l) { return list.empty() ? Array() : list[l]; }

std::optional<Between> between(const std::optional<OpId>& op) {
  if (!op) return Between::Nothing;
  if (*op == UnaryOps::index<formula::Relu>()) return Between::Relu;
  if (*op == UnaryOps::index<formula::GeluTanh>()) return Between::Gelu;
  if (*op == UnaryOps::index<formula::Silu>()) return Between::Silu;
  if (*op == UnaryOps::index<formula::Tanh>()) return Between::Tanh;
  if (*op == UnaryOps::index<formula::Sigmoid>()) return Between::Sigmoid;
  return {};
}

/// Does the list that is checked consist of gradients that are computed, each once?
bool all_found(const Goals& goals, const GradientCheck* check) {
  if (!check) return true;
  const auto wanted = std::count_if(check->grads.begin(), check->grads.end(),
                                    [](const Array& g) { return g.defined(); });
  const auto found = std::count_if(goals.goals, goals.goals + goals.count,
                                   [](const Goal& g) { return g.position >= 0; });
  return found == wanted && check->inv_scale.defined();
}

unsigned long long* position(const Array& a) {
  return a.defined() ? static_cast<unsigned long long*>(a.raw()) : nullptr;
}
LossCheck judge_of(const Queue& q, const LossScaling* scaling, const GradientCheck* check,
                   const Array& first_bad) {
  LossCheck judge;
  if (!scaling) return judge;
  judge.scales = true;
  judge.scaling = scaled_loss(*scaling);
  judge.ticket = ticket(q);
  if (!check) return judge;
  judge.checks = true;
  judge.divides = check->divides;
  if (check->inv_scale.raw() != judge.scaling.inverse)
    judge.inverse = check->inv_scale.data<float>();
  judge.found_inf = check->found_inf.data<float>();
  judge.first = position(check->first), judge.first_bad = position(first_bad);
  if (check->divides)
    for (const Array& g : check->grads)
      if (g.defined()) g.bump_version();
  return judge;
}

/// How a Task is carried out.
struct Plan {
  void (*kernel)(Task) = nullptr;
  int rows = 0;      // at a time: 16 for each warp
  size_t bytes = 0;  // of shared memory
};

/// Places everything in shared memory for tiles of so many rows; gives the bytes that it takes.
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

/// The first that there is room for; none if there is not.
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

/// Where a gradient stands in what is checked; −1 for nowhere.
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

}  // namespace

bool mlp_loss_at_once(const MlpLoss& m, const LossScaling* scaling, const GradientCheck* checked) {
  const auto activation = between(m.activation);
  if (!is_small(m) || !activation || !m.x.contiguous() || !m.target.contiguous()) return false;
  const bool classes = m.target.dtype() == kInt64;
  if (!classes && !packs(m.target.dtype())) return false;
  if (!packs(m.x.dtype())) return false;
  if (m.dx.defined() && !(m.dx.contiguous() && m.dx.dtype() == m.dtype())) return false;
  const cudaDeviceProp& gpu = Context::of(m.x).properties();
  if (m.dtype() == kBFloat16 && gpu.major < 8) return false;  // no such products

  Task task{};
  Goals goals{};
  task.count = static_cast<int>(m.weights.size());
  task.activation = *activation;
  task.saves_input = *activation == Between::Gelu || *activation == Between::Silu;
  task.gradients = m.dx.defined();
  int widest = 0;
  const auto add_goal = [&](const Array& to, int64_t count, float factor) {
    task.width += count;
    goals.goals[goals.count++] = {bytes(to), to.defined() ? to.dtype() : kFloat32, factor,
                                  task.width, position_of(to, checked)};
  };
  for (size_t l = 0; l < m.weights.size(); ++l) {
    const Array& w = m.weights[l];
    const Array b = entry(m.biases, l), dw = entry(m.dweights, l), db = entry(m.dbiases, l);
    for (const Array* a : {&w, &b, &dw, &db})
      if (!usable(*a)) return false;
    task.gradients = task.gradients || dw.defined() || db.defined();
    Layer& o = task.layers[l];
    o = {bytes(w),
         bytes(b),
         w.dtype(),
         b.defined() ? b.dtype() : kFloat32,
         static_cast<int>(w.size(1)),
         static_cast<int>(w.size(0)),
         0,
         0,
         0,
         static_cast<int>(task.width)};
    widest = std::max({widest, padded(o.in), padded(o.out)});
    add_goal(dw, w.numel(), 1);
    add_goal(db, o.out, 1);
  }
  if (!task.gradients) task.width = 0, goals.count = 0;
  if (!all_found(goals, checked)) return false;
  const int out = task.layers[task.count - 1].out;
  task.rows = m.x.size(0);
  const float mean = 1 / static_cast<float>(classes ? task.rows : task.rows * out);
  add_goal(m.loss, 1, mean);

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
  int at_once = 1;  // blocks on one multiprocessor
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(plan.kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(plan.bytes)),
        "mlp_loss");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once,
                                                      reinterpret_cast<const void*>(plan.kernel),
                                                      static_cast<int>(threads), plan.bytes),
        "mlp_loss");
  const int64_t tiles = (task.rows + plan.rows - 1) / plan.rows;
  const int64_t blocks =
      std::min(tiles, int64_t{q.context.multiprocessors()} * std::clamp(at_once, 1, 2));
  const Array sums({blocks, task.width}, kFloat32, m.x.device());
  task.sums = sums.data<float>();
  const Array first_bad = checked ? Array({}, kInt64, m.x.device()) : Array();
  const LossCheck judge = judge_of(q, scaling, checked, first_bad);
  task.first_bad = judge.first_bad;
  launch(q, "mlp_loss", plan.kernel, static_cast<unsigned>(blocks), threads, plan.bytes, task);
  if (!task.gradients && !m.loss.defined()) return true;
  launch(q, "mlp_loss sums", add_blocks, static_cast<unsigned>((task.width + kWarp - 1) / kWarp),
         kThreads, 0, task.sums, static_cast<int>(blocks), task.width, goals, judge);
  return true;
}

}  // namespace halftape::cuda
