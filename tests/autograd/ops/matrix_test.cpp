// Matrix products beyond the op table: strict shapes, dtypes, beta of 0, one rounding, errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/native_bfloat16.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using testing::differ;
using testing::kNaN;
using testing::same_bits;

namespace {

using List = std::vector<double>;

Tensor matrix(int64_t rows, int64_t columns, Dtype dtype = kFloat64) {
  return arange(1.0, 1.0 + static_cast<double>(rows * columns), 1.0, dtype)
      .reshape({rows, columns});
}

}  // namespace

TEST_CASE("the strict products take the shapes of their names only") {
  const Tensor v = ones({3}), m = ones({2, 3}), n = ones({3, 4}), b = ones({2, 2, 3}),
               c = ones({2, 3, 4});
  CHECK_REFUSED(mm(b, n), "mm: the first factor");
  CHECK_REFUSED(mm(m, v), "mm: the second factor");
  CHECK_REFUSED(mm(m, m), ": 3 columns against 2 rows");
  CHECK_REFUSED(bmm(m, c), "bmm: the first factor");
  CHECK_REFUSED(bmm(b, ones({1, 3, 4})), "bmm: batches of 2 and 1 matrices");
  CHECK_REFUSED(bmm(b, b), ": 3 columns against 2 rows");
  CHECK_REFUSED(mv(v, m), "mv: the first factor");
  CHECK_REFUSED(mv(m, n), "mv: the second factor");
  CHECK_REFUSED(mv(m, ones({2})), "3 columns against 2 rows");
  CHECK_REFUSED(dot(m, v), "dot: the first factor");
  CHECK_REFUSED(dot(v, ones({4})), "dot: vectors of 3 and 4 elements");
  CHECK_REFUSED(dot(v, ones({1})), "dot: vectors of 3 and 1 elements");
  CHECK_REFUSED(vdot(v, tensor(1.0f)), "dot: the second factor");
  CHECK_REFUSED(outer(m, v), "outer: the first factor");
  CHECK_REFUSED(inner(m, ones({2})), "differ in their last dimension");
  CHECK_REFUSED(trace(v), "trace: the input");
  CHECK_REFUSED(trace(b), "trace: the input");
  CHECK_REFUSED(chain_matmul({}), "chain_matmul: no matrices");
  CHECK_REFUSED(chain_matmul({m, m}), "has 3 columns, factor 1");
  CHECK_REFUSED(chain_matmul({m, v}), "is not a matrix");
  CHECK_REFUSED(matrix_power(m, 2), "matrix_power:");
  CHECK_REFUSED(matrix_power(ones({2, 2}), -1), "the power -1 is negative");
  CHECK_REFUSED(kron(ones({1, 1, 1, 1, 1, 1}), v), "; at most 5");
}

TEST_CASE("addmm and the like check input and factors") {
  const Tensor v = ones({3}), m = ones({2, 3}), n = ones({3, 4}), b = ones({2, 2, 3}),
               c = ones({2, 3, 4});
  CHECK_REFUSED(addmm(ones({3, 4}), m, n), "addmm: input");
  CHECK_REFUSED(addmm(ones({1, 2, 4}), m, n), "addmm: input");
  CHECK_REFUSED(addmm(v, m, v), "addmm: the second factor");
  CHECK_REFUSED(addmm(v, n, m), ": 4 columns against 2 rows");
  CHECK_REFUSED(addmm(Tensor(), m, n), "tensor number 1 is undefined");
  CHECK_REFUSED(addmv(ones({4}), m, v), "addmv: input");
  CHECK_REFUSED(addmv(v, v, v), "addmv: the first factor");
  CHECK_REFUSED(addr(m, v, v), "does not broadcast to the product");
  CHECK_REFUSED(addr(m, m, v), "addr: the first factor");
  CHECK_REFUSED(baddbmm(v, b, c), "baddbmm: input");
  CHECK_REFUSED(baddbmm(v, m, n), "baddbmm: the first factor");
  CHECK_REFUSED(baddbmm(v, b, ones({3, 3, 4})), "batches of 2 and 3");
  CHECK_REFUSED(addbmm(v, b, c), "addbmm: input");
  CHECK_REFUSED(addbmm(v, b, b), ": 3 columns against 2 rows");
}

