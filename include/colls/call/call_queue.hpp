// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// call_queue: the queue of the calls of one communicator. The queue gives each collective call its
// sequence number and decides when the call starts. It defers a call if too many calls are running,
// or if the running calls use too much working memory. It starts deferred calls in the order in
// which the user made them.

#include <colls/base/options.hpp>
#include <colls/call/call.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/selection/tuning.hpp>

namespace colls::detail {

/// The data that all calls with the same fingerprint share. The fingerprint contains the arguments
/// that must be equal on all ranks.
struct cached_call {
  fingerprint call_fingerprint;
  operation_record record;  // each call with this fingerprint begins with a copy of this record

  cached_call() = default;
  explicit cached_call(const fingerprint& agreed, const algorithm_choice& choice = {})
      : call_fingerprint(agreed) {
    record.hash = hash_of(agreed);
    record.operation = agreed.operation;
    record.op_number =
        agreed.op <= UINT8_MAX ? static_cast<std::uint8_t>(agreed.op) : std::uint8_t{0};
    record.accumulate_type = agreed.accumulate;
    record.started = never;
    record.is_native = choice.id == algorithm::native;
    record.segment = choice.segment;
    record.lanes = choice.lanes;
    record.radix = choice.radix;
  }
};

/// A cache of the algorithms that were chosen for the last few distinct calls of a communicator.
/// Programs repeat a few different calls, so the cache contains the algorithms of most calls. The
/// key of an entry is the fingerprint of the call, that is, the arguments that must be equal on all
/// ranks. The choice of an algorithm depends on no other arguments.
class call_cache {
 public:
  struct entry {
    fingerprint requested;  // contains the algorithm that the caller pinned, if any
    cached_call cached;
    const algorithm_info* algorithm = nullptr;
    bool is_frameless = false;
  };

  /// Returns the entry of the last call of the collective `requested.operation` if the fingerprint
  /// of that call equals `requested`. Otherwise returns null. The function is inlined, so that the
  /// compiler can compare the fields of `requested` without storing them first.
  [[gnu::always_inline]] const entry* find_last(const fingerprint& requested) const {
    const entry& last = entries_[last_[static_cast<std::size_t>(requested.operation)]];
    return last.requested == requested ? &last : nullptr;
  }
  /// Returns the entry with the fingerprint `requested`, and makes it the entry that `find_last`
  /// examines. Returns null if there is no such entry. `custom` is the user's own algorithm that
  /// the call pins, or null.
  const entry* find(const fingerprint& requested, const algorithm_info* custom) {
    for (std::size_t i = 0; i < max_entries; ++i) {
      if (entries_[i].requested != requested) continue;
      if (custom != nullptr && entries_[i].algorithm != custom) continue;
      remember(requested.operation, i);
      return &entries_[i];
    }
    return nullptr;
  }
  const entry& add(const entry& new_entry) {
    newest_ = (newest_ + 1) % max_entries;
    if (!remembers_last_ && newest_ == 0) newest_ = 1;
    remember(new_entry.requested.operation, newest_);
    return entries_[newest_] = new_entry;
  }
  /// Makes `find_last` always return null. It then reads only what never changes.
  void disable_find_last() { remembers_last_ = false; }
  void clear() {
    for (entry& cached : entries_) cached.requested = {};
  }

 private:
  static constexpr std::size_t max_entries = 8;

  void remember(collective operation, std::size_t index) {
    if (!remembers_last_) return;
    last_[static_cast<std::size_t>(operation)] = static_cast<std::uint8_t>(index);
  }

  entry entries_[max_entries];  // if `remembers_last_` is false, the first stays empty
  std::size_t newest_ = 0;
  bool remembers_last_ = true;
  std::uint8_t last_[32] = {};  // for each collective, the index of the entry that was used last
};

/// The base class of a communicator's implementation, with everything that does not depend on the
/// type of the transport. A call_queue cannot be moved, because calls in flight contain pointers to
/// it.
class call_queue : public call_owner {
 public:
  call_queue(const call_queue&) = delete;
  call_queue& operator=(const call_queue&) = delete;

