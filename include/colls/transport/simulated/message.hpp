// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// message: what travels between simulated ranks.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/simulated/event_queue.hpp>

#include <memory>

namespace colls {
class simulated_transport;
}

namespace colls::simulated {

struct flight;

/// A send that has not ended.
struct outgoing : keyed {
  /// `waiting` for its receive, in a table of its rank; `leaving` bit by bit, in a list.
  enum class stage : std::uint8_t { idle, waiting, leaving };

  operation_record* record = nullptr;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  completion* done = nullptr;
  flight* message = nullptr;  // while it leaves; while it waits: the header that went ahead, if any
  std::error_code ec;
  std::uint32_t round = 0;
  std::uint32_t trace = 0;
  stage at = stage::idle;
  bool reminded = false;

  bool is_pending() const { return at != stage::idle; }
  bool is_untouched() const { return at == stage::waiting; }
  void finish(std::error_code result) {
    at = stage::idle;
    message = nullptr;
    ec = result;
    if (!result) record->bytes += size;
    done->post();
  }
};

/// A message on its way, or kept by its receiver's match; its key names the sender. A
/// point-to-point message whose sender waits to be asked is a header alone, and travels without
/// bytes.
struct flight final : arrival {
  simulated_transport* from = nullptr;
  std::int32_t to = -1;
  std::uint32_t round = 0;
  outgoing* send = nullptr;   // while that is under way
  posted* receive = nullptr;  // which it is filling, piece by piece
  const std::byte* data = nullptr;
  match::block copy;  // of the bytes, once the sender may go on
  ticks tail = 0;     // when its last byte leaves the link it is on
  ticks port = 0;     // how long it takes on a rank's way out or in
  int hops = 0;       // links inside of the network, and how many are behind it
  int hop = 0;
  std::size_t filled = 0;   // bytes of it that the receive has
  std::uint32_t trace = 0;  // its number in the trace, from 1 on
  bool header = false;
  bool reminder = false;  // a header of a collective's message that waits to be asked for
  bool kept = false;      // a header that waits for a receive
  bool asked = false;     // a point-to-point message that goes to the receive that granted it
  bool lost = false;      // the sender died or withdrew it before it had left
  bool damaged = false;
  bool leaving = false;  // its sender has yet to learn that it has left,
  bool over = false;     // though it has been taken: a rank may stand still

  /// The receiver wants none of it.
  void drop() override;
};

/// What ranks tell each other besides messages.
struct word {
  enum class kind : std::uint8_t { dial, opened, announce, report, dispute, revoke, lost };

  kind what = kind::announce;
  std::int32_t from = -1;  // who speaks, or of whom it is
  std::int32_t to = -1;
  bool news = false;  // from the store, not from `from`
  message_key key;    // with the speaker as peer
  std::uint64_t hash = 0;
  fingerprint print;
  state_report known;
  failure why;
};

/// Nodes that are used again; counts those in use.
template <class Node>
class stock {
 public:
  Node& take() {
    ++used_;
    if (!spare_.empty()) {
      Node& node = *spare_.back();
      spare_.pop_back();
      return *std::construct_at(&node);
    }
    if (fresh_ == slab) {
      slabs_.push_back(std::make_unique<Node[]>(slab));
      fresh_ = 0;
    }
    return slabs_.back()[fresh_++];
  }
  void give(Node& node) {
    --used_;
    spare_.push_back(&node);
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t slab = 256;

  std::vector<std::unique_ptr<Node[]>> slabs_;
  std::vector<Node*> spare_;
  std::size_t fresh_ = slab;
  std::size_t used_ = 0;
};

}  // namespace colls::simulated
