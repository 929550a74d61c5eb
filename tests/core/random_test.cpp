// Random numbers: known answers of Philox and MT19937; a Philox number depends only on seed,
// position and index; moments of the distributions.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/philox.h"

using namespace halftape;

namespace {

std::vector<double> draw(Dtype dtype, int64_t n, Distribution kind, double a, double b,
                         RandomKey key = {.seed = 42, .offset = 0}) {
  const Array y({n}, dtype, kCPU);
  backend(kCPU).random(y, kind, a, b, key);
  const Array wide = y.to(kFloat64);
  return {wide.data<double>(), wide.data<double>() + n};
}

/// Mean of f over the values.
template <class F>
double mean(const std::vector<double>& x, F f) {
  double sum = 0;
  for (double v : x) sum += f(v);
  return sum / static_cast<double>(x.size());
}
double mean(const std::vector<double>& x) {
  return mean(x, [](double v) { return v; });
}

void check_block(uint64_t key, uint64_t low, uint64_t high, std::array<uint32_t, 4> expected) {
  const PhiloxBlock block = philox(key, low, high);
  for (size_t i = 0; i < 4; ++i) CHECK(block.v[i] == expected[i]);
}

/// Puts the default generator back as it was.
struct KeepGenerator {
  Generator before = get_generator();
  ~KeepGenerator() { set_generator(before); }
};

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  // kat_vectors of https://github.com/DEShawResearch/random123, lines "philox4x32 10".
  check_block(0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check_block(~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check_block(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
              {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("word i of a stream is word i mod 4 of block offset + i / 4") {
  for (const uint64_t i : {0, 1, 3, 4, 1000003}) {
    CAPTURE(i);
    CHECK(random_bits(7, 5, i) == philox(7, 5 + i / 4, 0).v[i % 4]);
  }
  CHECK(uniform01(0) == 0);
  CHECK(uniform01(0xffffffff) == 1 - 0x1p-24f);
  CHECK(uniform01(0x80000000) == 0.5f);
}

TEST_CASE("MT19937 gives the known answers of its authors") {
  // mt19937ar.out: init_genrand(5489) is what the C++ standard asks of std::mt19937, whose 10000th
  // number it states.
  Mt19937 mt;
  uint32_t last = 0;
  for (int i = 0; i < 10000; ++i) last = mt.random();
  CHECK(last == 4123659995u);
  CHECK(Mt19937(7) == Mt19937((uint64_t{1} << 40) + 7));
  CHECK(Mt19937(7) != Mt19937(8));
  Mt19937 words(3), pairs(3);
  const uint64_t first = words.random(), second = words.random();
  CHECK(pairs.random64() == (first << 32 | second));
}

TEST_CASE("the CPU's Mt19937 can be seeded, read and set as other generators") {
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  manual_seed(11);
  CHECK(cpu_random_engine() == RandomEngine::Mt19937);
  CHECK(*get_generator().mt19937 == Mt19937(11));
  CHECK_FALSE(get_generator(kCUDA).mt19937);
  CHECK_FALSE(static_cast<bool>(LockedMt19937(kCUDA)));
  const auto next = [] { return LockedMt19937(kCPU)->random(); };
  next();
  const RandomState state = get_random_state();
  const Generator generator = get_generator();
  const uint32_t expected = next();
  CHECK(next() != expected);
  set_random_state(state);
  CHECK(next() == expected);
  set_generator(generator);
  CHECK(next() == expected);
  manual_seed(11);
  next();
  CHECK(next() == expected);
  // Each random_reserve() gets a Philox stream of its own.
  const RandomKey one = random_reserve(kCPU, 10), two = random_reserve(kCPU, 10);
  CHECK(one.seed != two.seed);

  set_generator({.seed = 9, .offset = 100});
  CHECK(cpu_random_engine() == RandomEngine::Philox);
  CHECK_FALSE(static_cast<bool>(LockedMt19937(kCPU)));
  CHECK(random_reserve(kCPU, 4).offset == 100);
  set_random_state(state);
  CHECK(cpu_random_engine() == RandomEngine::Mt19937);
  CHECK_THROWS_AS(set_generator(generator, kCUDA), Error);
  set_random_state(before);
  CHECK(cpu_random_engine() == before.cpu_engine);
}

TEST_CASE("threads that draw from one Mt19937 never get the same numbers") {
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  manual_seed(1);
  std::vector<std::vector<uint32_t>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken)
    threads.emplace_back([&mine] {
      for (int i = 0; i < 500; ++i) mine.push_back(LockedMt19937(kCPU)->random());
    });
  for (std::thread& t : threads) t.join();
  std::multiset<uint32_t> all, expected;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  Mt19937 mt(1);
  for (int i = 0; i < 2000; ++i) expected.insert(mt.random());
  CHECK(all == expected);
  set_random_state(before);
}

TEST_CASE("a scope of random numbers moves no others, and no others move it") {
  const KeepGenerator keep;
  manual_seed(4);
  const auto draw = [] { return random_reserve(kCPU, 4); };
  const RandomKey first = draw();
  const RandomState state = get_random_state();
  {
    const RandomScope own(state);
    CHECK(draw().offset == first.offset + 1);
    RandomKey other;
    std::thread([&] { other = draw(); }).join();
    CHECK(other.seed == 4);
    CHECK(other.offset == first.offset + 1);
    CHECK(draw().offset == first.offset + 2);
    manual_seed(9);
    CHECK(draw().seed == 9);
    set_cpu_random_engine(RandomEngine::Mt19937);
    CHECK(static_cast<bool>(LockedMt19937(kCPU)));
    {
      const RandomScope inner(state);
      CHECK(draw().seed == 4);
    }
    CHECK(static_cast<bool>(LockedMt19937(kCPU)));
  }
  CHECK(cpu_random_engine() == RandomEngine::Philox);
  CHECK(draw().seed == 4);
  CHECK(draw().offset == first.offset + 3);
}

TEST_CASE("work that is done again draws what its log holds, and moves no stream") {
  const KeepGenerator keep;
  const RandomState before = get_random_state();
  for (const RandomEngine engine : {RandomEngine::Philox, RandomEngine::Mt19937}) {
    set_cpu_random_engine(engine);
    manual_seed(4);
    DrawLog log, outer_log;
    const auto work = [](DrawLog& of, bool again) {
      const DrawScope drawn(of, again);
      std::vector<uint64_t> all;
      for (int i = 0; i < 3; ++i) {
        if (const LockedMt19937 mt(kCPU); mt) all.push_back(mt->random64());
        const RandomKey key = random_reserve(kCPU, 8);
        all.insert(all.end(), {key.seed, key.offset});
      }
      return all;
    };
    const auto within = [&](bool again) {
      const DrawScope outer(outer_log, again);
      return work(log, again);
    };
    const auto first = within(false);
    const RandomState now = get_random_state();
    CHECK(within(true) == first);
    CHECK(work(log, true) == first);
    CHECK(work(outer_log, true) == first);
    const RandomState then = get_random_state();
    CHECK(then.seed == now.seed);
    REQUIRE(then.generators.size() == now.generators.size());
    CHECK(then.generators[0].second.offset == now.generators[0].second.offset);
    CHECK(then.generators[0].second.mt19937 == now.generators[0].second.mt19937);
  }
  // Another kind of draw than the first time.
  DrawLog log;
  set_cpu_random_engine(RandomEngine::Mt19937);
  {
    const DrawScope drawn(log, false);
    LockedMt19937(kCPU)->random();
  }
  const DrawScope again(log, true);
  CHECK_THROWS_WITH_AS(random_reserve(kCPU, 1), doctest::Contains("must do the same work"), Error);
  set_random_state(before);
}

TEST_CASE("a seed fixes all that follows, and another seed changes it") {
  const KeepGenerator keep;
  manual_seed(123);
  const RandomKey first = random_reserve(kCPU, 10), second = random_reserve(kCPU, 1);
  CHECK(first.seed == 123);
  CHECK(first.offset == 0);
  CHECK(second.offset == 3);  // ten words take three blocks of four
  CHECK(get_generator().offset == 4);
  manual_seed(123);
  CHECK(random_reserve(kCPU, 10).offset == 0);
  CHECK(random_reserve(kCPU, 0).offset == 3);
  CHECK(random_reserve(kCPU, 0).offset == 3);
  set_generator({.seed = 9, .offset = 100});
  const RandomKey moved = random_reserve(kCPU, 4);
  CHECK(moved.seed == 9);
  CHECK(moved.offset == 100);
  manual_seed(5);
  CHECK(get_generator(Device(kCUDA, 1)).seed == 5);
  auto with_seed = [](uint64_t seed) {
    return draw(kFloat32, 100, Distribution::Uniform, 0, 1, {seed, 0});
  };
  CHECK(with_seed(1) == with_seed(1));
  CHECK(with_seed(1) != with_seed(2));
  CHECK(with_seed(1) != with_seed(uint64_t{1} << 32 | 1));  // the upper half of the seed counts
}

TEST_CASE("pieces reserved from several threads never overlap") {
  const KeepGenerator keep;
  manual_seed(1);
  std::vector<std::vector<uint64_t>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken)
    threads.emplace_back([&mine] {
      for (int i = 0; i < 1000; ++i) mine.push_back(random_reserve(kCPU, 8).offset);
    });
  for (std::thread& t : threads) t.join();
  std::set<uint64_t> all;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  CHECK(all.size() == 4000);
  CHECK(*all.rbegin() == 2 * 3999);
}

TEST_CASE("number i does not depend on how many are drawn with it") {
  for (const auto kind :
       {Distribution::Uniform, Distribution::Normal, Distribution::Bernoulli, Distribution::Bits}) {
    const double b = kind == Distribution::Bits ? 1000 : 1;
    const auto many = draw(kFloat64, 20001, kind, 0.25, b);
    for (const size_t n : {size_t{1}, size_t{7}, size_t{8193}}) {
      const auto few = draw(kFloat64, static_cast<int64_t>(n), kind, 0.25, b);
      CHECK(std::equal(few.begin(), few.end(), many.begin()));
    }
    // At offset 2, two blocks on, the stream begins with number 8.
    const auto later = draw(kFloat64, 10000, kind, 0.25, b, {.seed = 42, .offset = 2});
    CHECK(std::equal(later.begin(), later.end(), many.begin() + 8));
  }
}

TEST_CASE("integers are even and independent, however large they are") {
  const double large = 0x1p52;
  const auto three = draw(kInt64, 90000, Distribution::Bits, large, large + 2);
  for (int k = 0; k < 3; ++k)  // the standard deviation is 141
    CHECK(std::abs(static_cast<double>(std::count(three.begin(), three.end(), large + k)) - 30000) <
          700);
  for (const double v : draw(kInt64, 100, Distribution::Bits, 0x1p53, 0x1p53)) REQUIRE(v == 0x1p53);
  const auto ends = draw(kInt64, 100, Distribution::Bits, 0x1p53 - 1, 0x1p53);
  CHECK(std::count(ends.begin(), ends.end(), 0x1p53) > 20);
  CHECK(std::count(ends.begin(), ends.end(), 0x1p53 - 1) > 20);
  const auto wide = draw(kInt64, 8, Distribution::Bits, 0, 0x1p53 - 1, {.seed = 0, .offset = 0});
  for (size_t i = 4; i < 8; ++i)  // the low word of one is not the high word of another
    CHECK(std::fmod(wide[i], 0x1p21) != std::floor(wide[i - 4] * 0x1p-32));
}

TEST_CASE("uniform numbers lie in [0, 1), also in formats that would round up to 1") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const auto x = draw(d, 1000000, Distribution::Uniform, 0, 1);
    CHECK(*std::min_element(x.begin(), x.end()) >= 0);
    CHECK(*std::max_element(x.begin(), x.end()) < 1);
    // The standard error of the mean is 0.0003; bfloat16 loses half a unit in the last place.
    const double coarse = is_16bit(d) ? epsilon(d) / 2 : 0;
    CHECK(std::abs(mean(x) - 0.5) < 0.0015 + coarse);
    CHECK(std::abs(mean(x, [](double v) { return v * v; }) - 1.0 / 3) < 0.0015 + coarse);
    CHECK(std::abs(mean(x, [](double v) { return v < 0.1; }) - 0.1) < 0.0015 + coarse);
  }
  // Neighbours are independent: E[x·y] = 1/4.
  const auto x = draw(kFloat64, 1000000, Distribution::Uniform, 0, 1);
  double product = 0;
  for (size_t i = 1; i < x.size(); ++i) product += x[i] * x[i - 1];
  CHECK(std::abs(product / 999999 - 0.25) < 0.0015);
}

TEST_CASE("the upper end of a uniform range is not reached, even right above the lower end") {
  for (const double v : draw(kFloat32, 1000, Distribution::Uniform, 1, 1 + 0x1p-23))
    REQUIRE(v == 1);
  for (const double v : draw(kFloat16, 1000, Distribution::Uniform, -2048, -2046))
    REQUIRE(v < -2046);
  const auto x = draw(kFloat32, 100000, Distribution::Uniform, -3, 5);
  CHECK(*std::min_element(x.begin(), x.end()) >= -3);
  CHECK(*std::min_element(x.begin(), x.end()) < -2.99);
  CHECK(*std::max_element(x.begin(), x.end()) < 5);
  CHECK(*std::max_element(x.begin(), x.end()) > 4.99);
}

TEST_CASE("normal numbers have the moments and tails of a normal distribution") {
  for (const int64_t n : {1000000, 999999}) {  // drawn in pairs; an odd n leaves half a pair
    const auto x = draw(kFloat32, n, Distribution::Normal, 3, 2);
    auto moment = [&](int p) {
      return mean(x, [p](double v) { return std::pow((v - 3) / 2, p); });
    };
    CHECK(std::abs(moment(1)) < 0.005);  // standard errors: 1/√n, √(2/n), √(15/n), √(96/n)
    CHECK(std::abs(moment(2) - 1) < 0.007);
    CHECK(std::abs(moment(3)) < 0.02);
    CHECK(std::abs(moment(4) - 3) < 0.05);
    const double tail = mean(x, [](double v) { return std::abs((v - 3) / 2) > 3; });
    CHECK(std::abs(tail - 0.0027) < 0.0003);
    CHECK(std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); }));
  }
}

