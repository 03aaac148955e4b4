// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A wait for what nobody posts, as for a device, and how often its thread slept meanwhile.

#include <colls/coroutine/sync_wait.hpp>

#include <sys/resource.h>

/// Comes about at the n-th look.
class long_wait : colls::watched {
 public:
  explicit long_wait(int looks) : looks_(looks) {}

  bool start(colls::completion& done) {
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {}

 private:
  bool look() noexcept override {
    if (--looks_ > 0) return false;
    done_->post();
    return true;
  }

  int looks_;
  colls::completion* done_ = nullptr;
};

inline long sleeps_of_this_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

/// Sleeps of a driver that finds nothing at 3000 looks.
template <class Driver>
long sleeps_in_a_long_wait(Driver& driver) {
  long_wait device(3000);
  const long before = sleeps_of_this_thread();
  colls::sync_wait(driver, device);
  return sleeps_of_this_thread() - before;
}
