// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cache_lines: speeds up the transfer of cache lines that one core writes and another core reads
// again and again.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Overwrites a byte in each cache line that begins in a buffer. Called by a reader of the buffer
/// that no longer needs the contents. AMD processors transfer the ownership of a modified line
/// together with its data if the readers of such lines usually write to the lines. Otherwise the
/// core that wrote the line must request the line again before its next write. On other processors,
/// this function does nothing.
inline void touch_lines(std::byte* data, std::size_t size) {
#if defined(__x86_64__)
  static const bool migrates_lines = __builtin_cpu_is("amd") != 0;
#else
  constexpr bool migrates_lines = false;
#endif
  if (!migrates_lines) return;
  constexpr std::size_t line = 64;
  const std::size_t first = (line - reinterpret_cast<std::uintptr_t>(data) % line) % line;
  for (std::size_t offset = first; offset < size; offset += line) {
    *static_cast<volatile std::byte*>(data + offset) = std::byte{};
  }
}

}  // namespace colls::detail
