// Updates of lists of parameters by the optimizers' rules. The device decides whether to skip.
#include <algorithm>

#include "halftape/core/formula/philox.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/fused.h"
#include "halftape/cuda/runtime/last_block.cuh"
#include "halftape/cuda/update/finite_check.cuh"

namespace halftape::cuda {
namespace {

/// The values that all elements of one parameter share in an update.
template <class Rule>
struct Start {
  typename Rule::Step step;
  uint64_t key, count;  // of the parameter's stream of random numbers
};

/// The arrays of one parameter: the parameter, its extra, the rule's moments, its 16-bit copy (only
/// written) and its gradient (clipped in place if wanted, then read).
template <class Rule>
struct Arrays {
  static constexpr int kMoment = 2, kLow = kMoment + Rule::kMoments, kGrad = kLow + 1;
  static constexpr int kCount = kGrad + 1;
  static constexpr bool is_read(unsigned used, int a) { return a != kLow && used >> a & 1; }
  static constexpr bool is_written(unsigned used, int a) { return a != kGrad && used >> a & 1; }
};

/// One parameter.
template <class A>
struct Slot {
  A arrays;
  float* step;      // number of steps, or null
  int64_t* stream;  // key and count for Weights::Stochastic, or null
  Weights weights;
  uint8_t used;  // bit a: the parameter has array a
};

struct Control {
  const float *found_inf, *inv_scale, *clip;
  const void* live_rule;
  /// The current rule: the live one if there is one.
  template <class Rule>
  __device__ Rule now(const Rule& given) const {
    return live_rule ? *static_cast<const Rule*>(live_rule) : given;
  }
  __device__ bool skips() const { return found_inf && *found_inf != 0; }
  __device__ float factor() const { return inv_scale ? *inv_scale : 1; }
  /// The factor that clips the gradients in place.
  __device__ float clip_factor() const { return clip ? *clip : 1; }
};

/// The Start of a parameter, from its counters.
template <class Rule, class A>
__device__ Start<Rule> start_of(const Slot<A>& slot, const Rule& rule) {
  Start<Rule> start{};
  if (slot.step) start.step = rule.begin(static_cast<double>(*slot.step) + 1);
  if (slot.stream) {
    start.key = static_cast<uint64_t>(slot.stream[0]);
    start.count = static_cast<uint64_t>(slot.stream[1]);
  }
  return start;
}
template <class A>
__device__ void raise_counters(const Slot<A>& slot) {
  if (slot.step) *slot.step += 1;
  if (slot.stream) ++slot.stream[1];
}

/// How the blocks of an update get their Start. `given`: from an earlier launch, which also raised
/// the counters. `own`: each block computes it, and the last block raises the counters. With
/// neither, nothing is counted.
template <class Rule>
struct StartSource {
  Start<Rule>* given = nullptr;
  bool own = false;
};

/// The work of the last block: it raises the counters and may update a GradScaler.
struct LastBlockWork {
  BlockCounter counter = {};  // without a count: no work
  bool moves = false;
  Finding finding = {};
  ScalerArrays scaler = {};

