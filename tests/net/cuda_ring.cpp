// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/ipc.hpp>

#include <colls/cuda/reduce.cuh>
#include <colls/inproc.hpp>
#include <colls/threads.hpp>

#include <doctest/doctest.h>

#include "../stand_in/user.hpp"

// Sums by a ring of ranks on GPUs of their own. The stand-in is not a GPU: it shows that colls
// waits for everything that it must wait for.

namespace cuda = colls::cuda;

namespace {

using colls::errc;
using stand_in::code_of;
using stand_in::number;

void check_clean() {
  for (const std::string& each : stand_in::complaints()) FAIL(each);
  CHECK(stand_in::allocations() == 0);
  CHECK(stand_in::descriptors() == 0);
}

constexpr cuda::staging small{512, 2};

/// Rank r on device r.
stand_in::machine machine_of(int devices, std::uint64_t seed, bool processes = false) {
  return {.devices = devices,
          .seed = seed,
          .eager_percent = static_cast<int>(seed % 3 * 40),
          .streams_write = seed % 5 != 0,
          .processes = processes};
}
template <class Communicator, class Main>
colls::task<> attached(Communicator& comm, const Main& rank_main, cuda::staging how) {
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, cuda::device_for(comm), how);
  co_await rank_main(gpu);
}
template <class Main>
void run(int ranks, const stand_in::machine& what, const Main& rank_main,
         cuda::staging how = small) {
  stand_in::boot(what);
  colls::inproc::run(
      ranks, [&](colls::inproc::communicator& comm) { return attached(comm, rank_main, how); });
  check_clean();
}
template <class Main>
void run_threads(int ranks, const stand_in::machine& what, const Main& rank_main) {
  stand_in::boot(what);
  colls::threads::run(
      ranks, [&](colls::threads::communicator& comm) { return attached(comm, rank_main, small); });
  check_clean();
}

auto sum_of(int ranks) {
  return [ranks](std::size_t i) {
    number all = 0;
    for (int r = 0; r < ranks; ++r) all += stand_in::value(r, i);
    return all;
  };
}
colls::options by_ring(const stand_in::user& by) {
  colls::options how = by.on_stream();
  how.algorithm = colls::algorithm::ring;
  return how;
}
/// One sum by the ring. A group is always an `ipc_operation`, however short, unless it is staged.
colls::task<> ring_sum(auto& gpu, std::size_t n, bool is_staged = false) {
  stand_in::user by(gpu.net().device());
  auto data = by.numbers(n, gpu.rank());
  const auto there = data.span();
  auto call = gpu.all_reduce(colls::group{there}, by_ring(by));
  co_await call;
  stand_in::expect("sum", data.data(), n, sum_of(gpu.size()));
  CHECK((call.copied_bytes() == 0) == !is_staged);
}
/// The number of kernels of a sum: each rank folds all chunks but one, in pieces.
int kernels(int ranks, std::size_t n, std::size_t piece = 64) {
  const std::size_t longest =
      (n + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
  return ranks * (ranks - 1) * static_cast<int>((longest + piece - 1) / piece);
}

TEST_CASE("sums by a ring, with many seeds of the stand-in") {
  std::uint64_t seed = 0;
  for (const bool processes : {false, true}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (const std::size_t n : {0u, 1u, 13u, 1001u}) {
        for (int round = 0; round < 3; ++round) {
          ++seed;
          run(ranks, machine_of(ranks, seed, processes), [n, ranks](auto& gpu) -> colls::task<> {
            co_await ring_sum(gpu, n);
            co_await gpu.barrier();
            if (n > 1000) CHECK(stand_in::calls("launch") == kernels(ranks, n));
            co_await gpu.barrier();
            co_await ring_sum(gpu, n);
          });
        }
        run_threads(ranks, machine_of(ranks, seed, processes),
                    [n](auto& gpu) { return ring_sum(gpu, n); });
      }
    }
  }
}

constexpr std::size_t too_long = 70'001;  // for peer buffers

