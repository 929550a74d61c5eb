// Two networks against each other: one draws digits, the other tells them from real ones. Two
// optimizers, two losses, one GradScaler.
//
//     dcgan                        learns to draw the 8x8 digits in the library: a minute
//     dcgan --data FOLDER          MNIST or Fashion-MNIST from its four IDX files: hours on a CPU
//
// Writes 64 drawings to --out at every tenth of the run, and when Ctrl-C stops it. Last line: "real
// … %, drawn … %", how often the discriminator took either for real; where it can only guess, both
// are 50. Exit code 2: wrong arguments, device or data; the message says what to do.
//
// Radford et al. 2015, "Unsupervised Representation Learning with Deep Convolutional Generative
// Adversarial Networks", arXiv:1511.06434.
#include <fmt/format.h>

#include <optional>

#include "program.h"
#include "progress_line.h"

using namespace halftape;
namespace F = halftape::nn::functional;

namespace {

struct Arguments {
  sample::Machine machine;
  sample::Precision precision;
  std::optional<std::string> data;
  std::string out = "dcgan.png";
  int64_t epochs = 60, steps = 0, batch_size = 64, noise = 32, features = 32;
  double lr = 1e-3;
};

void declare(CLI::App& app, Arguments& a) {
  const auto size = sample::between(int64_t{1}, int64_t{1} << 24);
  a.machine.add_options(app);
  a.precision.add_option(app);
  app.add_option("--data", a.data,
                 "folder with the four IDX files of MNIST or Fashion-MNIST, plain or .gz; "
                 "without it: the 8x8 digits in the library");
  app.add_option("--out", a.out, ".png or .pgm to write")->capture_default_str();
  app.add_option("--epochs", a.epochs, "passes over the data")->check(size)->capture_default_str();
  app.add_option("--steps", a.steps, "end after so many steps, if the epochs have more")
      ->check(size);
  app.add_option("--batch-size", a.batch_size)->check(size)->capture_default_str();
  app.add_option("--noise", a.noise, "numbers that a drawing is made of")
      ->check(size)
      ->capture_default_str();
  app.add_option("--features", a.features, "channels of the larger layers")
      ->check(size)
      ->capture_default_str();
  app.add_option("--lr", a.lr)->check(CLI::PositiveNumber)->capture_default_str();
}

/// (B, noise, 1, 1) → (B, 1, 4n, 4n) between −1 and 1.
nn::Sequential make_generator(const Arguments& a, int64_t n) {
  const auto up = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
    return nn::ConvTranspose2d(
        nn::ConvTranspose2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
  };
  return nn::Sequential{up(a.noise, 2 * a.features, n, 1, 0),
                        nn::BatchNorm2d(2 * a.features),
                        nn::ReLU(),
                        up(2 * a.features, a.features, 4, 2, 1),
                        nn::BatchNorm2d(a.features),
                        nn::ReLU(),
                        up(a.features, 1, 4, 2, 1),
                        nn::Tanh()};
}

/// (B, 1, 4n, 4n) → (B): above 0 for what looks real.
nn::Sequential make_discriminator(const Arguments& a, int64_t n) {
  const auto down = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
    return nn::Conv2d(
        nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
  };
  const auto leaky = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); };
  return nn::Sequential{down(1, a.features, 4, 2, 1),
                        leaky(),
                        down(a.features, 2 * a.features, 4, 2, 1),
                        nn::BatchNorm2d(2 * a.features),
                        leaky(),
                        down(2 * a.features, 1, n, 1, 0),
                        nn::Flatten(nn::FlattenOptions().start_dim(0))};
}

/// DCGAN's first weights.
void initialise(const nn::Sequential& model) {
  const NoGradGuard no_grad;
  for (const auto& p : model->named_parameters())
    if (p.value().dim() == 4)
      nn::init::normal_(p.value(), 0, 0.02);
    else if (p.key().ends_with("weight"))
      nn::init::normal_(p.value(), 1, 0.02);
}

