// A small network learns one picture: it maps the place of a pixel to its colour.
//
//     learn_image                            a picture made here: some seconds
//     learn_image --image photo.png          any 8-bit PNG, or PPM or PGM; grey or coloured
//
// Writes the picture and what the network learnt, side by side, to --out, also when Ctrl-C stops
// it, and ends with "PSNR … dB". Exit code 2: wrong arguments, device or picture; the message says
// what to do.
//
// The coordinates become sines and cosines of many frequencies; otherwise the network learns a
// blur: Tancik et al. 2020, "Fourier Features Let Networks Learn High Frequency Functions in Low
// Dimensional Domains", arXiv:2006.10739.
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <optional>

#include "program.h"
#include "progress_line.h"

using namespace halftape;
namespace F = halftape::nn::functional;

namespace {

struct Arguments {
  sample::Machine machine;
  sample::Precision precision;
  std::optional<std::string> image;
  std::string out = "learn_image.png";
  int64_t steps = 1000, batch_size = 2048, hidden = 128, frequencies = 64;
  double lr = 5e-3, deviation = 8;
};

void declare(CLI::App& app, Arguments& a) {
  const auto size = sample::between(int64_t{1}, int64_t{1} << 24);
  a.machine.add_options(app);
  a.precision.add_option(app);
  app.add_option("--image", a.image, "8-bit PNG, PPM or PGM; without it: a picture made here");
  app.add_option("--out", a.out, ".png, .ppm or .pgm to write")->capture_default_str();
  app.add_option("--steps", a.steps)->check(size)->capture_default_str();
  app.add_option("--batch-size", a.batch_size, "pixels per step")
      ->check(size)
      ->capture_default_str();
  app.add_option("--hidden", a.hidden, "width of the layers")->check(size)->capture_default_str();
  app.add_option("--frequencies", a.frequencies, "sines and cosines of as many directions")
      ->check(size)
      ->capture_default_str();
  app.add_option("--deviation", a.deviation, "how high the frequencies are, in waves per picture")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", a.lr)->check(CLI::PositiveNumber)->capture_default_str();
}

/// A sun with rays over hills: smooth parts, edges and fine lines. (3, size, size).
Tensor made_picture(int64_t size) {
  const Tensor t = (arange(0, size).to(kFloat32) + 0.5) / static_cast<double>(size);
  const Tensor x = t.unsqueeze(0).expand({size, size}), y = t.unsqueeze(1).expand({size, size});
  const Tensor dx = x - 0.68, dy = y - 0.3, r = (dx * dx + dy * dy).sqrt();
  const Tensor rays = (atan2(dy, dx) * 24).cos() * (-r * 4).exp() * 0.35;
  Tensor picture =
      stack({0.55 + 0.4 * y + rays, 0.65 + 0.1 * y + rays, 0.95 - 0.3 * y + rays * 0.3});
  const auto paint = [&](const Tensor& where_, double red, double green, double blue,
                         const Tensor& shade) {
    picture = where(where_, tensor({red, green, blue}, kFloat32).view({3, 1, 1}) * shade, picture);
  };
  paint(r < 0.13, 1, 0.9, 0.35, ones({size, size}));
  for (int i = 0; i < 3; ++i) {
    const Tensor hill = 0.55 + 0.13 * i + 0.07 * (x * (7.0 + 4 * i) + 2.0 * i).sin();
    const Tensor stripes = 0.8 + 0.2 * ((y - hill) * 150).sin();
    paint(y > hill, 0.45 - 0.12 * i, 0.62 - 0.1 * i, 0.3 - 0.06 * i, stripes);
  }
  return picture.clamp(0, 1);
}

/// x: (N, 2) in 0…1 → (N, 2 · frequencies).
Tensor encoded(const Tensor& x, const Tensor& directions) {
  const Tensor angle = x.matmul(directions) * (2 * std::numbers::pi);
  return cat({angle.sin(), angle.cos()}, 1);
}

void run(const Arguments& a) {
  const Device device = a.machine.prepare();
  Tensor picture = a.image ? image::load(*a.image) : made_picture(128);
  if (picture.size(0) == 2 || picture.size(0) == 4)  // without alpha
    picture = picture.slice(0, 0, picture.size(0) - 1);
  const int64_t channels = picture.size(0), height = picture.size(1), width = picture.size(2);
  sample::check_picture(a.out, channels);
  if (a.image) sample::check_other_file("--out", a.out, "--image", *a.image);

  // Every pixel's place and colour, and its place encoded. (H · W, …)
  const auto steps_of = [](int64_t n) {
    return (arange(0, n).to(kFloat32) + 0.5) / static_cast<double>(n);
  };
  const Tensor places = stack({steps_of(height).unsqueeze(1).expand({height, width}).flatten(),
                               steps_of(width).unsqueeze(0).expand({height, width}).flatten()},
                              1);
  const Tensor inputs = encoded(places, randn({2, a.frequencies}) * a.deviation).to(device);
  const Tensor colours = picture.view({channels, height * width}).t().contiguous().to(device);

  nn::Sequential model{nn::Linear(2 * a.frequencies, a.hidden), nn::ReLU(),
                       nn::Linear(a.hidden, a.hidden),          nn::ReLU(),
                       nn::Linear(a.hidden, a.hidden),          nn::ReLU(),
                       nn::Linear(a.hidden, channels),          nn::Sigmoid()};
  model->to(device);
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(a.lr));
  optim::CosineAnnealingLR schedule(optimizer, a.steps, a.lr / 100);
  amp::GradScaler scaler({.enabled = a.precision.scaled()});
  sample::ProgressLine progress(a.steps);
  const auto psnr = [](double mse) { return -10 * std::log10(mse); };
  const sample::Interrupt ctrl_c;
  int64_t step = 0;
  while (step < a.steps && !ctrl_c.asked()) {
    const Tensor batch =
        randint(0, height * width, {a.batch_size}, TensorOptions(kInt64).device(device));
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region = sample::autocast_to(a.precision.dtype(), device);
      loss = F::mse_loss(model->forward(inputs.index_select(0, batch)),
                         colours.index_select(0, batch));
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    schedule.step();
    if (++step % 10 == 0 || step == a.steps)
      progress.show(step, fmt::format("PSNR {:.1f} dB", psnr(loss.item<double>())));
  }

  const NoGradGuard no_grad;
  Tensor learnt;
  {
    const amp::autocast region = sample::autocast_to(a.precision.dtype(), device);
    learnt = model->forward(inputs).to(kFloat32);
  }
  const double error = F::mse_loss(learnt, colours).item<double>();
  const Tensor drawn = learnt.t().reshape({channels, height, width}).cpu();
  sample::save_picture(a.out, image::grid(stack({picture, drawn})));
  progress.print(fmt::format(
      "{}: the picture, and what the network knows of it{}", a.out,
      step < a.steps ? fmt::format("; stopped after {} of {} steps", step, a.steps) : ""));
  fmt::print("PSNR {:.2f} dB, {:.1f} s\n", psnr(error), progress.seconds());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A small network learns one picture.", "learn_image"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] { run(a); });
}
