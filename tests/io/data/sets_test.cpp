// Image sets as datasets: shapes, dtypes, values, and wrong files.
#include "halftape/io/data/sets/image_sets.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "halftape/io/data/loader.h"
#include "halftape/io/data/transforms.h"
#include "halftape/tests/io/data/data_files.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using datasets::CIFAR10;
using datasets::Digits;
using datasets::MNIST;
using halftape::testing::DataFolder;
using halftape::testing::has;

namespace {

// `count` records; record i has the label (first + i) % 10, and its pixel p is (p + i) % 256.
std::string cifar(int first, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((first + i) % 10);
    for (int p = 0; p < 3072; ++p) bytes += static_cast<char>((p + i) % 256);
  }
  return bytes;
}

void write_cifar(const DataFolder& folder, const std::string& inner = "") {
  for (int b = 1; b <= 5; ++b)
    folder.file(inner + "data_batch_" + std::to_string(b) + ".bin", cifar(b, 2));
  folder.file(inner + "test_batch.bin", cifar(9, 3));
}

std::string idx(std::string header, const std::string& payload) { return header + payload; }

std::string said(const DataFolder& folder, CIFAR10::Mode mode = CIFAR10::Mode::kTrain) {
  return halftape::testing::message<DataError>([&] { CIFAR10 set(folder.path(), mode); });
}

}  // namespace

TEST_CASE("the embedded digits are a dataset") {
  Digits train, test(Digits::Mode::kTest);
  CHECK(train.size() == 1442);
  CHECK(test.size() == 355);
  CHECK(train.is_train());
  CHECK_FALSE(test.is_train());
  CHECK(train.images().sizes() == Shape{1442, 1, 8, 8});
  CHECK(train.images().dtype() == kFloat32);
  CHECK(train.targets().dtype() == kInt64);
  const Split split = digits();
  for (const size_t i : {size_t{0}, size_t{77}, size_t{354}}) {
    const Example<> e = test.get(i);
    CHECK(e.target.item<int64_t>() == split.test.labels[i]);
    const std::vector<float> x = e.data.to_vector<float>();
    for (size_t p = 0; p < 64; ++p)
      CHECK(x[p] == static_cast<float>(split.test.pixels[64 * i + p]) / 16.0f);
  }
}

TEST_CASE("MNIST's files are a dataset of images from 0 to 1") {
  using namespace std::string_literals;
  const DataFolder folder;
  for (const std::string part : {"train", "t10k"}) {
    folder.file(part + "-images-idx3-ubyte",
                idx("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"s, "\x00\x33\xff\x01\x02\x03"s));
    folder.file(part + "-labels-idx1-ubyte",
                idx("\0\0\x08\x01\0\0\0\x02"s, part == "train" ? "\x07\x00"s : "\x01\x02"s));
  }
  MNIST train(folder.path());
  datasets::FashionMNIST test(folder.path(), MNIST::Mode::kTest);
  CHECK(train.images().sizes() == Shape{2, 1, 1, 3});
  CHECK(train.get(0).data.to_vector<float>() == std::vector<float>{0, 0.2f, 1});
  CHECK(train.targets().to_vector() == std::vector<double>{7, 0});
  CHECK(test.targets().to_vector() == std::vector<double>{1, 2});
  CHECK(has(halftape::testing::message<DataError>([&] { MNIST set(folder.path() / "none"); }),
            "expected a folder, found nothing"));
}

TEST_CASE("CIFAR-10's records are images of three colours in the files' order") {
  DataFolder folder;
  for (const std::string inner : {"", "cifar-10-batches-bin/"}) {
    write_cifar(folder, inner);
    CIFAR10 train(folder.path()), test(folder.path(), CIFAR10::Mode::kTest);
    CHECK(train.images().sizes() == Shape{10, 3, 32, 32});
    CHECK(train.targets().to_vector() == std::vector<double>{1, 2, 2, 3, 3, 4, 4, 5, 5, 6});
    CHECK(test.targets().to_vector() == std::vector<double>{9, 0, 1});
    const std::vector<float> x = test.get(2).data.to_vector<float>();
    CHECK(test.get(2).data.sizes() == Shape{3, 32, 32});
    for (const size_t p : {size_t{0}, size_t{1023}, size_t{1024}, size_t{3071}})
      CHECK(x[p] == static_cast<float>((p + 2) % 256) / 255.0f);
  }
}

