// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/tcp_store.hpp>

#include <colls/bootstrap/dial.hpp>

#include "../support/counted_memory.hpp"
#include "../support/joining.hpp"

#include <random>

using namespace joining;
using colls::failure;
using colls::hello;
using colls::secret;
using colls::store;
using colls::store_server;
using colls::tcp_store;

namespace {

hello of_rank(int rank, int world = 4) {
  hello mine;
  mine.purpose = colls::connection_purpose::store;
  mine.job = 7;
  mine.rank = rank;
  mine.world = world;
  return mine;
}

struct served : bench {
  explicit served(int rank = -1, int world = 4) {
    server.emplace(on, of_rank(rank, world), secret("right"));
    REQUIRE(!server->listen(loopback()));
    where = server->local();
  }
  std::shared_ptr<tcp_store> client(int rank, int world = 4) {
    secret shared("right");
    const hello mine = of_rank(rank, world);
    return run(
        colls::detail::dial_store_once(on, where, mine, shared, in(5 * seconds), 5 * seconds));
  }
  std::optional<failure> refusal(int rank, int world = 4) {
    try {
      client(rank, world);
    } catch (const colls::error& thrown) {
      return thrown.record();
    }
    return std::nullopt;
  }
  /// A connection that is accepted as that rank and sends raw bytes.
  std::shared_ptr<colls::stream> raw(int rank) {
    const auto link = run(connect(on, where));
    const auto enter = [](colls::stream& to, int number) -> task<> {
      const hello mine = of_rank(number);
      const secret shared("right");
      co_await colls::prove(to, mine, shared);
      co_await colls::await_verdict(to, mine);
      std::string first;
      colls::detail::append_frame(first, {.op = colls::detail::store_frame::opcode::enter}, {}, {});
      co_await say(to, first);
    };
    run(enter(*link, rank));
    turn(20 * milliseconds);
    return link;
  }

  std::optional<store_server> server;
  endpoint where;
};

struct listener_of_failures : colls::failure_listener {
  void rank_failed(int rank, const colls::reported_failure& report) override {
    ranks.push_back(rank);
    texts.emplace_back(report.reason().detail);
  }
  std::vector<int> ranks;
  std::vector<std::string> texts;
};

/// The operations that every store supports.
void check_operations(bench& at, store& here, store& there) {
  at.run(here.set("a", "1"));
  CHECK(at.run(there.get("a")) == "1");
  at.run(there.set("a", "22"));
  CHECK(at.run(here.get("a")) == "22");
  at.run(here.set("empty", ""));
  CHECK(at.run(there.get("empty")).empty());

  CHECK(at.run(here.add("n", 5)) == 5);
  CHECK(at.run(there.add("n", -7)) == -2);
  CHECK(at.run(here.get("n")) == "-2");

  CHECK(at.run(here.compare_set("c", "", "first")) == "first");
  CHECK(at.run(there.compare_set("c", "", "second")) == "first");
  CHECK(at.run(there.compare_set("c", "first", "third")) == "third");
  CHECK(at.run(there.compare_set("absent", "x", "y")).empty());

  const std::vector<std::string> some{"a", "nowhere", "c"};
  CHECK(at.run(there.check(some)) == "101");

  std::optional<failure> late;
  at.run(keep_error(there.wait(some, at.in(50 * milliseconds)), &late));
  REQUIRE(late);
  CHECK(late->code == errc::timeout);

  // A get waits for a set that comes later.
  std::optional<std::string> got;
  std::optional<failure> failed;
  const auto set_later = [](engine& on, store& in) -> task<> {
    co_await on.sleep_until(on.now() + 60 * milliseconds);
    co_await in.set("nowhere", "now");
  };
  std::vector<task<>> work;
  work.push_back(keep(there.get("nowhere", at.in(3 * seconds)), &got, &failed));
  work.push_back(keep_error(there.wait(some, at.in(3 * seconds)), &failed));
  work.push_back(set_later(at.on, here));
  at.run_all(std::move(work));
  CHECK(!failed);
  CHECK(got == "now");

  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i * 7);
  at.run(here.set(std::string("key\0with zero", 13), bytes));
  CHECK(at.run(there.get(std::string("key\0with zero", 13))) == bytes);

