// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// peer_buffers: the layout of a rank's peer buffers. The peer buffers are device memory to which
// the kernels of other ranks write (see one_shot.cuh). Each rank has a GPU of its own.

#include <colls/base/compiler.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::cuda {

/// The layout of one rank's peer buffers. The memory is divided into several sets, which the
/// reductions of a communicator use in turn. Each set has flags and space for the data of all
/// ranks. To set a flag, a rank writes the sequence number of the current reduction to it.
struct peer_buffers {
  static constexpr std::size_t max_ranks = 8;
  static constexpr std::size_t max_blocks = 32;
  static constexpr std::size_t phases = 2;
  /// The maximum number of concurrent reductions of a communicator. Each reduction uses one slot. A
  /// slot has two sets, which its successive reductions use alternately. For example, if A, B and C
  /// are successive reductions of a slot, A and C use the same set. C starts on a rank only after B
  /// has completed there. By then, all ranks have set their flags for B. A rank sets these flags
  /// only after it has completed A. Therefore C can overwrite the set without waiting for other
  /// ranks.
  static constexpr std::size_t slots = 4;
  static constexpr std::size_t sets = 2 * slots;
  static constexpr std::size_t capacity = 1 << 20;
  static constexpr std::size_t flag_bytes = sets * phases * max_blocks * max_ranks * 8;
  static constexpr std::size_t bytes = flag_bytes + sets * capacity;

  /// Returns the flags of the thread block `block` for the reduction `sequence`. There is one flag
  /// for each rank. `buffers` is the address of the peer buffers. A rank sets its flag of phase 0
  /// when it has written its input, and its flag of phase 1 when it has written its results.
  COLLS_HOST_DEVICE static std::uint64_t* flags(std::byte* buffers, std::uint64_t sequence,
                                                std::size_t phase, std::size_t block) {
    const std::size_t row = (sequence % sets * phases + phase) * max_blocks + block;
    return reinterpret_cast<std::uint64_t*>(buffers) + row * max_ranks;
  }
  COLLS_HOST_DEVICE static std::byte* data(std::byte* buffers, std::uint64_t sequence) {
    return buffers + flag_bytes + sequence % sets * capacity;
  }
};

/// Chooses the algorithm (see one_shot.cuh) for an all_reduce of `bytes` bytes over `ranks` ranks.
/// Returns 1 for the one-shot algorithm if the vector is short enough for it. Otherwise returns 2
/// for the two-shot algorithm if the vector is short enough for that one. Returns 0 if the vector
/// is empty or too long for both. `element` is the size of an element in bytes. The calculation
/// includes padding: for each block and rank, the layout needs at most 64 bytes or one element of
/// padding, whichever is larger.
constexpr int shot_count(std::size_t bytes, std::size_t element, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  if (bytes == 0 || bytes > peer_buffers::capacity || element > peer_buffers::capacity) return 0;
  const std::size_t rounded = peer_buffers::max_blocks * (element > 64 ? element : 64);
  if (p * (bytes + rounded) <= peer_buffers::capacity) return 1;
  return 2 * (bytes + p * rounded) <= peer_buffers::capacity ? 2 : 0;
}

}  // namespace colls::cuda
