// A character-level GPT with the training loop of nanoGPT: accumulation, clipping, warm-up and
// cosine, decay for matrices only, and a scaler that is enabled for float16 alone.
//
//     char_gpt                                     sentences of a small grammar: two minutes
//     char_gpt --data input.txt --steps 2000       any text in UTF-8, such as Shakespeare
//     char_gpt --precision amp --out run1          with a checkpoint at every evaluation and Ctrl-C
//     char_gpt --precision amp --out run1 --resume    goes on with the bits of an undisturbed run
//     torchrun --no-python --nproc-per-node 4 char_gpt --out run1     four processes, each with a
//                                                  part of a batch; --resume with any number of
//                                                  them
//
// Ends with a text that the model wrote, and "val loss … , … ms a step". Exit code 2: wrong
// arguments, data or checkpoints; the message says what to do.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "batches.h"
#include "gpt.h"
#include "program.h"
#include "progress_line.h"
#include "ranks.h"
#include "text.h"

using namespace halftape;
using sample::UserError;
namespace F = halftape::nn::functional;
using data::datasets::TextWindows;

namespace {

struct Arguments {
  sample::Machine machine;
  GPTOptions model;
  sample::Precision precision{.name = "float32"};
  std::optional<std::string> data, out;
  bool resume = false, hash = false;
  int64_t steps = 600, batch_size = 12, accumulation = 1;
  int64_t warmup = 100, eval_interval = 200, eval_batches = 20, sample = 400, top_k = 0;
  std::optional<int64_t> lr_decay_steps;
  double lr = 1e-3, min_lr = 1e-4, beta2 = 0.99, weight_decay = 0.1, grad_clip = 1;
  double temperature = 0.8;
};

void declare(CLI::App& app, Arguments& a) {
  const auto size = sample::between(int64_t{1}, int64_t{1} << 24);
  const auto count = sample::between(int64_t{0}, int64_t{1} << 40);
  a.machine.add_options(app);
  app.add_option("--data", a.data, "text file; without it: sentences of a grammar");
  app.add_option("--out", a.out, "folder for checkpoints and log.csv; without it: none");
  app.add_flag("--resume", a.resume, "go on from the newest checkpoint in --out");
  a.precision.add_option(app);
  const auto number = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  number("--n-layer", a.model.n_layer, "blocks")->check(size);
  number("--n-head", a.model.n_head, "heads of attention")->check(size);
  number("--n-embd", a.model.n_embd, "features")->check(size);
  number("--block-size", a.model.block_size, "characters of context")->check(size);
  number("--dropout", a.model.dropout, "")->check(sample::between(0.0, 0.99));
  app.add_flag("--bias", a.model.bias, "biases in the layers");
  number("--steps", a.steps, "updates of the weights")->check(count);
  number("--batch-size", a.batch_size, "windows of text in a micro-step, of all ranks")
      ->check(size);
  number("--gradient-accumulation-steps", a.accumulation, "micro-steps in a step")->check(size);
  number("--lr", a.lr, "the highest learning rate")->check(CLI::PositiveNumber);
  number("--min-lr", a.min_lr, "the last one")->check(CLI::NonNegativeNumber);
  number("--warmup", a.warmup, "steps of rising learning rate")->check(count);
  app.add_option("--lr-decay-steps", a.lr_decay_steps,
                 "where --min-lr is reached; default: --steps")
      ->check(size);
  number("--beta2", a.beta2, "of AdamW")->check(sample::between(0.0, 0.999999));
  number("--weight-decay", a.weight_decay, "of matrices")->check(CLI::NonNegativeNumber);
  number("--grad-clip", a.grad_clip, "longest gradient; 0: any")->check(CLI::NonNegativeNumber);
  number("--eval-interval", a.eval_interval, "steps between evaluations")->check(size);
  number("--eval-batches", a.eval_batches, "batches in each; the last takes all")->check(size);
  number("--sample", a.sample, "characters to write in the end")->check(count);
  number("--temperature", a.temperature,
         "below 1: likelier characters more often; above 1: bolder choices")
      ->check(CLI::PositiveNumber);
  number("--top-k", a.top_k, "choose among the k best characters; 0: all")->check(count);
  app.add_flag("--hash", a.hash, "print a hash of the weights, to compare runs bit by bit");
}

void check(Arguments& a) {
  const int64_t decay = a.lr_decay_steps.value_or(std::max<int64_t>(a.steps, 1));
  if (a.model.n_embd % a.model.n_head != 0)
    throw UserError(fmt::format("--n-head: {} heads do not divide --n-embd {}", a.model.n_head,
                                a.model.n_embd));
  if (a.resume && !a.out) throw UserError("--resume: say with --out where the checkpoints are");
  if (a.warmup >= decay) {
    if (a.lr_decay_steps) throw UserError("--warmup must end before --lr-decay-steps");
    a.warmup = decay / 2;  // of a short trial
  }
  a.lr_decay_steps = decay;
}

class Training {
 public:
  Training(const Arguments& a, const data::CharVocabulary& vocabulary, const Tensor& tokens,
           const sample::Ranks& ranks)
      : a_(a),
        ranks_(ranks),
        device_(ranks.device()),
        dtype_(a.precision.dtype()),
        // The last tenth of the text is for validation, as in nanoGPT.
        train_(tokens.slice(0, 0, tokens.numel() * 9 / 10), a.model.block_size),
        val_(tokens.slice(0, tokens.numel() * 9 / 10), a.model.block_size, a.model.block_size),
        part_(ranks.part_of(a.batch_size)),
        batches_(train_, part_, a.machine.seed, ranks.size(), ranks.rank()),
        model_(with_vocabulary(a.model, vocabulary.size())),
        optimizer_((model_->to(device_), make_optimizer(model_, a.lr, a.beta2, a.weight_decay))),
        schedule_(optimizer_, a.warmup, *a.lr_decay_steps, a.min_lr),
        scaler_({.enabled = a.precision.scaled()}),
        ddp_(*model_) {
    state_.add("model", model_);
    state_.add("optimizer", optimizer_);
    state_.add("schedule", schedule_);
    state_.add("scaler", scaler_);
    state_.add("batches", batches_.loader());
  }

