// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The inproc transport, for worlds (sets of all ranks) whose ranks are coroutines on one thread. It
// opens no sockets and starts no threads.

#include <colls/base/intrusive_list.hpp>
#include <colls/channel/operations.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/os/log_writer.hpp>
#include <colls/transport/inproc/completion_barrier.hpp>

#include <time.h>

#include <cstring>
#include <memory>

namespace colls {

class inproc_world;

/// One rank of an `inproc_world`. As soon as both the send and the receive of a message have
/// started, the transport copies the message from the send buffer to the receive buffer. If the
/// receive reduces the message, the reduction reads the send buffer directly. If no receive has
/// been posted for a point-to-point message of up to `eager_limit` bytes, the transport copies the
/// message to an intermediate buffer, so that the sender need not wait. `eager_window` limits the
/// total size of these copies.
class inproc_transport final : failure_hooks {
 public:
  static constexpr bool consumes = true;
  static constexpr network_cost costs() { return one_thread_cost; }

  inproc_transport(inproc_world& ranks, int rank);
  inproc_transport(const inproc_transport&) = delete;
  inproc_transport& operator=(const inproc_transport&) = delete;
  ~inproc_transport();

  int rank() const { return matcher_.rank(); }
  inline int size() const;
  tag_matcher& matching() { return matcher_; }
  inline run_queue& queue();
  inline time_point now() const;
  void wake_driver() {}
  inproc_world& driver() { return world_; }
  int node_of(int) const { return 0; }
  task<> close(time_point) { co_return; }

  class send_operation final : unexpected_message {
   public:
    send_operation(inproc_transport& net, const message_key& dest, const_bytes bytes,
                   operation_record& record)
        : net_(net), record_(record), data_(bytes.data), dest_(dest.peer) {
      key = dest;
      size = bytes.size;
      hash = record.hash;
    }
    send_operation(send_operation&& other) noexcept
        : send_operation(other.net_, other.key, {other.data_, other.size}, other.record_) {}
    ~send_operation() {
      if (waiting_) net_.withdraw(*this);
    }

    bool start(completion& done) {
      if (record_.communicator->failed()) {
        ec_ = record_.communicator->reason().code;
        return true;
      }
      done_ = &done;
      key.peer = net_.rank();  // for the receiver, the peer is the sender
      return net_.start(*this);
    }
    /// See `sourcing_transport`.
    void read_from(payload_source& payload) { source_ = &payload; }
    std::error_code result() const { return ec_; }
    bool untouched() const { return waiting_; }

   private:
    friend inproc_transport;

    void deliver_to(posted_receive& receive) {
      if (source_ != nullptr) return receive.accept(*source_, key.peer);
      receive.accept(data_, size, key.peer);
    }
    void drop() override {
      net_.remove_waiting(*this);
      net_.finish(*this, make_error_code(errc::closed));
    }
    void discard() noexcept override {
      net_.remove_waiting(*this);
      net_.finish(*this, make_error_code(errc::cancelled));
    }

    inproc_transport& net_;
    operation_record& record_;
    const std::byte* data_;
    payload_source* source_ = nullptr;  // if not null, in place of `data_`
    std::int32_t dest_;
    completion* done_ = nullptr;
    std::error_code ec_;
    bool waiting_ = false;
    list_links<send_operation> links_;  // of the sender's list of waiting sends
  };

  using recv_operation = receive_operation<inproc_transport>;
  friend recv_operation;

  send_operation send(const message_key& dest, const_bytes bytes, operation_record& record) {
    return {*this, dest, bytes, record};
  }
  recv_operation recv(const message_key& source, mutable_bytes bytes, operation_record& record) {
    return {*this, source, bytes, record};
  }
  /// Returns an operation by which this rank arrives at a barrier of all ranks of the communicator.
  /// Each lane (concurrent part) of the call has a barrier of its own. The rank that arrives last
  /// can get the pointer `data` through `completion_barrier::for_each_other`.
  inline inproc::completion_barrier arrive(std::uint16_t lane, void* data,
                                           operation_record& record);

 private:
  /// A point-to-point message in an intermediate buffer. Its send has already completed.
  struct buffered_send final : unexpected_message, detail::recycled {
    inproc_transport* sender = nullptr;
    tag_matcher::block copy;
    const std::byte* bytes() const { return static_cast<const std::byte*>(copy.memory); }
    ~buffered_send() {
      if (copy.memory == nullptr) return;
      sender->eager_ -= size;
      sender->matcher_.release_scratch(copy);
    }
    void drop() override { delete this; }
    void discard() noexcept override { delete this; }
  };

  inline bool start(send_operation& send);
  inline bool start(posted_receive& receive);
  inline void withdraw(send_operation& send);
  inline void check_barriers(const message_key& key, const operation_record& record);

  void add_waiting(send_operation& send) {
    send.waiting_ = true;
    waiting_sends_.push_front(send);
  }
  void remove_waiting(send_operation& send) {
    send.waiting_ = false;
    waiting_sends_.remove(send);
  }
  void finish(send_operation& send, std::error_code ec) {
    send.ec_ = ec;
    if (!ec) send.record_.bytes += send.size;
    send.done_->post();
  }

