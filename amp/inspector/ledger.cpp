#include "halftape/amp/inspector/ledger.h"

#include <numeric>

namespace halftape::amp {

int64_t ClassCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

ClassCounts& ClassCounts::operator+=(const ClassCounts& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  return *this;
}

std::ostream& operator<<(std::ostream& out, const LedgerPlace& place) {
  const auto called = [&](const std::string& op, const std::string& module) {
    out << op;
    if (!module.empty()) out << " in " << module;
  };
  switch (place.kind) {
    case LedgerPlace::Kind::Value:
      break;
    case LedgerPlace::Kind::Sum:
      out << "sum of gradients of ";
      break;
    case LedgerPlace::Kind::Gradient:
    case LedgerPlace::Kind::Parameter:
      out << "gradient of ";
  }
  if (!place.parameter.empty())
    out << place.parameter;
  else if (place.op == "accumulate")
    out << "a leaf";
  else
    called(place.op, place.module);
  if (!place.rule.empty()) {
    out << ", by the rule of ";
    called(place.rule, place.rule_module);
  }
  return out << ", " << place.dtype;
}

}  // namespace halftape::amp
