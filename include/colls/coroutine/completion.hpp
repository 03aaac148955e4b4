// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// completion: the interface that all awaitable operations have, and the queue that runs the
// handlers of completed operations.

#include <colls/base/intrusive_list.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace colls {

class run_queue;

/// The notification that an operation has completed. `post` puts the completion on the run queue of
/// its thread. The queue then runs the handler of the completion, which is one function pointer.
/// The handler therefore never runs inside the code that calls `post`. The destructor takes the
/// completion off the queue.
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

  /// Runs the handler immediately, without the queue. May be called only while the queue runs the
  /// handler of another completion. An operation that consists of other operations calls this
  /// function when the last of them has completed.
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

/// An operation that puts its completion at the end of the queue. The awaiting coroutine resumes
/// after the queue has run all completions that were posted earlier.
struct yield {
  bool start(completion& done) {
    done.post();
    return false;
  }
  void result() const {}
};

/// A condition that a run queue has to poll because no event reports it. For example, the condition
/// may be that a device has written a certain value to memory. Each time a queue runs completions,
/// it first polls the conditions that it watches. While a queue watches a condition, the driver
/// (the event loop that runs the queue) does not sleep. If there are more ranks than cores, the
/// driver may nevertheless sleep for `max_poll_sleep` between two polls.
class polled_condition {
 public:
  polled_condition() = default;
  polled_condition(const polled_condition&) = delete;
  polled_condition& operator=(const polled_condition&) = delete;

 protected:
  inline ~polled_condition();

 private:
  friend class run_queue;

  /// Returns whether the condition holds. If it holds, also posts the completion that waits for it.
  /// After this function has returned true, the queue no longer watches the condition.
  virtual bool poll() noexcept = 0;

  run_queue* queue_ = nullptr;
  list_links<polled_condition> links_;
};

namespace detail {

/// Returns an address that identifies the calling thread. Threads that exist at the same time have
/// different addresses.
inline const void* this_thread() {
  static thread_local const char identity = 0;
  return &identity;
}

}  // namespace detail

/// A completion that any thread may post. The thread of the queue creates and destroys it. The
/// queue takes it over in `run`, and wakes its driver for that if the driver has set `waker`.
class remote_completion : public completion {
 public:
  inline remote_completion(function handler, run_queue& queue) noexcept;
  /// No thread may call `post_remotely` any more.
  inline ~remote_completion();

  /// Posts the completion. May be called only once, but on any thread.
  inline void post_remotely() noexcept;

 private:
  friend class run_queue;

  remote_completion* next_remote_ = nullptr;
};

/// The queue of the posted completions of one thread. The queue runs them first in, first out, and
/// must outlive them.
class run_queue {
 public:
  /// Wakes the sleeping driver of a queue for a completion that another thread has posted.
  class remote_waker {
   public:
    /// Called on the thread of the queue before another thread can call `wake`.
    virtual void prepare() noexcept {}
    /// Makes the driver call `run` soon. Any thread may call this function.
    virtual void wake() noexcept = 0;

   protected:
    ~remote_waker() = default;
  };

  /// A scope guard for a blocking wait. While the guard exists, the queue records that the thread
  /// that created the guard runs the queue. Guards may be nested.
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
  /// Returns whether a thread other than the calling thread runs the queue in a blocking wait. May
  /// return false for a wait that begins during this call. If the queue is checked, returns whether
  /// no thread or a thread other than the calling thread has claimed the queue.
  bool is_run_by_other_thread() const {
    const void* const runner = runner_.load(std::memory_order_relaxed);
    return runner != nullptr && runner != detail::this_thread();
  }

  /// Returns whether only the thread that has claimed the queue may use it. This is the case if the
  /// environment had COLLS_CHECK_THREADS=1 when the queue was constructed.
  bool is_checked() const { return is_checked_; }
  /// Called if `is_run_by_other_thread` returns true. Returns true if the calling thread may use
  /// the queue nevertheless, because the queue is checked and no other thread has claimed it. This
  /// thread has claimed it then.
  bool try_claim() noexcept;
  /// Makes the queue unchecked. Called at its construction if several threads take turns at it.
  void accept_all_threads();
  /// The numbers of two threads, as std::thread::id is printed.
  struct thread_pair {
    std::uintptr_t caller;
    std::uintptr_t claimer;
  };
  /// Returns the numbers of the calling thread and of the thread that has claimed the queue.
  thread_pair caller_and_claimer() const;

