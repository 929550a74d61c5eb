// Samplers: their orders, and saved positions, which are the whole state.
#include "halftape/io/data/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>

#include "halftape/core/random/random.h"
#include "halftape/tests/io/data/data_files.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data::samplers;
using halftape::testing::has;
using halftape::testing::message;
using Indices = std::vector<size_t>;

namespace {

template <class S>
Indices rest(S& sampler, size_t batch_size = 3) {
  Indices all;
  while (auto batch = sampler.next(batch_size)) all.insert(all.end(), batch->begin(), batch->end());
  return all;
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices first(size_t n) {
  Indices indices(n);
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

template <class S>
serialize::InputArchive saved(const S& sampler) {
  serialize::OutputArchive archive;
  sampler.save(archive);
  return serialize::InputArchive(archive.numbers());
}

// At every position of two epochs, a new sampler that loads the state goes on as this one.
template <class S>
void check_resumes_anywhere(const S& fresh) {
  for (size_t taken = 0;; ++taken) {
    CAPTURE(taken);
    S a = fresh, b = fresh;
    a.reset();
    rest(a);
    a.reset();
    bool over = false;
    for (size_t i = 0; i < taken; ++i) over = !a.next(1);
    if (over) break;
    std::stringstream stream;
    save(a, stream);
    load(b, stream);
    CHECK(rest(a) == rest(b));
    a.reset();
    b.reset();
    CHECK(rest(a) == rest(b));
  }
}

}  // namespace

TEST_CASE("a sequential sampler gives the indices in order and a short last batch") {
  SequentialSampler s(7);
  CHECK(s.next(3).value() == Indices{0, 1, 2});
  CHECK(s.next(3).value() == Indices{3, 4, 5});
  CHECK(s.index() == 6);
  CHECK(s.next(3).value() == Indices{6});
  CHECK_FALSE(s.next(3));
  s.reset(2);
  CHECK(rest(s) == Indices{0, 1});
}

// Computed with an implementation in Python of the shuffle and of Philox4x32-10, which was checked
// with Random123's known answers.
TEST_CASE("a random order is a matter of seed and epoch, and written down here") {
  CHECK(permutation(10, 42, 0) == Indices{0, 4, 5, 8, 6, 3, 2, 1, 7, 9});
  CHECK(permutation(10, 42, 1) == Indices{6, 3, 5, 1, 7, 0, 9, 8, 4, 2});
  CHECK(permutation(10, (uint64_t{1} << 63) + 5, 1000) == Indices{9, 5, 6, 1, 4, 7, 2, 3, 8, 0});
  CHECK(permutation(0, 1, 1).empty());
  CHECK(permutation(1, 1, 1) == Indices{0});
}

TEST_CASE("random orders put every index in every place equally often") {
  constexpr size_t kOrders = 6000, kIndices = 6;
  std::array<std::array<int, kIndices>, kIndices> count{};
  for (size_t epoch = 0; epoch < kOrders; ++epoch) {
    const Indices order = permutation(kIndices, 7, epoch);
    for (size_t place = 0; place < kIndices; ++place) ++count[place].at(order[place]);
  }
  // 1000 of each are expected, with a standard deviation of 29.
  for (const auto& row : count)
    for (const int n : row) {
      CHECK(n > 1000 - 150);
      CHECK(n < 1000 + 150);
    }
}

TEST_CASE("a random sampler gives every index once, and another order in each epoch") {
  RandomSampler s(100, uint64_t{3});
  const Indices one = rest(s, 7);
  CHECK(one == permutation(100, 3, 0));
  CHECK(sorted(one) == first(100));
  CHECK(s.index() == 100);
  s.reset();
  CHECK(s.epoch() == 1);
  CHECK(rest(s, 1) == permutation(100, 3, 1));
  s.reset(5);
  CHECK(sorted(rest(s)) == first(5));
}

TEST_CASE("reset of a random sampler that has not begun changes nothing") {
  RandomSampler s(10, uint64_t{3});
  s.reset();
  s.reset();
  CHECK(s.epoch() == 0);
  CHECK(rest(s) == permutation(10, 3, 0));
  s.set_epoch(8);
  s.reset();
  CHECK(rest(s) == permutation(10, 3, 8));
}

TEST_CASE("manual_seed decides the order of a random sampler that is given no seed") {
  const RandomState before = get_random_state();
  manual_seed(1);
  RandomSampler a(50), b(50);
  manual_seed(1);
  RandomSampler c(50);
  set_random_state(before);
  CHECK(a.seed() != b.seed());
  CHECK(a.seed() > uint64_t{1} << 32);  // all 64 bits are drawn
  CHECK(rest(a) == rest(c));
  CHECK(has(message([] { RandomSampler(-1); }), "RandomSampler: a size of -1"));
}

TEST_CASE("samplers resume at any position, in this epoch and the next") {
  check_resumes_anywhere(SequentialSampler(7));
  check_resumes_anywhere(RandomSampler(7, uint64_t{0x123456789abcdef}));
  check_resumes_anywhere(DistributedRandomSampler(20, 3, 1, true, 5));
  check_resumes_anywhere(DistributedRandomSampler(20, 3, 2, false, 5));
  check_resumes_anywhere(DistributedSequentialSampler(20, 3, 2));
}

TEST_CASE("an order drawn as LibTorch draws it resumes at any position") {
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  manual_seed(2);
  RandomSampler sampler(13);
  for (size_t taken = 0; taken <= 13; ++taken) {
    CAPTURE(taken);
    sampler.reset();
    for (size_t i = 0; i < taken; ++i) sampler.next(1);
    std::stringstream stream;
    save(sampler, stream);
    const RandomState now = get_random_state();
    const Indices end = rest(sampler);
    sampler.reset();
    const Indices next_epoch = rest(sampler);
    RandomSampler resumed(13);
    resumed.reset();
    load(resumed, stream);
    CHECK(rest(resumed) == end);
    set_random_state(now);
    resumed.reset();
    CHECK(rest(resumed) == next_epoch);
    CHECK(sorted(next_epoch) == first(13));
  }
  // A seed of its own decides alone, and without the engine the sampler has a seed again.
  RandomSampler own(13, 5);
  own.reset();
  CHECK(rest(own) == permutation(13, 5, 0));
  set_cpu_random_engine(RandomEngine::Philox);
  sampler.reset();
  CHECK(rest(sampler) == permutation(13, sampler.seed(), sampler.epoch()));
  set_random_state(before);
}

TEST_CASE("a random sampler takes its seed from the saved state") {
  RandomSampler a(9, uint64_t{1}), b(9, uint64_t{2});
  a.next(4);
  auto state = saved(a);
  b.load(state);
  CHECK(b.seed() == 1);
  CHECK(b.index() == 4);
  CHECK(rest(a) == rest(b));
}

TEST_CASE("a state of another size or kind is refused and changes nothing") {
  RandomSampler a(9, uint64_t{1}), b(10, uint64_t{2});
  a.next(4);
  auto state = saved(a);
  CHECK(has(message([&] { b.load(state); }), "saved with size = 9, this one has 10"));
  CHECK(b.seed() == 2);
  CHECK(b.index() == 0);

  SequentialSampler s(3);
  CHECK(has(message([&] { s.load(state); }), "position 4 lies beyond this sampler's 3"));
  auto other = saved(s);
  CHECK(has(message([&] { b.load(other); }), "no 'size'; it has index"));

  DistributedRandomSampler two(10, 2, 0), three(10, 3, 0);
  auto of_two = saved(two);
  CHECK(has(message([&] { three.load(of_two); }), "num_replicas = 2, this one has 3"));
}

TEST_CASE("distributed samplers share the examples out") {
  for (const size_t replicas : {1, 2, 3, 4})
    for (const size_t batch : {1, 2, 5}) {
      CAPTURE(replicas);
      Indices random, sequential;
      for (size_t rank = 0; rank < replicas; ++rank) {
        DistributedRandomSampler r(10, replicas, rank);
        DistributedSequentialSampler s(10, replicas, rank);
        const Indices mine = rest(r, batch), ordered = rest(s, batch);
        CHECK(mine.size() == (10 + replicas - 1) / replicas);
        random.insert(random.end(), mine.begin(), mine.end());
        sequential.insert(sequential.end(), ordered.begin(), ordered.end());
      }
      // The first ones come twice if the examples do not fill the shares.
      Indices expected = first(random.size());
      for (size_t& i : expected) i %= 10;
      CHECK(sequential == expected);
      CHECK(sorted(random) == sorted(expected));
      CHECK((replicas == 1 || random != sequential));
    }
}

TEST_CASE("distributed samplers without duplicates leave out what makes shares uneven") {
  Indices random;
  for (size_t rank = 0; rank < 3; ++rank) {
    DistributedRandomSampler r(10, 3, rank, false);
    const Indices mine = rest(r);
    random.insert(random.end(), mine.begin(), mine.end());
  }
  CHECK(sorted(random) == first(9));
  CHECK(has(message([] { DistributedRandomSampler(10, 3, 3); }), "rank 3 of 3 replicas"));
}

TEST_CASE("distributed samplers are in the same epoch with and without set_epoch") {
  DistributedRandomSampler told(12, 2, 1), alone(12, 2, 1);
  Indices before;
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    told.set_epoch(epoch);
    told.reset();
    alone.reset();
    CHECK(alone.epoch() == epoch);
    const Indices mine = rest(told);
    CHECK(mine == rest(alone));
    CHECK(mine != before);
    before = mine;
  }
}

TEST_CASE("a process loads the position that another rank saved") {
  DistributedRandomSampler zero(12, 2, 0), one(12, 2, 1), late(12, 2, 1);
  zero.next(2);
  one.next(2);
  auto state = saved(zero);
  late.load(state);
  CHECK(late.index() == one.index());
  CHECK(rest(late) == rest(one));
}

TEST_CASE("a distributed batch sampler cuts the batches of one process into parts") {
  using RankBatches = DistributedBatchSampler<>;
  for (const size_t replicas : {1, 2, 3, 4}) {
    CAPTURE(replicas);
    RandomSampler alone(26, uint64_t{5});
    std::vector<RankBatches> ranks;
    for (size_t rank = 0; rank < replicas; ++rank)
      ranks.emplace_back(RandomSampler(26, uint64_t{5}), replicas, rank);
    for (int batch = 0; batch < 7; ++batch) {  // of two epochs: 12, 12, 2, none, …
      CAPTURE(batch);
      const auto whole = alone.next(12);
      Indices parts;
      for (RankBatches& rank : ranks) {
        const auto part = rank.next(12 / replicas);
        CHECK(part.has_value() == whole.has_value());
        if (part) CHECK(part->size() == (whole->size() + replicas - 1) / replicas);
        if (part) parts.insert(parts.end(), part->begin(), part->end());
      }
      // The first ones come again where the batch does not fill the parts.
      for (size_t i = 0; i < parts.size(); ++i) CHECK(parts[i] == (*whole)[i % whole->size()]);
      if (whole) continue;
      alone.reset();
      for (RankBatches& rank : ranks) rank.reset();
    }
  }
}

TEST_CASE("a distributed batch sampler without duplicates leaves out what parts cannot hold") {
  using RankBatches = DistributedBatchSampler<SequentialSampler>;
  RankBatches a(SequentialSampler(8), 3, 0, false), c(SequentialSampler(8), 3, 2, false);
  CHECK(a.next(2).value() == Indices{0, 1});
  CHECK(c.next(2).value() == Indices{4, 5});
  CHECK_FALSE(a.next(2));  // 6 and 7 are no three parts
  CHECK_FALSE(c.next(2));
  a.reset();
  CHECK(rest(a, 1) == Indices{0, 3});
}

TEST_CASE("a distributed batch sampler goes on with another number of ranks") {
  check_resumes_anywhere(DistributedBatchSampler<>(RandomSampler(20, uint64_t{5}), 3, 1));
  using RankBatches = DistributedBatchSampler<>;
  RankBatches three(RandomSampler(24, uint64_t{5}), 3, 1),
      two(RandomSampler(24, uint64_t{6}), 2, 1);
  RandomSampler alone(24, uint64_t{7});
  three.next(4);
  auto state = saved(three);
  two.load(state);
  alone.load(state);
  const auto whole = alone.next(12);
  CHECK(two.next(6).value() == Indices(whole->begin() + 6, whole->end()));

  CHECK(has(message([] { RankBatches(RandomSampler(4, uint64_t{1}), 3, 3); }),
            "rank 3 of 3 replicas"));
  CHECK(has(message([&] { two.next(~size_t{0}); }), "more than can be counted"));
}

TEST_CASE("a stream sampler asks for an epoch's number of examples") {
  StreamSampler s(10);
  CHECK(s.next(4).value() == 4);
  std::stringstream stream;
  save(s, stream);
  CHECK(s.next(4).value().size() == 4);
  CHECK(s.next(4).value() == 2);
  CHECK_FALSE(s.next(4));
  load(s, stream);
  CHECK(s.next(100).value() == 6);
  s.reset(3);
  CHECK(s.next(100).value() == 3);
}

TEST_CASE("samplers go to files and back, and damage is told") {
  const halftape::testing::DataFolder folder;
  RandomSampler a(20, ~uint64_t{0}), b(20, uint64_t{0});
  a.next(6);
  const auto path = folder.path() / "sampler";
  save(a, path);
  load(b, path);
  CHECK(b.seed() == ~uint64_t{0});
  CHECK(rest(a) == rest(b));

  CHECK(has(message([&] { load(b, folder.path() / "none"); }),
            "none: expected a file, found nothing"));
  std::stringstream cut("halftape archive 1\n4\nepoch 0\nindex 6\n"), other("PK\x03\x04");
  CHECK(has(message([&] { load(b, cut); }), "expected 4 numbers, found 2"));
  CHECK(has(message([&] { load(b, other); }), "was not written by save()"));
}

TEST_CASE("of a saved sampler, every flip of a bit and every cut is refused, and nothing changes") {
  const halftape::testing::DataFolder folder;
  RandomSampler a(20, 7), b(20, 5);
  a.next(6);
  std::stringstream stream;
  save(a, stream);
  const std::string whole = stream.str(), before = [&] {
    std::stringstream text;
    save(b, text);
    return text.str();
  }();
  const auto path = folder.path() / "sampler";
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const bool told = !message([&] { load(b, path); }).empty();
    std::stringstream now;
    save(b, now);
    return told && now.str() == before;
  };
  for (size_t n = 0; n < whole.size(); ++n) {
    CHECK_MESSAGE(refused(whole.substr(0, n)), "cut at byte ", n);
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[n] = static_cast<char>(flipped[n] ^ (1 << bit));
      CHECK_MESSAGE(refused(flipped), "byte ", n, ", bit ", bit);
    }
  }
  CHECK(refused(whole + "x 1\n"));
  std::ofstream(path, std::ios::binary) << whole;
  load(b, path);
  CHECK(rest(a) == rest(b));
}

