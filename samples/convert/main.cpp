// Converts named tensors between PyTorch's .pt, safetensors and NumPy's .npz and .npy, or lists
// them. The first bytes of the input say what it is, and the name of the output what it becomes.
//
//     halftape-convert net.pt --list
//     halftape-convert net.pt --out net.safetensors --dtype float16
//     halftape-convert checkpoint.pt --key model --out net.npz
//
// --dtype casts the floating-point tensors and counts the numbers that become infinite or 0 by it.
// The output is there whole or not at all. Exit code 2: wrong arguments or files; the message says
// what to do.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "program.h"

using namespace halftape;
using safetensors::Metadata;
using safetensors::Tensors;
using sample::UserError;
namespace fs = std::filesystem;

namespace {

struct Arguments {
  std::string input, out, key, dtype;
  bool list = false;
};

constexpr Dtype kTargets[] = {kFloat16, kBFloat16, kFloat32, kFloat64};

void declare(CLI::App& app, Arguments& a) {
  std::vector<std::string> names;
  for (const Dtype d : kTargets) names.emplace_back(name(d));
  app.add_option("input", a.input, "a .pt, .pth, .safetensors, .npz or .npy file")->required();
  app.add_option("--out", a.out, "the file to write: NAME.pt, .safetensors, .npz or .npy");
  app.add_flag("--list", a.list, "print names, dtypes, shapes and bytes");
  app.add_option("--key", a.key, "only what lies below this key: model of {\"model\": …}");
  app.add_option("--dtype", a.dtype, "cast floating-point tensors to it, and count what is lost")
      ->check(CLI::IsMember(names));
}

enum class Format { Pt, Safetensors, Npz, Npy };

/// By the end of the name.
Format format_of(const std::string& path) {
  const std::pair<const char*, Format> kEnds[] = {{".pt", Format::Pt},
                                                  {".pth", Format::Pt},
                                                  {".safetensors", Format::Safetensors},
                                                  {".npz", Format::Npz},
                                                  {".npy", Format::Npy}};
  for (const auto& [end, format] : kEnds)
    if (fs::path(path).extension() == end) return format;
  throw UserError(fmt::format(
      "--out {}: expected a name that ends in .pt, .pth, .safetensors, .npz or .npy", path));
}

/// What lies below the key, as pt::read_file() picks it.
Tensors below(const std::string& key, const Tensors& all) {
  if (key.empty()) return all;
  std::vector<Tensors::Item> chosen;
  for (const auto& item : all) {
    if (item.key() == key) chosen.emplace_back("tensor", item.value());
    if (item.key().starts_with(key + '.'))
      chosen.emplace_back(item.key().substr(key.size() + 1), item.value());
  }
  if (chosen.empty())
    throw UserError(fmt::format(
        "--key {}: no name is that, or begins with \"{}.\"; --list shows them all", key, key));
  return Tensors(std::move(chosen));
}

pt::Contents read(const Arguments& a) {
  InputFile file("halftape-convert", a.input);
  switch (kind_of(file)) {
    case FileKind::Pt:
    case FileKind::LegacyPt:
      return pt::read_file(a.input, kCPU, a.key);
    case FileKind::Npz:
      return {below(a.key, npy::load_npz(a.input)), {}};
    case FileKind::Npy:
      return {below(a.key, {{"tensor", npy::load(a.input)}}), {}};
    default: {
      const auto contents = safetensors::read_file(a.input);
      return {below(a.key, contents.tensors), contents.metadata};
    }
  }
}

template <class T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}
/// A name may hold what a terminal obeys.
std::string shown(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  // U+0080 to U+009F, of which U+009B begins a command as ESC [ does.
  for (size_t at = 0; (at = text.find('\xc2', at)) != text.npos; ++at)
    if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xa0)
      text.replace(at, 2, "?");
  return text;
}

uint64_t bytes_of(const Tensors& tensors) {
  uint64_t bytes = 0;
  for (const auto& item : tensors) bytes += item->nbytes();
  return bytes;
}
std::string size_text(const Tensors& tensors) {
  return fmt::format("{} tensor{}, {} bytes", tensors.size(), tensors.size() == 1 ? "" : "s",
                     bytes_of(tensors));
}

