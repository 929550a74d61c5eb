#include "halftape/io/formats/archive.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/file_kind.h"

namespace halftape {
namespace serialize {
namespace {

constexpr std::string_view kPart = "part", kInt = "int ", kDouble = "double ", kBool = "bool ",
                           kText = "text ";
constexpr std::string_view kTextMark = "halftape";  // too large for the length of a header

/// The value behind `kind`, if the text begins with that and all of it is a number.
template <class Number>
std::optional<SavedValue> number_of(std::string_view text, std::string_view kind) {
  if (!text.starts_with(kind)) return {};
  const std::optional<Number> value = number_in<Number>(text.substr(kind.size()));
  return value ? std::optional(SavedValue(*value)) : std::nullopt;
}

/// Nothing for a text that no archive of ours has written.
std::optional<SavedValue> value_of(std::string_view text) {
  if (auto value = number_of<double>(text, kDouble)) return value;
  if (text == "bool true" || text == "bool false") return SavedValue(text == "bool true");
  if (text.starts_with(kText)) return SavedValue(std::string(text.substr(kText.size())));
  return {};
}

template <class Archive>
void check_found(bool found, const char* what, const std::string& path, const std::string& key,
                 const Archive& archive) {
  if (found) return;
  std::ostringstream names;
  for (const std::string& name : archive.keys()) names << (names.tellp() > 0 ? ", " : "") << name;
  HALFTAPE_CHECK(false, "archive: it does not have a field with name \"", path, key, "\" that is ",
                 what, "; it has ", names.tellp() > 0 ? names.str() : "nothing");
}

}  // namespace

void OutputArchive::forget(const std::string& key) {
  if (parts_.erase(key) > 0) forget_part(key);
  if (tensors_.contains(key)) tensors_.erase(key);
  numbers_.erase(key);
  values_.erase(key);
}

void OutputArchive::forget_part(const std::string& key) {
  const auto is_below = [prefix = key + "."](const auto& item) {
    return item.first.starts_with(prefix);
  };
  std::erase_if(numbers_, is_below);
  std::erase_if(values_, is_below);
  std::vector<safetensors::Tensors::Item> kept;
  for (const auto& item : tensors_)
    if (!is_below(item.pair())) kept.push_back(item);
  tensors_ = safetensors::Tensors(std::move(kept));
}

void OutputArchive::write(const std::string& key, const Tensor& tensor, bool) {
  HALFTAPE_CHECK(tensor.defined(), "archive: the tensor \"", key,
                 "\" is undefined; leave it out, and ask for it with try_read()");
  forget(key);
  tensors_.insert(key, tensor);
}

void OutputArchive::write(const std::string& key, const SavedValue& value) {
  if (value.isTensor()) return write(key, value.toTensor());
  if (value.isTensorList()) {
    OutputArchive list;
    serialize::write(list, value.toTensorVector());
    return write(key, list);
  }
  std::string text;
  if (value.isDouble())
    text = std::string(kDouble) + halftape::text_of(value.toDouble());
  else if (value.isBool())
    text = std::string(kBool) + (value.toBool() ? "true" : "false");
  else if (value.isString())
    text = std::string(kText) + value.toStringRef();
  HALFTAPE_CHECK(value.isInt() || !text.empty(), "archive: the value \"", key,
                 "\" is empty; give it one");
  forget(key);
  if (value.isInt())
    numbers_[key] = static_cast<uint64_t>(value.toInt());
  else
    values_[key] = text;
}

void OutputArchive::write(const std::string& key, const OutputArchive& nested) {
  const OutputArchive copy = nested;  // it may be this one
  forget(key);
  parts_.insert(key);
  const auto put = [&](const std::string& name, const std::string& value) {
    forget(name);
    values_[name] = value;
  };
  if (copy.tensors_.is_empty() && copy.numbers_.empty() && copy.values_.empty())
    put(key, std::string(kPart));
  const std::string prefix = key + '.';
  for (const auto& item : copy.tensors_) write(prefix + item.key(), item.value());
  for (const auto& [name, value] : copy.numbers_) write(prefix + name, static_cast<int64_t>(value));
  for (const auto& [name, value] : copy.values_) put(prefix + name, value);
}

safetensors::Metadata OutputArchive::metadata() const {
  safetensors::Metadata all = values_;
  for (const auto& [name, value] : numbers_)
    all[name] = std::string(kInt) + halftape::text_of(static_cast<int64_t>(value));
  HALFTAPE_CHECK(!all.contains("format"), "archive: a value cannot be called \"format\", a name ",
                 "that safetensors files keep for themselves; choose another, or put it in a part");
  return all;
}

void OutputArchive::save_to(const std::filesystem::path& path) const {
  if (is_text())
    write_file("archive", path, bytes());
  else
    safetensors::save_file(tensors_, path, metadata());
}

void OutputArchive::save_to(std::ostream& stream) const {
  const std::string all = bytes();
  stream.write(all.data(), static_cast<std::streamsize>(all.size())).flush();
  HALFTAPE_CHECK(stream, "save: the stream does not take the ", all.size(), " bytes of an archive");
}

void OutputArchive::save_to(const Writer& writer) const {
  const std::string all = bytes();
  for (size_t done = 0; done < all.size();) {
    const size_t rest = all.size() - done, taken = writer(all.data() + done, rest);
    HALFTAPE_CHECK(taken > 0 && taken <= rest, "save: the function was given ", rest,
                   " bytes and took ", taken);
    done += taken;
  }
}

void InputArchive::take(safetensors::Contents contents) {
  *this = {};
  tensors_ = std::move(contents.tensors);
  for (auto& [name, text] : contents.metadata) {
    if (const auto number = number_of<int64_t>(text, kInt))
      numbers_[name] = static_cast<uint64_t>(number->toInt());
    else
      values_[name] = std::move(text);
  }
}

void InputArchive::load_from(const std::filesystem::path& path, std::optional<Device> device) {
  InputFile file("archive", path);
  std::string first(8, '\0');
  first.resize(file.read(first.data(), first.size()));
  if (first != kTextMark) {
    const FileKind kind = kind_of(file);
    if (kind == FileKind::Unknown || kind == FileKind::Safetensors)
      return take(safetensors::read_file(path, device.value_or(kCPU)));
    safetensors::Contents contents;  // .pt and .npz files, which have no values
    contents.tensors = load_tensors(path, device.value_or(kCPU));
    return take(std::move(contents));
  }
  std::istringstream text(::halftape::read_file("archive", path));
  InputArchive found;
  found.load_from(text);
  HALFTAPE_CHECK(text.peek() == std::istringstream::traits_type::eof(), "load: ", path.string(),
                 " goes on after the last value: it was not written by save()");
  *this = std::move(found);
}

void InputArchive::load_from(std::istream& stream, std::optional<Device> device) {
  std::string bytes(kTextMark.size(), '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  HALFTAPE_CHECK(stream, "load: expected an archive, found the end after ", stream.gcount(),
                 " bytes: this was not written by save()");
  if (bytes == kTextMark) {
    std::string line;
    std::getline(stream, line);
    return take_text(bytes + line, stream);
  }
  bytes.append(std::istreambuf_iterator<char>(stream), {});
  take(safetensors::read(bytes, device.value_or(kCPU), "stream"));
}

void InputArchive::load_from(const char* bytes, size_t size, std::optional<Device> device) {
  std::istringstream stream(std::string(bytes, size));
  load_from(stream, device);
}

void InputArchive::load_from(const Reader& reader, const std::function<size_t()>& size,
                             std::optional<Device> device) {
  std::string bytes;
  const size_t end = size();
  char block[1 << 16];
  while (bytes.size() < end) {  // and no memory for what a function only says to have
    const size_t asked = std::min(sizeof block, end - bytes.size()),
                 got = reader(bytes.size(), block, asked);
    HALFTAPE_CHECK(got > 0 && got <= asked, "load: the function was asked for ", asked,
                   " bytes from byte ", bytes.size(), " on and returned ", got);
    bytes.append(block, got);
  }
  load_from(bytes.data(), bytes.size(), device);
}

bool InputArchive::try_read(const std::string& key, Tensor& tensor, bool) const {
  const Tensor* const found = tensors_.find(key);
  if (!found) return false;
  detail::take(tensor, found->clone());
  return true;
}

bool InputArchive::try_read(const std::string& key, SavedValue& value) const {
  if (const auto number = numbers_.find(key); number != numbers_.end()) {
    value = static_cast<int64_t>(number->second);
    return true;
  }
  if (const Tensor* const tensor = tensors_.find(key)) {
    value = tensor->clone();
    return true;
  }
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  auto parsed = value_of(found->second);
  if (parsed) value = std::move(*parsed);
  return parsed.has_value();
}

bool InputArchive::try_read(const std::string& key, InputArchive& part) const {
  const std::string prefix = key + ".";
  InputArchive below;
  below.path_ = path_ + prefix;
  for (const auto& item : tensors_)
    if (item.key().starts_with(prefix))
      below.tensors_.insert(item.key().substr(prefix.size()), item.value());
  for (const auto& [name, value] : numbers_)
    if (name.starts_with(prefix)) below.numbers_[name.substr(prefix.size())] = value;
  for (const auto& [name, value] : values_)
    if (name.starts_with(prefix)) below.values_[name.substr(prefix.size())] = value;
  const auto marked = values_.find(key);
  const bool is_empty =
      below.tensors_.is_empty() && below.numbers_.empty() && below.values_.empty();
  if (is_empty && (marked == values_.end() || marked->second != kPart)) return false;
  part = std::move(below);
  return true;
}

void InputArchive::read(const std::string& key, Tensor& tensor, bool) const {
  check_found(try_read(key, tensor), "a tensor", path_, key, *this);
}
void InputArchive::read(const std::string& key, SavedValue& value) const {
  check_found(try_read(key, value), "a value", path_, key, *this);
}
void InputArchive::read(const std::string& key, InputArchive& part) const {
  check_found(try_read(key, part), "a part", path_, key, *this);
}

std::vector<std::string> InputArchive::keys() const {
  std::vector<std::string> all;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    const std::string top = name.substr(0, name.find('.'));
    if (seen.insert(top).second) all.push_back(top);
  };
  for (const auto& item : tensors_) add(item.key());
  for (const auto& [name, value] : numbers_) add(name);
  for (const auto& [name, value] : values_)
    if (value == kPart || value_of(value)) add(name);
  return all;
}

void write(OutputArchive& archive, const Tensor& tensor) {
  archive.write(detail::kOneTensor, tensor);
}

void write(OutputArchive& archive, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) archive.write(std::to_string(i), tensors[i]);
}

