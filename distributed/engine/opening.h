// Starts an engine within a time, whatever its library does.
#pragma once
#include <functional>
#include <memory>

#include "halftape/distributed/engine/engine.h"
#include "halftape/distributed/store/failure_news.h"

namespace halftape::distributed {

/// The engine that `open` returns. It runs on a thread of its own, because a library may wait for
/// its connections longer than it was told: throws Error after the timeout, and as soon as the news
/// tell that a process is lost. That thread then goes on by itself, so `open` must own all it
/// needs.
std::unique_ptr<Engine> open_in_time(std::function<std::unique_ptr<Engine>()> open,
                                     milliseconds timeout, FailureNews& news);

}  // namespace halftape::distributed
