// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Tests each carrier's pipes alone: those of sockets, of shared memory, and the simulated ones that
// other tests use.
#include <colls/transport/interprocess/carrier/pipe.hpp>

#include <colls/transport/interprocess/carrier/shared_memory_pipe.hpp>
#include <colls/transport/interprocess/carrier/socket_pipe.hpp>

#include "../../../support/simulated_carrier.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <random>
#include <vector>

namespace {

using namespace colls;
using namespace colls::interprocess;

std::vector<std::byte> sample(std::size_t size, std::size_t seed) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 31 + seed);
  return all;
}

/// Two ends of a pipe through a socket.
template <bool Checks>
struct socket_pair {
  boost::asio::io_context context{1};
  std::shared_ptr<engine> driver = engine::get(context.get_executor());
  std::unique_ptr<interprocess::pipe> ends[2];

  socket_pair() {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    for (const int i : {0, 1}) {
      ends[i] = std::make_unique<socket_pipe>(*driver, detail::descriptor(sockets[i]), Checks);
    }
  }
  void pass_time() { driver->dispatch(); }
};

/// Two ends of a pipe through shared memory.
template <bool Checks>
struct memory_pair : socket_pair<Checks> {
  memory_pair() {
    shm::segment memory;
    int sockets[2];
    REQUIRE(!memory.make(shm::connection_bytes(shm::min_ring_buffer_bytes)));
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    for (const int i : {0, 1}) {
      auto made = std::make_unique<shared_memory_pipe>(*this->driver, Checks);
      REQUIRE(!made->map(memory, i));
      made->adopt(detail::descriptor(sockets[i]));
      this->ends[i] = std::move(made);
    }
  }
};

/// Two ends of a simulated pipe.
template <bool Checks>
struct simulated_pair {
  simulated::timeline time{1};
  simulated::rank_scheduler ranks[2]{simulated::rank_scheduler(time),
                                     simulated::rank_scheduler(time)};
  std::unique_ptr<interprocess::pipe> ends[2];

  simulated_pair() {
    auto link = std::make_shared<simulated::byte_link>(time);
    for (const int i : {0, 1}) {
      link->ends[i].rank = &ranks[i];
      ends[i] = std::make_unique<simulated::byte_pipe>(link, i, Checks);
    }
  }
  void pass_time() { (void)time.step(never); }
};

struct counter : completion {
  int times = 0;

  explicit counter(run_queue& queue) {
    bind([](completion& self) noexcept { ++static_cast<counter&>(self).times; },
         completion(nullptr, &queue));
  }
};

/// What uses one end of a pipe, in place of a connection.
struct user final : pipe_handler {
  run_queue completions;
  tag_matcher matching{0};
  communicator_state all{7, 0, 2, nullptr};
  operation_record record;
  send_queue queue;
  payload_target target{matching};
  interprocess::pipe& end;

  std::vector<header> begun;
  std::vector<const char*> faults;
  std::vector<int> ends;
  int aborts = 0;
  std::function<bool()> takes = [] { return false; };
  std::function<bool(const header&, const std::byte*)> begins;

  explicit user(interprocess::pipe& attached) : end(attached) {
    record.communicator = &all;
    end.attach(*this, queue, target);
  }
  ~user() { end.close(false); }

  bool take_next() override { return takes(); }
  bool begin(const header& frame, const std::byte* payload) override {
    begun.push_back(frame);
    const bool has_payload = frame.kind == kind::data && (frame.flags & flag::rts) == 0;
    target.begin(has_payload ? frame.length : 0);
    const bool goes_on = !begins || begins(frame, payload);
    if (has_payload && frame.length == 0) target.end();
    return goes_on;
  }
  void refuse(const char* fault) override {
    faults.push_back(fault);
    end.close(true);
  }
  void ended(int system_error) override { ends.push_back(system_error); }
  void abort(const char*) override { ++aborts; }
  void heap_received(detail::descriptor) override {}
};

struct message : posted_send {
  std::vector<std::byte> bytes;
  counter done_count;

  message(user& from, std::uint64_t sequence, std::size_t length)
      : bytes(sample(length, sequence)), done_count(from.completions) {
    key = {1, 7, sequence, 0};
    data = bytes.data();
    size = length;
    record = &from.record;
    done = &done_count;
    frame = make_header(kind::data, key, size, 0);
  }
};

