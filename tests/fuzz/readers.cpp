// Every reader of files but those of archives (archives.cpp).
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sstream>

#include "halftape/halftape.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/deflate.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"
#include "repaired.h"
#include "same.h"
#include "target.h"

namespace halftape::fuzz {
namespace {

namespace fs = std::filesystem;
using testing::read_bytes, testing::TempFolder, testing::write_bytes;

/// The file that the targets write and read; one per process.
fs::path scratch(const std::string& name) {
  static const TempFolder folder;
  return folder / name;
}

fs::path written(const std::string& name, std::string_view bytes) {
  const fs::path path = scratch(name);
  write_bytes(path, bytes);
  return path;
}

/// What `save` writes to a path, as a seed that keeps its check sums and one that repairs them.
std::vector<std::string> saved(const std::string& name,
                               const std::function<void(const fs::path&)>& save) {
  save(scratch(name));
  const std::string bytes = read_bytes(scratch(name));
  return {std::string(1, '\0') + bytes, std::string(1, '\1') + bytes};
}

/// Each chunk is a length, a type, bytes and their CRC-32.
void repair_png(std::string& bytes) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(bytes[at + i]);
    if (length > bytes.size() - at - 12) return;
    const uint32_t sum = crc32(bytes.data() + at + 4, length + 4);
    bytes.replace(at + 8 + length, 4, big_endian(sum, 4));
    at += 12 + size_t{length};
  }
}

/// The stored members' CRC-32, in their local headers and in the directory.
void repair_zip(std::string& bytes) {
  const auto number = [&](size_t at, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << 8 * i;
    return value;
  };
  for (size_t at = 0; (at = bytes.find("PK\1\2", at)) != bytes.npos && at + 46 <= bytes.size();
       at += 46) {
    const uint64_t size = number(at + 20, 4), local = number(at + 42, 4);
    if (local + 30 > bytes.size()) continue;
    const uint64_t data = local + 30 + number(local + 26, 2) + number(local + 28, 2);
    if (number(at + 10, 2) != 0 || data > bytes.size() || size > bytes.size() - data) continue;
    const std::string sum = little_endian(crc32(bytes.data() + data, size), 4);
    bytes.replace(at + 16, 4, sum);
    bytes.replace(local + 14, 4, sum);
  }
}

void repair_nothing(std::string&) {}

Tensor example(Dtype dtype) { return arange(12).reshape({3, 4}).to(dtype); }

safetensors::Tensors examples() {
  safetensors::Tensors tensors;
  for (const Dtype d : {kFloat32, kFloat16, kInt64, kBool}) {
    std::ostringstream name;
    name << "layer." << d;
    tensors.insert(name.str(), example(d));
  }
  return tensors;
}

bool read_safetensors(std::string_view input) {
  const fs::path path = written("a.safetensors", file_of(input, repair_safetensors));
  const auto contents = safetensors::read_file(path);
  for (const auto& item : contents.tensors) (void)item.value().to(kFloat64).sum();
  // What was taken can be written, and comes back.
  safetensors::save_file(contents.tensors, scratch("b.safetensors"), contents.metadata);
  if (safetensors::load_file(scratch("b.safetensors")).size() != contents.tensors.size())
    throw Finding("a file that was read did not survive saving");
  return true;
}
std::vector<std::string> safetensors_seeds() {
  return saved("a.safetensors", [](const fs::path& path) {
    safetensors::save_file(examples(), path, {{"key", "\"value\" \\ é"}});
  });
}

bool read_npy(std::string_view input) {
  const Tensor t = npy::load(written("a.npy", file_of(input, repair_nothing)));
  npy::save(scratch("b.npy"), t);
  const Tensor back = npy::load(scratch("b.npy"));
  if (back.sizes() != t.sizes() || back.dtype() != t.dtype())
    throw Finding("an array that was read did not survive saving");
  return true;
}
std::vector<std::string> npy_seeds() {
  auto seeds = saved("a.npy", [](const fs::path& p) { npy::save(p, example(kFloat32)); });
  seeds.push_back(saved("a.npy", [](const fs::path& p) { npy::save(p, example(kBool)); })[0]);
  return seeds;
}

