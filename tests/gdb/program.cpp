// What tests/gdb/test.sh looks at from stop().
#include <halftape/halftape.h>

#include <cstddef>
#include <cstring>

using namespace halftape;

namespace {
struct NetImpl : nn::Module {
  NetImpl() { fc = register_module("fc", nn::Linear(2, 1)); }
  nn::Linear fc{nullptr};
};
HALFTAPE_MODULE(Net);

[[gnu::noinline]] void stop(const Tensor& /*first*/) { asm volatile(""); }
}  // namespace

int main() {
  const Tensor none, empty_one = zeros({0, 3}), scalar = tensor(2.5, kFloat64);
  const Tensor leaf = tensor({1.0f, 2.0f, 3.0f, 4.0f}).reshape({2, 2}).detach().requires_grad_();
  const Tensor product = leaf * leaf, turned = leaf.detach().t();
  const Tensor half = tensor({0.1, 65504.0, -0.5}).to(kFloat16), brain = half.to(kBFloat16);
  const Tensor integers = arange(20, kInt64).slice(0, 3), truth = leaf.detach() > 2;
  const Shape shape{4, 5};
  const Dtype dtype = kBFloat16;
  const Device device("cpu");
  const Net net;
  const nn::Linear absent(nullptr);
  {
    const NoGradGuard no_grad;
    net->fc->weight.copy_(tensor({0.5f, -1.5f}).reshape({1, 2}));
    net->fc->bias.fill_(0.25);
  }
  product.sum().backward();
  // What a wild write leaves: no printer may fail on it, or take for ever.
  alignas(Tensor) std::byte tensor_bytes[sizeof(Tensor)];
  alignas(NetImpl) std::byte module_bytes[sizeof(NetImpl)];
  std::memset(tensor_bytes, 0x5a, sizeof(tensor_bytes));
  std::memset(module_bytes, 0x5a, sizeof(module_bytes));
  [[maybe_unused]] const auto* wild_tensor = reinterpret_cast<const Tensor*>(tensor_bytes);
  [[maybe_unused]] const auto* wild_module = reinterpret_cast<const NetImpl*>(module_bytes);
  stop(leaf);
  return static_cast<int>(none.defined() + empty_one.numel() + shape.size() + scalar.dim() +
                          product.dim() + turned.dim() + brain.dim() + integers.dim() +
                          truth.dim() + static_cast<int>(dtype) + device.index() + net.is_empty() +
                          absent.is_empty()) < 0;
}
