// Recurrent layers and cells against PyTorch's: scripts/torch_vectors/recurrent.py states the same
// problems. The ops' rows stand in tests/support/rows/recurrent_rows.cpp.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/modules/module_vectors.h"

using namespace halftape;
using namespace halftape::nn;
using testing::has;
using testing::message;
using testing::ModuleVectors;
using testing::same_bits;
namespace rnn = utils::rnn;

namespace {

using Pair = std::tuple<Tensor, Tensor>;

/// Everything that a layer gives, in one vector.
Tensor whole(const std::tuple<Tensor, Tensor>& r) {
  return cat({std::get<0>(r).flatten(), std::get<1>(r).flatten()});
}
Tensor whole(const std::tuple<Tensor, Pair>& r) {
  const auto& [y, states] = r;
  return cat({y.flatten(), std::get<0>(states).flatten(), std::get<1>(states).flatten()});
}

template <class Layer>
void check_layer(const ModuleVectors& torch, const std::string& name, Layer layer,
                 const Shape& state, int64_t c_features = 0) {
  const Tensor x = torch.leaf("x", {3, 2, 3}), h = torch.leaf(name + "/h", state);
  torch.loaded(name, layer);
  TensorList inputs{x, h};
  Tensor y;
  if constexpr (std::is_same_v<Layer, LSTM>) {
    Shape cells = state;
    cells[2] = c_features;
    inputs.push_back(torch.leaf(name + "/c", cells));
    y = whole(layer(x, Pair(h, inputs[2])));
  } else {
    y = whole(layer(x, h));
  }
  torch.check(name, y, inputs);
  torch.check_parameters(name, y, layer);
}

/// Runs a layer over what pack_padded_sequence() makes of sequences that are not sorted.
template <class Layer>
void check_packed(const ModuleVectors& torch, const std::string& name, Layer layer) {
  const Tensor x = torch.leaf("packed/x", {4, 3, 3});
  torch.loaded(name, layer);
  const auto [packed, states] = layer->forward_with_packed_input(
      rnn::pack_padded_sequence(x, tensor({2, 4, 1}), false, false));
  const Tensor y = whole(std::make_tuple(std::get<0>(rnn::pad_packed_sequence(packed)), states));
  torch.check(name, y, {x});
  torch.check_parameters(name, y, layer);
}

}  // namespace

TEST_CASE("cells of recurrent networks give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("recurrent.txt", dtype);
    const Tensor x = torch.leaf("cell/x", {2, 3}), h = torch.leaf("cell/h", {2, 4}),
                 c = torch.leaf("cell/c", {2, 4});
    const auto check = [&](const std::string& name, auto cell) {
      torch.loaded(name, cell);
      const Tensor y = cell(x, h);
      torch.check(name, y, {x, h});
      torch.check_parameters(name, y, cell);
    };
    check("cell/tanh", RNNCell(3, 4));
    check("cell/relu", RNNCell(RNNCellOptions(3, 4).nonlinearity(kReLU)));
    check("cell/gru", GRUCell(3, 4));
    check("cell/gru_plain", GRUCell(GRUCellOptions(3, 4).bias(false)));
    const auto cell = torch.loaded("cell/lstm", LSTMCell(3, 4));
    const auto [next_h, next_c] = cell(x, Pair(h, c));
    const Tensor y = cat({next_h, next_c});
    torch.check("cell/lstm", y, {x, h, c});
    torch.check_parameters("cell/lstm", y, cell);
  }
}

