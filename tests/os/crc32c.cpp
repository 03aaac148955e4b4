// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/os/crc32c.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace colls::detail;
using crc_function = std::uint32_t (*)(std::uint32_t, const void*, std::size_t) noexcept;

std::vector<crc_function> implementations() {
  std::vector<crc_function> all{&crc32c, &crc32c_by_table};
  if (has_crc32c_instruction()) all.push_back(&crc32c_by_instruction);
  return all;
}

std::vector<unsigned char> random_bytes(std::size_t size) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(size);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// Computes the checksum bit by bit, from the definition of the polynomial.
std::uint32_t by_definition(const unsigned char* from, std::size_t size) {
  std::uint32_t sum = ~std::uint32_t{0};
  for (; size > 0; --size, ++from) {
    sum ^= *from;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~sum;
}

}  // namespace

TEST_CASE("known checksums") {
  std::string ascending(32, 0);
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
  const std::string descending(ascending.rbegin(), ascending.rend());
  // RFC 3720, B.4
  for (const crc_function sum : implementations()) {
    CHECK(sum(0, "", 0) == 0);
    CHECK(sum(0, "123456789", 9) == 0xe3069283);
    CHECK(sum(0, std::string(32, '\0').data(), 32) == 0x8a9136aa);
    CHECK(sum(0, std::string(32, '\xff').data(), 32) == 0x62a8ab43);
    CHECK(sum(0, ascending.data(), 32) == 0x46dd794e);
    CHECK(sum(0, descending.data(), 32) == 0x113fdb5c);
  }
}

TEST_CASE("every implementation follows the definition for every length and alignment") {
  const std::vector<unsigned char> bytes = random_bytes(20'000);
  std::vector<std::size_t> lengths;
  for (std::size_t size = 0; size < 1600; ++size) lengths.push_back(size);
  for (const std::size_t stride : {256U, 2048U}) {  // lengths that are summed in three chains
    for (std::size_t blocks = 1; blocks <= 3; ++blocks) {
      for (const int beside : {-8, -1, 0, 1, 7, 9}) {
        lengths.push_back(3 * stride * blocks + static_cast<std::size_t>(beside));
      }
    }
  }
  for (const std::size_t size : lengths) {
    const std::size_t offset = size % 8;
    const std::uint32_t right = by_definition(bytes.data() + offset, size);
    for (const crc_function sum : implementations()) {
      if (sum(0, bytes.data() + offset, size) == right) continue;
      CAPTURE(size);
      FAIL_CHECK("a sum differs");
    }
  }
}

TEST_CASE("a checksum can be continued at any byte") {
  const std::vector<unsigned char> bytes = random_bytes(9000);
  const std::uint32_t right = by_definition(bytes.data(), bytes.size());
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 37) {
    CAPTURE(cut);
    for (const crc_function sum : implementations()) {
      CHECK(sum(sum(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut) == right);
    }
  }
}

TEST_CASE("a change of any single bit changes the checksum") {
  std::vector<unsigned char> bytes = random_bytes(100);
  const std::uint32_t right = crc32c(0, bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<unsigned char>(1U << bit % 8);
    bytes[bit / 8] ^= mask;
    CHECK(crc32c(0, bytes.data(), bytes.size()) != right);
    bytes[bit / 8] ^= mask;
  }
}
