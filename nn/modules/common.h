// What the library's own modules share: declarations, checks of options, and printing.
#pragma once
#include <ostream>
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/nn/any_module.h"

namespace halftape::nn::detail {

/// A module without parameters: its options, and nothing to reset.
template <class Options>
class WithOptions : public CloneableModule {
 public:
  WithOptions() requires std::is_default_constructible_v<Options>
  = default;
  explicit WithOptions(const Options& o) : options(o) {}
  template <class... Args>
  requires(sizeof...(Args) > 1 &&
           std::is_constructible_v<Options, Args...>) explicit WithOptions(Args... args)
      : options(args...) {}
  Options options;
};

/// Throws unless options of a module, a label and its value by turns, are positive.
template <class Name, class Value, class... More>
void check_positive(const Name& name, const char* label, const Value& value, const More&... more) {
  if constexpr (requires { value.size(); }) {
    for (const int64_t each : *value)
      HALFTAPE_CHECK(each > 0, name, ": ", label, ' ', value, " must be positive");
  } else {
    HALFTAPE_CHECK(value > 0, name, ": ", label, ' ', value, " must be positive");
  }
  if constexpr (sizeof...(More) > 0) check_positive(name, more...);
}
inline constexpr int64_t kMostLayers = 10'000;  // larger numbers are mistakes
/// Throws unless there are 1 to kMostLayers layers.
inline void check_layers(const char* name, int64_t layers) {
  check_positive(name, "num_layers", layers);
  HALFTAPE_CHECK(layers <= kMostLayers, name, ": num_layers ", layers, " is more than ",
                 kMostLayers);
}
/// Throws unless 0 ≤ value ≤ 1.
template <class Name>
void check_fraction(const Name& name, const char* label, double value) {
  HALFTAPE_CHECK(value >= 0 && value <= 1, name, ": ", label, ' ', value,
                 " is not between 0 and 1");
}

/// The name of a class for D dimensions: Ranked{"Conv", 2} prints "Conv2d".
struct Ranked {
  const char* name;
  size_t rank;
};
inline std::ostream& operator<<(std::ostream& out, const Ranked& r) {
  return out << r.name << r.rank << 'd';
}

/// A value that print() leaves out where it is the usual one.
template <class T>
struct Unusual {
  T value, usual;
};
template <class T, class U>
Unusual<T> unless(const U& usual, const T& value) {
  return {value, T(usual)};
}

/// A field's value: bools as true and false, an absent optional as None, vectors as [1, 2].
template <class T>
void print_value(std::ostream& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (requires { value.has_value(); }) {
    if (value)
      print_value(out, *value);
    else
      out << "None";
  } else {
    out << value;
  }
}
template <class T>
void print_value(std::ostream& out, const std::vector<T>& values) {
  const char* before = "[";
  for (const T& v : values) out << std::exchange(before, ", ") << v;
  out << ']';
}

inline void print_fields(std::ostream&, const char*) {}
/// Fields separated by ", ": a label and its value by turns; with the label "" the value alone.
template <class T, class... More>
void print_fields(std::ostream& out, const char* comma, const char* label, const T& value,
                  const More&... more) {
  if constexpr (requires { value.usual; }) {
    if (value.value == value.usual) return print_fields(out, comma, more...);
    print_fields(out, comma, label, value.value);
  } else {
    out << comma << label << (*label ? "=" : "");
    print_value(out, value);
  }
  print_fields(out, ", ", more...);
}

/// Prints "halftape::nn::Linear(in_features=4, out_features=2, bias=true)".
template <class Name, class... Fields>
void print(std::ostream& out, const Name& name, const Fields&... labels_and_values) {
  out << "halftape::nn::" << name << '(';
  print_fields(out, "", labels_and_values...);
  out << ')';
}

}  // namespace halftape::nn::detail

/// Declares NameImpl, with a forward() of one tensor, over Base, whose constructors it has, and its
/// holder Name.
#define HALFTAPE_UNARY_MODULE(Name, Base)                                 \
  class Name##Impl : public ::halftape::nn::Cloneable<Name##Impl, Base> { \
   public:                                                                \
    using Cloneable::Cloneable;                                           \
    ::halftape::Tensor forward(const ::halftape::Tensor& x) const;        \
    void pretty_print(std::ostream& out) const override;                  \
  };                                                                      \
  HALFTAPE_MODULE(Name)

/// Declares NameImpl, which is a Base that can be cloned, and its holder Name.
#define HALFTAPE_DERIVED_MODULE(Name, ...)                                       \
  class Name##Impl : public ::halftape::nn::Cloneable<Name##Impl, __VA_ARGS__> { \
   public:                                                                       \
    using Cloneable::Cloneable;                                                  \
  };                                                                             \
  HALFTAPE_MODULE(Name)

/// Declares Name2dImpl, which is NameImpl<2> that can be cloned, and its holder Name2d.
#define HALFTAPE_RANK_MODULE(Name, D) HALFTAPE_DERIVED_MODULE(Name##D##d, Name##Impl<D>)
/// The same for one, two and three dimensions.
#define HALFTAPE_RANKED_MODULE(Name) \
  HALFTAPE_RANK_MODULE(Name, 1);     \
  HALFTAPE_RANK_MODULE(Name, 2);     \
  HALFTAPE_RANK_MODULE(Name, 3)

/// Defines how NameImpl prints, in namespace halftape::nn: its fields as detail::print() takes
/// them.
#define HALFTAPE_MODULE_TEXT(Name, ...)                    \
  void Name##Impl::pretty_print(std::ostream& out) const { \
    detail::print(out, #Name __VA_OPT__(, ) __VA_ARGS__);  \
  }

/// Defines NameImpl::forward(x) as an expression of x, and how NameImpl prints.
#define HALFTAPE_UNARY_FORWARD(Name, y, ...)          \
  Tensor Name##Impl::forward(const Tensor& x) const { \
    const PlaceScope scope(*this);                    \
    return scope.result<Tensor>(y);                   \
  }                                                   \
  HALFTAPE_MODULE_TEXT(Name, __VA_ARGS__)

/// HALFTAPE_MODULE_TEXT for NameImpl<D> of all ranks.
#define HALFTAPE_RANKED_TEXT(Name, ...)                                      \
  template <size_t D>                                                        \
  void Name##Impl<D>::pretty_print(std::ostream& out) const {                \
    detail::print(out, detail::Ranked{#Name, D} __VA_OPT__(, ) __VA_ARGS__); \
  }
/// Instantiates NameImpl for one, two and three dimensions.
#define HALFTAPE_INSTANTIATE_RANKS(Name) \
  template class Name##Impl<1>;          \
  template class Name##Impl<2>;          \
  template class Name##Impl<3>

/// Returns name2d_suffix(arguments) for D = 2 from a PlaceScope, where the functions are named so.
#define HALFTAPE_RETURN_OF_RANK(D, name, suffix, ...)                       \
  if constexpr (D == 1) return scope.result(name##1d##suffix(__VA_ARGS__)); \
  if constexpr (D == 2) return scope.result(name##2d##suffix(__VA_ARGS__)); \
  if constexpr (D == 3) return scope.result(name##3d##suffix(__VA_ARGS__))

/// Names of options: Name1dOptions is Template<1>, and so for 2 and 3.
#define HALFTAPE_RANKED_OPTIONS(Name, Template) \
  using Name##1dOptions = Template<1>;          \
  using Name##2dOptions = Template<2>;          \
  using Name##3dOptions = Template<3>
