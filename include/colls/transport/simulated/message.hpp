// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Messages and control messages between simulated ranks. An RTS (request to send) announces a long
// message, and a CTS (clear to send) permits the sender to transmit it.

#include <colls/base/intrusive_list.hpp>
#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/simulated/event_queue.hpp>

#include <memory>

namespace colls {
class simulated_transport;
}

namespace colls::simulated {

struct message;

/// The state of a send operation.
struct outgoing : key_table_node {
  /// The stage of a send. A send is `waiting` while it waits for the receiver to post the matching
  /// receive. It is `transmitting` while its bytes leave the sending rank. It is `idle` before it
  /// starts and after it ends.
  enum class stage : std::uint8_t { idle, waiting, transmitting };

  operation_record* record = nullptr;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  completion* done = nullptr;
  message* msg = nullptr;  // the message in transmission, or the RTS of a waiting send, or null
  std::error_code ec;
  std::uint32_t round = 0;
  std::uint32_t trace = 0;
  stage progress = stage::idle;
  bool rts_repeated = false;
  list_links<outgoing> transmission;  // of the list of sends whose bytes are leaving

  bool is_pending() const { return progress != stage::idle; }
  bool is_untouched() const { return progress == stage::waiting; }
  void finish(std::error_code error) {
    progress = stage::idle;
    msg = nullptr;
    ec = error;
    if (!error) record->bytes += size;
    done->post();
  }
};

/// A message that is in flight, or that waits at its receiver until a receive is posted. `key.peer`
/// is the sender. An RTS is also a `message`. It has the length of the message that it announces,
/// but it transfers no bytes.
struct message final : unexpected_message {
  simulated_transport* sender = nullptr;
  std::int32_t dest = -1;
  std::uint32_t round = 0;
  outgoing* send = nullptr;           // null after the send has ended
  posted_receive* receive = nullptr;  // the receive that the message fills piece by piece
  const std::byte* data = nullptr;
  tag_matcher::block copy;  // a copy of the bytes, after the send has ended
  ticks tail = 0;           // the time when the last byte leaves the current link
  ticks port = 0;           // the transfer time at a rank's port
  int hops = 0;             // the number of links inside the network on the route
  int hop = 0;              // the number of links that the message has passed
  std::size_t filled = 0;   // the number of bytes delivered piece by piece
  std::uint32_t trace = 0;  // the number of the trace record (from 1), or 0 if there is no trace
  bool is_rts = false;
  bool is_repeated_rts = false;  // an RTS sent because its message still waits
  bool is_queued = false;        // an RTS that waits at the receiver for a receive
  bool is_cleared = false;       // a point-to-point message for which a CTS was sent
  bool is_lost = false;          // the message will not arrive, for example because its sender died
  bool is_corrupted = false;
  bool is_transmitting = false;  // the event that ends its transmission is still to come
  bool is_released = false;      // no longer needed, but still in transmission

  /// Discards this message. Called when no receive will ever take it.
  void drop() override;
  void discard() noexcept override;
};

/// A message that carries no user data.
struct control_message {
  enum class kind : std::uint8_t {
    dial,
    opened,
    announce,
    report,
    dispute,
    revoke,
    recovery,
    lost
  };

  kind type = kind::announce;
  std::int32_t source = -1;  // the sender, or the rank that was lost
  std::int32_t dest = -1;
  bool from_store = false;  // whether the store, not `source`, has sent the message
  message_key key;          // its `peer` is the sender
  std::uint64_t hash = 0;
  fingerprint print;
  state_report state;
  failure reason;
  std::vector<std::byte> recovery;  // the bytes of a recovery message
  std::uint32_t round = 0;          // the number of recovery messages in the longest chain
};

/// A pool that allocates nodes in slabs, reuses the nodes that were given back, and counts the
/// nodes in use.
template <class Node>
class node_pool {
 public:
  Node& take() {
    ++used_;
    if (!free_.empty()) {
      Node& node = *free_.back();
      free_.pop_back();
      std::destroy_at(&node);
      return *std::construct_at(&node);
    }
    if (used_in_slab_ == slab_size) {
      slabs_.push_back(std::make_unique<Node[]>(slab_size));
      used_in_slab_ = 0;
    }
    return slabs_.back()[used_in_slab_++];
  }
  void give(Node& node) {
    --used_;
    free_.push_back(&node);
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t slab_size = 256;

  std::vector<std::unique_ptr<Node[]>> slabs_;
  std::vector<Node*> free_;
  std::size_t used_in_slab_ = slab_size;
  std::size_t used_ = 0;
};

}  // namespace colls::simulated
