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

/// The leaf that an op's weight is, or was before a cast; null if there is none.
const Node* leaf_below(const Node* node) {
  while (node && is(*node, "to")) node = node->next[0].node.get();
  return node && node->is_leaf() ? node : nullptr;
}

/// The leaf whose gradient arrives at the node: itself, or one that it casts to 16 bits, whose
/// rule hands the same numbers on. Null if there is none.
const Node* leaf_at(const Node& node) {
  if (node.is_leaf()) return &node;
  return is(node, "to") && node.first.wide ? leaf_below(&node) : nullptr;
}

}  // namespace

ValueCounter::Owner ValueCounter::owner_of(const Edge& weight) {
  const Node* leaf = leaf_below(weight.node.get());
  return {.leaf = leaf ? leaf->seq() : 0};
}

/// The module that called the op; in an mlp(), which has several, the one whose parameter that
/// input is. Its inputs are x, then weight and bias of each layer.
ValueCounter::Owner ValueCounter::owner_of(const Node& node, size_t input) {
  if (node.next.size() <= 3 || !is(node, "linear")) return {.path = node.place()};
  return owner_of(node.next[input == 0 ? 1 : (input - 1) / 2 * 2 + 1]);
}

ValueCounter::ValueCounter(const nn::Module& model) : model_(model) { find_names(); }

void ValueCounter::find_names() {
  std::unordered_map<uint64_t, std::string> names;
  for (const auto& p : model_.named_parameters())
    if (p.value().requires_grad()) names.emplace(p.value().gradient_edge().node->seq(), p.key());
  names_are_new_ = true;
  if (names == names_) return;
  names_ = std::move(names);
  last_looks_.clear();  // a leaf has another name, also in this step's looks
  for (Look& look : looks_) look.known = false;
}

const std::string& ValueCounter::name_of(uint64_t leaf) {
  static const auto& none = *new std::string;  // NOLINT: for inspectors of dying statics
  auto found = names_.find(leaf);
  if (found == names_.end() && !names_are_new_) {  // a parameter may have been replaced
    find_names();
    found = names_.find(leaf);
  }
  return found == names_.end() ? none : found->second;
}

std::string ValueCounter::module_of(const Owner& owner) {
  return std::string(owner.leaf == 0 ? owner.path : amp::module_of(name_of(owner.leaf)));
}

void ValueCounter::made(const Node& node, const Array& value) {
  if (off) return;
  const bool scaled = is(node, "scale");  // that of a bad loss is wanted in any case
  if (values || scaled)
    count({.kind = LedgerPlace::Kind::Value,
           .op = node.name(),
           .module = owner_of(node, node.next.size() - 1)},
          &node, value);
  if (scaled && on_scale) on_scale();
}

void ValueCounter::made_inside(const char* op, const Edge& weight, const Array& value) {
  if (off || !values) return;
  count({.kind = LedgerPlace::Kind::Value, .op = op, .module = owner_of(weight)}, nullptr, value);
}

void ValueCounter::derived(const Node& node, const Grads& gradients) {
  if (off) return;
  if (is(node, "to") && node.first.wide) return;  // counted when it arrived at the cast
  for (size_t i = 0; i < gradients.size() && i < node.next.size(); ++i) {
    const Edge& edge = node.next[i];
    if (!edge || !gradients[i].defined()) continue;
    const Node& to = *edge.node;
    Look look{.kind = LedgerPlace::Kind::Gradient,
              .op = to.name(),
              .rule = node.name(),
              .rule_module = owner_of(node, i)};
    if (const Node* leaf = leaf_at(to)) {
      look.kind = LedgerPlace::Kind::Parameter;
      look.op = leaf->name();
      look.parameter = leaf->seq();
    } else {
      look.module = owner_of(to, to.next.size() - 1);
      look.output = edge.output;
    }
    count(look, &node, gradients[i].array());
  }
}

