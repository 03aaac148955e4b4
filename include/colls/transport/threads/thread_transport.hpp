// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The threads transport: every rank is a thread of this process with its own tag matcher, run queue
// and driver (event loop).

#include <colls/base/intrusive_list.hpp>
#include <colls/channel/operations.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/os/cpu_affinity.hpp>
#include <colls/os/log_writer.hpp>
#include <colls/transport/threads/control_messages.hpp>
#include <colls/transport/threads/message.hpp>

#include <cstring>

namespace colls {

/// One rank of a `thread_world`. Only the thread of this rank may use this object. The receiver of
/// a message copies or reduces it directly from the sender's buffer. For a point-to-point message
/// up to the eager limit, the sender can instead copy the message to a separate buffer, so that it
/// does not wait for the receiver. Threads communicate by putting entries into each other's
/// inboxes.
class thread_transport final : failure_hooks {
 public:
  static constexpr bool consumes = true;
  static constexpr network_cost costs() { return threads_cost; }

  thread_transport(threads::inboxes& inboxes, int rank)
      : inboxes_(inboxes),
        inbox_(inboxes[rank]),
        matcher_(rank),
        gone_(index(inboxes.size())),
        last_collectives_(index(inboxes.size())),
        control_(inboxes, rank),
        failure_completion_(*this),
        waker_(inbox_) {
    matcher_.add(*this);
    queue_.waker = &waker_;
  }
  thread_transport(const thread_transport&) = delete;
  thread_transport& operator=(const thread_transport&) = delete;
  ~thread_transport() { matcher_.remove(static_cast<failure_hooks&>(*this)); }

  int rank() const { return matcher_.rank(); }
  int size() const { return inboxes_.size(); }
  tag_matcher& matching() { return matcher_; }
  run_queue& queue() { return queue_; }
  time_point now() const {
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    return time_point{clock.tv_sec} * seconds + clock.tv_nsec;
  }
  void wake_driver() {}
  thread_transport& driver() { return *this; }
  int node_of(int) const { return 0; }

  class send_operation {
   public:
    send_operation(thread_transport& net, const message_key& dest, const_bytes bytes,
                   operation_record& record)
        : net_(net), record_(record), key_(dest), data_(bytes.data), size_(bytes.size) {}
    send_operation(send_operation&& other) noexcept
        : send_operation(other.net_, other.key_, {other.data_, other.size_}, other.record_) {}
    ~send_operation() {
      if (waiting_) net_.withdraw(*this);
    }

    bool start(completion& done) {
      if (record_.communicator->failed()) {
        ec_ = record_.communicator->reason().code;
        return true;
      }
      done_ = &done;
      return net_.start(*this);
    }
    /// See `sourcing_transport`.
    void read_from(payload_source& payload) { source_ = &payload; }
    std::error_code result() const { return ec_; }
    bool untouched() const { return message_ != nullptr && message_->is_unclaimed(); }

   private:
    friend thread_transport;
    thread_transport& net_;
    operation_record& record_;
    message_key key_;  // its `peer` is the destination
    const std::byte* data_;
    payload_source* source_ = nullptr;  // if not null, in place of `data_`
    std::size_t size_;
    completion* done_ = nullptr;
    std::error_code ec_;
    bool waiting_ = false;
    // The message that the receiver has not returned yet, or null if there is none. A send can wait
    // without such a message: after the receiver has returned the message with an error, the send
    // may wait until the communicator fails.
    threads::message* message_ = nullptr;
    list_links<send_operation> links_;  // of the list of waiting sends
  };

  using recv_operation = receive_operation<thread_transport>;
  friend recv_operation;

  send_operation send(const message_key& dest, const_bytes bytes, operation_record& record) {
    return {*this, dest, bytes, record};
  }
  recv_operation recv(const message_key& source, mutable_bytes bytes, operation_record& record) {
    return {*this, source, bytes, record};
  }

  // ---- the driver of this rank's thread

