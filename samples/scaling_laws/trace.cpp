// The file format of a trace.
#include "trace.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "file.h"
#include "program.h"

using sample::UserError;

namespace {

std::string shown(const std::string& line) {
  return line.size() > 40 ? line.substr(0, 40) + "…" : line;
}

/// "17,65536" as its two numbers; false for anything else.
bool parse(const std::string& line, long long& step, double& limit) {
  char* end = nullptr;
  if (line.empty() || line[0] < '0' || line[0] > '9') return false;
  step = std::strtoll(line.c_str(), &end, 10);
  if (*end != ',' || end[1] == '\0' || end[1] == ' ') return false;
  limit = std::strtod(end + 1, &end);
  return *end == '\0';
}

}  // namespace

LimitTrace read_trace(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw UserError(fmt::format("--trace {}: it is a folder, not a file", path));
  std::ifstream in(path);
  if (!in)
    throw UserError(fmt::format("--trace {}: there is no such file, or it is closed to you", path));
  LimitTrace trace;
  bool header = false;
  int64_t number = 0;
  const auto wrong = [&](const std::string& what) {
    return UserError(fmt::format("--trace {}, line {}: {}", path, number, what));
  };
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (!header) {
      if (line != "step,limit")
        throw wrong(fmt::format("expected the header \"step,limit\", found \"{}\"", shown(line)));
      header = true;
      continue;
    }
    long long step = 0;
    double limit = 0;
    if (!parse(line, step, limit))
      throw wrong(
          fmt::format("expected a step and a limit as \"17,65536\", found \"{}\"", shown(line)));
    if (step != static_cast<long long>(trace.limits.size()))
      throw wrong(fmt::format("expected step {}, found {}; steps count from 0, without gaps",
                              trace.limits.size(), step));
    if (!(limit >= 0))
      throw wrong(
          fmt::format("the limit {} is not 0 or more; \"inf\" lets every scale pass", limit));
    trace.limits.push_back(limit);
  }
  if (trace.limits.empty())
    throw UserError(
        fmt::format("--trace {}: no steps; a trace is the line \"step,limit\" and then one "
                    "line per step",
                    path));
  trace.text = path;
  return trace;
}

void write_trace(const std::string& path, const LimitTrace& trace) {
  std::string text = fmt::format("# {}\nstep,limit\n", trace.text);
  for (size_t i = 0; i < trace.limits.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{},{}\n", i, trace.limits[i]);
  report::write_page(path, text);
}
