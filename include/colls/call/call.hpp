// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// call: one started operation, and the handle that the user holds.

#include <colls/coroutine/task.hpp>
#include <colls/matching/tag_matcher.hpp>

#include <cstddef>
#include <cstring>

namespace colls {

namespace detail {

class call_base;

/// What calls ask of their communicator.
class call_owner {
 public:
  virtual void ended(call_base& call) noexcept = 0;
  virtual void progress() = 0;
  virtual void kick() = 0;

 protected:
  ~call_owner() = default;
};

/// A started operation: its record, its coroutine, who waits for it. Owned by the user's handle;
/// linked to its communicator (a join or a close has none) until it has ended.
class call_base : public operation_record, public recycled {
 public:
  enum class state : std::uint8_t { deferred, running, ended };
  static constexpr failure none{};

  /// Its record begins as `like`.
  [[gnu::always_inline]] call_base(call_owner* owner, match* matching, run_queue& queue,
                                   const operation_record& like)
      : operation_record(like), owner_(owner), matching_(matching), body_done_(*this, queue) {}
  call_base(call_owner* owner, match* matching, run_queue& queue)
      : call_base(owner, matching, queue, operation_record()) {
    started = never;
  }
  call_base(const call_base&) = delete;
  call_base& operator=(const call_base&) = delete;
  virtual ~call_base() = default;

  bool is_done() const { return state_ == state::ended; }
  void progress() {
    if (owner_ != nullptr) owner_->progress();
  }

  /// True: it has ended; false: `waiter` is posted when it has.
  bool wait(completion& waiter) {
    if (is_done()) return true;
    wait_alone();
    waiter_ = &waiter;
    return false;
  }
  /// The same for a coroutine of another library.
  void wait(std::coroutine_handle<> waiting) {
    wait_alone();
    foreign_.become_resumption(waiting, body_done_);
    waiter_ = &foreign_;
  }
  /// Whoever waited is gone.
  void forget(const completion& waiter) {
    if (waiter_ == &waiter) waiter_ = nullptr;
  }
  void forget_foreign() {
    forget(foreign_);
    foreign_.withdraw();
  }

  /// Whether it has ended, also if its coroutine has and the run queue has not told us yet.
  bool settle() noexcept {
    if (body_done_.posted() && is_body_over()) tell(body_ended());
    return is_done();
  }

  /// Ends it before its time: its coroutine is destroyed, which withdraws what it waits for.
  void cut(const failure& why) noexcept {
    if (settle()) return;
    destroy_body();
    note(why);
    tell(finish());
  }

  /// Never started: the error comes at the await.
  void refuse(const failure& why) {
    note(why);
    why_->sequence = 0;
    state_ = state::ended;
    owner_ = nullptr;
  }

  const failure& why() const { return why_ ? *why_ : none; }
  match* matching() const { return matching_; }
  /// Where it ends.
  run_queue& queue() const { return *body_done_.queue(); }
  /// Whether its coroutine was ever started.
  bool was_run() const { return run_; }

  /// Runs the coroutine up to its first suspension. `Call`: what this is, as far as the caller
  /// knows.
  template <class Call = call_base>
  void run() noexcept {
    state_ = state::running;
    run_ = true;
    if (static_cast<Call&>(*this).start_body(body_done_)) tell(body_ended());
  }

  /// A dropped handle: point-to-point operations that nobody has met are withdrawn, all others
  /// revoke their communicator everywhere.
  void abandon() noexcept {
    waiter_ = nullptr;
    if (!is_done() && !settle()) drop();
    delete this;
  }

  /// Point to point: whether it can be taken back without a trace.
  bool (*untouched)(const call_base& self) = nullptr;
  void* leaf = nullptr;

  std::size_t working_bytes = 0;  // what it asks of the rank's memory, for admission

  virtual bool start_body(completion& done) = 0;

 protected:
  virtual void take_result() = 0;  // throws what the body threw; then there is none
  /// Of a body whose completion is posted: whether nothing is left to do but to take its result.
  virtual bool is_body_over() const { return true; }
  virtual void destroy_body() noexcept = 0;

 private:
  struct body_completion : completion {
    body_completion(call_base& of, run_queue& queue)
        : completion(
              [](completion& self) noexcept {
                // The queue calls this, so who waits goes on at once; and may delete the call.
                call_base& ended = static_cast<body_completion&>(self).owner;
                if (completion* const waiter = ended.body_ended()) waiter->run();
              },
              &queue),
          owner(of) {}
    call_base& owner;
  };

  // From outside of the run queue: who waits goes on in its next turn.
  static void tell(completion* waiter) noexcept {
    if (waiter != nullptr) waiter->post();
  }

  // Who waited for it, to be told.
  completion* body_ended() noexcept {
    if (is_done()) return nullptr;  // settled before the run queue got to it
    try {
      take_result();
    } catch (...) {
      fail(failure_of(std::current_exception()));
      destroy_body();
    }
    return finish();
  }

  // What is seldom stands apart: a failure is half a kilobyte of stack.
  [[gnu::noinline, gnu::cold]] void drop() noexcept {
    failure why(errc::cancelled, "the operation was dropped before it had ended");
    if (communicator == nullptr) {
      cut(why);
      return;
    }
    why.operation = what;
    why.sequence = hash != 0 ? sequence : 0;
    why.culprit = matching_->rank();
    const bool quietly = untouched != nullptr && untouched(*this);
    communicator_state& of = *communicator;
    match& with = *matching_;
    call_owner* const owner = owner_;
    cut(why);
    if (!quietly) with.revoke(of, why);
    owner->kick();
  }

