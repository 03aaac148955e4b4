// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The two sides of a training step: the one that computes, and the one that turns the communicator.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/task.hpp>
#include <colls/ddp/options.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

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

/// A number that grows, and the one coroutine that waits for it.
class gate {
 public:
  class arrival {
   public:
    arrival(gate& at, std::size_t wanted) : at_(at), wanted_(wanted) {}
    bool start(completion& done) {
      if (at_.value_ >= wanted_) return true;
      at_.waiting_ = &done;
      at_.wanted_ = wanted_;
      return false;
    }
    void result() const {}
    void forget(const completion& done) {
      if (at_.waiting_ == &done) at_.waiting_ = nullptr;
    }

   private:
    gate& at_;
    std::size_t wanted_;
  };

  arrival reached(std::size_t wanted) { return {*this, wanted}; }
  void raise(std::size_t to) {
    value_ = std::max(value_, to);
    if (waiting_ != nullptr && value_ >= wanted_) std::exchange(waiting_, nullptr)->post();
  }
  void reset() { value_ = 0; }

 private:
  std::size_t value_ = 0;
  std::size_t wanted_ = 0;
  completion* waiting_ = nullptr;
};

}  // namespace detail

/// Runs one task at a time with a communicator of its own. The side that computes starts a task,
/// tells it how far it has come, and waits for its end; the task alone touches the communicator.
template <class Communicator>
class driver {
 public:
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  virtual ~driver() = default;

  /// Begins the task; the one before has ended.
  virtual void start(task<> work) = 0;
  /// Lets the task pass `reached(n)` for all n up to `to`.
  virtual void raise(std::size_t to) = 0;
  /// Revokes the communicator, so that the task fails with this reason here and on all ranks.
  virtual void give_up(const std::string& reason) = 0;
  /// Ends when the task has, with its error.
  virtual void wait() = 0;

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  time_point now() const { return comm_.net().now(); }

  // ---- for the task

  Communicator& comm() { return comm_; }
  detail::gate::arrival reached(std::size_t wanted) { return gate_.reached(wanted); }

 protected:
  static constexpr std::size_t everything = SIZE_MAX;

  explicit driver(Communicator own) : comm_(std::move(own)) {}

  void revoke(const char* reason) {
    comm_.revoke(reason);
    gate_.raise(everything);
  }

  Communicator comm_;
  detail::gate gate_;
  task<> work_;
};

/// No thread: a poll whenever the side that computes says something; the rest in `wait`.
template <class Communicator>
class hooks_driver final : public driver<Communicator> {
 public:
  /// `own` is a communicator that nobody else uses.
  explicit hooks_driver(Communicator own) : driver<Communicator>(std::move(own)) {
    ended_.become([](completion& self) noexcept { static_cast<ending&>(self).happen(); },
                  completion(nullptr, &this->comm_.queue()));
  }

  void start(task<> work) override {
    this->gate_.reset();
    this->work_ = std::move(work);
    ended_.happened = this->work_.start(ended_);
    this->comm_.poll();
  }
  void raise(std::size_t to) override {
    this->gate_.raise(to);
    this->comm_.poll();
  }
  void give_up(const std::string& reason) override { this->revoke(reason.c_str()); }
  void wait() override {
    sync_wait(this->comm_, end{ended_});
    this->work_.result();
  }

 private:
  struct ending : completion {
    bool happened = true;
    completion* waiting = nullptr;
    void happen() noexcept {
      happened = true;
      if (waiting != nullptr) std::exchange(waiting, nullptr)->post();
    }
  };
  struct end {
    ending& of;
    bool start(completion& done) {
      if (!of.happened) of.waiting = &done;
      return of.happened;
    }
    void result() const {}
  };

  ending ended_;
};

namespace detail {

/// Outlives the communicator on it.
struct own_context {
  boost::asio::io_context context{1};
};

}  // namespace detail

/// One thread that runs the executor of a communicator made by `dup(executor)`.
template <class Communicator>
class thread_driver final : detail::own_context, public driver<Communicator> {
 public:
  /// A collective call that blocks.
  explicit thread_driver(Communicator& ranks)
      : driver<Communicator>(sync_wait(ranks, ranks.dup(context.get_executor()))),
        thread_([this] { sync_wait(this->comm_, serve()); }) {}
  ~thread_driver() override {
    post([this] {
      leaving_ = true;
      if (busy_) this->revoke("this rank left in the middle of a training step");
      jobs_.raise(this->everything);
    });
    thread_.join();
  }

  void start(task<> work) override {
    this->work_ = std::move(work);
    {
      const std::lock_guard lock(guard_);
      ended_ = false;
    }
    post([this, job = ++started_] {
      this->gate_.reset();
      jobs_.raise(job);
    });
  }
  void raise(std::size_t to) override {
    post([this, to] { this->gate_.raise(to); });
  }
  void give_up(const std::string& reason) override {
    post([this, reason] { this->revoke(reason.c_str()); });
  }
  void wait() override {
    std::unique_lock lock(guard_);
    told_.wait(lock, [this] { return ended_; });
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  template <class Function>
  void post(Function function) {
    boost::asio::post(context, std::move(function));
  }

  task<> serve() {
    for (std::size_t job = 1;; ++job) {
      co_await jobs_.reached(job);
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
      ended_ = true;
      told_.notify_one();
    }
    try {
      // Such a world has no store: who has no link to us yet comes to learn what went wrong.
      auto& net = this->comm_.net();
      if (this->comm_.failed() != nullptr) {
        co_await net.driver().sleep_until(net.now() + seconds / 2);
      }
      // Peers may go on for long without a word; that is no reason to stay.
      co_await this->comm_.close(std::chrono::seconds(1));
    } catch (const error&) {
    }
  }

  detail::gate jobs_;
  bool leaving_ = false;
  bool busy_ = false;
  std::size_t started_ = 0;

  std::mutex guard_;  // for the next three
  std::condition_variable told_;
  bool ended_ = true;
  std::exception_ptr failed_;

  std::thread thread_;  // the last: it uses all of them
};

/// A driver on a duplicate of `ranks`: a collective call that blocks.
template <class Communicator>
std::unique_ptr<driver<Communicator>> drive_by(Communicator& ranks, drive how) {
  if (how == drive::hooks) {
    return std::make_unique<hooks_driver<Communicator>>(sync_wait(ranks, ranks.dup()));
  }
  if constexpr (requires { typename Communicator::transport_type::card; }) {
    return std::make_unique<thread_driver<Communicator>>(ranks);
  } else {
    throw error(errc::invalid_argument,
                "this communicator cannot be duplicated onto another executor, which drive::thread "
                "needs: pass drive::hooks");
  }
}

}  // namespace colls::ddp
