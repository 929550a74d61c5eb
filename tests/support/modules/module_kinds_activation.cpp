// Activations, dropout and what changes shapes.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

std::vector<Kind> activation_kinds() {
  return {
      module_kind<Identity>("Identity"),
      module_kind<ReLU>("ReLU", {}, HALFTAPE_SAME_AS(relu)),
      module_kind<ReLU6>("ReLU6", {}, HALFTAPE_SAME_AS(relu6)),
      module_kind<ELU>("ELU", {}, HALFTAPE_SAME_AS(elu)),
      module_kind<SELU>("SELU", {}, HALFTAPE_SAME_AS(selu)),
      module_kind<CELU>("CELU", {.torch_eps = 1e-7}, HALFTAPE_SAME_AS(celu)),
      module_kind<SiLU>("SiLU"),
      module_kind<Mish>("Mish"),
      module_kind<Tanh>("Tanh"),
      module_kind<Tanhshrink>("Tanhshrink"),
      module_kind<Sigmoid>("Sigmoid"),
      module_kind<LogSigmoid>("LogSigmoid"),
      module_kind<Hardsigmoid>("Hardsigmoid", {.torch_eps = 1e-7}),
      module_kind<Hardswish>("Hardswish"),
      module_kind<Hardtanh>("Hardtanh", {}, HALFTAPE_SAME_AS(hardtanh)),
      module_kind<Hardshrink>("Hardshrink", {}, HALFTAPE_SAME_AS(hardshrink)),
      module_kind<Softshrink>("Softshrink", {}, HALFTAPE_SAME_AS(softshrink)),
      module_kind<Softplus>("Softplus", {.cast = Cast::Float32}, HALFTAPE_SAME_AS(softplus)),
      module_kind<Softsign>("Softsign"),
      module_kind<LeakyReLU>("LeakyReLU", {}, HALFTAPE_SAME_AS(leaky_relu)),
      module_kind<Threshold>("Threshold", {}, HALFTAPE_SAME_AS(threshold)),
      module_kind<PReLU>("PReLU", {.cast = Cast::Lower}),
      module_kind<GELU>("GELU", {}, HALFTAPE_SAME_AS(gelu)),
      module_kind<GLU>("GLU", {.wrong = {2, 3, 5}}, HALFTAPE_SAME_AS(glu)),
      module_kind<Softmax>("Softmax", {.cast = Cast::Float32, .wrong = {4}}),
      module_kind<LogSoftmax>("LogSoftmax", {.cast = Cast::Float32, .wrong = {4}}),
      module_kind<Softmin>("Softmin", {.cast = Cast::Float32, .wrong = {4}}),
      module_kind<Softmax2d>("Softmax2d", {.cast = Cast::Float32, .wrong = {2, 3}}),
      module_kind<RReLU>("RReLU"),
      module_kind<Dropout>("Dropout"),
      module_kind<Dropout2d>("Dropout2d"),
      module_kind<Dropout3d>("Dropout3d"),
      module_kind<AlphaDropout>("AlphaDropout"),
      module_kind<FeatureAlphaDropout>("FeatureAlphaDropout"),
      module_kind<Flatten>("Flatten", {.wrong = {2}}),
      module_kind<Unflatten>("Unflatten", {.wrong = {2, 3, 4}}),
      {.name = "Functional",
       .function = {},
       .options = {},
       .held = {},
       .make =
           [](const Case&, Dtype) {
             const Functional module(static_cast<Tensor (*)(const Tensor&)>(relu));
             return Use{module.ptr(), detail::forward_of<FunctionalImpl>(module.ptr()), {}};
           }},
  };
}

std::vector<Kind> activation_function_kinds() {
  return {
      function_kind<F::RReLUFuncOptions>("rrelu", {}, HALFTAPE_FUNC(rrelu)),
      function_kind<F::SoftmaxFuncOptions>("softmax", {.cast = Cast::Float32, .wrong = {4}},
                                           HALFTAPE_FUNC(softmax)),
      function_kind<F::LogSoftmaxFuncOptions>("log_softmax", {.cast = Cast::Float32, .wrong = {4}},
                                              HALFTAPE_FUNC(log_softmax)),
      function_kind<F::SoftminFuncOptions>("softmin", {.cast = Cast::Float32, .wrong = {4}},
                                           HALFTAPE_FUNC(softmin)),
      function_kind<F::DropoutFuncOptions>("dropout", {}, HALFTAPE_FUNC(dropout)),
      function_kind<F::Dropout2dFuncOptions>("dropout2d", {}, HALFTAPE_FUNC(dropout2d)),
      function_kind<F::Dropout3dFuncOptions>("dropout3d", {}, HALFTAPE_FUNC(dropout3d)),
      function_kind<F::AlphaDropoutFuncOptions>("alpha_dropout", {}, HALFTAPE_FUNC(alpha_dropout)),
      function_kind<F::FeatureAlphaDropoutFuncOptions>("feature_alpha_dropout", {},
                                                       HALFTAPE_FUNC(feature_alpha_dropout)),
  };
}

}  // namespace halftape::testing
