// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/matching/in_flight.hpp>
#include <colls/matching/match_queues.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "../support/stepped.hpp"

namespace {

using namespace colls;
using due_action = in_flight::due_action;

struct calls {
  communicator_state all{7, 0, 4, nullptr};
  in_flight begun;
  std::vector<operation_record> records;
  std::vector<std::pair<std::size_t, due_action>> actions;

  explicit calls(std::size_t count) : records(count) {
    for (operation_record& each : records) {
      each.communicator = &all;
      each.started = never;
      begun.add(each);
    }
  }
  ~calls() {
    for (operation_record& each : records) begun.remove(each);
  }
  void sweep(time_point now) {
    begun.sweep(now, [&](const operation_record& record, due_action action) {
      actions.emplace_back(static_cast<std::size_t>(&record - records.data()), action);
    });
  }
};

TEST_CASE("a sweep checks only operations that are due, however many are in flight") {
  for (const std::size_t count : {std::size_t{10}, std::size_t{100'000}}) {
    CAPTURE(count);
    calls many(count);
    many.sweep(seconds);
    CHECK(many.begun.check_count() == count);
    for (time_point now = seconds; now < seconds + 100 * milliseconds; now += 10'000) {
      many.sweep(now);
    }
    CHECK(many.begun.check_count() == count);
    CHECK(many.actions.empty());
    // 0.1, 0.2, 0.4, 0.8, 1.3, 1.8, ... s
    for (time_point now = seconds; now <= 11 * seconds; now += milliseconds) many.sweep(now);
    CHECK(many.actions.size() == 18 * count);
    CHECK(many.begun.check_count() == 19 * count);
  }
}

TEST_CASE("the inactivity timeout of an operation counts from its last progress") {
  calls two(2);
  two.all.inactivity = 8 * seconds;
  constexpr time_point began = seconds;
  for (time_point past = 0; past <= 40 * seconds; past += 50 * milliseconds) {
    if (past <= 20 * seconds) ++two.records[1].bytes;
    two.sweep(began + past);
    std::vector<std::size_t> idle;
    for (const auto& [index, action] : std::exchange(two.actions, {})) {
      if (action == due_action::inactivity_timeout) idle.push_back(index);
    }
    const auto is_idle = [&](std::size_t index) {
      return std::count(idle.begin(), idle.end(), index) == 1;
    };
    CHECK(is_idle(0) == (past >= 8 * seconds));
    // The timeout is noticed at most one check later.
    if (past < 28 * seconds) CHECK(!is_idle(1));
    if (past > 29 * seconds + 50 * milliseconds) CHECK(is_idle(1));
  }
}

TEST_CASE("deadlines expire in their order, whatever the order of the calls") {
  calls all(1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    all.records[i].deadline = static_cast<time_point>(1 + i * 617 % 1000) * 10'000;
  }
  for (const std::size_t i : {3u, 500u, 999u}) all.begun.remove(all.records[i]);
  std::size_t expired = 0;
  all.sweep(0);
  for (time_point now = 0; now <= 10 * milliseconds; now += 10'000) {
    CHECK(all.begun.due() > now - 10'000);
    all.sweep(now);
    for (const auto& [index, action] : std::exchange(all.actions, {})) {
      CHECK(action == due_action::total_timeout);
      CHECK(all.records[index].deadline == now);
      all.begun.remove(all.records[index]);
      all.records[index].deadline = never;
      ++expired;
    }
  }
  CHECK(expired == 997);
  CHECK(all.begun.due() == never);
  for (operation_record& each : all.records) all.begun.add(each);
}

TEST_CASE("a call that leaves the queue is checked again") {
  calls one(1);
  operation_record& call = one.records[0];
  call.last_progress = never;
  one.sweep(0);
  one.sweep(3000 * seconds);
  CHECK(one.actions.empty());
  CHECK(one.begun.check_count() == 1);
  call.last_progress = 0;
  call.announce_after = 3000 * seconds + 100 * milliseconds;
  one.begun.check_soon(call);
  one.sweep(3000 * seconds);
  CHECK(one.actions.empty());
  one.sweep(3000 * seconds + 100 * milliseconds);
  CHECK(one.actions.size() == 1);
}

// ---- match_queues

struct message final : unexpected_message {
  void drop() override {}
  void discard() noexcept override {}
};

/// Many point-to-point messages and receives with several tags and two sources.
struct many {
  run_queue queue;
  communicator_state all{7, 0, 4, nullptr};
  operation_record record;
  match_queues lists;
  std::vector<message> messages;
  std::vector<posted_receive> receives;
  completion done{[](completion&) noexcept {}, &queue};

  explicit many(std::size_t count) : messages(count), receives(count) {
    record.communicator = &all;
    for (posted_receive& each : receives) each.record = &record;
  }
  static message_key key(int peer, std::uint64_t tag) {
    return {peer, 7, tag, message_key::point_to_point};
  }
};

TEST_CASE("a receive of any source and one that names it take the oldest message, each once") {
  many all(6);
  for (std::size_t i = 0; i < 6; ++i) {
    all.messages[i].key = many::key(i % 2 == 0 ? 1 : 2, i == 4 ? 9 : 5);
    all.lists.add_unexpected(all.messages[i]);
  }
  const auto take = [&](int peer, std::uint64_t tag) {
    posted_receive receive;
    receive.key = many::key(peer, tag);
    receive.record = &all.record;
    unexpected_message* const found = all.lists.post(receive);
    if (found == nullptr) all.lists.withdraw(receive);
    return found == nullptr ? -1
                            : static_cast<int>(static_cast<message*>(found) - all.messages.data());
  };
  CHECK(take(2, 5) == 1);
  CHECK(take(posted_receive::any_source, 5) == 0);
  CHECK(take(posted_receive::any_source, 5) == 2);
  CHECK(take(1, 5) == -1);
  CHECK(take(posted_receive::any_source, 5) == 3);
  CHECK(take(1, 9) == 4);
  CHECK(take(posted_receive::any_source, 9) == -1);
  CHECK(take(2, 5) == 5);
  CHECK(all.lists.unexpected_count() == 0);
}

TEST_CASE("receives from any tag match the oldest message, and keep their place after a cancel") {
  many all(6);
  const auto post = [&](std::size_t i, int peer, std::uint64_t tag) {
    all.receives[i].key = many::key(peer, tag);
    return all.lists.post(all.receives[i]);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    all.messages[i].key = many::key(i < 2 ? 1 : 2, 5 + i);
    all.lists.add_unexpected(all.messages[i]);
  }
  CHECK(post(0, 2, posted_receive::any_tag) == &all.messages[2]);
  CHECK(all.receives[0].key == many::key(2, 7));
  CHECK(post(0, posted_receive::any_source, posted_receive::any_tag) == &all.messages[0]);
  all.lists.remove_unexpected(all.messages[1]);
  all.lists.remove_unexpected(all.messages[3]);
  CHECK(all.lists.unexpected_count() == 0);
  CHECK(post(1, 1, posted_receive::any_tag) == nullptr);
  CHECK(post(2, posted_receive::any_source, posted_receive::any_tag) == nullptr);
  CHECK(post(3, 1, 5) == nullptr);
  CHECK(post(4, 1, posted_receive::any_tag) == nullptr);
  CHECK(all.lists.posted_count() == 4);
  for (const std::size_t i : {1u, 2u, 3u, 4u}) {
    CHECK(all.lists.peek(many::key(1, 5)) == &all.receives[i]);
    all.receives[i].number = 10 + i;
    all.lists.set_cleared(all.receives[i], many::key(1, 5));
    CHECK(all.receives[i].key == many::key(1, 5));
  }
  for (const std::size_t i : {4u, 2u, 1u, 3u}) all.lists.unset_cleared(all.receives[i]);
  CHECK(all.receives[2].key == many::key(posted_receive::any_source, posted_receive::any_tag));
  CHECK(all.lists.take(many::key(2, 9)) == &all.receives[2]);
  CHECK(all.receives[2].key.sequence == 9);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[1]);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[3]);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[4]);
  CHECK(all.lists.posted_count() == 0);
}

TEST_CASE("a probe takes a message off the queues until it is received, discarded or withdrawn") {
  many all(6);
  posted_receive& probe = all.receives[0];
  const auto post = [&](std::size_t i, int peer) {
    all.receives[i].key = many::key(peer, 5);
    return all.lists.post(all.receives[i]);
  };
  probe.key = many::key(posted_receive::any_source, 5);
  probe.is_probe = true;
  probe.done = &all.done;
  CHECK_FALSE(all.lists.match_probe(probe));
  CHECK(post(0, posted_receive::any_source) == nullptr);
  CHECK(post(1, 1) == nullptr);
  CHECK(all.lists.peek(many::key(1, 5)) == nullptr);  // the probe is older than the receive
  CHECK(all.lists.take(many::key(1, 5)) == nullptr);
  all.messages[0].key = all.messages[1].key = all.messages[2].key = many::key(1, 5);
  all.lists.add_unexpected(all.messages[0]);
  CHECK(probe.taken == &all.messages[0]);
  CHECK_FALSE(probe.queued);
  CHECK(all.lists.unexpected_count() == 0);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[1]);
  unexpected_message* kept = nullptr;
  match_queues::move_ownership(probe.taken, kept);
  CHECK(probe.taken == nullptr);
  posted_receive& reader = all.receives[2];
  reader.key = kept->key;
  reader.takes_probed = true;
  match_queues::move_ownership(kept, reader.taken);
  CHECK(all.lists.post(reader) == &all.messages[0]);
  CHECK(reader.taken == nullptr);
  all.lists.add_unexpected(all.messages[1]);
  CHECK(all.lists.match_probe(probe));
  CHECK(all.lists.take_unexpected(many::key(1, 5), [](const auto&) { return true; }) ==
        &all.messages[1]);
  CHECK(probe.taken == nullptr);
  all.lists.add_unexpected(all.messages[2]);
  CHECK(all.lists.match_probe(probe));
  all.lists.remove_unexpected(all.messages[2]);
  CHECK(probe.taken == nullptr);
  all.lists.add_unexpected(all.messages[2]);
  CHECK(all.lists.match_probe(probe));
  int reports = 0;
  all.lists.drop_unexpected_of(probe.key.communicator, 1, [&](const message_key&) { ++reports; });
  CHECK(probe.taken == nullptr);
  CHECK(reports == 1);
}

