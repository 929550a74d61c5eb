// The rows of recurrent cells and layers, and of the loss of sequences without alignment.
#include <algorithm>
#include <limits>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

using Numbers = std::vector<double>;

constexpr size_t kBatch = 2, kIn = 3, kHidden = 2;

/// W·v + b of sample n: (rows).
Numbers transformed(const Numbers& w, const Numbers& v, size_t n, size_t features,
                    const Numbers& b) {
  const size_t rows = w.size() / features;
  Numbers out(rows);
  for (size_t i = 0; i < rows; ++i) {
    out[i] = b.empty() ? 0 : b[i];
    for (size_t k = 0; k < features; ++k) out[i] += w[i * features + k] * v[n * features + k];
  }
  return out;
}

struct Cell {
  const char* name;
  size_t gates;
};

/// h after one step, and behind it c of an LSTM, by the textbook.
std::pair<Numbers, Numbers> stepped(const Cell& cell, const Numbers& x, const Numbers& h,
                                    const Numbers& c, const Numbers& w_ih, const Numbers& w_hh,
                                    const Numbers& b_ih, const Numbers& b_hh) {
  Numbers next_h(kBatch * kHidden), next_c(c.size());
  for (size_t n = 0; n < kBatch; ++n) {
    const Numbers a = transformed(w_ih, x, n, kIn, b_ih),
                  b = transformed(w_hh, h, n, kHidden, b_hh);
    for (size_t i = 0; i < kHidden; ++i) {
      const size_t at = n * kHidden + i;
      const auto gate = [&](size_t k) { return a[k * kHidden + i] + b[k * kHidden + i]; };
      if (cell.gates == 1) {
        next_h[at] =
            std::string(cell.name) == "rnn_tanh" ? std::tanh(gate(0)) : std::max(gate(0), 0.0);
      } else if (cell.gates == 4) {
        next_c[at] = logistic(gate(1)) * c[at] + logistic(gate(0)) * std::tanh(gate(2));
        next_h[at] = logistic(gate(3)) * std::tanh(next_c[at]);
      } else {
        const double candidate =
            std::tanh(a[2 * kHidden + i] + logistic(gate(0)) * b[2 * kHidden + i]);
        next_h[at] = (1 - logistic(gate(1))) * candidate + logistic(gate(1)) * h[at];
      }
    }
  }
  return {next_h, next_c};
}

Tensor one_step(const Cell& cell, const TensorList& x) {
  if (cell.gates == 4) {
    const auto [h, c] =
        lstm_cell(x[0], {x[1], x[2]}, x[3], x[4], input_or_none(x, 5), input_or_none(x, 6));
    return cat({h, c});
  }
  const auto f = cell.gates == 3                        ? gru_cell
                 : std::string(cell.name) == "rnn_tanh" ? rnn_tanh_cell
                                                        : rnn_relu_cell;
  return f(x[0], x[1], x[2], x[3], input_or_none(x, 4), input_or_none(x, 5));
}

Tensor all_steps(const Cell& cell, const TensorList& x) {
  if (cell.gates == 4) {
    const auto [y, h, c] = lstm(x[0], {x[1], x[2]}, TensorList(x.begin() + 3, x.end()),
                                x.size() > 5, 1, 0, true, false, false);
    return cat({y.flatten(), h.flatten(), c.flatten()});
  }
  const TensorList params(x.begin() + 2, x.end());
  const auto [y, h] = cell.gates == 3
                          ? gru(x[0], x[1], params, x.size() > 4, 1, 0, true, false, false)
                      : std::string(cell.name) == "rnn_tanh"
                          ? rnn_tanh(x[0], x[1], params, x.size() > 4, 1, 0, true, false, false)
                          : rnn_relu(x[0], x[1], params, x.size() > 4, 1, 0, true, false, false);
  return cat({y.flatten(), h.flatten()});
}

