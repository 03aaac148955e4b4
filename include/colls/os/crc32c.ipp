// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// crc32c.ipp: the definitions of the functions in crc32c.hpp, and the lookup tables.

#include <colls/base/compiler.hpp>
#include <colls/os/crc32c.hpp>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#define COLLS_DETAIL_CRC32C [[gnu::target("sse4.2")]]
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define COLLS_DETAIL_CRC32C [[gnu::target("+crc")]]
#endif

namespace colls::detail {

/// The lookup tables of `crc32c_by_table` and `crc32c_by_instruction`. Each checksum in these
/// tables has all bits inverted. The lowest bit of a checksum is the coefficient of the highest
/// power of x.
struct crc32c_tables {
  using table = std::array<std::uint32_t, 256>;

  static constexpr std::uint32_t polynomial = 0x82f63b78;
  /// The lengths of a long and of a short stride in bytes. `crc32c_by_instruction` divides the data
  /// into blocks of three strides. It computes the checksums of the three strides in parallel, so
  /// that a CRC32C instruction need not wait for the result of the previous one.
  static constexpr std::size_t long_stride = 2048;
  static constexpr std::size_t short_stride = 256;

  /// `after[k][b]` is the checksum of the byte `b` followed by `k` zero bytes.
  std::array<table, 8> after{};
  /// The table that updates a checksum with `long_stride` zero bytes. Entry `[i][b]` is the result
  /// for a checksum that has the value `b` in byte `i` and 0 in all other bytes.
  std::array<table, 4> past_long_stride{};
  std::array<table, 4> past_short_stride{};

  constexpr crc32c_tables() {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t sum = byte;
      for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? polynomial : 0);
      after[0][byte] = sum;
    }
    for (std::size_t k = 1; k < 8; ++k) {
      for (std::size_t byte = 0; byte < 256; ++byte) after[k][byte] = past_zero(after[k - 1][byte]);
    }
    past_short_stride = past_zeros(short_stride);
    past_long_stride = past_zeros(long_stride);
  }

  static constexpr std::uint32_t past(const std::array<table, 4>& zeros, std::uint32_t sum) {
    return zeros[0][sum & 255] ^ zeros[1][(sum >> 8) & 255] ^ zeros[2][(sum >> 16) & 255] ^
           zeros[3][sum >> 24];
  }

 private:
  using linear_map = std::array<std::uint32_t, 32>;  // maps each bit of a checksum to a checksum

  constexpr std::uint32_t past_zero(std::uint32_t sum) const {
    return (sum >> 8) ^ after[0][sum & 255];
  }
  static constexpr std::uint32_t image(const linear_map& map, std::uint32_t value) {
    std::uint32_t sum = 0;
    for (std::size_t bit = 0; value != 0; ++bit, value >>= 1) {
      sum ^= (value & 1) != 0 ? map[bit] : 0;
    }
    return sum;
  }
  // Returns a table like `past_long_stride`, but for `count` zero bytes. `count` must be a power of
  // two.
  constexpr std::array<table, 4> past_zeros(std::size_t count) const {
    linear_map map{};
    for (std::size_t bit = 0; bit < 32; ++bit) map[bit] = past_zero(std::uint32_t{1} << bit);
    for (; count > 1; count /= 2) {
      linear_map twice{};
      for (std::size_t bit = 0; bit < 32; ++bit) twice[bit] = image(map, map[bit]);
      map = twice;
    }
    std::array<table, 4> zeros{};
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        zeros[i][byte] = image(map, byte << (8 * i));
      }
    }
    return zeros;
  }
};
inline constexpr crc32c_tables crc32c_table;