TEST_CASE("recurrent layers give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("recurrent.txt", dtype);
    check_layer(torch, "tanh", RNN(3, 4), {1, 2, 4});
    check_layer(torch, "relu", RNN(RNNOptions(3, 4).num_layers(2).nonlinearity(kReLU).bias(false)),
                {2, 2, 4});
    check_layer(torch, "gru", GRU(GRUOptions(3, 4).num_layers(2).bidirectional(true)), {4, 2, 4});
    check_layer(torch, "lstm", LSTM(LSTMOptions(3, 4).num_layers(2).bidirectional(true)), {4, 2, 4},
                4);
    check_layer(torch, "lstm_projected", LSTM(LSTMOptions(3, 4).num_layers(2).proj_size(2)),
                {2, 2, 2}, 4);

    const Tensor x = torch.leaf("x", {3, 2, 3});
    const auto batch_first = torch.loaded("batch_first", GRU(GRUOptions(3, 4).batch_first(true)));
    torch.check("batch_first", whole(batch_first(x)), {x});
    const Tensor one = x.detach().select(1, 0).clone().requires_grad_();
    const auto no_batch = torch.loaded("no_batch", LSTM(3, 4));
    torch.check("no_batch", whole(no_batch(one)), {one});
  }
}

TEST_CASE("packed sequences of several lengths, both ways, give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("recurrent.txt", dtype);
    check_packed(torch, "packed/tanh", RNN(RNNOptions(3, 4).bidirectional(true)));
    check_packed(torch, "packed/gru", GRU(3, 4));
    check_packed(torch, "packed/lstm", LSTM(LSTMOptions(3, 4).num_layers(2).bidirectional(true)));
  }
}

TEST_CASE("a sequence in a batch gives what it gives alone, whatever its neighbours' lengths") {
  manual_seed(3);
  const LSTM layer(LSTMOptions(2, 3).num_layers(2).bidirectional(true));
  layer->to(kFloat64);
  const TensorList sequences{randn({2, 2}, kFloat64), randn({5, 2}, kFloat64),
                             randn({1, 2}, kFloat64), randn({5, 2}, kFloat64)};
  const auto [packed, states] =
      layer->forward_with_packed_input(rnn::pack_sequence(sequences, false));
  const auto [y, lengths] = rnn::pad_packed_sequence(packed, true);
  CHECK(lengths.equal(tensor({2, 5, 1, 5}).to(kCPU)));
  for (int64_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    const auto [alone, last] = layer(sequences[static_cast<size_t>(i)]);
    const int64_t n = alone.size(0);
    CHECK(y[i].narrow(0, 0, n).allclose(alone, 1e-12, 1e-12));
    CHECK(y[i].narrow(0, n, 5 - n).equal(zeros({5 - n, 6}, kFloat64)));
    CHECK(std::get<0>(states).select(1, i).allclose(std::get<0>(last), 1e-12, 1e-12));
    CHECK(std::get<1>(states).select(1, i).allclose(std::get<1>(last), 1e-12, 1e-12));
  }
}

TEST_CASE("the states that come out are where the next call goes on") {
  const GRU layer(GRUOptions(2, 3).num_layers(2));
  const Tensor x = randn({4, 2, 2});
  const auto [all, last] = layer(x);
  const auto [first, middle] = layer(x.narrow(0, 0, 3));
  const auto [rest, end] = layer(x.narrow(0, 3, 1), middle);
  CHECK(same_bits(cat({first, rest}), all));
  CHECK(same_bits(end, last));
}

TEST_CASE("flatten_parameters leaves weights where they are, and what a layer gives") {
  const auto check = [](const auto& layer) {
    const Tensor x = randn({4, 2, 2}), before = whole(layer->forward(x));
    const auto places = [&] {
      std::vector<const void*> all;
      for (const Tensor& p : layer->parameters()) all.push_back(p.const_data_ptr());
      return all;
    };
    const auto first = places();
    layer->flatten_parameters();
    CHECK(places() == first);
    CHECK(same_bits(whole(layer->forward(x)), before));
  };
  check(RNN(2, 3)), check(LSTM(2, 3)), check(GRU(2, 3));
}

TEST_CASE("dropout stands between the layers, in training only") {
  manual_seed(1);
  const RNN layer(RNNOptions(2, 3).num_layers(2).dropout(1));
  const Tensor x = randn({4, 2, 2});
  // Without what the first layer says, all sequences are the same to the second.
  const Tensor y = std::get<0>(layer(x));
  CHECK(same_bits(y.select(1, 0), y.select(1, 1)));
  layer->eval();
  const Tensor z = std::get<0>(layer(x));
  CHECK_FALSE(same_bits(z.select(1, 0), z.select(1, 1)));
  CHECK(same_bits(z, std::get<0>(layer(x))));
}

