// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/staged.hpp>

#include <colls/inproc.hpp>

#include <doctest/doctest.h>

#include "../stand_in/user.hpp"
#include "../support/socketpair_world.hpp"

// Calls on device memory between ranks of one thread. The stand-in is not a GPU: it shows that
// colls waits for everything that it must wait for.

namespace cuda = colls::cuda;

namespace {

using colls::errc;
using stand_in::code_of;
using host_communicator = colls::inproc::communicator;

/// Runs `rank_main(gpu)` on every rank, with small pieces.
template <class Main>
void run(int ranks, stand_in::machine what, cuda::staging how, const Main& rank_main) {
  stand_in::boot(what);
  colls::inproc::run(ranks, [&](host_communicator& comm) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::staged>(comm, 0, how);
    co_await rank_main(gpu);
  });
  for (const std::string& each : stand_in::complaints()) FAIL(each);
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("every collective, with many seeds of the stand-in") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::size_t n : {0u, 1u, 13u, 700u}) {
      for (const int slots : {1, 3}) {
        for (int round = 0; round < 3; ++round) {
          ++seed;
          const stand_in::machine what{.seed = seed,
                                       .eager_percent = static_cast<int>(seed % 3 * 40),
                                       .streams_write = seed % 5 != 0};
          const auto all = [n](auto& gpu) { return stand_in::every_collective(gpu, n); };
          run(ranks, what, {512, slots}, all);
        }
      }
    }
  }
}