bool read_npz(std::string_view input) {
  (void)npy::load_npz(written("a.npz", file_of(input, repair_zip)));
  return true;
}
std::vector<std::string> npz_seeds() {
  auto seeds = saved("a.npz", [](const fs::path& path) { npy::savez(path, examples()); });
  if (can_inflate())
    for (const std::string& seed :
         saved("a.npz", [](const fs::path& path) { npy::savez_compressed(path, examples()); }))
      seeds.push_back(seed);
  return seeds;
}

/// Views of one number may claim as much as the limit, which takes time.
struct SmallLimit {
  SmallLimit() { set_unpack_limit(1 << 20); }
  ~SmallLimit() { set_unpack_limit(uint64_t{256} << 20); }
};

bool read_pt(std::string_view input) {
  const SmallLimit limit;
  const pt::Tensors tensors = pt::load_file(written("a.pt", file_of(input, repair_zip)));
  for (const auto& item : tensors) (void)item.value().to(kFloat64).sum();
  pt::save_file(tensors, scratch("b.pt"));
  const pt::Tensors back = pt::load_file(scratch("b.pt"));
  for (const auto& item : tensors)
    if (!back.contains(item.key()) || back[item.key()].sizes() != item.value().sizes())
      throw Finding("a tensor that was read did not survive saving");
  return back.size() == tensors.size();
}
std::vector<std::string> pt_seeds() {
  return saved("a.pt", [](const fs::path& path) { pt::save_file(examples(), path); });
}

bool read_image(std::string_view input) {
  const Tensor t = image::load(written("a.png", file_of(input, repair_png)));
  if (t.numel() == 0 || t.min().item<float>() < 0 || t.max().item<float>() > 1)
    throw Finding("a picture that is empty, or has values outside 0 to 1");
  return true;
}
std::vector<std::string> image_seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"a.png", "a.ppm"})
    for (const std::string& seed : saved(name, [](const fs::path& path) {
           image::save(path, arange(48).reshape({3, 4, 4}).to(kFloat32) / 48);
         }))
      seeds.push_back(seed);
  return seeds;
}

bool read_idx(std::string_view input) {
  // The input is the images' file; the labels are as many as its header promises, if they are few.
  std::string labels(8, '\0');
  labels[2] = 8;
  labels[3] = 1;
  const std::string images(input.substr(std::min<size_t>(1, input.size())));
  if (images.size() >= 8) labels.replace(4, 4, images.substr(4, 4));
  labels += std::string(images.size() >= 8 ? static_cast<uint8_t>(images[7]) : 0, '\1');
  const data::Images read = data::read_idx(written("images", images), written("labels", labels));
  if (static_cast<int64_t>(read.pixels.size()) != read.count * read.rows * read.cols)
    throw Finding("pixels that are not count x rows x cols");
  return true;
}
std::vector<std::string> idx_seeds() {
  const std::string file =
      std::string("\0\0\x08\x03\0\0\0\2\0\0\0\3\0\0\0\3", 16) + std::string(18, '\x40');
  std::vector<std::string> seeds{'\0' + file};
  if (can_inflate())  // the time in the header of gzip is where IDX has the number of labels
    seeds.push_back(std::string("\0\x1f\x8b\x08\0\0\0\0\2\0\xff", 11) + deflated(file) +
                    little_endian(crc32(file.data(), file.size()), 4) +
                    little_endian(file.size(), 4));
  return seeds;
}

bool read_cifar10(std::string_view input) {
  const fs::path path = written("test_batch.bin", input);
  constexpr int64_t kRecord = 1 + 3 * 32 * 32;
  const data::datasets::CIFAR10 read(path.parent_path(), data::datasets::CIFAR10::Mode::kTest);
  const auto records = static_cast<int64_t>(input.size()) / kRecord;
  if (read.images().sizes() != Shape{records, 3, 32, 32} ||
      read.targets().sizes() != Shape{records})
    throw Finding("as many pictures or labels as there are no records");
  for (int64_t i = 0; i < records; ++i)
    if (const int label = input[static_cast<size_t>(i * kRecord)];
        label > 9 || read.targets()[i].item<int64_t>() != label)
      throw Finding("a label that is not the record's");
  if (read.images().min().item<float>() < 0 || read.images().max().item<float>() > 1)
    throw Finding("pixels outside 0 to 1");
  return true;
}
std::vector<std::string> cifar10_seeds() {
  return {'\3' + std::string(3072, '\x80'),
          '\0' + std::string(3072, '\1') + '\x9' + std::string(3072, '\xff')};
}

