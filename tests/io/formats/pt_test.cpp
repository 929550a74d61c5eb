// PyTorch's .pt files: values, views, names, and what a module makes of them. pt_damage_test.cpp
// has those that must be refused, pt_torch_test.cpp those that torch.save wrote.
#include "halftape/io/formats/pt.h"

#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/io/file/files.h"
#include "halftape/tests/io/formats/pt_files.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::TempFolder;
using testing::write_pt;

namespace {

std::string bytes_of_floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
const std::string kTwelve = bytes_of_floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
std::string twelve(int64_t offset, std::initializer_list<int64_t> sizes,
                   std::initializer_list<int64_t> strides) {
  return testing::tensor_call(testing::storage("Float", "0", 12), offset, sizes, strides);
}

}  // namespace

TEST_CASE("every dtype and odd shape comes back from a .pt file") {
  TempFolder folder;
  pt::Tensors all;
  for (const Dtype dtype : testing::kAllDtypes)
    for (const Shape& shape : testing::kOddShapes)
      all.insert(std::string(name(dtype)) + "/\xc3\xa4" + std::to_string(all.size()),
                 testing::bytes_of_all_kinds(dtype, shape));
  all.insert("view", arange(12, kFloat32).reshape({3, 4}).t().requires_grad_());
  pt::save_file(all, folder / "x");
  const pt::Tensors loaded = pt::load_file(folder / "x", get_default_device());
  REQUIRE(loaded.keys() == all.keys());
  for (const auto& item : all) CHECK(testing::same_bits(loaded[item.key()], item.value()));
  CHECK(!loaded["view"].requires_grad());
  pt::save_file(pt::Tensors(), folder / "none");
  CHECK(pt::load_file(folder / "none").is_empty());
  for (const std::string& wrong : {""s, "a\0b"s, "\xff"s, std::string(4097, 'n')})
    CHECK(has(message([&] {
                pt::save_file({{wrong, ones({1})}}, folder / "y");
              }),
              "pt: a tensor cannot be called"));
  CHECK(has(message([&] { pt::save_file({{"t", Tensor()}}, folder / "y"); }), "is undefined"));
  CHECK(!std::filesystem::exists(folder / "y"));
}

TEST_CASE("views of one storage have their strides and share its elements") {
  TempFolder folder;
  write_pt(
      folder / "x",
      testing::stream("}(" + testing::text("t") + twelve(0, {4, 3}, {1, 4}) +
                      testing::text("steps") + twelve(1, {2, 2}, {4, 2}) + testing::text("same") +
                      twelve(5, {3, 2}, {0, 0}) + testing::text("one") + twelve(11, {}, {}) +
                      testing::text("none") + twelve(99, {0, 3}, {7, 9}) + "u"),
      {{"0", kTwelve}});
  const pt::Tensors loaded = pt::load_file(folder / "x");
  const Tensor all = arange(12, TensorOptions(kFloat32).device(kCPU)).reshape({3, 4});
  CHECK(loaded["t"].equal(all.t()));
  CHECK(loaded["t"].strides() == Strides{1, 4});
  CHECK(loaded["steps"].equal(all.flatten().slice(0, 1, 9).reshape({2, 4}).slice(1, 0, 4, 2)));
  CHECK(loaded["same"].equal(full({3, 2}, 5, TensorOptions(kFloat32).device(kCPU))));
  CHECK(loaded["one"].item<float>() == 11);
  CHECK(loaded["none"].sizes() == Shape{0, 3});
  loaded["t"].index_put_({3, 2}, 42);
  CHECK(loaded["one"].item<float>() == 42);
}

TEST_CASE("storages of a big-endian machine are turned") {
  TempFolder folder;
  write_pt(folder / "x",
           testing::stream(testing::dict_of(
               testing::tensor_call(testing::storage("Int", "0", 2), 0, {2}, {1}))),
           {{"0", "\0\0\0\1\0\0\1\0"s}}, "big");
  CHECK(pt::load_file(folder / "x")["a"].cpu().equal(
      tensor({1, 256}, TensorOptions(kInt32).device(kCPU))));
}

