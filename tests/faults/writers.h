// What is written as a whole file, in every format.
#pragma once
#include <halftape/halftape.h>

#include <filesystem>
#include <functional>
#include <string>

#include "halftape/tests/faults/run.h"

namespace halftape::testing {

/// Something that is written as a whole file, in two versions.
struct Writer {
  std::string name;
  std::function<void(const std::filesystem::path&, int)> save;
};

inline data::samplers::RandomSampler sampler_of(int version) {
  manual_seed(5);
  data::samplers::RandomSampler sampler(20);
  sampler.reset({});
  for (int i = 0; i <= version; ++i) (void)sampler.next(3);
  return sampler;
}

inline const Writer kWriters[] = {
    {"state.safetensors",
     [](const std::filesystem::path& path, int version) {
       static const Run runs[] = {Run(3), Run(5)};
       runs[version].state.save(path);
     }},
    {"tensors.safetensors",
     [](const std::filesystem::path& path, int version) {
       safetensors::save_file({{"a", full({3}, version)}, {"b", arange(5 - version)}}, path);
     }},
    {"x.npy",
     [](const std::filesystem::path& path, int version) { npy::save(path, full({4}, version)); }},
    {"x.png",
     [](const std::filesystem::path& path, int version) {
       image::save(path, full({3, 4, 5}, 0.5 * version));
     }},
    {"plain.npz",
     [](const std::filesystem::path& path, int version) {
       npy::savez(path, {{"a", full({3}, version)}, {"b", arange(5 - version)}});
     }},
    {"packed.npz",
     [](const std::filesystem::path& path, int version) {
       npy::savez_compressed(path, {{"a", full({3}, version)}, {"b", arange(5 - version)}});
     }},
    {"x.pt",
     [](const std::filesystem::path& path, int version) {
       pt::save_file({{"a", full({3}, version)}, {"b", arange(5 - version)}}, path);
     }},
    {"optimizer",
     [](const std::filesystem::path& path, int version) {
       const Tensor weight = ones({3}, requires_grad());
       optim::Adam adam({weight}, optim::AdamOptions(0.1));
       for (int i = 0; i <= version; ++i) weight.sum().backward(), adam.step();
       halftape::save(adam, path);
     }},
    {"sampler", [](const std::filesystem::path& path, int version) {
       halftape::save(sampler_of(version), path);
     }}};

}  // namespace halftape::testing