struct receive : posted_receive {
  std::vector<std::byte> bytes;
  counter done_count;

  receive(user& to, std::size_t length) : bytes(length), done_count(to.completions) {
    data = bytes.data();
    size = received = length;
    record = &to.record;
    done = &done_count;
  }
};

/// Lets bytes travel until `is_over()`.
template <class Pair, class IsOver>
void run(Pair& pair, const IsOver& is_over) {
  for (int rounds = 0; rounds < 100'000 && !is_over(); ++rounds) {
    for (const auto& end : pair.ends) {
      end->flush();
      end->poll();
    }
    pair.pass_time();
  }
  CHECK(is_over());
}
template <class Pair>
void run_often(Pair& pair) {
  for (int rounds = 0; rounds < 100; ++rounds) {
    for (const auto& end : pair.ends) end->poll();
    pair.pass_time();
  }
}

}  // namespace

#define PAIRS                                                                   \
  socket_pair<false>, socket_pair<true>, memory_pair<false>, memory_pair<true>, \
      simulated_pair<false>, simulated_pair<true>

TEST_CASE_TEMPLATE("frames of every size pass both ways, in order and with their payloads", Pair,
                   PAIRS) {
  constexpr std::size_t sizes[] = {0, 1, 24, 25, 1000, 5000, 65536, 300'000, 1'000'000};
  Pair pair;
  user users[2] = {user(*pair.ends[0]), user(*pair.ends[1])};
  std::deque<message> sent[2];
  std::deque<receive> got[2];
  std::size_t control_frames[2] = {};
  const failure last(errc::closed);
  for (const int i : {0, 1}) {
    for (const std::size_t size : sizes) {
      sent[i].emplace_back(users[i], sent[i].size(), size);
      got[i].emplace_back(users[i], size);
    }
    users[i].begins = [&, i](const header& frame, const std::byte* payload) {
      if (frame.kind == kind::revoke) {
        CHECK(reported_failure::parse({payload, sizeof(failure)}, 2).has_value());
        ++control_frames[i];
      } else {
        users[i].target.deliver_to(got[i][frame.sequence], true);
      }
      return true;
    };
  }
  for (std::size_t k = 0; k < std::size(sizes); ++k) {
    for (const int i : {0, 1}) {
      users[i].queue.push(sent[i][k]);
      header frame = make_header(kind::revoke, {}, sizeof last, 0);
      frame.communicator = static_cast<std::uint32_t>(k);
      REQUIRE(users[i].queue.control(frame, &last));
      if (k % 3 == 0) pair.ends[i]->flush();
    }
  }
  run(pair, [&] {
    for (user& each : users) each.completions.run();
    return got[0].back().done_count.times == 1 && got[1].back().done_count.times == 1 &&
           control_frames[0] == std::size(sizes) && control_frames[1] == std::size(sizes);
  });
  for (const int i : {0, 1}) {
    std::uint64_t next = 0;
    for (const header& each : users[i].begun) {
      if (each.kind == kind::data) CHECK(each.sequence == next++);
    }
    for (std::size_t k = 0; k < std::size(sizes); ++k) {
      CAPTURE(k);
      CHECK(got[i][k].bytes == sent[1 - i][k].bytes);
      CHECK(got[i][k].done_count.times == 1);
      CHECK(sent[i][k].done_count.times == 1);
    }
    CHECK(users[i].faults.empty());
    CHECK(users[i].ends.empty());
  }
}

TEST_CASE_TEMPLATE("a message that passes the queue goes whole or not at all, and is taken whole",
                   Pair, PAIRS) {
  Pair pair;
  user from(*pair.ends[0]);
  user to(*pair.ends[1]);
  const std::size_t size = 1000;
  std::uint64_t sent = 0;
  const auto frame = [&](std::uint64_t number) {
    return make_header(kind::data, {1, 7, number, 0}, size, 9);
  };
  // The receiver reads nothing, so the pipe fills up.
  while (sent < 100'000) {
    for (int tries = 0; tries < 100 && !from.queue.empty(); ++tries) pair.ends[0]->flush();
    if (!from.queue.empty()) break;
    const std::vector<std::byte> bytes = sample(size, sent);
    if (!pair.ends[0]->try_send(frame(sent), {bytes.data(), size})) break;
    ++sent;
  }
  CHECK(sent > 10);
  CHECK(sent < 100'000);
  std::uint64_t taken = 0;
  std::vector<std::byte> out(size);
  header other = frame(0);
  other.hash = 5;
  CHECK_FALSE(pair.ends[1]->try_receive(other, out.data()));
  to.takes = [&] {
    if (!pair.ends[1]->try_receive(frame(taken), out.data())) return false;
    CHECK(out == sample(size, taken));
    ++taken;
    return true;
  };
  // A frame whose first part is all that has arrived is begun like any other.
  std::deque<receive> got;
  to.begins = [&](const header& begun, const std::byte*) {
    CHECK(begun.sequence == taken);
    got.emplace_back(to, size);
    to.target.deliver_to(got.back(), true);
    ++taken;
    return true;
  };
  run(pair, [&] { return taken == sent && to.target.left() == 0; });
  CHECK(to.faults.empty());
  // A simulated pipe splits every message.
  CHECK((to.begun.size() < sent || requires { pair.time; }));
}

TEST_CASE_TEMPLATE("all that was written arrives before the end, which is told until it is heard",
                   Pair, PAIRS) {
  Pair pair;
  user from(*pair.ends[0]);
  user to(*pair.ends[1]);
  for (int i = 0; i < 100; ++i) {
    REQUIRE(from.queue.control(make_header(kind::cts, {1, 7, 1, 0}, 1, 0), nullptr));
  }
  for (int rounds = 0; rounds < 1000 && !from.queue.empty(); ++rounds) {
    pair.ends[0]->flush();
    pair.pass_time();
  }
  REQUIRE(from.queue.empty());
  CHECK_FALSE(pair.ends[1]->has_peer_exited());
  pair.ends[0]->close(false);
  run(pair, [&] { return to.ends.size() >= 3; });
  CHECK(to.begun.size() == 100);
  CHECK(to.ends == std::vector<int>(to.ends.size(), 0));
  CHECK(pair.ends[1]->has_peer_exited());
  pair.ends[1]->close(false);
  const std::size_t told = to.ends.size();
  run_often(pair);
  CHECK(to.ends.size() == told);
}

TEST_CASE_TEMPLATE("a pipe that is closed while it reports a frame reports no other", Pair, PAIRS) {
  Pair pair;
  user from(*pair.ends[0]);
  user to(*pair.ends[1]);
  to.begins = [&](const header&, const std::byte*) {
    pair.ends[1]->close(false);
    return false;
  };
  for (int i = 0; i < 5; ++i) {
    REQUIRE(from.queue.control(make_header(kind::cts, {1, 7, 1, 0}, 1, 0), nullptr));
  }
  pair.ends[0]->flush();
  run(pair, [&] { return !to.begun.empty(); });
  run_often(pair);
  CHECK(to.begun.size() == 1);
  CHECK(to.ends.empty());
  CHECK(to.faults.empty());
}

TEST_CASE_TEMPLATE(
    "a frame that no rank would send is refused, and its sender can still be told why", Pair,
    PAIRS) {
  Pair pair;
  user from(*pair.ends[0]);
  user to(*pair.ends[1]);
  const header good = make_header(kind::goodbye, {}, 0, 0);
  header wrong = good;
  wrong.kind = static_cast<kind>(99);
  REQUIRE(to.queue.control(good, nullptr));
  run(pair, [&] { return to.queue.empty(); });
  for (const header& each : {good, wrong, good}) REQUIRE(from.queue.control(each, nullptr));
  run(pair, [&] { return !to.faults.empty(); });
  CHECK(to.begun.size() == 1);
  CHECK(to.faults.size() == 1);
  run(pair, [&] { return !from.ends.empty(); });
  CHECK(from.begun.size() == 1);
  CHECK(from.ends.front() == 0);
  CHECK_FALSE(pair.ends[1]->has_peer_exited());
  pair.ends[0]->close(false);
  run_often(pair);
  CHECK(pair.ends[1]->has_peer_exited());
}
