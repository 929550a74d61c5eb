// The CSV reader. Every field is a number, and errors name line and column.
#include "halftape/io/data/sets/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file.h"

namespace halftape::data {
namespace {

std::string shown(std::string_view text) {
  constexpr size_t kShown = 40;
  return "'" + std::string(text.substr(0, kShown)) + (text.size() > kShown ? "…'" : "'");
}

class Reader {
 public:
  Reader(std::string_view text, const CSVOptions& options, const std::string& name)
      : text_(text), options_(options), name_(name) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  Table table() {
    Table table;
    std::vector<double> values;
    while (next_line()) {
      split();
      if (width_ == 0) {
        width_ = fields_.size();
        if (options_.header()) {
          table.columns.assign(fields_.begin(), fields_.end());
          continue;
        }
      }
      if (fields_.size() != width_)
        fail("expected ", width_, " fields as in the first line, found ", fields_.size());
      host_grow(values, width_);
      host_grow(table.lines, 1);
      for (size_t c = 0; c < width_; ++c) values.push_back(number(c, table.columns));
      table.lines.push_back(line_number_);
    }
    if (table.lines.empty())
      fail_file("csv", name_, "expected rows of numbers, found none",
                width_ ? " after the header" : "");
    table.values =
        tensor(values, TensorOptions(kFloat64).device(kCPU))
            .view({static_cast<int64_t>(table.lines.size()), static_cast<int64_t>(width_)});
    return table;
  }

 private:
  /// Without blanks at its ends; a separator is none.
  std::string_view trimmed(std::string_view field) const {
    const auto blank = [&](char c) { return (c == ' ' || c == '\t') && c != options_.separator(); };
    while (!field.empty() && blank(field.front())) field.remove_prefix(1);
    while (!field.empty() && blank(field.back())) field.remove_suffix(1);
    return field;
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_file("csv", name_, "line ", line_number_, ": ", parts...);
  }

  /// To the next line with something in it.
  bool next_line() {
    while (!text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      line_ = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_number_;
      if (line_.ends_with('\r')) line_.remove_suffix(1);
      if (!trimmed(line_).empty()) return true;
    }
    return false;
  }

  void split() {
    fields_.clear();
    std::string_view rest = line_;
    for (;;) {
      constexpr size_t kMostFields = 1 << 24;
      if (fields_.size() == kMostFields)
        fail("expected at most ", kMostFields, " fields, found more; has the file no line feeds?");
      const std::string_view start = trimmed(rest);
      size_t end = 0;
      if (start.starts_with('"')) {
        const size_t open = static_cast<size_t>(start.data() - rest.data());
        const size_t close = rest.find('"', open + 1);
        if (close == rest.npos)
          fail("expected a closing quote for the field that begins with ", shown(start));
        fields_.push_back(trimmed(rest.substr(open + 1, close - open - 1)));
        end = std::min(rest.find(options_.separator(), close), rest.size());
        if (!trimmed(rest.substr(close + 1, end - close - 1)).empty())
          fail("expected a separator after the quoted field ", shown(fields_.back()));
      } else {
        end = std::min(rest.find(options_.separator()), rest.size());
        fields_.push_back(trimmed(rest.substr(0, end)));
      }
      if (end == rest.size()) return;
      rest.remove_prefix(end + 1);
    }
  }

  double number(size_t column, const std::vector<std::string>& names) const {
    std::string_view field = fields_[column];
    const std::string_view whole = field;
    if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
    double value = 0;
    const auto [end, error] = read_number(field, value);
    if (!field.empty() && end == field.data() + field.size()) {
      if (error == std::errc()) return value;
      fail(place(column, names), ": ", shown(whole), " is outside the range of float64");
    }
    fail(place(column, names), ": expected a number, found ",
         whole.empty() ? "nothing" : shown(whole), hint(whole));
  }

  std::string place(size_t column, const std::vector<std::string>& names) const {
    return "column " + std::to_string(column + 1) +
           (names.empty() ? "" : " (" + shown(names[column]) + ")");
  }

  std::string hint(std::string_view field) const {
    if (line_number_ == 1) return "; a first line of names needs header(true)";
    for (const char other : {',', ';', '\t'})
      if (width_ == 1 && other != options_.separator() && field.find(other) != field.npos)
        return std::string("; is the separator '") +
               (other == '\t' ? "\\t" : std::string(1, other)) + "'?";
    return "";
  }

