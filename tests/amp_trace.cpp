// One AMP step and two hundred of them, written down for scripts/compare_amp_with_torch.
// usage: amp_trace FOLDER [DEVICE]. Writes FOLDER/index.txt, a line "name shape…" for each array,
// and the arrays one after the other, as float32 of this machine, to FOLDER/values.bin: the digits
// and their labels, the first weights, and for float16 and bfloat16 the loss and gradients of the
// first batch ("float16/grad/0.weight") and the losses of the steps ("float16/curve").
#include <halftape/halftape.h>

#include <fstream>
#include <iostream>

using namespace halftape;

namespace {

constexpr int64_t kBatch = 128;
constexpr int kSteps = 200;

class Writer {
 public:
  explicit Writer(const std::string& folder)
      : index_(folder + "/index.txt"), values_(folder + "/values.bin", std::ios::binary) {
    HALFTAPE_CHECK(index_ && values_, "cannot write to ", folder);
  }
  void put(const std::string& name, const Tensor& x) {
    const Tensor host = x.detach().to(kFloat32).to(kCPU).contiguous();
    index_ << name;
    for (int64_t n : host.sizes()) index_ << ' ' << n;
    index_ << '\n';
    values_.write(reinterpret_cast<const char*>(host.data_ptr<float>()),
                  static_cast<std::streamsize>(host.nbytes()));
    HALFTAPE_CHECK(index_.flush() && values_.flush(), "writing ", name, " failed");
  }

 private:
  std::ofstream index_, values_;
};

struct Data {
  Tensor x, y;  // (n, 64) in 0..1, and (n) int64
};
Data digits() {
  const data::Images images = data::digits().train;
  const Tensor pixels = tensor(images.pixels, kFloat32).reshape({images.count, 64});
  return {pixels / images.max_value, tensor(images.labels, kInt64)};
}

nn::Sequential make_model() {
  manual_seed(0);
  return nn::Sequential(nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 256), nn::ReLU(),
                        nn::Linear(256, 10));
}

void follow(Writer& out, const Data& all, Device device, Dtype dtype) {
  const std::string name = dtype == kFloat16 ? "float16/" : "bfloat16/";
  nn::Sequential model = make_model();
  model->to(device);
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
  amp::GradScaler scaler(amp::GradScalerOptions{.enabled = dtype == kFloat16});
  const int64_t batches = all.x.size(0) / kBatch;
  std::vector<Tensor> curve;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t from = step % batches * kBatch;
    const Tensor x = all.x.narrow(0, from, kBatch), y = all.y.narrow(0, from, kBatch);
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(device.type(), dtype);
      loss = nn::functional::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    if (step == 0) {
      out.put(name + "loss", loss);
      for (const auto& p : model->named_parameters())
        out.put(name + "grad/" + p.key(), p.value().grad());
    }
    curve.push_back(loss.detach());
    scaler.step(optimizer);
    scaler.update();
  }
  out.put(name + "curve", stack(curve));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: amp_trace FOLDER [DEVICE]\n";
    return 2;
  }
  try {
    const Device device(argc > 2 ? argv[2] : "cpu");
    Writer out(argv[1]);
    Data all = digits();
    out.put("x", all.x);
    out.put("y", all.y);
    for (const auto& p : make_model()->named_parameters()) out.put("start/" + p.key(), p.value());
    all = {all.x.to(device), all.y.to(device)};
    follow(out, all, device, kFloat16);
    follow(out, all, device, kBFloat16);
  } catch (const std::exception& e) {
    std::cerr << "amp_trace: " << e.what() << '\n';
    return 2;
  }
  return 0;
}
