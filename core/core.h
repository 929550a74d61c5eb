// Arrays, devices, dtypes, random streams, captured graphs: what lies below autograd.
#pragma once
#include "halftape/core/capture/graph.h"
#include "halftape/core/machine/cpu_capability.h"
#include "halftape/core/machine/flush_denormal.h"
#include "halftape/core/machine/threads.h"
#include "halftape/core/machine/warn.h"
#include "halftape/core/memory_stats.h"
#include "halftape/core/random/random.h"
#include "halftape/core/version.h"
