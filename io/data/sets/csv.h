// Tables of numbers in text files: comma-separated values.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/io/data/dataset.h"

namespace halftape::data {

/// A column by its name in the header or by its number from 0; -1 is the last.
using Column = std::variant<int64_t, std::string>;

struct CSVOptions {
  /// The first line holds the names of the columns.
  HALFTAPE_ARG(bool, header) = true;
  HALFTAPE_ARG(char, separator) = ',';
  /// The column that datasets use as the target; the others are the data.
  HALFTAPE_ARG(Column, target) = -1;
  /// Of the data. One of integers needs whole numbers in its range.
  HALFTAPE_ARG(Dtype, dtype) = kFloat32;
  /// The same of the target: kInt64 for class numbers.
  HALFTAPE_ARG(Dtype, target_dtype) = kFloat32;
};

/// The contents of a file.
struct Table {
  std::vector<std::string> columns;  // names; empty without a header
  Tensor values;                     // (rows, columns), float64
  std::vector<int64_t> lines;        // line of each row in the file, from 1
  /// The number of a column. Throws DataError for an unknown one, and lists the columns.
  int64_t index(const Column& column) const;
};

/// Every field must be a number, as C writes them, in any locale; "nan" and "inf" are. Fields may
/// stand in double quotes, with no quotes and no line breaks inside, and between blanks; lines may
/// end as on Windows; empty lines are ignored. Throws DataError with line and column for anything
/// else, and for lines of different length.
Table read_csv(const std::filesystem::path& path, const CSVOptions& options = {});
/// The same from text; messages call it `name`.
Table parse_csv(std::string_view text, const CSVOptions& options = {},
                const std::string& name = "text");

namespace datasets {

/// Rows of a file: data (columns − 1,) and target (), of the options' dtypes.
class CSV : public LabelledDataset<CSV> {
 public:
  explicit CSV(const std::filesystem::path& path, const CSVOptions& options = {});
  /// From a table that has been read; messages call it `name`.
  explicit CSV(const Table& table, const CSVOptions& options = {},
               const std::string& name = "table");

 private:
  explicit CSV(const LabelledTensors& parts);
};

}  // namespace datasets
}  // namespace halftape::data
