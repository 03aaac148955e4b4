// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of completion.hpp: the check of the threads that use a run queue.

#include <colls/base/compiler.hpp>
#include <colls/coroutine/completion.hpp>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace colls {

namespace detail {

COLLS_ONCE bool is_switched_on(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) return false;
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (std::strcmp(value, yes) == 0) return true;
  }
  return false;
}

/// Returns the number as which `std::this_thread::get_id()` is printed.
COLLS_ONCE std::uintptr_t this_thread_number() {
  static_assert(sizeof(std::thread::id) == sizeof(std::uintptr_t));
  const std::thread::id id = std::this_thread::get_id();
  std::uintptr_t number = 0;
  std::memcpy(&number, static_cast<const void*>(&id), sizeof number);
  return number;
}

}  // namespace detail

COLLS_ONCE run_queue::run_queue() {
  head_.next_ = head_.prev_ = &head_;
  if (!detail::is_switched_on("COLLS_CHECK_THREADS")) return;
  // No thread has this address as its identity. So each thread takes itself for another thread
  // until the first of them claims the queue.
  runner_.store(this, std::memory_order_relaxed);
  is_checked_ = true;
}

COLLS_ONCE void run_queue::accept_all_threads() {
  runner_.store(nullptr, std::memory_order_relaxed);
  is_checked_ = false;
}

COLLS_ONCE bool run_queue::try_claim() noexcept {
  if (!is_checked_) return false;
  const std::uintptr_t caller = detail::this_thread_number();
  std::uintptr_t claimer = 0;
  if (!claimer_.compare_exchange_strong(claimer, caller) && claimer != caller) return false;
  runner_.store(detail::this_thread(), std::memory_order_relaxed);
  return true;
}

COLLS_ONCE run_queue::thread_pair run_queue::caller_and_claimer() const {
  return {detail::this_thread_number(), claimer_.load()};
}

}  // namespace colls