  /// Returns the loss over all of the validation text; none if it was stopped.
  std::optional<double> run() {
    const std::optional<Checkpoints> checkpoints =
        a_.out ? std::optional<Checkpoints>(*a_.out) : std::nullopt;
    if (a_.resume) resume(*checkpoints);
    ranks_.draw_apart();  // dropout
    std::optional<RunLog> log;
    if (checkpoints && ranks_.first()) {
      log.emplace(std::filesystem::path(*a_.out) / "log.csv");
      if (!a_.resume && !(checkpoints->files().empty() && log->columns().empty()))
        throw UserError(fmt::format(
            "--out {}: an earlier run is there; go on with --resume, or name another folder",
            *a_.out));
      log->drop_from("step", state_.step + 1);
    }
    sample::ProgressLine progress(a_.steps, state_.step);
    const sample::Interrupt ctrl_c;
    for (bool stops = false; state_.step < a_.steps && !stops;) {
      const auto start = std::chrono::steady_clock::now();
      const Tensor loss = step();
      const double last = ranks_.mean(loss.item<double>());
      step_seconds_.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      progress.show(state_.step, fmt::format("loss {:.3f}{}", last, scale_text()));
      stops = ranks_.interrupted();
      if (stops && checkpoints) save(*checkpoints);  // before what takes time
      if (!stops && state_.step % a_.eval_interval != 0 && state_.step != a_.steps) continue;
      const double train = evaluate(train_, a_.eval_batches), val = evaluate(val_, a_.eval_batches);
      progress.print(fmt::format("step {}: train loss {:.4f}, val loss {:.4f}{}", state_.step,
                                 train, val, scale_text()));
      if (log) log->write({{"step", state_.step}, {"train", train}, {"val", val}});
      if (checkpoints && !stops) save(*checkpoints);
    }
    if (state_.step < a_.steps) {
      progress.print(fmt::format("stopped after {} of {} steps; {}", state_.step, a_.steps,
                                 a_.out ? "go on with --resume" : "without --out nothing is kept"));
      ranks_.wait();  // a launcher ends all ranks as soon as one has ended by Ctrl-C
      return {};
    }
    return evaluate(val_, static_cast<int64_t>(*val_.size()));
  }

