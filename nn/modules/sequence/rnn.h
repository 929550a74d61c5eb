// Recurrent layers and cells: options and modules. Computed by autograd/ops/product/rnn.h.
#pragma once
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/nn/init.h"
#include "halftape/nn/modules/common.h"
#include "halftape/nn/utils/rnn.h"

namespace halftape::nn {

namespace detail {
enum class RNNMode : uint8_t { Tanh, ReLU, LSTM, GRU };

/// The options that RNN, LSTM and GRU share.
struct RNNOptionsBase {
  RNNOptionsBase(RNNMode mode, int64_t input_size, int64_t hidden_size)
      : mode_(mode), input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(RNNMode, mode);
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(int64_t, num_layers) = 1;
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(bool, batch_first) = false;
  HALFTAPE_ARG(double, dropout) = 0;
  HALFTAPE_ARG(bool, bidirectional) = false;
  HALFTAPE_ARG(int64_t, proj_size) = 0;
};
}  // namespace detail

struct RNNOptions {
  RNNOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(int64_t, num_layers) = 1;
  HALFTAPE_ARG(init::Nonlinearity, nonlinearity) = kTanh;  // or kReLU
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(bool, batch_first) = false;  // (N, T, in) instead of (T, N, in)
  HALFTAPE_ARG(double, dropout) = 0;        // between layers, in training
  HALFTAPE_ARG(bool, bidirectional) = false;
};

struct LSTMOptions {
  LSTMOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(int64_t, num_layers) = 1;
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(bool, batch_first) = false;
  HALFTAPE_ARG(double, dropout) = 0;
  HALFTAPE_ARG(bool, bidirectional) = false;
  HALFTAPE_ARG(int64_t, proj_size) = 0;  // features of h; 0: hidden_size, as c.  arXiv:1402.1128
};

struct GRUOptions {
  GRUOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(int64_t, num_layers) = 1;
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(bool, batch_first) = false;
  HALFTAPE_ARG(double, dropout) = 0;
  HALFTAPE_ARG(bool, bidirectional) = false;
};

struct RNNCellOptions {
  RNNCellOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(init::Nonlinearity, nonlinearity) = kTanh;  // or kReLU
};
struct LSTMCellOptions {
  LSTMCellOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(bool, bias) = true;
};
using GRUCellOptions = LSTMCellOptions;

namespace detail {
/// The base of RNN, LSTM and GRU. For layer k it has the parameters weight_ih_lk, weight_hh_lk,
/// bias_ih_lk, bias_hh_lk and weight_hr_lk, with the suffix _reverse for the way back; all start
/// in U(−b, b), b = 1/√hidden_size. Throws unless sizes are positive and 0 ≤ dropout ≤ 1.
class RNNImplBase : public CloneableModule {
 public:
  explicit RNNImplBase(const RNNOptionsBase& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& out) const override;
  /// Does nothing: weights need not lie one after another here.
  void flatten_parameters() {}
  /// In the order in which they are registered.
  std::vector<Tensor> all_weights() const { return parameters(false); }

  RNNOptionsBase options_base;

 protected:
  /// Outputs and last states; c is undefined except for LSTM.
  struct Result {
    Tensor outputs, h, c;
  };
  Result forward_padded(const Tensor& x, const Tensor& h, const Tensor& c) const;
  Result forward_packed(const utils::rnn::PackedSequence& x, const Tensor& h,
                        const Tensor& c) const;

 private:
  Result run(const Tensor& x, const Tensor& batch_sizes, int64_t batch, Tensor h, Tensor c) const;
};

/// The base of RNN and GRU, which have one state.
template <class Options>
class OneStateLayer : public RNNImplBase {
 public:
  OneStateLayer(int64_t input_size, int64_t hidden_size)
      : OneStateLayer(Options(input_size, hidden_size)) {}
  explicit OneStateLayer(const Options& options);
  std::tuple<Tensor, Tensor> forward(const Tensor& x, Tensor hx = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())})
  std::tuple<utils::rnn::PackedSequence, Tensor> forward_with_packed_input(
      const utils::rnn::PackedSequence& x, Tensor hx = {}) const;
  Options options;
};
}  // namespace detail