TEST_CASE("device memory over a transport of the user's own") {
  using communicator = colls::communicator<socketpair_world::transport>;
  stand_in::boot({.seed = 3});
  {
    socketpair_world world(3);
    std::vector<communicator> comms;
    for (int rank = 0; rank < 3; ++rank) comms.push_back(world.communicator_of(rank));
    const auto rank_main = [](communicator& comm) -> colls::task<> {
      auto gpu = co_await cuda::attach<cuda::staged>(comm, 0, {512, 3});
      co_await stand_in::every_collective(gpu, 700);
    };
    std::vector<colls::task<>> mains;
    for (communicator& comm : comms) mains.push_back(rank_main(comm));
    colls::sync_wait(world, colls::when_all(std::move(mains)));
  }
  for (const std::string& each : stand_in::complaints()) FAIL(each);
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("two concurrent calls, awaited in reverse order") {
  run(2, {}, {1024, 4}, [](auto& gpu) -> colls::task<> {
    stand_in::user by;
    auto one = by.numbers(10'000, gpu.rank());
    auto other = by.numbers(10'000, gpu.rank());
    auto first = gpu.all_reduce(one.span(), by.on_stream());
    auto second = gpu.all_reduce(other.span(), by.on_stream());
    co_await second;
    co_await first;
    const auto sum = [](std::size_t i) { return stand_in::value(0, i) + stand_in::value(1, i); };
    stand_in::expect("first", one.data(), 10'000, sum);
    stand_in::expect("second", other.data(), 10'000, sum);
  });
}

TEST_CASE("a group too long for one piece waits for its caller's stream") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    run(2, {.seed = seed}, {16'384, 2}, [](auto& gpu) -> colls::task<> {
      stand_in::user by;
      auto first = by.numbers(10'000, gpu.rank());
      auto second = by.numbers(5'000, gpu.rank());
      const auto one = first.span();
      const auto other = second.span();
      co_await gpu.all_reduce(colls::group{one, other}, colls::plus(), by.on_stream());
      const auto sum = [](std::size_t i) { return stand_in::value(0, i) + stand_in::value(1, i); };
      stand_in::expect("first", first.data(), 10'000, sum);
      stand_in::expect("second", second.data(), 5'000, sum);
    });
  }
}

TEST_CASE("a call does not wait for the stream of another call") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const stand_in::machine what{.seed = seed, .eager_percent = static_cast<int>(seed % 3 * 40)};
    run(2, what, {1024, 2},
        [](auto& gpu) { return stand_in::calls_that_streams_wait_for(gpu, 5'000); });
  }
}

TEST_CASE("in steady state no device memory and no pinned memory is allocated") {
  run(2, {}, {1024, 2}, [](auto& gpu) -> colls::task<> {
    stand_in::user by;
    auto data = by.numbers(5'000, gpu.rank());
    co_await gpu.all_reduce(data.span(), by.on_stream());
    co_await gpu.barrier();
    const std::size_t before = stand_in::allocations();
    for (int i = 0; i < 20; ++i) co_await gpu.all_reduce(data.span(), by.on_stream());
    CHECK(stand_in::allocations() == before);
    co_await gpu.barrier();
  });
}

TEST_CASE("buffers outside the device's memory are refused, and the communicator stays usable") {
  run(2, {.devices = 2}, {1024, 2}, [](auto& gpu) -> colls::task<> {
    using stand_in::number;
    stand_in::user by;
    auto good = by.numbers(100, gpu.rank());
    std::vector<number> host(100);
    cuda::pinned_buffer<number> pinned(100);
    number* freed = nullptr;
    {
      const cuda::device_buffer<number> gone(100);
      freed = gone.data();
    }
    cuda::device_buffer<number> elsewhere;
    {
      const cuda::on_device other(1);
      elsewhere = cuda::device_buffer<number>(100);
    }
    const int copies = stand_in::calls("copy");
    const auto reduces = [&](number* data, std::size_t count) {
      return [&gpu, data, count] { return gpu.all_reduce(colls::device_span(data, count)); };
    };
    const errc of_host = co_await code_of(reduces(host.data(), 100));
    const errc of_pinned = co_await code_of(reduces(pinned.data(), 100));
    const errc of_freed = co_await code_of(reduces(freed, 100));
    const errc of_other = co_await code_of(reduces(elsewhere.data(), 100));
    const errc of_long = co_await code_of(reduces(good.data(), 101));
    const errc of_wrong = co_await code_of(reduces(good.data(), SIZE_MAX));
    for (const errc each : {of_host, of_pinned, of_freed, of_other, of_long, of_wrong}) {
      CHECK(each == errc::invalid_argument);
    }
    const auto out = [&] {
      return gpu.all_reduce(good.span(), colls::device_span(host.data(), 100));
    };
    const errc of_out = co_await code_of(out);
    CHECK(of_out == errc::invalid_argument);
    const auto grouped = [&] {
      const auto one = good.span();
      const colls::device_span two(host.data(), 100);
      return gpu.all_reduce(colls::group{one, two});
    };
    const errc of_group = co_await code_of(grouped);
    CHECK(of_group == errc::invalid_argument);
    if (gpu.rank() == 0) CHECK(stand_in::calls("copy") == copies);
    const errc of_good = co_await code_of(reduces(good.data(), 100));
    CHECK(of_good == errc{});
  });
}

TEST_CASE("invalid arguments are refused on all ranks") {
  run(3, {}, {1024, 2}, [](auto& gpu) { return stand_in::every_refusal(gpu); });
}

TEST_CASE("allocate returns zeroed memory of the communicator's device") {
  stand_in::boot({.devices = 2, .eager_percent = 0});
  colls::inproc::run(2, [](host_communicator& comm) -> colls::task<> {
    using stand_in::number;
    auto gpu = co_await cuda::attach<cuda::staged>(comm, 1);
    auto data = gpu.allocate<number>(1000);
    auto none = gpu.allocate<number>(0);
    CHECK(none.size() == 0);
    cuda::api::location found;
    CHECK(cuda::api::locate(data.data() + 999, found) == cuda::api::success);
    CHECK(found.type == cuda::api::memory_type::device);
    CHECK(found.device == 1);
    stand_in::expect("zeros", data.data(), 1000, [](std::size_t) { return number{0}; });
    stand_in::user by(1);
    by.later([to = data.data()] { std::fill(to, to + 1000, 3); });
    co_await gpu.all_reduce(data, by.on_stream());
    stand_in::expect("sum", data.data(), 1000, [](std::size_t) { return number{6}; });
    const auto part = data.span().subspan(10, 5);
    co_await gpu.all_reduce(part, by.on_stream());
    co_await gpu.all_reduce(none, by.on_stream());
    CHECK(data.data()[9] == 6);
    CHECK(data.data()[14] == 12);
  });
  for (const std::string& each : stand_in::complaints()) FAIL(each);
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("ranks that stage differently get mismatch when they attach") {
  stand_in::boot({});
  std::vector<errc> codes(2);
  try {
    colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
      const auto attaching = [&comm] {
        return cuda::attach<cuda::staged>(comm, 0, {1024, comm.rank() == 0 ? 2 : 3});
      };
      codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(attaching);
    });
  } catch (const colls::error&) {
  }
  CHECK(codes[0] == errc::mismatch);
  CHECK(codes[1] == errc::mismatch);
  CHECK_THROWS_AS(colls::inproc::run(1,
                                     [](host_communicator& comm) -> colls::task<> {
                                       auto gpu =
                                           co_await cuda::attach<cuda::staged>(comm, 0, {0, 2});
                                     }),
                  colls::error);
}

TEST_CASE("without a device attaching fails with no_device") {
  stand_in::boot({.devices = 0});
  errc attached{};
  errc chosen{};
  colls::inproc::run(1, [&](host_communicator& comm) -> colls::task<> {
    const auto attaching = [&comm] { return cuda::attach<cuda::staged>(comm, 0); };
    attached = co_await code_of(attaching);
    try {
      (void)cuda::device_for(comm);
    } catch (const colls::error& thrown) {
      chosen = static_cast<errc>(thrown.code().value());
    }
  });
  CHECK(attached == errc::no_device);
  CHECK(chosen == errc::no_device);
}

TEST_CASE("the ranks of a host take its devices in turn") {
  stand_in::boot({.devices = 2});
  std::vector<int> devices(5);
  colls::inproc::run(5, [&](host_communicator& comm) -> colls::task<> {
    devices[static_cast<std::size_t>(comm.rank())] = cuda::device_for(comm);
    co_return;
  });
  CHECK(devices == std::vector<int>{0, 1, 0, 1, 0});
}

TEST_CASE("a copy that fails ends the call on all ranks, which touch no buffer afterwards") {
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    stand_in::boot({.seed = seed, .eager_percent = static_cast<int>(seed % 2 * 30)});
    std::vector<errc> codes(3);
    try {
      colls::inproc::run(3, [&](host_communicator& comm) -> colls::task<> {
        auto gpu = co_await cuda::attach<cuda::staged>(comm, 0, {256, 3});
        stand_in::user by;
        auto data = by.numbers(1000, comm.rank());
        if (comm.rank() == 1) stand_in::fail("copy", 700, static_cast<int>(seed * 3 % 97) + 1);
        const auto reducing = [&] { return gpu.all_reduce(data.span(), by.on_stream()); };
        codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(reducing);
      });
    } catch (const colls::error&) {
    }
    // The copy that fails may be that of any rank.
    for (const errc each : codes) {
      CHECK((each == errc::device_failed || each == errc{}));
      seen += each == errc::device_failed ? 1 : 0;
    }
    CHECK(stand_in::complaints().empty());
    CHECK(stand_in::allocations() == 0);
  }
  CHECK(seen >= 100);
}

TEST_CASE("a failure once a piece has begun its copies leaves no copy that uses a buffer") {
  using stand_in::number;
  int seen = 0;
  for (const char* const call : {"copy", "write", "call"}) {
    for (int nth = 1; nth <= 40; ++nth) {
      stand_in::boot({.seed = static_cast<std::uint64_t>(nth),
                      .eager_percent = 0,
                      .streams_write = std::string(call) != "call"});
      std::vector<errc> codes(3);
      try {
        colls::inproc::run(3, [&](host_communicator& comm) -> colls::task<> {
          auto gpu = co_await cuda::attach<cuda::staged>(comm, 0, {256, 2});
          stand_in::user by;
          auto in = by.numbers(90, comm.rank());
          auto out = by.used(3 * 90);
          const auto first = in.span().subspan(0, 40);
          const auto second = in.span().subspan(40, 50);
          if (comm.rank() == 2) stand_in::fail(call, 1, nth);
          const auto calling = [&]() -> colls::task<> {
            co_await gpu.all_gather(in.span(), out.span(), by.on_stream());
            co_await gpu.all_to_all(out.span(), out.span(), by.on_stream());
            co_await gpu.gather(in.span(), out.span(), 1, by.on_stream());
            co_await gpu.reduce_scatter(out.span(), in.span(), by.on_stream());
            const colls::options how = by.on_stream();
            co_await gpu.all_reduce(colls::group{first, second}, colls::plus(), how);
            co_await gpu.all_reduce(in.span(), by.on_stream());
          };
          codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(calling);
        });
      } catch (const colls::error&) {
      }
      // The call that fails may be that of any rank.
      for (const errc each : codes) seen += each == errc::device_failed ? 1 : 0;
      CHECK(stand_in::complaints().empty());
      CHECK(stand_in::allocations() == 0);
    }
  }
  CHECK(seen >= 300);
}

TEST_CASE("every call on a failed device ends with device_failed") {
  stand_in::boot({});
  errc code{};
  try {
    colls::inproc::run(1, [&](host_communicator& comm) -> colls::task<> {
      auto gpu = co_await cuda::attach<cuda::staged>(comm, 0, {256, 3});
      const cuda::device_buffer<int> data(10);
      stand_in::break_devices(700);
      const auto reducing = [&] { return gpu.all_reduce(data.span()); };
      code = co_await code_of(reducing);
    });
  } catch (const colls::error&) {
  }
  CHECK(code == errc::device_failed);
}

TEST_CASE("a dropped call leaves no work that uses its buffers") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    stand_in::boot({.seed = seed, .eager_percent = 0});
    try {
      colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
        auto gpu = co_await cuda::attach<cuda::staged>(comm, 0, {256, 3});
        stand_in::user by;
        auto data = by.numbers(1000, comm.rank());
        {
          auto dropped = gpu.all_reduce(data.span(), by.on_stream());
          for (std::uint64_t polls = 0; polls < seed % 20; ++polls) (void)dropped.done();
        }
        if (seed % 2 == 0) co_await comm.barrier();
      });
    } catch (const colls::error&) {
    }
    CHECK(stand_in::complaints().empty());
    CHECK(stand_in::allocations() == 0);
  }
}

TEST_CASE("a split of a device communicator is a device communicator") {
  run(4, {}, {1024, 2}, [](auto& gpu) -> colls::task<> {
    auto half = co_await gpu.split(gpu.rank() % 2);
    stand_in::user by;
    auto data = by.numbers(300, gpu.rank());
    co_await half.all_reduce(data.span(), by.on_stream());
    const int me = gpu.rank();
    stand_in::expect("half", data.data(), 300, [me](std::size_t i) {
      return stand_in::value(me % 2, i) + stand_in::value(me % 2 + 2, i);
    });
    co_await half.close();
  });
}

TEST_CASE("calls work with any current device of the thread") {
  run(3, {.devices = 2}, {1024, 2},
      [](auto& gpu) { return stand_in::calls_from_another_device(gpu); });
}

}  // namespace
