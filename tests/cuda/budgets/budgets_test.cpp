// The file of budgets: what is worse, what is better, and files that are none.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include "budgets.h"

#include <sstream>
#include <string>

#include "halftape/tests/support/temp_folder.h"

using namespace halftape::testing;

namespace {

/// A file of these lines, for as long as this lives.
class Lines {
 public:
  explicit Lines(const std::string& text) { write_bytes(path(), text); }
  std::string path() const { return (folder_ / "budgets_test.txt").string(); }

 private:
  TempFolder folder_;  // of this process alone: several run these tests side by side
};

Count count_of(int64_t nodes, double bytes) {
  Count c;
  c.nodes = nodes;
  c.bytes = bytes;
  return c;
}
std::string worse(int64_t nodes, double bytes, const std::string& text) {
  const Lines lines(text);
  return BudgetFile(lines.path()).worse(budgets_of("w", count_of(nodes, bytes)));
}

const std::string kRest = "w\tlibrary calls\t0\nw\thost waits\t0\nw\tGFLOP\t0\nw\tarena MB\t0\n";
const std::string kFile = "w\tnodes\t13\nw\tMB\t100\n" + kRest;

}  // namespace

TEST_CASE("budgets: a node more is worse, and so are 5 % more bytes") {
  CHECK(worse(13, 100e6, kFile) == "");
  CHECK(worse(12, 1e6, kFile) == "");
  CHECK(worse(14, 100e6, kFile) == "w: 14 nodes, budget 13\n");
  CHECK(worse(13, 105e6, kFile) == "");
  CHECK(worse(13, 105.1e6, kFile) == "w: 105.1 MB, budget 100\n");
}

TEST_CASE("budgets: what is better is told") {
  const Lines lines(kFile);
  const BudgetFile file(lines.path());
  CHECK(file.better(budgets_of("w", count_of(13, 100e6))) == "");
  CHECK(file.better(budgets_of("w", count_of(14, 101e6))) == "");
  CHECK(file.better(budgets_of("w", count_of(3, 99e6))) ==
        "w: 3 nodes, budget 13\nw: 99 MB, budget 100\n");
}

TEST_CASE("budgets: a number without a budget fails, and a budget without a number") {
  CHECK(worse(13, 100e6, "w\tnodes\t13\n" + kRest) == "w: 100 MB, which has no budget\n");
  CHECK(worse(13, 100e6, kFile + "v, by loss\tnodes\t3\n") ==
        "v, by loss: 3 nodes, a budget of nothing that is counted\n");
}

TEST_CASE("budgets: the file that is written is met, whatever the numbers") {
  for (const double bytes : {0.0, 1.0, 9.4437e6, 84.31499e6, 999.96e6, 5158.51e6, 1.23456e15}) {
    const Lines lines("");
    const auto budgets = budgets_of("w", count_of(6337, bytes));
    BudgetFile::write(lines.path(), budgets);
    CHECK(BudgetFile(lines.path()).worse(budgets) == "");
    CHECK(BudgetFile(lines.path()).better(budgets) == "");
  }
}

TEST_CASE("budgets: a file that is none is refused by name") {
  CHECK_THROWS(BudgetFile("no such file"));
  CHECK_THROWS(BudgetFile::write("no such folder/budgets", {}));
  for (const char* line : {"w", "w\tnodes", "w\tnodes\t", "w\tnodes\t1x", "w\tnodes\tnan",
                           "w\tnodes\t-1", "w\tnodes\t1e999", "", "w\tnodes\t13"}) {
    CAPTURE(line);
    const Lines lines(kFile + line + "\n");
    CHECK_THROWS(BudgetFile(lines.path()));
  }
}
#endif