  GPT& model() { return model_; }
  Dtype dtype() const { return dtype_; }
  /// The median time of a step.
  std::optional<double> median_ms() {
    if (step_seconds_.empty()) return {};
    const auto middle = step_seconds_.begin() + static_cast<int64_t>(step_seconds_.size() / 2);
    std::nth_element(step_seconds_.begin(), middle, step_seconds_.end());
    return 1e3 * *middle;
  }

 private:
  static GPTOptions with_vocabulary(GPTOptions o, int64_t size) {
    o.vocab_size = size;
    return o;
  }

  void resume(const Checkpoints& checkpoints) {
    try {
      const auto path = checkpoints.load_latest(state_);  // by every rank
      if (ranks_.mean(static_cast<double>(state_.step)) != static_cast<double>(state_.step))
        throw UserError(
            fmt::format("--resume: rank {} has a checkpoint of step {}, others do not; "
                        "--out must be a folder that all ranks see",
                        ranks_.rank(), state_.step));
      if (!path && ranks_.restarted()) return;  // lost before the first checkpoint
      if (!path) throw UserError(fmt::format("--resume: there is no checkpoint in {}", *a_.out));
      fmt::print("goes on after step {}, from {}\n", state_.step, path->string());
    } catch (const FileError&) {
      throw;
    } catch (const Error& e) {
      throw UserError(
          fmt::format("--resume: the checkpoint is of a run with other options: {}", e.what()));
    }
  }

  void save(const Checkpoints& checkpoints) {
    ddp_.check_weights();
    if (ranks_.first()) checkpoints.save(state_);
  }

  Tensor loss_of(const data::Example<>& batch) {
    const amp::autocast region = sample::autocast_to(dtype_, device_);
    const Tensor scores = model_->forward(batch.data.to(device_));
    return F::cross_entropy(scores.flatten(0, 1), batch.target.to(device_).flatten());
  }

  /// Adds to the gradients, and gives the loss.
  Tensor micro_step() {
    const Tensor loss = loss_of(batches_.next());
    scaler_.scale(loss / static_cast<double>(a_.accumulation)).backward();
    return loss.detach();
  }

  /// One update of the weights. The loss is that of the last micro-step.
  Tensor step() {
    optimizer_.zero_grad();
    {
      const auto local = ddp_.no_sync();  // only the last backward() sends gradients
      for (int64_t micro = 1; micro < a_.accumulation; ++micro) micro_step();
    }
    Tensor loss = micro_step();
    if (a_.grad_clip > 0) {
      scaler_.unscale_(optimizer_);  // so that the norm is that of the true gradients
      nn::utils::clip_grad_norm_(model_->parameters(), a_.grad_clip);
    }
    scaler_.step(optimizer_);  // skipped if a gradient is not finite
    scaler_.update();
    schedule_.step();
    ++state_.step;
    return loss;
  }

