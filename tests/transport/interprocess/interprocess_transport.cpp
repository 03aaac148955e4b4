// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include "../../support/counted_memory.hpp"
#include "../../support/tcp_ranks.hpp"

#include <doctest/doctest.h>

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

namespace {

using colls::errc;
using colls::task;

/// Awaits an operation that fails and gives its record.
template <class Operation>
task<colls::failure> failure_of(Operation operation) {
  colls::failure seen;
  try {
    (void)co_await operation;
  } catch (const colls::error& thrown) {
    seen = thrown.record();
  }
  co_return seen;
}

bool says(const colls::failure& why, const char* words) {
  return std::strstr(why.detail, words) != nullptr;
}

/// Copies of the ranks' communicators, each on an executor of its own.
struct copied {
  std::vector<std::unique_ptr<boost::asio::io_context>> contexts;
  std::vector<communicator> copies;
};
template <class World>
copied on_executors_of_their_own(ranks<World>& of) {
  copied made;
  made.copies.resize(of.all.size());
  for (std::size_t i = 0; i < of.all.size(); ++i) {
    made.contexts.push_back(std::make_unique<boost::asio::io_context>(1));
  }
  of.run([&](communicator& comm) -> task<> {
    const auto rank = static_cast<std::size_t>(comm.rank());
    made.copies[rank] = co_await comm.dup(made.contexts[rank]->get_executor());
  });
  return made;
}

}  // namespace

TEST_CASE_TEMPLATE("messages of every size arrive whole and in order, wanted early or late", World,
                   tcp_world, shm_world) {
  ranks<World> world(2);
  bool is_asked_for = false;
  world.run([&](communicator& comm) -> task<> {
    const auto until = [&](auto condition) -> task<> {
      while (!condition()) {
        co_await comm.net().driver().sleep_until(comm.net().now() + 100'000);
      }
    };
    const std::size_t sizes[] = {0, 1, 63, 4096, 65537, 131071, 131072, 131073, 300'000, 3'000'000};
    for (const bool sender_first : {true, false}) {
      for (const std::size_t size : sizes) {
        std::vector<unsigned char> data(size);
        if (comm.rank() == 0) {
          for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<unsigned char>(i * 7 + size);
          if (!sender_first) co_await until([&] { return is_asked_for; });
          co_await comm.send(data, 1, 5);
        } else {
          if (sender_first) co_await until([&] { return comm.net().matching().arrivals() > 0; });
          colls::operation<colls::received> taking = comm.recv(data, 0, 5);
          is_asked_for = true;
          const colls::received got = co_await taking;
          is_asked_for = false;
          CHECK(got.source == 0);
          CHECK(got.count == size);
          bool same = true;
          for (std::size_t i = 0; i < size; ++i) {
            same &= data[i] == static_cast<unsigned char>(i * 7 + size);
          }
          CHECK(same);
        }
      }
    }
    co_await comm.barrier();
  });
}

TEST_CASE_TEMPLATE("a window of unsolicited messages that nobody wants does not stop another tag",
                   World, tcp_world, shm_world) {
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    std::vector<int> block(8000, comm.rank());
    constexpr int unwanted = 200;
    if (comm.rank() == 0) {
      std::vector<colls::operation<>> kept;
      for (int i = 0; i < unwanted; ++i) kept.push_back(comm.send(block, 1, 1));
      co_await comm.send(block, 1, 2);
      for (colls::operation<>& each : kept) co_await each;
    } else {
      std::vector<int> got(8000, -1);
      (void)co_await comm.recv(got, 0, 2);
      CHECK(got[7999] == 0);
      for (int i = 0; i < unwanted; ++i) (void)co_await comm.recv(got, 0, 1);
    }
    co_await comm.barrier();
  });
}

namespace {

/// Rank 1 of a world of two, by hand: it writes to rank 0 what no rank of colls would.
class by_hand {
 public:
  by_hand() { colls::sync_wait(world_.world, dial()); }
  by_hand(const by_hand&) = delete;
  by_hand& operator=(const by_hand&) = delete;

