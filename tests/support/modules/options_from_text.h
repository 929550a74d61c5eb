// Options from text, so that one list of cases (tests/vectors/module_cases.txt) is read by the
// tests and by scripts/module_texts, which asks LibTorch how it prints them: whose options these
// are says HALFTAPE_OPTIONS_OF, a namespace.
#pragma once
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifndef HALFTAPE_OPTIONS_OF
#define HALFTAPE_OPTIONS_OF halftape
#endif

namespace option_text {

namespace lib = HALFTAPE_OPTIONS_OF;

/// A line of module_cases.txt.
struct Case {
  std::string name;                // "Conv2d.same": what follows the dot tells cases apart
  std::set<std::string> flags;     // "@eval"
  std::vector<std::string> words;  // the constructor's
  std::vector<std::pair<std::string, std::string>> options;

  std::string kind() const { return name.substr(0, name.find('.')); }
  bool is(const char* flag) const { return flags.count(flag) != 0; }
};

inline std::vector<Case> read_cases(const std::string& path) {
  std::vector<Case> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream parts(line);
    Case c;
    parts >> c.name;
    for (std::string word; parts >> word;) {
      const size_t equals = word.find('=');
      if (word[0] == '@')
        c.flags.insert(word);
      else if (equals != std::string::npos)
        c.options.emplace_back(word.substr(0, equals), word.substr(equals + 1));
      else
        c.words.push_back(word);
    }
    all.push_back(c);
  }
  if (all.empty()) throw std::runtime_error("no cases in " + path);
  return all;
}

/// "[1,[2,3]]" → "1", "[2,3]"; anything else is a list of itself.
inline std::vector<std::string> elements(const std::string& text) {
  if (text[0] != '[') return {text};
  std::vector<std::string> all(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '[' && ++depth == 1) continue;
    if (c == ']' && --depth == 0) break;
    if (c == ',' && depth == 1)
      all.emplace_back();
    else
      all.back() += c;
  }
  return all;
}

template <class T>
struct Type {};

inline lib::Tensor numbers(const std::string& text) {
  std::vector<double> values;
  std::vector<int64_t> shape;
  for (std::string part = text; part[0] == '['; part = elements(part)[0])
    shape.push_back(static_cast<int64_t>(elements(part).size()));
  std::string flat = text;
  for (char& c : flat)
    if (c == '[' || c == ']' || c == ',') c = ' ';
  std::istringstream in(flat);
  for (double v = 0; in >> v;) values.push_back(v);
  return lib::tensor(values, lib::kFloat64).reshape(shape);
}

/// A T from text. Words that are a library's own are read by word(text, Type<T>) beside the type's
/// users.
template <class T>
T value(const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    return text == "true";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(std::strtod(text.c_str(), nullptr));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, lib::Tensor>) {
    return numbers(text);
  } else if constexpr (requires(T t) {
                         t.has_value();
                         *t;
                       }) {
    if (text == "none") return T();
    return T(value<std::decay_t<decltype(*std::declval<T&>())>>(text));
  } else if constexpr (requires(T t) { std::tuple_size<std::decay_t<decltype(*t)>>::value; }) {
    std::decay_t<decltype(*std::declval<T&>())> array;  // of an ExpandingArray
    const auto given = elements(text);
    for (size_t i = 0; i < array.size(); ++i)
      array[i] = value<std::decay_t<decltype(array[i])>>(given[given.size() == 1 ? 0 : i]);
    return T(array);
  } else if constexpr (requires(T t) { t.push_back(*t.begin()); }) {
    T list;
    for (const std::string& e : elements(text))
      list.push_back(value<std::decay_t<decltype(*list.begin())>>(e));
    return list;
  } else {
    return word(text, Type<T>());
  }
}

