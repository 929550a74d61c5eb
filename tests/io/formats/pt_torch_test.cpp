// What torch.save wrote (scripts/make_torch_vectors.py pt_files): loaded, run, and compared with
// what torch made of the same input.
#include <doctest/doctest.h>

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
  nn::Sequential mlp = testing::torch_mlp();
  const IncompatibleKeys keys = load(mlp, file_of("mlp_state_dict"));
  CHECK(keys.missing.empty());
  CHECK(keys.unexpected.empty());
  CHECK(testing::same_bits(mlp->parameters()[0].detach().cpu(), zip["model.0.weight"]));
  const std::string said =
      testing::message([&] { load(mlp, file_of("mlp_float32_zip"), Strict::Yes); });
  CHECK(has(said, "whose tensors below \"model\" have the names"));
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