  /// So many messages that nobody has asked for.
  void say(std::size_t count, std::size_t size) {
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < count; ++i) {
      add(all, {1, 0, tag, colls::message_key::point_to_point}, size, 0);
      all.resize(all.size() + size);
    }
    colls::sync_wait(world_.world, write(all));
  }
  /// That the communicator of both has failed.
  void revoke(const colls::failure& why) {
    colls::tcp::header frame;
    frame.kind = colls::tcp::kind::revoke;
    frame.length = sizeof why;
    std::vector<std::byte> all(sizeof frame + sizeof why);
    std::memcpy(all.data(), &frame, sizeof frame);
    std::memcpy(all.data() + sizeof frame, &why, sizeof why);
    colls::sync_wait(world_.world, write(all));
  }
  /// Announces a message, and answers its grant with one of another length.
  colls::failure answer_grant(std::size_t announced, std::uint64_t length) {
    std::vector<unsigned char> into(announced);
    colls::operation<colls::received> receiving = world_.all[0].recv(into, 1, tag);
    const colls::message_key key{1, 0, tag, colls::message_key::point_to_point};
    std::vector<std::byte> all;
    add(all, key, announced, colls::tcp::flag::header_alone);
    colls::sync_wait(world_.world, write(all));
    colls::tcp::header frame;
    turn_until([&] {
      return ::recv(connection_.descriptor(), &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame;
    });
    REQUIRE(frame.kind == colls::tcp::kind::grant);
    all.clear();
    add(all, key, length, colls::tcp::flag::granted);
    all.resize(all.size() + 4096);
    colls::sync_wait(world_.world, write(all));
    return colls::sync_wait(world_.world, failure_of(std::move(receiving)));
  }
  /// Whether rank 0 has taken all of that, and goes on.
  bool is_heard() {
    const colls::message_key last{1, unmade, ++words_, 0};
    std::vector<std::byte> word;
    add(word, last, 1, colls::tcp::flag::header_alone);
    colls::sync_wait(world_.world, write(word));
    const auto has_come = [&] { return world_.world[0].matching().arrived(last) != nullptr; };
    turn_until([&] { return has_come() || why() != nullptr; });
    return has_come();
  }
  /// What rank 0 gives back when so many of them are received.
  std::size_t given_back(std::size_t count, std::size_t size) {
    std::vector<unsigned char> into(size);
    for (std::size_t i = 0; i < count; ++i) {
      colls::operation<colls::received> next = world_.all[0].recv(into, 1, tag);
      CHECK(colls::sync_wait(world_.world, next).count == size);
    }
    std::size_t back = 0;
    turn_until([&] {
      colls::tcp::header frame;
      while (::recv(connection_.descriptor(), &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame) {
        if (frame.kind == colls::tcp::kind::grant) back += frame.length;
      }
      return back >= colls::tcp::window;
    });
    return back;
  }
  const colls::failure* why() const { return world_.all[0].failed(); }

  /// A word on where ranks are, as a frame of that kind.
  void report(colls::tcp::kind kind, const colls::state_report& said) {
    std::vector<std::byte> all;
    add(all, {kind, 0, colls::message_key::point_to_point, 0, tag, sizeof said, 0});
    all.resize(all.size() + sizeof said);
    std::memcpy(all.data() + all.size() - sizeof said, &said, sizeof said);
    colls::sync_wait(world_.world, write(all));
  }
  /// The answer to a message of that number that was taken back: nobody has asked for it.
  void answer_taken_back(std::uint64_t number) {
    tell_of_number(colls::tcp::kind::grant, 0, number);
  }
  /// That the message of that number, which was announced, does not come.
  void take_back(std::uint64_t number) {
    tell_of_number(colls::tcp::kind::data, colls::tcp::flag::header_alone, number);
  }
  /// A message of rank 0 that goes only when it is asked for.
  colls::operation<> send_long() { return world_.all[0].send(long_message_, 1, tag); }
  colls::operation<> barrier(const colls::options& how) { return world_.all[0].barrier(how); }
  /// Waits until rank 0 has written so many frames of that kind from now on.
  void hear(colls::tcp::kind kind, std::size_t count = 1) {
    std::size_t seen = 0;
    turn_until([&] { return (seen += heard(kind)) >= count; });
    REQUIRE(seen >= count);
  }
  /// How many frames of that kind, without payload or of late ranks, have come by now; the others
  /// are passed over.
  std::size_t heard(colls::tcp::kind kind) {
    std::size_t count = 0;
    colls::tcp::header frame;
    while (::recv(connection_.descriptor(), &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame) {
      count += frame.kind == kind;
      std::vector<std::byte> payload(colls::tcp::control_size(frame));
      if (payload.empty()) continue;
      turn_until([&] {
        return ::recv(connection_.descriptor(), payload.data(), payload.size(),
                      MSG_DONTWAIT | MSG_PEEK) == static_cast<ssize_t>(payload.size());
      });
      (void)::recv(connection_.descriptor(), payload.data(), payload.size(), MSG_DONTWAIT);
    }
    return count;
  }
  void turn() { world_.world.poll(); }
  colls::failure failure_of_call(colls::operation<> call) {
    return colls::sync_wait(world_.world, failure_of(std::move(call)));
  }

 private:
  static constexpr std::uint64_t tag = 5;
  static constexpr std::uint32_t unmade = 99;  // a communicator

  static void add(std::vector<std::byte>& to, const colls::message_key& key, std::size_t size,
                  std::uint8_t flags) {
    add(to, colls::tcp::header_for(colls::tcp::kind::data, key, size, 0, flags));
  }
  static void add(std::vector<std::byte>& to, const colls::tcp::header& frame) {
    to.resize(to.size() + sizeof frame);
    std::memcpy(to.data() + to.size() - sizeof frame, &frame, sizeof frame);
  }
  void tell_of_number(colls::tcp::kind kind, unsigned flags, std::uint64_t number) {
    std::vector<std::byte> all;
    add(all, {kind, static_cast<std::uint8_t>(flags | colls::tcp::flag::taken_back),
              colls::message_key::point_to_point, 0, tag, number, 0});
    colls::sync_wait(world_.world, write(all));
  }
  task<> dial() {
    co_await connection_.connect(world_.world[0].members().link_listener.local());
    const bool accepted = co_await world_.world[1].members().introduce(connection_, 0);
    REQUIRE(accepted);
  }
  task<> write(const std::vector<std::byte>& bytes) {
    // Rank 0 may have hung up.
    (void)co_await colls::detail::attempt(connection_.write({bytes.data(), bytes.size()}));
  }
  template <class Done>
  void turn_until(Done done) {
    const colls::time_point limit = world_.world.on().now() + 10 * colls::seconds;
    while (!done() && world_.world.on().now() < limit) world_.world.poll();
  }

  ranks<tcp_world> world_{2};
  colls::stream connection_{world_.world.on()};
  std::uint64_t words_ = 0;
  std::vector<int> long_message_ = std::vector<int>(1 << 18);
};

}  // namespace

TEST_CASE("the death of a rank that does not exist ends the communicator that it is told of") {
  for (const int culprit : {2, 1'000'000}) {
    CAPTURE(culprit);
    by_hand peer;
    colls::failure why(errc::peer_failed);
    why.culprit = culprit;
    peer.revoke(why);
    (void)peer.is_heard();
    REQUIRE(peer.why() != nullptr);
    CHECK(peer.why()->code == errc::peer_failed);
  }
}

TEST_CASE("a message longer than any memory ends its link, though it was granted") {
  by_hand peer;
  const colls::failure why = peer.answer_grant(300'000, std::uint64_t{1} << 63);
  CHECK(why.code == errc::protocol_error);
  CHECK(why.culprit == 1);
  CHECK(says(why, "the link from rank 1 to rank 0"));
}

TEST_CASE("a peer may send its window unasked, and again what was given back, and no more") {
  for (const std::size_t size : {colls::eager_limit - 64, std::size_t{960}, std::size_t{0}}) {
    CAPTURE(size);
    const std::size_t count = colls::tcp::window / colls::tcp::weight(size);
    REQUIRE(count * colls::tcp::weight(size) == colls::tcp::window);
    for (const bool again : {false, true}) {
      CAPTURE(again);
      by_hand peer;
      peer.say(count, size);
      CHECK(peer.is_heard());
      if (again) {
        CHECK(peer.given_back(count, size) == colls::tcp::window);
        peer.say(count, size);
        CHECK(peer.is_heard());
      }
      REQUIRE(peer.why() == nullptr);
      peer.say(1, size);
      CHECK(!peer.is_heard());
      REQUIRE(peer.why() != nullptr);
      CHECK(peer.why()->code == errc::protocol_error);
      CHECK(peer.why()->culprit == 1);
      CHECK(says(*peer.why(), "unasked"));
    }
  }
}

TEST_CASE("a report that no rank would send ends its link, and names none of its ranks") {
  using colls::tcp::kind;
  colls::rank_state late;
  late.rank = 1;
  const auto with = [](colls::state_report said, const colls::rank_state& other) {
    said.others[said.count++] = other;
    return said;
  };
  struct {
    const char* what;
    colls::state_report said;
    bool can_be;
  } reports[] = {
      {"of its sender alone", {}, true},
      {"of a rank that there is", with({}, late), true},
      {"of more ranks than fit", {}, false},
      {"of a rank above the last one", with({}, late), false},
      {"of a negative rank", with({}, late), false},
      {"of a rank far out of range", with({}, late), false},
      {"of an operation of its sender that does not exist", {}, false},
      {"of an operation of another rank that does not exist", with({}, late), false},
  };
  reports[2].said.count = colls::state_report::most + 1;
  reports[3].said.others[0].rank = 2;
  reports[4].said.others[0].rank = -1;
  reports[5].said.others[0].rank = 1'000'000;
  reports[6].said.self.operation = static_cast<colls::collective>(200);
  reports[7].said.others[0].operation = static_cast<colls::collective>(200);
  for (const kind by : {kind::announce, kind::report}) {
    for (const auto& each : reports) {
      CAPTURE(static_cast<int>(by));
      CAPTURE(each.what);
      by_hand peer;
      colls::operation<> waiting = peer.barrier({.timeout = std::chrono::seconds(20)});
      peer.hear(kind::announce);  // so rank 0 asks what others know
      peer.report(by, each.said);
      CHECK(peer.is_heard() == each.can_be);
      if (each.can_be) {
        CHECK(peer.why() == nullptr);
        continue;
      }
      const colls::failure why = peer.failure_of_call(std::move(waiting));
      CHECK(why.code == errc::protocol_error);
      CHECK(why.culprit == 1);
      CHECK(says(why, "on the link from rank 1 to rank 0: a report on ranks that there cannot be"));
      CHECK(peer.heard(kind::report) == 0);
    }
  }
}

TEST_CASE_TEMPLATE("of very many messages that were announced and withdrawn nothing stays", World,
                   tcp_world, shm_world) {
  constexpr int count = 100'000;
  constexpr int at_once = 100;
  for (const bool is_asked_for : {false, true}) {
    CAPTURE(is_asked_for);
    ranks<World> world(2);
    std::size_t blocks_before = 0;
    std::size_t most_blocks = 0;
    std::size_t most_arrivals = 0;
    int announced = 0;
    world.run([&](communicator& comm) -> task<> {
      std::vector<int> words(1 << 18, 7);
      const auto pause = [&] {
        return comm.net().driver().sleep_until(comm.net().now() + 100'000);
      };
      co_await comm.barrier();
      if (comm.rank() == 1) {
        // A receive that asks for each of them, and gets the message after them.
        if (is_asked_for) {
          const colls::received got = co_await comm.recv(words, 0, 3);
          CHECK(got.count == 1);
          CHECK(words[0] == 42);
        }
        co_await comm.barrier();
        CHECK(comm.net().matching().arrivals() == 0);
        co_return;
      }
      const colls::match& other = world.world[1].matching();
      blocks_before = blocks_in_use;
      for (int i = 0; i < count; ++i) {
        const bool pauses = i % at_once == 0;
        {
          const colls::operation<> dropped = comm.send(words, 1, is_asked_for ? 3 : i);
          if (pauses && !is_asked_for) {
            co_await pause();
            announced += other.arrivals() > 0 ? 1 : 0;
          }
        }
        if (pauses && is_asked_for) {
          co_await pause();
          announced += 1;
        }
        most_arrivals = std::max(most_arrivals, other.arrivals());
        most_blocks = std::max<std::size_t>(most_blocks, blocks_in_use);
      }
      if (is_asked_for) {
        const int last = 42;
        co_await comm.send(std::span(&last, 1), 1, 3);
      }
      co_await comm.barrier();
    });
    CHECK(announced == count / at_once);
    CHECK(most_arrivals <= 2 * at_once);
    CHECK(most_blocks < blocks_before + 10 * at_once);
  }
}

TEST_CASE("a peer that never answers for withdrawn messages of a tag does not make memory grow") {
  by_hand peer;
  REQUIRE(peer.is_heard());
  std::size_t before = 0;
  std::size_t headers = 0;
  longest_allocation = 0;
  for (int i = 0; i < 100'000; ++i) {
    {
      const colls::operation<> dropped = peer.send_long();
    }
    if (i % 100 == 0) {
      peer.turn();
      headers += peer.heard(colls::tcp::kind::data);
    }
    if (i == 1000) before = blocks_in_use;
  }
  CHECK(headers == 2 * colls::tcp::most_ahead);  // of each that it does not come
  CHECK(blocks_in_use < before + 100);
  CHECK(longest_allocation < (1 << 20));
  CHECK(peer.why() == nullptr);
  CHECK(peer.is_heard());
}

TEST_CASE_TEMPLATE("messages that are withdrawn while a peer computes cost little memory", World,
                   tcp_world, shm_world) {
  constexpr int count = 100'000;
  constexpr int tags = 1000;
  ranks<World> world(2);
  copied two = on_executors_of_their_own(world);
  const auto meet = [&] {
    colls::operation<> both[] = {two.copies[0].barrier(), two.copies[1].barrier()};
    for (bool ended = false; !ended;) {
      ended = both[0].done();
      ended &= both[1].done();
    }
  };
  meet();
  const std::vector<int> words(1 << 18, 7);
  const colls::match& other = two.copies[1].net().matching();
  const std::size_t before = blocks_in_use;
  std::size_t most = 0;
  longest_allocation = 0;
  for (int i = 0; i < count; ++i) {
    {
      const colls::operation<> dropped = two.copies[0].send(words, 1, i % tags);
    }
    if (i % 100 == 0) (void)two.copies[0].net().driver().poll();
    most = std::max<std::size_t>(most, blocks_in_use);
  }
  CHECK(most < before + 2 * tags);
  CHECK(longest_allocation < (1 << 20));
  CHECK(other.arrivals() == 0);  // it has not looked
  for (int i = 0; i < 3; ++i) meet();
  CHECK(other.arrivals() == 0);
  CHECK(blocks_in_use < before + 100);
  for (const int tag : {0, tags - 1}) {
    const int last = 42;
    int got = 0;
    colls::operation<> sent = two.copies[0].send(std::span(&last, 1), 1, tag);
    colls::operation<colls::received> taken = two.copies[1].recv(std::span(&got, 1), 0, tag);
    while (!taken.done()) (void)sent.done();
    CHECK(sent.done());
    CHECK(got == 42);
  }
}

TEST_CASE("an answer about a message that was not taken back ends its link") {
  using colls::tcp::kind;
  const auto ends = [](by_hand& peer) {
    CHECK(!peer.is_heard());
    REQUIRE(peer.why() != nullptr);
    CHECK(peer.why()->code == errc::protocol_error);
    CHECK(peer.why()->culprit == 1);
    CHECK(says(*peer.why(), "that was not taken back"));
  };
  for (const std::uint64_t wrong : {0u, 2u, 1u << 30}) {
    CAPTURE(wrong);
    by_hand peer;
    {
      const colls::operation<> dropped = peer.send_long();
    }
    peer.hear(kind::data, 2);  // its header, and that it does not come
    peer.answer_taken_back(wrong);
    ends(peer);
  }
  {
    by_hand peer;  // the answer comes twice
    {
      const colls::operation<> dropped = peer.send_long();
    }
    peer.hear(kind::data, 2);
    peer.answer_taken_back(1);
    CHECK(peer.is_heard());
    peer.answer_taken_back(1);
    ends(peer);
  }
  {
    by_hand peer;  // it was announced, and waits
    colls::operation<> waiting = peer.send_long();
    peer.hear(kind::data);
    peer.answer_taken_back(1);
    ends(peer);
    CHECK(peer.failure_of_call(std::move(waiting)).code == errc::protocol_error);
  }
}

TEST_CASE("a message that is taken back and was not announced ends its link") {
  for (const std::uint64_t wrong : {0u, 1u, 1u << 30}) {
    CAPTURE(wrong);
    by_hand peer;
    peer.take_back(wrong);
    CHECK(!peer.is_heard());
    REQUIRE(peer.why() != nullptr);
    CHECK(peer.why()->code == errc::protocol_error);
    CHECK(peer.why()->culprit == 1);
    CHECK(says(*peer.why(), "not announced"));
  }
}

TEST_CASE_TEMPLATE("1000 operations in flight on 4 ranks, awaited in a random order", World,
                   tcp_world, shm_world) {
  ranks<World> world(4);
  world.run([](communicator& comm) -> task<> {
    constexpr std::size_t count = 1000;
    std::vector<std::vector<float>> data(count, std::vector<float>(16 * 1024));
    std::vector<colls::operation<>> kept;
    for (std::size_t i = 0; i < count; ++i) {
      data[i].assign(data[i].size(), static_cast<float>(i % 100));
      kept.push_back(comm.all_reduce(data[i]));
    }
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
    bool right = true;
    for (const std::size_t i : order) {
      co_await kept[i];
      const float sum = 4 * static_cast<float>(i % 100);
      right &= data[i].front() == sum && data[i].back() == sum;
    }
    CHECK(right);
  });
}

TEST_CASE_TEMPLATE(
    "sends far ahead of their receives: few lie at the receiver, and time passes them", World,
    tcp_world, shm_world) {
  constexpr std::size_t count = 20'000;
  ranks<World> world(2);
  std::vector<bool> withdrawn(count);
  world.run([&](communicator& comm) -> task<> {
    colls::match& matching = comm.net().matching();
    std::vector<int> data(count);
    if (comm.rank() == 0) {
      std::vector<std::optional<colls::operation<>>> kept;
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = static_cast<int>(i);
        kept.emplace_back(comm.send(std::span(data).subspan(i, 1), 1, i % 4));
      }
      for (std::size_t i = 0; i + 4 < count; i += 7) {
        withdrawn[i] = !kept[i]->done();
        if (withdrawn[i]) kept[i].reset();
      }
      co_await comm.barrier();
      for (auto& each : kept) {
        if (each) co_await *each;
      }
      CHECK(std::count(withdrawn.begin(), withdrawn.end(), true) > 1000);
    } else {
      co_await comm.barrier();
      constexpr std::size_t fit = colls::tcp::window / colls::tcp::weight(sizeof(int));
      const std::size_t kept = matching.arrivals();
      CHECK(kept > fit / 2);
      CHECK(kept <= fit + 4);
      bool right = true;
      for (const int tag : {3, 0, 2, 1}) {
        const int last = static_cast<int>(count) - 4 + tag;
        int next = tag;
        for (int got = -1; got < last; next = got + 4) {
          const std::span<int> into(&got, 1);
          auto receiving =
              next % 3 == 0 ? comm.recv(into, colls::any_source, tag) : comm.recv(into, 0, tag);
          co_await receiving;
          right &= got % 4 == tag && got >= next;
          // Some had gone before they were withdrawn.
          for (; next < got; next += 4) right &= withdrawn[static_cast<std::size_t>(next)];
        }
      }
      CHECK(right);
      CHECK(matching.arrivals() == 0);
    }
    // By the clock: 0.1, 0.2, 0.4, ... s after they began.
    CHECK(matching.looks() < 20 * count);
  });
}

TEST_CASE_TEMPLATE("what came while the thread was elsewhere has come in time", World, tcp_world,
                   shm_world) {
  using std::chrono::milliseconds;
  ranks<World> world(2);
  colls::engine& on = world.world.on();
  auto& io = static_cast<boost::asio::io_context&>(
      boost::asio::query(on.executor(), boost::asio::execution::context));
  world.run([](communicator& comm) -> task<> { co_await comm.barrier(); });
  const auto check = [&](auto& one, auto& other) {
    std::string why;
    try {
      colls::sync_wait(on, one);
      colls::sync_wait(on, other);
    } catch (const colls::error& thrown) {
      why = thrown.what();
    }
    REQUIRE(why == "");
  };
  SUBCASE("a handler that takes long, before the engine's own") {
    for (int times = 0; times < 3; ++times) {
      io.run_for(milliseconds(60));
      auto one = world.all[0].barrier({.timeout = milliseconds(120)});
      std::optional<colls::operation<>> other;
      boost::asio::steady_timer work(io, milliseconds(1));
      work.async_wait([&](boost::system::error_code) {
        other = world.all[1].barrier();
        ::usleep(100'000);
      });
      ::usleep(70'000);  // both are due
      while (!other) io.run_one();
      io.run_for(milliseconds(5));
      check(one, *other);
    }
  }
  SUBCASE("a wait that begins late, whatever the engine's count of polls") {
    for (int times = 0; times < 600; ++times) {
      auto one = world.all[0].barrier({.timeout = milliseconds(1)});
      auto other = world.all[1].barrier();
      ::usleep(1200);
      check(one, other);
      for (int more = times % 3; more > 0; --more) on.poll();
    }
  }
}

TEST_CASE_TEMPLATE("receives and collectives far ahead: time passes them", World, tcp_world,
                   shm_world) {
  constexpr std::size_t count = 20'000;
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    std::vector<int> data(count);
    std::vector<colls::operation<>> sums;
    std::vector<colls::operation<colls::received>> kept;
    if (comm.rank() == 1) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto into = std::span(data).subspan(i, 1);
        kept.push_back(i % 2 == 0 ? comm.recv(into, 0, 3) : comm.recv(into, colls::any_source, 3));
      }
    }
    co_await comm.barrier();
    if (comm.rank() == 0) {
      for (int i = 0; i < static_cast<int>(count); ++i) {
        const std::span<const int> one(&i, 1);
        co_await comm.send(one, 1, 3);
      }
    }
    bool right = true;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      co_await kept[i];
      right &= data[i] == static_cast<int>(i);
    }
    CHECK(right);
    data.assign(count, 1);
    for (int& each : data) sums.push_back(comm.all_reduce(std::span(&each, 1)));
    for (auto& each : sums) co_await each;
    CHECK(data == std::vector<int>(count, 2));
    CHECK(comm.net().matching().looks() < 20 * 2 * count);
  });
}

