// What torch.save wrote (scripts/make_torch_vectors.py pt_files): loaded, run, and compared with
// what torch made of the same input.
#include <doctest/doctest.h>

#include "halftape/io/file/file_kind.h"
#include "halftape/tests/io/formats/pt_files.h"
#include "halftape/tests/io/formats/torch_networks.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;

namespace {

std::filesystem::path file_of(const std::string& name) {
  return std::filesystem::path(HALFTAPE_TEST_DATA) / "vectors" / "pt" / (name + ".pt");
}

}  // namespace

TEST_CASE("networks that torch saved say the same here: both forms of the file, three dtypes") {
  for (const char* name : {"mlp_float32_zip", "mlp_float16_zip", "mlp_bfloat16_zip",
                           "mlp_float32_legacy", "convnet_float32_zip", "convnet_float16_legacy",
                           "gpt_float32_zip", "gpt_bfloat16_legacy"}) {
    CAPTURE(name);
    const std::string text = name;
    const Tensor theirs = pt::load_file(file_of(text), get_default_device(), "y")["tensor"];
    const Tensor ours = testing::output_of(text.substr(0, text.find('_')), file_of(text));
    CHECK(testing::equal_to_rounding(ours, theirs));
    CHECK(pt::read_file(file_of(text)).metadata == pt::Metadata{{"epoch", "3"}});
  }
}

TEST_CASE("both forms of a file hold the same, and load() takes a state_dict as it is") {
  const pt::Tensors zip = pt::load_file(file_of("mlp_float32_zip"));
  const pt::Tensors legacy = pt::load_file(file_of("mlp_float32_legacy"));
  REQUIRE(zip.keys() == legacy.keys());
  for (const auto& item : zip) CHECK(testing::same_bits(item.value(), legacy[item.key()]));
  CHECK(load_tensors(file_of("mlp_float32_legacy")).keys() == zip.keys());
  nn::Sequential mlp = testing::torch_mlp();
  const IncompatibleKeys keys = load(mlp, file_of("mlp_state_dict"));
  CHECK(keys.missing.empty());
  CHECK(keys.unexpected.empty());
  CHECK(testing::same_bits(mlp->parameters()[0].detach().cpu(), zip["model.0.weight"]));
  const std::string said =
      testing::message([&] { load(mlp, file_of("mlp_float32_zip"), Strict::Yes); });
  CHECK(has(said, "whose tensors below \"model\" have the names"));
}

TEST_CASE("the old form in later protocols of Python's pickles is read as that of protocol 2") {
  for (const char* name : {"protocol_3_legacy", "protocol_4_legacy", "protocol_5_legacy"}) {
    CAPTURE(name);
    CHECK(load_tensors(file_of(name))["x"].equal(arange(3.0)));
    std::string bytes = testing::read_bytes(file_of(name));
    CHECK(kind_of(bytes) == FileKind::LegacyPt);
    const size_t mark = legacy_pt_mark(bytes);
    CHECK(mark >= 15);
    for (size_t n = 0; n < mark; ++n) CHECK(legacy_pt_mark(bytes.substr(0, n)) == 0);
  }
}

TEST_CASE("a truncated file of the old form is refused") {
  const std::string whole = testing::read_bytes(file_of("mlp_float32_legacy"));
  testing::TempFolder folder;
  for (size_t n = 0; n < whole.size(); ++n) {
    testing::write_bytes(folder / "cut", whole.substr(0, n));
    CHECK(!testing::message<FileError>([&] { (void)pt::load_file(folder / "cut"); }).empty());
  }
  testing::write_bytes(folder / "long", whole + "x");
  CHECK(has(testing::message<FileError>([&] { (void)pt::load_file(folder / "long"); }),
            "and the end of the file at byte"));
}

TEST_CASE("storages of the old form that are not those of the tensors are refused") {
  testing::TempFolder folder;
  const std::string begin = "\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";
  const std::string floats =
      testing::dict_of(testing::tensor_call(testing::storage("Float", "0", 2), 0, {2}, {1}));
  const std::string data = little_endian(2, 8) + std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  /// What is said of a file with these keys, each as a pickle, and what follows.
  const auto said = [&](const std::string& keys, const std::string& rest) {
    testing::write_bytes(folder / "x", begin + testing::stream(testing::number(1001)) +
                                           testing::stream("}") + testing::stream(floats) +
                                           testing::stream("](" + keys + "e") + rest);
    return testing::message<FileError>([&] { (void)pt::load_file(folder / "x"); });
  };
  const std::string key = testing::text("0");
  CHECK(said(key, data).empty());
  CHECK(pt::load_file(folder / "x")["a"].to_vector() == std::vector<double>{1, 2});
  CHECK(has(said(key + key, data + data), "storage \"0\": is there twice"));
  CHECK(has(said(testing::text("1"), data), "storage \"1\": expected one that a tensor has"));
  CHECK(has(said("", ""), "expected 1 storages and the end of the file at byte"));
}