  tag_matcher& matching() const { return matcher_; }
  run_queue& queue() const { return queue_; }
  communicator_state& state() { return state_; }
  const communicator_state& state() const { return state_; }
  const node_map& nodes() {
    return state_.nodes([&](int rank) { return host_of(rank); });
  }
  /// Sets the network costs. From these costs, the communicator predicts how long each algorithm
  /// takes. For each call, it chooses the algorithm with the shortest predicted time. The costs
  /// must be equal on all ranks. No call may be in flight.
  void set_costs(const network_cost& net) {
    const bool has_levels = net.far != link_cost{};
    tuning_.set(net, has_levels && nodes().nodes() > 1 ? nodes().max_node_size() : 0);
    cache_.clear();
  }
  /// Returns whether this is the last open communicator of those that stand for the world: the
  /// world communicator, and what shrink has made of it.
  bool is_last_of_world() const { return world_.use_count() == 1; }
  /// Makes this communicator what is left of `parent`. `previous_ranks` are the ranks that its
  /// ranks have there, in ascending order.
  void succeed(const call_queue& parent, std::vector<int> previous_ranks) {
    world_ = parent.world_;
    previous_ranks_ = std::move(previous_ranks);
  }
  /// Returns whether this communicator stands for the world.
  bool stands_for_world() const { return world_ != nullptr && shrink_obstacle_ == nullptr; }
  /// Sets the ranks that the ranks of this communicator had in the one that a repair has replaced.
  void set_previous_ranks(std::vector<int> ranks) { previous_ranks_ = std::move(ranks); }
  /// Returns the rank that `rank` had in the communicator of which this one is what is left.
  int previous_rank(int rank) const {
    if (rank < 0 || rank >= state_.size()) return -1;
    return previous_ranks_.empty() ? rank : previous_ranks_[static_cast<std::size_t>(rank)];
  }
  /// Returns why this communicator cannot be shrunk, or null.
  const char* shrink_obstacle() const { return shrink_obstacle_; }
  void set_shrink_obstacle(const char* reason) { shrink_obstacle_ = reason; }
  /// Returns this rank's number among the communicator's ranks on its host, counted from 0. This
  /// is the number that was passed to `set_local_rank`. If that function was not called, the ranks
  /// of a host are numbered in rank order.
  int local_rank() {
    return local_rank_ >= 0 ? local_rank_ : nodes().position_of(state_.rank()).local_rank;
  }
  void set_local_rank(int rank) { local_rank_ = rank; }
  bool is_open() const { return is_open_; }
  const colls::tuning& tuning() const { return tuning_; }

  template <class Call = call<void>>
  Call* make(collective coll) {
    operation_record initial;
    initial.operation = coll;
    initial.started = never;
    return make<Call>(initial);
  }

  /// Refuses `new_call` because of `reason`, such as an invalid argument. Returns the operation of
  /// the call, which has then failed with `reason`. The call gets no sequence number and sends
  /// nothing.
  template <class T>
  [[gnu::noinline, gnu::cold]] operation<T> refuse(call<T>* new_call, failure reason) {
    if (queue_.is_checked() && is_called_by_other_thread()) {
      delete new_call;
      throw_second_thread();
    }
    reason.observer = matcher_.rank();
    reason.communicator = state_.id();
    reason.refused = true;
    new_call->refuse(reason);
    if (log_enabled(log_level::info)) log_info("%s", to_text(new_call->reason()).c_str());
    return operation<T>(new_call);
  }