void list(const pt::Contents& contents) {
  size_t width = 4, shape_width = 5;
  for (const auto& item : contents.tensors) {
    width = std::max(width, item.key().size());
    shape_width = std::max(shape_width, text_of(item->sizes()).size());
  }
  fmt::print("{:<{}}  {:<8}  {:<{}}  {:>12}\n", "name", width, "dtype", "shape", shape_width,
             "bytes");
  for (const auto& item : contents.tensors)
    fmt::print("{:<{}}  {:<8}  {:<{}}  {:>12}\n", shown(item.key()), width, name(item->dtype()),
               text_of(item->sizes()), shape_width, item->nbytes());
  for (const auto& [key, value] : contents.metadata)
    fmt::print("{} = {}\n", shown(key), shown(value));
  fmt::print("{}\n", size_text(contents.tensors));
}

/// Casts floating-point tensors, and prints for each what it lost.
void cast(Tensors& tensors, Dtype dtype) {
  int64_t numbers = 0, infinite = 0, zero = 0;
  for (auto& item : tensors) {
    const Tensor from = item.value();
    if (!is_floating_point(from.dtype()) || from.dtype() == dtype) continue;
    const Tensor to = from.to(dtype);
    const auto became = [&](const Tensor& now, const Tensor& before) {
      return logical_and(now, before).count_nonzero().item<int64_t>();
    };
    const int64_t large = became(to.isinf(), from.isfinite()), small = became(to.eq(0), from.ne(0));
    if (large + small > 0)
      fmt::print("{}: {} became infinite, {} became 0\n", shown(item.key()), large, small);
    numbers += from.numel();
    infinite += large;
    zero += small;
    item.value() = to;
  }
  fmt::print("{}: of {} numbers {} became infinite and {} became 0\n", name(dtype), numbers,
             infinite, zero);
}

void write(const Arguments& a, Format format, const pt::Contents& contents) {
  const bool numpy = format == Format::Npz || format == Format::Npy;
  for (const auto& item : contents.tensors)
    if (numpy && item->dtype() == kBFloat16)
      throw UserError(
          fmt::format("--out {}: {} is bfloat16, which NumPy does not have; add "
                      "--dtype float32",
                      a.out, shown(item.key())));
  if (format == Format::Npy && contents.tensors.size() != 1)
    throw UserError(
        fmt::format("--out {}: an .npy file holds one array, the input has {}; name an "
                    ".npz file",
                    a.out, contents.tensors.size()));
  switch (format) {
    case Format::Pt:
      pt::save_file(contents.tensors, a.out);
      break;
    case Format::Safetensors:
      safetensors::save_file(contents.tensors, a.out, contents.metadata);
      break;
    case Format::Npz:
      npy::savez(a.out, contents.tensors);
      break;
    case Format::Npy:
      npy::save(a.out, contents.tensors.front().value());
  }
  fmt::print("{}: {}\n", a.out, size_text(contents.tensors));
}

void run(const Arguments& a) {
  if (a.out.empty() && !a.list)
    throw UserError("say --list to see what the file holds, or --out FILE to convert it");
  std::optional<Format> format;
  if (!a.out.empty()) format = format_of(a.out);
  std::error_code none;
  // The output is written under the second name first.
  for (const std::string& written : {a.out, a.out + ".partial"})
    if (format && fs::equivalent(a.input, written, none))
      throw UserError(fmt::format("--out {}: {} is the input; name another file", a.out, written));
  pt::Contents contents = read(a);
  const auto* const target = std::find_if(std::begin(kTargets), std::end(kTargets),
                                          [&](Dtype d) { return name(d) == a.dtype; });
  if (target != std::end(kTargets)) cast(contents.tensors, *target);
  if (a.list) list(contents);
  if (!format) return;
  // The keys of a checkpoint's numbers mean nothing to a reader of weights.
  InputFile file("halftape-convert", a.input);
  const bool was_safetensors = kind_of(file) == FileKind::Safetensors;
  if (format != Format::Safetensors || !was_safetensors) {
    if (was_safetensors) contents.metadata.erase("format");  // says which program wrote the file
    if (const size_t n = contents.metadata.size(); n > 0)
      fmt::print("left out: {} (--list shows {})\n",
                 n == 1 ? "one number or text" : fmt::format("{} numbers and texts", n),
                 n == 1 ? "it" : "them");
    contents.metadata.clear();
  }
  write(a, *format, contents);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Converts named tensors between .pt, safetensors and .npz, or lists them.",
               "halftape-convert"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] {
    try {
      run(a);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& e) {  // of the input, or of a name that the output cannot have
      throw UserError(e.what());
    }
  });
}
