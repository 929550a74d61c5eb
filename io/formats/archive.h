// Archives: named tensors and plain values, in nested parts, kept in a file, a stream or memory.
// Spelled as LibTorch's torch::serialize. The bytes are those of a safetensors file; of whole
// numbers alone, as a sampler's state has them, they are lines of text.
#pragma once
#include <filesystem>
#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "halftape/autograd/function.h"
#include "halftape/io/formats/safetensors.h"
#include "halftape/io/formats/serialize.h"
#include "halftape/nn/module.h"

namespace halftape {
namespace serialize {

using autograd::SavedValue;

/// Collects what save_to() writes. What is in a part has the part's name before its own:
/// "encoder.weight", so that a module's archive is the file that save(module, path) writes. A name
/// that is written again replaces the former value.
class OutputArchive {
 public:
  /// The values of the tensor at the time of save_to(). `is_buffer` is LibTorch's and says nothing.
  void write(const std::string& key, const Tensor& tensor, bool is_buffer = false);
  /// A bool, a number, a text or a tensor; throws Error for an empty value. A list of tensors is a
  /// part whose tensors are called "0", "1", …
  void write(const std::string& key, const SavedValue& value);
  /// A part: all that was written to `nested` until now.
  void write(const std::string& key, const OutputArchive& nested);
  /// The whole numbers that were written.
  const std::map<std::string, uint64_t>& numbers() const { return numbers_; }

  /// Takes bytes and returns how many it took.
  using Writer = std::function<size_t(const void*, size_t)>;
  /// The file is whole or not there. Throws FileError when it cannot be written, Error for names
  /// that safetensors::save_file() refuses, and for a value (not in a part) called "format".
  void save_to(const std::filesystem::path& path) const;
  /// Throws Error also when the stream, or the function, does not take all bytes.
  void save_to(std::ostream& stream) const;
  void save_to(const Writer& writer) const;

 private:
  void forget(const std::string& key);
  void forget_part(const std::string& key);
  bool is_text() const;
  std::string bytes() const;
  safetensors::Metadata metadata() const;
  safetensors::Tensors tensors_;
  std::set<std::string> parts_;  // written here
  std::map<std::string, uint64_t> numbers_;
  safetensors::Metadata values_;  // "double 0.5" and its like; "part" for an empty part
};

/// What an OutputArchive has saved; also the tensors of any safetensors, .npz or .pt file.
class InputArchive {
 public:
  InputArchive() = default;
  explicit InputArchive(std::map<std::string, uint64_t> numbers) : numbers_(std::move(numbers)) {}
  /// Returns `n` bytes, or less at the end, from `position` on.
  using Reader = std::function<size_t(uint64_t position, void* bytes, size_t n)>;
  /// Replaces what the archive holds. Throws FileError for a file that cannot be read, Error for
  /// what is damaged, and then holds what it held. A stream is read from where it stands to its
  /// end, or, of whole numbers alone, to the end of these.
  void load_from(const std::filesystem::path& path, std::optional<Device> device = {});
  void load_from(std::istream& stream, std::optional<Device> device = {});
  void load_from(const char* bytes, size_t size, std::optional<Device> device = {});
  void load_from(const Reader& reader, const std::function<size_t()>& size,
                 std::optional<Device> device = {});

  /// False, changing nothing, if there is no such tensor. A tensor that is defined gets the value
  /// with set_data(), on its own device; an undefined one becomes a new one.
  bool try_read(const std::string& key, Tensor& tensor, bool is_buffer = false) const;
  /// The same for a value, which a tensor is, too, and for a part.
  bool try_read(const std::string& key, SavedValue& value) const;
  bool try_read(const std::string& key, InputArchive& part) const;
  /// The same; throws Error when there is none.
  void read(const std::string& key, Tensor& tensor, bool is_buffer = false) const;
  void read(const std::string& key, SavedValue& value) const;
  void read(const std::string& key, InputArchive& part) const;
  /// A whole number; throws Error when there is none.
  uint64_t read(const std::string& key) const;
  const std::map<std::string, uint64_t>& numbers() const { return numbers_; }
  /// The names at the top, of tensors, values and parts, each once.
  std::vector<std::string> keys() const;
  /// All tensors, under their whole names.
  const safetensors::Tensors& tensors() const { return tensors_; }

