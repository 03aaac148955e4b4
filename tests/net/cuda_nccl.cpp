// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/nccl.hpp>

#include <colls/cuda/reduce.cuh>
#include <colls/inproc.hpp>

#include <doctest/doctest.h>

#include <limits>

#include "../stand_in/nccl.hpp"
#include "../stand_in/user.hpp"

// NCCL between ranks of one thread. The stand-ins are neither a GPU nor NCCL: they show that colls
// waits for everything that it must wait for, and ends everything that it must end.

namespace cuda = colls::cuda;

namespace {

using colls::errc;
using stand_in::code_of;
using host_communicator = colls::inproc::communicator;

/// Nothing was done that CUDA or NCCL forbids, and everything has been freed.
void check_left() {
  for (const std::string& each : stand_in::complaints()) FAIL_CHECK(each);
  CHECK(stand_in::allocations() == 0);
  CHECK(stand_in::nccl_alive() == 0);
}

/// `has_blocks`: NCCL's header has gather, scatter and all_to_all.
template <class Main>
void run(int ranks, stand_in::machine what, const Main& rank_main, int late_percent = 30,
         bool has_blocks = true) {
  stand_in::boot(what);
  stand_in::boot_nccl({22809}, late_percent, has_blocks);
  colls::inproc::run(ranks, [&](host_communicator& comm) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::nccl>(comm, 0);
    co_await rank_main(gpu);
  });
  check_left();
  CHECK(stand_in::nccl_aborted() == 0);
  CHECK(stand_in::nccl_mismatches() == 0);
}

TEST_CASE("every collective, with many seeds of the stand-in") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::size_t n : {0u, 1u, 13u, 700u}) {
      for (int round = 0; round < 4; ++round) {
        ++seed;
        const stand_in::machine what{.seed = seed,
                                     .eager_percent = static_cast<int>(seed % 3 * 40),
                                     .streams_write = seed % 5 != 0};
        const auto all = [n](auto& gpu) { return stand_in::every_collective(gpu, n); };
        run(ranks, what, all, static_cast<int>(seed % 4 * 30), round % 2 == 0);
      }
    }
  }
}

TEST_CASE("more ranks than a kernel has inputs") {
  for (const int ranks : {8, 9, 17}) {
    run(ranks, {.seed = static_cast<std::uint64_t>(ranks)},
        [](auto& gpu) { return stand_in::every_collective(gpu, 40); });
  }
}

template <class T, class Op>
colls::task<> reduces(auto& gpu, Op op, bool is_nccls) {
  stand_in::user by;
  const auto drawn = [](int rank, std::size_t i) {
    return static_cast<T>(static_cast<float>((static_cast<std::size_t>(rank) + i) % 3 + 1));
  };
  const std::size_t n = 11;
  auto data = by.filled<T>(n, [&](std::size_t i) { return drawn(gpu.rank(), i); });
  co_await gpu.all_reduce(data.span(), op, by.on_stream());
  stand_in::expect("of this type", data.data(), n, [&](std::size_t i) {
    T all = drawn(0, i);
    for (int r = 1; r < gpu.size(); ++r) all = op(all, drawn(r, i));
    if constexpr (std::is_same_v<Op, colls::average>) all = op.finish(all, gpu.size());
    return all;
  });
  const std::vector<std::string> calls = stand_in::nccl_calls(gpu.rank());
  CHECK((calls.back() == "all_reduce") == is_nccls);
  co_await gpu.barrier();
}

