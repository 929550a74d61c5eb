// What the launcher of a program says about its processes.
#include "halftape/distributed/environment.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "halftape/core/check.h"

namespace halftape::distributed {
namespace {

using Variables = std::function<const char*(const char* name)>;

/// "" for a text that is not set.
std::string text_of(const Variables& variable, const char* name) {
  const char* const text = variable(name);
  return text ? text : "";
}

bool is_set(const Variables& variable, const char* name) { return variable(name) != nullptr; }

/// Digits alone. `least` and `most` are possible, too.
int64_t number_of(const Variables& variable, const char* name, int64_t least, int64_t most,
                  const char* what) {
  const std::string text = text_of(variable, name);
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  HALFTAPE_CHECK(error == std::errc() && stop == end, name, "=\"", text,
                 "\" in the environment is no number: it must be ", what);
  HALFTAPE_CHECK(number >= least && number <= most, name, "=", number,
                 " in the environment is not from ", least, " to ", most, ": it must be ", what);
  return number;
}

constexpr int64_t kMostRanks = 1 << 20;

/// 0 where the launcher does not say.
int64_t restarts_of(const Variables& variable, const char* name) {
  if (text_of(variable, name).empty()) return 0;
  return number_of(variable, name, 0, int64_t{1} << 53, "how often the run was started anew");
}

struct RankNames {
  const char *rank, *size, *local_rank;
};

std::string tcp_store(const std::string& host, int64_t port) {
  const bool six = host.find(':') != std::string::npos && !host.starts_with('[');
  return "tcp://" + (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

/// Of MASTER_ADDR and MASTER_PORT; empty if neither is set.
std::string master_store(const Variables& variable) {
  const std::string host = text_of(variable, "MASTER_ADDR");
  if (host.empty() && !is_set(variable, "MASTER_PORT")) return {};
  HALFTAPE_CHECK(!host.empty(),
                 "MASTER_PORT is set in the environment, and MASTER_ADDR is not: set it to the "
                 "name or address of rank 0's machine");
  HALFTAPE_CHECK(is_set(variable, "MASTER_PORT"),
                 "MASTER_ADDR is set in the environment, and MASTER_PORT is not: set it to a free "
                 "port of that machine, such as 29500");
  int64_t port = number_of(variable, "MASTER_PORT", 1, 65535, "a port");
  if (text_of(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True") {
    HALFTAPE_CHECK(
        port < 65535,
        "MASTER_PORT=65535: torchrun listens there, and Halftape at the next port, which "
        "does not exist; give torchrun another --master-port");
    ++port;
  }
  return tcp_store(host, port);
}

/// What the environment says outright; empty if it says nothing.
std::string stated_store(const Variables& variable) {
  const std::string store = text_of(variable, "HALFTAPE_STORE");
  HALFTAPE_CHECK(store.empty() || store.starts_with("tcp://") || store.starts_with("file:///"),
                 "HALFTAPE_STORE=\"", store,
                 "\" in the environment is neither tcp://host:port nor file:///folder");
  return store.empty() ? master_store(variable) : store;
}

/// Both of rank and size, or an error that names the one that is missing.
void read_ranks(const Variables& variable, const RankNames& names, LaunchInfo& info) {
  for (const auto& [present, absent] :
       {std::pair(names.rank, names.size), std::pair(names.size, names.rank)})
    HALFTAPE_CHECK(is_set(variable, absent), present, " is set in the environment, and ", absent,
                   " is not: set both, or none for a single process");
  info.world_size =
      static_cast<int>(number_of(variable, names.size, 1, kMostRanks, "the number of processes"));
  info.rank = static_cast<int>(number_of(variable, names.rank, 0, info.world_size - 1,
                                         "the number of this process, counted from 0"));
  if (is_set(variable, names.local_rank))
    info.local_rank =
        static_cast<int>(number_of(variable, names.local_rank, 0, info.world_size - 1,
                                   "the number of this process on its machine, counted from 0"));
  // A single process meets nobody, and another program may have set these variables: Kubernetes
  // gives MASTER_PORT=tcp://10.0.0.1:29500 to all pods beside a service called "master".
  if (info.world_size > 1) info.store = stated_store(variable);
}

/// Of a variable's text, what may stand in a file's name.
std::string plain(std::string text) {
  for (char& c : text)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '.')
      c = '-';
  return text;
}

void read_torchrun(const Variables& variable, LaunchInfo& info) {
  read_ranks(variable, {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, info);
  info.launcher = is_set(variable, "TORCHELASTIC_RUN_ID") ? "torchrun" : "environment";
  if (info.launcher == "torchrun") {
    info.restarts = restarts_of(variable, "TORCHELASTIC_RESTART_COUNT");
    info.run_id = text_of(variable, "TORCHELASTIC_RUN_ID") + "/" + std::to_string(info.restarts);
  }
}

void read_open_mpi(const Variables& variable, LaunchInfo& info) {
  info.launcher = "mpirun";
  read_ranks(variable,
             {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}, info);
  // The job's number may come again; the key of its transports is drawn by chance.
  std::string job = text_of(variable, "PMIX_NAMESPACE");
  if (job.empty()) job = text_of(variable, "OMPI_MCA_ess_base_jobid");
  const std::string key = text_of(variable, "OMPI_MCA_orte_precondition_transports");
  if (job.empty()) return;
  info.run_id = plain(job + (key.empty() ? "" : "-" + key));
  if (!info.store.empty() ||
      text_of(variable, "OMPI_COMM_WORLD_LOCAL_SIZE") != text_of(variable, "OMPI_COMM_WORLD_SIZE"))
    return;
  // mpirun's own folder belongs to this user alone, and goes with the job.
  std::filesystem::path folder = text_of(variable, "PMIX_SERVER_TMPDIR");
  std::error_code ignored;
  if (!folder.is_absolute() || !std::filesystem::is_directory(folder, ignored))
    folder = std::filesystem::temp_directory_path(ignored);
  info.store = "file://" + (folder / ("halftape-" + info.run_id)).generic_string();
}

void read_mpich(const Variables& variable, LaunchInfo& info) {
  info.launcher = "mpirun";
  read_ranks(variable, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}, info);
}

/// "node01" of "node[01-04,7],gpu3".
std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ',';) {
    if (list[i] != '[') {
      host += list[i++];
      continue;
    }
    const size_t end = list.find(']', i), stop = list.find_first_of("-,]", i);
    HALFTAPE_CHECK(end != std::string::npos && stop > i + 1, "the list of hosts \"", list,
                   "\" of Slurm has no form such as node[01-04,7]");
    host += list.substr(i + 1, stop - i - 1);
    i = end + 1;
  }
  return host;
}

/// The name that Slurm gives to the number of the step's tasks.
const char* slurm_size(const Variables& variable) {
  return is_set(variable, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

void read_slurm(const Variables& variable, LaunchInfo& info) {
  info.launcher = "srun";
  read_ranks(variable, {"SLURM_PROCID", slurm_size(variable), "SLURM_LOCALID"}, info);
  constexpr int64_t kMost = int64_t{1} << 53;
  const char* const job_name = is_set(variable, "SLURM_JOB_ID") ? "SLURM_JOB_ID" : "SLURM_JOBID";
  const int64_t job =
      is_set(variable, job_name) ? number_of(variable, job_name, 0, kMost, "the job's number") : 0;
  const int64_t step = number_of(variable, "SLURM_STEP_ID", 0, kMost, "the step's number");
  info.run_id = std::to_string(job) + "." + std::to_string(step);
  info.restarts = restarts_of(variable, "SLURM_RESTART_COUNT");
  if (info.restarts > 0) info.run_id += "." + std::to_string(info.restarts);
  if (!info.store.empty()) return;
  const std::string hosts = text_of(variable, "SLURM_STEP_NODELIST");
  // Below the ports that systems give to outgoing connections, and other ones for jobs and steps
  // that may run beside each other.
  if (!hosts.empty()) info.store = tcp_store(first_host(hosts), 20480 + (job * 61 + step) % 8192);
}

/// srun has set the variables itself: it also starts mpirun's servants, one for each machine, which
/// hand theirs down.
bool srun_started(const Variables& variable) {
  if (!is_set(variable, "SLURM_PROCID") || !is_set(variable, "SLURM_STEP_ID")) return false;
  return !is_set(variable, "PMI_RANK") ||
         (text_of(variable, "PMI_RANK") == text_of(variable, "SLURM_PROCID") &&
          text_of(variable, "PMI_SIZE") == text_of(variable, slurm_size(variable)));
}

}  // namespace

LaunchInfo read_launch_environment(const Variables& variable) {
  const auto any = [&variable](const char* a, const char* b) {
    return is_set(variable, a) || is_set(variable, b);
  };
  LaunchInfo info;
  if (any("RANK", "WORLD_SIZE"))
    read_torchrun(variable, info);
  else if (any("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
    read_open_mpi(variable, info);
  else if (srun_started(variable))
    read_slurm(variable, info);
  else if (any("PMI_RANK", "PMI_SIZE"))
    read_mpich(variable, info);
  return info;
}

LaunchInfo read_launch_environment() {
  return read_launch_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace halftape::distributed
