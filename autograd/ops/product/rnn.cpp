#include "halftape/autograd/ops/product/rnn.h"

#include <vector>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/dropout.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

/// The state after a sequence: h, and for an LSTM c.
struct State {
  Tensor h, c;
};

/// The weights of a layer in one direction.
struct Weights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};

using Step = State (*)(const Tensor& from_x, const State& state, const Weights& w);

Tensor from_h(const State& s, const Weights& w) { return widened(linear(s.h, w.w_hh, w.b_hh)); }

State tanh_step(const Tensor& from_x, const State& s, const Weights& w) {
  return {tanh(from_x + from_h(s, w)).to(s.h.dtype()), {}};
}
State relu_step(const Tensor& from_x, const State& s, const Weights& w) {
  return {relu(from_x + from_h(s, w)).to(s.h.dtype()), {}};
}
State lstm_step(const Tensor& from_x, const State& s, const Weights& w) {
  const TensorList gates = chunk(from_x + from_h(s, w), 4, -1);
  const Tensor c = sigmoid(gates[1]) * widened(s.c) + sigmoid(gates[0]) * tanh(gates[2]);
  const Tensor h = (sigmoid(gates[3]) * tanh(c)).to(s.c.dtype());
  return {w.w_hr.defined() ? linear(h, w.w_hr) : h, c.to(s.c.dtype())};
}
State gru_step(const Tensor& from_x, const State& s, const Weights& w) {
  const TensorList x = chunk(from_x, 3, -1), h = chunk(from_h(s, w), 3, -1);
  const Tensor z = sigmoid(x[1] + h[1]);
  const Tensor n = tanh(x[2] + sigmoid(x[0] + h[0]) * h[2]);
  return {(n + z * (widened(s.h) - n)).to(s.h.dtype()), {}};
}

struct Kind {
  const CastOp& layers;
  const CastOp& cell;
  int64_t gates;
  Step step;
};
constexpr Kind kTanhKind{cast_list::rnn_tanh, cast_list::rnn_tanh_cell, 1, &tanh_step};
constexpr Kind kReluKind{cast_list::rnn_relu, cast_list::rnn_relu_cell, 1, &relu_step};
constexpr Kind kLstmKind{cast_list::lstm, cast_list::lstm_cell, 4, &lstm_step};
constexpr Kind kGruKind{cast_list::gru, cast_list::gru_cell, 3, &gru_step};

/// Throws unless the weights are made for inputs, states and outputs of these many features.
void check_weights(const char* op, const Kind& kind, const Weights& w, int64_t in, int64_t hidden,
                   int64_t out) {
  const int64_t rows = kind.gates * hidden;
  HALFTAPE_CHECK(w.w_ih.sizes() == Shape({rows, in}), op, ": w_ih ", w.w_ih.sizes(), ", expected ",
                 Shape({rows, in}), ": ", kind.gates, " gates of ", hidden, ", and ", in,
                 " features of the input");
  HALFTAPE_CHECK(w.w_hh.sizes() == Shape({rows, out}), op, ": w_hh ", w.w_hh.sizes(), ", expected ",
                 Shape({rows, out}));
  for (const Tensor* b : {&w.b_ih, &w.b_hh})
    HALFTAPE_CHECK(!b->defined() || b->sizes() == Shape({rows}), op, ": bias ", b->sizes(),
                   ", expected ", Shape({rows}));
  HALFTAPE_CHECK(!w.w_hr.defined() || w.w_hr.sizes() == Shape({out, hidden}), op, ": w_hr ",
                 w.w_hr.sizes(), ", expected ", Shape({out, hidden}));
}

void check_dtypes(const char* op, const Tensor& x, const State& s) {
  for (const Tensor* t : {&s.h, &s.c})
    HALFTAPE_CHECK(!t->defined() || t->dtype() == x.dtype(), op, ": input ", x.dtype(),
                   " and state ", t->dtype(), " must be of one dtype");
}