  std::optional<failure> too_long;
  at.run(keep_error(here.set(std::string(store::max_key_size + 1, 'k'), "v"), &too_long));
  REQUIRE(too_long);
  CHECK(too_long->code == errc::invalid_argument);
  too_long.reset();
  at.run(keep_error(here.set("k", std::string(store::max_value_size + 1, 'v')), &too_long));
  REQUIRE(too_long);
  CHECK(too_long->code == errc::invalid_argument);
  const std::string max_unsent(store::max_value_size, 'v');
  at.run(here.set(std::string(store::max_key_size, 'k'), max_unsent));
  CHECK(at.run(there.get(std::string(store::max_key_size, 'k'))) == max_unsent);
}

}  // namespace

TEST_CASE("a server has work until it has read what a rank has sent") {
  served at;
  const auto link = at.raw(2);
  CHECK_FALSE(at.server->has_work());
  const char first = 0;
  REQUIRE(::send(link->descriptor(), &first, 1, MSG_NOSIGNAL) == 1);
  CHECK(at.server->has_work());
  at.turn(20 * milliseconds);
  CHECK_FALSE(at.server->has_work());
}

TEST_CASE("a store returns what both clients set, added and compared") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  check_operations(at, *a, *b);
}

TEST_CASE("a thousand requests in flight on one connection") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  std::vector<std::optional<std::string>> got(1000);
  std::optional<failure> failed;
  std::vector<task<>> work;
  for (std::size_t i = 0; i < got.size(); ++i) {
    work.push_back(keep(a->get("key" + std::to_string(i), at.in(10 * seconds)), &got[i], &failed));
  }
  for (std::size_t i = got.size(); i-- > 0;) {
    work.push_back(b->set("key" + std::to_string(i), std::to_string(i * i)));
  }
  at.run_all(std::move(work));
  CHECK(!failed);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == std::to_string(i * i));
}

TEST_CASE("the number of keys and their bytes are bounded") {
  colls::detail::store_table table;
  for (std::size_t i = 0; i < store::max_keys; ++i) table.set(std::to_string(i), "v");
  CHECK_THROWS_AS(table.set("one more", "v"), colls::error);
  table.set("7", "a known key is not one more");
  const std::string large(store::max_value_size, 'v');
  std::size_t i = 0;
  const auto fill = [&] {
    for (;; ++i) table.set(std::to_string(i), large);
  };
  CHECK_THROWS_AS(fill(), colls::error);
  CHECK(i * store::max_value_size <= store::max_bytes);
  CHECK(i >= store::max_bytes / store::max_value_size - 1);
}

TEST_CASE("cancelled and late gets leave nothing behind and answer no other request") {
  served at;
  const auto a = at.client(0);
  std::optional<std::string> got;
  std::optional<failure> failed;
  for (int i = 0; i < 6000; ++i) {
    auto dropped = keep(a->get("later", at.in(5 * seconds)), &got, &failed);
    colls::completion done([](colls::completion&) noexcept {}, &at.on.queue());
    REQUIRE(!dropped.start(done));
    if (i % 500 == 0) at.turn(20 * milliseconds);
  }
  for (int round = 0; round < 6; ++round) {
    std::vector<task<>> late;
    for (int i = 0; i < 1000; ++i) late.push_back(keep(a->get("later", at.in(1)), &got, &failed));
    at.run_all(std::move(late));
    CHECK(failed->code == errc::timeout);
  }
  CHECK(!got);
  at.run(a->set("later", "x"));
  CHECK(at.run(a->get("later")) == "x");
}

TEST_CASE("a rank whose connection ends without a goodbye is announced to all others") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  listener_of_failures at_a, at_b;
  a->listen_for_failures(&at_a);
  b->listen_for_failures(&at_b);
  auto dying = at.raw(2);
  CHECK(at.server->present() == 3);
  dying.reset();
  at.turn(50 * milliseconds);
  CHECK(at_a.ranks == std::vector<int>{2});
  CHECK(at_b.ranks == std::vector<int>{2});
  CHECK(contains(at_b.texts.at(0), "without a goodbye"));
  CHECK(at.server->present() == 2);
  // A rank that joins or begins to listen later gets the report too.
  const auto late = at.client(3);
  at.turn(20 * milliseconds);
  listener_of_failures at_late;
  late->listen_for_failures(&at_late);
  CHECK(at_late.ranks == std::vector<int>{2});
  a->listen_for_failures(nullptr);
  b->listen_for_failures(nullptr);
  late->listen_for_failures(nullptr);
}