TEST_CASE("under autocast recurrent layers run in half, and parameters keep float32 gradients") {
  const LSTM layer(3, 4);
  const LSTMCell cell(3, 4);
  const Tensor x = randn({2, 2, 3});
  const amp::autocast region(get_default_device().type(), kFloat16);
  const auto [y, states] = layer(x);
  CHECK(y.dtype() == kFloat16);
  CHECK(std::get<1>(states).dtype() == kFloat16);
  CHECK(std::get<0>(cell(x[0])).dtype() == kFloat16);
  y.sum().backward();
  for (const Tensor& p : layer->parameters()) CHECK(p.grad().dtype() == kFloat32);
}

TEST_CASE("padding and packing are each other's inverse, and pass gradients on") {
  const TensorList sequences{randn({3, 2}, kFloat64).requires_grad_(),
                             randn({1, 2}, kFloat64).requires_grad_(),
                             randn({2, 2}, kFloat64).requires_grad_()};
  const auto packed = rnn::pack_sequence(sequences, false);
  CHECK(packed.batch_sizes().equal(tensor({3, 2, 1}).to(kCPU)));
  CHECK(packed.sorted_indices().equal(tensor({0, 2, 1})));
  CHECK(packed.unsorted_indices().equal(tensor({0, 2, 1})));
  CHECK(same_bits(packed.data().select(0, 1), sequences[2][0]));
  for (const bool batch_first : {false, true}) {
    const auto [padded, lengths] = rnn::pad_packed_sequence(packed, batch_first, -1.5, 4);
    CHECK(lengths.equal(tensor({3, 1, 2}).to(kCPU)));
    Tensor expected = rnn::pad_sequence(sequences, batch_first, -1.5);
    Shape frame = expected.sizes();
    const int steps = batch_first ? 1 : 0;
    frame[steps] = 1;
    expected = cat({expected, full(frame, -1.5, kFloat64)}, steps);
    CHECK(same_bits(padded, expected));
  }
  const auto round_trip = [](const TensorList& in) {
    return std::get<0>(rnn::pad_packed_sequence(rnn::pack_sequence(in, false)));
  };
  CHECK(autograd::gradcheck(round_trip, sequences));
  CHECK_FALSE(
      rnn::pack_sequence({sequences[0], sequences[2], sequences[1]}).sorted_indices().defined());
}

TEST_CASE("a packed sequence is converted with its order, and packed from either layout") {
  const Tensor padded = randn({3, 2, 4}), lengths = tensor({2, 3});
  const auto packed = rnn::pack_padded_sequence(padded, lengths, false, false);
  const auto wide = packed.to(kFloat64);
  CHECK(same_bits(wide.data(), packed.data().to(kFloat64)));
  CHECK(wide.batch_sizes().equal(packed.batch_sizes()));
  CHECK(wide.sorted_indices().equal(tensor({1, 0})));
  CHECK(wide.unsorted_indices().equal(tensor({1, 0})));
  CHECK(packed.to(kFloat32).data().is_same(packed.data()));
  const auto same = rnn::pack_padded_sequence(transpose(padded, 0, 1), lengths, true, false);
  CHECK(same_bits(same.data(), packed.data()));
}

TEST_CASE("recurrent modules name their parameters by layer and direction") {
  CHECK(GRU(GRUOptions(2, 3).num_layers(2).bidirectional(true))->named_parameters().keys() ==
        std::vector<std::string>{
            "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
            "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse", "weight_ih_l1",
            "weight_hh_l1", "bias_ih_l1", "bias_hh_l1", "weight_ih_l1_reverse",
            "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse"});
}