TEST_CASE("types and operations that NCCL has go to NCCL, all others to kernels") {
  run(3, {}, [](auto& gpu) -> colls::task<> {
    const auto all_of = [&gpu]<class T>(T, bool is_nccls) -> colls::task<> {
      co_await reduces<T>(gpu, colls::plus(), is_nccls);
      co_await reduces<T>(gpu, colls::multiplies(), is_nccls);
      co_await reduces<T>(gpu, colls::minimum(), is_nccls);
      co_await reduces<T>(gpu, colls::maximum(), is_nccls);
    };
    co_await all_of(std::int8_t(), true);
    co_await all_of(std::uint8_t(), true);
    co_await all_of(char(), true);
    co_await all_of(std::int16_t(), false);
    co_await all_of(std::uint16_t(), false);
    co_await all_of(std::int32_t(), true);
    co_await all_of(std::uint32_t(), true);
    co_await all_of(std::int64_t(), true);
    co_await all_of(std::uint64_t(), true);
    co_await all_of(static_cast<long long>(0), true);
    co_await all_of(float(), true);
    co_await all_of(double(), true);
    co_await reduces<colls::float16>(gpu, colls::plus(), true);
    co_await reduces<colls::bfloat16>(gpu, colls::maximum(), true);
    co_await reduces<float>(gpu, colls::average(), true);
    co_await reduces<int>(gpu, colls::average(), false);
    co_await reduces<std::uint32_t>(gpu, colls::bit_xor(), false);
    const auto mine = [](float a, float b) { return 2 * a + b; };
    co_await reduces<float>(gpu, mine, false);
  });
}

TEST_CASE("the calls of NCCL that each collective makes") {
  const auto calls = [](auto& gpu, bool has_blocks) -> colls::task<> {
    using list = std::vector<std::string>;
    stand_in::user by;
    auto in = by.numbers(8, gpu.rank());
    auto out = by.used(8);
    auto half = by.used(4);
    const colls::options how = by.on_stream();
    const std::vector<std::size_t> counts{3, 5};
    auto share = by.used(counts[static_cast<std::size_t>(gpu.rank())]);
    const auto one = in.span();
    co_await gpu.all_reduce(one, out.span(), how);
    const auto two = out.span();
    co_await gpu.all_reduce(colls::group{one, two}, how);
    co_await gpu.reduce(one, 1, how);
    co_await gpu.broadcast(one, 1, how);
    co_await gpu.reduce_scatter(one, half.span(), how);
    co_await gpu.reduce_scatter_v(one, share.span(), counts, how);
    co_await gpu.all_gather(half.span(), out.span(), how);
    co_await gpu.all_gather_v(share.span(), out.span(), counts, how);
    co_await gpu.gather(half.span(), out.span(), 0, how);
    co_await gpu.scatter(out.span(), half.span(), 0, how);
    co_await gpu.all_to_all(one, out.span(), how);
    co_await gpu.scan(one, how);
    co_await gpu.barrier();
    const bool first = gpu.rank() == 0;
    const list want{"all_reduce",
                    "(all_reduce all_reduce)",
                    "reduce",
                    "broadcast",
                    "reduce_scatter",
                    "(reduce reduce)",
                    "all_gather",
                    "(broadcast broadcast)",
                    has_blocks ? "gather"
                    : first    ? "recv"
                               : "send",
                    has_blocks ? "scatter"
                    : first    ? "send"
                               : "recv",
                    has_blocks ? "all_to_all" : "(send recv)",
                    "(send recv)",
                    "(send recv)"};
    CHECK(stand_in::nccl_calls(gpu.rank()) == want);
  };
  for (const bool has_blocks : {true, false}) {
    const auto with = [&](auto& gpu) { return calls(gpu, has_blocks); };
    run(2, {}, with, 30, has_blocks);
  }
}

