// Numbers that another program computed: tests/vectors/*.txt, which say themselves what made them.
#pragma once
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/check.h"

namespace halftape::testing {

/// One file of vectors: lines "name count value value …", and comments that begin with #.
class Vectors {
 public:
  /// `file` is a name in tests/vectors. Throws when it is missing, empty or cut short.
  explicit Vectors(const std::string& file) : file_(file) {
    std::ifstream in(std::string(HALFTAPE_TEST_DATA) + "/vectors/" + file);
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream words(line);
      std::string name, word;
      size_t count = 0;
      words >> name >> count;
      std::vector<double> values;
      while (words >> word) values.push_back(std::strtod(word.c_str(), nullptr));  // reads inf, nan
      HALFTAPE_CHECK(values.size() == count, file_, ": ", name, " has ", values.size(),
                     " values and announces ", count);
      HALFTAPE_CHECK(values_.emplace(name, values).second, file_, ": ", name, " appears twice");
    }
    HALFTAPE_CHECK(!values_.empty(), "no vectors in tests/vectors/", file_);
  }

  bool has(const std::string& name) const { return values_.count(name) != 0; }
  const std::vector<double>& operator[](const std::string& name) const {
    const auto found = values_.find(name);
    HALFTAPE_CHECK(found != values_.end(), file_, " has no vector ", name);
    return found->second;
  }
  /// The same as a float64 tensor.
  Tensor tensor(const std::string& name, const Shape& shape) const {
    return halftape::tensor((*this)[name], kFloat64).reshape(shape);
  }

 private:
  std::string file_;
  std::map<std::string, std::vector<double>> values_;
};

}  // namespace halftape::testing
