// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A wait for a condition that must be polled, as for a device, and how often the thread slept in
// it.

#include <colls/coroutine/sync_wait.hpp>

#include <sys/resource.h>

/// Ends at the n-th poll.
class long_wait : colls::polled_condition {
 public:
  explicit long_wait(int polls) : polls_left_(polls) {}

  bool start(colls::completion& done) {
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {}

 private:
  bool poll() noexcept override {
    if (--polls_left_ > 0) return false;
    done_->post();
    return true;
  }

  int polls_left_;
  colls::completion* done_ = nullptr;
};

inline long sleeps_of_this_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

/// The number of sleeps of a driver during 3000 polls without progress.
template <class Driver>
long sleeps_in_a_long_wait(Driver& driver) {
  long_wait device(3000);
  const long before = sleeps_of_this_thread();
  colls::sync_wait(driver, device);
  return sleeps_of_this_thread() - before;
}
