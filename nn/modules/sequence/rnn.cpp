#include "halftape/nn/modules/sequence/rnn.h"

#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/rnn.h"

namespace halftape::nn {
namespace {

using detail::RNNMode;
using detail::RNNOptionsBase;
using detail::unless;
using utils::rnn::PackedSequence;

const char* rnn_name(RNNMode mode) {
  return mode == RNNMode::LSTM ? "LSTM" : mode == RNNMode::GRU ? "GRU" : "RNN";
}
int64_t gates_of(RNNMode mode) { return mode == RNNMode::LSTM ? 4 : mode == RNNMode::GRU ? 3 : 1; }

RNNMode mode_of(const char* name, init::Nonlinearity nonlinearity) {
  HALFTAPE_CHECK(nonlinearity == kTanh || nonlinearity == kReLU, name,
                 ": nonlinearity has to be kTanh or kReLU");
  return nonlinearity == kTanh ? RNNMode::Tanh : RNNMode::ReLU;
}

RNNMode mode_of(const RNNOptions& o) { return mode_of("RNN", o.nonlinearity()); }
RNNMode mode_of(const LSTMOptions&) { return RNNMode::LSTM; }
RNNMode mode_of(const GRUOptions&) { return RNNMode::GRU; }

template <class Options>
RNNOptionsBase base_of(const Options& o) {
  return RNNOptionsBase(mode_of(o), o.input_size(), o.hidden_size())
      .num_layers(o.num_layers())
      .bias(o.bias())
      .batch_first(o.batch_first())
      .dropout(o.dropout())
      .bidirectional(o.bidirectional());
}

void start(const std::vector<Tensor>& parameters, int64_t hidden_size) {
  const double b = 1 / std::sqrt(static_cast<double>(hidden_size));
  for (const Tensor& p : parameters) init::uniform_(p, -b, b);
}

void check_features(const char* name, const Tensor& x, int64_t input_size) {
  HALFTAPE_CHECK(x.size(-1) == input_size, name, ": input ", x.sizes(), " has ", x.size(-1),
                 " features, input_size is ", input_size);
}

/// The states in another order of the batch, if there is one.
Tensor ordered(const Tensor& state, const Tensor& order) {
  return state.defined() && order.defined() ? index_select(state, 1, order) : state;
}

PackedSequence like(const PackedSequence& x, const Tensor& data) {
  return PackedSequence(data, x.batch_sizes(), x.sorted_indices(), x.unsorted_indices());
}

}  // namespace

namespace detail {

RNNImplBase::RNNImplBase(const RNNOptionsBase& o) : options_base(o) { RNNImplBase::reset(); }

void RNNImplBase::reset() {
  const auto& o = options_base;
  const char* name = rnn_name(o.mode());
  check_positive(name, "input_size", o.input_size(), "hidden_size", o.hidden_size());
  check_layers(name, o.num_layers());
  check_fraction(name, "dropout", o.dropout());
  HALFTAPE_CHECK(o.proj_size() >= 0 && o.proj_size() < o.hidden_size(), name, ": proj_size ",
                 o.proj_size(), " must be less than hidden_size ", o.hidden_size());
  const int64_t rows = checked_mul(gates_of(o.mode()), o.hidden_size()),
                out = o.proj_size() > 0 ? o.proj_size() : o.hidden_size();
  for (int64_t layer = 0; layer < o.num_layers(); ++layer)
    for (const char* way : {"", "_reverse"}) {
      if (*way && !o.bidirectional()) continue;
      const std::string end = "_l" + std::to_string(layer) + way;
      const int64_t in = layer == 0 ? o.input_size() : out * (o.bidirectional() ? 2 : 1);
      register_parameter("weight_ih" + end, empty({rows, in}));
      register_parameter("weight_hh" + end, empty({rows, out}));
      if (o.bias()) {
        register_parameter("bias_ih" + end, empty({rows}));
        register_parameter("bias_hh" + end, empty({rows}));
      }
      if (o.proj_size() > 0) register_parameter("weight_hr" + end, empty({out, o.hidden_size()}));
    }
  reset_parameters();
}

void RNNImplBase::reset_parameters() { start(all_weights(), options_base.hidden_size()); }

void RNNImplBase::pretty_print(std::ostream& out) const {
  const auto& o = options_base;
  print(out, rnn_name(o.mode()), "input_size", o.input_size(), "hidden_size", o.hidden_size(),
        "num_layers", o.num_layers(), "bias", o.bias(), "batch_first", o.batch_first(), "dropout",
        o.dropout(), "bidirectional", o.bidirectional(), "proj_size", unless(0, o.proj_size()));
}

RNNImplBase::Result RNNImplBase::run(const Tensor& x, const Tensor& batch_sizes, int64_t batch,
                                     Tensor h, Tensor c) const {
  const auto& o = options_base;
  const int64_t parts = o.num_layers() * (o.bidirectional() ? 2 : 1);
  const auto or_zeros = [&](Tensor& state, int64_t features) {
    if (!state.defined()) state = zeros({parts, batch, features}, x.options());
  };
  or_zeros(h, o.proj_size() > 0 ? o.proj_size() : o.hidden_size());
  if (o.mode() == RNNMode::LSTM) or_zeros(c, o.hidden_size());
  const auto called = [&](const auto& layers, const auto& state) {
    if (batch_sizes.defined())
      return layers(x, batch_sizes, state, all_weights(), o.bias(), o.num_layers(), o.dropout(),
                    is_training(), o.bidirectional());
    return layers(x, state, all_weights(), o.bias(), o.num_layers(), o.dropout(), is_training(),
                  o.bidirectional(), o.batch_first());
  };
  if (o.mode() == RNNMode::LSTM) {
    const auto [y, last_h, last_c] =
        called([](const auto&... a) { return lstm(a...); }, TensorList{h, c});
    return {y, last_h, last_c};
  }
  const auto [y, last] = called(
      [&](const auto&... a) {
        return o.mode() == RNNMode::GRU    ? gru(a...)
               : o.mode() == RNNMode::Tanh ? rnn_tanh(a...)
                                           : rnn_relu(a...);
      },
      h);
  return {y, last, {}};
}

RNNImplBase::Result RNNImplBase::forward_padded(const Tensor& x, const Tensor& h,
                                                const Tensor& c) const {
  const PlaceScope scope(*this);
  const char* name = rnn_name(options_base.mode());
  HALFTAPE_CHECK(x.dim() == 2 || x.dim() == 3, name, ": input ", x.sizes(),
                 " must be (steps, batch, features), or (steps, features) without a batch");
  check_features(name, x, options_base.input_size());
  const int batch_dim = options_base.batch_first() ? 0 : 1;
  if (x.dim() == 3) return run(x, {}, x.size(batch_dim), h, c);
  const auto with_batch = [&](const Tensor& state) {
    HALFTAPE_CHECK(!state.defined() || state.dim() == 2, name, ": for an input without a batch, ",
                   x.sizes(), ", a state has 2 dimensions, not ", state.dim());
    return state.defined() ? unsqueeze(state, 1) : state;
  };
  Result r = run(unsqueeze(x, batch_dim), {}, 1, with_batch(h), with_batch(c));
  r.outputs = squeeze(r.outputs, batch_dim);
  r.h = squeeze(r.h, 1);
  if (r.c.defined()) r.c = squeeze(r.c, 1);
  return r;
}

RNNImplBase::Result RNNImplBase::forward_packed(const PackedSequence& x, const Tensor& h,
                                                const Tensor& c) const {
  const PlaceScope scope(*this);
  check_features(rnn_name(options_base.mode()), x.data(), options_base.input_size());
  const auto batch = x.batch_sizes()[0].item<int64_t>();
  Result r = run(x.data(), x.batch_sizes(), batch, ordered(h, x.sorted_indices()),
                 ordered(c, x.sorted_indices()));
  return {r.outputs, ordered(r.h, x.unsorted_indices()), ordered(r.c, x.unsorted_indices())};
}

template <class Options>
OneStateLayer<Options>::OneStateLayer(const Options& o) : RNNImplBase(base_of(o)), options(o) {}
template <class Options>
std::tuple<Tensor, Tensor> OneStateLayer<Options>::forward(const Tensor& x, Tensor hx) const {
  const PlaceScope scope(*this);
  const Result r = forward_padded(x, hx, {});
  return scope.result(std::tuple(r.outputs, r.h));
}
template <class Options>
std::tuple<PackedSequence, Tensor> OneStateLayer<Options>::forward_with_packed_input(
    const PackedSequence& x, Tensor hx) const {
  const Result r = forward_packed(x, hx, {});
  return {like(x, r.outputs), r.h};
}
template class OneStateLayer<RNNOptions>;
template class OneStateLayer<GRUOptions>;

}  // namespace detail

LSTMImpl::LSTMImpl(const LSTMOptions& o)
    : Cloneable(base_of(o).proj_size(o.proj_size())), options(o) {}
std::tuple<Tensor, LSTMImpl::States> LSTMImpl::forward(const Tensor& x,
                                                       const std::optional<States>& hx) const {
  const PlaceScope scope(*this);
  const auto [h, c] = hx.value_or(States());
  const Result r = forward_padded(x, h, c);
  return scope.result(std::tuple(r.outputs, States(r.h, r.c)));
}
std::tuple<PackedSequence, LSTMImpl::States> LSTMImpl::forward_with_packed_input(
    const PackedSequence& x, const std::optional<States>& hx) const {
  const auto [h, c] = hx.value_or(States());
  const Result r = forward_packed(x, h, c);
  return {like(x, r.outputs), {r.h, r.c}};
}

namespace detail {

RNNCellImplBase::RNNCellImplBase(const char* name, int64_t gates, int64_t input_size,
                                 int64_t hidden_size, bool bias, std::string_view nonlinearity)
    : name_(name),
      gates_(gates),
      input_size_(input_size),
      hidden_size_(hidden_size),
      bias_(bias),
      nonlinearity_(nonlinearity) {
  RNNCellImplBase::reset();
}
void RNNCellImplBase::reset() {
  check_positive(name_, "input_size", input_size_, "hidden_size", hidden_size_);
  const int64_t rows = checked_mul(gates_, hidden_size_);
  weight_ih = register_parameter("weight_ih", empty({rows, input_size_}));
  weight_hh = register_parameter("weight_hh", empty({rows, hidden_size_}));
  if (bias_) {
    bias_ih = register_parameter("bias_ih", empty({rows}));
    bias_hh = register_parameter("bias_hh", empty({rows}));
  }
  reset_parameters();
}
void RNNCellImplBase::reset_parameters() { start(parameters(false), hidden_size_); }
void RNNCellImplBase::pretty_print(std::ostream& out) const {
  print(out, name_, "", input_size_, "", hidden_size_, "bias", unless(true, bias_), "nonlinearity",
        unless(std::string_view(), nonlinearity_));
}
void RNNCellImplBase::check_input(const Tensor& x) const {
  HALFTAPE_CHECK(x.dim() == 1 || x.dim() == 2, name_, ": input ", x.sizes(),
                 " must be (N, features), or (features) without a batch");
  check_features(name_, x, input_size_);
}
Tensor RNNCellImplBase::no_state(const Tensor& x) const {
  Shape shape = x.sizes();
  shape[shape.size() - 1] = hidden_size_;
  return zeros(shape, x.options());
}

template <>
OneStateCell<RNNCellOptions>::OneStateCell(const RNNCellOptions& o)
    : RNNCellImplBase("RNNCell", 1, o.input_size(), o.hidden_size(), o.bias(),
                      o.nonlinearity() == kReLU ? "kReLU" : ""),
      options(o) {
  mode_of("RNNCell", o.nonlinearity());
}
template <>
OneStateCell<GRUCellOptions>::OneStateCell(const GRUCellOptions& o)
    : RNNCellImplBase("GRUCell", 3, o.input_size(), o.hidden_size(), o.bias()), options(o) {}

template <class Options>
Tensor OneStateCell<Options>::forward(const Tensor& x, Tensor hx) const {
  const PlaceScope scope(*this);
  check_input(x);
  if (!hx.defined()) hx = no_state(x);
  auto* step = gru_cell;
  if constexpr (std::is_same_v<Options, RNNCellOptions>)
    step = options.nonlinearity() == kReLU ? rnn_relu_cell : rnn_tanh_cell;
  return scope.result(step(x, hx, weight_ih, weight_hh, bias_ih, bias_hh));
}
template class OneStateCell<RNNCellOptions>;
template class OneStateCell<GRUCellOptions>;

}  // namespace detail

LSTMCellImpl::LSTMCellImpl(const LSTMCellOptions& o)
    : Cloneable("LSTMCell", 4, o.input_size(), o.hidden_size(), o.bias()), options(o) {}
LSTMCellImpl::States LSTMCellImpl::forward(const Tensor& x, std::optional<States> hx) const {
  const PlaceScope scope(*this);
  check_input(x);
  if (!hx) hx = States(no_state(x), no_state(x));
  return scope.result(
      lstm_cell(x, {std::get<0>(*hx), std::get<1>(*hx)}, weight_ih, weight_hh, bias_ih, bias_hh));
}

}  // namespace halftape::nn
