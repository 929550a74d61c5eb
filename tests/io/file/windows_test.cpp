// What Windows does otherwise: other processes, readers that keep a file, names of any alphabet.
#if defined(_WIN32)
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <halftape/halftape.h>

#include "halftape/core/machine/os.h"
#include "halftape/io/file/file.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

#include <windows.h>

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;
namespace fs = std::filesystem;

namespace {

/// Another process of this program, in which a case runs that is skipped here.
class Child {
 public:
  Child(const std::string& name, const fs::path& folder) {
    std::string self(32768, '\0');
    self.resize(GetModuleFileNameA(nullptr, self.data(), 32768));
    std::string line = '"' + self + "\" --no-skip --no-intro \"--tc=" + name + '"';
    SetEnvironmentVariableW(L"HALFTAPE_CHILD", folder.c_str());
    STARTUPINFOA start{};
    start.cb = sizeof(start);
    PROCESS_INFORMATION made{};
    REQUIRE(CreateProcessA(nullptr, line.data(), nullptr, nullptr, FALSE, 0, nullptr, nullptr,
                           &start, &made));
    CloseHandle(made.hThread);
    process_ = made.hProcess;
    for (int i = 0; i < 1000 && !fs::exists(folder / "ready"); ++i) Sleep(10);
    REQUIRE(fs::exists(folder / "ready"));
  }
  ~Child() {
    kill();
    CloseHandle(process_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void kill() {
    TerminateProcess(process_, 9);
    WaitForSingleObject(process_, INFINITE);
  }

 private:
  HANDLE process_ = nullptr;
};

fs::path folder_of_child() {
  const char* const said = std::getenv("HALFTAPE_CHILD");
  REQUIRE(said);
  return said;
}

safetensors::Tensors all_of(int64_t value) {
  return {{"x", full({64, 1024}, value, TensorOptions(kInt64).device(kCPU))}};
}
int64_t the_value(const fs::path& path) {
  const Tensor x = safetensors::load_file(path)["x"];
  const int64_t value = x.flatten()[0].item<int64_t>();
  return x.eq(value).all().item<bool>() ? value : -1;
}

}  // namespace

TEST_CASE("the child that holds a file and a folder" * doctest::skip()) {
  const fs::path folder = folder_of_child();
  int error = 0;
  const os::PathLock lock = os::lock_path(folder, error);
  RunLog log(folder / "log.csv");
  log.write({{"step", 1}});
  OutputFile file("test", folder / "x");
  file.write("half", 4);
  write_bytes(folder / "ready", lock ? "locked" : "not locked");
  Sleep(INFINITE);
}

TEST_CASE("what another process holds is refused, and is free once it was killed") {
  const TempFolder folder;
  write_bytes(folder / "x", "former");
  Child child("the child that holds a file and a folder", folder.path());
  CHECK(read_bytes(folder / "ready") == "locked");
  const auto save = [&] { write_file("test", folder / "x", "new"); };
  const std::string said = message<FileError>(save);
  CHECK_MESSAGE(has(said, "another save of it is under way"), said);
  CHECK_MESSAGE(has(said, "the former file is as it was"), said);
  int error = 0;
  CHECK(!os::lock_path(folder.path(), error));
  CHECK(error == EAGAIN);
  CHECK(
      has(message<FileError>([&] { RunLog log(folder / "log.csv"); }), "another run has it open"));
  CHECK(read_bytes(folder / "log.csv") == "step\n1\n");

  child.kill();
  CHECK(read_bytes(folder / "x") == "former");
  CHECK(os::lock_path(folder.path(), error));
  CHECK(message([&] { RunLog log(folder / "log.csv"); }).empty());
  CHECK(read_bytes(folder / "x.partial") == "half");
  CHECK(message(save).empty());
  CHECK(read_bytes(folder / "x") == "new");
  CHECK(!fs::exists(folder / "x.partial"));
}

TEST_CASE("the child that saves for ever" * doctest::skip()) {
  const fs::path folder = folder_of_child();
  const int64_t former = fs::exists(folder / "x") ? the_value(folder / "x") : 0;
  write_bytes(folder / "ready", "");
  for (int64_t v = former + 1;; ++v) safetensors::save_file(all_of(v), folder / "x");
}

TEST_CASE("after TerminateProcess during a save the last good file loads") {
  const TempFolder folder;
  int64_t before = 0;
  uint32_t random = 12345;
  for (int i = 0; i < 8; ++i) {
    fs::remove(folder / "ready");
    Child child("the child that saves for ever", folder.path());
    random = random * 1664525 + 1013904223;
    Sleep(20 + (random >> 8) % 60);
    child.kill();
    const int64_t now = fs::exists(folder / "x") ? the_value(folder / "x") : 0;
    CHECK(now >= before);
    before = now;
  }
  CHECK(before > 0);
}

TEST_CASE("a file that a reader has open is not replaced, and stays as it was") {
  const TempFolder folder;
  safetensors::save_file(all_of(1), folder / "x");
  {
    const std::ifstream reader(folder / "x", std::ios::binary);
    REQUIRE(reader.is_open());
    const std::string said =
        message<FileError>([&] { safetensors::save_file(all_of(2), folder / "x"); });
    CHECK_MESSAGE(has(said, "replacing it, which is read-only or open in a program, failed"), said);
    CHECK_MESSAGE(has(said, "the former file is as it was"), said);
    CHECK(!fs::exists(folder / "x.partial"));
    CHECK(the_value(folder / "x") == 1);
  }
  safetensors::save_file(all_of(2), folder / "x");
  CHECK(the_value(folder / "x") == 2);
}

TEST_CASE("a mapped file is not replaced") {
  const TempFolder folder;
  safetensors::save_file(all_of(1), folder / "x");
  const HANDLE file = CreateFileW((folder / "x").c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr,
                                  OPEN_EXISTING, 0, nullptr);
  REQUIRE(file != INVALID_HANDLE_VALUE);
  const HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
  const void* const view = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
  REQUIRE(view);
  const std::string first(static_cast<const char*>(view), 64);
  CHECK(!message<FileError>([&] { safetensors::save_file(all_of(2), folder / "x"); }).empty());
  CHECK(std::string(static_cast<const char*>(view), 64) == first);
  UnmapViewOfFile(view);
  CloseHandle(mapping);
  CloseHandle(file);
  CHECK(the_value(folder / "x") == 1);
}

TEST_CASE("names of any alphabet are written and read") {
  const TempFolder folder;
  const fs::path inside = folder.path() / L"\u6a21\u578b \u00e4\u0434";
  make_folders("test", inside / L"\u0441\u043b\u043e\u0438");
  for (const wchar_t* name :
       {L"\u00fcber.safetensors", L"\u0432\u0435\u0441\u0430", L"\u6743\u91cd.x"}) {
    safetensors::save_file(all_of(3), inside / name);
    CHECK(the_value(inside / name) == 3);
  }
  RunLog(inside / L"\u0436.csv").write({{"step", 1}});
  CHECK(read_bytes(inside / L"\u0436.csv") == "step\n1\n");
  int error = 1;
  CHECK(os::names_in(inside, error).size() == 5);
  CHECK(error == 0);
  CHECK(
      has(message<FileError>([&] { (void)safetensors::load_file(inside / L"\u043d\u0435\u0442"); }),
          "\u6a21\u578b \u00e4\u0434"));
}

TEST_CASE("a path that is too long for Windows is said to be so") {
  const TempFolder folder;
  const std::string said =
      message<FileError>([&] { write_file("test", folder / std::string(300, 'x'), ""); });
  CHECK_MESSAGE(has(said, std::generic_category().message(ENAMETOOLONG)), said);
}

TEST_CASE("no hard link or folder under the partial name is written to") {
  const TempFolder folder;
  write_bytes(folder / "precious", "precious");
  fs::create_hard_link(folder / "precious", folder / "x.partial");
  CHECK(has(message<FileError>([&] { write_file("test", folder / "x", "new"); }),
            "which a link or device has"));
  CHECK(read_bytes(folder / "precious") == "precious");
  fs::remove(folder / "x.partial");
  fs::create_directory(folder / "x.partial");
  CHECK(has(message<FileError>([&] { write_file("test", folder / "x", "new"); }),
            "creating the file beside it"));
  CHECK(fs::is_directory(folder / "x.partial"));
  CHECK(!message<FileError>([] { write_file("test", "NUL", "new"); }).empty());
}

TEST_CASE("no library comes from the current folder") {
  const TempFolder folder;
  const fs::path before = fs::current_path();
  fs::copy_file(L"C:\\windows\\system32\\version.dll", folder / "halftape_planted.dll");
  fs::current_path(folder.path());
  std::string why_not;
  CHECK(!os::load_library("halftape_planted.dll", why_not));
  CHECK(has(why_not, "halftape_planted.dll: "));
  void* const system = os::load_library("version.dll", why_not);
  CHECK(system);
  CHECK(os::symbol(system, "GetFileVersionInfoW"));
  CHECK(!os::symbol(system, "no such name"));
  fs::current_path(before);
}
#endif