  /// Creates the `Call` object of a collective, gives it the next sequence number, and starts or
  /// defers it. `prepare(call)` creates the body of the call. If the communicator is closed or has
  /// failed, or if another thread runs `queue()`, returns an operation that has already failed.
  /// Throws if `queue()` is checked and belongs to another thread.
  template <class Call, class Prepare>
  [[gnu::always_inline]] operation<typename Call::value_type> begin(const cached_call& cached,
                                                                    const options& opts,
                                                                    std::size_t working_bytes,
                                                                    const Prepare& prepare) {
    using T = typename Call::value_type;
    Call* const new_call = make<Call>(cached.record);
    if (!accepts_calls()) return refuse_unusable<T>(new_call);
    std::unique_ptr<Call> holder(new_call);
    new_call->sequence = state_.take_sequence(cached.call_fingerprint, cached.record.hash);
    new_call->working_bytes = working_bytes;
    // The call now has a sequence number, so the peers wait for this rank's part in it. If the
    // code below throws an exception, it also destroys the handle of the call. The destructor of
    // the handle revokes the communicator, so that the peers stop waiting.
    const auto make_handle = [&] { return operation<T>(holder.release()); };
    try {
      enter(*new_call, opts);
    } catch (...) {
      (void)make_handle();
      throw;
    }
    operation<T> started = make_handle();
    prepare(*new_call);
    if (can_admit(*new_call)) {
      admit(*new_call);
    } else {
      new_call->last_progress = never;  // a deferred call makes no progress
      if (first_deferred_ == nullptr) first_deferred_ = new_call;
    }
    // If the call has ended already, `call_ended` has woken the peers, where peers can sleep.
    if (!new_call->is_done() || !queue_.empty()) wake_driver();
    return started;
  }

  /// Starts a point-to-point call, which has the tag `tag` instead of a sequence number. If the
  /// call's deadline passes before a peer has matched the call, only this call fails. If the
  /// deadline passes after a peer has matched the call, the call also revokes the communicator.
  template <class T, class Body>
  operation<T> begin_point_to_point(call<T>* new_call, std::uint64_t tag, const options& opts,
                                    Body body) {
    if (!accepts_calls()) return refuse_unusable(new_call);
    new_call->sequence = tag;
    new_call->expired = [](operation_record& self, const failure& reason) {
      auto& late_call = static_cast<call_base&>(self);
      if (late_call.try_complete()) return;
      const bool withdrawn = late_call.can_withdraw != nullptr && late_call.can_withdraw(late_call);
      tag_matcher& matcher = *late_call.matcher();
      communicator_state& comm = *late_call.communicator;
      late_call.cancel(reason);
      if (!withdrawn) matcher.revoke(comm, reason);
    };
    enter(*new_call, opts);
    return run_unnumbered(new_call, body);
  }

  /// Begins a call that takes part in the agreements of this communicator. It may begin although
  /// the communicator has failed, and never makes the communicator fail. At its deadline, `expire`
  /// ends it.
  template <class T, class Body>
  operation<T> begin_recovery(call<T>* new_call, time_span timeout,
                              void (*expire)(operation_record&, const failure&), Body body) {
    if (!is_open_ || is_called_by_other_thread()) return refuse_unusable(new_call);
    if (recovery_state_ == nullptr) {
      recovery_state_ = std::make_unique<communicator_state>(state_.id(), state_.rank(),
                                                             state_.size(), state_.members());
      recovery_state_->inactivity = never;
    }
    new_call->communicator = recovery_state_.get();
    new_call->is_reported_late = true;  // the log would say for which message the call waits
    new_call->started = now();
    const time_span limit = timeout ? timeout : time_span::from_nanoseconds(state_.inactivity);
    new_call->deadline = limit.after(new_call->started);
    new_call->can_withdraw = [](const call_base&) { return true; };
    new_call->expired = expire;
    matcher_.begin(*new_call);
    return run_unnumbered(new_call, body);
  }

  /// Returns whether a call of this thread could begin now.
  [[gnu::always_inline]] bool accepts_calls() { return is_usable() || can_claim(); }
  /// Returns the operation of a call that cannot begin, because `accepts_calls` has returned false.
  template <class T>
  [[gnu::noinline, gnu::cold]] operation<T> refuse_unusable(call<T>* new_call) {
    if (queue_.is_run_by_other_thread() &&
        (queue_.is_checked() || (is_open_ && !state_.failed()))) {
      return refuse(new_call, second_thread_failure(queue_));
    }
    failure reason = state_.reason();
    if (!is_open_) {
      reason = failure(errc::closed, "this rank has closed the communicator");
      reason.culprit = matcher_.rank();
    }
    new_call->refuse(reason);
    return operation<T>(new_call);
  }

