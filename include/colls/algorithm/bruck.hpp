// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// bruck: all_gather and all_to_all for short blocks. These algorithms send few messages, each with
// many blocks. See Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems" (1997).
//
// In the comments, p is the number of ranks and k is the channel's radix. Rank (r + i) mod p is i
// ranks ahead of rank r. Block i on rank r is the data of rank (r + i) mod p in an all_gather, and
// the data for rank (r + i) mod p in an all_to_all.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/rotated_partition.hpp>

namespace colls::bruck {

/// Takes ceil(log_k p) rounds. In each round, a rank receives chunks from up to k-1 ranks ahead of
/// it. Every rank sends p-1 chunks in total.
struct all_gather_algorithm : built_in<collective::all_gather, algorithm::bruck> {
  static constexpr bool has_radix = true;

  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
    const rotated_partition order(parts, net.rank());
    scratch memory = net.scratch_like(in, out.size());
    const Data work = typed_view(out, memory.data(), out.size());
    const chunks block(work, order);
    net.copy(bytes(block[0]), bytes(in));
    for (int known = 1; known < net.size(); known = circle.next_step(known)) {
      // Returns the blocks that this rank receives from the peer that is `j * known` ranks ahead.
      // This rank sends the same number of blocks to the peer that is `j * known` ranks behind.
      const auto missing_blocks = [&](int j) {
        const int missing = net.size() - j * known;
        return pattern::rank_range{j * known, j * known + (known < missing ? known : missing)};
      };
      const auto send = [&](int j) {
        const pattern::rank_range held{0, missing_blocks(j).size()};
        return net.send(circle.behind(j * known), bytes(block[held]));
      };
      const auto recv = [&](int j) {
        return net.recv(circle.ahead(j * known), bytes(block[missing_blocks(j)]));
      };
      const int last = circle.peers(known) + 1;
      co_await when_all(each_of(1, last, send), each_of(1, last, recv));
    }
    order.unrotate(net, out, work);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    const auto known = [&](int step) {
      return model.number(step < model.ranks() - step ? step : model.ranks() - step);
    };
    auto sum = model.copied(model.dissemination_rounds(choice.radix, known), model.bytes());
    sum.bytes = model.number(model.ranks() - 1) * model.bytes();
    return sum;
  }
};
inline constexpr all_gather_algorithm all_gather;

/// The blocks that a rank sends in one round of an all_to_all. The distance of a block is the
/// number of ranks from its source to its destination. Each round has a step, which is a power of
/// k. The round with the step k^i handles digit i of the distances, which are written in base k. If
/// this digit of a block's distance is j, the round moves the block ahead by j * k^i ranks.
class travelling_blocks {
 public:
  travelling_blocks(const pattern::dissemination& circle, int step) {
    for (int j = 1; j <= circle.peers(step); ++j) {
      for (int i = j * step; i < circle.size; ++i) {
        if (i / step % circle.radix == j) blocks_.push_back(static_cast<std::size_t>(i));
      }
      first_.push_back(blocks_.size());
    }
  }

