#include <start.h>

#include <doctest/doctest.h>
#include <halftape/amp/autocast.h>
#include <halftape/amp/grad_scaler.h>
#include <halftape/autograd/autograd.h>
#include <halftape/core/random/random.h>
#include <halftape/optim/algorithms/first_order.h>
#include <support/course.h>

#include <cmath>

namespace {

using namespace halftape;

constexpr int64_t kImages = 64;
constexpr double kNoClipping = 1e9;

/// One layer that learns random images; its weights begin as they do in every other Task.
struct Task {
  Tensor images, labels, weights;
  optim::SGD optimizer;
  amp::GradScaler scaler;
  int calls = 0;

  explicit Task(const amp::GradScalerOptions& options)
      : images((manual_seed(10), randn({kImages, 32}))),
        labels((images.slice(1, 0, 10) * 1.0).argmax(1)),
        weights((randn({32, 10}) * 0.1).requires_grad_()),
        optimizer({weights}, optim::SGDOptions(0.5)),
        scaler(options) {}

  /// In float16, of images begin … end − 1.
  Tensor loss(int64_t begin, int64_t end) {
    ++calls;
    const amp::autocast region(kCPU, kFloat16);
    return cross_entropy(matmul(images.slice(0, begin, end), weights), labels.slice(0, begin, end));
  }
  void step_in(int parts, double max_norm) {
    const int64_t size = kImages / parts;
    train_step(
        scaler, optimizer, parts, [&](int i) { return loss(i * size, (i + 1) * size); }, max_norm);
  }
  /// As it is meant, on all images at once.
  void whole_step(double max_norm) {
    optimizer.zero_grad();
    scaler.scale(loss(0, kImages)).backward();
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(optimizer.parameters(), max_norm);
    scaler.step(optimizer);
    scaler.update();
  }
};

amp::GradScalerOptions options() {
  amp::GradScalerOptions o;
  o.init_scale = 1024;
  o.growth_interval = 1;
  o.warn_after_skips = 0;
  return o;
}

/// Five steps of each kind end at the same weights.
void expect_same(int parts, double max_norm) {
  Task whole(options()), task(options());
  const Tensor before = task.weights.detach().clone();
  for (int step = 0; step < 5; ++step) {
    whole.whole_step(max_norm);
    task.step_in(parts, max_norm);
  }
  const double apart =
      ((task.weights - whole.weights).norm() / (whole.weights - before).norm()).item<double>();
  CHECK_MESSAGE(apart < 1e-3,
                course::text("after 5 steps in ", parts, " parts the weights moved otherwise by ",
                             100 * apart, " % than in steps of the whole batch"));
}

}  // namespace

TEST_CASE("steps in parts are steps of the whole batch, without clipping") {
  for (const int parts : {1, 2, 8}) expect_same(parts, kNoClipping);
}

TEST_CASE("and they are with gradients clipped to a small norm") {
  for (const int parts : {1, 4}) expect_same(parts, 0.05);
}

TEST_CASE("the scale moves once in a step, and each part is computed once") {
  Task task(options());
  for (int step = 1; step <= 4; ++step) {
    task.step_in(4, 0.05);
    const double wanted = std::ldexp(1024.0, step), got = task.scaler.get_scale();
    REQUIRE_MESSAGE(got == wanted, course::text("after ", step, " steps the scale is ", got,
                                                "; it should be ", wanted));
    REQUIRE_MESSAGE(task.calls == 4 * step,
                    course::text(task.calls, " losses were computed in ", step, " steps"));
  }
}

TEST_CASE("an overflow in one part skips the whole step, and halves the scale once") {
  Task task(options());
  task.images.slice(0, 20, 21).mul_(20);  // one image, in the second of four parts
  task.scaler.scale(zeros({}, requires_grad()));
  task.scaler.update(0x1p21);
  const Tensor before = task.weights.detach().clone();
  task.step_in(4, kNoClipping);
  CHECK_MESSAGE(task.weights.equal(before), "the weights changed, though a part overflowed");
  const double got = task.scaler.get_scale();
  CHECK_MESSAGE(got == 0x1p20, course::text("the scale went from ", 0x1p21, " to ", got));
}