void cell_rows(Rows& rows, const Cell& cell) {
  const bool has_c = cell.gates == 4;
  const int64_t B = kBatch, I = kIn, H = kHidden, G = static_cast<int64_t>(cell.gates) * H;
  const auto textbook = [=](const std::vector<Values>& in, const Numbers& x, const Numbers& h,
                            const Numbers& c) {
    const size_t w = has_c ? 3 : 2;
    const auto at = [&](size_t i) { return i < in.size() ? in[i].v : Numbers(); };
    return stepped(cell, x, h, c, at(w), at(w + 1), at(w + 2), at(w + 3));
  };
  const std::string name = cell.name;
  for (const bool bias : {true, false}) {
    std::vector<Shape> shapes{{B, I}, {B, H}};
    if (has_c) shapes.push_back({B, H});
    shapes.push_back({G, I});
    shapes.push_back({G, H});
    const size_t needed = shapes.size();
    if (bias) shapes.insert(shapes.end(), {{G}, {G}});
    rows.push_back({.name = name + "_cell" + (bias ? "" : ", no bias"),
                    .call = [cell](const TensorList& x) { return one_step(cell, x); },
                    .shapes = shapes,
                    .reference =
                        [=](const std::vector<Values>& in) {
                          auto [h, c] = textbook(in, in[0].v, in[1].v, has_c ? in[2].v : Numbers());
                          h.insert(h.end(), c.begin(), c.end());
                          return h;
                        },
                    .low = -1,
                    .high = 1,
                    .cast = Cast::Lower,
                    .one_kernel = false,
                    .eps = 40,
                    .needed = needed});
    // Two steps of a layer are the cell's, one after the other.
    shapes[0] = {2, B, I};
    shapes[1] = {1, B, H};
    if (has_c) shapes[2] = {1, B, H};
    rows.push_back({.name = name + (bias ? "" : ", no bias"),
                    .call = [cell](const TensorList& x) { return all_steps(cell, x); },
                    .shapes = shapes,
                    .reference =
                        [=](const std::vector<Values>& in) {
                          const Numbers& x = in[0].v;
                          Numbers h = in[1].v, c = has_c ? in[2].v : Numbers(), out;
                          const auto half = static_cast<std::ptrdiff_t>(x.size() / 2);
                          for (const Numbers& step : {Numbers(x.begin(), x.begin() + half),
                                                      Numbers(x.begin() + half, x.end())}) {
                            std::tie(h, c) = textbook(in, step, h, c);
                            out.insert(out.end(), h.begin(), h.end());
                          }
                          out.insert(out.end(), h.begin(), h.end());
                          out.insert(out.end(), c.begin(), c.end());
                          return out;
                        },
                    .low = -1,
                    .high = 1,
                    .cast = Cast::Lower,
                    .one_kernel = false,
                    .eps = 60});
  }
}

/// −ln of the summed probability of every path through x: (T, C) that says the labels, blank 0, by
/// going through all of them.
double by_enumeration(const Numbers& x, size_t steps, size_t classes,
                      const std::vector<size_t>& labels) {
  double p = 0;
  size_t paths = 1;
  for (size_t t = 0; t < steps; ++t) paths *= classes;
  for (size_t path = 0; path < paths; ++path) {
    std::vector<size_t> said;
    size_t rest = path, last = 0;
    double log_p = 0;
    for (size_t t = 0; t < steps; ++t) {
      const size_t c = rest % classes;
      rest /= classes;
      log_p += x[t * classes + c];
      if (c != 0 && c != last) said.push_back(c);
      last = c;
    }
    if (said == labels) p += std::exp(log_p);
  }
  return -std::log(p);
}

void ctc_rows(Rows& rows) {
  const std::vector<int64_t> steps{4}, lengths{2};
  for (const std::vector<size_t>& labels : {std::vector<size_t>{1, 2}, std::vector<size_t>{2, 2}}) {
    const Tensor targets =
        tensor(std::vector<int64_t>(labels.begin(), labels.end())).reshape({1, 2});
    rows.push_back({.name = labels[0] == labels[1] ? "ctc_loss, twice the same" : "ctc_loss",
                    .call =
                        [=](const TensorList& x) {
                          return ctc_loss(x[0], targets, steps, lengths, 0, Reduction::Sum);
                        },
                    .shapes = {{4, 1, 3}},
                    .reference =
                        [=](const std::vector<Values>& in) {
                          return Numbers{by_enumeration(in[0].v, 4, 3, labels)};
                        },
                    .cast = Cast::Float32,
                    .one_kernel = false,
                    .eps = 40});
  }
}

}  // namespace

void recurrent_rows(Rows& rows) {
  for (const Cell& cell :
       {Cell{"rnn_tanh", 1}, Cell{"rnn_relu", 1}, Cell{"lstm", 4}, Cell{"gru", 3}})
    cell_rows(rows, cell);
  ctc_rows(rows);
}

}  // namespace halftape::testing
