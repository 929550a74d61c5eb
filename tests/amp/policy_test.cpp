#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <halftape/halftape.h>

#include "halftape/tests/support/ops.h"

using namespace halftape;
using amp::autocast;
using amp::Policy;

namespace {

/// Notes the ops that ask, and changes nothing.
struct Listener final : DtypePolicy {
  std::map<std::string, std::set<Cast>> asked;
  Listener() { every_op = true; }
  std::optional<Dtype> cast(const CastOp& op, std::span<const Tensor* const>,
                            std::span<Tensor>) override {
    if (!op.decided) asked[op.name].insert(op.cast);
    return {};
  }
  std::shared_ptr<DtypePolicy> snapshot() const override { return nullptr; }
};

std::string read(const std::string& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in, path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the standard policy is torch's CUDA list") {
  for (const CastOp& op : cast_ops()) {
    INFO(op.name);
    CHECK(amp::name_of(Policy::standard().get(op.name)) ==
          std::string(amp::name_of(Policy::torch_cuda().get(op.name))));
  }
  CHECK_FALSE(Policy::standard().overrides());
  CHECK(Policy::torch_cuda() == Policy::standard());
  CHECK_FALSE(Policy::torch_cpu() == Policy::standard());
}

TEST_CASE("every op that asks a policy is listed with what it declares, and every listed op asks") {
  Listener listener;
  {
    const PolicyScope scope(&listener);
    for (const testing::OpRow& row : testing::op_table()) row.call(testing::draw_all(row));
    const Tensor x = rand({3, 3});
    (void)x.max(), (void)x.min(), (void)aminmax(x, 0), (void)dropout(x, 0.5), (void)trace(x);
  }
  std::set<std::string> listed;
  for (const CastOp& op : cast_ops()) {
    INFO(op.name);
    CHECK(listed.insert(op.name).second);
    REQUIRE(listener.asked.count(op.name) == 1);
    CHECK(listener.asked[op.name] == std::set<Cast>{op.cast});
  }
  for (const auto& asked : listener.asked)
    CHECK_MESSAGE(listed.count(asked.first) == 1, asked.first);
}

TEST_CASE("the documentation shows the table that the code gives") {
  std::ostringstream table;
  table << Policy::standard();
  const std::string page = read(HALFTAPE_TEST_DATA "/../docs/mixed_precision.md");
  CHECK_MESSAGE(page.find("\n\n" + table.str() + "\n") != std::string::npos,
                "docs/mixed_precision.md is to have this table:\n", table.str());
}

TEST_CASE("a policy is a value: copied, changed and compared by its rows") {
  Policy mine = Policy::standard();
  mine.set("softmax", Cast::Lower).set("gelu", Cast::Float32);
  CHECK(mine.get("softmax") == Cast::Lower);
  CHECK(mine.get("gelu") == Cast::Float32);
  CHECK(mine.get("matmul") == Cast::Lower);
  CHECK(Policy::standard().get("softmax") == Cast::Float32);
  CHECK_FALSE(mine == Policy::standard());
  mine.set("softmax", Cast::Float32).set("gelu", Cast::Keep);
  CHECK(mine == Policy::standard());
  std::ostringstream table;
  table << mine.set_all(Cast::Float32);  // categories without ops have no row
  const std::string text = table.str();
  CHECK(
      text.starts_with("| category | inside a region its ops | ops |\n|---|---|---|\n"
                       "| `Float32` | run in float32 | "));
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
}

TEST_CASE("an unknown op is refused, and similar names are offered") {
  CHECK_THROWS_WITH_AS(Policy().set("softmx", Cast::Lower),
                       doctest::Contains("no op is called \"softmx\"; similar names: softmax"),
                       Error);
  CHECK_THROWS_WITH_AS(Policy().get("mat_mul"), doctest::Contains("matmul"), Error);
}

TEST_CASE("a region's policy moves ops to other categories, also those that declare Keep") {
  const Tensor x = rand({3, 4}) + 0.5, h = x.to(kFloat16);
  Policy mine;
  mine.set("gelu", Cast::Float32).set("tanh", Cast::Lower).set("add", Cast::Widest);
  mine.set("linear", Cast::Keep).set("exp", Cast::Keep).set("mul", Cast::Refuse);
  mine.set("mean", Cast::Float32).set("cross_entropy", Cast::Lower);
  const Tensor labels = tensor({1, 0, 3}, kInt64), low_loss = cross_entropy(h, labels);
  const autocast region(kCPU, kFloat16, mine);
  CHECK(gelu(h).dtype() == kFloat32);
  CHECK(gelu(h).equal(gelu(h.to(kFloat32))));
  CHECK(gelu(h, "tanh").dtype() == kFloat32);
  CHECK(tanh(x).dtype() == kFloat16);
  CHECK((h + h).dtype() == kFloat16);
  CHECK((h.to(kBFloat16) + h.to(kBFloat16)).dtype() == kFloat32);
  CHECK(linear(x, ones({2, 4})).dtype() == kFloat32);
  CHECK(exp(h).dtype() == kFloat16);
  CHECK(h.mean().dtype() == kFloat32);
  CHECK(cross_entropy(x, labels).equal(low_loss));
  CHECK_THROWS_WITH_AS(h * h, doctest::Contains("mul: refused by the region's policy"), Error);
  CHECK(matmul(x, x.t()).dtype() == kFloat16);  // not mentioned: as declared
}

TEST_CASE("one name covers every formula of an op") {
  const Tensor h = rand({3}, kFloat16) + 0.5;
  const autocast region(kCPU, kFloat16, Policy().set("pow", Cast::Keep).set("div", Cast::Float32));
  for (const Tensor& y : {pow(h, 2), pow(h, 2.5), pow(h, h), pow(2.0, h), square(h)})
    CHECK(y.dtype() == kFloat16);
  for (const Tensor& y : {h / h, h / 3.0}) CHECK(y.dtype() == kFloat32);
}

TEST_CASE("inside an op the policy is off: its parts are not cast again") {
  const Tensor x = rand({4, 3});
  const Tensor plain = mse_loss(x, x * 2);
  Policy mine;
  mine.set("sub", Cast::Lower).set("pow", Cast::Lower).set("sum", Cast::Lower);
  const autocast region(kCPU, kBFloat16, mine);
  CHECK(mse_loss(x, affine(x, 2, 0)).equal(plain));
  CHECK(x.mean().dtype() == kFloat32);
}

TEST_CASE("an inner region inherits the policy, and may have one of its own") {
  const Tensor h = rand({3}, kFloat16);
  const autocast outer(kCPU, kFloat16, Policy().set("exp", Cast::Keep));
  {
    const autocast inner(kCPU, kBFloat16);
    CHECK(exp(h).dtype() == kFloat16);
  }
  {
    const autocast inner(kCPU, kBFloat16, Policy::standard());
    CHECK(exp(h).dtype() == kFloat32);
  }
  CHECK(exp(h).dtype() == kFloat16);
}

TEST_CASE("torch's CPU list leaves exp and softmax in half, and allows binary_cross_entropy") {
  const Tensor h = rand({3, 3}, kBFloat16), f = rand({3, 3});
  const autocast region(kCPU, kBFloat16, Policy::torch_cpu());
  for (const Tensor& y : {softmax(h, -1), log_softmax(h, -1), exp(h), h.sum(), relu(h)})
    CHECK(y.dtype() == kBFloat16);
  CHECK(matmul(f, f).dtype() == kBFloat16);
  CHECK(mv(f, f.select(0, 0)).dtype() == kFloat32);
  CHECK(cat({h, f}).dtype() == kFloat32);
  CHECK(binary_cross_entropy(h, f).dtype() == kFloat32);
  CHECK(cross_entropy(h, zeros({3}, kInt64)).dtype() == kFloat32);
}

TEST_CASE("torch's CPU list: means over three dimensions are float32, and addr promotes") {
  const Tensor h = rand({1, 2, 4, 4}, kBFloat16), cube = rand({1, 2, 4, 4, 4}, kBFloat16);
  const Tensor m = rand({3, 3}), u = rand({3}, kBFloat16), v = rand({3});
  const autocast region(kCPU, kBFloat16, Policy::torch_cpu());
  CHECK(avg_pool2d(h, 2).dtype() == kBFloat16);
  CHECK(avg_pool3d(cube, 2).equal(avg_pool3d(cube.to(kFloat32), 2)));
  CHECK(local_response_norm(h, 2).equal(local_response_norm(h.to(kFloat32), 2)));
  CHECK(addr(m, u, v).equal(addr(m, u.to(kFloat32), v)));
  CHECK(addr(m.to(kBFloat16), u, v.to(kBFloat16)).dtype() == kBFloat16);
}

TEST_CASE("a dtype argument wins over a policy, too") {
  const Tensor h = rand({3, 3}, kFloat16);
  const autocast region(kCPU, kBFloat16,
                        Policy().set("sum", Cast::Lower).set("mean", Cast::Float32));
  CHECK(h.sum(kFloat16).dtype() == kFloat16);
  CHECK(mean(h, {}, false, kFloat16).dtype() == kFloat16);
  CHECK(h.sum().dtype() == kBFloat16);
}
