// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <colls/interprocess.hpp>

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

/// Awaits an operation and returns the record of its failure, or an empty one if it succeeds.
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

bool says(const colls::failure& reason, const char* text) {
  return std::strstr(reason.detail, text) != nullptr;
}

/// Duplicates of the ranks' communicators, each on its own executor.
struct duplicates {
  std::vector<std::unique_ptr<boost::asio::io_context>> contexts;
  std::vector<communicator> copies;
};
template <class World>
duplicates dup_on_own_executors(ranks<World>& world) {
  duplicates result;
  result.copies.resize(world.all.size());
  for (std::size_t i = 0; i < world.all.size(); ++i) {
    result.contexts.push_back(std::make_unique<boost::asio::io_context>(1));
  }
  world.run([&](communicator& comm) -> task<> {
    const auto rank = static_cast<std::size_t>(comm.rank());
    result.copies[rank] = co_await comm.dup(result.contexts[rank]->get_executor());
  });
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("messages of every size arrive complete and in order, received early or late",
                   World, tcp_world, shm_world) {
  ranks<World> world(2);
  bool is_receive_posted = false;
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
          if (!sender_first) co_await until([&] { return is_receive_posted; });
          co_await comm.send(data, 1, 5);
        } else {
          if (sender_first)
            co_await until([&] { return comm.net().matching().unexpected_count() > 0; });
          colls::operation<colls::received> taking = comm.recv(data, 0, 5);
          is_receive_posted = true;
          const colls::received got = co_await taking;
          is_receive_posted = false;
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

TEST_CASE_TEMPLATE("a window of eager messages without receives does not stop another tag", World,
                   tcp_world, shm_world) {
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

/// Stands for rank 1 of a world of two. It writes frames to rank 0 that no rank of colls writes.
class raw_peer {
 public:
  raw_peer() { colls::sync_wait(world_.world, dial()); }
  raw_peer(const raw_peer&) = delete;
  raw_peer& operator=(const raw_peer&) = delete;

  /// Sends `count` eager messages without a receive.
  void send_eager(std::size_t count, std::size_t size) {
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < count; ++i) {
      add(all, {1, 0, tag, colls::message_key::point_to_point}, size, 0);
      all.resize(all.size() + size);
    }
    colls::sync_wait(world_.world, write(all));
  }
  /// Sends that the communicator of both ranks has failed.
  void revoke(const colls::failure& record) {
    colls::interprocess::header frame;
    frame.kind = colls::interprocess::kind::revoke;
    frame.length = sizeof record;
    std::vector<std::byte> all(sizeof frame + sizeof record);
    std::memcpy(all.data(), &frame, sizeof frame);
    std::memcpy(all.data() + sizeof frame, &record, sizeof record);
    colls::sync_wait(world_.world, write(all));
  }
  /// Sends an RTS, answers its CTS with a message of another length, and returns the failure of the
  /// receive.
  colls::failure answer_cts(std::size_t announced, std::uint64_t length) {
    std::vector<unsigned char> data(announced);
    colls::operation<colls::received> receiving = world_.all[0].recv(data, 1, tag);
    const colls::message_key key{1, 0, tag, colls::message_key::point_to_point};
    std::vector<std::byte> all;
    add(all, key, announced, colls::interprocess::flag::rts);
    colls::sync_wait(world_.world, write(all));
    colls::interprocess::header frame;
    poll_until([&] {
      return ::recv(connection_.descriptor(), &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame;
    });
    REQUIRE(frame.kind == colls::interprocess::kind::cts);
    all.clear();
    add(all, key, length, colls::interprocess::flag::cleared);
    all.resize(all.size() + 4096);
    colls::sync_wait(world_.world, write(all));
    return colls::sync_wait(world_.world, failure_of(std::move(receiving)));
  }
  /// Returns whether rank 0 has read all frames so far without failing.
  bool is_accepted() {
    const colls::message_key last{1, unknown_communicator, ++probes_, 0};
    std::vector<std::byte> probe;
    add(probe, last, 1, colls::interprocess::flag::rts);
    colls::sync_wait(world_.world, write(probe));
    const auto has_arrived = [&] {
      return world_.world[0].matching().find_unexpected(last) != nullptr;
    };
    poll_until([&] { return has_arrived() || reason() != nullptr; });
    return has_arrived();
  }
  /// Receives `count` eager messages and returns the credit that rank 0 returns for them.
  std::size_t returned_credit(std::size_t count, std::size_t size) {
    std::vector<unsigned char> data(size);
    for (std::size_t i = 0; i < count; ++i) {
      colls::operation<colls::received> next = world_.all[0].recv(data, 1, tag);
      CHECK(colls::sync_wait(world_.world, next).count == size);
    }
    std::size_t back = 0;
    poll_until([&] {
      colls::interprocess::header frame;
      while (::recv(connection_.descriptor(), &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame) {
        if (frame.kind == colls::interprocess::kind::cts) back += frame.length;
      }
      return back >= colls::interprocess::credit_window;
    });
    return back;
  }
  const colls::failure* reason() const { return world_.all[0].failed(); }

  /// Sends a report on what ranks do, in a frame of kind `kind`.
  void send_report(colls::interprocess::kind kind, const colls::state_report& report) {
    std::vector<std::byte> all;
    add(all, {kind, 0, colls::message_key::point_to_point, 0, tag, sizeof report, 0});
    all.resize(all.size() + sizeof report);
    std::memcpy(all.data() + all.size() - sizeof report, &report, sizeof report);
    colls::sync_wait(world_.world, write(all));
  }
  /// Confirms the cancel of RTS `number`.
  void confirm_cancel(std::uint64_t number) {
    send_cancel_frame(colls::interprocess::kind::cts, 0, number);
  }
  /// Cancels RTS `number`.
  void send_cancel(std::uint64_t number) {
    send_cancel_frame(colls::interprocess::kind::data, colls::interprocess::flag::rts, number);
  }
  /// Starts to send a message of rank 0 that is longer than the eager limit.
  colls::operation<> send_long() { return world_.all[0].send(long_message_, 1, tag); }
  colls::operation<> barrier(const colls::options& opts) { return world_.all[0].barrier(opts); }
  /// Waits until `count` more frames of that kind have arrived from rank 0.
  void await_frames(colls::interprocess::kind kind, std::size_t count = 1) {
    std::size_t seen = 0;
    poll_until([&] { return (seen += count_frames(kind)) >= count; });
    REQUIRE(seen >= count);
  }
  /// Reads all frames that have arrived from rank 0 and returns how many are of that kind.
  std::size_t count_frames(colls::interprocess::kind kind) {
    std::size_t count = 0;
    colls::interprocess::header frame;
    while (::recv(connection_.descriptor(), &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame) {
      count += frame.kind == kind;
      std::vector<std::byte> payload(colls::interprocess::control_size(frame));
      if (payload.empty()) continue;
      poll_until([&] {
        return ::recv(connection_.descriptor(), payload.data(), payload.size(),
                      MSG_DONTWAIT | MSG_PEEK) == static_cast<ssize_t>(payload.size());
      });
      (void)::recv(connection_.descriptor(), payload.data(), payload.size(), MSG_DONTWAIT);
    }
    return count;
  }
  void poll() { world_.world.poll(); }
  colls::failure failure_of_call(colls::operation<> call) {
    return colls::sync_wait(world_.world, failure_of(std::move(call)));
  }

 private:
  static constexpr std::uint64_t tag = 5;
  static constexpr std::uint32_t unknown_communicator = 99;

  static void add(std::vector<std::byte>& out, const colls::message_key& key, std::size_t size,
                  std::uint8_t flags) {
    add(out,
        colls::interprocess::make_header(colls::interprocess::kind::data, key, size, 0, flags));
  }
  static void add(std::vector<std::byte>& out, const colls::interprocess::header& frame) {
    out.resize(out.size() + sizeof frame);
    std::memcpy(out.data() + out.size() - sizeof frame, &frame, sizeof frame);
  }
  void send_cancel_frame(colls::interprocess::kind kind, unsigned flags, std::uint64_t number) {
    std::vector<std::byte> all;
    add(all, {kind, static_cast<std::uint8_t>(flags | colls::interprocess::flag::cancel),
              colls::message_key::point_to_point, 0, tag, number, 0});
    colls::sync_wait(world_.world, write(all));
  }
  task<> dial() {
    co_await connection_.connect(world_.world[0].info().peer_listener.local());
    const bool accepted = co_await world_.world[1].info().authenticate(connection_, 0);
    REQUIRE(accepted);
  }
  task<> write(const std::vector<std::byte>& bytes) {
    // Rank 0 may have closed the connection.
    (void)co_await colls::detail::attempt(connection_.write({bytes.data(), bytes.size()}));
  }
  template <class Done>
  void poll_until(Done done) {
    const colls::time_point limit = world_.world.on().now() + 10 * colls::seconds;
    while (!done() && world_.world.on().now() < limit) world_.world.poll();
  }

  ranks<tcp_world> world_{2};
  colls::stream connection_{world_.world.on()};
  std::uint64_t probes_ = 0;
  std::vector<int> long_message_ = std::vector<int>(1 << 18);
};

}  // namespace

TEST_CASE("a report that a rank died ends the communicator, even if there is no such rank") {
  for (const int culprit : {2, 1'000'000}) {
    CAPTURE(culprit);
    raw_peer peer;
    colls::failure reason(errc::peer_failed);
    reason.culprit = culprit;
    peer.revoke(reason);
    (void)peer.is_accepted();
    REQUIRE(peer.reason() != nullptr);
    CHECK(peer.reason()->code == errc::peer_failed);
  }
}

TEST_CASE("a message longer than any memory ends its connection, although it was cleared to send") {
  raw_peer peer;
  const colls::failure reason = peer.answer_cts(300'000, std::uint64_t{1} << 63);
  CHECK(reason.code == errc::protocol_error);
  CHECK(reason.culprit == 1);
  CHECK(says(reason, "the connection from rank 1 to rank 0"));
}

TEST_CASE("a peer may send its credit eagerly, and again what was returned, and no more") {
  for (const std::size_t size : {colls::eager_limit - 64, std::size_t{960}, std::size_t{0}}) {
    CAPTURE(size);
    const std::size_t count =
        colls::interprocess::credit_window / colls::interprocess::credit_cost(size);
    REQUIRE(count * colls::interprocess::credit_cost(size) == colls::interprocess::credit_window);
    for (const bool again : {false, true}) {
      CAPTURE(again);
      raw_peer peer;
      peer.send_eager(count, size);
      CHECK(peer.is_accepted());
      if (again) {
        CHECK(peer.returned_credit(count, size) == colls::interprocess::credit_window);
        peer.send_eager(count, size);
        CHECK(peer.is_accepted());
      }
      REQUIRE(peer.reason() == nullptr);
      peer.send_eager(1, size);
      CHECK(!peer.is_accepted());
      REQUIRE(peer.reason() != nullptr);
      CHECK(peer.reason()->code == errc::protocol_error);
      CHECK(peer.reason()->culprit == 1);
      CHECK(says(*peer.reason(), "no credit"));
    }
  }
}

TEST_CASE("a report that no rank would send ends its connection, and names none of its ranks") {
  using colls::interprocess::kind;
  colls::rank_state late;
  late.rank = 1;
  const auto with = [](colls::state_report report, const colls::rank_state& other) {
    report.others[report.count++] = other;
    return report;
  };
  struct {
    const char* name;
    colls::state_report report;
    bool is_valid;
  } reports[] = {
      {"of its sender alone", {}, true},
      {"of an existing rank", with({}, late), true},
      {"of more ranks than fit", {}, false},
      {"of a rank above the last one", with({}, late), false},
      {"of a negative rank", with({}, late), false},
      {"of a rank far out of range", with({}, late), false},
      {"of an operation of its sender that does not exist", {}, false},
      {"of an operation of another rank that does not exist", with({}, late), false},
  };
  reports[2].report.count = colls::state_report::max_others + 1;
  reports[3].report.others[0].rank = 2;
  reports[4].report.others[0].rank = -1;
  reports[5].report.others[0].rank = 1'000'000;
  reports[6].report.self.operation = static_cast<colls::collective>(200);
  reports[7].report.others[0].operation = static_cast<colls::collective>(200);
  for (const kind frame_kind : {kind::announce, kind::report}) {
    for (const auto& each : reports) {
      CAPTURE(static_cast<int>(frame_kind));
      CAPTURE(each.name);
      raw_peer peer;
      colls::operation<> waiting = peer.barrier({.timeout = std::chrono::seconds(20)});
      peer.await_frames(kind::announce);  // rank 0 asks for reports
      peer.send_report(frame_kind, each.report);
      CHECK(peer.is_accepted() == each.is_valid);
      if (each.is_valid) {
        CHECK(peer.reason() == nullptr);
        continue;
      }
      const colls::failure reason = peer.failure_of_call(std::move(waiting));
      CHECK(reason.code == errc::protocol_error);
      CHECK(reason.culprit == 1);
      CHECK(says(reason,
                 "on the connection from rank 1 to rank 0: a report on ranks that do not exist"));
      CHECK(peer.count_frames(kind::report) == 0);
    }
  }
}

TEST_CASE_TEMPLATE("very many sends that were cancelled after their RTS leave nothing", World,
                   tcp_world, shm_world) {
  constexpr int count = 100'000;
  constexpr int at_once = 100;
  for (const bool is_receive_posted : {false, true}) {
    CAPTURE(is_receive_posted);
    ranks<World> world(2);
    std::size_t blocks_before = 0;
    std::size_t max_blocks = 0;
    std::size_t max_unexpected = 0;
    int announced = 0;
    world.run([&](communicator& comm) -> task<> {
      std::vector<int> words(1 << 18, 7);
      const auto pause = [&] {
        return comm.net().driver().sleep_until(comm.net().now() + 100'000);
      };
      co_await comm.barrier();
      if (comm.rank() == 1) {
        // A receive that matches each of them in turn, and gets the message after them.
        if (is_receive_posted) {
          const colls::received got = co_await comm.recv(words, 0, 3);
          CHECK(got.count == 1);
          CHECK(words[0] == 42);
        }
        co_await comm.barrier();
        CHECK(comm.net().matching().unexpected_count() == 0);
        co_return;
      }
      const colls::tag_matcher& other = world.world[1].matching();
      blocks_before = blocks_in_use;
      for (int i = 0; i < count; ++i) {
        const bool pauses = i % at_once == 0;
        {
          const colls::operation<> dropped = comm.send(words, 1, is_receive_posted ? 3 : i);
          if (pauses && !is_receive_posted) {
            co_await pause();
            announced += other.unexpected_count() > 0 ? 1 : 0;
          }
        }
        if (pauses && is_receive_posted) {
          co_await pause();
          announced += 1;
        }
        max_unexpected = std::max(max_unexpected, other.unexpected_count());
        max_blocks = std::max<std::size_t>(max_blocks, blocks_in_use);
      }
      if (is_receive_posted) {
        const int last = 42;
        co_await comm.send(std::span(&last, 1), 1, 3);
      }
      co_await comm.barrier();
    });
    CHECK(announced == count / at_once);
    CHECK(max_unexpected <= 2 * at_once);
    CHECK(max_blocks < blocks_before + 10 * at_once);
  }
}

TEST_CASE("a peer that never answers RTS cancels does not make memory grow") {
  raw_peer peer;
  REQUIRE(peer.is_accepted());
  std::size_t before = 0;
  std::size_t headers = 0;
  longest_allocation = 0;
  for (int i = 0; i < 100'000; ++i) {
    {
      const colls::operation<> dropped = peer.send_long();
    }
    if (i % 100 == 0) {
      peer.poll();
      headers += peer.count_frames(colls::interprocess::kind::data);
    }
    if (i == 1000) before = blocks_in_use;
  }
  CHECK(headers == 2 * colls::interprocess::max_rts_ahead);  // an RTS and its cancel for each
  CHECK(blocks_in_use < before + 100);
  CHECK(longest_allocation < (1 << 20));
  CHECK(peer.reason() == nullptr);
  CHECK(peer.is_accepted());
}

TEST_CASE_TEMPLATE("messages that are withdrawn while a peer computes cost little memory", World,
                   tcp_world, shm_world) {
  constexpr int count = 100'000;
  constexpr int tags = 1000;
  ranks<World> world(2);
  duplicates two = dup_on_own_executors(world);
  const auto run_barrier = [&] {
    colls::operation<> both[] = {two.copies[0].barrier(), two.copies[1].barrier()};
    for (bool ended = false; !ended;) {
      ended = both[0].done();
      ended &= both[1].done();
    }
  };
  run_barrier();
  const std::vector<int> words(1 << 18, 7);
  const colls::tag_matcher& other = two.copies[1].net().matching();
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
  CHECK(other.unexpected_count() == 0);  // rank 1 has not polled
  for (int i = 0; i < 3; ++i) run_barrier();
  CHECK(other.unexpected_count() == 0);
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

TEST_CASE("a confirmation of an RTS cancel that was not sent ends its connection") {
  using colls::interprocess::kind;
  const auto ends = [](raw_peer& peer) {
    CHECK(!peer.is_accepted());
    REQUIRE(peer.reason() != nullptr);
    CHECK(peer.reason()->code == errc::protocol_error);
    CHECK(peer.reason()->culprit == 1);
    CHECK(says(*peer.reason(), "a confirmation of an RTS cancel that was not sent"));
  };
  for (const std::uint64_t wrong : {0u, 2u, 1u << 30}) {
    CAPTURE(wrong);
    raw_peer peer;
    {
      const colls::operation<> dropped = peer.send_long();
    }
    peer.await_frames(kind::data, 2);  // the RTS and its cancel
    peer.confirm_cancel(wrong);
    ends(peer);
  }
  {
    raw_peer peer;  // confirms one cancel twice
    {
      const colls::operation<> dropped = peer.send_long();
    }
    peer.await_frames(kind::data, 2);
    peer.confirm_cancel(1);
    CHECK(peer.is_accepted());
    peer.confirm_cancel(1);
    ends(peer);
  }
  {
    raw_peer peer;  // confirms a cancel of a send that still waits after its RTS
    colls::operation<> waiting = peer.send_long();
    peer.await_frames(kind::data);
    peer.confirm_cancel(1);
    ends(peer);
    CHECK(peer.failure_of_call(std::move(waiting)).code == errc::protocol_error);
  }
}

TEST_CASE("a cancel of a message without RTS ends its connection") {
  for (const std::uint64_t wrong : {0u, 1u, 1u << 30}) {
    CAPTURE(wrong);
    raw_peer peer;
    peer.send_cancel(wrong);
    CHECK(!peer.is_accepted());
    REQUIRE(peer.reason() != nullptr);
    CHECK(peer.reason()->code == errc::protocol_error);
    CHECK(peer.reason()->culprit == 1);
    CHECK(says(*peer.reason(), "a cancel of a message without RTS"));
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
    "sends far ahead of their receives: the receiver buffers few, and deadlines cost little", World,
    tcp_world, shm_world) {
  constexpr std::size_t count = 20'000;
  ranks<World> world(2);
  std::vector<bool> withdrawn(count);
  world.run([&](communicator& comm) -> task<> {
    colls::tag_matcher& matching = comm.net().matching();
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
      constexpr std::size_t fit =
          colls::interprocess::credit_window / colls::interprocess::credit_cost(sizeof(int));
      const std::size_t kept = matching.unexpected_count();
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
          // Some had been sent before they were withdrawn.
          for (; next < got; next += 4) right &= withdrawn[static_cast<std::size_t>(next)];
        }
      }
      CHECK(right);
      CHECK(matching.unexpected_count() == 0);
    }
    // Operations are checked 0.1, 0.2, 0.4, ... s after they began.
    CHECK(matching.check_count() < 20 * count);
  });
}

TEST_CASE_TEMPLATE("what arrived while the thread was elsewhere is in time", World, tcp_world,
                   shm_world) {
  using std::chrono::milliseconds;
  ranks<World> world(2);
  colls::engine& driver = world.world.on();
  auto& io = static_cast<boost::asio::io_context&>(
      boost::asio::query(driver.executor(), boost::asio::execution::context));
  world.run([](communicator& comm) -> task<> { co_await comm.barrier(); });
  const auto check = [&](auto& one, auto& other) {
    std::string reason;
    try {
      colls::sync_wait(driver, one);
      colls::sync_wait(driver, other);
    } catch (const colls::error& thrown) {
      reason = thrown.what();
    }
    REQUIRE(reason == "");
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
      ::usleep(70'000);  // the handler and the engine's own are both due
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
      for (int more = times % 3; more > 0; --more) driver.poll();
    }
  }
}

TEST_CASE_TEMPLATE("receives and collectives far ahead: deadlines cost little", World, tcp_world,
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
    CHECK(comm.net().matching().check_count() < 20 * 2 * count);
  });
}

TEST_CASE_TEMPLATE("a dead rank ends the operations of all others, and is named", World, tcp_world,
                   shm_world) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
    ranks<World> world(4);
    // Every rank has connections to its partners before one of them dies.
    world.run([&](communicator& comm) -> task<> {
      std::vector<float> data(count, 1);
      co_await comm.all_reduce(data);
    });
    world.kill(2);
    const colls::time_point begin = world.world.on().now();
    world.run([&](communicator& comm) -> task<> {
      std::vector<float> data(count, 1);
      const colls::failure reason = co_await failure_of(comm.all_reduce(data));
      CHECK(reason.code == errc::peer_failed);
      CHECK(reason.culprit == 2);
      const colls::failure again = co_await failure_of(comm.barrier());
      CHECK(again.culprit == 2);
    });
    // The contract promises 2 s.
    CHECK(world.world.on().now() - begin < 10 * colls::seconds);
  }
}

TEST_CASE_TEMPLATE("a rank that died before any connection to it existed is noticed too", World,
                   tcp_world, shm_world) {
  ranks<World> world(3);
  world.kill(1);
  world.run([](communicator& comm) -> task<> {
    int token = 0;
    const colls::failure reason = co_await failure_of(comm.broadcast(std::span(&token, 1), 1));
    CHECK(reason.code == errc::peer_failed);
    CHECK(reason.culprit == 1);
  });
}

TEST_CASE_TEMPLATE("a rank that dies while a communicator is made is named in it", World, tcp_world,
                   shm_world) {
  ranks<World> world(2);
  auto [contexts, copies] = dup_on_own_executors(world);
  const auto poll = [&](std::size_t rank) {
    while (contexts[rank]->poll() > 0) continue;
  };
  {
    int data[2] = {1, 2};
    colls::operation<> opening[] = {copies[0].all_reduce(std::span(data, 1)),
                                    copies[1].all_reduce(std::span(data + 1, 1))};
    while (!opening[0].underlying_call().is_done() || !opening[1].underlying_call().is_done()) {
      poll(0);
      poll(1);
    }
  }
  poll(0);
  poll(1);
  colls::operation<communicator> split = copies[0].split(0);
  poll(0);
  {
    colls::operation<communicator> other = copies[1].split(0);
    while (!other.done()) continue;
    CHECK(other.result().size() == 2);
  }
  REQUIRE(!split.underlying_call().is_done());
  copies[1] = communicator();  // without a goodbye
  // One poll of rank 0 reads what completes its split and the end of the connection.
  while (!split.underlying_call().is_done()) poll(0);
  communicator child = split.result();
  for (int i = 0; i < 2; ++i) {
    int token = 1;
    const colls::failure reason =
        colls::sync_wait(copies[0], failure_of(child.all_reduce(std::span(&token, 1))));
    CHECK(reason.code == errc::peer_failed);
    CHECK(reason.culprit == 1);
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
      const colls::failure reason = co_await failure_of(half.recv(std::span(&token, 1), 1));
      CHECK(reason.code == errc::closed);
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
      // A root may have completed the call already: then its next call fails.
      colls::failure reason = co_await failure_of(each.call(comm, data, comm.rank() == 1));
      if (reason.code == errc{}) reason = co_await failure_of(comm.barrier());
      CHECK(reason.code == errc::mismatch);
      CHECK(says(reason, "rank 1 called"));
      CHECK(says(reason, each.differ));
    });
  }
}

