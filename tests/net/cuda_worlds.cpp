// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/staged.hpp>

#include <colls/cuda/ipc.hpp>
#include <colls/cuda/nccl.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/run.hpp>
#include <colls/threads.hpp>

#include <doctest/doctest.h>

#include "../../bench/colls_bench/device.hpp"
#include "../cuda/processes.hpp"
#include "../stand_in/nccl.hpp"
#include "../stand_in/user.hpp"
#include "../support/tcp_threads.hpp"

// Calls on device memory between threads, over TCP and between processes, where ranks really run at
// the same time. The stand-in is not a GPU.

namespace cuda = colls::cuda;

namespace {

template <class Model, class World>
colls::task<> attach_and_call(World& world, typename Model::settings how) {
  auto gpu = co_await cuda::attach<Model>(world, cuda::device_for(world), how);
  for (const std::size_t n : {0u, 5u, 600u}) co_await stand_in::every_collective(gpu, n);
  co_await gpu.close();
}

TEST_CASE("every collective between threads") {
  for (const int ranks : {2, 3}) {
    stand_in::boot({.seed = static_cast<std::uint64_t>(ranks)});
    colls::threads::run(ranks, [](colls::threads::communicator& comm) -> colls::task<> {
      co_await attach_and_call<cuda::staged>(comm, {512, 3});
    });
    CHECK(stand_in::complaints().empty());
    CHECK(stand_in::allocations() == 0);
  }
}

TEST_CASE("every collective over TCP") {
  stand_in::boot({.seed = 7});
  const std::vector<int> statuses = run_tcp(3, [](colls::world& world) -> colls::task<> {
    co_await attach_and_call<cuda::staged>(world, {512, 3});
  });
  CHECK(statuses == std::vector<int>{0, 0, 0});
  CHECK(stand_in::complaints().empty());
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("every collective of ranks that access each other's device memory, over TCP") {
  for (const int devices : {1, 2}) {
    stand_in::boot({.devices = devices, .seed = 7, .processes = true});
    const std::vector<int> statuses = run_tcp(3, [](colls::world& world) -> colls::task<> {
      co_await attach_and_call<cuda::cuda_ipc>(world, {512, 3});
    });
    CHECK(statuses == std::vector<int>{0, 0, 0});
    CHECK(stand_in::complaints().empty());
    CHECK(stand_in::allocations() == 0);
    CHECK(stand_in::calls("open") > 0);
    CHECK(stand_in::calls("launch") > 0);
  }
}

TEST_CASE("memory of allocate is passed between ranks over TCP") {
  for (const int devices : {1, 2}) {
    stand_in::boot({.devices = devices, .seed = 7, .processes = true});
    const std::vector<int> statuses = run_tcp(3, [](colls::world& world) -> colls::task<> {
      const int device = cuda::device_for(world);
      auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, device);
      stand_in::user by(device);
      for (int i = 0; i < 5; ++i) {
        auto data = gpu.allocate<stand_in::number>(1000);
        by.later([to = data.data(), rank = gpu.rank()] { std::fill(to, to + 1000, rank + 1); });
        co_await gpu.all_reduce(data, by.on_stream());
        stand_in::expect("sum", data.data(), 1000, [](std::size_t) { return stand_in::number{6}; });
      }
      co_await gpu.close();
    });
    CHECK(statuses == std::vector<int>{0, 0, 0});
    for (const std::string& each : stand_in::complaints()) FAIL_CHECK(each);
    CHECK(stand_in::allocations() == 0);
    CHECK(stand_in::descriptors() == 0);
    CHECK(stand_in::calls("launch") == 5 * devices);
    CHECK(stand_in::calls("open") == 0);
  }
}

TEST_CASE("every collective by NCCL, between threads and over TCP") {
  for (const bool by_tcp : {false, true}) {
    stand_in::boot({.seed = 7});
    stand_in::boot_nccl();
    const auto rank_main = [](auto& comm) -> colls::task<> {
      co_await attach_and_call<cuda::nccl>(comm, {});
    };
    if (by_tcp) {
      CHECK(run_tcp(3, [&](colls::world& world) { return rank_main(world); }) ==
            std::vector<int>{0, 0, 0});
    } else {
      colls::threads::run(3, [&](colls::threads::communicator& comm) { return rank_main(comm); });
    }
    for (const std::string& each : stand_in::complaints()) FAIL_CHECK(each);
    CHECK(stand_in::allocations() == 0);
    CHECK(stand_in::nccl_alive() == 0);
    CHECK(stand_in::nccl_aborted() == 0);
  }
}

TEST_CASE("the calls of docs/gpu.md and docs/coming_from.md") {
  stand_in::boot({.seed = 11});
  stand_in::boot_nccl();
  const auto rank_main = [](colls::world& world) -> colls::task<> {
    const int device = colls::cuda::device_for(world);
    auto gpu = co_await colls::cuda::attach<colls::cuda::nccl>(world, device);
    const std::size_t n = 4;
    const int root = 1, next = 1 - world.rank(), prev = next;
    auto memory = gpu.allocate<float>(n);
    auto many = gpu.allocate<float>(2 * n);
    float* const pointer = memory.data();
    const auto data = colls::device_span{pointer, n};
    const auto in = data, out = colls::device_span{many.data(), n}, block = out;
    const auto blocks = many.span();
    void* const stream = stand_in::make_stream(device);
    co_await gpu.all_reduce(in, out, colls::plus{}, {.stream = {stream}});
    co_await gpu.broadcast(data, root);
    co_await gpu.reduce(data, root);
    co_await gpu.all_gather(data, blocks);
    co_await gpu.reduce_scatter(blocks, data);
    co_await gpu.send_recv(data, next, block, prev);
    auto first = gpu.all_reduce(data);
    auto second = gpu.all_reduce(block, colls::average{});
    co_await first;
    co_await second;
    const float scale = 0.5f;
    co_await gpu.all_reduce(data, colls::pre_multiplied_sum(scale));
    stand_in::synchronize(stream);
    co_await gpu.close();
    auto staged =
        co_await colls::cuda::attach<colls::cuda::staged>(world, colls::cuda::device_for(world));
    float* const weights = pointer;
    co_await staged.all_reduce(colls::device_span{weights, n});
    if (world.rank() == 0) staged.revoke("it was enough");
    auto refused = staged.barrier();
    colls::errc got{};
    try {
      co_await refused;
    } catch (const colls::error& thrown) {
      got = thrown.record().code;
    }
    CHECK(got == colls::errc::revoked);
    CHECK(staged.failed() != nullptr);
  };
  CHECK(run_tcp(2, rank_main) == std::vector<int>{0, 0});
  for (const std::string& each : stand_in::complaints()) FAIL_CHECK(each);
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("a device that fails on one rank ends the call of all, over TCP") {
  stand_in::boot({.seed = 3});
  const std::vector<int> statuses = run_tcp(2, [](colls::world& world) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::staged>(world, 0, {512, 2});
    cuda::device_buffer<int> data(5000);
    if (world.rank() == 1) stand_in::fail("wait", 700);
    colls::errc got{};
    try {
      co_await gpu.all_reduce(data.span());
    } catch (const colls::error& thrown) {
      got = static_cast<colls::errc>(thrown.code().value());
    }
    CHECK(got == colls::errc::device_failed);
    // The world stays usable: only the communicator on the device has failed.
    std::vector<int> one{1};
    co_await world.all_reduce(one);
    CHECK(one[0] == 2);
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

/// Sums in memory of `allocate`, between processes that access only the memory that they pass to
/// each other.
colls::task<int> allocated(colls::world& world, int devices) {
  stand_in::boot({.devices = devices, .seed = 3, .processes = true});
  {
    const int device = world.rank() % devices;
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, device);
    stand_in::user by(device);
    for (int i = 0; i < 20; ++i) {
      auto data = gpu.allocate<stand_in::number>(1000);
      by.later([to = data.data(), rank = gpu.rank()] { std::fill(to, to + 1000, rank + 1); });
      auto call = gpu.all_reduce(colls::group{data}, by.on_stream());
      co_await call;
      stand_in::expect("sum", data.data(), 1000, [](std::size_t) { return stand_in::number{3}; });
      REQUIRE(call.copied_bytes() == 0);
    }
    co_await gpu.close();
  }
  const bool good = stand_in::complaints().empty() && stand_in::allocations() == 0 &&
                    stand_in::descriptors() == 0;
  co_return good ? 0 : 1;
}

TEST_CASE("memory of allocate is passed between processes") {
  for (const int devices : {1, 2}) {
    CHECK(in_processes([&](colls::world& world) { return allocated(world, devices); }) == 0);
  }
}

/// Rank 1 does not see the first GPU, so the ranks number the GPUs differently.
colls::task<int> numbered_differently(colls::world& world, int of_first) {
  stand_in::boot({.devices = 2, .seed = 3, .processes = true, .hidden = world.rank()});
  bool good = true;
  {
    const int device = world.rank() == 0 ? of_first : 0;
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, device);
    stand_in::user by(device);
    auto data = gpu.allocate<stand_in::number>(1000);
    auto sent = gpu.broadcast(data, 0, by.on_stream());
    co_await sent;
    good &= sent.copied_bytes() == 0;
    // Rank 0 works for both ranks if they share a GPU; otherwise each works for itself.
    const bool share = of_first == 1;
    good &= stand_in::calls("copy") == (share == (world.rank() == 0) ? 1 : 0);
    co_await gpu.close();
  }
  good &= stand_in::complaints().empty() && stand_in::allocations() == 0;
  co_return good ? 0 : 1;
}

TEST_CASE("ranks share a GPU if its id is equal, however processes number GPUs") {
  for (const int of_first : {0, 1}) {
    CHECK(in_processes(
              [=](colls::world& world) { return numbered_differently(world, of_first); }) == 0);
  }
}

/// Rank 1's device fails; everything but that device continues to work.
colls::task<int> fails(colls::world& world, int devices) {
  stand_in::boot({.devices = devices, .seed = 3, .processes = true});
  bool good = true;
  {
    const int device = world.rank() % devices;
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, device);
    stand_in::user by(device);
    auto data = gpu.allocate<stand_in::number>(1000);
    auto first = gpu.all_reduce(data, by.on_stream());
    co_await first;
    good &= first.copied_bytes() == 0;
    co_await world.barrier();  // it has ended on both ranks
    if (world.rank() == 1) stand_in::break_devices(700);
    const auto reducing = [&] { return gpu.all_reduce(data, by.on_stream()); };
    const colls::errc code = co_await stand_in::code_of(reducing);
    good &= code == colls::errc::device_failed;
    std::vector<int> ranks{1};
    co_await world.all_reduce(ranks);
    good &= ranks[0] == 2;
    if (world.rank() == 0) {
      cuda::stream after(device);
      after.clear(data.data(), 1000 * sizeof(stand_in::number));
      co_await after.reached();
    }
  }
  good &= stand_in::complaints().empty() && stand_in::allocations() == 0;
  co_return good ? 0 : 1;
}

TEST_CASE("a device that fails ends the call of both processes, and the world stays usable") {
  for (const int devices : {1, 2}) {
    CHECK(in_processes([&](colls::world& world) { return fails(world, devices); }) == 0);
  }
}

/// Rank 1 is killed in the middle of short sums. Rank 0 gets peer_failed, and keeps its mappings of
/// rank 1's memory.
colls::task<> killed_in_a_group(colls::world& world) {
  stand_in::boot({.devices = 2, .seed = 3, .processes = true});
  colls::errc code{};
  bool good = true;
  {
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, world.rank());
    stand_in::user by(world.rank());
    try {
      for (int i = 0; i < 1000; ++i) {
        auto data = by.numbers(1000, world.rank());
        auto call = gpu.all_reduce(data.span(), by.on_stream());
        if (i == 20 && world.rank() == 1) ::raise(SIGKILL);
        co_await call;
        good &= call.copied_bytes() == 0;
        stand_in::expect("sum", data.data(), 1000, [](std::size_t at) {
          return stand_in::value(0, at) + stand_in::value(1, at);
        });
      }
    } catch (const colls::error& thrown) {
      code = static_cast<colls::errc>(thrown.code().value());
    }
    good &= code == colls::errc::peer_failed && stand_in::calls("launch") > 20;
    good &= stand_in::calls("import_physical") == 1 && stand_in::calls("open") == 0;
  }
  good &= stand_in::complaints().empty() && stand_in::allocations() == 0;
  ::_exit(good ? 0 : 1);
}

