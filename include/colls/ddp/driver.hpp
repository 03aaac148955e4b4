// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// driver: runs the communication of a training step concurrently with the computation.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/task.hpp>
#include <colls/channel/transport.hpp>
#include <colls/ddp/options.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace colls::ddp {

namespace detail {

/// A counter that only grows. One coroutine at a time can wait until the counter reaches a value.
class progress_counter {
 public:
  class counter_wait {
   public:
    counter_wait(progress_counter& counter, std::size_t target)
        : counter_(counter), target_(target) {}
    bool start(completion& done) {
      if (counter_.value_ >= target_) return true;
      counter_.waiter_ = &done;
      counter_.target_ = target_;
      return false;
    }
    void result() const {}
    void forget(const completion& done) {
      if (counter_.waiter_ == &done) counter_.waiter_ = nullptr;
    }

   private:
    progress_counter& counter_;
    std::size_t target_;
  };

  counter_wait wait_for(std::size_t target) { return {*this, target}; }
  void advance(std::size_t value) {
    value_ = std::max(value_, value);
    if (waiter_ != nullptr && value_ >= target_) std::exchange(waiter_, nullptr)->post();
  }
  void reset() { value_ = 0; }

 private:
  std::size_t value_ = 0;
  std::size_t target_ = 0;
  completion* waiter_ = nullptr;
};

}  // namespace detail

/// The base class of drivers. A driver owns a communicator and runs one task at a time on it.
/// Nothing else uses this communicator. In each step, the thread that computes the gradients starts
/// the task, calls `advance` when gradients become ready, and waits until the task has completed.
template <class Communicator>
class driver {
 public:
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  virtual ~driver() = default;

  /// Starts `work`. The previous task must have completed.
  virtual void start(task<> work) = 0;
  /// Raises the progress of the current task to `value`. A call of `wait_for(n)` in the task
  /// completes as soon as the progress is at least n. `start` resets the progress to 0.
  virtual void advance(std::size_t value) = 0;
  /// Revokes the communicator, so that the task fails with `reason` on all ranks.
  virtual void revoke(const std::string& reason) = 0;
  /// Blocks until the task has completed, and throws the error of the task if it has failed.
  virtual void wait() = 0;

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  time_point now() const { return comm_.net().now(); }

  // Only the task may use the communicator and call `wait_for`. Other code may call `comm` only to
  // pass the reference to a task.

  Communicator& comm() { return comm_; }
  detail::progress_counter::counter_wait wait_for(std::size_t target) {
    return progress_.wait_for(target);
  }

 protected:
  static constexpr std::size_t max_value = SIZE_MAX;

  explicit driver(Communicator comm) : comm_(std::move(comm)) {}

  void revoke_comm(const char* reason) {
    comm_.revoke(reason);
    progress_.advance(max_value);
  }

  Communicator comm_;
  detail::progress_counter progress_;
  task<> work_;
};

/// A driver without a thread of its own. Each call of `start` or `advance` polls the communicator
/// once. Apart from these calls, the task makes progress only in `wait`.
template <class Communicator>
class hooks_driver final : public driver<Communicator> {
 public:
  /// Constructs a driver that runs its tasks on `comm`. Nothing else may use this communicator.
  explicit hooks_driver(Communicator comm) : driver<Communicator>(std::move(comm)) {
    end_.bind([](completion& self) noexcept { static_cast<end_event&>(self).set(); },
              completion(nullptr, &this->comm_.queue()));
  }

  void start(task<> work) override {
    this->progress_.reset();
    this->work_ = std::move(work);
    end_.is_set = this->work_.start(end_);
    this->comm_.poll();
  }
  void advance(std::size_t value) override {
    this->progress_.advance(value);
    this->comm_.poll();
  }
  void revoke(const std::string& reason) override { this->revoke_comm(reason.c_str()); }
  void wait() override {
    sync_wait(this->comm_, end_wait{end_});
    this->work_.result();
  }

 private:
  struct end_event : completion {
    bool is_set = true;
    completion* waiter = nullptr;
    void set() noexcept {
      is_set = true;
      if (waiter != nullptr) std::exchange(waiter, nullptr)->post();
    }
  };
  struct end_wait {
    end_event& event;
    bool start(completion& done) {
      if (!event.is_set) event.waiter = &done;
      return event.is_set;
    }
    void result() const {}
  };

