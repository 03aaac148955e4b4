// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/ipc.hpp>

#include <colls/inproc.hpp>
#include <colls/threads.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "../stand_in/user.hpp"

// Ranks on GPUs of their own, whose kernels write into each other's peer buffers. The stand-in is
// not a GPU: it runs one kernel at a time, so a kernel times out until what it awaits has been
// done.

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

/// Rank r on device r.
stand_in::machine machine_of(int devices, std::uint64_t seed, bool processes = false) {
  return {.devices = devices,
          .seed = seed,
          .eager_percent = static_cast<int>(seed % 3 * 40),
          .streams_write = seed % 5 != 0,
          .processes = processes};
}
template <class Communicator, class Main>
colls::task<> attached(Communicator& comm, const Main& rank_main) {
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, cuda::device_for(comm), {512, 2});
  co_await rank_main(gpu);
}
template <class Main>
void run(int ranks, const stand_in::machine& what, const Main& rank_main) {
  stand_in::boot(what);
  colls::inproc::run(ranks,
                     [&](colls::inproc::communicator& comm) { return attached(comm, rank_main); });
  check_clean();
}
template <class Main>
void run_threads(int ranks, const stand_in::machine& what, const Main& rank_main) {
  stand_in::boot(what);
  colls::threads::run(
      ranks, [&](colls::threads::communicator& comm) { return attached(comm, rank_main); });
  check_clean();
}

auto sum_of(int ranks, std::size_t shift = 0) {
  return [ranks, shift](std::size_t i) {
    number all = 0;
    for (int r = 0; r < ranks; ++r) all += stand_in::value(r, i + shift);
    return all;
  };
}
/// One sum in place; nothing else of the device is used.
colls::task<> sum(auto& gpu, std::size_t n) {
  stand_in::user by(gpu.net().device());
  auto data = by.numbers(n, gpu.rank());
  auto call = gpu.all_reduce(data.span(), by.on_stream());
  co_await call;
  stand_in::expect("sum", data.data(), n, sum_of(gpu.size()));
  CHECK(call.copied_bytes() == 0);
}
/// The length of a vector that takes two shots, and of one that has to be an `ipc_operation`.
constexpr std::size_t takes_two = 30'000;
constexpr std::size_t too_long = 200'000;

TEST_CASE("sums of short vectors, with many seeds of the stand-in") {
  std::uint64_t seed = 0;
  for (const bool processes : {false, true}) {
    for (const int ranks : {2, 3, 5, 8}) {
      for (const std::size_t n : {std::size_t{1}, std::size_t{700}, takes_two}) {
        ++seed;
        run(ranks, machine_of(ranks, seed, processes), [n, ranks](auto& gpu) -> colls::task<> {
          for (int i = 0; i < 10; ++i) co_await sum(gpu, n);
          CHECK(stand_in::calls("clear") == ranks);  // each rank clears its flags once
          CHECK(stand_in::calls("launch") >= 10 * ranks);
          co_await gpu.barrier();
        });
        run_threads(ranks, machine_of(ranks, seed, processes), [n](auto& gpu) -> colls::task<> {
          for (int i = 0; i < 10; ++i) co_await sum(gpu, n);
        });
      }
    }
  }
}

TEST_CASE("a rank may leave as soon as it has its sum") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const auto once = [](auto& gpu) { return sum(gpu, 600); };
    run(3, machine_of(3, seed), once);
    run_threads(3, machine_of(3, seed, seed % 2 == 0), once);
  }
}

/// A sum that ends by its deadline, and with it the communicator.
colls::task<> leave_by_deadline(auto& comm) {
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 0);
  co_await sum(gpu, 10);
  stand_in::user by(0);
  auto data = by.numbers(200, 0);
  colls::options soon = by.on_stream();
  soon.timeout = std::chrono::milliseconds(100);
  const auto calling = [&] { return gpu.all_reduce(data.span(), soon); };
  const errc code = co_await code_of(calling);
  CHECK(code == errc::timeout);
}