TEST_CASE("names lead through dicts, lists and tuples, and a key picks what lies below it") {
  TempFolder folder;
  const std::string t = twelve(3, {1}, {1});
  const auto entry = [](const std::string& key, const std::string& value) {
    return testing::text(key) + value;
  };
  write_pt(folder / "x",
           testing::stream("}(" + entry("model", "}(" + entry("fc.weight", t) + "u") +
                           entry("epoch", testing::number(-3)) +
                           entry("optimizer", "}(" + testing::number(0) + "(" + t + t + "t" +
                                                  entry("lr", "G?\xb9\x99\x99\x99\x99\x99\x9a") +
                                                  entry("fused", "N") + entry("on", "\x88") + "u") +
                           entry("note", testing::text("\xc3\xa4")) + "u"),
           {{"0", kTwelve}});
  const pt::Contents all = pt::read_file(folder / "x");
  CHECK(all.tensors.keys() ==
        std::vector<std::string>{"model.fc.weight", "optimizer.0.0", "optimizer.0.1"});
  CHECK(all.metadata == pt::Metadata{{"epoch", "-3"},
                                     {"optimizer.lr", "0.1"},
                                     {"optimizer.fused", "None"},
                                     {"optimizer.on", "True"},
                                     {"note", "\xc3\xa4"}});
  CHECK(pt::load_file(folder / "x", kCPU, "model").keys() == std::vector<std::string>{"fc.weight"});
  CHECK(pt::load_file(folder / "x", kCPU, "optimizer.0").keys() ==
        std::vector<std::string>{"0", "1"});
  CHECK(pt::load_file(folder / "x", kCPU, "model.fc.weight").keys() ==
        std::vector<std::string>{"tensor"});
  CHECK(has(message<FileError>([&] { (void)pt::load_file(folder / "x", kCPU, "mod"); }),
            "expected tensors under the key \"mod\", found none; at the top are \"model\", "
            "\"epoch\", \"optimizer\", \"note\""));
  CHECK(has(message<FileError>([&] { (void)pt::load_file(folder / "x", kCPU, "epoch.best"); }),
            "expected tensors under the key \"epoch.best\", found none"));

  write_pt(folder / "one", testing::stream(t), {{"0", kTwelve}});
  Tensor one;
  load(one, folder / "one");  // torch.save(tensor, path)
  CHECK(one.item<float>() == 3);
}

TEST_CASE("dicts that Python 2 made of pairs are read") {
  // As its OrderedDict.__reduce__ says: the class, ([[key, value], ...],) and the attributes.
  const auto dict = [](const std::string& pairs) {
    return "ccollections\nOrderedDict\n]" + pairs + "\x85R";
  };
  const auto weight = [&](int64_t offset) {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + testing::storage("Float", "0", 12) +
           testing::number(offset) + testing::numbers({2}) + testing::numbers({1}) + "\x89" +
           dict("") + "tR";
  };
  TempFolder folder;
  write_pt(folder / "x",
           testing::stream(dict("(](U\1a" + weight(3) + "e](U\1b" + weight(5) + "ee") +
                           "}U\5_more" + dict("") + "sb"),
           {{"0", kTwelve}});
  const pt::Tensors loaded = pt::load_file(folder / "x", kCPU);
  REQUIRE(loaded.keys() == std::vector<std::string>{"a", "b"});
  CHECK(loaded["a"].equal(tensor({3, 4}, TensorOptions(kFloat32).device(kCPU))));
  CHECK(loaded["b"].equal(tensor({5, 6}, TensorOptions(kFloat32).device(kCPU))));
}

TEST_CASE("what lies beside the key may be what is refused elsewhere") {
  TempFolder folder;
  // {"optimizer": {(): 1}, "modeled": a list in itself, "model": {"w": …, "0": a list}}
  write_pt(folder / "x",
           testing::stream("}(" + testing::text("optimizer") + "}(" + ")K\1u" +
                           testing::text("modeled") + "]q\0h\0a"s + testing::text("model") + "}(" +
                           testing::text("w") + twelve(3, {1}, {1}) + "K\0](K\7euu"s),
           {{"0", kTwelve}});
  CHECK(!message<FileError>([&] { (void)pt::read_file(folder / "x"); }).empty());
  const pt::Contents model = pt::read_file(folder / "x", kCPU, "model");
  CHECK(model.tensors.keys() == std::vector<std::string>{"w"});
  CHECK(model.metadata == pt::Metadata{{"0.0", "7"}});
  CHECK(pt::load_file(folder / "x", kCPU, "model.w").keys() == std::vector<std::string>{"tensor"});
}

