// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Tests all that lies above the carriers, over simulated streams of bytes in virtual time.
#include <colls/matching/communicator_recovery.hpp>
#include <colls/transport/interprocess/peer_protocol.hpp>

#include "../../support/simulated_carrier.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

namespace {

using namespace colls;
using simulated::virtual_rank;

// Short, at the limits, eager and long.
constexpr std::size_t sizes[] = {0, 8, 4096, 100'000, 300'000};

std::byte content(int from, int to, std::size_t size, std::size_t at) {
  return static_cast<std::byte>(from * 7 + to * 13 + static_cast<int>(size % 251 + at % 253));
}

/// Every rank sends messages of every size to every other rank, and receives as many.
struct exchange {
  int* wrong;

  task<> operator()(virtual_rank& net) const {
    virtual_rank::call call(net, fingerprint());
    const basic_channel<virtual_rank> channel(net, call.record);
    const int self = channel.rank();
    for (int round = 0; round < 2; ++round) {
      for (const std::size_t size : sizes) {
        for (int step = 1; step < channel.size(); ++step) {
          const int to = (self + step) % channel.size();
          const int from = (self + channel.size() - step) % channel.size();
          std::vector<std::byte> out(size);
          std::vector<std::byte> in(size);
          for (std::size_t i = 0; i < size; ++i) out[i] = content(self, to, size, i);
          const const_bytes sent(out.data(), size);
          const mutable_bytes received(in.data(), size);
          co_await when_all(channel.send(to, sent), channel.recv(from, received));
          for (std::size_t i = 0; i < size; ++i) *wrong += in[i] != content(from, self, size, i);
        }
      }
    }
  }
};

struct outcome {
  int events = 0;
  int wrong = 0;
};

/// Runs the exchange. After `fault_at` events, `fault(world)` happens.
template <class Fault>
outcome run(simulated::world& all, int fault_at, const Fault& fault) {
  outcome seen;
  for (const auto& each : all.ranks) each->begin(exchange{&seen.wrong});
  const auto is_over = [&] {
    for (const auto& each : all.ranks) {
      if (!each->is_dead && !each->is_done()) return false;
    }
    return true;
  };
  seen.events = all.run(is_over, 60 * seconds, fault_at);
  if (!is_over()) {
    fault(all);
    seen.events += all.run(is_over, 60 * seconds);
  }
  CHECK(is_over());
  // Whatever is still on its way arrives.
  (void)all.run([] { return false; }, seconds);
  return seen;
}

void no_fault(simulated::world&) {}

}  // namespace

TEST_CASE("messages arrive as they were sent, wherever reads and writes are split") {
  for (const int size : {2, 3}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      CAPTURE(size);
      CAPTURE(seed);
      simulated::world all(size, seed, seed % 2 == 1);
      const outcome seen = run(all, INT_MAX, no_fault);
      CHECK(seen.wrong == 0);
      for (const auto& each : all.ranks) {
        CAPTURE(each->state().reason());
        CHECK_FALSE(each->state().failed());
      }
      // Two ranks have one connection, although both dial.
      CHECK(all.links.size() == static_cast<std::size_t>(size * (size - 1) / 2));
    }
  }
}

TEST_CASE("a rank that dies at any event is named by all others, or was not needed any more") {
  for (const int size : {2, 3}) {
    simulated::world whole(size, 1);
    const int events = run(whole, INT_MAX, no_fault).events;
    const int stride = std::max(1, events / 150);
    int failed = 0;
    for (int at = 1; at < events; at += stride) {
      const int victim = at / stride % size;
      CAPTURE(size);
      CAPTURE(at);
      CAPTURE(victim);
      simulated::world all(size, 1);
      const outcome seen = run(all, at, [&](simulated::world& world) { world.kill(victim); });
      CHECK(seen.wrong == 0);
      for (const auto& each : all.ranks) {
        if (each->is_dead || !each->state().failed()) continue;
        ++failed;
        CAPTURE(each->rank());
        CAPTURE(each->state().reason());
        CHECK(each->state().reason().code == errc::peer_failed);
        CHECK(each->state().reason().culprit == victim);
      }
    }
    CHECK(failed > 50);
  }
}

