// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// call: a started operation, and the handle that the user holds.
//
// A call is refused if its arguments are invalid. A refused call sends nothing. A call is deferred
// while it waits for earlier calls to end. Revoking a communicator makes all operations on that
// communicator fail on all of its ranks.

#include <colls/coroutine/task.hpp>
#include <colls/matching/tag_matcher.hpp>

#include <cstddef>
#include <cstring>

namespace colls {

namespace detail {

class call_base;

/// The interface through which a call uses the communicator that started it.
class call_owner {
 public:
  virtual void call_ended(call_base& call) noexcept = 0;
  virtual void progress() = 0;
  virtual void wake_driver() = 0;

 protected:
  ~call_owner() = default;
};

/// A started operation. A call contains the operation's `operation_record` (its identity, deadline
/// and progress) and refers to the one coroutine that awaits the operation. Derived classes contain
/// the body, usually a coroutine, which does the work of the operation. The user's `operation`
/// handle owns the call. Until the call has ended, the call refers to its communicator. The call of
/// a join or a close has no communicator.
class call_base : public operation_record, public recycled {
 public:
  enum class state : std::uint8_t { deferred, running, ended };
  static constexpr failure none{};

  /// Makes a call whose record is a copy of `initial`.
  [[gnu::always_inline]] call_base(call_owner* owner, tag_matcher* matcher, run_queue& queue,
                                   const operation_record& initial)
      : operation_record(initial),
        owner_(owner),
        matcher_(matcher),
        body_completion_(*this, queue) {}
  call_base(call_owner* owner, tag_matcher* matcher, run_queue& queue)
      : call_base(owner, matcher, queue, operation_record()) {
    started = never;
  }
  call_base(const call_base&) = delete;
  call_base& operator=(const call_base&) = delete;
  virtual ~call_base() = default;

  bool is_done() const { return state_ == state::ended; }
  void progress() {
    if (owner_ != nullptr) owner_->progress();
  }

  /// Returns true if the call has ended. Otherwise returns false, and `waiter` is posted when the
  /// call ends.
  bool wait(completion& waiter) {
    if (is_done()) return true;
    check_single_waiter();
    waiter_ = &waiter;
    return false;
  }
  /// Makes the call resume `coroutine`, which belongs to another library, when the call ends.
  void wait(std::coroutine_handle<> coroutine) {
    check_single_waiter();
    foreign_waiter_.bind_coroutine(coroutine, body_completion_);
    waiter_ = &foreign_waiter_;
  }
  /// Makes sure that `waiter`, which is being destroyed, is not posted when the call ends.
  void forget(const completion& waiter) {
    if (waiter_ == &waiter) waiter_ = nullptr;
  }
  void forget_coroutine() {
    forget(foreign_waiter_);
    foreign_waiter_.withdraw();
  }

  /// Returns whether the call has ended. If the call's coroutine is done but the run queue has not
  /// yet run the completion of the coroutine, this function first ends the call.
  bool try_complete() noexcept {
    if (body_completion_.posted() && is_body_done()) notify(complete_body());
    return is_done();
  }

  /// Ends the call with the failure `reason`, unless the call has already ended. Destroys the
  /// call's coroutine, which withdraws the operations that the coroutine awaits.
  void cancel(const failure& reason) noexcept {
    if (try_complete()) return;
    destroy_body();
    record_failure(reason);
    notify(finish());
  }

  /// Marks a call that was never started as ended, with the failure `reason`. Awaiting the call
  /// then throws that failure as an `error`.
  void refuse(const failure& reason) {
    record_failure(reason);
    reason_->sequence = 0;
    state_ = state::ended;
    owner_ = nullptr;
  }

  const failure& reason() const { return reason_ ? *reason_ : none; }
  tag_matcher* matcher() const { return matcher_; }
  /// Returns the queue to which the call's completion is posted.
  run_queue& queue() const { return *body_completion_.queue(); }
  /// Returns whether the call's coroutine was ever started.
  bool has_run() const { return has_run_; }

  /// Runs the call's coroutine up to its first suspension. `Call` is the most derived type of this
  /// call that the caller knows, so that the compiler can call `start_body` directly.
  template <class Call = call_base>
  void run() noexcept {
    state_ = state::running;
    has_run_ = true;
    if (static_cast<Call&>(*this).start_body(body_completion_)) notify(complete_body());
  }

  /// Deletes the call. Called when the user destroys the handle. First cancels the call if it has
  /// not ended. Cancelling revokes the communicator, unless the call is a point-to-point operation
  /// that no peer has matched.
  void abandon() noexcept {
    waiter_ = nullptr;
    if (!is_done() && !try_complete()) cancel_dropped();
    delete this;
  }

  /// A function that returns true if no peer has matched this point-to-point operation. The
  /// operation can then be withdrawn without effect on any peer. The pointer is null for other
  /// operations, and until the transport operation has been created.
  bool (*can_withdraw)(const call_base& self) = nullptr;
  void* transfer = nullptr;  // the transport operation, which `can_withdraw` examines