TEST_CASE("a rank that leaves, or whose client is destroyed, has not failed") {
  served at;
  const auto a = at.client(0);
  auto b = at.client(1);
  auto c = at.client(2);
  listener_of_failures heard;
  a->listen_for_failures(&heard);
  at.run(b->leave(at.in(3 * seconds)));
  c.reset();
  at.turn(50 * milliseconds);
  CHECK(heard.ranks.empty());
  CHECK(at.server->present() == 1);
}

TEST_CASE("failures are announced once, by the server or by a client, and -1 is the world's") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  listener_of_failures heard;
  b->listen_for_failures(&heard);
  at.server->announce_failure(3, "pid 77 was killed by signal 9");
  failure reason(errc::join_timeout, "no rank came");
  at.run(a->report_failure(reason, at.in(2 * seconds)));
  at.server->announce_failure(3, "again");
  at.turn(30 * milliseconds);
  CHECK(heard.ranks == std::vector<int>{3, -1});
  CHECK(heard.texts == std::vector<std::string>{"pid 77 was killed by signal 9", "no rank came"});
}

TEST_CASE("a second process of the same rank is refused, the first unharmed") {
  served at;
  auto first = at.client(1);
  listener_of_failures heard;
  first->listen_for_failures(&heard);
  const auto refused = at.refusal(1);
  REQUIRE(refused);
  CHECK(refused->code == errc::rank_taken);
  CHECK(contains(refused->detail, "rank 1"));
  CHECK(contains(refused->detail, colls::detail::text_of(at.where)));
  at.run(first->set("still", "here"));
  CHECK(heard.ranks.empty());
  at.run(first->leave(at.in(2 * seconds)));
  at.turn(20 * milliseconds);
  const auto late = at.refusal(1);
  REQUIRE(late);
  CHECK(late->code == errc::world_complete);
}

TEST_CASE("a rank of a world of another size is refused with both sizes") {
  served at;
  const auto refused = at.refusal(1, 8);
  REQUIRE(refused);
  CHECK(refused->code == errc::join_failed);
  CHECK(contains(refused->detail, "has 4 ranks"));
  CHECK(contains(refused->detail, "was told 8"));
}

TEST_CASE("a client that hangs up before its first request frees its rank") {
  served at;
  {
    const auto link = at.run(connect(at.on, at.where));
    const auto half = [](colls::stream& to) -> task<> {
      const hello mine = of_rank(1);
      const secret shared("right");
      co_await colls::prove(to, mine, shared);
    };
    at.run(half(*link));
  }
  at.turn(30 * milliseconds);
  CHECK(!at.refusal(1));
}

TEST_CASE("a store that is gone fails requests with unreachable and names the address") {
  SUBCASE("served by a launcher: no rank has failed") {
    served at(-1);
    const auto a = at.client(1);
    listener_of_failures heard;
    a->listen_for_failures(&heard);
    std::optional<std::string> got;
    std::optional<failure> failed;
    const auto close_later = [](engine& on, std::optional<store_server>* server) -> task<> {
      co_await on.sleep_until(on.now() + 50 * milliseconds);
      server->reset();
    };
    std::vector<task<>> work;
    work.push_back(keep(a->get("never", at.in(5 * seconds)), &got, &failed));
    work.push_back(close_later(at.on, &at.server));
    at.run_all(std::move(work));
    REQUIRE(failed);
    CHECK(failed->code == errc::unreachable);
    CHECK(contains(failed->detail, colls::detail::text_of(at.where)));
    CHECK(a->is_lost());
    CHECK(heard.ranks.empty());
    failed.reset();
    at.run(keep_error(a->set("x", "y"), &failed));
    REQUIRE(failed);
    CHECK(failed->code == errc::unreachable);
  }
  SUBCASE("served by a rank that died: that rank has failed") {
    bench at;
    colls::listener place;
    REQUIRE(!place.listen(loopback()));
    // Plays a server that dies after the handshake.
    const auto die = [](engine& on, colls::listener& acceptor) -> task<> {
      colls::detail::descriptor socket;
      while (!(socket = acceptor.accept())) co_await on.sleep_until(on.now() + milliseconds);
      colls::stream link(on, std::move(socket));
      const hello mine = of_rank(0);
      const secret shared("right");
      co_await colls::challenge(link, mine, shared);
      co_await colls::give_verdict(link, colls::verdict::accepted);
      co_await on.sleep_until(on.now() + 100 * milliseconds);
    };
    colls::task_group background(at.on);
    background.start(die(at.on, place));
    secret shared("right");
    const hello mine = of_rank(1);
    const auto a = at.run(colls::detail::dial_store_once(at.on, place.local(), mine, shared,
                                                         at.in(3 * seconds), 3 * seconds));
    listener_of_failures heard;
    a->listen_for_failures(&heard);
    std::optional<failure> failed;
    at.run(keep_error(a->set("x", "y"), &failed));
    REQUIRE(failed);
    CHECK(failed->code == errc::unreachable);
    CHECK(contains(failed->detail, "served by rank 0"));
    CHECK(heard.ranks == std::vector<int>{0});
  }
}

