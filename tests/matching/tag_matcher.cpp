// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/matching/communicator_recovery.hpp>
#include <colls/matching/tag_matcher.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../support/stepped.hpp"

namespace {

using namespace colls;

/// A numbered message that notes when its node is dropped.
struct message final : unexpected_message {
  int number = 0;
  bool dropped = false;

  message() = default;
  message(const message_key& message_id, int id) : number(id) { key = message_id; }
  void drop() override { dropped = true; }
  void discard() noexcept override {}
};

/// A receive whose completion counts.
struct receive : posted_receive {
  struct counter : completion {
    int times = 0;
  } ended;

  receive(const message_key& source_key, operation_record& operation, run_queue& queue) {
    key = source_key;
    record = &operation;
    done = &ended;
    ended.bind([](completion& self) noexcept { ++static_cast<counter&>(self).times; },
               completion(nullptr, &queue));
  }
};

/// A transport that only notes the calls of its hooks.
struct notes final : failure_hooks {
  std::vector<std::uint32_t> revoked_ids;
  std::vector<int> announced_to;
  std::vector<int> reported_to;
  state_report last_report;
  std::set<int> connected;
  int stopped_queries = 0;
  std::vector<int> disputed_with;
  std::vector<int> refused;
  failure last_refusal;

  void revoked(communicator_state& communicator, const failure&, int) override {
    revoked_ids.push_back(communicator.id());
  }
  void announce(int peer, const operation_record&, const state_report&) override {
    announced_to.push_back(peer);
  }
  void report(int peer, std::uint32_t, const state_report& known) override {
    reported_to.push_back(peer);
    last_report = known;
  }
  bool is_connected(int peer) override { return connected.count(peer) != 0; }
  bool is_stopped(int) override {
    ++stopped_queries;
    return false;
  }
  void dispute(int peer, std::uint32_t, std::uint64_t, const fingerprint&) override {
    disputed_with.push_back(peer);
  }
  void refuse(int peer, const failure& why) override {
    refused.push_back(peer);
    last_refusal = why;
  }
};

fingerprint call_of(std::uint64_t count) {
  fingerprint print;
  print.operation = collective::all_reduce;
  print.count = count;
  return print;
}

/// Rank 0 of a world of four with one communicator and one call in flight.
struct one_rank {
  run_queue queue;
  tag_matcher matching{0};
  notes transport;
  communicator_state all{7, 0, 4, nullptr};
  operation_record record;

  explicit one_rank(collective coll = collective::all_reduce) {
    matching.add(transport);
    matching.add(all);
    fingerprint call = call_of(10);
    call.operation = record.operation = coll;
    record.communicator = &all;
    record.sequence = all.take_sequence(call);
    record.hash = hash_of(call);
  }
  message_key from(int peer, std::uint16_t lane = 0) const {
    return {peer, all.id(), record.sequence, lane};
  }
  message_key direct(int peer, std::uint64_t tag) const {
    return {peer, all.id(), tag, message_key::point_to_point};
  }
};

/// A rank that has waited for rank 2 for so long that it queries the others.
struct waiting_rank : one_rank {
  receive posted{from(2), record, queue};

  waiting_rank() {
    transport.connected = {1, 2, 3};
    record.started = 1 * seconds;
    matching.begin(record);
    CHECK(matching.post(posted) == nullptr);
    matching.sweep(record.started + 100 * milliseconds);
  }
};

TEST_CASE("messages of one key match receives in order, and those of other keys never") {
  one_rank here;
  message first(here.from(1), 1);
  message second(here.from(1), 2);
  message other_lane(here.from(1, 1), 3);
  message other_peer(here.from(2), 4);
  for (message* each : {&first, &other_lane, &other_peer, &second})
    here.matching.add_unexpected(*each);

  receive posted(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(posted) == &first);
  CHECK_FALSE(posted.queued);
  CHECK(here.matching.post(posted) == &second);
  CHECK(here.matching.post(posted) == nullptr);
  CHECK(posted.queued);

  CHECK(here.matching.take(here.from(2, 1)) == nullptr);
  CHECK(here.matching.take(here.from(1)) == &posted);
  CHECK_FALSE(posted.queued);
}

TEST_CASE("a table keeps the order of thousands of keys while it grows") {
  key_table<message> table;
  std::vector<message> all(3000);
  for (int i = 0; i < 3000; ++i) {
    message& each = all[static_cast<std::size_t>(i)];
    each.number = i;
    each.key = {i % 1000, 7, static_cast<std::uint64_t>(i % 500), 0};
    table.push_back(each);
  }
  CHECK(table.size() == 3000);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1000; ++i) {
      message* const found = table.take({i, 7, static_cast<std::uint64_t>(i % 500), 0});
      REQUIRE(found != nullptr);
      REQUIRE(found->number == 1000 * round + i);
    }
  }
  CHECK(table.empty());
}

TEST_CASE("a search of a table with few nodes left visits only these") {
  key_table<message> table;
  std::vector<message> all(5000);
  for (int i = 0; i < 5000; ++i) {
    message& each = all[static_cast<std::size_t>(i)];
    each.number = i;
    each.key = {i, 7, 1, 0};
    table.push_back(each);
  }
  for (int i = 0; i < 4990; ++i) table.remove(all[static_cast<std::size_t>(i)]);
  int seen = 0;
  CHECK(table.all_of([&](const message&) { return ++seen > 0; }));
  CHECK(seen == 10);
  std::set<const void*> homes;
  for (int i = 0; i < 5000; ++i) homes.insert(table.bucket_address({i, 7, 1, 0}));
  CHECK(homes.size() <= 64);
  for (int i = 4990; i < 5000; ++i) CHECK(table.take({i, 7, 1, 0})->number == i);
  CHECK(table.empty());
}

