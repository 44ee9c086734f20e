#include <torch/csrc/zendnn/plan/cache/Ahead.h>

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace at::native::zendnn::plan::ahead {

void take_all_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(omp_get_place_num_procs(place));
    omp_get_place_proc_ids(place, ids.data());
    for (const auto id : ids) {
      CPU_SET(id, &cores);
    }
  }
  if (omp_get_proc_bind() != omp_proc_bind_false && CPU_COUNT(&cores) > 0) {
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
  }
}

namespace {

class Worker {
 public:
  void give(const void* owner, std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (!is_started_) {
      std::thread([this] { run(); }).detach();
      is_started_ = true;
    }
    erase(owner);
    tasks_.emplace_back(owner, std::move(task));
    changed_.notify_all();
  }

  void forget(const void* owner) {
    std::unique_lock lock(mutex_);
    erase(owner);
    changed_.wait(lock, [&] { return running_ != owner; });
  }

  // No task runs from here to the end of the pause.
  void pause() {
    std::unique_lock lock(mutex_);
    ++pauses_;
    changed_.wait(lock, [&] { return running_ == nullptr; });
  }
  void end_pause() {
    const std::lock_guard lock(mutex_);
    --pauses_;
    changed_.notify_all();
  }

 private:
  using Task = std::pair<const void*, std::function<void()>>; // and its owner

  void erase(const void* owner) {
    tasks_.remove_if([&](const Task& task) { return task.first == owner; });
  }

  [[noreturn]] void run() {
    pthread_setname_np(pthread_self(), "zendnn_ahead");
    take_all_cores();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return pauses_ == 0 && !tasks_.empty(); });
      {
        const auto [owner, task] = std::move(tasks_.front());
        tasks_.pop_front();
        running_ = owner;
        lock.unlock();
        task();
      }
      lock.lock();
      running_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_; // guards the members below
  std::condition_variable changed_;
  std::list<Task> tasks_;         // at most one of each owner
  const void* running_ = nullptr; // whose task runs
  int pauses_ = 0;                // that have not ended
  bool is_started_ = false;
};

// The process's; never destroyed, since its thread does not end.
std::atomic<Worker*> the_worker{nullptr};

Worker& worker() {
  static std::once_flag once;
  std::call_once(once, [] {
    the_worker = new Worker;
    // A child has copies of all locks and none of the threads.
    pthread_atfork(
        [] { the_worker.load()->pause(); },
        [] { the_worker.load()->end_pause(); },
        [] { the_worker = new Worker; });
    std::atexit([] { the_worker.load()->pause(); });
  });
  return *the_worker;
}

} // namespace

void give(const void* owner, std::function<void()> task) {
  worker().give(owner, std::move(task));
}

void forget(const void* owner) {
  if (auto* const worker = the_worker.load()) {
    worker->forget(owner);
  }
}

} // namespace at::native::zendnn::plan::ahead