TEST_CASE_TEMPLATE("a dead rank ends the operations of all others, named", World, tcp_world,
                   shm_world) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
    ranks<World> world(4);
    // Every rank has links to its partners before one of them dies.
    world.run([&](communicator& comm) -> task<> {
      std::vector<float> data(count, 1);
      co_await comm.all_reduce(data);
    });
    world.kill(2);
    const colls::time_point begin = world.world.on().now();
    world.run([&](communicator& comm) -> task<> {
      std::vector<float> data(count, 1);
      const colls::failure why = co_await failure_of(comm.all_reduce(data));
      CHECK(why.code == errc::peer_failed);
      CHECK(why.culprit == 2);
      const colls::failure again = co_await failure_of(comm.barrier());
      CHECK(again.culprit == 2);
    });
    // The contract promises 2 s.
    CHECK(world.world.on().now() - begin < 10 * colls::seconds);
  }
}

TEST_CASE_TEMPLATE("a rank that died before any link to it existed is noticed too", World,
                   tcp_world, shm_world) {
  ranks<World> world(3);
  world.kill(1);
  world.run([](communicator& comm) -> task<> {
    int token = 0;
    const colls::failure why = co_await failure_of(comm.broadcast(std::span(&token, 1), 1));
    CHECK(why.code == errc::peer_failed);
    CHECK(why.culprit == 1);
  });
}