void write(OutputArchive& archive, const nn::Module& module) {
  for (const auto& item : detail::named_tensors(module)) archive.write(item.key(), item.value());
}

void read(InputArchive& archive, Tensor& tensor) {
  const safetensors::Tensors& all = archive.tensors();
  const Tensor* const found = all.find(detail::kOneTensor);
  HALFTAPE_CHECK(found && all.size() == 1, "load: expected one tensor, as save(tensor, …) writes ",
                 "it, found ", all.size(), " under names; read them with an InputArchive");
  detail::take(tensor, found->clone());
}

void read(InputArchive& archive, std::vector<Tensor>& tensors) {
  std::vector<Tensor> loaded;
  const safetensors::Tensors& all = archive.tensors();
  while (const Tensor* const next = all.find(std::to_string(loaded.size())))
    loaded.push_back(next->clone());
  HALFTAPE_CHECK(loaded.size() == all.size(), "load: expected a list of tensors, called \"0\", ",
                 "\"1\", …, found ", all.size(), " tensors, of which ", loaded.size(),
                 " have these names; read them with an InputArchive");
  tensors.insert(tensors.end(), loaded.begin(), loaded.end());
}

void read(InputArchive& archive, nn::Module& module) {
  const safetensors::Tensors into = detail::named_tensors(module);
  safetensors::Tensors from;
  for (const auto& item : into)
    if (const Tensor* const found = archive.tensors().find(item.key()))
      from.insert(item.key(), *found);
  load(module, from);
}

}  // namespace serialize

void save(const std::vector<Tensor>& tensors, const std::filesystem::path& path) {
  serialize::OutputArchive archive;
  write(archive, tensors);
  archive.save_to(path);
}

void load(std::vector<Tensor>& tensors, const std::filesystem::path& path) {
  serialize::InputArchive archive;
  archive.load_from(path);
  read(archive, tensors);
}

}  // namespace halftape
