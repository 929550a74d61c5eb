// Image classification sets as datasets: MNIST and its like, CIFAR-10, and the embedded digits.
//
// Each gives images in float32 from 0 to 1 and labels in int64, all read at once. Copies, those of
// a loader's workers too, share the tensors.
#pragma once
#include <filesystem>
#include <utility>

#include "halftape/io/data/dataset.h"
#include "halftape/io/formats/idx.h"

namespace halftape::data {

/// The UCI handwritten digits that scikit-learn carries (`load_digits`), embedded: 8x8 pixels of
/// the 17 levels 0..16, ten classes, 1,442 images to train on and 355 to test on. The split is
/// fixed: within each class, in the file's order, every fifth sample is for testing; both parts
/// keep the file's order. The 13 writers are not kept apart, so the test accuracy says nothing
/// about a new writer's hand. E. Alpaydin and C. Kaynak, CC BY 4.0, doi:10.24432/C50P49; see
/// DIGITS_LICENSE.txt.
Split digits();

namespace datasets {

/// Images as (count, 1, rows, cols) of float32, divided by max_value.
Tensor image_tensor(const Images& images);
/// Labels as (count,) of int64.
Tensor label_tensor(const Images& images);

/// The base of the sets below. images(): (count, channels, rows, cols); targets():
/// (count,).
template <class Self>
class ImageDataset : public LabelledDataset<Self> {
 public:
  enum class Mode { kTrain, kTest };
  bool is_train() const noexcept { return mode_ == Mode::kTrain; }
  const Tensor& images() const { return this->data(); }

 protected:
  ImageDataset(const Images& images, Mode mode)
      : ImageDataset({image_tensor(images), label_tensor(images)}, mode) {}
  ImageDataset(std::pair<Tensor, Tensor> images_and_targets, Mode mode)
      : LabelledDataset<Self>(std::move(images_and_targets.first),
                              std::move(images_and_targets.second)),
        mode_(mode) {}

 private:
  Mode mode_;
};

/// The four IDX files of MNIST, plain or gzipped, from the folder `root`: see mnist() in
/// io/formats/idx.h for names, and for the DataError that is thrown when one is missing or damaged.
/// 28x28, grey.
class MNIST : public ImageDataset<MNIST> {
 public:
  explicit MNIST(const std::filesystem::path& root, Mode mode = Mode::kTrain);
};

/// Fashion-MNIST: the same file names as MNIST, in another folder. Xiao et al. 2017,
/// arXiv:1708.07747.
using FashionMNIST = MNIST;

/// CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin for training, test_batch.bin for
/// the test, in `root` or in its folder cifar-10-batches-bin. 32x32, red, green, blue. Throws
/// DataError for a file that is missing, is not of whole records (3,073 bytes), or has a label
/// above 9. Krizhevsky 2009, "Learning multiple layers of features from tiny images".
class CIFAR10 : public ImageDataset<CIFAR10> {
 public:
  explicit CIFAR10(const std::filesystem::path& root, Mode mode = Mode::kTrain);
};

/// The digits in the library, see digits(): 1,442 for training, 355 for the test. 8x8, grey.
class Digits : public ImageDataset<Digits> {
 public:
  explicit Digits(Mode mode = Mode::kTrain);
};

}  // namespace datasets
}  // namespace halftape::data
