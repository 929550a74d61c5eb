// Archives: tensors, values and parts, and what is saved in them.
#include <functional>
#include <sstream>

#include "halftape/halftape.h"
#include "repaired.h"
#include "target.h"

namespace halftape::fuzz {
namespace {

using namespace data::samplers;  // NOLINT: of the library, in a file of its own
using serialize::InputArchive, serialize::OutputArchive;

/// The bytes that an archive, or a value, saves.
std::string bytes_of(const OutputArchive& archive) {
  std::ostringstream text;
  archive.save_to(text);
  return text.str();
}
template <class Value>
std::string bytes_of(const Value& value) {
  OutputArchive archive;
  write(archive, value);
  return bytes_of(archive);
}

InputArchive opened(const std::string& bytes) {
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  return archive;
}

/// All that is under the names of an archive, however deep.
OutputArchive copy_of(const InputArchive& in) {
  OutputArchive out;
  for (const std::string& key : in.keys()) {
    Tensor tensor;
    autograd::SavedValue value;
    InputArchive part;
    if (in.try_read(key, tensor))
      out.write(key, tensor);
    else if (in.try_read(key, value))
      out.write(key, value);
    else if (in.try_read(key, part))
      out.write(key, copy_of(part));
    else
      throw Finding("keys() names what is not there: " + key);
  }
  return out;
}

bool read_values(std::string_view input) {
  const std::string once = bytes_of(copy_of(opened(file_of(input, repair_safetensors))));
  if (bytes_of(copy_of(opened(once))) != once) throw Finding("a copy is not what was copied");
  return true;
}
std::vector<std::string> values_seeds() {
  OutputArchive inner, out;
  inner.write("weight", arange(6).reshape({2, 3}));
  inner.write("name", autograd::SavedValue("a\nb \"c\" ü"));
  out.write("encoder", inner);
  out.write("nothing", OutputArchive());
  out.write("least", autograd::SavedValue(INT64_MIN));
  out.write("third", autograd::SavedValue(1.0 / 3));
  out.write("on", autograd::SavedValue(true));
  out.write("list", autograd::SavedValue(TensorList{ones({2}, kFloat16), zeros({0, 3})}));
  const std::string bytes = bytes_of(out);
  return {std::string(1, '\0') + bytes, std::string(1, '\1') + bytes};
}

/// Loads into a value and uses it; a refused load changes nothing, and a taken one can be saved.
template <class Value, class Use>
void load_into(Value&& value, const std::string& bytes, const Use& use) {
  const std::string before = bytes_of(value);
  try {
    load(value, bytes.data(), bytes.size());
  } catch (const Error&) {
    if (bytes_of(value) != before) throw Finding("a refused archive changed something");
    throw;
  }
  const std::string after = bytes_of(value);
  if constexpr (requires { value.clear(); })
    value.clear();  // a list gets the saved ones at its end
  load(value, after.data(), after.size());
  if (bytes_of(value) != after) throw Finding("a saved archive is loaded as another");
  use(value);
}

struct Kind {
  std::function<void(const std::string& bytes)> load;
  std::function<std::string()> seed;
};

/// A sampler that has given a few examples fits another one.
template <class Make>
Kind sampler(Make make) {
  return {[make](const std::string& bytes) {
            load_into(make(), bytes, [](auto& s) { (void)s.next(4), s.reset(), (void)s.next(4); });
          },
          [make] {
            auto sampler = make();
            (void)sampler.next(3);
            return bytes_of(sampler);
          }};
}

/// Chunks of three numbers, read ahead; the samplers are saved with the place in a chunk.
struct Chunks : data::datasets::ChunkDataReader<size_t> {
  std::vector<size_t> read_chunk(size_t chunk) override {
    return {3 * chunk, 3 * chunk + 1, 3 * chunk + 2};
  }
  size_t chunk_count() override { return 4; }
  void reset() override {}
};
template <class Order>
Kind chunks(Order of_chunks, Order of_examples) {
  using Dataset = data::datasets::ChunkDataset<Chunks, Order, Order>;
  const auto made = [=] {
    return std::make_unique<Dataset>(Chunks(), of_chunks, of_examples,
                                     data::datasets::ChunkDatasetOptions(1, 2));
  };
  return {[made](const std::string& bytes) {
            const auto dataset = made();
            (void)dataset->get_batch();
            load_into(*dataset, bytes, [](Dataset& loaded) {
              loaded.reset();
              size_t seen = 0;
              while (const auto batch = loaded.get_batch()) {
                seen += batch->size();
                for (const size_t number : *batch)
                  if (number >= 12) throw Finding("an example that is in no chunk");
              }
              if (seen > 12) throw Finding("an epoch of more examples than there are");
            });
          },
          [made] {
            const auto dataset = made();
            (void)dataset->get_batch();
            return bytes_of(*dataset);
          }};
}

nn::Sequential model() { return nn::Sequential{nn::Linear(2, 3), nn::BatchNorm1d(3)}; }

struct Trained {
  nn::Linear model{2, 2};
  optim::Adam optimizer{model->parameters(), optim::AdamOptions(0.1)};
  Trained() { step(); }
  void step() {
    model->forward(ones({1, 2})).sum().backward();
    optimizer.step();
  }
  void save(OutputArchive& archive) const { optimizer.save(archive); }
  void load(InputArchive& archive) { optimizer.load(archive); }
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      sampler([] { return RandomSampler(10, uint64_t{3}); }),
      sampler([] { return SequentialSampler(10); }),
      sampler([] { return DistributedRandomSampler(10, 2, 1); }),
      sampler([] { return DistributedBatchSampler(RandomSampler(10, uint64_t{3}), 2); }),
      sampler([] { return StreamSampler(10); }),
      chunks(SequentialSampler(4), SequentialSampler(3)),
      chunks(RandomSampler(4, uint64_t{3}), RandomSampler(3, uint64_t{4})),
      {[](const std::string& bytes) {
         load_into(model(), bytes, [](auto& m) { (void)m->forward(ones({2, 2})); });
       },
       [] { return bytes_of(model()); }},
      {[](const std::string& bytes) { load_into(Trained(), bytes, [](auto& t) { t.step(); }); },
       [] { return bytes_of(Trained()); }},
      {[](const std::string& bytes) {
         load_into(TensorList{ones({2}), ones({3}, kInt64)}, bytes, [](auto&) {});
       },
       [] {
         return bytes_of(TensorList{ones({2}), ones({3}, kInt64)});
       }},
  };
  return all;
}

/// The second byte is the kind.
bool read_saved(std::string_view input) {
  if (input.size() < 2) return false;
  const auto kind = static_cast<uint8_t>(input[1]) % kinds().size();
  const std::string bytes = std::string(1, input[0]) + std::string(input.substr(2));
  kinds()[kind].load(
      file_of(bytes, [](std::string& b) { repair_safetensors(b), repair_archive(b); }));
  return true;
}
std::vector<std::string> saved_seeds() {
  std::vector<std::string> seeds;
  for (size_t i = 0; i < kinds().size(); ++i)
    for (const char flag : {'\0', '\1'})
      seeds.push_back(std::string{flag, static_cast<char>(i)} + kinds()[i].seed());
  return seeds;
}

}  // namespace

std::span<const Target> archive_targets() {
  static const std::vector<Target> all = {{"archive", &read_saved, &saved_seeds},
                                          {"archive_values", &read_values, &values_seeds}};
  return all;
}

}  // namespace halftape::fuzz
