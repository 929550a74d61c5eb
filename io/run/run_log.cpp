// The format: RFC 4180, with a line feed at the end of a line.
#include "halftape/io/run/run_log.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "halftape/core/machine/os.h"
#include "halftape/core/machine/warn.h"
#include "halftape/io/file/append.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file.h"

namespace halftape {
namespace {

std::string csv(std::string_view text) {
  HALFTAPE_CHECK(text.find('\0') == text.npos, "run log: a cell or column has a zero byte");
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += c;
    out += c;
  }
  return out + '"';
}

/// A line with nothing in it would be no row to other readers.
void show_empty(std::string& line) {
  if (line.empty()) line = "\"\"";
}

std::string cell_of(const RunLog::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return csv(*text);
  if (const auto* whole = std::get_if<int64_t>(&value)) return text_of(*whole);
  return text_of(std::get<double>(value));
}

/// Cuts the first row and its line feed off the text; none if the text has no complete row.
std::optional<std::vector<std::string>> take_row(std::string_view& text) {
  std::vector<std::string> cells(1);
  bool inside = false;  // of quotes
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && inside && i + 1 < text.size() && text[i + 1] == '"') {
      cells.back() += c;
      ++i;
    } else if (c == '"') {
      inside = !inside;
    } else if (c == ',' && !inside) {
      cells.emplace_back();
    } else if (c == '\n' && !inside) {
      text.remove_prefix(i + 1);
      return cells;
    } else {
      cells.back() += c;
    }
  }
  return {};
}

/// Whether a run that died while it wrote its first row, or a power failure, may have left this:
/// the beginning of names of columns as write() writes them, in one line, and zeros to the end of
/// a block of the disk.
bool begins_header(std::string_view text) {
  constexpr size_t kBlock = 512;  // the least that disks have
  const std::string_view names = text.substr(0, text.find('\0'));
  const std::string_view block = text.substr(0, (names.size() / kBlock + 1) * kBlock);
  if (block.find_first_not_of('\0', names.size()) != block.npos || names.find('\n') != names.npos)
    return false;
  // Completed behind a plain cell, inside quotes, and behind the first of two quotes in them.
  for (const char* end : {"\n", ",\"\n", "\",\"\n"}) {
    const std::string completed = std::string(names) + end;
    std::string_view rest = completed;
    std::string written;
    if (const auto cells = take_row(rest))
      for (const std::string& cell : *cells) written += csv(cell) + ',';
    if (written.starts_with(names)) return true;
  }
  return false;
}

/// Whether text that begins with an open row has a complete one behind it, in which case it is not
/// what a run left that died while it wrote.
bool goes_on(std::string_view text, size_t columns) {
  const size_t line = text.find('\n');  // the cell in quotes that is open may hold some
  if (line == text.npos) return false;
  text.remove_prefix(line + 1);
  while (const auto cells = take_row(text))
    if (cells->size() == columns) return true;
  return false;
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& path) : path_(absolute_path("run log", path)) {
  std::error_code error;
  make_folders("run log", path_.parent_path());
  if (std::filesystem::is_symlink(path_, error))  // which somebody may have planted
    fail_file("run log", path_, "is a link; name the file that it leads to");
  if (std::filesystem::exists(path_, error))
    InputFile("run log", path_);  // refuses what is no file
  open();
  const std::string text = read_file("run log", path_);
  // No text has a zero byte. What a power failure took from the file reads as such.
  std::string_view rest = std::string_view(text).substr(0, text.find('\0'));
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (rest.starts_with(kByteOrderMark))
    fail_file("run log", path_, "begins with a byte-order mark; save it as UTF-8 without one");
  if (auto header = take_row(rest))
    columns_ = *header;
  else if (!begins_header(text))
    fail_file("run log", path_, "does not begin with the names of columns; this is no run log, or ",
              "a damaged one");
  if (std::string_view(text)
          .substr(0, static_cast<size_t>(rest.data() - text.data()))
          .ends_with("\r\n"))
    fail_file("run log", path_, "has the line ends of Windows; give it those of Unix (dos2unix)");
  size_t row = columns_.empty() ? 1 : 2;
  for (; const auto cells = take_row(rest); ++row)
    if (cells->size() != columns_.size())
      fail_file("run log", path_, "row ", row, ": expected ", columns_.size(), " cells, found ",
                cells->size(), "; this is no run log, or a damaged one");
  if (goes_on(rest, columns_.size()))
    fail_file("run log", path_, "row ", row, " has a quote that none ends, and more rows follow; ",
              "this is no run log, or a damaged one, which it may be enough to mend there");
  rest = std::string_view(text).substr(static_cast<size_t>(rest.data() - text.data()));
  if (rest.empty()) return;
  keep(rest);  // a row that a run began when it died, or what was never a row
  std::filesystem::resize_file(path_, text.size() - rest.size(), error);
  if (error) fail_file("run log", path_, "dropping an incomplete row failed: ", error.message());
}

