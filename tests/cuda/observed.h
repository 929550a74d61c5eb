// The GPU's backend, which tells the rig the operands of each call for its tally.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halftape/core/contract/forwarding_backend.h"
#include "halftape/cuda/runtime/runtime.h"
#include "runtime/device.h"

namespace halftape::testing {

class ObservedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 private:
  void before(const std::string&, const Touched& touched) override {
    simt::Operands seen{kStart, kStart};
    for (const auto& arrays : {touched.writes, touched.reads})
      for (const Array* a : arrays) {
        mix(seen.dtypes, a->defined() ? static_cast<uint64_t>(a->dtype()) : kNone);
        mix(seen.shapes, a->defined() ? static_cast<uint64_t>(a->dim()) : kNone);
        if (a->defined())
          for (const int64_t n : a->shape()) mix(seen.shapes, static_cast<uint64_t>(n));
      }
    simt::set_operands(seen);
  }
  // FNV-1a of one number at a time.
  static constexpr uint64_t kStart = 14695981039346656037u, kNone = ~uint64_t{0};
  static void mix(uint64_t& hash, uint64_t number) { hash = (hash ^ number) * 1099511628211u; }
};

/// The runtime with such backends.
class ObservedRuntime final : public cuda::Runtime {
 public:
  explicit ObservedRuntime(cuda::Runtime& to) : to_(to) {
    for (DeviceIndex i = 0; i < to.device_count(); ++i)
      backends_.push_back(std::make_unique<ObservedBackend>(to.backend(i)));
  }
  Backend& backend(DeviceIndex i) override { return *backends_.at(static_cast<size_t>(i)); }

  DeviceIndex device_count() const override { return to_.device_count(); }
  std::function<void()> streams_of_thread() override { return to_.streams_of_thread(); }
  void use_device(DeviceIndex i) override { to_.use_device(i); }
  std::string device_name(DeviceIndex i) const override { return to_.device_name(i); }
  int compute_capability(DeviceIndex i) const override { return to_.compute_capability(i); }
  cuda::MemoryStats memory(DeviceIndex i) override { return to_.memory(i); }
  void reset_peak(DeviceIndex i) override { to_.reset_peak(i); }
  void empty_cache(DeviceIndex i) override { to_.empty_cache(i); }
  void set_blocking(bool on) override { to_.set_blocking(on); }
  void allow_fp16_reduced_precision_reduction(bool on) override {
    to_.allow_fp16_reduced_precision_reduction(on);
  }
  void* next_stream(DeviceIndex i, bool high) override { return to_.next_stream(i, high); }
  void* current_stream(DeviceIndex i) override { return to_.current_stream(i); }
  void set_current_stream(DeviceIndex i, void* s) override { to_.set_current_stream(i, s); }
  void synchronize_stream(DeviceIndex i, void* s) override { to_.synchronize_stream(i, s); }
  bool query_stream(void* s) override { return to_.query_stream(s); }
  void* create_event(DeviceIndex i, bool timing) override { return to_.create_event(i, timing); }
  void destroy_event(DeviceIndex i, void* e) noexcept override { to_.destroy_event(i, e); }
  void record_event(void* e, void* s) override { to_.record_event(e, s); }
  void wait_event(void* s, void* e) override { to_.wait_event(s, e); }
  void synchronize_event(DeviceIndex i, void* e) override { to_.synchronize_event(i, e); }
  bool query_event(void* e) override { return to_.query_event(e); }
  float elapsed_time(void* from, void* to) override { return to_.elapsed_time(from, to); }

 private:
  cuda::Runtime& to_;
  std::vector<std::unique_ptr<ObservedBackend>> backends_;
};

}  // namespace halftape::testing
