// Counts the numbers that a thread's ops and rules give, on their device; internal to the tools.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "halftape/amp/inspector/ledger.h"
#include "halftape/autograd/tape/value_watcher.h"
#include "halftape/nn/module.h"

namespace halftape::amp {

/// An event is one look at one array. Events of a step are numbered in their order; each has a
/// place, and counts of its own until reset().
class ValueCounter final : public ValueWatcher {
 public:
  /// What is also counted by powers of two.
  enum class Bins : uint8_t { None, Stored16, All };

  explicit ValueCounter(const nn::Module& model);
  void made(const Node& node, const Array& value) override;
  void derived(const Node& node, const Grads& gradients) override;
  void added(const Node& node, const Grads& sums) override;
  void made_inside(const char* op, const Edge& weight, const Array& value) override;
  void derived_inside(const Node& node, size_t weight, const Array& gradient) override;

  std::atomic<bool> off = false;             // nothing is counted, and no parameter is looked for
  std::function<void()> on_scale = nullptr;  // called when a scaler has scaled a loss
  bool values = true;                        // whether values are counted, or gradients alone
  Bins bins = Bins::None;    // of gradients; those of parameters whatever their dtype
  bool stored_alone = true;  // a number that an array repeats by its strides counts once

  const std::vector<LedgerPlace>& places() const { return places_; }
  /// What AnomalyMode knows of the last call of the op of a place, or of its rule.
  const std::string& origin(size_t place) const { return origins_[place]; }
  /// The place of each event.
  const std::vector<size_t>& events() const { return events_; }
  /// The device of the first event; all others are passed over.
  Device device() const { return device_; }
  /// (events, 6) int64, on the device.
  Array classes() const;
  /// The counts of each event; good until the next call.
  const std::vector<ClassCounts>& read_classes();
  /// True if the event was counted by powers of two.
  bool has_bins(size_t event) const { return event < bins_.size() && bins_[event].defined(); }
  ExponentCounts read_bins(size_t event) const;
  /// Begins a new step. With `keep`, its counts are added to those of the steps before.
  void reset(bool keep = false);

 private:
  /// A module: that of the parameter that is the leaf with this seq(), or if 0, one by its path.
  struct Owner {
    uint64_t leaf = 0;
    std::string_view path = {};
  };
  /// A LedgerPlace without its texts, which take long to find and to compare.
  struct Look {
    LedgerPlace::Kind kind;
    const char* op;
    Owner module = {};
    int64_t output = 0;
    uint64_t parameter = 0;  // seq() of its leaf
    const char* rule = "";
    Owner rule_module = {};
    Dtype dtype = kFloat32;
    bool known = false;  // whether its leaves are parameters that have their names

    bool is_at(const LedgerPlace& place, const Look& earlier) const;
  };
  static Owner owner_of(const Edge& weight);
  static Owner owner_of(const Node& node, size_t input);
  void count(Look look, const Node* called, const Array& x);
  size_t place_number(Look& look);
  void grow();
  const std::string& name_of(uint64_t leaf);
  std::string module_of(const Owner& owner);
  void find_names();

  const nn::Module& model_;
  // Of parameters, by seq() of the ends of the tape: a later leaf may have the address of one.
  std::unordered_map<uint64_t, std::string> names_;
  bool names_are_new_ = false;
  std::vector<LedgerPlace> places_;
  std::vector<std::string> origins_;
  std::unordered_map<std::string, size_t> numbers_;  // of places, by their texts
  std::vector<size_t> events_, last_events_;
  std::vector<Look> looks_, last_looks_;  // of the events; their paths are gone
  std::vector<ClassCounts> read_;
  Device device_ = kCPU;
  Array classes_;             // (capacity, 6) int64
  std::vector<Array> slots_;  // its rows
  std::vector<Array> bins_;   // (512) int64 of each event; undefined: not counted
};

}  // namespace halftape::amp