TEST_CASE_TEMPLATE("two ranks that both only receive end with a mismatch", World, tcp_world,
                   shm_world) {
  ranks<World> world(2);
  world.run([](communicator& comm) -> task<> {
    std::vector<int> data(10, 1);
    const colls::failure reason = co_await failure_of(comm.broadcast(data, 1 - comm.rank()));
    CHECK(reason.code == errc::mismatch);
    CHECK(says(reason, "root 0"));
    CHECK(says(reason, "root 1"));
  });
}

TEST_CASE_TEMPLATE("lengths that differ in all_to_all_v end both sides, also when they are long",
                   World, tcp_world, shm_world) {
  for (const auto& [algo, more] :
       std::vector<std::pair<colls::algorithm, std::size_t>>{{colls::algorithm::automatic, 1},
                                                             {colls::algorithm::automatic, 200'000},
                                                             {colls::algorithm::bruck, 1},
                                                             {colls::algorithm::bruck, 200'000}}) {
    const colls::options pinned{.algorithm = algo};
    const std::size_t longer = more;
    ranks<World> world(2);
    world.run([&](communicator& comm) -> task<> {
      const std::size_t out = comm.rank() == 0 ? 10 + longer : 10;
      std::vector<int> from(2 * out, 1);
      std::vector<int> to(20);
      const std::vector<std::size_t> sends{out, out};
      const std::vector<std::size_t> receives(2, 10);
      // The length of rank 0's own block matches, that of its block for rank 1 does not.
      std::vector<std::size_t> mine = sends;
      mine[static_cast<std::size_t>(comm.rank())] = 10;
      from.resize(mine[0] + mine[1]);
      // Rank 0 may have sent and received everything; then its next call fails.
      colls::failure reason =
          co_await failure_of(comm.all_to_all_v(from, mine, to, receives, pinned));
      if (reason.code == errc{}) reason = co_await failure_of(comm.barrier());
      CHECK(reason.code == errc::mismatch);
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
        std::fill(data.begin(), data.end(), 5.F);  // the operation no longer writes here
        co_await comm.net().driver().sleep_until(comm.net().now() + 20 * colls::milliseconds);
        CHECK(std::all_of(data.begin(), data.end(), [](float x) { return x == 5.F; }));
      }
      std::vector<float> other(count, 1);
      const colls::failure reason = co_await failure_of(comm.all_reduce(other));
      CHECK(reason.code == errc::cancelled);
      CHECK(reason.culprit == 1);
    });
  }
}

TEST_CASE_TEMPLATE("an unmatched receive is withdrawn, and the communicator stays usable", World,
                   tcp_world, shm_world) {
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

TEST_CASE_TEMPLATE("messages of one tag do not overtake each other, whatever their lengths", World,
                   tcp_world, shm_world) {
  // Lengths in ints: eager messages, eager ones that exceed the credit together, and longer ones.
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

TEST_CASE_TEMPLATE("an unmatched send is withdrawn, and the next receive gets the next message",
                   World, tcp_world, shm_world) {
  struct way {
    std::size_t size;  // of the message that is withdrawn, in ints
    bool any;          // the receive is from any source
    bool late;         // the receive was posted when the send is withdrawn
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
          // Its RTS has arrived, or all of it.
          if (!each.late) {
            co_await until([&] { return world.world[1].matching().unexpected_count() > 0; });
          }
        }
        withdrawn = true;
        for (colls::operation<>& one : others) co_await std::move(one);
        const int next = 42;
        co_await comm.send(std::span(&next, 1), 1, 3);
      } else {
        const colls::peer source = each.any ? colls::peer(colls::any_source) : colls::peer(0);
        if (!each.late) co_await until([&] { return withdrawn; });
        for (int i = 0; i < each.between; ++i) {
          co_await comm.recv(all, source, 3);
          CHECK(std::all_of(words.begin(), words.end(), [](int word) { return word == 7; }));
        }
        const colls::received got = co_await comm.recv(all, source, 3);
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
    const colls::failure reason =
        co_await failure_of(comm.barrier({.timeout = std::chrono::milliseconds(300)}));
    CHECK(reason.code == errc::timeout);
    CHECK(reason.culprit == 1);
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
    const colls::failure reason = co_await failure_of(comm.barrier());
    CHECK(reason.code == errc::closed);
    CHECK(reason.culprit == 2);
  });
}

TEST_CASE_TEMPLATE("a rank that connects to one that has revoked the communicator learns why",
                   World, tcp_world, shm_world) {
  // A world on another executor has no store that reports failures to all ranks.
  ranks<World> world(3);
  boost::asio::io_context context(1);
  std::vector<communicator> copies(3);
  world.run([&](communicator& comm) -> task<> {
    copies[static_cast<std::size_t>(comm.rank())] = co_await comm.dup(context.get_executor());
  });
  copies[1].revoke("it was revoked before any rank had called");
  const auto main = [](communicator& mine) -> task<> {
    const colls::failure reason = co_await failure_of(mine.barrier());
    CHECK(reason.code == errc::revoked);
    CHECK(reason.culprit == 1);
    CHECK(std::string(reason.detail) == "it was revoked before any rank had called");
  };
  const auto close = [](communicator& mine) -> task<> { co_await mine.close(); };
  std::vector<task<>> mains;
  std::vector<task<>> ends;
  for (communicator& each : copies) mains.push_back(main(each));
  colls::sync_wait(copies[0], colls::when_all(std::move(mains)));
  for (communicator& each : copies) ends.push_back(close(each));
  colls::sync_wait(copies[0], colls::when_all(std::move(ends)));
}

TEST_CASE("a rank that asks whether an operation has ended wakes the peers it has written to") {
  ranks<shm_world> world(3);
  auto [contexts, copies] = dup_on_own_executors(world);
  // Rank 0 sends to rank 1, and rank 1 to rank 2.
  int data[3] = {5, 0, 0};
  const auto begin = [&](std::size_t rank) {
    return copies[rank].broadcast(std::span(data + rank, 1), 0,
                                  {.algorithm = colls::algorithm::chain});
  };
  const auto poll = [&](std::size_t rank) {
    while (contexts[rank]->poll() > 0) continue;
  };
  {
    colls::operation<> first[] = {begin(0), begin(1), begin(2)};  // opens connections
    while (!first[2].underlying_call().is_done()) {
      for (std::size_t rank = 0; rank < 3; ++rank) poll(rank);
    }
  }
  data[0] = 7;
  colls::operation<> last = begin(2);
  poll(2);  // sleeps now
  colls::operation<> middle = begin(1);
  colls::operation<> root = begin(0);
  while (!middle.done()) continue;
  poll(2);
  CHECK(last.underlying_call().is_done());
  CHECK(data[2] == 7);
  CHECK(root.done());
}

TEST_CASE("a rank that computes after an operation has woken the peers it has written to") {
  ranks<shm_world> world(3);
  auto [contexts, copies] = dup_on_own_executors(world);
  int data[3] = {5, 0, 0};
  const auto begin = [&](std::size_t rank) {
    return copies[rank].broadcast(std::span(data + rank, 1), 0,
                                  {.algorithm = colls::algorithm::chain});
  };
  const auto poll = [&](std::size_t rank) {
    while (contexts[rank]->poll() > 0) continue;
  };
  {
    colls::operation<> first[] = {begin(0), begin(1), begin(2)};  // opens connections
    while (!first[2].underlying_call().is_done()) {
      for (std::size_t rank = 0; rank < 3; ++rank) poll(rank);
    }
  }
  data[0] = 7;
  colls::operation<> last = begin(2);
  poll(2);  // sleeps now
  std::optional<colls::operation<>> root;
  bool is_last_done = false;
  const auto middle = [&]() -> task<> {
    colls::operation<> mine = begin(1);
    root.emplace(begin(0));
    co_await mine;
    poll(2);  // while this rank computes
    is_last_done = last.underlying_call().is_done();
  };
  colls::sync_wait(copies[1], middle());
  CHECK(is_last_done);
  CHECK(data[2] == 7);
  while (!last.done() || !root->done()) continue;
}

TEST_CASE(
    "a rank that waits for one peer polls its socket each time, and the others now and then") {
  ranks<tcp_world> world(3);
  using colls::algorithm;
  world.run(
      [](communicator& comm) -> task<> { co_await comm.barrier<algorithm::dissemination>(); });
  colls::interprocess_transport& net = world.world[1];
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
    while (!net.matching().has_unexpected() && polls < 100) {
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

TEST_CASE(
    "epoll reports what arrives on sockets that are not polled all the time, and nothing else") {
  ranks<tcp_world> world(2);
  auto [contexts, copies] = dup_on_own_executors(world);
  colls::engine& driver = copies[1].net().driver();
  driver.spin(1000);
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
    driver.enter();
    for (int i = 0; i < 10; ++i) exchange();
    {
      colls::operation<colls::received> waits = begin();
      send();
      CHECK(!driver.dispatch());
      while (!waits.done()) continue;
    }
    {
      // Before it sleeps.
      colls::operation<colls::received> waits = begin();
      send();
      driver.idle(1'000'000);
      CHECK(waits.underlying_call().is_done());
    }
    for (int i = 0; i < 10; ++i) exchange();
    driver.leave();
    while (contexts[1]->poll() > 0) continue;
    // The rest of the program runs the io_context.
    colls::operation<colls::received> waits = begin();
    while (contexts[1]->poll() > 0) continue;
    send();
    while (contexts[1]->poll() > 0) continue;
    CHECK(waits.underlying_call().is_done());
    CHECK(taken == given);
  }
}

TEST_CASE_TEMPLATE("a loop over done() opens connections, closes them, sees deadlines and deaths",
                   World, tcp_world, shm_world) {
  ranks<World> world(2);
  // Without and with work between two calls of done().
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
    const auto begin = [&](duplicates& of, std::size_t rank, const colls::options& opts = {}) {
      return of.copies[rank].all_reduce(std::span(sums + rank, 1), opts);
    };
    {
      duplicates two = dup_on_own_executors(world);
      colls::operation<> sum[] = {begin(two, 0), begin(two, 1)};
      CHECK(have_ended(sum[0], sum[1]));
      CHECK((sums[0] == 3 && sums[1] == 3));
      colls::operation<> closing[] = {two.copies[0].close(), two.copies[1].close()};
      CHECK(have_ended(closing[0], closing[1]));
    }
    {
      duplicates two = dup_on_own_executors(world);
      colls::operation<> late = begin(two, 0, {.timeout = std::chrono::milliseconds(50)});
      CHECK(have_ended(late));
      CHECK(late.reason().code == errc::timeout);
    }
    {
      duplicates two = dup_on_own_executors(world);
      colls::operation<> sum[] = {begin(two, 0), begin(two, 1)};
      CHECK(have_ended(sum[0], sum[1]));
      colls::operation<> alone = begin(two, 0);
      two.copies[1] = communicator();
      CHECK(have_ended(alone));
      CHECK(alone.reason().code == errc::peer_failed);
    }
  }
}

TEST_CASE("on another executor a rank waits as on the first, and spins if it has two cores") {
  for (const bool spins : {true, false}) {
    ranks<tcp_world> world(1);
    world.world.on().spin(spins ? 100 : 0, colls::milliseconds);
    const duplicates one = dup_on_own_executors(world);
    CHECK(one.copies[0].net().driver().spins() == (spins && colls::detail::cores() >= 2));
  }
}

TEST_CASE_TEMPLATE("dup(executor) gives every rank a world that its own thread can drive", World,
                   tcp_world, shm_world) {
  ranks<World> world(3);
  auto [contexts, copies] = dup_on_own_executors(world);
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

/// An element of `Numbers` ints.
template <std::size_t Numbers>
struct several {
  int value[Numbers];

  static several from(std::size_t first) {
    several result;
    for (std::size_t i = 0; i < Numbers; ++i) result.value[i] = static_cast<int>(first + i);
    return result;
  }
};

template <std::size_t Numbers>
task<> sum_of_several(communicator& comm, std::size_t count) {
  using element = several<Numbers>;
  std::vector<element> data(count);
  const auto rank = static_cast<std::size_t>(comm.rank());
  for (std::size_t i = 0; i < count; ++i) data[i] = element::from(i * (rank + 1));
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

TEST_CASE_TEMPLATE("elements of any size are reduced as a whole, wherever a message is cut", World,
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
      const colls::failure reason = co_await failure_of(comm.barrier());
      CHECK(reason.code == errc::peer_failed);
      CHECK(says(reason, "it cannot be reached by shared memory"));
    });
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
}

namespace {

/// Returns a congestion control that connections use only on request. Empty: there is none.
std::string other_congestion_control() {
  std::string usual;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> usual;
  std::ifstream all("/proc/sys/net/ipv4/tcp_available_congestion_control");
  for (std::string name; all >> name;) {
    if (name != usual && !colls::detail::try_congestion(name)) return name;
  }
  return {};
}

/// Returns the congestion control of each end of a connection in this process.
std::vector<std::string> congestion_controls(tcp_world& world) {
  std::vector<std::string> found;
  for (int fd = 0; fd < 1024; ++fd) {
    const int here = colls::detail::socket_endpoint(fd, &::getsockname).port();
    const int there = colls::detail::socket_endpoint(fd, &::getpeername).port();
    bool is_connection = false;
    for (int rank = 0; rank < world.size() && there != 0; ++rank) {
      const int listener_port = world[rank].info().peer_listener.local().port();
      is_connection |= here == listener_port || there == listener_port;
    }
    char name[16] = {};
    socklen_t size = sizeof name;
    if (!is_connection || ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) continue;
    found.emplace_back(name);
  }
  return found;
}

}  // namespace

TEST_CASE("both ends of a connection use the requested congestion control") {
  const std::string requested = other_congestion_control();
  if (requested.empty()) {
    MESSAGE("skipped: this system has only one congestion control, or allows this user only one");
    return;
  }
  ranks<tcp_world> world(2, "tcp", "", requested.c_str());
  world.run([](communicator& comm) -> task<> { co_await comm.barrier(); });
  CHECK(congestion_controls(world.world) == std::vector<std::string>(2, requested));
}

TEST_CASE("a world that may not use shared memory has no local listener") {
  const auto listens = [](tcp_world& world) {
    colls::detail::descriptor found;
    return !colls::shm::connect_local(world[0].info().peer_listener.local(), found);
  };
  tcp_world tcp(2);
  shm_world shm(2);
  CHECK(!listens(tcp));
  CHECK(listens(shm));
}

TEST_CASE_TEMPLATE("a world that has ended leaves no descriptor open, however its connections end",
                   World, tcp_world, shm_world) {
  const auto count = [] {
    std::vector<int> all;
    for (int fd = 0; fd < 4096; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) all.push_back(fd);
    }
    return all;
  };
  const auto run_world = [](bool dies) {
    ranks<World> world(3);
    world.run([](communicator& comm) -> task<> {
      const colls::shared_buffer<int> shared = comm.allocate<int>(10);
      std::vector<int> data(100'000, 1);
      co_await comm.all_reduce(data);
      co_await comm.barrier();
    });
    if (!dies) return;
    world.kill(1);
    world.run([](communicator& comm) -> task<> {
      const colls::failure reason = co_await failure_of(comm.barrier());
      CHECK(reason.code == errc::peer_failed);
    });
  };
  run_world(false);  // opens the descriptors that a process opens once
  for (const bool dies : {false, true}) {
    CAPTURE(dies);
    const std::vector<int> before = count();
    for (int times = 0; times < 3; ++times) run_world(dies);
    CHECK(count() == before);
  }
}
