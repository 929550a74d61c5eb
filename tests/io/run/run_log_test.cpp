// The CSV log of a run: rows are whole, columns fixed, and a resumed run goes on where it was.
#include "halftape/io/run/run_log.h"

#include <doctest/doctest.h>

#include <limits>

#if defined(__linux__)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#endif

#include "halftape/io/file/file.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

TEST_CASE("each row is in the file as soon as it is written, under the columns of the first") {
  TempFolder folder;
  const auto path = folder / "a/log.csv";
  RunLog log(path);
  CHECK(read_bytes(path).empty());
  log.write({{"step", 1}, {"loss", 0.1}, {"note, with \"commas\"", "a,\"b\"\nc"}});
  CHECK(read_bytes(path) == "step,loss,\"note, with \"\"commas\"\"\"\n1,0.1,\"a,\"\"b\"\"\nc\"\n");
  log.write({{"step", int64_t{1} << 62},
             {"loss", -std::numeric_limits<double>::infinity()},
             {"note, with \"commas\"", ""}});
  CHECK(has(read_bytes(path), "\n4611686018427387904,-inf,\n"));
  const std::string before = read_bytes(path);
  CHECK(has(message([&] {
              log.write({{"step", 2}, {"lr", 1}, {"x", 1}});
            }),
            "the row's column 2 is \"lr\", the file's \"loss\""));
  CHECK(has(message([&] { log.write({{"step", 2}}); }), "the row has 1 columns, the file 3"));
  CHECK(has(message([&] {
              log.write({{"step", 1}, {"loss", 1}, {"note, with \"commas\"", 1}, {"x", 1}});
            }),
            "the file's end"));
  CHECK(has(message([&] { log.write({}); }), "the row has 0 columns"));
  const std::string zero("a\0b", 3);
  CHECK(has(message([&] {
              log.write({{"step", 1}, {"loss", 1}, {"note, with \"commas\"", zero}});
            }),
            "a cell or column has a zero byte"));
  CHECK(read_bytes(path) == before);
  RunLog other(folder / "other.csv");
  CHECK(has(message([&] { other.write({{zero, 1}}); }), "a cell or column has a zero byte"));
  CHECK(read_bytes(folder / "other.csv").empty());
}

TEST_CASE(
    "a log is gone on with: a line cut short is dropped, and so are rows that will come again") {
  TempFolder folder;
  const auto path = folder / "log.csv";
  {
    RunLog log(path);
    for (int step = 0; step < 6; ++step) log.write({{"step", step}, {"text", "a\nb"}});
  }
  const std::string whole = read_bytes(path);
  const testing::Warnings of_kept_rows;
  for (size_t n = 0; n <= whole.size(); ++n) {
    write_bytes(path, whole.substr(0, n));
    RunLog log(path);
    const std::string kept = read_bytes(path);
    CHECK(whole.starts_with(kept));
    CHECK((kept.empty() || kept.ends_with("text\n") || kept.ends_with("\"\n")));
    CHECK(kept.size() + 10 > n);
  }
  write_bytes(path, whole);
  RunLog log(path);
  CHECK(log.columns() == std::vector<std::string>{"step", "text"});
  log.drop_from("step", 2);
  log.write({{"step", 2}, {"text", ""}});
  CHECK(read_bytes(path) == "step,text\n0,\"a\nb\"\n1,\"a\nb\"\n2,\n");
  CHECK(has(message([&] { log.drop_from("loss", 2); }), "has no column \"loss\""));
  CHECK(has(message([&] { log.drop_from("text", 2); }), "is no number"));
  log.drop_from("step", -1);
  CHECK(read_bytes(path) == "step,text\n");
}

