// An optimizer alone in a file, stream or archive, as LibTorch's torch::save(optimizer, path). A
// run that shall go on where it stopped saves all of it: TrainState.
#pragma once
#include "halftape/io/formats/archive.h"
#include "halftape/optim/optimizer.h"

namespace halftape::serialize {

/// Optimizer::state_dict(): the options of group i as values "groups.i.lr", the number of its
/// parameters as "groups.i.params", the state of parameter j, counted through all groups, as
/// tensors "state.j.exp_avg".
void write(OutputArchive& archive, const optim::Optimizer& optimizer);
/// Throws as Optimizer::load_state_dict(), and for numbers that are left out, changing nothing.
void read(InputArchive& archive, optim::Optimizer& optimizer);

}  // namespace halftape::serialize
