#include "halftape/core/check.h"

#include "halftape/core/place.h"

namespace halftape::detail {

thread_local constinit const char* op_at_work = nullptr;
thread_local constinit const Place* place_at_work = nullptr;

std::string in_its_name(std::string text) {
  const std::string op = op_at_work ? std::string(op_at_work) + ": " : "";
  if (!text.starts_with(op)) text = op + text;
  return place_at_work ? place_at_work->path + " (" + place_at_work->kind + "): " + text : text;
}

}  // namespace halftape::detail
