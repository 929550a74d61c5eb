#include "halftape/autograd/tape/by_formula.h"

#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {

Grads vjp_by_formula(Node& self, std::span<const Saved> inputs, const Tensor& g,
                     const std::function<Tensor(const TensorList& inputs)>& formula) {
  const Node::Wanted everything(nullptr);
  TensorList own, asked;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    own.emplace_back();
    if (!inputs[i].defined()) continue;
    const Tensor t = inputs[i].tensor(self);
    own[i] =
        record(self.name(), t.array(), {&t}, [](Node&, const Tensor& up) -> Grads { return {up}; });
    if (own[i].requires_grad()) wanted.push_back(i), asked.push_back(own[i]);
  }
  const TensorList found = autograd::grad({formula(own)}, asked, {g}, true, true, true);
  Grads d(inputs.size());
  for (size_t k = 0; k < wanted.size(); ++k) d[wanted[k]] = found[k];
  return d;
}

}  // namespace halftape