  std::size_t working_bytes = 0;  // the size of the working memory that this call needs

  virtual bool start_body(completion& done) = 0;

 protected:
  /// Moves the result of the body into this call. Rethrows the exception of a body that has thrown.
  virtual void take_result() = 0;
  /// Returns whether the work of the body is done, so that only `take_result` is left to call.
  /// Called only while the body's completion is posted.
  virtual bool is_body_done() const { return true; }
  virtual void destroy_body() noexcept = 0;

 private:
  struct body_completion : completion {
    body_completion(call_base& owning_call, run_queue& queue)
        : completion(
              [](completion& self) noexcept {
                // The run queue has called this function, so the waiter may run at once instead of
                // being posted. The waiter may delete the call.
                call_base& ended_call = static_cast<body_completion&>(self).owner;
                if (completion* const waiter = ended_call.complete_body()) waiter->run();
              },
              &queue),
          owner(owning_call) {}
    call_base& owner;
  };

  // Posts `waiter`, if it is not null. Does not run `waiter` at once, because the caller is not the
  // run queue.
  static void notify(completion* waiter) noexcept {
    if (waiter != nullptr) waiter->post();
  }

  // Takes the body's result and ends the call. Returns the waiter, which the caller of this
  // function has to run or post, or null if there is none.
  completion* complete_body() noexcept {
    if (is_done()) return nullptr;  // `try_complete` has already completed the call
    try {
      take_result();
    } catch (...) {
      fail(failure_of(std::current_exception()));
      destroy_body();
    }
    return finish();
  }

  // Cancels this call because the user has dropped its handle. Revokes the communicator unless the
  // operation could be withdrawn. Not inlined because a `failure` takes half a kilobyte of stack.
  [[gnu::noinline, gnu::cold]] void cancel_dropped() noexcept {
    failure reason(errc::cancelled, "the operation was dropped before it had ended");
    if (communicator == nullptr) {
      cancel(reason);
      return;
    }
    reason.operation = operation;
    reason.sequence = hash != 0 ? sequence : 0;
    reason.culprit = matcher_->rank();
    const bool withdrawn = can_withdraw != nullptr && can_withdraw(*this);
    communicator_state& comm = *communicator;
    tag_matcher& matcher = *matcher_;
    call_owner* const owner = owner_;
    cancel(reason);
    if (!withdrawn) matcher.revoke(comm, reason);
    owner->wake_driver();
  }

  // Stores `cause` as the reason for which this call fails, and revokes the communicator if the
  // call is a collective. If the communicator has already failed, stores the communicator's reason
  // instead, because `cause` is then only a consequence of that failure.
  [[gnu::noinline, gnu::cold]] void fail(const failure& cause) noexcept {
    if (communicator == nullptr) {
      reason_ = cause;
      return;
    }
    if (hash != 0 && !communicator->failed()) {
      failure reason = cause;
      reason.operation = operation;
      reason.sequence = sequence;
      reason.culprit = matcher_->rank();
      matcher_->revoke(*communicator, reason);
    }
    record_failure(communicator->failed() ? communicator->reason() : cause);
  }

  // Stores `reason` as the reason for the failure of this operation. If the failure began in
  // another operation, the stored text names that operation.
  void record_failure(const failure& reason) noexcept {
    reason_ = reason;
    reason_->operation = operation;
    if (communicator == nullptr) return;
    reason_->observer = matcher_->rank();
    reason_->sequence = hash != 0 ? sequence : 0;
    reason_->communicator = communicator->id();
    if (reason.code == errc::timeout && reason.culprit == matcher_->rank()) {
      reason_->set_detail("the others waited for this rank: %.280s", reason.detail);
      return;
    }
    if (reason.operation == collective::none ||
        (reason.operation == operation && reason.sequence == reason_->sequence)) {
      return;
    }
    if (reason.sequence != 0) {
      reason_->set_detail("in %s #%llu: %.280s", name(reason.operation),
                          static_cast<unsigned long long>(reason.sequence), reason.detail);
    } else {
      reason_->set_detail("in %s: %.300s", name(reason.operation), reason.detail);
    }
  }

  void check_single_waiter() const {
    if (waiter_ == nullptr) return;
    throw error(errc::invalid_argument,
                "another coroutine already awaits this operation: only one can at a time");
  }

  completion* finish() noexcept {
    state_ = state::ended;
    owner_->call_ended(*this);
    owner_ = nullptr;
    return std::exchange(waiter_, nullptr);
  }

  call_owner* owner_;
  tag_matcher* matcher_;
  completion* waiter_ = nullptr;
  resumption foreign_waiter_;
  body_completion body_completion_;
  state state_ = state::deferred;
  bool has_run_ = false;
  std::optional<failure> reason_;
};

template <class T>
class call : public call_base {
 public:
  using call_base::call_base;
  using value_type = T;