  end_event end_;
};

namespace detail {

/// The io_context of a `thread_driver`. It is the first base class of `thread_driver`, so that the
/// io_context exists longer than the communicator, which is in the second base class.
struct owned_context {
  boost::asio::io_context context{1};
};

}  // namespace detail

/// A driver with a thread of its own. The communicator of the driver is the result of
/// `dup(executor)`, and the thread runs the io_context of this executor.
template <class Communicator>
class thread_driver final : detail::owned_context, public driver<Communicator> {
 public:
  /// Duplicates `comm` onto the executor of the new thread. All ranks must call this constructor.
  /// Blocks until the duplicate exists.
  explicit thread_driver(Communicator& comm)
      : driver<Communicator>(sync_wait(comm, comm.dup(context.get_executor()))),
        thread_([this] { sync_wait(this->comm_, run_jobs()); }) {}
  ~thread_driver() override {
    post([this] {
      leaving_ = true;
      if (busy_) this->revoke_comm("this rank left in the middle of a training step");
      jobs_.advance(this->max_value);
    });
    thread_.join();
  }

  void start(task<> work) override {
    this->work_ = std::move(work);
    {
      const std::lock_guard lock(guard_);
      has_ended_ = false;
    }
    post([this, job = ++started_] {
      this->progress_.reset();
      jobs_.advance(job);
    });
  }
  void advance(std::size_t value) override {
    post([this, value] { this->progress_.advance(value); });
  }
  void revoke(const std::string& reason) override {
    post([this, reason] { this->revoke_comm(reason.c_str()); });
  }
  void wait() override {
    std::unique_lock lock(guard_);
    ended_changed_.wait(lock, [this] { return has_ended_; });
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  template <class Function>
  void post(Function function) {
    boost::asio::post(context, std::move(function));
  }

  task<> run_jobs() {
    for (std::size_t job = 1;; ++job) {
      co_await jobs_.wait_for(job);
      if (leaving_) break;
      busy_ = true;
      std::exception_ptr failed;
      try {
        co_await this->work_;
      } catch (...) {
        failed = std::current_exception();
      }
      busy_ = false;
      const std::lock_guard lock(guard_);
      failed_ = failed;
      has_ended_ = true;
      ended_changed_.notify_one();
    }
    try {
      // If the communicator has failed, all peers must learn the reason. The communicator of the
      // driver has no store from which they could read it. A peer that is not yet connected to this
      // rank must therefore connect to it, so this rank accepts connections for another half
      // second.
      auto& net = this->comm_.net();
      if (this->comm_.failed() != nullptr) {
        co_await net.driver().sleep_until(net.now() + seconds / 2);
      }
      // `close` waits until the peers close the communicator too. They may compute for a long time
      // before they do so, so this rank waits for at most one second.
      co_await this->comm_.close(std::chrono::seconds(1));
    } catch (const error&) {
    }
  }

  detail::progress_counter jobs_;
  bool leaving_ = false;
  bool busy_ = false;
  std::size_t started_ = 0;

  std::mutex guard_;  // guards the next three members
  std::condition_variable ended_changed_;
  bool has_ended_ = true;
  std::exception_ptr failed_;

  std::thread thread_;  // declared last, because the thread uses all members
};

/// Returns a driver that runs on a duplicate of `comm`. All ranks must call this function. Blocks
/// until the duplicate exists. Throws `errc::invalid_argument` if `mode` is `drive::thread` and
/// `comm` cannot be duplicated onto another executor.
template <class Communicator>
std::unique_ptr<driver<Communicator>> make_driver(Communicator& comm, drive mode) {
  if (mode == drive::hooks) {
    return std::make_unique<hooks_driver<Communicator>>(sync_wait(comm, comm.dup()));
  }
  static_assert(
      requires { sizeof(typename Communicator::transport_type); },
      "colls: where COLLS_SEPARATE_COMPILATION is defined, a file that trains on a world includes "
      "<colls/interprocess.hpp>");
  if constexpr (world_transport<typename Communicator::transport_type>) {
    return std::make_unique<thread_driver<Communicator>>(comm);
  } else {
    throw error(errc::invalid_argument,
                "this communicator cannot be duplicated onto another executor, which drive::thread "
                "needs: pass drive::hooks");
  }
}

}  // namespace colls::ddp