  COLLS_ONCE void revoked(communicator_state& communicator, const failure& reason,
                          int reporter) override;
  COLLS_ONCE void announce(int peer, const operation_record& waiting,
                           const state_report& state) override;
  COLLS_ONCE void report(int peer, std::uint32_t communicator, const state_report& state) override;
  COLLS_ONCE void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                          const fingerprint& local) override;
  COLLS_ONCE void refuse(int peer, const failure& reason) override;
  COLLS_ONCE bool recover(int peer, std::uint32_t communicator,
                          std::span<const std::byte> message) override;
  bool can_recover() const override { return true; }
  COLLS_ONCE void add_awaited(const operation_record& waiting, std::vector<int>& ranks) override;

  inproc_world& world_;
  tag_matcher matcher_;
  intrusive_list<send_operation, &send_operation::links_> waiting_sends_;
  std::size_t eager_ = 0;  // the number of bytes of this rank's buffered messages
};
static_assert(sourcing_transport<inproc_transport>);
static_assert(completion_barrier_transport<inproc_transport>);

/// The ranks of a world that runs on one thread, and the driver (event loop) of these ranks.
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
    // All ranks run on this thread, and none of them can continue. Only an expired deadline or a
    // device can therefore cause progress. The sweep checks the deadlines.
    sweep();
    // A device cannot wake this thread, and many kernels complete in less time than a sleep takes.
    // The thread therefore does not sleep while it waits for a device.
    if (!queue_.empty() || queue_.is_watching()) return;
    const timespec duration{0, milliseconds};
    ::nanosleep(&duration, nullptr);
  }
  void enter() {}
  void leave() {}

 private:
  friend inproc_transport;

  void sweep();

  run_queue queue_;
  std::vector<std::unique_ptr<inproc_transport>> ranks_;
  inproc::completion_barriers barriers_;
  unsigned polls_ = 0;
};
static_assert(driver<inproc_world>);

inline int inproc_transport::size() const { return world_.size(); }
inline run_queue& inproc_transport::queue() { return world_.queue(); }
inline time_point inproc_transport::now() const { return world_.now(); }

inline inproc::completion_barrier inproc_transport::arrive(std::uint16_t lane, void* data,
                                                           operation_record& record) {
  return {world_.barriers_, matcher_, lane, data, record};
}

inline bool inproc_transport::start(send_operation& send) {
  inproc_transport& peer = world_[send.dest_];
  if (posted_receive* const receive = peer.matcher_.take(send.key)) {
    const std::error_code ec = peer.matcher_.check(*receive, send.key.peer, send.size, send.hash);
    if (!ec) send.deliver_to(*receive);
    receive->finish(ec);
    if (!send.key.is_point_to_point()) send.ec_ = ec;
    send.record_.bytes += send.size;
    return true;
  }
  if (!peer.matcher_.inspect(send.key, send.hash)) {
    // When `inspect` refuses a message, it normally revokes the communicator on this rank as well.
    // There is one exception: the peer has entered this collective and has then left the
    // communicator. In that case, the send fails with `errc::mismatch`.
    send.ec_ = send.record_.communicator->failed() ? send.record_.communicator->reason().code
                                                   : errc::mismatch;
    return true;
  }
  if (send.key.is_point_to_point() && send.size <= eager_limit &&
      eager_ + send.size <= eager_window) {
    // The block for the copy of the payload has one extra byte. Without this byte, the pointer to
    // the block of an empty payload might be null, which would mean that memory has run out.
    auto message = std::make_unique<buffered_send>();
    const tag_matcher::block copy = matcher_.acquire_scratch(send.size + 1);
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
    peer.matcher_.add_unexpected(*message);
    (void)message.release();
    return true;
  }
  peer.matcher_.add_unexpected(send);
  add_waiting(send);
  check_barriers(send.key, send.record_);
  return false;
}

inline bool inproc_transport::start(posted_receive& receive) {
  unexpected_message* const message = matcher_.post(receive);
  if (message == nullptr) {
    check_barriers(receive.key, *receive.record);
    return false;
  }
  if (message->buffered) {
    receive.ec = matcher_.check(receive, message->key.peer, message->size, message->hash);
    auto& copy = static_cast<buffered_send&>(*message);
    if (!receive.ec) receive.accept(copy.bytes(), copy.size, copy.key.peer);
    copy.drop();
  } else {
    // `check`, or a reduction that `accept` runs, may revoke the communicator. A revocation fails
    // all sends in the list of waiting sends. This send must therefore leave the list first.
    auto& send = static_cast<send_operation&>(*message);
    send.net_.remove_waiting(send);
    receive.ec = matcher_.check(receive, send.key.peer, send.size, send.hash);
    if (!receive.ec) send.deliver_to(receive);
    send.net_.finish(send, send.key.is_point_to_point() ? std::error_code() : receive.ec);
  }
  receive.record->bytes += receive.received;
  return true;
}

// Called when a send or a receive of this rank begins to wait. If another rank waits at a barrier
// in a different call with the same sequence number, begins a dispute, which revokes the
// communicator. Without this check, this rank could wait forever, because a rank that waits at a
// barrier neither sends nor receives messages.
inline void inproc_transport::check_barriers(const message_key& key,
                                             const operation_record& record) {
  if (key.is_point_to_point()) return;
  const int peer = world_.barriers_.find_mismatched_rank(record);
  if (peer >= 0) matcher_.begin_dispute(*record.communicator, key.sequence, peer);
}

inline void inproc_transport::withdraw(send_operation& send) {
  world_[send.dest_].matcher_.remove_unexpected(send);
  remove_waiting(send);
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/inproc/inproc_transport.ipp>
#endif
