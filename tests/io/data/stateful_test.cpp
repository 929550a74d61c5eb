// Datasets that choose their examples themselves, and loaders of them with workers.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <optional>
#include <thread>
#include <vector>

using namespace halftape;
using namespace halftape::data;

TEST_CASE("the workers of a stateful dataset have one dataset, whether it can be copied or not") {
  struct Countdown : datasets::StatefulDataset<Countdown, int> {
    Countdown() = default;
    Countdown(Countdown&&) = default;
    std::optional<int> get_batch(size_t) override {
      if (left == 0) return {};
      const int now = left;
      std::this_thread::yield();
      left = now - 1;  // two at once would give a number twice
      return now;
    }
    std::optional<size_t> size() const override { return 100; }
    void reset() override { left = 100; }
    void save(serialize::OutputArchive&) const override {}
    void load(serialize::InputArchive&) override {}
    int left = 100;
  };
  struct Copied : Countdown {
    Copied() = default;
    Copied(const Copied& other) : Countdown() { left = other.left; }
    Copied(Copied&&) = default;
  };
  const auto sums = [](auto loader) {
    std::vector<int> of_epochs(3);
    for (int& sum : of_epochs)
      for (const int batch : *loader) sum += batch;
    return of_epochs;
  };
  const std::vector<int> expected(3, 5050);
  for (const size_t workers : {0, 1, 3}) {
    CHECK(sums(make_data_loader(Countdown(), DataLoaderOptions(4).workers(workers))) == expected);
    CHECK(sums(make_data_loader(Copied(), DataLoaderOptions(4).workers(workers))) == expected);
  }
}
