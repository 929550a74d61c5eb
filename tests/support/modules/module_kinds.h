// The kinds of modules and functions of nn whose uses stand in tests/vectors/module_cases.txt: how
// one is made and called, and what autocast makes of it.
#pragma once
#include <halftape/halftape.h>

#include "halftape/tests/support/modules/options_from_text.h"

namespace option_text {

// The words of options that are neither numbers nor tensors, as PyTorch spells them.
halftape::Reduction word(const std::string& text, Type<halftape::Reduction>);
halftape::PadMode word(const std::string& text, Type<halftape::PadMode>);
halftape::nn::EmbeddingBagMode word(const std::string& text, Type<halftape::nn::EmbeddingBagMode>);
halftape::nn::init::Nonlinearity word(const std::string& text,
                                      Type<halftape::nn::init::Nonlinearity>);
halftape::Interpolation word(const std::string& text, Type<halftape::Interpolation>);
halftape::nn::detail::interpolation_t word(const std::string& text,
                                           Type<halftape::nn::detail::interpolation_t>);
halftape::nn::detail::grid_padding_t word(const std::string& text,
                                          Type<halftape::nn::detail::grid_padding_t>);
halftape::nn::activation_t word(const std::string& text, Type<halftape::nn::activation_t>);
halftape::Activation word(const std::string& text, Type<halftape::Activation>);
halftape::DistanceFunction word(const std::string& text, Type<halftape::DistanceFunction>);
halftape::Dtype word(const std::string& text, Type<halftape::Dtype>);
template <size_t D>
halftape::nn::detail::conv_padding_t<D> word(const std::string& text,
                                             Type<halftape::nn::detail::conv_padding_t<D>>) {
  if (text == "same") return halftape::kSame;
  if (text == "valid") return halftape::kValid;
  return value<halftape::ExpandingArray<D>>(text);
}

}  // namespace option_text

