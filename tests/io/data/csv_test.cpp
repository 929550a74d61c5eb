// CSV: the numbers of a file, and errors that name line and column.
#include "halftape/io/data/sets/csv.h"

#include <doctest/doctest.h>

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <locale>

#include "halftape/io/formats/idx.h"
#include "halftape/tests/io/data/data_files.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using halftape::testing::DataFolder;
using halftape::testing::has;

namespace {

const CSVOptions kNoHeader = CSVOptions().header(false);

std::string said(std::string_view text, const CSVOptions& options = {}) {
  return halftape::testing::message<DataError>([&] { (void)parse_csv(text, options, "some.csv"); });
}

std::vector<double> numbers(std::string_view text, const CSVOptions& options = kNoHeader) {
  return parse_csv(text, options).values.to_vector();
}

}  // namespace

TEST_CASE("a table has its names, its numbers and their lines") {
  const Table table = parse_csv("age, height ,score\n1,2.5,-3e2\n\n4,5,6\n");
  CHECK(table.columns == std::vector<std::string>{"age", "height", "score"});
  CHECK(table.values.sizes() == Shape{2, 3});
  CHECK(table.values.dtype() == kFloat64);
  CHECK(table.values.to_vector() == std::vector<double>{1, 2.5, -300, 4, 5, 6});
  CHECK(table.lines == std::vector<int64_t>{2, 4});
  CHECK(table.index("height") == 1);
  CHECK(table.index(-1) == 2);
  for (const int64_t none : {3, -4})
    CHECK(has(halftape::testing::message<DataError>([&] { (void)table.index(none); }),
              "csv: column " + std::to_string(none) + " of 3; columns are counted from 0"));
  CHECK(has(
      halftape::testing::message<DataError>([] { (void)parse_csv("1,2", kNoHeader).index("age"); }),
      "no column is named 'age'; the table was read without a header"));
}

TEST_CASE("of two columns of one name none is chosen by it") {
  const Table table = parse_csv("y,x,y\n1,2,3\n");
  CHECK(table.index("x") == 1);
  CHECK(has(halftape::testing::message<DataError>([&] { (void)table.index("y"); }),
            "columns 0 and 2, counted from 0, are both named 'y'; choose one by its number"));
}

TEST_CASE("a separator is no blank") {
  const CSVOptions tabs = CSVOptions().header(false).separator('\t');
  CHECK(has(said("3\t\t\"4\"", tabs), "column 2: expected a number, found nothing"));
  CHECK(has(said("\t\"1\"\t\"2\"", tabs), "column 1: expected a number, found nothing"));
  CHECK(has(said("1\t2\n\t\n3\t4", tabs), "line 2: column 1: expected a number, found nothing"));
}

TEST_CASE("blanks, quotes, signs, Windows' line ends and a byte order mark do not matter") {
  CHECK(numbers("\xEF\xBB\xBF 1 ,\t2\r\n\"3\",+4\r\n") == std::vector<double>{1, 2, 3, 4});
  CHECK(numbers("1;2\n3;4", CSVOptions().header(false).separator(';')) ==
        std::vector<double>{1, 2, 3, 4});
  CHECK(numbers("1\t2", CSVOptions().header(false).separator('\t')) == std::vector<double>{1, 2});
  CHECK(numbers("\" 1 \" , \"2\"") == std::vector<double>{1, 2});
  CHECK(numbers("1\t \"2\" \t3", CSVOptions().header(false).separator('\t')) ==
        std::vector<double>{1, 2, 3});
  CHECK(parse_csv("\"a,b\",c\n1,2").columns == std::vector<std::string>{"a,b", "c"});
  CHECK(std::isnan(numbers("nan")[0]));
  CHECK(std::isinf(numbers("-inf")[0]));
  CHECK(numbers("0.1")[0] == 0.1);
}

namespace {

/// The C library's decimal point is a comma as long as it lives, where the system has such a locale
/// or makes one.
class DecimalComma {
 public:
  DecimalComma() {
    for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"})
      if (!is_there()) std::setlocale(LC_NUMERIC, name);
    if (!is_there()) make();
  }
  ~DecimalComma() { std::setlocale(LC_NUMERIC, before_.c_str()); }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;
  /// Some C libraries take any name, and keep the point.
  static bool is_there() { return std::string(std::localeconv()->decimal_point) == ","; }

