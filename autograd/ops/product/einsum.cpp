#include "halftape/autograd/ops/product/einsum.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/policy.h"

namespace halftape {
namespace {

/// Names of dimensions: letters in alphabetical order, then those that "..." stands for.
using Labels = std::vector<int>;
constexpr int kLetters = 52, kEllipsis = -1;

bool has(const Labels& labels, int l) {
  return std::find(labels.begin(), labels.end(), l) != labels.end();
}

std::string spelled(int label) {
  if (label >= kLetters) return "...";
  return {static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26)};
}

/// One list of names; "..." as kEllipsis.
Labels parse(std::string_view text) {
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      HALFTAPE_CHECK(text.substr(i, 3) == "..." && !has(labels, kEllipsis), "einsum: \"", text,
                     "\": dots stand in threes, and once");
      labels.push_back(kEllipsis);
      i += 2;
    } else {
      const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
      HALFTAPE_CHECK(upper || lower, "einsum: '", c, "' in \"", text, "\" is no letter");
      labels.push_back(upper ? c - 'A' : 26 + c - 'a');
    }
  }
  return labels;
}

/// "..." replaced by the last `own` of the `all` dimensions that it can stand for.
Labels with_ellipsis(const Labels& labels, int own, int all) {
  Labels out;
  for (int l : labels) {
    if (l != kEllipsis)
      out.push_back(l);
    else
      for (int i = all - own; i < all; ++i) out.push_back(kLetters + i);
  }
  return out;
}

/// A tensor whose dimensions have names, none twice.
struct Term {
  Tensor t;
  Labels labels;

  int64_t size(int label) const {
    return t.size(std::find(labels.begin(), labels.end(), label) - labels.begin());
  }
  /// Takes the diagonal of names that occur twice.
  void make_unique(size_t number) {
    for (size_t i = 0; i < labels.size(); ++i) {
      for (size_t j = labels.size() - 1; j > i; --j) {
        if (labels[i] != labels[j]) continue;
        const int a = static_cast<int>(i), b = static_cast<int>(j);
        HALFTAPE_CHECK(t.size(a) == t.size(b), "einsum: '", spelled(labels[i]), "' is ", t.size(a),
                       " and ", t.size(b), " in input ", number, " ", t.sizes());
        t = detail::diagonal(t, a, b);
        labels.erase(labels.begin() + b);
      }
    }
  }
  /// Sums over the names that `keep` does not approve of.
  void sum_out(auto keep) {
    Dims over;
    Labels left;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (keep(labels[i]))
        left.push_back(labels[i]);
      else
        over.push_back(static_cast<int64_t>(i));
    }
    if (!over.empty()) t = sum(t, over, false, t.dtype());
    labels = left;
  }
  /// Dimensions in the order of `wanted`, which names all of them.
  Tensor ordered(const Labels& wanted) const {
    Dims order;
    for (int l : wanted)
      order.push_back(std::find(labels.begin(), labels.end(), l) - labels.begin());
    return permute(t, order);
  }
  /// Sizes of 1 made those of the other term.
  void match(const Term& other) {
    Shape shape = t.sizes();
    for (size_t i = 0; i < labels.size(); ++i)
      if (has(other.labels, labels[i]) && shape[static_cast<int>(i)] == 1)
        shape[static_cast<int>(i)] = other.size(labels[i]);
    t = expand(t, shape);
  }
};