TEST_CASE("what is no complete row is kept beside the log, and a warning says so") {
  TempFolder folder;
  const halftape::testing::Warnings warnings;
  const std::string good = "step,text\n0,1\n", rows = good + "1,\"2,\nand\nno end";
  write_bytes(folder / "log.csv", rows);
  RunLog log(folder / "log.csv");
  CHECK(read_bytes(folder / "log.csv") == good);
  CHECK(read_bytes(folder / "log.csv.dropped") == rows.substr(good.size()));
  REQUIRE(warnings.seen.size() == 1);
  CHECK(has(warnings.seen[0], "the last " + std::to_string(rows.size() - good.size()) +
                                  " bytes of " + (folder / "log.csv").string() +
                                  " are no complete rows; they stand in " +
                                  (folder / "log.csv.dropped").string() + " now"));

  write_bytes(folder / "notes.csv", "a,b\n1,2\n3,4");  // by hand, without the last line feed
  const RunLog notes(folder / "notes.csv");
  CHECK(read_bytes(folder / "notes.csv") == "a,b\n1,2\n");
  CHECK(read_bytes(folder / "notes.csv.dropped") == "3,4");
  CHECK(warnings.seen.size() == 2);

  const std::string foreign(100'000, 'x');
  write_bytes(folder / "foreign", foreign);
  RunLog other(folder / "foreign");
  CHECK(read_bytes(folder / "foreign.dropped") == foreign);

  // A file of that name stays, and a link there is not followed.
  write_bytes(folder / "foreign", "again");
  std::filesystem::create_symlink(folder / "precious", folder / "foreign.dropped.1");
  RunLog once_more(folder / "foreign");
  CHECK(read_bytes(folder / "foreign.dropped") == foreign);
  CHECK(!std::filesystem::exists(folder / "precious"));
  CHECK(read_bytes(folder / "foreign.dropped.2") == "again");
}

TEST_CASE("a log whose rows go on behind a quote that none ends is refused, and stays as it is") {
  TempFolder folder;
  const halftape::testing::Warnings warnings;
  const auto refused = [&](const std::string& text, const char* row) {
    const auto path = folder / "log.csv";
    write_bytes(path, text);
    const std::string why = message([&] { RunLog log(path); });
    CHECK(has(why, std::string(row) + " has a quote that none ends, and more rows follow"));
    CHECK(read_bytes(path) == text);
    CHECK_FALSE(std::filesystem::exists(folder / "log.csv.dropped"));
  };
  std::string rows = "step,loss\n0,1\n1,\"2\n";
  for (int step = 2; step < 1000; ++step) rows += std::to_string(step) + ",0.5\n";
  refused(rows, "row 3");
  refused("step,loss\n0,1\n1,\"2\n2,\"3\"\n3,4", "row 3");
  CHECK(warnings.seen.empty());
}

#if defined(__linux__)
TEST_CASE("what cannot be kept beside the log is not dropped") {
  TempFolder folder;
  // A name of 255 bytes is the longest: with ".dropped" at its end it is too long.
  const auto path = folder / std::string(250, 'x');
  write_bytes(path, "step\n1\n2");
  CHECK(has(message<FileError>([&] { RunLog log(path); }),
            "its last 1 bytes are no rows of a run log, and " + path.string() +
                ".dropped cannot be written to keep them"));
  CHECK(read_bytes(path) == "step\n1\n2");
}
#endif

#if defined(__linux__)
TEST_CASE("nothing is written behind a row that could not be taken back") {
  TempFolder folder;
  const pid_t child = fork();  // whose files may grow no more
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    RunLog log(folder / "log.csv");
    log.write({{"step", 1}});
    std::filesystem::rename(folder / "log.csv",
                            folder / "former");  // as a program that rotates logs
    write_bytes(folder / "log.csv", "");
    int refused = 0;
    for (const rlim_t most : {rlim_t{10}, RLIM_INFINITY, RLIM_INFINITY}) {
      const rlimit limit{most, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        log.write({{"step", 123456}});
      } catch (const FileError&) {
        ++refused;
      }
    }
    _exit(refused);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 3));
  CHECK(read_bytes(folder / "former") == "step\n1\n123");
  CHECK(read_bytes(folder / "log.csv").empty());
}
#endif

TEST_CASE("a row whose only cell is empty is no empty line") {
  TempFolder folder;
  const auto path = folder / "log.csv";
  for (const char* column : {"note", ""}) {
    std::filesystem::remove(path);
    RunLog(path).write({{column, ""}});
    RunLog log(path);
    CHECK(log.columns() == std::vector<std::string>{column});
    log.write({{column, "b"}});
    CHECK(read_bytes(path) == std::string(*column ? column : "\"\"") + "\n\"\"\nb\n");
  }
}

TEST_CASE("from a log without rows nothing is dropped") {
  TempFolder folder;
  RunLog log(folder / "log.csv");
  log.drop_from("step", 0);
  log.write({{"step", 1}});
  CHECK(read_bytes(folder / "log.csv") == "step\n1\n");
}

