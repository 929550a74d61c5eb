// Bytes of images to tensors, and the reader of CIFAR-10.
#include "halftape/io/data/sets/image_sets.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/io/file/file.h"

namespace halftape::data::datasets {
namespace {

namespace fs = std::filesystem;

void to_unit(const uint8_t* pixels, size_t count, int max_value, float* out) {
  const auto scale = static_cast<float>(max_value);
  std::transform(pixels, pixels + count, out,
                 [=](uint8_t p) { return static_cast<float>(p) / scale; });
}

/// Whatever the default device is: a loader gathers and copies there.
TensorOptions on_host(Dtype dtype) { return TensorOptions(dtype).device(kCPU); }

const Images& part(const Split& split, bool train) { return train ? split.train : split.test; }

/// Images and targets.
std::pair<Tensor, Tensor> read_cifar(const fs::path& root, bool train) {
  constexpr size_t kSide = 32, kPixels = 3 * kSide * kSide, kRecord = 1 + kPixels;
  const fs::path inner = root / "cifar-10-batches-bin";
  std::error_code ignored;
  const fs::path folder = fs::is_directory(inner, ignored) ? inner : root;
  std::vector<std::string> names{"test_batch.bin"};
  if (train)
    names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
             "data_batch_5.bin"};
  std::vector<std::string> contents;
  size_t count = 0;
  for (const std::string& name : names) {
    const fs::path file = folder / name;
    contents.push_back(read_file("cifar10", file));
    const size_t size = contents.back().size();
    if (size == 0 || size % kRecord != 0)
      fail_file("cifar10", file,
                "expected records of 3073 bytes (a label and 3 x 32 x 32 pixels), found ", size,
                " bytes: it is cut off, or another version than the binary one; unpack "
                "cifar-10-binary.tar.gz again");
    count += size / kRecord;
  }

  const auto n = static_cast<int64_t>(count);
  Tensor images = empty({n, 3, int64_t{kSide}, int64_t{kSide}}, on_host(kFloat32));
  Tensor targets = empty({n}, on_host(kInt64));
  auto* image = images.data_ptr<float>();
  auto* target = targets.data_ptr<int64_t>();
  for (size_t f = 0; f < names.size(); ++f) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(contents[f].data());
    for (size_t i = 0; i < contents[f].size() / kRecord; ++i, bytes += kRecord) {
      if (bytes[0] > 9)
        fail_file("cifar10", folder / names[f], "record ", i, ": expected a label 0..9, found ",
                  int{bytes[0]}, "; the file is damaged, or of CIFAR-100");
      *target++ = bytes[0];
      to_unit(bytes + 1, kPixels, 255, image);
      image += kPixels;
    }
  }
  return {images, targets};
}

}  // namespace

Tensor image_tensor(const Images& images) {
  const int64_t wanted = numel({images.count, images.rows, images.cols});
  HALFTAPE_CHECK(std::cmp_equal(images.pixels.size(), wanted), "image_tensor: ", images.count,
                 " images of ", images.rows, "x", images.cols, " have ", wanted, " pixels, not ",
                 images.pixels.size());
  Tensor x = empty({images.count, 1, images.rows, images.cols}, on_host(kFloat32));
  to_unit(images.pixels.data(), images.pixels.size(), images.max_value, x.data_ptr<float>());
  return x;
}

Tensor label_tensor(const Images& images) {
  HALFTAPE_CHECK(std::cmp_equal(images.labels.size(), images.count),
                 "label_tensor: ", images.labels.size(), " labels for ", images.count, " images");
  Tensor y = empty({images.count}, on_host(kInt64));
  std::copy(images.labels.begin(), images.labels.end(), y.data_ptr<int64_t>());
  return y;
}

MNIST::MNIST(const fs::path& root, Mode mode)
    : ImageDataset(part(mnist(root), mode == Mode::kTrain), mode) {}

CIFAR10::CIFAR10(const fs::path& root, Mode mode)
    : ImageDataset(read_cifar(root, mode == Mode::kTrain), mode) {}

Digits::Digits(Mode mode) : ImageDataset(part(digits(), mode == Mode::kTrain), mode) {}

}  // namespace halftape::data::datasets
