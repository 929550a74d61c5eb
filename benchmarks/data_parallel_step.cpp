// A data-parallel training step of MLPs b and c and of a character GPT over the ranks that launched
// it, with AdamW, and all-reductions by the fixed tree and by the engine. benchmarks/compare_ddp
// runs it in turns with data_parallel_step.py. Rank 0 prints "name least_ms median_ms" for each.
#include <halftape/halftape.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

#include "char_gpt.h"

using namespace halftape;
using Clock = std::chrono::steady_clock;

namespace {

void time(const char* name, distributed::ProcessGroup& group, int warm, int repeats,
          const std::function<void()>& f) {
  for (int i = 0; i < warm; ++i) f();
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    group.barrier();
    const auto begin = Clock::now();
    f();
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(ms.begin(), ms.end());
  if (group.rank() == 0) std::printf("%s %.4f %.4f\n", name, ms[0], ms[ms.size() / 2]);
  std::fflush(stdout);
}

void mlp(const char* name, const std::shared_ptr<distributed::ProcessGroup>& group,
         const std::vector<int64_t>& widths, int64_t batch, int repeats, bool flat) {
  manual_seed(1);
  nn::Sequential model;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) model->push_back(nn::ReLU());
    model->push_back(nn::Linear(widths[i], widths[i + 1]));
  }
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-4));
  if (flat) optimizer.flatten();
  distributed::DistributedDataParallel ddp(*model, {}, group);
  const int64_t own = batch / group->size();
  const Tensor x = randn({own, widths.front()}), y = randint(widths.back(), {own});
  time(name, *group, 3, repeats, [&] {
    optimizer.zero_grad();
    F::cross_entropy(model->forward(x), y).backward();
    optimizer.step();
  });
}

void char_gpt(const char* name, const std::shared_ptr<distributed::ProcessGroup>& group,
              int64_t batch, int repeats, bool flat) {
  manual_seed(1);
  Gpt model;
  optim::AdamW optimizer(model.parameters(), optim::AdamWOptions(1e-4));
  if (flat) optimizer.flatten();
  distributed::DistributedDataParallel ddp(model, {}, group);
  const Shape own{batch / group->size(), kContext};
  const Tensor text = randint(kSymbols, own), next = randint(kSymbols, own);
  time(name, *group, 3, repeats, [&] {
    optimizer.zero_grad();
    F::cross_entropy(model.forward(text).reshape({-1, kSymbols}), next.reshape({-1})).backward();
    nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
  });
}

}  // namespace

int main() {
  set_num_threads(1);
  const auto group = distributed::init_process_group();
  const auto engine = distributed::new_process_group(
      {.summation = distributed::Summation::Engine,
       .store = std::make_shared<distributed::PrefixStore>("second", group->store())});
  for (const int64_t n : {int64_t{1}, int64_t{10000}, int64_t{1000000}, int64_t{10000000}}) {
    const Tensor x = zeros({n});
    const int repeats = n > 1000000 ? 15 : 100;
    const std::string bytes = std::to_string(4 * n);
    time(("tree_" + bytes).c_str(), *group, 3, repeats, [&] { group->all_reduce(x); });
    time(("ring_" + bytes).c_str(), *group, 3, repeats, [&] { engine->all_reduce(x); });
  }
  mlp("mlp_b", group, {784, 256, 256, 10}, 128, 100, false);
  mlp("mlp_b_flat", group, {784, 256, 256, 10}, 128, 100, true);
  mlp("mlp_c", group, {1024, 1024, 1024, 1024, 1024}, 512, 12, false);
  mlp("mlp_c_flat", group, {1024, 1024, 1024, 1024, 1024}, 512, 12, true);
  char_gpt("char_gpt", group, 12, 25, false);
  char_gpt("char_gpt_flat", group, 12, 25, true);
}
