// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Worlds whose frames have checksums, and bits that change in transit.
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <colls/bootstrap/dial.hpp>
#include <colls/bootstrap/store_server.hpp>

#include "../support/joining.hpp"
#include "../support/tcp_ranks.hpp"

#include <doctest/doctest.h>

#include <sys/syscall.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <random>

namespace {

using colls::errc;
using colls::failure;
using colls::task;

/// Flips one bit of what this process writes to sockets, a given number of bytes after it was
/// armed.
struct line_noise {
  std::size_t left = SIZE_MAX;
  unsigned bit = 0;
  bool flipped = false;

  void arm(std::size_t distance, unsigned bit_number) {
    left = distance;
    bit = bit_number;
    flipped = false;
  }
  void disarm() { left = SIZE_MAX; }
  /// Whether a write of at most `size` bytes contains the bit.
  bool hits(std::size_t size) const { return left != SIZE_MAX && size > left; }
  /// Notes that `size` bytes were written.
  void note_written(ssize_t size) {
    if (size <= 0 || left == SIZE_MAX) return;
    if (hits(static_cast<std::size_t>(size))) {
      flipped = true;
      disarm();
    } else {
      left -= static_cast<std::size_t>(size);
    }
  }
};
line_noise noise;

}  // namespace

// These two functions send everything that the program writes to sockets.
extern "C" ssize_t send(int socket, const void* from, size_t size, int flags) {
  const auto sent = [&](const void* bytes) {
    return ::syscall(SYS_sendto, socket, bytes, size, flags, nullptr, 0);
  };
  if (!noise.hits(size)) {
    const ssize_t done = sent(from);
    noise.note_written(done);
    return done;
  }
  std::vector<unsigned char> copy(static_cast<const unsigned char*>(from),
                                  static_cast<const unsigned char*>(from) + size);
  copy[noise.left] ^= static_cast<unsigned char>(1U << noise.bit);
  const ssize_t done = sent(copy.data());
  noise.note_written(done);
  return done;
}
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  std::vector<unsigned char> copy;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* const part = static_cast<const unsigned char*>(message->msg_iov[i].iov_base);
    copy.insert(copy.end(), part, part + message->msg_iov[i].iov_len);
  }
  // A message that passes a descriptor is not a frame.
  if (message->msg_control == nullptr && noise.hits(copy.size())) {
    return send(socket, copy.data(), copy.size(), flags);
  }
  const ssize_t done = ::syscall(SYS_sendmsg, socket, message, flags);
  if (message->msg_control == nullptr) noise.note_written(done);
  return done;
}

namespace {

/// A copy of the memory that this process shares with others, and with itself.
class shared_memory {
 public:
  shared_memory() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long first = 0;
      unsigned long end = 0;
      if (line.find("memfd:") == line.npos) continue;
      if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) != 2) continue;
      auto* const begin = reinterpret_cast<unsigned char*>(first);
      parts_.push_back({begin, std::vector<unsigned char>(begin, begin + (end - first))});
    }
  }
  /// Flips a bit of a byte that has changed since the copy was made, but not of a slot's number:
  /// that slot would look unwritten. Returns false if no byte has changed.
  bool flip_changed_bit(std::mt19937& random) const {
    std::vector<unsigned char*> changed;
    for (const part& each : parts_) {
      for (std::size_t i = 0; i < each.before.size(); ++i) {
        if (i % 64 >= 4 && each.memory[i] != each.before[i]) changed.push_back(each.memory + i);
      }
    }
    if (changed.empty()) return false;
    *changed[random() % changed.size()] ^= static_cast<unsigned char>(1U << random() % 8);
    return true;
  }

 private:
  struct part {
    unsigned char* memory;
    std::vector<unsigned char> before;
  };
  std::vector<part> parts_;
};

std::vector<int> numbers(std::size_t size, int seed) {
  std::vector<int> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<int>(i * 7) + seed;
  return all;
}

/// A call between two ranks in which rank 0 sends before it receives.
struct sample {
  const char* name;
  task<bool> (*call)(communicator&);
};