  bool poll() {
    const bool moved = process(inbox_.take());
    if (++polls_ % 256 == 0) matcher_.sweep(now());
    return queue_.run() || moved;
  }
  void idle(unsigned idle_polls) {
    // A device cannot wake this thread, and a sleep takes longer than many device kernels. If the
    // thread may spin, it therefore does not sleep while it waits for a device.
    if (idle_polls <= spin_ || (spin_ > 0 && queue_.is_watching())) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      return;
    }
    matcher_.sweep(now());
    if (queue_.empty()) inbox_.sleep(queue_.is_watching() ? max_poll_sleep : tick);
  }
  void enter() {}
  void leave() {}
  /// Sets the number of polls in a row without progress after which the thread sleeps.
  void spin(unsigned polls) { spin_ = polls; }

  /// Leaves the world. Operations of other ranks that still need this rank fail with `closed`.
  task<> close(time_point) {
    depart();
    co_return;
  }
  /// Leaves the world as `close` does, but creates no task. Does nothing if this rank has already
  /// left.
  void depart() {
    if (departed_) return;
    process(inbox_.take());
    if (matcher_.any_in_flight()) matcher_.peer_died(rank(), peer_left_failure(rank()));
    departed_ = true;
    send_goodbyes(false);
    process(inbox_.close());
  }

 private:
  using message = threads::message;
  using control_message = threads::control_message;
  using inbox_entry = threads::inbox_entry;
  static constexpr time_point tick = 50 * milliseconds;
  /// Returns how many bytes of the eager window a buffered message of `size` bytes occupies. The
  /// eager window limits the total size of the buffered messages that a rank has in flight.
  static constexpr std::size_t weight(std::size_t size) { return size + 64; }