/// A word where a constructor of O expects a number or numbers, or a list of them.
template <class O>
struct Word {
  std::string text;
  template <class T>
  requires(!std::is_same_v<T, O> && !std::is_same_v<T, lib::Tensor> &&
           (
               std::is_arithmetic_v<T> ||
               requires(T t) { std::tuple_size<std::decay_t<decltype(*t)>>(); } ||
               requires(T t) { t.push_back(int64_t()); } || requires(T t) { t.push_back(0.5); }) &&
           !std::is_same_v<T, std::string>)
  operator T() const {  // NOLINT
    return value<T>(text);
  }
};

template <class O, size_t... i>
O constructed(const std::vector<std::string>& words, std::index_sequence<i...>) {
  if constexpr (std::is_constructible_v<O, decltype((void)i, Word<O>())...>)
    return O(Word<O>{words[i]}...);
  else
    throw std::runtime_error("no constructor takes " + std::to_string(sizeof...(i)) + " words");
}

/// Sets what is called so; throws if there is no such option.
template <class O>
void set(O& options, const std::string& name, const std::string& text) {
#define HALFTAPE_OPTION(field)                                                \
  if constexpr (requires { options.field() = options.field(); })              \
    if (name == #field) {                                                     \
      options.field() = value<std::decay_t<decltype(options.field())>>(text); \
      return;                                                                 \
    }
#define HALFTAPE_OPTIONS(a, b, c, d, e, f) \
  HALFTAPE_OPTION(a)                       \
  HALFTAPE_OPTION(b) HALFTAPE_OPTION(c) HALFTAPE_OPTION(d) HALFTAPE_OPTION(e) HALFTAPE_OPTION(f)
  HALFTAPE_OPTIONS(alpha, inplace, negative_slope, lower, upper, min_val)
  HALFTAPE_OPTIONS(max_val, beta, threshold, approximate, num_parameters, init)
  HALFTAPE_OPTIONS(training, div_value, head_bias, dropout, bias, add_bias_kv)
  HALFTAPE_OPTIONS(add_zero_attn, kdim, vdim, stride, padding, dilation)
  HALFTAPE_OPTIONS(groups, padding_mode, output_padding, dim, eps, p)
  HALFTAPE_OPTIONS(keepdim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
  HALFTAPE_OPTIONS(_weight, mode, include_last_offset, offsets, per_sample_weights, activation)
  HALFTAPE_OPTIONS(start_dim, end_dim, weight, reduction, ignore_index, label_smoothing)
  HALFTAPE_OPTIONS(log_target, log_input, full, pos_weight, margin, blank)
  HALFTAPE_OPTIONS(zero_infinity, swap, distance_function, elementwise_affine, momentum, affine)
  HALFTAPE_OPTIONS(track_running_stats, skip_nonfinite, k, use_input_stats, running_mean,
                   running_var)
  HALFTAPE_OPTIONS(value, ceil_mode, count_include_pad, divisor_override, output_size, output_ratio)
  HALFTAPE_OPTIONS(_random_samples, num_layers, nonlinearity, batch_first, bidirectional, proj_size)
  HALFTAPE_OPTIONS(dim_feedforward, d_model, nhead, num_encoder_layers, num_decoder_layers, size)
  HALFTAPE_OPTIONS(scale_factor, align_corners, recompute_scale_factor, delta, lambda, dtype)
  HALFTAPE_OPTION(freeze)
#undef HALFTAPE_OPTIONS
#undef HALFTAPE_OPTION
  throw std::runtime_error("no option " + name);
}

/// What a case says. Throws if no constructor takes as many words, or an option is not there.
template <class O>
O options_of(const Case& c) {
  const auto& w = c.words;
  O options = w.empty()       ? constructed<O>(w, std::make_index_sequence<0>())
              : w.size() == 1 ? constructed<O>(w, std::make_index_sequence<1>())
              : w.size() == 2 ? constructed<O>(w, std::make_index_sequence<2>())
              : w.size() == 3 ? constructed<O>(w, std::make_index_sequence<3>())
                              : constructed<O>(w, std::make_index_sequence<4>());
  for (const auto& [name, text] : c.options) set(options, name, text);
  return options;
}

}  // namespace option_text
