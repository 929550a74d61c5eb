// What scripts/compare_files_with_python calls from Python: files written here and read back from
// there, and tensors lent both ways. Functions return null, or what went wrong.
#include <halftape/halftape.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "halftape/tests/io/formats/torch_networks.h"

using namespace halftape;
namespace fs = std::filesystem;

namespace {

nn::Sequential network() {
  return nn::Sequential(nn::Linear(64, 32), nn::GELU(), nn::Linear(32, 10));
}

struct Digits {
  Tensor x, y;
};
Digits digits(const data::Images& images) {
  std::vector<float> pixels(images.pixels.begin(), images.pixels.end());
  std::vector<int64_t> labels(images.labels.begin(), images.labels.end());
  const Tensor x =
      tensor(pixels).reshape({images.count, images.rows * images.cols}) / images.max_value;
  return {x, tensor(labels)};
}

/// A model that has learnt something, and what it says of the test images.
void write_model(const fs::path& folder) {
  manual_seed(1);
  nn::Sequential model = network();
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0.01));
  amp::GradScaler scaler({.init_scale = 1024});
  TrainState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("scaler", scaler);
  const data::Split split = data::digits();
  const Digits train = digits(split.train), test = digits(split.test);
  for (; state.step < 60; ++state.step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(train.x), train.y);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  const NoGradGuard no_grad;
  const Tensor logits = model->forward(test.x);
  save(model, folder / "ours.safetensors");
  pt::save_file(detail::named_tensors(*model), folder / "ours.pt");
  npy::savez(folder / "ours.npz", {{"x", test.x}, {"y", test.y}, {"logits", logits}});
  state.save(folder / "state.safetensors");
}

void write_logs(const fs::path& folder) {
  tensorboard::SummaryWriter writer(folder / "events");
  for (int64_t step = 0; step < 100; ++step)
    writer.add_scalar("train/loss", 1 / (1 + static_cast<double>(step)), step,
                      1000.0 + static_cast<double>(step));
  const npy::Tensors given = npy::load_npz(folder / "given.npz");
  for (const auto& item : given)
    if (item.key().starts_with("histogram")) writer.add_histogram(item.key(), item.value(), 7);
  writer.add_image("picture", given["picture"], 3);
  writer.add_image("grey", given["grey"], 3, {}, "HW");
  writer.add_text("note", "# A title\n\xc3\xa4 *text*", 5);
  writer.close();
  RunLog log(folder / "log.csv");
  for (int step = 0; step < 3; ++step)
    log.write({{"step", step}, {"loss", 0.1 * step}, {"note", "a \"quoted\", text\nof two lines"}});
  const Trace trace(folder / "trace.json");
  nn::Sequential model = network();
  model->forward(ones({2, 64})).sum().backward();
}

/// Reads whatever Python wrote and writes it again.
void echo(const fs::path& folder) {
  const auto theirs = safetensors::read_file(folder / "theirs_all.safetensors");
  safetensors::save_file(theirs.tensors, folder / "echo_all.safetensors", theirs.metadata);
  fs::create_directories(folder / "echo");
  for (const char* name : {"all", "all_old"})
    pt::save_file(pt::load_file(folder / ("theirs_" + std::string(name) + ".pt")),
                  folder / "echo" / (std::string(name) + ".pt"));
  for (const auto& file : fs::directory_iterator(folder / "npy"))
    npy::save(folder / "echo" / file.path().filename(), npy::load(file.path()));
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const npy::Tensors all = npy::load_npz(folder / name);
    npy::savez(folder / "echo" / name, all);
    npy::savez_compressed(folder / "echo" / (std::string("small_") + name), all);
  }
}

void evaluate_theirs(const fs::path& folder) {
  nn::Sequential model = network();
  load(model, folder / "theirs.safetensors");
  const npy::Tensors given = npy::load_npz(folder / "theirs.npz");
  const NoGradGuard no_grad;
  npy::save(folder / "their_logits_here.npy", model->forward(given["x"]));
}

/// What the networks of torch_vectors/pt_files.py make of their inputs.
void run_theirs(const fs::path& folder) {
  fs::create_directories(folder / "pt_here");
  for (const auto& file : fs::directory_iterator(folder / "pt")) {
    const std::string name = file.path().stem().string();
    const Tensor y = testing::output_of(name.substr(0, name.find('_')), file.path());
    pt::save_file({{"y", y}}, folder / "pt_here" / file.path().filename());
  }
}

template <class F>
const char* guarded(F f) {
  static std::string message;
  try {
    f();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

Tensor lent(int dtype) {
  const Tensor all = arange(24, kFloat32).reshape({4, 6});
  return all.to(static_cast<Dtype>(dtype)).slice(0, 1).t();  // with an offset and strides
}

}  // namespace

extern "C" {
const char* exchange_write(const char* folder) {
  return guarded([&] { write_model(folder), write_logs(folder); });
}
const char* exchange_read(const char* folder) {
  return guarded([&] { echo(folder), evaluate_theirs(folder), run_theirs(folder); });
}
void* exchange_lend(int dtype) { return to_dlpack(lent(dtype)); }
void* exchange_lend_versioned(int dtype) { return to_dlpack_versioned(lent(dtype)); }
/// Adds one to every element, and gives their sum before; −1 says what went wrong.
double exchange_borrow(void* managed, bool versioned) {
  double sum = 0;
  const char* error = guarded([&] {
    const Tensor t = versioned ? from_dlpack(static_cast<DLManagedTensorVersioned*>(managed))
                               : from_dlpack(static_cast<DLManagedTensor*>(managed));
    sum = t.to(kFloat64).sum().item<double>();
    t.add_(1);
  });
  if (error) std::fprintf(stderr, "%s\n", error);
  return error ? -1 : sum;
}
int64_t exchange_live_buffers() { return Buffer::live_count(); }
}
