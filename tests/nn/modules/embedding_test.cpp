// Embeddings against PyTorch's (scripts/torch_vectors/embeddings.py), and as modules.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/modules/module_vectors.h"

using namespace halftape;
namespace F = nn::functional;
using testing::has;
using testing::message;
using testing::ModuleVectors;
using testing::same_bits;

namespace {

Tensor pairs() { return tensor({{1, 4, 0}, {4, 4, 2}}); }

}  // namespace

TEST_CASE("embedding gives PyTorch's rows, and gradients without the padding's") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("embeddings.txt", dtype);
    const Tensor weight = torch.leaf("table", {5, 3});
    const auto check = [&](const std::string& name, const F::EmbeddingFuncOptions& o) {
      for (const Dtype index : {kInt64, kInt32})
        torch.check("embedding/" + name, F::embedding(pairs().to(index), weight, o), {weight});
    };
    using Options = F::EmbeddingFuncOptions;
    check("plain", {});
    check("padded", Options().padding_idx(4));
    check("padded_from_the_end", Options().padding_idx(-5));
    check("by_frequency", Options().scale_grad_by_freq(true));
    check("both", Options().padding_idx(0).scale_grad_by_freq(true));
  }
}

TEST_CASE("rows that are too long are shortened as PyTorch does, in the weight") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("embeddings.txt", dtype);
    for (const auto& [name, norm] : {std::pair{"two", 2.0},
                                     {"one", 1.0},
                                     {"largest", std::numeric_limits<double>::infinity()}}) {
      const Tensor weight = torch.leaf("table", {5, 3});
      const auto o = F::EmbeddingFuncOptions().max_norm(0.75).norm_type(norm);
      const Tensor y = F::embedding(pairs(), weight, o);
      torch.same(std::string("renorm/") + name, weight);
      CHECK(same_bits(y, weight.detach().index_select(0, pairs().view(-1)).view({2, 3, 3})));
      CHECK(y.requires_grad());
    }
  }
}

TEST_CASE("embedding_bag gives PyTorch's sums, means and maxima, and their gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("embeddings.txt", dtype);
    const Tensor weight = torch.leaf("table", {5, 3}), flat = pairs().view(-1);
    const std::pair<const char*, nn::EmbeddingBagMode> modes[] = {
        {"sum", kSum}, {"mean", kMean}, {"max", kMax}};
    using Options = F::EmbeddingBagFuncOptions;
    for (const auto& each : modes) {  // a pair: clang 14 captures no structured binding
      const auto mode = each.second;
      const auto check = [&](const std::string& name, const Tensor& at, Options o) {
        torch.check(std::string("bag/") + each.first + '/' + name,
                    F::embedding_bag(at, weight, o.mode(mode)), {weight});
      };
      check("rows", pairs(), {});
      check("offsets", flat, Options().offsets(tensor({0, 2, 2, 3})));
      check("ends", flat, Options().offsets(tensor({0, 4, 6})).include_last_offset(true));
      check("padded", pairs(), Options().padding_idx(4));
      check("only_padding", pairs().slice(1, 0, 2), Options().padding_idx(4));
      check("by_frequency", pairs(), Options().scale_grad_by_freq(mode != kMax));
    }
    const Tensor factors = torch.leaf("factors", {6});
    const auto o = Options().mode(kSum).offsets(tensor({0, 2, 2, 3})).per_sample_weights(factors);
    torch.check("bag/sum/weighted", F::embedding_bag(flat, weight, o), {weight, factors});
  }
}

TEST_CASE("offsets that are no bags are refused; a GPU's are not read, and its bags are checked") {
  const Tensor table = ones({3, 1}), at = tensor({0, 1, 2});
  const auto refused = [&](const Tensor& offsets, const char* told, bool include_last = false) {
    CHECK(has(message([&] { embedding_bag(table, at, offsets, BagMode::Sum, {}, include_last); }),
              told));
  };
  if (table.is_cuda()) {
    refused(tensor({1}), "embedding_bag: bag -1 at position 0 is out of range [0, 1)");
    refused(tensor({0, 2}), "embedding_bag: bag 1 at position 2 is out of range [0, 1)", true);
    return;
  }
  refused(tensor({1}), "embedding_bag: offset 0 is 1; offsets begin with 0");
  refused(tensor({0, 5}), "offset 1 is 5");
  refused(tensor({0, -1}), "offset 1 is -1");
  refused(tensor({0, 2, 1}), "offset 2 is 1");
  const char* after_all = "with include_last_offset it is where the last bag ends, after all 3";
  refused(tensor({0, 2}), after_all, true);
  refused(tensor({0}), after_all, true);
  CHECK(embedding_bag(table, at, tensor({0, 3, 3})).size(0) == 3);  // empty bags are bags
  CHECK(embedding_bag(table, at, tensor({0, 3, 3}), BagMode::Sum, {}, true).to_vector() ==
        std::vector<double>{3, 0});
}

TEST_CASE("a bag of halves is summed in float32 and rounded once") {
  const Tensor weight = tensor({{2048.0}, {1.0}}).to(kFloat16), at = tensor({{0, 1, 1}});
  CHECK(F::embedding_bag(at, weight, F::EmbeddingBagFuncOptions().mode(kSum)).item() == 2050);
}