TEST_CASE("point to point: the oldest receive that fits, the oldest message that fits") {
  one_rank here;
  SUBCASE("receives first") {
    receive any(here.direct(posted_receive::any_source, 5), here.record, here.queue);
    receive from_two(here.direct(2, 5), here.record, here.queue);
    receive other_tag(here.direct(2, 6), here.record, here.queue);
    for (receive* each : {&any, &from_two, &other_tag}) {
      CHECK(here.matching.post(*each) == nullptr);
    }
    CHECK(here.matching.take(here.direct(2, 5)) == &any);
    CHECK(here.matching.take(here.direct(1, 5)) == nullptr);
    CHECK(here.matching.take(here.direct(2, 5)) == &from_two);
    CHECK(here.matching.take(here.direct(2, 6)) == &other_tag);
  }
  SUBCASE("messages first") {
    message from_three(here.direct(3, 5), 1);
    message from_one(here.direct(1, 5), 2);
    here.matching.add_unexpected(from_three);
    here.matching.add_unexpected(from_one);
    receive one(here.direct(1, 5), here.record, here.queue);
    receive any(here.direct(posted_receive::any_source, 5), here.record, here.queue);
    CHECK(here.matching.post(one) == &from_one);
    CHECK(here.matching.post(any) == &from_three);
  }
}

TEST_CASE("messages that no receive has taken are dropped, whatever communicator they are for") {
  tag_matcher matching(0);
  std::deque<message> kept;
  for (const std::uint32_t communicator : {7U, 8U, 0xFFFFFFFFU}) {
    for (const std::uint16_t lane : {std::uint16_t{0}, message_key::point_to_point}) {
      matching.add_unexpected(kept.emplace_back(message_key{1, communicator, 1, lane}, 0));
    }
  }
  kept.back().buffered = true;
  matching.drop_unexpected();
  for (const message& each : kept) CHECK(each.dropped);
  CHECK(!matching.has_unexpected());
  matching.drop_unexpected();
}

TEST_CASE("nodes of any key are found in one pass, whatever is removed meanwhile") {
  constexpr std::size_t count = 10'000;
  key_table<key_table_node> table;
  std::deque<key_table_node> nodes(2 * count);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].key = {1, i < count ? 7U : 8U, i, 0};
    table.push_back(nodes[i]);
  }
  std::size_t check_count = 0;
  std::size_t found = 0;
  std::size_t home = 0;
  const auto is_of_7 = [&](const key_table_node& node) {
    ++check_count;
    return node.key.communicator == 7;
  };
  while (key_table_node* const node = table.find_next(home, is_of_7)) {
    table.remove(*node);
    ++found;
  }
  CHECK(found == count);
  CHECK(table.size() == count);
  // Only the few other nodes in the same bucket are visited again.
  CHECK(check_count < 10 * count);
}

TEST_CASE("a communicator that is left drops its messages in one pass") {
  constexpr std::size_t count = 100'000;
  tag_matcher matching(0);
  communicator_state one(7, 0, 4, nullptr);
  communicator_state other(8, 0, 4, nullptr);
  matching.add(one);
  matching.add(other);
  std::deque<message> kept;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t lane = i % 2 == 0 ? message_key::point_to_point : std::uint16_t{1};
    matching.add_unexpected(kept.emplace_back(message_key{1, 7, i + 1, lane}, 0));
    matching.add_unexpected(kept.emplace_back(message_key{1, 8, i + 1, lane}, 0));
  }
  const auto began = std::chrono::steady_clock::now();
  matching.remove(one);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  std::size_t dropped = 0;
  for (const message& each : kept) dropped += each.dropped && each.key.communicator == 7;
  CHECK(dropped == count);
  CHECK(matching.unexpected_count() == count);
  matching.drop_unexpected();
  matching.remove(other);
}

#if defined(__x86_64__)

