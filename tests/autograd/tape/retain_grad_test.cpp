// Gradients that are retained, of tensors that are no leaves.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/lists.h"

using namespace halftape;
using testing::leaf;

namespace {

using Values = std::vector<double>;

}  // namespace

TEST_CASE("retain_grad keeps and adds up the gradients of a tensor that is not a leaf") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3;
  y.retain_grad();
  y.retain_grad();  // changes nothing
  CHECK(y.retains_grad());
  (y * y).sum().backward({}, true);
  CHECK(y.grad().to_vector() == Values{6, 12});
  (y * y).sum().backward();
  CHECK(y.grad().to_vector() == Values{12, 24});
  CHECK(x.grad().to_vector() == Values{36, 72});
  CHECK_FALSE(x.retains_grad());
  CHECK_THROWS_AS(x.detach().retain_grad(), Error);
}

TEST_CASE("retain_grad follows a tensor through an in-place change") {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 3;
  y.retain_grad();
  y.mul_(2);
  (y * 5).sum().backward();
  CHECK(y.grad().to_vector() == Values{5, 5});
  CHECK(x.grad().to_vector() == Values{30, 30});
}

TEST_CASE("a tensor that retains its gradient may die before the backward pass") {
  const int64_t tensors = detail::TensorImpl::live_count(), nodes = Node::live_count();
  {
    const Tensor x = leaf({1});
    Tensor y = x * 3;
    y.retain_grad();
    const Tensor z = y * 2;
    y = Tensor();
    z.backward();
    CHECK(x.grad().item() == 6);
  }
  CHECK(detail::TensorImpl::live_count() == tensors);
  CHECK(Node::live_count() == nodes);
}

TEST_CASE("grad() of a tensor that is not a leaf warns, unless its gradient is retained") {
  std::vector<std::string> messages;
  const auto before = set_warning_handler([&](const std::string& m) { messages.push_back(m); });
  const Tensor x = leaf({1}), y = x * 2;
  CHECK_FALSE(y.grad().defined());
  CHECK_FALSE(x.grad().defined());
  CHECK(messages.size() == 1);
  CHECK(messages[0].find("is not a leaf") != std::string::npos);
  y.retain_grad();
  CHECK_FALSE(y.grad().defined());
  CHECK(messages.size() == 1);
  set_warning_handler(before);
}

TEST_CASE("a tensor whose gradient is retained may be detached and then written") {
  const Tensor x = leaf({1, 2});
  for (const bool keeps_history : {false, true}) {
    Tensor y = x * 2;
    y.retain_grad();
    y.detach_();
    keeps_history ? y.mul_(x) : y.zero_();
    CHECK(y.requires_grad() == keeps_history);
    if (!keeps_history) continue;
    y.sum().backward();
    CHECK(y.grad().to_vector() == Values{1, 1});
    CHECK(x.grad().to_vector() == Values{2, 4});
  }
}
