// Where an array lives.
#pragma once
#include <cstdint>
#include <ostream>
#include <string_view>

namespace halftape {

enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
inline constexpr int kDeviceTypes = 2;

/// A device: its type and, for several GPUs, its number. Parses "cpu", "cuda", "cuda:1"; anything
/// else throws.
struct Device {
  DeviceType type = DeviceType::CPU;
  int16_t index = 0;
  constexpr Device() = default;
  constexpr Device(DeviceType t, int16_t i = 0) : type(t), index(i) {}  // NOLINT: as LibTorch
  explicit Device(std::string_view text);
  constexpr bool is_cpu() const { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type == DeviceType::CUDA; }
  constexpr bool operator==(const Device&) const = default;
};

std::string_view name(DeviceType);
std::ostream& operator<<(std::ostream&, DeviceType);
std::ostream& operator<<(std::ostream&, Device);

}  // namespace halftape
