// Saves and loads modules and tensors by name. Spelled as LibTorch's torch::save and torch::load;
// the files are safetensors. PyTorch's .pt files of a state_dict, and .npz archives, are loaded
// too.
#pragma once
#include <concepts>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "halftape/io/formats/safetensors.h"
#include "halftape/nn/module.h"

namespace halftape {

/// Parameters and buffers, under their dotted names: what PyTorch calls its state_dict, which
/// safetensors.torch.load_file reads as such.
void save(const nn::Module& module, const std::filesystem::path& path);
void save(const Tensor& tensor, const std::filesystem::path& path);
namespace detail {
/// The name that save(tensor, …) gives the tensor.
inline constexpr const char* kOneTensor = "tensor";
/// Gives a tensor that is defined the value, on its own device; makes an undefined one `value`.
void take(Tensor& tensor, const Tensor& value);
}  // namespace detail

enum class Strict : bool { No, Yes };
/// The names that only one side has; empty unless Strict::No.
struct IncompatibleKeys {
  std::vector<std::string> missing;     // in the module only
  std::vector<std::string> unexpected;  // in the file only
};
/// A line for each name, or "all names fit".
std::ostream& operator<<(std::ostream& out, const IncompatibleKeys& keys);
/// Writes the file's values into the module's parameters and buffers, in place, on their device.
/// Names, shapes and dtypes are compared before the first value changes; Error lists all
/// differences. Strict::No leaves names that one side lacks as they are, and still throws for
/// shapes and dtypes. FileError: the file is damaged.
/// Load before the first step of an optimizer that keeps masters of 16-bit weights
/// (optim/state/param_storage.h).
IncompatibleKeys load(nn::Module& module, const std::filesystem::path& path,
                      Strict strict = Strict::Yes);
/// The same of values that are there already: of {"model": …} in a .pt file,
/// load(module, pt::load_file(path, kCPU, "model")).
IncompatibleKeys load(nn::Module& module, const safetensors::Tensors& values,
                      Strict strict = Strict::Yes);
/// All tensors of a safetensors, .pt or .npz file; its first bytes say which of them it is.
safetensors::Tensors load_tensors(const std::filesystem::path& path, Device device = kCPU);
/// What save() of one tensor wrote. A tensor that is defined stays the same tensor, on its device,
/// and requires grad as before; it gets the saved shape, dtype and bytes of its own, by set_data().
/// Throws for one that is no leaf, and for integers where it requires grad.
void load(Tensor& tensor, const std::filesystem::path& path);

/// The same for what holds a module: nn::Linear, std::shared_ptr<nn::Module>.
template <class Holder>
concept HoldsModule = requires(const Holder& h) {
  { *h } -> std::convertible_to<nn::Module&>;
};
template <HoldsModule Holder>
void save(const Holder& module, const std::filesystem::path& path) {
  save(static_cast<const nn::Module&>(*module), path);
}
template <HoldsModule Holder>
IncompatibleKeys load(const Holder& module, const std::filesystem::path& path,
                      Strict strict = Strict::Yes) {
  return load(static_cast<nn::Module&>(*module), path, strict);
}
template <HoldsModule Holder>
IncompatibleKeys load(const Holder& module, const safetensors::Tensors& values,
                      Strict strict = Strict::Yes) {
  return load(static_cast<nn::Module&>(*module), values, strict);
}

namespace detail {
/// The parameters, then the buffers.
safetensors::Tensors named_tensors(const nn::Module& module);
/// Compares names, shapes and dtypes; adds a line to `differences` for each tensor that does not
/// fit.
IncompatibleKeys compare(const safetensors::Tensors& into, const safetensors::Tensors& from,
                         Strict strict, std::vector<std::string>& differences);
/// Throws Error with the first of the lines; returns when there are none.
void refuse(const std::string& what, const std::vector<std::string>& differences);
/// Copies the values that have been compared.
void copy_values(const safetensors::Tensors& into, const safetensors::Tensors& from);
}  // namespace detail

}  // namespace halftape
