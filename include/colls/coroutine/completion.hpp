// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Operations: what everything that can be awaited models, and the queue that resumes who waited.

#include <atomic>
#include <concepts>
#include <cstddef>

namespace colls {

class run_queue;

/// Who waits for an operation: one function pointer, reached only through the run queue of its
/// thread, never nested in whoever completed it. Leaves the queue by itself when it is destroyed.
class completion {
 public:
  using function = void (*)(completion&) noexcept;

  completion() = default;
  explicit completion(function call, run_queue* queue = nullptr) : run_(call), queue_(queue) {}
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;
  ~completion() { withdraw(); }

  /// Says what to call, on the queue of `parent`: children inherit it from who awaits them.
  void become(function call, const completion& parent) {
    run_ = call;
    queue_ = parent.queue_;
  }

  /// The operation has ended: run me when the queue gets to me.
  inline void post() noexcept;

  /// Runs at once. Only for code that the run queue itself called (an operation made of others).
  void run() noexcept { run_(*this); }

  bool posted() const { return next_ != nullptr; }
  run_queue* queue() const { return queue_; }
  /// Takes it off the queue: it will not be called.
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

  function run_ = nullptr;
  run_queue* queue_ = nullptr;
  completion* next_ = nullptr;
  completion* prev_ = nullptr;
};

/// Goes on when the run queue gets to it.
struct others_first {
  bool start(completion& done) {
    done.post();
    return false;
  }
  void result() const {}
};

/// A condition that nobody posts, such as memory that a device writes: it is looked at whenever the
/// queue that watches it is run, and drivers do not sleep meanwhile; where ranks outnumber cores
/// they take short naps.
class watched {
 public:
  watched() = default;
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;

 protected:
  inline ~watched();

 private:
  friend class run_queue;

  /// True: it has come about, who waits was posted, and it is watched no more.
  virtual bool look() noexcept = 0;

  run_queue* by_ = nullptr;
  watched* next_ = nullptr;
  watched* prev_ = nullptr;
};

namespace detail {

/// What a thread of this process has in common with no other one that runs.
inline const void* this_thread() {
  static thread_local const char mine = 0;
  return &mine;
}

}  // namespace detail

/// The completions of one thread, in the order they were posted. It must outlive them.
class run_queue {
 public:
  /// This thread turns the queue in a blocking wait, perhaps within another one.
  class visit {
   public:
    explicit visit(run_queue& of) : of_(of), before_(of.inside_.load(std::memory_order_relaxed)) {
      of_.inside_.store(detail::this_thread(), std::memory_order_relaxed);
    }
    visit(const visit&) = delete;
    ~visit() { of_.inside_.store(before_, std::memory_order_relaxed); }

   private:
    run_queue& of_;
    const void* before_;
  };
  /// Whether another thread does; perhaps false yet where both begin in the same moment.
  bool is_visited_elsewhere() const {
    const void* const by = inside_.load(std::memory_order_relaxed);
    return by != nullptr && by != detail::this_thread();
  }

  run_queue() { head_.next_ = head_.prev_ = &head_; }
  run_queue(const run_queue&) = delete;
  run_queue& operator=(const run_queue&) = delete;
  ~run_queue() {
    while (!empty()) head_.next_->unlink();
    head_.next_ = nullptr;
  }

  bool empty() const { return head_.next_ == &head_; }

  /// The executor that turns it, a `const boost::asio::any_io_executor*`, for <colls/asio.hpp>;
  /// null: none.
  const void* executor = nullptr;

  void push(completion& done) noexcept {
    if (done.next_ == nullptr) done.link_before(head_);
  }

  /// Runs what is posted, also what that posts, at most `limit` of them, so that two operations
  /// that feed each other cannot keep the driver from its sockets. True: something ran.
  bool run(std::size_t limit = 256) noexcept {
    if (first_watched_ != nullptr) look();
    bool ran = false;
    for (; limit > 0 && !empty(); --limit, ran = true) {
      completion& first = *head_.next_;
      first.unlink();
      first.run();
    }
    return ran;
  }

  void watch(watched& what) noexcept {
    what.by_ = this;
    what.prev_ = nullptr;
    what.next_ = first_watched_;
    if (first_watched_ != nullptr) first_watched_->prev_ = &what;
    first_watched_ = &what;
  }
  void unwatch(watched& what) noexcept {
    (what.prev_ != nullptr ? what.prev_->next_ : first_watched_) = what.next_;
    if (what.next_ != nullptr) what.next_->prev_ = what.prev_;
    what.by_ = nullptr;
  }
  bool is_watching() const { return first_watched_ != nullptr; }

 private:
  // Looking only posts, so the list changes nowhere but here.
  void look() noexcept {
    for (watched* at = first_watched_; at != nullptr;) {
      watched* const following = at->next_;
      if (at->look()) unwatch(*at);
      at = following;
    }
  }

  completion head_;
  watched* first_watched_ = nullptr;
  std::atomic<const void*> inside_ = nullptr;  // the thread that visits
};

inline watched::~watched() {
  if (by_ != nullptr) by_->unwatch(*this);
}

inline void completion::post() noexcept { queue_->push(*this); }

/// `start(done)` begins; true: it has finished and `done` will not be called; false: `done` is
/// posted when it has. After that `result()` gives the value or throws. Started once, not moved
/// after that; destroying it unfinished withdraws it, and it touches nothing afterwards.
template <class Operation>
concept startable = requires(Operation& operation, completion& done) {
  { operation.start(done) } -> std::same_as<bool>;
  operation.result();
};

/// What an operation is made from, where it is awaited: operations hold the nodes of lists, and to
/// make one and move it costs more than to send a short message.
template <class Request>
concept request = requires(const Request& wanted) {
  requires startable<typename Request::operation>;
  static_cast<typename Request::operation>(wanted);
};

}  // namespace colls
