// The rows of normalisation: rows, channels, groups, neighbours, lengths.
#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

constexpr double kEps = 1e-5;
constexpr double kOff = 40;  // epsilons: the gradients are small sums of larger terms

/// (x − mean)/√(variance + eps) of the elements that `group` gives one number; without `centred`,
/// of their mean square.
std::vector<double> normalised(const Values& x, const std::function<size_t(const Dims&)>& group,
                               bool centred = true, double eps = kEps) {
  std::vector<double> count(64, 0), mean(64, 0), square(64, 0), y;
  const auto each = [&](auto f) {
    size_t at = 0;
    each_index(x.shape, [&](const Dims& i) { f(group(i), x.v[at++]); });
  };
  each([&](size_t k, double v) { count[k] += 1, mean[k] += v; });
  for (size_t k = 0; k < 64; ++k) mean[k] = centred && count[k] > 0 ? mean[k] / count[k] : 0;
  each([&](size_t k, double v) { square[k] += (v - mean[k]) * (v - mean[k]); });
  each([&](size_t k, double v) {
    y.push_back((v - mean[k]) / std::sqrt(square[k] / count[k] + eps));
  });
  return y;
}
size_t number(int64_t i) { return static_cast<size_t>(i); }

/// y·weight + bias, of which there may be none, with the weight that `which` names.
std::vector<double> weighted(std::vector<double> y, const std::vector<Values>& in,
                             const std::function<size_t(const Dims&)>& which) {
  size_t at = 0;
  each_index(in[0].shape, [&](const Dims& i) {
    if (in.size() > 1) y[at] *= in[1].v[which(i)];
    if (in.size() > 2) y[at] += in[2].v[which(i)];
    ++at;
  });
  return y;
}

void layer_rows(Rows& rows) {
  for (const size_t given : {1, 2, 3}) {  // x, weight, bias
    for (const Shape& shape : {Shape{3, 5}, Shape{7}, Shape{2, 3, 4}}) {
      const int last = shape.size() - 1;
      const int64_t length = shape[last];
      const auto row = [last](const Dims& i) {
        size_t r = 0;
        for (int d = 0; d < last; ++d) r = r * 5 + number(i[d]);
        return r;
      };
      const auto along = [last](const Dims& i) { return number(i[last]); };
      std::vector<Shape> shapes{shape, {length}, {length}};
      shapes.resize(given);
      rows.push_back({.name = "layer_norm",
                      .call =
                          [=](const TensorList& x) {
                            return layer_norm(x[0], {length}, input_or_none(x, 1),
                                              input_or_none(x, 2));
                          },
                      .shapes = shapes,
                      .reference =
                          [=](const std::vector<Values>& in) {
                            return weighted(normalised(in[0], row), in, along);
                          },
                      .cast = Cast::Float32,
                      .eps = kOff,
                      .needed = 1});
      if (given == 3) continue;
      rows.push_back({.name = "rms_norm",
                      .call =
                          [=](const TensorList& x) {
                            return rms_norm(x[0], {length}, input_or_none(x, 1), 1e-4);
                          },
                      .shapes = shapes,
                      .reference =
                          [=](const std::vector<Values>& in) {
                            return weighted(normalised(in[0], row, false, 1e-4), in, along);
                          },
                      .cast = Cast::Float32,
                      .eps = kOff,
                      .needed = 1});
    }
  }
  rows.push_back({.name = "layer_norm over two dimensions",
                  .call =
                      [](const TensorList& x) {
                        return layer_norm(x[0], {2, 3}, x[1], x[2]);
                      },
                  .shapes = {{4, 2, 3}, {2, 3}, {2, 3}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        const auto row = [](const Dims& i) { return number(i[0]); };
                        return weighted(normalised(in[0], row), in,
                                        [](const Dims& i) { return number(i[1] * 3 + i[2]); });
                      },
                  .cast = Cast::Float32,
                  .eps = kOff,
                  .needed = 1});
}