TEST_CASE("embedding modules start as LibTorch's and keep their padding at 0") {
  manual_seed(3);
  const nn::Embedding e(nn::EmbeddingOptions(400, 8).padding_idx(-1));
  CHECK(*e->options.padding_idx() == 399);
  CHECK(std::abs(e->weight.mean().item()) < 0.1);
  CHECK(std::abs(e->weight.std().item() - 1) < 0.1);
  CHECK(e->weight.select(0, 399).abs().max().item() == 0);
  const Tensor at = tensor({399, 1, 399});
  CHECK(same_bits(e(at), e->weight.index_select(0, at)));
  e(at).sum().backward();
  CHECK(e->weight.grad().select(0, 399).abs().max().item() == 0);
  CHECK(e->weight.grad().select(0, 1).sum().item() == 8);
}

TEST_CASE("embeddings made from a table use its bytes, and a clone has its own") {
  const Tensor table = tensor({{1., 2.}, {3., 4.}, {5., 6.}});
  const auto e = nn::Embedding::from_pretrained(table);
  CHECK(!e->weight.requires_grad());
  CHECK(same_bits(e(tensor({2, 0})), tensor({{5., 6.}, {1., 2.}})));
  const auto trained = nn::EmbeddingBag::from_pretrained(
      table.clone(), nn::EmbeddingBagFromPretrainedOptions().freeze(false).mode(kMax));
  CHECK(trained->weight.requires_grad());
  CHECK(same_bits(trained(tensor({{2, 0}})), tensor({{5., 6.}})));
  const auto copy = std::dynamic_pointer_cast<nn::EmbeddingImpl>(e->clone());
  copy->weight.zero_();
  CHECK(table.sum().item() == 21);
  table.zero_();
  CHECK(e->weight.sum().item() == 0);
}

TEST_CASE("a table that an embedding is given is its parameter, which modules may share") {
  const nn::Linear out(nn::LinearOptions(3, 5).bias(false));
  const nn::Embedding in(nn::EmbeddingOptions(5, 3)._weight(out->weight));
  CHECK(in->weight.is_same(out->weight));
  out(in(tensor({1}))).sum().backward();
  // Through the output each row gets row 1; through the input row 1 gets the sum of the rows.
  const Tensor row = out->weight.detach()[1], sum = out->weight.detach().sum(0);
  CHECK(out->weight.grad()[0].allclose(row));
  CHECK(out->weight.grad()[1].allclose(row + sum));

  const Tensor table = ones({5, 3});
  const auto frozen = nn::Embedding::from_pretrained(table);
  CHECK(frozen->weight.is_same(table));
  CHECK_FALSE(table.requires_grad());
  const auto bag = nn::EmbeddingBag::from_pretrained(
      table, nn::EmbeddingBagFromPretrainedOptions().freeze(false));
  CHECK(bag->weight.is_same(table));
  CHECK(table.requires_grad());
  CHECK(nn::Embedding(nn::EmbeddingOptions(5, 3)._weight(table * 2))->weight.is_leaf());
}

TEST_CASE("a clone of an embedding with a given table leaves that table as it is") {
  const Tensor table = ones({5, 3});
  const auto check = [&](const auto& module) {
    module->weight.requires_grad_(false);
    const auto copy = std::dynamic_pointer_cast<nn::Module>(module->clone());
    const Tensor weight = copy->parameters()[0];
    CHECK(module->weight.is_same(table));
    CHECK_FALSE(table.requires_grad());
    CHECK_FALSE(weight.requires_grad());
    weight.zero_();
    CHECK(table.sum().item() == 15);
  };
  check(nn::Embedding(nn::EmbeddingOptions(5, 3)._weight(table)));
  check(nn::EmbeddingBag(nn::EmbeddingBagOptions(5, 3)._weight(table)));
}

TEST_CASE("embeddings refuse what they cannot do, by name") {
  const auto said = [](auto f) { return message(f); };
  CHECK(has(said([] {
              nn::Embedding(5, 2)(tensor({0, 1, 7}));
            }),
            "embedding: index 7 at position 2 is out of range [0, 5)"));
  CHECK(has(said([] { nn::Embedding(nn::EmbeddingOptions(5, 2).padding_idx(5)); }),
            "padding_idx 5 must be within num_embeddings 5"));
  CHECK(has(said([] { nn::Embedding(nn::EmbeddingOptions(5, 2).sparse(true)); }), "sparse"));
  CHECK(has(said([] { nn::Embedding(0, 2); }), "num_embeddings 0"));
  CHECK(has(said([] { nn::Embedding::from_pretrained(ones({3})); }), "2-dimensional"));
  CHECK(has(said([] {
              nn::Embedding(nn::EmbeddingOptions(5, 2)._weight(ones({2, 5})));
            }),
            "[2, 5]"));
  CHECK(has(said([] { nn::EmbeddingBag(nn::EmbeddingBagOptions(5, 2).mode(kBatchMean)); }),
            "kSum, kMean or kMax"));
  CHECK(has(said([] { nn::EmbeddingBag(5, 2)(tensor({0, 1})); }), "need offsets"));
}

TEST_CASE("embedding_bag only reads its offsets") {
  const Tensor offsets = tensor({0, 2});
  const uint64_t version = offsets.version();
  F::embedding_bag(tensor({0, 1, 2}), ones({3, 2}),
                   F::EmbeddingBagFuncOptions().offsets(offsets).mode(kSum));
  CHECK(offsets.version() == version);
}
