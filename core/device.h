// Where an array lives.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace halftape {

enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
/// How many types of devices there are.
inline constexpr int kDeviceTypes = 2;

using DeviceIndex = int16_t;

/// A device: its type and, for several GPUs, its number. Parses "cpu", "cuda", "cuda:1"; anything
/// else throws. Index −1, LibTorch's "the current one", is 0.
class Device {
 public:
  constexpr Device() = default;
  constexpr Device(DeviceType t, DeviceIndex i = 0)  // NOLINT: as LibTorch
      : type_(t), index_(i < 0 ? DeviceIndex{0} : i) {}
  explicit Device(std::string_view text);
  constexpr DeviceType type() const { return type_; }
  constexpr DeviceIndex index() const { return index_; }
  constexpr bool has_index() const { return is_cuda(); }
  constexpr bool is_cpu() const { return type_ == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type_ == DeviceType::CUDA; }
  /// "cpu", "cuda:0".
  std::string str() const;
  constexpr bool operator==(const Device&) const = default;

 private:
  DeviceType type_ = DeviceType::CPU;
  DeviceIndex index_ = 0;
};

std::string_view name(DeviceType);
std::ostream& operator<<(std::ostream&, DeviceType);
std::ostream& operator<<(std::ostream&, Device);

}  // namespace halftape
