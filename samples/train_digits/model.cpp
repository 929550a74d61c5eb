// The network and its test.
#include "train.h"

using namespace halftape;

nn::Sequential make_model(const Dataset& data, const Settings& s) {
  nn::Sequential model;
  model->push_back("fc1", nn::Linear(data.pixels, s.hidden));
  model->push_back("relu1", nn::ReLU());
  model->push_back("fc2", nn::Linear(s.hidden, s.hidden));
  model->push_back("relu2", nn::ReLU());
  model->push_back("fc3", nn::Linear(s.hidden, data.classes));
  model->to(s.device);
  return model;
}

double test_accuracy(const nn::Sequential& model, const Samples& test, const Precision& precision) {
  const NoGradGuard no_grad;
  const amp::autocast region(test.images.device().type(), precision.autocast,
                             precision.autocast.has_value());
  constexpr int64_t kBatch = 1024;
  double right = 0;
  for (int64_t i = 0; i < test.size(); i += kBatch) {
    const Tensor guess = model->forward(test.images.slice(0, i, i + kBatch)).argmax(1);
    right += (guess == test.labels.slice(0, i, i + kBatch)).sum().item();
  }
  return 100 * right / static_cast<double>(test.size());
}
