// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// threads: every rank is a thread of this process, with its own match, run queue and driver.

#include <colls/channel/receive.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/os/cpu_affinity.hpp>
#include <colls/os/log_writer.hpp>
#include <colls/transport/threads/control_messages.hpp>
#include <colls/transport/threads/message.hpp>

#include <cstring>

namespace colls {

/// One rank of a `thread_world`, used by one thread. A receiver copies a message, or reduces it,
/// from where the sender left it; a point-to-point message of up to the eager limit is buffered, so
/// that its sender need not wait. Between the threads goes nothing but items of their inboxes.
class thread_transport final : mover {
 public:
  static constexpr bool consumes = true;
  static constexpr network_cost costs() { return threads_cost; }

  thread_transport(threads::inboxes& all, int rank)
      : inboxes_(all),
        inbox_(all[rank]),
        match_(rank),
        gone_(index(all.size())),
        heard_(index(all.size())),
        speech_(all, rank),
        broken_(*this) {
    match_.add(*this);
  }
  thread_transport(const thread_transport&) = delete;
  thread_transport& operator=(const thread_transport&) = delete;
  ~thread_transport() { match_.remove(static_cast<mover&>(*this)); }

  int rank() const { return match_.rank(); }
  int size() const { return inboxes_.size(); }
  match& matching() { return match_; }
  run_queue& queue() { return queue_; }
  time_point now() const {
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    return time_point{clock.tv_sec} * seconds + clock.tv_nsec;
  }
  void kick() {}
  thread_transport& driver() { return *this; }
  int node_of(int) const { return 0; }

  class send_operation {
   public:
    send_operation(thread_transport& net, const message_key& to, const_bytes from,
                   operation_record& record)
        : net_(net), record_(record), key_(to), data_(from.data), size_(from.size) {}
    send_operation(send_operation&& other) noexcept
        : send_operation(other.net_, other.key_, {other.data_, other.size_}, other.record_) {}
    ~send_operation() {
      if (waiting_) net_.withdraw(*this);
    }

    bool start(completion& done) {
      if (record_.communicator->failed()) {
        ec_ = record_.communicator->why().code;
        return true;
      }
      done_ = &done;
      return net_.start(*this);
    }
    std::error_code result() const { return ec_; }
    bool untouched() const { return message_ != nullptr && message_->is_offered(); }

   private:
    friend thread_transport;
    thread_transport& net_;
    operation_record& record_;
    message_key key_;  // with the destination as peer
    const std::byte* data_;
    std::size_t size_;
    completion* done_ = nullptr;
    std::error_code ec_;
    bool waiting_ = false;
    threads::message* message_ = nullptr;  // null while waiting: the verdict is still to come
    send_operation* next_ = nullptr;       // among the sends that wait
    send_operation* prev_ = nullptr;
  };

  using recv_operation = receive_operation<thread_transport>;
  friend recv_operation;

  send_operation send(const message_key& to, const_bytes from, operation_record& record) {
    return {*this, to, from, record};
  }
  recv_operation recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return {*this, from, into, record};
  }

  // ---- the driver of this rank's thread