TEST_CASE("a rank of a peer group that is killed ends the others' sums") {
  for (int i = 0; i < 5; ++i) CHECK(in_processes(killed_in_a_group, true) == 0);
}

/// Rank 1 is killed while it accesses rank 0's memory. Rank 0's call ends once that process has
/// ended.
colls::task<> killed_in_an_operation(colls::world& world, colls::algorithm how) {
  stand_in::boot({.devices = 2, .seed = 3, .eager_percent = 0, .processes = true});
  colls::errc code{};
  bool good = true;
  {
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, world.rank());
    const stand_in::user by(world.rank());
    std::vector<std::int64_t> dying{::getpid()};
    co_await world.broadcast(dying, 1);
    auto data = gpu.allocate<stand_in::number>(1000);
    const bool open = false;
    if (world.rank() == 1) {
      const auto guard = stand_in::lock();
      const auto is_open = [] { return false; };
      stand_in::enqueue_barrier(gpu.net().peers().work_stream().ref().handle, &open, is_open, {});
    }
    colls::options with = by.on_stream();
    with.algorithm = how;
    auto call = gpu.all_reduce(colls::group{data}, with);
    while (world.rank() == 1) {
      (void)call.done();
      if (stand_in::calls("launch") > 0) ::raise(SIGKILL);
    }
    try {
      co_await call;
    } catch (const colls::error& thrown) {
      code = static_cast<colls::errc>(thrown.code().value());
    }
    good &= code == colls::errc::peer_failed && cuda::has_ended(dying[0]);
  }
  good &= stand_in::complaints().empty() && stand_in::allocations() == 0;
  ::_exit(good ? 0 : 1);
}