TEST_CASE("gather and scatter with the root's block in place") {
  for (const bool has_blocks : {true, false}) {
    const auto in_place = [](auto& gpu) -> colls::task<> {
      stand_in::user by;
      const auto mine = static_cast<std::size_t>(gpu.rank());
      for (int root = 0; root < gpu.size(); ++root) {
        const bool is_root = gpu.rank() == root;
        auto whole = by.numbers(is_root ? 60 : 0, root);
        auto part = by.numbers(is_root ? 0 : 20, gpu.rank());
        const auto own = is_root ? whole.span().subspan(20 * mine, 20) : part.span();
        co_await gpu.gather(own, whole.span(), root, by.on_stream());
        stand_in::expect("gather", whole.data(), whole.size(), [root](std::size_t i) {
          const int from = static_cast<int>(i / 20);
          return stand_in::value(from, from == root ? i : i % 20);
        });
        co_await gpu.scatter(whole.span(), own, root, by.on_stream());
        const std::size_t shift = is_root ? 20 * mine : 0;
        stand_in::expect("scatter", own.data(), 20,
                         [&](std::size_t i) { return stand_in::value(gpu.rank(), i + shift); });
      }
      co_await gpu.barrier();
    };
    run(3, {.seed = 3}, in_place, 30, has_blocks);
  }
}

TEST_CASE("many calls at a time, on several streams, awaited in reverse order") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run(3, {.seed = seed}, [](auto& gpu) -> colls::task<> {
      std::deque<stand_in::user> users(3);
      std::vector<cuda::device_buffer<stand_in::number>> data;
      std::vector<colls::operation<>> calls;
      const auto keeps_order = [](stand_in::number a, stand_in::number b) { return a + b; };
      for (std::size_t i = 0; i < 9; ++i) {
        data.push_back(users[i % 3].numbers(50 + i, gpu.rank()));
        colls::options how = users[i % 3].on_stream();
        how.timeout = std::chrono::seconds(10);
        if (i % 3 == 2) calls.push_back(gpu.all_reduce(data[i].span(), keeps_order, how));
        if (i % 3 == 1) calls.push_back(gpu.broadcast(data[i].span(), 2, how));
        if (i % 3 == 0) calls.push_back(gpu.all_reduce(data[i].span(), how));
      }
      while (!calls.empty()) {
        const auto last = [&calls]() -> colls::task<> { co_await calls.back(); };
        const errc code = co_await code_of(last);
        REQUIRE(code == errc{});
        calls.pop_back();
      }
      for (std::size_t i = 0; i < 9; ++i) {
        stand_in::expect("many", data[i].data(), 50 + i, [&](std::size_t k) {
          using stand_in::value;
          return i % 3 == 1 ? value(2, k) : value(0, k) + value(1, k) + value(2, k);
        });
      }
      co_await gpu.barrier();
    });
  }
}

TEST_CASE("calls on the default stream, which all ranks of a process share") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run(3, {.seed = seed}, [](auto& gpu) -> colls::task<> {
      cuda::device_buffer<int> data(100);
      int* const at = data.data();
      std::function<void()> fill = [at] { std::fill_n(at, 100, 7); };
      stand_in::enqueue(
          nullptr, [](void* what) { (*static_cast<std::function<void()>*>(what))(); }, &fill);
      co_await gpu.all_reduce(data.span());
      stand_in::expect("sum", data.data(), 100, [](std::size_t) { return 21; });
      co_await gpu.barrier();
      stand_in::synchronize(nullptr);
    });
  }
}

TEST_CASE("calls work with any current device of the thread") {
  run(3, {.devices = 2}, [](auto& gpu) { return stand_in::calls_from_another_device(gpu); });
}

