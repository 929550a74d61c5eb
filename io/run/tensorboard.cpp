// Writes the messages of tensorflow/core/util/event.proto and framework/summary.proto by hand, with
// the few fields that TensorBoard needs. A field is a key (number and wire type) and a value; a
// message within another is a field of bytes.
#include "halftape/io/run/tensorboard.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "halftape/core/machine/os.h"
#include "halftape/io/file/append.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/json.h"
#include "halftape/io/formats/image.h"

namespace halftape::tensorboard {
namespace {

// --- Protocol buffers.

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
std::string varint(uint64_t n) {
  std::string out;
  for (; n >= 0x80; n >>= 7) out += static_cast<char>(n | 0x80);
  return out + static_cast<char>(n);
}
std::string field(uint32_t number, int64_t value) {
  return varint(number << 3) + varint(static_cast<uint64_t>(value));
}
std::string field(uint32_t number, double value) { return varint(number << 3 | 1) + raw(value); }
std::string field(uint32_t number, float value) { return varint(number << 3 | 5) + raw(value); }
std::string field(uint32_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(uint32_t number, const std::vector<double>& values) {
  return field(number, std::string_view(reinterpret_cast<const char*>(values.data()),
                                        values.size() * sizeof(double)));
}

// --- TensorBoard's buckets: between the powers of 1.1 from 1e-12 to 1e20, their negatives and 0.

std::vector<double> bucket_limits() {
  std::vector<double> positive, all;
  for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
  for (auto v = positive.rbegin(); v != positive.rend(); ++v) all.push_back(-*v);
  all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

std::string histogram(const std::string& tag, const std::vector<double>& given) {
  static const auto& limits = *new std::vector(bucket_limits());  // NOLINT: for statics that log
  // counts[i]: limits[i − 1] <= value < limits[i]; the last one is open.
  std::vector<double> counts(limits.size() + 1);
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0, squares = 0;
  int64_t n = 0;
  for (const double v : given) {
    if (!std::isfinite(v)) continue;
    ++n;
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
    squares += v * v;
    ++counts[static_cast<size_t>(std::upper_bound(limits.begin(), limits.end(), v) -
                                 limits.begin())];
  }
  HALFTAPE_CHECK(n > 0, "add_histogram: \"", tag, "\" has no finite value among ", given.size());
  // Write only the used buckets and an empty one before them: TensorBoard takes a bucket's left
  // limit from the bucket before it.
  const auto used = [](double count) { return count > 0; };
  auto first =
      static_cast<size_t>(std::find_if(counts.begin(), counts.end(), used) - counts.begin());
  const auto end = static_cast<size_t>(std::find_if(counts.rbegin(), counts.rend(), used).base() -
                                       counts.begin());
  if (first > 0) --first;
  std::vector<double> right;
  for (size_t i = first; i < end; ++i)
    right.push_back(i < limits.size() ? limits[i] : std::numeric_limits<double>::max());
  counts = {counts.begin() + static_cast<std::ptrdiff_t>(first),
            counts.begin() + static_cast<std::ptrdiff_t>(end)};
  return field(1, low) + field(2, high) + field(3, static_cast<double>(n)) + field(4, sum) +
         field(5, squares) + field(6, right) + field(7, counts);
}

// --- Pictures.

Pixels picture(const Tensor& image, std::string_view formats) {
  const bool known = formats == "CHW" || formats == "HWC" || formats == "HW";
  HALFTAPE_CHECK(known, "add_image: dataformats \"", formats, "\" is none of CHW, HWC, HW");
  HALFTAPE_CHECK(image.defined() && image.dim() == static_cast<int64_t>(formats.size()),
                 "add_image: an image ", image.defined() ? image.sizes() : Shape(), " is not ",
                 formats, "; pass another dataformats, or one picture of the batch");
  const Tensor rows = formats == "HW"    ? image.detach().unsqueeze(2)
                      : formats == "CHW" ? image.detach().permute({1, 2, 0})
                                         : image.detach();
  return image::detail::pixels_of("add_image", rows, [](double v) { return v; });
}

// --- Records and their file.

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER: TensorBoard looks for the first three words;
/// the rest distinguishes the runs of one folder.
std::string file_name() {
  static std::atomic<int> count{0};
  return "events.out.tfevents." + std::to_string(static_cast<int64_t>(now())) + "." +
         process_name() + "." + std::to_string(count++);
}

}  // namespace

SummaryWriter::SummaryWriter(const std::filesystem::path& log_dir) {
  const std::filesystem::path folder =
      absolute_path("tensorboard", log_dir / "events").parent_path();
  make_folders("tensorboard", folder);
  int error = 0;
  do {  // Made anew, so that no link that lies there by now is followed.
    path_ = folder / file_name();
    error = os::write_new_file(path_, {});
  } while (error == EEXIST);
  if (error == 0) open_to_append(file_, path_);
  if (!file_.is_open()) fail_file("tensorboard", path_, "expected a folder that can be written to");
  write_record(field(1, now()) + field(3, std::string_view("brain.Event:2")));
}

void SummaryWriter::write_record(const std::string& event) {
  HALFTAPE_CHECK(file_.is_open(), "tensorboard: ", path_.string(), ": was closed");
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  const std::string record = length + raw(masked_crc(length)) + event + raw(masked_crc(event));
  append(file_, "tensorboard", path_, record);
}

void SummaryWriter::write_value(const std::string& value, Step step, Time wall_time) {
  write_record(field(1, wall_time.value_or(now())) + field(2, step.value_or(0)) +
               field(5, field(1, value)));
}

namespace {
std::string tag_field(const std::string& tag) {
  HALFTAPE_CHECK(is_utf8(tag) && !tag.empty(), "tensorboard: the tag ", json_quoted(tag),
                 " is empty or not UTF-8");
  return field(1, tag);
}
}  // namespace

void SummaryWriter::add_scalar(const std::string& tag, double value, Step step, Time wall_time) {
  write_value(tag_field(tag) + field(2, static_cast<float>(value)), step, wall_time);
}

void SummaryWriter::add_scalar(const std::string& tag, const Tensor& value, Step step,
                               Time wall_time) {
  add_scalar(tag, value.item<double>(), step, wall_time);
}

void SummaryWriter::add_histogram(const std::string& tag, const Tensor& values, Step step,
                                  Time wall_time) {
  write_value(tag_field(tag) + field(5, histogram(tag, values.to_vector())), step, wall_time);
}

void SummaryWriter::add_image(const std::string& tag, const Tensor& image, Step step,
                              Time wall_time, std::string_view dataformats) {
  const Pixels p = picture(image, dataformats);
  write_value(tag_field(tag) + field(4, field(1, int64_t{p.height}) + field(2, int64_t{p.width}) +
                                            field(3, int64_t{p.channels}) +
                                            field(4, png(p.bytes, p.height, p.width, p.channels))),
              step, wall_time);
}

void SummaryWriter::add_text(const std::string& tag, const std::string& text, Step step,
                             Time wall_time) {
  HALFTAPE_CHECK(is_utf8(text), "add_text: the text of \"", tag, "\" is not UTF-8");
  constexpr int64_t kString = 7;  // DT_STRING
  const std::string one_element = field(2, field(1, int64_t{1}));
  const std::string metadata = field(1, field(1, std::string_view("text")));
  write_value(tag_field(tag + "/text_summary") +
                  field(8, field(1, kString) + field(2, one_element) + field(8, text)) +
                  field(9, metadata),
              step, wall_time);
}

void SummaryWriter::flush() {
  if (file_.is_open() && !file_.flush())
    fail_file("tensorboard", path_, "writing failed; is the disk full?");
}

void SummaryWriter::close() {
  flush();
  file_.close();
}

}  // namespace halftape::tensorboard