  /// Discards the message that `owned` owns, if there is one, and sets `owned` to null.
  void discard(unexpected_message*& owned) noexcept {
    if (owned == nullptr) return;
    matcher_.discard(owned);
    wake_driver();
  }
  /// Returns whether another thread runs `queue()`, or, if the queue is checked, whether it belongs
  /// to another thread. If it belongs to no thread, it belongs to the calling thread afterwards.
  bool is_called_by_other_thread() {
    return queue_.is_run_by_other_thread() && !queue_.try_claim();
  }
  /// Throws if `queue()` is checked and belongs to another thread.
  void check_thread() {
    if (queue_.is_checked() && is_called_by_other_thread()) throw_second_thread();
  }

  /// Revokes the communicator: makes all operations on it fail with `reason` on all ranks.
  void revoke(const failure& reason) {
    check_thread();
    matcher_.revoke(state_, reason);
    wake_driver();
  }

  /// Closes this rank's side of the communicator. All calls in flight fail with `errc::closed`, and
  /// later calls are refused.
  void shut_down() {
    if (!std::exchange(is_open_, false)) return;
    failure reason(errc::closed, "this rank has closed the communicator");
    reason.culprit = matcher_.rank();
    bool numbered = false;
    while (call_base* const oldest = first_own_call(matcher_.first_in_flight())) {
      numbered |= oldest->hash != 0;
      first_deferred_ = nullptr;
      oldest->cancel(reason);
    }
    // If collectives were in flight, the peers wait for this rank's part in them. The revocation
    // makes these collectives fail on the peers, too.
    if (numbered) matcher_.revoke(state_, reason);
    state_.closing = true;
    matcher_.remove(state_);
    world_.reset();
  }

  /// Waits until no collective and no message of this communicator is in flight. It models
  /// `startable`.
  class drain {
   public:
    explicit drain(call_queue& owner) : owner_(owner) {}
    drain(const drain&) = delete;
    drain& operator=(const drain&) = delete;
    ~drain() { std::erase(owner_.drains_, this); }

    bool start(completion& done) {
      if (!owner_.state_.is_in_use()) return true;
      done_ = &done;
      owner_.drains_.push_back(this);
      return false;
    }
    void result() const {}

   private:
    friend call_queue;

    call_queue& owner_;
    completion* done_ = nullptr;
  };

 protected:
  call_queue(tag_matcher& matcher, run_queue& queue, std::uint32_t id, int rank, int size,
             std::shared_ptr<const std::vector<int>> members, bool is_world)
      : matcher_(matcher),
        queue_(queue),
        state_(id, rank, size, std::move(members)),
        world_(is_world ? std::make_shared<char>() : nullptr) {
    if (queue_.is_checked()) cache_.disable_find_last();
    matcher_.add(state_);
  }
  ~call_queue() = default;  // the derived class must have called `shut_down`

  virtual time_point now() const = 0;
  /// Returns a number that identifies the host on which world rank `rank` runs.
  virtual int host_of(int rank) const = 0;
  void call_ended(call_base& ended_call) noexcept override {
    if (first_deferred_ == &ended_call) first_deferred_ = next_deferred(ended_call);
    matcher_.end(ended_call);
    if (ended_call.hash != 0 && ended_call.has_run()) {
      --running_;
      running_bytes_ -= ended_call.working_bytes;
    }
    if (first_deferred_ != nullptr) admit_deferred();
    if (!drains_.empty() && !state_.is_in_use()) end_drains();
  }
  call_cache& cache() { return cache_; }

 private:
  // The largest number of collectives that run at the same time, and the largest total size of
  // their working memory. A collective that would exceed a limit is deferred. Deferred calls start
  // in call order. The oldest collective always runs, even if it needs more memory than the limit.
  // Therefore ranks that defer different calls cannot deadlock.
  static constexpr int max_running = 64;
  static constexpr std::size_t max_running_bytes = 32 << 20;

  template <class Call>
  [[gnu::always_inline]] Call* make(const operation_record& initial) {
    auto* const new_call = new Call(static_cast<call_owner*>(this), &matcher_, queue_, initial);
    new_call->communicator = &state_;
    return new_call;
  }

