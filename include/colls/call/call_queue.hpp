// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The calls of one communicator: numbered, started, held back, ended.

#include <colls/base/options.hpp>
#include <colls/call/call.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/selection/tuning.hpp>

namespace colls {
struct offer;
}

namespace colls::detail {

/// What all ranks agree on for a call, and how it is done.
struct agreement {
  fingerprint print;
  operation_record record;  // of such a call as it begins: copied, which is fewer stores

  agreement() = default;
  explicit agreement(const fingerprint& call, const plan& how = {}) : print(call) {
    record.hash = hash_of(call);
    record.what = call.what;
    record.started = never;
    record.segment = how.segment;
    record.lanes = how.lanes;
    record.radix = how.radix;
  }
};

/// The last different calls of a communicator: a program's calls are few, and come again and again.
/// The choice depends on nothing but what ranks have to agree on.
class known_calls {
 public:
  struct entry {
    fingerprint asked;  // with what options ask for in place of the plan
    agreement agreed;
    const offer* chosen = nullptr;
    bool is_one_step = false;
  };

  /// The call of that collective that was made last, if it was asked so, or null. Inline: then what
  /// is asked is compared without being written down.
  [[gnu::always_inline]] const entry* again(const fingerprint& asked) const {
    const entry& last = all_[last_[static_cast<std::size_t>(asked.what)]];
    return last.asked == asked ? &last : nullptr;
  }
  /// The call that was asked so before, or null.
  const entry* find(const fingerprint& asked) {
    for (std::size_t at = 0; at < most; ++at) {
      if (all_[at].asked != asked) continue;
      last_[static_cast<std::size_t>(asked.what)] = static_cast<std::uint8_t>(at);
      return &all_[at];
    }
    return nullptr;
  }
  const entry& add(const entry& made) {
    newest_ = (newest_ + 1) % most;
    last_[static_cast<std::size_t>(made.asked.what)] = static_cast<std::uint8_t>(newest_);
    return all_[newest_] = made;
  }
  void forget() {
    for (entry& each : all_) each.asked = {};
  }

 private:
  static constexpr std::size_t most = 8;

  entry all_[most];
  std::size_t newest_ = 0;
  std::uint8_t last_[32] = {};  // by collective
};

/// One rank's side of a communicator, whatever its transport. Its address stays while calls are
/// under way.
class call_queue : public call_owner {
 public:
  call_queue(const call_queue&) = delete;
  call_queue& operator=(const call_queue&) = delete;

  match& matching() const { return matching_; }
  run_queue& queue() const { return queue_; }
  communicator_state& state() { return state_; }
  const communicator_state& state() const { return state_; }
  const node_map& nodes() {
    return state_.nodes([&](int rank) { return host_of(rank); });
  }
  /// The costs that calls are chosen by; equal on all ranks, while no call is under way.
  void set_costs(const network_cost& net) {
    const bool has_levels = net.far != link_cost{};
    choices_.set(net, has_levels && nodes().nodes() > 1 ? nodes().largest() : 0);
    known_.forget();
  }
  bool whole_world() const { return world_; }
  /// Among the ranks of this host: by their order, unless a launcher has said it.
  int local_rank() { return local_rank_ >= 0 ? local_rank_ : nodes().of(state_.rank()).local; }
  void local_rank(int said) { local_rank_ = said; }
  bool is_open() const { return open_; }
  const colls::tuning& choices() const { return choices_; }

  template <class Call = call<void>>
  Call* make(collective what) {
    operation_record like;
    like.what = what;
    like.started = never;
    return make<Call>(like);
  }

  /// A call that is wrong takes no number and sends nothing.
  template <class T>
  [[gnu::noinline, gnu::cold]] operation<T> refuse(call<T>* made, failure why) {
    why.observer = matching_.rank();
    why.communicator = state_.id();
    why.refused = true;
    made->refuse(why);
    if (log_enabled(log_level::info)) log_info("%s", to_text(made->why()).c_str());
    return operation<T>(made);
  }

  /// Makes a collective's call, numbers and starts it: `prepare(call)` makes its body.
  template <class Call, class Prepare>
  [[gnu::always_inline]] operation<typename Call::value_type> begin(const agreement& agreed,
                                                                    const options& how,
                                                                    std::size_t working_bytes,
                                                                    const Prepare& prepare) {
    using T = typename Call::value_type;
    Call* const made = make<Call>(agreed.record);
    if (!usable()) return unusable<T>(made);
    std::unique_ptr<Call> holder(made);
    made->sequence = state_.take_sequence(agreed.print, agreed.record.hash);
    made->working_bytes = working_bytes;
    // From here on an exception drops the call, so that peers need not wait for its number.
    const auto entered = [&] { return operation<T>(holder.release()); };
    try {
      enter(*made, how);
    } catch (...) {
      (void)entered();
      throw;
    }
    operation<T> started = entered();
    prepare(*made);
    if (admits(*made)) {
      admit(*made);
    } else {
      made->progressed = never;  // nothing can move before its turn comes
      if (first_deferred_ == nullptr) first_deferred_ = made;
    }
    kick();
    return started;
  }

