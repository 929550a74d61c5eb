// Training in several processes: groups, collective calls, data-parallel modules.
#pragma once
#include "halftape/distributed/data_parallel/data_parallel.h"
#include "halftape/distributed/data_parallel/sync_batch_norm.h"
#include "halftape/distributed/data_parallel/zero_redundancy_optimizer.h"
#include "halftape/distributed/environment.h"
#include "halftape/distributed/process_group.h"
#include "halftape/distributed/store/file_store.h"
#include "halftape/distributed/store/store.h"
#include "halftape/distributed/store/tcp_store.h"