void RunLog::keep(std::string_view rows) const {
  std::filesystem::path beside = path_;
  beside += ".dropped";
  std::filesystem::path kept = beside;
  // Made anew, so that no file is overwritten and no link that lies there is followed.
  int error = os::write_new_file(kept, rows);
  for (int k = 1; error == EEXIST; ++k) {
    kept = beside;
    kept += "." + std::to_string(k);
    error = os::write_new_file(kept, rows);
  }
  if (error != 0)
    fail_file("run log", path_, "its last ", rows.size(), " bytes are no rows of a run log, and ",
              kept.string(), " cannot be written to keep them");
  warn("run log: the last " + std::to_string(rows.size()) + " bytes of " + path_.string() +
       " are no complete rows; they stand in " + kept.string() + " now");
}

void RunLog::open() {
  open_to_append(file_, path_);
  if (!file_) fail_file("run log", path_, "expected a file that can be written to");
  lock_ = lock_path("run log", path_, "its rows");
}

void RunLog::append(const std::string& line) {
  halftape::append(file_, "run log", path_, line + '\n');
}

void RunLog::write(const std::vector<Cell>& row) {
  std::string names, values;
  const bool first = columns_.empty();
  for (size_t i = 0; i < row.size(); ++i) {
    HALFTAPE_CHECK(first || (i < columns_.size() && columns_[i] == row[i].column),
                   "run log: the row's column ", i + 1, " is \"", row[i].column, "\", the file's ",
                   i < columns_.size() ? "\"" + columns_[i] + "\"" : "end", " (", path_.string(),
                   "); all rows have the columns of the first");
    names += (i ? "," : "") + csv(row[i].column);
    values += (i ? "," : "") + cell_of(row[i].value);
  }
  HALFTAPE_CHECK(!row.empty() && (first || row.size() == columns_.size()), "run log: the row has ",
                 row.size(), " columns, the file ", columns_.size(), " (", path_.string(), ")");
  show_empty(names);
  show_empty(values);
  std::vector<std::string> columns = columns_;  // once the row is written, nothing may fail
  if (first)
    for (const Cell& cell : row) columns.emplace_back(cell.column);
  append(first ? names + '\n' + values : values);
  columns_.swap(columns);
}

void RunLog::drop_from(std::string_view column, double value) {
  if (columns_.empty()) return;
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  HALFTAPE_CHECK(found != columns_.end(), "run log: ", path_.string(), " has no column \"", column,
                 "\"");
  const auto index = static_cast<size_t>(found - columns_.begin());
  const std::string text = read_file("run log", path_);
  std::string_view rest = text;
  (void)take_row(rest);
  std::string kept = text.substr(0, text.size() - rest.size());
  for (std::string_view before = rest; const auto cells = take_row(rest); before = rest) {
    const std::string& cell = (*cells)[index];
    const std::optional<double> number = number_in<double>(cell);
    HALFTAPE_CHECK(number, "run log: ", path_.string(), ": \"", cell, "\" in the column \"", column,
                   "\" is no number");
    if (!(*number >= value)) kept += before.substr(0, before.size() - rest.size());
  }
  if (!os::kReplacesOpenFiles) {
    file_.close();
    lock_.reset();  // whoever opens the file now is in the way of the new one: no row gets lost
  }
  try {
    write_file("run log", path_, kept);
  } catch (...) {  // the new file may be in place all the same
    file_.close();
    open();
    throw;
  }
  file_.close();  // still the former file, which has no name any more
  open();
}

}  // namespace halftape
