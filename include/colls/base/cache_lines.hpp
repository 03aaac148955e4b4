// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Transfer of cache lines that one core writes and another core reads repeatedly.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Writes a byte into each cache line that begins in a buffer which this core has read and whose
/// contents are no longer needed. Some caches transfer ownership of a modified line to its reader
/// if readers usually write such lines too. Otherwise the next write of the first core must request
/// each line again.
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
