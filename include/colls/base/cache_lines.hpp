// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cache_lines: a function that makes transfers of cache lines between two cores faster if one core
// repeatedly writes the lines and the other core reads them.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Overwrites a byte in each cache line that begins in a buffer. The reader of a buffer calls this
/// function when it no longer needs the contents. An AMD processor observes whether a core that
/// reads a modified line usually writes to the line afterwards. If the core does, the processor
/// transfers the ownership of a modified line together with its data. If the core does not, the
/// core that wrote the line must request the line again before its next write. On processors of
/// other vendors, this function does nothing.
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
