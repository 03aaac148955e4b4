// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What ranks on GPUs of their own write into each other's memory, and where.

#include <colls/base/compiler.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::cuda {

/// A rank's page: for each of `buffers` sums in turn the flags of all ranks, and room for what they
/// write. A flag is the number of the last sum that it was raised in.
struct shot_page {
  static constexpr std::size_t most_ranks = 8;
  static constexpr std::size_t most_blocks = 32;
  static constexpr std::size_t rows = 2;
  /// Sums of a communicator at a time. A buffer is used again by the second sum after its own in
  /// the same slot: the flags of the first one say that all have read what was here.
  static constexpr std::size_t slots = 4;
  static constexpr std::size_t buffers = 2 * slots;
  static constexpr std::size_t room = 1 << 20;
  static constexpr std::size_t flag_bytes = buffers * rows * most_blocks * most_ranks * 8;
  static constexpr std::size_t bytes = flag_bytes + buffers * room;

  /// One for each rank.
  COLLS_HOST_DEVICE static std::uint64_t* flags(std::byte* page, std::uint64_t number,
                                                std::size_t row, std::size_t block) {
    const std::size_t line = (number % buffers * rows + row) * most_blocks + block;
    return reinterpret_cast<std::uint64_t*>(page) + line * most_ranks;
  }
  COLLS_HOST_DEVICE static std::byte* data(std::byte* page, std::uint64_t number) {
    return page + flag_bytes + number % buffers * room;
  }
};

/// Shots that a vector takes, of elements of so many bytes; 0: it is too long. Each block rounds up
/// by a pack for each rank at most.
constexpr int shots_for(std::size_t bytes, std::size_t element, int ranks) {
  const auto all = static_cast<std::size_t>(ranks);
  if (bytes == 0 || bytes > shot_page::room || element > shot_page::room) return 0;
  const std::size_t rounded = shot_page::most_blocks * (element > 64 ? element : 64);
  if (all * (bytes + rounded) <= shot_page::room) return 1;
  return 2 * (bytes + all * rounded) <= shot_page::room ? 2 : 0;
}

}  // namespace colls::cuda