void channel_rows(Rows& rows) {
  const auto channel = [](const Dims& i) { return number(i[1]); };
  for (const size_t given : {1, 2, 3}) {
    for (const Shape& shape : {Shape{4, 3}, Shape{3, 2, 4}, Shape{2, 3, 2, 2}}) {
      std::vector<Shape> shapes{shape, {shape[1]}, {shape[1]}};
      shapes.resize(given);
      rows.push_back({.name = "batch_norm in training",
                      .call =
                          [](const TensorList& x) {
                            return batch_norm(x[0], {}, {}, input_or_none(x, 1),
                                              input_or_none(x, 2), true);
                          },
                      .shapes = shapes,
                      .reference =
                          [=](const std::vector<Values>& in) {
                            return weighted(normalised(in[0], channel), in, channel);
                          },
                      .eps = kOff,
                      .needed = 1});
      rows.push_back({.name = "batch_norm in evaluation",
                      .call =
                          [C = shape[1]](const TensorList& x) {
                            return batch_norm(x[0], full({C}, 0.25), full({C}, 1.5),
                                              input_or_none(x, 1), input_or_none(x, 2), false, 0.1,
                                              0.25);
                          },
                      .shapes = shapes,
                      .reference =
                          [=](const std::vector<Values>& in) {
                            std::vector<double> y;
                            for (const double v : in[0].v)
                              y.push_back((v - 0.25) / std::sqrt(1.75));
                            return weighted(y, in, channel);
                          },
                      .eps = kOff,
                      .needed = 1});
      if (shape.size() == 2) continue;
      const int64_t C = shape[1];
      rows.push_back(
          {.name = "instance_norm",
           .call =
               [](const TensorList& x) {
                 return instance_norm(x[0], {}, {}, input_or_none(x, 1), input_or_none(x, 2));
               },
           .shapes = shapes,
           .reference =
               [=](const std::vector<Values>& in) {
                 const auto each = [C](const Dims& i) { return number(i[0] * C + i[1]); };
                 return weighted(normalised(in[0], each), in, channel);
               },
           .eps = kOff,
           .needed = 1});
    }
    std::vector<Shape> shapes{{2, 6, 3}, {6}, {6}};
    shapes.resize(given);
    rows.push_back({.name = "group_norm",
                    .call =
                        [](const TensorList& x) {
                          return group_norm(x[0], 3, input_or_none(x, 1), input_or_none(x, 2));
                        },
                    .shapes = shapes,
                    .reference =
                        [=](const std::vector<Values>& in) {
                          const auto group = [](const Dims& i) {
                            return number(i[0] * 3 + i[1] / 2);
                          };
                          return weighted(normalised(in[0], group), in, channel);
                        },
                    .cast = Cast::Float32,
                    .eps = kOff,
                    .needed = 1});
  }
}

void length_rows(Rows& rows) {
  for (const int64_t size : {2, 3})
    rows.push_back(
        {.name = "local_response_norm",
         .call = [=](const TensorList& x) { return local_response_norm(x[0], size, 0.5, 0.75, 2); },
         .shapes = {{2, 5, 3}},
         .reference =
             [=](const std::vector<Values>& in) {
               std::vector<double> y;
               each_index({2, 5, 3}, [&](const Dims& i) {
                 const auto at = [&](int64_t c) {
                   return in[0].v[number((i[0] * 5 + c) * 3 + i[2])];
                 };
                 double sum = 0;
                 for (int64_t c = i[1] - size / 2; c <= i[1] + (size - 1) / 2; ++c)
                   if (c >= 0 && c < 5) sum += at(c) * at(c);
                 y.push_back(at(i[1]) / std::pow(2 + 0.5 * sum / static_cast<double>(size), 0.75));
               });
               return y;
             },
         .cast = Cast::Float32});
  for (const double p : {2.0, 1.0, 3.0})
    rows.push_back({.name = "normalize",
                    .call = [=](const TensorList& x) { return normalize(x[0], p); },
                    .shapes = {{3, 4, 2}},
                    .reference =
                        [=](const std::vector<Values>& in) {
                          std::vector<double> y;
                          each_index({3, 4, 2}, [&](const Dims& i) {
                            const auto at = [&](int64_t c) {
                              return in[0].v[number((i[0] * 4 + c) * 2 + i[2])];
                            };
                            double sum = 0;
                            for (int64_t c = 0; c < 4; ++c) sum += std::pow(std::abs(at(c)), p);
                            y.push_back(at(i[1]) / std::pow(sum, 1 / p));
                          });
                          return y;
                        },
                    .kinks = {0},
                    .cast = Cast::Float32});
}

}  // namespace

void norm_rows(Rows& rows) {
  layer_rows(rows);
  channel_rows(rows);
  length_rows(rows);
}

}  // namespace halftape::testing
