// What an element costs where arithmetic and memory decide: maps, casts, copies, reductions and
// rows, in cache (4 Ki elements) and beyond it (256 Ki), one thread. The same source builds against
// LibTorch (benchmarks/compare elementwise).
#include "harness.h"
#include "library.h"

namespace {

using lib::Tensor;
namespace F = lib::nn::functional;

/// One call on n elements, under the name "what, size".
template <class Call>
void add(bench::Table& table, const std::string& what, const std::string& size, int64_t n,
         Call call) {
  table.add(
      what + ", " + size, [call] { bench::keep(call()); }, n);
}

void maps(bench::Table& table, int64_t n, const std::string& size) {
  const Tensor x = lib::randn({n}), y = lib::randn({n}), positive = lib::rand({n}) + 0.01;
  const Tensor half = x.to(lib::kFloat16), brain = x.to(lib::kBFloat16);
  add(table, "clone", size, n, [=] { return x.clone(); });
  add(table, "a + b", size, n, [=] { return x + y; });
  add(table, "a * b", size, n, [=] { return x * y; });
  add(table, "relu", size, n, [=] { return lib::relu(x); });
  add(table, "exp", size, n, [=] { return lib::exp(x); });
  add(table, "log", size, n, [=] { return lib::log(positive); });
  add(table, "tanh", size, n, [=] { return lib::tanh(x); });
  add(table, "sigmoid", size, n, [=] { return lib::sigmoid(x); });
  add(table, "erf", size, n, [=] { return lib::erf(x); });
  add(table, "gelu", size, n, [=] { return lib::gelu(x); });
  add(table, "gelu by tanh", size, n, [=] { return lib::gelu(x, "tanh"); });
  add(table, "sin", size, n, [=] { return lib::sin(x); });
  add(table, "float32 to float16", size, n, [=] { return x.to(lib::kFloat16); });
  add(table, "float16 to float32", size, n, [=] { return half.to(lib::kFloat32); });
  add(table, "float32 to bfloat16", size, n, [=] { return x.to(lib::kBFloat16); });
  add(table, "bfloat16 to float32", size, n, [=] { return brain.to(lib::kFloat32); });
  add(table, "a + b in bfloat16", size, n, [=] { return brain + brain; });
}

void layouts(bench::Table& table) {
  const Tensor square = lib::randn({512, 512}), rows = lib::randn({1024, 256}),
               bias = lib::randn({256}), wide = lib::randn({512, 1024});
  const int64_t n = 512 * 512;
  add(table, "transposed copy", "512x512", n, [=] { return square.t().contiguous(); });
  add(table, "a + transposed b", "512x512", n, [=] { return square + square.t(); });
  add(table, "every second column", "512x512", n,
      [=] { return wide.slice(1, 0, 1024, 2).contiguous(); });
  add(table, "rows + bias", "1024x256", n, [=] { return rows + bias; });
}

void reductions(bench::Table& table) {
  const Tensor x = lib::randn({1024, 256}), few = lib::randn({128, 10});
  const Tensor g = lib::randn({1024, 256}), weight = lib::ones({256}), bias = lib::zeros({256});
  const Tensor labels = lib::zeros({128}, lib::kLong);
  const int64_t n = 1024 * 256;
  const std::string size = "1024x256";
  add(table, "sum", size, n, [=] { return x.sum(); });
  add(table, "sum of rows", size, n, [=] { return x.sum({1}); });
  add(table, "sum of columns (bias gradient)", size, n, [=] { return x.sum({0}); });
  add(table, "amax of rows", size, n, [=] { return x.amax({1}); });
  add(table, "softmax", size, n, [=] { return lib::softmax(x, 1); });
  add(table, "log_softmax", size, n, [=] { return lib::log_softmax(x, 1); });
  add(table, "layer_norm", size, n, [=] { return lib::layer_norm(x, {256}, weight, bias); });
  add(table, "cross_entropy", "128x10", 1280, [=] { return F::cross_entropy(few, labels); });
}

/// Forward and backward of one function.
template <class Call>
void both_ways(bench::Table& table, const std::string& what, const std::string& size,
               const Tensor& value, Call call) {
  const Tensor x = value.detach().clone().set_requires_grad(true);
  const Tensor g = lib::ones(value.sizes());
  table.add(
      what + " and backward, " + size,
      [=] {
        call(x).backward(g);
        x.mutable_grad() = Tensor();
      },
      value.numel());
}
void gradients(bench::Table& table) {
  const Tensor x = lib::randn({1024, 256}), weight = lib::ones({256}), bias = lib::zeros({256});
  both_ways(table, "relu", "1024x256", x, [](const Tensor& v) { return lib::relu(v); });
  both_ways(table, "gelu", "1024x256", x, [](const Tensor& v) { return lib::gelu(v); });
  both_ways(table, "softmax", "1024x256", x, [](const Tensor& v) { return lib::softmax(v, 1); });
  both_ways(table, "layer_norm", "1024x256", x,
            [=](const Tensor& v) { return lib::layer_norm(v, {256}, weight, bias); });
}

}  // namespace

int main(int argc, char** argv) {
  bench::Table table(library(), argc, argv, "ns an element");
  lib::set_num_threads(table.threads());
  maps(table, 4096, "4 Ki");
  maps(table, 262144, "256 Ki");
  layouts(table);
  reductions(table);
  gradients(table);
  table.run();
}
