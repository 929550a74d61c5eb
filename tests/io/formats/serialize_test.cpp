// Modules and tensors by name: what fits is loaded, what does not changes nothing.
#include <doctest/doctest.h>

#include <sstream>

#include <halftape/halftape.h>

#include "halftape/tests/io/file/files.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

struct NetImpl : nn::Module {
  explicit NetImpl(int64_t hidden = 4, Dtype dtype = kFloat32) {
    first = register_module("first", nn::Linear(3, hidden));
    second = register_module("second", nn::Linear(hidden, 2));
    seen = register_buffer("seen", tensor({int64_t{7}}));
    to(dtype);
  }
  nn::Linear first{nullptr}, second{nullptr};
  Tensor seen;
};
HALFTAPE_MODULE(Net);

std::vector<std::string> bits(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& item : detail::named_tensors(module)) {
    const Tensor t = item->cpu();
    all.emplace_back(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
  }
  return all;
}

}  // namespace

TEST_CASE("a module's parameters and buffers are saved and loaded by name, in place") {
  TempFolder folder;
  for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    Net saved(4, dtype), loaded(4, dtype);
    saved->seen.fill_(9);
    save(saved, folder / "x");
    const Tensor handle = loaded->first->weight;
    const uint64_t version = handle.version();
    CHECK(bits(*saved) != bits(*loaded));
    const IncompatibleKeys keys = load(loaded, folder / "x");
    CHECK(keys.missing.empty());
    CHECK(keys.unexpected.empty());
    CHECK(bits(*saved) == bits(*loaded));
    CHECK(testing::same_bits(handle, saved->first->weight));
    CHECK(handle.requires_grad());
    CHECK(handle.version() > version);  // a graph that saved it would notice
    CHECK(safetensors::load_file(folder / "x").keys() ==
          std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias",
                                   "seen"});
  }
}

TEST_CASE("a module is saved through a holder, a shared pointer or a reference alike") {
  TempFolder folder;
  const Net net;
  save(net, folder / "a");
  save(net.ptr(), folder / "b");
  save(*net, folder / "c");
  CHECK(testing::read_bytes(folder / "a") == testing::read_bytes(folder / "b"));
  CHECK(testing::read_bytes(folder / "a") == testing::read_bytes(folder / "c"));
  const nn::Sequential sequential(nn::Linear(3, 2), nn::Tanh());
  save(sequential, folder / "d");
  CHECK(safetensors::load_file(folder / "d").keys() ==
        std::vector<std::string>{"0.weight", "0.bias"});
}

TEST_CASE("a file that does not fit changes nothing and all differences are listed") {
  TempFolder folder;
  save(Net(5), folder / "x");
  const Net net(4);
  const auto before = bits(*net);
  const std::string said = message([&] { load(net, folder / "x"); });
  CHECK(has(said, (folder / "x").string() +
                      " does not fit the module: 3 differences, and nothing was changed:"));
  CHECK(has(said, "\n  \"first.weight\": expected float32 [4, 3], found float32 [5, 3]"));
  CHECK(has(said, "\n  \"first.bias\": expected float32 [4], found float32 [5]"));
  CHECK(has(said, "\n  \"second.weight\": expected float32 [2, 4], found float32 [2, 5]"));
  safetensors::Tensors longer = detail::named_tensors(*net);
  longer["second.bias"] = ones({3});
  safetensors::save_file(longer, folder / "one");
  CHECK(has(message([&] { load(net, folder / "one"); }), "the module: 1 difference, and nothing"));
  save(Net(4, kFloat16), folder / "y");
  CHECK(has(message([&] { load(net, folder / "y"); }),
            "\"second.bias\": expected float32 [2], found float16 [2]"));
  // A missing, a renamed, an added, a scalar for one element: any single change is noticed.
  const safetensors::Tensors right = detail::named_tensors(*net);
  for (size_t i = 0; i < right.size(); ++i) {
    CAPTURE(i);
    safetensors::Tensors fewer = right, renamed, more = right, reshaped;
    fewer.erase(right[i].key());
    for (size_t k = 0; k < right.size(); ++k) {
      renamed.insert(right[k].key() + (k == i ? "_" : ""), right[k].value());
      reshaped.insert(right[k].key(), k == i ? right[k]->unsqueeze(0) : right[k].value());
    }
    more.insert(right[i].key() + ".x", right[i].value());
    for (const auto& wrong : {fewer, renamed, more, reshaped}) {
      safetensors::save_file(wrong, folder / "wrong");
      CHECK(has(message([&] { load(net, folder / "wrong"); }), "\"" + right[i].key()));
    }
  }
  CHECK(bits(*net) == before);
}

TEST_CASE("not strict, names may be missing on either side, but shapes must fit") {
  TempFolder folder;
  const Net net;
  safetensors::save_file({{"first.bias", ones({4})}, {"other", ones({1})}}, folder / "x");
  const Tensor weight = net->first->weight.detach().clone();
  CHECK(has(message([&] { load(net, folder / "x"); }), "5 differences"));
  const IncompatibleKeys keys = load(net, folder / "x", Strict::No);
  CHECK(keys.missing ==
        std::vector<std::string>{"first.weight", "second.weight", "second.bias", "seen"});
  CHECK(keys.unexpected == std::vector<std::string>{"other"});
  std::ostringstream text;
  text << keys << "; " << IncompatibleKeys() << "; " << IncompatibleKeys{{}, {"x"}};
  CHECK(text.str() ==
        "\"first.weight\" is missing in the file\n\"second.weight\" is missing in the file\n"
        "\"second.bias\" is missing in the file\n\"seen\" is missing in the file\n"
        "\"other\" is missing in the module; all names fit; \"x\" is missing in the module");
  CHECK(net->first->bias.eq(1).all().item<bool>());
  CHECK(testing::same_bits(net->first->weight, weight));
  safetensors::save_file({{"first.bias", ones({})}}, folder / "y");
  CHECK(has(message([&] { load(net, folder / "y", Strict::No); }),
            "expected float32 [4], found float32 []"));
}

