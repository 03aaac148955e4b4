// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// operations: queued_send and receive_operation, which the functions `send` and `recv` of a
// transport return. A transport that keeps no sends in a queue has a send operation of its own.
// probe_operation takes a message off the matcher's queues, and probed_receive_operation reads it.
// end_of awaits an operation that may fail.

#include <colls/base/buffer.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

/// An awaitable that waits until an operation has ended, but does not throw if the operation has
/// failed. The awaiting coroutine can then inspect the operation.
template <class Operation>
struct end_of {
  Operation* awaited;
  bool start(completion& done) { return awaited->start(done); }
  void result() {}
};

/// A send operation. `Outgoing` is the transport's record of a send. `net.start(outgoing)` starts
/// the operation and returns true if the operation has completed immediately. If the operation is
/// still pending when it is destroyed, the destructor calls `net.withdraw(outgoing)`.
template <class Transport, class Outgoing>
class queued_send : Outgoing {
 public:
  queued_send(Transport& net, const message_key& dest, const_bytes message,
              operation_record& operation)
      : net_(net) {
    this->key = dest;
    this->data = message.data;
    this->size = message.size;
    this->record = &operation;
  }
  queued_send(queued_send&& other) noexcept
      : queued_send(other.net_, other.key, {other.data, other.size}, *other.record) {}
  ~queued_send() {
    if (this->is_pending()) net_.withdraw(static_cast<Outgoing&>(*this));
  }

  bool start(completion& waiter) {
    if (this->record->communicator->failed()) {
      this->ec = this->record->communicator->reason().code;
      return true;
    }
    this->done = &waiter;
    return net_.start(static_cast<Outgoing&>(*this));
  }
  /// Makes the transport read the message, which must be longer than `eager_limit`, from `payload`.
  void read_from(payload_source& payload)
    requires requires(Outgoing& outgoing) { outgoing.source; }
  {
    this->source = &payload;
  }
  std::error_code result() const { return this->ec; }
  /// Returns true if no part of the message has left this rank and no CTS (clear to send) for the
  /// message has arrived.
  bool untouched() const { return this->is_untouched(); }

 private:
  Transport& net_;
};

/// A receive operation. `net.start(receive)` starts the operation and returns true if the operation
/// has completed immediately.
template <class Transport>
class receive_operation : protected posted_receive {
 public:
  using transport_type = Transport;

  receive_operation(Transport& net, const message_key& message, mutable_bytes buffer,
                    operation_record& operation)
      : net_(net) {
    key = message;
    data = buffer.data;
    size = buffer.size;
    record = &operation;
  }
  receive_operation(receive_operation&& other) noexcept
      : receive_operation(other.net_, other.key, {other.data, other.size}, *other.record) {}
  ~receive_operation() {
    if (busy()) net_.matching().withdraw(*this);
  }

  /// Makes the transport pass the message to `consumer` instead of writing it to the buffer. The
  /// transport calls `consumer(context, offset, piece, size)` for each piece of the message, in
  /// order. Each piece consists of complete elements of `element` bytes.
  void consume_with(fold_function consumer, void* context, std::size_t element) {
    fold = consumer;
    fold_context = context;
    granularity = element;
  }

  bool start(completion& waiter) {
    if (record->communicator->failed()) {
      ec = record->communicator->reason().code;
      return true;
    }
    done = &waiter;
    return net_.start(static_cast<posted_receive&>(*this));
  }
  std::error_code result() const { return ec; }
  std::size_t count() const { return received; }
  int source_rank() const { return source; }
  /// Returns the tag of the point-to-point message that has matched.
  int tag() const { return static_cast<int>(key.sequence); }
  /// Returns true if no message has matched this receive and this rank has sent no CTS (clear to
  /// send) for this receive.
  bool untouched() const { return queued && !cleared; }

 protected:
  Transport& net_;
};

/// An operation that waits for a point-to-point message with the key `message` and takes it off the
/// queues of the matcher, so that no receive can match it.
template <class Transport>
class probe_operation : public receive_operation<Transport> {
 public:
  probe_operation(Transport& net, const message_key& message, operation_record& operation)
      : receive_operation<Transport>(net, message, {}, operation) {
    this->is_probe = true;
  }
  probe_operation(const probe_operation&) = delete;
  probe_operation& operator=(const probe_operation&) = delete;
  ~probe_operation() { this->net_.matching().discard(this->taken); }

  bool start(completion& waiter) {
    if (!this->record->communicator->failed() && this->net_.matching().match_probe(*this))
      return true;
    return receive_operation<Transport>::start(waiter);
  }
  /// Makes `owner` the pointer that owns the message. It is null if the sender has cancelled the
  /// message since the probe matched it.
  void move_message_to(unexpected_message*& owner) noexcept {
    match_queues::move_ownership(this->taken, owner);
  }
};

/// A receive of the message that `probed` owns. Sets `probed` to null.
template <class Transport>
class probed_receive_operation : public receive_operation<Transport> {
 public:
  probed_receive_operation(Transport& net, unexpected_message*& probed, mutable_bytes buffer,
                           operation_record& operation)
      : receive_operation<Transport>(net, probed->key, buffer, operation) {
    this->takes_probed = true;
    this->source = this->key.peer;
    match_queues::move_ownership(probed, this->taken);
  }
  probed_receive_operation(const probed_receive_operation&) = delete;
  probed_receive_operation& operator=(const probed_receive_operation&) = delete;
  ~probed_receive_operation() { this->net_.matching().discard(this->taken); }
};

}  // namespace colls