 private:
  void take(safetensors::Contents contents);
  void take_text(const std::string& first_line, std::istream& rest);
  std::string path_;  // of this part: "encoder."
  safetensors::Tensors tensors_;
  std::map<std::string, uint64_t> numbers_;
  safetensors::Metadata values_;
};

/// What save() and load() below put into an archive, and take from it. A tensor that is defined
/// gets its value as by InputArchive::read(); a list gets the saved tensors at its end.
void write(OutputArchive& archive, const Tensor& tensor);
void write(OutputArchive& archive, const std::vector<Tensor>& tensors);
void write(OutputArchive& archive, const nn::Module& module);
void read(InputArchive& archive, Tensor& tensor);
void read(InputArchive& archive, std::vector<Tensor>& tensors);
/// All differences are found before the first value changes; what else is there, is left alone.
void read(InputArchive& archive, nn::Module& module);

template <HoldsModule Holder>
void write(OutputArchive& archive, const Holder& module) {
  write(archive, static_cast<const nn::Module&>(*module));
}
template <HoldsModule Holder>
void read(InputArchive& archive, const Holder& module) {
  read(archive, static_cast<nn::Module&>(*module));
}

/// A sampler, dataset, optimizer or class of your own with the two members below.
template <class T>
concept Archived = requires(T& value, const T& saved, OutputArchive& out, InputArchive& in) {
  saved.save(out);
  value.load(in);
};
template <Archived T>
void write(OutputArchive& archive, const T& value) {
  value.save(archive);
}
template <Archived T>
void read(InputArchive& archive, T& value) {
  value.load(archive);
}

}  // namespace serialize

/// Saves a tensor, a list of tensors, a module, an optimizer, a sampler, or a class of your own
/// with save(archive) and load(archive).
template <class Value>
void save(const Value& value, std::ostream& stream) {
  serialize::OutputArchive archive;
  write(archive, value);
  archive.save_to(stream);
}
/// Hands the bytes to a function.
template <class Value>
void save(const Value& value, const serialize::OutputArchive::Writer& writer) {
  serialize::OutputArchive archive;
  write(archive, value);
  archive.save_to(writer);
}
/// To a file; tensors and modules: io/formats/serialize.h.
template <serialize::Archived Value>
requires(!std::is_base_of_v<nn::Module, Value>) void save(const Value& value,
                                                          const std::filesystem::path& path) {
  serialize::OutputArchive archive;
  write(archive, value);
  archive.save_to(path);
}

/// Loads what save() wrote.
template <class Value>
void load(Value& value, std::istream& stream, std::optional<Device> device = {}) {
  serialize::InputArchive archive;
  archive.load_from(stream, device);
  read(archive, value);
}
template <class Value>
void load(Value& value, const char* bytes, size_t size, std::optional<Device> device = {}) {
  serialize::InputArchive archive;
  archive.load_from(bytes, size, device);
  read(archive, value);
}
template <class Value>
void load(Value& value, const serialize::InputArchive::Reader& reader,
          const std::function<size_t()>& size, std::optional<Device> device = {}) {
  serialize::InputArchive archive;
  archive.load_from(reader, size, device);
  read(archive, value);
}
template <class Value>
void load(Value& value, const std::filesystem::path& path, Device device) {
  serialize::InputArchive archive;
  archive.load_from(path, device);
  read(archive, value);
}
template <serialize::Archived Value>
requires(!std::is_base_of_v<nn::Module, Value>) void load(Value& value,
                                                          const std::filesystem::path& path) {
  serialize::InputArchive archive;
  archive.load_from(path);
  read(archive, value);
}

/// Tensors in their order, as a safetensors file with the names "0", "1", …
void save(const std::vector<Tensor>& tensors, const std::filesystem::path& path);
void load(std::vector<Tensor>& tensors, const std::filesystem::path& path);

}  // namespace halftape
