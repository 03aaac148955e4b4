// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Code that promises to continue without memory does so when the system refuses an allocation.

#include <colls/transport/interprocess/carrier/make_carriers.hpp>
#include <colls/transport/interprocess/eager_rendezvous.hpp>

#include <colls/inproc.hpp>
#include <colls/threads.hpp>

#include "../support/counted_memory.hpp"
#include "../support/tcp_ranks.hpp"

#include <doctest/doctest.h>

#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

namespace {

using namespace colls;

/// Calls `work()` with its first allocation refused, then `check()`; the same with its second
/// allocation, and so on until no allocation of `work()` was refused.
template <class Work, class Check>
void refuse_each(Work work, Check check) {
  std::size_t left = 0;
  for (std::size_t nth = 1; left == 0; ++nth) {
    CAPTURE(nth);
    refused_allocation = nth;
    work();
    left = refused_allocation.exchange(0);
    check();
  }
}

/// A connection owner without memory for what arrives.
struct owner_without_memory final : interprocess::connection_owner {
  tag_matcher matcher{0};
  std::vector<failure> losses;

  void received(interprocess::connection&, const interprocess::header&, const std::byte*) override {
    throw std::bad_alloc();
  }
  void lost(interprocess::connection&, const failure& why) override { losses.push_back(why); }
  void heap_received(interprocess::connection&, detail::descriptor) override {}
  tag_matcher& matching() override { return matcher; }
};

/// A connection and the other end of its socket.
struct one_connection {
  boost::asio::io_context context{1};
  std::shared_ptr<engine> driver = engine::get(context.get_executor());
  owner_without_memory owner;
  interprocess::connection connection{*driver, owner, 1};
  detail::descriptor other;

  one_connection() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    other = detail::descriptor(ends[0]);
    connection.open(
        std::make_unique<interprocess::socket_pipe>(*driver, detail::descriptor(ends[1])));
  }
  /// The connection has ended; the owner learns it when the queue runs.
  void check_lost() {
    CHECK(connection.has_ended());
    CHECK(!connection.is_open());
    CHECK(owner.losses.empty());
    driver->queue().run();
    REQUIRE(owner.losses.size() == 1);
    CHECK(owner.losses[0].code == errc::peer_failed);
    CHECK(owner.losses[0].culprit == 0);  // the rank without memory
  }
};

}  // namespace

TEST_CASE("a shared heap without memory returns no block, keeps its pages, and loses no offset") {
  shm::shared_heap own;
  REQUIRE(!own.make(2));
  const auto offset_of = [&](const std::byte* block) { return own.locate({block, 1}); };
  std::byte* const first = own.allocate(1);
  const shm::heap_offset begin = offset_of(first);
  std::byte* block = nullptr;
  refuse_each([&] { block = own.allocate(1); },
              [&] {
                if (block == nullptr) return;
                CHECK(offset_of(block) == begin + shm::max_page_size);
                own.free(block);
              });
  first[0] = std::byte{7};
  bool relocated = false;
  refuse_each([&]() noexcept { relocated = own.relocate(first); },
              [&] {
                CHECK(offset_of(first) == (relocated ? begin + shm::max_page_size : begin));
                CHECK(first[0] == std::byte{7});
              });
}

TEST_CASE("scratch memory that cannot be kept is returned to the system") {
  std::optional<scratch_pool> pool(std::in_place);
  const std::size_t before = blocks_in_use;
  scratch_pool::block used;
  refuse_each([&]() noexcept { pool->release(used); },
              [&] {
                pool.emplace();
                CHECK(blocks_in_use == before);
                used = pool->acquire(1000);
              });
  pool->release(used);
}

