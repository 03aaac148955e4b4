// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/simulated/simulated_transport.hpp>

#include <colls/channel/channel.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace colls;
using simulated::ticks;
using settings = simulated_world::settings;

namespace {

constexpr ticks us = 1'000'000;

/// Latency 1 us, no overhead, 1 GB/s, which is a byte per nanosecond.
settings plain() {
  settings opts;
  opts.network.overhead_us = 0;
  opts.network.bandwidth = 1;
  return opts;
}

/// The ranks of a simulated world, with one communicator and the records of one call on it.
class test_world {
 public:
  using channel = basic_channel<simulated_transport>;

  explicit test_world(int size, const settings& opts = plain()) : world(size, opts) {
    for (int rank = 0; rank < size; ++rank) {
      states_.push_back(std::make_unique<communicator_state>(1, rank, size, nullptr));
      world[rank].matching().add(*states_.back());
      calls_.push_back(std::make_unique<operation_record>());
      begin(rank, *calls_.back(), 0);
    }
  }
  ~test_world() {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const int rank = static_cast<int>(i);
      world[rank].matching().end(*calls_[i]);
      world[rank].matching().remove(*states_[i]);
    }
  }

  channel operator[](int rank) { return channel(world[rank], *calls_[index(rank)]); }
  communicator_state& state(int rank) { return *states_[index(rank)]; }
  operation_record& record(int rank) { return *calls_[index(rank)]; }

  /// Begins a call with its own sequence number. `count` is a part of its fingerprint.
  void begin(int rank, operation_record& record, std::uint64_t count) {
    fingerprint print;
    print.operation = collective::all_reduce;
    print.count = count;
    record.communicator = states_[index(rank)].get();
    record.operation = print.operation;
    record.sequence = record.communicator->take_sequence(print);
    record.hash = hash_of(print);
    world[rank].matching().begin(record);
  }

  message_key direct(int peer, std::uint64_t tag) {
    return {peer, 1, tag, message_key::point_to_point};
  }

  simulated_world world;

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<std::unique_ptr<communicator_state>> states_;
  std::vector<std::unique_ptr<operation_record>> calls_;
};

/// Starts an operation, or the operation of a request, at once and records the time of its end.
template <startable Operation>
class started : completion {
 public:
  template <class Made>
  started(simulated_world& world, int rank, Made&& made)
      : completion([](completion& self) noexcept { static_cast<started&>(self).end(); },
                   &world[rank].queue()),
        world_(world),
        operation_(static_cast<Operation>(std::forward<Made>(made))) {
    if (operation_.start(*this)) end();
  }

  bool ended() const { return ended_; }
  ticks end_time() const { return end_time_; }
  Operation& operation() { return operation_; }
  std::error_code result() { return operation_.result(); }

 private:
  void end() {
    ended_ = true;
    end_time_ = world_.time();
  }

  simulated_world& world_;
  Operation operation_;
  bool ended_ = false;
  ticks end_time_ = -1;
};
template <startable Operation>
started(simulated_world&, int, Operation) -> started<Operation>;
template <request Request>
started(simulated_world&, int, Request) -> started<typename Request::operation>;

struct bytes_of : std::vector<std::byte> {
  explicit bytes_of(std::size_t size, int value = 0) : vector(size, std::byte(value)) {}
  operator const_bytes() const { return {data(), size()}; }
  operator mutable_bytes() { return {data(), size()}; }
};

void settle(simulated_world& world) {
  while (world.poll()) {
  }
}

}  // namespace

TEST_CASE("entries are popped by time, and in the order of their pushes where times are equal") {
  simulated::event_queue<int> queue;
  std::vector<std::pair<ticks, int>> pushed;
  std::vector<std::pair<ticks, int>> popped;
  ticks now = 0;
  const auto pop = [&] {
    REQUIRE(queue.next_time() >= now);
    const auto entry = queue.pop();
    now = entry.time;
    popped.emplace_back(entry.time, entry.item);
  };
  for (int i = 0; i < 20'000; ++i) {
    // Mostly one of three delays, sometimes any delay.
    const std::uint64_t drawn = mix(7, static_cast<std::uint64_t>(i));
    const ticks delay = drawn % 5 == 0 ? static_cast<ticks>(drawn >> 32) % 50 : 10 * (drawn % 3);
    queue.push(now + delay, i);
    pushed.emplace_back(now + delay, i);
    if (drawn % 7 > 2 && !queue.empty()) pop();
  }
  while (!queue.empty()) pop();
  std::sort(pushed.begin(), pushed.end());
  CHECK(popped == pushed);
}