TEST_CASE("sums of long vectors by a ring, in place and out of place") {
  for (const int ranks : {2, 3, 8}) {
    const auto both = [ranks](auto& gpu) -> colls::task<> {
      stand_in::user by(gpu.net().device());
      auto data = by.numbers(too_long, gpu.rank());
      auto out = by.used(too_long);
      co_await gpu.all_reduce(data.span(), out.span(), by_ring(by));
      stand_in::expect("out of place", out.data(), too_long, sum_of(ranks));
      stand_in::expect("out of place, in", data.data(), too_long,
                       [&](std::size_t i) { return stand_in::value(gpu.rank(), i); });
      co_await gpu.all_reduce(data.span(), by_ring(by));
      stand_in::expect("in place", data.data(), too_long, sum_of(ranks));
      co_await gpu.barrier();
      CHECK(stand_in::calls("launch") == 2 * kernels(ranks, too_long, 2048));
      co_await gpu.barrier();
      // In place on one rank, out of place on the others.
      auto more = by.numbers(too_long, gpu.rank());
      const auto to = gpu.rank() == 0 ? more.span() : out.span();
      co_await gpu.all_reduce(more.span(), to, by_ring(by));
      stand_in::expect("mixed", to.data(), too_long, sum_of(ranks));
      co_await gpu.barrier();
    };
    run(ranks, machine_of(ranks, 7, ranks == 3), both, {2048 * sizeof(number), 3});
  }
}

TEST_CASE("averages are finished once, and halves are rounded again only where they may be") {
  constexpr int ranks = 3;
  run(ranks, machine_of(ranks, 4), [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().device());
    const auto at = [](int rank) {
      return [rank](std::size_t i) { return static_cast<double>(stand_in::value(rank, i) % 64); };
    };
    auto data = by.filled<double>(100, at(gpu.rank()));
    const auto one = data.span();
    co_await gpu.all_reduce(colls::group{one}, colls::average(), by_ring(by));
    stand_in::expect("average", data.data(), 100,
                     [at](std::size_t i) { return (at(0)(i) + at(1)(i) + at(2)(i)) / 3; });
    co_await gpu.barrier();
    CHECK(stand_in::calls("launch") == kernels(ranks, 100));

    // 256 + 1 + 1 is 256 if each sum is rounded. A sum that is rounded once does not use the ring.
    const auto half = [&](std::size_t) { return colls::bfloat16(gpu.rank() == 1 ? 256.f : 1.f); };
    for (const colls::wire travels : {colls::wire::accumulate, colls::wire::storage}) {
      co_await gpu.barrier();
      const int before = stand_in::calls("launch");
      co_await gpu.barrier();
      auto halves = by.filled<colls::bfloat16>(1, half);
      const auto other = halves.span();
      colls::options how = by_ring(by);
      how.wire = travels;
      co_await gpu.all_reduce(colls::group{other}, colls::plus(), how);
      const bool rounds_once = travels == colls::wire::accumulate;
      stand_in::expect("halves", halves.data(), 1, [rounds_once](std::size_t) {
        return colls::bfloat16(rounds_once ? 258.f : 256.f);
      });
      co_await gpu.barrier();
      CHECK(stand_in::calls("launch") - before == (rounds_once ? 0 : 2));  // staged; by the ring
      co_await gpu.barrier();
    }
  });
}

TEST_CASE("ranks that share a GPU are staged by a ring; a sum in rank order uses no ipc ring") {
  run(4, machine_of(3, 4), [](auto& gpu) -> colls::task<> {
    co_await ring_sum(gpu, 300, true);
    co_await gpu.barrier();
    CHECK(stand_in::calls("launch") == 0);
  });
  run(3, machine_of(3, 4), [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().device());
    auto data = by.filled<stand_in::affine>(30, [&](std::size_t i) {
      return stand_in::affine{i + 2, static_cast<std::uint64_t>(gpu.rank())};
    });
    const auto there = data.span();
    const auto in_order = [&] {
      return gpu.all_reduce(colls::group{there}, stand_in::compose(), by_ring(by));
    };
    const errc code = co_await code_of(in_order);
    CHECK(code == errc::not_applicable);
    auto sums = by.numbers(300, gpu.rank());
    const auto other = sums.span();
    colls::options direct = by.on_stream();
    direct.algorithm = colls::algorithm::direct;
    co_await gpu.all_reduce(colls::group{other}, direct);
    stand_in::expect("sum", sums.data(), 300, sum_of(3));
    co_await gpu.barrier();
    CHECK(stand_in::calls("launch") == 3);
  });
}

