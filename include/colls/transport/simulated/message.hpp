// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Messages and control messages between simulated ranks.

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
  /// A `waiting` send is in its rank's table until its receive is posted. A `transmitting` one is
  /// in its rank's list while its bytes leave.
  enum class stage : std::uint8_t { idle, waiting, transmitting };

  operation_record* record = nullptr;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  completion* done = nullptr;
  message* msg = nullptr;  // while transmitting; while waiting: its RTS, if one was sent
  std::error_code ec;
  std::uint32_t round = 0;
  std::uint32_t trace = 0;
  stage progress = stage::idle;
  bool rts_repeated = false;

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

/// A message in flight, or an unexpected message of its receiver. Its key names the sender. An RTS
/// is a message without bytes.
struct message final : unexpected_message {
  simulated_transport* sender = nullptr;
  std::int32_t dest = -1;
  std::uint32_t round = 0;
  outgoing* send = nullptr;           // until that has ended
  posted_receive* receive = nullptr;  // the receive that it fills piece by piece
  const std::byte* data = nullptr;
  tag_matcher::block copy;  // of the bytes, after the send has ended
  ticks tail = 0;           // when the last byte leaves the current link
  ticks port = 0;           // the transfer time at a rank's port
  int hops = 0;             // the number of links inside the network
  int hop = 0;              // the number of links passed
  std::size_t filled = 0;   // the number of bytes delivered piece by piece
  std::uint32_t trace = 0;  // its number in the trace, from 1 on
  bool is_rts = false;
  bool is_repeated_rts = false;  // of a collective's message that has waited long to be cleared
  bool is_queued = false;        // an RTS that waits for a receive
  bool is_cleared = false;       // a point-to-point message that was cleared to send (CTS)
  bool is_lost = false;          // the sender died or withdrew it before it had left
  bool is_corrupted = false;
  bool is_transmitting = false;  // the event of its end of transmission is still to come
  bool is_released = false;      // received while still transmitting, because the sender was frozen

  /// The receiver discards the message.
  void drop() override;
};

/// A control message: everything that ranks exchange besides user data.
struct control_message {
  enum class kind : std::uint8_t { dial, opened, announce, report, dispute, revoke, lost };

  kind type = kind::announce;
  std::int32_t source = -1;  // the sender, or the rank that was lost
  std::int32_t dest = -1;
  bool from_store = false;  // delivered by the store, not by `source`
  message_key key;          // with the sender as peer
  std::uint64_t hash = 0;
  fingerprint print;
  state_report state;
  failure reason;
};

/// Allocates nodes in slabs, reuses those that were given back, and counts those in use.
template <class Node>
class node_pool {
 public:
  Node& take() {
    ++used_;
    if (!free_.empty()) {
      Node& node = *free_.back();
      free_.pop_back();
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
