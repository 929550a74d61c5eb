#include "halftape/amp/inspector/ledger.h"

#include <algorithm>
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

std::string_view module_of(std::string_view parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == parameter.npos ? std::string_view() : parameter.substr(0, dot);
}

double lost_share(int64_t zeros, const ExponentCounts& exact) {
  if (exact.numbers() == 0) return 0;
  const int64_t lost = std::max<int64_t>(0, zeros - exact.zeros());
  return static_cast<double>(lost) / static_cast<double>(exact.numbers());
}

std::optional<double> LedgerRow::lost() const {
  if (!shadow || shadow->numbers() == 0) return {};
  return lost_share(seen.zeros(), *shadow);
}

}  // namespace halftape::amp