TEST_CASE("an expanded tensor comes back as one, from a small file, too") {
  TempFolder folder;
  write_pt(folder / "x", testing::stream(testing::dict_of(twelve(3, {1000, 1000}, {0, 0}))),
           {{"0", kTwelve}});
  const Tensor mask = pt::load_file(folder / "x")["a"];
  CHECK(mask.strides() == Strides{0, 0});
  CHECK(mask.sum().item<float>() == 3e6f);
}

TEST_CASE("numbers and text come from every opcode that Python writes them with") {
  TempFolder folder;
  const std::pair<std::string, const char*> values[] = {
      {"K\xff"s, "255"},
      {"M\xff\xff"s, "65535"},
      {"J\xff\xff\xff\x7f"s, "2147483647"},
      {"J\xfe\xff\xff\xff"s, "-2"},
      {"\x8a\0"s, "0"},
      {"\x8a\1\xfd"s, "-3"},
      {"\x8a\2\xff\0"s, "255"},
      {"\x8a\5\0\0\0\0\1"s, "4294967296"},
      {"\x8a\x08\0\0\0\0\0\0\0\x80"s, "-9223372036854775808"},
      {"\x8a\x09\0\0\0\0\0\0\0\x80\0"s, "bytes"},  // 2^63
      {"G\xbf\xf8\0\0\0\0\0\0"s, "-1.5"},
      {"\x88", "True"},
      {"\x89", "False"},
      {"N", "None"},
      {"U\2ab", "ab"},
      {"\x8c\2ab", "ab"},
      {"T\2\0\0\0ab"s, "ab"},
      {"X\2\0\0\0ab"s, "ab"},
      {"\x8d\2\0\0\0\0\0\0\0ab"s, "ab"},
      {"C\2ab", "bytes"},
      {"B\2\0\0\0ab"s, "bytes"},
      {"ctorch\nfloat16\n", "torch.float16"},
      {"ctorch\ndevice\n" + testing::text("cpu") + "\x85R", "torch.device"},
      {testing::storage("Float", "0", 0), "a storage"}};
  std::string list = "](";
  for (const auto& [code, value] : values) list += code;
  write_pt(folder / "x", testing::stream(list + "e"), {{"0", ""}});
  const pt::Metadata metadata = pt::read_file(folder / "x").metadata;
  REQUIRE(metadata.size() == std::size(values));
  for (size_t i = 0; i < std::size(values); ++i)
    CHECK(metadata.at(std::to_string(i)) == values[i].second);
}

TEST_CASE(
    "a module loads a .pt file of its state_dict, and a file that does not fit changes nothing") {
  TempFolder folder;
  manual_seed(1);
  nn::Linear saved(3, 2), loaded(3, 2);
  const auto state = detail::named_tensors(*saved);
  pt::save_file(state, folder / "x.pt");
  CHECK(load(loaded, folder / "x.pt").missing.empty());
  CHECK(testing::same_bits(loaded->weight, saved->weight));
  CHECK(testing::same_bits(loaded->bias, saved->bias));

  nn::Linear other(3, 2);
  const Tensor before = other->weight.detach().clone();
  pt::save_file({{"net.model.weight", saved->weight}, {"net.model.bias", saved->bias}},
                folder / "below.pt");
  const std::string text = message([&] { load(other, folder / "below.pt"); });
  CHECK(has(text, "below.pt, whose tensors below \"net.model\" have the names"));
  CHECK(has(text, "4 differences, and nothing was changed"));
  CHECK(testing::same_bits(other->weight, before));
  load(other, pt::load_file(folder / "below.pt", kCPU, "net.model"));
  CHECK(testing::same_bits(other->weight, saved->weight));

  pt::save_file({{"weight", saved->weight}}, folder / "part.pt");
  CHECK(load(loaded, folder / "part.pt", Strict::No).missing == std::vector<std::string>{"bias"});
  CHECK(has(message([&] { load(loaded, folder / "part.pt"); }), "found nothing of that name"));
}

TEST_CASE("load() and load_tensors() know the format by the first bytes") {
  TempFolder folder;
  const pt::Tensors two = {{"a", arange(3, kInt64)}, {"b", ones({2, 2}, kFloat16)}};
  pt::save_file(two, folder / "1");
  safetensors::save_file(two, folder / "2");
  npy::savez(folder / "3", two);
  for (const char* name : {"1", "2", "3"}) {
    const pt::Tensors loaded = load_tensors(folder / name, get_default_device());
    REQUIRE(loaded.keys() == two.keys());
    for (const auto& item : two) CHECK(testing::same_bits(loaded[item.key()], item.value()));
  }
}
