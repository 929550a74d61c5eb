// Archives: what is written comes back from a file, a stream and memory; damage is refused.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstring>
#include <limits>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using autograd::SavedValue;
using serialize::InputArchive;
using serialize::OutputArchive;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

SavedValue read_value(const InputArchive& archive, const std::string& key) {
  SavedValue value;
  archive.read(key, value);
  return value;
}

nn::Sequential model() { return nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4)); }

}  // namespace

TEST_CASE("an archive returns tensors, values of each kind, and nested parts") {
  const TempFolder folder;
  OutputArchive inner, out, empty;
  inner.write("weight", arange(6).view({2, 3}).t());
  inner.write("name", SavedValue("a\nb \"c\" ü"));
  out.write("encoder", inner);
  out.write("nothing", empty);
  out.write("least", SavedValue(std::numeric_limits<int64_t>::min()));
  out.write("third", SavedValue(1.0 / 3));
  out.write("inf", SavedValue(-std::numeric_limits<double>::infinity()));
  out.write("on", SavedValue(true));
  out.write("off", SavedValue(false));
  out.write("list", SavedValue(TensorList{ones({2}), zeros({0, 3})}));
  out.write("half", ones({2}, kFloat16), /*is_buffer=*/true);
  out.save_to(folder.path() / "all");
  std::stringstream stream;
  out.save_to(stream);
  for (const bool from_file : {true, false}) {
    InputArchive in;
    if (from_file)
      in.load_from(folder.path() / "all");
    else
      in.load_from(stream);
    CHECK(read_value(in, "least").toInt() == std::numeric_limits<int64_t>::min());
    CHECK(read_value(in, "third").toDouble() == 1.0 / 3);
    CHECK(read_value(in, "inf").toDouble() == -std::numeric_limits<double>::infinity());
    CHECK(read_value(in, "on").toBool());
    CHECK(!read_value(in, "off").toBool());
    CHECK(has(message([&] { (void)read_value(in, "of"); }),
              "field with name \"of\" that is a value; it has encoder, list, half, least"));
    InputArchive part, deeper;
    in.read("encoder", part);
    CHECK(read_value(part, "name").toStringRef() == "a\nb \"c\" ü");
    Tensor weight;
    part.read("weight", weight);
    CHECK(equal(weight, arange(6).view({2, 3}).t()));
    in.read("list", part);
    std::vector<Tensor> list;
    read(part, list);
    CHECK(list.size() == 2);
    CHECK(list[1].sizes() == IntArrayRef{0, 3});
    CHECK(in.try_read("nothing", part));
    CHECK(part.keys().empty());
    CHECK_FALSE(in.try_read("weight", weight));
    for (const char* none : {"enc", "on", "least", "half"}) CHECK_FALSE(in.try_read(none, part));
    in.read("encoder", in);  // into itself
    CHECK(in.keys() == std::vector<std::string>{"weight", "name"});
    CHECK(has(message([&] { in.read("bias", weight); }),
              "field with name \"encoder.bias\" that is a tensor; it has weight, name"));
  }
  CHECK(has(message([&] { out.write("x", Tensor()); }), "undefined"));
  CHECK(has(message([&] { out.write("x", SavedValue()); }), "is empty"));
}

TEST_CASE("a name that is written again has the newer value, of whatever kind") {
  OutputArchive out;
  out.write("x", SavedValue(1));
  out.write("x", ones({2}));
  out.write("y", SavedValue(0.5));
  out.write("y", SavedValue(2));
  out.write("out", out);
  std::stringstream stream;
  out.save_to(stream);
  InputArchive in;
  in.load_from(stream);
  CHECK(equal(read_value(in, "x").toTensor(), ones({2})));
  CHECK(read_value(in, "y").toInt() == 2);
  CHECK(in.keys() == std::vector<std::string>{"x", "out", "y"});

  // In each order, also when the newer one comes with a part.
  const SavedValue kinds[] = {SavedValue(ones({2})), SavedValue(7), SavedValue(0.5)};
  const SavedValue newer_kinds[] = {SavedValue(zeros({3})), SavedValue(8), SavedValue(0.25)};
  for (const SavedValue& former : kinds)
    for (const SavedValue& newer : newer_kinds)
      for (const bool in_part : {false, true}) {
        CAPTURE(&former - kinds);
        CAPTURE(&newer - newer_kinds);
        OutputArchive both, part;
        both.write("p.x", former);
        part.write("x", newer);
        if (in_part)
          both.write("p", part);
        else
          both.write("p.x", newer);
        CHECK(has(message([&] { both.write("p.x", SavedValue()); }), "is empty"));
        std::stringstream bytes;
        both.save_to(bytes);
        in.load_from(bytes);
        const SavedValue found = read_value(in, "p.x");
        if (newer.isTensor()) {
          REQUIRE(found.isTensor());
          CHECK(equal(found.toTensor(), newer.toTensor()));
        } else if (newer.isInt()) {
          REQUIRE(found.isInt());
          CHECK(found.toInt() == 8);
        } else {
          REQUIRE(found.isDouble());
          CHECK(found.toDouble() == 0.25);
        }
        CHECK(in.tensors().size() == (newer.isTensor() ? 1 : 0));
      }
  OutputArchive replaced;
  replaced.write("p", SavedValue(1));
  replaced.write("p", OutputArchive());
  std::stringstream bytes;
  replaced.save_to(bytes);
  in.load_from(bytes);
  InputArchive part;
  CHECK(in.try_read("p", part));
}