template <class Set>
void train(const Set& set, const Arguments& a) {
  const Device device = a.machine.prepare();
  const int64_t n = set.data().size(2) / 4;
  nn::Sequential generator = make_generator(a, n), discriminator = make_discriminator(a, n);
  for (const auto& model : {generator, discriminator}) {
    initialise(model);
    model->to(device);
  }
  const auto options = optim::AdamOptions(a.lr).betas({0.5, 0.999});
  optim::Adam generator_optimizer(generator->parameters(), options);
  optim::Adam discriminator_optimizer(discriminator->parameters(), options);
  amp::GradScaler scaler({.enabled = a.precision.scaled()});

  auto loader = data::make_data_loader(Set(set).map(data::transforms::Stack<>()),
                                       data::DataLoaderOptions(static_cast<size_t>(a.batch_size))
                                           .drop_last(true)
                                           .pin_memory(device.is_cuda())
                                           .pin_memory_device(device));
  const int64_t in_epoch = set.data().size(0) / a.batch_size;
  if (in_epoch == 0)
    throw sample::UserError(fmt::format("--batch-size: {} are more than the {} images",
                                        a.batch_size, set.data().size(0)));
  const int64_t all = a.epochs * in_epoch, steps = a.steps > 0 ? std::min(a.steps, all) : all;
  const Tensor shown = randn({64, a.noise, 1, 1}).to(device);
  const auto draw = [&] {
    const NoGradGuard no_grad;
    const amp::autocast region = sample::autocast_to(a.precision.dtype(), device);
    sample::save_picture(a.out,
                         image::grid((generator->forward(shown).to(kFloat32).cpu() + 1) / 2));
  };

  sample::ProgressLine progress(steps);
  const sample::Interrupt ctrl_c;
  double real_share = 0, drawn_share = 0;  // that the discriminator takes for real, running means
  int64_t step = 0;
  for (bool stops = false; !stops;) {
    for (auto& batch : *loader) {
      const Tensor real = batch.data.to(device, true) * 2 - 1;
      const Tensor noise = randn({a.batch_size, a.noise, 1, 1}).to(device);
      const Tensor yes = ones({a.batch_size}).to(device), no = zeros({a.batch_size}).to(device);

      discriminator_optimizer.zero_grad();
      Tensor drawn, d_loss, of_real, of_drawn;
      {
        const amp::autocast region = sample::autocast_to(a.precision.dtype(), device);
        drawn = generator->forward(noise);
        of_real = discriminator->forward(real);
        of_drawn = discriminator->forward(drawn.detach());
        d_loss = F::binary_cross_entropy_with_logits(of_real, yes * 0.9) +  // not too sure
                 F::binary_cross_entropy_with_logits(of_drawn, no);
      }
      scaler.scale(d_loss).backward();
      scaler.step(discriminator_optimizer);

      generator_optimizer.zero_grad();
      Tensor g_loss;
      {
        const amp::autocast region = sample::autocast_to(a.precision.dtype(), device);
        g_loss = F::binary_cross_entropy_with_logits(discriminator->forward(drawn), yes);
      }
      scaler.scale(g_loss).backward();
      scaler.step(generator_optimizer);
      scaler.update();  // once, after both steps

      const double keep = std::min(1 - 1.0 / static_cast<double>(step + 1), 0.98);
      const auto share = [](const Tensor& t) { return (t > 0).to(kFloat32).mean().item<double>(); };
      real_share = keep * real_share + (1 - keep) * share(of_real);
      drawn_share = keep * drawn_share + (1 - keep) * share(of_drawn);
      ++step;
      progress.show(
          step, fmt::format("losses {:.2f} {:.2f}", d_loss.item<double>(), g_loss.item<double>()));
      stops = step == steps || ctrl_c.asked();
      if (stops || 10 * step / steps != 10 * (step - 1) / steps) draw();
      if (stops) break;
    }
  }
  progress.print(fmt::format(
      "{}: 64 drawings{}; {:.1f} ms a step{}", a.out,
      step < steps ? fmt::format(", stopped after {} of {} steps", step, steps) : "",
      1e3 * progress.seconds() / static_cast<double>(step),
      scaler.is_enabled()
          ? fmt::format(", scale {:g}, {} skipped", scaler.get_scale(), scaler.stats().skips)
          : ""));
  fmt::print("real {:.1f} %, drawn {:.1f} %\n", 100 * real_share, 100 * drawn_share);
}

void run(const Arguments& a) {
  sample::check_picture(a.out, 1);
  if (a.data)
    train(data::datasets::MNIST(*a.data), a);
  else
    train(data::datasets::Digits(), a);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A generator and a discriminator learn handwritten digits.", "dcgan"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] { run(a); });
}
