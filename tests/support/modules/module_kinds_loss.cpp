// Losses.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

std::vector<Kind> loss_kinds() {
  return {
      module_kind<L1Loss>("L1Loss", {.cast = Cast::Float32, .wrong = {5, 7}},
                          HALFTAPE_SAME_AS(l1_loss)),
      module_kind<MSELoss>("MSELoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                           HALFTAPE_SAME_AS(mse_loss)),
      module_kind<SmoothL1Loss>("SmoothL1Loss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                HALFTAPE_SAME_AS(smooth_l1_loss)),
      module_kind<HuberLoss>("HuberLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                             HALFTAPE_SAME_AS(huber_loss)),
      module_kind<KLDivLoss>("KLDivLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                             HALFTAPE_SAME_AS(kl_div)),
      module_kind<PoissonNLLLoss>("PoissonNLLLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                  HALFTAPE_SAME_AS(poisson_nll_loss)),
      module_kind<GaussianNLLLoss>("GaussianNLLLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                   HALFTAPE_SAME_AS(gaussian_nll_loss)),
      module_kind<BCELoss>("BCELoss", {.cast = Cast::Refuse, .wrong = {5, 7}},
                           HALFTAPE_SAME_AS(binary_cross_entropy)),
      module_kind<BCEWithLogitsLoss>("BCEWithLogitsLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                     HALFTAPE_SAME_AS(binary_cross_entropy_with_logits)),
      module_kind<CrossEntropyLoss>("CrossEntropyLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                    HALFTAPE_SAME_AS(cross_entropy)),
      module_kind<NLLLoss>("NLLLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                           HALFTAPE_SAME_AS(nll_loss)),
      module_kind<HingeEmbeddingLoss>("HingeEmbeddingLoss",
                                      {.cast = Cast::Float32, .wrong = {5, 7}},
                                      HALFTAPE_SAME_AS(hinge_embedding_loss)),
      module_kind<SoftMarginLoss>("SoftMarginLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                  HALFTAPE_SAME_AS(soft_margin_loss)),
      module_kind<MarginRankingLoss>("MarginRankingLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                     HALFTAPE_SAME_AS(margin_ranking_loss)),
      module_kind<CosineEmbeddingLoss>("CosineEmbeddingLoss",
                                       {.cast = Cast::Float32, .wrong = {5, 7}},
                                       HALFTAPE_SAME_AS(cosine_embedding_loss)),
  };
}

std::vector<Kind> class_loss_kinds() {
  return {
      module_kind<MultiMarginLoss>("MultiMarginLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                   HALFTAPE_SAME_AS(multi_margin_loss)),
      module_kind<MultiLabelMarginLoss>("MultiLabelMarginLoss",
                                        {.cast = Cast::Float32, .wrong = {5, 7}},
                                        HALFTAPE_SAME_AS(multilabel_margin_loss)),
      module_kind<MultiLabelSoftMarginLoss>("MultiLabelSoftMarginLoss",
                                            {.cast = Cast::Float32, .wrong = {5, 7}},
                                            HALFTAPE_SAME_AS(multilabel_soft_margin_loss)),
      module_kind<TripletMarginLoss>("TripletMarginLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
                                     HALFTAPE_SAME_AS(triplet_margin_loss)),
      module_kind<TripletMarginWithDistanceLoss>(
          "TripletMarginWithDistanceLoss", {.cast = Cast::Float32, .wrong = {5, 7}},
          HALFTAPE_SAME_AS(triplet_margin_with_distance_loss)),
      // PyTorch's gradients are right only behind a log_softmax.
      {.name = "CTCLoss",
       .function = "ctc_loss",
       .options = "CTCLossOptions",
       .held = {.cast = Cast::Float32, .wrong = {5, 3, 4}},
       .make =
           [](const Case& c, Dtype) {
             const CTCLoss module(option_text::options_of<CTCLossOptions>(c));
             const auto with = [](const TensorList& x, const auto& loss) {
               return loss(log_softmax(x[0], 2), x[1], x[2], x[3]);
             };
             return Use{module.ptr(), [=](const TensorList& x) { return with(x, module); },
                        [=](const TensorList& x) {
                          return with(x, [&](const auto&... t) {
                            return F::ctc_loss(t..., module->options);
                          });
                        }};
           }},
  };
}

}  // namespace halftape::testing