State cell(const Kind& kind, const Tensor& x_in, const State& state, const Weights& given) {
  const char* op = kind.cell.name;
  const ErrorScope scope(op, x_in, state.h, given.w_ih, given.w_hh);
  const auto [x, h, w_ih, w_hh, c, b_ih, b_hh] = cast_inputs<4>(
      kind.cell, x_in, state.h, given.w_ih, given.w_hh, state.c, given.b_ih, given.b_hh);
  const PolicyScope plain(nullptr);
  HALFTAPE_CHECK(x.dim() == h.dim() && (x.dim() == 1 || (x.dim() == 2 && x.size(0) == h.size(0))),
                 op, ": input ", x.sizes(), " and state ", h.sizes(),
                 " must be (N, features), or (features) without a batch");
  HALFTAPE_CHECK(!c.defined() || c.sizes() == h.sizes(), op, ": h ", h.sizes(), " and c ",
                 c.sizes(), " differ");
  check_dtypes(op, x, {h, c});
  const Weights w{w_ih, w_hh, b_ih, b_hh, {}};
  check_weights(op, kind, w, x.size(-1), h.size(-1), h.size(-1));
  return kind.step(widened(linear(x, w.w_ih, w.b_ih)), {h, c}, w);
}

Tensor rows(const Tensor& x, int64_t from, int64_t count) { return narrow(x, 0, from, count); }
State rows(const State& s, int64_t from, int64_t count) {
  return {rows(s.h, from, count), s.c.defined() ? rows(s.c, from, count) : Tensor()};
}
State joined(const std::vector<State>& parts, Tensor (*join)(const TensorList&, int64_t)) {
  TensorList h, c;
  for (const State& s : parts) {
    h.push_back(s.h);
    if (s.c.defined()) c.push_back(s.c);
  }
  return {join(h, 0), c.empty() ? Tensor() : join(c, 0)};
}

/// One layer in one direction over packed data (sum of sizes, in): outputs in the same order, and
/// the last state of each sequence.
std::pair<Tensor, State> one_way(Step step, const Tensor& data, const std::vector<int64_t>& sizes,
                                 const State& first, const Weights& w, bool backward) {
  const Tensor from_x = widened(linear(data, w.w_ih, w.b_ih));  // of all steps at once
  const auto steps = static_cast<int64_t>(sizes.size());
  TensorList outputs(sizes.size());
  // Forward, the batch shrinks: a sequence that leaves it has ended. Backward, it grows.
  std::vector<State> ended;
  int64_t at = backward ? data.size(0) : 0;
  State state = rows(first, 0, backward ? sizes.back() : sizes.front());
  for (int64_t i = 0; i < steps; ++i) {
    const auto t = static_cast<size_t>(backward ? steps - 1 - i : i);
    const int64_t size = sizes[t], before = state.h.size(0);
    if (size < before) {
      ended.push_back(rows(state, size, before - size));
      state = rows(state, 0, size);
    } else if (size > before) {
      state = joined({state, rows(first, before, size - before)}, &cat);
    }
    if (backward) at -= size;
    state = step(rows(from_x, at, size), state, w);
    if (!backward) at += size;
    outputs[t] = state.h;
  }
  ended.push_back(state);
  return {cat(outputs, 0), joined(std::vector<State>(ended.rbegin(), ended.rend()), &cat)};
}

struct Result {
  Tensor outputs;
  State last;
};

/// The settings that all layers share.
struct Plan {
  const Kind& kind;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional;
};