  __device__ void move_scale() const {
    Overflow overflow = {};
    overflow.seek(finding);
    scaler.move(overflow);
  }
};

template <class Rule, class A>
__global__ void begin_update(const __grid_constant__ Chunk<Slot<A>> list, Rule given,
                             Control control, Start<Rule>* starts) {
  if (control.skips()) return;
  const Rule rule = control.now(given);
  for (int e = static_cast<int>(threadIdx.x); e < list.count; e += kThreads) {
    starts[e] = start_of(list.entries[e], rule);
    raise_counters(list.entries[e]);
  }
}

/// Calls clip(entry, factor), fetched = fetch(entry) and update(entry, start, fetched) in every
/// block, and does the work of the last block. What is fetched is under way while the block waits
/// for its Start.
template <class Rule, class A, class C, class P, class F>
__device__ void counted(const Chunk<Slot<A>>& list, const Rule& rule, const Control& control,
                        const StartSource<Rule>& starts, const LastBlockWork& last_work,
                        const C& clip, const P& fetch, const F& update) {
  __shared__ __align__(16) unsigned char room[sizeof(Start<Rule>)];
  auto& shared = *reinterpret_cast<Start<Rule>*>(room);
  const bool skips = control.skips(), has_work = blockIdx.x < list.blocks();
  const float clip_by = control.clip_factor();
  if (has_work && clip_by != 1) clip(list.entry_of(blockIdx.x), clip_by);
  if (skips && !last_work.moves) return;
  const bool works = !skips && has_work;
  if (works) {
    const int e = list.entry_of(blockIdx.x);
    if (starts.own && threadIdx.x == 0) shared = start_of(list.entries[e], rule);
    const auto fetched = fetch(e);
    if (starts.own) __syncthreads();
    update(e, starts.own ? shared : starts.given ? starts.given[e] : Start<Rule>{}, fetched);
  }
  if (!last_work.counter.count || !last_work.counter.is_last()) return;
  if (starts.own && !skips)
    for (int i = static_cast<int>(threadIdx.x); i < list.count; i += kThreads)
      raise_counters(list.entries[i]);
  if (last_work.moves && threadIdx.x == 0) last_work.move_scale();
}

template <class S>
__device__ S joined(Weights kind, S p, S extra) {
  switch (kind) {
    case Weights::Master:
      return join_weight<Weights::Master>(p, extra);
    case Weights::Kahan:
      return join_weight<Weights::Kahan>(p, extra);
    default:
      return p;
  }
}
template <class T, class S>
__device__ void split_as(Weights kind, S w, S& p, S& extra) {
  switch (kind) {
    case Weights::Plain:
      return split_weight<Weights::Plain, T>(w, p, extra);
    case Weights::Master:
      return split_weight<Weights::Master, T>(w, p, extra);
    case Weights::Stochastic:
      return split_weight<Weights::Stochastic, T>(w, p, extra);
    case Weights::Kahan:
      return split_weight<Weights::Kahan, T>(w, p, extra);
  }
}

/// Updates one element: x holds the elements of its arrays, and then their new values.
template <class Rule, class S>
__device__ void update_element(const Rule& rule, S (&x)[Arrays<Rule>::kCount], S inv, Weights kind,
                               Dtype d, const Start<Rule>& start) {
  S w = joined(kind, x[0], x[1]);
  rule(w, x[Arrays<Rule>::kGrad] * inv, x + Arrays<Rule>::kMoment, start.step);
  if constexpr (std::is_same_v<S, double>)
    x[0] = w;  // only 16-bit parameters are kept in other ways
  else if (d == Dtype::Float16)
    split_as<Half>(kind, w, x[0], x[1]);
  else if (d == Dtype::BFloat16)
    split_as<BFloat16>(kind, w, x[0], x[1]);
  else
    x[0] = w;
  x[Arrays<Rule>::kLow] = x[0];
}

/// kPacked: all dtypes are moved in packs.
template <class Rule, class S, bool kPacked, class A>
__device__ void update_at(const Rule& rule, const Slot<A>& slot, char* (&at)[Arrays<Rule>::kCount],
                          int64_t i, S inv, const Start<Rule>& start) {
  constexpr int N = Arrays<Rule>::kCount;
  S x[N];
  for (int a = 0; a < N; ++a) {
    x[a] = 0;
    if (!Arrays<Rule>::is_read(slot.used, a)) continue;
    if constexpr (kPacked)
      x[a] = load_packed(at[a], slot.arrays.dtype[a]);
    else
      x[a] = load_noinline<S>(at[a], slot.arrays.dtype[a]);
  }
  if (slot.weights == Weights::Stochastic) {
    const PhiloxBlock four = philox(start.key, static_cast<uint64_t>(i / 4), start.count);
    uint32_t bits = 0;
    for (int j = 0; j < 4; ++j)
      if (i % 4 == j) bits = four.v[j];
    x[1] = static_cast<S>(uniform01(bits));
  }
  update_element(rule, x, inv, slot.weights, slot.arrays.dtype[0], start);
  for (int a = 0; a < N; ++a) {
    if (!Arrays<Rule>::is_written(slot.used, a)) continue;
    if constexpr (kPacked)
      store_packed(at[a], slot.arrays.dtype[a], x[a]);
    else
      store_noinline(at[a], slot.arrays.dtype[a], x[a]);
  }
}

template <class Rule>
using Packs = Chunk<Slot<Flat<Arrays<Rule>::kCount>>>;
template <class Rule>
using Elements = Chunk<Slot<Layout<Arrays<Rule>::kCount>>>;

/// This thread's pack of each array of a parameter, if it is whole.
template <class Rule>
struct Fetched {
  int64_t pack;
  bool whole;
  RawPack raw[Arrays<Rule>::kCount];

