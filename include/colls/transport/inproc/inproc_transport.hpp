// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// inproc: all ranks are coroutines on one thread. The embedded default; it needs nothing.

#include <colls/channel/receive.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/os/log_writer.hpp>
#include <colls/transport/inproc/completion_barrier.hpp>

#include <time.h>

#include <cstring>
#include <memory>

namespace colls {

class inproc_world;

/// One rank of an `inproc_world`. A message moves in one copy, or is reduced where the sender left
/// it, as soon as both sides have asked; a point-to-point message of up to the eager limit is
/// buffered, so that its sender need not wait.
class inproc_transport final : mover {
 public:
  static constexpr bool consumes = true;
  static constexpr network_cost costs() { return one_thread_cost; }

  inproc_transport(inproc_world& ranks, int rank);
  inproc_transport(const inproc_transport&) = delete;
  inproc_transport& operator=(const inproc_transport&) = delete;
  ~inproc_transport();

  int rank() const { return match_.rank(); }
  inline int size() const;
  match& matching() { return match_; }
  inline run_queue& queue();
  inline time_point now() const;
  void kick() {}
  inproc_world& driver() { return world_; }
  int node_of(int) const { return 0; }
  task<> close(time_point) { co_return; }

  class send_operation final : arrival {
   public:
    send_operation(inproc_transport& net, const message_key& to, const_bytes from,
                   operation_record& record)
        : net_(net), record_(record), data_(from.data), to_(to.peer) {
      key = to;
      size = from.size;
      hash = record.hash;
    }
    send_operation(send_operation&& other) noexcept
        : send_operation(other.net_, other.key, {other.data_, other.size}, other.record_) {}
    ~send_operation() {
      if (waiting_) net_.withdraw(*this);
    }

    bool start(completion& done) {
      if (record_.communicator->failed()) {
        ec_ = record_.communicator->why().code;
        return true;
      }
      done_ = &done;
      key.peer = net_.rank();  // as the receiver sees it
      return net_.start(*this);
    }
    std::error_code result() const { return ec_; }
    bool untouched() const { return waiting_; }

   private:
    friend inproc_transport;

    void drop() override {
      net_.unhold(*this);
      net_.finish(*this, make_error_code(errc::closed));
    }

    inproc_transport& net_;
    operation_record& record_;
    const std::byte* data_;
    std::int32_t to_;
    completion* done_ = nullptr;
    std::error_code ec_;
    bool waiting_ = false;
    send_operation* next_sent_ = nullptr;  // in the sender's list of waiting sends
    send_operation* prev_sent_ = nullptr;
  };

  using recv_operation = receive_operation<inproc_transport>;
  friend recv_operation;

  send_operation send(const message_key& to, const_bytes from, operation_record& record) {
    return {*this, to, from, record};
  }
  recv_operation recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return {*this, from, into, record};
  }
  inline inproc::meet_operation meet(std::uint16_t lane, void* mine, operation_record& record);

 private:
  /// A point-to-point message whose sender has gone on.
  struct buffered_send final : arrival, detail::recycled {
    inproc_transport* sender = nullptr;
    match::block copy;
    const std::byte* bytes() const { return static_cast<const std::byte*>(copy.memory); }
    ~buffered_send() {
      if (copy.memory == nullptr) return;
      sender->eager_ -= size;
      sender->match_.give_scratch(copy);
    }
    void drop() override { delete this; }
  };

  inline bool start(send_operation& send);
  inline bool start(posted& receive);
  inline void withdraw(send_operation& send);
  inline void compare_with_meetings(const message_key& key, const operation_record& record);

  void hold(send_operation& send) {
    send.waiting_ = true;
    send.prev_sent_ = nullptr;
    send.next_sent_ = first_sent_;
    if (first_sent_ != nullptr) first_sent_->prev_sent_ = &send;
    first_sent_ = &send;
  }
  void unhold(send_operation& send) {
    send.waiting_ = false;
    (send.prev_sent_ != nullptr ? send.prev_sent_->next_sent_ : first_sent_) = send.next_sent_;
    if (send.next_sent_ != nullptr) send.next_sent_->prev_sent_ = send.prev_sent_;
  }
  void finish(send_operation& send, std::error_code ec) {
    send.ec_ = ec;
    if (!ec) send.record_.bytes += send.size;
    send.done_->post();
  }

  void revoked(communicator_state& communicator, const failure& why, int told_by) override;
  void announce(int peer, const operation_record& waiting, const state_report& known) override;
  void report(int peer, std::uint32_t communicator, const state_report& known) override;
  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& ours) override;
  void refuse(int peer, const failure& why) override;
  void add_awaited(const operation_record& waiting, std::vector<int>& to) override;

  inproc_world& world_;
  match match_;
  send_operation* first_sent_ = nullptr;
  std::size_t eager_ = 0;  // bytes of mine that wait in buffers
};
static_assert(consuming_transport<inproc_transport>);
static_assert(meeting_transport<inproc_transport>);