 private:
  void make() {
#if defined(__linux__)
    const auto source = folder_.file("source",
                                     "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\n"
                                     "grouping -1\nEND LC_NUMERIC\n");
    // -c: it complains of all that the source leaves out, and ends with 1.
    const std::string made = (folder_.path() / "comma").string();
    (void)!std::system(
        ("localedef -c -f UTF-8 -i '" + source.string() + "' '" + made + "' >/dev/null 2>&1")
            .c_str());
    const char* const set = std::getenv("LOCPATH");
    const std::string former = set ? set : "";
    setenv("LOCPATH", folder_.path().c_str(), 1);
    std::setlocale(LC_NUMERIC, "comma");
    if (set)
      setenv("LOCPATH", former.c_str(), 1);
    else
      unsetenv("LOCPATH");
#endif
  }

  const std::string before_ = std::setlocale(LC_NUMERIC, nullptr);
  const DataFolder folder_;
};

}  // namespace

TEST_CASE("the locale does not matter to numbers") {
  const DecimalComma comma;
  if (!DecimalComma::is_there()) {
    MESSAGE("left out: this system has no locale with a decimal comma, and makes none");
    return;
  }
  CHECK(numbers("1.5,2") == std::vector<double>{1.5, 2});
  CHECK(has(said("a;b\n1,5;2\n", CSVOptions().separator(';')), "expected a number, found '1,5'"));
}

TEST_CASE("what is no number is told with its line, its column and the column's name") {
  CHECK(said("age,score\n1,2\n3,four\n") ==
        "csv: some.csv: line 3: column 2 ('score'): expected a number, found 'four'");
  CHECK(has(said("1,,3\n", kNoHeader), "line 1: column 2: expected a number, found nothing"));
  CHECK(has(said("a,b\n1,2x\n"), "line 2: column 2 ('b'): expected a number, found '2x'"));
  CHECK(has(said("a\n0x10\n"), "found '0x10'"));
  CHECK(has(said("a\n+-1\n"), "found '+-1'"));
  CHECK(has(said("a\n1e999\n"), "'1e999' is outside the range of float64"));
  CHECK(has(said("a\n" + std::string(100, 'x')), "'" + std::string(40, 'x') + "…'"));
}

TEST_CASE("mistakes come with the way out") {
  CHECK(has(said("age,score\n1,2\n", kNoHeader), "a first line of names needs header(true)"));
  CHECK(has(said("a;b\n1;2\n"), "found '1;2'; is the separator ';'?"));
  CHECK(has(said("a\tb\n1\t2\n"), "is the separator '\\t'?"));
}

TEST_CASE("lines of different length, open quotes and empty files are refused") {
  CHECK(has(said("a,b\n1,2\n3\n"), "line 3: expected 2 fields as in the first line, found 1"));
  CHECK(has(said("a,b\n1,2,\n"), "line 2: expected 2 fields as in the first line, found 3"));
  CHECK(has(said("a,b\n1,\"2\n"), "line 2: expected a closing quote for the field"));
  CHECK(has(said("a,b\n\"1\"x,2\n"), "line 2: expected a separator after the quoted field '1'"));
  CHECK(has(said(""), "expected rows of numbers, found none"));
  CHECK(has(said("a,b\n\n"), "found none after the header"));
}

TEST_CASE("a file without line feeds is refused before its fields take all memory") {
  CHECK(has(said(std::string((1 << 24) + 1, ',')),
            "line 1: expected at most 16777216 fields, found more; has the file no line feeds?"));
  CHECK(has(said(std::string("a,b\n1,\0\n", 8)), "line 2: column 2"));
}

TEST_CASE("the target is a column by name or by number, and the rest is data") {
  const DataFolder folder;
  const auto path = folder.file("t.csv", "x,label,y\n1,0,2\n3,1,4\n5,2,6\n");
  for (const Column& target : {Column("label"), Column(1), Column(-2)}) {
    datasets::CSV set(path, CSVOptions().target(target).target_dtype(kInt64));
    CHECK(set.size() == 3);
    CHECK(set.data().to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6});
    CHECK(set.data().dtype() == kFloat32);
    CHECK(set.targets().to_vector() == std::vector<double>{0, 1, 2});
    CHECK(set.targets().dtype() == kInt64);
    CHECK(set.get(1).data.to_vector() == std::vector<double>{3, 4});
    CHECK(set.get(1).target.item<int64_t>() == 1);
  }
  datasets::CSV first(path, CSVOptions().target(0)), last(path, CSVOptions().dtype(kFloat64));
  CHECK(first.data().to_vector() == std::vector<double>{0, 2, 1, 4, 2, 6});
  CHECK(last.targets().to_vector() == std::vector<double>{2, 4, 6});
  CHECK(last.data().dtype() == kFloat64);
}