  [[gnu::always_inline]] bool is_usable() const {
    return !queue_.is_run_by_other_thread() && is_open_ && !state_.failed();
  }
  // Called if `is_usable` has returned false. Returns whether the call can start nevertheless,
  // because it is the first one on a checked queue.
  [[gnu::noinline, gnu::cold]] bool can_claim() {
    return !is_called_by_other_thread() && is_usable();
  }
  [[noreturn, gnu::noinline, gnu::cold]] void throw_second_thread() const {
    failure reason = second_thread_failure(queue_);
    reason.observer = matcher_.rank();
    reason.communicator = state_.id();
    reason.refused = true;
    throw error(reason);
  }
  [[gnu::always_inline]] void enter(call_base& new_call, const options& opts) {
    if (opts.timeout) {
      new_call.started = now();
      new_call.deadline = opts.timeout.after(new_call.started);
    }
    matcher_.begin(new_call);
  }

  /// Runs a call that has no sequence number, with the body that `body(call)` returns.
  template <class T, class Body>
  operation<T> run_unnumbered(call<T>* new_call, const Body& body) {
    operation<T> started(new_call);
    (void)(new_call->body = body(*new_call));
    new_call->run();
    wake_driver();
    return started;
  }

  [[gnu::noinline]] void end_drains() noexcept {
    for (drain* const each : std::exchange(drains_, {})) each->done_->post();
  }

  bool can_admit(const call_base& next) const {
    if (first_deferred_ != nullptr) return false;
    return running_ == 0 ||
           (running_ < max_running && running_bytes_ + next.working_bytes <= max_running_bytes);
  }

  template <class Call>
  [[gnu::always_inline]] void admit(Call& next) {
    ++running_;
    running_bytes_ += next.working_bytes;
    next.template run<Call>();
  }

  [[gnu::noinline]] void admit_deferred() {
    // If a collective ends while `admit` starts it, `call_ended` invokes this function again. The
    // nested invocation returns at once, because the loop of the outer invocation will admit the
    // next deferred collective.
    if (std::exchange(is_admitting_, true)) return;
    while (first_deferred_ != nullptr) {
      call_base& next = *first_deferred_;
      first_deferred_ = nullptr;
      if (!can_admit(next)) {
        first_deferred_ = &next;
        break;
      }
      first_deferred_ = next_deferred(next);
      next.last_progress = 0;
      if (next.started != never) {
        next.announce_after = now() - next.started + 100 * milliseconds;
      }
      matcher_.check_soon(next);
      admit(next);
    }
    is_admitting_ = false;
  }
  /// Returns the first call of this communicator in the list that begins with `record`, or null if
  /// there is none.
  call_base* first_own_call(operation_record* record) const {
    while (record != nullptr && record->communicator != &state_ &&
           record->communicator != recovery_state_.get()) {
      record = in_flight::next(*record);
    }
    return static_cast<call_base*>(record);
  }
  /// Returns the collective call of this communicator that follows `previous` in call order, or
  /// null if there is none.
  call_base* next_deferred(const call_base& previous) const {
    call_base* next = first_own_call(in_flight::next(previous));
    while (next != nullptr && next->hash == 0) next = first_own_call(in_flight::next(*next));
    return next;
  }

  tag_matcher& matcher_;
  run_queue& queue_;
  communicator_state state_;
  std::unique_ptr<communicator_state> recovery_state_;  // of calls that outlast a failure, or null
  colls::tuning tuning_;
  call_cache cache_;
  std::shared_ptr<char> world_;      // shared by the open communicators that stand for the world
  std::vector<int> previous_ranks_;  // empty unless shrink or repair has made this communicator
  const char* shrink_obstacle_ = nullptr;
  std::vector<drain*> drains_;
  int local_rank_ = -1;
  bool is_open_ = true;
  call_base* first_deferred_ = nullptr;  // later collective calls are deferred too
  bool is_admitting_ = false;
  int running_ = 0;
  std::size_t running_bytes_ = 0;
};

/// Discards the message that `message` owns, if there is one, at the end of its scope.
class message_owner {
 public:
  message_owner(call_queue& owner, unexpected_message*& message)
      : owner_(owner), message_(message) {}
  message_owner(const message_owner&) = delete;
  message_owner& operator=(const message_owner&) = delete;
  ~message_owner() { owner_.discard(message_); }

 private:
  call_queue& owner_;
  unexpected_message*& message_;
};

}  // namespace colls::detail
