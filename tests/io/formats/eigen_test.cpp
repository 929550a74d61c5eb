// Tensors and Eigen's matrices share their elements, in both directions.
#include "halftape/io/formats/eigen.h"

#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {
const TensorOptions kFloats = TensorOptions(kFloat32).device(kCPU);
const TensorOptions kDoubles = TensorOptions(kFloat64).device(kCPU);
}  // namespace

TEST_CASE("a map reads and writes the elements of a tensor of any strides") {
  const Tensor all = arange(12, kFloats).reshape({3, 4});
  const Tensor turned = all.t(), part = all.slice(0, 1).slice(1, 0, 4, 2);
  for (const Tensor& t : {all, turned, part}) {
    auto m = eigen_matrix<float>(t);
    REQUIRE(m.rows() == t.size(0));
    REQUIRE(m.cols() == t.size(1));
    for (int64_t i = 0; i < t.size(0); ++i)
      for (int64_t j = 0; j < t.size(1); ++j) CHECK(m(i, j) == t[i][j].item<float>());
    CHECK(static_cast<const void*>(m.data()) == t.const_data_ptr());
  }
  eigen_matrix<float>(part)(1, 1) = 42;
  CHECK(all[2][2].item<float>() == 42);

  const Tensor column = arange(12, kDoubles).reshape({3, 4}).select(1, 1);
  auto v = eigen_vector<double>(column);
  CHECK(v.sum() == 1 + 5 + 9);
  v *= 2;
  CHECK(column.equal(tensor({2.0, 10.0, 18.0}, kDoubles)));
}

TEST_CASE("a product by Eigen is the one of matmul") {
  const Tensor a = arange(12, kDoubles).reshape({3, 4}), b = arange(20, kDoubles).reshape({4, 5});
  const Tensor c = zeros({3, 5}, kDoubles);
  eigen_matrix<double>(c) = eigen_matrix<double>(a) * eigen_matrix<double>(b);  // whole numbers
  CHECK(c.equal(a.mm(b)));
}

TEST_CASE("a tensor reads and writes the elements of a matrix, map or block") {
  Eigen::MatrixXd m(2, 3);  // column-major
  m << 1, 2, 3, 4, 5, 6;
  const Tensor t = from_eigen(m);
  CHECK(t.equal(tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, kDoubles)));
  CHECK(t.strides() == Strides{1, 2});
  t.mul_(2);
  CHECK(m(1, 2) == 12);
  auto block = m.block(0, 1, 2, 2);
  CHECK(from_eigen(block).equal(t.slice(1, 1)));
  auto row = m.row(1);
  CHECK(from_eigen(row).equal(t[1]));
  Eigen::Vector3f v(1, 2, 3);
  CHECK(from_eigen(v).equal(tensor({1.0f, 2.0f, 3.0f}, kFloats)));
  Eigen::Matrix<float, 2, 2, Eigen::RowMajor> fixed;
  fixed << 1, 2, 3, 4;
  CHECK(from_eigen(fixed).strides() == Strides{2, 1});
  Eigen::MatrixXf none(0, 3);
  CHECK(from_eigen(none).sizes() == Shape{0, 3});
}

TEST_CASE("a tensor may take a matrix over, and there and back is the same memory") {
  Tensor t;
  const double* data = nullptr;
  {
    Eigen::MatrixXd m = Eigen::MatrixXd::Constant(50, 40, 3);
    data = m.data();
    t = from_eigen(std::move(m));
  }
  CHECK(t.const_data_ptr<double>() == data);
  CHECK(t.eq(3).all().item<bool>());
  const Tensor part = t.slice(0, 7, 9);
  t = Tensor();
  CHECK(part.sum().item<double>() == 3 * 2 * 40);  // the memory is there as long as a view is
  CHECK(eigen_matrix<double>(part).data() == data + 7);
  const Tensor small = from_eigen(Eigen::Vector2f(1, 2));  // moved with its numbers
  CHECK(small.equal(tensor({1.0f, 2.0f}, kFloats)));
  const int64_t live = Buffer::live_count();
  { const Tensor gone = from_eigen(Eigen::MatrixXf(Eigen::MatrixXf::Ones(3, 3))); }
  CHECK(Buffer::live_count() == live);
}

TEST_CASE("what Eigen cannot compute with is refused with the way out") {
  const auto matrix = [](const Tensor& t) {
    return message([&] { (void)eigen_matrix<float>(t); });
  };
  const Tensor t = ones({2, 3}, kFloats);
  CHECK(matrix(t).empty());
  CHECK(has(matrix(Tensor()), "eigen_matrix: the tensor is undefined"));
  CHECK(has(matrix(t.to(kFloat64)), "elements of float32 were asked for, the tensor has float64"));
  CHECK(has(matrix(t.to(kBFloat16)), "call to(float32) before"));
  CHECK(has(matrix(t[0]), "expected 2 dimensions, found the shape [3]"));
  CHECK(has(matrix(ones({3}, kFloats).expand({2, 3})), "call contiguous() before"));
  CHECK(has(matrix(arange(4, kFloats).as_strided({3, 2}, {1, 1})), "call contiguous() before"));
  CHECK(has(matrix(ones({2, 3}, kFloats).requires_grad_()), "call detach() before"));
  CHECK(has(message([&] { (void)eigen_vector<float>(t); }), "call flatten() before"));
  CHECK(matrix(zeros({0, 3}, kFloats)).empty());
  CHECK(matrix(ones({1, 3}, kFloats).expand({1, 3})).empty());
  static_assert(!std::is_invocable_v<decltype([](auto&& x) -> decltype(eigen_matrix<float>(
                                                               std::forward<decltype(x)>(x))) {
                                       return eigen_matrix<float>(std::forward<decltype(x)>(x));
                                     }),
                                     Tensor&&>);
}