/// `size` ranks on this thread, and the driver that turns them.
class inproc_world {
 public:
  explicit inproc_world(int size);
  inproc_world(const inproc_world&) = delete;
  inproc_world& operator=(const inproc_world&) = delete;
  ~inproc_world();

  int size() const { return static_cast<int>(ranks_.size()); }
  inproc_transport& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  run_queue& queue() { return queue_; }
  time_point now() const {
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    return time_point{clock.tv_sec} * seconds + clock.tv_nsec;
  }
  bool poll() {
    if (++polls_ % 256 == 0) sweep();
    return queue_.run();
  }
  void idle(unsigned) {
    // All ranks are here and none can go on: only a deadline or a device can change that.
    sweep();
    // Nothing wakes who waits for a device, and a nap takes longer than many of its kernels.
    if (!queue_.empty() || queue_.is_watching()) return;
    const timespec nap{0, milliseconds};
    ::nanosleep(&nap, nullptr);
  }
  void enter() {}
  void leave() {}

 private:
  friend inproc_transport;

  void sweep();

  run_queue queue_;
  std::vector<std::unique_ptr<inproc_transport>> ranks_;
  inproc::meetings meetings_;
  unsigned polls_ = 0;
};
static_assert(driver<inproc_world>);

inline int inproc_transport::size() const { return world_.size(); }
inline run_queue& inproc_transport::queue() { return world_.queue(); }
inline time_point inproc_transport::now() const { return world_.now(); }

inline inproc::meet_operation inproc_transport::meet(std::uint16_t lane, void* mine,
                                                     operation_record& record) {
  return {world_.meetings_, match_, lane, mine, record};
}

inline bool inproc_transport::start(send_operation& send) {
  inproc_transport& peer = world_[send.to_];
  if (posted* const receive = peer.match_.take(send.key)) {
    const std::error_code ec = peer.match_.check(*receive, send.key.peer, send.size, send.hash);
    if (!ec) receive->accept(send.data_, send.size, send.key.peer);
    receive->finish(ec);
    if (!send.key.is_point_to_point()) send.ec_ = ec;
    send.record_.bytes += send.size;
    return true;
  }
  if (!peer.match_.inspect(send.key, send.hash)) {
    // That has revoked the communicator, here too: it is all one thread.
    send.ec_ = send.record_.communicator->failed() ? send.record_.communicator->why().code
                                                   : errc::mismatch;
    return true;
  }
  if (send.key.is_point_to_point() && send.size <= eager_limit &&
      eager_ + send.size <= eager_window) {
    // One byte more: a block of none may be null.
    auto message = std::make_unique<buffered_send>();
    const match::block copy = match_.take_scratch(send.size + 1);
    if (copy.memory == nullptr) {
      send.ec_ = errc::not_enough_memory;
      return true;
    }
    message->buffered = true;
    message->key = send.key;
    message->size = send.size;
    message->sender = this;
    message->copy = copy;
    if (send.size != 0) std::memcpy(copy.memory, send.data_, send.size);
    eager_ += send.size;
    peer.match_.keep(*message);
    (void)message.release();
    return true;
  }
  peer.match_.keep(send);
  hold(send);
  compare_with_meetings(send.key, send.record_);
  return false;
}

inline bool inproc_transport::start(posted& receive) {
  arrival* const message = match_.post(receive);
  if (message == nullptr) {
    compare_with_meetings(receive.key, *receive.record);
    return false;
  }
  if (message->buffered) {
    receive.ec = match_.check(receive, message->key.peer, message->size, message->hash);
    auto& copy = static_cast<buffered_send&>(*message);
    if (!receive.ec) receive.accept(copy.bytes(), copy.size, copy.key.peer);
    copy.drop();
  } else {
    // Off its list first: the check and a reduction may revoke, which ends what is listed.
    auto& send = static_cast<send_operation&>(*message);
    send.net_.unhold(send);
    receive.ec = match_.check(receive, send.key.peer, send.size, send.hash);
    if (!receive.ec) receive.accept(send.data_, send.size, send.key.peer);
    send.net_.finish(send, send.key.is_point_to_point() ? std::error_code() : receive.ec);
  }
  receive.record->bytes += receive.received;
  return true;
}

// Who meets others sends nothing, so whoever waits for a message looks there.
inline void inproc_transport::compare_with_meetings(const message_key& key,
                                                    const operation_record& record) {
  if (key.is_point_to_point()) return;
  const int peer = world_.meetings_.rank_in_another_call(record);
  if (peer >= 0) match_.disagree(*record.communicator, key.sequence, peer);
}

inline void inproc_transport::withdraw(send_operation& send) {
  world_[send.to_].match_.forget(send);
  unhold(send);
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/inproc/inproc_transport.ipp>
#endif
