// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// send: a send as the transports give it that let it wait.

#include <colls/base/buffer.hpp>
#include <colls/base/key_table.hpp>
#include <colls/matching/operation_record.hpp>

namespace colls {

/// An operation, started by `net.start(outgoing)`, which is true if it has ended at once; if it is
/// destroyed while it `is_pending` it is withdrawn by `net.withdraw(outgoing)`. `Outgoing` is what
/// the transport knows of a send.
template <class Transport, class Outgoing>
class queued_send : Outgoing {
 public:
  queued_send(Transport& net, const message_key& to, const_bytes from, operation_record& of)
      : net_(net) {
    this->key = to;
    this->data = from.data;
    this->size = from.size;
    this->record = &of;
  }
  queued_send(queued_send&& other) noexcept
      : queued_send(other.net_, other.key, {other.data, other.size}, *other.record) {}
  ~queued_send() {
    if (this->is_pending()) net_.withdraw(static_cast<Outgoing&>(*this));
  }

  bool start(completion& waiter) {
    if (this->record->communicator->failed()) {
      this->ec = this->record->communicator->why().code;
      return true;
    }
    this->done = &waiter;
    return net_.start(static_cast<Outgoing&>(*this));
  }
  std::error_code result() const { return this->ec; }
  /// Nothing of it has left this rank and nobody has asked for it.
  bool untouched() const { return this->is_untouched(); }

 private:
  Transport& net_;
};

}  // namespace colls