TEST_CASE("a receive whose CTS is cancelled keeps its place in the queue") {
  many all(5);
  const auto post = [&](std::size_t i, int peer) {
    all.receives[i].key = many::key(peer, 5);
    CHECK(all.lists.post(all.receives[i]) == nullptr);
  };
  post(0, posted_receive::any_source);
  post(1, 1);
  post(2, posted_receive::any_source);
  post(3, 1);
  for (const std::size_t i : {0u, 1u, 2u}) {
    CHECK(all.lists.peek(many::key(1, 5)) == &all.receives[i]);
    all.receives[i].number = 10 + i;
    all.lists.set_cleared(all.receives[i], many::key(1, 5));
  }
  CHECK(all.lists.peek(many::key(1, 5)) == &all.receives[3]);
  CHECK(all.lists.find_cleared(many::key(1, 5), 11) == &all.receives[1]);
  for (const std::size_t i : {2u, 0u}) all.lists.unset_cleared(all.receives[i]);
  post(4, posted_receive::any_source);
  CHECK(all.receives[0].key.peer == posted_receive::any_source);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[0]);
  CHECK(all.lists.take(many::key(2, 5)) == &all.receives[2]);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[3]);
  CHECK(all.lists.take_cleared(many::key(1, 5)) == &all.receives[1]);
  CHECK(all.lists.take(many::key(1, 5)) == &all.receives[4]);
  CHECK(all.lists.posted_count() == 0);
}

