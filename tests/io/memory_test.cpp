// Memory that cannot be had on the host: whoever asked, the error says how much.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "halftape/core/machine/build_flags.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/tests/support/failing.h"
#include "halftape/tests/support/limited_memory.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {

constexpr int64_t kMany = 100'000;
constexpr size_t kSmall = 16'384;  // bytes that can still be had

/// Files with more than kSmall bytes, of each format.
struct Files {
  testing::TempFolder folder;
  Tensor numbers = rand({kMany}), picture = rand({3, 100, 200});
  Files() {
    const auto text = [&](const char* name, const std::string& line) {
      std::string all;
      for (int64_t i = 0; i < kMany / 10; ++i) all += line;
      testing::write_bytes(folder / name, all);
    };
    text("a.txt", "plain text");
    text("a.csv", "1,2,3\n");
    npy::save(folder / "a.npy", numbers);
    npy::savez(folder / "a.npz", {{"a", numbers}});
    npy::savez_compressed(folder / "b.npz", {{"a", numbers}});
    image::save(folder / "a.png", picture);
    image::save(folder / "a.ppm", picture);
    safetensors::Tensors many;
    for (int i = 0; i < 1000; ++i) many.insert("tensor " + std::to_string(i), zeros({1}));
    safetensors::save_file(many, folder / "a.safetensors");
    pt::save_file(many, folder / "a.pt");
  }
};

}  // namespace

TEST_CASE("a list or a file's bytes for which there is no memory is an OutOfMemoryError" *
          doctest::skip(!testing::can_fail_new())) {
  const Files f;
  const Tensor x = f.numbers, p = x / x.sum();
  const data::CharVocabulary letters("plain text");
  const std::string text = data::read_text(f.folder / "a.txt");
  const std::string table = data::read_text(f.folder / "a.csv");
  const std::vector<bool> bools(kMany, true);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"to_vector", [&] { x.to_vector(); }},
      {"bools", [&] { tensor(bools); }},
      {"avg_pool2d",
       [&] {
         avg_pool2d(rand({1, 1, 200, 200}), {3, 3}, {1, 1}, {1, 1}, false, false);
       }},
      {"multinomial", [&] { multinomial(p, 2, true); }},
      {"multinomial without replacement", [&] { multinomial(p, 2, false); }},
      {"elements that lie on others",
       [&] {
         x.as_strided({200, 200}, {200, 201}).fill_(1);
       }},
      {"text", [&] { data::read_text(f.folder / "a.txt"); }},
      {"characters", [&] { letters.encode(text); }},
      {"bytes", [&] { data::ByteVocabulary().decode(zeros({kMany}, kInt64)); }},
      {"csv", [&] { data::read_csv(f.folder / "a.csv"); }},
      {"parse_csv", [&] { data::parse_csv(table); }},
      {"npz", [&] { npy::load_npz(f.folder / "a.npz"); }},
      {"deflated npz", [&] { npy::load_npz(f.folder / "b.npz"); }},
      {"deflating",
       [&] {
         npy::savez_compressed(f.folder / "c.npz", {{"a", x}});
       }},
      {"png", [&] { image::load(f.folder / "a.png"); }},
      {"ppm", [&] { image::load(f.folder / "a.ppm"); }},
      {"saving a png", [&] { image::save(f.folder / "b.png", f.picture); }},
      {"saving a ppm", [&] { image::save(f.folder / "b.ppm", f.picture); }},
      {"pt", [&] { pt::load_file(f.folder / "a.pt"); }},
      {"safetensors", [&] { safetensors::load_file(f.folder / "a.safetensors"); }},
  };
  for (const auto& call : calls) {
    CAPTURE(std::string(call.first));
    testing::fail_large_new(kSmall);
    std::string said;
    try {
      said = message<OutOfMemoryError>(call.second);
    } catch (const std::exception& e) {
      said = std::string("another exception: ") + e.what();
    }
    testing::fail_large_new(0);
    CHECK_MESSAGE(has(said, " bytes asked for on cpu, "), said);
    CHECK_MESSAGE(has(said, " bytes live in "), said);
  }
  CHECK(data::read_text(f.folder / "a.txt") == text);  // life goes on
}

TEST_CASE("a block whose handle cannot be had is an OutOfMemoryError, and goes back" *
          doctest::skip(!testing::can_fail_new())) {
  const int64_t buffers = Buffer::live_count();
  constexpr size_t kBlock = size_t{64} << 20;
#if defined(__GLIBC__)
  const auto mapped = [] { return mallinfo2().hblkhd; };
#else
  const auto mapped = [] { return size_t{0}; };
#endif
  const size_t before = mapped();
  for (int i = 0; i < 4; ++i) {
    testing::fail_new(1);
    const std::string said = message<OutOfMemoryError>([] { cpu::allocate(kBlock); });
    testing::fail_new(0);
    CHECK(has(said, "out of memory: 67108864 bytes asked for on cpu, "));
  }
  CHECK(Buffer::live_count() == buffers);
  if (!kAddressSanitizer) CHECK(mapped() <= before + kBlock / 2);
}

#if defined(HALFTAPE_LIMITED_MEMORY)
TEST_CASE("a graph that fills the memory is an OutOfMemoryError, and life goes on without it") {
  const int result = testing::with_memory_limit(uint64_t{64} << 20, [] {
    int64_t ops = 0;
    std::string said;
    for (int round = 0; round < 3; ++round) try {
        Tensor y = ones({1}).requires_grad_();
        for (;; ++ops) y = y + 1;
      } catch (const OutOfMemoryError& e) {
        said = e.what();
      }
    const double sum = (ones({3}) + 1).sum().item<double>();
    return sum == 6 && ops > 1000 && has(said, " bytes asked for on cpu, ") ? 0 : 1;
  });
  CHECK(result == 0);
}
#endif