/// The number of kernels of a sum that does not pin the ring.
int kernels_of(int ranks, std::size_t bytes, stand_in::machine what, colls::options how = {}) {
  const std::size_t n = bytes / sizeof(number);
  what.devices = ranks;
  run(ranks, what,
      [=](auto& gpu) -> colls::task<> {
        stand_in::user by(gpu.net().device());
        auto data = by.numbers(n, gpu.rank());
        colls::options with = how;
        with.stream = by.on_stream().stream;
        co_await gpu.all_reduce(data.span(), with);
        stand_in::expect("sum", data.data(), n, sum_of(ranks));
        co_await gpu.barrier();
      },
      {1 << 20, 2});
  return stand_in::calls("launch");
}

TEST_CASE("long sums use the ring by default where the links between nodes differ") {
  constexpr std::size_t enough = cuda::min_ring_bytes;
  for (const bool processes : {false, true}) {
    CHECK(kernels_of(4, enough, {.processes = processes, .nodes = 2}) == 4 * 3);
    CHECK(kernels_of(5, enough, {.processes = processes, .nodes = 2}) == 5 * 4);
  }
  CHECK(kernels_of(4, enough - 8, {.nodes = 2}) == 4);
  CHECK(kernels_of(4, enough, {.nodes = 1}) == 4);
  CHECK(kernels_of(4, enough, {.nodes = 2, .equal_links = true}) == 4);
  CHECK(kernels_of(3, enough, {.nodes = 2}) == 3);
  CHECK(kernels_of(4, enough, {.nodes = 4}) == 4);
  CHECK(kernels_of(4, enough, {.nodes = 2}, {.order = colls::order::rank}) == 4);
  CHECK(kernels_of(4, enough, {.nodes = 2}, {.algorithm = colls::algorithm::direct}) == 4);
}

TEST_CASE("ranks of a node are neighbours in the ring; all ranks have to agree") {
  std::vector<cuda::peer_info> infos(5);
  for (std::size_t i = 0; i < infos.size(); ++i) {
    infos[i].gpu.words[0] = static_cast<std::byte>(i);
    infos[i].node = i % 2 == 0 ? 7 : 3;
    infos[i].links_differ = i == 4 ? 1 : 0;
    infos[i].ring = cuda::ring_use::between_nodes;
  }
  CHECK(cuda::ring_order(infos) == std::vector<int>{1, 3, 0, 2, 4});
  CHECK(cuda::uses_ring(infos));
  infos[2].ring = cuda::ring_use::always;
  CHECK(cuda::uses_ring(infos));
  infos[0].ring = cuda::ring_use::never;
  CHECK_FALSE(cuda::uses_ring(infos));
  for (cuda::peer_info& each : infos) {
    each.node = -1;
    each.ring = cuda::ring_use::between_nodes;
  }
  CHECK_FALSE(cuda::uses_ring(infos));
  CHECK(cuda::ring_order(infos) == std::vector<int>{0, 1, 2, 3, 4});
  for (cuda::peer_info& each : infos) each.ring = cuda::ring_use::always;
  CHECK(cuda::uses_ring(infos));
  CHECK_FALSE(cuda::uses_ring({infos[0]}));
}

TEST_CASE("a rank describes its links; what CUDA does not report is left out") {
  stand_in::boot({.devices = 3, .nodes = 2});
  const auto info = [](int device) { return cuda::ipc_peers(device, 0, 3).self_info(); };
  CHECK(info(0).links_differ == 1);
  CHECK(info(1).links_differ == 0);
  CHECK(info(1).node == 1);
  stand_in::fail("link_rank", 801);
  CHECK(info(0).links_differ == 0);
  stand_in::fail("host_node", 801);
  CHECK(info(1).node == -1);
}

TEST_CASE("many rings at a time, awaited in any order") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto many = [seed](auto& gpu) -> colls::task<> {
      stand_in::user by(gpu.net().device());
      std::deque<cuda::device_buffer<number>> buffers;
      std::vector<colls::operation<>> calls;
      for (std::size_t i = 0; i < 20; ++i) {
        buffers.push_back(by.numbers(10 + i * 40, gpu.rank()));
        const auto there = buffers.back().span();
        calls.push_back(gpu.all_reduce(colls::group{there}, by_ring(by)));
      }
      for (std::size_t i = 0; i < 20; ++i) co_await calls[(i * 7 + seed) % 20];
      for (const auto& each : buffers) {
        stand_in::expect("one of many", each.data(), each.size(), sum_of(3));
      }
      co_await gpu.barrier();
    };
    run(3, machine_of(3, seed, seed % 2 == 0), many);
    run_threads(3, machine_of(3, seed, seed % 2 == 0), many);
  }
}