TEST_CASE("a rank that is killed while it accesses a peer's memory ends the peer's call") {
  for (const colls::algorithm how : {colls::algorithm::automatic, colls::algorithm::ring}) {
    const auto killed = [how](colls::world& world) { return killed_in_an_operation(world, how); };
    for (int i = 0; i < 3; ++i) CHECK(in_processes(killed, true) == 0);
  }
}

/// The steps that the ranks of the next case have reached. A rank that waits for one drives no
/// calls.
class steps {
 public:
  void reach(int step) { at_ = step; }
  void await(int step) const {
    while (at_ < step) std::this_thread::yield();
  }
  cuda::guard_address guard;  // rank 1's

 private:
  std::atomic<int> at_{0};
};

/// Rank 1 has sent its last message of a call, and drops the call: its key is closed, and no
/// revoke is sent as long as rank 0 is active in another call. Rank 0 then begins its part of the
/// call.
colls::task<> drops_after_last_message(colls::world& world, steps& all) {
  constexpr cuda::remote_key second_key = 2 * colls::shm::max_remote_keys + 1;
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(world, 0);
  cuda::ipc_peers& here = gpu.net().peers();
  bool open = false;
  if (world.rank() == 0) {
    const auto guard = stand_in::lock();
    const auto is_open = [&open] { return open; };
    stand_in::enqueue_barrier(here.work_stream().ref().handle, &open, is_open, {});
  }
  stand_in::user by;
  auto one = by.numbers(100, world.rank());
  auto other = by.numbers(100, world.rank());
  const auto poll = [](auto& call) {
    for (int polls = 0; polls < 1000 && !call.done(); ++polls) {
    }
  };
  auto first = gpu.broadcast(one.span(), 0, by.on_stream());
  while (stand_in::calls("copy") == 0) (void)first.done();
  if (world.rank() == 0) all.await(1);
  auto second = gpu.broadcast(other.span(), 0, by.on_stream());
  const colls::operation_record& of = second.underlying_call();
  if (world.rank() == 1) {
    while (of.stream.handle != here.work_stream().ref().handle) (void)second.done();
    poll(second);  // its info has been sent
    all.guard = here.own_guard().address();
    all.reach(1);
    all.await(2);
    while (of.bytes_in_place % sizeof(cuda::peer_info) == 0) (void)second.done();
    poll(second);  // and its last message
    CHECK(cuda::guard_page_view(all.guard, 2).is_open(second_key));
    all.reach(3);
    {
      const auto dropped = std::move(second);
    }
  } else {
    while (of.bytes_in_place == 0) (void)second.done();
    poll(second);  // it has all infos, and has sent what it has mapped
    const cuda::guard_page_view page(all.guard, 2);
    all.reach(2);
    all.await(3);
    while (page.is_open(second_key)) std::this_thread::yield();
    poll(second);
    CHECK_FALSE(second.done());
    {
      const auto guard = stand_in::lock();
      open = true;
    }
    const auto waiting = [&second]() -> colls::task<> { co_await second; };
    const colls::errc code = co_await stand_in::code_of(waiting);
    CHECK(code == colls::errc::cancelled);
  }
  const auto waiting = [&first]() -> colls::task<> { co_await first; };
  const colls::errc code = co_await stand_in::code_of(waiting);
  CHECK((code == colls::errc{} || code == colls::errc::cancelled));
}

