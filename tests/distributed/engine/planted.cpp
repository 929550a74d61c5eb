// Engines that do not start.
#include <string>

#include "halftape/distributed/engine/engine.h"

using namespace halftape::distributed;

extern "C" {
int halftape_old_version() { return kEngineVersion + 1; }
Engine* halftape_old_open(const EngineSetup&, std::string*) { return nullptr; }

int halftape_sad_version() { return kEngineVersion; }
Engine* halftape_sad_open(const EngineSetup&, std::string* why_not) {
  *why_not = "it rains";
  return nullptr;
}
}
