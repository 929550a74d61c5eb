// The parts of a loader that do not depend on the types of dataset and sampler.
#include "halftape/io/data/loader.h"

#include <cmath>
#include <string>
#include <string_view>

#include "halftape/core/contract/backend.h"

namespace halftape::data {
namespace {

std::string worker_message(const std::exception_ptr& original) {
  std::string text = "Caught exception in DataLoader worker thread. Original message: ";
  try {
    std::rethrow_exception(original);
  } catch (const std::exception& e) {
    return text + e.what();
  } catch (...) {
    return text + "none: it is no std::exception";
  }
}

constexpr std::string_view kHigh = ".high", kSampler = "sampler.";

}  // namespace

WorkerException::WorkerException(std::exception_ptr original)
    : Error(worker_message(original)), original_exception(std::move(original)) {}

bool has_gpu(Device gpu) {
  try {
    backend(gpu);
    return true;
  } catch (const Error&) {
    return false;
  }
}

namespace detail {

std::map<std::string, double> to_dict(const LoaderState& state) {
  std::map<std::string, double> dict;
  const auto add = [&](const std::string& name, uint64_t value) {
    const bool exact = value < uint64_t{1} << 53;
    dict[name] = static_cast<double>(exact ? value : value & 0xffffffff);
    if (!exact) dict[name + std::string(kHigh)] = static_cast<double>(value >> 32);
  };
  add("epoch", state.epoch);
  add("in_epoch", state.in_epoch);
  for (const auto& [name, value] : state.position) {
    HALFTAPE_CHECK(!name.ends_with(kHigh), "state_dict: the sampler saves '", name,
                   "', a name that means the upper half of a number here; rename it");
    add(std::string(kSampler) + name, value);
  }
  return dict;
}

LoaderState from_dict(const std::map<std::string, double>& saved) {
  std::map<std::string, uint64_t> own, position;
  for (const auto& [name, value] : saved) {
    HALFTAPE_CHECK(value >= 0 && value < 0x1p53 && value == std::floor(value), "load_state_dict: '",
                   name, "' is ", value, "; a DataLoader's state has only whole numbers from 0");
    const bool high = name.ends_with(kHigh), of_sampler = name.starts_with(kSampler);
    const std::string key = name.substr(0, name.size() - (high ? kHigh.size() : 0));
    (of_sampler ? position[key.substr(kSampler.size())] : own[key]) |= static_cast<uint64_t>(value)
                                                                       << (high ? 32 : 0);
  }
  const serialize::InputArchive archive(std::move(own));
  return {archive.read("epoch"), archive.read("in_epoch") != 0, std::move(position)};
}

}  // namespace detail
}  // namespace halftape::data
