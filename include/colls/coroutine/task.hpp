// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// task<T>: the coroutine that algorithms are written as.

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

/// Throws where an operation's result is a bad error_code; passes values through.
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

/// What an operation that has ended gives.
template <class Operation>
decltype(auto) unwrap_result(Operation& ended) {
  if constexpr (std::is_void_v<decltype(ended.result())>) {
    ended.result();
  } else {
    return unwrap(ended.result());
  }
}

/// What the children of a coroutine post: it resumes the coroutine.
struct resumption : completion {
  std::coroutine_handle<> coroutine;

  void become_resumption(std::coroutine_handle<> waiting, const completion& parent) {
    coroutine = waiting;
    become([](completion& self) noexcept { static_cast<resumption&>(self).coroutine.resume(); },
           parent);
  }
};

/// `self` is the completion that children of this coroutine post; `done` is its own parent's.
struct promise_base : recycled {
  resumption self;
  completion* done = nullptr;
  std::exception_ptr failed;

  struct final_awaiter {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      // Null while start() is still on the stack: it sees done() and returns true.
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
    // An operation that lives elsewhere must not post to a coroutine that was destroyed.
    ~awaiter()
      requires requires(Operation& waited, completion& waiter) { waited.forget(waiter); }
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

  /// An operation that is made by the await itself.
  template <class Operation>
  class own_awaiter {
   public:
    template <class Request>
    [[gnu::always_inline]] own_awaiter(const Request& wanted, promise_base& promise)
        : operation_(wanted), promise_(promise) {}
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
  void unhandled_exception() noexcept { failed = std::current_exception(); }

  template <class Operation>
    requires startable<std::remove_reference_t<Operation>>
  auto await_transform(Operation&& operation) {
    return awaiter<std::remove_reference_t<Operation>>(operation, *this);
  }
  template <request Request>
  [[gnu::always_inline]] auto await_transform(const Request& wanted) {
    return own_awaiter<typename Request::operation>(wanted, *this);
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

/// A lazy coroutine: it runs when it is awaited (or given to `sync_wait` or `run`), inside the
/// await, up to its first suspension. Completions reach it through the run queue, so a loop of a
/// million awaits keeps the stack constant, at -O0 and under sanitizers too. Destroying it
/// unfinished withdraws what it waits for.
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
    promise.self.become_resumption(handle_, done);
    handle_.resume();
    if (handle_.done()) return true;
    promise.done = &done;
    return false;
  }

  /// Null, or what `result` is going to throw.
  const std::exception_ptr& thrown() const { return handle_.promise().failed; }

  T result() {
    promise_type& promise = handle_.promise();
    if (promise.failed) std::rethrow_exception(std::exchange(promise.failed, nullptr));
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
