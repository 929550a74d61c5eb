// Frames, linear layers, embeddings, distances, and what changes the size of images.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

namespace {

/// from_pretrained() of a table, which is the case's `_weight`.
template <class Holder, class Options>
Use pretrained(Case c, Dtype dtype) {
  const auto table = std::find_if(c.options.begin(), c.options.end(),
                                  [](const auto& o) { return o.first == "_weight"; });
  HALFTAPE_CHECK(table != c.options.end(), c.name, ": no _weight");
  const Tensor weight = option_text::numbers(table->second).to(dtype);
  c.options.erase(table);
  const Holder module = Holder::from_pretrained(weight, option_text::options_of<Options>(c));
  return {module.ptr(), detail::forward_of<typename Holder::ContainedType>(module.ptr()), {}};
}

}  // namespace

std::vector<Kind> layer_kinds() {
  return {
      module_kind<ReflectionPad1d>("ReflectionPad1d"),
      module_kind<ReplicationPad1d>("ReplicationPad1d"),
      module_kind<CircularPad1d>("CircularPad1d"),
      module_kind<ZeroPad1d>("ZeroPad1d"),
      module_kind<ConstantPad1d>("ConstantPad1d"),
      module_kind<ReflectionPad2d>("ReflectionPad2d", {.wrong = {3}}),
      module_kind<ReplicationPad2d>("ReplicationPad2d", {.wrong = {3}}),
      module_kind<CircularPad2d>("CircularPad2d", {.wrong = {3}}),
      module_kind<ZeroPad2d>("ZeroPad2d", {.wrong = {3}}),
      module_kind<ConstantPad2d>("ConstantPad2d", {.wrong = {3}}),
      module_kind<ReflectionPad3d>("ReflectionPad3d", {.wrong = {3}}),
      module_kind<ReplicationPad3d>("ReplicationPad3d", {.wrong = {3}}),
      module_kind<CircularPad3d>("CircularPad3d", {.wrong = {3}}),
      module_kind<ZeroPad3d>("ZeroPad3d", {.wrong = {3}}),
      module_kind<ConstantPad3d>("ConstantPad3d", {.wrong = {3}}),
      module_kind<Linear>("Linear", {.cast = Cast::Lower, .wrong = {2, 4}}),
      module_kind<Bilinear>("Bilinear", {.cast = Cast::Float32, .wrong = {2, 3}}),
      module_kind<CosineSimilarity>("CosineSimilarity", {.cast = Cast::Float32, .wrong = {2, 3, 5}},
                                    HALFTAPE_SAME_AS(cosine_similarity)),
      module_kind<PairwiseDistance>("PairwiseDistance", {.cast = Cast::Float32, .wrong = {2, 3, 5}},
                                    HALFTAPE_SAME_AS(pairwise_distance)),
      module_kind<PixelShuffle>("PixelShuffle", {.wrong = {1, 3, 5, 5}},
                                HALFTAPE_SAME_AS(pixel_shuffle)),
      module_kind<PixelUnshuffle>("PixelUnshuffle", {.wrong = {1, 2, 3, 2}},
                                  HALFTAPE_SAME_AS(pixel_unshuffle)),
      module_kind<Upsample>("Upsample", {.cast = Cast::Float32, .wrong = {5, 5}}),
      module_kind<Embedding>("Embedding", {.wrong = {2, 3}}),
      module_kind<EmbeddingBag>("EmbeddingBag", {.wrong = {2, 3}}),
      {.name = "Sequential",
       .function = {},
       .options = {},
       .held = {.cast = Cast::Lower, .wrong = {2, 4}},
       .make =
           [](const Case&, Dtype dtype) {
             const Sequential module(Linear(5, 3), ReLU(), Linear(3, 2));
             module->to(dtype);
             return Use{
                 module.ptr(), [=](const TensorList& x) { return module->forward(x[0]); }, {}};
           }},
      module_kind<AdaptiveLogSoftmaxWithLoss>("AdaptiveLogSoftmaxWithLoss",
                                              {.cast = Cast::Float32, .wrong = {5, 5}}),
  };
}

std::vector<Kind> embedding_and_function_kinds() {
  return {
      {.name = "embedding_from_pretrained",
       .function = {},
       .options = "EmbeddingFromPretrainedOptions",
       .held = {.wrong = {2, 3}},
       .make = pretrained<Embedding, EmbeddingFromPretrainedOptions>},
      {.name = "embedding_bag_from_pretrained",
       .function = {},
       .options = "EmbeddingBagFromPretrainedOptions",
       .held = {.wrong = {2, 3}},
       .make = pretrained<EmbeddingBag, EmbeddingBagFromPretrainedOptions>},
      function_kind<F::EmbeddingFuncOptions>("embedding", {.wrong = {2, 3}},
                                             HALFTAPE_FUNC(embedding)),
      function_kind<F::EmbeddingBagFuncOptions>("embedding_bag", {.wrong = {2, 3}},
                                                HALFTAPE_FUNC(embedding_bag)),
      function_kind<F::PadFuncOptions>("pad", {.wrong = {3}}, HALFTAPE_FUNC(pad)),
      function_kind<F::InterpolateFuncOptions>(
          "interpolate", {.cast = Cast::Float32, .wrong = {5, 5}}, HALFTAPE_FUNC(interpolate)),
      function_kind<F::GridSampleFuncOptions>("grid_sample", {.wrong = {2, 4, 5}},
                                              HALFTAPE_FUNC(grid_sample)),
  };
}

}  // namespace halftape::testing