TEST_CASE("products take one floating dtype, and say so") {
  const Tensor f = ones({2, 2}), d = ones({2, 2}, kFloat64), h = ones({2, 2}, kFloat16),
               i = ones({2, 2}, kInt64);
  CHECK_REFUSED(mm(f, d), "mm: dtypes float32 and float64");
  CHECK_REFUSED(mm(i, i), "mm: dtypes int64 and int64");
  CHECK_REFUSED(bmm(ones({1, 2, 2}), ones({1, 2, 2}, kFloat16)), "bmm: dtypes float32 and float16");
  CHECK_REFUSED(addmm(d, f, f), "addmm: dtypes float64 and float32");
  CHECK_REFUSED(addmm(f, f, h), "addmm: dtypes float32 and float16");
  CHECK_REFUSED(dot(f[0], d[0]), "dot: dtypes float32 and float64");
  CHECK_REFUSED(mv(f, h[0]), "mv: dtypes float32 and float16");
  CHECK_REFUSED(einsum("ij,jk", {f, h}), "einsum: dtypes float32 and float16");
  CHECK_REFUSED(tensordot(f, h, 0, 0), "tensordot: dtypes float32 and float16");
  CHECK_REFUSED(bilinear(f, f, ones({1, 2, 2}, kFloat16)), "bilinear: dtypes float32 and float16");
  // These take integers.
  CHECK(einsum("ii->i", {matrix(2, 2).to(kInt64)}).to_vector() == List{1, 4});
  CHECK(einsum("ij->", {i}).dtype() == kInt64);
  CHECK(trace(matrix(2, 3).to(kInt32)).dtype() == kInt64);
  CHECK(outer(tensor({1, 2}), tensor({3, 4})).to_vector() == List{3, 4, 6, 8});
  CHECK(kron(tensor({1, 2}), tensor({3, 4})).to_vector() == List{3, 4, 6, 8});
}

TEST_CASE("with beta 0 the input is not read, with alpha 0 the product is") {
  const Tensor none = full({2, 2}, kNaN, kFloat64), m = matrix(2, 2);
  CHECK(addmm(none, m, m, 0).to_vector() == List{7, 10, 15, 22});
  CHECK(addmv(none[0], m, m[0], 0).to_vector() == List{5, 11});
  CHECK(addr(none, m[0], m[0], 0).to_vector() == List{1, 2, 2, 4});
  CHECK(baddbmm(none, m.unsqueeze(0), m.unsqueeze(0), 0).to_vector() == List{7, 10, 15, 22});
  CHECK(addbmm(none, m.unsqueeze(0), m.unsqueeze(0), 0).to_vector() == List{7, 10, 15, 22});
  CHECK(differ(addmm(m, none, m, 1, 0), List(4, kNaN), {}) == "");
  Tensor y = none.clone();
  CHECK(y.addmm_(m, m, 0).to_vector() == List{7, 10, 15, 22});
}

TEST_CASE("in half, beta·input + alpha·product is rounded once") {
  const testing::NativeBFloat16 off(false);
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor a = (matrix(5, 7, kFloat32) / 9.0).to(d), b = (matrix(7, 3, kFloat32) / 7.0).to(d),
                 c = (matrix(5, 3, kFloat32) / 3.0).to(d);
    const Tensor wide = addmm(c.to(kFloat32), a.to(kFloat32), b.to(kFloat32), 0.3, 0.7);
    CHECK(same_bits(addmm(c, a, b, 0.3, 0.7), wide.to(d)));
    // So is the gradient of the scaled product.
    const Tensor x = a.clone().requires_grad_(), g = c;
    const Tensor dx = autograd::grad({addmm(c, x, b, 1, 0.7)}, {x}, {g})[0];
    CHECK(same_bits(dx,
                    addmm(zeros({}, kFloat32), g.to(kFloat32), b.to(kFloat32).t(), 0, 0.7).to(d)));
    // The sum over the batch, 70·1024, is beyond float16; half of it is not.
    const Tensor big = full({70, 1, 1}, 1024, d), one = full({70, 1, 1}, 1, d);
    CHECK(addbmm(zeros({1, 1}, d), big, one, 1, 0.5).item() == 70 * 512);
  }
}

