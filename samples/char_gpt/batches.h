// Windows of a text in random order, shared by the ranks.
#pragma once
#include <halftape/halftape.h>

#include <memory>
#include <optional>

/// Batches without end, each epoch in another order; of a batch that `ranks` processes share, this
/// one takes `part` windows. The position can be saved, and does not depend on the ranks.
class Batches {
 public:
  Batches(halftape::data::datasets::TextWindows windows, int64_t part, uint64_t seed,
          int64_t ranks = 1, int64_t rank = 0)
      : loader_(halftape::data::make_data_loader(
            windows.map(halftape::data::transforms::Stack<>()),
            Sampler(halftape::data::samplers::RandomSampler(static_cast<int64_t>(*windows.size()),
                                                            seed),
                    static_cast<size_t>(ranks), static_cast<size_t>(rank),
                    /*allow_duplicates=*/false),
            halftape::data::DataLoaderOptions(static_cast<size_t>(part)).drop_last(true))) {}
  halftape::data::Example<> next() {
    if (at_)
      ++*at_;
    else
      at_ = loader_->begin();
    while (*at_ == loader_->end()) at_ = loader_->begin();
    return **at_;
  }
  auto& loader() { return *loader_; }

 private:
  using Set = halftape::data::datasets::MapDataset<halftape::data::datasets::TextWindows,
                                                   halftape::data::transforms::Stack<>>;
  using Sampler = halftape::data::samplers::DistributedBatchSampler<>;
  std::unique_ptr<halftape::data::StatelessDataLoader<Set, Sampler>> loader_;
  std::optional<halftape::data::Iterator<halftape::data::Example<>>> at_;
};