TEST_CASE("targets that cannot be are refused with the file's name") {
  const DataFolder folder;
  const auto path = folder.file("t.csv", "a,b\n\n1,2\n3,4.5\n");
  const auto message = [&](const CSVOptions& options) {
    return halftape::testing::message<DataError>([&] { datasets::CSV(path, options); });
  };
  CHECK(has(message(CSVOptions().target_dtype(kInt64)), "t.csv: line 4, column 2: the target 4.5"));
  CHECK(has(message(CSVOptions().target("c")), "no column is named 'c'; there are a, b"));
  CHECK(has(message(CSVOptions().target(2)), "column 2 of 2; columns are counted from 0"));
  CHECK(has(message(CSVOptions().header(false)), "found 'a'; a first line of names"));
  const auto large = folder.file("l.csv", "a,b\n1,2\n3,-9007199254740992\n");
  CHECK(has(halftape::testing::message<DataError>(
                [&] { datasets::CSV(large, CSVOptions().target_dtype(kInt64)); }),
            "l.csv: line 3, column 2: the target -9"));
  const auto bytes = folder.file("bytes.csv", "a,b\n1,255\n2,256\n");
  CHECK(has(halftape::testing::message<DataError>(
                [&] { datasets::CSV(bytes, CSVOptions().target_dtype(kUInt8)); }),
            "bytes.csv: line 3, column 2: the target 256 is not in the range of uint8"));
  const auto single = folder.file("one.csv", "a\n1\n");
  CHECK(has(halftape::testing::message<DataError>([&] { datasets::CSV set(single); }),
            "one column is not data and target"));
  CHECK(has(halftape::testing::message<DataError>([&] { (void)read_csv(folder.path() / "none"); }),
            "none: expected a file, found nothing"));
  CHECK(has(halftape::testing::message<DataError>([&] { (void)read_csv(folder.path()); }),
            "found a folder"));
}

TEST_CASE("data of an integer dtype are whole numbers in its range or are refused") {
  const auto message = [](const std::string& rows, Dtype dtype) {
    return halftape::testing::message<DataError>(
        [&] { datasets::CSV(parse_csv("a,y,b\n" + rows), CSVOptions().target("y").dtype(dtype)); });
  };
  CHECK(has(message("1,0.5,2\n3,4,1.5\n", kInt64),
            "table: line 3, column 3: the value 1.5 is no whole number; use dtype(kFloat32)"));
  CHECK(has(message("nan,0,2\n", kInt64), "line 2, column 1: the value nan is no whole number"));
  CHECK(has(message("1e30,0,2\n", kInt64), "value 1e+30 is not in the range of int64"));
  CHECK(has(message("1,0,300\n", kUInt8), "column 3: the value 300 is not in the range of uint8"));
  CHECK(has(message("-1,0,0\n", kUInt8), "column 1: the value -1 is not in the range of uint8"));
  datasets::CSV set(parse_csv("a,y,b\n255,0.5,0\n"), CSVOptions().target("y").dtype(kUInt8));
  CHECK(set.data().to_vector() == std::vector<double>{255, 0});
  CHECK(set.data().dtype() == kUInt8);
  CHECK(set.targets().to_vector() == std::vector<double>{0.5});
}

TEST_CASE("the targets of a table that was cut, or has no lines, are checked where they stand") {
  Table table = parse_csv("a,b,c,y\n1,2,3,0\n4,5,6,1.5\n");
  table.values = table.values.slice(1, 2, 4);
  table.columns = {"c", "y"};
  const auto said = [&] {
    return halftape::testing::message<DataError>(
        [&] { datasets::CSV(table, CSVOptions().target_dtype(kInt64)); });
  };
  CHECK(has(said(), "table: line 3, column 2: the target 1.5 is no whole number"));
  table.values = table.values.to(kFloat32);
  CHECK(has(said(), "table: line 3, column 2: the target 1.5"));
  table.lines.clear();
  CHECK(has(said(), "table: row 1, counted from 0, column 2: the target 1.5"));
}
