// Windows of a text in random order.
#pragma once
#include <halftape/halftape.h>

#include <memory>
#include <optional>

/// Batches without end, each epoch in another order. The position can be saved.
class Batches {
 public:
  Batches(halftape::data::datasets::TextWindows windows, int64_t batch_size, uint64_t seed)
      : loader_(halftape::data::make_data_loader(
            windows.map(halftape::data::transforms::Stack<>()),
            halftape::data::samplers::RandomSampler(static_cast<int64_t>(*windows.size()), seed),
            halftape::data::DataLoaderOptions(static_cast<size_t>(batch_size)).drop_last(true))) {}
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
  std::unique_ptr<halftape::data::StatelessDataLoader<Set, halftape::data::samplers::RandomSampler>>
      loader_;
  std::optional<halftape::data::Iterator<halftape::data::Example<>>> at_;
};
