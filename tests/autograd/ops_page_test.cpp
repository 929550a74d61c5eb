// docs/ops.md lists what autograd/ops declares, and the op table tests what it lists.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "halftape/tests/support/ops.h"

using namespace halftape;

namespace {

using Names = std::set<std::string>;
const std::filesystem::path kRoot = std::filesystem::path(HALFTAPE_TEST_DATA).parent_path();

/// The names of the page's lists: "* `amax`, `amin` — …".
Names listed() {
  Names names;
  std::ifstream page(kRoot / "docs" / "ops.md");
  const std::regex name("`([A-Za-z_0-9]+)`");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("* `")) continue;
    line.resize(std::min(line.find(" — "), line.size()));
    for (std::sregex_iterator i(line.begin(), line.end(), name), end; i != end; ++i)
      names.insert((*i)[1]);
  }
  return names;
}

/// The functions that the headers of autograd/ops declare at the start of a line.
Names declared() {
  Names names;
  const std::regex function(
      "(?:inline )?(?:Tensor&?|TensorList|std::tuple<[^>]*>|bool) ([A-Za-z_0-9]+)\\(.*");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(kRoot / "autograd" / "ops")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream header(entry.path());
    bool detail = false;
    std::smatch found;
    for (std::string line; std::getline(header, line);) {
      if (line.starts_with("namespace detail") || line.starts_with("namespace halftape::detail"))
        detail = true;
      if (line.starts_with("}  // namespace detail")) detail = false;
      if (!detail && std::regex_match(line, found, function)) names.insert(found[1]);
    }
  }
  // Not ops: templates over formulas, helpers of the library, and ops listed under another name.
  for (const char* other :
       {"unary", "binary", "is_floating_point", "cast", "vector_norm", "widened"})
    names.erase(other);
  return names;
}

/// Ops without a row in the table, and where they are tested: ops that make a tensor from none, are
/// random, do not give a tensor, or are a second name.
const std::pair<const char*, Names> kElsewhere[] = {
    {"ops/create_test.cpp",
     {"empty",         "empty_strided", "full",       "zeros",     "ones",      "eye",
      "empty_like",    "zeros_like",    "ones_like",  "full_like", "arange",    "linspace",
      "logspace",      "tensor",        "from_blob",  "rand",      "randn",     "randint",
      "randperm",      "rand_like",     "randn_like", "normal",    "bernoulli", "multinomial",
      "scalar_tensor", "randint_like"}},
    {"ops/index_test.cpp", {"tril_indices", "triu_indices"}},
    {"convert_test.cpp", {"equal", "allclose", "is_same_size", "is_nonzero"}},
    {"view_inplace_test.cpp", {"can_cast"}},
    {"ops/mlp_loss_test.cpp", {"mlp_loss"}},
    {"ops/shape_test.cpp", {"constant_pad_nd"}},
    {"methods_test.cpp",
     {"nonzero_numpy", "concat", "linalg_vector_norm", "moveaxis", "negative", "ravel",
      "swapdims"}},
};

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("the page of ops lists every function of autograd/ops, and nothing else") {
  const Names page = listed(), code = declared();
  CHECK(code.size() > 200);
  for (const std::string& name : code)
    CHECK_MESSAGE(page.count(name), name, " is not in docs/ops.md");
  for (const std::string& name : page)
    CHECK_MESSAGE(code.count(name), name, " is in docs/ops.md, and nowhere in autograd/ops");
}

TEST_CASE("every op of the table is on the page") {
  const Names page = listed();
  Names formulas;  // a row may bear its formula's name
  for (const UnaryEntry& op : unary_ops()) formulas.insert(op.name);
  for (const BinaryEntry& op : binary_ops()) formulas.insert(op.name);
  for (const testing::OpRow& row : testing::op_table()) {
    std::string op = row.op();
    if (op.back() == '_') op.pop_back();
    // index, index_put and copy_ are methods.
    const bool method = op.starts_with("index") || op == "copy" || op.ends_with("_scatter");
    CHECK_MESSAGE((page.count(row.op()) || page.count(op) || formulas.count(op) || method), op,
                  " is not in docs/ops.md");
  }
}

TEST_CASE("every op of the page has a row in the table, or is tested elsewhere") {
  Names rows;
  for (const testing::OpRow& row : testing::op_table()) {
    rows.insert(row.op());
    if (row.op().back() == '_') rows.insert(row.op().substr(0, row.op().size() - 1));
  }
  // The rows of a formula are rows of its op; hypot has no others.
  for (const UnaryEntry& op : unary_ops()) rows.insert(op.name);
  for (const BinaryEntry& op : binary_ops()) rows.insert(op.name);
  Names elsewhere;
  for (const auto& entry : kElsewhere) {
    const auto& file = entry.first;
    const std::string text = text_of(kRoot / "tests" / "autograd" / file);
    for (const std::string& name : entry.second) {
      elsewhere.insert(name);
      CHECK_MESSAGE(std::regex_search(text, std::regex("\\b" + name + "\\(")), name,
                    " is not called in ", file);
      CHECK_MESSAGE(!rows.count(name), name, " has a row");
    }
  }
  for (std::string name : listed()) {
    if (name.back() == '_') name.pop_back();  // in place: ops/elementwise_forms_test.cpp
    CHECK_MESSAGE((rows.count(name) || elsewhere.count(name)), name, " has no row");
  }
}
