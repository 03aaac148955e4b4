// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Link frames through a socket: two peers that send what they like to a rank with calls under way.
//
// covers: transport/interprocess/carrier/socket_frames.hpp: read take take_whole receive
// covers: transport/interprocess/payload_target.hpp: begin deliver_to complete_later filled take end abandon forget fail note
// covers: transport/interprocess/frame.hpp: plausible control_size
// covers: base/reported_failure.hpp: parse end
// covers: transport/interprocess/eager_rendezvous.hpp: message take keep refuse_later
// covers: transport/interprocess/eager_rendezvous.ipp: announced granted taken_back refused
// covers: transport/interprocess/interprocess_transport.ipp: received

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
      std::string text = std::exchange(held, {}) + fuzz::text_of(fuzz::speak(from, rank), rank);
      if (what < 0x60) {
        const std::size_t cut = from.number<std::uint16_t>() % text.size();
        held = text.substr(cut);
        text.resize(cut);
      }
      one.say(text);
    } else if (what < 0xd0) {
      one.say(from.text());
    } else if (what < 0xfa) {
      fuzz::settle();
    } else if (what < 0xfd) {
      one.stop_writing();
    } else {
      one.hang_up();
    }
    if (what & 2) fuzz::settle();
    for (fuzz::peer& each : peers) {
      if (each.is_open()) each.hear();
    }
  }
  fuzz::settle();
  return 0;
}
