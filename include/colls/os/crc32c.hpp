// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The CRC32C checksum (Castagnoli's polynomial, as in iSCSI and ext4). Uses the processor's CRC32C
// instruction where it exists.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Continues a checksum: `sum` is the checksum of the preceding bytes, 0 if there are none. Returns
/// the checksum of those bytes followed by `size` bytes at `data`.
std::uint32_t crc32c(std::uint32_t sum, const void* data, std::size_t size) noexcept;

/// The portable implementation of `crc32c`, which uses lookup tables.
std::uint32_t crc32c_by_table(std::uint32_t sum, const void* data, std::size_t size) noexcept;

/// Returns whether this processor has a CRC32C instruction. `crc32c_by_instruction` may be called
/// only if it has.
bool has_crc32c_instruction() noexcept;
std::uint32_t crc32c_by_instruction(std::uint32_t sum, const void* data, std::size_t size) noexcept;

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/crc32c.ipp>
#endif
