// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// completion: the interface that all awaitable operations have, and the queue that runs the
// handlers of completed operations.

#include <atomic>
#include <concepts>
#include <cstddef>

namespace colls {

class run_queue;

/// The handler that runs when an operation has completed. The handler is one function pointer.
/// `post` only puts the handler on the run queue of the thread, so the handler never runs nested in
/// the code that calls `post`. The destructor takes the completion off the queue.
class completion {
 public:
  using function = void (*)(completion&) noexcept;

  completion() = default;
  explicit completion(function handler, run_queue* queue = nullptr)
      : handler_(handler), queue_(queue) {}
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;
  ~completion() { withdraw(); }

  /// Sets the handler, and sets the queue to the queue of `parent`. Usually, `parent` is the
  /// completion of the operation or coroutine that contains this completion.
  void bind(function handler, const completion& parent) {
    handler_ = handler;
    queue_ = parent.queue_;
  }

  /// Puts the completion on its queue. An operation calls this function when it has completed.
  inline void post() noexcept;

  /// Runs the handler at once. May be called only from a handler that the run queue runs. An
  /// operation that consists of other operations calls this function when the last of them has
  /// completed.
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

/// A condition that no event announces, such as the value of memory that a device writes. A run
/// queue that watches a condition polls the condition whenever the queue runs. While a queue
/// watches any condition, the queue's driver (the event loop that runs the queue) does not sleep,
/// except for short naps if ranks outnumber cores.
class polled_condition {
 public:
  polled_condition() = default;
  polled_condition(const polled_condition&) = delete;
  polled_condition& operator=(const polled_condition&) = delete;

 protected:
  inline ~polled_condition();

 private:
  friend class run_queue;

  /// Posts the waiting completion and returns true if the condition holds. Otherwise returns false.
  /// The queue stops watching the condition when this function has returned true.
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

/// The queue of the posted completions of one thread. The queue runs them first in, first out, and
/// must outlive them.
class run_queue {
 public:
  /// A scope that marks this thread as the one that runs the queue in a blocking wait. Scopes may
  /// nest.
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

  /// Points to the executor that runs the queue, or is null if there is none. <colls/asio.hpp>
  /// stores a `const boost::asio::any_io_executor*` here.
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
  // `poll` only posts completions and does not change the list of conditions. Therefore `following`
  // stays valid during the call.
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

/// An operation that can be awaited. `start(done)` begins the operation. It returns true if the
/// operation has already completed, and then `done` is never posted. Otherwise it returns false,
/// and the operation posts `done` when it completes. After completion, `result()` returns the value
/// or throws. An operation may be started only once and must not be moved after that. The
/// destructor of an unfinished operation withdraws the operation, which then accesses neither
/// `done` nor any buffer.
template <class Operation>
concept startable = requires(Operation& operation, completion& done) {
  { operation.start(done) } -> std::same_as<bool>;
  operation.result();
};

/// A description from which an operation is constructed. The construction takes place where the
/// operation is awaited, so that the operation need not be moved. Operations contain list nodes, so
/// constructing and then moving one would cost more than sending a short message.
template <class Request>
concept request = requires(const Request& description) {
  requires startable<typename Request::operation>;
  static_cast<typename Request::operation>(description);
};

}  // namespace colls
