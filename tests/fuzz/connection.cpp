// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Frames through a socket: two peers that send arbitrary frames to a rank with calls in flight.
//
// covers: transport/interprocess/carrier/stream_pipe.hpp: read take try_receive poll
// covers: transport/interprocess/payload_target.hpp: begin deliver_to complete_later filled take end abandon forget fail note
// covers: transport/interprocess/frame.hpp: is_plausible control_size
// covers: base/reported_failure.hpp: parse terminate
// covers: transport/interprocess/eager_rendezvous.hpp: receive_data take add_unexpected reject_and_finish
// covers: transport/interprocess/eager_rendezvous.ipp: receive_rts receive_cts receive_cancel reject
// covers: transport/interprocess/peer_protocol.ipp: received receive_revoke

#include "rank.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  fuzz::attacked_rank rank(from.below(2) == 1);
  std::vector<fuzz::peer> peers;
  for (int i = 1; i < fuzz::attacked_rank::size; ++i) peers.push_back(rank.link_from(i));
  std::string held;  // the first half of a frame whose second half comes later
  int steps = 0;
  while (!from.is_over() && ++steps < 64) {
    const int what = from.byte();
    fuzz::peer& one = peers[static_cast<std::size_t>(what & 1)];
    if (what < 0x50) {
      rank.call(from);
    } else if (what < 0xc0) {
      std::string text =
          std::exchange(held, {}) + fuzz::text_of(fuzz::make_frame(from, rank), rank);
      if (what < 0x60) {
        const std::size_t cut = from.number<std::uint16_t>() % text.size();
        held = text.substr(cut);
        text.resize(cut);
      }
      one.send(text);
    } else if (what < 0xd0) {
      one.send(from.text());
    } else if (what < 0xfa) {
      fuzz::settle();
    } else if (what < 0xfd) {
      one.stop_writing();
    } else {
      one.close();
    }
    if (what & 2) fuzz::settle();
    for (fuzz::peer& each : peers) {
      if (each.is_open()) each.receive();
    }
  }
  fuzz::settle();
  return 0;
}