Labels operator+(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The product of two terms, summed over the names that nobody needs any more.
Term contract(Term a, Term b, auto needed) {
  a.sum_out([&](int l) { return has(b.labels, l) || needed(l); });
  b.sum_out([&](int l) { return has(a.labels, l) || needed(l); });
  a.match(b);
  b.match(a);
  Labels batch, depth, rows, columns;
  for (int l : a.labels) (!has(b.labels, l) ? rows : needed(l) ? batch : depth).push_back(l);
  for (int l : b.labels)
    if (!has(a.labels, l)) columns.push_back(l);
  auto extent = [](const Term& term, const Labels& labels, Shape* shape) {
    int64_t n = 1;
    for (int l : labels) {
      n = checked_mul(n, term.size(l));
      if (shape) shape->push_back(term.size(l));
    }
    return n;
  };
  Shape shape;
  const int64_t B = extent(a, batch, &shape), m = extent(a, rows, &shape),
                n = extent(b, columns, &shape), k = extent(a, depth, nullptr);
  const Tensor y = bmm(detail::reshaped(a.ordered(batch + rows + depth), {B, m, k}),
                       detail::reshaped(b.ordered(batch + depth + columns), {B, k, n}));
  return {detail::reshaped(y, shape), batch + rows + columns};
}

void one_dtype(const char* op, const TensorList& tensors) {
  for (const Tensor& t : tensors)
    HALFTAPE_CHECK(
        tensors.size() == 1 || (t.is_floating_point() && t.dtype() == tensors[0].dtype()), op,
        ": dtypes ", tensors[0].dtype(), " and ", t.dtype(),
        "; all must be one floating dtype (convert with .to(dtype))");
}

/// The names of an equation: of the dimensions of each input, and of the result.
struct Equation {
  std::vector<Labels> inputs;
  Labels out;
};

/// The lists of names before the arrow, one for each tensor.
std::vector<Labels> parse_inputs(std::string_view equation, std::string_view inputs,
                                 const TensorList& tensors) {
  std::vector<Labels> lists;
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = inputs.find(',');
    lists.push_back(parse(inputs.substr(0, comma)));
    if (comma != std::string_view::npos) inputs.remove_prefix(comma + 1);
  }
  HALFTAPE_CHECK(lists.size() == tensors.size(), "einsum: \"", equation, "\" has ", lists.size(),
                 " inputs, but ", tensors.size(), " tensors were given");
  return lists;
}

/// The names of the result: those after the arrow, or, without one, those that occur once.
/// `seen`: how often each name occurs in the inputs; `most`: the dimensions of "...".
template <size_t N>
Labels parse_result(std::string_view equation, const std::array<int, N>& seen, int most) {
  const size_t arrow = equation.find("->");
  if (arrow == std::string_view::npos) {
    Labels out = with_ellipsis({kEllipsis}, most, most);
    for (int l = 0; l < kLetters; ++l)
      if (seen[static_cast<size_t>(l)] == 1) out.push_back(l);
    return out;
  }
  Labels out = with_ellipsis(parse(equation.substr(arrow + 2)), most, most);
  for (int l : out) {
    HALFTAPE_CHECK(seen[static_cast<size_t>(l)] > 0, "einsum: '", spelled(l),
                   "' of the result in \"", equation, "\" is in no input");
    HALFTAPE_CHECK(std::count(out.begin(), out.end(), l) == 1, "einsum: '", spelled(l),
                   "' occurs twice in the result of \"", equation, "\"");
  }
  return out;
}

Equation parse_equation(std::string_view equation, const TensorList& tensors) {
  std::vector<Labels> lists =
      parse_inputs(equation, equation.substr(0, equation.find("->")), tensors);
  // How many dimensions "..." stands for, in each input and at most.
  std::vector<int> hidden(lists.size(), 0);
  int most = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    const bool dots = has(lists[i], kEllipsis);
    const auto named = static_cast<int>(lists[i].size()) - (dots ? 1 : 0);
    const auto rank = static_cast<int>(tensors[i].dim());
    HALFTAPE_CHECK(dots ? named <= rank : named == rank, "einsum: \"", equation, "\" names ", named,
                   " dimensions of input ", i, " ", tensors[i].sizes());
    hidden[i] = rank - named;
    most = std::max(most, hidden[i]);
  }

  std::array<int, kLetters + kMaxDims> seen{};
  for (size_t i = 0; i < lists.size(); ++i) {
    lists[i] = with_ellipsis(lists[i], hidden[i], most);
    for (int l : lists[i]) ++seen[static_cast<size_t>(l)];
  }
  Labels out = parse_result(equation, seen, most);
  return {std::move(lists), std::move(out)};
}

