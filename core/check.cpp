#include "halftape/core/check.h"

namespace halftape::detail {

thread_local constinit const char* op_at_work = nullptr;

std::string in_its_name(std::string text) {
  if (!op_at_work) return text;
  const std::string name = std::string(op_at_work) + ": ";
  return text.starts_with(name) ? text : name + text;
}

}  // namespace halftape::detail
