// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// call: `call`, which is a started operation, and `operation`, which is the user's handle to a
// call.
//
// A communicator refuses a call whose arguments are invalid, and sends nothing for such a call. It
// defers a call that has to wait until earlier calls have ended. To revoke a communicator means to
// make all operations on it fail on all of its ranks.

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
  /// Returns the owner that still exists when the call has ended. It is another object if this
  /// owner only stands between a call and its owner (see `call_base::set_owner`).
  virtual call_owner& lasting_owner() { return *this; }

 protected:
  ~call_owner() = default;
};

/// The base class of calls. A call is a started operation. Its `operation_record` contains the
/// operation's identity, deadline and progress. Derived classes contain the body, which does the
/// work of the operation and is usually a coroutine. Only one coroutine at a time can await a call.
/// The user's `operation` handle owns the call. A call uses its communicator only until the call
/// has ended. The calls that join the world or close a communicator belong to no communicator.
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

  /// Returns true if the call has ended. Otherwise returns false and stores `waiter`. The call
  /// posts or runs `waiter` when the call ends.
  bool wait(completion& waiter) {
    if (is_done()) return true;
    check_single_waiter();
    waiter_ = &waiter;
    return false;
  }
  /// Makes the call resume `coroutine` when the call ends. This overload is for coroutines whose
  /// type is not `colls::task`.
  void wait(std::coroutine_handle<> coroutine) {
    check_single_waiter();
    foreign_waiter_.bind_coroutine(coroutine, body_completion_);
    waiter_ = &foreign_waiter_;
  }
  /// Called before `waiter` is destroyed. Ensures that the call does not access `waiter` when the
  /// call ends.
  void forget(const completion& waiter) {
    if (waiter_ == &waiter) waiter_ = nullptr;
  }
  void forget_coroutine() {
    forget(foreign_waiter_);
    foreign_waiter_.withdraw();
  }

  /// Returns whether the call has ended. If the body is done but its completion still waits in the
  /// run queue, first ends the call.
  bool try_complete() noexcept {
    if (body_completion_.posted() && is_body_done()) notify(complete_body());
    return is_done();
  }

  /// Calls `try_complete`. If it returns false, destroys the body of the call and ends the call
  /// with the failure `reason`. Destroying the body withdraws the operations that the body awaits.
  void cancel(const failure& reason) noexcept {
    if (try_complete()) return;
    destroy_body();
    record_failure(reason);
    notify(finish());
  }

  /// Cancels this call if it has not ended. The user's handle stays valid, and awaiting it throws
  /// `errc::cancelled`. The cancellation revokes the communicator, unless the call is a
  /// point-to-point operation that no peer has matched.
  void stop() noexcept {
    // Other than after the destruction of the handle, the user's buffers still exist. So a body
    // that is done gives its result, even if `take_result` has to do a part of the work.
    if (body_completion_.posted()) notify(complete_body());
    if (!is_done()) cancel_unfinished("a stop was requested before the operation had ended");
  }
  /// Makes `owner` the owner of this call, which has not ended. Returns the previous owner, to
  /// which `owner` has to forward the calls of its functions.
  call_owner& set_owner(call_owner& owner) { return *std::exchange(owner_, &owner); }

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
  /// Returns whether the body of the call was ever started.
  bool has_run() const { return has_run_; }

  /// Starts the body, which runs until it first suspends. If the caller knows the actual type of
  /// this call, it passes that type as `Call`. The compiler can then call `start_body` directly
  /// instead of virtually.
  template <class Call = call_base>
  void run() noexcept {
    state_ = state::running;
    has_run_ = true;
    if (static_cast<Call&>(*this).start_body(body_completion_)) notify(complete_body());
  }

  /// Called when the user destroys the handle. If the call has not ended, cancels it. Then deletes
  /// the call. The cancellation revokes the communicator, unless the call is a point-to-point
  /// operation that no peer has matched.
  void abandon() noexcept {
    waiter_ = nullptr;
    if (!is_done() && !try_complete()) {
      cancel_unfinished("the operation was dropped before it had ended");
    }
    if (observer != nullptr) *observer = nullptr;
    delete this;
  }

  /// A function that returns true if no peer has matched this point-to-point operation, so that the
  /// call can withdraw it without effect on any peer. The pointer is null in calls of other kinds.
  /// It is also null until the transport operation has been created.
  bool (*can_withdraw)(const call_base& self) = nullptr;
  void* transfer = nullptr;  // the transport operation, which `can_withdraw` examines

  std::size_t working_bytes = 0;  // the size of the working memory that this call needs
  bool was_awaited = false;       // the user has taken the result
  /// The address of a pointer to this call, which becomes null when the call is deleted, or null.
  call_base** observer = nullptr;

  virtual bool start_body(completion& done) = 0;

 protected:
  /// Moves the result of the body into this call. If the body has thrown an exception, rethrows it.
  virtual void take_result() = 0;
  /// Returns true if the body has done all of its work, and false if `take_result` still has to do
  /// a part of the work. Called only while the body's completion is in the run queue.
  virtual bool is_body_done() const { return true; }
  virtual void destroy_body() noexcept = 0;

 private:
  struct body_completion : completion {
    body_completion(call_base& owning_call, run_queue& queue)
        : completion(
              [](completion& self) noexcept {
                // The run queue runs this handler. Therefore the handler may run the waiter
                // directly instead of posting it. The waiter may delete the call.
                call_base& ended_call = static_cast<body_completion&>(self).owner;
                if (completion* const waiter = ended_call.complete_body()) waiter->run();
              },
              &queue),
          owner(owning_call) {}
    call_base& owner;
  };

  // Posts `waiter` if it is not null. Does not run `waiter` directly, because only handlers that
  // the run queue runs may do so.
  static void notify(completion* waiter) noexcept {
    if (waiter != nullptr) waiter->post();
  }

  // Takes the body's result and ends the call. Returns the waiter, or null if nothing waits for the
  // call. The caller of this function must run or post the returned waiter.
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

  // Cancels this call, for the reason that `text` states. Revokes the communicator unless
  // `can_withdraw` returns true. This function is not inlined, because a `failure` takes half a
  // kilobyte of stack.
  [[gnu::noinline, gnu::cold]] void cancel_unfinished(const char* text) noexcept {
    failure reason(errc::cancelled, text);
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
    call_owner& owner = owner_->lasting_owner();
    cancel(comm.failed() ? comm.reason() : reason);
    if (!withdrawn) matcher.revoke(comm, reason);
    owner.wake_driver();
  }

  // Stores `cause` as the reason for the failure of this call. If the call is a collective, also
  // revokes the communicator. If the communicator has already failed, stores the reason for that
  // failure instead, because `cause` is then only a consequence of it.
  [[gnu::noinline, gnu::cold]] void fail(const failure& cause) noexcept {
    if (communicator == nullptr) {
      reason_ = cause;
      return;
    }
    const bool is_agreed = cause.agreed && operation == collective::attach;
    if (hash != 0 && !communicator->failed() && !is_agreed) {
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

/// Returns a call that has ended with the failure `reason`, or with success if that has no code. It
/// belongs to no communicator.
template <class T>
call<T>* ended_call(const failure& reason) {
  static run_queue unused;
  auto* const ended = new call<T>(nullptr, nullptr, unused);
  ended->operation_record::operation = reason.operation;
  ended->refuse(reason);
  return ended;
}

/// The adapter that lets a completion token of Asio wait for an operation. <colls/asio.hpp>
/// specialises this template. The user must include that header before the first use of an
/// operation with a completion token.
template <class Operation, class Token>
struct initiate {
  static constexpr bool possible = false;
};

}  // namespace detail

/// A started operation. The user can `co_await` it, poll it with `done()`, or start several
/// operations and await them in any order. Coroutines of any type can await an operation, but only
/// one coroutine at a time. The buffers of the operation must stay alive until the operation has
/// ended. Awaiting an operation that has failed throws `colls::error`.
///
/// Destroying an unfinished operation cancels it. If the operation is a send or a receive that no
/// peer has matched, the cancellation has no effect on any peer. Otherwise the cancellation revokes
/// the communicator on all ranks.
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

  /// Returns false if the operation was moved from.
  explicit operator bool() const { return call_ != nullptr; }

  /// Returns whether the operation has ended. If it has not ended yet, first polls the transport
  /// once, so that the operation makes progress while the user calls `done()` in a loop. Do not use
  /// such a loop if several ranks share a thread (with the inproc transport), because it keeps the
  /// other ranks from running. Await the operation instead.
  bool done() {
    if (!call_->is_done()) call_->progress();
    return call_->is_done();
  }

  /// Returns true if the operation has ended. Otherwise returns false and stores `waiter`. The
  /// operation posts or runs `waiter` when the operation ends.
  bool start(completion& waiter) { return call_->wait(waiter); }
  /// Returns the value of an operation that has ended, or throws its error.
  T result() {
    call_->was_awaited = true;
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

  /// Called before `waiter` is destroyed. Ensures that the operation does not access `waiter` when
  /// the operation ends.
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

  /// Starts an asynchronous operation of Asio that completes when this operation ends. `token` is a
  /// completion token of Asio. The syntax is `std::move(op)(token)`. Requires <colls/asio.hpp>.
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
