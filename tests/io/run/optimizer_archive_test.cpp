// An optimizer alone, saved and loaded: the next step is the same to the bit.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {

void step(optim::Optimizer& optimizer, nn::Linear& model) {
  const auto loss = [&] {
    optimizer.zero_grad();
    const Tensor value = model->forward(ones({4, 3})).pow(2).sum();
    value.backward();
    return value;
  };
  optimizer.step(loss);
}

template <class Optimizer, class Options>
void check_resumes(Options options) {
  const testing::TempFolder folder;
  manual_seed(1);
  nn::Linear a(3, 2), b(3, 2);
  Optimizer first(a->parameters(), options);
  step(first, a);
  step(first, a);
  options.lr(0.7);
  Optimizer second(b->parameters(), options), third(b->parameters(), options);
  std::stringstream stream;
  save(first, stream);
  save(first, folder.path() / "optimizer");
  load(second, stream);
  load(third, folder.path() / "optimizer");
  CHECK(second.param_groups()[0].options() == first.param_groups()[0].options());
  for (Optimizer* other : {&second, &third}) {
    std::stringstream weights;
    save(a, weights);
    load(b, weights);
    step(*other, b);
    nn::Linear c(3, 2);
    weights.seekg(0);
    load(c, weights);
    Optimizer again(c->parameters(), options);
    again.load_state_dict(first.state_dict());
    step(again, c);
    CHECK(equal(b->weight, c->weight));
    CHECK(equal(b->bias, c->bias));
  }
}

}  // namespace

TEST_CASE("an optimizer that was loaded from a file or stream steps as the one that was saved") {
  check_resumes<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9));
  check_resumes<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true));
  check_resumes<optim::RMSprop>(optim::RMSpropOptions(0.1).centered(true).momentum(0.5));
  check_resumes<optim::LBFGS>(optim::LBFGSOptions(0.1));
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
