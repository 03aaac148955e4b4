// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/matching/tag_matcher.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>

#if defined(__x86_64__)
#include "../support/stepped.hpp"
#endif

namespace {

using namespace colls;

/// A message with a number, that says when its node was given back.
struct message final : arrival {
  int number = 0;
  bool dropped = false;

  message() = default;
  message(const message_key& of, int which) : number(which) { key = of; }
  void drop() override { dropped = true; }
};

/// A receive whose completion counts.
struct receive : posted {
  struct counter : completion {
    int times = 0;
  } ended;

  receive(const message_key& from, operation_record& of, run_queue& queue) {
    key = from;
    record = &of;
    done = &ended;
    ended.become([](completion& self) noexcept { ++static_cast<counter&>(self).times; },
                 completion(nullptr, &queue));
  }
};

/// A transport that only notes what its match asks of it.
struct notes final : mover {
  std::vector<std::uint32_t> revoked_ids;
  std::vector<int> announced_to;
  std::vector<int> reported_to;
  state_report last_report;
  std::set<int> linked;
  int asked_whether_stopped = 0;
  std::vector<int> disputed_with;
  std::vector<int> refused;
  failure last_word;

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
  bool is_linked(int peer) override { return linked.count(peer) != 0; }
  bool is_stopped(int) override {
    ++asked_whether_stopped;
    return false;
  }
  void dispute(int peer, std::uint32_t, std::uint64_t, const fingerprint&) override {
    disputed_with.push_back(peer);
  }
  void refuse(int peer, const failure& why) override {
    refused.push_back(peer);
    last_word = why;
  }
};

fingerprint call_of(std::uint64_t count) {
  fingerprint print;
  print.what = collective::all_reduce;
  print.count = count;
  return print;
}

/// Rank 0 of a world of four with one communicator and one call under way.
struct one_rank {
  run_queue queue;
  match matching{0};
  notes transport;
  communicator_state all{7, 0, 4, nullptr};
  operation_record record;

