#include "halftape/amp/inspector/value_counter.h"

#include <algorithm>
#include <cstring>

#include "halftape/autograd/tape/anomaly_mode.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {
namespace {

constexpr size_t kMostEvents = size_t{1} << 16;  // of a step; further ones are passed over

/// Whether x repeats its numbers along a dimension.
bool repeats(const Array& x, int d) { return x.strides()[d] == 0 && x.size(d) > 1; }
/// x without the dimensions along which it repeats its numbers: each stored number once.
Array stored_once(Array x) {
  for (int d = 0; d < x.dim(); ++d)
    if (repeats(x, d)) x = x.slice(d, 0, 1);
  return x;
}
bool repeats(const Array& x) {
  for (int d = 0; d < x.dim(); ++d)
    if (repeats(x, d)) return true;
  return false;
}

bool is(const Node& node, const char* op) {
  const char* const name = node.name();
  return *name == *op && std::strcmp(name, op) == 0;
}
bool is_leaf(const Node& node) { return is(node, "accumulate"); }

}  // namespace

bool ValueCounter::Look::is_at(const LedgerPlace& p, Dtype dtype) const {
  const auto same = [](const std::string& x, const char* y) {
    return std::strcmp(x.c_str(), y) == 0;
  };
  return kind == p.kind && dtype == p.dtype && output == p.output && same(p.op, op) &&
         p.module == module && p.parameter == parameter && same(p.rule, rule) &&
         p.rule_module == rule_module;
}

ValueCounter::ValueCounter(const nn::Module& model) : model_(model) { find_names(); }

void ValueCounter::find_names() {
  names_.clear();
  for (const auto& p : model_.named_parameters())
    if (p.value().requires_grad()) names_.emplace(p.value().gradient_edge().node->seq(), p.key());
  names_are_new_ = true;
}

const std::string& ValueCounter::name_of(const Node* leaf) {
  static const auto& none = *new std::string;  // NOLINT: for inspectors of dying statics
  auto found = names_.find(leaf->seq());
  if (found == names_.end() && !names_are_new_) {  // a parameter may have been replaced
    find_names();
    found = names_.find(leaf->seq());
  }
  return found == names_.end() ? none : found->second;
}

/// The leaf that an op's weight is, or was before a cast; null if there is none.
const Node* ValueCounter::leaf_below(const Node* node) const {
  while (node && is(*node, "to")) node = node->next[0].node.get();
  return node && is_leaf(*node) ? node : nullptr;
}

/// The leaf whose gradient arrives at the node: itself, or one that it casts to 16 bits, whose
/// rule hands the same numbers on. Null if there is none.
const Node* ValueCounter::leaf_at(const Node& node) const {
  if (is_leaf(node)) return &node;
  return is(node, "to") && node.first.wide ? leaf_below(&node) : nullptr;
}

std::string_view ValueCounter::module_of(const Edge& weight) {
  const Node* leaf = leaf_below(weight.node.get());
  return leaf ? amp::module_of(name_of(leaf)) : std::string_view();
}

/// The module that called the op; in an mlp(), which has several, the one whose parameter that
/// input is. Its inputs are x, then weight and bias of each layer.
std::string_view ValueCounter::module_of(const Node& node, size_t input) {
  if (node.next.size() <= 3 || !is(node, "linear")) return node.place();
  return module_of(node.next[input == 0 ? 1 : (input - 1) / 2 * 2 + 1]);
}

void ValueCounter::made(const Node& node, const Array& value) {
  if (off) return;
  const bool scaled = is(node, "scale");  // that of a bad loss is wanted in any case
  if (values || scaled)
    count({.kind = LedgerPlace::Kind::Value,
           .op = node.name(),
           .module = module_of(node, node.next.size() - 1)},
          &node, value);
  if (scaled && on_scale) on_scale();
}

void ValueCounter::made_inside(const char* op, const Edge& weight, const Array& value) {
  if (off) return;
  if (!values) return;
  count({.kind = LedgerPlace::Kind::Value, .op = op, .module = module_of(weight)}, nullptr, value);
}

void ValueCounter::derived(const Node& node, const Grads& gradients) {
  if (off) return;
  if (is(node, "to") && node.first.wide) return;  // counted when it arrived at the cast
  for (size_t i = 0; i < gradients.size() && i < node.next.size(); ++i) {
    const Edge& edge = node.next[i];
    if (!edge || !gradients[i].defined()) continue;
    const Node& to = *edge.node;
    if (const Node* leaf = leaf_at(to))
      count({.kind = LedgerPlace::Kind::Parameter,
             .op = leaf->name(),
             .parameter = name_of(leaf),
             .rule = node.name(),
             .rule_module = module_of(node, i)},
            &node, gradients[i].array());
    else
      count({.kind = LedgerPlace::Kind::Gradient,
             .op = to.name(),
             .module = module_of(to, to.next.size() - 1),
             .output = edge.output,
             .rule = node.name(),
             .rule_module = module_of(node, i)},
            &node, gradients[i].array());
  }
}