TEST_CASE("recurrent layers and packing say what does not fit") {
  const GRU layer(2, 3);
  const auto said = [&](const auto& call) { return message([&] { (void)call(); }); };
  CHECK(has(said([&] {
              return layer(zeros({4, 2, 5}));
            }),
            "GRU: input [4, 2, 5] has 5 features, input_size is 2"));
  CHECK(has(said([&] {
              return layer(zeros({4, 2, 2}), zeros({1, 3, 3}));
            }),
            "gru: state [1, 3, 3], expected (1, 2, features)"));
  CHECK(has(said([&] { return layer(zeros({2})); }), "GRU: input [2]"));
  CHECK(has(said([&] { return RNN(RNNOptions(2, 3).nonlinearity(kSigmoid)); }),
            "nonlinearity has to be kTanh or kReLU"));
  CHECK(has(said([&] { return LSTM(LSTMOptions(2, 3).proj_size(3)); }), "proj_size 3"));
  CHECK(has(said([&] { return GRU(GRUOptions(2, 3).dropout(1.5)); }), "dropout 1.5"));
  CHECK(has(said([&] { return GRUCell(2, 0); }), "hidden_size 0 must be positive"));
  const Tensor x = zeros({4, 3, 2});
  CHECK(has(said([&] {
              return rnn::pack_padded_sequence(x, tensor({2, 4, 1}));
            }),
            "must be sorted in decreasing order"));
  CHECK(has(said([&] { return rnn::pack_padded_sequence(x, tensor({5, 4, 1})); }), "length 5"));
  CHECK(has(said([&] { return rnn::pack_padded_sequence(x, tensor({2, 1})); }), "batch of 3"));
  const auto packed = rnn::pack_padded_sequence(x, tensor({4, 2, 1}));
  CHECK(has(said([&] { return rnn::pad_packed_sequence(packed, false, 0, 3); }),
            "Expected total_length to be at least the length of the longest sequence"));
  CHECK(has(said([&] {
              return rnn_tanh(packed.data(), tensor({3, 4}).to(kCPU), zeros({1, 3, 3}),
                              RNN(2, 3)->all_weights(), true, 1, 0, true, false);
            }),
            "batch size 4 of step 1"));
  CHECK(has(said([&] { return rnn::pad_sequence(TensorList()); }), "one sequence at least"));
  CHECK(has(said([&] { return rnn::invert_permutation(tensor({0, 2})); }), "2 is no place"));
}

TEST_CASE(
    "a packed sequence has batch sizes that fit its rows, and indices that are a permutation") {
  const Tensor data = ones({3, 2});
  const auto said = [](const auto& call) { return message([&] { (void)call(); }); };
  const auto made = [&](const Tensor& sizes, const Tensor& sorted = {}) {
    return said([&] { return rnn::pad_packed_sequence(rnn::PackedSequence(data, sizes, sorted)); });
  };
  const auto cpu = [](std::vector<int64_t> values) {
    return tensor(values, TensorOptions(kInt64).device(kCPU));
  };
  CHECK(made(cpu({2, 1})) == "");
  for (const auto& sizes : {cpu({9}), cpu({-1, 4}), cpu({1, 2}), cpu({2, 2}), cpu({0, 3}), cpu({2}),
                            cpu({std::numeric_limits<int64_t>::max(), 1})})
    CHECK(has(made(sizes), "PackedSequence: "));
  CHECK(has(made(tensor({2.0, 1.0}).to(kCPU)), "integers, not float32"));
  CHECK(has(made(full({}, 3, TensorOptions(kInt64).device(kCPU))), "one number on the CPU"));
  for (const auto& sorted : {cpu({0, 0}), cpu({5, 0}), cpu({0, -1})})
    CHECK(has(made(cpu({2, 1}), sorted), "is no place among 2"));
  CHECK(has(made(cpu({2, 1}), cpu({2, 1, 0})), "3 indices for a batch of 2"));
  const Tensor x = ones({3, 2, 1});
  CHECK(has(said([&] { return rnn::pack_padded_sequence(x, tensor({2.5, 1.5})); }), "integers"));
  CHECK(has(said([&] {
              return rnn::pad_packed_sequence(rnn::PackedSequence(data, cpu({2, 1})), false, 0,
                                              std::numeric_limits<int64_t>::max());
            }),
            "does not fit 64 bits"));
}
