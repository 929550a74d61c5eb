// Meeting the other processes, and the default group.
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <utility>

#include "halftape/core/machine/os.h"
#include "halftape/core/machine/scoped_value.h"
#include "halftape/core/machine/sockets.h"
#include "halftape/distributed/engine/choice.h"
#include "halftape/distributed/engine/loader.h"
#include "halftape/distributed/engine/opening.h"
#include "halftape/distributed/nccl/nccl_engine.h"
#include "halftape/distributed/process_group.h"
#include "halftape/distributed/store/file_store.h"
#include "halftape/distributed/store/tcp_store.h"

namespace halftape::distributed {
namespace {

/// Where groups meet. The store stays after the default group: others may come back before this
/// process has left, or after.
struct Meeting {
  std::string where;
  bool serves = false;  // as rank 0 does
  std::shared_ptr<Store> store;
};

struct DefaultGroup {
  std::mutex mutex;
  std::shared_ptr<ProcessGroup> group;
  bool being_made = false;
  Meeting meeting;  // of the thread that makes the group
  int64_t process = os::process_id();
};
DefaultGroup& the_default() {
  static auto* one = new DefaultGroup;  // NOLINT: statics may ask in their destructors
  return *one;
}

/// A fork has none of the threads that would be joined: what its parent had is kept for ever.
void leave_to_parent(DefaultGroup& all) {
  if (std::exchange(all.process, os::process_id()) != os::process_id())
    new auto(std::make_pair(std::move(all.meeting), std::move(all.group)));  // NOLINT
}

bool starts_with(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

struct Address {
  std::string host;
  uint16_t port;
};
/// Of "tcp://host:port" and "tcp://[::1]:port".
Address parse_tcp(const std::string& url) {
  const std::string rest = url.substr(6);
  const size_t colon = rest.rfind(':');
  HALFTAPE_CHECK(colon != std::string::npos && colon > 0, "init_process_group: \"", url,
                 "\" is not tcp://host:port");
  const std::string digits = rest.substr(colon + 1);
  char* end = nullptr;
  const unsigned long port = std::strtoul(digits.c_str(), &end, 10);
  HALFTAPE_CHECK(!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos &&
                     digits.size() <= 5 && port >= 1 && port <= 65535,
                 "init_process_group: the port of \"", url, "\" is not a number from 1 to 65535");
  std::string host = rest.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return {host, static_cast<uint16_t>(port)};
}

std::shared_ptr<Store> open_store(const std::string& where, int rank, milliseconds timeout) {
  if (starts_with(where, "tcp://")) {
    const Address at = parse_tcp(where);
    return std::make_shared<TcpStore>(
        at.host, TcpStoreOptions{.port = at.port, .is_server = rank == 0, .timeout = timeout});
  }
  if (starts_with(where, "file://")) return std::make_shared<FileStore>(where.substr(7), timeout);
  halftape::detail::fail("init_process_group: \"", where,
                         "\" is no meeting place; give \"tcp://host:port\" or \"file:///folder\"");
}

bool answers(Store& store) {
  try {
    (void)store.check({"anything"});
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The store there, the one that is open if it is the same.
std::shared_ptr<Store> store_at(Meeting& meeting, const std::string& where, int rank,
                                milliseconds timeout) {
  if (meeting.where != where || meeting.serves != (rank == 0) || !meeting.store ||
      !answers(*meeting.store)) {
    meeting = {};  // first, as it may be the server whose port is wanted
    meeting = {where, rank == 0, open_store(where, rank, timeout)};
  }
  meeting.store->set_timeout(timeout);
  return meeting.store;
}

std::string own_address(const ProcessGroupOptions& options, const LaunchInfo& info) {
  if (!options.host.empty() || options.store || !starts_with(info.store, "tcp://"))
    return options.host;
  return os::address_towards(parse_tcp(info.store).host);
}

/// What the options leave open, from the environment.
LaunchInfo launch_info(const ProcessGroupOptions& options) {
  HALFTAPE_CHECK((options.rank < 0) == (options.world_size < 0),
                 "init_process_group: give both rank and world_size, or neither");
  LaunchInfo info;
  // A place that the caller names needs none in the environment, where it may be another program's.
  const bool named = options.store || !options.init_method.empty();
  if (options.rank < 0)
    info = read_launch_environment([named](const char* name) {
      const std::string_view asked = name;
      const bool of_place = asked.starts_with("MASTER_") || asked == "HALFTAPE_STORE" ||
                            asked == "SLURM_STEP_NODELIST";
      return named && of_place ? nullptr : std::getenv(name);
    });
  else
    info.rank = info.local_rank = options.rank, info.world_size = options.world_size;
  HALFTAPE_CHECK(info.world_size >= 1 && info.rank < info.world_size, "init_process_group: rank ",
                 info.rank, " of ", info.world_size, "; ranks are counted from 0");
  if (!options.init_method.empty()) info.store = options.init_method;
  if (info.store.empty())
    if (const char* said = os::secure_environment("HALFTAPE_STORE")) info.store = said;
  return info;
}

std::unique_ptr<Engine> open_agreed_engine(const std::string& asked, const EngineSetup& setup) {
  const std::string obstacle = asked.empty() || asked == "nccl" ? nccl_unavailable_reason() : "";
  const std::string name = agreed_backend(asked, obstacle, setup.rank, setup.size, *setup.store);
  return name == "nccl" ? open_nccl(setup) : open_engine(name, setup);
}

/// Says goodbye before CUDA and NCCL, which are loaded earlier, end themselves.
struct AtTheEnd {
  ~AtTheEnd() {
    if (is_initialized()) destroy_process_group();
    the_default().meeting = {};
  }
};

std::shared_ptr<ProcessGroup> make_group(const ProcessGroupOptions& options, Meeting& meeting) {
  checked_timeout("init_process_group", options.timeout);
  const LaunchInfo info = launch_info(options);
  const GroupOptions group{options.timeout, options.summation};
  const int rank = info.rank, size = info.world_size;
  if (size == 1)
    return std::make_shared<ProcessGroup>(nullptr, 0, 1, group, nullptr, nullptr, options.store);
  std::shared_ptr<Store> store = options.store;
  if (!store) {
    HALFTAPE_CHECK(!info.store.empty(), "init_process_group: rank ", rank, " of ", size,
                   " does not know where the processes meet; set MASTER_ADDR and MASTER_PORT, or "
                   "HALFTAPE_STORE, or give init_method");
    store = store_at(meeting, info.store, rank, options.timeout);
  }
  if (!info.run_id.empty()) store = std::make_shared<PrefixStore>(info.run_id, store);
  const std::string host = own_address(options, info);
  PrefixStore watched("watch", store);
  auto news = std::make_shared<FailureNews>();
  auto watch = std::make_unique<Watch>(
      watched, WatchOptions{.rank = rank, .size = size, .timeout = options.timeout},
      [news](const std::string& failure) { news->tell(failure); }, host);
  // Keys of its own: what other groups, or tries that failed, have written there is not read.
  store = std::make_shared<PrefixStore>("group " + std::to_string(watch->session()), store);
  auto engine = open_in_time(
      [=, asked = options.backend, timeout = options.timeout, local_rank = info.local_rank] {
        PrefixStore engines("engine", store);
        return open_agreed_engine(asked, {rank, size, &engines, timeout, host, local_rank});
      },
      options.timeout, *news);
  return std::make_shared<ProcessGroup>(std::move(engine), rank, size, group, std::move(watch),
                                        news, std::make_shared<PrefixStore>("user", store));
}

}  // namespace

std::shared_ptr<ProcessGroup> new_process_group(const ProcessGroupOptions& options) {
  Meeting meeting;
  {
    DefaultGroup& all = the_default();
    const std::lock_guard lock(all.mutex);
    leave_to_parent(all);
    if (!all.being_made) meeting = all.meeting;
  }
  return make_group(options, meeting);
}

std::shared_ptr<ProcessGroup> init_process_group(const ProcessGroupOptions& options) {
  DefaultGroup& all = the_default();
  std::unique_lock lock(all.mutex);
  leave_to_parent(all);
  static const AtTheEnd leftovers;  // a start that fails may leave a store
  HALFTAPE_CHECK(!all.group && !all.being_made,
                 "init_process_group: there is a default group already; call "
                 "destroy_process_group() first, or use new_process_group()");
  const ScopedValue<bool> being_made(all.being_made, true);  // ends, as it began, with the lock
  lock.unlock();                                             // for others that ask meanwhile
  std::shared_ptr<ProcessGroup> group;
  std::exception_ptr failed;
  try {
    group = make_group(options, all.meeting);
  } catch (...) {
    failed = std::current_exception();
  }
  lock.lock();
  if (failed) std::rethrow_exception(failed);
  static const AtTheEnd goodbye;
  return all.group = std::move(group);
}

bool is_initialized() {
  DefaultGroup& all = the_default();
  const std::lock_guard lock(all.mutex);
  leave_to_parent(all);
  return all.group != nullptr;
}

std::shared_ptr<ProcessGroup> default_group() {
  DefaultGroup& all = the_default();
  const std::lock_guard lock(all.mutex);
  leave_to_parent(all);
  HALFTAPE_CHECK(all.group, "there is no default group; call init_process_group() first");
  return all.group;
}

void destroy_process_group() {
  DefaultGroup& all = the_default();
  std::shared_ptr<ProcessGroup> group;
  {
    const std::lock_guard lock(all.mutex);
    leave_to_parent(all);
    group = std::exchange(all.group, nullptr);
  }
  HALFTAPE_CHECK(group, "destroy_process_group: there is no default group");
  group->leave();
}

int get_rank() { return is_initialized() ? default_group()->rank() : 0; }
int get_world_size() { return is_initialized() ? default_group()->size() : 1; }

}  // namespace halftape::distributed