TEST_CASE("in steady state no device memory and no pinned memory is allocated") {
  run(2, {}, [](auto& gpu) -> colls::task<> {
    stand_in::user by;
    auto data = by.numbers(5'000, gpu.rank());
    const auto own = [](stand_in::number a, stand_in::number b) { return a > b ? a : b; };
    co_await gpu.all_reduce(data.span(), own, by.on_stream());
    co_await gpu.barrier();
    const std::size_t before = stand_in::allocations();
    for (int i = 0; i < 300; ++i) co_await gpu.all_reduce(data.span(), own, by.on_stream());
    CHECK(stand_in::allocations() == before);
    co_await gpu.barrier();
  });
}

TEST_CASE("splits have their own NCCL communicators") {
  run(4, {}, [](auto& gpu) -> colls::task<> {
    auto half = co_await gpu.split(gpu.rank() % 2);
    stand_in::user by;
    auto data = by.numbers(300, gpu.rank());
    co_await half.all_reduce(data.span(), by.on_stream());
    const int me = gpu.rank();
    stand_in::expect("half", data.data(), 300, [me](std::size_t i) {
      return stand_in::value(me % 2, i) + stand_in::value(me % 2 + 2, i);
    });
    co_await half.close();
    co_await gpu.all_reduce(data.span(), by.on_stream());
  });
}

TEST_CASE("the NCCL communicators of splits are destroyed when the splits have ended") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    run(4, {.seed = seed}, [](auto& gpu) -> colls::task<> {
      stand_in::user by;
      auto data = by.numbers(30, gpu.rank());
      for (int i = 0; i < 20; ++i) {
        auto half = co_await gpu.split(gpu.rank() % 2);
        co_await half.all_reduce(data.span(), by.on_stream());
        co_await gpu.barrier();
        if (i % 2 == 0) co_await half.close();
        // Each rank has the attached one, this one, and one or two that are being destroyed.
        CHECK(stand_in::nccl_alive() <= 4 * 4);
      }
    });
  }
}

TEST_CASE("wrong arguments are refused, and the communicator stays usable") {
  run(2, {.devices = 2}, [](auto& gpu) -> colls::task<> {
    stand_in::user by;
    auto good = by.numbers(100, gpu.rank());
    std::vector<stand_in::number> host(100);
    const std::size_t before = stand_in::nccl_calls(gpu.rank()).size();
    const auto reducing = [&](stand_in::number* at, colls::options how) {
      return [&gpu, at, how] { return gpu.all_reduce(colls::device_span(at, 90), how); };
    };
    const errc of_host = co_await code_of(reducing(host.data(), {}));
    CHECK(of_host == errc::invalid_argument);
    auto* const bytes = reinterpret_cast<std::byte*>(good.data());
    auto* const odd = reinterpret_cast<stand_in::number*>(bytes + 4);
    const errc of_odd = co_await code_of(reducing(odd, {}));
    CHECK(of_odd == errc::invalid_argument);
    const errc in_order = co_await code_of(reducing(good.data(), {.order = colls::order::rank}));
    CHECK(in_order == errc::not_applicable);
    const errc by_ring =
        co_await code_of(reducing(good.data(), {.algorithm = colls::algorithm::ring}));
    CHECK(by_ring == errc::not_applicable);
    CHECK(stand_in::nccl_calls(gpu.rank()).size() == before);
    const errc of_good = co_await code_of(reducing(good.data(), by.on_stream()));
    CHECK(of_good == errc{});
    co_await gpu.barrier();
  });
}

TEST_CASE("invalid arguments are refused on all ranks") {
  run(3, {}, [](auto& gpu) { return stand_in::every_refusal(gpu); });
}

// ---- errors

/// The codes that `rank_main(comm)` returns on each rank. Exceptions are ignored.
template <class Main>
std::vector<errc> codes(int ranks, stand_in::machine what, const Main& rank_main,
                        std::vector<int> versions = {22809}) {
  stand_in::boot(what);
  stand_in::boot_nccl(std::move(versions));
  std::vector<errc> got(static_cast<std::size_t>(ranks), errc::stale_store);
  try {
    colls::inproc::run(ranks, [&](host_communicator& comm) -> colls::task<> {
      got[static_cast<std::size_t>(comm.rank())] = co_await rank_main(comm);
    });
  } catch (const colls::error&) {
  }
  check_left();
  return got;
}
colls::task<errc> attaching(host_communicator& comm) {
  const auto attach = [&comm] { return cuda::attach<cuda::nccl>(comm, 0); };
  return code_of(attach);
}
using all = std::vector<errc>;