void ValueCounter::derived_inside(const Node& node, size_t weight, const Array& gradient) {
  if (off) return;
  count({.kind = LedgerPlace::Kind::Gradient,
         .op = node.name(),
         .module = owner_of(node, weight),
         .rule = node.name(),
         .rule_module = owner_of(node, weight + 2)},
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
             .module = owner_of(of, of.next.size() - 1),
             .output = static_cast<int64_t>(i),
             .parameter = leaf ? leaf->seq() : 0},
            &node, sums[i].array());
}

void ValueCounter::count(Look look, const Node* called, const Array& x) {
  look.dtype = x.dtype();
  if (!is_floating_point(look.dtype) || x.numel() == 0 || events_.size() == kMostEvents) return;
  if (!classes_.defined()) device_ = x.device();
  if (x.device() != device_) return;
  const size_t event = events_.size(), number = place_number(look);
  if (event == slots_.size()) grow();
  looks_.resize(event);  // one is too many where there was no memory for its event
  looks_.push_back(look);
  events_.push_back(number);
  if (called && autograd::AnomalyMode::is_enabled()) origins_[number] = called->origin();
  const Array once = stored_alone && repeats(x) ? stored_once(x) : Array();
  const Array& each = once.defined() ? once : x;
  Backend& device = backend(device_);
  device.count_numbers(CountBy::Class, slots_[event], each);
  const bool parameter = look.kind == LedgerPlace::Kind::Parameter;
  if (bins == Bins::None || look.kind == LedgerPlace::Kind::Value ||
      (bins == Bins::Stored16 && !parameter && !is_16bit(look.dtype)))
    return;
  if (bins_.size() <= event) bins_.resize(event + 1);
  bins_[event] = full({kExponentSlots}, 0, kInt64, device_);
  device.count_numbers(CountBy::Exponent, bins_[event], each);
}

/// Whether this look is at the place of an earlier one.
bool ValueCounter::Look::is_at(const LedgerPlace& place, const Look& earlier) const {
  const auto same = [](const Owner& now, const Owner& before, const std::string& path) {
    return now.leaf == before.leaf && (now.leaf != 0 || now.path == path);
  };
  const auto same_text = [](const char* now, const char* before, const std::string& text) {
    return now == before || text == now;
  };
  return earlier.known && kind == earlier.kind && dtype == earlier.dtype &&
         output == earlier.output && parameter == earlier.parameter &&
         same(module, earlier.module, place.module) &&
         same(rule_module, earlier.rule_module, place.rule_module) &&
         same_text(op, earlier.op, place.op) && same_text(rule, earlier.rule, place.rule);
}

/// The place is most often that of the same event of the step before.
size_t ValueCounter::place_number(Look& look) {
  const size_t event = events_.size();
  if (event < last_looks_.size() && look.is_at(places_[last_events_[event]], last_looks_[event])) {
    look.known = true;
    return last_events_[event];
  }
  LedgerPlace place{.kind = look.kind,
                    .op = look.op,
                    .module = module_of(look.module),
                    .output = look.output,
                    .parameter = look.parameter == 0 ? "" : name_of(look.parameter),
                    .rule = look.rule,
                    .rule_module = module_of(look.rule_module),
                    .dtype = look.dtype};
  const auto has_name = [this](uint64_t leaf) { return leaf == 0 || !name_of(leaf).empty(); };
  look.known =
      has_name(look.parameter) && has_name(look.module.leaf) && has_name(look.rule_module.leaf);
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

const std::vector<ClassCounts>& ValueCounter::read_classes() {
  read_.resize(events_.size());
  static_assert(sizeof(ClassCounts) == kNumberClasses * sizeof(int64_t));
  if (!read_.empty()) backend(device_).read(read_.data(), classes());
  return read_;
}

ExponentCounts ValueCounter::read_bins(size_t event) const {
  ExponentCounts counts;
  backend(device_).read(counts.slots.data(), bins_[event]);
  return counts;
}

void ValueCounter::reset(bool keep) {
  if (!keep && !events_.empty()) backend(device_).fill(classes(), 0);
  last_events_.swap(events_);
  last_looks_.swap(looks_);
  events_.clear();
  looks_.clear();
  bins_.clear();
  names_are_new_ = false;
}

}  // namespace halftape::amp
