// An optimizer alone, saved and loaded: the next step is the same to the bit.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/optimizers.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::same_bits;

namespace {

/// One step for an input of so many everywhere.
void step(optim::Optimizer& optimizer, nn::Linear& model, double input = 1) {
  const auto loss = [&] {
    optimizer.zero_grad();
    const Tensor value = model->forward(full({4, 3}, input)).pow(2).sum();
    value.backward();
    return value;
  };
  optimizer.step(loss);
}

void check_same_state(const optim::Optimizer& one, const optim::Optimizer& other) {
  const optim::OptimizerState a = one.state_dict(), b = other.state_dict();
  CHECK(a.groups == b.groups);
  REQUIRE(a.state.size() == b.state.size());
  for (size_t i = 0; i < a.state.size(); ++i) {
    REQUIRE(a.state[i].size() == b.state[i].size());
    for (const auto& [key, value] : a.state[i]) {
      const std::string name = key;
      CAPTURE(name);
      REQUIRE(b.state[i].contains(key));
      CHECK(same_bits(Tensor(value), Tensor(b.state[i].at(key))));
    }
  }
}

}  // namespace

TEST_CASE("an optimizer that was loaded from a file or stream steps as the one that was saved") {
  for (const testing::OptimizerKind& kind : testing::optimizers()) {
    CAPTURE(kind.name);
    const testing::TempFolder folder;
    manual_seed(1);
    nn::Linear a(3, 2), b(3, 2), c(3, 2);
    const auto first = kind.make(a->parameters());
    step(*first, a);
    step(*first, a, 2);
    // With the options of the class: what they are to be, the file says.
    const auto second = kind.make_defaults({optim::OptimizerParamGroup(b->parameters())}),
               third = kind.make_defaults({optim::OptimizerParamGroup(c->parameters())});
    std::stringstream stream;
    save(*first, stream);
    save(*first, folder / "optimizer");
    load(*second, stream);
    load(*third, folder / "optimizer");
    for (nn::Linear* model : {&b, &c}) {
      std::stringstream weights;
      save(a, weights);
      load(*model, weights);
    }
    const Tensor before = a->weight.detach().clone();
    for (const double input : {-1, 3}) {
      step(*first, a, input);
      step(*second, b, input);
      step(*third, c, input);
    }
    CHECK(!same_bits(a->weight, before));
    for (const nn::Linear& model : {b, c}) {
      CHECK(same_bits(model->weight, a->weight));
      CHECK(same_bits(model->bias, a->bias));
    }
    check_same_state(*second, *first);
    check_same_state(*third, *first);
  }
}

TEST_CASE("an optimizer refuses a state whose groups have other sizes") {
  const Tensor p = ones({2}, requires_grad()), q = ones({2}, requires_grad());
  const Tensor r = ones({2}, requires_grad());
  const auto groups = [](TensorList a, TensorList b) {
    using Group = optim::OptimizerParamGroup;
    return std::vector{Group(std::move(a), optim::SGDOptions(0.1).clone()),
                       Group(std::move(b), optim::SGDOptions(0.2).clone())};
  };
  optim::SGD one(groups({p, q}, {r})), same(groups({p, q}, {r})), other(groups({p}, {q, r}));
  for (optim::SGD* into : {&other, &same}) {
    CAPTURE(into == &same);
    std::stringstream stream;
    save(one, stream);
    optim::OptimizerState state = one.state_dict();
    const std::string by_archive = message([&] { load(*into, stream); });
    const std::string by_state = message([&] { into->load_state_dict(state); });
    for (const std::string& said : {by_archive, by_state}) {
      CHECK(said.empty() == (into == &same));
      for (const char* what : {"its group 0 has 2 parameters, this optimizer's 1",
                               "its group 1 has 1 parameters, this optimizer's 2"})
        CHECK(has(said, what) == (into == &other));
    }
    state.group_sizes.clear();  // as one that was made by hand
    into->load_state_dict(state);
  }
  serialize::OutputArchive out;
  one.save(out);
  out.write("groups.0.params", autograd::SavedValue(0.5));
  std::stringstream broken;
  out.save_to(broken);
  CHECK(has(message([&] { load(one, broken); }), "group 0 has 0.5 parameters, expected a whole"));
}

TEST_CASE("an optimizer refuses a state of other parameters and a file of something else") {
  const nn::Linear a(3, 2), other(4, 2);
  optim::SGD from(a->parameters(), optim::SGDOptions(0.1).momentum(0.9)),
      into(other->parameters(), optim::SGDOptions(0.2));
  nn::Linear model = a;
  step(from, model);
  std::stringstream stream, module, fresh;
  save(from, stream);
  CHECK(has(message([&] { load(into, stream); }), "does not fit"));
  CHECK(static_cast<optim::SGDOptions&>(into.param_groups()[0].options()).lr() == 0.2);
  save(a, module);
  CHECK(has(message([&] { load(into, module); }), "field with name \"groups\""));
  serialize::OutputArchive out;
  from.save(out);
  out.write("state.5.momentum_buffer", ones({3}));
  std::stringstream gap;
  out.save_to(gap);
  CHECK(has(message([&] { load(from, gap); }), "numbered from 0 on, found 1 and 2 of 1 and 3"));
  // Before the first step there is no state, and that is loaded as well.
  save(into, fresh);
  load(into, fresh);
}