TEST_CASE("an NCCL older than its header, of another major version, or different on a rank") {
  for (const std::vector<int>& versions :
       {std::vector{22707}, std::vector{30100}, std::vector{22809, 22902}}) {
    const all got = codes(2, {}, attaching, versions);
    CHECK(got == all(2, errc::version_mismatch));
  }
  CHECK(codes(2, {}, attaching, {22902}) == all(2, errc{}));
}

TEST_CASE("a failure on one rank while NCCL's communicator is made ends attaching on all ranks") {
  for (const char* const call : {"nccl_version", "nccl_make_id", "nccl_make_comm"}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const all got = codes(3, {.seed = seed}, [&](host_communicator& comm) -> colls::task<errc> {
        if (comm.rank() == 0) {
          const bool alone = std::string(call) == "nccl_make_id";
          stand_in::fail(call, cuda::nccl_api::system_error,
                         alone ? 1 : static_cast<int>(seed % 3) + 1);
        }
        return attaching(comm);
      });
      CHECK(got == all(3, errc::device_failed));
    }
  }
}

TEST_CASE("ranks that wait for a rank to make NCCL's communicator end by their deadline") {
  stand_in::boot({});
  stand_in::boot_nccl();
  std::vector<errc> got(2);
  try {
    colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
      const auto attach = [&comm] {
        return cuda::attach<cuda::nccl>(comm, 0, {}, {.timeout = std::chrono::milliseconds(60)});
      };
      if (comm.rank() == 0) {
        got[0] = co_await code_of(attach);
        co_return;
      }
      // This rank takes part in the split, but does not make NCCL's communicator.
      auto other = co_await comm.attach(4, [](std::shared_ptr<colls::inproc_transport> host) {
        return std::make_shared<cuda::nccl_transport<colls::inproc_transport>>(std::move(host), 0);
      });
      while (other.failed() == nullptr) co_await comm.barrier();
      got[1] = other.failed()->code;
    });
  } catch (const colls::error&) {
  }
  CHECK(got[0] == errc::timeout);
  check_left();
}

/// Rank 0 makes a call on the device that rank 1 does not make. Once the call has begun, rank 1
/// runs `then(gpu, data, how)`. Returns the codes with which the calls end.
template <class Then>
all waiting(stand_in::machine what, colls::options limit, const Then& then) {
  return codes(2, what, [&](host_communicator& comm) -> colls::task<errc> {
    auto gpu = co_await cuda::attach<cuda::nccl>(comm, 0);
    stand_in::user by;
    auto data = by.numbers(100, comm.rank());
    limit.stream = by.on_stream().stream;
    std::vector<int> token{1};
    if (comm.rank() == 0) {
      auto reducing = gpu.all_reduce(data.span(), limit);
      co_await comm.send(token, 1);
      const auto awaited = [&]() -> colls::task<> { co_await reducing; };
      const errc code = co_await code_of(awaited);
      CHECK(stand_in::nccl_aborted() > 0);
      co_await comm.send(token, 1);
      co_return code;
    }
    co_await comm.recv(token, 0);
    co_await then(gpu, data.span(), by.on_stream());
    co_await comm.recv(token, 0);
    const auto again = [&] { return gpu.all_reduce(data.span(), by.on_stream()); };
    co_return co_await code_of(again);
  });
}
const auto nothing = [](auto&, auto, auto) -> colls::task<> { co_return; };

TEST_CASE("a revoke ends the wait for the device, by an abort") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto revoke = [](auto& gpu, auto, auto) -> colls::task<> {
      gpu.revoke("enough");
      co_return;
    };
    CHECK(waiting({.seed = seed}, {}, revoke) == all(2, errc::revoked));
  }
}

