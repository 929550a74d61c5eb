// Event files for TensorBoard. Spelled as torch.utils.tensorboard's SummaryWriter.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape::tensorboard {

/// Writes what it is told into one event file of its own below `log_dir`, which
/// `tensorboard --logdir` shows while the run goes on: a resumed run makes a second file, and
/// TensorBoard joins them. Records carry CRC-32C sums, so that a torn last one is noticed.
///
/// A Tensor is read from its device, which waits for it: log every so many steps. global_step is 0
/// where none is given; wall_time, in seconds since 1970, is now. Throws FileError when the file
/// cannot be written.
class SummaryWriter {
 public:
  /// The folder is made when it is not there.
  explicit SummaryWriter(const std::filesystem::path& log_dir);
  ~SummaryWriter() = default;  // what is buffered is written
  SummaryWriter(SummaryWriter&&) = default;
  SummaryWriter& operator=(SummaryWriter&&) = default;

  using Step = std::optional<int64_t>;
  using Time = std::optional<double>;
  void add_scalar(const std::string& tag, double value, Step global_step = {}, Time wall_time = {});
  void add_scalar(const std::string& tag, const Tensor& value, Step global_step = {},
                  Time wall_time = {});
  /// How the finite values are spread, in TensorBoard's own buckets, which widen by 10 % each.
  /// Throws when there is none.
  void add_histogram(const std::string& tag, const Tensor& values, Step global_step = {},
                     Time wall_time = {});
  /// A picture of 1, 3 or 4 channels: uint8 as it is, floating-point from 0 to 1. dataformats:
  /// "CHW", "HWC" or "HW".
  void add_image(const std::string& tag, const Tensor& image, Step global_step = {},
                 Time wall_time = {}, std::string_view dataformats = "CHW");
  /// Markdown.
  void add_text(const std::string& tag, const std::string& text, Step global_step = {},
                Time wall_time = {});
  /// Hands what has been added to the operating system, so that TensorBoard sees it.
  void flush();
  /// Nothing is added after it.
  void close();
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_value(const std::string& value, Step step, Time wall_time);
  void write_record(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace halftape::tensorboard
