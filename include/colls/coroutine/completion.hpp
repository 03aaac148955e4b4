// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Operations: the concept that every awaitable models, and the queue that runs their completions.

#include <atomic>
#include <concepts>
#include <cstddef>

namespace colls {

class run_queue;

/// The handler of a waiting operation: one function pointer. It runs only from the run queue of its
/// thread, never nested in the code that completed the operation. Its destructor takes it off the
/// queue.
class completion {
 public:
  using function = void (*)(completion&) noexcept;

  completion() = default;
  explicit completion(function handler, run_queue* queue = nullptr)
      : handler_(handler), queue_(queue) {}
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;
  ~completion() { withdraw(); }

  /// Sets the handler. The queue is that of `parent`: a child operation inherits it.
  void bind(function handler, const completion& parent) {
    handler_ = handler;
    queue_ = parent.queue_;
  }

  /// Puts the completion on its queue: the operation has ended.
  inline void post() noexcept;

  /// Runs the handler at once. Only code that the run queue itself called may do this, such as an
  /// operation made of other operations.
  void run() noexcept { handler_(*this); }

  bool posted() const { return next_ != nullptr; }
  run_queue* queue() const { return queue_; }
  /// Takes the completion off the queue; the handler will not run.
  void withdraw() noexcept {
    if (posted()) unlink();
  }

 private:
  friend class run_queue;

  void link_before(completion& other) noexcept {
    next_ = &other;
    prev_ = other.prev_;
    prev_->next_ = this;
    other.prev_ = this;
  }
  void unlink() noexcept {
    prev_->next_ = next_;
    next_->prev_ = prev_;
    next_ = prev_ = nullptr;
  }

  function handler_ = nullptr;
  run_queue* queue_ = nullptr;
  completion* next_ = nullptr;
  completion* prev_ = nullptr;
};

/// An operation that ends after the completions that are already queued have run.
struct yield {
  bool start(completion& done) {
    done.post();
    return false;
  }
  void result() const {}
};

/// A condition that no event announces, such as memory that a device writes. The queue that watches
/// it polls it on each run. Meanwhile drivers do not sleep; where ranks outnumber cores they take
/// short naps.
class polled_condition {
 public:
  polled_condition() = default;
  polled_condition(const polled_condition&) = delete;
  polled_condition& operator=(const polled_condition&) = delete;

 protected:
  inline ~polled_condition();

 private:
  friend class run_queue;

  /// Returns true once the condition holds. The callee has then posted the waiting completion, and
  /// the queue stops watching.
  virtual bool poll() noexcept = 0;

  run_queue* queue_ = nullptr;
  polled_condition* next_ = nullptr;
  polled_condition* prev_ = nullptr;
};

namespace detail {

/// An address that identifies the calling thread among the threads that run now.
inline const void* this_thread() {
  static thread_local const char identity = 0;
  return &identity;
}

}  // namespace detail

/// The posted completions of one thread, first in first out. The queue must outlive them.
class run_queue {
 public:
  /// Marks this thread as the one that runs the queue in a blocking wait. Scopes may nest.
  class run_scope {
   public:
    explicit run_scope(run_queue& queue)
        : queue_(queue), previous_(queue.runner_.load(std::memory_order_relaxed)) {
      queue_.runner_.store(detail::this_thread(), std::memory_order_relaxed);
    }
    run_scope(const run_scope&) = delete;
    ~run_scope() { queue_.runner_.store(previous_, std::memory_order_relaxed); }

   private:
    run_queue& queue_;
    const void* previous_;
  };
  /// Returns whether another thread runs the queue in a blocking wait. May miss a wait that begins
  /// at the same moment.
  bool is_run_by_other_thread() const {
    const void* const runner = runner_.load(std::memory_order_relaxed);
    return runner != nullptr && runner != detail::this_thread();
  }

  run_queue() { head_.next_ = head_.prev_ = &head_; }
  run_queue(const run_queue&) = delete;
  run_queue& operator=(const run_queue&) = delete;
  ~run_queue() {
    while (!empty()) head_.next_->unlink();
    head_.next_ = nullptr;
  }

  bool empty() const { return head_.next_ == &head_; }

  /// The executor that runs the queue, a `const boost::asio::any_io_executor*`, for
  /// <colls/asio.hpp>; null if there is none.
  const void* executor = nullptr;

  void push(completion& done) noexcept {
    if (done.next_ == nullptr) done.link_before(head_);
  }

  /// Runs posted completions, including those that they post, at most `limit` of them. The limit
  /// keeps two operations that feed each other from starving the driver's sockets. Returns whether
  /// any ran.
  bool run(std::size_t limit = 256) noexcept {
    if (first_condition_ != nullptr) poll_conditions();
    bool ran = false;
    for (; limit > 0 && !empty(); --limit, ran = true) {
      completion& first = *head_.next_;
      first.unlink();
      first.run();
    }
    return ran;
  }

  void watch(polled_condition& condition) noexcept {
    condition.queue_ = this;
    condition.prev_ = nullptr;
    condition.next_ = first_condition_;
    if (first_condition_ != nullptr) first_condition_->prev_ = &condition;
    first_condition_ = &condition;
  }
  void unwatch(polled_condition& condition) noexcept {
    (condition.prev_ != nullptr ? condition.prev_->next_ : first_condition_) = condition.next_;
    if (condition.next_ != nullptr) condition.next_->prev_ = condition.prev_;
    condition.queue_ = nullptr;
  }
  bool is_watching() const { return first_condition_ != nullptr; }

 private:
  // A poll only posts, so the list changes only in this loop.
  void poll_conditions() noexcept {
    for (polled_condition* condition = first_condition_; condition != nullptr;) {
      polled_condition* const following = condition->next_;
      if (condition->poll()) unwatch(*condition);
      condition = following;
    }
  }

  completion head_;
  polled_condition* first_condition_ = nullptr;
  std::atomic<const void*> runner_ = nullptr;  // the thread in a blocking wait
};

inline polled_condition::~polled_condition() {
  if (queue_ != nullptr) queue_->unwatch(*this);
}

inline void completion::post() noexcept { queue_->push(*this); }

/// A type that can be awaited. `start(done)` begins the operation. It returns true if the operation
/// has already ended; `done` is then never called. Otherwise `done` is posted when the operation
/// ends. Afterwards `result()` returns the value or throws. An operation is started once and not
/// moved afterwards. Destroying an unfinished operation withdraws it; it touches nothing
/// afterwards.
template <class Operation>
concept startable = requires(Operation& operation, completion& done) {
  { operation.start(done) } -> std::same_as<bool>;
  operation.result();
};

/// A description from which an operation is constructed where it is awaited. Operations hold list
/// nodes, and constructing and moving one costs more than sending a short message.
template <class Request>
concept request = requires(const Request& description) {
  requires startable<typename Request::operation>;
  static_cast<typename Request::operation>(description);
};

}  // namespace colls
