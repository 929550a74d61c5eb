#include "halftape/cpu/runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/machine/flush_denormal.h"
#include "halftape/core/machine/os.h"
#include "halftape/core/machine/scoped_value.h"
#include "halftape/core/machine/warn.h"
#include "halftape/core/place.h"

namespace halftape {
namespace cpu {
namespace {

thread_local bool inside = false;  // in a task already: nested loops run serially

/// True if is_true() is so within about the time that sleeping and waking cost: in training, loops
/// follow each other closely. Other threads get the CPU meanwhile.
template <class F>
bool soon(const F& is_true) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(40);
  do {
    if (is_true()) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return is_true();
}

/// One parallel loop. Threads hold it by shared_ptr, because the caller may be gone when a late one
/// looks at it.
struct Job {
  FunctionRef<void(int64_t)> task;
  int64_t count;
  // The caller's: bits and errors are those of its loop alone.
  uint32_t flush = detail::flush_bits();
  const char* op = detail::op_at_work;
  const detail::Place* place = detail::place_at_work;
  std::atomic<int64_t> next{0}, done{0};
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr error;

  Job(FunctionRef<void(int64_t)> each, int64_t n) : task(each), count(n) {}

  /// Claims and runs tasks until none is left.
  void work() {
    inside = true;
    const detail::FlushAs flushing(flush);
    const ScopedValue named(detail::op_at_work, op);
    const ScopedValue placed(detail::place_at_work, place);
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      try {
        task(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
        const std::lock_guard lock(mutex);
        finished.notify_all();
      }
    }
    inside = false;
  }
};

class Pool {
 public:
  std::mutex in_use;  // one loop at a time; another thread's loop runs serially meanwhile
  void run(const std::shared_ptr<Job>& job, int helpers) {
    {
      const std::lock_guard lock(mutex_);
      start(helpers);
      job_ = job;
      wanted_ = std::min(helpers, static_cast<int>(threads_.size()));
      ++round_;
    }
    wake_.notify_all();
    job->work();
    auto all_done = [&] { return job->done.load(std::memory_order_acquire) == job->count; };
    if (!soon(all_done)) {
      std::unique_lock lock(job->mutex);
      job->finished.wait(lock, all_done);
    }
    const std::lock_guard lock(job->mutex);
    if (job->error) std::rethrow_exception(job->error);
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    stopping_ = false;
  }
  /// What is to be said of threads that did not start; once.
  std::string warning() { return std::exchange(warning_, {}); }

 private:
  /// Starts threads until there are so many. If the system refuses one, it is not asked again.
  void start(int wanted) {
    while (static_cast<int>(threads_.size()) < wanted && !refused_) {
      try {
        threads_.emplace_back([this] { serve(); });
      } catch (const std::bad_alloc&) {
        return;  // the next loop asks again
      } catch (const std::system_error& e) {
        refused_ = true;
        warning_ = "set_num_threads: of " + std::to_string(wanted) + " threads beside the caller " +
                   std::to_string(threads_.size()) + " could be started (" + e.what() +
                   "); the work goes on with these";
      }
    }
  }
  void serve() {
    uint64_t seen = 0;
    for (;;) {
      std::shared_ptr<Job> job;
      soon([&] { return round_.load(std::memory_order_relaxed) != seen; });
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || (round_ != seen && wanted_ > 0); });
        if (stopping_) return;
        seen = round_;
        --wanted_;
        job = job_;
      }
      job->work();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
  std::shared_ptr<Job> job_;
  std::atomic<uint64_t> round_{0};  // written with the lock held
  int wanted_ = 0;
  bool stopping_ = false, refused_ = false;
  std::string warning_;
};

/// The second variable is that of OpenMP, by which launchers such as torchrun share a machine's
/// processors out to the programs that they start.
int default_threads() {
  for (const char* name : {"HALFTAPE_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* const text = std::getenv(name);
    const int n = text ? std::atoi(text) : 0;
    if (n > 0) return n;
  }
  return os::processors();
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{default_threads()};
  return count;
}

/// The pool of this process. It is never deleted, because destructors of static objects and other
/// threads may still compute while the program ends.
Pool& shared_pool() {
  static Pool* pool = nullptr;
  // A forked child has none of the threads, and may find a lock held by one of them: it leaves the
  // parent's pool as it is and starts another.
  struct Lifetime {
    Lifetime() {
      pool = new Pool;
      os::after_fork_in_child([] { pool = new Pool; });
    }
    // A library that is unloaded leaves no thread behind. The pool can start threads again.
    ~Lifetime() {
      if (const std::unique_lock free(pool->in_use, std::try_to_lock); free) pool->stop();
    }
  };
  static const Lifetime lifetime;
  return *pool;
}

}  // namespace

void parallel_for(int64_t count, FunctionRef<void(int64_t)> task) {
  if (count == 1) return task(0);
  const int helpers = static_cast<int>(std::min<int64_t>(get_num_threads(), count)) - 1;
  auto serially = [&] {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
  if (helpers <= 0 || inside) return serially();
  Pool& pool = shared_pool();
  std::unique_lock free(pool.in_use, std::try_to_lock);
  if (!free) return serially();
  std::shared_ptr<Job> job;
  try {
    job = std::make_shared<Job>(task, count);
  } catch (const std::bad_alloc&) {  // what needs no memory by itself shall not fail for threads
    free.unlock();
    return serially();
  }
  pool.run(job, helpers);
  const std::string warning = pool.warning();
  free.unlock();
  if (!warning.empty()) [[unlikely]]
    warn(warning);
}

}  // namespace cpu

void set_num_threads(int n) {
  HALFTAPE_CHECK(n >= 1, "set_num_threads: ", n, " threads; at least 1 is needed");
  cpu::thread_count().store(n);
}
int get_num_threads() { return cpu::thread_count().load(std::memory_order_relaxed); }

}  // namespace halftape
