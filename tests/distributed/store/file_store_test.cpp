// A store of files, whose folder others may write, too.
#include "halftape/distributed/store/file_store.h"

#include <doctest/doctest.h>
#if !defined(_WIN32)
#include <sys/stat.h>
#endif

#include <filesystem>
#include <iterator>
#include <string>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::has;
using halftape::testing::message;
using halftape::testing::TempFolder;

TEST_CASE("a folder that cannot be one is named") {
  const TempFolder folder;
  testing::write_bytes(folder / "file", "");
  CHECK(has(message([&] { FileStore(folder / "file"); }), "file is no folder"));
  CHECK(has(message([&] { FileStore((folder / "file") / "below"); }), "is no folder"));
  CHECK(has(message([&] { FileStore(""); }), "has no name"));
  CHECK(has(message([&] { FileStore(folder / std::string(300, 'x')); }), "is no folder"));
}

TEST_CASE("what no store of files has written is neither waited for nor read") {
  const TempFolder folder;
  FileStore store(folder / "store", milliseconds(5000));
  const std::filesystem::path vast = folder / "store" / "k_vast";
  testing::write_bytes(vast, std::string((1 << 20) + 1, '1'));
  CHECK(has(message([&] { store.get("vast"); }), "k_vast has 1048577 bytes, and a value at most"));
  CHECK(has(message([&] { store.add("vast", 1); }), "k_vast has 1048577 bytes, and a value at"));
#if !defined(_WIN32)
  REQUIRE(::mkfifo((folder / "store" / "k_pipe").c_str(), 0600) == 0);
  CHECK(has(message([&] { store.get("pipe"); }), "k_pipe is no regular file"));
  CHECK(has(message([&] { store.add("pipe", 1); }), "k_pipe is no regular file"));
  CHECK(has(message([&] { store.wait({"vast", "pipe"}); }), "k_pipe is no regular file"));
  CHECK_FALSE(store.check({"pipe"}));
#endif
  store.set("vast", std::string(1 << 20, '1'));  // as long as any may be
  CHECK(store.get("vast").size() == 1 << 20);
  store.set("vast", "2");
  CHECK(store.add("vast", 1) == 3);
}

TEST_CASE("a folder that is gone, and a folder in a value's place, are named") {
  const TempFolder folder;
  const std::filesystem::path place = folder / "store";
  FileStore store(place, milliseconds(60));
  store.set("key", "1");
  std::filesystem::create_directories(place / "k_taken" / "below");
  CHECK(has(message([&] { store.set("taken", "1"); }), "FileStore: cannot write "));
  CHECK(std::distance(std::filesystem::directory_iterator(place), {}) == 2);  // nothing is left
  CHECK_FALSE(store.check({"taken"}));
  CHECK(has(message([&] { store.get("taken"); }), "k_taken is no regular file"));
  std::filesystem::remove_all(place);
  store.set("key", "2");  // it is made anew
  CHECK(store.get("key") == "2");
  std::filesystem::remove_all(place);
  testing::write_bytes(place, "");
  CHECK(has(message([&] { store.set("key", "3"); }), "cannot write to the folder "));
  CHECK(has(message([&] { store.add("n", 3); }), "cannot write to the folder "));
  CHECK(has(message([&] { store.get("key"); }), "no value after 0.06 s: \"key\""));
}