/// All layers over packed data; `lengths`: the batch size of each step.
Result packed(const Plan& plan, Tensor data, const std::vector<int64_t>& sizes, const State& first,
              const TensorList& params) {
  const char* op = plan.kind.layers.name;
  const int64_t directions = plan.bidirectional ? 2 : 1;
  const int64_t out = first.h.size(-1), hidden = first.c.defined() ? first.c.size(-1) : out;
  const size_t each = (plan.has_biases ? 4 : 2) + (out != hidden ? 1 : 0);
  const auto parts = static_cast<size_t>(plan.num_layers * directions);
  HALFTAPE_CHECK(params.size() == each * parts, op, ": ", params.size(), " weights, expected ",
                 each, " for each of ", plan.num_layers, " layers and ", directions, " directions");
  std::vector<State> last;
  size_t at = 0;
  for (int64_t layer = 0; layer < plan.num_layers; ++layer) {
    TensorList ways;
    for (int64_t way = 0; way < directions; ++way) {
      Weights w{params[at], params[at + 1], {}, {}, {}};
      if (plan.has_biases) w.b_ih = params[at + 2], w.b_hh = params[at + 3];
      if (out != hidden) w.w_hr = params[at + each - 1];
      check_weights(op, plan.kind, w, data.size(-1), hidden, out);
      const auto part = static_cast<int64_t>(at / each);
      const State start{select(first.h, 0, part),
                        first.c.defined() ? select(first.c, 0, part) : Tensor()};
      auto [outputs, state] = one_way(plan.kind.step, data, sizes, start, w, way == 1);
      ways.push_back(outputs);
      last.push_back(state);
      at += each;
    }
    data = directions == 2 ? cat(ways, -1) : ways[0];
    if (layer + 1 < plan.num_layers) data = dropout(data, plan.dropout, plan.train);
  }
  return {data, joined(last, &stack)};
}

void check_state(const Plan& plan, const State& s, int64_t batch) {
  const int64_t parts = plan.num_layers * (plan.bidirectional ? 2 : 1);
  for (const Tensor* t : {&s.h, &s.c})
    HALFTAPE_CHECK(!t->defined() || (t->dim() == 3 && t->size(0) == parts && t->size(1) == batch),
                   plan.kind.layers.name, ": state ", t->sizes(), ", expected (", parts, ", ",
                   batch, ", features): layers · directions, and the batch");
}

Result run(const Plan& plan, const Tensor& x_in, const Tensor& batch_sizes, const State& state_in,
           const TensorList& params_in, bool batch_first) {
  const CastOp& op = plan.kind.layers;
  const ErrorScope scope(op.name, x_in, state_in.h);
  check_defined(op.name, params_in);
  HALFTAPE_CHECK(plan.num_layers > 0, op.name, ": num_layers ", plan.num_layers,
                 " must be positive");
  HALFTAPE_CHECK(plan.num_layers <= std::ssize(params_in), op.name, ": num_layers ",
                 plan.num_layers, " with ", params_in.size(), " weights");
  TensorList given{x_in, state_in.h};
  if (state_in.c.defined()) given.push_back(state_in.c);
  const auto params_at = static_cast<int64_t>(given.size());
  given.insert(given.end(), params_in.begin(), params_in.end());
  const TensorList all = cast_inputs(op, std::as_const(given));
  const PolicyScope plain(nullptr);
  const Tensor& x = all[0];
  const State state{all[1], state_in.c.defined() ? all[2] : Tensor()};
  const TensorList params(all.begin() + params_at, all.end());
  check_dtypes(op.name, x, state);
  if (batch_sizes.defined()) {
    HALFTAPE_CHECK(x.dim() == 2 && batch_sizes.dim() == 1 && batch_sizes.dtype() == kInt64 &&
                       batch_sizes.device() == Device(kCPU),
                   op.name, ": packed data ", x.sizes(), " must be (steps, features), and the ",
                   "batch sizes ", batch_sizes.sizes(), " int64 numbers on the CPU");
    const auto sizes = batch_sizes.to_vector<int64_t>();
    int64_t sum = 0;
    for (size_t t = 0; t < sizes.size(); ++t) {
      HALFTAPE_CHECK(sizes[t] > 0 && (t == 0 || sizes[t] <= sizes[t - 1]), op.name, ": batch size ",
                     sizes[t], " of step ", t,
                     " must be positive and not more than the one before");
      sum = checked_add(sum, sizes[t]);
    }
    HALFTAPE_CHECK(sum > 0 && sum == x.size(0), op.name, ": packed data ", x.sizes(),
                   " and batch sizes that add up to ", sum);
    check_state(plan, state, sizes[0]);
    return packed(plan, x, sizes, state, params);
  }
  HALFTAPE_CHECK(x.dim() == 3 && x.size(0) > 0 && x.size(1) > 0, op.name, ": input ", x.sizes(),
                 " must be (steps, batch, features), none of them 0");
  const Tensor steps_first = batch_first ? transpose(x, 0, 1) : x;
  const int64_t steps = steps_first.size(0), batch = steps_first.size(1);
  check_state(plan, state, batch);
  Result r = packed(plan, detail::reshaped(steps_first, {steps * batch, x.size(2)}),
                    std::vector<int64_t>(static_cast<size_t>(steps), batch), state, params);
  r.outputs = detail::reshaped(r.outputs, {steps, batch, r.outputs.size(-1)});
  if (batch_first) r.outputs = transpose(r.outputs, 0, 1);
  return r;
}