TEST_CASE("addmm is one product, without calls for the scales or the sum") {
  const Tensor c = ones({4}), a = ones({3, 2}), b = ones({2, 4});
  testing::TracingBackend trace;
  addmm(c, a, b, 0.5, 2);
  CHECK(trace.count("gemm") == 1);
  CHECK(trace.calls.size() == 2);  // the other one copies the input to the result
  trace.clear();
  addbmm(c, ones({2, 3, 2}), ones({2, 2, 4}));
  CHECK(trace.count("gemm") == 1);
}

TEST_CASE("addmm computes gradients only for inputs that want one") {
  const Tensor a = ones({3, 2}).requires_grad_(), b = ones({2, 4}), c = ones({4});
  const Tensor y = addmm(c, a, b);
  testing::TracingBackend trace;
  autograd::grad({y}, {a}, {ones({3, 4})});
  CHECK(trace.count("gemm") == 1);
  CHECK(trace.count("reduce") == 0);
}

TEST_CASE("einsum refuses a malformed equation, and one that does not fit the tensors") {
  const Tensor m = ones({2, 3}), v = ones({3});
  CHECK_REFUSED(einsum("ij", {}), "without tensors");
  CHECK_REFUSED(einsum("ij,jk", {m}), "has 2 inputs, but 1 tensors were given");
  CHECK_REFUSED(einsum("i", {m}), "names 1 dimensions of input 0");
  CHECK_REFUSED(einsum("ijk", {m}), "names 3 dimensions of input 0");
  CHECK_REFUSED(einsum("...ijk", {m}), "names 3 dimensions of input 0");
  CHECK_REFUSED(einsum("i1", {m}), "'1' in \"i1\" is no letter");
  CHECK_REFUSED(einsum("..i", {m}), "dots stand in threes");
  CHECK_REFUSED(einsum("...i...", {m}), "dots stand in threes, and once");
  CHECK_REFUSED(einsum("ij->ijk", {m}), "'k' of the result in \"ij->ijk\" is in no input");
  CHECK_REFUSED(einsum("ij->ii", {m}), "'i' occurs twice in the result");
  CHECK_REFUSED(einsum("ii", {m}), "'i' is 2 and 3 in input 0");
  CHECK_REFUSED(einsum("ij,i->j", {m, v}), "'i' is 2 before and 3 in input 1");
  CHECK_REFUSED(einsum("ij,j", {m, Tensor()}), "tensor number 2 is undefined");
}

TEST_CASE("einsum that only permutes one input is a view") {
  const Tensor m = matrix(2, 3);
  CHECK(einsum("ij->ji", {m}).array().buffer() == m.array().buffer());
  CHECK(einsum("ij->ji", {m}).to_vector() == List{1, 4, 2, 5, 3, 6});
}

TEST_CASE("einsum names dimensions in alphabetical order, capitals first") {
  const Tensor m = matrix(2, 3);
  CHECK(einsum("aB", {m}).sizes() == Shape{3, 2});
  CHECK(einsum("b...", {ones({4, 2, 3})}).sizes() == Shape{2, 3, 4});
  CHECK(einsum("...->...", {m}).sizes() == Shape{2, 3});
}

TEST_CASE("under autocast einsum, chain_matmul and addmm run in the lower dtype") {
  const Tensor a = ones({2, 3}), b = ones({3, 2});
  const amp::autocast region(get_default_device().type(), kFloat16);
  CHECK(einsum("ij,jk->ik", {a, b}).dtype() == kFloat16);
  CHECK(einsum("ij->", {a}).dtype() == kFloat16);
  CHECK(chain_matmul({a, b, a}).dtype() == kFloat16);
  CHECK(addmm(ones({2}), a, b).dtype() == kFloat16);
  CHECK(dot(a[0], a[1]).dtype() == kFloat32);
  CHECK(dot(a[0].to(kFloat16), a[1].to(kFloat16)).dtype() == kFloat16);
  CHECK(dot(a[0].to(kFloat16), a[1]).dtype() == kFloat32);
  CHECK(trace(a).dtype() == kFloat32);
  Tensor y = ones({2, 2});
  CHECK(y.addmm_(a, b).dtype() == kFloat32);  // in place the dtype stays
  CHECK_REFUSED(y.addmm_(a, b.to(kFloat16)), "addmm: dtypes float32 and float16");
}