  /// The mean loss of that many batches, always the same ones, spread evenly over the windows. Each
  /// rank takes its part of them.
  double evaluate(TextWindows& windows, int64_t batches) {
    const NoGradGuard no_grad;
    model_->eval();
    const auto all = static_cast<int64_t>(*windows.size());
    const int64_t n = std::min(all, batches * a_.batch_size);
    double sum = 0;
    for (int64_t i = ranks_.rank() * part_; i < n; i += a_.batch_size) {
      std::vector<size_t> chosen;
      for (int64_t j = i; j < std::min(n, i + part_); ++j)
        chosen.push_back(static_cast<size_t>(j * all / n));
      const Tensor loss =
          loss_of(data::transforms::Stack<>().apply_batch(windows.get_batch(chosen)));
      sum += loss.item<double>() * static_cast<double>(chosen.size());
    }
    model_->train();
    return ranks_.sum(sum) / static_cast<double>(n);
  }

  std::string scale_text() const {
    return scaler_.is_enabled() ? fmt::format(", scale {:g}", scaler_.get_scale()) : "";
  }

  const Arguments& a_;
  const sample::Ranks& ranks_;
  Device device_;
  Dtype dtype_;
  TextWindows train_, val_;
  int64_t part_;  // of a batch, for this rank
  Batches batches_;
  GPT model_;
  optim::AdamW optimizer_;
  optim::WarmupCosineLR schedule_;
  amp::GradScaler scaler_;
  distributed::DistributedDataParallel ddp_;
  TrainState state_;
  std::vector<double> step_seconds_;
};

void run(Arguments& a) {
  check(a);
  const sample::Ranks ranks(a.machine);
  const Device device = ranks.device();
  // Ranks that were started again go on from their last checkpoint.
  if (ranks.restarted() && a.out) a.resume = true;
  const Text text = a.data ? Text{data::read_text(*a.data)} : make_text(200000);
  const data::CharVocabulary vocabulary(text.characters);
  const Tensor tokens = vocabulary.encode(text.characters);
  // Of so many tenths, nine hold a batch of windows, and one holds a window to validate on.
  const int64_t block = a.model.block_size;
  const int64_t needed = 10 * std::max(block + 1, (block + a.batch_size) / 9 + 1);
  if (tokens.numel() < needed)
    throw UserError(
        fmt::format("{}: {} characters are too few for windows of {}: give {} or more, "
                    "or a smaller --block-size or --batch-size",
                    a.data.value_or("text"), tokens.numel(), block, needed));

  Training training(a, vocabulary, tokens, ranks);
  int64_t parameters = 0;
  for (const Tensor& p : training.model()->parameters()) parameters += p.numel();
  fmt::print("{}: {} characters, {} different\n", a.data.value_or("sentences of a grammar"),
             tokens.numel(), vocabulary.size());
  fmt::print("GPT of {} layers, {} heads, {} features, context {}: {} parameters; {}; {}\n",
             a.model.n_layer, a.model.n_head, a.model.n_embd, a.model.block_size, parameters,
             a.precision.name,
             device.is_cpu() ? fmt::format("cpu, {} threads", get_num_threads()) : "cuda");
  if (text.best_loss > 0)
    fmt::print("who knows the grammar loses {:.3f} a character\n", text.best_loss);

  const std::optional<double> loss = training.run();
  if (loss && a.sample > 0 && ranks.first()) {
    training.model()->eval();
    const amp::autocast region = sample::autocast_to(training.dtype(), device);
    const Tensor start = tokens.slice(0, 0, 1).view({1, 1}).to(device);  // the first character
    const Tensor written = training.model()->generate(start, a.sample, a.temperature, a.top_k);
    fmt::print("\n{}\n\n", vocabulary.decode(written.flatten().cpu()));
  }
  if (a.hash) fmt::print("hash {:016x}\n", sample::hash(*training.model()));
  if (!loss) return;
  fmt::print("val loss {:.4f}", *loss);
  if (const auto ms = training.median_ms()) fmt::print(", {:.1f} ms a step", *ms);
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a character-level GPT with nanoGPT's loop, and writes a text with it.",
               "char_gpt"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] { run(a); });
}
