// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// async_mutex: a mutex for the concurrent calls of one rank. A call that waits for the mutex does
// not block the thread.

#include <colls/coroutine/completion.hpp>

#include <algorithm>
#include <deque>

namespace colls::cuda {

/// A mutex that is granted to calls in the order of their requests. All calls must run on one
/// thread.
class async_mutex {
 public:
  /// One call's lock on the mutex. The lock is held from the completion of `acquire` until
  /// `release` is called or the lock is destroyed.
  class lock {
   public:
    explicit lock(async_mutex& mutex) : mutex_(mutex) {}
    lock(const lock&) = delete;
    ~lock() { release(); }

    class acquisition;
    struct request {
      using operation = acquisition;
      lock* owner;
    };
    /// Returns a request that acquires the mutex when it is awaited. The await completes when all
    /// locks that were requested earlier have been released.
    request acquire() { return {this}; }
    void release() noexcept {
      auto& queue = mutex_.queue_;
      const auto own = std::find(queue.begin(), queue.end(), this);
      if (own == queue.end()) return;
      const bool was_first = own == queue.begin();
      queue.erase(own);
      if (was_first && !queue.empty()) queue.front()->done_->post();
    }

   private:
    async_mutex& mutex_;
    completion* done_ = nullptr;
  };

 private:
  std::deque<lock*> queue_;  // the first lock in the queue holds the mutex
};

class async_mutex::lock::acquisition {
 public:
  explicit acquisition(const request& wanted) : lock_(*wanted.owner) {}
  bool start(completion& done) {
    auto& queue = lock_.mutex_.queue_;
    lock_.done_ = &done;
    queue.push_back(&lock_);
    return queue.size() == 1;
  }
  void result() {}

 private:
  lock& lock_;
};

}  // namespace colls::cuda