  explicit one_rank(collective what = collective::all_reduce) {
    matching.add(transport);
    matching.add(all);
    fingerprint call = call_of(10);
    call.what = record.what = what;
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

/// One that has waited for rank 2 for so long that it asks the others.
struct waiting_rank : one_rank {
  receive asked{from(2), record, queue};

  waiting_rank() {
    transport.linked = {1, 2, 3};
    record.started = 1 * seconds;
    matching.begin(record);
    CHECK(matching.post(asked) == nullptr);
    matching.sweep(record.started + 100 * milliseconds);
  }
};

TEST_CASE("messages of one key meet receives in order, and other keys not at all") {
  one_rank here;
  message first(here.from(1), 1);
  message second(here.from(1), 2);
  message other_lane(here.from(1, 1), 3);
  message other_peer(here.from(2), 4);
  for (message* each : {&first, &other_lane, &other_peer, &second}) here.matching.keep(*each);

  receive asked(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(asked) == &first);
  CHECK_FALSE(asked.listed);
  CHECK(here.matching.post(asked) == &second);
  CHECK(here.matching.post(asked) == nullptr);
  CHECK(asked.listed);

  CHECK(here.matching.take(here.from(2, 1)) == nullptr);
  CHECK(here.matching.take(here.from(1)) == &asked);
  CHECK_FALSE(asked.listed);
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

TEST_CASE("a table in which few nodes are left is asked about these alone") {
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
  for (int i = 0; i < 5000; ++i) homes.insert(table.home({i, 7, 1, 0}));
  CHECK(homes.size() <= 64);
  for (int i = 4990; i < 5000; ++i) CHECK(table.take({i, 7, 1, 0})->number == i);
  CHECK(table.empty());
}

TEST_CASE("point to point: the oldest receive that fits, the oldest message that fits") {
  one_rank here;
  SUBCASE("receives first") {
    receive any(here.direct(posted::any_source, 5), here.record, here.queue);
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
    here.matching.keep(from_three);
    here.matching.keep(from_one);
    receive one(here.direct(1, 5), here.record, here.queue);
    receive any(here.direct(posted::any_source, 5), here.record, here.queue);
    CHECK(here.matching.post(one) == &from_one);
    CHECK(here.matching.post(any) == &from_three);
  }
}

TEST_CASE("messages that no receive has taken are dropped, whatever communicator they are for") {
  match matching(0);
  std::deque<message> kept;
  for (const std::uint32_t communicator : {7U, 8U, 0xFFFFFFFFU}) {
    for (const std::uint16_t lane : {std::uint16_t{0}, message_key::point_to_point}) {
      matching.keep(kept.emplace_back(message_key{1, communicator, 1, lane}, 0));
    }
  }
  kept.back().buffered = true;
  matching.drop_arrivals();
  for (const message& each : kept) CHECK(each.dropped);
  CHECK(!matching.has_arrivals());
  matching.drop_arrivals();
}

TEST_CASE("nodes of any key are found in one pass, whatever is removed meanwhile") {
  constexpr std::size_t count = 10'000;
  key_table<keyed> table;
  std::deque<keyed> nodes(2 * count);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].key = {1, i < count ? 7U : 8U, i, 0};
    table.push_back(nodes[i]);
  }
  std::size_t looks = 0;
  std::size_t found = 0;
  std::size_t home = 0;
  const auto is_of_7 = [&](const keyed& node) {
    ++looks;
    return node.key.communicator == 7;
  };
  while (keyed* const node = table.find_from(home, is_of_7)) {
    table.remove(*node);
    ++found;
  }
  CHECK(found == count);
  CHECK(table.size() == count);
  // Those of the others that are in the same bucket are looked at again, and few are.
  CHECK(looks < 10 * count);
}

TEST_CASE("a communicator that is left drops its messages in one pass") {
  constexpr std::size_t count = 100'000;
  match matching(0);
  communicator_state one(7, 0, 4, nullptr);
  communicator_state other(8, 0, 4, nullptr);
  matching.add(one);
  matching.add(other);
  std::deque<message> kept;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t lane = i % 2 == 0 ? message_key::point_to_point : std::uint16_t{1};
    matching.keep(kept.emplace_back(message_key{1, 7, i + 1, lane}, 0));
    matching.keep(kept.emplace_back(message_key{1, 8, i + 1, lane}, 0));
  }
  const auto began = std::chrono::steady_clock::now();
  matching.remove(one);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  std::size_t dropped = 0;
  for (const message& each : kept) dropped += each.dropped && each.key.communicator == 7;
  CHECK(dropped == count);
  CHECK(matching.arrivals() == count);
  matching.drop_arrivals();
  matching.remove(other);
}

#if defined(__x86_64__)

TEST_CASE(
    "what is asked of a rank that waits takes no longer where many operations are under way") {
  const auto steps = [](std::size_t count) {
    one_rank here;
    communicator_state other(8, 0, 4, nullptr);
    here.matching.add(other);
    here.transport.linked = {1, 2, 3};
    std::deque<operation_record> direct(count);
    for (std::size_t i = 0; i < count; ++i) {
      direct[i].communicator = i % 2 == 0 ? &here.all : &other;
      direct[i].what = collective::send;
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
    taken[0] = in([&] { made = here.matching.report_on(7, now); });
    taken[1] = in([&] { here.matching.linked(2, now); });
    taken[2] = in([&] { here.matching.sweep(now); });
    CHECK(made.self.waits_in == here.record.sequence);
    CHECK(made.self.communicator == 7);
    CHECK(made.self.sequence == here.record.sequence);
    CHECK(made.self.operation == collective::all_reduce);
    CHECK(here.transport.announced_to.size() == 4);
    here.matching.end(here.record);
    made = here.matching.report_on(7, now);
    CHECK(made.self.waits_in == 0);
    CHECK(made.self.sequence == 0);
    CHECK(made.self.operation == collective::send);
    for (operation_record& each : direct) here.matching.end(each);
    CHECK(here.matching.report_on(7, now).self.operation == collective::none);
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

TEST_CASE("a communicator that failed before it was made here has failed, whatever others fail") {
  match matching(0);
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
  CHECK(std::string(bad.why().detail) == "first");
}

TEST_CASE("a collective's message has to have the length and the call of its receive") {
  one_rank here;
  receive asked(here.from(1), here.record, here.queue);
  asked.size = 40;
  CHECK_FALSE(here.matching.check(asked, 1, 40, here.record.hash));
  CHECK_FALSE(here.all.failed());

  SUBCASE("another length revokes, and says both") {
    CHECK(here.matching.check(asked, 1, 36, here.record.hash) == errc::mismatch);
    REQUIRE(here.all.failed());
    CHECK(here.all.why().culprit == 1);
    CHECK(std::string(here.all.why().detail) == "rank 1 sent 36 bytes where rank 0 expects 40");
    CHECK(here.transport.revoked_ids == std::vector<std::uint32_t>{7});
  }
  SUBCASE("another call is disputed; who knows both sides revokes") {
    CHECK(here.matching.check(asked, 1, 40, hash_of(call_of(9))) == errc::mismatch);
    CHECK(here.transport.disputed_with == std::vector<int>{1});
    CHECK_FALSE(here.all.failed());
    here.matching.compare(1, 7, here.record.sequence, call_of(10));
    CHECK_FALSE(here.all.failed());
    here.matching.compare(1, 7, here.record.sequence, call_of(9));
    REQUIRE(here.all.failed());
    CHECK(here.all.why().code == errc::mismatch);
    const std::string sentence = here.all.why().detail;
    CHECK(sentence.find("rank 0 called all_reduce of 10") != std::string::npos);
    CHECK(sentence.find("rank 1 called all_reduce of 9") != std::string::npos);
    CHECK(sentence.find("they differ in count") != std::string::npos);
  }
  SUBCASE("a message that nobody asked for is compared too, for the last calls") {
    CHECK(here.matching.inspect(here.from(1), here.record.hash));
    CHECK(here.transport.disputed_with.empty());
    CHECK_FALSE(here.matching.inspect(here.from(1), hash_of(call_of(9))));
    CHECK(here.transport.disputed_with == std::vector<int>{1});
    // Of a call that is still to come here, nothing is known.
    message_key later = here.from(1);
    ++later.sequence;
    CHECK(here.matching.inspect(later, hash_of(call_of(9))));
  }
}

TEST_CASE("point to point: shorter is good, longer is truncated, and nothing is revoked") {
  one_rank here;
  receive asked(here.direct(1, 5), here.record, here.queue);
  asked.size = 40;
  CHECK_FALSE(here.matching.check(asked, 1, 40, 0));
  CHECK_FALSE(here.matching.check(asked, 1, 0, 0));
  CHECK(here.matching.check(asked, 1, 41, 0) == errc::truncated);
  CHECK(asked.source == 1);
  CHECK_FALSE(here.all.failed());
}

TEST_CASE("a call disputes what came early for its number and belongs to another call") {
  one_rank here;
  message wrong(here.from(1), 1);
  wrong.hash = hash_of(call_of(9));
  message right(here.from(2), 2);
  right.hash = here.record.hash;
  message later(here.from(3), 3);
  ++later.key.sequence;
  later.hash = wrong.hash;
  here.matching.keep(right);
  here.matching.keep(later);
  here.matching.begin(here.record);
  CHECK(here.transport.disputed_with.empty());
  here.matching.end(here.record);

  here.matching.keep(wrong);
  here.matching.begin(here.record);
  CHECK_FALSE(right.dropped);
  CHECK_FALSE(later.dropped);
  CHECK(here.transport.disputed_with == std::vector<int>{1});
  here.matching.end(here.record);
  CHECK_FALSE(here.matching.any_under_way());
  if (!wrong.dropped) here.matching.forget(wrong);
  here.matching.forget(right);
  here.matching.forget(later);
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

  receive mine(here.from(1), here.record, here.queue);
  receive direct(here.direct(posted::any_source, 5), here.record, here.queue);
  receive theirs({1, 8, here.record.sequence, 0}, others, here.queue);
  for (receive* each : {&mine, &direct, &theirs}) CHECK(here.matching.post(*each) == nullptr);

  here.matching.revoke(here.all, failure(errc::revoked, "first"));
  here.matching.revoke(here.all, failure(errc::timeout, "second"));
  here.queue.run();
  CHECK(mine.ended.times == 1);
  CHECK(direct.ended.times == 1);
  CHECK(mine.ec == errc::revoked);
  CHECK(direct.ec == errc::revoked);
  CHECK_FALSE(mine.busy());
  CHECK(here.all.why().code == errc::revoked);
  CHECK(here.transport.revoked_ids == std::vector<std::uint32_t>{7});

  CHECK(theirs.ended.times == 0);
  CHECK_FALSE(other.failed());
  CHECK(here.matching.take(theirs.key) == &theirs);
}

TEST_CASE("a dead rank revokes the communicators that contain it") {
  one_rank here;
  communicator_state without(8, 0, 2, std::make_shared<std::vector<int>>(std::vector<int>{0, 2}));
  here.matching.add(without);
  failure why(errc::peer_failed);
  why.culprit = 3;
  here.matching.died(3, why);
  CHECK(here.all.failed());
  CHECK(here.all.why().culprit == 3);
  CHECK_FALSE(without.failed());
}

TEST_CASE("who needs a rank that has left the communicator is told") {
  one_rank here;
  here.matching.remove(here.all);
  // Of a call that it took part in, nobody is told.
  (void)here.matching.inspect(here.from(1), here.record.hash);
  CHECK(here.transport.refused.empty());
  message_key later = here.from(1);
  ++later.sequence;
  CHECK_FALSE(here.matching.inspect(later, here.record.hash));
  CHECK(here.transport.refused == std::vector<int>{1});
}

TEST_CASE("who needs a communicator that has failed is told why, also after it was closed") {
  one_rank here;
  failure why(errc::cancelled);
  why.culprit = 3;
  here.matching.revoke(here.all, why);
  CHECK(!here.matching.inspect(here.from(1), here.record.hash));
  CHECK(here.transport.refused == std::vector<int>{1});
  CHECK(here.transport.last_word.culprit == 3);
  here.matching.remove(here.all);
  // The number was taken here, which says nothing about the others.
  CHECK(!here.matching.inspect(here.from(2), here.record.hash));
  CHECK(here.transport.refused == std::vector<int>{1, 2});
  CHECK(here.transport.last_word.code == errc::cancelled);
  here.matching.add(here.all);
}

TEST_CASE("a withdrawn receive is not found, and stops whoever fills it") {
  one_rank here;
  receive asked(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(asked) == nullptr);
  here.matching.withdraw(asked);
  CHECK_FALSE(asked.busy());
  CHECK(here.matching.take(here.from(1)) == nullptr);

  struct writer final : filler {
    posted* abandoned = nullptr;
    void abandon(posted& receive) override { abandoned = &receive; }
  } writing;
  asked.held_by = &writing;
  here.matching.withdraw(asked);
  CHECK(writing.abandoned == &asked);
  CHECK_FALSE(asked.busy());
}

TEST_CASE("deadlines are counted from the start, or from the last byte") {
  one_rank here;
  here.all.inactivity = 10 * seconds;
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  receive asked(here.from(2), here.record, here.queue);
  CHECK(here.matching.post(asked) == nullptr);

  SUBCASE("total") {
    here.record.deadline = 6 * seconds;
    here.record.bytes = 1;
    here.matching.sweep(5 * seconds);
    CHECK_FALSE(here.all.failed());
    here.record.bytes = 2;
    here.matching.sweep(6 * seconds);
    REQUIRE(here.all.failed());
    CHECK(here.all.why().code == errc::timeout);
    CHECK(here.all.why().waited_for == 2);
    CHECK(here.all.why().elapsed_ns == 5 * seconds);
    CHECK(asked.ec == errc::timeout);
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
  here.matching.withdraw(asked);
}

TEST_CASE("who has waited for 100 ms says so to those it waits for, then ever more rarely") {
  one_rank here;
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  receive asked(here.from(2), here.record, here.queue);
  CHECK(here.matching.post(asked) == nullptr);
  here.matching.sweep(1 * seconds + 99 * milliseconds);
  CHECK(here.transport.announced_to.empty());
  here.matching.sweep(1 * seconds + 100 * milliseconds);
  here.matching.sweep(1 * seconds + 199 * milliseconds);
  CHECK(here.transport.announced_to == std::vector<int>{2});
  here.matching.sweep(1 * seconds + 200 * milliseconds);
  here.matching.sweep(1 * seconds + 399 * milliseconds);
  CHECK(here.transport.announced_to == std::vector<int>{2, 2});
  here.matching.end(here.record);
  here.matching.withdraw(asked);
}

/// The word of a rank of what it knows: where it is itself, and others.
state_report word_of(std::uint64_t entered, std::uint64_t waits_in,
                     const std::vector<rank_state>& others = {}) {
  state_report said;
  said.self.entered = entered;
  said.self.waits_in = waits_in;
  if (waits_in != 0) {
    said.self.operation = collective::all_reduce;
    said.self.sequence = waits_in;
    said.self.communicator = 7;
  }
  for (const rank_state& one : others) said.others[said.count++] = one;
  return said;
}
rank_state late_rank(int rank, std::uint64_t entered) {
  rank_state one;
  one.rank = rank;
  one.entered = entered;
  return one;
}
/// A rank that is awaited in #1 or not: by the rank that says so, and by `other`.
rank_state awaited(int rank, std::uint64_t entered, bool by_teller, int other = -1) {
  rank_state one = late_rank(rank, entered);
  one.awaited = by_teller ? 1 : 0;
  one.waiter = other;
  one.waiter_in = other >= 0 ? 1 : 0;
  return one;
}

TEST_CASE("a rank that others wait for is late until it says where it is, or falls silent there") {
  one_rank here;
  here.transport.linked = {1, 2, 3};
  here.all.inactivity = 2 * seconds;
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  receive asked(here.from(2), here.record, here.queue);
  CHECK(here.matching.post(asked) == nullptr);
  here.matching.sweep(1 * seconds);
  here.matching.sweep(1 * seconds + 100 * milliseconds);
  CHECK(here.transport.announced_to == std::vector<int>{2, 1, 3});
  const auto say = [&](int peer, const state_report& said, int at) {
    REQUIRE(here.matching.hear(peer, 7, said, 1 * seconds + at * milliseconds));
  };
  std::string sentence;
  int culprit = -1;
  std::vector<std::pair<int, state_report>> answers;  // to being asked again at the deadline
  SUBCASE("one has not entered, and another that has says so too") {
    say(2, word_of(1, 1, {awaited(1, 0, true)}), 110);
    say(3, word_of(1, 1), 110);
    answers = {{2, word_of(1, 1, {awaited(1, 0, true)})}, {3, word_of(1, 1)}};
    sentence =
        "rank 1 has not entered #1 all_reduce; nothing was heard of it; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("two have not entered") {
    say(2, word_of(1, 1), 110);
    say(1, word_of(0, 0), 110);
    answers = {{1, word_of(0, 0)}, {2, word_of(1, 1, {awaited(3, 0, true)})}};
    sentence =
        "rank 1 has not entered #1 all_reduce; it has made no call; nor has rank 3; "
        "nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one has not entered, and of another nothing is known") {
    say(2, word_of(1, 1), 110);
    say(1, word_of(0, 0), 110);
    answers = {{1, word_of(0, 0)}, {2, word_of(1, 1)}};
    sentence =
        "rank 1 has not entered #1 all_reduce; it has made no call; nothing was heard of rank "
        "3; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one that may compute in the call is lower than one that is waited for") {
    say(3, word_of(1, 1), 110);
    answers = {{3, word_of(1, 1)}};
    sentence =
        "rank 1 has not entered #1 all_reduce as far as is known; nothing was heard of it; nor "
        "has rank 2; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("two had not entered long ago, and the higher one has done so since") {
    say(2, word_of(1, 1), 110);
    for (const int peer : {1, 3}) say(peer, word_of(0, 0), 110);
    answers = {{1, word_of(0, 0)}, {2, word_of(1, 1)}, {3, word_of(1, 1)}};
    sentence = "rank 1 has not entered #1 all_reduce; it has made no call; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("one that had not entered long ago has done so since") {
    say(2, word_of(1, 1), 110);
    say(1, word_of(0, 0), 110);
    answers = {{2, word_of(1, 1)}, {1, word_of(1, 1, {awaited(3, 0, true)})}};
    sentence =
        "rank 3 has not entered #1 all_reduce; nothing was heard of it; nothing moved for 2 s";
    culprit = 3;
  }
  SUBCASE("one answers, and waits in another communicator's call") {
    for (int at = 110; at < 2'000; at += 200) {
      for (const int peer : {2, 3}) say(peer, word_of(1, 1), at);
      state_report said = word_of(0, 0);
      said.self.operation = collective::barrier;
      said.self.sequence = 41;
      said.self.communicator = 9;
      say(1, said, at);
      here.matching.sweep(1 * seconds + (at + 100) * milliseconds);
    }
    sentence =
        "rank 1 has not entered #1 all_reduce; it is at #41 barrier on communicator 9; "
        "nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("all have entered, and one that is waited for falls silent") {
    for (const int peer : {1, 2, 3}) say(peer, word_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      for (const int peer : {1, 3}) say(peer, word_of(1, 1), at + 10);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("another rank knows that the silent one has entered") {
    for (const int peer : {1, 3}) say(peer, word_of(1, 1, {late_rank(2, 1)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      rank_state two = late_rank(2, 1);
      two.silent_ms = static_cast<std::uint32_t>(at);
      say(1, word_of(1, 1, {two}), at + 10);
      two.entered = 0;  // so far as rank 3 knows
      say(3, word_of(1, 1, {two}), at + 20);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one has sent all that was waited for") {
    for (const int peer : {1, 2}) say(peer, word_of(1, 1), 110);
    say(3, word_of(1, 1, {awaited(1, 1, true)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      if (at > 200) say(3, word_of(1, 1), at + 10);
      if (at > 200) continue;
      // What rank 3 has said before, as rank 2 has heard it, comes late.
      say(3, word_of(1, 1, {awaited(1, 1, false)}), at + 10);
      say(2, word_of(1, 1, {awaited(1, 1, false, 3)}), at + 20);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.8 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one was waited for by a rank that has ended the call") {
    for (const int peer : {1, 2}) say(peer, word_of(1, 1), 110);
    say(3, word_of(1, 1, {awaited(1, 1, true)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      say(3, word_of(1, 0), at + 10);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one was waited for by a third one that is silent") {
    for (const int peer : {1, 2}) say(peer, word_of(1, 1), 110);
    say(3, word_of(1, 1, {awaited(1, 1, true)}), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("of two that fall silent inside, one is waited for in a later call") {
    for (const int peer : {1, 2}) say(peer, word_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      say(3, word_of(2, 2, {awaited(1, 1, true)}), at + 10);
    }
    sentence = "rank 2 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 2;
  }
  SUBCASE("one that has stopped inside is waited for by a rank that enters late") {
    for (const int peer : {1, 3}) say(peer, word_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      say(1, word_of(1, 1), at + 10);
      if (at < 400) say(3, word_of(1, 1), at + 10);
      if (at == 500) say(2, word_of(1, 1), at + 20);
      if (at < 600) continue;
      rank_state three = awaited(3, 1, true);
      three.silent_ms = static_cast<std::uint32_t>(at - 300);
      say(2, word_of(1, 1, {three}), at + 20);
    }
    sentence = "rank 3 entered #1 all_reduce and has been silent for 1.7 s; nothing moved for 2 s";
    culprit = 3;
  }
  SUBCASE("only a third rank waits for one that falls silent, says another") {
    for (const int peer : {1, 2, 3}) say(peer, word_of(1, 1), 110);
    for (int at = 200; at < 2'000; at += 100) {
      here.matching.sweep(1 * seconds + at * milliseconds);
      rank_state one = awaited(1, 1, false, 3);
      one.silent_ms = static_cast<std::uint32_t>(at);
      say(2, word_of(1, 1, {one}), at + 10);
      say(3, word_of(1, 1), at + 10);
    }
    sentence = "rank 1 entered #1 all_reduce and has been silent for 1.9 s; nothing moved for 2 s";
    culprit = 1;
  }
  SUBCASE("all answer, and none is named") {
    for (int at = 110; at < 2'000; at += 100) {
      for (const int peer : {1, 2, 3}) say(peer, word_of(1, 1), at);
      here.matching.sweep(1 * seconds + (at + 50) * milliseconds);
    }
    sentence = "no rank is known to be late; nothing moved for 2 s";
  }
  here.matching.sweep(3 * seconds);
  if (!answers.empty()) {
    CHECK_FALSE(here.all.failed());
    for (const auto& [peer, said] : answers) say(peer, said, 2'010);
    here.matching.sweep(3 * seconds + 50 * milliseconds);
  }
  REQUIRE(here.all.failed());
  CHECK(std::string(here.all.why().detail) == sentence);
  CHECK(here.all.why().culprit == culprit);
  here.matching.end(here.record);
}

TEST_CASE(
    "a rank that has ended the call before and computes is named, though it does not say so") {
  one_rank here;
  here.transport.linked = {1, 2, 3};
  here.record.sequence = here.all.take_sequence(call_of(10));  // the second one
  here.record.started = 1 * seconds;
  here.all.inactivity = 2 * seconds;
  here.matching.begin(here.record);
  receive asked(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(asked) == nullptr);
  here.matching.sweep(1 * seconds);
  here.matching.sweep(1 * seconds + 100 * milliseconds);
  CHECK(here.matching.hear(1, 7, word_of(1, 1), 1 * seconds + 110 * milliseconds));
  for (int at = 110; at <= 2'110; at += 100) {
    for (const int peer : {2, 3}) {
      CHECK(here.matching.hear(peer, 7, word_of(2, 2), 1 * seconds + at * milliseconds));
    }
    if (at > 1'900) here.matching.sweep(1 * seconds + (at + 90) * milliseconds);
    CHECK_FALSE(here.all.failed());
  }
  here.matching.sweep(3 * seconds + 250 * milliseconds);
  REQUIRE(here.all.failed());
  CHECK(here.all.why().culprit == 1);
  const std::string detail = here.all.why().detail;
  CHECK(detail.starts_with("rank 1 has not entered #2 all_reduce; it has made no call since #1"));
  here.matching.end(here.record);
}

TEST_CASE("a rank that is not in a communicator has nothing to say of it") {
  one_rank here;
  here.transport.linked = {1};
  here.matching.begin(here.record);
  receive asked(here.from(1), here.record, here.queue);
  CHECK(here.matching.post(asked) == nullptr);
  here.matching.sweep(0);
  here.matching.sweep(100 * milliseconds);
  CHECK(here.matching.hear(1, 7, word_of(1, 1), 110 * milliseconds));
  CHECK_FALSE(here.matching.hear(here.all.size(), 7, word_of(0, 0), 110 * milliseconds));
  here.matching.end(here.record);
}

TEST_CASE("what a rank learns of late ranks it tells those that it asks, once") {
  waiting_rank here;
  for (const int peer : {1, 3}) {
    CHECK(here.matching.hear(peer, 7, word_of(1, 1), 1 * seconds + 101 * milliseconds));
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
  // It comes: those that were told of it have to know.
  CHECK(here.matching.hear(2, 7, word_of(1, 1), 1 * seconds + 191 * milliseconds));
  here.matching.sweep(1 * seconds + 199 * milliseconds);
  CHECK(here.transport.reported_to.size() == 6);
  CHECK(here.transport.last_report.others[0].answers == 1);
  here.matching.end(here.record);
  here.matching.sweep(1 * seconds + 300 * milliseconds);
  CHECK(here.matching.due() == never);
  here.matching.withdraw(here.asked);
}

TEST_CASE(
    "a silent rank that no rank waits for may have done its part in a call from or to a root") {
  for (const collective what : {collective::reduce, collective::all_reduce}) {
    one_rank here(what);
    here.transport.linked = {1, 2, 3};
    here.all.inactivity = 2 * seconds;
    here.record.started = 1 * seconds;
    here.matching.begin(here.record);
    receive asked(here.from(3), here.record, here.queue);
    CHECK(here.matching.post(asked) == nullptr);
    here.matching.sweep(1 * seconds);
    here.matching.sweep(1 * seconds + 100 * milliseconds);
    CHECK(here.matching.hear(1, 7, word_of(1, 1), 1 * seconds + 110 * milliseconds));
    here.matching.sweep(3 * seconds);
    CHECK(here.matching.hear(1, 7, word_of(1, 1), 3 * seconds + 10 * milliseconds));
    here.matching.sweep(3 * seconds + 50 * milliseconds);
    REQUIRE(here.all.failed());
    const bool ends_after_all = what == collective::all_reduce;
    CHECK(here.all.why().culprit == (ends_after_all ? 2 : 3));
    CHECK((std::string(here.all.why().detail).find("nor has rank 3") != std::string::npos) ==
          ends_after_all);
    here.matching.end(here.record);
  }
}

TEST_CASE("a rank tells of one that others think is late, and when it waits no more itself") {
  waiting_rank here;
  const time_point soon = 1 * seconds + 110 * milliseconds;
  for (const int peer : {1, 2}) CHECK(here.matching.hear(peer, 7, word_of(1, 1), soon));
  CHECK(here.matching.report_on(7, soon).count == 0);
  CHECK(here.matching.hear(3, 7, word_of(1, 1, {late_rank(1, 0)}), soon));
  const state_report known = here.matching.report_on(7, soon);
  REQUIRE(known.count == 1);
  CHECK(known.others[0].rank == 1);
  CHECK(known.others[0].entered == 1);
  here.transport.reported_to.clear();
  here.matching.end(here.record);
  CHECK(here.transport.reported_to == std::vector<int>{1, 2, 3});
  CHECK(here.transport.last_report.self.entered == 1);
  CHECK(here.transport.last_report.self.waits_in == 0);
  here.matching.withdraw(here.asked);
}

TEST_CASE("which processes are stopped is asked seldom") {
  one_rank here;
  here.transport.linked = {1, 2, 3};
  here.record.started = 1 * seconds;
  here.matching.begin(here.record);
  std::vector<std::unique_ptr<receive>> asked;
  for (const int peer : {1, 2, 3}) {
    asked.push_back(std::make_unique<receive>(here.from(peer), here.record, here.queue));
    CHECK(here.matching.post(*asked.back()) == nullptr);
  }
  for (int at = 0; at < 10'000; at += 5) {
    here.matching.sweep(1 * seconds + at * milliseconds);
    (void)here.matching.report_on(7, 1 * seconds + at * milliseconds);
  }
  CHECK(here.transport.asked_whether_stopped > 3 * 10'000 / 100);
  CHECK(here.transport.asked_whether_stopped <= 3 * 10'000 / 50);
  for (auto& each : asked) here.matching.withdraw(*each);
  here.matching.end(here.record);
}

TEST_CASE("what a rank says of itself is not passed on as another's word") {
  waiting_rank here;
  state_report said = word_of(0, 0);
  said.self.waiter = 5000;
  const time_point soon = 1 * seconds + 110 * milliseconds;
  CHECK(here.matching.hear(3, 7, said, soon));
  const state_report known = here.matching.report_on(7, soon);
  REQUIRE(known.count > 0);
  for (std::uint32_t i = 0; i < known.count; ++i) CHECK(known.others[i].waiter == -1);
  here.matching.end(here.record);
  here.matching.withdraw(here.asked);
}

TEST_CASE("a report that no rank of colls would send is refused") {
  one_rank here;
  const auto is_heard = [&](const state_report& said) { return here.matching.hear(1, 7, said, 1); };
  CHECK(is_heard(word_of(1, 1, {late_rank(3, 0)})));
  CHECK_FALSE(is_heard(word_of(1, 1, {late_rank(4, 0)})));
  CHECK_FALSE(is_heard(word_of(1, 1, {late_rank(-1, 0)})));
  state_report said = word_of(1, 1);
  said.count = state_report::most + 1;
  CHECK_FALSE(is_heard(said));
  said = word_of(1, 1);
  said.self.operation = static_cast<collective>(20);
  CHECK_FALSE(is_heard(said));
  rank_state other = late_rank(2, 0);
  other.operation = static_cast<collective>(255);
  CHECK_FALSE(is_heard(word_of(1, 1, {other})));
  other = late_rank(2, 0);
  other.waiter = 4;
  CHECK_FALSE(is_heard(word_of(1, 1, {other})));
  // Of a communicator that this rank is not in, or not yet, nothing can be said.
  CHECK(here.matching.hear(1, 8, word_of(1, 1, {late_rank(4, 0)}), 1));
}

TEST_CASE("scratch that was given back is used again") {
  match matching(0);
  const match::block one = matching.take_scratch(1000);
  matching.give_scratch(one);
  const match::block again = matching.take_scratch(900);
  CHECK(again.memory == one.memory);
  CHECK(again.size == 1000);
  const match::block second = matching.take_scratch(900);
  CHECK(second.memory != one.memory);
  matching.give_scratch(again);
  matching.give_scratch(second);
}

}  // namespace