TEST_CASE("files that are not CIFAR-10's are refused with the file's name and the way out") {
  const DataFolder folder;
  CHECK(has(said(folder), "data_batch_1.bin: expected a file, found nothing"));
  write_cifar(folder);
  CHECK(said(folder).empty());
  folder.file("data_batch_3.bin", cifar(0, 2).substr(1));
  CHECK(has(said(folder), "data_batch_3.bin: expected records of 3073 bytes"));
  CHECK(has(said(folder), "found 6145 bytes"));
  CHECK(said(folder, CIFAR10::Mode::kTest).empty());
  folder.file("data_batch_3.bin", "");
  CHECK(has(said(folder), "found 0 bytes"));
  std::string bytes = cifar(0, 3);
  bytes[3073] = 10;
  folder.file("data_batch_3.bin", bytes);
  CHECK(has(said(folder), "data_batch_3.bin: record 1: expected a label 0..9, found 10"));
}

TEST_CASE("MNIST itself is a dataset where HALFTAPE_MNIST names its folder") {
  const char* folder = std::getenv("HALFTAPE_MNIST");
  if (!folder) {
    MESSAGE("HALFTAPE_MNIST is not set: the real files were not read");
    return;
  }
  MNIST train(folder), test(folder, MNIST::Mode::kTest);
  CHECK(train.images().sizes() == Shape{60000, 1, 28, 28});
  CHECK(test.size() == 10000);
  CHECK(train.images().min().item<float>() == 0);
  CHECK(train.images().max().item<float>() == 1);
  std::vector<double> sums;
  for (const size_t workers : {0, 4}) {
    auto loader = make_data_loader<samplers::SequentialSampler>(
        train.map(transforms::Stack<>()), DataLoaderOptions(512).workers(workers));
    double sum = 0;
    for (auto& batch : *loader) sum += batch.data.sum().item<double>();
    sums.push_back(sum);
  }
  CHECK(sums[0] == sums[1]);
}

TEST_CASE("pin_memory leaves batches as they are where there is no GPU") {
  auto loader = make_data_loader<samplers::SequentialSampler>(
      datasets::LabelledTensors(arange(12).view({6, 2}), arange(6)).map(transforms::Stack<>()),
      DataLoaderOptions(4).workers(1).pin_memory(true));
  for (auto& batch : *loader) {
    CHECK(batch.data.is_pinned() == has_gpu());
    CHECK(batch.target.is_pinned() == has_gpu());
    CHECK(batch.data.select(1, 0).to_vector<int64_t>() == batch.target.mul(2).to_vector<int64_t>());
  }
  const auto on_cpu = DataLoaderOptions(4).pin_memory(true).pin_memory_device(kCPU);
  CHECK_THROWS_WITH_AS(FullDataLoaderOptions{on_cpu},
                       "DataLoader: pin_memory_device is cpu; it must be a GPU", Error);
}

TEST_CASE("MNIST or Fashion-MNIST itself is read whole where HALFTAPE_MNIST names its folder") {
  const char* folder = std::getenv("HALFTAPE_MNIST");
  if (!folder) {
    MESSAGE("HALFTAPE_MNIST is not set: the real files were not read");
    return;
  }
  const data::Split split = data::mnist(folder);
  CHECK(split.train.count == 60000);
  CHECK(split.test.count == 10000);
  for (const data::Images* part : {&split.train, &split.test}) {
    CHECK(part->rows == 28);
    CHECK(part->cols == 28);
    CHECK(part->pixels.size() == static_cast<size_t>(part->count * 784));
    CHECK(part->labels.size() == static_cast<size_t>(part->count));
  }
}

TEST_CASE("images whose numbers do not fit their bytes become no tensor") {
  Images images;
  images.count = images.rows = images.cols = 2;
  images.pixels.resize(9);
  images.labels.resize(3);
  CHECK_THROWS_WITH_AS(datasets::image_tensor(images), doctest::Contains("have 8 pixels, not 9"),
                       Error);
  CHECK_THROWS_WITH_AS(datasets::label_tensor(images), doctest::Contains("3 labels for 2 images"),
                       Error);
}