TEST_CASE("an interrupted store fails requests in flight and later ones, and can be left") {
  served at;
  const auto a = at.client(1);
  const auto b = at.client(2);
  std::optional<std::string> got;
  std::optional<failure> failed;
  const auto interrupt_later = [](engine& on, tcp_store& client) -> task<> {
    co_await on.sleep_until(on.now() + 20 * milliseconds);
    failure reason(errc::peer_failed);
    reason.culprit = 3;
    client.interrupt(reason);
  };
  std::vector<task<>> work;
  work.push_back(keep(a->get("never", at.in(5 * seconds)), &got, &failed));
  work.push_back(interrupt_later(at.on, *a));
  at.run_all(std::move(work));
  REQUIRE(failed);
  CHECK(failed->culprit == 3);
  failed.reset();
  at.run(keep_error(a->set("x", "y"), &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::peer_failed);
  CHECK(failed->culprit == 3);
  CHECK(!a->is_lost());
  listener_of_failures heard;
  b->listen_for_failures(&heard);
  at.run(a->leave(at.in(5 * seconds)));
  at.turn(50 * milliseconds);
  CHECK(heard.ranks.empty());  // it said goodbye
  at.run(b->set("x", "y"));
}

TEST_CASE("a frame that no client would send ends that client's connection and nothing else") {
  using colls::detail::append_frame;
  using colls::detail::store_frame;
  served at;
  const auto a = at.client(0);
  listener_of_failures heard;
  a->listen_for_failures(&heard);
  std::vector<std::string> nonsense;
  nonsense.emplace_back(24, '\xff');
  nonsense.emplace_back(24, '\0');
  std::string frame;
  append_frame(frame, {.op = store_frame::opcode::reply}, {}, {});
  nonsense.push_back(frame);
  frame.clear();
  append_frame(frame, {.op = store_frame::opcode::wait}, {}, "\xff\xff\xff\x7f....");
  nonsense.push_back(frame);
  frame.clear();
  append_frame(frame, {.op = store_frame::opcode::compare_set}, "k", "");
  nonsense.push_back(frame);
  frame.clear();
  append_frame(frame, {.op = store_frame::opcode::enter}, {}, {});
  nonsense.push_back(frame);
  for (const int code : {0, 999, -5}) {
    const failure without_reason(static_cast<errc>(code));
    frame.clear();
    append_frame(frame, {.op = store_frame::opcode::report, .id = 1}, {},
                 colls::reported_failure::bytes_of(without_reason));
    nonsense.push_back(frame);
  }
  frame.clear();
  append_frame(frame, {.op = store_frame::opcode::report, .id = 1}, {}, "peer_failed");
  nonsense.push_back(frame);
  for (std::size_t i = 0; i < nonsense.size(); ++i) {
    // A rank may enter once, and a client without a rank (-1) any number of times.
    const auto link = at.raw(-1);
    at.run(say(*link, nonsense[i]));
    const std::string answer = at.run(joining::listen(*link, at.in(2 * seconds)));
    CHECK_MESSAGE(answer.empty(), "nonsense ", i, " was answered with ", answer.size(), " bytes");
  }
  const auto rank = at.raw(2);
  at.run(say(*rank, nonsense[0]));
  CHECK(at.run(joining::listen(*rank, at.in(2 * seconds))).empty());
  at.turn(20 * milliseconds);
  CHECK(heard.ranks == std::vector<int>{2});
  CHECK(contains(heard.texts.at(0), "no rank of colls would send"));
  at.run(a->set("still", "here"));
}

TEST_CASE("an announced length without its bytes costs no memory") {
  served at;
  const auto a = at.client(0);
  const auto link = at.raw(2);
  std::string frame;
  colls::detail::append_frame(frame, {.op = colls::detail::store_frame::opcode::set}, "k", "");
  frame[12] = '\0';
  frame[13] = '\0';
  frame[14] = '\x70';  // 7 MiB
  longest_allocation = 0;
  at.run(say(*link, frame));
  at.turn(50 * milliseconds);
  at.run(a->set("still", "here"));
#if !defined(SANITIZED)
  CHECK(longest_allocation > 0);
#endif
  CHECK(longest_allocation < std::size_t{1} << 20);
}

#if !defined(SANITIZED)
TEST_CASE("where memory is refused a rank's death is announced all the same") {
  for (std::size_t nth = 1, left = 0; left == 0; ++nth) {
    CAPTURE(nth);
    served at;
    const auto observer = at.raw(-1);
    const auto rank = at.raw(2);
    rank->close();
    refused_allocation = nth;
    for (int i = 0; i < 20; ++i) {
      at.on.poll();
      at.on.dispatch(1);
    }
    left = refused_allocation.exchange(0);
    const std::string heard = at.run(joining::listen(*observer, at.in(400 * milliseconds)));
    using colls::detail::store_frame;
    REQUIRE(heard.size() >= store_frame::size + sizeof(failure));
    const auto report = colls::reported_failure::parse(
        std::as_bytes(std::span(heard)).subspan(store_frame::size, sizeof(failure)), 4);
    REQUIRE(report);
    CHECK(report->reason().culprit == 2);
    CHECK(nth < 100);
  }
}
#endif

TEST_CASE("the keys that one process waits for are bounded, and freed when it waits no more") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  std::vector<std::string> keys;
  for (int i = 0; i < 900; ++i) {
    keys.push_back(std::to_string(i) + std::string(store::max_key_size - 8, 'k'));
  }
  const auto wait = [&](std::shared_ptr<tcp_store> in, time_point patience) {
    std::optional<failure> failed;
    at.run(keep_error(in->wait(keys, at.in(patience)), &failed));
    REQUIRE(failed);
    return failed->code;
  };
  for (int times = 0; times < 3; ++times) CHECK(wait(a, 50 * milliseconds) == errc::timeout);
  std::optional<failure> first;
  std::optional<failure> second;
  std::optional<failure> third;
  std::vector<task<>> work;
  for (std::optional<failure>* const each : {&first, &second, &third}) {
    work.push_back(keep_error(a->wait(keys, at.in(300 * milliseconds)), each));
  }
  at.run_all(std::move(work));
  REQUIRE((first && second && third));
  CHECK(first->code == errc::timeout);
  CHECK(second->code == errc::timeout);
  CHECK(third->code == errc::invalid_argument);
  CHECK(wait(b, 50 * milliseconds) == errc::timeout);
}

