// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A minimal driver: a run queue, and an operation that ends when the queue runs next.

#include <colls/coroutine/completion.hpp>

#include <cstdlib>
#include <system_error>

class stepper {
 public:
  class turn {
   public:
    bool start(colls::completion& done) {
      done.post();
      return false;
    }
    std::error_code result() const { return {}; }
  };

  turn next() { return {}; }

  colls::run_queue& queue() { return queue_; }
  bool poll() { return queue_.run(); }
  // Nothing but the queue can end an operation of this driver.
  void idle(unsigned) { std::abort(); }
  void enter() { ++entered_; }
  void leave() { --entered_; }
  int entered() const { return entered_; }

 private:
  colls::run_queue queue_;
  int entered_ = 0;
};
