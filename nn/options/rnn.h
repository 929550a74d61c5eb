// Options of recurrent layers and cells (nn/modules/sequence/rnn.h).
#pragma once
#include "halftape/core/options.h"
#include "halftape/nn/init.h"

namespace halftape::nn {

namespace detail {
enum class RNNMode : uint8_t { Tanh, ReLU, LSTM, GRU };

/// The options that RNN, LSTM and GRU share.
class RNNOptionsBase {
 public:
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

class RNNOptions {
 public:
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

class LSTMOptions {
 public:
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

class GRUOptions {
 public:
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

class RNNCellOptions {
 public:
  RNNCellOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(init::Nonlinearity, nonlinearity) = kTanh;  // or kReLU
};
class LSTMCellOptions {
 public:
  LSTMCellOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(bool, bias) = true;
};
class GRUCellOptions {
 public:
  GRUCellOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  HALFTAPE_ARG(int64_t, input_size);
  HALFTAPE_ARG(int64_t, hidden_size);
  HALFTAPE_ARG(bool, bias) = true;
};

}  // namespace halftape::nn