TEST_CASE("a client that sends requests and reads no replies is held back, others are served") {
  served at;
  const auto a = at.client(0);
  const std::string large(std::size_t{4} << 20, 'x');
  at.run(a->set("large", large));
  const auto greedy = at.raw(2);
  std::string frames;
  for (std::uint32_t id = 1; id <= 200; ++id) {
    colls::detail::append_frame(frames, {.op = colls::detail::store_frame::opcode::get, .id = id},
                                "large", {});
  }
  at.run(say(*greedy, frames));
  at.turn(300 * milliseconds);
  CHECK(at.run(a->get("large")) == large);
  CHECK(at.server->unsent_bytes() < std::size_t{48} << 20);
}

TEST_CASE("a key that very many wait for is copied to each when it reads, and all get it") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  const auto greedy = at.raw(2);
  std::string frames;
  for (std::uint32_t id = 1; id <= 500; ++id) {
    colls::detail::append_frame(frames, {.op = colls::detail::store_frame::opcode::get, .id = id},
                                "large", {});
  }
  at.run(say(*greedy, frames));
  std::vector<std::optional<std::string>> got(40);
  std::optional<failure> failed;
  std::vector<task<>> work;
  for (auto& each : got) {
    work.push_back(keep(b->get("large", at.in(20 * seconds)), &each, &failed));
  }
  const std::string large(std::size_t{4} << 20, 'x');
  std::size_t max_unsent = 0;
  const auto set = [&](engine& on) -> task<> {
    co_await on.sleep_until(on.now() + 50 * milliseconds);
    co_await a->set("large", large);
  };
  const auto watch = [&](engine& on) -> task<> {
    const auto has_value = [](const auto& each) { return each.has_value(); };
    while (!failed && !std::all_of(got.begin(), got.end(), has_value)) {
      max_unsent = std::max(max_unsent, at.server->unsent_bytes());
      co_await on.sleep_until(on.now() + milliseconds);
    }
  };
  work.push_back(set(at.on));
  work.push_back(watch(at.on));
  at.run_all(std::move(work));
  CHECK(!failed);
  for (const auto& each : got) CHECK(each == large);
  CHECK(max_unsent < std::size_t{48} << 20);
  CHECK(at.server->unsent_bytes() < std::size_t{48} << 20);
  CHECK(at.server->present() == 3);
}

