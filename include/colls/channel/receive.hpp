// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// receive: a receive as every transport's `recv` gives it.

#include <colls/base/buffer.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

/// An operation, started by `net.start(posted)`, which is true if it has ended at once.
template <class Transport>
class receive_operation : posted {
 public:
  receive_operation(Transport& net, const message_key& from, mutable_bytes into,
                    operation_record& of)
      : net_(net) {
    key = from;
    data = into.data;
    size = into.size;
    record = &of;
  }
  receive_operation(receive_operation&& other) noexcept
      : receive_operation(other.net_, other.key, {other.data, other.size}, *other.record) {}
  ~receive_operation() {
    if (busy()) net_.matching().withdraw(*this);
  }

  /// The message goes to `take(self, offset, piece, size)` in place of the buffer, in order and in
  /// pieces of whole elements of `element` bytes.
  void consume_with(folding take, void* self, std::size_t element) {
    fold = take;
    folds = self;
    grain = element;
  }

  bool start(completion& waiter) {
    if (record->communicator->failed()) {
      ec = record->communicator->why().code;
      return true;
    }
    done = &waiter;
    return net_.start(static_cast<posted&>(*this));
  }
  std::error_code result() const { return ec; }
  std::size_t count() const { return received; }
  int source_rank() const { return source; }
  /// Nobody has met it, nor knows that it is wanted.
  bool untouched() const { return listed && !granted; }

 private:
  Transport& net_;
};

}  // namespace colls
