// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// operations: queued_send and receive_operation, which the functions `send` and `recv` of a
// transport return. A transport that keeps no sends in a queue has a send operation of its own.

#include <colls/base/buffer.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

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
class receive_operation : posted_receive {
 public:
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
  /// Returns true if no message has matched this receive and this rank has sent no CTS (clear to
  /// send) for this receive.
  bool untouched() const { return queued && !cleared; }

 private:
  Transport& net_;
};

}  // namespace colls