TEST_CASE("an agreement that begins after a goodbye does not wait until the connection ends") {
  simulated::world all(2, 1);
  (void)run(all, INT_MAX, no_fault);
  virtual_rank& self = *all.ranks[1];
  all.ranks[0]->say_goodbye();
  (void)all.run([&] { return self.connection_to(0)->received_goodbye(); }, seconds);
  REQUIRE(self.connection_to(0)->received_goodbye());
  REQUIRE_FALSE(self.connection_to(0)->has_ended());
  std::optional<recovery_decision> decision;
  self.begin([&](virtual_rank& net) -> task<> {
    communicator_recovery::waiter decided(net.matching().recovery_of(net.state()),
                                          collective::agree, quorum::majority,
                                          [](std::uint64_t) { return std::uint64_t{1}; });
    co_await end_of<communicator_recovery::waiter>{&decided};
    decision = decided.result();
  });
  (void)all.run([&] { return decision.has_value(); }, seconds);
  REQUIRE(decision.has_value());
  CHECK(decision->has_lost(0));
}

TEST_CASE("a connection that is reset at any event ends both ranks, and each names the other") {
  simulated::world whole(2, 2);
  const int events = run(whole, INT_MAX, no_fault).events;
  const int stride = std::max(1, events / 100);
  int failed = 0;
  for (int at = 1; at < events; at += stride) {
    CAPTURE(at);
    simulated::world all(2, 2);
    const outcome seen = run(all, at, [&](simulated::world& world) {
      for (const auto& each : world.links) simulated::world::reset(*each.link);
    });
    CHECK(seen.wrong == 0);
    for (const auto& each : all.ranks) {
      if (!each->state().failed()) continue;
      ++failed;
      CAPTURE(each->state().reason());
      CHECK(each->state().reason().code == errc::peer_failed);
      CHECK(each->state().reason().culprit == 1 - each->rank());
    }
  }
  CHECK(failed > 50);
}

TEST_CASE("a network that loses everything from some event on ends both ranks in time") {
  simulated::world whole(2, 3);
  const int events = run(whole, INT_MAX, no_fault).events;
  const int stride = std::max(1, events / 50);
  int failed = 0;
  for (int at = 1; at < events; at += stride) {
    CAPTURE(at);
    simulated::world all(2, 3);
    const outcome seen = run(all, at, [&](simulated::world& world) {
      world.cut(0, 1);
      world.cut(1, 0);
    });
    CHECK(seen.wrong == 0);
    for (const auto& each : all.ranks) {
      if (!each->state().failed()) continue;
      ++failed;
      CAPTURE(each->state().reason());
      const errc code = each->state().reason().code;
      CHECK((code == errc::peer_failed || code == errc::timeout));
      CHECK(each->state().reason().culprit == 1 - each->rank());
    }
  }
  CHECK(failed > 50);
}

TEST_CASE("with checksums a bit that changes on the way ends the communicator") {
  simulated::world whole(2, 4, true);
  int refused = 0;
  const int events = run(whole, INT_MAX, no_fault).events;
  const int stride = std::max(1, events / 100);
  int failed = 0;
  for (int at = 1; at < events; at += stride) {
    CAPTURE(at);
    simulated::world all(2, 4, true);
    const outcome seen = run(all, at, [&](simulated::world& world) {
      for (const auto& each : world.links) each.link->flips_a_bit = true;
    });
    CHECK(seen.wrong == 0);
    for (const auto& each : all.ranks) {
      if (!each->state().failed()) continue;
      ++failed;
      CAPTURE(each->state().reason());
      // The other rank may find the end of the connection before it has read why.
      const errc code = each->state().reason().code;
      CHECK((code == errc::protocol_error || code == errc::peer_failed));
      refused += code == errc::protocol_error;
    }
  }
  CHECK(failed > 50);
  CHECK(2 * refused >= failed);
}
