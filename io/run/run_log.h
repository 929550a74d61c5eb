// The numbers of a run, one row per step, as a CSV file for a spreadsheet, pandas, or `tail -f`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace halftape {

/// Writes each row at once, as one line: however the run ends, the file has all rows so far.
///
///     RunLog log("run1/log.csv");
///     log.drop_from("step", state.step);                 // after resuming
///     log.write({{"step", step}, {"loss", loss}, {"precision", "float16"}});
///
/// The first row fixes the columns; a row with other columns throws Error. An existing file is
/// continued: its columns hold, and what is no complete row at its end is moved to path.dropped
/// (path.dropped.1 … where that exists), and a warning says so. Numbers keep all their bits. Throws
/// FileError when the file cannot be written, is no log, is a link, or is open as a log elsewhere,
/// in this process or another.
class RunLog {
 public:
  using Value = std::variant<int64_t, double, std::string>;
  /// A value under its column's name.
  struct Cell {
    std::string_view column;  // its name
    Value value;              // a number or a text
    template <class T>
    requires std::is_arithmetic_v<T> Cell(std::string_view name, T number)
        : column(name),
          value(static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, double>>(number)) {
      if constexpr (std::is_unsigned_v<T>)
        if (static_cast<uint64_t>(number) > INT64_MAX) value = std::to_string(number);
    }
    Cell(std::string_view name, std::string text) : column(name), value(std::move(text)) {}
  };

  /// Makes the folder if it does not exist.
  explicit RunLog(const std::filesystem::path& path);

  void write(std::initializer_list<Cell> row) { write(std::vector<Cell>(row)); }
  /// Appends a row, and hands it to the operating system.
  void write(const std::vector<Cell>& row);
  /// Drops the rows in which the column is `value` or more: those after the checkpoint from which
  /// the run resumes. Throws Error for an unknown column, and for a cell that is no number.
  void drop_from(std::string_view column, double value);
  /// Empty before the first row.
  const std::vector<std::string>& columns() const { return columns_; }

 private:
  void open();
  void append(const std::string& line);
  void keep(std::string_view rows) const;

  std::filesystem::path path_;
  std::ofstream file_;
  std::shared_ptr<const int> lock_;
  std::vector<std::string> columns_;
};

}  // namespace halftape