TEST_CASE_TEMPLATE("a rank that dies while a communicator is made is named in it", World, tcp_world,
                   shm_world) {
  ranks<World> world(2);
  auto [contexts, copies] = on_executors_of_their_own(world);
  const auto turn = [&](std::size_t rank) {
    while (contexts[rank]->poll() > 0) continue;
  };
  {
    int data[2] = {1, 2};
    colls::operation<> opening[] = {copies[0].all_reduce(std::span(data, 1)),
                                    copies[1].all_reduce(std::span(data + 1, 1))};
    while (!opening[0].started().is_done() || !opening[1].started().is_done()) {
      turn(0);
      turn(1);
    }
  }
  turn(0);
  turn(1);
  colls::operation<communicator> split = copies[0].split(0);
  turn(0);
  {
    colls::operation<communicator> other = copies[1].split(0);
    while (!other.done()) continue;
    CHECK(other.result().size() == 2);
  }
  REQUIRE(!split.started().is_done());
  copies[1] = communicator();  // and says no goodbye
  // Rank 0 reads in one turn what makes its part and that the other is gone.
  while (!split.started().is_done()) turn(0);
  communicator child = split.result();
  for (int i = 0; i < 2; ++i) {
    int token = 1;
    const colls::failure why =
        colls::sync_wait(copies[0], failure_of(child.all_reduce(std::span(&token, 1))));
    CHECK(why.code == errc::peer_failed);
    CHECK(why.culprit == 1);
  }
}