#if defined(__x86_64__)

TEST_CASE("matching takes as many instructions among many messages and receives as among few") {
  struct steps {
    unsigned named, any, withdrawn, receive, removed;
  };
  const auto count_steps = [](std::size_t count) {
    const auto count_of = [](auto work) { return stepped::run([](unsigned) {}, work); };
    steps found{};
    {
      many all(count);
      for (message& each : all.messages) {
        each.key = many::key(1, 5);
        all.lists.add_unexpected(each);
      }
      posted_receive named = all.receives[0];
      posted_receive any = all.receives[1];
      named.key = many::key(1, 5);
      any.key = many::key(posted_receive::any_source, 5);
      found.named = count_of([&] { all.lists.post(named); });
      found.any = count_of([&] { all.lists.post(any); });
      found.removed = count_of([&] { all.lists.remove_unexpected(all.messages[count / 2]); });
    }
    {
      many all(count);
      for (posted_receive& each : all.receives) {
        each.key = many::key(1, 5);
        all.lists.post(each);
      }
      found.receive = count_of([&] { all.lists.take(many::key(1, 5)); });
      found.withdrawn = count_of([&] { all.lists.withdraw(all.receives[count / 2]); });
    }
    return found;
  };
  const steps few = count_steps(100);
  const steps lots = count_steps(50'000);
  // Memory addresses may change the count by a few instructions.
  CHECK(lots.named <= few.named + 20);
  CHECK(lots.any <= few.any + 20);
  CHECK(lots.receive <= few.receive + 20);
  CHECK(lots.withdrawn <= few.withdrawn + 20);
  CHECK(lots.removed <= few.removed + 20);
}

#endif

}  // namespace