  run_queue();
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

  /// Wakes the driver of the queue. Null if the driver never sleeps for longer than a millisecond.
  remote_waker* waker = nullptr;

  void push(completion& done) noexcept {
    if (done.next_ == nullptr) done.link_before(head_);
  }

  /// Runs posted completions, but no more than `limit`. Completions that handlers post during this
  /// call also run. Without the limit, two operations that post each other again and again would
  /// keep the driver from polling its sockets. Returns whether any completion ran.
  bool run(std::size_t limit = 256) noexcept {
    if (watched_ != 0) poll_conditions();
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
    conditions_.push_front(condition);
    ++watched_;
  }
  void unwatch(polled_condition& condition) noexcept {
    conditions_.remove(condition);
    condition.queue_ = nullptr;
    --watched_;
  }
  bool is_watching() const { return !conditions_.empty(); }

 private:
  friend class remote_completion;

  void add(remote_completion&) noexcept {
    ++watched_;
    if (waker != nullptr) waker->prepare();
  }
  void remove(remote_completion&) noexcept {
    take_remote();  // afterwards only the list of posted completions can contain it
    --watched_;
  }
  void push_remotely(remote_completion& done) noexcept {
    remote_completion* newest = newest_remote_.load(std::memory_order_relaxed);
    do {
      done.next_remote_ = newest;
    } while (!newest_remote_.compare_exchange_weak(newest, &done, std::memory_order_release,
                                                   std::memory_order_relaxed));
    if (waker != nullptr) waker->wake();
  }
  // Takes over the completions that other threads have posted, the oldest first.
  void take_remote() noexcept {
    if (newest_remote_.load(std::memory_order_relaxed) == nullptr) return;
    remote_completion* next = reversed<remote_completion, &remote_completion::next_remote_>(
        newest_remote_.exchange(nullptr, std::memory_order_acquire));
    for (; next != nullptr; next = next->next_remote_) push(*next);
  }

  // The `poll` function of a condition only posts completions and does not change the list of
  // conditions.
  void poll_conditions() noexcept {
    take_remote();
    conditions_.for_each([this](polled_condition& condition) {
      if (condition.poll()) unwatch(condition);
    });
  }

  completion head_;
  intrusive_list<polled_condition, &polled_condition::links_> conditions_;
  std::size_t watched_ = 0;  // the number of conditions and of remote completions
  std::atomic<remote_completion*> newest_remote_ = nullptr;  // a list of those that were posted
  // The thread that runs the queue in a blocking wait. If the queue is checked, the thread that has
  // claimed it, or an address that is no thread's if no thread has.
  std::atomic<const void*> runner_ = nullptr;
  bool is_checked_ = false;
  std::atomic<std::uintptr_t> claimer_ = 0;  // the number of that thread, or 0
};

inline polled_condition::~polled_condition() {
  if (queue_ != nullptr) queue_->unwatch(*this);
}

inline void completion::post() noexcept { queue_->push(*this); }

inline remote_completion::remote_completion(function handler, run_queue& queue) noexcept
    : completion(handler, &queue) {
  queue.add(*this);
}
inline remote_completion::~remote_completion() { queue()->remove(*this); }
inline void remote_completion::post_remotely() noexcept { queue()->push_remotely(*this); }

/// An operation that can be awaited. `start(done)` starts the operation. If the operation completes
/// during this call, `start` returns true and the operation never posts `done`. Otherwise `start`
/// returns false, and the operation posts `done` when it has completed. After completion,
/// `result()` returns the result or throws. An operation may be started only once, and must not be
/// moved after the start. The destructor withdraws an operation that has not completed. A withdrawn
/// operation accesses neither `done` nor any buffer.
template <class Operation>
concept startable = requires(Operation& operation, completion& done) {
  { operation.start(done) } -> std::same_as<bool>;
  operation.result();
};

/// A description of an operation. The code that awaits a request constructs the operation from the
/// request and need not move the operation afterwards. Operations contain list nodes, so
/// constructing and then moving an operation would take longer than sending a short message.
template <class Request>
concept request = requires(const Request& description) {
  requires startable<typename Request::operation>;
  static_cast<typename Request::operation>(description);
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/coroutine/completion.ipp>
#endif