TEST_CASE_TEMPLATE("a dead rank leaves communicators without it alone", World, tcp_world,
                   shm_world) {
  ranks<World> world(4);
  world.run([&](communicator& comm) -> task<> {
    communicator half = co_await comm.split(comm.rank() / 2);
    co_await half.barrier();
    if (comm.rank() == 3) co_return;
    if (comm.rank() == 2) {
      int token = 0;
      const colls::failure why = co_await failure_of(half.recv(std::span(&token, 1), 1));
      CHECK(why.code == errc::closed);
      co_return;
    }
    std::vector<int> one(1, 1);
    co_await half.all_reduce(one);
    CHECK(one[0] == 2);
  });
}

TEST_CASE_TEMPLATE("calls that differ end on every rank, with both sides named", World, tcp_world,
                   shm_world) {
  struct variant {
    const char* differ;
    colls::operation<> (*call)(communicator&, std::vector<int>&, bool odd);
  };
  const variant variants[] = {
      {"count", [](communicator& comm, std::vector<int>& data,
                   bool odd) { return comm.all_reduce(std::span(data).first(odd ? 10 : 11)); }},
      {"op",
       [](communicator& comm, std::vector<int>& data, bool odd) {
         return odd ? comm.all_reduce(data, colls::maximum{}) : comm.all_reduce(data);
       }},
      {"type",
       [](communicator& comm, std::vector<int>& data, bool odd) {
         const std::span other(reinterpret_cast<unsigned*>(data.data()), data.size());
         return odd ? comm.all_reduce(other) : comm.all_reduce(data);
       }},
      {"root", [](communicator& comm, std::vector<int>& data,
                  bool odd) { return comm.broadcast(data, odd ? 1 : 0); }},
      {"collective", [](communicator& comm, std::vector<int>& data,
                        bool odd) { return odd ? comm.barrier() : comm.all_reduce(data); }},
      {"algorithm",
       [](communicator& comm, std::vector<int>& data, bool odd) {
         return comm.all_reduce(data, {.algorithm = odd ? colls::algorithm::ring
                                                        : colls::algorithm::recursive_doubling});
       }},
  };
  for (const variant& each : variants) {
    CAPTURE(each.differ);
    ranks<World> world(3);
    world.run([&](communicator& comm) -> task<> {
      std::vector<int> data(1000, 1);
      // A root may have gone on already: then its next call tells it.
      colls::failure why = co_await failure_of(each.call(comm, data, comm.rank() == 1));
      if (why.code == errc{}) why = co_await failure_of(comm.barrier());
      CHECK(why.code == errc::mismatch);
      CHECK(says(why, "rank 1 called"));
      CHECK(says(why, each.differ));
    });
  }
}

TEST_CASE_TEMPLATE("two ranks that both only receive find out", World, tcp_world, shm_world) {
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    std::vector<int> data(10, 1);
    const colls::failure why = co_await failure_of(comm.broadcast(data, 1 - comm.rank()));
    CHECK(why.code == errc::mismatch);
    CHECK(says(why, "root 0"));
    CHECK(says(why, "root 1"));
  });
}

TEST_CASE_TEMPLATE("lengths that differ in all_to_all_v end both sides, also when they are long",
                   World, tcp_world, shm_world) {
  for (const auto& [how, more] :
       std::vector<std::pair<colls::algorithm, std::size_t>>{{colls::algorithm::automatic, 1},
                                                             {colls::algorithm::automatic, 200'000},
                                                             {colls::algorithm::bruck, 1},
                                                             {colls::algorithm::bruck, 200'000}}) {
    const colls::options pinned{.algorithm = how};
    const std::size_t longer = more;
    ranks<World> world(2);
    world.run([&](communicator& comm) -> task<> {
      const std::size_t out = comm.rank() == 0 ? 10 + longer : 10;
      std::vector<int> from(2 * out, 1);
      std::vector<int> to(20);
      const std::vector<std::size_t> sends{out, out};
      const std::vector<std::size_t> receives(2, 10);
      // Rank 0's own block is equal, what it sends to rank 1 is not.
      std::vector<std::size_t> mine = sends;
      mine[static_cast<std::size_t>(comm.rank())] = 10;
      from.resize(mine[0] + mine[1]);
      // Rank 0 may have sent all and got all; then its next call tells it.
      colls::failure why = co_await failure_of(comm.all_to_all_v(from, mine, to, receives, pinned));
      if (why.code == errc{}) why = co_await failure_of(comm.barrier());
      CHECK(why.code == errc::mismatch);
    });
  }
}

TEST_CASE_TEMPLATE("a dropped collective revokes its communicator on all ranks", World, tcp_world,
                   shm_world) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{3'000'000}}) {
    ranks<World> world(3);
    world.run([&](communicator& comm) -> task<> {
      std::vector<float> data(count, 1);
      if (comm.rank() == 1) {
        {
          const colls::operation<> dropped = comm.all_reduce(data);
        }
        std::fill(data.begin(), data.end(), 5.F);  // nothing writes here any more
        co_await comm.net().driver().sleep_until(comm.net().now() + 20 * colls::milliseconds);
        CHECK(std::all_of(data.begin(), data.end(), [](float x) { return x == 5.F; }));
      }
      std::vector<float> other(count, 1);
      const colls::failure why = co_await failure_of(comm.all_reduce(other));
      CHECK(why.code == errc::cancelled);
      CHECK(why.culprit == 1);
    });
  }
}

