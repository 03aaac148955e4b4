// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/os/access_guard.hpp>

#include "../support/paired_threads.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

namespace {

using namespace colls::shm;

constexpr int slots = 5;

/// The guard of a rank, and the views of the ranks that access its memory.
struct guarded {
  std::array<shared_line, guard_lines(slots)> lines{};
  access_guard guard{lines.data(), slots};

  guard_view view(int slot) { return {lines.data(), slots, slot}; }
};

bool enter(const guard_view& view, remote_key key) {
  return guard_view::enter_all([&](auto action) { action(view, key); });
}
bool is_still_open(const guard_view& view, remote_key key) {
  return guard_view::are_still_open([&](auto action) { action(view, key); });
}

}  // namespace

TEST_CASE("a revoked key lets no rank in, and the guard knows which ranks are inside") {
  guarded all;
  const guard_view view = all.view(3);
  const remote_key key = all.guard.open_key();
  REQUIRE(key != 0);
  CHECK(enter(view, key));
  CHECK(is_still_open(view, key));
  CHECK(all.guard.is_inside(3));
  CHECK(!all.guard.is_inside(2));
  CHECK(!all.guard.is_inside(4));
  all.guard.revoke_key(key);
  CHECK(!is_still_open(view, key));
  CHECK(all.guard.is_inside(3));
  view.leave();
  CHECK(!all.guard.is_inside(3));
  CHECK(!enter(view, key));
  view.leave();
  CHECK(!all.guard.is_inside(3));
}

TEST_CASE("if a rank enters while the owner revokes, one of them sees the other") {
  // Each side stores and then loads what the other side stores. Without a fence between the two,
  // the processor may load first, on both sides.
  guarded all;
  const guard_view view = all.view(3);
  remote_key key = all.guard.open_key();
  bool is_seen = false;
  bool has_entered = false;
  std::uint64_t unseen = 0;
  paired_threads().run(
      100'000,
      [&](std::uint64_t) {
        all.guard.revoke_key(key);
        is_seen = all.guard.is_inside(3);
      },
      [&](std::uint64_t) { has_entered = enter(view, key); },
      [&](std::uint64_t) {
        unseen += has_entered && !is_seen;
        view.leave();
        key = all.guard.open_key();
      });
  CHECK(unseen == 0);
}

TEST_CASE("a rank that enters several guards is let in if all of them are open, and leaves all") {
  guarded one;
  guarded other;
  const remote_key keys[] = {one.guard.open_key(), other.guard.open_key()};
  const auto for_each = [&](auto action) {
    action(one.view(2), keys[0]);
    action(other.view(4), keys[1]);
  };
  const auto leave = [&] { for_each([](const guard_view& view, remote_key) { view.leave(); }); };
  CHECK(guard_view::enter_all(for_each));
  CHECK(one.guard.is_inside(2));
  CHECK(other.guard.is_inside(4));
  CHECK(guard_view::are_still_open(for_each));
  one.guard.revoke_key(keys[0]);
  CHECK(!guard_view::are_still_open(for_each));
  leave();
  CHECK(!guard_view::enter_all(for_each));
  CHECK(one.guard.is_inside(2));
  CHECK(other.guard.is_inside(4));
  leave();
  CHECK(!one.guard.is_inside(2));
  CHECK(!other.guard.is_inside(4));
}

TEST_CASE("a rank that has entered twice is inside until it has left twice") {
  guarded all;
  const guard_view view = all.view(1);
  const remote_key keys[] = {all.guard.open_key(), all.guard.open_key()};
  CHECK(enter(view, keys[0]));
  CHECK(enter(view, keys[1]));
  view.leave();
  CHECK(all.guard.is_inside(1));
  view.leave();
  CHECK(!all.guard.is_inside(1));
  CHECK(enter(view, keys[0]));
  CHECK(enter(view, keys[1]));
  view.leave_entirely();
  CHECK(!all.guard.is_inside(1));
}

TEST_CASE("no key is opened twice, and their number is limited") {
  guarded all;
  const guard_view view = all.view(3);
  std::vector<remote_key> keys;
  while (const remote_key next = all.guard.open_key()) keys.push_back(next);
  CHECK(keys.size() == max_remote_keys);
  all.guard.close_key(keys[7]);
  const remote_key again = all.guard.open_key();
  CHECK(again != 0);
  CHECK(again != keys[7]);
  CHECK(!view.is_open(keys[7]));
  CHECK(view.is_open(again));
  CHECK(view.is_open(keys[8]));
}

TEST_CASE("the owner waits for each rank that is inside as long as it may access the memory") {
  guarded all;
  const remote_key key = all.guard.open_key();
  for (const int slot : {0, 2, 4}) CHECK(enter(all.view(slot), key));
  all.guard.revoke_key(key);
  std::vector<int> checked;
  const bool is_certain = all.guard.await_exit([&](int slot) {
    checked.push_back(slot);
    if (slot == 0 && checked.size() == 3) all.view(0).leave();
    return slot == 0 ? may_access::yes : may_access::no;
  });
  CHECK(is_certain);
  CHECK(checked == std::vector<int>{0, 0, 0, 2, 4});
}

TEST_CASE("the owner is told if it has not waited for a rank that may access the memory") {
  guarded all;
  const remote_key key = all.guard.open_key();
  for (const int slot : {1, 3}) CHECK(enter(all.view(slot), key));
  all.guard.revoke_key(key);
  int checks = 0;
  const auto check = [&](int slot) {
    ++checks;
    return slot == 1 ? may_access::unknown : may_access::no;
  };
  CHECK(!all.guard.await_exit(check));
  CHECK(checks == 2);
  all.view(1).leave();
  CHECK(all.guard.await_exit(check));
}

TEST_CASE("whatever a rank writes into the lines of a guard, no call of its owner hangs") {
  guarded all;
  for (shared_line& line : all.lines) line.word = UINT64_MAX;
  CHECK(all.guard.open_key() == 0);
  int checks = 0;
  const bool is_certain = all.guard.await_exit([&](int) {
    ++checks;
    return may_access::unknown;
  });
  CHECK(!is_certain);
  CHECK(checks == slots);
}
