// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Where the system refuses memory, what promises to go on does.

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

/// `work()` with its first allocation refused and then `check()`, the same with its second, and so
/// on until none of them was.
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

/// An owner that has no memory for what comes.
struct poor_owner final : tcp::link_owner {
  match all{0};
  std::vector<failure> losses;

  void received(tcp::link&, const tcp::header&, const std::byte*) override {
    throw std::bad_alloc();
  }
  bool take_next(tcp::link&) override { return false; }
  void lost(tcp::link&, const failure& why) override { losses.push_back(why); }
  void lent(tcp::link&, detail::descriptor) override {}
  match& matching() override { return all; }
};

/// A link and the other end of its socket.
struct one_link {
  boost::asio::io_context context{1};
  std::shared_ptr<engine> on = engine::of(context.get_executor());
  poor_owner owner;
  tcp::link to{*on, owner, 1};
  detail::descriptor other;

  one_link() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    other = detail::descriptor(ends[0]);
    to.open(detail::descriptor(ends[1]));
  }
  /// Its owner is told so later.
  void check_lost() {
    CHECK(to.ended());
    CHECK(!to.is_open());
    CHECK(owner.losses.empty());
    on->queue().run();
    REQUIRE(owner.losses.size() == 1);
    CHECK(owner.losses[0].code == errc::peer_failed);
    CHECK(owner.losses[0].culprit == 0);  // the rank that has none
  }
};

}  // namespace

TEST_CASE("an arena gives no block and no other pages, and loses no place") {
  shm::arena own;
  REQUIRE(!own.make(2));
  const auto place_of = [&](const std::byte* block) { return own.locate({block, 1}); };
  std::byte* const first = own.allocate(1);
  const shm::place begin = place_of(first);
  std::byte* block = nullptr;
  refuse_each([&] { block = own.allocate(1); },
              [&] {
                if (block == nullptr) return;
                CHECK(place_of(block) == begin + shm::longest_page);
                own.free(block);
              });
  first[0] = std::byte{7};
  bool retired = false;
  refuse_each([&]() noexcept { retired = own.retire(first); },
              [&] {
                CHECK(place_of(first) == (retired ? begin + shm::longest_page : begin));
                CHECK(first[0] == std::byte{7});
              });
}

TEST_CASE("working memory that cannot be kept is given to the system") {
  std::optional<spare_memory> spare(std::in_place);
  const std::size_t before = blocks_in_use;
  spare_memory::block used;
  refuse_each([&]() noexcept { spare->give(used); },
              [&] {
                spare.emplace();
                CHECK(blocks_in_use == before);
                used = spare->take(1000);
              });
  spare->give(used);
}

TEST_CASE("a send to a rank of this process that cannot be kept there leaves nothing") {
  // Of a collective, and one to one: that is copied.
  for (const message_key& key :
       {message_key{1, 0, 1, 0}, message_key{1, 0, 1, message_key::point_to_point}}) {
    std::optional<inproc_world> world;
    std::optional<communicator_state> of[2];
    delete new detail::recycled;  // a thread's first asks for what it cannot do without
    refuse_each(
        [&] {
          const std::size_t refused = refused_allocation.exchange(0);
          for (auto& each : of) each.reset();
          world.emplace(2);
          for (int rank = 0; rank < 2; ++rank) {
            auto& made = of[rank].emplace(0U, rank, 2, nullptr);
            (*world)[rank].matching().add(made);
          }
          operation_record record;
          record.communicator = &*of[0];
          record.sequence = 1;
          record.hash = key.is_point_to_point() ? 0 : 5;
          completion done(nullptr, &world->queue());
          const std::byte data{};
          auto send = (*world)[0].send(key, {&data, 1}, record);
          refused_allocation = refused;
          try {
            (void)send.start(done);
          } catch (const std::bad_alloc&) {
            CHECK((*world)[1].matching().arrivals() == 0);
          }
        },
        [&] {
          for (int rank = 0; rank < 2; ++rank) (*world)[rank].matching().remove(*of[rank]);
        });
  }
}

