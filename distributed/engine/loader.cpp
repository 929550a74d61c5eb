#include "halftape/distributed/engine/loader.h"

#include <algorithm>

#include "halftape/core/check.h"
#include "halftape/core/machine/module.h"

namespace halftape::distributed {
namespace {

/// What the user may do where that engine does not load.
std::string remedy(const std::string& engine) {
  if (engine == "gloo")
    return "; install libhalftape-gloo, or build halftape where libgloo-dev is installed";
  return "";
}

}  // namespace

std::unique_ptr<Engine> open_engine(const std::string& name, const EngineSetup& setup) {
  const bool is_name =
      !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      });
  HALFTAPE_CHECK(is_name, "\"", name,
                 "\" is no name of an engine: those are small letters and digits, such as "
                 "\"gloo\"");
  std::string why_not;
  const auto open = reinterpret_cast<OpenEngine*>(
      detail::load_module({name, "the " + name + " engine", kEngineVersion}, why_not));
  HALFTAPE_CHECK(open, why_not, remedy(name));
  std::unique_ptr<Engine> engine(open(setup, &why_not));
  HALFTAPE_CHECK(engine, "the ", name, " engine did not start: ", why_not);
  return engine;
}

}  // namespace halftape::distributed