TEST_CASE_TEMPLATE("a receive that nothing met is withdrawn, and the communicator stays good",
                   World, tcp_world, shm_world) {
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    int token = comm.rank();
    {
      const colls::operation<colls::received> dropped =
          comm.recv(std::span(&token, 1), 1 - comm.rank(), 9);
    }
    const colls::failure late = co_await failure_of(comm.recv(
        std::span(&token, 1), 1 - comm.rank(), 9, {.timeout = std::chrono::milliseconds(50)}));
    CHECK(late.code == errc::timeout);
    co_await comm.barrier();
    CHECK(comm.failed() == nullptr);
  });
}

TEST_CASE_TEMPLATE("messages of one tag do not overtake each other, whatever goes ahead of them",
                   World, tcp_world, shm_world) {
  // In words: what may go unasked, what does not fit the window with it, and what may not go.
  constexpr std::size_t longest = colls::eager_limit / sizeof(int);
  const std::vector<std::vector<std::size_t>> rows = {{2, 1 << 18},
                                                      {longest, longest, longest, longest, longest},
                                                      {1 << 18, 2, longest, 1 << 18, 1}};
  for (const std::vector<std::size_t>& sizes : rows) {
    for (const bool opened : {false, true}) {
      ranks<World> world(2);
      world.run([=](communicator& comm) -> task<> {
        if (opened) co_await comm.barrier();
        std::vector<std::vector<int>> data;
        for (std::size_t k = 0; k < sizes.size(); ++k) {
          data.emplace_back(sizes[k], comm.rank() == 0 ? static_cast<int>(k) + 1 : 0);
        }
        std::vector<colls::operation<>> sends;
        std::vector<colls::operation<colls::received>> receives;
        for (std::vector<int>& each : data) {
          if (comm.rank() == 0) {
            sends.push_back(comm.send(each, 1, 3));
          } else {
            receives.push_back(comm.recv(each, 0, 3));
          }
        }
        for (colls::operation<>& each : sends) co_await std::move(each);
        for (std::size_t k = 0; k < receives.size(); ++k) {
          const colls::received got = co_await std::move(receives[k]);
          CHECK(got.count == sizes[k]);
        }
        for (std::size_t k = 0; k < sizes.size(); ++k) {
          CHECK(data[k].front() == static_cast<int>(k) + 1);
          CHECK(data[k].back() == static_cast<int>(k) + 1);
        }
        co_await comm.barrier();
      });
    }
  }
}

TEST_CASE_TEMPLATE("a send that nobody met is withdrawn, and the next receive gets the next one",
                   World, tcp_world, shm_world) {
  struct way {
    std::size_t size;  // of the message that is withdrawn, in words
    bool any;          // the receiver names no source
    bool late;         // the receive has asked for it when it is withdrawn
    int between;       // messages like it, after it, that are received
  };
  for (const way each :
       {way{1, false, true, 0}, way{1 << 18, false, false, 0}, way{1 << 18, true, false, 0},
        way{1 << 18, false, true, 0}, way{1 << 18, true, true, 0}, way{1 << 18, false, false, 2},
        way{1 << 18, false, true, 2}}) {
    CAPTURE(each.size);
    CAPTURE(each.any);
    CAPTURE(each.late);
    CAPTURE(each.between);
    ranks<World> world(2);
    bool withdrawn = false;
    world.run([&](communicator& comm) -> task<> {
      const auto until = [&](auto condition) -> task<> {
        while (!condition()) {
          co_await comm.net().driver().sleep_until(comm.net().now() + 100'000);
        }
      };
      std::vector<int> words(each.size);
      const std::span all(words);
      if (comm.rank() == 0) {
        std::vector<int> last(each.size);
        std::vector<colls::operation<>> others;
        {
          const colls::operation<> dropped = comm.send(all, 1, 3);
          std::fill(last.begin(), last.end(), 7);
          for (int i = 0; i < each.between; ++i) others.push_back(comm.send(last, 1, 3));
          // Its header has come to the other side, or all of it.
          if (!each.late) {
            co_await until([&] { return world.world[1].matching().arrivals() > 0; });
          }
        }
        withdrawn = true;
        for (colls::operation<>& one : others) co_await std::move(one);
        const int next = 42;
        co_await comm.send(std::span(&next, 1), 1, 3);
      } else {
        const colls::peer from = each.any ? colls::peer(colls::any_source) : colls::peer(0);
        if (!each.late) co_await until([&] { return withdrawn; });
        for (int i = 0; i < each.between; ++i) {
          co_await comm.recv(all, from, 3);
          CHECK(std::all_of(words.begin(), words.end(), [](int word) { return word == 7; }));
        }
        const colls::received got = co_await comm.recv(all, from, 3);
        CHECK(got.count == 1);
        CHECK(words[0] == 42);
      }
      co_await comm.barrier();
      CHECK(comm.failed() == nullptr);
    });
  }
}

TEST_CASE_TEMPLATE("a late rank is no failure; options.timeout ends the wait for it", World,
                   tcp_world, shm_world) {
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    const colls::time_point nap = comm.net().now() + 300 * colls::milliseconds;
    if (comm.rank() == 1) co_await comm.net().driver().sleep_until(nap);
    co_await comm.barrier();
    if (comm.rank() == 1) co_await comm.net().driver().sleep_until(nap + 600 * colls::milliseconds);
    const colls::failure why =
        co_await failure_of(comm.barrier({.timeout = std::chrono::milliseconds(300)}));
    CHECK(why.code == errc::timeout);
    CHECK(why.culprit == 1);
  });
}

TEST_CASE_TEMPLATE("a rank that has left is named as having left", World, tcp_world, shm_world) {
  ranks<World> world(3);
  world.run([](communicator& comm) -> task<> {
    co_await comm.barrier();
    if (comm.rank() == 2) {
      co_await comm.close();
      co_return;
    }
    const colls::failure why = co_await failure_of(comm.barrier());
    CHECK(why.code == errc::closed);
    CHECK(why.culprit == 2);
  });
}

TEST_CASE_TEMPLATE("who opens a link to a rank that has given the communicator up learns why",
                   World, tcp_world, shm_world) {
  // A world on another executor has no store that would tell everybody.
  ranks<World> world(3);
  boost::asio::io_context context(1);
  std::vector<communicator> copies(3);
  world.run([&](communicator& comm) -> task<> {
    copies[static_cast<std::size_t>(comm.rank())] = co_await comm.dup(context.get_executor());
  });
  copies[1].revoke("it was given up before anybody had called");
  const auto main = [](communicator& mine) -> task<> {
    const colls::failure why = co_await failure_of(mine.barrier());
    CHECK(why.code == errc::revoked);
    CHECK(why.culprit == 1);
    CHECK(std::string(why.detail) == "it was given up before anybody had called");
  };
  const auto close = [](communicator& mine) -> task<> { co_await mine.close(); };
  std::vector<task<>> mains;
  std::vector<task<>> ends;
  for (communicator& each : copies) mains.push_back(main(each));
  colls::sync_wait(copies[0], colls::when_all(std::move(mains)));
  for (communicator& each : copies) ends.push_back(close(each));
  colls::sync_wait(copies[0], colls::when_all(std::move(ends)));
}

