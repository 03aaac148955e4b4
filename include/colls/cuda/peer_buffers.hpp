// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// peer_buffers: the layout of a rank's peer buffers, the device memory to which the kernels of
// other ranks write (one_shot.cuh). Each of these ranks has a GPU of its own.

#include <colls/base/compiler.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::cuda {

/// The layout of one rank's peer buffers. The memory consists of `sets` sets, which the reductions
/// of a communicator use in turn. Each set has flags and space for the data of all ranks. The value
/// of a flag is the sequence number of the last reduction for which the flag was set.
struct peer_buffers {
  static constexpr std::size_t max_ranks = 8;
  static constexpr std::size_t max_blocks = 32;
  static constexpr std::size_t phases = 2;
  /// The maximum number of concurrent reductions of a communicator, each of which uses one slot.
  /// Successive reductions of a slot alternate between two sets. A reduction need not wait before
  /// it overwrites its set, because the flags of the slot's previous reduction have shown that all
  /// ranks have read the old contents of the set.
  static constexpr std::size_t slots = 4;
  static constexpr std::size_t sets = 2 * slots;
  static constexpr std::size_t capacity = 1 << 20;
  static constexpr std::size_t flag_bytes = sets * phases * max_blocks * max_ranks * 8;
  static constexpr std::size_t bytes = flag_bytes + sets * capacity;

  /// Returns the flags of the thread block `block` in the peer buffers at `buffers`, one flag for
  /// each rank. `phase` is 0 for the flags of the inputs and 1 for the flags of the sums.
  COLLS_HOST_DEVICE static std::uint64_t* flags(std::byte* buffers, std::uint64_t sequence,
                                                std::size_t phase, std::size_t block) {
    const std::size_t row = (sequence % sets * phases + phase) * max_blocks + block;
    return reinterpret_cast<std::uint64_t*>(buffers) + row * max_ranks;
  }
  COLLS_HOST_DEVICE static std::byte* data(std::byte* buffers, std::uint64_t sequence) {
    return buffers + flag_bytes + sequence % sets * capacity;
  }
};

/// Returns the number of shots (1 or 2, see one_shot.cuh) of an all_reduce of `bytes` bytes over
/// `ranks` ranks, or 0 if the vector is empty or too long. `element` is the size of an element in
/// bytes. The calculation includes the padding of the layout, which is at most 64 bytes or one
/// element, whichever is larger, for each block and rank.
constexpr int shot_count(std::size_t bytes, std::size_t element, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  if (bytes == 0 || bytes > peer_buffers::capacity || element > peer_buffers::capacity) return 0;
  const std::size_t rounded = peer_buffers::max_blocks * (element > 64 ? element : 64);
  if (p * (bytes + rounded) <= peer_buffers::capacity) return 1;
  return 2 * (bytes + p * rounded) <= peer_buffers::capacity ? 2 : 0;
}

}  // namespace colls::cuda
