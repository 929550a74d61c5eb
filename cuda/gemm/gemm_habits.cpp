// The library's documentation leaves parts of its epilogues open: whether ReLU keeps NaN, the order
// of the mask's bits and that of a zero, the form of GELU, whether a bias is added before the
// rounding. So a smaller product is compared with the CPU's, and an epilogue is used only if they
// agree.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <tuple>

#include "halftape/core/machine/scoped_value.h"
#include "halftape/cuda/copy.h"
#include "halftape/cuda/gemm/gemm.h"

namespace halftape::cuda {
namespace {

/// The smaller product: its sizes, and the orders of its factors.
struct Kind {
  int64_t m, n, k;
  bool a_by_columns, b_by_columns;
  auto operator<=>(const Kind&) const = default;
};

/// A size of the same magnitude, up to `most`, and with the same remainder by 8, which decides
/// about the alignment. All large sizes of one alignment have the same.
int64_t magnitude(int64_t size, int64_t most) {
  if (size <= 8) return size;
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size))), most) - 8 +
         (size % 8 == 0 ? 8 : size % 8);
}
Kind kind_of(const Gemm& g) {
  const int last = g.d.dim() - 1;
  const int64_t m = g.d.size(last - 1), n = g.d.size(last), k = g.a.size(last);
  const auto by_columns = [last](const Array& x, Order preferred) {
    return order_of(x.size(last - 1), x.size(last), x.strides()[last - 1], x.strides()[last],
                    preferred) == Order::ByColumns;
  };
  return {magnitude(m, 256), magnitude(n, 256), magnitude(k, 1024),
          by_columns(g.a, order_for(g.bias_grad.defined() ? &g : nullptr)),
          by_columns(g.b, Order::Neither)};
}

/// Multiples of 1/16 between −3 and 3: exact in every dtype, and sums of products of them are exact
/// in float32 in any order, but need more digits than 16 bits have.
Array numbers(const Shape& shape, uint64_t seed) {
  const Array x(shape, kFloat32, kCPU);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint64_t mixed = (static_cast<uint64_t>(i) + seed * 1000003) * 0x9E3779B97F4A7C15u;
    x.data<float>()[i] = static_cast<float>(static_cast<int64_t>((mixed >> 40) % 97) - 48) / 16;
  }
  return x;
}
/// x, or x in memory by columns.
Array laid_out(const Array& x, bool by_columns) {
  return by_columns ? x.transpose(0, 1).to_contiguous().transpose(0, 1) : x;
}

/// True if the numbers agree within a relative error and `slack`. NaN equals NaN.
bool close(const Array& got, const Array& right, double relative, double slack) {
  if (!right.defined()) return true;
  const Array a = got.to(kCPU).to(kFloat64), b = right.to(kFloat64);
  for (int64_t i = 0; i < b.numel(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    const bool both_nan = std::isnan(x) && std::isnan(y);
    if (!both_nan && !(std::abs(x - y) <= relative * std::abs(y) + slack)) return false;
  }
  return true;
}

/// True if the masks of rows of n columns agree; bits behind the last column mean nothing.
bool same_bits(const Array& got, const Array& right, int64_t n) {
  const Array a = got.to(kCPU);
  for (int64_t row = 0; row < right.size(0); ++row)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t at = row * right.size(1) + j / 8;
      if ((a.data<uint8_t>()[at] ^ right.data<uint8_t>()[at]) >> j % 8 & 1) return false;
    }
  return true;
}

/// A matrix whose rows are aligned to 16 bytes.
Array aligned_rows(Device device, const Shape& s, Dtype dtype) {
  return Array({s[0], (s[1] + 7) / 8 * 8}, dtype, device).slice(1, 0, s[1]);
}

constexpr const char* kNotNow = "not now";  // no answer

