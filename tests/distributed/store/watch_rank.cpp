// A process of a group, for watch_processes_test.cpp to stop and to kill: it obeys the lines of its
// standard input. Arguments: the folder of the store, rank, size, timeout and period in
// milliseconds.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

#include "halftape/core/check.h"
#include "halftape/distributed/store/file_store.h"
#include "halftape/distributed/store/watch.h"

using namespace halftape;
using namespace halftape::distributed;

namespace {

void say(const std::string& line) {
  static std::mutex one;
  const std::lock_guard lock(one);
  std::cout << line << std::endl;
}

void obey(std::unique_ptr<Watch>& watch, const std::string& line) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  if (word == "progress") {  // number signature inside call
    Progress progress;
    words >> progress.number >> progress.signature >> progress.inside >> std::ws;
    std::getline(words, progress.call);
    watch->set_progress(progress);
  } else if (word == "diagnosis") {
    uint64_t number = 0;
    words >> number;
    say("diagnosis " + watch->diagnosis(number));
  } else if (word == "leave") {  // at most that many milliseconds
    int64_t at_most = 0;
    words >> at_most;
    watch->leave(milliseconds(at_most));
    say("left");
  } else if (word == "destroy") {
    watch.reset();
    say("destroyed");
  } else if (word == "exit") {
    std::_Exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  try {
    FileStore store(argv[1]);
    WatchOptions options;
    options.rank = std::atoi(argv[2]), options.size = std::atoi(argv[3]);
    options.timeout = milliseconds(std::atoi(argv[4]));
    options.period = milliseconds(std::atoi(argv[5]));
    auto watch = std::make_unique<Watch>(
        store, options, [](const std::string& text) { say("failed " + text); }, "127.0.0.1");
    say("met");
    for (std::string line; std::getline(std::cin, line);) obey(watch, line);
  } catch (const Error& error) {
    say(std::string("error ") + error.what_without_backtrace());
    return 1;
  }
}