TEST_CASE("however many communicators have failed, a rank's death is announced") {
  served at;
  const auto a = at.client(0);
  auto dying = at.raw(2);
  listener_of_failures heard;
  a->listen_for_failures(&heard);
  for (std::uint32_t communicator = 1; communicator <= 5000; ++communicator) {
    failure reason(errc::timeout, "late");
    reason.communicator = communicator;
    at.server->announce_failure(colls::reported_failure(reason));
  }
  at.turn(50 * milliseconds);
  const std::size_t announced_count = heard.ranks.size();
  CHECK(announced_count > 1000);
  CHECK(announced_count < 5000);
  dying.reset();
  at.turn(50 * milliseconds);
  CHECK(heard.ranks.size() == announced_count + 1);
  CHECK(heard.ranks.back() == 2);
  a->listen_for_failures(nullptr);
}

TEST_CASE("frames of random bytes parse to nothing or to something within the limits") {
  using colls::detail::store_frame;
  std::mt19937_64 random(3);
  for (int round = 0; round < 100'000; ++round) {
    std::array<std::byte, store_frame::size> bytes;
    for (std::byte& it : bytes) it = static_cast<std::byte>(random() % 80);
    const auto got = colls::detail::parse_store_frame(bytes);
    if (!got) continue;
    REQUIRE(got->key_size <= store::max_key_size);
    REQUIRE(got->value_size <= store_frame::max_value_size);
  }
  CHECK(!colls::detail::split_strings(std::string("\x05\0\0\0abcd", 8)));
  CHECK(!colls::detail::split_strings(std::string("\x05\0\0", 3)));
  CHECK(!colls::detail::split_strings(std::string("\xff\xff\xff\xff", 4)));
  REQUIRE(colls::detail::split_strings(std::string("\x02\0\0\0ab\0\0\0\0", 10)));
  CHECK(*colls::detail::split_strings(std::string("\x02\0\0\0ab\0\0\0\0", 10)) ==
        std::vector<std::string>{"ab", ""});
}

TEST_CASE("the server stays until all have left, or until the deadline") {
  served at;
  auto a = at.client(0);
  auto b = at.client(1);
  const auto leave_later = [](engine& on, store& which, time_point pause) -> task<> {
    co_await on.sleep_until(on.now() + pause);
    co_await which.leave(on.now() + seconds);
  };
  const time_point began = at.on.now();
  std::vector<task<>> work;
  work.push_back(leave_later(at.on, *a, 50 * milliseconds));
  work.push_back(leave_later(at.on, *b, 200 * milliseconds));
  work.push_back(at.server->drain(at.in(10 * seconds)));
  at.run_all(std::move(work));
  CHECK(at.on.now() - began >= 200 * milliseconds);
  CHECK(at.on.now() - began < 5 * seconds);
  const auto stays = at.client(2);
  at.run(stays->set("here", "to stay"));
  const time_point again = at.on.now();
  at.run(at.server->drain(at.in(300 * milliseconds)));
  CHECK(at.on.now() - again >= 300 * milliseconds);
  CHECK(at.server->present() == 1);
}

TEST_CASE("strangers at the port while a store request waits") {
  served at;
  const auto a = at.client(0);
  const auto b = at.client(1);
  std::optional<std::string> got;
  std::optional<failure> failed;
  const auto bother = [](engine& on, endpoint where, store& in) -> task<> {
    for (int i = 0; i < 2000; ++i) {
      colls::stream link(on);
      link.set_deadline(on.now() + seconds);
      const auto done = co_await colls::detail::attempt(link.connect(where));
      if (done && i % 3 != 0)
        co_await say(link, std::string(static_cast<std::size_t>(i % 90), 'z'));
    }
    co_await in.set("after", "all that");
  };
  std::vector<task<>> work;
  work.push_back(keep(a->get("after", at.in(60 * seconds)), &got, &failed));
  work.push_back(bother(at.on, at.where, *b));
  at.run_all(std::move(work));
  CHECK(!failed);
  CHECK(got == "all that");
  at.turn(100 * milliseconds);
  CHECK(at.server->pending_count() == 0);
  CHECK(at.server->rejected_count() >= 1900);
}