/// One question: what the library gets wrong, or "". Another round has other numbers. `rounded`: it
/// may round partial sums.
const char* ask(const Queue& q, const Gemm& like, const Kind& of, bool rounded, uint64_t round,
                FusedGemm multiply) {
  const Dtype factors = like.a.dtype(), result = like.d.dtype();
  const bool gradient = like.epilogue == Epilogue::DRelu || like.epilogue == Epilogue::DGelu,
             gelu = like.epilogue == Epilogue::Gelu || like.epilogue == Epilogue::DGelu;
  const auto left = [&](uint64_t seed) {
    return numbers({of.m, of.k}, seed + 8 * round).to(factors);
  };
  const Array b = numbers({of.k, of.n}, 2 + 8 * round),
              bias = numbers({of.n}, 5 + 8 * round).to(result);
  if (of.n > 1) {  // the first column of d is 0, the last one NaN
    cpu_backend().fill(b.select(1, 0), 0);
    cpu_backend().fill(b.select(1, of.n - 1), NAN);
    cpu_backend().fill(bias.slice(0, 0, 1), 0);
  }
  // Such that many sums are near −3, where the forms of GELU differ most. With 5/8 even those of
  // few terms need more digits than 16 bits have, and all are exact.
  const double spread = 0.625 * std::exp2(std::round(-0.5 * std::log2(static_cast<double>(of.k))));
  Gemm right{.d = Array({of.m, of.n}, result, kCPU),
             .a = left(1),
             .b = b.to(factors),
             .bias = like.bias ? &bias : nullptr,
             .alpha = spread,
             .epilogue = like.epilogue};
  if (like.aux.defined())
    right.aux = gelu ? Array({of.m, of.n}, result, kCPU)
                     : Array({of.m, relu_mask_bytes(of.n)}, kUInt8, kCPU);
  if (like.bias_grad.defined()) right.bias_grad = Array({gradient ? of.n : of.m}, result, kCPU);
  if (gradient)  // aux comes from another product
    cpu_backend().gemm({.d = right.d,
                        .a = left(3),
                        .b = numbers({of.k, of.n}, 4 + 8 * round).to(factors),
                        .alpha = spread,
                        .epilogue = gelu ? Epilogue::Gelu : Epilogue::Relu,
                        .aux = right.aux});
  Gemm asked = right;
  const Array asked_bias = bias.to(like.d.device());
  if (like.bias) asked.bias = &asked_bias;
  for (Array* x : {&asked.d, &asked.a, &asked.b, &asked.aux, &asked.bias_grad})
    if (x->defined()) *x = x->to(like.d.device());
  asked.a = laid_out(asked.a, of.a_by_columns);
  asked.b = laid_out(asked.b, of.b_by_columns);
  if (gelu && like.aux.defined()) {
    const Array aligned = aligned_rows(like.d.device(), right.aux.shape(), result);
    copy(aligned, asked.aux);
    asked.aux = aligned;
  }
  if (gelu)  // not rounded to 16 bits, so that a second rounding of the library shows
    right.d = Array({of.m, of.n}, compute_dtype(result), kCPU);
  cpu_backend().gemm(right);
  // A GELU near 0 may have an error that halves of training do not notice, but no float32.
  const double relative = gelu      ? (is_16bit(result) ? 0.51 : 2) * epsilon(result)
                          : rounded ? 8 * epsilon(result)
                                    : 0,
               slack = gelu      ? (is_16bit(result) ? 0x1p-18 : 3 * epsilon(result))
                       : rounded ? 0.01
                                 : 0;
  // The terms of a bias's gradient may be rounded or not: those of d; those of a are exact.
  const double terms = gradient ? 8 * std::sqrt(static_cast<double>(of.m)) : 1;
  if (const Outcome outcome = multiply(q, asked); outcome != Outcome::Done)
    return outcome == Outcome::Refused ? "refused" : kNotNow;
  if (!close(asked.d, right.d, relative, slack)) return "d";
  if (like.aux.defined() && !gradient &&
      !(gelu ? close(asked.aux, right.aux, rounded ? relative : 0, rounded ? slack : 0)
             : same_bits(asked.aux, right.aux, of.n)))
    return "aux";
  return close(asked.bias_grad, right.bias_grad, epsilon(result), epsilon(result) * terms)
             ? ""
             : "bias_grad";
}

/// Asks until enough elements agree: few of them may do so by chance.
std::string ask(const Queue& q, const Gemm& like, const Kind& of, bool rounded,
                FusedGemm multiply) {
  const int64_t rounds = std::clamp<int64_t>(4096 / (of.m * of.n), 1, 64);
  std::string wrong;
  for (int64_t round = 0; round < rounds && wrong.empty(); ++round)
    wrong = ask(q, like, of, rounded, static_cast<uint64_t>(round), multiply);
  return wrong;
}

/// Everything that an answer depends on: device, epilogue, aux, bias, bias_grad, dtypes, whether
/// partial sums may be rounded, kind.
using Question = std::tuple<DeviceIndex, Epilogue, bool, bool, bool, Dtype, Dtype, bool, Kind>;
struct Answers {
  std::mutex mutex;
  std::map<Question, bool> known;
};
Answers& answers() {
  static auto* all = new Answers;  // NOLINT: outlives whatever multiplies
  return *all;
}

/// A line of JSON for scripts/gpu_check.
void log_answer(const Gemm& g, const Kind& k, const std::string& wrong) {
  std::ostringstream line;
  line << std::boolalpha << "{\"answer\": \"" << (wrong.empty() ? "right" : "not right")
       << "\", \"wrong\": \"" << wrong << "\", \"epilogue\": " << static_cast<int>(g.epilogue)
       << ", \"aux\": " << g.aux.defined() << ", \"bias\": " << (g.bias != nullptr)
       << ", \"bias_grad\": " << g.bias_grad.defined() << ", \"factors\": \"" << g.a.dtype()
       << "\", \"result\": \"" << g.d.dtype() << "\", \"m\": " << k.m << ", \"n\": " << k.n
       << ", \"k\": " << k.k << ", \"a_by_columns\": " << k.a_by_columns
       << ", \"b_by_columns\": " << k.b_by_columns << "}\n";
  std::fputs(line.str().c_str(), stderr);
}

thread_local constinit bool asking = false;

}  // namespace

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

bool finishes_right(const Queue& q, const Gemm& g, FusedGemm multiply) {
  const Kind kind = kind_of(g);
  const bool rounded = Context::reduced_sums && g.d.dtype() == kFloat16;
  const Question question{q.context.index(),
                          g.epilogue,
                          g.aux.defined(),
                          g.bias != nullptr,
                          g.bias_grad.defined(),
                          g.a.dtype(),
                          g.d.dtype(),
                          rounded,
                          kind};
  Answers& all = answers();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.known.find(question); known != all.known.end()) return known->second;
  }
  if (is_captured(q.stream)) return false;
  const ScopedValue in_scope(asking, true);
  const std::string wrong = ask(q, g, kind, rounded, multiply);
  if (logs_gemm()) log_answer(g, kind, wrong);
  if (wrong == kNotNow) return false;
  const std::lock_guard lock(all.mutex);
  return all.known[question] = wrong.empty();
}

bool asks_library() { return asking; }

void ask_library_again() {
  forget_plans();
  const std::lock_guard lock(answers().mutex);
  answers().known.clear();
}

}  // namespace halftape::cuda