template <class Number>
Number load_unaligned(const unsigned char* data) {
  Number value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

COLLS_ONCE std::uint32_t crc32c_by_table(std::uint32_t sum, const void* data,
                                         std::size_t size) noexcept {
  const auto& after = crc32c_table.after;
  const auto* bytes = static_cast<const unsigned char*>(data);
  sum = ~sum;
  for (; size >= 8; size -= 8, bytes += 8) {
    const auto low = load_unaligned<std::uint32_t>(bytes) ^ sum;
    const auto high = load_unaligned<std::uint32_t>(bytes + 4);
    sum = after[7][low & 255] ^ after[6][(low >> 8) & 255] ^ after[5][(low >> 16) & 255] ^
          after[4][low >> 24] ^ after[3][high & 255] ^ after[2][(high >> 8) & 255] ^
          after[1][(high >> 16) & 255] ^ after[0][high >> 24];
  }
  for (; size > 0; --size, ++bytes) sum = (sum >> 8) ^ after[0][(sum ^ *bytes) & 255];
  return ~sum;
}

#ifdef COLLS_DETAIL_CRC32C

COLLS_ONCE bool has_crc32c_instruction() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#else
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
}

COLLS_DETAIL_CRC32C inline std::uint32_t crc32c_step(std::uint32_t sum, std::uint64_t word) {
#if defined(__x86_64__)
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(sum, word));
#else
  return __crc32cd(sum, word);
#endif
}
COLLS_DETAIL_CRC32C inline std::uint32_t crc32c_step(std::uint32_t sum, unsigned char byte) {
#if defined(__x86_64__)
  return __builtin_ia32_crc32qi(sum, byte);
#else
  return __crc32cb(sum, byte);
#endif
}

/// Updates the checksum `sum` with all complete blocks of three strides and returns the result.
/// Advances `bytes` past these blocks and reduces `size` by their length. `zeros` is the table for
/// one stride of zero bytes.
template <std::size_t Stride>
COLLS_DETAIL_CRC32C inline std::uint32_t crc32c_blocks(
    std::uint32_t sum, const unsigned char*& bytes, std::size_t& size,
    const std::array<crc32c_tables::table, 4>& zeros) {
  for (; size >= 3 * Stride; size -= 3 * Stride, bytes += 3 * Stride) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (std::size_t i = 0; i < Stride; i += 8) {
      sum = crc32c_step(sum, load_unaligned<std::uint64_t>(bytes + i));
      second = crc32c_step(second, load_unaligned<std::uint64_t>(bytes + Stride + i));
      third = crc32c_step(third, load_unaligned<std::uint64_t>(bytes + 2 * Stride + i));
    }
    sum = crc32c_tables::past(zeros, sum) ^ second;
    sum = crc32c_tables::past(zeros, sum) ^ third;
  }
  return sum;
}

COLLS_DETAIL_CRC32C COLLS_ONCE std::uint32_t crc32c_by_instruction(std::uint32_t sum,
                                                                   const void* data,
                                                                   std::size_t size) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  sum = ~sum;
  sum = crc32c_blocks<crc32c_tables::long_stride>(sum, bytes, size, crc32c_table.past_long_stride);
  sum =
      crc32c_blocks<crc32c_tables::short_stride>(sum, bytes, size, crc32c_table.past_short_stride);
  for (; size >= 8; size -= 8, bytes += 8) {
    sum = crc32c_step(sum, load_unaligned<std::uint64_t>(bytes));
  }
  for (; size > 0; --size, ++bytes) sum = crc32c_step(sum, *bytes);
  return ~sum;
}

#else

COLLS_ONCE bool has_crc32c_instruction() noexcept { return false; }

COLLS_ONCE std::uint32_t crc32c_by_instruction(std::uint32_t sum, const void* data,
                                               std::size_t size) noexcept {
  return crc32c_by_table(sum, data, size);
}

#endif
#undef COLLS_DETAIL_CRC32C

COLLS_ONCE std::uint32_t crc32c(std::uint32_t sum, const void* data, std::size_t size) noexcept {
  static const bool has_instruction = has_crc32c_instruction();
  return has_instruction ? crc32c_by_instruction(sum, data, size)
                         : crc32c_by_table(sum, data, size);
}

}  // namespace colls::detail