/// The tensors with their names, each name once; checks that sizes of one name agree.
std::vector<Term> named_terms(std::string_view equation, const TensorList& tensors,
                              const std::vector<Labels>& lists) {
  std::vector<Term> terms;
  std::array<int64_t, kLetters + kMaxDims> sizes{};
  sizes.fill(1);
  for (size_t i = 0; i < lists.size(); ++i) {
    Term term{tensors[i], lists[i]};
    term.make_unique(i);
    for (int l : term.labels) {
      int64_t& size = sizes[static_cast<size_t>(l)];
      const int64_t own = term.size(l);
      HALFTAPE_CHECK(own == size || own == 1 || size == 1, "einsum: '", spelled(l), "' is ", size,
                     " before and ", own, " in input ", i, " ", tensors[i].sizes(), " of \"",
                     equation, "\"");
      if (size == 1) size = own;
    }
    terms.push_back(std::move(term));
  }
  return terms;
}

}  // namespace

namespace detail {
Tensor diagonal(const Tensor& x, int keep, int drop) {
  Shape full = x.sizes();
  full[drop] = 1;
  const Tensor place = along(arange(x.size(keep)).to(x.device()), static_cast<int>(x.dim()), keep);
  return squeeze(gather(x, drop, expand(place, full)), drop);
}
}  // namespace detail

Tensor einsum(std::string_view equation, const TensorList& tensors) {
  const ErrorScope scope("einsum", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "einsum: \"", equation, "\" without tensors");
  const Equation names = parse_equation(equation, tensors);
  const TensorList cast_in = cast_inputs(cast_list::einsum, tensors);
  one_dtype("einsum", cast_in);
  const PolicyScope plain(nullptr);

  const Labels& out = names.out;
  const std::vector<Term> terms = named_terms(equation, cast_in, names.inputs);
  Term y = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    y = contract(std::move(y), terms[i], [&](int l) {
      return has(out, l) ||
             std::any_of(terms.begin() + static_cast<std::ptrdiff_t>(i) + 1, terms.end(),
                         [l](const Term& t) { return has(t.labels, l); });
    });
  }
  y.sum_out([&](int l) { return has(out, l); });
  return y.ordered(out);
}

Tensor tensordot(const Tensor& a_in, const Tensor& b_in, const Dims& dims_a, const Dims& dims_b) {
  const auto [a, b] = cast_inputs(cast_list::tensordot, a_in, b_in);
  one_dtype("tensordot", {a, b});
  HALFTAPE_CHECK(dims_a.size() == dims_b.size(), "tensordot: ", dims_a.size(), " and ",
                 dims_b.size(), " dimensions to sum over in ", dims_a, " and ", dims_b);
  // A dimension of b that is summed over has the name of its counterpart in a.
  const int rank_a = static_cast<int>(a.dim()), rank_b = static_cast<int>(b.dim());
  Labels left(static_cast<size_t>(rank_a)), right(static_cast<size_t>(rank_b));
  std::iota(left.begin(), left.end(), 0);
  std::iota(right.begin(), right.end(), rank_a);
  Dims over;
  for (int i = 0; i < dims_a.size(); ++i) {
    const int p = wrap_dim("tensordot", dims_a[i], rank_a),
              q = wrap_dim("tensordot", dims_b[i], rank_b);
    HALFTAPE_CHECK(rank_a > 0 && rank_b > 0, "tensordot: ", a.sizes(), " and ", b.sizes(),
                   " do not both have dimensions to sum over");
    int& name = right[static_cast<size_t>(q)];
    HALFTAPE_CHECK(!over.contains(p) && name >= rank_a, "tensordot: dimension ",
                   over.contains(p) ? dims_a[i] : dims_b[i], " of ",
                   over.contains(p) ? a.sizes() : b.sizes(), " appears twice in ",
                   over.contains(p) ? dims_a : dims_b);
    HALFTAPE_CHECK(a.size(p) == b.size(q), "tensordot: dimension ", dims_a[i], " of ", a.sizes(),
                   " and ", dims_b[i], " of ", b.sizes(), " differ");
    over.push_back(name = p);
  }
  return contract({a, left}, {b, right}, [&](int l) { return !over.contains(l); }).t;
}