TEST_CASE("a revoke ends the wait after all have called, and no unfinished call succeeds") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const all got = codes(2, {.seed = seed}, [](host_communicator& comm) -> colls::task<errc> {
      auto gpu = co_await cuda::attach<cuda::nccl>(comm, 0);
      stand_in::user by;
      auto data = by.numbers(100, comm.rank());
      if (comm.rank() == 1) {  // its stream is held up
        const auto held = stand_in::lock();
        const auto gate = [] { return stand_in::nccl_aborted() > 0; };
        stand_in::enqueue_barrier(by.on_stream().stream.handle, &comm, gate, {});
      }
      auto reducing = gpu.all_reduce(data.span(), by.on_stream());
      for (int i = 0; i < 20; ++i) co_await comm.barrier();
      CHECK(!reducing.underlying_call().is_done());
      if (comm.rank() == 0) gpu.revoke("enough");
      const auto awaited = [&]() -> colls::task<> { co_await reducing; };
      co_return co_await code_of(awaited);
    });
    CHECK(got == all(2, errc::revoked));
  }
}

TEST_CASE("a deadline ends the wait for the device") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const colls::options soon{.timeout = std::chrono::milliseconds(50)};
    CHECK(waiting({.seed = seed}, soon, nothing) == all(2, errc::timeout));
  }
}

TEST_CASE("an asynchronous error of NCCL ends the wait for the device") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto breaks = [](auto&, auto, auto) -> colls::task<> {
      stand_in::fail("nccl_async_error", cuda::nccl_api::internal_error);
      co_return;
    };
    CHECK(waiting({.seed = seed}, {}, breaks) == all(2, errc::device_failed));
  }
}

TEST_CASE("an NCCL error from another rank ends the wait after a second without a reason") {
  const auto breaks = [](auto&, auto, auto) -> colls::task<> {
    stand_in::break_nccl(cuda::nccl_api::remote_error);
    co_return;
  };
  const auto start = std::chrono::steady_clock::now();
  CHECK(waiting({}, {}, breaks) == all(2, errc::device_failed));
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::seconds(1));
}

TEST_CASE("the host reports the reason of an NCCL error from another rank") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const all got = codes(2, {.seed = seed}, [&](host_communicator& comm) -> colls::task<errc> {
      auto gpu = co_await cuda::attach<cuda::nccl>(comm, 0);
      stand_in::user by;
      auto data = by.numbers(100, comm.rank());
      if (seed > 20) co_await gpu.all_reduce(data.span(), by.on_stream());
      co_await comm.barrier();
      if (comm.rank() == 1) {
        for (int i = 0; i < 400; ++i) co_await comm.barrier();
        std::vector<int> token{1};
        const auto wait = [&] { return comm.recv(token, 0); };
        co_return co_await code_of(wait);
      }
      if (seed % 2 == 0) stand_in::break_nccl(cuda::nccl_api::remote_error);
      auto reducing = gpu.all_reduce(data.span(), by.on_stream());
      for (int i = 0; i < 200; ++i) co_await comm.barrier();
      stand_in::break_nccl(cuda::nccl_api::remote_error);
      for (int i = 0; i < 200; ++i) co_await comm.barrier();
      CHECK(!reducing.underlying_call().is_done());
      colls::failure why(errc::peer_failed);
      why.culprit = 1;
      gpu.net().matching().peer_died(1, why);
      const auto awaited = [&]() -> colls::task<> { co_await reducing; };
      co_return co_await code_of(awaited);
    });
    CHECK(got == all(2, errc::peer_failed));
  }
}

TEST_CASE("a device that fails ends the wait for it") {
  stand_in::machine what;
  for (what.seed = 1; what.seed <= 5; ++what.seed) {
    const auto breaks = [](auto&, auto, auto) -> colls::task<> {
      stand_in::break_devices(700);
      co_return;
    };
    CHECK(waiting(what, {}, breaks) == all(2, errc::device_failed));
  }
}

