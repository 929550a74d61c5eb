// Transformers against PyTorch's: scripts/torch_vectors/transformers.py states the same problems.
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

namespace {

using LayerOptions = TransformerEncoderLayerOptions;
LayerOptions small() { return LayerOptions(4, 2).dim_feedforward(5).dropout(0); }
Tensor padding() { return tensor({{0, 0, 1}, {0, 0, 0}}) != 0; }
Tensor ahead(int64_t n) { return TransformerImpl::generate_square_subsequent_mask(n); }

}  // namespace

TEST_CASE("transformers and their layers give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("transformers.txt", dtype);
    const Tensor src = torch.leaf("src", {3, 2, 4}), tgt = torch.leaf("tgt", {2, 2, 4});
    const std::function<Tensor(const Tensor&)> erf = [](const Tensor& x) { return gelu(x); };
    const std::pair<const char*, activation_t> activations[] = {
        {"relu", kReLU}, {"gelu", kGELU}, {"gelu", erf}};
    for (const auto& [word, activation] : activations) {
      const std::string name = std::string("encoder_layer/") + word;
      const auto layer =
          torch.loaded(name, TransformerEncoderLayer(small().activation(activation)));
      const Tensor y = layer(src, Tensor(), padding());
      torch.check(name, y, {src});
      torch.check_parameters(name, y, layer);
    }
    const auto decoder = torch.loaded("decoder_layer", TransformerDecoderLayer(small()));
    const Tensor y = decoder(tgt, src, ahead(2), Tensor(), Tensor(), padding());
    torch.check("decoder_layer", y, {tgt, src});
    torch.check_parameters("decoder_layer", y, decoder);

    const auto stack = torch.loaded("encoder", TransformerEncoder(TransformerEncoderOptions(
                                                   TransformerEncoderLayer(small()), 2)));
    torch.check("encoder", stack(src, ahead(3)), {src});
    const auto whole = torch.loaded(
        "transformer", Transformer(TransformerOptions(4, 2, 1, 1).dim_feedforward(5).dropout(0)));
    torch.check("transformer", whole(src, tgt, Tensor(), ahead(2), Tensor(), padding()),
                {src, tgt});
  }
}

TEST_CASE("a mask of what comes later is −∞ above the diagonal") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(same_bits(ahead(3), tensor({{0., -inf, -inf}, {0., 0., -inf}, {0., 0., 0.}})));
}

TEST_CASE("the layers of a stack are clones, with parameters of their own") {
  const TransformerDecoderLayer layer(small());
  const TransformerDecoder stack(
      TransformerDecoderOptions(layer, 3).norm(AnyModule(LayerNorm(Shape{4}))));
  CHECK(stack->layers->size() == 3);
  auto& first = stack->layers->at<TransformerDecoderLayerImpl>(0);
  CHECK(same_bits(first.linear1->weight, layer->linear1->weight));
  CHECK(!first.linear1->weight.is_same(layer->linear1->weight));
  const Tensor x = randn({2, 1, 4}), before = stack(x, x);
  {
    const NoGradGuard no_grad;
    layer->linear1->weight.zero_();
  }
  CHECK(same_bits(stack(x, x), before));
  const auto copy = std::dynamic_pointer_cast<TransformerDecoderImpl>(stack->clone());
  CHECK(same_bits(copy->forward(x, x), before));
  stack->reset_parameters();
  CHECK(!same_bits(stack(x, x), before));
  CHECK(same_bits(copy->forward(x, x), before));
}

TEST_CASE("Transformer names its parameters as LibTorch's, and its clone computes the same") {
  manual_seed(4);
  const Transformer model(TransformerOptions(8, 2, 2, 1).dim_feedforward(6).activation(kGELU));
  const auto keys = model->named_parameters().keys();
  const auto named = [&](const char* key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  CHECK(named("encoder.layers.1.self_attn.in_proj_weight"));
  CHECK(named("encoder.norm.weight"));
  CHECK(named("decoder.layers.0.multihead_attn.out_proj.bias"));
  CHECK(named("decoder.layers.0.norm3.bias"));
  const Tensor src = randn({3, 2, 8}), tgt = randn({4, 2, 8});
  CHECK(!same_bits(model(src, tgt), model(src, tgt)));  // dropout
  model->eval();
  const Tensor y = model(src, tgt);
  CHECK(y.sizes() == Shape{4, 2, 8});
  const auto copy = std::dynamic_pointer_cast<TransformerImpl>(model->clone());
  copy->eval();
  CHECK(same_bits(copy->forward(src, tgt), y));
  CHECK(same_bits(AnyModule(model).forward(src, tgt), y));
  CHECK(has(message([&] { model(src, randn({4, 1, 8})); }), "Transformer: src [3, 2, 8]"));
}

TEST_CASE("Transformer takes an encoder of the user's") {
  const TransformerEncoder mine(TransformerEncoderLayer(LayerOptions(8, 2).dim_feedforward(3)), 1);
  const Transformer model(
      TransformerOptions(8, 2, 1, 1).dim_feedforward(6).custom_encoder(AnyModule(mine)));
  CHECK(model->encoder.get<TransformerEncoderImpl>().layers->size() == 1);
  CHECK(model(randn({3, 2, 8}), randn({4, 2, 8})).sizes() == Shape{4, 2, 8});
  CHECK(has(message([] { TransformerEncoder(TransformerEncoderLayer(8, 2), 0); }), "num_layers 0"));
  CHECK(has(message([] { activation_t wrong(kTanh); }), "kReLU, kGELU"));
  CHECK(has(message([] { activation_t wrong(std::function<Tensor(const Tensor&)>{}); }), "empty"));
  Tensor (*no_function)(const Tensor&) = nullptr;
  CHECK(has(message([&] { activation_t wrong(no_function); }), "null pointer"));
}

TEST_CASE("a transformer trains under autocast with float32 gradients that are finite") {
  manual_seed(6);
  const Transformer model(TransformerOptions(8, 2, 1, 1).dim_feedforward(16));
  const Tensor src = randn({5, 2, 8}), tgt = randn({3, 2, 8});
  for (const Dtype lower : {kFloat16, kBFloat16}) {
    model->zero_grad();
    Tensor y;
    {
      const amp::autocast region(get_default_device().type(), lower);
      y = model(src, tgt, Tensor(), ahead(3));
      y.square().mean().backward();
    }
    for (const Tensor& p : model->parameters()) {
      if (!p.defined()) continue;
      CHECK(p.grad().dtype() == kFloat32);
      CHECK(p.grad().isfinite().all().item<bool>());
    }
  }
}