TEST_CASE("a send to a rank of this process that cannot be queued there leaves nothing") {
  // Once in a collective, and once from point to point, where the message is copied.
  for (const message_key& key :
       {message_key{1, 0, 1, 0}, message_key{1, 0, 1, message_key::point_to_point}}) {
    std::optional<inproc_world> world;
    std::optional<communicator_state> states[2];
    delete new detail::recycled;  // the first one of a thread allocates what the thread needs
    refuse_each(
        [&] {
          const std::size_t refused = refused_allocation.exchange(0);
          for (auto& each : states) each.reset();
          world.emplace(2);
          for (int rank = 0; rank < 2; ++rank) {
            auto& state = states[rank].emplace(0U, rank, 2, nullptr);
            (*world)[rank].matching().add(state);
          }
          operation_record record;
          record.communicator = &*states[0];
          record.sequence = 1;
          record.hash = key.is_point_to_point() ? 0 : 5;
          completion done(nullptr, &world->queue());
          const std::byte data{};
          auto send = (*world)[0].send(key, {&data, 1}, record);
          refused_allocation = refused;
          try {
            (void)send.start(done);
          } catch (const std::bad_alloc&) {
            CHECK((*world)[1].matching().unexpected_count() == 0);
          }
        },
        [&] {
          for (int rank = 0; rank < 2; ++rank) (*world)[rank].matching().remove(*states[rank]);
        });
  }
}

TEST_CASE("a connection without memory for its control frames ends") {
  std::optional<one_connection> here(std::in_place);
  std::vector<std::byte> payload(sizeof(failure));
  interprocess::header frame;
  frame.kind = interprocess::kind::revoke;
  frame.length = payload.size();
  bool is_complete = false;
  refuse_each(
      [&]() noexcept {
        here->connection.control(frame, payload.data());
        is_complete = !here->connection.has_ended();
      },
      [&] {
        if (!is_complete) here->check_lost();
        if (!is_complete) here.emplace();
      });
  here->connection.flush();
  std::vector<std::byte> bytes(1000);
  CHECK(::read(here->other.get(), bytes.data(), bytes.size()) ==
        static_cast<ssize_t>(sizeof frame + payload.size()));
}

TEST_CASE("a connection ends if its owner has no memory for what arrives") {
  one_connection here;
  const std::vector<std::byte> payload(100);
  const interprocess::header frame =
      interprocess::make_header(interprocess::kind::data, {1, 7, 1, 0}, payload.size(), 0);
  REQUIRE(::write(here.other.get(), &frame, sizeof frame) == sizeof frame);
  REQUIRE(::write(here.other.get(), payload.data(), payload.size()) == 100);
  CHECK(here.connection.poll());
  here.check_lost();
}

