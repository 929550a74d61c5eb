// What the code blocks of the pages leave out: the names that a reader takes from the text around
// them.
#pragma once
#include <halftape/halftape.h>
#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

using namespace halftape;
namespace F = halftape::nn::functional;

inline nn::Sequential model{nn::Linear{4, 3}};
inline Tensor x, y, loss, batch, labels;
inline std::vector<std::pair<Tensor, Tensor>> batches;
inline optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3));
inline amp::GradScaler scaler;
Tensor loss_of(const Tensor& batch);

void step(const Tensor& images, const Tensor& labels);
void train_step();
void all_reduce(const Tensor& gradients);
void plot(const std::vector<double>& losses);
inline int64_t steps, epochs, position;
inline bool resuming, time_to_save;
inline Generator generator;
inline auto loader = data::make_data_loader(
    data::datasets::Digits().map(data::transforms::Stack<>()), data::DataLoaderOptions(64));
inline decltype(loader->state_dict()) saved;
