#include "halftape/io/run/optimizer_archive.h"

#include <cmath>

namespace halftape::serialize {
namespace {
constexpr auto kSize = "params";
}

void write(OutputArchive& archive, const optim::Optimizer& optimizer) {
  const optim::OptimizerState saved = optimizer.state_dict();
  OutputArchive groups, state;
  for (size_t i = 0; i < saved.groups.size(); ++i) {
    OutputArchive options;
    for (const auto& [name, value] : saved.groups[i]) options.write(name, SavedValue(value));
    options.write(kSize, SavedValue(static_cast<double>(saved.group_sizes[i])));
    groups.write(std::to_string(i), options);
  }
  for (size_t i = 0; i < saved.state.size(); ++i) {
    OutputArchive of_one;
    for (const auto& [name, value] : saved.state[i]) of_one.write(name, Tensor(value));
    state.write(std::to_string(i), of_one);
  }
  archive.write("groups", groups);
  archive.write("state", state);
}

void read(InputArchive& archive, optim::Optimizer& optimizer) {
  InputArchive groups, state, part;
  archive.read("groups", groups);
  archive.read("state", state);
  optim::OptimizerState saved;
  for (size_t i = 0; groups.try_read(std::to_string(i), part); ++i) {
    auto& options = saved.groups.emplace_back();
    for (const std::string& name : part.keys()) {
      SavedValue value;
      part.read(name, value);
      options[name] = value.toDouble();
    }
    if (const auto size = options.extract(kSize)) {
      const double n = size.mapped();
      HALFTAPE_CHECK(n >= 0 && n <= 0x1p53 && n == std::floor(n), "optimizer: the archive's group ",
                     i, " has ", n, " parameters, expected a whole number from 0 on");
      saved.group_sizes.push_back(static_cast<size_t>(n));
    }
  }
  for (size_t i = 0; state.try_read(std::to_string(i), part); ++i) {
    auto& of_one = saved.state.emplace_back();
    for (const auto& item : part.tensors()) of_one[item.key()] = item.value().array();
  }
  HALFTAPE_CHECK(
      groups.keys().size() == saved.groups.size() && state.keys().size() == saved.state.size(),
      "optimizer: expected the archive's groups and states as parts that are numbered ",
      "from 0 on, found ", saved.groups.size(), " and ", saved.state.size(), " of ",
      groups.keys().size(), " and ", state.keys().size());
  optimizer.load_state_dict(saved);
}

}  // namespace halftape::serialize
