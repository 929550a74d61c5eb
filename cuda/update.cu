// SGD and Adam over lists of parameters, decided on the device.
#include "halftape/core/formula/philox.h"

#include "halftape/cuda/chunk.cuh"
#include "halftape/cuda/kernels.h"

namespace halftape::cuda {
namespace {

/// What an update of one parameter begins with, for all of its elements.
struct Start {
  AdamStep adam;
  uint64_t key, count;  // of its stream of random numbers
  bool first;           // nothing was applied before
};

/// One parameter: itself, its extra, the rule's state, and last the gradient. Arrays that it has
/// not are marked as unused.
template <class A>
struct Slot {
  A arrays;
  float* step;      // null where none is counted
  int64_t* stream;  // of Weights::Stochastic
  Weights weights;
  uint8_t used;  // bit a: array a
};

struct Control {
  const float *found_inf, *inv_scale;
  __device__ bool skips() const { return found_inf && *found_inf != 0; }
  __device__ float factor() const { return inv_scale ? *inv_scale : 1; }
};

struct SgdRule {
  static constexpr auto name = "sgd";
  static constexpr int kArrays = 4;  // param, extra, momentum, grad
  SgdScalars o;
  __device__ AdamStep begin(double) const { return {}; }
  template <class S>
  __device__ void operator()(S& w, S (&x)[kArrays], const Start& start) const {
    halftape::sgd<S>(w, x[3], x[2], o, start.first);
  }
};
struct AdamRule {
  static constexpr auto name = "adam";
  static constexpr int kArrays = 6;  // param, extra, exp_avg, exp_avg_sq, max_exp_avg_sq, grad
  AdamScalars o;
  __device__ AdamStep begin(double step) const { return adam_step(o, step); }
  template <class S>
  __device__ void operator()(S& w, S (&x)[kArrays], const Start& start) const {
    halftape::adam<S>(w, x[5], x[2], x[3], x[4], o, start.adam);
  }
};

/// Raises the counters, and tells the update what they are; before it, so that all of its threads
/// see the same.
template <class Rule, class A>
__global__ void begin_update(const __grid_constant__ Chunk<Slot<A>> list, Rule rule,
                             Control control, Start* starts) {
  if (control.skips()) return;
  for (int e = static_cast<int>(threadIdx.x); e < list.count; e += kThreads) {
    const Slot<A>& slot = list.entries[e];
    Start start{};
    if (slot.step) {
      const float step = *slot.step;
      start.first = step == 0;
      start.adam = rule.begin(static_cast<double>(step) + 1);
      *slot.step = step + 1;
    }
    if (slot.stream) {
      start.key = static_cast<uint64_t>(slot.stream[0]);
      start.count = static_cast<uint64_t>(slot.stream[1]++);
    }
    starts[e] = start;
  }
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

/// One element: x holds what its arrays do, and then what they shall.
template <class Rule, class S>
__device__ void update_element(const Rule& rule, S (&x)[Rule::kArrays], S inv, Weights kind,
                               Dtype d, const Start& start) {
  S w = joined(kind, x[0], x[1]);
  x[Rule::kArrays - 1] *= inv;
  rule(w, x, start);
  if constexpr (std::is_same_v<S, double>)
    x[0] = w;  // only 16-bit parameters are kept in other ways
  else if (d == Dtype::Float16)
    split_as<Half>(kind, w, x[0], x[1]);
  else if (d == Dtype::BFloat16)
    split_as<BFloat16>(kind, w, x[0], x[1]);
  else
    x[0] = w;
}

template <class Rule, class S, class A>
__device__ void update_at(const Rule& rule, const Slot<A>& slot, char* (&at)[Rule::kArrays],
                          int64_t i, S inv, const Start& start) {
  constexpr int N = Rule::kArrays;
  S x[N];
  for (int a = 0; a < N; ++a)
    x[a] = slot.used >> a & 1 ? load<S>(at[a], slot.arrays.dtype[a]) : S(0);
  if (slot.weights == Weights::Stochastic) {
    const PhiloxBlock four = philox(start.key, static_cast<uint64_t>(i / 4), start.count);
    uint32_t bits = 0;
    for (int j = 0; j < 4; ++j)
      if (i % 4 == j) bits = four.v[j];
    x[1] = static_cast<S>(uniform01(bits));
  }
  update_element(rule, x, inv, slot.weights, slot.arrays.dtype[0], start);
  for (int a = 0; a + 1 < N; ++a)
    if (slot.used >> a & 1) store(at[a], slot.arrays.dtype[a], x[a]);
}

template <class Rule>
__global__ void update_packs(const __grid_constant__ Chunk<Slot<Flat<Rule::kArrays>>> list,
                             Rule rule, Control control, const Start* starts) {
  constexpr int N = Rule::kArrays;
  if (control.skips()) return;
  const int e = list.entry_of(blockIdx.x);
  const Slot<Flat<N>>& slot = list.entries[e];
  const Flat<N>& arrays = slot.arrays;
  const Start start = starts ? starts[e] : Start{};
  const float inv = control.factor();
  const int64_t pack =
      static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kThreads + threadIdx.x;
  if (arrays.numel - pack * kPack < kPack) {
    for (int64_t i = pack * kPack; i < arrays.numel; ++i) {
      char* at[N];
      for (int a = 0; a < N; ++a) at[a] = arrays.base[a] + i * (is_16bit(arrays.dtype[a]) ? 2 : 4);
      update_at<Rule, float>(rule, slot, at, i, inv, start);
    }
    return;
  }
  RawPack raw[N];
  for (int a = 0; a < N; ++a)
    if (slot.used >> a & 1) raw[a] = fetch_pack(arrays.base[a], arrays.dtype[a], pack);
  float lanes[N][kPack] = {};
  for (int a = 0; a < N; ++a)
    if (slot.used >> a & 1) unpack(lanes[a], raw[a], arrays.dtype[a]);
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
  for (int a = 0; a + 1 < N; ++a)
    if (slot.used >> a & 1) store_pack(lanes[a], arrays.base[a], arrays.dtype[a], pack);
}

template <class Rule, class S>
__global__ void update_elements(const __grid_constant__ Chunk<Slot<Layout<Rule::kArrays>>> list,
                                Rule rule, Control control, const Start* starts) {
  if (control.skips()) return;
  const int e = list.entry_of(blockIdx.x);
  const auto& slot = list.entries[e];
  const Start start = starts ? starts[e] : Start{};
  const S inv = static_cast<S>(control.factor());
  const int64_t begin = static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kPerBlock;
  for (int64_t i = begin + threadIdx.x; i < begin + kPerBlock && i < slot.arrays.numel;
       i += kThreads) {
    char* at[Rule::kArrays];
    slot.arrays.locate(i, at);
    update_at<Rule, S>(rule, slot, at, i, inv, start);
  }
}

/// Collects the parameters of a list and updates them.
template <class Rule>
class Update {
 public:
  static constexpr int N = Rule::kArrays;

  /// arrays[1] is set here; those that are not defined are not used.
  void add(std::array<const Array*, N> arrays, const Array& step, const Keeping& keeping) {
    const Array& param = *arrays[0];
    const bool random = keeping.weights == Weights::Stochastic;
    const Array none;
    arrays[1] = random ? &none : &keeping.extra;
    for (int a = 0; a + 1 < N; ++a)
      if (arrays[a]->defined()) arrays[a]->bump_version();
    if (random) keeping.extra.bump_version();
    uint8_t used = 0;
    for (int a = 0; a < N; ++a) {
      if (arrays[a]->defined())
        used |= static_cast<uint8_t>(1 << a);
      else
        arrays[a] = &param;
    }
    const Layout<N> layout(arrays);
    float* const counter = step.defined() ? step.data<float>() : nullptr;
    int64_t* const stream = random ? keeping.extra.data<int64_t>() : nullptr;
    if (lies_flat(layout))
      packs_.push_back({flat(layout), counter, stream, keeping.weights, used});
    else
      (param.dtype() == kFloat64 ? doubles_ : floats_)
          .push_back({layout, counter, stream, keeping.weights, used});
    counts_ = counts_ || counter || stream;
  }

  void run(const Queue& q, const Rule& rule, const StepControl& control) const {
    send(q, packs_, update_packs<Rule>, rule, control);
    send(q, floats_, update_elements<Rule, float>, rule, control);
    send(q, doubles_, update_elements<Rule, double>, rule, control);
  }

 private:
  template <class A, class Kernel>
  void send(const Queue& q, const std::vector<Slot<A>>& list, Kernel* kernel, const Rule& rule,
            const StepControl& given) const {
    const Control control{float_of(given.found_inf), float_of(given.inv_scale)};
    in_chunks(list, [&](const Chunk<Slot<A>>& part) {
      const BufferPtr starts =
          counts_ ? q.context.allocate(sizeof(Start) * static_cast<size_t>(part.count))
                  : BufferPtr();
      auto* const at = starts ? static_cast<Start*>(starts->bytes()) : nullptr;
      if (at) launch(q, Rule::name, begin_update<Rule, A>, 1, kThreads, 0, part, rule, control, at);
      if (part.blocks() > 0)
        launch(q, Rule::name, kernel, part.blocks(), kThreads, 0, part, rule, control, at);
    });
  }

  std::vector<Slot<Flat<N>>> packs_;
  std::vector<Slot<Layout<N>>> floats_, doubles_;  // by what they are computed in
  bool counts_ = false;                            // something is counted
};

}  // namespace

void sgd(std::span<const SgdSlot> slots, const SgdScalars& o, const StepControl& control) {
  if (slots.empty()) return;
  const Queue q = queue(slots[0].param);
  Update<SgdRule> update;
  for (const SgdSlot& s : slots)
    update.add({&s.param, nullptr, &s.momentum, &s.grad}, s.step, s.keeping);
  update.run(q, {o}, control);
}

void adam(std::span<const AdamSlot> slots, const AdamScalars& o, const StepControl& control) {
  if (slots.empty()) return;
  const Queue q = queue(slots[0].param);
  Update<AdamRule> update;
  const Array none;
  for (const AdamSlot& s : slots) {
    const Array& largest = o.amsgrad ? s.max_exp_avg_sq : none;
    update.add({&s.param, nullptr, &s.exp_avg, &s.exp_avg_sq, &largest, &s.grad}, s.step,
               s.keeping);
    s.step.bump_version();
  }
  update.run(q, {o}, control);
}

}  // namespace halftape::cuda