TEST_CASE("a peer that is found dead ends the wait for the device") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const all got = codes(2, {.seed = seed}, [](host_communicator& comm) -> colls::task<errc> {
      auto gpu = co_await cuda::attach<cuda::nccl>(comm, 0);
      stand_in::user by;
      auto data = by.numbers(100, comm.rank());
      std::vector<int> token{1};
      co_await comm.barrier();
      if (comm.rank() == 1) {
        const auto wait = [&] { return comm.recv(token, 0); };
        co_return co_await code_of(wait);
      }
      auto reducing = gpu.all_reduce(data.span(), by.on_stream());
      colls::failure why(errc::peer_failed);
      why.culprit = 1;
      gpu.net().matching().peer_died(1, why);
      const auto awaited = [&]() -> colls::task<> { co_await reducing; };
      const errc code = co_await code_of(awaited);
      CHECK(stand_in::nccl_aborted() == 1);
      co_return code;
    });
    CHECK(got == all(2, errc::peer_failed));
  }
}

TEST_CASE("a rank that leaves ends the wait for the device") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const auto leave = [](auto& gpu, auto, auto) -> colls::task<> { co_await gpu.close(); };
    CHECK(waiting({.seed = seed}, {}, leave) == all(2, errc::closed));
  }
}

TEST_CASE("a dropped call ends the wait for the device, and leaves no work that uses its buffers") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const auto drop = [&](auto& gpu, auto data, auto how) -> colls::task<> {
      const auto own = [](stand_in::number a, stand_in::number b) { return a > b ? a : b; };
      auto dropped = gpu.all_reduce(data, own, how);
      for (std::uint64_t polls = 0; polls < seed % 10; ++polls) (void)dropped.done();
      co_return;
    };
    const all got = waiting({.seed = seed}, {}, drop);
    for (const errc each : got) CHECK((each == errc::cancelled || each == errc::mismatch));
  }
}

TEST_CASE("ranks that call differently get mismatch, whatever NCCL does") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto other_count = [](auto& gpu, auto data, auto how) -> colls::task<> {
      const auto less = [&] { return gpu.all_reduce(data.subspan(0, 50), how); };
      const errc code = co_await code_of(less);
      CHECK(code == errc::mismatch);
    };
    CHECK(waiting({.seed = seed}, {}, other_count) == all(2, errc::mismatch));
    const auto other_call = [](auto& gpu, auto data, auto how) -> colls::task<> {
      const auto more = [&] { return gpu.broadcast(data, 0, how); };
      const errc code = co_await code_of(more);
      CHECK(code == errc::mismatch);
    };
    CHECK(waiting({.seed = seed}, {}, other_call) == all(2, errc::mismatch));
  }
}

TEST_CASE("a call of NCCL or CUDA that fails ends the call on all ranks") {
  int seen = 0;
  for (const char* const call : {"nccl_send", "nccl_recv", "nccl_group_start", "nccl_group_end",
                                 "nccl_broadcast", "launch", "copy", "write", "allocate"}) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      const all got = codes(3, {.seed = seed}, [&](host_communicator& comm) -> colls::task<errc> {
        auto gpu = co_await cuda::attach<cuda::nccl>(comm, 0);
        stand_in::user by;
        auto data = by.numbers(1000, comm.rank());
        co_await comm.barrier();
        if (comm.rank() == 1) stand_in::fail(call, 700, static_cast<int>(seed));
        const auto own = [](stand_in::number a, stand_in::number b) { return a > b ? a : b; };
        const auto reducing = [&] { return gpu.all_reduce(data.span(), own, by.on_stream()); };
        errc code{};
        for (int i = 0; i < 2 && code == errc{}; ++i) code = co_await code_of(reducing);
        co_return code;
      });
      // The fault may hit any rank, or none.
      for (const errc each : got) {
        const bool expected = each == errc::device_failed || each == errc{};
        CHECK_MESSAGE(expected, std::string(call) << " " << seed << " " << static_cast<int>(each));
        seen += each == errc::device_failed ? 1 : 0;
      }
    }
  }
  CHECK(seen >= 150);
}

}  // namespace