  task<T> body;
  std::optional<T> value;

  bool start_body(completion& done) override { return body.start(done); }

 private:
  void take_result() override {
    value.emplace(body.result());
    (void)(body = {});
  }
  void destroy_body() noexcept override { (void)(body = {}); }
};

template <>
class call<void> : public call_base {
 public:
  using call_base::call_base;
  using value_type = void;

  task<> body;

  /// Copies the state of the user's reduction operation (`size` bytes, at most 64) into the call.
  /// Returns the copy, which lives as long as the call.
  const void* store_operation(const void* op, std::size_t size) {
    std::memcpy(stored_operation_, op, size);
    return stored_operation_;
  }

  bool start_body(completion& done) override { return body.start(done); }

 private:
  void take_result() override {
    body.result();
    (void)(body = {});
  }
  void destroy_body() noexcept override { (void)(body = {}); }

  alignas(std::max_align_t) std::byte stored_operation_[64];
};

/// Connects operations with the completion tokens of Asio. <colls/asio.hpp> specialises this
/// template, and has to be included before the first use of an operation with a token.
template <class Operation, class Token>
struct initiate {
  static constexpr bool possible = false;
};

}  // namespace detail

/// A started operation. `co_await` it, poll it with `done()`, or keep several operations and await
/// them in any order. Any coroutine can await an operation, but only one coroutine at a time. The
/// buffers must stay alive until the operation has ended. Awaiting an operation that has failed
/// throws `colls::error`.
///
/// Destroying an unfinished operation cancels it. A send or receive that no peer has matched is
/// withdrawn, without effect on any peer. Cancelling any other operation revokes the communicator
/// on all ranks.
template <class T = void>
class [[nodiscard("dropping an operation cancels it: co_await it or keep it")]] operation {
 public:
  using value_type = T;

  explicit operation(detail::call<T>* started_call) : call_(started_call) {}
  operation(operation&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  operation& operator=(operation&& other) noexcept {
    if (this != &other) {
      if (call_ != nullptr) call_->abandon();
      call_ = std::exchange(other.call_, nullptr);
    }
    return *this;
  }
  ~operation() {
    if (call_ != nullptr) call_->abandon();
  }

  /// Returns whether the operation has ended. Also polls once, so that a loop that calls `done()`
  /// makes progress. If several ranks share a thread (inproc), such a loop keeps the other ranks
  /// from running, so await the operation instead.
  bool done() {
    if (!call_->is_done()) call_->progress();
    return call_->is_done();
  }

  /// Returns true if the operation has ended. Otherwise returns false, and `waiter` is posted when
  /// the operation ends.
  bool start(completion& waiter) { return call_->wait(waiter); }
  /// Returns the value of an operation that has ended, or throws its error.
  T result() {
    if (call_->reason().code != errc{}) throw error(call_->reason());
    if constexpr (!std::is_void_v<T>) return std::move(*call_->value);
  }
  /// Returns the failure of an operation that has ended. The code of the failure is 0 if the
  /// operation succeeded.
  const failure& reason() const { return call_->reason(); }

  /// Returns the number of bytes that this rank has copied into and out of messages so far. The
  /// number is final once the operation has ended. Returns 0 if the ranks have worked directly in
  /// each other's buffers.
  std::uint64_t copied_bytes() const { return call_->bytes - call_->bytes_in_place; }

  /// Makes sure that `waiter`, which is being destroyed, is not posted when the operation ends.
  void forget(const completion& waiter) {
    if (call_ != nullptr) call_->forget(waiter);
  }

  /// The awaiter for coroutines whose type is not `colls::task`.
  class awaiter {
   public:
    explicit awaiter(operation& awaited) : awaited_(awaited) {}
    awaiter(const awaiter&) = delete;
    ~awaiter() {
      if (suspended_ && awaited_.call_ != nullptr) awaited_.call_->forget_coroutine();
    }
    bool await_ready() const { return awaited_.call_->is_done(); }
    void await_suspend(std::coroutine_handle<> coroutine) {
      suspended_ = true;
      awaited_.call_->wait(coroutine);
    }
    T await_resume() {
      suspended_ = false;
      return awaited_.result();
    }

   private:
    operation& awaited_;
    bool suspended_ = false;
  };
  awaiter operator co_await() { return awaiter(*this); }

  /// Starts an asynchronous operation of Asio that completes when this operation ends. The usage is
  /// `std::move(op)(token)`. Requires <colls/asio.hpp>.
  template <class Token>
    requires detail::initiate<operation, std::decay_t<Token>>::possible
  auto operator()(Token&& token) && {
    return detail::initiate<operation, std::decay_t<Token>>::start(std::move(*this),
                                                                   std::forward<Token>(token));
  }

  /// Returns the call that the handle owns. Meant for adapters to other libraries.
  detail::call_base& underlying_call() const { return *call_; }

 private:
  detail::call<T>* call_;
};

}  // namespace colls
