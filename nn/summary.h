// What a model consists of: its modules, what each gives, and the memory that takes. As torchinfo's
// summary.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/nn/any_module.h"
#include "halftape/nn/module.h"

namespace halftape::nn {

/// An input of summary(): a tensor; or zeros of a shape and a dtype. Without a dtype they have that
/// of the model's first floating-point parameter; float32 if there is none.
struct SummaryInput {
  SummaryInput(std::initializer_list<int64_t> shape) : sizes(shape) {}  // NOLINT: {1, 3, 8, 8}
  SummaryInput(Shape shape) : sizes(shape) {}                           // NOLINT: as above
  SummaryInput(Shape shape, Dtype of) : sizes(shape), dtype(of) {}
  SummaryInput(Tensor given) : value(std::move(given)) {}  // NOLINT: as above

  Shape sizes;  // of the zeros
  std::optional<Dtype> dtype = {};
  Tensor value;  // where it is defined, the input itself
};

/// The modules of a model in order of registration, each before those below it, and sums. Prints as
/// a table.
struct Summary {
  /// A tensor that forward() gave.
  struct Output {
    Shape sizes;  // of it
    Dtype dtype;  // of it
  };
  /// What is known of a module.
  struct Row {
    std::string path;             // "encoder.fc2"; empty for the model
    std::string kind;             // "Linear"
    int depth = 0;                // modules above it
    bool repeated = false;        // stands above under another path, with its numbers
    int64_t calls = 0;            // of forward(), as far as they are seen
    std::vector<Output> outputs;  // of the last call
    int64_t parameters = 0;       // elements of its own, without those of the modules below
    size_t bytes = 0;             // of these
  };
  std::vector<Row> rows;  // the first is the model
  bool ran = false;       // whether there were inputs

  // Sums over all modules; a tensor under two names counts once.
  int64_t parameters = 0;  // elements
  int64_t trained = 0;     // those that require grad
  size_t parameter_bytes = 0;
  size_t buffer_bytes = 0;
  size_t output_bytes = 0;  // of all calls of the modules that have none below them
};
/// A line for each module, and the sums.
std::ostream& operator<<(std::ostream& out, const Summary& summary);

namespace detail {

/// The tensors that forward() of these inputs gives.
using SummaryForward = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
/// `forward`: null, to look at the parameters alone.
Summary summarise(Module& model, const std::vector<SummaryInput>& inputs,
                  const SummaryForward& forward);

template <class Model, class... Inputs>
Summary summary_of(Model& model, const Inputs&... inputs) {
  auto& module = [&]() -> auto& {
    if constexpr (std::is_base_of_v<Module, Model>)
      return model;
    else {
      HALFTAPE_CHECK(model, "summary: no model, but a null pointer or an empty holder");
      return *model;
    }
  }
  ();
  if constexpr (sizeof...(Inputs) == 0) {
    return summarise(module, {}, nullptr);
  } else {
    const auto forward = [&]<size_t... I>(const std::vector<Tensor>& x, std::index_sequence<I...>) {
      if constexpr (requires { module.forward_any(packed(x[I]...)); })
        return module.forward_any(packed(x[I]...));
      else
        return module.forward(x[I]...);
    };
    return summarise(module, {SummaryInput(inputs)...}, [&](const std::vector<Tensor>& x) {
      std::vector<Tensor> results;
      collect_tensors(forward(x, std::index_sequence_for<Inputs...>()), results);
      return results;
    });
  }
}

}  // namespace detail

/// Looks at a model (a module, a holder or a pointer), and at what each of its modules gives when
/// forward() is called with these inputs:
///
///     std::cout << nn::summary(net, {1, 3, 32, 32});
///     nn::summary(net, {2, 16}, {{2, 16}, kInt64});   // two inputs, the second of int64
///     nn::summary(net, x, mask);                      // tensors
///     nn::summary(net);                               // parameters alone
///
/// forward() runs once, in evaluation, without gradients, and under the autocast of the caller.
/// Modes, buffers, gradients, and the default generators are afterwards as before, also when it
/// throws; so are weights that an Embedding with max_norm changes. Calls are seen of the library's
/// modules, of holders (`net(x)`), of parts of a Sequential, and of a forward() that ends with
/// PlaceScope::result(). Sequential runs its parts one by one.
template <class Model, std::convertible_to<SummaryInput>... Inputs>
Summary summary(Model&& model, const Inputs&... inputs) {
  return detail::summary_of(model, inputs...);
}
template <class Model>
Summary summary(Model&& model, const SummaryInput& a) {
  return detail::summary_of(model, a);
}
template <class Model>
Summary summary(Model&& model, const SummaryInput& a, const SummaryInput& b) {
  return detail::summary_of(model, a, b);
}
template <class Model>
Summary summary(Model&& model, const SummaryInput& a, const SummaryInput& b,
                const SummaryInput& c) {
  return detail::summary_of(model, a, b, c);
}

}  // namespace halftape::nn