/// x: (T, N, input_size), with batch_first (N, T, input_size), or without N; hx:
/// (layers·directions, N, hidden_size), or zeros → outputs (T, N, directions·hidden_size), and the
/// last hx.
HALFTAPE_DERIVED_MODULE(RNN, detail::OneStateLayer<RNNOptions>);

/// The same; hx: (h, c). With proj_size, h and the outputs have that many features.
class LSTMImpl : public Cloneable<LSTMImpl, detail::RNNImplBase> {
 public:
  using States = std::tuple<Tensor, Tensor>;
  LSTMImpl(int64_t input_size, int64_t hidden_size)
      : LSTMImpl(LSTMOptions(input_size, hidden_size)) {}
  explicit LSTMImpl(const LSTMOptions& options);
  std::tuple<Tensor, States> forward(const Tensor& x, const std::optional<States>& hx = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<States>())})
  std::tuple<utils::rnn::PackedSequence, States> forward_with_packed_input(
      const utils::rnn::PackedSequence& x, const std::optional<States>& hx = {}) const;
  LSTMOptions options;
};
HALFTAPE_MODULE(LSTM);

/// As RNN.
HALFTAPE_DERIVED_MODULE(GRU, detail::OneStateLayer<GRUOptions>);

namespace detail {
/// The base of the cells. Their parameters start in U(−b, b), b = 1/√hidden_size.
class RNNCellImplBase : public CloneableModule {
 public:
  /// nonlinearity: as it is printed; empty for the usual one.
  RNNCellImplBase(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size,
                  bool bias, std::string_view nonlinearity = "");
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& out) const override;

  Tensor weight_ih, weight_hh;
  Tensor bias_ih, bias_hh;  // undefined without bias

 protected:
  /// Throws unless x is (N, input_size) or (input_size).
  void check_input(const Tensor& x) const;
  /// Zeros in the shape of a state for x.
  Tensor no_state(const Tensor& x) const;

 private:
  const char* name_;
  int64_t gates_, input_size_, hidden_size_;
  bool bias_;
  std::string_view nonlinearity_;
};

/// The base of RNNCell and GRUCell, which have one state.
template <class Options>
class OneStateCell : public RNNCellImplBase {
 public:
  OneStateCell(int64_t input_size, int64_t hidden_size)
      : OneStateCell(Options(input_size, hidden_size)) {}
  explicit OneStateCell(const Options& options);
  Tensor forward(const Tensor& x, Tensor hx = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())})
  Options options;
};
}  // namespace detail

/// One step of an RNN. x: (N, input_size) or (input_size); hx: (N, hidden_size) or (hidden_size),
/// or zeros → the next hx.
HALFTAPE_DERIVED_MODULE(RNNCell, detail::OneStateCell<RNNCellOptions>);

/// One step of an LSTM; hx: (h, c) → the next.
class LSTMCellImpl : public Cloneable<LSTMCellImpl, detail::RNNCellImplBase> {
 public:
  using States = std::tuple<Tensor, Tensor>;
  LSTMCellImpl(int64_t input_size, int64_t hidden_size)
      : LSTMCellImpl(LSTMCellOptions(input_size, hidden_size)) {}
  explicit LSTMCellImpl(const LSTMCellOptions& options);
  States forward(const Tensor& x, std::optional<States> hx = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<States>())})
  LSTMCellOptions options;
};
HALFTAPE_MODULE(LSTMCell);

/// One step of a GRU.
HALFTAPE_DERIVED_MODULE(GRUCell, detail::OneStateCell<GRUCellOptions>);

}  // namespace halftape::nn
