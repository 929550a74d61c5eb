// What the launcher of a program (torchrun, mpirun, srun, Kubernetes) says about its processes.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace halftape::distributed {

/// Who this process is, and where the processes meet.
struct LaunchInfo {
  int rank = 0;        // 0 ≤ rank < world_size
  int world_size = 1;  // the number of processes
  int local_rank = 0;  // among those of this machine
  /// "tcp://host:port", or "file:///folder"; empty where the environment does not say.
  std::string store;
  /// What the keys of this run begin with, so that nothing of an earlier life of the job is read.
  std::string run_id;
  /// "torchrun", "mpirun", "srun", or "environment"; empty: nobody launched this process.
  std::string launcher;
  /// How often the launcher has started the run anew, after a process was lost: torchrun and srun.
  int64_t restarts = 0;
};

/// Reads the environment, by `variable`, which returns null for one that is not set. In this order:
/// * RANK and WORLD_SIZE (LOCAL_RANK, MASTER_ADDR, MASTER_PORT): torchrun, Kubernetes, a script.
///   With TORCHELASTIC_USE_AGENT_STORE=True torchrun itself listens on MASTER_PORT, and the next
///   port is taken. TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT make the run_id.
/// * OMPI_COMM_WORLD_RANK, …_SIZE and …_LOCAL_RANK: Open MPI's mpirun. Without an address: a folder
///   of this job below the temporary folder, if all processes are on this machine.
/// * SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID: srun, which alone sets
///   SLURM_STEP_ID; the script of a job, outside of srun, is one process. Without an address: the
///   first host of SLURM_STEP_NODELIST, and a port that follows from the job's and the step's
///   number.
/// * PMI_RANK, PMI_SIZE (MPI_LOCALRANKID): MPICH's and Intel's mpirun. Where srun set the same
///   numbers, srun's count.
/// HALFTAPE_STORE names the meeting place before MASTER_ADDR, and both before all else; for a
/// single process neither is read. An IPv6 address stands in brackets. Throws Error for a number
/// that is none or is out of range, and for one variable of a pair without the other, naming it.
LaunchInfo read_launch_environment(const std::function<const char*(const char* name)>& variable);
/// The same by the process's own environment.
LaunchInfo read_launch_environment();

}  // namespace halftape::distributed
