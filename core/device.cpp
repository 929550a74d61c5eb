#include "halftape/core/device.h"

#include <charconv>

#include "halftape/core/check.h"

namespace halftape {

Device::Device(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  HALFTAPE_CHECK(kind == "cpu" || kind == "cuda", "device \"", text,
                 "\" is not known; use \"cpu\", \"cuda\" or \"cuda:N\"");
  type_ = kind == "cpu" ? kCPU : kCUDA;
  if (colon == std::string_view::npos) return;
  const std::string_view number = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index_);
  HALFTAPE_CHECK(error == std::errc() && end == number.data() + number.size() && index_ >= 0,
                 "device \"", text, "\" has no valid index after the colon");
  HALFTAPE_CHECK(type_ == kCUDA || index_ == 0, "device \"", text, "\": there is one CPU, \"cpu\"");
}

std::string Device::str() const {
  std::string text(name(type_));
  return is_cuda() ? text + ':' + std::to_string(index_) : text;
}

std::string_view name(DeviceType type) { return type == kCPU ? "cpu" : "cuda"; }
std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << name(type); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << device.str(); }

}  // namespace halftape
