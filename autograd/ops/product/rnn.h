// Recurrent networks: cells, and layers of them over sequences, padded or packed. Under autocast:
// the lower dtype. Halves: products are rounded as matmul's are; a cell computes its new state from
// them in float32 and rounds it once.
#pragma once
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

// One step. x: (N, in) or (in), h and c: (N, H) or (H); w_ih: (G·H, in), w_hh: (G·H, H), biases:
// (G·H) or undefined, with G gates, one after another → new states, of h's shape.

/// tanh(W_ih·x + b_ih + W_hh·h + b_hh).   Elman 1990.
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// The same with max(·, 0).
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// Gates i, f, g, o: c ← σ(f)·c + σ(i)·tanh(g), h ← σ(o)·tanh(c). hx: {h, c} → (h, c).
/// Hochreiter & Schmidhuber 1997; Gers et al. 2000.
std::tuple<Tensor, Tensor> lstm_cell(const Tensor& x, const TensorList& hx, const Tensor& w_ih,
                                     const Tensor& w_hh, const Tensor& b_ih = {},
                                     const Tensor& b_hh = {});
/// Gates r, z, n with n = tanh(W_in·x + b_in + σ(r)·(W_hn·h + b_hn)): h ← (1 − σ(z))·n + σ(z)·h.
/// Cho et al. 2014, arXiv:1406.1078.
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih = {}, const Tensor& b_hh = {});

// Layers. x: (T, N, in), with batch_first (N, T, in); states: (layers·directions, N, H), forward
// before backward in each layer. params: for each layer and direction w_ih, w_hh, with has_biases
// b_ih, b_hh, and where lstm's h has fewer features than its c, a projection w_hr (P, H). A layer
// reads the outputs of the one below, of both directions side by side, with dropout between layers
// in training → outputs (T, N, directions·H), and the last states.
std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& x, const Tensor& h, const TensorList& params,
                                    bool has_biases, int64_t num_layers, double dropout, bool train,
                                    bool bidirectional, bool batch_first);
std::tuple<Tensor, Tensor> rnn_relu(const Tensor& x, const Tensor& h, const TensorList& params,
                                    bool has_biases, int64_t num_layers, double dropout, bool train,
                                    bool bidirectional, bool batch_first);
std::tuple<Tensor, Tensor> gru(const Tensor& x, const Tensor& h, const TensorList& params,
                               bool has_biases, int64_t num_layers, double dropout, bool train,
                               bool bidirectional, bool batch_first);
/// hx: {h, c} → (outputs, h, c).
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& x, const TensorList& hx,
                                        const TensorList& params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train,
                                        bool bidirectional, bool batch_first);

// The same of sequences of several lengths, the longest first: data (sum of lengths, in) holds all
// first steps, then all second steps, …; batch_sizes: int64 on the CPU, how many sequences have
// each step (nn/utils/rnn.h makes both) → outputs in the same order.
std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& data, const Tensor& batch_sizes, const Tensor& h,
                                    const TensorList& params, bool has_biases, int64_t num_layers,
                                    double dropout, bool train, bool bidirectional);
std::tuple<Tensor, Tensor> rnn_relu(const Tensor& data, const Tensor& batch_sizes, const Tensor& h,
                                    const TensorList& params, bool has_biases, int64_t num_layers,
                                    double dropout, bool train, bool bidirectional);
std::tuple<Tensor, Tensor> gru(const Tensor& data, const Tensor& batch_sizes, const Tensor& h,
                               const TensorList& params, bool has_biases, int64_t num_layers,
                               double dropout, bool train, bool bidirectional);
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& data, const Tensor& batch_sizes,
                                        const TensorList& hx, const TensorList& params,
                                        bool has_biases, int64_t num_layers, double dropout,
                                        bool train, bool bidirectional);

}  // namespace halftape