Tensor bilinear(const Tensor& a_in, const Tensor& b_in, const Tensor& w_in, const Tensor& bias_in) {
  const ErrorScope scope("bilinear", a_in, b_in, w_in);
  const auto [a, b, w, bias] = cast_inputs<3>(cast_list::bilinear, a_in, b_in, w_in, bias_in);
  one_dtype("bilinear", bias.defined() ? TensorList{a, b, w, bias} : TensorList{a, b, w});
  HALFTAPE_CHECK(w.dim() == 3, "bilinear: weight ", w.sizes(), " must be (out, in1, in2)");
  HALFTAPE_CHECK(
      a.dim() > 0 && a.dim() == b.dim() && a.size(-1) == w.size(1) && b.size(-1) == w.size(2),
      "bilinear: inputs ", a.sizes(), " and ", b.sizes(), ", weight ", w.sizes(), " expects (…, ",
      w.size(1), ") and (…, ", w.size(2), ")");
  Shape out = a.sizes();
  out[out.size() - 1] = w.size(0);
  int64_t n = 1;
  for (int i = 0; i + 1 < out.size(); ++i) {
    HALFTAPE_CHECK(a.size(i) == b.size(i), "bilinear: inputs ", a.sizes(), " and ", b.sizes(),
                   " differ in dimension ", i);
    n = checked_mul(n, a.size(i));
  }
  HALFTAPE_CHECK(!bias.defined() || bias.sizes() == Shape{w.size(0)}, "bilinear: bias ",
                 bias.defined() ? bias.sizes() : Shape(), ", weight ", w.sizes(), " expects (",
                 w.size(0), ")");
  // In float32, so that two products and a sum round once.
  const Dtype wide = compute_dtype(a.dtype());
  const Tensor x = detail::reshaped(a, {n, a.size(-1)}).to(wide),
               z = detail::reshaped(b, {n, b.size(-1)}).to(wide);
  const Tensor flat =
      detail::reshaped(permute(w.to(wide), {1, 0, 2}), {w.size(1), w.size(0) * w.size(2)});
  const Tensor half_way = detail::reshaped(mm(x, flat), {n, w.size(0), w.size(2)});
  const Tensor y = squeeze(bmm(half_way, unsqueeze(z, -1)), -1);
  return detail::reshaped(bias.defined() ? y + bias.to(wide) : y, out).to(a.dtype());
}

Tensor kron(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("kron", a, b);
  const int rank = static_cast<int>(std::max(a.dim(), b.dim()));
  HALFTAPE_CHECK(2 * rank <= kMaxDims, "kron: ", a.sizes(), " and ", b.sizes(), "; at most ",
                 kMaxDims / 2, " dimensions");
  auto size = [rank](const Tensor& x, int i) {
    const int at = i - (rank - static_cast<int>(x.dim()));
    return at < 0 ? 1 : x.size(at);
  };
  Shape left, right, out;
  for (int i = 0; i < rank; ++i) {
    const int64_t m = size(a, i), n = size(b, i);
    left.push_back(m), left.push_back(1);
    right.push_back(1), right.push_back(n);
    out.push_back(checked_mul(m, n));
  }
  return detail::reshaped(reshape(a, left) * detail::reshaped(b, right), out);
}

}  // namespace halftape
