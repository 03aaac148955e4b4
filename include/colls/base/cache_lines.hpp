// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Cache lines that one core writes and another one reads, again and again.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Some caches hand a modified line over whole to who reads it, if those who read such lines also
/// write them; else the next write of the first core has to ask for each line again. Writes a byte
/// into each line that begins in what this core has read and nobody needs any more.
inline void leave_lines(std::byte* from, std::size_t size) {
#if defined(__x86_64__)
  static const bool are_handed_over = __builtin_cpu_is("amd") != 0;
#else
  constexpr bool are_handed_over = false;
#endif
  if (!are_handed_over) return;
  constexpr std::size_t line = 64;
  const std::size_t first = (line - reinterpret_cast<std::uintptr_t>(from) % line) % line;
  for (std::size_t at = first; at < size; at += line) {
    *static_cast<volatile std::byte*>(from + at) = std::byte{};
  }
}

}  // namespace colls::detail
