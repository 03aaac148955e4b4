// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// CRC32C (Castagnoli's polynomial, as in iSCSI and ext4), by the processor's instruction where it
// has one.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// The checksum of all bytes so far: of those that gave `sum` (0: none), and of these.
std::uint32_t crc32c(std::uint32_t sum, const void* from, std::size_t size) noexcept;

/// The same by tables.
std::uint32_t crc32c_by_table(std::uint32_t sum, const void* from, std::size_t size) noexcept;

/// Whether this processor has an instruction for it. Only then `crc32c_by_instruction` may be
/// called.
bool has_crc32c_instruction() noexcept;
std::uint32_t crc32c_by_instruction(std::uint32_t sum, const void* from, std::size_t size) noexcept;

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/crc32c.ipp>
#endif