TEST_CASE("a part of numbers alone is one, and text of another program is no value") {
  const TempFolder folder;
  OutputArchive out, part;
  part.write("two words", SavedValue(2));
  part.write("", SavedValue(0));
  out.write("p", part);
  out.save_to(folder / "x");
  InputArchive in, read;
  in.load_from(folder / "x");
  in.read("p", read);
  CHECK(read_value(read, "two words").toInt() == 2);
  CHECK(read_value(read, "").toInt() == 0);
  part.save_to(folder / "x");
  in.load_from(folder / "x");
  CHECK(in.keys() == std::vector<std::string>{"", "two words"});
  safetensors::save_file(safetensors::Tensors(), folder / "y",
                         {{"a", "double 1.5x"}, {"b", "bool yes"}, {"c", "1"}});
  in.load_from(folder / "y");
  SavedValue value(7);
  for (const char* name : {"a", "b", "c"}) CHECK(!in.try_read(name, value));
  CHECK(value.toInt() == 7);
  CHECK(in.keys().empty());
}

TEST_CASE("a name that the file keeps for itself is refused, not lost") {
  OutputArchive out, part;
  part.write("format", SavedValue(0.5));
  std::stringstream stream;
  CHECK(has(message([&] { part.save_to(stream); }), "cannot be called \"format\""));
  out.write("part", part);
  out.save_to(stream);
  InputArchive in;
  in.load_from(stream);
  CHECK(read_value(in, "part.format").toDouble() == 0.5);
}

TEST_CASE("a tensor that is defined gets the archive's value and stays the same parameter") {
  OutputArchive out;
  out.write("w", full({2}, 3.0));
  std::stringstream stream;
  out.save_to(stream);
  InputArchive in;
  in.load_from(stream);
  Tensor w = zeros({2}, requires_grad());
  const Tensor handle = w;
  in.read("w", w);
  CHECK(equal(handle, full({2}, 3.0)));
  CHECK(handle.requires_grad());
  const NoGradGuard no_grad;
  w.zero_();  // and the archive keeps its own
  Tensor other;
  in.read("w", other);
  CHECK(equal(other, full({2}, 3.0)));
}

TEST_CASE("a module's archive is the file of save(module, path), and one loads the other") {
  const TempFolder folder;
  nn::Sequential a = model(), b = model(), c = model(), d = model();
  save(a, folder.path() / "a");
  OutputArchive out;
  a->save(out);
  out.save_to(folder.path() / "archive");
  CHECK(read_file("test", folder.path() / "a") == read_file("test", folder.path() / "archive"));
  InputArchive in;
  in.load_from(folder.path() / "a");
  b->load(in);
  load(c, folder.path() / "archive");
  std::stringstream stream;
  save(a, stream);
  load(d, stream);
  for (const auto& other : {b, c, d})
    for (const auto& item : detail::named_tensors(*a))
      CHECK(equal(item.value(), *detail::named_tensors(*other).find(item.key())));
  pt::save_file(detail::named_tensors(*a), folder.path() / "a.pt");
  load(d, folder.path() / "a.pt", kCPU);
  nn::Linear fewer(3, 4);
  const Tensor before = fewer->weight.detach().clone();
  CHECK(has(message([&] { fewer->load(in); }), "nothing of that name"));
  CHECK(equal(fewer->weight, before));
}

