// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// completion: the interface of operations, which all awaitable types have, and the queue that runs
// the handlers of completed operations.

#include <atomic>
#include <concepts>
#include <cstddef>

namespace colls {

class run_queue;

/// The handler that runs when an operation has completed. It is one function pointer. Only the run
/// queue of its thread runs it, so it never runs nested in the code that completed the operation.
/// The destructor takes it off the queue.
class completion {
 public:
  using function = void (*)(completion&) noexcept;

  completion() = default;
  explicit completion(function handler, run_queue* queue = nullptr)
      : handler_(handler), queue_(queue) {}
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;
  ~completion() { withdraw(); }

  /// Sets the handler. The completion uses the queue of `parent`, the completion of the operation
  /// that waits for this one.
  void bind(function handler, const completion& parent) {
    handler_ = handler;
    queue_ = parent.queue_;
  }

  /// Puts the completion on its queue. An operation calls this function when it has completed.
  inline void post() noexcept;

  /// Runs the handler at once. Only code that the run queue itself has called may use this
  /// function, such as an operation that consists of other operations.
  void run() noexcept { handler_(*this); }

  bool posted() const { return next_ != nullptr; }
  run_queue* queue() const { return queue_; }
  /// Takes the completion off the queue, so that the handler does not run.
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

/// An operation that completes after the completions that are already queued have run.
struct yield {
  bool start(completion& done) {
    done.post();
    return false;
  }
  void result() const {}
};

/// A condition that no event announces, such as memory that a device writes. The queue that watches
/// the condition polls it in each run. While a queue watches a condition, its driver (the event
/// loop of a wait) does not sleep, except for short naps if ranks outnumber cores.
class polled_condition {
 public:
  polled_condition() = default;
  polled_condition(const polled_condition&) = delete;
  polled_condition& operator=(const polled_condition&) = delete;

 protected:
  inline ~polled_condition();

 private:
  friend class run_queue;

  /// Returns whether the condition holds. If it holds, this function must have posted the waiting
  /// completion, and the queue stops watching the condition.
  virtual bool poll() noexcept = 0;

  run_queue* queue_ = nullptr;
  polled_condition* next_ = nullptr;
  polled_condition* prev_ = nullptr;
};

namespace detail {

/// Returns an address that identifies the calling thread among the threads that run now.
inline const void* this_thread() {
  static thread_local const char identity = 0;
  return &identity;
}

}  // namespace detail

/// The queue of the posted completions of one thread, which it runs first in, first out. The queue
/// must outlive the completions.
class run_queue {
 public:
  /// A scope in which this thread counts as the thread that runs the queue in a blocking wait.
  /// Scopes may nest.
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

  /// The executor that runs the queue, or null if there is none. <colls/asio.hpp> stores a `const
  /// boost::asio::any_io_executor*` here.
  const void* executor = nullptr;

  void push(completion& done) noexcept {
    if (done.next_ == nullptr) done.link_before(head_);
  }

  /// Runs at most `limit` posted completions, including completions that are posted meanwhile. The
  /// limit keeps two operations that post each other again and again from starving the sockets of
  /// the driver. Returns whether any completion ran.
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
  // The functions `poll` only post completions, so the list changes only in this loop.
  void poll_conditions() noexcept {
    for (polled_condition* condition = first_condition_; condition != nullptr;) {
      polled_condition* const following = condition->next_;
      if (condition->poll()) unwatch(*condition);
      condition = following;
    }
  }

  completion head_;
  polled_condition* first_condition_ = nullptr;
  std::atomic<const void*> runner_ = nullptr;  // the thread that runs the queue in a blocking wait
};

inline polled_condition::~polled_condition() {
  if (queue_ != nullptr) queue_->unwatch(*this);
}

inline void completion::post() noexcept { queue_->push(*this); }

/// An operation, which is a type that can be awaited. `start(done)` begins the operation and
/// returns true if it has completed already; the operation then never posts `done`. Otherwise the
/// operation posts `done` when it completes. Then `result()` returns the value or throws. An
/// operation may be started only once and must not be moved after that. The destructor of an
/// unfinished operation withdraws the operation, which touches nothing after that.
template <class Operation>
concept startable = requires(Operation& operation, completion& done) {
  { operation.start(done) } -> std::same_as<bool>;
  operation.result();
};

/// A description of an operation. The operation is constructed from its request where it is
/// awaited, so that it need not be moved. Operations contain list nodes, and constructing and
/// moving an operation costs more than sending a short message.
template <class Request>
concept request = requires(const Request& description) {
  requires startable<typename Request::operation>;
  static_cast<typename Request::operation>(description);
};

}  // namespace colls
