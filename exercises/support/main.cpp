// doctest's main, compiled once for all exercises. With HALFTAPE_COURSE_RESULTS=FILE the outcome of
// each case goes into that file, where scripts/course reads it: what a program prints and how it
// ends prove nothing.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // a crash ends the program, and scripts/course says so
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "course.h"

namespace {

std::string results_file;

/// A line for each event: a word, a tab, and a text in which lines are joined by "\n".
class Results final : public doctest::IReporter {
 public:
  explicit Results(const doctest::ContextOptions&) : out_(std::fopen(results_file.c_str(), "w")) {}
  ~Results() override {
    if (out_) std::fclose(out_);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  void test_case_start(const doctest::TestCaseData& data) override {
    shown_ = 0;
    write("case", data.m_name);
  }
  void log_assert(const doctest::AssertData& data) override {
    if (!data.m_failed) return;
    std::ostringstream text;
    for (int i = 0; i < get_num_active_contexts(); ++i) {
      if (i > 0) text << "; ";
      get_active_contexts()[i]->stringify(&text);
    }
    // A message of the case is a whole sentence; without one the expression has to do.
    if (get_num_active_contexts() == 0) text << "not so: " << data.m_expr;
    if (data.m_threw)
      text << "\nthrew: " << data.m_exception.c_str();
    else if (get_num_active_contexts() == 0 && data.m_decomp.size() > 0)
      text << ", which is: " << data.m_decomp.c_str();
    fail(text.str());
  }
  void log_message(const doctest::MessageData& data) override {
    if (data.m_severity != doctest::assertType::is_warn) fail(data.m_string.c_str());
  }
  void test_case_exception(const doctest::TestCaseException& e) override {
    fail(e.error_string.c_str());
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    // A case that checked nothing proves nothing.
    if (stats.testCaseSuccess && stats.numAssertsCurrentTest == 0) fail("nothing was checked");
    write("end", stats.testCaseSuccess && stats.numAssertsCurrentTest > 0 ? "pass" : "fail");
  }
  void test_run_end(const doctest::TestRunStats&) override { write("done", ""); }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  void fail(const std::string& text) {
    if (++shown_ <= 3) write("fail", text);
  }
  void write(const char* word, const std::string& text) {
    if (!out_) return;
    std::string line;
    for (const char c : text) {
      if (c == '\n')
        line += "\\n";
      else if (c == '\\')
        line += "\\\\";
      else
        line += c;
    }
    std::fprintf(out_, "%s\t%s\n", word, line.c_str());
    std::fflush(out_);
  }

  std::FILE* out_;
  int shown_ = 0;  // messages of this case
};

}  // namespace

uint64_t course::seed() {
  const char* text = std::getenv("HALFTAPE_COURSE_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (const char* file = std::getenv("HALFTAPE_COURSE_RESULTS")) {
    results_file = file;
    unsetenv("HALFTAPE_COURSE_RESULTS");
    doctest::registerReporter<Results>("results", 0, true);
    context.setOption("reporters", "results");
  }
  return context.run();
}