TEST_CASE("tensors and lists pass through streams, functions and memory") {
  const TempFolder folder;
  const Tensor x = randn({3, 2}).t();
  std::string bytes;
  save(x, [&](const void* at, size_t n) {
    const size_t some = std::min<size_t>(n, 7);
    bytes.append(static_cast<const char*>(at), some);
    return some;
  });
  Tensor y, z;
  load(y, bytes.data(), bytes.size());
  load(
      z,
      [&](uint64_t at, void* to, size_t n) {
        n = std::min<size_t>({n, 5, bytes.size() - at});
        std::memcpy(to, bytes.data() + at, n);
        return n;
      },
      [&] { return bytes.size(); });
  CHECK(equal(x, y));
  CHECK(equal(x, z));
  CHECK(has(message([&] { save(x, [](const void*, size_t) { return size_t{0}; }); }), "took 0"));
  CHECK(has(message([&] {
              load(
                  z, [](uint64_t, void*, size_t) { return size_t{0}; }, [] { return ~size_t{0}; });
            }),
            "returned 0"));

  std::vector<Tensor> list = {x, ones({}, kInt64)}, loaded = {zeros({1})};
  save(list, folder.path() / "list");
  load(loaded, folder.path() / "list");
  load(loaded, folder.path() / "list");
  REQUIRE(loaded.size() == 5);  // those of the file come after those that are there
  CHECK(equal(loaded[0], zeros({1})));
  CHECK(equal(loaded[1], x));
  CHECK(equal(loaded[4], list[1]));
  std::stringstream none;
  save(std::vector<Tensor>{}, none);
  load(loaded, none);
  CHECK(loaded.size() == 5);
  CHECK(has(message([&] { load(loaded, bytes.data(), bytes.size()); }), "called \"0\", \"1\""));
}

TEST_CASE("of a saved stream, every cut and every flip of a bit is refused") {
  std::stringstream stream;
  save(std::vector<Tensor>{ones({3}), zeros({2}, kBool)}, stream);
  const std::string whole = stream.str();
  std::vector<Tensor> list = {ones({1})};
  for (size_t n = 0; n < whole.size(); ++n) {
    CHECK_MESSAGE(!message([&] { load(list, whole.data(), n); }).empty(), "cut at byte ", n);
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[n] = static_cast<char>(flipped[n] ^ (1 << bit));
      CHECK_MESSAGE(!message([&] { load(list, flipped.data(), flipped.size()); }).empty(), "byte ",
                    n, ", bit ", bit);
    }
  }
  CHECK(!message([&] { load(list, (whole + "x").data(), whole.size() + 1); }).empty());
  REQUIRE(list.size() == 1);
  CHECK(equal(list[0], ones({1})));
  std::ostream full(nullptr);
  CHECK(has(message([&] { save(ones({1}), full); }), "does not take"));
}

TEST_CASE("a list or part that is written again replaces the former one") {
  OutputArchive archive;
  archive.write("list", SavedValue(std::vector<Tensor>{ones({1}), ones({2}), ones({3})}));
  archive.write("lists", ones({9}));
  archive.write("list", SavedValue(std::vector<Tensor>{ones({4}), full({5}, 2.0)}));
  OutputArchive part;
  part.write("number", SavedValue(int64_t{1}));
  part.write("text", SavedValue(std::string("x")));
  archive.write("part", part);
  OutputArchive other;
  other.write("tensor", full({1}, 3.0));
  archive.write("part", other);
  std::stringstream file;
  archive.save_to(file);
  InputArchive read;
  read.load_from(file);
  InputArchive list, replaced;
  read.read("list", list);
  CHECK(list.keys() == std::vector<std::string>{"0", "1"});
  CHECK(equal(list.tensors()["0"], ones({4})));
  CHECK(equal(list.tensors()["1"], full({5}, 2.0)));
  read.read("part", replaced);
  CHECK(replaced.keys() == std::vector<std::string>{"tensor"});
  CHECK(equal(replaced.tensors()["tensor"], full({1}, 3.0)));
  REQUIRE(read.tensors().contains("lists"));
  CHECK(equal(read.tensors()["lists"], ones({9})));
}

TEST_CASE("a value, a tensor and a part of one name replace each other") {
  OutputArchive part;
  part.write("x", ones({2}));
  const auto write = [&](OutputArchive& archive, char kind) {
    if (kind == 'v') archive.write("name", SavedValue(0.5));
    if (kind == 't') archive.write("name", ones({3}));
    if (kind == 'p') archive.write("name", part);
  };
  for (const char first : {'v', 't', 'p'})
    for (const char last : {'v', 't', 'p'}) {
      CAPTURE(first);
      CAPTURE(last);
      OutputArchive archive, expected;
      write(archive, first), write(archive, last);
      write(expected, last);
      std::stringstream file, wanted;
      archive.save_to(file), expected.save_to(wanted);
      CHECK(file.str() == wanted.str());
    }
}

TEST_CASE("lists of many tensors are saved and loaded in time that grows with their number") {
  constexpr int64_t kMany = 100'000;
  const Tensor numbers = arange(kMany);
  std::vector<Tensor> many;
  for (int64_t i = 0; i < kMany; ++i) many.push_back(numbers[i]);
  std::stringstream file;
  save(many, file);
  std::vector<Tensor> back;
  load(back, file);  // 10^10 comparisons of names would take minutes
  REQUIRE(back.size() == many.size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < kMany; ++i) wrong += back[static_cast<size_t>(i)].item<int64_t>() != i;
  CHECK(wrong == 0);
}
