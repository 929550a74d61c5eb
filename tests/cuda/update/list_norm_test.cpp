// The norm of a list on the GPU is the CPU's, also in one launch with the check of gradients.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "updates.h"

using namespace halftape;
using namespace halftape::testing;
using namespace halftape::testing::updates;

TEST_CASE("a check and a norm in one launch leave what the two leave one after the other") {
  std::vector<Array> xs = {Array(), draw({0}, kFloat16, 1)};
  uint64_t seed = 0;
  for (const Dtype d : kFloats)
    for (const Lies lies : kWays)
      for (const Shape& shape : {Shape{}, Shape{7}, Shape{2049}, Shape{65, 67}})
        for (int i = 0; i < 4; ++i)  // more than a launch has room for
          xs.push_back(draw(shape, d, lies, ++seed));
  for (const bool divides : {false, true}) {
    for (const bool asks : {false, true}) {
      for (const int64_t bad : {-1, 2, 100, 257}) {
        for (const double by : {1.0, 0.3}) {
          CAPTURE(divides);
          CAPTURE(asks);
          CAPTURE(bad);
          struct Left {
            std::vector<Array> xs;
            Array found, first, norm, factor;
          };
          const auto run = [&](bool fused) {
            Left left{on_gpu(xs), on_gpu(one(0)), on_gpu(full({1}, -1, kInt64, kCPU)),
                      full({}, -1, kFloat64, kCUDA), full({}, -1, kFloat64, kCUDA)};
            if (bad >= 0) backend(kCUDA).fill(left.xs[static_cast<size_t>(bad)], -kInf);
            const GradientCheck check{left.xs, on_gpu(one(by)), asks ? left.found : Array(),
                                      asks ? left.first : Array(), divides};
            std::vector<Array> defined(left.xs.begin() + 1, left.xs.end());
            const ListNorm n{.xs = defined, .most = 3, .norm = left.norm, .factor = left.factor};
            if (fused) {
              backend(kCUDA).run(check, n);
            } else if (asks || divides) {
              backend(kCUDA).check(check);
              backend(kCUDA).list_norm(n);
            } else {
              backend(kCUDA).list_norm(n);
            }
            return left;
          };
          const Left unfused = run(false), fused = run(true);
          const auto same = [](const Array& a, const Array& b) {
            const double x = read_double(a), y = read_double(b);
            CHECK((x == y || (std::isnan(x) && std::isnan(y))));
          };
          same(fused.norm, unfused.norm);
          same(fused.factor, unfused.factor);
          same(fused.found, unfused.found);
          same(fused.first, unfused.first);
          std::string text;
          for (size_t i = 1; i < xs.size(); ++i)
            text += differ_on_gpu(fused.xs[i], on_cpu(unfused.xs[i]));
          CHECK(text == "");
          CHECK(read_int64(fused.first) == (asks ? bad : -1));
          CHECK(std::isfinite(read_double(fused.norm)) == (bad < 0));
        }
      }
    }
  }
}

TEST_CASE(
    "the norm of a list and what clips it are the CPU's, and the same bits for every layout") {
  const std::vector<Shape> shapes = {{}, {0}, {1}, {7}, {256}, {3, 5}, {2049}, {40, 70}, {5000}};
  for (const double p : {0.5, 1.0, 2.0, 3.0, kInf}) {
    for (const Dtype d : kFloats) {
      for (const Lies lies : kWays) {
        for (const int copies : {1, 12}) {  // more than a launch has room for
          CAPTURE(p);
          CAPTURE(d);
          CAPTURE(static_cast<int>(lies));
          std::vector<Array> xs{Array()};
          for (int i = 0; i < copies; ++i)
            for (const Shape& shape : shapes) xs.push_back(draw(shape, d, lies, xs.size()));
          const Dtype wide = d == kFloat64 ? d : kFloat32;
          const auto norm_of = [&](const std::vector<Array>& arrays, Device device) {
            ListNorm n{.xs = arrays,
                       .p = p,
                       .unit = d == kFloat64 ? full({}, 1.5, kFloat64, device) : Array(),
                       .most = 3,
                       .norm = full({}, -1, wide, device),
                       .factor = full({}, -1, wide, device)};
            backend(device).list_norm(n);
            return std::pair(read_double(n.norm), read_double(n.factor));
          };
          const auto here = norm_of(xs, kCPU), there = norm_of(on_gpu(xs), kCUDA);
          double sum = 0;
          for (const Array& x : xs) {
            if (!x.defined()) continue;
            const Array y = x.to(kFloat64).to_contiguous();
            for (const double v : std::span(y.data<double>(), static_cast<size_t>(y.numel())))
              sum = p == kInf ? std::max(sum, std::abs(v)) : sum + std::pow(std::abs(v), p);
          }
          const double right = p == kInf ? sum : std::pow(sum, 1 / p);
          const double eps = d == kFloat64 ? 1e-13 : 1.2e-7;
          for (const auto& found : {here, there}) {
            const double norm = found.first, factor = found.second;
            CHECK(std::abs(norm - right) <= eps * right);
            CHECK(std::abs(factor - std::min(1.0, 3 / (right + 1e-6))) <= 2 * eps);
          }
        }
      }
    }
  }
}

TEST_CASE("a norm that is not finite changes nothing, on the GPU neither") {
  for (const double bad : {kInf, -kInf, kNaN}) {
    for (const double p : {1.0, 2.0, kInf}) {
      const Array x = draw({3000}, kFloat32, 5);
      set(x, 2990, bad);
      for (const Device device : {Device(kCPU), Device(kCUDA)}) {
        const Array there = x.to(device), norm = full({}, 0, kFloat32, device),
                    factor = full({}, 0, kFloat32, device);
        backend(device).list_norm({{&there, 1}, p, {}, 1, norm, factor});
        CHECK(std::isnan(read_double(norm)) == std::isnan(bad));
        CHECK_FALSE(std::isfinite(read_double(norm)));
        CHECK(read_double(factor) == 1);
      }
    }
  }
  const Array norm = full({}, 5, kFloat32, kCUDA), factor = full({}, 5, kFloat32, kCUDA);
  backend(kCUDA).list_norm({{}, 2, {}, 1, norm, factor});
  CHECK(read_double(norm) == 0);
  CHECK(read_double(factor) == 1);
}
