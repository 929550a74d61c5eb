// reset_parameters() of every module that has it.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/modules/module_vectors.h"

using namespace halftape;
using namespace halftape::nn;
using testing::same_bits;

namespace {

/// Each parameter is drawn anew, by the seed, but for those that LibTorch leaves alone, too.
template <class M>
void check_reset(const M& module, bool vectors_stay = false) {
  CAPTURE(module->name());
  const auto reset = [&] {
    {
      const NoGradGuard no_grad;
      for (Tensor& p : module->parameters()) p.fill_(7);
    }
    manual_seed(1);
    module->reset_parameters();
    TensorList values;
    for (const Tensor& p : module->parameters()) values.push_back(p.detach().clone());
    return values;
  };
  const TensorList once = reset(), twice = reset();
  const auto named = module->named_parameters();
  REQUIRE(once.size() == named.size());
  for (size_t i = 0; i < once.size(); ++i) {
    const std::string& name = named[i].key();
    CAPTURE(name);
    const bool stays = name.ends_with("out_proj.weight") && !vectors_stay;
    CHECK((once[i] == 7).any().item<bool>() == (stays || (vectors_stay && once[i].dim() == 1)));
    CHECK(same_bits(once[i], twice[i]));
  }
}

}  // namespace

TEST_CASE("reset_parameters() draws every parameter anew") {
  const auto layer = TransformerEncoderLayerOptions(4, 2).dim_feedforward(5);
  check_reset(TransformerEncoderLayer(layer));
  check_reset(TransformerEncoder(TransformerEncoderOptions(TransformerEncoderLayer(layer), 2)));
  const auto decoder = TransformerDecoderLayerOptions(4, 2).dim_feedforward(5);
  check_reset(TransformerDecoderLayer(decoder));
  check_reset(TransformerDecoder(TransformerDecoderOptions(TransformerDecoderLayer(decoder), 2)));
  check_reset(Transformer(TransformerOptions(4, 2, 1, 1).dim_feedforward(5)), true);
  check_reset(
      AdaptiveLogSoftmaxWithLoss(AdaptiveLogSoftmaxWithLossOptions(8, 12, {3, 7}).div_value(2)));
  check_reset(LSTM(LSTMOptions(3, 4).bidirectional(true)));
  check_reset(GRUCell(GRUCellOptions(3, 4)));
  check_reset(Embedding(EmbeddingOptions(5, 3)));
  check_reset(EmbeddingBag(EmbeddingBagOptions(5, 3)));
  check_reset(Linear(3, 2));
  check_reset(Bilinear(BilinearOptions(3, 2, 4)));
  check_reset(Conv2d(Conv2dOptions(2, 3, 3)));
  check_reset(ConvTranspose1d(ConvTranspose1dOptions(2, 3, 3)));
  check_reset(BatchNorm1d(3));
  check_reset(GroupNorm(GroupNormOptions(2, 4)));
  check_reset(LayerNorm(Shape{4}));
}
