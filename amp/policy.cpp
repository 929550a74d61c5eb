#include "halftape/amp/policy.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"

namespace halftape::amp {
namespace {

/// The edit distance of Levenshtein 1966.
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

/// The three closest names of ops.
std::string similar(std::string_view name) {
  std::vector<std::pair<size_t, std::string_view>> all;
  for (const CastOp& op : cast_ops()) all.emplace_back(distance(name, op.name), op.name);
  std::partial_sort(all.begin(), all.begin() + 3, all.end());
  std::string text;
  for (size_t i = 0; i < 3; ++i) text += (i ? ", " : "") + std::string(all[i].second);
  return text;
}

const CastOp& declared_op(const char* call, std::string_view name) {
  for (const CastOp& op : cast_ops())
    if (op.name == name) return op;
  halftape::detail::fail("amp::Policy::", call, ": no op is called \"", name,
                         "\"; similar names: ", similar(name));
}

/// A policy with these ops, separated by spaces, in categories, and Keep for all others.
Policy policy_of(const std::map<Cast, std::string_view>& categories) {
  Policy p;
  p.set_all(Cast::Keep);
  for (const auto& [cast, ops] : categories)
    for (std::string_view rest = ops; !rest.empty();) {
      const std::string_view op = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), op.size() + 1));
      p.set(op, cast);
    }
  return p;
}

}  // namespace

const Policy& Policy::standard() {
  static const auto* p = new Policy;  // NOLINT: statics may ask in their destructors
  return *p;
}

const Policy& Policy::torch_cuda() {
  // Some names are not on torch's list, because torch composes them from ops that are:
  // cross_entropy from log_softmax and nll_loss, gaussian_nll_loss from log, pairwise_distance and
  // normalize from norm, local_response_norm and lp_pool from pow. torch has ctc_loss for float32
  // and float64 only.
  static const auto* p = new Policy(policy_of(
      {{Cast::Lower,
        "matmul mm bmm mv addmm addmv addr addbmm baddbmm einsum linear prelu conv1d conv2d "
        "conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention "
        "rnn_tanh rnn_relu gru lstm rnn_tanh_cell rnn_relu_cell gru_cell lstm_cell"},
       {Cast::Float32,
        "acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss "
        "cosine_similarity cross_entropy ctc_loss cumprod cumsum dist erfinv exp expm1 "
        "gaussian_nll_loss group_norm hinge_embedding_loss huber_loss interpolate kl_div l1_loss "
        "layer_norm "
        "local_response_norm log log10 log1p log2 log_softmax logsumexp lp_pool1d lp_pool2d "
        "lp_pool3d margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss "
        "multilabel_soft_margin_loss nll_loss norm normalize pairwise_distance pdist "
        "poisson_nll_loss pow prod reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss "
        "soft_margin_loss "
        "softmax softplus sum tan triplet_margin_loss"},
       {Cast::Widest,
        "addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot"},
       {Cast::Refuse, "binary_cross_entropy"}}));  // NOLINT
  return *p;
}

const Policy& Policy::torch_cpu() {
  // Some names are not on torch's list: it composes einsum, tensordot and the recurrent ops from
  // products that are, and local_response_norm from avg_pool3d (of three dimensions from
  // avg_pool2d: those stay in 16 bits there). Without a rule, torch's addr promotes.
  static const auto* p = new Policy(policy_of(
      {{Cast::Lower,
        "matmul mm bmm addmm addbmm baddbmm linear prelu einsum tensordot conv1d conv2d conv3d "
        "conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention rnn_tanh "
        "rnn_relu gru lstm rnn_tanh_cell rnn_relu_cell gru_cell lstm_cell"},
       {Cast::Float32,
        "avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist "
        "cosine_embedding_loss cross_entropy ctc_loss grid_sample hinge_embedding_loss huber_loss "
        "kl_div l1_loss local_response_norm margin_ranking_loss mse_loss multi_margin_loss "
        "multilabel_margin_loss nll_loss poisson_nll_loss prod smooth_l1_loss soft_margin_loss "
        "trace triplet_margin_loss"},
       {Cast::Widest, "addr cat"}}));  // NOLINT
  return *p;
}

Policy& Policy::set(std::string_view op, Cast cast) {
  const CastOp& declared = declared_op("set", op);
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

Cast Policy::get(std::string_view op) const { return get(declared_op("get", op)); }

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