TEST_CASE("in-place products change nothing when refused, and continue the history") {
  Tensor y = ones({2, 2}, kFloat64);
  CHECK_REFUSED(y.addmm_(matrix(2, 3), matrix(2, 3)), "3 columns against 2 rows");
  CHECK_REFUSED(y[0].addmm_(matrix(2, 2), matrix(2, 2)), "does not fit the tensor");
  CHECK(y.to_vector() == List(4, 1));
  const Tensor a = matrix(2, 2).requires_grad_();
  y.addmm_(a, matrix(2, 2)).addr_(ones({2}, kFloat64), ones({2}, kFloat64));
  CHECK(y.to_vector() == List{9, 12, 17, 24});
  CHECK(autograd::grad({sum(y)}, {a})[0].to_vector() == List{3, 7, 3, 7});
  Tensor parameter = matrix(2, 2).requires_grad_();
  CHECK_REFUSED(parameter.addmm_(a, a), "a leaf Variable that requires grad");
}

TEST_CASE("chains are multiplied in the cheapest order") {
  // (a·b)·c costs 10·1·10 + 10·10·1, a·(b·c) 1·10·1 + 10·1·1.
  const Tensor a = ones({10, 1}), b = ones({1, 10}), c = ones({10, 1});
  testing::TracingBackend trace;
  const Tensor y = chain_matmul({a, b, c});
  CHECK(y.sizes() == Shape{10, 1});
  CHECK(y[0].item() == 10);
  REQUIRE(trace.allocations.size() >= 1);
  CHECK(trace.allocations[0] == sizeof(float));
  CHECK(chain_matmul({a}).const_data_ptr() != a.const_data_ptr());
}

TEST_CASE("matrix_power multiplies by repeated squaring") {
  const Tensor m = tensor({1.0, 1.0, 0.0, 1.0}).reshape({2, 2});
  CHECK(matrix_power(m, 0).to_vector() == List{1, 0, 0, 1});
  CHECK(matrix_power(m, 1).to_vector() == List{1, 1, 0, 1});
  CHECK_FALSE(matrix_power(m, 1).array().buffer() == m.array().buffer());
  CHECK(matrix_power(m, 13).to_vector() == List{1, 13, 0, 1});
  testing::TracingBackend trace;
  matrix_power(m, 8);
  CHECK(trace.count("gemm") == 3);
}

TEST_CASE("tensordot and bilinear say which dimension does not fit") {
  const Tensor a = ones({2, 3}), b = ones({3, 4});
  CHECK_REFUSED(tensordot(a, b, 0, 0), "tensordot: dimension 0 of");
  CHECK_REFUSED(tensordot(a, b, {0, 1}, 0), "2 and 1 dimensions to sum over");
  CHECK_REFUSED(tensordot(a, a, {1, -1}, {1, 1}), "dimension -1 of");
  CHECK_REFUSED(tensordot(a, b, 2, 0), "tensordot: dimension 2 is out of range");
  CHECK(tensordot(a, b, 1, 0).sizes() == Shape{2, 4});
  namespace F = nn::functional;
  CHECK_REFUSED(F::bilinear(a, a, ones({5, 3})), "bilinear: weight");
  CHECK_REFUSED(F::bilinear(a, b, ones({5, 3, 4})), "differ in dimension 0");
  CHECK_REFUSED(F::bilinear(a, a, ones({5, 3, 4})), "expects (…, 3) and (…, 4)");
  CHECK_REFUSED(F::bilinear(a, a, ones({5, 3, 3}), ones({4})), "bilinear: bias");
  CHECK(F::bilinear(a, ones({2, 4}), ones({5, 3, 4}), ones({5}))[0][0].item() == 13);
}