State pair_of(const char* op, const TensorList& hx) {
  HALFTAPE_CHECK(hx.size() == 2, op, ": expected the states {h, c}, got ", hx.size(), " tensors");
  check_defined(op, hx);
  return {hx[0], hx[1]};
}

}  // namespace

Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  return cell(kTanhKind, x, {h, {}}, {w_ih, w_hh, b_ih, b_hh, {}}).h;
}
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  return cell(kReluKind, x, {h, {}}, {w_ih, w_hh, b_ih, b_hh, {}}).h;
}
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih, const Tensor& b_hh) {
  return cell(kGruKind, x, {h, {}}, {w_ih, w_hh, b_ih, b_hh, {}}).h;
}
std::tuple<Tensor, Tensor> lstm_cell(const Tensor& x, const TensorList& hx, const Tensor& w_ih,
                                     const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  const State s = cell(kLstmKind, x, pair_of("lstm_cell", hx), {w_ih, w_hh, b_ih, b_hh, {}});
  return {s.h, s.c};
}

#define HALFTAPE_RNN(name, kind)                                                                   \
  std::tuple<Tensor, Tensor> name(const Tensor& x, const Tensor& h, const TensorList& params,      \
                                  bool has_biases, int64_t num_layers, double dropout, bool train, \
                                  bool bidirectional, bool batch_first) {                          \
    const Result r = run({kind, has_biases, num_layers, dropout, train, bidirectional}, x, {},     \
                         {h, {}}, params, batch_first);                                            \
    return {r.outputs, r.last.h};                                                                  \
  }                                                                                                \
  std::tuple<Tensor, Tensor> name(const Tensor& data, const Tensor& batch_sizes, const Tensor& h,  \
                                  const TensorList& params, bool has_biases, int64_t num_layers,   \
                                  double dropout, bool train, bool bidirectional) {                \
    const ErrorScope scope(#name, batch_sizes);                                                    \
    const Result r = run({kind, has_biases, num_layers, dropout, train, bidirectional}, data,      \
                         batch_sizes, {h, {}}, params, false);                                     \
    return {r.outputs, r.last.h};                                                                  \
  }
HALFTAPE_RNN(rnn_tanh, kTanhKind)
HALFTAPE_RNN(rnn_relu, kReluKind)
HALFTAPE_RNN(gru, kGruKind)
#undef HALFTAPE_RNN

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& x, const TensorList& hx,
                                        const TensorList& params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train,
                                        bool bidirectional, bool batch_first) {
  const Result r = run({kLstmKind, has_biases, num_layers, dropout, train, bidirectional}, x, {},
                       pair_of("lstm", hx), params, batch_first);
  return {r.outputs, r.last.h, r.last.c};
}
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& data, const Tensor& batch_sizes,
                                        const TensorList& hx, const TensorList& params,
                                        bool has_biases, int64_t num_layers, double dropout,
                                        bool train, bool bidirectional) {
  const ErrorScope scope("lstm", batch_sizes);
  const Result r = run({kLstmKind, has_biases, num_layers, dropout, train, bidirectional}, data,
                       batch_sizes, pair_of("lstm", hx), params, false);
  return {r.outputs, r.last.h, r.last.c};
}

}  // namespace halftape