TEST_CASE("a file without a complete line is taken only if a header may begin so") {
  TempFolder folder;
  const halftape::testing::Warnings warnings;
  const auto path = folder / "log.csv";
  const std::string zeros(4096, '\0');
  RunLog(folder / "whole.csv").write({{"step", 1}, {"\"a,\" \rb\"", 2}, {"", 3}, {"c", 4}});
  const std::string whole = read_bytes(folder / "whole.csv");
  // One whose first block is lost; the last may be of a lone "".
  std::vector<std::string> left{zeros, "st" + zeros, zeros + "2\n3\n", "\"\""};
  for (size_t n = 1; n < whole.find('\n'); ++n) left.push_back(whole.substr(0, n));
  for (const std::string& text : left) {
    CAPTURE(text);
    write_bytes(path, text);
    RunLog(path).write({{"step", 1}});
    CHECK(read_bytes(path) == "step\n1\n");
    CHECK(read_bytes(folder / "log.csv.dropped") == text);
    std::filesystem::remove(folder / "log.csv.dropped");
  }
  for (const std::string& text :
       {std::string("{\"lr\": 0.1}"), std::string("say \"yes\""), std::string("\"a\"b,c"),
        std::string(",\"\",\""), std::string("step\r"), "P\1" + zeros.substr(0, 100) + "x",
        zeros.substr(0, 511) + "x", std::string("\"step,loss\n0,1\n"), std::string("\"step,loss\n"),
        std::string("\"\n"), std::string("\"a\",\"b\" ")}) {
    CAPTURE(text);
    write_bytes(path, text);
    CHECK(has(message<FileError>([&] { RunLog log(path); }),
              "does not begin with the names of columns"));
    CHECK(read_bytes(path) == text);
    CHECK_FALSE(std::filesystem::exists(folder / "log.csv.dropped"));
  }
}

TEST_CASE("a file that is no log, and a folder that is none, are refused") {
  TempFolder folder;
  write_bytes(folder / "x", "a,b\n1\n");
  CHECK(has(message<FileError>([&] { RunLog log(folder / "x"); }),
            "row 2: expected 2 cells, found 1"));
  CHECK(read_bytes(folder / "x") == "a,b\n1\n");
  write_bytes(folder / "dos", "a,b\r\n1,2\r\n");
  CHECK(
      has(message<FileError>([&] { RunLog log(folder / "dos"); }), "has the line ends of Windows"));
  write_bytes(folder / "mark",
              "\xEF\xBB\xBF"
              "a,b\n1,2\n");
  CHECK(has(message<FileError>([&] { RunLog log(folder / "mark"); }), "with a byte-order mark"));
  CHECK(has(message<FileError>([&] { RunLog log(folder / "x/log.csv"); }),
            "expected a file that can be written to"));
  std::filesystem::create_symlink(folder / "precious", folder / "linked");
  CHECK(has(message<FileError>([&] { RunLog log(folder / "linked"); }), "is a link"));
  CHECK(!std::filesystem::exists(folder / "precious"));
}

TEST_CASE("a log that another run writes is refused, and no row is lost") {
  TempFolder folder;
  const auto path = folder / "log.csv";
  const auto said = [&] { return message<FileError>([&] { RunLog second(path); }); };
  {
    RunLog log(path);
    log.write({{"step", 1}});
    CHECK(has(said(), "another run has it open for its rows; give each run a folder of its own"));
    log.write({{"step", 2}});
    log.drop_from("step", 2);  // a new file takes its place
    CHECK(has(said(), "another run"));
    log.write({{"step", 3}});
    RunLog of_another_name(folder / "b.csv");
  }
  CHECK(read_bytes(path) == "step\n1\n3\n");
  CHECK(said().empty());
}

TEST_CASE("a log that was renamed goes on, and large seeds keep their digits") {
  TempFolder folder;
  RunLog log(folder / "log.csv");
  log.write({{"seed", ~uint64_t{0}}, {"flag", true}});
  std::filesystem::rename(folder / "log.csv", folder / "old.csv");
  write_bytes(folder / "log.csv", "another program's");
  log.write({{"seed", uint64_t{7}}, {"flag", false}});
  CHECK(read_bytes(folder / "old.csv") == "seed,flag\n18446744073709551615,1\n7,0\n");
  CHECK(read_bytes(folder / "log.csv") == "another program's");
}