TEST_CASE("a link ends that has no memory for what it has to say") {
  std::optional<one_link> here(std::in_place);
  std::vector<std::byte> payload(sizeof(failure));
  tcp::header frame;
  frame.kind = tcp::kind::revoke;
  frame.length = payload.size();
  bool is_whole = false;
  refuse_each(
      [&]() noexcept {
        here->to.control(frame, payload.data());
        is_whole = !here->to.ended();
      },
      [&] {
        if (!is_whole) here->check_lost();
        if (!is_whole) here.emplace();
      });
  here->to.flush();
  std::vector<std::byte> word(1000);
  CHECK(::read(here->other.get(), word.data(), word.size()) ==
        static_cast<ssize_t>(sizeof frame + payload.size()));
}

TEST_CASE("a link ends whose owner has no memory for what it brings") {
  one_link here;
  const std::vector<std::byte> payload(100);
  const tcp::header frame = tcp::header_for(tcp::kind::data, {1, 7, 1, 0}, payload.size(), 0);
  REQUIRE(::write(here.other.get(), &frame, sizeof frame) == sizeof frame);
  REQUIRE(::write(here.other.get(), payload.data(), payload.size()) == 100);
  CHECK(here.to.pump());
  here.check_lost();
}

TEST_CASE("a receive that cannot be listed is not, and a link that cannot be made is not there") {
  match all(0);
  posted asked;
  asked.key = {1, 7, 1, 0};
  bool is_listed = false;
  const auto list = [&] {
    is_listed = false;
    try {
      all.list(asked);
      is_listed = true;
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(list, [&] {
    CHECK(asked.listed == is_listed);
    all.withdraw(asked);
  });

  boost::asio::io_context context(1);
  poor_owner owner;
  tcp::links every(*engine::of(context.get_executor()), owner);
  const auto make = [&] {
    try {
      (void)every.at(3);
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(make, [&] { every.each([](int peer, tcp::link& to) { CHECK(to.peer() == peer); }); });
  CHECK(every.at(3).peer() == 3);
}

TEST_CASE("who leaves a communicator needs no memory") {
  std::optional<match> all(std::in_place, 0);
  std::optional<communicator_state> one;
  const auto join = [&] {
    all.emplace(0);
    one.emplace(7, 0, 2, nullptr);
    all->add(*one);
    one->fail(reported_failure(failure(errc::revoked)));
  };
  join();
  refuse_each([&]() noexcept { all->remove(*one); },
              [&] {
                CHECK(all->find(7) == nullptr);
                CHECK(!all->inspect({1, 7, 1, 0}, 0));
                join();
              });
}

namespace {

/// The messages of rank 0 of two, without sockets.
struct one_delivery final : tcp::link_owner, tcp::opener::host, tcp::delivery::host {
  boost::asio::io_context context{1};
  std::shared_ptr<engine> on = engine::of(context.get_executor());
  membership who;
  match all{0};
  communicator_state state{7, 0, 2, nullptr};
  operation_record record;
  tcp::links every{*on, *this};
  tcp::opener opens{*on, who, every, *this};
  tcp::delivery here{all, every, opens, *this};

  one_delivery() {
    who.size = 2;
    all.add(state);
    record.communicator = &state;
  }
  void received(tcp::link&, const tcp::header&, const std::byte*) override {}
  bool take_next(tcp::link&) override { return false; }
  void lost(tcp::link& which, const failure& why) override { all.died(which.peer(), why); }
  void lent(tcp::link&, detail::descriptor) override {}
  match& matching() override { return all; }
  void opened(tcp::link&) override {}
  void unreachable(tcp::link&, const failure&) override {}
  bool is_needed(tcp::link&) override { return false; }
  void comes(const message_key&) override {}
};

}  // namespace

TEST_CASE("an early message that cannot be listed is gone") {
  const message_key key{1, 7, 1, 0};
  const tcp::header frame = tcp::header_for(tcp::kind::data, key, 100, 0);
  std::optional<one_delivery> rank(std::in_place);
  rank->here.message(rank->every.at(1), frame, key);  // such memory is kept, and used again
  rank.reset();
  std::size_t before = blocks_in_use;
  const auto come = [&] {
    try {
      rank->here.message(rank->every.at(1), frame, key);
    } catch (const std::bad_alloc&) {
    }
  };
  rank.emplace();
  (void)rank->every.at(1);
  refuse_each(come, [&] {
    rank.reset();
    CHECK(blocks_in_use == before);
    rank.emplace();
    (void)rank->every.at(1);
  });
}

TEST_CASE("a receive without memory leaves the header of its message to the next receive") {
  for (const message_key& key :
       {message_key{1, 7, 1, 0}, message_key{1, 7, 1, message_key::point_to_point},
        message_key{posted::any_source, 7, 1, message_key::point_to_point}}) {
    CAPTURE(key.lane);
    CAPTURE(key.peer);
    std::optional<one_delivery> rank;
    int refused = 0;
    const auto receive_twice = [&] {
      const std::size_t nth = refused_allocation.exchange(0);
      rank.emplace();
      message_key sent = key;
      sent.peer = 1;
      const tcp::header frame =
          tcp::header_for(tcp::kind::data, sent, 100, 0, tcp::flag::header_alone);
      rank->here.announced(rank->every.at(1), frame, sent);
      REQUIRE(rank->all.arrivals() == 1);
      std::byte data[100];
      posted receive;
      receive.key = key;
      receive.data = data;
      receive.size = sizeof data;
      receive.record = &rank->record;
      refused_allocation = nth;
      try {
        (void)rank->here.start(receive);
      } catch (const std::bad_alloc&) {
        ++refused;
        CHECK(!receive.listed);
        CHECK(rank->all.arrivals() == 1);
        CHECK(!rank->here.start(receive));
      }
      CHECK(receive.listed);
      CHECK(receive.granted);
      CHECK(rank->all.arrivals() == 0);
      rank->all.withdraw(receive);
    };
    refuse_each(receive_twice, [] {});
#if !defined(SANITIZED)
    CHECK(refused > 0);
#endif
  }
}

TEST_CASE("a link whose peer does not read ends, and names the peer") {
  one_link here;
  const message_key key{1, 7, 1, 0};
  const tcp::header frame = tcp::header_for(tcp::kind::grant, key, 0, 0);
  for (int words = 0; !here.to.ended() && words < 8'000'000; ++words) here.to.control(frame);
  REQUIRE(here.to.ended());
  here.on->queue().run();
  REQUIRE(here.owner.losses.size() == 1);
  CHECK(here.owner.losses[0].code == errc::peer_failed);
  CHECK(here.owner.losses[0].culprit == 1);
}

TEST_CASE("a peer that grants on and on ends its link before it takes all memory") {
  one_delivery rank;
  tcp::link& from = rank.every.at(1);
  std::size_t granted = 0;
  for (; !from.ended() && granted < 2 * tcp::most_grants; ++granted) {
    const message_key key{1, 7, granted % 1000 + 1, 0};
    rank.here.granted(from, tcp::header_for(tcp::kind::grant, key, 0, 0), key);
  }
  CHECK(granted == tcp::most_grants + 1);
  CHECK(rank.state.why().code == errc::protocol_error);
  CHECK(rank.state.why().culprit == 1);
}

TEST_CASE("a peer that sends headers on and on ends its link before it takes all memory") {
  one_delivery rank;
  tcp::link& from = rank.every.at(1);
  const auto announced = [&](std::uint64_t tag) {
    const message_key key{1, 7, tag % 1000, message_key::point_to_point};
    rank.here.announced(
        from, tcp::header_for(tcp::kind::data, key, 100, 0, tcp::flag::header_alone), key);
  };
  // One that is taken makes room for another.
  announced(0);
  std::byte data[100];
  posted receive;
  receive.key = {1, 7, 0, message_key::point_to_point};
  receive.data = data;
  receive.size = sizeof data;
  receive.record = &rank.record;
  CHECK(!rank.here.start(receive));
  rank.all.withdraw(receive);
  CHECK(from.credit.headers == 0);
  std::size_t headers = 0;
  for (; !from.ended() && headers < 2 * tcp::most_headers; ++headers) announced(headers);
  CHECK(headers == tcp::most_headers + 1);
  CHECK(rank.state.why().code == errc::protocol_error);
  CHECK(rank.state.why().culprit == 1);
}

TEST_CASE("a rank sends no more headers ahead than its peer keeps, and others when there is room") {
  one_delivery rank;
  tcp::link& to = rank.every.at(1);
  std::vector<tcp::outgoing> sends(tcp::most_headers / 2 + 4);
  for (std::size_t i = 0; i < sends.size(); ++i) {
    sends[i].key = {1, 7, i, message_key::point_to_point};
    sends[i].size = eager_limit + 1;
    sends[i].record = &rank.record;
    if (rank.here.start(sends[i])) FAIL(i);
  }
  tcp::outgoing* const held = sends.data() + tcp::most_headers / 2;
  const auto ahead = [&] {
    return std::count_if(held, held + 4, [](const tcp::outgoing& one) { return !one.behind; });
  };
  CHECK_FALSE(sends[sends.size() - 5].behind);
  CHECK(ahead() == 0);

  rank.here.withdraw(sends[0]);
  CHECK(ahead() == 1);
  CHECK_FALSE(held[0].behind);

  to.withdraw(sends[1]);  // as if its header had been written
  rank.here.granted(to, tcp::header_for(tcp::kind::grant, sends[1].key, 0, 0), sends[1].key);
  CHECK(ahead() == 2);
  CHECK_FALSE(held[1].behind);

  rank.here.withdraw(held[2]);  // which does not go on any more
  to.withdraw(sends[2]);
  to.credit.ahead.remove(sends[2]);
  sends[2].waits = false;
  CHECK(held[3].behind);
  rank.here.held_go_on(to);  // as when another communicator has failed
  CHECK_FALSE(held[3].behind);
  for (std::size_t i = 3; i < sends.size(); ++i) {
    if (&sends[i] != held + 2) rank.here.withdraw(sends[i]);
  }
  rank.here.withdraw(sends[1]);
}

TEST_CASE("who asks for a link right after it has broken is told why") {
  for (const bool sends : {true, false}) {
    one_delivery rank;
    rank.every.at(1).break_off();
    if (sends) {
      tcp::outgoing send;
      send.key = {1, 7, 1, 0};
      send.record = &rank.record;
      CHECK(rank.here.start(send));
      CHECK(send.ec == errc::peer_failed);
    } else {
      posted receive;
      receive.key = {1, 7, 1, 0};
      receive.record = &rank.record;
      CHECK(rank.here.start(receive));
      CHECK(receive.ec == errc::peer_failed);
    }
    CHECK(rank.state.why().culprit == 0);
  }
}

TEST_CASE("a door that cannot be made watches nothing") {
  struct nobody final : door::host {
    void enter(std::unique_ptr<stream>, const hello&) override {}
  } host;
  const secret shared("right");
  /// New each time: an engine keeps memory that it once had.
  struct house {
    boost::asio::io_context context{1};
    std::shared_ptr<engine> on = engine::of(context.get_executor());
    listener at;
    std::optional<door> front;
  };
  std::optional<house> made;
  const auto build = [&] {
    made.emplace();
    REQUIRE(!made->at.listen({boost::asio::ip::address_v4::loopback(), 0}));
  };
  build();
  const auto make = [&] {
    try {
      made->front.emplace(*made->on, made->at, hello(), shared, host);
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(make, [&] {
    if (made->front) return;
    const endpoint where = made->at.local();
    const detail::descriptor guest(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(guest.get(), where.data(), static_cast<socklen_t>(where.size())) == 0);
    made->on->dispatch(0);
    CHECK(made->at.accept());
    build();
  });
}

TEST_CASE("a link that cannot be watched does not open") {
  poor_owner owner;
  boost::asio::io_context context(1);
  const std::shared_ptr<engine> on = engine::of(context.get_executor());
  std::optional<tcp::link> to;
  bool is_open = false;
  const auto open = [&] {
    to.emplace(*on, owner, 1);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    detail::descriptor other(ends[0]);
    is_open = false;
    try {
      to->open(detail::descriptor(ends[1]));
      is_open = true;
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(open, [&] { CHECK(to->is_open() == is_open); });
}

namespace {

/// What each of two ranks does, warm or not, and how that ends.
struct work {
  std::vector<int> data = std::vector<int>(200'000, 1);
  std::vector<int> others = std::vector<int>(2 * data.size());
  bool over = false;
  bool failed = false;
  int culprit = -1;     // that has died, says the failure
  char text[300] = {};  // no memory for a string
};
template <class Comm>
using part_of_work = task<> (*)(Comm& comm, work& mine);

template <class Comm>
task<> sum_at_desks(Comm& comm, work& mine) {
  co_await comm.all_reduce(mine.data);
}
task<> sum_in_lent_memory(world& comm, work&) {
  auto lent = comm.allocate<int>(70'000);
  co_await comm.all_reduce(lent, {.algorithm = algorithm::direct});
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
task<> in_a_part(Comm& comm, work& mine) {
  auto half = co_await comm.split(0);
  co_await half.all_reduce(std::span(mine.data).first(4));
}
template <class Comm>
task<> messages_out_of_order(Comm& comm, work& mine) {
  const int other = 1 - comm.rank();
  const auto few = std::span(mine.data).first(100);
  if (comm.rank() == 0) {
    // None is awaited alone: without memory for a copy it goes when its receive has come.
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
  auto given_up = comm.all_reduce(mine.data);
  if (comm.rank() != 0) co_await given_up;
}

/// Who fails gives the communicator up, as a program does that leaves by an exception.
template <class Comm>
task<> end_in_any_way(Comm& comm, part_of_work<Comm> what, work& mine) {
  try {
    co_await what(comm, mine);
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
  const part_of_work<world> all[] = {sum_at_desks,    sum_in_lent_memory, gather,
                                     several_at_once, in_a_part,          messages_out_of_order};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const part_of_work<world> what = all[i];
    for (const bool warm : {true, false}) {
      if (!warm && i % 3 != 0) continue;  // how links open is the same for all
      CAPTURE(i);
      CAPTURE(warm);
      std::optional<ranks<World>> here;
      int failed = 0;
      const auto run = [&](std::size_t refused) {
        work both[2];
        task_group running(here->world.on());
        task<> mains[] = {end_in_any_way(here->all[0], what, both[0]),
                          end_in_any_way(here->all[1], what, both[1])};
        refused_allocation = refused;
        for (int rank = 0; rank < 2; ++rank) {
          try {
            running.start(std::move(mains[rank]));
          } catch (const std::bad_alloc&) {
            here->all[static_cast<std::size_t>(rank)].revoke("it never began");
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
        // Of two that cannot reach each other each names the other.
        const bool can_tell = texts.find("be reached by") == std::string::npos;
        if (both[0].culprit >= 0 && both[1].culprit >= 0 && can_tell) {
          CHECK(both[0].culprit == both[1].culprit);
        }
        failed += both[0].failed || both[1].failed;
        return left;
      };
      std::size_t left = 0;
      for (std::size_t nth = 1; left == 0; ++nth) {
        CAPTURE(nth);
        here.emplace(2);
        for (int turn = 0; warm && turn < 3; ++turn) CHECK(run(0) == 0);
        failed = 0;
        left = run(nth);
      }
      CHECK(failed == 0);  // none was refused in the end
    }
  }
}

namespace {

/// Two ranks that are threads elsewhere, by turns on this one.
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

  /// How many refused allocations were left to come. What is over by then is in `both`.
  std::size_t run(part_of_work<threads::communicator> what, work (&both)[2], std::size_t refused) {
    std::optional<task<>> mains[2];
    completion ended[2];
    for (int rank = 0; rank < 2; ++rank) {
      mains[rank].emplace(end_in_any_way(all[static_cast<std::size_t>(rank)], what, both[rank]));
      ended[rank].become([](completion&) noexcept {}, completion(nullptr, &world[rank].queue()));
    }
    refused_allocation = refused;
    for (int rank = 0; rank < 2; ++rank) {
      try {
        (void)mains[rank]->start(ended[rank]);
      } catch (const std::bad_alloc&) {
        all[static_cast<std::size_t>(rank)].revoke("it never began");
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
  using each = threads::communicator;
  // No messages out of order: a send that there is no memory to keep waits for its receive.
  const part_of_work<each> all[] = {sum_at_desks<each>, gather<each>, several_at_once<each>,
                                    in_a_part<each>, drop_a_call<each>};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    for (const bool warm : {true, false}) {
      CAPTURE(i);
      CAPTURE(warm);
      std::size_t left = 0;
      int failed = 0;
      for (std::size_t nth = 1; left == 0; ++nth) {
        CAPTURE(nth);
        two_threads here;
        for (int turn = 0; warm && turn < 3 && all[i] != &drop_a_call<each>; ++turn) {
          work both[2];
          CHECK(here.run(all[i], both, 0) == 0);
        }
        work both[2];
        left = here.run(all[i], both, nth);
        CHECK(both[0].over);
        CHECK(both[1].over);
        failed = both[0].failed + both[1].failed;
      }
      // None was refused in the end.
      CHECK(failed == (all[i] == &drop_a_call<each> ? 1 : 0));
    }
  }
}

#if !defined(SANITIZED)
TEST_CASE("a rank that is a thread says without memory that it has none, and keeps what came") {
  two_threads here;
  // Long messages: their senders wait until they are taken or the communicator ends.
  std::vector<std::byte> data(2 * eager_limit);
  communicator_state of[2] = {{7, 0, 2, nullptr}, {7, 1, 2, nullptr}};
  operation_record records[2];
  for (int rank = 0; rank < 2; ++rank) {
    here.world[rank].matching().add(of[rank]);
    records[rank].communicator = &of[rank];
  }
  {
    std::deque<thread_transport::send_operation> sends;
    completion done(nullptr, &here.world[1].queue());
    done.become([](completion&) noexcept {}, done);
    for (std::uint64_t tag = 0; tag < 100; ++tag) {
      sends.push_back(here.world[1].send({0, 7, tag, message_key::point_to_point},
                                         {data.data(), data.size()}, records[1]));
    }
    for (auto& each : sends) REQUIRE(!each.start(done));
    refused_allocation = 1;
    here.world[0].poll();
    CHECK(refused_allocation.exchange(0) == 0);
    CHECK(here.world[0].matching().arrivals() == 99);
    CHECK(of[0].why().code == errc::peer_failed);
    CHECK(of[0].why().culprit == 0);
    while (here.world[1].poll()) {
    }
    CHECK(of[1].why().code == errc::peer_failed);
    CHECK(of[1].why().culprit == 0);
    for (auto& each : sends) {
      CHECK(!each.untouched());
      CHECK(each.result() == make_error_code(errc::peer_failed));
    }
  }
  for (int rank = 0; rank < 2; ++rank) here.world[rank].matching().remove(of[rank]);
}
#endif