TEST_CASE("Bernoulli numbers are 1 with the given probability, never at 0 and always at 1") {
  CHECK(mean(draw(kFloat32, 100000, Distribution::Bernoulli, 0, 0)) == 0);
  CHECK(mean(draw(kBool, 100000, Distribution::Bernoulli, 1, 0)) == 1);
  CHECK(std::abs(mean(draw(kFloat16, 1000000, Distribution::Bernoulli, 0.3, 0)) - 0.3) < 0.0025);
}

TEST_CASE("integers cover [low, high) evenly, also in ranges beyond 32 bits") {
  const auto dice = draw(kInt64, 600000, Distribution::Bits, 1, 6);
  for (int face = 1; face <= 6; ++face)
    CHECK(std::abs(mean(dice, [face](double v) { return v == face; }) - 1.0 / 6) < 0.0025);
  CHECK(*std::min_element(dice.begin(), dice.end()) == 1);
  CHECK(*std::max_element(dice.begin(), dice.end()) == 6);
  for (const double v : draw(kInt32, 1000, Distribution::Bits, -5, -5)) REQUIRE(v == -5);
  const auto wide = draw(kInt64, 100000, Distribution::Bits, 0, 0x1p50);
  CHECK(std::abs(mean(wide) / 0x1p50 - 0.5) < 0.005);
  CHECK(std::set<double>(wide.begin(), wide.end()).size() == wide.size());
  // The lowest bit is as random as the others.
  CHECK(std::abs(mean(wide, [](double v) { return std::fmod(v, 2); }) - 0.5) < 0.01);
}
