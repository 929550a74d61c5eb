#include "halftape/io/formats/serialize.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/contract/backend.h"
#include "halftape/io/file/file_kind.h"
#include "halftape/io/formats/npy.h"
#include "halftape/io/formats/pt.h"

namespace halftape {
namespace {

std::string described(const Tensor& t) { return detail::str(t.dtype(), ' ', t.sizes()); }

using Index = std::unordered_map<std::string_view, const Tensor*>;
Index index_of(const safetensors::Tensors& tensors) {
  Index index;
  for (const auto& item : tensors) index.emplace(item.key(), &item.value());
  return index;
}

/// Of {"model": {"fc.weight": …}} the key "model", if all names of the module are below it.
std::string key_above(const safetensors::Tensors& into, const safetensors::Tensors& from) {
  if (into.is_empty()) return {};
  const Index there = index_of(from);
  const std::string end = "." + into.front().key();
  for (const auto& item : from) {
    if (!item.key().ends_with(end)) continue;
    std::string key = item.key().substr(0, item.key().size() - end.size());
    if (std::all_of(into.begin(), into.end(),
                    [&](const auto& wanted) { return there.contains(key + "." + wanted.key()); }))
      return key;
  }
  return {};
}

const Buffer* whole_of(const Tensor& t) {
  const Buffer* const buffer = t.array().buffer().get();
  return buffer->whole() ? buffer->whole() : buffer;
}

IncompatibleKeys load_values(nn::Module& module, const safetensors::Tensors& values, Strict strict,
                             const std::string& what) {
  const safetensors::Tensors into = detail::named_tensors(module);
  std::vector<std::string> differences;
  IncompatibleKeys keys = detail::compare(into, values, strict, differences);
  detail::refuse(what + " does not fit the module", differences);
  detail::copy_values(into, values);
  return keys;
}

}  // namespace

namespace detail {

safetensors::Tensors named_tensors(const nn::Module& module) {
  safetensors::Tensors all = module.named_parameters();
  all.update(module.named_buffers());
  return all;
}

IncompatibleKeys compare(const safetensors::Tensors& into, const safetensors::Tensors& from,
                         Strict strict, std::vector<std::string>& differences) {
  IncompatibleKeys keys;
  const auto differ = [&](const std::string& key, const std::string& expected,
                          const std::string& found) {
    differences.push_back("\"" + key + "\": expected " + expected + ", found " + found);
  };
  const Index there = index_of(from), here = index_of(into);
  for (const auto& item : into) {
    const auto found = there.find(item.key());
    if (found == there.end()) {
      keys.missing.push_back(item.key());
      if (strict == Strict::Yes)
        differ(item.key(), described(item.value()), "nothing of that name");
    } else if (described(*found->second) != described(item.value())) {
      differ(item.key(), described(item.value()), described(*found->second));
    }
  }
  for (const auto& item : from) {
    if (here.contains(item.key())) continue;
    keys.unexpected.push_back(item.key());
    if (strict == Strict::Yes) differ(item.key(), "no such name", described(item.value()));
  }
  return keys;
}

void refuse(const std::string& what, const std::vector<std::string>& differences) {
  if (differences.empty()) return;
  constexpr size_t most = 40;
  std::ostringstream text;
  text << what << ": " << differences.size()
       << (differences.size() == 1 ? " difference" : " differences")
       << ", and nothing was changed:";
  for (size_t i = 0; i < std::min(most, differences.size()); ++i) text << "\n  " << differences[i];
  if (differences.size() > most) text << "\n  … and " << differences.size() - most << " more";
  throw Error(text.str());
}

/// All values, or none when it throws.
void copy_values(const safetensors::Tensors& into, const safetensors::Tensors& from) {
  const NoGradGuard no_grad;
  const Index values = index_of(from);
  struct Copy {
    Tensor to, from;
    Array former;
  };
  std::unordered_set<const Buffer*> written;
  for (const auto& item : into)
    if (values.contains(item.key())) written.insert(whole_of(item.value()));
  std::vector<Copy> copies;
  for (const auto& item : into)
    if (const auto found = values.find(item.key()); found != values.end()) {
      const Tensor& to = item.value();
      Tensor value = found->second->to(to.device());
      // An earlier copy would change a value that is itself a part of the module.
      if (written.contains(whole_of(value))) value = value.clone();
      copies.push_back({to.detach(), std::move(value), to.array().clone()});
    }
  size_t done = 0;
  try {
    for (; done < copies.size(); ++done) copies[done].to.copy_(copies[done].from);
  } catch (...) {
    for (size_t i = 0; i <= done; ++i) {
      const Array& to = copies[i].to.array();
      backend(to.device()).copy(to, copies[i].former);
    }
    throw;
  }
}

}  // namespace detail

void save(const nn::Module& module, const std::filesystem::path& path) {
  safetensors::save_file(detail::named_tensors(module), path);
}

void save(const Tensor& tensor, const std::filesystem::path& path) {
  safetensors::save_file({{detail::kOneTensor, tensor}}, path);
}

safetensors::Tensors load_tensors(const std::filesystem::path& path, Device device) {
  InputFile file("load", path);
  switch (kind_of(file)) {
    case FileKind::Pt:
    case FileKind::LegacyPt:
      return pt::load_file(path, device);
    case FileKind::Npz: {
      safetensors::Tensors arrays = npy::load_npz(path);
      for (auto& item : arrays) item.value() = item.value().to(device);
      return arrays;
    }
    default:
      return safetensors::load_file(path, device);
  }
}

std::ostream& operator<<(std::ostream& out, const IncompatibleKeys& keys) {
  if (keys.missing.empty() && keys.unexpected.empty()) return out << "all names fit";
  const char* line = "";
  for (const std::string& name : keys.missing)
    out << std::exchange(line, "\n") << '"' << name << "\" is missing in the file";
  for (const std::string& name : keys.unexpected)
    out << std::exchange(line, "\n") << '"' << name << "\" is missing in the module";
  return out;
}

IncompatibleKeys load(nn::Module& module, const std::filesystem::path& path, Strict strict) {
  const safetensors::Tensors values = load_tensors(path);
  std::string what = "load: " + path.string();
  if (const std::string key = key_above(detail::named_tensors(module), values); !key.empty())
    what += ", whose tensors below \"" + key + "\" have the names " +
            "(load(module, pt::load_file(path, kCPU, \"" + key + "\"))),";
  return load_values(module, values, strict, what);
}

IncompatibleKeys load(nn::Module& module, const safetensors::Tensors& values, Strict strict) {
  return load_values(module, values, strict, "load: what is given");
}

void detail::take(Tensor& tensor, const Tensor& value) {
  if (tensor.defined())
    tensor.set_data(value.to(tensor.device()));
  else
    tensor = value;
}

void load(Tensor& tensor, const std::filesystem::path& path) {
  const safetensors::Tensors values = load_tensors(path);
  const Tensor* found = values.find(detail::kOneTensor);
  HALFTAPE_CHECK(found && values.size() == 1, "load: ", path.string(), " holds ", values.size(),
                 " named tensors, not the one of save(tensor, path); read it with load_tensors");
  detail::take(tensor, *found);
}

}  // namespace halftape
