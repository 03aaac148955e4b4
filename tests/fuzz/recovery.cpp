// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Recovery messages: what peers may send to a rank that agrees with them, in any order.
//
// covers: matching/recovery_message.ipp
// covers: matching/consensus.ipp
// covers: matching/loss_view.hpp

#include "input.hpp"

#include <colls/matching/consensus.hpp>

#include <span>

namespace {

using colls::consensus;
using colls::recovery_message;

constexpr int size = 5;

struct silent_network final : consensus::network {
  void send(int peer, const recovery_message& message) override {
    fuzz::require(peer >= 0 && peer < size, "a message goes to a rank");
    fuzz::require(recovery_message::parse(message.bytes(), size).has_value(),
                  "what a rank sends can be read");
  }
};

/// Returns a message that a peer may send, or, seldom, the bytes of the input.
std::vector<std::byte> message_of(fuzz::input& from, const consensus& to) {
  const int what = from.byte();
  if (what >= 0xf0) {
    const std::string_view text = from.text();
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  recovery_message message;
  message.type = static_cast<recovery_message::kind>(1 + what % 7);
  message.number = what & 64 ? 1 + static_cast<std::uint64_t>(from.below(4)) : to.number();
  if (what & 32) {
    message.view = to.view();
  }
  if (what & 16) {
    const int facts = from.byte();
    if (facts & 1) message.view.add_proved(facts / 2 % size);
    if (facts & 16 && facts / 32 != 0) message.view.add_broken(0, 1 + facts / 32 % (size - 1));
  }
  message.late = from.below(size + 1) - 1;
  message.request.value = from.byte();
  message.request.quorum = static_cast<colls::quorum>(message.request.value & 1);
  const bool needs_decision = message.type == recovery_message::kind::proposal ||
                              message.type == recovery_message::kind::decision;
  if (needs_decision || (message.request.value & 2) != 0) {
    message.accepted.emplace();
    message.accepted->facts = static_cast<std::uint64_t>(from.below(4));
    message.accepted->decision.request = message.request;
    const int lost = from.byte();
    if (lost & 1) message.accepted->decision.lost.push_back({lost / 2 % size, (lost & 128) != 0});
  }
  return message.bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  fuzz::input from(data, bytes);
  const int kind = from.byte();
  silent_network net;
  const int own = kind / 2 % size;
  consensus agreements(own, size, (kind & 1) != 0, net);
  for (int steps = 0; !from.is_over() && steps < 200; ++steps) {
    const int what = from.byte();
    const int peer = what / 8 % size;
    switch (what % 8) {
      case 0:
        agreements.call({colls::collective::agree, static_cast<colls::quorum>(what / 128), false,
                         static_cast<std::uint64_t>(what)});
        break;
      case 1:
        if (peer != own) agreements.add_proved(peer);
        break;
      case 2:
        if (peer != own) agreements.add_broken(own, peer);
        break;
      case 3:
        agreements.spread_late();
        break;
      case 4:
        if (agreements.current_state() == consensus::state::decided) agreements.advance();
        break;
      case 5:
        if (what >= 0xf8) agreements.depart();
        break;
      default: {
        const auto message = recovery_message::parse(message_of(from, agreements), size);
        if (message && peer != own) agreements.receive(peer, *message);
      }
    }
    const int late = agreements.late_rank();
    fuzz::require(late >= -1 && late < size, "a late rank is a rank");
  }
  return 0;
}