bool read_csv_text(std::string_view input) {
  const data::Table table = data::parse_csv(input);
  if (table.values.size(0) != static_cast<int64_t>(table.lines.size()))
    throw Finding("a table whose rows have no line each");
  return true;
}
std::vector<std::string> csv_seeds() {
  return {"a,b,class\n1,2.5,0\n-3e2, nan ,1\n\"4\",inf,2\r\n", "x\n1\n\n2\n"};
}

bool read_run_log(std::string_view input) {
  const fs::path path = written("log.csv", input);
  const testing::Warnings unprinted;  // of nearly every input
  {
    RunLog log(path);
    if (!log.columns().empty()) {
      std::vector<RunLog::Cell> row;
      for (const std::string& column : log.columns()) row.push_back({column, 1});
      log.write(row);
    }
  }
  // Nothing that was in the file is lost: it is there, or in what was put aside.
  std::string kept = read_bytes(path);
  for (int i = -1; i < 3; ++i) {
    const fs::path aside = path.string() + ".dropped" + (i < 0 ? "" : "." + std::to_string(i));
    if (fs::exists(aside)) kept += read_bytes(aside), fs::remove(aside);
  }
  if (const size_t last = input.rfind('\n'); last != input.npos && kept.size() < last)
    throw Finding("rows of the log are gone");
  return true;
}
std::vector<std::string> run_log_seeds() {
  return {"step,loss,text\n1,0.5,\"a,b\"\n2,0.25,\"c\"\"d\"\n", "x\n1\n2\n3"};
}

bool read_text(std::string_view input) {
  const data::CharVocabulary vocabulary(input);
  const Tensor tokens = vocabulary.encode(input);
  if (vocabulary.decode(tokens) != input) throw Finding("a text that does not come back");
  data::datasets::TextWindows windows(tokens, 2);
  (void)windows.get(0);
  return true;
}
std::vector<std::string> text_seeds() { return {"to be or not to be", "naïve – ☃ 𝄞"}; }

/// A value of a store, in the file that another program left for it.
bool read_file_store(std::string_view input) {
  static const fs::path folder = scratch("store");
  static distributed::FileStore store(folder, distributed::milliseconds(0));
  const std::string value(input);
  write_bytes(folder / "k_n", value);
  if (!store.check({"n"}) || store.get("n") != value) throw Finding("a value is read as another");
  int64_t sum = 0;
  try {
    sum = store.add("n", 1);
  } catch (const Error&) {
    if (store.get("n") != value) throw Finding("a sum that was refused changed the value");
    return false;
  }
  // What is taken is a number as it is written, but for zeros at its front.
  std::string number = value;
  const size_t digits = number.starts_with('-');
  number.erase(digits, std::min(number.find_first_not_of('0', digits), number.size() - 1) - digits);
  if (number == "-0") number = "0";
  if (std::to_string(sum - 1) != number || store.get("n") != std::to_string(sum))
    throw Finding("a sum that is not one more");
  return true;
}
std::vector<std::string> file_store_seeds() {
  return {"0", "41", "-1", "007", "9223372036854775806", "-9223372036854775808"};
}

/// A module, an optimizer, a schedule and a scaler.
struct Run {
  nn::Linear model{2, 2};
  optim::Adam optimizer{model->parameters(), optim::AdamOptions(0.1)};
  optim::StepLR schedule{optimizer, 2};
  amp::GradScaler scaler;
  TrainState state;

  Run() {
    state.add("model", model);
    state.add("optimizer", optimizer);
    state.add("schedule", schedule);
    state.add("scaler", scaler);
  }
  void step() {
    optimizer.zero_grad();
    scaler.scale(model->forward(ones({1, 2})).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
    schedule.step();
  }
};

/// All that the next step depends on, as state.save() would write it, without a file.
struct Kept {
  int64_t step;
  Tensor weight, bias;
  optim::OptimizerState optimizer;
  Numbers schedule, scaler;
  RandomState random;

