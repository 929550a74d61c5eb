// What launchers put into the environment, and what is read of it.
#include "halftape/distributed/environment.h"

#include <doctest/doctest.h>

#include <map>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::has;

namespace {

using Environment = std::map<std::string, std::string>;

LaunchInfo read(const Environment& environment) {
  return read_launch_environment([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

const Environment kMaster{{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
const Environment kService{{"MASTER_PORT", "tcp://10.0.0.1:29500"}};
const Environment kTorch{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_NAMESPACE", "prte@1/2"}};
const Environment kSlurm{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "16"},
                         {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "100"},
                         {"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NODELIST", "node[01-04,7],gpu3"}};

struct Row {
  const char* what;
  Environment environment;
  LaunchInfo info;
};

}  // namespace

TEST_CASE("launchers' environments") {
  const Environment elastic{{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"TORCHELASTIC_RUN_ID", "job5"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const Environment mpich{
      {"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"PMI_FD", "9"}};
  const std::vector<Row> rows{
      {"nobody", {}, {0, 1, 0, "", "", ""}},
      {"an address alone", kMaster, {0, 1, 0, "", "", ""}},
      {"a pod beside a service called master", kService, {0, 1, 0, "", "", ""}},
      {"one process in such a pod",
       with(kService, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
       {0, 1, 0, "", "", "environment"}},
      {"a script", with(kTorch, kMaster), {3, 8, 1, "tcp://node7:29500", "", "environment"}},
      {"no local rank", {{"RANK", "3"}, {"WORLD_SIZE", "8"}}, {3, 8, 0, "", "", "environment"}},
      {"IPv6",
       with(kTorch, {{"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "1"}}),
       {3, 8, 1, "tcp://[fe80::1]:1", "", "environment"}},
      {"IPv6 in brackets",
       with(kTorch, {{"MASTER_ADDR", "[fe80::1]"}, {"MASTER_PORT", "1"}}),
       {3, 8, 1, "tcp://[fe80::1]:1", "", "environment"}},
      {"torchrun",
       with(with(kTorch, kMaster), elastic),
       {3, 8, 1, "tcp://node7:29501", "job5/2", "torchrun", 2}},
      {"torchrun without its store",
       with(with(kTorch, kMaster), {{"TORCHELASTIC_RUN_ID", "none"}}),
       {3, 8, 1, "tcp://node7:29500", "none/0", "torchrun"}},
      {"HALFTAPE_STORE",
       with(with(kTorch, kMaster), {{"HALFTAPE_STORE", "file:///shared/run"}}),
       {3, 8, 1, "file:///shared/run", "", "environment"}},
      {"HALFTAPE_STORE, and half of an address",
       with(kTorch, {{"HALFTAPE_STORE", "tcp://a:1"}, {"MASTER_ADDR", "b"}}),
       {3, 8, 1, "tcp://a:1", "", "environment"}},
      {"torchrun in a job of Slurm",
       with(with(kTorch, kMaster), kSlurm),
       {3, 8, 1, "tcp://node7:29500", "", "environment"}},
      {"mpirun on several machines",
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       {1, 2, 0, "", "prte-1-2", "mpirun"}},
      {"mpirun with an address",
       with(kOpenMpi, kMaster),
       {1, 2, 1, "tcp://node7:29500", "prte-1-2", "mpirun"}},
      {"mpirun of an older Open MPI, on several machines",
       with(kOpenMpi, {{"PMIX_NAMESPACE", ""},
                       {"OMPI_MCA_ess_base_jobid", "Job_7.a~@{"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
       {1, 2, 1, "", "Job-7.a---", "mpirun"}},
      {"mpirun that names no job",
       with(kOpenMpi, {{"PMIX_NAMESPACE", ""}}),
       {1, 2, 1, "", "", "mpirun"}},
      {"MPICH", mpich, {0, 4, 0, "", "", "mpirun"}},
      {"MPICH, whose servants srun started",
       with(mpich, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}),
       {0, 4, 0, "", "", "mpirun"}},
      {"srun", kSlurm, {5, 16, 1, "tcp://node01:26582", "100.2", "srun"}},
      {"srun with PMI",
       with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "16"}}),
       {5, 16, 1, "tcp://node01:26582", "100.2", "srun"}},
      {"MPICH of another size in a step of srun",
       with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "32"}}),
       {5, 32, 0, "", "", "mpirun"}},
      {"srun with an address",
       with(kSlurm, kMaster),
       {5, 16, 1, "tcp://node7:29500", "100.2", "srun"}},
      {"a job of Slurm that was started again, with fewer tasks in the step",
       with(kSlurm, {{"SLURM_RESTART_COUNT", "1"}, {"SLURM_STEP_NUM_TASKS", "6"}}),
       {5, 6, 1, "tcp://node01:26582", "100.2.1", "srun", 1}},
      {"the script of a job of Slurm, which is no step",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "0"}},
       {0, 1, 0, "", "", ""}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const LaunchInfo info = read(row.environment);
    CHECK(info.rank == row.info.rank);
    CHECK(info.world_size == row.info.world_size);
    CHECK(info.local_rank == row.info.local_rank);
    CHECK(info.store == row.info.store);
    CHECK(info.run_id == row.info.run_id);
    CHECK(info.launcher == row.info.launcher);
    CHECK(info.restarts == row.info.restarts);
  }
}

TEST_CASE("mpirun on one machine: processes meet in a folder of the job") {
  const testing::TempFolder folder;
  const Environment here = with(kOpenMpi, {{"PMIX_SERVER_TMPDIR", folder.path().string()}});
  CHECK(read(here).store == "file://" + folder.path().generic_string() + "/halftape-prte-1-2");
  const std::string store =
      read(with(kOpenMpi, {{"PMIX_SERVER_TMPDIR", (folder / "gone").string()},
                           {"OMPI_MCA_orte_precondition_transports", "97ab-54cd"}}))
          .store;
  CHECK(store == "file://" + std::filesystem::temp_directory_path().generic_string() +
                     "/halftape-prte-1-2-97ab-54cd");
}

TEST_CASE("the first host of Slurm's list") {
  for (const auto& [list, host] :
       std::map<std::string, std::string>{{"gpu3", "gpu3"},
                                          {"gpu3,node1", "gpu3"},
                                          {"node[01-04,7],gpu3", "node01"},
                                          {"node[7]", "node7"},
                                          {"n[3,1]-ib", "n3-ib"},
                                          {"rack[1-2]node[003-4],x", "rack1node003"},
                                          {"a-b.cluster", "a-b.cluster"}})
    CHECK(read(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})).store == "tcp://" + host + ":26582");
  for (const char* const list : {"node[01-04", "node[]", "node[-3]", "node["})
    CHECK(has(testing::message([&] {
                read(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}));
              }),
              "the list of hosts \"" + std::string(list)));
}

TEST_CASE("wrong environments are refused, by name") {
  struct Wrong {
    Environment environment;
    std::vector<std::string> words;
  };
  const std::vector<Wrong> rows{
      {{{"RANK", "0"}}, {"RANK is set", "WORLD_SIZE is not"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE is set", "RANK is not"}},
      {with(kTorch, {{"RANK", "8"}}), {"RANK=8", "from 0 to 7"}},
      {with(kTorch, {{"RANK", "-1"}}), {"RANK=-1", "from 0 to 7"}},
      {with(kTorch, {{"RANK", "3x"}}), {"RANK=\"3x\"", "is no number"}},
      {with(kTorch, {{"RANK", " 3"}}), {"RANK=\" 3\"", "is no number"}},
      {with(kTorch, {{"RANK", ""}}), {"RANK=\"\"", "is no number"}},
      {with(kTorch, {{"RANK", "99999999999999999999"}}), {"is no number"}},
      {with(kSlurm, {{"SLURM_RESTART_COUNT", "once"}}),
       {"SLURM_RESTART_COUNT=\"once\"", "how often the run was started anew"}},
      {with(kTorch, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0", "from 1"}},
      {with(kTorch, {{"WORLD_SIZE", "8.0"}}), {"WORLD_SIZE=\"8.0\""}},
      {with(kTorch, {{"LOCAL_RANK", "8"}}), {"LOCAL_RANK=8"}},
      {with(kTorch, {{"MASTER_ADDR", "a"}}), {"MASTER_ADDR is set", "MASTER_PORT is not"}},
      {with(kTorch, {{"MASTER_PORT", "1"}}), {"MASTER_PORT is set", "MASTER_ADDR is not"}},
      {with(kTorch, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65536"}}), {"MASTER_PORT=65536"}},
      {with(kTorch, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}}), {"MASTER_PORT=0"}},
      {with(with(kTorch, kMaster), kService), {"MASTER_PORT=\"tcp://10.0.0.1", "is no number"}},
      {with(kTorch, {{"MASTER_ADDR", "a"},
                     {"MASTER_PORT", "65535"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
       {"MASTER_PORT=65535", "torchrun"}},
      {with(kTorch, {{"HALFTAPE_STORE", "redis://a"}}), {"HALFTAPE_STORE=\"redis://a\""}},
      {with(kTorch, {{"HALFTAPE_STORE", "file://relative"}}), {"file:///folder"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not"}},
      {{{"PMI_SIZE", "2"}}, {"PMI_SIZE is set", "PMI_RANK is not"}},
      {with(kSlurm, {{"SLURM_PROCID", "16"}}), {"SLURM_PROCID=16"}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}, {"SLURM_NTASKS is not"}},
      {with(kSlurm, {{"SLURM_JOB_ID", "x"}}), {"SLURM_JOB_ID=\"x\""}},
  };
  for (const Wrong& row : rows) {
    const std::string text = testing::message([&] { read(row.environment); });
    for (const std::string& word : row.words) {
      CAPTURE(text);
      CAPTURE(word);
      CHECK(has(text, word));
    }
  }
}
