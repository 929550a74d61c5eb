#include "files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "file.h"
#include "verdict.h"

using namespace halftape;

namespace lab {
namespace {

/// A table as text: numbers keep all their bits, missing ones are empty.
class Csv {
 public:
  explicit Csv(const std::vector<std::string>& columns) {
    for (const std::string& column : columns) *this << column;
    end_line();
  }
  Csv& operator<<(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) return cell(text);
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return cell(quoted + '"');
  }
  template <class T>
  requires std::is_arithmetic_v<T> Csv& operator<<(T number) {
    return cell(fmt::format("{}", number));
  }
  template <class T>
  Csv& operator<<(const std::optional<T>& value) {
    return value ? *this << *value : cell("");
  }
  void end_line() { text_.back() = '\n'; }
  const std::string& text() const { return text_; }

 private:
  Csv& cell(std::string_view text) {
    (text_ += text) += ',';
    return *this;
  }
  std::string text_;
};

std::string ledger(const LabRun& run) {
  std::vector<std::string> columns{"step",  "scale",     "module", "op",          "kind",
                                   "dtype", "total",     "zero",   "subnormal",   "normal",
                                   "large", "inf",       "nan",    "shadow_zero", "error",
                                   "place", "parameter", "rule",   "rule_module"};
  for (int e = kFirstBin; e <= kLastBin; ++e) columns.push_back(fmt::format("2^{}", e));
  Csv csv(columns);
  for (const amp::LedgerRow& row : run.rows) {
    const amp::LedgerPlace& p = run.places[row.place];
    const Classes c = classes_of(row.seen, p.dtype);
    csv << row.step << row.scale << p.module << p.op << kind_name(p.kind) << name(p.dtype)
        << row.seen.total() << c.zero << c.subnormal << c.normal << c.large << c.inf << c.nan;
    csv << (row.shadow ? std::optional(row.shadow->zeros()) : std::nullopt) << row.error
        << row.place << p.parameter << p.rule << p.rule_module;
    for (int e = kFirstBin; e <= kLastBin; ++e) csv << bin(row.seen, e);
    csv.end_line();
  }
  return csv.text();
}

std::string overflows(const LabRun& run) {
  Csv csv({"step", "scale", "where", "module", "op", "dtype", "nan", "parameter", "call_site",
           "largest_scale_that_passes"});
  for (const amp::Overflow& o : run.overflows) {
    csv << o.step << o.scale << where_name(o.where) << o.module << o.op << name(o.dtype)
        << int{o.nan} << o.parameter << o.call_site << o.largest_scale_that_passes;
    csv.end_line();
  }
  return csv.text();
}

std::string alarms(const LabRun& run) {
  Csv csv({"step", "kind", "where", "value", "text"});
  for (const amp::Alarm& a : run.alarms) {
    csv << a.step << alarm_name(a.kind) << a.where << a.value << a.text;
    csv.end_line();
  }
  return csv.text();
}

/// About a thousand numbers ⌊log2|x|⌋ + ½ spread as the counted ones are.
Tensor magnitudes(const amp::ExponentCounts& counts) {
  constexpr double kMost = 1024;
  const double part = std::min(1.0, kMost / static_cast<double>(counts.numbers()));
  std::vector<float> values;
  double owed = 0;
  for (int e = kFirstBin; e <= kLastBin; ++e) {
    owed += static_cast<double>(bin(counts, e)) * part;
    for (; owed > 0.5; --owed) values.push_back(static_cast<float>(e) + 0.5f);
  }
  return tensor(values);
}

void write_events(const std::filesystem::path& folder, const LabRun& run) {
  tensorboard::SummaryWriter events(folder);
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const auto step = static_cast<int64_t>(i);
    events.add_scalar("loss", run.steps[i].loss, step);
    if (run.scaled) events.add_scalar("log2 scale", std::log2(run.steps[i].scale), step);
  }
  for (const LabRun::Measure& m : run.measures) events.add_scalar(run.measure, m.value, m.step);
  for (const amp::LedgerRow& row : run.rows) {
    const amp::LedgerPlace& place = run.places[row.place];
    const std::string tag = place.parameter.empty()
                                ? fmt::format("{}/{} {}", shown(place.module), place.op, row.place)
                                : place.parameter;
    if (row.seen.numbers() > 0)
      events.add_histogram("log2 gradient/" + tag, magnitudes(row.seen), row.step);
    if (row.error) events.add_scalar("error/" + tag, *row.error, row.step);
    if (const auto lost = row.lost()) events.add_scalar("lost/" + tag, *lost, row.step);
  }
}

}  // namespace

Classes classes_of(const amp::ExponentCounts& counts, Dtype dtype) {
  const int64_t subnormal = counts.vanishing(0, dtype) + counts.subnormal(0, dtype);
  const int64_t large = counts.overflowing(1, dtype);  // what would be infinite when doubled
  return {counts.zeros(), subnormal,     counts.numbers() - subnormal - large,
          large,          counts.infs(), counts.nans()};
}

int64_t bin(const amp::ExponentCounts& counts, int exponent) {
  const int from = exponent == kFirstBin ? -126 : exponent;
  const int to = exponent == kLastBin ? 127 : exponent;
  int64_t n = exponent == kFirstBin ? counts.slots[0] : 0;
  for (int e = from; e <= to; ++e) n += counts.at(e);
  return n;
}

const char* kind_name(amp::LedgerPlace::Kind kind) {
  using Kind = amp::LedgerPlace::Kind;
  return kind == Kind::Value      ? "value"
         : kind == Kind::Gradient ? "gradient"
         : kind == Kind::Sum      ? "sum"
                                  : "parameter";
}

const char* where_name(amp::Overflow::Where where) {
  using Where = amp::Overflow::Where;
  return where == Where::Loss       ? "loss"
         : where == Where::Forward  ? "forward"
         : where == Where::Backward ? "backward"
                                    : "unscale";
}

const char* alarm_name(amp::Alarm::Kind kind) {
  using Kind = amp::Alarm::Kind;
  switch (kind) {
    case Kind::Lost:
      return "lost";
    case Kind::Dead:
      return "dead";
    case Kind::Stagnant:
      return "stagnant";
    case Kind::ScaleAtBound:
      return "scale at bound";
    case Kind::SkipsInRow:
      return "skips in a row";
    case Kind::ScheduleAhead:
      return "schedule ahead";
  }
  return "";
}

void write_files(const std::filesystem::path& folder, const LabRun& run) {
  report::write_page((folder / "ledger.csv").string(), ledger(run));
  report::write_page((folder / "overflows.csv").string(), overflows(run));
  report::write_page((folder / "alarms.csv").string(), alarms(run));
  write_events(folder / "tensorboard", run);
}

}  // namespace lab
