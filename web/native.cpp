// The page's lab in a terminal: one training, and one line of JSON about it.
//
//     web_lab [data=digits|spirals] [precision=float32|fp16|scaled|bf16] [weight=1e-5]
//     [scale=65536]
//             [fixed=0] [interval=20] [lr=1e-3] [seed=0] [batch=128] [widths=64,64] [steps=660]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <sstream>
#include <type_traits>

#include "halftape/core/check.h"
#include "lab.h"

namespace {

template <class T>
T number(const std::string& text) {
  std::istringstream in(text);
  T value{};
  const bool wraps = std::is_unsigned_v<T> && text.find('-') != text.npos;
  HALFTAPE_CHECK(!wraps && in >> value && in.peek() == EOF, "expected a number, found '", text,
                 "'");
  return value;
}

template <class T>
T one_of(const std::string& text, const std::map<std::string, T>& names) {
  const auto found = names.find(text);
  HALFTAPE_CHECK(found != names.end(), "'", text, "' is not known here");
  return found->second;
}

int64_t set(lab::Settings& s, const std::string& key, const std::string& value) {
  using lab::Precision;
  if (key == "steps") {
    const auto steps = number<int64_t>(value);
    HALFTAPE_CHECK(steps >= 0, "steps ", steps, " must not be negative");
    return steps;
  }
  if (key == "data")
    s.data =
        one_of<lab::Data>(value, {{"digits", lab::Data::Digits}, {"spirals", lab::Data::Spirals}});
  else if (key == "precision")
    s.precision = one_of<Precision>(value, {{"float32", Precision::Float32},
                                            {"fp16", Precision::Fp16},
                                            {"scaled", Precision::ScaledFp16},
                                            {"bf16", Precision::Bfloat16}});
  else if (key == "weight")
    s.loss_weight = number<double>(value);
  else if (key == "scale")
    s.scale = number<double>(value);
  else if (key == "fixed")
    s.fixed_scale = number<int>(value) != 0;
  else if (key == "interval")
    s.growth_interval = number<int64_t>(value);
  else if (key == "lr")
    s.lr = number<double>(value);
  else if (key == "seed")
    s.seed = number<uint64_t>(value);
  else if (key == "batch")
    s.batch = number<int64_t>(value);
  else if (key == "widths") {
    s.widths.clear();
    std::istringstream all(value);
    for (std::string one; std::getline(all, one, ',');) s.widths.push_back(number<int64_t>(one));
  } else {
    HALFTAPE_CHECK(false, "there is no setting '", key, "'");
  }
  return -1;
}

void run(int argc, char** argv) {
  lab::Settings settings;
  int64_t steps = 660;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t at = word.find('=');
    HALFTAPE_CHECK(at != word.npos, "expected setting=value, found '", word, "'");
    const int64_t n = set(settings, word.substr(0, at), word.substr(at + 1));
    if (n >= 0) steps = n;
  }
  lab::Lab lab(settings);
  double loss = 0;
  for (int64_t i = 0; i < steps; ++i) loss = lab.step().loss;
  const double scale = lab.scale();
  std::printf(
      "{\"accuracy\": %.4f, \"loss\": \"%g\", \"skipped\": %lld, \"scale\": %g, \"hash\": "
      "\"%s\"}\n",
      lab.accuracy(), loss, static_cast<long long>(lab.skipped()), scale, lab.hash().c_str());
  HALFTAPE_CHECK(std::fflush(stdout) == 0, "standard output cannot be written; is its disk full?");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "web_lab: %s\n", e.what());
    return 2;
  }
}