  __device__ Fetched(const Packs<Rule>& list, int e)
      : pack(static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kThreads + threadIdx.x),
        whole(list.entries[e].arrays.numel - pack * kPack >= kPack) {
    const auto& slot = list.entries[e];
    for (int a = 0; a < Arrays<Rule>::kCount; ++a)
      if (whole && Arrays<Rule>::is_read(slot.used, a))
        raw[a] = fetch_pack(slot.arrays.base[a], slot.arrays.dtype[a], pack);
  }
};

/// Updates this thread's pack of a parameter.
template <class Rule>
__device__ void update_pack(const Packs<Rule>& list, int e, const Rule& rule, float inv,
                            const Start<Rule>& start, const Fetched<Rule>& fetched) {
  constexpr int N = Arrays<Rule>::kCount;
  const Slot<Flat<N>>& slot = list.entries[e];
  const Flat<N>& arrays = slot.arrays;
  const int64_t pack = fetched.pack;
  if (!fetched.whole) {
    for (int64_t i = pack * kPack; i < arrays.numel; ++i) {
      char* at[N];
      for (int a = 0; a < N; ++a) at[a] = arrays.base[a] + i * element_size(arrays.dtype[a]);
      update_at<Rule, float, true>(rule, slot, at, i, inv, start);
    }
    return;
  }
  float lanes[N][kPack] = {};
  for (int a = 0; a < N; ++a)
    if (Arrays<Rule>::is_read(slot.used, a)) unpack(lanes[a], fetched.raw[a], arrays.dtype[a]);
  if (slot.weights == Weights::Stochastic) {
#pragma unroll
    for (int i = 0; i < kPack; i += 4) {
      const PhiloxBlock four =
          philox(start.key, static_cast<uint64_t>(pack * kPack + i) / 4, start.count);
      for (int j = 0; j < 4; ++j) lanes[1][i + j] = uniform01(four.v[j]);
    }
  }
  for (int i = 0; i < kPack; ++i) {
    float x[N];
    for (int a = 0; a < N; ++a) x[a] = lanes[a][i];
    update_element(rule, x, inv, slot.weights, arrays.dtype[0], start);
    for (int a = 0; a < N; ++a) lanes[a][i] = x[a];
  }
  for (int a = 0; a < N; ++a)
    if (Arrays<Rule>::is_written(slot.used, a))
      store_pack(lanes[a], arrays.base[a], arrays.dtype[a], pack);
}

template <class Rule>
__global__ void update_packs(const __grid_constant__ Packs<Rule> list, Rule given, Control control,
                             StartSource<Rule> starts,
                             const __grid_constant__ LastBlockWork last_work) {
  const Rule rule = control.now(given);
  counted(
      list, rule, control, starts, last_work,
      [&](int e, float by) {
        const auto& arrays = list.entries[e].arrays;
        constexpr int g = Arrays<Rule>::kGrad;
        const auto block = static_cast<int64_t>(blockIdx.x - list.first_block[e]);
        (void)check_pack({{arrays.base[g]}, arrays.numel, {arrays.dtype[g]}},
                         block * kThreads + threadIdx.x, by, true);
      },
      [&](int e) { return Fetched<Rule>(list, e); },
      [&](int e, const Start<Rule>& start, const Fetched<Rule>& fetched) {
        update_pack<Rule>(list, e, rule, control.factor(), start, fetched);
      });
}

template <class Rule, class S>
__global__ void update_elements(const __grid_constant__ Elements<Rule> list, Rule given,
                                Control control, StartSource<Rule> starts,
                                const __grid_constant__ LastBlockWork last_work) {
  const Rule rule = control.now(given);
  const S inv = static_cast<S>(control.factor());
  // Calls f(slot, i, addresses of element i) for this thread's elements.
  const auto each = [&](int e, const auto& f) {
    const auto& slot = list.entries[e];
    const int64_t begin = static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kPerBlock;
    for (int64_t i = begin + threadIdx.x; i < begin + kPerBlock && i < slot.arrays.numel;
         i += kThreads) {
      char* at[Arrays<Rule>::kCount];
      slot.arrays.locate(i, at);
      f(slot, i, at);
    }
  };
  counted(
      list, rule, control, starts, last_work,
      [&](int e, float by) {
        constexpr int g = Arrays<Rule>::kGrad;
        each(e, [&](const auto& slot, int64_t, auto& at) {
          (void)check_any(at[g], slot.arrays.dtype[g], by, true);
        });
      },
      [](int) { return 0; },
      [&](int e, const Start<Rule>& start, int) {
        each(e, [&](const auto& slot, int64_t i, auto& at) {
          update_at<Rule, S, false>(rule, slot, at, i, inv, start);
        });
      });
}

/// Collects the parameters of a list and updates them.
template <class Rule>
class Update {
 public:
  static constexpr int N = Arrays<Rule>::kCount;