TEST_CASE("deferred entries keep their order and precede later ones") {
  simulated::event_queue<int> queue;
  for (const int i : {9, 2, 1}) queue.push(i, i);
  queue.push(5, 5);
  for (const int i : {1, 2}) {
    CHECK(queue.pop().item == i);
    queue.defer(5, i);
  }
  for (const int i : {1, 2, 5, 9}) CHECK(queue.pop().item == i);
  CHECK(queue.empty());
}

TEST_CASE("a message takes its overheads, its bytes and the latency") {
  settings opts = plain();
  opts.network.overhead_us = 0.25;
  test_world all(2, opts);
  const bytes_of from(1000, 7);
  bytes_of into(1000);
  started recv(all.world, 1, all[1].recv(0, into));
  started send(all.world, 0, all[0].send(1, from));
  settle(all.world);
  CHECK(send.end_time() == us / 4 + us);
  CHECK(recv.end_time() == us / 4 + us + us + us / 4);
  CHECK(into == from);
  CHECK(all.world.messages() == 1);
  CHECK(all.world.bytes() == 1000);
  CHECK(all.world.in_flight() == 0);
}

TEST_CASE("messages leave and are accepted one after another") {
  test_world all(3);
  const bytes_of from(1000);
  bytes_of into(1000);
  bytes_of other(1000);
  started first(all.world, 0, all[0].send(2, from));
  started second(all.world, 0, all[0].send(1, from));
  started third(all.world, 1, all[1].send(2, from));
  started a(all.world, 2, all[2].recv(0, into));
  started b(all.world, 2, all[2].recv(1, other));
  settle(all.world);
  CHECK(first.end_time() == us);
  CHECK(second.end_time() == 2 * us);
  CHECK(a.end_time() == 2 * us);  // both reach rank 2 at the same time, and its port serves one
  CHECK(b.end_time() == 3 * us);
}

TEST_CASE("the sender's bytes may change once its send has ended, and not before") {
  test_world all(2);
  bytes_of from(1000, 1);
  bytes_of into(1000);
  started send(all.world, 0, all[0].send(1, from));
  started recv(all.world, 1, all[1].recv(0, into));
  while (!send.ended()) all.world.poll();
  std::fill(from.begin(), from.end(), std::byte{9});
  settle(all.world);
  CHECK(into == bytes_of(1000, 1));
}

TEST_CASE("a long message leaves when its receive is posted, a short one waits where it arrives") {
  for (const std::size_t size : {colls::eager_limit, colls::eager_limit + 1}) {
    test_world all(2);
    const bool is_long = size > colls::eager_limit;
    const bytes_of from(size, 3);
    bytes_of into(size);
    started send(all.world, 0, all[0].send(1, from));
    settle(all.world);
    CHECK(send.ended() == !is_long);
    started recv(all.world, 1, all[1].recv(0, into));
    settle(all.world);
    CHECK(send.ended());
    CHECK(recv.ended());
    CHECK(into == from);
  }
}

