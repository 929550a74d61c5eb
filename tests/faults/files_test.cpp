// Every call for files and every allocation fails once while files are written and read: the file
// is the former or the new one, what was read is right or refused, and nothing is half changed.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "halftape/tests/faults/places.h"
#include "halftape/tests/faults/run.h"
#include "halftape/tests/faults/writers.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using namespace halftape::testing;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), folder).string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The generators' state is a part of all checkpoints.
void seed() {
  manual_seed(7);
  (void)rand({1});
}

}  // namespace

TEST_CASE(
    "a save that fails anywhere leaves the former file or the new one, and nothing beside it") {
  const Warnings warnings;  // of folders that cannot be flushed
  for (const Writer& writer : kWriters) {
    CAPTURE(writer.name);
    const TempFolder folder;
    const fs::path path = folder / writer.name;
    std::string versions[2];
    for (const int v : {0, 1}) {
      writer.save(path, v);
      versions[v] = read_bytes(path);
    }
    REQUIRE(versions[0] != versions[1]);
    const Places places =
        at_every_place([&] { write_bytes(path, versions[0]); }, [&] { writer.save(path, 1); },
                       [&](const Kind& kind, const Said& said) {
                         const std::string now = read_bytes(path);
                         CHECK((now == versions[1] || (said && now == versions[0])));
                         // Where nothing works any more, what was begun cannot be removed.
                         if (!kind.persists) CHECK(names_in(folder.path()).size() == 1);
                         writer.save(path, 1);
                         CHECK(read_bytes(path) == versions[1]);
                         CHECK(names_in(folder.path()).size() == 1);
                       });
    check_tried(places, 5, 1, {"open", "pwrite", "fsync", "rename", "close"});
    MESSAGE(writer.name, ": ", places.number(), " places");
  }
}

TEST_CASE("a checkpoint that fails anywhere leaves the former one to be found") {
  const Run former(3), next(5);
  seed();
  const std::string former_bytes = former.bytes(), next_bytes = next.bytes();
  for (const bool first : {true, false}) {
    CAPTURE(first);
    std::optional<TempFolder> folder;
    std::optional<Checkpoints> checkpoints;
    const Warnings warnings;
    const Places places = at_every_place(
        [&] {
          folder.emplace();
          checkpoints.emplace(*folder / "runs/one", 1);
          seed();
          if (!first) checkpoints->save(former.state);
        },
        [&] { checkpoints->save(next.state); },
        [&](const Kind& kind, const Said& said) {
          Run resumed(0);
          const auto found = checkpoints->load_latest(resumed.state);
          const std::string now = resumed.bytes();
          if (said && first && !found)
            CHECK(resumed.state.step == 0);
          else
            CHECK((now == next_bytes || (said && !first && now == former_bytes)));
          if (!kind.persists)
            for (const std::string& name : names_in(folder->path()))
              CHECK(!name.ends_with(".partial"));
          checkpoints->save(next.state);
          CHECK(checkpoints->files().size() == 1);
        });
    std::vector<std::string> made{"open", "pwrite", "fsync", "rename", "opendir", "readdir"};
    if (first) made.emplace_back("mkdir");
    check_tried(places, 5, 1, made);
    MESSAGE(std::string(first ? "the first checkpoint: " : "a later one: "), places.number(),
            " places");
  }
}

TEST_CASE("a load that fails anywhere changes nothing") {
  const TempFolder folder;
  const Run older(3), newer(5);
  seed();
  const std::string bytes[] = {older.bytes(), newer.bytes()};
  const Checkpoints checkpoints(folder.path());
  checkpoints.save(older.state);
  checkpoints.save(newer.state);
  for (const int way : {0, 1, 2}) {
    const bool latest = way == 0;
    const int64_t steps = way == 1 ? 0 : 4;  // 0: the optimizer has no state yet
    CAPTURE(latest);
    CAPTURE(steps);
    std::optional<Run> run;
    std::string before;
    std::optional<Warnings> warnings;
    const Places places = at_every_place(
        [&] {
          run.emplace(steps);
          before = run->bytes();
          warnings.emplace();
        },
        [&] {
          if (latest)
            checkpoints.load_latest(run->state);
          else
            run->state.load(checkpoints.files().back());
        },
        [&](const Kind&, const Said& said) {
          const std::string now = run->bytes();
          if (said)
            CHECK(now == before);
          else if (now != bytes[1]) {  // the older file, because the newer one could not be read
            CHECK(now == bytes[0]);
            CHECK(warnings->seen.size() == 1);
          }
          run->state.load(checkpoints.files().back());
          CHECK(run->bytes() == bytes[1]);
        });
    check_tried(places, 5, 0, {"opendir", "readdir", "fopen", "read"});
    MESSAGE(std::string(latest ? "the latest, " : "one file, "), "after ", steps,
            " steps: ", places.number(), " places");
  }
}