  std::string_view text_;
  const CSVOptions& options_;
  const std::string& name_;
  std::string_view line_;
  int64_t line_number_ = 0;
  size_t width_ = 0;  // 0: before the first line
  std::vector<std::string_view> fields_;
};

/// Throws unless each value of the column is one of the dtype. `what` and `option` name it and its
/// dtype's option.
void check_fits(const Table& table, int64_t column, Dtype dtype, const std::string& name,
                const char* what, const char* option) {
  if (is_floating_point(dtype)) return;
  const auto [least, most] = visit(dtype, []<class T>(Type<T>) {
    return std::pair(static_cast<double>(std::numeric_limits<T>::lowest()),
                     static_cast<double>(std::numeric_limits<T>::max()));
  });
  const std::vector<double> values = table.values.select(1, column).to(kFloat64).to_vector();
  for (size_t row = 0; row < values.size(); ++row) {
    const double value = values[row];
    const bool whole = value == std::floor(value),
               fits = value >= least && value <= most && std::abs(value) < 0x1p53;
    if (whole && fits) continue;
    const std::string why = whole ? " is not in the range of " +
                                        std::string(halftape::name(dtype)) + ", or not below 2^53"
                                  : std::string(" is no whole number; use ") + option;
    // A caller may have chosen among the rows, and then their lines are not known.
    const std::string place = table.lines.size() == values.size()
                                  ? "line " + std::to_string(table.lines[row])
                                  : "row " + std::to_string(row) + ", counted from 0";
    fail_file("csv", name, place, ", column ", column + 1, ": the ", what, " ", value, why);
  }
}

datasets::LabelledTensors split_off_target(const Table& table, const CSVOptions& options,
                                           const std::string& name) {
  const int64_t target = table.index(options.target());
  if (table.values.size(1) < 2)
    fail_file("csv", name, "one column is not data and target; read_csv() gives it as a tensor");
  for (int64_t c = 0; c < table.values.size(1); ++c)
    if (c == target)
      check_fits(table, c, options.target_dtype(), name, "target", "target_dtype(kFloat32)");
    else
      check_fits(table, c, options.dtype(), name, "value", "dtype(kFloat32)");
  const Tensor data = cat({table.values.slice(1, 0, target), table.values.slice(1, target + 1)}, 1);
  const Tensor targets = table.values.select(1, target);
  return datasets::LabelledTensors(data.to(options.dtype()),
                                   targets.to(options.target_dtype()).contiguous());
}

}  // namespace

int64_t Table::index(const Column& column) const {
  const int64_t width = values.size(1);
  if (const auto* number = std::get_if<int64_t>(&column)) {
    const int64_t i = *number < 0 ? *number + width : *number;
    if (i < 0 || i >= width)
      throw DataError("csv: column " + std::to_string(*number) + " of " + std::to_string(width) +
                      "; columns are counted from 0");
    return i;
  }
  const std::string& name = std::get<std::string>(column);
  std::string there;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == name) {
      const auto other =
          std::find(columns.begin() + static_cast<std::ptrdiff_t>(i) + 1, columns.end(), name);
      if (other != columns.end())
        throw DataError("csv: columns " + std::to_string(i) + " and " +
                        std::to_string(other - columns.begin()) + ", counted from 0, are both " +
                        "named " + shown(name) + "; choose one by its number");
      return static_cast<int64_t>(i);
    }
    there += (i ? ", " : "") + columns[i];
  }
  throw DataError("csv: no column is named " + shown(name) + "; " +
                  (columns.empty() ? "the table was read without a header" : "there are " + there));
}

Table parse_csv(std::string_view text, const CSVOptions& options, const std::string& name) {
  return Reader(text, options, name).table();
}

Table read_csv(const std::filesystem::path& path, const CSVOptions& options) {
  return parse_csv(read_file("csv", path), options, path.string());
}

namespace datasets {
CSV::CSV(const std::filesystem::path& path, const CSVOptions& options)
    : CSV(read_csv(path, options), options, path.string()) {}
CSV::CSV(const Table& table, const CSVOptions& options, const std::string& name)
    : CSV(split_off_target(table, options, name)) {}
CSV::CSV(const LabelledTensors& parts) : LabelledDataset(parts.data(), parts.targets()) {}
}  // namespace datasets

}  // namespace halftape::data