TEST_CASE("who asks an operation whether it has ended wakes those it has written to") {
  ranks<shm_world> world(3);
  auto [contexts, copies] = on_executors_of_their_own(world);
  // Rank 0 sends to rank 1, and that to rank 2.
  int data[3] = {5, 0, 0};
  const auto begin = [&](std::size_t rank) {
    return copies[rank].broadcast(std::span(data + rank, 1), 0,
                                  {.algorithm = colls::algorithm::chain});
  };
  const auto turn = [&](std::size_t rank) {
    while (contexts[rank]->poll() > 0) continue;
  };
  {
    colls::operation<> first[] = {begin(0), begin(1), begin(2)};  // opens links
    while (!first[2].started().is_done()) {
      for (std::size_t rank = 0; rank < 3; ++rank) turn(rank);
    }
  }
  data[0] = 7;
  colls::operation<> last = begin(2);
  turn(2);  // sleeps now
  colls::operation<> middle = begin(1);
  colls::operation<> root = begin(0);
  while (!middle.done()) continue;
  turn(2);
  CHECK(last.started().is_done());
  CHECK(data[2] == 7);
  CHECK(root.done());
}

TEST_CASE("who goes on after an operation and computes has woken those it has written to") {
  ranks<shm_world> world(3);
  auto [contexts, copies] = on_executors_of_their_own(world);
  int data[3] = {5, 0, 0};
  const auto begin = [&](std::size_t rank) {
    return copies[rank].broadcast(std::span(data + rank, 1), 0,
                                  {.algorithm = colls::algorithm::chain});
  };
  const auto turn = [&](std::size_t rank) {
    while (contexts[rank]->poll() > 0) continue;
  };
  {
    colls::operation<> first[] = {begin(0), begin(1), begin(2)};  // opens links
    while (!first[2].started().is_done()) {
      for (std::size_t rank = 0; rank < 3; ++rank) turn(rank);
    }
  }
  data[0] = 7;
  colls::operation<> last = begin(2);
  turn(2);  // sleeps now
  std::optional<colls::operation<>> root;
  bool heard = false;
  const auto middle = [&]() -> task<> {
    colls::operation<> mine = begin(1);
    root.emplace(begin(0));
    co_await mine;
    turn(2);  // while this rank computes
    heard = last.started().is_done();
  };
  colls::sync_wait(copies[1], middle());
  CHECK(heard);
  CHECK(data[2] == 7);
  while (!last.done() || !root->done()) continue;
}

TEST_CASE("who waits for one rank asks its socket each time, and those of others now and then") {
  ranks<tcp_world> world(3);
  using colls::algorithm;
  world.run(
      [](communicator& comm) -> task<> { co_await comm.barrier<algorithm::dissemination>(); });
  colls::tcp_transport& net = world.world[1];
  bool waited = false;
  for (int i = 0; i < 8; ++i) {
    float wanted = 0;
    float sent = 3;
    colls::operation<colls::received> waits = world.all[1].recv(std::span(&wanted, 1), 0, 5);
    std::vector<std::vector<float>> parts(3, std::vector<float>(3));
    const auto begin = [&](std::size_t rank) {
      return world.all[rank].all_gather<algorithm::linear>(std::span(&sent, 1), parts[rank]);
    };
    colls::operation<> early = begin(2);
    int polls = 0;
    while (!net.matching().has_arrivals() && polls < 100) {
      net.poll();
      ++polls;
    }
    CHECK(polls <= 8);
    waited |= polls > 1;

    colls::operation<> sends = world.all[0].send(std::span(&sent, 1), 1, 5);
    for (int k = 0; k < 2 && !waits.done(); ++k) {
    }
    CHECK(wanted == 3);
    colls::operation<> others[] = {begin(0), begin(1)};
    for (colls::operation<>* each : {&early, &sends, &others[0], &others[1]}) {
      colls::sync_wait(world.world, *each);
    }
    colls::sync_wait(world.world, waits);
  }
  CHECK(waited);
}

TEST_CASE("epoll is told of what comes where nobody looks all the time, and of nothing else") {
  ranks<tcp_world> world(2);
  auto [contexts, copies] = on_executors_of_their_own(world);
  colls::engine& on = copies[1].net().driver();
  on.spin(1000);
  int given = 0;
  int taken = 0;
  const auto begin = [&] { return copies[1].recv(std::span(&taken, 1), 0, 5); };
  const auto send = [&](auto&... others) {
    ++given;
    colls::operation<> sent = copies[0].send(std::span(&given, 1), 1, 5);
    while (!sent.done()) ((void)others.done(), ...);
  };
  const auto exchange = [&] {
    colls::operation<colls::received> waits = begin();
    send(waits);
    while (!waits.done()) continue;
  };
  for (int time = 0; time < 2; ++time) {
    on.enter();
    for (int i = 0; i < 10; ++i) exchange();
    {
      colls::operation<colls::received> waits = begin();
      send();
      CHECK(!on.dispatch());
      while (!waits.done()) continue;
    }
    {
      // Before it sleeps.
      colls::operation<colls::received> waits = begin();
      send();
      on.idle(1'000'000);
      CHECK(waits.started().is_done());
    }
    for (int i = 0; i < 10; ++i) exchange();
    on.leave();
    while (contexts[1]->poll() > 0) continue;
    // Others turn it.
    colls::operation<colls::received> waits = begin();
    while (contexts[1]->poll() > 0) continue;
    send();
    while (contexts[1]->poll() > 0) continue;
    CHECK(waits.started().is_done());
    CHECK(taken == given);
  }
}

TEST_CASE_TEMPLATE("a loop over done() opens links, closes them, sees deadlines and deaths", World,
                   tcp_world, shm_world) {
  ranks<World> world(2);
  // Some compute between two questions.
  for (const auto computing : {std::chrono::milliseconds(0), std::chrono::milliseconds(2)}) {
    CAPTURE(computing.count());
    const auto have_ended = [=](auto&... all) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
      bool ended = false;
      while (!ended && std::chrono::steady_clock::now() < limit) {
        if (computing.count() != 0) std::this_thread::sleep_for(computing);
        ended = (all.done() & ...);
      }
      return ended;
    };
    int sums[2] = {1, 2};
    const auto begin = [&](copied& of, std::size_t rank, const colls::options& how = {}) {
      return of.copies[rank].all_reduce(std::span(sums + rank, 1), how);
    };
    {
      copied two = on_executors_of_their_own(world);
      colls::operation<> sum[] = {begin(two, 0), begin(two, 1)};
      CHECK(have_ended(sum[0], sum[1]));
      CHECK((sums[0] == 3 && sums[1] == 3));
      colls::operation<> closing[] = {two.copies[0].close(), two.copies[1].close()};
      CHECK(have_ended(closing[0], closing[1]));
    }
    {
      copied two = on_executors_of_their_own(world);
      colls::operation<> late = begin(two, 0, {.timeout = std::chrono::milliseconds(50)});
      CHECK(have_ended(late));
      CHECK(late.why().code == errc::timeout);
    }
    {
      copied two = on_executors_of_their_own(world);
      colls::operation<> sum[] = {begin(two, 0), begin(two, 1)};
      CHECK(have_ended(sum[0], sum[1]));
      colls::operation<> alone = begin(two, 0);
      two.copies[1] = communicator();
      CHECK(have_ended(alone));
      CHECK(alone.why().code == errc::peer_failed);
    }
  }
}

