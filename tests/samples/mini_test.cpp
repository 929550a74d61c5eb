// samples/mini/mini.cpp, which knows nothing of the library, against the library: its halves, its
// law of the scale, its gradients.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <random>

#define main mini_main  // of two in one program, this one is not called
#include "../../samples/mini/mini.cpp"
#undef main

using namespace halftape;

TEST_CASE("mini: every half becomes the float that it is") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    mini::Half half{0.f};
    half.bits = static_cast<uint16_t>(bits);
    const auto expected = static_cast<float>(Half::from_bits(half.bits));
    REQUIRE(bit_cast<uint32_t>(static_cast<float>(half)) == bit_cast<uint32_t>(expected));
  }
}

TEST_CASE(
    "mini: floats are rounded to the same half, at every half, between any two, and anywhere") {
  const auto same = [](float value) { return mini::Half{value}.bits == Half(value).bits; };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto here = static_cast<float>(Half::from_bits(static_cast<uint16_t>(bits)));
    const auto next = static_cast<float>(Half::from_bits(static_cast<uint16_t>(bits + 1)));
    const float middle = std::isfinite(next) ? here / 2 + next / 2 : std::copysign(65520.f, here);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float value :
         {here, middle, std::nextafter(middle, infinity), std::nextafter(middle, -infinity)})
      REQUIRE(same(value));
  }
  std::mt19937 random{1};
  for (int i = 0; i < 1'000'000; ++i)
    REQUIRE(same(bit_cast<float>(static_cast<uint32_t>(random()))));
}

TEST_CASE("mini: its scale moves as the library's in 10,000 random series") {
  std::mt19937 random{2};
  const auto number = [&](double from, double to) {
    return from + (to - from) * static_cast<double>(random()) / 0x1p32;
  };
  int grown = 0, fallen = 0, kept = 0;
  for (int series = 0; series < 10'000; ++series) {
    const ScaleLaw law{.growth_factor = number(1, 4),
                       .backoff_factor = number(0.1, 1),
                       .growth_interval = 1 + static_cast<int>(random() % 5)};
    ScaleState ours{.scale = static_cast<float>(std::exp2(number(-149, 127.9)))};
    mini::GradScaler theirs{.growth_interval = static_cast<int>(law.growth_interval),
                            .growth_factor = law.growth_factor,
                            .backoff_factor = law.backoff_factor,
                            .factor = ours.scale};
    for (int step = 0; step < 50; ++step) {
      const float before = ours.scale;
      theirs.found_inf = random() % 4 == 0;
      ours = next(ours, theirs.found_inf, law);
      theirs.update();
      REQUIRE(theirs.factor == ours.scale);
      REQUIRE(theirs.growth_tracker == ours.growth_tracker);
      ++(ours.scale > before ? grown : ours.scale < before ? fallen : kept);
    }
  }
  CHECK(grown > 1000);
  CHECK(fallen > 1000);
  CHECK(kept > 1000);
}

TEST_CASE("mini: its gradients are the library's") {
  std::mt19937 random{3};
  const std::vector<mini::Tensor> theirs = mini::parameters(random);
  const mini::Batch batch = mini::digits().front();
  mini::backward(mini::cross_entropy(mini::forward(theirs, batch.images), batch.labels));

  const auto tensor_of = [](const mini::Matrix& m) {
    return tensor(std::vector<double>(m.data.begin(), m.data.end()), kFloat32)
        .reshape({m.rows, m.cols});
  };
  std::vector<Tensor> ours;
  for (const mini::Tensor& p : theirs) ours.push_back(tensor_of(p->value.load()).requires_grad_());
  Tensor x = tensor_of(batch.images);
  for (size_t p = 0; p < ours.size(); p += 2) {
    if (p > 0) x = relu(x);
    x = matmul(x, ours[p]) + ours[p + 1];
  }
  const std::vector<int64_t> labels(batch.labels.begin(), batch.labels.end());
  nn::functional::cross_entropy(x, tensor(labels, kInt64)).backward();
  for (size_t p = 0; p < ours.size(); ++p) {
    const double size = ours[p].grad().abs().max().item<double>();
    const double error =
        (ours[p].grad() - tensor_of(theirs[p]->grad->load())).abs().max().item<double>();
    CAPTURE(p);
    CHECK(size > 1e-3);
    CHECK(error < 1e-5 * size);
  }
}