TEST_CASE("where memory cannot be shared, a ring is staged") {
  run(3, {.devices = 3, .processes = true, .ipc = false}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().device());
    auto data = by.numbers(500, gpu.rank());
    const auto there = data.span();
    auto call = gpu.all_reduce(colls::group{there}, by_ring(by));
    co_await call;
    stand_in::expect("sum", data.data(), 500, sum_of(3));
    CHECK(call.copied_bytes() != 0);
    CHECK(stand_in::calls("launch") == 0);
  });
}

TEST_CASE("a failure on the device ends a ring on all ranks, which touch no buffer afterwards") {
  int seen = 0;
  for (const char* const function : {"launch", "write", "copy"}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      stand_in::boot(
          {.devices = 3, .seed = seed, .eager_percent = static_cast<int>(seed % 2 * 30)});
      std::vector<errc> codes(3);
      try {
        colls::inproc::run(3, [&](colls::inproc::communicator& comm) -> colls::task<> {
          auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, comm.rank(), small);
          stand_in::user by(comm.rank());
          auto data = by.numbers(1000, comm.rank());
          const auto there = data.span();
          if (comm.rank() == 1) stand_in::fail(function, 700, static_cast<int>(seed) + 3);
          const auto reducing = [&] { return gpu.all_reduce(colls::group{there}, by_ring(by)); };
          codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(reducing);
        });
      } catch (const colls::error&) {
      }
      for (const errc each : codes) {
        CHECK((each == errc::device_failed || each == errc{}));
        seen += each == errc::device_failed ? 1 : 0;
      }
      check_clean();
    }
  }
  CHECK(seen >= 150);
}

TEST_CASE("ranks that wait for a rank that does not call end by their deadline") {
  run(3, machine_of(3, 2), [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().device());
    auto data = by.numbers(200, gpu.rank());
    const auto there = data.span();
    colls::options soon = by_ring(by);
    soon.timeout = std::chrono::milliseconds(100);
    if (gpu.rank() == 2) co_return;
    const auto calling = [&] { return gpu.all_reduce(colls::group{there}, soon); };
    const errc code = co_await code_of(calling);
    CHECK((code == errc::timeout || code == errc::closed));
  });
}

/// One of the ranks drops a ring after some polls, and frees its buffer at once.
template <class Communicator>
colls::task<> drop_one(Communicator& comm, std::uint64_t seed) {
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, cuda::device_for(comm), small);
  stand_in::user by(gpu.net().device());
  auto data = by.numbers(1000, comm.rank());
  const auto there = data.span();
  if (comm.rank() == static_cast<int>(seed % 3)) {
    auto dropped = gpu.all_reduce(colls::group{there}, by_ring(by));
    for (std::uint64_t polls = 0; polls < seed / 2 % 40; ++polls) (void)dropped.done();
    co_await comm.barrier();
    for (std::uint64_t polls = 0; polls < seed / 24 % 12; ++polls) (void)dropped.done();
  } else {
    auto call = gpu.all_reduce(colls::group{there}, by_ring(by));
    co_await comm.barrier();
    const auto waiting = [&]() -> colls::task<> { co_await call; };
    const errc code = co_await code_of(waiting);
    INFO(static_cast<int>(code));
    CHECK((code == errc{} || code == errc::cancelled || code == errc::closed));
    if (code == errc{}) stand_in::expect("sum", data.data(), 1000, sum_of(3));
  }
}

TEST_CASE("a dropped ring waits until no peer accesses its buffers") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    stand_in::boot({.devices = 3, .seed = seed, .eager_percent = static_cast<int>(seed % 2 * 40)});
    colls::inproc::run(3, [&](colls::inproc::communicator& comm) { return drop_one(comm, seed); });
    check_clean();
  }
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    stand_in::boot({.devices = 3, .seed = seed, .eager_percent = 0, .processes = seed % 2 == 0});
    colls::threads::run(3,
                        [&](colls::threads::communicator& comm) { return drop_one(comm, seed); });
    check_clean();
  }
}

}  // namespace
