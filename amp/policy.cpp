#include "halftape/amp/policy.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"

namespace halftape::amp {
namespace {

const CastOp* find(std::string_view name) {
  for (const CastOp& op : cast_ops())
    if (op.name == name) return &op;
  return nullptr;
}

/// How many letters must change (Levenshtein 1966).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// The three names most like it.
std::string similar(std::string_view name) {
  std::vector<std::pair<size_t, std::string_view>> all;
  for (const CastOp& op : cast_ops()) all.emplace_back(distance(name, op.name), op.name);
  std::partial_sort(all.begin(), all.begin() + 3, all.end());
  std::string text;
  for (size_t i = 0; i < 3; ++i) text += (i ? ", " : "") + std::string(all[i].second);
  return text;
}

const CastOp& known(const char* call, std::string_view name) {
  const CastOp* op = find(name);
  HALFTAPE_CHECK(op, "amp::Policy::", call, ": no op is called \"", name,
                 "\"; similar names: ", similar(name));
  return *op;
}

using Names = std::initializer_list<std::string_view>;

/// A policy that has these ops in categories, and Keep for all others.
Policy listed(Names lower, Names float32, Names widest, Names refuse = {}) {
  Policy p;
  p.set_all(Cast::Keep);
  for (std::string_view op : lower) p.set(op, Cast::Lower);
  for (std::string_view op : float32) p.set(op, Cast::Float32);
  for (std::string_view op : widest) p.set(op, Cast::Widest);
  for (std::string_view op : refuse) p.set(op, Cast::Refuse);
  return p;
}

}  // namespace

const Policy& Policy::standard() {
  static const Policy p;
  return p;
}

const Policy& Policy::torch_cuda() {
  // cross_entropy, gaussian_nll_loss, pairwise_distance, normalize, local_response_norm and pooling
  // by a norm are not on torch's list, but made of ops that are: log_softmax and nll_loss; log;
  // norm; norm; pow; pow. ctc_loss is not, but made for float32 and float64 alone.
  static const Policy p = listed({"matmul",
                                  "mm",
                                  "bmm",
                                  "mv",
                                  "addmm",
                                  "addmv",
                                  "addr",
                                  "addbmm",
                                  "baddbmm",
                                  "einsum",
                                  "linear",
                                  "prelu",
                                  "conv1d",
                                  "conv2d",
                                  "conv3d",
                                  "conv_transpose1d",
                                  "conv_transpose2d",
                                  "conv_transpose3d",
                                  "scaled_dot_product_attention",
                                  "rnn_tanh",
                                  "rnn_relu",
                                  "gru",
                                  "lstm",
                                  "rnn_tanh_cell",
                                  "rnn_relu_cell",
                                  "gru_cell",
                                  "lstm_cell"},
                                 {"acos",
                                  "asin",
                                  "binary_cross_entropy_with_logits",
                                  "cdist",
                                  "cosh",
                                  "cosine_embedding_loss",
                                  "cosine_similarity",
                                  "cross_entropy",
                                  "ctc_loss",
                                  "cumprod",
                                  "cumsum",
                                  "dist",
                                  "exp",
                                  "expm1",
                                  "gaussian_nll_loss",
                                  "group_norm",
                                  "hinge_embedding_loss",
                                  "huber_loss",
                                  "interpolate",
                                  "kl_div",
                                  "l1_loss",
                                  "layer_norm",
                                  "local_response_norm",
                                  "log",
                                  "log10",
                                  "log1p",
                                  "log2",
                                  "log_softmax",
                                  "logsumexp",
                                  "lp_pool1d",
                                  "lp_pool2d",
                                  "lp_pool3d",
                                  "margin_ranking_loss",
                                  "mse_loss",
                                  "multi_margin_loss",
                                  "multilabel_margin_loss",
                                  "multilabel_soft_margin_loss",
                                  "nll_loss",
                                  "norm",
                                  "normalize",
                                  "pairwise_distance",
                                  "pdist",
                                  "poisson_nll_loss",
                                  "pow",
                                  "prod",
                                  "reciprocal",
                                  "rms_norm",
                                  "rsqrt",
                                  "sinh",
                                  "smooth_l1_loss",
                                  "soft_margin_loss",
                                  "softmax",
                                  "softplus",
                                  "sum",
                                  "tan",
                                  "triplet_margin_loss"},
                                 {"addcdiv", "addcmul", "atan2", "bilinear", "dot", "grid_sample",
                                  "index_put", "scatter_add", "tensordot"},
                                 {"binary_cross_entropy"});
  return p;
}

const Policy& Policy::torch_cpu() {
  // einsum, tensordot and what is recurrent are not on torch's list, but made of products that are.
  // Pooling over three dimensions is, in float32, but asks no policy here.
  static const Policy p = listed({"matmul",
                                  "mm",
                                  "bmm",
                                  "addmm",
                                  "addbmm",
                                  "baddbmm",
                                  "linear",
                                  "prelu",
                                  "einsum",
                                  "tensordot",
                                  "conv1d",
                                  "conv2d",
                                  "conv3d",
                                  "conv_transpose1d",
                                  "conv_transpose2d",
                                  "conv_transpose3d",
                                  "scaled_dot_product_attention",
                                  "rnn_tanh",
                                  "rnn_relu",
                                  "gru",
                                  "lstm",
                                  "rnn_tanh_cell",
                                  "rnn_relu_cell",
                                  "gru_cell",
                                  "lstm_cell"},
                                 {"binary_cross_entropy",
                                  "binary_cross_entropy_with_logits",
                                  "cdist",
                                  "cosine_embedding_loss",
                                  "cross_entropy",
                                  "ctc_loss",
                                  "grid_sample",
                                  "hinge_embedding_loss",
                                  "huber_loss",
                                  "kl_div",
                                  "l1_loss",
                                  "margin_ranking_loss",
                                  "mse_loss",
                                  "multi_margin_loss",
                                  "multilabel_margin_loss",
                                  "nll_loss",
                                  "poisson_nll_loss",
                                  "prod",
                                  "smooth_l1_loss",
                                  "soft_margin_loss",
                                  "trace",
                                  "triplet_margin_loss"},
                                 {"cat"});
  return p;
}

Policy& Policy::set(std::string_view op, Cast cast) {
  const CastOp& declared = known("set", op);
  if (declared.cast == cast)
    changed_.erase(op);
  else
    changed_[declared.name] = cast;
  return *this;
}

Policy& Policy::set_all(Cast cast) {
  for (const CastOp& op : cast_ops()) set(op.name, cast);
  return *this;
}

Cast Policy::get(std::string_view op) const { return get(known("get", op)); }

Cast Policy::get(const CastOp& op) const {
  const auto row = changed_.find(op.name);
  return row == changed_.end() ? op.cast : row->second;
}

const char* name_of(Cast cast) {
  constexpr std::array names{"Keep", "Lower", "Float32", "Widest", "Refuse"};
  return names[static_cast<size_t>(cast)];
}

std::ostream& operator<<(std::ostream& out, const Policy& policy) {
  constexpr std::pair<Cast, const char*> kMeanings[] = {
      {Cast::Lower, "run in the region's dtype"},
      {Cast::Float32, "run in float32"},
      {Cast::Widest, "run in the region's dtype, in float32 if an input is of another"},
      {Cast::Keep, "run in what they are given, as outside a region"},
      {Cast::Refuse, "throw, and name the way out"}};
  out << "| category | inside a region its ops | ops |\n|---|---|---|\n";
  for (const auto& [cast, meaning] : kMeanings) {
    std::vector<std::string_view> names;
    for (const CastOp& op : cast_ops())
      if (policy.get(op) == cast) names.emplace_back(op.name);
    std::sort(names.begin(), names.end());
    if (names.empty()) continue;
    out << "| `" << name_of(cast) << "` | " << meaning << " | ";
    for (size_t i = 0; i < names.size(); ++i) out << (i ? ", " : "") << names[i];
    out << " |\n";
  }
  return out;
}

}  // namespace halftape::amp