TEST_CASE("long vectors and ranks that share a GPU have no peer buffers") {
  for (const bool share : {false, true}) {
    run(3, machine_of(share ? 2 : 3, 4), [share](auto& gpu) -> colls::task<> {
      const int before = stand_in::calls("launch");
      co_await sum(gpu, share ? 100 : too_long);
      co_await gpu.barrier();
      CHECK(stand_in::calls("launch") == before + (share ? 2 : 3));
      CHECK(stand_in::calls("allocate") == 3);
      CHECK(stand_in::calls("make_physical") == 0);
    });
  }
}

TEST_CASE("where peer buffers cannot be allocated or mapped, all ranks use an ipc_operation") {
  struct fault {
    const char* function;
    bool descriptors;
  };
  const fault faults[] = {{"allocate", false},
                          {"share", false},
                          {"open", false},
                          {"enable_peer_access", false},
                          {"enable_peer_access", true},
                          {"make_physical", true},
                          {"import_physical", true}};
  for (const bool processes : {false, true}) {
    for (const fault& each : faults) {
      stand_in::machine what = machine_of(2, 4, processes);
      what.descriptors = each.descriptors;
      run(2, what, [function = each.function](auto& gpu) -> colls::task<> {
        stand_in::user by(gpu.net().device());
        auto data = by.numbers(500, gpu.rank());
        co_await gpu.barrier();
        if (gpu.rank() == 0) stand_in::fail(function, 2);
        co_await gpu.barrier();
        auto call = gpu.all_reduce(data.span(), by.on_stream());
        co_await call;
        stand_in::expect("sum", data.data(), 500, sum_of(2));
        co_await gpu.barrier();
        if (gpu.rank() == 0) stand_in::fail(function, 0, 1000);
        for (int i = 0; i < 3; ++i) {
          auto again = by.numbers(500, gpu.rank());
          co_await gpu.all_reduce(again.span(), by.on_stream());
          stand_in::expect("sum", again.data(), 500, sum_of(2));
        }
        co_await gpu.barrier();
      });
    }
  }
}

TEST_CASE("many calls at a time, awaited in any order") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto many = [seed](auto& gpu) -> colls::task<> {
      stand_in::user by(gpu.net().device());
      stand_in::user other(gpu.net().device());
      std::deque<cuda::device_buffer<number>> buffers;
      std::vector<colls::operation<>> calls;
      for (std::size_t i = 0; i < 40; ++i) {
        stand_in::user& one = i % 2 == 0 ? by : other;
        buffers.push_back(one.numbers(10 + i % 7 * 600, gpu.rank()));
        calls.push_back(gpu.all_reduce(buffers.back().span(), one.on_stream()));
      }
      for (std::size_t i = 0; i < 40; ++i) co_await calls[(i * 7 + seed) % 40];
      for (const auto& each : buffers) {
        stand_in::expect("one of many", each.data(), each.size(), sum_of(3));
      }
      co_await gpu.barrier();
    };
    run(3, machine_of(3, seed, seed % 2 == 0), many);
    run_threads(3, machine_of(3, seed, seed % 2 == 0), many);
  }
}

TEST_CASE("a rank that is far ahead overwrites nothing that its peers have not read") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    stand_in::boot(machine_of(3, seed));
    colls::inproc::run(3, [&](colls::inproc::communicator& comm) -> colls::task<> {
      auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, comm.rank());
      if (seed % 2 == 0) co_await sum(gpu, 10);
      stand_in::user by(comm.rank());
      std::deque<cuda::device_buffer<number>> buffers;
      std::vector<colls::operation<>> calls;
      for (std::size_t i = 0; i < 20; ++i) buffers.push_back(by.numbers(10 + i, comm.rank()));
      const auto call_all = [&] {
        for (const auto& each : buffers) {
          calls.push_back(gpu.all_reduce(each.span(), by.on_stream()));
          for (int polls = 0; polls < 10; ++polls) (void)calls.back().done();
        }
      };
      if (comm.rank() == 0) call_all();
      co_await comm.barrier();
      if (comm.rank() == 1) call_all();
      co_await comm.barrier();
      // One after the other, because the first may still set up the peer group.
      for (const auto& each : buffers) {
        if (comm.rank() == 2) co_await gpu.all_reduce(each.span(), by.on_stream());
      }
      for (auto& each : calls) co_await each;
      for (const auto& each : buffers) {
        stand_in::expect("one of many", each.data(), each.size(), sum_of(3));
      }
      co_await comm.barrier();
    });
    check_clean();
  }
}