  /// Point to point: no number; a deadline ends only this operation.
  template <class T, class Body>
  operation<T> begin_direct(call<T>* made, std::uint64_t tag, const options& how, Body body) {
    if (!usable()) return unusable(made);
    made->sequence = tag;
    made->expired = [](operation_record& self, const failure& why) {
      auto& late = static_cast<call_base&>(self);
      if (late.settle()) return;
      const bool alone = late.untouched != nullptr && late.untouched(late);
      match& with = *late.matching();
      communicator_state& of = *late.communicator;
      late.cut(why);
      if (!alone) with.revoke(of, why);
    };
    enter(*made, how);
    operation<T> started(made);
    (void)(made->body = body(*made));
    made->run();
    kick();
    return started;
  }

  /// Revokes the communicator on all ranks.
  void give_up(const failure& why) {
    matching_.revoke(state_, why);
    kick();
  }

  /// Ends what is under way with `closed` and takes no more calls.
  void leave() {
    if (!std::exchange(open_, false)) return;
    failure why(errc::closed, "this rank has closed the communicator");
    why.culprit = matching_.rank();
    bool numbered = false;
    while (call_base* const oldest = ours(matching_.first_under_way())) {
      numbered |= oldest->hash != 0;
      first_deferred_ = nullptr;
      oldest->cut(why);
    }
    // Peers count on the numbers that were taken.
    if (numbered) matching_.revoke(state_, why);
    state_.closing = true;
    matching_.remove(state_);
  }

 protected:
  call_queue(match& matching, run_queue& queue, std::uint32_t id, int rank, int size,
             std::shared_ptr<const std::vector<int>> members, bool whole_world)
      : matching_(matching),
        queue_(queue),
        state_(id, rank, size, std::move(members)),
        world_(whole_world) {
    matching_.add(state_);
  }
  ~call_queue() = default;  // who derives from it has left

  virtual time_point now() const = 0;
  /// The host of a rank of the world.
  virtual int host_of(int rank) const = 0;
  void ended(call_base& made) noexcept override {
    if (first_deferred_ == &made) first_deferred_ = next_deferred(made);
    matching_.end(made);
    if (made.hash != 0 && made.was_run()) {
      --running_;
      running_bytes_ -= made.working_bytes;
    }
    if (first_deferred_ != nullptr) admit_deferred();
  }
  known_calls& known() { return known_; }

 private:
  // More than this wait in call order for the older ones: working memory stays bounded, and since
  // the oldest always runs, the ranks' bounds need not agree.
  static constexpr int most_running = 64;
  static constexpr std::size_t most_bytes = 32 << 20;

  template <class Call>
  [[gnu::always_inline]] Call* make(const operation_record& like) {
    auto* const made = new Call(static_cast<call_owner*>(this), &matching_, queue_, like);
    made->communicator = &state_;
    return made;
  }

  bool usable() const { return open_ && !state_.failed() && !queue_.is_visited_elsewhere(); }
  template <class T>
  [[gnu::noinline, gnu::cold]] operation<T> unusable(call<T>* made) {
    if (open_ && !state_.failed()) return refuse(made, second_thread());
    failure why = state_.why();
    if (!open_) {
      why = failure(errc::closed, "this rank has closed the communicator");
      why.culprit = matching_.rank();
    }
    made->refuse(why);
    return operation<T>(made);
  }

  [[gnu::always_inline]] void enter(call_base& made, const options& how) {
    made.stream = how.stream;
    made.pinned = how.algorithm;
    made.sum = how.order;
    if (how.timeout) {
      made.started = now();
      made.deadline = how.timeout.after(made.started);
    }
    matching_.begin(made);
  }

  bool admits(const call_base& made) const {
    if (first_deferred_ != nullptr) return false;
    return running_ == 0 ||
           (running_ < most_running && running_bytes_ + made.working_bytes <= most_bytes);
  }

  template <class Call>
  [[gnu::always_inline]] void admit(Call& made) {
    ++running_;
    running_bytes_ += made.working_bytes;
    made.template run<Call>();
  }

  [[gnu::noinline]] void admit_deferred() {
    // A call that ends at once comes here again, under this loop.
    if (std::exchange(admitting_, true)) return;
    while (first_deferred_ != nullptr) {
      call_base& next = *first_deferred_;
      first_deferred_ = nullptr;
      if (!admits(next)) {
        first_deferred_ = &next;
        break;
      }
      first_deferred_ = next_deferred(next);
      next.progressed = 0;
      if (next.started != never) {
        next.announce_after = now() - next.started + 100 * milliseconds;
      }
      matching_.turn_has_come(next);
      admit(next);
    }
    admitting_ = false;
  }
  /// The first call of this communicator from `at` on, or null.
  call_base* ours(operation_record* at) const {
    while (at != nullptr && at->communicator != &state_) at = at->next;
    return static_cast<call_base*>(at);
  }
  call_base* next_deferred(const call_base& after) const {
    call_base* at = ours(after.next);
    while (at != nullptr && at->hash == 0) at = ours(at->next);
    return at;
  }

  match& matching_;
  run_queue& queue_;
  communicator_state state_;
  colls::tuning choices_;
  known_calls known_;
  bool world_;
  int local_rank_ = -1;
  bool open_ = true;
  call_base* first_deferred_ = nullptr;  // all numbered calls from here on wait
  bool admitting_ = false;
  int running_ = 0;
  std::size_t running_bytes_ = 0;
};

}  // namespace colls::detail