TEST_CASE(
    "a receive that cannot be queued is not listed, nor is a connection that cannot be created") {
  tag_matcher matcher(0);
  posted_receive receive;
  receive.key = {1, 7, 1, 0};
  bool is_listed = false;
  const auto list = [&] {
    is_listed = false;
    try {
      matcher.enqueue(receive);
      is_listed = true;
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(list, [&] {
    CHECK(receive.queued == is_listed);
    matcher.withdraw(receive);
  });

  boost::asio::io_context context(1);
  owner_without_memory owner;
  interprocess::connection_table connections(*engine::get(context.get_executor()), owner);
  const auto make = [&] {
    try {
      (void)connections.get(3);
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(make, [&] {
    connections.for_each(
        [](int peer, interprocess::connection& each) { CHECK(each.peer() == peer); });
  });
  CHECK(connections.get(3).peer() == 3);
}

TEST_CASE("leaving a communicator needs no memory") {
  std::optional<tag_matcher> matcher(std::in_place, 0);
  std::optional<communicator_state> state;
  const auto join = [&] {
    matcher.emplace(0);
    state.emplace(7, 0, 2, nullptr);
    matcher->add(*state);
    state->fail(reported_failure(failure(errc::revoked)));
  };
  join();
  refuse_each([&]() noexcept { matcher->remove(*state); },
              [&] {
                CHECK(matcher->find(7) == nullptr);
                CHECK(!matcher->inspect({1, 7, 1, 0}, 0));
                join();
              });
}

namespace {

/// The messages of rank 0 in a world of two, without sockets.
struct one_rendezvous final : interprocess::connection_owner,
                              interprocess::connector::owner,
                              interprocess::eager_rendezvous::owner {
  boost::asio::io_context context{1};
  std::shared_ptr<engine> driver = engine::get(context.get_executor());
  world_info info;
  tag_matcher matcher{0};
  communicator_state state{7, 0, 2, nullptr};
  operation_record record;
  interprocess::connection_table connections{*driver, *this};
  interprocess::connector opener{*driver, 0, interprocess::make_carriers(*driver, info),
                                 connections, *this};
  interprocess::eager_rendezvous messages{matcher, connections, opener, *this};

  one_rendezvous() {
    info.size = 2;
    matcher.add(state);
    record.communicator = &state;
  }
  void received(interprocess::connection&, const interprocess::header&, const std::byte*) override {
  }
  void lost(interprocess::connection& connection, const failure& why) override {
    matcher.peer_died(connection.peer(), why);
  }
  void heap_received(interprocess::connection&, detail::descriptor) override {}
  tag_matcher& matching() override { return matcher; }
  void opened(interprocess::connection&) override {}
  void unreachable(interprocess::connection&, const failure&) override {}
  bool is_excluded(int) override { return false; }
  bool is_needed(interprocess::connection&) override { return false; }
  task<bool> has_left(int) override { co_return false; }
  void loss_examined(interprocess::connection&, bool) override {}
  void post_receive_for(const message_key&) override {}
};

}  // namespace

TEST_CASE("an unexpected message that cannot be queued is freed") {
  const message_key key{1, 7, 1, 0};
  const interprocess::header frame =
      interprocess::make_header(interprocess::kind::data, key, 100, 0);
  std::optional<one_rendezvous> rank(std::in_place);
  rank->messages.receive_data(rank->connections.get(1), frame,
                              key);  // such memory is kept and used again
  rank.reset();
  std::size_t before = blocks_in_use;
  const auto arrive = [&] {
    try {
      rank->messages.receive_data(rank->connections.get(1), frame, key);
    } catch (const std::bad_alloc&) {
    }
  };
  rank.emplace();
  (void)rank->connections.get(1);
  refuse_each(arrive, [&] {
    rank.reset();
    CHECK(blocks_in_use == before);
    rank.emplace();
    (void)rank->connections.get(1);
  });
}

TEST_CASE("a receive without memory leaves the RTS of its message to the next receive") {
  for (const message_key& key :
       {message_key{1, 7, 1, 0}, message_key{1, 7, 1, message_key::point_to_point},
        message_key{posted_receive::any_source, 7, 1, message_key::point_to_point}}) {
    CAPTURE(key.lane);
    CAPTURE(key.peer);
    std::optional<one_rendezvous> rank;
    int refused = 0;
    const auto receive_twice = [&] {
      const std::size_t nth = refused_allocation.exchange(0);
      rank.emplace();
      message_key sent = key;
      sent.peer = 1;
      const interprocess::header frame = interprocess::make_header(interprocess::kind::data, sent,
                                                                   100, 0, interprocess::flag::rts);
      rank->messages.receive_rts(rank->connections.get(1), frame, sent);
      REQUIRE(rank->matcher.unexpected_count() == 1);
      std::byte data[100];
      posted_receive receive;
      receive.key = key;
      receive.data = data;
      receive.size = sizeof data;
      receive.record = &rank->record;
      refused_allocation = nth;
      try {
        (void)rank->messages.start(receive);
      } catch (const std::bad_alloc&) {
        ++refused;
        CHECK(!receive.queued);
        CHECK(rank->matcher.unexpected_count() == 1);
        CHECK(!rank->messages.start(receive));
      }
      CHECK(receive.queued);
      CHECK(receive.cleared);
      CHECK(rank->matcher.unexpected_count() == 0);
      rank->matcher.withdraw(receive);
    };
    refuse_each(receive_twice, [] {});
#if !defined(SANITIZED)
    CHECK(refused > 0);
#endif
  }
}

TEST_CASE("a connection whose peer does not read ends, and names the peer") {
  one_connection here;
  const message_key key{1, 7, 1, 0};
  const interprocess::header frame = interprocess::make_header(interprocess::kind::cts, key, 0, 0);
  for (int frames = 0; !here.connection.has_ended() && frames < 8'000'000; ++frames) {
    here.connection.control(frame);
  }
  REQUIRE(here.connection.has_ended());
  here.driver->queue().run();
  REQUIRE(here.owner.losses.size() == 1);
  CHECK(here.owner.losses[0].code == errc::peer_failed);
  CHECK(here.owner.losses[0].culprit == 1);
}

TEST_CASE("a peer that sends CTS without end ends its connection before it takes all memory") {
  one_rendezvous rank;
  interprocess::connection& source = rank.connections.get(1);
  std::size_t cleared = 0;
  for (; !source.has_ended() && cleared < 2 * interprocess::max_stored_cts; ++cleared) {
    const message_key key{1, 7, cleared % 1000 + 1, 0};
    rank.messages.receive_cts(source, interprocess::make_header(interprocess::kind::cts, key, 0, 0),
                              key);
  }
  CHECK(cleared == interprocess::max_stored_cts + 1);
  CHECK(rank.state.reason().code == errc::protocol_error);
  CHECK(rank.state.reason().culprit == 1);
}

TEST_CASE("a peer that sends RTS without end ends its connection before it takes all memory") {
  one_rendezvous rank;
  interprocess::connection& source = rank.connections.get(1);
  const auto receive_rts = [&](std::uint64_t tag) {
    const message_key key{1, 7, tag % 1000, message_key::point_to_point};
    rank.messages.receive_rts(
        source,
        interprocess::make_header(interprocess::kind::data, key, 100, 0, interprocess::flag::rts),
        key);
  };
  // An RTS that a receive takes makes room for another.
  receive_rts(0);
  std::byte data[100];
  posted_receive receive;
  receive.key = {1, 7, 0, message_key::point_to_point};
  receive.data = data;
  receive.size = sizeof data;
  receive.record = &rank.record;
  CHECK(!rank.messages.start(receive));
  rank.matcher.withdraw(receive);
  CHECK(source.flow.rts_waiting == 0);
  std::size_t headers = 0;
  for (; !source.has_ended() && headers < 2 * interprocess::max_rts; ++headers)
    receive_rts(headers);
  CHECK(headers == interprocess::max_rts + 1);
  CHECK(rank.state.reason().code == errc::protocol_error);
  CHECK(rank.state.reason().culprit == 1);
}

TEST_CASE("a rank sends no more RTS than its peer keeps, and others when there is room") {
  one_rendezvous rank;
  interprocess::connection& dest = rank.connections.get(1);
  std::vector<interprocess::posted_send> sends(interprocess::max_rts / 2 + 4);
  for (std::size_t i = 0; i < sends.size(); ++i) {
    sends[i].key = {1, 7, i, message_key::point_to_point};
    sends[i].size = eager_limit + 1;
    sends[i].record = &rank.record;
    if (rank.messages.start(sends[i])) FAIL(i);
  }
  interprocess::posted_send* const held = sends.data() + interprocess::max_rts / 2;
  const auto unblocked = [&] {
    return std::count_if(held, held + 4,
                         [](const interprocess::posted_send& one) { return !one.is_blocked; });
  };
  CHECK_FALSE(sends[sends.size() - 5].is_blocked);
  CHECK(unblocked() == 0);

  rank.messages.withdraw(sends[0]);
  CHECK(unblocked() == 1);
  CHECK_FALSE(held[0].is_blocked);

  dest.withdraw(sends[1]);  // as if its header had been written
  rank.messages.receive_cts(
      dest, interprocess::make_header(interprocess::kind::cts, sends[1].key, 0, 0), sends[1].key);
  CHECK(unblocked() == 2);
  CHECK_FALSE(held[1].is_blocked);

  rank.messages.withdraw(held[2]);  // this send does not continue
  dest.withdraw(sends[2]);
  dest.flow.announced_sends.remove(sends[2]);
  sends[2].awaits_cts = false;
  CHECK(held[3].is_blocked);
  rank.messages.resume_deferred(dest);  // as when another communicator has failed
  CHECK_FALSE(held[3].is_blocked);
  for (std::size_t i = 3; i < sends.size(); ++i) {
    if (&sends[i] != held + 2) rank.messages.withdraw(sends[i]);
  }
  rank.messages.withdraw(sends[1]);
}

TEST_CASE("a send right after its connection was aborted learns why") {
  for (const bool sends : {true, false}) {
    one_rendezvous rank;
    rank.connections.get(1).abort();
    if (sends) {
      interprocess::posted_send send;
      send.key = {1, 7, 1, 0};
      send.record = &rank.record;
      CHECK(rank.messages.start(send));
      CHECK(send.ec == errc::peer_failed);
    } else {
      posted_receive receive;
      receive.key = {1, 7, 1, 0};
      receive.record = &rank.record;
      CHECK(rank.messages.start(receive));
      CHECK(receive.ec == errc::peer_failed);
    }
    CHECK(rank.state.reason().culprit == 0);
  }
}

TEST_CASE("a listener that cannot be created watches nothing") {
  struct ignoring_handler final : authenticating_listener::handler {
    void handle_peer(std::unique_ptr<stream>, const hello&) override {}
  } handler;
  const secret shared("right");
  /// New each time, since an engine keeps the memory that it has allocated.
  struct server {
    boost::asio::io_context context{1};
    std::shared_ptr<engine> driver = engine::get(context.get_executor());
    listener acceptor;
    std::optional<authenticating_listener> authenticating;
  };
  std::optional<server> made;
  const auto build = [&] {
    made.emplace();
    REQUIRE(!made->acceptor.listen({boost::asio::ip::address_v4::loopback(), 0}));
  };
  build();
  const auto make = [&] {
    try {
      made->authenticating.emplace(*made->driver, made->acceptor, hello(), shared, handler);
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(make, [&] {
    if (made->authenticating) return;
    const endpoint address = made->acceptor.local();
    const detail::descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), address.data(), static_cast<socklen_t>(address.size())) == 0);
    made->driver->dispatch(0);
    CHECK(made->acceptor.accept());
    build();
  });
}

TEST_CASE("a connection that cannot be watched does not open") {
  owner_without_memory owner;
  boost::asio::io_context context(1);
  const std::shared_ptr<engine> driver = engine::get(context.get_executor());
  std::optional<interprocess::connection> connection;
  bool is_open = false;
  const auto open = [&] {
    connection.emplace(*driver, owner, 1);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    detail::descriptor other(ends[0]);
    is_open = false;
    try {
      detail::descriptor mine(ends[1]);
      connection->open(std::make_unique<interprocess::socket_pipe>(*driver, std::move(mine)));
      is_open = true;
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(open, [&] { CHECK(connection->is_open() == is_open); });
}

namespace {

/// The buffers of one of two ranks, and how its work ended.
struct work {
  std::vector<int> data = std::vector<int>(200'000, 1);
  std::vector<int> others = std::vector<int>(2 * data.size());
  bool over = false;
  bool failed = false;
  int culprit = -1;     // the rank that has died according to the failure
  char text[300] = {};  // no memory for a string
};
template <class Comm>
using workload = task<> (*)(Comm& comm, work& mine);

template <class Comm>
task<> sum_in_bounce_buffers(Comm& comm, work& mine) {
  co_await comm.all_reduce(mine.data);
}
task<> sum_in_shared_memory(world& comm, work&) {
  auto shared = comm.allocate<int>(70'000);
  co_await comm.all_reduce(shared, {.algorithm = algorithm::direct});
}
template <class Comm>
task<> gather(Comm& comm, work& mine) {
  co_await comm.all_gather(mine.data, mine.others);
  co_await comm.broadcast(mine.data, 1);
}
template <class Comm>
task<> several_at_once(Comm& comm, work& mine) {
  const std::span all(mine.data);
  auto sum = comm.all_reduce(all.first(4));
  auto ring = comm.all_reduce(mine.others, {.algorithm = algorithm::ring, .segment = 65'536});
  auto copy = comm.broadcast(all.subspan(100, 30'000), 0);
  co_await comm.barrier();
  co_await ring;
  co_await copy;
  co_await sum;
}
template <class Comm>
task<> in_a_split(Comm& comm, work& mine) {
  auto half = co_await comm.split(0);
  co_await half.all_reduce(std::span(mine.data).first(4));
}
template <class Comm>
task<> messages_out_of_order(Comm& comm, work& mine) {
  const int other = 1 - comm.rank();
  const auto few = std::span(mine.data).first(100);
  if (comm.rank() == 0) {
    // No send is awaited alone: without memory for a copy it ends only when its receive is posted.
    operation<> sends[] = {comm.send(few, other, 0), comm.send(few, other, 1),
                           comm.send(few, other, 2), comm.send(few, other, 3)};
    co_await comm.send(mine.data, other, 9);
    for (operation<>& each : sends) co_await each;
    co_await comm.recv(few, other, 10);
  } else {
    co_await comm.recv(mine.others, other, 9);
    for (int tag = 3; tag >= 0; --tag) co_await comm.recv(few, other, tag);
    co_await comm.send(few.first(20), other, 10);
  }
}

template <class Comm>
task<> drop_a_call(Comm& comm, work& mine) {
  auto dropped = comm.all_reduce(mine.data);
  if (comm.rank() != 0) co_await dropped;
}

/// Runs a workload. A rank that fails revokes the communicator, as a program does that is left by
/// an exception.
template <class Comm>
task<> run_to_end(Comm& comm, workload<Comm> load, work& mine) {
  try {
    co_await load(comm, mine);
  } catch (const error& thrown) {
    mine.failed = true;
    if (thrown.code() == errc::peer_failed) mine.culprit = thrown.record().culprit;
    std::snprintf(mine.text, sizeof mine.text, "%s", thrown.what());
  } catch (const std::exception&) {
    mine.failed = true;
  }
  if (mine.failed) comm.revoke("it left by an exception");
  mine.over = true;
}

}  // namespace

TEST_CASE_TEMPLATE("whatever memory is refused, all ranks come to an end", World, tcp_world,
                   shm_world) {
  const workload<world> all[] = {
      sum_in_bounce_buffers, sum_in_shared_memory, gather,
      several_at_once,       in_a_split,           messages_out_of_order};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const workload<world> load = all[i];
    for (const bool warm : {true, false}) {
      if (!warm && i % 3 != 0) continue;  // connections open in the same way in all of them
      CAPTURE(i);
      CAPTURE(warm);
      std::optional<ranks<World>> here;
      int failed = 0;
      const auto run = [&](std::size_t refused) {
        work both[2];
        task_group running(here->world.on());
        task<> mains[] = {run_to_end(here->all[0], load, both[0]),
                          run_to_end(here->all[1], load, both[1])};
        refused_allocation = refused;
        for (int rank = 0; rank < 2; ++rank) {
          try {
            running.start(std::move(mains[rank]));
          } catch (const std::bad_alloc&) {
            here->all[static_cast<std::size_t>(rank)].revoke("the rank could not start");
            both[rank].over = true;
          }
        }
        const auto limit = here->world.on().now() + 10 * seconds;
        unsigned idle = 0;
        while (!(both[0].over && both[1].over) && here->world.on().now() < limit) {
          if (here->world.poll()) {
            idle = 0;
          } else {
            here->world.idle(++idle);
          }
        }
        const std::size_t left = refused_allocation.exchange(0);
        CHECK(both[0].over);
        CHECK(both[1].over);
        const std::string texts = std::string(both[0].text) + both[1].text;
        CAPTURE(texts);
        // Two ranks that cannot reach each other name each other.
        const bool must_agree = texts.find("be reached by") == std::string::npos &&
                                texts.find("takes this rank for dead") == std::string::npos;
        if (both[0].culprit >= 0 && both[1].culprit >= 0 && must_agree) {
          CHECK(both[0].culprit == both[1].culprit);
        }
        failed += both[0].failed || both[1].failed;
        return left;
      };
      std::size_t left = 0;
      for (std::size_t nth = 1; left == 0; ++nth) {
        CAPTURE(nth);
        here.emplace(2);
        for (int round = 0; warm && round < 3; ++round) CHECK(run(0) == 0);
        failed = 0;
        left = run(nth);
      }
      CHECK(failed == 0);  // the last run had all its memory
    }
  }
}

namespace {

/// Two ranks of a thread world, driven alternately by this thread.
struct two_threads {
  thread_world world{2};
  std::vector<threads::communicator> all;

  two_threads() {
    for (int rank = 0; rank < 2; ++rank) all.push_back(threads::join(world, rank));
  }
  ~two_threads() {
    all.clear();
    for (int rank = 0; rank < 2; ++rank) world[rank].depart();
  }

  /// Returns how many allocations were still to be counted, 0 if one was refused; `both` says how
  /// the work ended.
  std::size_t run(workload<threads::communicator> load, work (&both)[2], std::size_t refused) {
    std::optional<task<>> mains[2];
    completion ended[2];
    for (int rank = 0; rank < 2; ++rank) {
      mains[rank].emplace(run_to_end(all[static_cast<std::size_t>(rank)], load, both[rank]));
      ended[rank].bind([](completion&) noexcept {}, completion(nullptr, &world[rank].queue()));
    }
    refused_allocation = refused;
    for (int rank = 0; rank < 2; ++rank) {
      try {
        (void)mains[rank]->start(ended[rank]);
      } catch (const std::bad_alloc&) {
        all[static_cast<std::size_t>(rank)].revoke("the rank could not start");
        both[rank].over = true;
      }
    }
    const time_point limit = world[0].now() + 10 * seconds;
    while (!(both[0].over && both[1].over) && world[0].now() < limit) {
      for (int rank = 0; rank < 2; ++rank) {
        if (!world[rank].poll()) world[rank].idle(0);
      }
    }
    return refused_allocation.exchange(0);
  }
};

}  // namespace

TEST_CASE("whatever memory is refused to ranks that are threads, all come to an end") {
  using comm = threads::communicator;
  // Without messages_out_of_order: a send without memory for a copy waits for its receive.
  const workload<comm> all[] = {sum_in_bounce_buffers<comm>, gather<comm>, several_at_once<comm>,
                                in_a_split<comm>, drop_a_call<comm>};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    for (const bool warm : {true, false}) {
      CAPTURE(i);
      CAPTURE(warm);
      std::size_t left = 0;
      int failed = 0;
      for (std::size_t nth = 1; left == 0; ++nth) {
        CAPTURE(nth);
        two_threads here;
        for (int round = 0; warm && round < 3 && all[i] != &drop_a_call<comm>; ++round) {
          work both[2];
          CHECK(here.run(all[i], both, 0) == 0);
        }
        work both[2];
        left = here.run(all[i], both, nth);
        CHECK(both[0].over);
        CHECK(both[1].over);
        failed = both[0].failed + both[1].failed;
      }
      // The last run had all its memory.
      CHECK(failed == (all[i] == &drop_a_call<comm> ? 1 : 0));
    }
  }
}

#if !defined(SANITIZED)
TEST_CASE("a rank thread without memory reports that it has none, and keeps what has arrived") {
  two_threads here;
  // Long messages: their senders wait until the messages are received or the communicator ends.
  std::vector<std::byte> data(2 * eager_limit);
  communicator_state states[2] = {{7, 0, 2, nullptr}, {7, 1, 2, nullptr}};
  operation_record records[2];
  for (int rank = 0; rank < 2; ++rank) {
    here.world[rank].matching().add(states[rank]);
    records[rank].communicator = &states[rank];
  }
  {
    std::deque<thread_transport::send_operation> sends;
    completion done(nullptr, &here.world[1].queue());
    done.bind([](completion&) noexcept {}, done);
    for (std::uint64_t tag = 0; tag < 100; ++tag) {
      sends.push_back(here.world[1].send({0, 7, tag, message_key::point_to_point},
                                         {data.data(), data.size()}, records[1]));
    }
    for (auto& each : sends) REQUIRE(!each.start(done));
    refused_allocation = 1;
    here.world[0].poll();
    CHECK(refused_allocation.exchange(0) == 0);
    CHECK(here.world[0].matching().unexpected_count() == 99);
    CHECK(states[0].reason().code == errc::peer_failed);
    CHECK(states[0].reason().culprit == 0);
    while (here.world[1].poll()) {
    }
    CHECK(states[1].reason().code == errc::peer_failed);
    CHECK(states[1].reason().culprit == 0);
    for (auto& each : sends) {
      CHECK(!each.untouched());
      CHECK(each.result() == make_error_code(errc::peer_failed));
    }
  }
  for (int rank = 0; rank < 2; ++rank) here.world[rank].matching().remove(states[rank]);
}
#endif