TEST_CASE("a read that fails anywhere is refused, or right") {
  const TempFolder folder;
  for (const Writer& writer : kWriters) writer.save(folder / writer.name, 1);
  const auto idx = [](std::string head, const std::string& bytes) {
    return std::string("\0\0\x8", 3) + std::move(head) + bytes;
  };
  write_bytes(folder / "images", idx(std::string("\3\0\0\0\2\0\0\0\1\0\0\0\2", 13), "abcd"));
  write_bytes(folder / "labels", idx(std::string("\1\0\0\0\2", 5), "\1\2"));
  write_bytes(folder / "table.csv", "a,b\n1,2.5\n-3,nan\n");
  struct Reader {
    std::string name;
    std::function<std::string(const fs::path&)> read;
  };
  const auto text = [](const Tensor& x) {
    std::string out;  // a stream would keep a failed allocation to itself
    for (const double v : x.to_vector()) out += std::to_string(v) + ' ';
    return out;
  };
  const Reader readers[] = {
      {"tensors.safetensors",
       [&](const fs::path& path) {
         const auto tensors = safetensors::load_file(path);
         return text(tensors["a"]) + text(tensors["b"]);
       }},
      {"x.npy", [&](const fs::path& path) { return text(npy::load(path)); }},
      {"plain.npz", [&](const fs::path& path) { return text(npy::load_npz(path)["b"]); }},
      {"packed.npz", [&](const fs::path& path) { return text(npy::load_npz(path)["b"]); }},
      {"x.pt", [&](const fs::path& path) { return text(pt::load_file(path)["b"]); }},
      {"optimizer",
       [&](const fs::path& path) {
         const Tensor weight = ones({3}, requires_grad());
         optim::Adam adam({weight}, optim::AdamOptions(0.1));
         halftape::load(adam, path);
         std::string out;
         for (const auto& [name, value] : adam.state_dict().groups[0])
           out += name + ' ' + std::to_string(value) + ' ';
         for (const auto& [name, value] : adam.state_of(weight)) out += name + text(Tensor(value));
         return out;
       }},
      {"images",
       [&](const fs::path& path) {
         const data::Images read = data::read_idx(path, folder / "labels");
         std::string out;
         for (const uint8_t v : read.labels) out += std::to_string(v) + ' ';
         return out;
       }},
      {"table.csv",
       [&](const fs::path& path) {
         const data::Table table = data::read_csv(path);
         std::string out;
         for (const std::string& name : table.columns) out += name + ' ';
         return out + text(table.values);
       }},
      {"x.png", [&](const fs::path& path) { return text(image::load(path)); }},
      {"sampler", [&](const fs::path& path) {
         data::samplers::RandomSampler sampler(20);
         halftape::load(sampler, path);
         serialize::OutputArchive archive;
         sampler.save(archive);
         std::string out;
         for (const auto& [name, value] : archive.numbers()) out += std::to_string(value) + ' ';
         return out;
       }}};
  for (const Reader& reader : readers) {
    CAPTURE(reader.name);
    const std::string right = reader.read(folder / reader.name);
    std::string got;
    const Places places =
        at_every_place([&] { got.clear(); }, [&] { got = reader.read(folder / reader.name); },
                       [&](const Kind&, const Said& said) {
                         if (!said) CHECK(got == right);
                       });
    check_tried(places, 3, 0, {"fopen", "read"});
    MESSAGE(reader.name, ": ", places.number(), " places");
  }
}