  // The communicator's reason, if it has one, explains more than what an algorithm saw of it.
  [[gnu::noinline, gnu::cold]] void fail(const failure& seen) noexcept {
    if (communicator == nullptr) {
      why_ = seen;
      return;
    }
    if (hash != 0 && !communicator->failed()) {
      failure why = seen;
      why.operation = what;
      why.sequence = sequence;
      why.culprit = matching_->rank();
      matching_->revoke(*communicator, why);
    }
    note(communicator->failed() ? communicator->why() : seen);
  }

  // Keeps the reason as this operation's; one that began in another says in which.
  void note(const failure& reason) noexcept {
    why_ = reason;
    why_->operation = what;
    if (communicator == nullptr) return;
    why_->observer = matching_->rank();
    why_->sequence = hash != 0 ? sequence : 0;
    why_->communicator = communicator->id();
    if (reason.code == errc::timeout && reason.culprit == matching_->rank()) {
      why_->say("the others waited for this rank: %.280s", reason.detail);
      return;
    }
    if (reason.operation == collective::none ||
        (reason.operation == what && reason.sequence == why_->sequence)) {
      return;
    }
    if (reason.sequence != 0) {
      why_->say("in %s #%llu: %.280s", name(reason.operation),
                static_cast<unsigned long long>(reason.sequence), reason.detail);
    } else {
      why_->say("in %s: %.300s", name(reason.operation), reason.detail);
    }
  }

  void wait_alone() const {
    if (waiter_ == nullptr) return;
    throw error(errc::invalid_argument,
                "another coroutine awaits this operation: one at a time does");
  }

  completion* finish() noexcept {
    state_ = state::ended;
    owner_->ended(*this);
    owner_ = nullptr;
    return std::exchange(waiter_, nullptr);
  }

  call_owner* owner_;
  match* matching_;
  completion* waiter_ = nullptr;
  resumption foreign_;
  body_completion body_done_;
  state state_ = state::deferred;
  bool run_ = false;
  std::optional<failure> why_;
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

  /// Copies the user's reduction, `size` bytes of it: it lives as long as the operation.
  const void* keep(const void* op, std::size_t size) {
    std::memcpy(op_, op, size);
    return op_;
  }

  bool start_body(completion& done) override { return body.start(done); }

 private:
  void take_result() override {
    body.result();
    (void)(body = {});
  }
  void destroy_body() noexcept override { (void)(body = {}); }

  alignas(std::max_align_t) std::byte op_[64];
};

/// What a completion token of Asio makes of an operation. <colls/asio.hpp> specialises it; to use
/// an operation with a token before that header is included does not compile, then or later.
template <class Operation, class Token>
struct initiate {
  static constexpr bool possible = false;
};

}  // namespace detail

/// A started operation. `co_await` it (in any coroutine, one at a time), ask `done()`, or keep many
/// and await them in any order. Its buffers must stay alive until it has ended. Dropping it
/// unfinished cancels it: a collective then revokes its communicator on all ranks; a send or
/// receive that nothing has met is just withdrawn. Errors are thrown at the await, as
/// `colls::error`.
template <class T = void>
class [[nodiscard("dropping an operation cancels it: co_await it or keep it")]] operation {
 public:
  using value_type = T;

  explicit operation(detail::call<T>* started) : call_(started) {}
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

  /// Whether it has ended. Makes one poll, so that a loop over it gets on; but where ranks share a
  /// thread (inproc) the others stand still in their loops meanwhile: await there.
  bool done() {
    if (!call_->is_done()) call_->progress();
    return call_->is_done();
  }

  bool start(completion& waiter) { return call_->wait(waiter); }
  T result() {
    if (call_->why().code != errc{}) throw error(call_->why());
    if constexpr (!std::is_void_v<T>) return std::move(*call_->value);
  }
  /// The same without an exception: the failure, whose code is 0 if it went well.
  const failure& why() const { return call_->why(); }

  /// Bytes of the data that this rank copied into and out of messages. 0 where ranks worked in
  /// buffers that all had lent; whole once it has ended.
  std::uint64_t copied_bytes() const { return call_->bytes - call_->in_place; }

  /// A coroutine that waited for it was destroyed.
  void forget(const completion& waiter) {
    if (call_ != nullptr) call_->forget(waiter);
  }

  /// For coroutines other than colls::task.
  class awaiter {
   public:
    explicit awaiter(operation& awaited) : awaited_(awaited) {}
    awaiter(const awaiter&) = delete;
    ~awaiter() {
      if (suspended_ && awaited_.call_ != nullptr) awaited_.call_->forget_foreign();
    }
    bool await_ready() const { return awaited_.call_->is_done(); }
    void await_suspend(std::coroutine_handle<> waiting) {
      suspended_ = true;
      awaited_.call_->wait(waiting);
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

  /// With <colls/asio.hpp>: an asynchronous operation of Asio, `std::move(op)(token)`.
  template <class Token>
    requires detail::initiate<operation, std::decay_t<Token>>::possible
  auto operator()(Token&& token) && {
    return detail::initiate<operation, std::decay_t<Token>>::start(std::move(*this),
                                                                   std::forward<Token>(token));
  }

  /// The call behind the handle, for adapters.
  detail::call_base& started() const { return *call_; }

 private:
  detail::call<T>* call_;
};

}  // namespace colls