TEST_CASE("a sampler of the former version loads, and none of its lines is taken for another") {
  const auto said = [](const std::string& lines) {
    std::stringstream text("halftape archive 1\n" + lines);
    SequentialSampler s(10);
    return message([&] { load(s, text); });
  };
  std::stringstream good("halftape archive 1\n2\nindex 4\nsize 10\n");
  SequentialSampler s(10);
  load(s, good);
  CHECK(s.index() == 4);
  CHECK(has(said("2\nindex -3\nsize 10\n"), "expected a whole number"));
  CHECK(has(said("2\nindex 4\nsize 1"), "expected 2 numbers, found 1"));  // of 10
  CHECK(has(said("2\nindex 4\nindex 4\n"), "that of another line"));
  CHECK(has(said("2\nindex 18446744073709551616\nsize 10\n"), "expected a whole number"));
  CHECK(has(said("two\n"), "expected a whole number"));
  CHECK(has(said(""), "found the end"));
  serialize::OutputArchive archive;
  archive.write("a b", 1);  // is no word, and so not saved as text
  std::stringstream stream;
  archive.save_to(stream);
  serialize::InputArchive back;
  back.load_from(stream);
  CHECK(back.read("a b") == 1);
}

TEST_CASE("a sampler of more examples than memory can hold throws, whatever its kind") {
  constexpr size_t n = size_t{1} << 50, most = std::numeric_limits<int64_t>::max();
  const auto out_of_memory = [](auto sampler) {
    return message<OutOfMemoryError>(
        [&] { (void)sampler.next(std::numeric_limits<size_t>::max()); });
  };
  CHECK(has(out_of_memory(RandomSampler(int64_t{n}, 1)),
            "no memory for the order of 1125899906842624 examples"));
  CHECK(has(out_of_memory(RandomSampler(int64_t{most})), "no memory"));
  CHECK(has(out_of_memory(SequentialSampler(n)), "no memory"));
  CHECK(has(out_of_memory(DistributedRandomSampler(n, 2, 1)), "no memory"));
  CHECK(has(out_of_memory(DistributedSequentialSampler(n, 2, 1)), "no memory"));
  CHECK(SequentialSampler(n).next(2) == std::vector<size_t>{0, 1});
  CHECK(StreamSampler(n).next(n)->size() == n);
  CHECK(
      has(message([] { DistributedRandomSampler(4, ~size_t{0}, 1); }), "more than can be counted"));
}
