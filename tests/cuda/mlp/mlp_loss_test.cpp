// An MLP's loss and gradients in one kernel, compared with the unfused calls and with float64, for
// every width, depth, batch, activation and loss that the kernel supports.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/message.h"
#include "mlp_losses.h"

using namespace halftape;
using namespace halftape::testing::mlp_losses;
using testing::message;
using testing::on_cpu;

TEST_SUITE("cuda") {
  TEST_CASE("an MLP's loss and gradients are the formula's, for every width, depth and batch") {
    uint64_t seed = 1;
    for (const int64_t width : {16, 24, 64, 128})
      for (const int depth : {1, 2, 4})
        for (const int64_t rows : {1, 15, 128, 129, 1000})
          for (const Dtype dtype : {kFloat16, kBFloat16}) {
            if (rows == 1000 && width == 128 && depth == 4 && dtype == kBFloat16) continue;
            Case c{dtype, {width}, rows};
            for (int l = 0; l < depth; ++l) c.widths.push_back(width);
            ++seed;
            c.widths.front() = seed % 3 == 0 ? 2 : seed % 3 == 1 ? width : 40;
            c.widths.push_back(seed % 4 == 0 ? 3 : seed % 4 == 1 ? 10 : seed % 4 == 2 ? 16 : width);
            c.activation = seed % 6;
            c.classes = seed / 6 % 2 == 0;
            c.biased = seed / 2 % 3 != 0;
            c.parameters = seed % 5 == 0 ? dtype : kFloat32;
            check_case(c, seed * 100);
          }
  }

  TEST_CASE("an MLP's loss and gradients are the formula's, for every activation and loss") {
    uint64_t seed = 7;
    for (const Dtype dtype : {kFloat16, kBFloat16})
      for (size_t activation = 0; activation < std::size(kActivations); ++activation)
        for (const bool classes : {false, true})
          for (const bool biased : {false, true})
            check_case(
                {dtype, {5, 24, 24, 7}, 37, activation, classes, biased, biased ? kFloat32 : dtype},
                ++seed * 100);
  }

  TEST_CASE("an MLP's blocks take many tiles, weights one at a time, and single layers") {
    // More tiles than blocks; the gradients stay in registers, or do not (too deep, too wide).
    check_case({kFloat16, {16, 16, 16}, 2500}, 1);
    check_case({kFloat16, {8, 16, 16, 16, 16, 16, 4}, 2500, kGelu, true}, 2);
    check_case({kFloat16, {72, 72, 3}, 1700, kRelu, true}, 3);
    // Weights that do not all fit beside the tile.
    check_case({kFloat16, {128, 128, 128, 128, 128, 10}, 300, kRelu, true, true, kFloat16}, 4);
    check_case({kBFloat16, {128, 128, 128, 128, 128, 128}, 70, kGelu}, 5);
    // The deepest one; with an activation that needs its inputs, only 32 rows fit.
    check_case({kFloat16, std::vector<int64_t>(9, 128), 40, kGelu, true}, 9);
    check_case({kFloat16, std::vector<int64_t>(9, 16), 40, kRelu}, 10);
    // No hidden layer.
    check_case({kFloat16, {20, 10}, 50, kRelu, true}, 6);
    check_case({kBFloat16, {128, 128}, 50}, 7);
    check_case({kFloat16, {1, 1}, 3}, 8);
  }

#if defined(HALFTAPE_SIMT)
  TEST_CASE("an MLP's loss and gradients have the same bits in every order of threads and run") {
    for (const Case& c :
         {Case{kFloat16, {64, 64, 64, 10}, 300, kRelu, true}, Case{kFloat16, {128, 128, 3}, 300}}) {
      CAPTURE(c);
      const MlpLoss cpu = task_of(c, 5), first = on_gpu(cpu);
      backend(kCUDA).run(first);
      simt::in_every_order([&] {
        const MlpLoss other = on_gpu(cpu);
        backend(kCUDA).run(other);
        const auto a = results(first), b = results(other);
        for (size_t i = 0; i < a.size(); ++i) {
          CAPTURE(a[i].name);
          CHECK(testing::differ_on_gpu(a[i].a, on_cpu(b[i].a)) == "");
        }
      });
    }
  }

  TEST_CASE("a small MLP is one kernel and a sum, and what the kernel does not take the formula") {
    const auto kernels = [](const MlpLoss& m) { return launched([&] { backend(kCUDA).run(m); }); };
    const std::map<std::string, int> two_kernels{{"tiles", 1}, {"sums", 1}};
    CHECK(kernels(on_gpu(task_of({kFloat16, {64, 64, 64, 64, 64, 16}, 300}, 1))) == two_kernels);
    MlpLoss loss_alone = on_gpu(task_of({kBFloat16, {3, 24, 5}, 300}, 1));
    loss_alone.dx = {};
    loss_alone.dweights.clear(), loss_alone.dbiases.clear();
    CHECK(kernels(loss_alone) == two_kernels);
    CHECK(kernels(on_gpu(task_of({kFloat16, {64, 129, 3}, 20}, 1))).count("tiles") == 0);
    CHECK(kernels(on_gpu(task_of({kFloat32, {64, 64, 3}, 20}, 1))).count("tiles") == 0);
    CHECK(kernels(on_gpu(task_of({kFloat64, {64, 3}, 20, 1, false, true, kFloat64}, 1)))
              .count("tiles") == 0);
    MlpLoss strided = on_gpu(task_of({kFloat16, {64, 64, 3}, 20}, 1));
    strided.weights[0] = strided.weights[0].transpose(0, 1);
    CHECK(kernels(strided).count("tiles") == 0);
    MlpLoss other = on_gpu(task_of({kFloat16, {64, 64, 3}, 20}, 1));
    other.activation = UnaryOps::index<formula::Softplus>();
    CHECK(kernels(other).count("tiles") == 0);
  }

  TEST_CASE("how deep a network may be for the kernel depends on its width and the GPU") {
    const auto deepest = [](int64_t width, size_t activation) {
      for (size_t layers = 8; layers > 0; --layers) {
        std::vector<int64_t> widths(layers, width);
        widths.push_back(16);
        const MlpLoss m = on_gpu(task_of({kFloat16, widths, 20, activation}, 1));
        if (launched([&] { backend(kCUDA).run(m); }).count("tiles") == 1) return layers;
      }
      return size_t{0};
    };
    for (int64_t width = 16; width <= 128; width += 16) {
      const size_t relu = deepest(width, kRelu), gelu = deepest(width, kGelu);
      std::cout << width << " wide: " << relu << " layers with ReLU, " << gelu << " with GELU\n";
      if (simt::settings.shared_memory >= 232448) CHECK(std::min(relu, gelu) == 8);
    }
  }

  TEST_CASE("a captured step of a FusedMLP is the eager step bit for bit, in few nodes") {
    const Tensor x = randn({300, 64}, kFloat16), y = randn({300, 16}, kFloat32);
    enum class How { InOps, Unknown, Known };  // the scale, in forward
    const auto run = [&](bool captured, How how, int& nodes) {
      manual_seed(3);
      nn::FusedMLP model(64, 64, 4, 16);
      optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
      amp::GradScaler scaler({.growth_interval = 2});
      Tensor loss;
      const auto step = [&] {
        optimizer.zero_grad();
        {
          const amp::autocast region(kCUDA, kFloat16);
          if (how == How::InOps) {
            Tensor h = model->linears[0]->forward(x);
            for (size_t l = 1; l < 5; ++l) h = model->linears[l]->forward(relu(h));
            loss = mse_loss(h, y);
          } else {
            loss = model->loss(x, y, how == How::Known ? scaler.factor() : Tensor());
          }
        }
        scaler.scale(loss).backward();
        scaler.step(optimizer);
        scaler.update();
      };
      const auto times = [](int n, const auto& f) {
        for (int i = 0; i < n; ++i) f();
      };
      if (captured) {
        Graph graph(kCUDA, step);
        nodes = static_cast<int>(graph.size());
        times(3, [&] { graph.replay(); });
        simt::reset_counters();
        graph.replay();
        std::map<std::string, int> counts;
        for (const std::string& name : simt::launched_kernels()) ++counts[name];
        const char* const names[] = {"layers apart", "FusedMLP", "FusedMLP that knows the scale"};
        std::cout << "64-64-64-64-64-16, " << names[static_cast<int>(how)] << ": " << nodes
                  << " nodes\n";
        for (const auto& [name, n] : counts) std::cout << "  " << n << " " << name << '\n';
      } else {
        times(4, step);
      }
      TensorList all = model->parameters();
      all.push_back(loss);
      for (Tensor& t : all) t = t.detach().clone();
      return all;
    };
    int nodes = 0, none = 0, unfused = 0;
    run(true, How::InOps, unfused);
    const TensorList plain = run(false, How::Unknown, none);
    for (const How how : {How::Unknown, How::Known}) {
      const TensorList eager = run(false, how, none), captured = run(true, how, nodes);
      for (size_t i = 0; i < eager.size(); ++i) {
        CAPTURE(i);
        CHECK(testing::same_bits(eager[i], captured[i]));
        CHECK(testing::same_bits(eager[i], plain[i]));  // scales are powers of two
      }
      CHECK(nodes <= (how == How::Known ? 3 : 6));
      CHECK(2 * nodes < unfused);
    }
  }
#endif
}