  explicit Kept(const Run& run)
      : step(run.state.step),
        weight(run.model->weight.detach().clone()),
        bias(run.model->bias.detach().clone()),
        optimizer(run.optimizer.state_dict()),
        schedule(run.schedule.state_dict()),
        scaler(run.scaler.state_dict()),
        random(get_random_state()) {}
};

bool same_random(const RandomState& a, const RandomState& b) {
  return a.seed == b.seed && a.cpu_engine == b.cpu_engine &&
         std::equal(a.generators.begin(), a.generators.end(), b.generators.begin(),
                    b.generators.end(), [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.seed == y.second.seed &&
                             x.second.offset == y.second.offset &&
                             x.second.mt19937 == y.second.mt19937;
                    });
}

/// Throws unless the run is as it was.
void check_unchanged(const Run& run, const Kept& before) {
  const Kept now(run);
  const char* const changed = now.step != before.step                          ? "the step"
                              : !testing::same_bits(now.weight, before.weight) ? "the weight"
                              : !testing::same_bits(now.bias, before.bias)     ? "the bias"
                              : !same_state(now.optimizer, before.optimizer)   ? "the optimizer"
                              : !same(now.schedule, before.schedule)           ? "the schedule"
                              : !same(now.scaler, before.scaler)               ? "the scaler"
                              : !same_random(now.random, before.random) ? "the random numbers"
                                                                        : nullptr;
  if (changed) throw Finding(std::string("a state that was refused changed ") + changed);
}

/// Throws unless the run holds what the file does.
void check_loaded(const Run& run, const fs::path& path) {
  const safetensors::Contents saved = safetensors::read_file(path);
  const auto check = [&](const std::string& name, const Tensor& value) {
    const Tensor* const there = saved.tensors.find(name);
    if (!there || !testing::same_bits(*there, value))
      throw Finding(name + " was loaded as another tensor");
  };
  for (const auto& item : run.model->named_parameters()) {
    check("model." + item.key(), item.value());
    for (const auto& [key, value] : run.optimizer.state_of(item.value()))
      check("optimizer.model." + item.key() + "." + key, Tensor(value));
  }
  const auto check_number = [&](const std::string& name, double value) {
    const auto there = saved.metadata.find(name);
    if (there == saved.metadata.end() || number_in<double>(there->second) != value)
      throw Finding(name + " was loaded as " + std::to_string(value));
  };
  check_number("run.step", static_cast<double>(run.state.step));
  for (const auto& [name, value] : run.schedule.state_dict())
    check_number("schedule." + name, value);
  for (const auto& [name, value] : run.optimizer.param_groups()[0].options().to_map())
    check_number("optimizer.group0." + name, value);
}

bool read_train_state(std::string_view input) {
  const fs::path path = written("state.safetensors", file_of(input, repair_safetensors));
  Run run;
  run.step();
  const Kept before(run);
  bool taken = true;
  try {
    run.state.load(path);
  } catch (const Error&) {
    taken = false;
  }
  if (taken)
    check_loaded(run, path);
  else
    check_unchanged(run, before);
  run.step();
  return taken;
}
std::vector<std::string> train_state_seeds() {
  return saved("state.safetensors", [](const fs::path& path) {
    Run run;
    run.step();
    run.state.save(path);
  });
}

}  // namespace

std::span<const Target> reader_targets() {
  static const Target kTargets[] = {{"safetensors", &read_safetensors, &safetensors_seeds},
                                    {"npy", &read_npy, &npy_seeds},
                                    {"npz", &read_npz, &npz_seeds},
                                    {"pt", &read_pt, &pt_seeds},
                                    {"image", &read_image, &image_seeds},
                                    {"idx", &read_idx, &idx_seeds},
                                    {"cifar10", &read_cifar10, &cifar10_seeds},
                                    {"csv", &read_csv_text, &csv_seeds},
                                    {"run_log", &read_run_log, &run_log_seeds},
                                    {"text", &read_text, &text_seeds},
                                    {"file_store", &read_file_store, &file_store_seeds},
                                    {"train_state", &read_train_state, &train_state_seeds}};
  return kTargets;
}

}  // namespace halftape::fuzz