namespace halftape::testing {

using option_text::Case;

/// What a kind is held to.
struct Held {
  Cast cast = Cast::Keep;    // what autocast makes of its result
  double torch_eps = 1e-10;  // where PyTorch's constants are floats
  double half_eps = 16;      // of the largest element, from float64's result
  Shape wrong{};             // an input that it refuses; empty: it takes all
};

/// One case, made. Results of several tensors are all their elements in one row.
struct Use {
  std::shared_ptr<nn::Module> module;  // null: a function
  std::function<Tensor(const TensorList&)> forward;
  std::function<Tensor(const TensorList&)>
      function;  // with the module's options, where there is one
};

struct Kind {
  std::string name;      // "Conv2d", or "conv2d" for functions
  std::string function;  // that takes the options, too
  std::string options;   // their class, "ConvOptions"; empty: none
  Held held;
  std::function<Use(const Case&, Dtype)> make;
};

/// All of them, in the order of the families.
const std::vector<Kind>& module_kinds();

std::vector<Kind> activation_kinds();
std::vector<Kind> activation_function_kinds();
std::vector<Kind> loss_kinds();
std::vector<Kind> class_loss_kinds();
std::vector<Kind> convolution_kinds();
std::vector<Kind> pooling_kinds();
std::vector<Kind> layer_kinds();
std::vector<Kind> embedding_and_function_kinds();
std::vector<Kind> norm_kinds();
std::vector<Kind> sequence_kinds();

namespace detail {

inline void collect(TensorList& into, const Tensor& y) {
  if (y.defined()) into.push_back(y.reshape({-1}));
}
inline void collect(TensorList& into, const nn::ASMoutput& y) {
  collect(into, y.output);
  collect(into, y.loss);
}
template <class... T>
void collect(TensorList& into, const std::tuple<T...>& y) {
  std::apply([&](const auto&... part) { (collect(into, part), ...); }, y);
}

inline Tensor joined(const Tensor& y) { return y; }
template <class T>
Tensor joined(const T& y) {
  TensorList all;
  collect(all, y);
  for (Tensor& part : all) part = part.to(all[0].dtype());  // indices
  return cat(all);
}

/// f of one to four tensors, as many as there are.
template <class F>
Tensor called(const F& f, const TensorList& x) {
  if constexpr (requires { f(x[0]); })
    if (x.size() == 1) return joined(f(x[0]));
  if constexpr (requires { f(x[0], x[1]); })
    if (x.size() == 2) return joined(f(x[0], x[1]));
  if constexpr (requires { f(x[0], x[1], x[2]); })
    if (x.size() == 3) return joined(f(x[0], x[1], x[2]));
  if constexpr (requires { f(x[0], x[1], x[2], x[3]); })
    if (x.size() == 4) return joined(f(x[0], x[1], x[2], x[3]));
  throw Error("called with " + std::to_string(x.size()) + " inputs");
}

template <class Impl>
std::function<Tensor(const TensorList&)> forward_of(std::shared_ptr<Impl> module) {
  return [module](const TensorList& x) {
    return called([&](const auto&... t) -> decltype(std::declval<Impl&>().forward(
                                            t...)) { return module->forward(t...); },
                  x);
  };
}

/// "halftape::nn::ConvOptions<2ul>" → "ConvOptions"
template <class O>
std::string class_of() {
  std::string name = nn::detail::name_of(typeid(O));
  name = name.substr(0, name.find('<'));
  return name.substr(name.rfind(':') + 1);
}

template <class O>
void convert_tensors(O& o, Dtype dtype) {
  const auto convert = [&](Tensor& t) {
    if (t.defined()) t = t.to(dtype);
  };
  if constexpr (requires { convert(o.weight()); }) convert(o.weight());
  if constexpr (requires { convert(o.bias()); }) convert(o.bias());
  if constexpr (requires { convert(o.running_mean()); }) convert(o.running_mean());
  if constexpr (requires { convert(o.running_var()); }) convert(o.running_var());
  if constexpr (requires { convert(o.per_sample_weights()); }) convert(o.per_sample_weights());
  if constexpr (requires { o.offsets(); })
    if (o.offsets().defined()) o.offsets() = o.offsets().to(kInt64);
}

struct NoFunction {};

}  // namespace detail

/// A module; `f(options, inputs…)`: the function of the same options.
template <class Holder, class F = detail::NoFunction>
Kind module_kind(const char* name, Held held = {}, const char* function = "", F f = {}) {
  using Impl = typename Holder::ContainedType;
  Kind kind{.name = name, .function = function, .options = {}, .held = held, .make = {}};
  if constexpr (requires(Impl & m) { m.options; }) {
    using O = std::decay_t<decltype(std::declval<Impl&>().options)>;
    kind.options = detail::class_of<O>();
    kind.make = [f](const Case& c, Dtype dtype) {
      const Holder module(option_text::options_of<O>(c));
      module->to(dtype);
      Use use{module.ptr(), detail::forward_of<Impl>(module.ptr()), {}};
      (void)f;
      if constexpr (!std::is_same_v<F, detail::NoFunction>)
        use.function = [f, m = module.ptr()](const TensorList& x) {
          return detail::called(
              [&](const auto&... t) -> decltype(std::declval<const F&>()(std::declval<const O&>(),
                                                                         t...)) {
                return f(std::as_const(m->options), t...);
              },
              x);
        };
      return use;
    };
  } else {
    kind.make = [](const Case&, Dtype dtype) {
      const Holder module;
      module->to(dtype);
      return Use{module.ptr(), detail::forward_of<Impl>(module.ptr()), {}};
    };
  }
  return kind;
}

/// A function `f(options, inputs…)` whose options no module has.
template <class O, class F>
Kind function_kind(const char* name, Held held, F f) {
  return {.name = name,
          .function = name,
          .options = detail::class_of<O>(),
          .held = held,
          .make = [f](const Case& c, Dtype dtype) {
            O options = option_text::options_of<O>(c);
            detail::convert_tensors(options, dtype);
            return Use{nullptr,
                       [f, options](const TensorList& x) {
                         return detail::called(
                             [&](const auto&... t) -> decltype(std::declval<const F&>()(
                                                       std::declval<const O&>(), t...)) {
                               return f(options, t...);
                             },
                             x);
                       },
                       {}};
          }};
}

/// A function of nn::functional, whose options come last.
#define HALFTAPE_FUNC(name)                                                                  \
  [](const auto& o, const auto&... x) -> decltype(halftape::nn::functional::name(x..., o)) { \
    return halftape::nn::functional::name(x..., o);                                          \
  }
#define HALFTAPE_SAME_AS(name) #name, HALFTAPE_FUNC(name)

}  // namespace halftape::testing