TEST_CASE("a call does not wait for the stream of another call") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run(2, machine_of(2, seed, seed % 2 == 0),
        [](auto& gpu) { return stand_in::calls_that_streams_wait_for(gpu, 5'000); });
  }
}

TEST_CASE("splits have peer groups of their own, which end with them") {
  run(4, machine_of(4, 3, true), [](auto& gpu) -> colls::task<> {
    co_await sum(gpu, 300);
    const int before = stand_in::calls("release_pinned");
    for (int i = 0; i < 3; ++i) {
      auto half = co_await gpu.split(gpu.rank() % 2);
      stand_in::user by(gpu.net().device());
      auto data = by.numbers(300, gpu.rank());
      co_await half.all_reduce(data.span(), by.on_stream());
      const int first = gpu.rank() % 2;
      stand_in::expect("half", data.data(), 300, [first](std::size_t at) {
        return stand_in::value(first, at) + stand_in::value(first + 2, at);
      });
      co_await half.close();
      // The buffers of a group that has ended are kept for the next one: freeing them could wait
      // for a stream that waits for this call.
      bool open = false;
      stand_in::user held_up(gpu.net().device());
      held_up.hold(open);
      co_await sum(gpu, 300);
      open = true;
    }
    co_await gpu.barrier();
    CHECK(stand_in::calls("make_physical") == 4 * 2);
    CHECK(stand_in::calls("allocate_pinned") > 0);
    CHECK(stand_in::calls("unmap") == 0);
    CHECK(stand_in::calls("release_pinned") == before);
    CHECK(stand_in::calls("open") == 0);
    co_await gpu.barrier();
  });
}

TEST_CASE("peer buffers of ranks without descriptors are shared by handles") {
  for (const int without : {0, 1, 2}) {
    stand_in::machine what = machine_of(3, 4, true);
    what.descriptors = without != 2;
    run(3, what, [without](auto& gpu) -> colls::task<> {
      if (gpu.rank() == without) stand_in::fail("can_export", 801);
      for (int i = 0; i < 5; ++i) co_await sum(gpu, 300);
      co_await gpu.barrier();
      CHECK(stand_in::calls("open") == (without == 2 ? 6 : 2));
      CHECK(stand_in::calls("launch") >= 5 * 3);
    });
  }
}

TEST_CASE("peer buffers that a rank may still write are not reused") {
  for (const bool descriptors : {true, false}) {
    stand_in::machine what = machine_of(2, 6, true);
    what.descriptors = descriptors;
    stand_in::boot(what);
    std::atomic<bool> peer_left_failure{false};
    bool open = false;
    colls::threads::run(2, [&](colls::threads::communicator& comm) -> colls::task<> {
      if (comm.rank() == 0) {
        co_await leave_by_deadline(comm);
        const auto guard = stand_in::lock();
        open = true;
        peer_left_failure = true;
        co_return;
      }
      auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 1);
      co_await sum(gpu, 10);
      stand_in::user by(1);
      auto data = by.numbers(200, 1);
      by.hold(open);
      auto call = gpu.all_reduce(data.span(), by.on_stream());
      while (!peer_left_failure) std::this_thread::yield();
      const auto waiting = [&]() -> colls::task<> { co_await call; };
      const errc code = co_await code_of(waiting);
      CHECK((code == errc::timeout || code == errc{}));
    });
    for (const std::string& each : stand_in::complaints()) FAIL(each);
    // Memory with a descriptor is freed: the other process keeps its mapping. Other memory is left.
    CHECK(stand_in::allocations() == (descriptors ? 0 : 2));
  }
}