  // A completion that makes this rank fail. `fail_without_memory` posts it, because a rank without
  // memory can neither send control messages nor keep the messages that arrive. That function also
  // sends goodbyes, which inform the peers of the failure at once.
  struct failure_completion : completion {
    explicit failure_completion(thread_transport& transport)
        : completion(
              [](completion& self) noexcept {
                thread_transport& net = static_cast<failure_completion&>(self).owner;
                net.matcher_.peer_died(net.rank(), without_memory(net.rank()));
              },
              &transport.queue_),
          owner(transport) {}
    thread_transport& owner;
  };
  static failure without_memory(int rank) {
    failure reason(errc::peer_failed);
    reason.culprit = rank;
    reason.set_detail("rank %d has no memory for messages to others and from them", rank);
    return reason;
  }
  void fail_without_memory() noexcept {
    send_goodbyes(true);
    failure_completion_.post();
  }
  void send_goodbyes(bool is_broken) noexcept {
    if (std::exchange(sent_goodbyes_, true)) return;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && !is_gone(peer)) control_.goodbye(peer, is_broken);
    }
  }

  // ---- sending

  bool start(send_operation& send) {
    const int peer = send.key_.peer;
    message& msg = messages_.take();
    msg.type = inbox_entry::kind::message;
    msg.key = send.key_;
    msg.key.peer = rank();  // for the receiver, the peer is the sender
    msg.size = send.size_;
    msg.hash = send.record_.hash;
    msg.return_inbox = &inbox_;
    msg.data = send.data_;
    msg.source = send.source_;
    const std::size_t occupied = weight(send.size_);
    const bool buffered = send.key_.is_point_to_point() && send.size_ <= eager_limit &&
                          eager_ + occupied <= eager_window &&
                          (msg.copy = matcher_.acquire_scratch(occupied)).memory != nullptr;
    if (buffered) {
      eager_ += occupied;
      if (send.size_ != 0) std::memcpy(msg.copy.memory, send.data_, send.size_);
      msg.data = static_cast<const std::byte*>(msg.copy.memory);
    } else {
      msg.owner = &send;
      send.message_ = &msg;
      add_waiting(send);
    }
    msg.progress.store(message::stage::available, std::memory_order_relaxed);
    if (departed_ || !inboxes_[peer].put(msg)) {
      if (!buffered) remove_waiting(send);
      msg.owner = nullptr;
      send.message_ = nullptr;
      msg.result = {};
      handle_returned(msg);
      // The inbox may contain control messages that explain why the peer has left. They are
      // processed first, so that the send fails with that reason.
      process(inbox_.take());
      send.ec_ = matcher_.peer_left(departed_ ? rank() : peer, send.record_);
      return true;
    }
    if (buffered) send.record_.bytes += send.size_;
    return buffered;
  }

  void add_waiting(send_operation& send) {
    send.waiting_ = true;
    waiting_sends_.push_front(send);
  }
  void remove_waiting(send_operation& send) {
    send.waiting_ = false;
    waiting_sends_.remove(send);
  }
  void finish(send_operation& send, std::error_code ec) {
    remove_waiting(send);
    send.ec_ = ec;
    if (!ec) send.record_.bytes += send.size_;
    send.done_->post();
  }

  // Cancels the message of `send`. Returns false if the receiver has already claimed the message.
  // The receiver then returns the message after it has processed it.
  bool try_cancel(send_operation& send) {
    message& msg = *send.message_;
    if (!msg.try_cancel()) return false;
    send.message_ = nullptr;
    msg.owner = nullptr;
    msg.cancellation.type = inbox_entry::kind::cancelled;
    msg.cancellation.subject = &msg;
    // The result of `put` is ignored. `put` returns false only if the receiver has left the world.
    // The receiver then never returns the message, so this rank does not reuse it.
    inboxes_[send.key_.peer].put(msg.cancellation);
    return true;
  }

  void withdraw(send_operation& send) {
    if (send.message_ != nullptr && !try_cancel(send)) {
      send.message_->await_reader();
      send.message_->owner = nullptr;
    }
    remove_waiting(send);
  }

  // Handles a message that this rank has sent and the receiver has returned. The receiver returns a
  // message after it has received or rejected the message, or after the sender has cancelled it.
  // Also called for a message that cannot be sent, because the receiver or this rank has left.
  void handle_returned(message& msg) {
    auto* const send = static_cast<send_operation*>(std::exchange(msg.owner, nullptr));
    const std::error_code result = msg.result;
    if (msg.copy.memory != nullptr) {
      matcher_.release_scratch(std::exchange(msg.copy, {}));
      eager_ -= weight(msg.size);
    }
    messages_.give(msg);
    if (send == nullptr) return;
    send->message_ = nullptr;
    if (!result) {
      finish(*send, {});
      return;
    }
    // The receiver has returned the message with an error. After a mismatch, the send waits until
    // the communicator fails, because the reason of that failure names both calls. If the
    // communicator has already failed, the send completes now.
    communicator_state& communicator = *send->record_.communicator;
    if (result == errc::cancelled && send->waiting_) return finish(*send, result);
    if (result == errc::closed) matcher_.peer_left(send->key_.peer, send->record_);
    if (send->waiting_ && communicator.failed()) finish(*send, communicator.reason().code);
  }

  // ---- receiving

  bool start(posted_receive& receive) {
    for (;;) {
      unexpected_message* const arrived = matcher_.post(receive);
      if (arrived == nullptr) break;
      auto& msg = static_cast<message&>(*arrived);
      msg.matcher = nullptr;
      if (!msg.claim()) {
        if (!receive.takes_probed) continue;
        receive.ec = errc::cancelled;
        return true;
      }
      if (!deliver(receive, msg)) return false;
      receive.record->bytes += receive.received;
      return true;
    }
    if (!is_gone(receive.key.peer)) return false;
    matcher_.dequeue(receive);
    receive.ec = matcher_.peer_left(receive.key.peer, *receive.record);
    return true;
  }

  // Delivers a claimed message to `receive`, which is not in the queue of the matcher. Returns true
  // if this completes the receive, with or without an error. If the message and the receive belong
  // to different calls, puts the receive into the queue of the matcher and returns false. The
  // receive then waits until the communicator fails, because the reason of that failure names both
  // calls.
  bool deliver(posted_receive& receive, message& msg) {
    receive.ec = matcher_.check(receive, msg.key.peer, msg.size, msg.hash);
    if (!receive.ec) msg.deliver_to(receive);
    msg.return_to_sender(msg.key.is_point_to_point() ? std::error_code() : receive.ec);
    if (receive.ec != errc::mismatch || receive.record->communicator->failed()) return true;
    matcher_.enqueue(receive);
    return false;
  }

  // The collective to which the last collective message or announcement from a peer belongs.
  struct last_collective {
    std::uint32_t communicator = 0;
    std::uint64_t sequence = 0;
  };
  void record_collective(const message_key& key, std::uint64_t hash) {
    if (hash != 0) last_collectives_[index(key.peer)] = {key.communicator, key.sequence};
  }

  void handle_message(message& msg) {
    record_collective(msg.key, msg.hash);
    if (posted_receive* const receive = matcher_.peek(msg.key)) {
      if (!msg.claim()) return;
      matcher_.take(*receive, msg.key);
      if (deliver(*receive, msg)) receive->finish(receive->ec);
      return;
    }
    const communicator_state* const known = matcher_.find(msg.key.communicator);
    const bool has_failed = known != nullptr && known->failed();
    if (!matcher_.inspect(msg.key, msg.hash)) {
      msg.reject(has_failed ? make_error_code(known->reason().code)
                            : make_error_code(errc::mismatch));
    } else {
      keep(msg);
    }
  }
  void keep(message& msg) noexcept {
    try {
      matcher_.add_unexpected(msg);
      msg.matcher = &matcher_;
    } catch (const std::bad_alloc&) {
      msg.reject(make_error_code(errc::not_enough_memory));
      fail_without_memory();
    }
  }
  void handle_cancel(message& msg) {
    if (tag_matcher* const matcher = std::exchange(msg.matcher, nullptr))
      matcher->remove_unexpected(msg);
    msg.return_to_sender({});
  }

  bool process(inbox_entry* list) {
    const bool any = list != nullptr;
    while (list != nullptr) {
      inbox_entry& first = *std::exchange(list, list->next_entry);
      switch (first.type) {
        case inbox_entry::kind::message:
          handle_message(static_cast<message&>(first));
          break;
        case inbox_entry::kind::cancelled:
          handle_cancel(*static_cast<message::cancel_notice&>(first).subject);
          break;
        case inbox_entry::kind::returned:
          handle_returned(static_cast<message&>(first));
          break;
        case inbox_entry::kind::processed:
          control_.recycle(static_cast<control_message&>(first));
          break;
        case inbox_entry::kind::wake:
          waker_.took_entry();
          break;
        case inbox_entry::kind::goodbye:
          handle_goodbye(static_cast<const threads::goodbye_message&>(first));
          break;
        default:
          handle_control(static_cast<control_message&>(first));
      }
    }
    return any;
  }

  // ---- control messages

  void handle_control(control_message& msg) noexcept {
    try {
      apply(msg);
    } catch (const std::bad_alloc&) {
      fail_without_memory();
    }
    threads::control_messages::give_back(msg);
  }
  void apply(const control_message& msg) {
    const int peer = msg.key.peer;
    switch (msg.type) {
      case inbox_entry::kind::announce:
        matcher_.inspect(msg.key, msg.hash);
        record_collective(msg.key, msg.hash);
        matcher_.receive_report(peer, msg.key.communicator, msg.state, now());
        control_.report(peer, msg.key.communicator,
                        matcher_.make_report(msg.key.communicator, now()));
        break;
      case inbox_entry::kind::report:
        matcher_.receive_report(peer, msg.key.communicator, msg.state, now());
        break;
      case inbox_entry::kind::dispute:
        matcher_.compare(peer, msg.key.communicator, msg.key.sequence, msg.print);
        break;
      case inbox_entry::kind::recovery:
        // The sender is a thread of this process, so the message is valid.
        (void)matcher_.receive_recovery(peer, msg.key.communicator, msg.recovery);
        break;
      default:
        matcher_.revoke(msg.key.communicator, reported_failure(msg.reason), peer);
    }
  }

  bool is_gone(int peer) const { return peer >= 0 && gone_[index(peer)]; }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // Handles a goodbye: the peer has left the world or has failed. Revokes each communicator on
  // which an operation of this rank still waits for this peer.
  void handle_goodbye(const threads::goodbye_message& last) {
    const int peer = last.source;
    gone_[index(peer)] = true;
    if (last.is_broken) matcher_.peer_died(peer, without_memory(peer));
    while (communicator_state* const communicator = matcher_.communicator_waiting_for(peer)) {
      matcher_.revoke(*communicator, peer_left_failure(peer));
    }
    for (send_operation* send = waiting_sends_.front(); send != nullptr;) {
      communicator_state& communicator = *send->record_.communicator;
      if (send->key_.peer != peer || communicator.failed()) {
        send = waiting_sends_.next(*send);
      } else {
        matcher_.revoke(communicator, peer_left_failure(peer));
        send = waiting_sends_.front();
      }
    }
  }
  void revoked(communicator_state& communicator, const failure& reason, int reporter) override {
    waiting_sends_.for_each([&](send_operation& send) {
      // If the receiver is reading the message of a send, that send completes when the receiver
      // returns the message. This function must not wait for that, because it may run inside a
      // reduction that reads a message. Two ranks that read each other's messages could then wait
      // for each other forever.
      if (send.record_.communicator == &communicator &&
          (send.message_ == nullptr || try_cancel(send))) {
        finish(send, reason.code);
      }
    });
    for (int i = 0; i < communicator.size(); ++i) {
      const int peer = communicator.world_rank(i);
      if (peer == rank() || peer == reporter || is_gone(peer)) continue;
      if (!control_.revoke(peer, communicator.id(), reason)) return fail_without_memory();
    }
  }
  void announce(int peer, const operation_record& waiting, const state_report& state) override {
    control_.announce(peer, waiting, state);
  }
  void report(int peer, std::uint32_t communicator, const state_report& state) override {
    control_.report(peer, communicator, state);
  }
  void add_awaited(const operation_record& waiting, std::vector<int>& ranks) override {
    waiting_sends_.for_each([&](const send_operation& send) {
      if (&send.record_ == &waiting) ranks.push_back(send.key_.peer);
    });
  }
  std::uint64_t newest_sequence_from(int peer, std::uint32_t communicator) override {
    const last_collective& last = last_collectives_[index(peer)];
    return last.communicator == communicator ? last.sequence : 0;
  }
  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& print) override {
    if (!control_.dispute(peer, communicator, sequence, print)) fail_without_memory();
  }
  void refuse(int peer, const failure& reason) override {
    if (!control_.revoke(peer, reason.communicator, reason)) fail_without_memory();
  }

  bool recover(int peer, std::uint32_t communicator, std::span<const std::byte> bytes) override {
    if (is_gone(peer)) return false;
    if (!control_.recover(peer, communicator, bytes)) fail_without_memory();
    return true;
  }
  bool can_recover() const override { return true; }

  threads::inboxes& inboxes_;
  threads::inbox& inbox_;  // the inbox of this rank
  tag_matcher matcher_;
  run_queue queue_;
  unsigned polls_ = 0;
  unsigned spin_ = 0;
  bool departed_ = false;
  bool sent_goodbyes_ = false;
  std::vector<bool> gone_;                         // whether the goodbye of a rank has arrived
  std::vector<last_collective> last_collectives_;  // indexed by rank
  intrusive_list<send_operation, &send_operation::links_> waiting_sends_;
  std::size_t eager_ = 0;  // total weight of buffered messages in flight
  threads::node_pool<message> messages_;
  threads::control_messages control_;
  failure_completion failure_completion_;
  threads::inbox_waker waker_;
};
static_assert(sourcing_transport<thread_transport>);
static_assert(driver<thread_transport>);

/// The ranks of a world, and the inboxes through which their threads communicate. A program must
/// create the `thread_world` before the threads, and must destroy it after their communicators. The
/// thread of rank `r` may use only `world[r]`.
class thread_world {
 public:
  explicit thread_world(int size) : inboxes_(size) {
    const int cores = detail::cores();
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<thread_transport>(inboxes_, rank));
      // If there are more ranks than cores, a waiting rank sleeps at once. If it spun instead, it
      // would occupy a core that another rank needs. If it yielded, it might run again only after
      // all other programs on its core.
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
