// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../support/recovery_messages.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>

// The bytes of recovery messages, and what a rank does with bytes that no rank sends; and which
// ranks survive in a view.

namespace {

using colls::loss_view;
using colls::recovery_message;

TEST_CASE("a message is read as it was written") {
  const recovery_message message = a_recovery_message();
  const auto read = recovery_message::parse(message.bytes(), 6);
  REQUIRE(read);
  CHECK(read->type == message.type);
  CHECK(read->late == 3);
  CHECK(read->number == message.number);
  CHECK(read->view == message.view);
  CHECK(read->request.operation == colls::collective::agree);
  CHECK(read->request.quorum == colls::quorum::any);
  CHECK(read->request.differs);
  CHECK(read->request.value == message.request.value);
  REQUIRE(read->accepted);
  CHECK(read->accepted->facts == 9);
  CHECK(read->accepted->decision.request.value == 7);
  CHECK(read->accepted->decision.lost == message.accepted->decision.lost);
  CHECK(read->bytes() == message.bytes());
}

TEST_CASE("bytes that no rank sends are refused") {
  const std::vector<std::byte> good = a_recovery_message().bytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(recovery_message::parse(std::span(good).first(size), 6));
  }
  CHECK_FALSE(recovery_message::parse(good, 5));  // rank 5 is none of 5 ranks
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4);
  CHECK_FALSE(recovery_message::parse(longer, 6));
  const auto with = [&](std::size_t offset, unsigned value) {
    std::vector<std::byte> changed = good;
    changed[offset] = static_cast<std::byte>(value);
    return recovery_message::parse(changed, 6);
  };
  CHECK_FALSE(with(0, 0));  // no kind
  CHECK_FALSE(with(0, 8));
  CHECK_FALSE(with(2, 2));     // no quorum
  CHECK_FALSE(with(3, 2));     // neither true nor false
  CHECK_FALSE(with(7, 0x80));  // a negative rank
  CHECK_FALSE(with(24, 200));  // more proved losses than there are bytes
  CHECK_FALSE(with(28, 200));
  CHECK_FALSE(with(48, 200));
  CHECK_FALSE(with(55, 2));
  CHECK_FALSE(with(55, 0));  // a proposal needs a decision
  CHECK_FALSE(with(60, 5));  // the lower rank of a link comes first
}

TEST_CASE("no bytes make a reader allocate more than they are long") {
  std::mt19937 random(1);
  const std::vector<std::byte> good = a_recovery_message().bytes();
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::vector<std::byte> bytes = good;
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto read = recovery_message::parse(bytes, 6);
    if (!read) continue;
    ++accepted;
    CHECK(read->bytes().size() == bytes.size());
  }
  CHECK(accepted > 1000);
}

std::vector<int> survivors(const std::vector<std::pair<int, int>>& broken, int rank, int size,
                           const std::vector<int>& proved = {}) {
  loss_view view;
  for (const auto& [a, b] : broken) view.add_broken(a, b);
  for (const int each : proved) view.add_proved(each);
  return view.survivors(rank, size);
}

TEST_CASE("the rank with the most broken links is excluded, among equals the highest") {
  using ranks = std::vector<int>;
  CHECK(survivors({}, 0, 3) == ranks{0, 1, 2});
  CHECK(survivors({{0, 1}}, 2, 3) == ranks{0, 2});
  CHECK(survivors({{0, 1}, {0, 2}}, 3, 4) == ranks{1, 2, 3});
  CHECK(survivors({{0, 1}, {2, 3}}, 4, 5) == ranks{0, 2, 4});
  CHECK(survivors({{1, 2}, {2, 3}, {3, 4}}, 0, 5) == ranks{0, 1, 4});
  // A partition: each part goes on with its own ranks.
  const std::vector<std::pair<int, int>> cut{{0, 3}, {0, 4}, {1, 3}, {1, 4}, {2, 3}, {2, 4}};
  CHECK(survivors(cut, 1, 5) == ranks{0, 1, 2});
  CHECK(survivors(cut, 4, 5) == ranks{3, 4});
  // A link to a rank that has ended says nothing more.
  CHECK(survivors({{0, 1}, {0, 2}}, 3, 4, {0}) == ranks{1, 2, 3});
  CHECK(survivors({{0, 1}, {0, 2}, {1, 3}}, 3, 4, {0}) == ranks{1, 2});
}

TEST_CASE("one and two cut links: all ranks find the same survivors, and these reach each other") {
  for (int size = 2; size <= 5; ++size) {
    std::vector<std::pair<int, int>> links;
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) links.push_back({a, b});
    }
    for (std::size_t i = 0; i < links.size(); ++i) {
      for (std::size_t j = i; j < links.size(); ++j) {
        const std::vector<std::pair<int, int>> cut{links[i], links[j]};
        loss_view view;
        for (const auto& [a, b] : cut) view.add_broken(a, b);
        for (int rank = 0; rank < size; ++rank) {
          const std::vector<int> found = view.survivors(rank, size);
          for (const int a : found) {
            CHECK(view.survivors(a, size) == found);
            for (const int b : found) CHECK_FALSE((a != b && view.is_broken(a, b)));
          }
          CHECK(std::ssize(found) >= (size <= 3 ? 1 : size - 2));
        }
      }
    }
  }
}

}  // namespace
