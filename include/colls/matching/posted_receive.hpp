// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// posted_receive: a receive or a probe that waits for its message. unexpected_message: a message
// that arrived before its receive was posted.
//
// A long message is first announced by an RTS (request to send), and the receiver answers with a
// CTS (clear to send).

#include <colls/base/intrusive_list.hpp>
#include <colls/base/key_table.hpp>
#include <colls/matching/operation_record.hpp>
#include <colls/matching/payload_source.hpp>

#include <cstring>

namespace colls {

struct posted_receive;
struct unexpected_message;

/// The interface of an object that writes the payload of a message into a posted receive. Such an
/// object belongs to a transport.
class payload_writer {
 public:
  /// Stops writing into `receive`. Called when the receive is withdrawn.
  virtual void abandon(posted_receive& receive) = 0;

 protected:
  ~payload_writer() = default;
};

/// The type of a function that consumes a message piece by piece, so that the message need not be
/// stored in a buffer. `offset` is the position of `piece` in the message, in bytes.
using fold_function = void (*)(void* fold_context, std::size_t offset, const std::byte* piece,
                               std::size_t size);

/// A posted receive. The receive is queued until a message matches it. While the payload of a long
/// message arrives, `writer` points to the object that writes the payload into the receive.
///
/// A probe is a receive that only takes a message off the queues: the message then belongs to
/// `taken`, and a second receive can read it.
struct posted_receive : key_table_node {
  static constexpr std::int32_t any_source = -1;
  static constexpr std::uint64_t any_tag = UINT64_MAX;  // in place of the tag in a key

  std::byte* data = nullptr;
  std::size_t size = 0;
  /// If `fold` is not null, the transport calls `fold(fold_context, offset, piece, size)` instead
  /// of writing the message to `data`. The transport passes the message to `fold` in one or several
  /// pieces, in the order of their offsets. If there are several pieces, the size of each is a
  /// multiple of `granularity` bytes.
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
  bool cleared = false;          // a CTS was sent for this receive
  std::uint64_t post_order = 0;  // the position in the order of point-to-point receives
  /// If the receive is cleared, the number of the RTS that this rank has answered with a CTS. The
  /// transport sets this number for point-to-point receives only.
  std::uint64_t number = 0;
  bool was_any_source = false;  // the receive is cleared and was posted for any source
  bool was_any_tag = false;     // a message has matched the receive, which was posted for any tag
  bool is_probe = false;
  bool takes_probed = false;  // the receive reads the message `taken`, which a probe has matched
  unexpected_message* taken = nullptr;
  list_links<posted_receive> any_tag_links;  // of the list of receives from any tag

  bool busy() const { return queued || writer != nullptr; }

  /// Receives a message that is complete in memory: passes it to `fold` or, if `fold` is null,
  /// copies it to `data`.
  void accept(const std::byte* message, std::size_t bytes, std::int32_t sender) {
    received = bytes;
    source = sender;
    if (fold != nullptr) {
      fold(fold_context, 0, message, bytes);
    } else if (bytes != 0) {
      std::memcpy(data, message, bytes);
    }
  }
  /// Receives a message of the user, whose receive takes pieces of any size.
  void accept(payload_source& message, std::int32_t sender) {
    received = message.size();
    source = sender;
    if (fold == nullptr) return message.copy_to(data);
    message.for_each_piece([this](std::size_t offset, const_bytes piece) {
      fold(fold_context, offset, piece.data, piece.size);
    });
  }

  void finish(std::error_code result = {}) {
    writer = nullptr;
    ec = result;
    record->bytes += received;
    done->post();
  }
};

/// A message, or only its RTS, that arrived before its receive was posted. Each transport derives a
/// class that adds the data needed to move the payload into the receive.
struct unexpected_message : key_table_node {
  /// The second queue node of a point-to-point message. Its key contains the tag of the message but
  /// not the source, so that a receive from any source can find the message.
  struct tag_node : key_table_node {
    unexpected_message* message = nullptr;
  };
  tag_node any_source_node;
  std::size_t size = 0;
  std::uint64_t hash = 0;
  bool buffered = false;  // set by the transport: the bytes were copied, so the send has completed
  /// The links of the list of point-to-point messages in the order of their arrival, or, while a
  /// probe owns the message, of the list of owned messages.
  list_links<unexpected_message> links;
  /// The address of the only pointer to a message that a probe has taken off the queues. Null while
  /// the message is in the queues.
  unexpected_message** holder = nullptr;

  /// Gives this object back to its transport. The matcher calls this function if no receive will
  /// take the message.
  virtual void drop() = 0;
  /// Does the same for a point-to-point message that its receiver does not want. If its send has
  /// not completed, the send completes with `errc::cancelled`.
  virtual void discard() noexcept = 0;

 protected:
  ~unexpected_message() = default;
};

}  // namespace colls