TEST_CASE("a rank that finds a key closed waits for the reason") {
  stand_in::boot({.seed = 3, .eager_percent = 0});
  steps all;
  const std::vector<int> statuses =
      run_tcp(2, [&all](colls::world& world) { return drops_after_last_message(world, all); });
  CHECK(statuses == std::vector<int>{0, 0});
  for (const std::string& each : stand_in::complaints()) FAIL_CHECK(each);
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("colls-bench measures memory of allocate, which ranks pass to each other") {
  stand_in::boot({.devices = 2, .seed = 5, .processes = true});
  colls::threads::run(2, [](colls::threads::communicator& comm) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, comm.rank());
    bench::options how;
    how.registered = true;
    bench::all_reduce<decltype(gpu), float> work(gpu, how, {});
    for (const std::size_t count : {300'000u, 100u, 400'000u}) {
      work.resize(count * sizeof(float));
      work.fill();
      CHECK(work.wrong() == count);
      co_await work.start();
      CHECK(work.wrong() == 0);
    }
    co_await gpu.close();
  });
  CHECK(stand_in::complaints().empty());
  CHECK(stand_in::calls("open") == 0);
  CHECK(stand_in::calls("import_physical") > 0);
}

TEST_CASE("colls-bench finds wrong elements in device memory") {
  stand_in::boot({.seed = 5});
  colls::threads::run(2, [](colls::threads::communicator& comm) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::staged>(comm, 0);
    const bench::options how;
    bench::all_reduce<decltype(gpu), float> work(gpu, how, {});
    const std::size_t count = 3'000'001;  // of several pieces
    work.resize(count * sizeof(float));
    work.fill();
    CHECK(work.wrong() == count);
    co_await work.start();
    CHECK(work.wrong() == 0);

    bench::elements<decltype(gpu), float> data(gpu, false);
    data.resize(count);
    const auto number = [](std::size_t i) { return static_cast<float>(i % 1000); };
    data.fill(number);
    CHECK(data.differ(0, count, number) == 0);
    data.view().data()[count - 1] += 1;
    CHECK(data.differ(0, count, number) == 1);
    CHECK(data.differ(1000, count - 1000, number) == 1);
    CHECK(data.differ(1000, count - 1001, number) == 0);
    co_await gpu.close();
  });
  CHECK(stand_in::complaints().empty());
  CHECK(stand_in::allocations() == 0);
}

}  // namespace
