// What a save replaces, and what it leaves: links, devices, owner and rights, and the file that a
// reader has open.
#include <doctest/doctest.h>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <halftape/halftape.h>

#include "halftape/io/file/file.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

namespace {

safetensors::Tensors few() { return {{"a", ones({3})}, {"b", ones({2, 2}, kFloat16)}}; }

}  // namespace

TEST_CASE("a device is not replaced, and no link or pipe under the partial name is followed") {
  TempFolder folder;
  const auto said = [](const std::filesystem::path& path) {
    return message<FileError>([&] { safetensors::save_file(few(), path); });
  };
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink(folder / "pipe", folder / "link");
  CHECK(has(said(folder / "pipe"), "replacing a device, pipe or socket"));
  CHECK(has(said(folder / "link"), "replacing a device, pipe or socket"));
  CHECK(std::filesystem::is_fifo(folder / "pipe"));

  write_bytes(folder / "precious", "precious");
  const auto planted = folder / "x.partial";
  std::filesystem::create_symlink(folder / "precious", planted);
  CHECK(has(said(folder / "x"), "symbolic links"));
  std::filesystem::remove(planted);
  std::filesystem::create_hard_link(folder / "precious", planted);
  CHECK(has(said(folder / "x"), "which a link or device has"));
  std::filesystem::remove(planted);
  REQUIRE(mkfifo(planted.c_str(), 0600) == 0);
  CHECK(has(said(folder / "x"), "creating the file beside it"));
  std::filesystem::remove(planted);
  CHECK(read_bytes(folder / "precious") == "precious");
  CHECK(!std::filesystem::exists(folder / "x"));
}

TEST_CASE("a new file does not take over the right to run as its owner") {
  TempFolder folder;
  write_bytes(folder / "x", "former");
  REQUIRE(chmod((folder / "x").c_str(), 04755) == 0);
  safetensors::save_file(few(), folder / "x");
  CHECK((std::filesystem::status(folder / "x").permissions() & std::filesystem::perms::all) ==
        std::filesystem::perms(0755));
  CHECK((std::filesystem::status(folder / "x").permissions() & std::filesystem::perms::set_uid) ==
        std::filesystem::perms::none);
}

TEST_CASE("a folder that may be written but not read cannot be flushed, which a warning says") {
  TempFolder folder;
  std::filesystem::create_directory(folder / "drop");
  REQUIRE(chmod((folder / "drop").c_str(), 0333) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  const bool root = geteuid() == 0;  // who may read all
  if (root) REQUIRE(seteuid(65534) == 0);
  {
    const testing::Warnings warnings;
    safetensors::save_file(few(), folder / "drop/x");
    REQUIRE(warnings.seen.size() == 1);
    CHECK(has(warnings.seen[0], "cannot be opened to flush it to the disk (Permission denied)"));
  }
  if (root) REQUIRE(seteuid(0) == 0);
  CHECK(safetensors::load_file(folder / "drop/x").size() == 2);
  REQUIRE(chmod((folder / "drop").c_str(), 0755) == 0);
}

TEST_CASE("what a killed save left behind is overwritten, a link stays a link, and modes stay") {
  TempFolder folder;
  write_bytes(folder / "x", "former");
  write_bytes(folder / "x.partial", std::string(100'000, 'g'));
  std::filesystem::permissions(
      folder / "x", std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink(folder / "x", folder / "link");
  safetensors::save_file(few(), folder / "link");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(safetensors::load_file(folder / "x").size() == 2);
  CHECK(!std::filesystem::exists(folder / "x.partial"));
  CHECK(std::filesystem::status(folder / "x").permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
}

TEST_CASE("through links a file is saved where they lead, be it there or not") {
  TempFolder folder;
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink("real/x", folder / "latest");
  std::filesystem::create_symlink(folder / "latest", folder / "far");
  for (const char* link : {"far", "latest"}) {
    safetensors::save_file(few(), folder / link);
    CHECK(std::filesystem::is_symlink(folder / "far"));
    CHECK(std::filesystem::is_symlink(folder / "latest"));
    CHECK(std::filesystem::is_regular_file(folder / "real/x"));
  }
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  CHECK(has(message<FileError>([&] { safetensors::save_file(few(), folder / "a"); }), "links"));
}

TEST_CASE("a private file is as private while it is saved") {
  TempFolder folder;
  for (const mode_t mode : {0600, 0640, 0604}) {
    write_bytes(folder / "x", "former");
    REQUIRE(chmod((folder / "x").c_str(), mode) == 0);
    OutputFile file("x", folder / "x");
    struct stat partial;
    REQUIRE(stat((folder / "x.partial").c_str(), &partial) == 0);
    CHECK((partial.st_mode & 0777) == mode);
  }
}

TEST_CASE("a file that may not be written to is not replaced, and what is half written can be") {
  TempFolder folder;
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  write_bytes(folder / "x", "former");
  REQUIRE(chmod((folder / "x").c_str(), 0444) == 0);
  const bool root = geteuid() == 0;  // who may write to all
  {
    OutputFile file("x", root ? folder / "x" : folder / "y");
    struct stat partial;
    REQUIRE(stat((folder / (root ? "x.partial" : "y.partial")).c_str(), &partial) == 0);
    CHECK((partial.st_mode & 0200) != 0);
    if (root) file.commit();
  }
  if (root) {
    CHECK(std::filesystem::status(folder / "x").permissions() == std::filesystem::perms(0444));
    write_bytes(folder / "x", "former");
    REQUIRE(seteuid(65534) == 0);
  }
  const std::string said = message<FileError>([&] { safetensors::save_file(few(), folder / "x"); });
  if (root) REQUIRE(seteuid(0) == 0);
  CHECK(has(said, "replacing a file that may not be written to failed"));
  CHECK(has(said, "Permission denied"));
  CHECK(read_bytes(folder / "x") == "former");
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a file keeps its owner and group, or a group that is another one gets no rights") {
  if (geteuid() != 0) return;
  TempFolder folder;
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  write_bytes(folder / "x", "former");
  REQUIRE(chown((folder / "x").c_str(), 65534, 1234) == 0);
  REQUIRE(chmod((folder / "x").c_str(), 0664) == 0);
  const auto look = [&] {
    struct stat now;
    REQUIRE(stat((folder / "x").c_str(), &now) == 0);
    return now;
  };
  safetensors::save_file(few(), folder / "x");
  CHECK(look().st_uid == 65534);
  CHECK(look().st_gid == 1234);
  CHECK((look().st_mode & 0777) == 0664);
  REQUIRE(seteuid(65534) == 0);  // who is not of that group
  REQUIRE(chmod((folder / "x").c_str(), 0660) == 0);
  safetensors::save_file(few(), folder / "x");
  REQUIRE(seteuid(0) == 0);
  CHECK(look().st_gid != 1234);
  CHECK((look().st_mode & 0777) == 0600);
}

TEST_CASE("a reader gets the one file or the other while a save replaces it") {
  TempFolder folder;
  const std::string small = "1,2\n3,4\n", large(100'000, '5');
  write_file("x", folder / "x", small);
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (int i = 0; i < 1500; ++i) write_file("x", folder / "x", i % 2 == 0 ? large : small);
    over = true;
  });
  int wrong = 0;
  while (!over) {
    const std::string found = read_file("x", folder / "x");
    wrong += found != small && found != large;
  }
  writer.join();
  CHECK(wrong == 0);
}

#endif
