// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// crc32c: the CRC32C checksum, which iSCSI and ext4 also use. It is a CRC-32 with the polynomial of
// Castagnoli. If the processor has a CRC32C instruction, the function `crc32c` uses it.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// Updates the checksum `sum` with the `size` bytes at `data` and returns the result. For the first
/// bytes of a message, `sum` must be 0.
std::uint32_t crc32c(std::uint32_t sum, const void* data, std::size_t size) noexcept;

/// Returns the same checksum as `crc32c`. Uses lookup tables, which work on every processor.
std::uint32_t crc32c_by_table(std::uint32_t sum, const void* data, std::size_t size) noexcept;

/// Returns whether this processor has a CRC32C instruction. If it has none, `crc32c_by_instruction`
/// must not be called.
bool has_crc32c_instruction() noexcept;
std::uint32_t crc32c_by_instruction(std::uint32_t sum, const void* data, std::size_t size) noexcept;

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/crc32c.ipp>
#endif