TEST_CASE("calls that differ are a mismatch on all ranks") {
  for (const bool made : {false, true}) {
    for (const bool other_collective : {false, true}) {
      stand_in::boot(machine_of(2, 3));
      std::vector<errc> codes(2);
      colls::inproc::run(2, [&](colls::inproc::communicator& comm) -> colls::task<> {
        auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, comm.rank());
        if (made) co_await sum(gpu, 10);
        stand_in::user by(comm.rank());
        auto data = by.numbers(200, comm.rank());
        const auto calling = [&] {
          if (comm.rank() == 1 && other_collective) {
            return gpu.broadcast(data.span(), 0, by.on_stream());
          }
          return gpu.all_reduce(data.span().subspan(0, comm.rank() == 0 ? 200 : 199),
                                by.on_stream());
        };
        codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(calling);
      });
      CHECK(codes == std::vector<errc>{errc::mismatch, errc::mismatch});
      check_clean();
    }
  }
}

TEST_CASE("ranks that wait for a rank that does not call end by their deadline") {
  for (const bool made : {false, true}) {
    run(3, machine_of(3, 2), [made](auto& gpu) -> colls::task<> {
      if (made) co_await sum(gpu, 10);
      stand_in::user by(gpu.net().device());
      auto data = by.numbers(200, gpu.rank());
      colls::options soon = by.on_stream();
      soon.timeout = std::chrono::milliseconds(100);
      if (gpu.rank() == 2) co_return;
      const auto calling = [&] { return gpu.all_reduce(data.span(), soon); };
      const errc code = co_await code_of(calling);
      CHECK((code == errc::timeout || code == errc::closed));
    });
  }
}

TEST_CASE("a failure on the device ends the call on all ranks, which touch no buffer afterwards") {
  int seen = 0;
  for (const char* const function : {"launch", "write", "record", "wait", "count_processors"}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      stand_in::boot(machine_of(3, seed));
      std::vector<errc> codes(3);
      try {
        colls::inproc::run(3, [&](colls::inproc::communicator& comm) -> colls::task<> {
          auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, comm.rank());
          if (seed % 2 == 0) co_await sum(gpu, 10);
          stand_in::user by(comm.rank());
          auto data = by.numbers(1000, comm.rank());
          if (comm.rank() == 1) stand_in::fail(function, 700, static_cast<int>(seed % 3) + 1);
          const auto reducing = [&] { return gpu.all_reduce(data.span(), by.on_stream()); };
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
  CHECK(seen >= 100);
}

/// One of the ranks drops a call after some polls, and leaves.
template <class Communicator>
colls::task<> drop_one(Communicator& comm, std::uint64_t seed) {
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, cuda::device_for(comm));
  if (seed % 5 != 0) co_await sum(gpu, 10);
  stand_in::user by(gpu.net().device());
  auto data = by.numbers(1000, comm.rank());
  if (comm.rank() == static_cast<int>(seed % 3)) {
    auto dropped = gpu.all_reduce(data.span(), by.on_stream());
    for (std::uint64_t polls = 0; polls < seed / 2 % 12; ++polls) (void)dropped.done();
    co_await comm.barrier();
    for (std::uint64_t polls = 0; polls < seed / 24 % 12; ++polls) (void)dropped.done();
  } else {
    auto call = gpu.all_reduce(data.span(), by.on_stream());
    co_await comm.barrier();
    const auto waiting = [&]() -> colls::task<> { co_await call; };
    const errc code = co_await code_of(waiting);
    INFO(static_cast<int>(code));
    CHECK((code == errc{} || code == errc::cancelled || code == errc::closed));
    if (code == errc{}) stand_in::expect("sum", data.data(), 1000, sum_of(3));
  }
}

TEST_CASE("a rank that drops a call and leaves waits until no peer writes its buffers") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    stand_in::boot({.devices = 3, .seed = seed, .eager_percent = 0});
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
