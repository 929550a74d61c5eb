// A run with an asynchronous optimizer that is stopped after any step, with a step in flight, and
// resumed from its file in new objects is the run that was not stopped.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <memory>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;

namespace {

/// A run whose steps have a thread of their own, and a scaler that meets an overflow.
class AsyncRun {
 public:
  AsyncRun(amp::ScaleDelivery delivery, bool sometimes_in_step)
      : scaler_({.init_scale = 1024, .growth_interval = 3}, delivery),
        sometimes_in_step_(sometimes_in_step) {
    state_.add("optimizer", optimizer_);  // before the module: the order must not matter
    state_.add("model", model_);
    state_.add("scaler", scaler_);
  }
  void steps(int64_t to) {
    for (; state_.step < to; ++state_.step) {
      const double factor = state_.step == 4 ? std::numeric_limits<double>::infinity() : 1.0;
      const Tensor x = randn({4, 5}), y = randn({4, 2});
      scaler_.scale(mse_loss(model_->forward(x), y) * factor).backward();
      const bool in_step = sometimes_in_step_ && state_.step % 3 == 1;
      scaler_.step(optimizer_, {.is_async = !in_step, .max_norm = 1});
      scaler_.update();
      optimizer_.param_groups()[0].options().set_lr(0.05 / double(2 + state_.step));
    }
  }
  TrainState& state() { return state_; }
  nn::Sequential& model() { return model_; }
  optim::AsyncOptimizer& optimizer() { return optimizer_; }
  std::string bytes(const TempFolder& folder) {
    state_.save(folder / "compare");
    return read_bytes(folder / "compare");
  }

 private:
  nn::Sequential model_{nn::Linear(5, 8), nn::Tanh(), nn::Dropout(0.3), nn::Linear(8, 2)};
  optim::AsyncOptimizer optimizer_{
      std::make_unique<optim::AdamW>(model_->parameters(), optim::AdamWOptions(0.05))};
  amp::AsyncGradScaler scaler_;
  bool sometimes_in_step_;
  TrainState state_;
};

}  // namespace

TEST_CASE("a run with a step in flight resumes with the bits of the one that never stopped") {
  const TempFolder folder;
  constexpr int64_t kEnd = 9;
  for (const auto delivery : {amp::ScaleDelivery::Prompt, amp::ScaleDelivery::Late}) {
    for (const bool sometimes_in_step : {false, true}) {
      CAPTURE(sometimes_in_step);
      manual_seed(5);
      AsyncRun whole(delivery, sometimes_in_step);
      std::vector<std::string> files;
      for (int64_t stop = 0; stop <= kEnd; ++stop) {
        whole.steps(stop);
        // Saving waits, and changes nothing, not even how stale the model is.
        whole.state().save(folder / std::to_string(stop));
      }
      const std::string end = whole.bytes(folder);
      whole.optimizer().synchronize();
      for (int64_t stop = 0; stop <= kEnd; ++stop) {
        CAPTURE(stop);
        manual_seed(99);
        AsyncRun resumed(delivery, sometimes_in_step);
        resumed.steps(2);  // another run's state, which goes
        resumed.state().load(folder / std::to_string(stop));
        CHECK(resumed.state().step == stop);
        CHECK(resumed.optimizer().steps() == stop);
        resumed.steps(kEnd);
        CHECK(resumed.bytes(folder) == end);
        resumed.optimizer().synchronize();
        for (size_t i = 0; i < whole.optimizer().parameters().size(); ++i)
          CHECK(resumed.optimizer().parameters()[i].equal(whole.optimizer().parameters()[i]));
      }
      // The same without a save on the way.
      manual_seed(5);
      AsyncRun unseen(delivery, sometimes_in_step);
      unseen.steps(kEnd);
      CHECK(unseen.bytes(folder) == end);
    }
  }
}

TEST_CASE("an asynchronous optimizer that refuses its state leaves the run as it was") {
  const TempFolder folder;
  manual_seed(5);
  AsyncRun saved(amp::ScaleDelivery::Prompt, false), here(amp::ScaleDelivery::Prompt, false);
  saved.steps(3);
  saved.state().save(folder / "good");
  here.steps(2);
  const std::string before = here.bytes(folder);

  // A plain optimizer's part is of another kind.
  nn::Sequential& model = here.model();
  optim::AdamW plain(model->parameters(), optim::AdamWOptions(0.05));
  amp::AsyncGradScaler scaler;
  TrainState other;
  other.add("optimizer", plain);
  other.add("model", model);
  other.add("scaler", scaler);
  CHECK(has(message([&] { other.load(folder / "good"); }),
            "\"optimizer\" to be of the kind optimizer, found async_optimizer"));

  // Newest weights that were lost.
  const auto contents = safetensors::read_file(folder / "good");
  std::vector<safetensors::Tensors::Item> kept;
  for (const auto& item : contents.tensors)
    if (item.key() != "optimizer.model.0.bias._newest") kept.push_back(item);
  REQUIRE(kept.size() + 1 == contents.tensors.size());
  safetensors::save_file(safetensors::Tensors(std::move(kept)), folder / "less", contents.metadata);
  const std::string refusal = message([&] { here.state().load(folder / "less"); });
  CHECK(has(refusal, "\"optimizer\" refuses its state, and nothing was changed"));
  CHECK(has(refusal, "lacks its newest weights"));
  CHECK(here.bytes(folder) == before);
  // Its own numbers, which were lost, or speak against the tensors.
  const auto said = [&](const std::string& number, const char* changed) {
    safetensors::Metadata metadata = contents.metadata;
    REQUIRE(metadata.erase("optimizer.async." + number) == 1);
    if (changed) metadata.emplace("optimizer.async." + number, changed);
    safetensors::save_file(contents.tensors, folder / "bad", metadata);
    return message([&] { here.state().load(folder / "bad"); });
  };
  for (const char* number : {"steps", "stale"})
    CHECK(has(said(number, nullptr), "no step and no staleness there"));
  CHECK(has(said("stale", "0"), "has newest weights"));
  for (const char* steps : {"nan", "-1", "0.5", "1e300"})
    CHECK(has(said("steps", steps), "expected a whole number from 0 on"));
  CHECK(here.bytes(folder) == before);
  here.steps(4);  // and goes on
}

TEST_CASE("a load that a module cannot take leaves an asynchronous run as it was, and it goes on") {
  TempFolder folder;
  manual_seed(4);
  AsyncRun run(amp::ScaleDelivery::Prompt, false);
  nn::Linear other(2, 2);
  run.state().add("other", other);
  run.steps(3);
  run.state().save(folder / "x");
  other->weight.set_data(ones({1}).expand({2, 2}));
  run.steps(5);
  const std::string before = run.bytes(folder);
  CHECK(has(message([&] { run.state().load(folder / "x"); }), "one place in memory"));
  CHECK(run.bytes(folder) == before);
  run.steps(7);
  run.optimizer().synchronize();
}