  /// Returns the distances of the blocks. Blocks that are sent to the same peer are adjacent.
  const detail::recycled_vector<std::size_t>& blocks() const { return blocks_; }
  /// Returns, for each peer, the index in `blocks()` of the first block that is sent to the peer.
  /// The last element is the number of all blocks.
  const detail::recycled_vector<std::size_t>& peer_offsets() const { return first_; }
  /// Returns the same offsets as `peer_offsets()`, but in bytes. `lengths[i]` is the length in
  /// bytes of the block `blocks()[i]`. Throws if the sum of the lengths exceeds `PTRDIFF_MAX`.
  detail::recycled_vector<std::size_t> byte_offsets(
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

/// Returns an operation that sends and receives the messages of the round with the step `step`. It
/// sends chunk i of `out` to the peer that is `(i + 1) * step` ranks ahead. It receives chunk i of
/// `in` from the peer that is `(i + 1) * step` ranks behind. `out_offsets` and `in_offsets` contain
/// the offset of each chunk in elements, followed by the end of the last chunk.
template <channel Channel>
auto exchange(const Channel& net, int step, any_buffer out,
              const detail::recycled_vector<std::size_t>& out_offsets, any_buffer in,
              const detail::recycled_vector<std::size_t>& in_offsets) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  const int peers = circle.peers(step);
  const chunks outgoing(out, partition::from_offsets(out_offsets.data(), peers));
  const chunks incoming(in, partition::from_offsets(in_offsets.data(), peers));
  const auto send = [&](int j) {
    return net.send(circle.ahead((j + 1) * step), bytes(outgoing[j]));
  };
  const auto recv = [&](int j) {
    return net.recv(circle.behind((j + 1) * step), bytes(incoming[j]));
  };
  return when_all(each_of(0, peers, send), each_of(0, peers, recv));
}

/// Runs the round with the step `step` and all later rounds of an all_to_all. Then copies the
/// blocks that have arrived from the other ranks to `arriving`. `block[i]` is the block with the
/// distance i. In each round, this rank replaces each block that it sends with the received block
/// of the same distance. If `is_one_length` is true, all blocks must have the same length.
/// Otherwise each message with blocks is preceded by a message with the lengths of these blocks.
/// See Fan, Gilray, Pascucci, Huang, Micinski, Kumar, "Optimizing the Bruck algorithm for
/// non-uniform all-to-all communication" (2022).
template <channel Channel, buffer Data>
task<> route(Channel net, detail::recycled_vector<mutable_bytes>& block, int step,
             bool is_one_length, chunks<Data, partition> arriving) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  if (step >= net.size()) {
    for (int i = 1; i < net.size(); ++i) {
      const int source = circle.behind(i);
      const mutable_bytes received = block[static_cast<std::size_t>(i)];
      const mutable_bytes expected = bytes(arriving[source]);
      if (received.size != expected.size) {
        failure reason(errc::mismatch);
        reason.set_detail("rank %d sends %zu bytes, rank %d expects %zu of it", source,
                          received.size, net.rank(), expected.size);
        net.revoke(reason);
        throw error(reason);
      }
      net.copy(expected, received);
    }
    co_return;
  }
  const travelling_blocks moves(circle, step);
  detail::recycled_vector<std::uint64_t> out_lengths;
  for (const std::size_t i : moves.blocks()) out_lengths.push_back(block[i].size);
  detail::recycled_vector<std::uint64_t> in_lengths = out_lengths;
  if (!is_one_length) {
    const any_buffer sent(out_lengths.data(), out_lengths.size(), sizeof(std::uint64_t));
    const any_buffer received(in_lengths.data(), in_lengths.size(), sizeof(std::uint64_t));
    co_await exchange(net, step, sent, moves.peer_offsets(), received, moves.peer_offsets());
  }
  const detail::recycled_vector<std::size_t> out = moves.byte_offsets(out_lengths);
  const detail::recycled_vector<std::size_t> in = moves.byte_offsets(in_lengths);
  scratch outgoing = net.scratch_bytes(out.back());
  scratch incoming = net.scratch_bytes(in.back());
  std::byte* at = outgoing.data();
  for (const std::size_t i : moves.blocks()) {
    net.copy({at, block[i].size}, block[i]);
    at += block[i].size;
  }
  co_await exchange(net, step, any_buffer(outgoing.data(), out.back(), 1), out,
                    any_buffer(incoming.data(), in.back(), 1), in);
  at = incoming.data();
  for (std::size_t k = 0; k < in_lengths.size(); ++k) {
    block[moves.blocks()[k]] = {at, in_lengths[k]};
    at += in_lengths[k];
  }
  co_await route(net, block, circle.next_step(step), is_one_length, arriving);
}

/// Takes ceil(log_k p) rounds. In each round, a rank sends at most k-1 messages. The distance from
/// the source of a chunk to its destination is written in base k. The chunk is sent once for each
/// nonzero digit of this number. If `in_parts.is_blocks()` is false, the ranks also exchange the
/// lengths of the chunks. This doubles the numbers of rounds and messages.
struct all_to_all_algorithm : built_in<collective::all_to_all, algorithm::bruck> {
  static constexpr bool has_radix = true;

  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
    const pattern::ring ring(net.rank(), net.size());
    const chunks outgoing(in, in_parts);
    const chunks arriving(out, out_parts);
    detail::recycled_vector<mutable_bytes> block;
    for (int i = 0; i < net.size(); ++i) block.push_back(bytes(outgoing[ring.ahead(i)]));
    net.copy(bytes(arriving[net.rank()]), block[0]);
    co_await route(net, block, 1, in_parts.is_blocks(), arriving);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    // Each round handles one digit of the distances. `step` is the value of this digit's place. A
    // message contains all chunks that have the same digit at this place. The message for the
    // digit 1 is the longest.
    const std::uint64_t p = model.number(model.ranks());
    std::uint64_t packed = 0;
    const auto longest_message = [&](int step) {
      const std::uint64_t unit = model.number(step);
      const std::uint64_t period = unit * model.number(choice.radix);
      const std::uint64_t rest = p % period;
      const std::uint64_t below = rest < unit ? rest : unit;
      packed += p - (p / period * unit + below);
      return p / period * unit + (rest - below < unit ? rest - below : unit);
    };
    auto sum = model.dissemination_rounds(choice.radix, longest_message);
    sum.bytes = p * packed * model.chunk_bytes();
    return model.copied(sum, 2 * packed * model.chunk_bytes());
  }
};
inline constexpr all_to_all_algorithm all_to_all;

}  // namespace colls::bruck