template <std::size_t Size>
task<bool> sum(communicator& comm) {
  std::vector<int> data = numbers(Size, comm.rank());
  co_await comm.all_reduce(data);
  std::vector<int> right = numbers(Size, 0);
  for (int& each : right) each = 2 * each + 1;
  co_return data == right;
}
template <std::size_t Size>
task<bool> sum_by_ring(communicator& comm) {
  std::vector<int> data = numbers(Size, comm.rank());
  const colls::options by_ring{.algorithm = colls::algorithm::ring};
  co_await comm.all_reduce(data, colls::plus{}, by_ring);
  std::vector<int> right = numbers(Size, 0);
  for (int& each : right) each = 2 * each + 1;
  co_return data == right;
}
template <std::size_t Size>
task<bool> message(communicator& comm) {
  std::vector<int> data = numbers(Size, 3);
  if (comm.rank() == 0) {
    co_await comm.send(data, 1, 5);
    co_return true;
  }
  data.assign(Size, 0);
  co_await comm.recv(data, 0, 5);
  co_return data == numbers(Size, 3);
}
task<bool> barrier(communicator& comm) {
  co_await comm.barrier();
  co_return true;
}
constexpr sample samples[] = {
    {"barrier", &barrier},
    {"all_reduce of 8 bytes", &sum<2>},
    {"all_reduce of 24 bytes", &sum<6>},
    {"all_reduce of 2000 bytes", &sum<500>},
    {"all_reduce of 400 KB", &sum<100'000>},
    {"all_reduce of 400 KB by ring", &sum_by_ring<100'000>},
    {"a message of 4 bytes", &message<1>},
    {"a message of 100 KB", &message<25'000>},
    {"a message of 1 MB", &message<250'000>},
};

/// The outcome of a rank's call.
struct outcome {
  bool right = false;
  std::optional<failure> reason;
};
task<> call(communicator& comm, const sample& tested, outcome* result) {
  try {
    result->right = co_await tested.call(comm);
    // The bit may be in a frame that only a later call needs, such as a return of credit.
    for (int i = 0; i < 3; ++i) co_await comm.barrier();
  } catch (const colls::error& thrown) {
    result->reason = thrown.record();
  }
}
/// Whether a rank found the changed bit: it then reports protocol_error and names the connection.
bool is_found(const std::vector<outcome>& all) {
  bool found = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto& why = all[rank].reason;
    if (!why) continue;
    found = true;
    CHECK(why->code == errc::protocol_error);
    CHECK(std::strstr(why->detail, "checksum") != nullptr);
    const std::string name = "the connection from rank " + std::to_string(why->culprit) +
                             " to rank " + std::to_string(1 - why->culprit);
    CHECK(std::strstr(why->detail, name.c_str()) != nullptr);
    CHECK(why->address[0] != 0);
  }
  return found;
}

}  // namespace

TEST_CASE_TEMPLATE("with checksums calls give the same results as without", World,
                   checked_tcp_world, checked_shm_world) {
  for (const int size : {2, 3}) {
    ranks<World> world(size);
    world.run([size](communicator& comm) -> task<> {
      const std::size_t counts[] = {0, 1, 5, 6, 7, 1000, 1024, 9000, 40'000, 1'000'000};
      for (const std::size_t count : counts) {
        for (const auto algo : {colls::algorithm::automatic, colls::algorithm::ring,
                                colls::algorithm::recursive_doubling}) {
          std::vector<int> data = numbers(count, comm.rank());
          const colls::options opts{.algorithm = algo};
          co_await comm.all_reduce(data, colls::plus{}, opts);
          std::vector<int> right = numbers(count, 0);
          for (int& each : right) each = size * each + size * (size - 1) / 2;
          CHECK(data == right);
        }
        // Over the connections to the other ranks, and over that to itself.
        for (int distance = 0; distance < size; ++distance) {
          std::vector<int> sent = numbers(count, comm.rank());
          std::vector<int> received(count);
          const int dest = (comm.rank() + distance) % size;
          const int source = (comm.rank() + size - distance) % size;
          co_await comm.send_recv(sent, dest, received, source, 1);
          CHECK(received == numbers(count, source));
        }
      }
    });
  }
}

TEST_CASE("a bit that changes on a socket ends the communicator, and names the connection") {
  std::mt19937 random(11);
  for (const sample& tested : samples) {
    CAPTURE(std::string(tested.name));
    int found = 0;
    int flipped = 0;
    for (int trial = 0; trial < 12; ++trial) {
      ranks<checked_tcp_world> world(2);
      world.run([](communicator& comm) -> task<> { co_await comm.barrier(); });
      // The first bytes are a header; later ones may be anything.
      const std::size_t distance = trial < 6 ? random() % 60 : random() % (1U << random() % 21);
      noise.arm(distance, static_cast<unsigned>(random() % 8));
      std::vector<outcome> all(2);
      world.run([&](communicator& comm) -> task<> {
        co_await call(comm, tested, &all[static_cast<std::size_t>(comm.rank())]);
      });
      flipped += noise.flipped;
      noise.disarm();
      const bool seen = is_found(all);
      CHECK(seen == noise.flipped);
      found += seen;
      for (const outcome& each : all) CHECK((each.right || each.reason));
    }
    CHECK(found == flipped);
    CHECK(flipped >= 6);
  }
}

TEST_CASE("a bit that changes in shared memory ends the communicator, and names the connection") {
  std::mt19937 random(12);
  for (const sample& tested : samples) {
    CAPTURE(std::string(tested.name));
    for (int trial = 0; trial < 12; ++trial) {
      ranks<checked_shm_world> world(2);
      world.run([](communicator& comm) -> task<> { co_await comm.barrier(); });
      const shared_memory before;
      bool flipped = false;
      std::vector<outcome> all(2);
      world.run([&](communicator& comm) -> task<> {
        // Rank 0 calls first, and what it has written has not been read yet.
        if (comm.rank() == 1) flipped = before.flip_changed_bit(random);
        co_await call(comm, tested, &all[static_cast<std::size_t>(comm.rank())]);
      });
      REQUIRE(flipped);
      CHECK(is_found(all));
      CHECK(all[1].reason.has_value());
    }
  }
}

namespace {

colls::hello of_rank(int rank) {
  colls::hello mine;
  mine.purpose = colls::connection_purpose::store;
  mine.job = 7;
  mine.rank = rank;
  mine.world = 2;
  mine.checksum = true;
  return mine;
}
struct recorded_failures : colls::failure_listener {
  void rank_failed(int, const colls::reported_failure& why) override { all.push_back(why); }
  std::vector<failure> all;
};

}  // namespace

TEST_CASE("a bit that changes on a store's connection ends it, and its rank is named to all") {
  using namespace joining;
  std::mt19937 random(13);
  int at_server = 0;
  int at_client = 0;
  for (int trial = 0; trial < 60; ++trial) {
    CAPTURE(trial);
    bench at;
    colls::store_server server(at.on, of_rank(-1), colls::secret("right"));
    REQUIRE(!server.listen(loopback()));
    const auto client = [&](int rank) {
      colls::secret shared("right");
      const colls::hello mine = of_rank(rank);
      return at.run(colls::detail::dial_store_once(at.on, server.local(), mine, shared,
                                                   at.in(5 * seconds), 5 * seconds));
    };
    const auto good = client(0);
    const auto bad = client(1);
    recorded_failures good_failures;
    recorded_failures bad_failures;
    good->listen_for_failures(&good_failures);
    bad->listen_for_failures(&bad_failures);
    at.run(bad->set("key", "value"));
    const std::string value(trial % 3 == 0 ? 0 : trial % 3 == 1 ? 9 : 3000, 'v');
    at.run(good->set("other", value));
    // A request has a header, its checksums and a key of 5 bytes; the answer follows.
    const std::size_t request =
        colls::detail::store_frame::size + colls::detail::store_checksums_size + 5;
    const bool answer = trial % 2 != 0;
    const std::size_t size = answer ? request - 5 + value.size() : request;
    noise.arm((answer ? request : 0) + random() % size, static_cast<unsigned>(random() % 8));
    std::optional<std::string> got;
    std::optional<failure> failed;
    at.run(keep(bad->get("other", at.in(5 * seconds)), &got, &failed));
    REQUIRE(noise.flipped);
    REQUIRE(failed);
    CHECK(!got);
    for (int polls = 0; polls < 500 && good_failures.all.empty() && !answer; ++polls) {
      at.turn(10 * milliseconds);
    }
    REQUIRE(bad_failures.all.size() == 1);
    CHECK(bad_failures.all[0].code == errc::protocol_error);
    CHECK(contains(bad_failures.all[0].detail, "checksum"));
    CHECK(bad_failures.all[0].address[0] != 0);
    if (answer) {
      ++at_client;
      CHECK(failed->code == errc::protocol_error);
      CHECK(contains(failed->detail, "checksum"));
    } else {
      ++at_server;
      REQUIRE(good_failures.all.size() == 1);
      CHECK(good_failures.all[0].code == errc::protocol_error);
      CHECK(good_failures.all[0].culprit == 1);
      CHECK(contains(good_failures.all[0].detail, "checksum"));
    }
    // The server still serves the other client.
    at.run(good->set("still", "here"));
  }
  CHECK(at_server == 30);
  CHECK(at_client == 30);
}

TEST_CASE("ranks with different checksum settings all fail, and each failure names both settings") {
  for (const bool first : {true, false}) {
    joining::bench at;
    colls::listener acceptor;
    REQUIRE(!acceptor.listen(joining::loopback()));
    const int port = acceptor.local().port();
    std::vector<std::optional<failure>> failed(3);
    std::vector<std::optional<colls::world_info>> joined(3);
    std::vector<task<>> joins;
    for (int rank = 0; rank < 3; ++rank) {
      colls::config cfg{.rank = rank, .size = 3};
      cfg.address = "tcp://127.0.0.1:" + std::to_string(port);
      cfg.join_timeout = std::chrono::seconds(20);
      cfg.checksum = rank == 1 ? !first : first;
      if (rank == 0) cfg.store_fd = ::dup(acceptor.descriptor());
      const auto at_rank = static_cast<std::size_t>(rank);
      joins.push_back(
          joining::keep(colls::form_world(at.on, cfg), &joined[at_rank], &failed[at_rank]));
    }
    at.run_all(std::move(joins));
    for (const auto& why : failed) {
      REQUIRE(why);
      CHECK(why->code == errc::join_failed);
      CHECK(joining::contains(why->detail, "COLLS_CHECKSUM"));
      CHECK(joining::contains(why->detail, first ? "rank 0 was told to work with checksums"
                                                 : "rank 0 was told to work without checksums"));
      CHECK(joining::contains(why->detail, "rank 1"));
    }
  }
}