TEST_CASE("reports of a waiting rank take no longer when many operations are in flight") {
  const auto steps = [](std::size_t count) {
    one_rank here;
    communicator_state other(8, 0, 4, nullptr);
    here.matching.add(other);
    here.transport.connected = {1, 2, 3};
    std::deque<operation_record> direct(count);
    for (std::size_t i = 0; i < count; ++i) {
      direct[i].communicator = i % 2 == 0 ? &here.all : &other;
      direct[i].operation = collective::send;
      direct[i].sequence = i;
      direct[i].started = never;
      here.matching.begin(direct[i]);
    }
    here.record.started = never;
    here.matching.begin(here.record);
    here.matching.sweep(seconds);
    here.matching.sweep(seconds + 100 * milliseconds);
    CHECK(here.transport.announced_to.size() == 3);
    here.transport.announced_to.reserve(10);
    std::array<unsigned, 3> taken{};
    const time_point now = seconds + 150 * milliseconds;
    state_report made;
    const auto in = [&](auto work) { return stepped::run([](unsigned) {}, work); };
    taken[0] = in([&] { made = here.matching.make_report(7, now); });
    taken[1] = in([&] { here.matching.peer_connected(2, now); });
    taken[2] = in([&] { here.matching.sweep(now); });
    CHECK(made.self.waits_in == here.record.sequence);
    CHECK(made.self.communicator == 7);
    CHECK(made.self.sequence == here.record.sequence);
    CHECK(made.self.operation == collective::all_reduce);
    CHECK(here.transport.announced_to.size() == 4);
    here.matching.end(here.record);
    made = here.matching.make_report(7, now);
    CHECK(made.self.waits_in == 0);
    CHECK(made.self.sequence == 0);
    CHECK(made.self.operation == collective::send);
    for (operation_record& each : direct) here.matching.end(each);
    CHECK(here.matching.make_report(7, now).self.operation == collective::none);
    here.matching.remove(other);
    return taken;
  };
  const auto few = steps(10);
  const auto many = steps(10'000);
  for (std::size_t i = 0; i < few.size(); ++i) {
    CAPTURE(i);
    CAPTURE(few[i]);
    CHECK(many[i] < few[i] + 1000);
  }
}

#endif

TEST_CASE(
    "a communicator that failed before it was created here has failed, whatever others fail") {
  tag_matcher matching(0);
  REQUIRE(matching.hold_ids(1000, 4));
  const auto report = [&](std::uint32_t id, const char* why) {
    matching.revoke(id, reported_failure(failure(errc::revoked, why)), 1);
  };
  for (std::uint32_t id = 1; id < 1000; ++id) report(id, "of others");
  report(1002, "first");
  report(1002, "second");
  for (std::uint32_t id = 1004; id < 2000; ++id) report(id, "of others");
  communicator_state good(1001, 0, 2, nullptr);
  communicator_state bad(1002, 0, 2, nullptr);
  communicator_state other(500, 0, 2, nullptr);
  for (communicator_state* const each : {&good, &bad, &other}) matching.add(*each);
  CHECK(!good.failed());
  CHECK(!other.failed());
  REQUIRE(bad.failed());
  CHECK(std::string(bad.reason().detail) == "first");
}

TEST_CASE("a collective's message has to have the length and the call of its receive") {
  one_rank here;
  receive posted(here.from(1), here.record, here.queue);
  posted.size = 40;
  CHECK_FALSE(here.matching.check(posted, 1, 40, here.record.hash));
  CHECK_FALSE(here.all.failed());

  SUBCASE("another length revokes, and says both") {
    CHECK(here.matching.check(posted, 1, 36, here.record.hash) == errc::mismatch);
    REQUIRE(here.all.failed());
    CHECK(here.all.reason().culprit == 1);
    CHECK(std::string(here.all.reason().detail) == "rank 1 sent 36 bytes where rank 0 expects 40");
    CHECK(here.transport.revoked_ids == std::vector<std::uint32_t>{7});
  }
  SUBCASE("another call is disputed; the rank that knows both fingerprints revokes") {
    CHECK(here.matching.check(posted, 1, 40, hash_of(call_of(9))) == errc::mismatch);
    CHECK(here.transport.disputed_with == std::vector<int>{1});
    CHECK_FALSE(here.all.failed());
    here.matching.compare(1, 7, here.record.sequence, call_of(10));
    CHECK_FALSE(here.all.failed());
    here.matching.compare(1, 7, here.record.sequence, call_of(9));
    REQUIRE(here.all.failed());
    CHECK(here.all.reason().code == errc::mismatch);
    const std::string sentence = here.all.reason().detail;
    CHECK(sentence.find("rank 0 called all_reduce of 10") != std::string::npos);
    CHECK(sentence.find("rank 1 called all_reduce of 9") != std::string::npos);
    CHECK(sentence.find("they differ in count") != std::string::npos);
  }
  SUBCASE("an unexpected message is compared, too, for the last calls") {
    CHECK(here.matching.inspect(here.from(1), here.record.hash));
    CHECK(here.transport.disputed_with.empty());
    CHECK_FALSE(here.matching.inspect(here.from(1), hash_of(call_of(9))));
    CHECK(here.transport.disputed_with == std::vector<int>{1});
    // A call that has not begun here is unknown.
    message_key later = here.from(1);
    ++later.sequence;
    CHECK(here.matching.inspect(later, hash_of(call_of(9))));
  }
}

TEST_CASE("point to point: shorter is good, longer is truncated, and nothing is revoked") {
  one_rank here;
  receive posted(here.direct(1, 5), here.record, here.queue);
  posted.size = 40;
  CHECK_FALSE(here.matching.check(posted, 1, 40, 0));
  CHECK_FALSE(here.matching.check(posted, 1, 0, 0));
  CHECK(here.matching.check(posted, 1, 41, 0) == errc::truncated);
  CHECK(posted.source == 1);
  CHECK_FALSE(here.all.failed());
}

TEST_CASE("a call disputes an unexpected message with its sequence that belongs to another call") {
  one_rank here;
  message wrong(here.from(1), 1);
  wrong.hash = hash_of(call_of(9));
  message right(here.from(2), 2);
  right.hash = here.record.hash;
  message later(here.from(3), 3);
  ++later.key.sequence;
  later.hash = wrong.hash;
  here.matching.add_unexpected(right);
  here.matching.add_unexpected(later);
  here.matching.begin(here.record);
  CHECK(here.transport.disputed_with.empty());
  here.matching.end(here.record);

  here.matching.add_unexpected(wrong);
  here.matching.begin(here.record);
  CHECK_FALSE(right.dropped);
  CHECK_FALSE(later.dropped);
  CHECK(here.transport.disputed_with == std::vector<int>{1});
  here.matching.end(here.record);
  CHECK_FALSE(here.matching.any_in_flight());
  if (!wrong.dropped) here.matching.remove_unexpected(wrong);
  here.matching.remove_unexpected(right);
  here.matching.remove_unexpected(later);
}

TEST_CASE("a communicator remembers its last 64 calls, alike or not") {
  communicator_state all{7, 0, 4, nullptr};
  std::vector<std::uint64_t> counts{0};  // of the calls by number
  const auto take = [&](int calls, std::uint64_t count) {
    for (int i = 0; i < calls; ++i) {
      counts.push_back(count);
      CHECK(all.take_sequence(call_of(count)) == counts.size() - 1);
    }
  };
  const auto all_remembered = [&] {
    for (std::size_t number = 1; number < counts.size() + 2; ++number) {
      CAPTURE(number);
      const bool is_known = number < counts.size() && number + 64 >= counts.size();
      const fingerprint* const found = all.recall(number);
      REQUIRE((found != nullptr) == is_known);
      if (is_known) CHECK(*found == call_of(counts[number]));
      for (const std::uint64_t count : {1u, 2u, 3u}) {
        const bool agrees = !is_known || counts[number] == count;
        CHECK(all.agrees(number, hash_of(call_of(count))) == agrees);
      }
    }
  };
  CHECK(all.recall(0) == nullptr);
  CHECK(all.recall(1) == nullptr);
  take(10, 1);
  take(1, 2);
  take(5, 1);
  all_remembered();
  take(100, 3);
  all_remembered();
  take(1, 1);
  all_remembered();
  for (int i = 0; i < 70; ++i) take(1, i % 2 == 0 ? 2 : 1);
  all_remembered();
  take(62, 2);
  all_remembered();
}

TEST_CASE("revoking ends the receives of that communicator, once and with the first reason") {
  one_rank here;
  communicator_state other(8, 0, 4, nullptr);
  here.matching.add(other);
  operation_record others = here.record;
  others.communicator = &other;

  receive first(here.from(1), here.record, here.queue);
  receive direct(here.direct(posted_receive::any_source, 5), here.record, here.queue);
  receive unrelated({1, 8, here.record.sequence, 0}, others, here.queue);
  for (receive* each : {&first, &direct, &unrelated}) CHECK(here.matching.post(*each) == nullptr);

  here.matching.revoke(here.all, failure(errc::revoked, "first"));
  here.matching.revoke(here.all, failure(errc::timeout, "second"));
  here.queue.run();
  CHECK(first.ended.times == 1);
  CHECK(direct.ended.times == 1);
  CHECK(first.ec == errc::revoked);
  CHECK(direct.ec == errc::revoked);
  CHECK_FALSE(first.busy());
  CHECK(here.all.reason().code == errc::revoked);
  CHECK(here.transport.revoked_ids == std::vector<std::uint32_t>{7});

  CHECK(unrelated.ended.times == 0);
  CHECK_FALSE(other.failed());
  CHECK(here.matching.take(unrelated.key) == &unrelated);
}

TEST_CASE("a dead rank revokes the communicators that contain it") {
  one_rank here;
  communicator_state without(8, 0, 2, std::make_shared<std::vector<int>>(std::vector<int>{0, 2}));
  here.matching.add(without);
  failure why(errc::peer_failed);
  why.culprit = 3;
  here.matching.peer_died(3, why);
  CHECK(here.all.failed());
  CHECK(here.all.reason().culprit == 3);
  CHECK_FALSE(without.failed());
}

TEST_CASE("a peer that connects is told which communicators have failed, and why the world had") {
  using report = std::vector<std::pair<std::uint32_t, int>>;  // ids and culprits
  for (const bool has_failed : {true, false}) {
    CAPTURE(has_failed);
    one_rank here;
    communicator_state world(0, 0, 4, nullptr);
    here.matching.add(world);
    failure why(errc::peer_failed);
    why.culprit = 3;
    if (has_failed) here.matching.peer_died(3, why);
    const auto told = [&] {
      report found;
      here.matching.for_each_failed(1, [&](std::uint32_t id, const failure& reason) {
        found.push_back({id, reason.culprit});
      });
      return found;
    };
    const report expected = has_failed ? report{{7, 3}, {0, 3}} : report{};
    CHECK(told() == expected);
    here.matching.remove(world);
    CHECK(told() == expected);
  }
}

TEST_CASE("a rank that is taken for dead blames the rank that does so") {
  const auto culprit_after = [](int observer, int reporter) {
    one_rank here;
    failure told(errc::peer_failed, "Connection timed out");
    told.culprit = 0;
    told.observer = observer;
    here.matching.revoke(here.all.id(), reported_failure(told), reporter);
    REQUIRE(here.all.failed());
    CHECK(std::string(here.all.reason().detail) ==
          "it takes this rank for dead: Connection timed out");
    CHECK_FALSE(here.all.reason().proved);
    return here.all.reason().culprit;
  };
  CHECK(culprit_after(2, 1) == 2);
  CHECK(culprit_after(-1, 1) == 1);
  CHECK(culprit_after(2, 0) == 2);  // told by the store
  CHECK(culprit_after(-1, 0) == -1);
}

TEST_CASE("what failed is known after this rank has left it") {
  one_rank here;
  communicator_state good{8, 0, 4, nullptr};
  here.matching.add(good);
  CHECK(!here.matching.has_failed(7));
  here.matching.revoke(here.all, failure(errc::revoked, "first"));
  CHECK(here.matching.has_failed(7));
  here.matching.remove(here.all);
  here.matching.remove(good);
  CHECK(here.matching.has_failed(7));
  CHECK(!here.matching.has_failed(8));
  CHECK(!here.matching.has_failed(9));
  here.matching.add(here.all);
}

TEST_CASE("a message for a rank that has left the communicator is answered") {
  one_rank here;
  here.matching.remove(here.all);
  // A message of a call in which it took part is not answered.
  (void)here.matching.inspect(here.from(1), here.record.hash);
  CHECK(here.transport.refused.empty());
  message_key later = here.from(1);
  ++later.sequence;
  CHECK_FALSE(here.matching.inspect(later, here.record.hash));
  CHECK(here.transport.refused == std::vector<int>{1});
}

TEST_CASE(
    "a message for a failed communicator is answered with the reason, also after it was closed") {
  one_rank here;
  failure why(errc::cancelled);
  why.culprit = 3;
  here.matching.revoke(here.all, why);
  CHECK(!here.matching.inspect(here.from(1), here.record.hash));
  CHECK(here.transport.refused == std::vector<int>{1});
  CHECK(here.transport.last_refusal.culprit == 3);
  here.matching.remove(here.all);
  // The number was taken here; the other ranks are unknown.
  CHECK(!here.matching.inspect(here.from(2), here.record.hash));
  CHECK(here.transport.refused == std::vector<int>{1, 2});
  CHECK(here.transport.last_refusal.code == errc::cancelled);
  here.matching.add(here.all);
}

TEST_CASE("a withdrawn receive is not found, and its writer stops") {
  one_rank here;
  receive posted(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(posted) == nullptr);
  here.matching.withdraw(posted);
  CHECK_FALSE(posted.busy());
  CHECK(here.matching.take(here.from(1)) == nullptr);

  struct writer final : payload_writer {
    posted_receive* abandoned = nullptr;
    void abandon(posted_receive& receive) override { abandoned = &receive; }
  } writing;
  posted.writer = &writing;
  here.matching.withdraw(posted);
  CHECK(writing.abandoned == &posted);
  CHECK_FALSE(posted.busy());
}

TEST_CASE("deadlines are counted from the start, or from the last byte") {
  one_rank here;
  here.all.inactivity = 10 * seconds;
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  receive posted(here.from(2), here.record, here.queue);
  CHECK(here.matching.post(posted) == nullptr);

  SUBCASE("total") {
    here.record.deadline = 6 * seconds;
    here.record.bytes = 1;
    here.matching.sweep(5 * seconds);
    CHECK_FALSE(here.all.failed());
    here.record.bytes = 2;
    here.matching.sweep(6 * seconds);
    REQUIRE(here.all.failed());
    CHECK(here.all.reason().code == errc::timeout);
    CHECK(here.all.reason().waited_for == 2);
    CHECK(here.all.reason().elapsed_ns == 5 * seconds);
    CHECK(posted.ec == errc::timeout);
  }
  SUBCASE("inactivity") {
    here.matching.sweep(2 * seconds);
    here.matching.sweep(11 * seconds);
    CHECK_FALSE(here.all.failed());
    here.record.bytes = 1;
    here.matching.sweep(12 * seconds);
    here.matching.sweep(21 * seconds);
    CHECK_FALSE(here.all.failed());
    here.matching.sweep(22 * seconds);
    CHECK(here.all.failed());
  }
  SUBCASE("point to point may end alone") {
    here.record.deadline = 1 * seconds + 99 * milliseconds;
    here.record.hash = 0;
    here.record.expired = [](operation_record& self, const failure& why) {
      self.bytes_expected = static_cast<std::uint64_t>(why.code);
    };
    here.matching.sweep(here.record.deadline);
    CHECK_FALSE(here.all.failed());
    CHECK(here.record.bytes_expected == static_cast<std::uint64_t>(errc::timeout));
  }
  here.matching.end(here.record);
  here.matching.withdraw(posted);
}

TEST_CASE(
    "an operation that has waited 100 ms is announced to its peers, then less and less often") {
  one_rank here;
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  receive posted(here.from(2), here.record, here.queue);
  CHECK(here.matching.post(posted) == nullptr);
  here.matching.sweep(1 * seconds + 99 * milliseconds);
  CHECK(here.transport.announced_to.empty());
  here.matching.sweep(1 * seconds + 100 * milliseconds);
  here.matching.sweep(1 * seconds + 199 * milliseconds);
  CHECK(here.transport.announced_to == std::vector<int>{2});
  here.matching.sweep(1 * seconds + 200 * milliseconds);
  here.matching.sweep(1 * seconds + 399 * milliseconds);
  CHECK(here.transport.announced_to == std::vector<int>{2, 2});
  here.matching.end(here.record);
  here.matching.withdraw(posted);
}

/// A report of a rank: its own state and those of others.
state_report report_of(std::uint64_t entered, std::uint64_t waits_in,
                       const std::vector<rank_state>& others = {}) {
  state_report report;
  report.self.entered = entered;
  report.self.waits_in = waits_in;
  if (waits_in != 0) {
    report.self.operation = collective::all_reduce;
    report.self.sequence = waits_in;
    report.self.communicator = 7;
  }
  for (const rank_state& one : others) report.others[report.count++] = one;
  return report;
}
rank_state late_rank(int rank, std::uint64_t entered) {
  rank_state one;
  one.rank = rank;
  one.entered = entered;
  return one;
}
/// The state of a rank that may be awaited in #1: by the reporting rank, and by `other`.
rank_state awaited(int rank, std::uint64_t entered, bool by_reporter, int other = -1) {
  rank_state one = late_rank(rank, entered);
  one.awaited = by_reporter ? 1 : 0;
  one.waiter = other;
  one.waiter_in = other >= 0 ? 1 : 0;
  return one;
}

TEST_CASE("a rank that others wait for is late until it says where it is, or falls silent there") {
  communicator_state other{9, 0, 4, nullptr};
  one_rank here;
  here.transport.connected = {1, 2, 3};
  here.all.inactivity = 2 * seconds;
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  receive posted(here.from(2), here.record, here.queue);
  CHECK(here.matching.post(posted) == nullptr);
  here.matching.sweep(1 * seconds);
  here.matching.sweep(1 * seconds + 100 * milliseconds);
  CHECK(here.transport.announced_to == std::vector<int>{2, 1, 3});
  const auto report = [&](int peer, const state_report& state, int at) {
    REQUIRE(here.matching.receive_report(peer, 7, state, 1 * seconds + at * milliseconds));
  };
  std::string sentence;
  int culprit = -1;
  std::vector<std::pair<int, state_report>> answers;  // to the queries at the deadline
  SUBCASE("one has not entered, and a rank that has entered reports the same") {
    report(2, report_of(1, 1, {awaited(1, 0, true)}), 110);
    report(3, report_of(1, 1), 110);
    answers = {{2, report_of(1, 1, {awaited(1, 0, true)})}, {3, report_of(1, 1)}};
    sentence =
        "rank 1 has not entered #1 all_reduce; nothing was heard of it; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("two have not entered") {
    report(2, report_of(1, 1), 110);
    report(1, report_of(0, 0), 110);
    answers = {{1, report_of(0, 0)}, {2, report_of(1, 1, {awaited(3, 0, true)})}};
    sentence =
        "rank 1 has not entered #1 all_reduce; it has made no call; nor has rank 3; "
        "nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one has not entered, and nothing is known of another") {
    report(2, report_of(1, 1), 110);
    report(1, report_of(0, 0), 110);
    answers = {{1, report_of(0, 0)}, {2, report_of(1, 1)}};
    sentence =
        "rank 1 has not entered #1 all_reduce; it has made no call; nothing was heard of rank "
        "3; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one that may compute in the call is lower than one that is waited for") {
    report(3, report_of(1, 1), 110);
    answers = {{3, report_of(1, 1)}};
    sentence =
        "rank 1 has not entered #1 all_reduce as far as is known; nothing was heard of it; nor "
        "has rank 2; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("two had not entered long ago, and the higher one has done so since") {
    report(2, report_of(1, 1), 110);
    for (const int peer : {1, 3}) report(peer, report_of(0, 0), 110);
    answers = {{1, report_of(0, 0)}, {2, report_of(1, 1)}, {3, report_of(1, 1)}};
    sentence = "rank 1 has not entered #1 all_reduce; it has made no call; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one that had not entered long ago has done so since") {
    report(2, report_of(1, 1), 110);
    report(1, report_of(0, 0), 110);
    answers = {{2, report_of(1, 1)}, {1, report_of(1, 1, {awaited(3, 0, true)})}};
    sentence =
        "rank 3 has not entered #1 all_reduce; nothing was heard of it; nothing moved for 2 s";
    culprit = 3;
  }
  SUBCASE("one answers, and waits in another communicator's call") {
    for (int at = 110; at < 2'000; at += 200) {
      for (const int peer : {2, 3}) report(peer, report_of(1, 1), at);
      state_report state = report_of(0, 0);
      state.self.operation = collective::barrier;
      state.self.sequence = 41;
      state.self.communicator = 9;
      report(1, state, at);
      here.matching.sweep(1 * seconds + (at + 100) * milliseconds);
    }
    sentence =
        "rank 1 has not entered #1 all_reduce; it is at #41 barrier on communicator 9; "
        "nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one waited in another communicator's call until that communicator failed") {
    here.matching.add(other);
    state_report state = report_of(0, 0);
    state.self.operation = collective::barrier;
    state.self.sequence = 41;
    state.self.communicator = 9;
    for (const int peer : {2, 3}) report(peer, report_of(1, 1), 110);
    report(1, state, 110);
    SUBCASE("and this rank knows that") {
      here.matching.revoke(other, failure(errc::timeout, "first"));
      sentence =
          "rank 1 has not entered #1 all_reduce; it is at #41 barrier on communicator 9, which has "
          "failed; nothing moved for 2 s";
    }
    SUBCASE("but this rank does not know that") {
      sentence = "rank 1 has not entered #1 all_reduce; it has made no call; nothing moved for 2 s";
    }
    answers = {{1, report_of(0, 0)}, {2, report_of(1, 1)}, {3, report_of(1, 1)}};
    culprit = 1;
  }
  SUBCASE("all have entered, and one that is waited for falls silent") {
    for (const int peer : {1, 2, 3}) report(peer, report_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      for (const int peer : {1, 3}) report(peer, report_of(1, 1), at + 10);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("another rank knows that the silent one has entered") {
    for (const int peer : {1, 3}) report(peer, report_of(1, 1, {late_rank(2, 1)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      rank_state two = late_rank(2, 1);
      two.silent_ms = static_cast<std::uint32_t>(at);
      report(1, report_of(1, 1, {two}), at + 10);
      two.entered = 0;  // as far as rank 3 knows
      report(3, report_of(1, 1, {two}), at + 20);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one has sent all that was waited for") {
    for (const int peer : {1, 2}) report(peer, report_of(1, 1), 110);
    report(3, report_of(1, 1, {awaited(1, 1, true)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      if (at > 200) report(3, report_of(1, 1), at + 10);
      if (at > 200) continue;
      // An older report of rank 3 comes late, through rank 2.
      report(3, report_of(1, 1, {awaited(1, 1, false)}), at + 10);
      report(2, report_of(1, 1, {awaited(1, 1, false, 3)}), at + 20);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.8 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one was waited for by a rank that has ended the call") {
    for (const int peer : {1, 2}) report(peer, report_of(1, 1), 110);
    report(3, report_of(1, 1, {awaited(1, 1, true)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      report(3, report_of(1, 0), at + 10);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one was waited for by a third one that is silent") {
    for (const int peer : {1, 2}) report(peer, report_of(1, 1), 110);
    report(3, report_of(1, 1, {awaited(1, 1, true)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one is waited for in a later call") {
    for (const int peer : {1, 2}) report(peer, report_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      report(3, report_of(2, 2, {awaited(1, 1, true)}), at + 10);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("one that has stopped inside is waited for by a rank that enters late") {
    for (const int peer : {1, 3}) report(peer, report_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      report(1, report_of(1, 1), at + 10);
      if (at < 400) report(3, report_of(1, 1), at + 10);
      if (at == 500) report(2, report_of(1, 1), at + 20);
      if (at < 600) continue;
      rank_state three = awaited(3, 1, true);
      three.silent_ms = static_cast<std::uint32_t>(at - 300);
      report(2, report_of(1, 1, {three}), at + 20);
    }
    sentence = "rank 3 entered #1 all_reduce and has been silent for 1.7 s; nothing moved for 2 s";
    culprit = 3;
  }
  SUBCASE("only a third rank waits for one that falls silent, says another") {
    for (const int peer : {1, 2, 3}) report(peer, report_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      rank_state one = awaited(1, 1, false, 3);
      one.silent_ms = static_cast<std::uint32_t>(at);
      report(2, report_of(1, 1, {one}), at + 10);
      report(3, report_of(1, 1), at + 10);
    }
    sentence = "rank 1 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("all answer, and none is named") {
    for (int at = 110; at < 2'000; at += 100) {
      for (const int peer : {1, 2, 3}) report(peer, report_of(1, 1), at);
      here.matching.sweep(1 * seconds + (at + 50) * milliseconds);
    }
    sentence = "no rank is known to be late; nothing moved for 2 s";
  }
  here.matching.sweep(3 * seconds);
  if (!answers.empty()) {
    CHECK_FALSE(here.all.failed());
    for (const auto& [peer, state] : answers) report(peer, state, 2'010);
    here.matching.sweep(3 * seconds + 50 * milliseconds);
  }
  REQUIRE(here.all.failed());
  CHECK(std::string(here.all.reason().detail) == sentence);
  CHECK(here.all.reason().culprit == culprit);
  here.matching.end(here.record);
}

TEST_CASE(
    "a rank that has ended the call before and computes is named, though it does not say so") {
  one_rank here;
  here.transport.connected = {1, 2, 3};
  here.record.sequence = here.all.take_sequence(call_of(10));  // the second one
  here.record.started = 1 * seconds;
  here.all.inactivity = 2 * seconds;
  here.matching.begin(here.record);
  receive posted(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(posted) == nullptr);
  here.matching.sweep(1 * seconds);
  here.matching.sweep(1 * seconds + 100 * milliseconds);
  CHECK(here.matching.receive_report(1, 7, report_of(1, 1), 1 * seconds + 110 * milliseconds));
  for (int at = 110; at <= 2'110; at += 100) {
    for (const int peer : {2, 3}) {
      CHECK(
          here.matching.receive_report(peer, 7, report_of(2, 2), 1 * seconds + at * milliseconds));
    }
    if (at > 1'900) here.matching.sweep(1 * seconds + (at + 90) * milliseconds);
    CHECK_FALSE(here.all.failed());
  }
  here.matching.sweep(3 * seconds + 250 * milliseconds);
  REQUIRE(here.all.failed());
  CHECK(here.all.reason().culprit == 1);
  const std::string detail = here.all.reason().detail;
  CHECK(detail.starts_with("rank 1 has not entered #2 all_reduce; it has made no call since #1"));
  here.matching.end(here.record);
}

TEST_CASE("a rank that is not in a communicator cannot report on it") {
  one_rank here;
  here.transport.connected = {1};
  here.matching.begin(here.record);
  receive posted(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(posted) == nullptr);
  here.matching.sweep(0);
  here.matching.sweep(100 * milliseconds);
  CHECK(here.matching.receive_report(1, 7, report_of(1, 1), 110 * milliseconds));
  CHECK_FALSE(
      here.matching.receive_report(here.all.size(), 7, report_of(0, 0), 110 * milliseconds));
  here.matching.end(here.record);
}

TEST_CASE("a rank reports late ranks to the ranks that it queries, once") {
  waiting_rank here;
  for (const int peer : {1, 3}) {
    CHECK(here.matching.receive_report(peer, 7, report_of(1, 1), 1 * seconds + 101 * milliseconds));
  }
  here.matching.sweep(1 * seconds + 130 * milliseconds);
  CHECK(here.transport.reported_to.empty());
  CHECK(here.matching.due() == 1 * seconds + 150 * milliseconds);
  here.matching.sweep(here.matching.due());
  CHECK(here.transport.reported_to == std::vector<int>{1, 2, 3});
  REQUIRE(here.transport.last_report.count == 1);
  CHECK(here.transport.last_report.others[0].rank == 2);
  CHECK(here.transport.last_report.others[0].answers == 0);
  CHECK(here.transport.last_report.others[0].awaited == 1);
  here.matching.sweep(1 * seconds + 190 * milliseconds);
  CHECK(here.transport.reported_to.size() == 3);
  // The late rank enters, which is reported to the ranks that got the report.
  CHECK(here.matching.receive_report(2, 7, report_of(1, 1), 1 * seconds + 191 * milliseconds));
  here.matching.sweep(1 * seconds + 199 * milliseconds);
  CHECK(here.transport.reported_to.size() == 6);
  CHECK(here.transport.last_report.others[0].answers == 1);
  here.matching.end(here.record);
  here.matching.sweep(1 * seconds + 300 * milliseconds);
  CHECK(here.matching.due() == never);
  here.matching.withdraw(here.posted);
}

TEST_CASE(
    "a silent rank that no rank waits for may have done its part in a call from or to a root") {
  for (const collective coll : {collective::reduce, collective::all_reduce}) {
    one_rank here(coll);
    here.transport.connected = {1, 2, 3};
    here.all.inactivity = 2 * seconds;
    here.record.started = 1 * seconds;
    here.matching.begin(here.record);
    receive posted(here.from(3), here.record, here.queue);
    CHECK(here.matching.post(posted) == nullptr);
    here.matching.sweep(1 * seconds);
    here.matching.sweep(1 * seconds + 100 * milliseconds);
    CHECK(here.matching.receive_report(1, 7, report_of(1, 1), 1 * seconds + 110 * milliseconds));
    here.matching.sweep(3 * seconds);
    CHECK(here.matching.receive_report(1, 7, report_of(1, 1), 3 * seconds + 10 * milliseconds));
    here.matching.sweep(3 * seconds + 50 * milliseconds);
    REQUIRE(here.all.failed());
    const bool ends_after_all = coll == collective::all_reduce;
    CHECK(here.all.reason().culprit == (ends_after_all ? 2 : 3));
    CHECK((std::string(here.all.reason().detail).find("nor has rank 3") != std::string::npos) ==
          ends_after_all);
    here.matching.end(here.record);
  }
}

TEST_CASE("a rank reports that a rank is no longer late, and that it no longer waits itself") {
  waiting_rank here;
  const time_point soon = 1 * seconds + 110 * milliseconds;
  for (const int peer : {1, 2}) CHECK(here.matching.receive_report(peer, 7, report_of(1, 1), soon));
  CHECK(here.matching.make_report(7, soon).count == 0);
  CHECK(here.matching.receive_report(3, 7, report_of(1, 1, {late_rank(1, 0)}), soon));
  const state_report known = here.matching.make_report(7, soon);
  REQUIRE(known.count == 1);
  CHECK(known.others[0].rank == 1);
  CHECK(known.others[0].entered == 1);
  here.transport.reported_to.clear();
  here.matching.end(here.record);
  CHECK(here.transport.reported_to == std::vector<int>{1, 2, 3});
  CHECK(here.transport.last_report.self.entered == 1);
  CHECK(here.transport.last_report.self.waits_in == 0);
  here.matching.withdraw(here.posted);
}

TEST_CASE("the system is rarely asked which processes are stopped") {
  one_rank here;
  here.transport.connected = {1, 2, 3};
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  std::vector<std::unique_ptr<receive>> posted;
  for (const int peer : {1, 2, 3}) {
    posted.push_back(std::make_unique<receive>(here.from(peer), here.record, here.queue));
    CHECK(here.matching.post(*posted.back()) == nullptr);
  }
  for (int at = 0; at < 10'000; at += 5) {
    here.matching.sweep(1 * seconds + at * milliseconds);
    (void)here.matching.make_report(7, 1 * seconds + at * milliseconds);
  }
  CHECK(here.transport.stopped_queries > 3 * 10'000 / 100);
  CHECK(here.transport.stopped_queries <= 3 * 10'000 / 50);
  for (auto& each : posted) here.matching.withdraw(*each);
  here.matching.end(here.record);
}

TEST_CASE("a rank's own report is not passed on as a third-party report") {
  waiting_rank here;
  state_report report = report_of(0, 0);
  report.self.waiter = 5000;
  const time_point soon = 1 * seconds + 110 * milliseconds;
  CHECK(here.matching.receive_report(3, 7, report, soon));
  const state_report known = here.matching.make_report(7, soon);
  REQUIRE(known.count > 0);
  for (std::uint32_t i = 0; i < known.count; ++i) CHECK(known.others[i].waiter == -1);
  here.matching.end(here.record);
  here.matching.withdraw(here.posted);
}

TEST_CASE("a report that no rank of colls would send is refused") {
  one_rank here;
  const auto is_accepted = [&](const state_report& report) {
    return here.matching.receive_report(1, 7, report, 1);
  };
  CHECK(is_accepted(report_of(1, 1, {late_rank(3, 0)})));
  CHECK_FALSE(is_accepted(report_of(1, 1, {late_rank(4, 0)})));
  CHECK_FALSE(is_accepted(report_of(1, 1, {late_rank(-1, 0)})));
  state_report report = report_of(1, 1);
  report.count = state_report::max_others + 1;
  CHECK_FALSE(is_accepted(report));
  report = report_of(1, 1);
  report.self.operation = static_cast<collective>(static_cast<int>(collective::repair) + 1);
  CHECK_FALSE(is_accepted(report));
  rank_state other = late_rank(2, 0);
  other.operation = static_cast<collective>(255);
  CHECK_FALSE(is_accepted(report_of(1, 1, {other})));
  other = late_rank(2, 0);
  other.waiter = 4;
  CHECK_FALSE(is_accepted(report_of(1, 1, {other})));
  // Nothing is known of a communicator to which this rank does not belong, or not yet.
  CHECK(here.matching.receive_report(1, 8, report_of(1, 1, {late_rank(4, 0)}), 1));
}

TEST_CASE("scratch that was released is used again") {
  tag_matcher matching(0);
  const tag_matcher::block one = matching.acquire_scratch(1000);
  matching.release_scratch(one);
  const tag_matcher::block again = matching.acquire_scratch(900);
  CHECK(again.memory == one.memory);
  CHECK(again.size == 1000);
  const tag_matcher::block second = matching.acquire_scratch(900);
  CHECK(second.memory != one.memory);
  matching.release_scratch(again);
  matching.release_scratch(second);
}

TEST_CASE("a call whose agreement is decided at once posts no completion") {
  colls::run_queue queue;
  colls::tag_matcher matcher(0);
  colls::communicator_state alone(7, 0, 1, nullptr);
  matcher.add(alone);
  const auto value = [](std::uint64_t number) { return number + 4; };
  colls::communicator_recovery::waiter call(matcher.recovery_of(alone), collective::agree,
                                            colls::quorum::majority, value);
  colls::completion done([](colls::completion&) noexcept {}, &queue);
  CHECK(call.start(done));
  CHECK_FALSE(done.posted());
  CHECK(call.result().request.value == 5);
  matcher.remove(alone);
}

}  // namespace