  bool poll() {
    const bool moved = take_in(inbox_.take());
    if (++polls_ % 256 == 0) match_.sweep(now());
    return queue_.run() || moved;
  }
  void idle(unsigned idle_polls) {
    // Nothing wakes who waits for a device, and a nap takes longer than many of its kernels.
    if (idle_polls <= spin_ || (spin_ > 0 && queue_.is_watching())) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      return;
    }
    match_.sweep(now());
    if (queue_.empty()) inbox_.sleep(queue_.is_watching() ? watched_nap : tick);
  }
  void enter() {}
  void leave() {}
  /// How many polls may find nothing before the thread sleeps.
  void spin(unsigned polls) { spin_ = polls; }

  /// Leaves the world: what the others still want of this rank ends with `closed`.
  task<> close(time_point) {
    depart();
    co_return;
  }
  /// The same from outside of a task; once only counts.
  void depart() {
    if (departed_) return;
    take_in(inbox_.take());
    if (match_.any_under_way()) match_.died(rank(), has_left(rank()));
    departed_ = true;
    say_goodbye(false);
    take_in(inbox_.close());
  }

 private:
  using message = threads::message;
  using word = threads::word;
  using item = threads::item;
  static constexpr time_point tick = 50 * milliseconds;
  /// What a buffered message takes of the window.
  static constexpr std::size_t weight(std::size_t size) { return size + 64; }

  // Tells later that this rank has ended: for want of memory it cannot say what is to be said, or
  // keep what came. The peers are told at once.
  struct broken : completion {
    explicit broken(thread_transport& which)
        : completion(
              [](completion& self) noexcept {
                thread_transport& net = static_cast<broken&>(self).of;
                net.match_.died(net.rank(), without_memory(net.rank()));
              },
              &which.queue_),
          of(which) {}
    thread_transport& of;
  };
  static failure without_memory(int rank) {
    failure why(errc::peer_failed);
    why.culprit = rank;
    why.say("rank %d has no memory for messages to others and from them", rank);
    return why;
  }
  void break_off() noexcept {
    say_goodbye(true);
    broken_.post();
  }
  void say_goodbye(bool is_broken) noexcept {
    if (std::exchange(said_goodbye_, true)) return;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && !is_gone(peer)) speech_.goodbye(peer, is_broken);
    }
  }

  // ---- sending

  bool start(send_operation& send) {
    const int peer = send.key_.peer;
    message& offered = messages_.take();
    offered.what = item::kind::message;
    offered.key = send.key_;
    offered.key.peer = rank();  // as the receiver sees it
    offered.size = send.size_;
    offered.hash = send.record_.hash;
    offered.home = &inbox_;
    offered.data = send.data_;
    const std::size_t weighs = weight(send.size_);
    const bool buffered = send.key_.is_point_to_point() && send.size_ <= eager_limit &&
                          eager_ + weighs <= eager_window &&
                          (offered.copy = match_.take_scratch(weighs)).memory != nullptr;
    if (buffered) {
      eager_ += weighs;
      if (send.size_ != 0) std::memcpy(offered.copy.memory, send.data_, send.size_);
      offered.data = static_cast<const std::byte*>(offered.copy.memory);
    } else {
      offered.owner = &send;
      send.message_ = &offered;
      hold(send);
    }
    offered.at.store(message::stage::offered, std::memory_order_relaxed);
    if (departed_ || !inboxes_[peer].put(offered)) {
      if (!buffered) unhold(send);
      offered.owner = nullptr;
      send.message_ = nullptr;
      offered.verdict = {};
      returned(offered);
      // What it said before it left explains more.
      take_in(inbox_.take());
      send.ec_ = match_.left(departed_ ? rank() : peer, send.record_);
      return true;
    }
    if (buffered) send.record_.bytes += send.size_;
    return buffered;
  }

  void hold(send_operation& send) {
    send.waiting_ = true;
    send.prev_ = nullptr;
    send.next_ = first_sent_;
    if (first_sent_ != nullptr) first_sent_->prev_ = &send;
    first_sent_ = &send;
  }
  void unhold(send_operation& send) {
    send.waiting_ = false;
    (send.prev_ != nullptr ? send.prev_->next_ : first_sent_) = send.next_;
    if (send.next_ != nullptr) send.next_->prev_ = send.prev_;
  }
  void finish(send_operation& send, std::error_code ec) {
    unhold(send);
    send.ec_ = ec;
    if (!ec) send.record_.bytes += send.size_;
    send.done_->post();
  }

  // False: its receiver has it; the message is on its way back.
  bool take_back(send_operation& send) {
    message& offered = *send.message_;
    if (!offered.take_back()) return false;
    send.message_ = nullptr;
    offered.owner = nullptr;
    offered.taking_back.what = item::kind::taken_back;
    offered.taking_back.of = &offered;
    // A receiver that has left hands nothing back; the message is not used again.
    inboxes_[send.key_.peer].put(offered.taking_back);
    return true;
  }

  void withdraw(send_operation& send) {
    if (send.message_ != nullptr && !take_back(send)) {
      send.message_->await_reader();
      send.message_->owner = nullptr;
    }
    unhold(send);
  }

  // The receiver has had it, or wants none of it.
  void returned(message& mine) {
    auto* const send = static_cast<send_operation*>(std::exchange(mine.owner, nullptr));
    const std::error_code verdict = mine.verdict;
    if (mine.copy.memory != nullptr) {
      match_.give_scratch(std::exchange(mine.copy, {}));
      eager_ -= weight(mine.size);
    }
    messages_.give(mine);
    if (send == nullptr) return;
    send->message_ = nullptr;
    if (!verdict) {
      finish(*send, {});
      return;
    }
    // Of a mismatch the reason is still to come, unless it was here first.
    communicator_state& communicator = *send->record_.communicator;
    if (verdict == errc::closed) match_.left(send->key_.peer, send->record_);
    if (send->waiting_ && communicator.failed()) finish(*send, communicator.why().code);
  }

  // ---- receiving

  bool start(posted& receive) {
    for (;;) {
      arrival* const first = match_.post(receive);
      if (first == nullptr) break;
      auto& found = static_cast<message&>(*first);
      found.kept_by = nullptr;
      if (!found.claim()) continue;
      if (!settle(receive, found)) return false;
      receive.record->bytes += receive.received;
      return true;
    }
    if (!is_gone(receive.key.peer)) return false;
    match_.unlist(receive);
    receive.ec = match_.left(receive.key.peer, *receive.record);
    return true;
  }

  // A claimed message and a receive that is off its list. False: they are of different calls, and
  // the receive waits for the verdict, which names both sides.
  bool settle(posted& receive, message& taken) {
    receive.ec = match_.check(receive, taken.key.peer, taken.size, taken.hash);
    if (!receive.ec) receive.accept(taken.data, taken.size, taken.key.peer);
    taken.hand_back(taken.key.is_point_to_point() ? std::error_code() : receive.ec);
    if (receive.ec != errc::mismatch || receive.record->communicator->failed()) return true;
    match_.list(receive);
    return false;
  }

  // The last collective that something of each peer was of.
  struct heard_of {
    std::uint32_t communicator = 0;
    std::uint64_t sequence = 0;
  };
  void note(const message_key& key, std::uint64_t hash) {
    if (hash != 0) heard_[index(key.peer)] = {key.communicator, key.sequence};
  }

  void arrived(message& offered) {
    note(offered.key, offered.hash);
    if (posted* const receive = match_.peek(offered.key)) {
      if (!offered.claim()) return;
      match_.unlist(*receive);
      if (settle(*receive, offered)) receive->finish(receive->ec);
      return;
    }
    const communicator_state* const known = match_.find(offered.key.communicator);
    if (known != nullptr && known->failed()) {
      refuse(offered.key.peer, known->why());
      offered.reject(known->why().code);
    } else if (!match_.inspect(offered.key, offered.hash)) {
      offered.reject(make_error_code(errc::mismatch));
    } else {
      keep(offered);
    }
  }
  void keep(message& offered) noexcept {
    try {
      match_.keep(offered);
      offered.kept_by = &match_;
    } catch (const std::bad_alloc&) {
      offered.reject(make_error_code(errc::not_enough_memory));
      break_off();
    }
  }
  void taken_back(message& theirs) {
    if (match* const where = std::exchange(theirs.kept_by, nullptr)) where->forget(theirs);
    theirs.hand_back({});
  }

  bool take_in(item* list) {
    const bool any = list != nullptr;
    while (list != nullptr) {
      item& first = *std::exchange(list, list->following);
      switch (first.what) {
        case item::kind::message:
          arrived(static_cast<message&>(first));
          break;
        case item::kind::taken_back:
          taken_back(*static_cast<message::notice&>(first).of);
          break;
        case item::kind::returned:
          returned(static_cast<message&>(first));
          break;
        case item::kind::spent:
          speech_.reuse(static_cast<word&>(first));
          break;
        case item::kind::goodbye:
          goodbye(static_cast<const threads::farewell&>(first));
          break;
        default:
          heard(static_cast<word&>(first));
      }
    }
    return any;
  }

  // ---- what ranks tell each other

  void heard(word& said) noexcept {
    try {
      act_on(said);
    } catch (const std::bad_alloc&) {
      break_off();
    }
    threads::speech::heard(said);
  }
  void act_on(const word& said) {
    const int peer = said.key.peer;
    switch (said.what) {
      case item::kind::announce:
        match_.inspect(said.key, said.hash);
        note(said.key, said.hash);
        match_.hear(peer, said.key.communicator, said.known, now());
        speech_.report(peer, said.key.communicator, match_.report_on(said.key.communicator, now()));
        break;
      case item::kind::report:
        match_.hear(peer, said.key.communicator, said.known, now());
        break;
      case item::kind::dispute:
        match_.compare(peer, said.key.communicator, said.key.sequence, said.print);
        break;
      default:
        match_.revoke(said.key.communicator, reported_failure(said.why), peer);
    }
  }

  bool is_gone(int peer) const { return peer >= 0 && gone_[index(peer)]; }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // A peer has left: whatever still waits for it waits in vain.
  void goodbye(const threads::farewell& last) {
    const int peer = last.from;
    gone_[index(peer)] = true;
    if (last.is_broken) match_.died(peer, without_memory(peer));
    while (communicator_state* const communicator = match_.waiting_for(peer)) {
      match_.revoke(*communicator, has_left(peer));
    }
    for (send_operation* send = first_sent_; send != nullptr;) {
      communicator_state& communicator = *send->record_.communicator;
      if (send->key_.peer != peer || communicator.failed()) {
        send = send->next_;
      } else {
        match_.revoke(communicator, has_left(peer));
        send = first_sent_;
      }
    }
  }
  void revoked(communicator_state& communicator, const failure& why, int told_by) override {
    for (send_operation* send = first_sent_; send != nullptr;) {
      send_operation* const following = send->next_;
      // One that is being read ends when it comes back: the reader may be in a reduction that
      // revokes and waits for its own sends.
      if (send->record_.communicator == &communicator &&
          (send->message_ == nullptr || take_back(*send))) {
        finish(*send, why.code);
      }
      send = following;
    }
    for (int i = 0; i < communicator.size(); ++i) {
      const int peer = communicator.world_rank(i);
      if (peer == rank() || peer == told_by || is_gone(peer)) continue;
      if (!speech_.revoke(peer, communicator.id(), why)) return break_off();
    }
  }
  void announce(int peer, const operation_record& waiting, const state_report& known) override {
    speech_.announce(peer, waiting, known);
  }
  void report(int peer, std::uint32_t communicator, const state_report& known) override {
    speech_.report(peer, communicator, known);
  }
  void add_awaited(const operation_record& waiting, std::vector<int>& to) override {
    for (const send_operation* send = first_sent_; send != nullptr; send = send->next_) {
      if (&send->record_ == &waiting) to.push_back(send->key_.peer);
    }
  }
  std::uint64_t heard_in(int peer, std::uint32_t communicator) override {
    const heard_of& last = heard_[index(peer)];
    return last.communicator == communicator ? last.sequence : 0;
  }
  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& ours) override {
    if (!speech_.dispute(peer, communicator, sequence, ours)) break_off();
  }
  void refuse(int peer, const failure& why) override {
    if (!speech_.revoke(peer, why.communicator, why)) break_off();
  }

  threads::inboxes& inboxes_;
  threads::inbox& inbox_;  // this rank's
  match match_;
  run_queue queue_;
  unsigned polls_ = 0;
  unsigned spin_ = 0;
  bool departed_ = false;
  bool said_goodbye_ = false;
  std::vector<bool> gone_;                // by rank: it has said goodbye
  std::vector<heard_of> heard_;           // by rank
  send_operation* first_sent_ = nullptr;  // those that wait
  std::size_t eager_ = 0;                 // weight of the messages whose copies are under way
  threads::stock<message> messages_;
  threads::speech speech_;
  broken broken_;
};
static_assert(consuming_transport<thread_transport>);
static_assert(driver<thread_transport>);

/// What the threads share: make it before them, and let it outlive their communicators. The thread
/// of rank r uses nothing but `world[r]`.
class thread_world {
 public:
  explicit thread_world(int size) : inboxes_(size) {
    const int cores = detail::cores();
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<thread_transport>(inboxes_, rank));
      // With more ranks than cores, one that spins takes the core of one that could work; one that
      // yields waits behind all other programs.
      ranks_.back()->spin(size <= cores ? 500 : 0);
    }
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  thread_transport& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  threads::inboxes inboxes_;
  std::vector<std::unique_ptr<thread_transport>> ranks_;
};

}  // namespace colls
