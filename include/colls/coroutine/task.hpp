// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// task: the coroutine type task<T>, in which algorithms are written.

#include <colls/base/error.hpp>
#include <colls/coroutine/completion.hpp>
#include <colls/coroutine/frame_cache.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace colls {

template <class T>
class task;

namespace detail {

/// Throws an `error` if `ec`, the result of an operation, is not 0. The overload for results of
/// other types returns the result unchanged.
inline void unwrap(std::error_code ec) {
  if (ec)
    throw error(
        ec.category() == error_category() ? static_cast<errc>(ec.value()) : errc::protocol_error,
        ec.category() == error_category() ? "" : ec.message().c_str());
}
template <class T>
T unwrap(T&& value) {
  return std::forward<T>(value);
}

/// Returns the value of a completed operation, or throws its error.
template <class Operation>
decltype(auto) unwrap_result(Operation& operation) {
  if constexpr (std::is_void_v<decltype(operation.result())>) {
    operation.result();
  } else {
    return unwrap(operation.result());
  }
}

/// A completion whose handler resumes a coroutine. The operations that the coroutine awaits post
/// this completion.
struct resumption : completion {
  std::coroutine_handle<> coroutine;

  void bind_coroutine(std::coroutine_handle<> waiting, const completion& parent) {
    coroutine = waiting;
    bind([](completion& self) noexcept { static_cast<resumption&>(self).coroutine.resume(); },
         parent);
  }
};

struct promise_base : recycled {
  resumption self;             // posted by the operations that this coroutine awaits
  completion* done = nullptr;  // the completion of the parent that awaits this coroutine
  std::exception_ptr exception;

  struct final_awaiter {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      // If the coroutine ends during `task::start`, `done` is still null. In this case the parent
      // needs no completion, because `start` returns true.
      if (completion* const parent = ended.promise().done) parent->post();
    }
    void await_resume() noexcept {}
  };

  template <startable Operation>
  class awaiter {
   public:
    awaiter(Operation& operation, promise_base& promise)
        : operation_(operation), promise_(promise) {}
    awaiter(const awaiter&) = delete;
    // The operation may outlive the coroutine that awaits it. `forget` makes sure that the
    // operation does not post the completion of a destroyed coroutine.
    ~awaiter()
      requires requires(Operation& op, completion& waiter) { op.forget(waiter); }
    {
      operation_.forget(promise_.self);
    }
    ~awaiter() = default;
    bool await_ready() { return operation_.start(promise_.self); }
    void await_suspend(std::coroutine_handle<>) noexcept {}
    decltype(auto) await_resume() { return unwrap_result(operation_); }

   private:
    Operation& operation_;
    promise_base& promise_;
  };

  /// An awaiter that contains the awaited operation and constructs it from a request.
  template <class Operation>
  class own_awaiter {
   public:
    template <class Request>
    [[gnu::always_inline]] own_awaiter(const Request& description, promise_base& promise)
        : operation_(description), promise_(promise) {}
    own_awaiter(const own_awaiter&) = delete;
    bool await_ready() { return operation_.start(promise_.self); }
    void await_suspend(std::coroutine_handle<>) noexcept {}
    decltype(auto) await_resume() { return unwrap_result(operation_); }

   private:
    Operation operation_;
    promise_base& promise_;
  };

  std::suspend_always initial_suspend() noexcept { return {}; }
  final_awaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { exception = std::current_exception(); }

  template <class Operation>
    requires startable<std::remove_reference_t<Operation>>
  auto await_transform(Operation&& operation) {
    return awaiter<std::remove_reference_t<Operation>>(operation, *this);
  }
  template <request Request>
  [[gnu::always_inline]] auto await_transform(const Request& description) {
    return own_awaiter<typename Request::operation>(description, *this);
  }
};

template <class T>
struct promise : promise_base {
  std::optional<T> value;
  task<T> get_return_object() noexcept;
  template <class Value>
  void return_value(Value&& result) {
    value.emplace(std::forward<Value>(result));
  }
};

template <>
struct promise<void> : promise_base {
  task<void> get_return_object() noexcept;
  void return_void() noexcept {}
};

}  // namespace detail

/// A lazy coroutine. A task starts when it is awaited or passed to `sync_wait`. The code that
/// starts the task runs it up to its first suspension. After each suspension, the run queue resumes
/// the task. Therefore the stack does not grow in a loop of a million awaits, not even at -O0 or
/// under sanitizers. Destroying an unfinished task withdraws the operation that the task awaits.
template <class T = void>
class [[nodiscard("a task does nothing until it is awaited: co_await it")]] task {
 public:
  using promise_type = detail::promise<T>;
  using value_type = T;

  task() = default;
  task(task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  task& operator=(task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~task() {
    if (handle_) handle_.destroy();
  }

  explicit operator bool() const { return static_cast<bool>(handle_); }

  bool start(completion& done) {
    promise_type& promise = handle_.promise();
    promise.self.bind_coroutine(handle_, done);
    handle_.resume();
    if (handle_.done()) return true;
    promise.done = &done;
    return false;
  }

  /// Returns the exception that `result` will throw, or null if there is none.
  const std::exception_ptr& thrown() const { return handle_.promise().exception; }

  T result() {
    promise_type& promise = handle_.promise();
    if (promise.exception) std::rethrow_exception(std::exchange(promise.exception, nullptr));
    if constexpr (!std::is_void_v<T>) return std::move(*promise.value);
  }

 private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

namespace detail {

template <class T>
task<T> promise<T>::get_return_object() noexcept {
  return task<T>(std::coroutine_handle<promise>::from_promise(*this));
}
inline task<void> promise<void>::get_return_object() noexcept {
  return task<void>(std::coroutine_handle<promise>::from_promise(*this));
}

}  // namespace detail

}  // namespace colls