TEST_CASE("a short message does not overtake a long one of its key") {
  test_world all(2);
  const bytes_of first(100'000, 1);
  const bytes_of second(8, 2);
  bytes_of a(100'000);
  bytes_of b(8);
  started one(all.world, 0, all[0].send(1, first));
  started two(all.world, 0, all[0].send(1, second));
  settle(all.world);
  started x(all.world, 1, all[1].recv(0, a));
  started y(all.world, 1, all[1].recv(0, b));
  settle(all.world);
  CHECK(a == first);
  CHECK(b == second);
}

TEST_CASE("a repeated RTS does not overtake the messages before it") {
  settings opts = plain();
  opts.network.wiring = simulated::topology::parse("nodes:2");
  opts.network.bandwidth = 1e-3;
  test_world all(4, opts);
  // The link between the nodes is busy for 0.5 s. The first message waits for the link. The second
  // one waits for its CTS and repeats its RTS after 0.1 s.
  const bytes_of other(500'000, 3);
  const bytes_of first(200'000, 1);
  const bytes_of second(150'000, 2);
  bytes_of elsewhere(500'000);
  bytes_of a(200'000);
  bytes_of b(150'000);
  started z(all.world, 3, all[3].recv(1, elsewhere));
  started before(all.world, 1, all[1].send(3, other));
  started x(all.world, 2, all[2].recv(0, a));
  started one(all.world, 0, all[0].send(2, first));
  started two(all.world, 0, all[0].send(2, second));
  all.world[0].wake_driver();  // starts the periodic sweep over waiting operations
  settle(all.world);
  CHECK(!all.state(2).failed());
  CHECK(x.end_time() > z.end_time());
  started y(all.world, 2, all[2].recv(0, b));
  settle(all.world);
  CHECK(!x.result());
  CHECK(!y.result());
  CHECK(a == first);
  CHECK(b == second);
}

TEST_CASE("point to point: any_source, shorter and longer messages, long ones by RTS and CTS") {
  test_world all(3);
  operation_record records[3];
  for (int rank = 0; rank < 3; ++rank) records[rank].communicator = &all.state(rank);
  const bytes_of small(100, 1);
  const bytes_of large(200'000, 2);
  bytes_of into(300'000);
  bytes_of too_short(8);
  const auto send = [&](int source, int dest, const bytes_of& data) {
    return started(all.world, source,
                   all.world[source].send(all.direct(dest, 5), data, records[source]));
  };
  const auto recv = [&](int dest, int source, bytes_of& data) {
    return started(all.world, dest,
                   all.world[dest].recv(all.direct(source, 5), data, records[dest]));
  };
  {
    const auto sent = send(2, 0, large);
    settle(all.world);
    CHECK(!sent.ended());
    auto got = recv(0, posted_receive::any_source, into);
    settle(all.world);
    CHECK(sent.ended());
    CHECK(got.operation().count() == large.size());
    CHECK(got.operation().source_rank() == 2);
    CHECK(into[199'999] == std::byte{2});
  }
  {
    auto got = recv(0, 1, into);
    const auto sent = send(1, 0, small);
    CHECK(!sent.ended());
    settle(all.world);
    CHECK(got.operation().count() == small.size());
  }
  for (const bytes_of& data : {small, large}) {
    auto got = recv(0, 1, too_short);
    const auto sent = send(1, 0, data);
    settle(all.world);
    CHECK(got.result() == make_error_code(errc::truncated));
    CHECK(got.operation().source_rank() == 1);
    CHECK(sent.ended());
  }
  {
    // A send that is destroyed before its receive is withdrawn completely.
    {
      const auto dropped = send(1, 0, large);
    }
    settle(all.world);
    const auto sent = send(1, 0, small);
    auto got = recv(0, posted_receive::any_source, into);
    settle(all.world);
    CHECK(got.operation().count() == small.size());
  }
  CHECK(all.world.in_flight() == 0);
}

TEST_CASE("rounds are the longest chain of messages in a lane") {
  test_world all(3);
  const bytes_of from(8);
  bytes_of into(8);
  started a(all.world, 0, all[0].send(1, from));
  started b(all.world, 1, all[1].recv(0, into));
  settle(all.world);
  started c(all.world, 1, all[1].send(2, from));
  started d(all.world, 1, all[1].lane(1).send(0, from));
  started e(all.world, 2, all[2].recv(1, into));
  settle(all.world);
  CHECK(all.world.rounds() == 2);
  started f(all.world, 2, all[2].lane(1).send(0, from));
  CHECK(all.world.rounds() == 2);
  started g(all.world, 2, all[2].send(0, from));
  CHECK(all.world.rounds() == 3);
}

TEST_CASE("a revoked communicator ends on all ranks, and drops its messages in flight") {
  test_world all(3);
  const bytes_of large(100'000);
  bytes_of into(100'000);
  started waiting(all.world, 0, all[0].send(1, large));
  started receiving(all.world, 2, all[2].recv(1, into));
  failure reason(errc::cancelled);
  reason.culprit = 1;
  all.world[1].matching().revoke(all.state(1), reason);
  settle(all.world);
  CHECK(waiting.result() == make_error_code(errc::cancelled));
  CHECK(receiving.result() == make_error_code(errc::cancelled));
  CHECK(all.state(2).reason().culprit == 1);
  CHECK(all.world.in_flight() == 0);
}

TEST_CASE("other lengths and other calls are a mismatch on both sides") {
  test_world all(2);
  const bytes_of from(8);
  bytes_of into(16);
  started recv(all.world, 1, all[1].recv(0, into));
  started send(all.world, 0, all[0].send(1, from));
  settle(all.world);
  CHECK(recv.result() == make_error_code(errc::mismatch));
  CHECK(all.state(0).failed());

  test_world others(2);
  operation_record next[2];
  for (const int rank : {0, 1}) others.begin(rank, next[rank], static_cast<std::uint64_t>(rank));
  const auto channel_of = [&](int rank) {
    return test_world::channel(others.world[rank], next[rank]);
  };
  started a(others.world, 0, channel_of(0).recv(1, into));
  started b(others.world, 1, channel_of(1).recv(0, into));
  for (const int rank : {0, 1}) others.world[rank].wake_driver();
  CHECK(!others.world.poll());
  CHECK(!a.ended());
  others.world.idle(1);  // after 100 ms each rank sends an announcement to its peer
  settle(others.world);
  CHECK(a.result() == make_error_code(errc::mismatch));
  CHECK(b.result() == make_error_code(errc::mismatch));
  CHECK(others.world.overdue() > 0);
  CHECK(others.world.now() == 100 * milliseconds + 3000);
  for (const int rank : {0, 1}) others.world[rank].matching().end(next[rank]);
}

TEST_CASE("a deadlock is detected") {
  test_world all(2);
  bytes_of into(8);
  started recv(all.world, 1, all[1].recv(0, into));
  CHECK(!all.world.run_until([&] { return recv.ended(); }));
  CHECK(all.world.is_quiescent());
  CHECK(all.world.waiting_report() == "rank 1 waits in all_reduce #1 for rank 0\n");
  CHECK_THROWS_AS(all.world.idle(1), std::logic_error);
}

TEST_CASE("routes through the topologies") {
  using simulated::topology;
  simulated::network_settings opts;
  opts.latency_us = 1;
  opts.bandwidth = 1;
  const auto net = [&](const char* text, int ranks) {
    opts.wiring = topology::parse(text);
    return simulated::network(opts, ranks);
  };
  const auto route = [](const simulated::network& network, int source, int dest) {
    std::vector<std::size_t> all;
    for (int i = 0; i < network.hops(source, dest); ++i) {
      all.push_back(network.link(source, dest, i));
    }
    return all;
  };
  using links = std::vector<std::size_t>;

  const auto flat = net("flat", 7);
  CHECK(flat.hops(0, 6) == 0);
  CHECK(flat.node_of(6) == 6);

  const auto nodes = net("nodes:4", 10);
  CHECK(nodes.links() == 6);
  CHECK(nodes.node_of(9) == 2);
  CHECK(nodes.latency(4, 7) == us / 4);
  CHECK(nodes.port_time(1000) == us / 4);
  CHECK(route(nodes, 4, 7) == links{});
  CHECK(route(nodes, 0, 9) == links{0, 5});

  const auto tree = net("fat_tree:4:2", 16);
  CHECK(tree.links() == 16);
  CHECK(route(tree, 0, 3) == links{});
  CHECK(route(tree, 1, 15) == links{2, 15});
  CHECK(route(tree, 1, 14) == links{0, 13});

  const auto torus = net("torus:4x3x2", 24);
  CHECK(torus.links() == 144);
  CHECK(route(torus, 0, 1) == links{0});
  CHECK(route(torus, 0, 3) == links{1});     // the shorter direction
  CHECK(route(torus, 0, 2) == links{0, 6});  // both directions are equally long: up
  CHECK(route(torus, 1, 4) == links{6 * 1 + 1, 2});
  CHECK(route(torus, 0, 23) == links{1, 6 * 3 + 3, 6 * 11 + 4});
  for (int source = 0; source < 24; ++source) {
    for (int dest = 0; dest < 24; ++dest) CHECK(torus.hops(source, dest) <= 2 + 1 + 1);
  }

  for (const char* bad : {"", "flat:2", "nodes", "nodes:0", "nodes:4x", "fat_tree:", "fat_tree:4:",
                          "fat_tree:4:2:1", "torus:4x", "torus:2x2x2x2", "mesh:4", "torus:-1"}) {
    CHECK_THROWS_AS(topology::parse(bad), std::invalid_argument);
  }
  CHECK_THROWS_AS(net("torus:4x3x2", 23), std::invalid_argument);
  opts.bandwidth = 1e-6;
  CHECK(net("flat", 2).link_time(std::size_t{1} << 43) > 0);
  opts.bandwidth = 1e-300;
  CHECK_THROWS_AS(net("flat", 2), std::invalid_argument);
}

TEST_CASE("links inside the network are shared") {
  settings opts = plain();
  opts.network.wiring = simulated::topology::parse("fat_tree:2:1");
  test_world all(4, opts);
  const bytes_of from(1000);
  bytes_of a(1000);
  bytes_of b(1000);
  started one(all.world, 2, all[2].recv(0, a));
  started two(all.world, 3, all[3].recv(1, b));
  started x(all.world, 0, all[0].send(2, from));
  started y(all.world, 1, all[1].send(3, from));
  settle(all.world);
  // The second switch adds a tenth of the latency. The second message waits for the uplink.
  CHECK(one.end_time() == us + us / 10 + us);
  CHECK(two.end_time() == 2 * us + us / 10 + us);
  CHECK(y.end_time() == us);
}

TEST_CASE("a plan and its text form are equivalent") {
  using simulated::fault_plan;
  const std::string text =
      "kill 2 @17; half_open 0 @1; isolate 1 @2; cut 2>3 @4; cut 2-3 @5; clog 0>1 @6 2s; "
      "freeze 3 @7 31ms; flip 2 @5; cancel 1 @8; destroy 1 @9; wrong_argument 2 root; delay "
      "5000ns; "
      "pieces; no_store; eager 0";
  const fault_plan read = fault_plan::parse(text);
  CHECK(read.faults.size() == 11);
  CHECK(read.text() == text);
  CHECK(read.is_fatal());
  CHECK(fault_plan::parse("delay 5us\n\n# nothing\n pieces # bit by bit\nfreeze 0 @1 1s").text() ==
        "freeze 0 @1 1s; delay 5000ns; pieces");
  CHECK(fault_plan::parse("kill\t2  @3\r\n\r\npieces\r\n").text() == "kill 2 @3; pieces");
  try {
    fault_plan::parse(std::string(100, '\x1b') + std::string(1, '\0'));
    FAIL("read garbage");
  } catch (const std::invalid_argument& wrong) {
    CHECK(wrong.what() == "the plan's '" + std::string(60, '?') + "...': no such fault");
  }
  CHECK(fault_plan::parse("").empty());
  CHECK(!fault_plan::parse("freeze 0 @1 1s").is_fatal());

  for (const char* bad : {"explode 2 @3",
                          "kill",
                          "kill 2",
                          "kill 2 17",
                          "kill 2 @",
                          "kill 2 @0",
                          "kill -1 @3",
                          "kill 2 @17 3s",
                          "cut 2 @3",
                          "cut 2>2 @3",
                          "clog 1-2 @3 1s",
                          "clog 1>2 @3",
                          "freeze 1 @3 3",
                          "freeze 1 @3 3h",
                          "freeze 1 @3 -3s",
                          "freeze 1 @3 99999999999s",
                          "wrong_argument 1",
                          "wrong_argument 1 colour",
                          "delay",
                          "pieces 3",
                          "eager x",
                          "kill 2 @17 ; delay"}) {
    CHECK_THROWS_AS(fault_plan::parse(bad), std::invalid_argument);
  }
  settings opts = plain();
  opts.plan = fault_plan::parse("kill 2 @1");
  CHECK_THROWS_AS(simulated_world(2, opts), std::invalid_argument);
}

TEST_CASE("delays keep the order of the messages of one connection") {
  settings opts = plain();
  opts.plan = simulated::fault_plan::parse("delay 50us; pieces");
  for (opts.seed = 0; opts.seed < 20; ++opts.seed) {
    test_world all(2, opts);
    std::vector<bytes_of> sent;
    std::vector<bytes_of> got(10, bytes_of(9));
    for (int i = 0; i < 10; ++i) sent.emplace_back(9, i);
    const auto send = [](test_world& ranks, const std::vector<bytes_of>& messages) -> task<> {
      for (const bytes_of& data : messages) co_await ranks[0].send(1, data);
    };
    const auto recv = [](test_world& ranks, std::vector<bytes_of>& messages) -> task<> {
      for (bytes_of& data : messages) co_await ranks[1].recv(0, data);
    };
    started receiving(all.world, 1, recv(all, got));
    started sending(all.world, 0, send(all, sent));
    settle(all.world);
    REQUIRE(receiving.ended());
    CHECK(got == sent);
  }
}
