#include "program.h"

#include <fmt/format.h>
#include <halftape/core/machine/os.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <string_view>

using namespace halftape;

namespace sample {
namespace {

volatile std::sig_atomic_t interrupted = 0;  // by which signal
constexpr int kSignals[] = {SIGINT, SIGTERM};

}  // namespace

Interrupt::Interrupt() {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    before_[i] = std::signal(kSignals[i], [](int signal) {
      interrupted = signal;
      for (const int each : kSignals) std::signal(each, SIG_DFL);
    });
    if (before_[i] == SIG_IGN) std::signal(kSignals[i], SIG_IGN);  // a shell's background
  }
}
Interrupt::~Interrupt() {
  for (size_t i = 0; i < std::size(kSignals); ++i) std::signal(kSignals[i], before_[i]);
}
int Interrupt::signal() { return interrupted; }
void Interrupt::ask(int signal) { interrupted = signal; }

void Machine::add_options(CLI::App& app) {
  app.add_option("--device", device, "cpu, cuda, or auto: the GPU if there is one")
      ->capture_default_str();
  app.add_option("--seed", seed, "of the first weights and of the batches")
      ->check([](const std::string& text) {  // CLI11 would take -1 for 2^64 − 1
        return text.starts_with('-') ? "expected 0 or more, found " + text : std::string();
      })
      ->capture_default_str();
  app.add_option("--threads", threads, "of the CPU; results do not depend on it")
      ->check(between(1, 1024));
}

Device Machine::prepare(int local_rank) const {
  if (threads > 0) set_num_threads(threads);
  manual_seed(seed);
  const bool gpu = cuda::is_available();
  if (device == "auto" && !gpu) return kCPU;
  try {
    Device d(device == "auto" ? "cuda" : device);
    if (gpu && (device == "auto" || device == "cuda"))
      d = Device(kCUDA, static_cast<DeviceIndex>(local_rank % cuda::device_count()));
    empty({1}, d);  // throws where this build or machine has none
    return d;
  } catch (const Error& e) {
    throw UserError(fmt::format("--device {}: {}", device, e.what()));
  }
}

void Precision::add_option(CLI::App& app) {
  app.add_option("--precision", name, "float32, fp16, amp or bf16; amp is fp16 with a GradScaler")
      ->check(CLI::IsMember({"float32", "fp16", "amp", "bf16"}))
      ->capture_default_str();
}

Dtype Precision::dtype() const {
  return name == "float32" ? kFloat32 : name == "bf16" ? kBFloat16 : kFloat16;
}

int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  os::open_standard_files();
  const auto complain = [&](const std::exception& e, int code) {
    std::fflush(stdout);
    const std::string name = app.get_name() + ": ";
    std::string text = e.what();
    if (text.starts_with(name)) text.erase(0, name.size());  // mnist: of both
    const int ranks = distributed::get_world_size();
    fmt::print(stderr, "{}{}{}\n", name,
               ranks > 1 ? fmt::format("rank {}: ", distributed::get_rank()) : "", text);
    return code;
  };
  // Only now is it known whether all that was printed has arrived.
  const auto printed = [&](int code) {
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    return complain(std::runtime_error("standard output cannot be written; is its disk full?"), 1);
  };
  try {
    app.parse(argc, argv);
    body();
    return printed(Interrupt::asked() ? 128 + interrupted : 0);
  } catch (const CLI::ParseError& e) {
    // Of an option that is no number in the range of its type: "Could not convert: --lr = x".
    constexpr std::string_view unclear = "Could not convert: ", is = " = ";
    std::string text = e.what();
    if (const size_t at = text.find(is); text.starts_with(unclear) && at != std::string::npos) {
      text.replace(at, is.size(), ": expected a number that it can take, found ");
      return complain(UserError(text.substr(unclear.size())), 2);
    }
    return app.exit(e) == 0 ? printed(0) : 2;
  } catch (const UserError& e) {
    return complain(e, 2);
  } catch (const FileError& e) {
    return complain(e, 2);
  } catch (const std::exception& e) {
    return complain(e, 1);
  }
}

std::string command_line(int argc, char** argv) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:+@%";
  std::string line = std::filesystem::path(argv[0]).filename().string();
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    line += ' ';
    if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

void check_picture(const std::string& path, int64_t channels) {
  const std::string kind = std::filesystem::path(path).extension().string();
  if (kind != ".png" && kind != ".ppm" && kind != ".pgm")
    throw UserError(fmt::format("--out {}: name a .png, .ppm or .pgm", path));
  if (kind == (channels == 1 ? ".ppm" : ".pgm"))
    throw UserError(fmt::format("--out {}: {}; name a .png or {}", path,
                                channels == 1 ? "a .ppm has colours, and the picture has none"
                                              : "a .pgm has no colours, and the picture has",
                                channels == 1 ? ".pgm" : ".ppm"));
  const OutputFile probe("--out", path);  // never committed: leaves nothing behind
}

void check_other_file(const char* option, const std::string& path, const char* other_option,
                      const std::string& other) {
  std::error_code none;
  if (path.empty()) return;
  if (path == other || std::filesystem::equivalent(path, other, none))
    throw UserError(
        fmt::format("{} {}: that is the file of {}; name another one", option, path, other_option));
}

void save_picture(const std::string& path, const Tensor& picture) {
  const int64_t size = std::max<int64_t>(1, 640 / std::max(picture.size(1), picture.size(2)));
  image::save(path, picture.repeat_interleave(size, 1).repeat_interleave(size, 2));
}

uint64_t hash(const nn::Module& module) {
  uint64_t h = 14695981039346656037ull;
  for (const Tensor& p : module.parameters()) {
    const Tensor host = p.detach().cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(host.const_data_ptr());
    for (size_t i = 0; i < static_cast<size_t>(host.numel()) * element_size(host.dtype()); ++i)
      h = (h ^ bytes[i]) * 1099511628211ull;
  }
  return h;
}

amp::autocast autocast_to(Dtype dtype, Device device) {
  return amp::autocast(device.type(), is_16bit(dtype) ? dtype : kBFloat16, is_16bit(dtype));
}

}  // namespace sample
