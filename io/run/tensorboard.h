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

/// Writes one event file below `log_dir`, which `tensorboard --logdir` shows while the run goes on:
/// each record is handed to the operating system at once, so a run that is killed loses none. A
/// resumed run makes a second file, and TensorBoard joins them. Each record has a CRC-32C sum,
/// which reveals an incomplete last record.
///
/// Adding a Tensor waits for its device: do not log every step. global_step defaults to 0;
/// wall_time, in seconds since 1970, to the present time. Throws FileError when the file cannot be
/// written.
class SummaryWriter {
 public:
  /// Makes the folder if it does not exist.
  explicit SummaryWriter(const std::filesystem::path& log_dir);
  ~SummaryWriter() = default;
  SummaryWriter(SummaryWriter&&) = default;
  SummaryWriter& operator=(SummaryWriter&&) = default;

  using Step = std::optional<int64_t>;
  using Time = std::optional<double>;
  /// A point of a curve; `wall_time` in seconds since 1970, now if it is left out.
  void add_scalar(const std::string& tag, double value, Step global_step = {}, Time wall_time = {});
  void add_scalar(const std::string& tag, const Tensor& value, Step global_step = {},
                  Time wall_time = {});
  /// A histogram of the finite values in TensorBoard's own buckets, each 10 % wider than the last.
  /// Throws if no value is finite.
  void add_histogram(const std::string& tag, const Tensor& values, Step global_step = {},
                     Time wall_time = {});
  /// An image of 1, 3 or 4 channels, uint8 from 0 to 255 or floating-point from 0 to 1.
  /// dataformats: "CHW", "HWC" or "HW".
  void add_image(const std::string& tag, const Tensor& image, Step global_step = {},
                 Time wall_time = {}, std::string_view dataformats = "CHW");
  /// `text` is Markdown.
  void add_text(const std::string& tag, const std::string& text, Step global_step = {},
                Time wall_time = {});
  /// Does nothing that has not been done; throws if an earlier record could not be written.
  void flush();
  /// Adding throws from then on.
  void close();
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_value(const std::string& value, Step step, Time wall_time);
  void write_record(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace halftape::tensorboard
