// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cache_lines: speeds up the transfer of cache lines that one core writes and another core reads
// again and again.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Overwrites a byte in each cache line that begins in a buffer. Called by a reader of the buffer
/// after the last read, when the contents are no longer needed. Does nothing on processors other
/// than AMD's. AMD processors transfer the ownership of a modified line to the core that reads it,
/// if readers usually write to such lines, as this function does. Without this transfer, the core
/// that wrote the lines must request each line again before its next write.
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
