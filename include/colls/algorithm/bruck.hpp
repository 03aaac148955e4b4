// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// bruck: few messages, each of many blocks, for short blocks. Bruck, Ho, Kipnis, Upfal, Weathersby,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems" (1997).
//
// Block i of a rank is that of the rank i ahead; k is the channel's radix.

#include <colls/algorithm/rotated_partition.hpp>

namespace colls::bruck {

/// Before, rank r holds chunk r in its place in `data`; afterwards every rank holds all chunks.
/// ceil(log_k p) rounds, in which a rank gets from up to k-1 ranks ahead what they know; it sends
/// p-1 chunks in all.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  const rotated order(parts, net.rank());
  scratch memory = net.scratch_like(data, data.size());
  const Data work = placed(data, memory.data(), data.size());
  const chunks block(work, order);
  net.copy(bytes(block[0]), bytes(chunks(data, parts)[net.rank()]));
  for (int known = 1; known < net.size(); known = circle.after(known)) {
    // What the rank j steps ahead knows and we do not; we send as much.
    const auto theirs = [&](int j) {
      const int missing = net.size() - j * known;
      return pattern::rank_range{j * known, j * known + (known < missing ? known : missing)};
    };
    const auto send = [&](int j) {
      const pattern::rank_range ours{0, theirs(j).size()};
      return net.send(circle.behind(j * known), bytes(block[ours]));
    };
    const auto recv = [&](int j) {
      return net.recv(circle.ahead(j * known), bytes(block[theirs(j)]));
    };
    const int last = circle.peers(known) + 1;
    co_await when_all(each_of(1, last, send), each_of(1, last, recv));
  }
  order.turn_back(net, data, work);
}

/// The blocks that travel in one round: those whose distance has the digit j at `step` go j steps.
class travellers {
 public:
  travellers(const pattern::dissemination& circle, int step) {
    for (int j = 1; j <= circle.peers(step); ++j) {
      for (int i = j * step; i < circle.size; ++i) {
        if (i / step % circle.radix == j) blocks_.push_back(static_cast<std::size_t>(i));
      }
      first_.push_back(blocks_.size());
    }
  }

  /// In the order of their peers.
  const detail::recycled_vector<std::size_t>& blocks() const { return blocks_; }
  /// How many there are for each peer, as offsets.
  const detail::recycled_vector<std::size_t>& of_peers() const { return first_; }
  /// The bytes for each peer, as offsets, if the blocks have these lengths.
  detail::recycled_vector<std::size_t> bytes(
      const detail::recycled_vector<std::uint64_t>& lengths) const {
    detail::recycled_vector<std::size_t> offsets{0};
    for (std::size_t j = 1; j < first_.size(); ++j) {
      std::size_t end = offsets.back();
      for (std::size_t k = first_[j - 1]; k < first_[j]; ++k) {
        if (lengths[k] > PTRDIFF_MAX - end) throw error(errc::protocol_error);
        end += lengths[k];
      }
      offsets.push_back(end);
    }
    return offsets;
  }

 private:
  detail::recycled_vector<std::size_t> blocks_;
  detail::recycled_vector<std::size_t> first_{0};
};

/// One message to each peer of the round and one from it: a chunk of `out` and one of `in`, by the
/// offsets of both.
template <channel Channel>
auto exchange(const Channel& net, int step, any_buffer out,
              const detail::recycled_vector<std::size_t>& leaving, any_buffer in,
              const detail::recycled_vector<std::size_t>& coming) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  const int peers = circle.peers(step);
  const chunks to(out, partition::from_offsets(leaving.data(), peers));
  const chunks from(in, partition::from_offsets(coming.data(), peers));
  const auto send = [&](int j) { return net.send(circle.ahead((j + 1) * step), bytes(to[j])); };
  const auto recv = [&](int j) { return net.recv(circle.behind((j + 1) * step), bytes(from[j])); };
  return when_all(each_of(0, peers, send), each_of(0, peers, recv));
}

/// Brings the blocks to their ranks, and those that end here into `arriving`. What takes a block's
/// place on its way has as far to go from there. Where ranks have blocks of lengths of their own, a
/// message of those goes ahead of each message of blocks: Fan, Gilray, Pascucci, Huang, Micinski,
/// Kumar, "Optimizing the Bruck algorithm for non-uniform all-to-all communication" (2022).
template <channel Channel, buffer Data>
task<> bring(Channel net, detail::recycled_vector<mutable_bytes>& block, int step, bool one_length,
             chunks<Data, partition> arriving) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  if (step >= net.size()) {
    for (int i = 1; i < net.size(); ++i) {
      const int from = circle.behind(i);
      const mutable_bytes came = block[static_cast<std::size_t>(i)];
      const mutable_bytes place = bytes(arriving[from]);
      if (came.size != place.size) {
        failure why(errc::mismatch);
        why.say("rank %d sends %zu bytes, rank %d expects %zu of it", from, came.size, net.rank(),
                place.size);
        net.revoke(why);
        throw error(why);
      }
      net.copy(place, came);
    }
    co_return;
  }
  const travellers go(circle, step);
  detail::recycled_vector<std::uint64_t> leaving;
  for (const std::size_t i : go.blocks()) leaving.push_back(block[i].size);
  detail::recycled_vector<std::uint64_t> coming = leaving;
  if (!one_length) {
    const any_buffer ours(leaving.data(), leaving.size(), sizeof(std::uint64_t));
    const any_buffer theirs(coming.data(), coming.size(), sizeof(std::uint64_t));
    co_await exchange(net, step, ours, go.of_peers(), theirs, go.of_peers());
  }
  const detail::recycled_vector<std::size_t> out = go.bytes(leaving);
  const detail::recycled_vector<std::size_t> in = go.bytes(coming);
  scratch outgoing = net.scratch_bytes(out.back());
  scratch incoming = net.scratch_bytes(in.back());
  std::byte* at = outgoing.data();
  for (const std::size_t i : go.blocks()) {
    net.copy({at, block[i].size}, block[i]);
    at += block[i].size;
  }
  co_await exchange(net, step, any_buffer(outgoing.data(), out.back(), 1), out,
                    any_buffer(incoming.data(), in.back(), 1), in);
  at = incoming.data();
  for (std::size_t k = 0; k < coming.size(); ++k) {
    block[go.blocks()[k]] = {at, coming[k]};
    at += coming[k];
  }
  co_await bring(net, block, circle.after(step), one_length, arriving);
}

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. Chunk i of this rank's `in_parts` is as long as this rank's
/// chunk of the `out_parts` on rank i. ceil(log_k p) rounds of at most k-1 messages, in which a
/// chunk travels once for each digit of its distance that is not 0; twice as many rounds and
/// messages unless all chunks of all ranks are of one length (`partition::blocks`).
template <channel Channel, buffer Data>
task<> all_to_all(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  detail::recycled_vector<mutable_bytes> block;
  for (int i = 0; i < net.size(); ++i) block.push_back(bytes(outgoing[ring.ahead(i)]));
  net.copy(bytes(arriving[net.rank()]), block[0]);
  co_await bring(net, block, 1, in_parts.is_blocks(), arriving);
}

}  // namespace colls::bruck