TEST_CASE("on another executor a rank waits as on the first, and spins where it has two cores") {
  for (const bool spins : {true, false}) {
    ranks<tcp_world> world(1);
    world.world.on().spin(spins ? 100 : 0, colls::milliseconds);
    const copied one = on_executors_of_their_own(world);
    CHECK(one.copies[0].net().driver().spins() == (spins && colls::detail::cores() >= 2));
  }
}

TEST_CASE_TEMPLATE("dup(executor) gives every rank a world that a thread of its own can turn",
                   World, tcp_world, shm_world) {
  ranks<World> world(3);
  auto [contexts, copies] = on_executors_of_their_own(world);
  std::vector<std::thread> threads;
  std::vector<int> sums(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      communicator mine = std::move(copies[rank]);
      const auto main = [](communicator& comm, int& sum) -> task<> {
        std::vector<int> data(100'000, comm.rank() + 1);
        for (int i = 0; i < 20; ++i) {
          co_await comm.all_reduce(data);
          sum = data.back();
          data.assign(data.size(), comm.rank() + 1);
        }
        co_await comm.close();
      };
      colls::sync_wait(mine, main(mine, sums[rank]));
    });
  }
  world.run([](communicator& comm) -> task<> {
    for (int i = 0; i < 20; ++i) {
      std::vector<int> data(1000, 1);
      co_await comm.all_reduce(data);
      CHECK(data.back() == 3);
    }
  });
  for (std::thread& each : threads) each.join();
  CHECK(sums == std::vector<int>{6, 6, 6});
}

/// An element of so many numbers.
template <std::size_t Numbers>
struct several {
  int value[Numbers];

  static several of(std::size_t first) {
    several made;
    for (std::size_t i = 0; i < Numbers; ++i) made.value[i] = static_cast<int>(first + i);
    return made;
  }
};

template <std::size_t Numbers>
task<> sum_of_several(communicator& comm, std::size_t count) {
  using element = several<Numbers>;
  std::vector<element> data(count);
  const auto rank = static_cast<std::size_t>(comm.rank());
  for (std::size_t i = 0; i < count; ++i) data[i] = element::of(i * (rank + 1));
  const auto sum = [](const element& a, const element& b) {
    element both;
    for (std::size_t i = 0; i < Numbers; ++i) both.value[i] = a.value[i] + b.value[i];
    return both;
  };
  co_await comm.all_reduce(data, colls::commutative(sum), {.algorithm = colls::algorithm::ring});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < Numbers; ++k) {
      wrong += data[i].value[k] != static_cast<int>(3 * i + 2 * k);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("elements of any size are reduced whole, wherever a message is cut", World,
                   tcp_world, shm_world) {
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    co_await sum_of_several<3>(comm, 100'000);
    co_await sum_of_several<1300>(comm, 300);
  });
}

TEST_CASE("without memory to share, ranks of one host use a socket, unless shm was asked for") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  {
    ranks<hybrid_world> world(3);
    world.run([](communicator& comm) -> task<> {
      std::vector<int> data(100'000, comm.rank());
      co_await comm.all_reduce(data);
      CHECK(data.back() == 3);
    });
  }
  {
    ranks<shm_world> world(3);
    world.run([](communicator& comm) -> task<> {
      const colls::failure why = co_await failure_of(comm.barrier());
      CHECK(why.code == errc::peer_failed);
      CHECK(says(why, "it cannot be reached by shared memory"));
    });
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
}

namespace {

/// A congestion control that links do not have unless they are told to; empty: there is none.
std::string another_congestion() {
  std::string usual;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> usual;
  std::ifstream all("/proc/sys/net/ipv4/tcp_available_congestion_control");
  for (std::string name; all >> name;) {
    if (name != usual && !colls::detail::try_congestion(name)) return name;
  }
  return {};
}

/// That of each end of a link of this process.
std::vector<std::string> congestion_of_links(tcp_world& world) {
  std::vector<std::string> found;
  for (int fd = 0; fd < 1024; ++fd) {
    const int here = colls::detail::name_of(fd, &::getsockname).port();
    const int there = colls::detail::name_of(fd, &::getpeername).port();
    bool is_link = false;
    for (int rank = 0; rank < world.size() && there != 0; ++rank) {
      const int door = world[rank].members().link_listener.local().port();
      is_link |= here == door || there == door;
    }
    char name[16] = {};
    socklen_t size = sizeof name;
    if (!is_link || ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) continue;
    found.emplace_back(name);
  }
  return found;
}

}  // namespace

TEST_CASE("both ends of a link have the congestion control that was asked for") {
  const std::string wanted = another_congestion();
  if (wanted.empty()) {
    MESSAGE("skipped: this system has one congestion control, or lets this user have one");
    return;
  }
  ranks<tcp_world> world(2, "tcp", "", wanted.c_str());
  world.run([](communicator& comm) -> task<> { co_await comm.barrier(); });
  CHECK(congestion_of_links(world.world) == std::vector<std::string>(2, wanted));
}

TEST_CASE("a world that may not use shared memory has no local door") {
  const auto listens = [](tcp_world& world) {
    colls::detail::descriptor found;
    return !colls::shm::connect_beside(world[0].members().link_listener.local(), found);
  };
  tcp_world tcp(2);
  shm_world shm(2);
  CHECK(!listens(tcp));
  CHECK(listens(shm));
}

TEST_CASE_TEMPLATE("a world that has ended leaves no descriptor open, however its links end", World,
                   tcp_world, shm_world) {
  const auto count = [] {
    std::vector<int> all;
    for (int fd = 0; fd < 4096; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) all.push_back(fd);
    }
    return all;
  };
  const auto live = [](bool dies) {
    ranks<World> world(3);
    world.run([](communicator& comm) -> task<> {
      const colls::shared_buffer<int> lent = comm.allocate<int>(10);
      std::vector<int> data(100'000, 1);
      co_await comm.all_reduce(data);
      co_await comm.barrier();
    });
    if (!dies) return;
    world.kill(1);
    world.run([](communicator& comm) -> task<> {
      const colls::failure why = co_await failure_of(comm.barrier());
      CHECK(why.code == errc::peer_failed);
    });
  };
  live(false);  // what a process opens once
  for (const bool dies : {false, true}) {
    CAPTURE(dies);
    const std::vector<int> before = count();
    for (int times = 0; times < 3; ++times) live(dies);
    CHECK(count() == before);
  }
}