TEST_CASE("names below a key are shown only where all of a module's are below it") {
  TempFolder folder;
  safetensors::save_file({{"net.first.weight", ones({4, 3})}}, folder / "x");
  std::string said = message([&] { load(Net(), folder / "x"); });
  CHECK(has(said, "does not fit the module: 6 differences"));
  CHECK(!has(said, "whose tensors below"));
  said = message([&] { load(nn::Tanh(), folder / "x"); });
  CHECK(has(said, "\"net.first.weight\": expected no such name, found float32 [4, 3]"));
}

TEST_CASE("a value that cannot be written gives those before it back") {
  const Net net, other;
  net->seen.set_data(zeros({1}, kInt64).expand({1, 3}));  // three elements that are one
  safetensors::Tensors values = detail::named_tensors(*other);
  values["seen"] = ones({1, 3}, kInt64);
  const auto before = bits(*net);
  CHECK(has(message([&] { load(net, values); }), "several elements are one place"));
  CHECK(bits(*net) == before);
}

TEST_CASE("of hundreds of differences the first are listed, and their number") {
  TempFolder folder;
  safetensors::Tensors many;
  for (int i = 0; i < 300; ++i) many.insert("extra" + std::to_string(i), ones({1}));
  safetensors::save_file(many, folder / "x");
  const std::string said = message([&] { load(Net(), folder / "x"); });
  CHECK(has(said, "305 differences"));
  CHECK(has(said, "… and 265 more"));
}

TEST_CASE("one tensor is saved and loaded without a name") {
  TempFolder folder;
  const Tensor saved = testing::bytes_of_all_kinds(kBFloat16, {2, 3});
  save(saved, folder / "x");
  Tensor loaded;
  load(loaded, folder / "x");
  CHECK(testing::same_bits(loaded, saved));
  save(Net(), folder / "y");
  CHECK(has(message([&] { load(loaded, folder / "y"); }), "holds 5 named tensors"));
  CHECK(testing::same_bits(loaded, saved));
}

TEST_CASE("a tensor that is there stays the same tensor and requires grad as before") {
  TempFolder folder;
  const Tensor saved = tensor({{7., 8., 9.}, {1., 2., 3.}});
  save(saved, folder / "x");
  const auto held = [&](Tensor t, auto into) {
    const Tensor same = t;
    const bool trained = t.requires_grad();
    into(t);
    CHECK(t.is_same(same));
    CHECK(t.requires_grad() == trained);
    CHECK(testing::same_bits(t.detach(), saved));
  };
  const auto from_path = [&](Tensor& t) { load(t, folder / "x"); };
  const auto from_stream = [&](Tensor& t) {
    std::ifstream file(folder / "x", std::ios::binary);
    load(t, file);
  };
  const nn::Linear fc(3, 2);
  for (const Tensor& t : {fc->weight, zeros({2, 3}), zeros({5}), zeros({2, 3}, kFloat64)}) {
    held(t, from_path);
    held(t, from_stream);
  }
  CHECK(testing::same_bits(fc->parameters()[0].detach(), saved));
  Tensor view = zeros({4, 3}), part = view.slice(0, 0, 2), made = fc->weight * 2;
  load(part, folder / "x");
  CHECK(view.equal(zeros({4, 3})));
  CHECK(has(message([&] { load(made, folder / "x"); }), "only of leaves"));
  save(ones({2}, kInt64), folder / "whole");
  CHECK(has(message([&] { load(fc->weight, folder / "whole"); }), "tensor that requires grad"));
}

TEST_CASE("values that are the module's own are loaded as they were") {
  const nn::Sequential net(nn::Linear(2, 2), nn::Linear(2, 2));
  const safetensors::Tensors own = detail::named_tensors(*net);
  safetensors::Tensors swapped;
  for (size_t i = 0; i < 4; ++i) swapped.insert(own[i].key(), own[(i + 2) % 4].value());
  const auto before = bits(*net);
  load(net, swapped);
  CHECK(bits(*net) == std::vector<std::string>{before[2], before[3], before[0], before[1]});
}

TEST_CASE("a path with a zero byte is refused, and no other file is taken for it") {
  TempFolder folder;
  save(ones({2}), folder / "a");
  const std::string bytes = testing::read_bytes(folder / "a");
  const std::filesystem::path zero = folder / std::string("a\0b", 3);
  const std::string reason = (folder / "a").string() + ": expected a path, found a zero byte";
  CHECK(has(message<FileError>([&] { save(zeros({2}), zero); }), reason));
  CHECK(has(message<FileError>([&] { load_tensors(zero); }), reason));
  CHECK(testing::read_bytes(folder / "a") == bytes);
}
