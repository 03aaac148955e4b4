// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// posted_receive: a receive that waits for its message. unexpected_message: a message that came
// before its receive.

#include <colls/base/key_table.hpp>
#include <colls/matching/operation_record.hpp>

#include <cstring>

namespace colls {

struct posted_receive;

/// The part of a transport that is writing into a posted receive.
class payload_writer {
 public:
  /// The receive is withdrawn: stops writing into it.
  virtual void abandon(posted_receive& receive) = 0;

 protected:
  ~payload_writer() = default;
};

/// Consumes a message in place of a buffer. `piece` begins `offset` bytes into the message.
using fold_function = void (*)(void* fold_context, std::size_t offset, const std::byte* piece,
                               std::size_t size);

/// A receive. It is queued until a message matches it; then its `writer` holds it.
struct posted_receive : key_table_node {
  static constexpr std::int32_t any_source = -1;

  std::byte* data = nullptr;
  std::size_t size = 0;
  /// If set, the message goes to `fold(fold_context, offset, piece, size)` instead of `data`, in
  /// order, as one piece or as pieces that are each a multiple of `granularity` bytes.
  fold_function fold = nullptr;
  void* fold_context = nullptr;
  std::size_t granularity = 1;
  operation_record* record = nullptr;
  completion* done = nullptr;
  payload_writer* writer = nullptr;
  std::size_t received = 0;
  std::int32_t source = -1;
  std::error_code ec;
  bool queued = false;
  bool cleared = false;          // a CTS was sent for it
  std::uint64_t post_order = 0;  // point to point: counts the posted receives
  /// For the transport: the message that was cleared to send, and whether the receive was posted
  /// for any source.
  std::uint64_t number = 0;
  bool was_any_source = false;

  bool busy() const { return queued || writer != nullptr; }

  /// Takes a complete message from its place in memory.
  void accept(const std::byte* message, std::size_t bytes, std::int32_t sender) {
    received = bytes;
    source = sender;
    if (fold != nullptr) {
      fold(fold_context, 0, message, bytes);
    } else if (bytes != 0) {
      std::memcpy(data, message, bytes);
    }
  }

  void finish(std::error_code result = {}) {
    writer = nullptr;
    ec = result;
    record->bytes += received;
    done->post();
  }
};

/// A message, or the RTS of one, that came before its receive. A transport derives from it and adds
/// what it needs to move the bytes later.
struct unexpected_message : key_table_node {
  /// Lists the message under its tag with any source.
  struct tag_node : key_table_node {
    unexpected_message* message = nullptr;
  };
  tag_node any_source_node;
  std::size_t size = 0;
  std::uint64_t hash = 0;
  bool buffered = false;  // for the transport: the bytes were copied and the send has ended
  /// Returns the node to its transport; the message will never be received.
  virtual void drop() = 0;

 protected:
  ~unexpected_message() = default;
};

}  // namespace colls
