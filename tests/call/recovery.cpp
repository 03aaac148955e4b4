// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include "../support/communicators.hpp"

#include <vector>

// agree on ranks of one thread.

namespace {

using colls::agreement;
using colls::errc;

TEST_CASE("ranks agree on the AND of their values, again and again") {
  for (int size = 1; size <= 9; ++size) {
    CAPTURE(size);
    communicators all(size);
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<colls::operation<agreement>> calls;
      std::uint64_t expected = ~std::uint64_t{0};
      for (int rank = 0; rank < size; ++rank) {
        const std::uint64_t value = ~(std::uint64_t{1} << (static_cast<unsigned>(rank) + round));
        expected &= value;
        calls.push_back(all[rank].agree(value));
      }
      for (auto& each : calls) {
        all.wait(each);
        const agreement result = each.result();
        CHECK(result.value == expected);
        CHECK(result.lost.empty());
      }
    }
    all.check_good();
  }
}

}  // namespace
