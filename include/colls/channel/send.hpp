// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// queued_send: the send operation of transports that may keep a send in a queue.

#include <colls/base/buffer.hpp>
#include <colls/base/key_table.hpp>
#include <colls/matching/operation_record.hpp>

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

}  // namespace colls