  void add(const UpdateSlot& slot, bool clips) {
    const Keeping& keeping = slot.keeping;
    if (clips) slot.grad.bump_version();
    const bool random = keeping.weights == Weights::Stochastic;
    for (const Array* a : {&slot.param, &keeping.extra, &slot.step, &slot.low})
      if (a->defined()) a->bump_version();
    for (const Array& m : slot.moments)
      if (m.defined()) m.bump_version();
    const Array none;
    std::array<const Array*, N> arrays;
    arrays[0] = &slot.param;
    arrays[1] = random ? &none : &keeping.extra;
    for (size_t i = 0; i < Rule::kMoments; ++i) arrays[2 + i] = &slot.moments[i];
    arrays[N - 2] = &slot.low;
    arrays[N - 1] = &slot.grad;
    uint8_t used = 0;
    static_assert(N <= 8);
    for (size_t a = 0; a < N; ++a) {
      if (arrays[a]->defined())
        used |= static_cast<uint8_t>(1 << a);
      else
        arrays[a] = &slot.param;  // something to lay out
    }
    const Layout<N> layout(arrays);
    float* const counter = slot.step.defined() ? slot.step.data<float>() : nullptr;
    int64_t* const stream = random ? keeping.extra.data<int64_t>() : nullptr;
    if (lies_flat(layout))
      packs_.push_back({flat(layout), counter, stream, keeping.weights, used});
    else
      (slot.param.dtype() == kFloat64 ? doubles_ : floats_)
          .push_back({layout, counter, stream, keeping.weights, used});
    counts_ = counts_ || counter || stream;
  }

  /// The last block does the transition if there is a single launch. Returns true if it did.
  bool run(const Queue& q, const Rule& rule, const StepControl& control,
           LastBlockWork last_work) const {
    const size_t kinds = !packs_.empty() + !floats_.empty() + !doubles_.empty();
    last_work.moves = last_work.moves && kinds == 1;
    bool moved = send(q, packs_, update_packs<Rule>, rule, control, last_work);
    moved = send(q, floats_, update_elements<Rule, float>, rule, control, last_work) || moved;
    return send(q, doubles_, update_elements<Rule, double>, rule, control, last_work) || moved;
  }

 private:
  template <class A, class Kernel>
  bool send(const Queue& q, const std::vector<Slot<A>>& list, Kernel* kernel, const Rule& rule,
            const StepControl& given, LastBlockWork last_work) const {
    static_assert(sizeof(Chunk<Slot<A>>) + sizeof(Rule) + sizeof(Control) +
                      sizeof(StartSource<Rule>) + sizeof(LastBlockWork) <=
                  4096);
    const Array& live = given.live_rule;
    const Control control{place_of<float>(given.found_inf), place_of<float>(given.inv_scale),
                          place_of<float>(given.clip), live.defined() ? live.raw() : nullptr};
    last_work.moves = last_work.moves && list.size() <= Chunk<Slot<A>>::kMost;
    in_chunks(list, [&](const Chunk<Slot<A>>& part) {
      // Each block computes its Start, in double, unless so many blocks would take longer for it
      // than a launch.
      const bool many = part.blocks() > 1024;
      StartSource<Rule> starts;
      BufferPtr memory;
      if (counts_ && many) {
        memory = q.context.allocate(sizeof(Start<Rule>) * static_cast<size_t>(part.count));
        starts.given = static_cast<Start<Rule>*>(memory->bytes());
        launch(q, Rule::name, begin_update<Rule, A>, 1, kThreads, 0, part, rule, control,
               starts.given);
      } else {
        starts.own = counts_;
      }
      const bool ends = starts.own || last_work.moves;
      last_work.counter = ends ? block_counter(q) : BlockCounter();
      const unsigned blocks = ends ? std::max(part.blocks(), 1u) : part.blocks();
      if (blocks > 0)
        launch(q, Rule::name, kernel, blocks, kThreads, 0, part, rule, control, starts, last_work);
    });
    return last_work.moves && !list.empty();
  }

  std::vector<Slot<Flat<N>>> packs_;
  std::vector<Slot<Layout<N>>> floats_, doubles_;  // by the type to compute in
  bool counts_ = false;                            // something is counted
};

bool update_list(const ListUpdate& u, const LastBlockWork& last_work) {
  if (u.slots.empty()) return false;
  const Queue q = queue(u.slots[0].param);
  return std::visit(
      [&](const auto& r) {
        Update<std::decay_t<decltype(r)>> list;
        for (const UpdateSlot& slot : u.slots) list.add(slot, u.control.clip.defined());
        return list.run(q, r, u.control, last_work);
      },
      u.rule);
}

}  // namespace

void CudaBackend::update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                         const StepControl& control) {
  update_list({slots, rule, control}, {});
}

bool update_and_transition(const ListUpdate& u, const Transition& t) {
  LastBlockWork last_work;
  if (t.results.size() == 1 && t.trackers.contiguous() &&
      (!t.counts.defined() || t.counts.contiguous()))
    last_work = {{}, true, finding(t.results[0]), scaler_arrays(queue(t.scale), t)};
  if (!update_list(u, last_work)) return false;
  for (const Array* a : {&t.scale, &t.trackers, &t.counts})
    if (a->defined()) a->bump_version();
  return true;
}

}  // namespace halftape::cuda