void ValueCounter::derived_inside(const Node& node, size_t weight, const Array& gradient) {
  if (off) return;
  count({.kind = LedgerPlace::Kind::Gradient,
         .op = node.name(),
         .module = module_of(node, weight),
         .rule = node.name(),
         .rule_module = module_of(node, weight + 2)},
        &node, gradient);
}

void ValueCounter::added(const Node& node, const Grads& sums) {
  if (off) return;
  const Node* leaf = leaf_at(node);
  const Node& of = leaf ? *leaf : node;
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i].defined())
      count({.kind = LedgerPlace::Kind::Sum,
             .op = of.name(),
             .module = module_of(of, of.next.size() - 1),
             .output = static_cast<int64_t>(i),
             .parameter = leaf ? name_of(leaf) : std::string_view()},
            &node, sums[i].array());
}

void ValueCounter::count(const Look& look, const Node* called, const Array& x) {
  if (!is_floating_point(x.dtype()) || x.numel() == 0 || events_.size() == kMostEvents) return;
  if (!classes_.defined()) device_ = x.device();
  if (x.device() != device_) return;
  const size_t event = events_.size(), number = place_number(look, x.dtype());
  events_.push_back(number);
  if (event == slots_.size()) grow();
  if (called && autograd::AnomalyMode::is_enabled()) origins_[number] = called->origin();
  const Array once = stored_alone && repeats(x) ? stored_once(x) : Array();
  const Array& each = once.defined() ? once : x;
  backend(device_).count_numbers(CountBy::Class, slots_[event], each);
  const bool parameter = look.kind == LedgerPlace::Kind::Parameter;
  if (bins == Bins::None || look.kind == LedgerPlace::Kind::Value ||
      (bins == Bins::Stored16 && !parameter && !is_16bit(x.dtype())))
    return;
  if (bins_.size() <= event) bins_.resize(event + 1);
  bins_[event] = full({kExponentSlots}, 0, kInt64, device_);
  backend(device_).count_numbers(CountBy::Exponent, bins_[event], each);
}

/// The place is most often that of the same event of the step before.
size_t ValueCounter::place_number(const Look& look, Dtype dtype) {
  const size_t event = events_.size();
  if (event < last_events_.size() && look.is_at(places_[last_events_[event]], dtype))
    return last_events_[event];
  LedgerPlace place{.kind = look.kind,
                    .op = look.op,
                    .module = std::string(look.module),
                    .output = look.output,
                    .parameter = std::string(look.parameter),
                    .rule = look.rule,
                    .rule_module = std::string(look.rule_module),
                    .dtype = dtype};
  const auto [found, is_new] =
      numbers_.emplace(halftape::detail::str(place, '|', place.output), places_.size());
  if (is_new) {
    places_.push_back(std::move(place));
    origins_.emplace_back();
  }
  return found->second;
}

/// Doubles the room for events.
void ValueCounter::grow() {
  const LastingState lasting;
  const auto before = static_cast<int64_t>(slots_.size()), now = std::max<int64_t>(64, 2 * before);
  Array larger = full({now, kNumberClasses}, 0, kInt64, device_);
  if (before > 0) backend(device_).copy(larger.slice(0, 0, before), classes_);
  classes_ = std::move(larger);
  slots_.clear();
  for (int64_t i = 0; i < now; ++i) slots_.push_back(classes_.select(0, i));
}

Array ValueCounter::classes() const {
  return classes_.slice(0, 0, static_cast<int64_t>(events_.size()));
}

std::vector<ClassCounts> ValueCounter::read_classes() const {
  std::vector<ClassCounts> counts(events_.size());
  static_assert(sizeof(ClassCounts) == kNumberClasses * sizeof(int64_t));
  if (!counts.empty()) backend(device_).read(counts.data(), classes());
  return counts;
}

ExponentCounts ValueCounter::read_bins(size_t event) const {
  ExponentCounts counts;
  backend(device_).read(counts.slots.data(), bins_[event]);
  return counts;
}

void ValueCounter::reset(bool keep) {
  if (!keep && !events_.empty()) backend(device_).fill(classes(), 0);
  last_events_.swap(events_);
  events_.clear();
  bins_.clear();
  names_are_new_ = false;
}

}  // namespace halftape::amp
