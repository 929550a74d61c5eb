// The parts of a loader that know no types.
#include "halftape/io/data/loader.h"

#include <cmath>
#include <string>

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

constexpr double kExact = 0x1p53;
const std::string kHigh = ".high";

}  // namespace

WorkerException::WorkerException(std::exception_ptr original)
    : Error(worker_message(original)), original_exception(std::move(original)) {}

bool has_gpu() {
  try {
    backend(kCUDA);
    return true;
  } catch (const Error&) {
    return false;
  }
}

namespace detail {

std::map<std::string, double> to_dict(const std::map<std::string, uint64_t>& numbers) {
  std::map<std::string, double> dict;
  for (const auto& [name, value] : numbers) {
    const bool exact = value < uint64_t{1} << 53;
    dict[name] = static_cast<double>(exact ? value : value & 0xffffffff);
    if (!exact) dict[name + kHigh] = static_cast<double>(value >> 32);
  }
  return dict;
}

std::map<std::string, uint64_t> from_dict(const std::map<std::string, double>& saved) {
  std::map<std::string, uint64_t> numbers;
  for (const auto& [name, value] : saved) {
    HALFTAPE_CHECK(value >= 0 && value < kExact && value == std::floor(value), "load_state_dict: '",
                   name, "' is ", value,
                   "; a DataLoader's state has none "
                   "but whole numbers from 0");
    const auto whole = static_cast<uint64_t>(value);
    if (name.ends_with(kHigh))
      numbers[name.substr(0, name.size() - kHigh.size())] |= whole << 32;
    else
      numbers[name] |= whole;
  }
  return numbers;
}

std::map<std::string, uint64_t> below(const std::map<std::string, uint64_t>& numbers,
                                      const std::string& prefix) {
  std::map<std::string, uint64_t> found;
  for (const auto& [name, value] : numbers)
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = value;
  return found;
}

}  // namespace detail
}  // namespace halftape::data
