// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/ipc.hpp>

#include <colls/cuda/reduce.cuh>
#include <colls/inproc.hpp>
#include <colls/threads.hpp>

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "../cuda/calls.hpp"
#include "../stand_in/user.hpp"

// Ranks that access each other's device memory. The stand-in is not a GPU: it shows that colls
// waits for everything that it must wait for.

namespace cuda = colls::cuda;

void user::capture(bool begins) { stand_in::capture(writes_.ref().handle, begins); }

namespace {

using colls::errc;
using stand_in::code_of;
using stand_in::number;
using host_communicator = colls::inproc::communicator;

void check_clean() {
  for (const std::string& each : stand_in::complaints()) FAIL(each);
  CHECK(stand_in::allocations() == 0);
  CHECK(stand_in::descriptors() == 0);
}

template <class Communicator, class Main>
colls::task<> attached(Communicator& comm, const Main& rank_main) {
  const int device = cuda::device_for(comm);
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, device, {512, 2});
  co_await rank_main(gpu);
}
/// Runs `rank_main(gpu)` on every rank, each with its device.
template <class Main>
void run(int ranks, stand_in::machine what, const Main& rank_main) {
  stand_in::boot(what);
  colls::inproc::run(ranks, [&](host_communicator& comm) { return attached(comm, rank_main); });
  check_clean();
}
template <class Main>
void run_threads(int ranks, stand_in::machine what, const Main& rank_main) {
  stand_in::boot(what);
  colls::threads::run(
      ranks, [&](colls::threads::communicator& comm) { return attached(comm, rank_main); });
  check_clean();
}

constexpr auto sum_of_two = [](std::size_t i) {
  return stand_in::value(0, i) + stand_in::value(1, i);
};

TEST_CASE("every collective, with many seeds of the stand-in") {
  std::uint64_t seed = 0;
  for (const bool processes : {false, true}) {
    for (const int devices : {1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 5}) {
        for (const std::size_t n : {0u, 1u, 13u, 700u}) {
          for (int round = 0; round < 3; ++round) {
            ++seed;
            const stand_in::machine what{.devices = devices,
                                         .seed = seed,
                                         .eager_percent = static_cast<int>(seed % 3 * 40),
                                         .streams_write = seed % 5 != 0,
                                         .processes = processes,
                                         .pins = seed % 7 != 0};
            run(ranks, what, [n](auto& gpu) { return stand_in::every_collective(gpu, n); });
          }
        }
      }
    }
  }
}

TEST_CASE("every collective between threads, of one process and of several") {
  for (const bool processes : {false, true}) {
    for (const int devices : {1, 2}) {
      for (const int ranks : {2, 3, 4}) {
        const stand_in::machine what{.devices = devices, .seed = 5, .processes = processes};
        run_threads(ranks, what, [](auto& gpu) -> colls::task<> {
          for (const std::size_t n : {0u, 5u, 600u}) co_await stand_in::every_collective(gpu, n);
        });
      }
    }
  }
}

TEST_CASE("the calls of the test programs for a GPU give right results") {
  for (const bool processes : {false, true}) {
    for (const int devices : {1, 2}) {
      stand_in::boot({.devices = devices, .seed = 7, .processes = processes});
      for (const std::size_t n : {1u, 1000u}) {
        colls::threads::run(
            2, [n](colls::threads::communicator& comm) { return calls<cuda::cuda_ipc>(comm, n); });
      }
      CHECK(wrong == 0);
      check_clean();
    }
  }
}

/// Makes a few calls of two ranks. `copied`: the number of bytes that went through messages.
colls::task<> sums(auto& gpu, std::uint64_t& copied, std::size_t n = 1000) {
  stand_in::user by(gpu.net().peers().work_stream().device());
  auto data = by.numbers(n, gpu.rank());
  auto out = by.used(n);
  auto first = gpu.all_reduce(data.span(), out.span(), by.on_stream());
  co_await first;
  auto second = gpu.broadcast(data.span(), 1, by.on_stream());
  co_await second;
  copied = first.copied_bytes() + second.copied_bytes();
  stand_in::expect("sum", out.data(), n, sum_of_two);
  stand_in::expect("sent", data.data(), n, [](std::size_t i) { return stand_in::value(1, i); });
  co_await gpu.barrier();
}

TEST_CASE("data stays on the device: one kernel and one copy, nothing by messages") {
  for (const bool processes : {false, true}) {
    run(2, {.processes = processes}, [&](auto& gpu) -> colls::task<> {
      std::uint64_t copied = 1;
      co_await sums(gpu, copied);
      CHECK(copied == 0);
      CHECK(stand_in::calls("launch") == 1);
      CHECK(stand_in::calls("copy") == 1);
      CHECK(stand_in::calls("open") == (processes ? 2 : 0));
    });
  }
}

TEST_CASE("ranks with a GPU each do a share of the work of a long call") {
  run(2, {.devices = 2, .processes = true}, [&](auto& gpu) -> colls::task<> {
    std::uint64_t copied = 1;
    co_await sums(gpu, copied, 100'000);
    CHECK(copied == 0);
    CHECK(stand_in::calls("launch") == 2);
    CHECK(stand_in::calls("open") == 4);
  });
}

int refused() { return stand_in::calls("open refused because of freed memory"); }
int opened() { return stand_in::calls("open") - refused(); }

TEST_CASE("opened memory is reused; memory at a freed address is opened again") {
  run(2, {.processes = true}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    auto data = by.numbers(1000, gpu.rank());
    for (int i = 0; i < 10; ++i) {
      co_await gpu.all_reduce(data.span(), by.on_stream());
      auto part = data.span().subspan(100, 50);
      co_await gpu.all_reduce(part, colls::maximum(), by.on_stream());
    }
    co_await gpu.barrier();
    CHECK(stand_in::calls("open") == 1);
    for (int i = 0; i < 300; ++i) {
      auto fresh = by.numbers(1000, gpu.rank());
      co_await gpu.all_reduce(fresh.span(), by.on_stream());
      stand_in::expect("fresh", fresh.data(), 1000, sum_of_two);
    }
    co_await gpu.barrier();
    CHECK(opened() == 301);
    CHECK(stand_in::calls("close") >= 301 - 128);
  });
}

TEST_CASE("freed memory is closed if it keeps memory of the same block from being opened") {
  run(2, {.processes = true}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    for (std::size_t i = 0; i < 100; ++i) {
      // Makes the next buffer lie beside the freed one, not at its address.
      auto pad = by.numbers(1000 + i % 7 * 1000, gpu.rank());
      auto fresh = by.numbers(1000, gpu.rank());
      auto call = gpu.all_reduce(fresh.span(), by.on_stream());
      co_await call;
      CHECK(call.copied_bytes() == 0);
      stand_in::expect("fresh", fresh.data(), 1000, sum_of_two);
      co_await gpu.barrier();
    }
    CHECK(opened() == 100);
    CHECK(refused() > 0);
  });
}

TEST_CASE("where memory cannot be shared, calls are staged") {
  const auto is_staged = [](auto& gpu) -> colls::task<> {
    std::uint64_t copied = 0;
    co_await sums(gpu, copied);
    CHECK(copied != 0);
    CHECK(stand_in::calls("launch") == 0);
    co_await stand_in::every_collective(gpu, 20);
  };
  run(2, {.processes = true, .ipc = false}, is_staged);
  run(2, {.devices = 2, .peers = false}, is_staged);
  run(9, {}, [](auto& gpu) { return stand_in::every_collective(gpu, 20); });
  CHECK(stand_in::calls("launch") == 0);
}

/// What `work()` writes to the log.
template <class Work>
std::string logged(const Work& work) {
  const int kept = ::dup(STDERR_FILENO);
  const int file = ::memfd_create("log", MFD_CLOEXEC);
  ::dup2(file, STDERR_FILENO);
  work();
  ::dup2(kept, STDERR_FILENO);
  std::string text(static_cast<std::size_t>(::lseek(file, 0, SEEK_END)), ' ');
  CHECK(::pread(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  ::close(file);
  ::close(kept);
  return text;
}

TEST_CASE("the log says once which rank cannot access what, in which call, why, and a hint") {
  const auto two_sums = [](auto& gpu) -> colls::task<> {
    std::uint64_t copied = 0;
    co_await sums(gpu, copied);
    co_await sums(gpu, copied);
  };
  const auto in_memory_of_allocate = [](auto& gpu) -> colls::task<> {
    if (gpu.rank() == 0) stand_in::fail("import_physical", 801);
    co_await gpu.barrier();
    auto data = gpu.template allocate<number>(1000);
    co_await gpu.all_reduce(data);
    co_await gpu.barrier();
  };
  const auto of_a_pool = [](auto& gpu) -> colls::task<> {
    void* memory = nullptr;
    CHECK(stand_in::allocate_from_pool(memory, 800) == 0);
    co_await gpu.all_reduce(colls::device_span(static_cast<number*>(memory), 100));
    co_await gpu.barrier();
    (void)cuda::api::release(memory);
  };
  const auto check_log = [](const std::string& log, const char* hint) {
    INFO(log);
    const std::string line = "rank 0 cannot work in device memory of rank 1, so all_reduce #";
    CHECK(log.find(line) != log.npos);
    CHECK(log.find(line) == log.rfind(line));
    CHECK(log.find(hint, log.find(". Hint: ")) != log.npos);
  };
  using machine = stand_in::machine;
  check_log(logged([&] { run(2, machine{.processes = true, .ipc = false}, two_sums); }),
            "ipc namespace");
  check_log(logged([&] { run(2, machine{.devices = 2, .peers = false}, two_sums); }),
            "nvidia-smi topo");
  check_log(logged([&] { run(2, machine{.processes = true}, of_a_pool); }), "no pool");
  check_log(logged([&] { run(2, machine{.processes = true}, in_memory_of_allocate); }),
            "nvidia-smi topo");
}

TEST_CASE("a call that pins an algorithm is staged with it; native and direct select the kernels") {
  using colls::algorithm;
  for (const auto how : {algorithm::automatic, algorithm::native, algorithm::direct,
                         algorithm::linear, algorithm::circulant}) {
    for (const int devices : {1, 2}) {
      run(2, {.devices = devices, .processes = true}, [=](auto& gpu) -> colls::task<> {
        const bool works_in_place = how != algorithm::linear && how != algorithm::circulant;
        stand_in::user by(gpu.net().peers().work_stream().device());
        colls::options pinned = by.on_stream();
        pinned.algorithm = how;
        auto in = by.numbers(1000, gpu.rank());
        auto out = by.used(1000);
        auto sum = gpu.all_reduce(in.span(), out.span(), pinned);
        co_await sum;
        CHECK((sum.copied_bytes() == 0) == works_in_place);
        stand_in::expect("sum", out.data(), 1000, sum_of_two);
        const auto data = out.span();
        auto group = gpu.all_reduce(colls::group{data}, colls::maximum(), pinned);
        co_await group;
        CHECK((group.copied_bytes() == 0) == works_in_place);
        auto sent = gpu.broadcast(in.span(), 1, pinned);
        co_await sent;
        CHECK((sent.copied_bytes() == 0) == works_in_place);
        stand_in::expect("sent", in.data(), 1000,
                         [](std::size_t i) { return stand_in::value(1, i); });
        co_await gpu.barrier();
        CHECK((stand_in::calls("launch") != 0) == works_in_place);
      });
    }
  }
}

TEST_CASE("a rank that pins the algorithm that the others would use to stage gets mismatch") {
  stand_in::boot({});
  std::vector<errc> codes(2);
  colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
    constexpr std::size_t n = 100'000;
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 0);
    colls::network_cost costs = colls::hybrid_cost;
    costs.reduce_per_kib = 1'000'000'000;  // `direct`, which reduces most, is not chosen
    gpu.set_costs(costs);
    stand_in::user by;
    auto data = by.numbers(n, comm.rank());
    colls::options how = by.on_stream();
    const auto explained = gpu.explain(colls::collective::all_reduce, n * sizeof(number));
    CHECK(explained.chosen.id != colls::algorithm::direct);
    if (comm.rank() == 0) how.algorithm = explained.chosen.id;
    auto call = gpu.all_reduce(data.span(), how);
    const auto waiting = [&call]() -> colls::task<> { co_await call; };
    codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(waiting);
    CHECK(std::string(call.reason().detail).find("differ in algorithm") != std::string::npos);
  });
  CHECK(codes == std::vector<errc>{errc::mismatch, errc::mismatch});
}

TEST_CASE("a handle that cannot be made or opened stages only that call") {
  for (const char* const function : {"share", "open", "find_allocation"}) {
    run(2, {.processes = true}, [function](auto& gpu) -> colls::task<> {
      // The handle is that of memory that rank 1 exposes to rank 0. If opening it fails, rank 0
      // tries again if it has closed other memory, so `open` fails in the first call.
      const bool opens = std::string(function) == "open";
      std::uint64_t copied = 1;
      if (!opens) co_await sums(gpu, copied);
      const int before = opens ? 0 : 1;
      CHECK(stand_in::calls("launch") == before);
      if (gpu.rank() == 0) stand_in::fail(function, 801, opens ? 1 : 3);
      co_await gpu.barrier();
      co_await sums(gpu, copied);
      CHECK(stand_in::calls("launch") == before);  // the sum was staged
      co_await sums(gpu, copied);
      CHECK(stand_in::calls("launch") == before + 1);
      CHECK(copied == 0);
    });
  }
}

TEST_CASE("lengths that differ between two ranks end all_to_all_v on both") {
  stand_in::boot({});
  std::vector<errc> codes(2);
  colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 0);
    stand_in::user by;
    auto in = by.numbers(20, comm.rank());
    auto out = by.used(20);
    const std::vector<std::size_t> even{10, 10};
    const std::vector<std::size_t> other{comm.rank() == 0 ? 10u : 9u, 10};
    const auto calling = [&] {
      return gpu.all_to_all_v(in.span().subspan(0, other[0] + 10), other, out.span(), even);
    };
    codes[static_cast<std::size_t>(comm.rank())] = co_await code_of(calling);
  });
  CHECK(codes == std::vector<errc>{errc::mismatch, errc::mismatch});
  CHECK(stand_in::calls("copy") == 0);
}

TEST_CASE("two concurrent calls, awaited in reverse order") {
  run(2, {.processes = true}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    auto one = by.numbers(10'000, gpu.rank());
    auto other = by.numbers(10'000, gpu.rank());
    auto first = gpu.all_reduce(one.span(), by.on_stream());
    auto second = gpu.all_reduce(other.span(), by.on_stream());
    co_await second;
    co_await first;
    stand_in::expect("first", one.data(), 10'000, sum_of_two);
    stand_in::expect("second", other.data(), 10'000, sum_of_two);
  });
}

TEST_CASE("a call does not wait for the stream of another call") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const stand_in::machine what{.seed = seed,
                                 .eager_percent = static_cast<int>(seed % 3 * 40),
                                 .processes = seed % 2 == 0,
                                 .ipc = seed % 4 != 0};
    run(2, what, [](auto& gpu) { return stand_in::calls_that_streams_wait_for(gpu, 5'000); });
  }
}

TEST_CASE("a call whose caller's stream makes no progress ends by its deadline") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    run(2, {.seed = seed, .eager_percent = 0, .processes = seed % 2 == 0},
        [](auto& gpu) -> colls::task<> {
          bool open = false;
          stand_in::user by;
          auto data = by.numbers(1000, gpu.rank());
          by.hold(open);
          colls::options soon = by.on_stream();
          soon.timeout = std::chrono::milliseconds(100);
          const auto calling = [&] { return gpu.broadcast(data.span(), 0, soon); };
          const errc code = co_await code_of(calling);
          open = true;
          CHECK((code == errc::timeout || code == errc::closed));
        });
  }
}

TEST_CASE("calls of another communicator do not wait for work that a call has abandoned") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    run(2, {.seed = seed, .eager_percent = 0, .processes = true}, [](auto& gpu) -> colls::task<> {
      auto twin = co_await gpu.split(0);
      bool open = false;
      stand_in::user held;
      stand_in::user by;
      auto data = held.numbers(1000, gpu.rank());
      auto good = by.numbers(1000, gpu.rank());
      held.hold(open);
      colls::options soon = held.on_stream();
      soon.timeout = std::chrono::milliseconds(100);
      const auto calling = [&] { return gpu.broadcast(data.span(), 0, soon); };
      const errc code = co_await code_of(calling);
      colls::options later = by.on_stream();
      later.timeout = std::chrono::seconds(5);
      const auto calling_again = [&] { return twin.all_reduce(good.span(), later); };
      const errc again = co_await code_of(calling_again);
      open = true;
      CHECK((code == errc::timeout || code == errc::closed));
      REQUIRE(again == errc{});
      stand_in::expect("sum", good.data(), 1000, sum_of_two);
    });
  }
}

TEST_CASE("a caller's stream that makes no progress does not delay the end of the communicator") {
  stand_in::boot({.eager_percent = 0});
  bool open = false;
  std::deque<stand_in::user> users(2);
  std::vector<cuda::device_buffer<number>> buffers;
  for (stand_in::user& each : users) {
    buffers.push_back(each.numbers(1000, 0));
    each.hold(open);
  }
  colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 0);
    const auto mine = static_cast<std::size_t>(comm.rank());
    colls::options soon = users[mine].on_stream();
    soon.timeout = std::chrono::milliseconds(100);
    const auto data = buffers[mine].span();
    const auto calling = [&] { return gpu.broadcast(data, 0, soon); };
    const errc code = co_await code_of(calling);
    CHECK((code == errc::timeout || code == errc::closed));
  });
  for (const std::string& each : stand_in::complaints()) FAIL_CHECK(each);
  open = true;
  users.clear();
  buffers.clear();
  CHECK(stand_in::allocations() == 2);  // progress words, which the streams have written since
}

TEST_CASE("ranks that access each other's memory in two calls may drop both") {
  stand_in::boot({.devices = 2, .eager_percent = 0});
  bool open = false;
  std::atomic<int> inside{0};
  colls::threads::run(2, [&](colls::threads::communicator& comm) -> colls::task<> {
    const int device = cuda::device_for(comm);
    auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, device);
    {
      const auto guard = stand_in::lock();
      const auto is_open = [&open] { return open; };
      stand_in::enqueue_barrier(gpu.net().peers().work_stream().ref().handle, &open, is_open, {});
    }
    stand_in::user by(device);
    auto one = by.numbers(1000, comm.rank());
    auto other = by.numbers(1000, comm.rank());
    const auto first = one.span();
    const auto second = other.span();
    std::vector<colls::operation<>> calls;
    calls.push_back(gpu.all_reduce(colls::group{first}, by.on_stream()));
    calls.push_back(gpu.all_reduce(colls::group{second}, by.on_stream()));
    while (stand_in::calls("launch") < 4) {
      for (auto& each : calls) (void)each.done();
    }
    ++inside;
    while (inside < 2) std::this_thread::yield();
    {
      const auto guard = stand_in::lock();
      open = true;
    }
  });
  check_clean();
}

/// Whether `what` becomes true within five seconds.
bool becomes_true(const std::atomic<bool>& what) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!what && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  return what;
}

TEST_CASE("a worker that makes no calls delays no deadline") {
  std::atomic<int> late{0};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    stand_in::boot({.seed = seed,
                    .eager_percent = 0,
                    .streams_write = seed % 4 != 3,
                    .processes = seed % 2 == 0,
                    .pins = seed % 4 != 0});
    std::atomic<bool> is_back{false};
    colls::threads::run(2, [&](colls::threads::communicator& comm) -> colls::task<> {
      auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 0);
      stand_in::user by;
      auto data = by.numbers(1000, comm.rank());
      colls::options soon = by.on_stream();
      if (comm.rank() == 1) soon.timeout = std::chrono::milliseconds(200);
      auto call = gpu.broadcast(data.span(), 0, soon);
      if (comm.rank() == 0) {
        while (stand_in::calls("copy") == 0 && !call.done()) std::this_thread::yield();
        CHECK(becomes_true(is_back));  // this rank computes until then
      }
      const auto waiting = [&call]() -> colls::task<> { co_await call; };
      const errc code = co_await code_of(waiting);
      CHECK((code == errc{} || code == errc::timeout));
      late += code == errc::timeout ? 1 : 0;
      if (comm.rank() == 1) is_back = true;
    });
    check_clean();
  }
  CHECK(late >= 4);
}

TEST_CASE("a worker that cannot enqueue its work is not waited for") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    std::atomic<bool> is_back{false};
    stand_in::boot({.seed = seed, .eager_percent = 0, .processes = seed % 2 == 0});
    colls::threads::run(2, [&](colls::threads::communicator& comm) -> colls::task<> {
      auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, 0);
      stand_in::user by;
      auto data = by.numbers(1000, comm.rank());
      co_await gpu.barrier();
      if (comm.rank() == 0) stand_in::fail("copy", 700);
      const auto calling = [&] { return gpu.broadcast(data.span(), 0, by.on_stream()); };
      const errc code = co_await code_of(calling);
      CHECK(code == errc::device_failed);
      if (comm.rank() == 1) is_back = true;
      if (comm.rank() == 0) {
        CHECK(becomes_true(is_back));
        gpu.net().peers().quiesce();  // so that the peer returns even if the check fails
      }
    });
    check_clean();
  }
}

TEST_CASE("calls work with any current device of the thread") {
  for (const bool processes : {false, true}) {
    run(3, {.devices = 2, .processes = processes},
        [](auto& gpu) { return stand_in::calls_from_another_device(gpu); });
  }
}

TEST_CASE("more calls at a time than a rank has remote keys") {
  run(2, {}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    std::deque<cuda::device_buffer<number>> buffers;
    std::vector<colls::operation<>> calls;
    for (std::size_t i = 0; i < colls::shm::max_remote_keys + 40; ++i) {
      buffers.push_back(by.numbers(10, gpu.rank()));
      calls.push_back(gpu.all_reduce(buffers.back().span(), by.on_stream()));
    }
    for (auto& each : calls) co_await each;
    for (const auto& each : buffers) stand_in::expect("one of many", each.data(), 10, sum_of_two);
  });
}

TEST_CASE("buffers that cannot be used are refused before anything is launched") {
  run(2, {.devices = 2}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    auto good = by.numbers(100, gpu.rank());
    std::vector<number> host(100);
    number* freed = nullptr;
    {
      const cuda::device_buffer<number> gone(100);
      freed = gone.data();
    }
    auto elsewhere = stand_in::user(1 - gpu.rank()).numbers(100, 0);
    auto* const askew = reinterpret_cast<number*>(reinterpret_cast<std::byte*>(good.data()) + 4);
    const auto reduces = [&](number* data, std::size_t count) {
      return [&gpu, data, count] { return gpu.all_reduce(colls::device_span(data, count)); };
    };
    const errc of_host = co_await code_of(reduces(host.data(), 100));
    const errc of_freed = co_await code_of(reduces(freed, 100));
    const errc of_other = co_await code_of(reduces(elsewhere.data(), 100));
    const errc of_long = co_await code_of(reduces(good.data(), 101));
    const errc of_askew = co_await code_of(reduces(askew, 99));
    const auto grouped = [&] {
      const colls::device_span one(askew, 10);
      const auto other = good.span();
      return gpu.all_reduce(colls::group{other, one});
    };
    const errc of_group = co_await code_of(grouped);
    for (const errc each : {of_host, of_freed, of_other, of_long, of_askew, of_group}) {
      CHECK(each == errc::invalid_argument);
    }
    co_await gpu.barrier();
    // The same for streams: one that is captured, and one of another device.
    void* const callers = stand_in::make_stream(gpu.rank());
    colls::options captured;
    captured.stream = {callers};
    colls::options others;
    others.stream = {stand_in::make_stream(1 - gpu.rank())};
    stand_in::capture(callers, true);
    const auto there = good.span();
    for (const colls::options& after : {captured, others}) {
      const errc of_sum = co_await code_of([&] { return gpu.all_reduce(there, after); });
      const auto group = colls::group{there};
      const errc of_group_after = co_await code_of([&] { return gpu.all_reduce(group, after); });
      const errc of_copy = co_await code_of([&] { return gpu.broadcast(there, 0, after); });
      const auto sending = [&] { return gpu.send(there, 1 - gpu.rank(), 0, after); };
      const errc of_send = co_await code_of(sending);
      const auto receiving = [&] { return gpu.recv(there, 1 - gpu.rank(), 0, after); };
      const errc of_recv = co_await code_of(receiving);
      for (const errc each : {of_sum, of_group_after, of_copy, of_send, of_recv}) {
        CHECK(each == errc::invalid_argument);
      }
    }
    stand_in::capture(callers, false);
    CHECK(stand_in::calls("launch") == 0);
    co_await gpu.barrier();
    const errc of_good = co_await code_of(reduces(good.data(), 100));
    CHECK(of_good == errc{});
  });
}

TEST_CASE("invalid arguments are refused on all ranks") {
  for (const int devices : {1, 3}) {
    run(3, {.devices = devices}, [](auto& gpu) { return stand_in::every_refusal(gpu); });
  }
}

TEST_CASE("a split of a communicator, and one made after it") {
  run(4, {.devices = 2, .processes = true}, [](auto& gpu) -> colls::task<> {
    auto half = co_await gpu.split(gpu.rank() / 2);
    stand_in::user by(gpu.net().peers().work_stream().device());
    auto data = by.numbers(300, gpu.rank());
    co_await half.all_reduce(data.span(), by.on_stream());
    const int first = gpu.rank() / 2 * 2;
    stand_in::expect("half", data.data(), 300, [first](std::size_t i) {
      return stand_in::value(first, i) + stand_in::value(first + 1, i);
    });
    co_await half.close();
    co_await stand_in::every_collective(gpu, 30);
  });
}

TEST_CASE("a failure on the device ends the call on all ranks, which touch no buffer afterwards") {
  int seen = 0;
  for (const char* const function : {"launch", "write", "record", "wait", "enable_peer_access"}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      stand_in::boot(
          {.devices = 2, .seed = seed, .eager_percent = static_cast<int>(seed % 2 * 30)});
      std::vector<errc> codes(3);
      try {
        colls::inproc::run(3, [&](host_communicator& comm) -> colls::task<> {
          const int device = cuda::device_for(comm);
          auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, device, {512, 2});
          stand_in::user by(device);
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

TEST_CASE("a lost device ends the calls in flight, short sums too, and no rank hangs") {
  int failed = 0;
  for (const int devices : {1, 2}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      stand_in::boot({.devices = devices, .seed = seed, .eager_percent = 0});
      colls::inproc::run(2, [&](host_communicator& comm) -> colls::task<> {
        const int device = cuda::device_for(comm);
        auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, device);
        stand_in::user by(device);
        auto data = by.numbers(1000, comm.rank());
        auto call = gpu.all_reduce(data.span(), by.on_stream());
        for (std::uint64_t polls = 0; polls < seed / 4; ++polls) (void)call.done();
        if (comm.rank() == 0) stand_in::break_devices(700);
        const auto waiting = [&call]() -> colls::task<> { co_await call; };
        const errc code = co_await code_of(waiting);
        CHECK((code == errc{} || code == errc::device_failed));
        failed += code == errc::device_failed ? 1 : 0;
        const auto again = [&] { return gpu.all_reduce(data.span(), by.on_stream()); };
        const errc next = co_await code_of(again);
        CHECK(next == errc::device_failed);
      });
      check_clean();
    }
  }
  CHECK(failed > 0);
}

/// One of the ranks drops its call after some polls and frees its buffers at once.
template <class Communicator>
colls::task<> drop_one(Communicator& comm, std::uint64_t seed, bool exportable = false) {
  const int device = cuda::device_for(comm);
  auto gpu = co_await cuda::attach<cuda::cuda_ipc>(comm, device, {512, 2});
  stand_in::user by(device);
  const bool drops = comm.rank() == static_cast<int>(seed % 2);
  if (drops && exportable) {
    auto data = gpu.template allocate<number>(1000);
    auto dropped = gpu.all_reduce(data, by.on_stream());
    for (std::uint64_t polls = 0; polls < seed / 2 % 20; ++polls) (void)dropped.done();
    co_await comm.barrier();
    for (std::uint64_t polls = 0; polls < seed / 40 % 8; ++polls) (void)dropped.done();
  } else if (drops) {
    auto data = by.numbers(1000, comm.rank());
    auto dropped = gpu.all_reduce(data.span(), by.on_stream());
    for (std::uint64_t polls = 0; polls < seed / 2 % 12; ++polls) (void)dropped.done();
    co_await comm.barrier();
    for (std::uint64_t polls = 0; polls < seed / 24 % 12; ++polls) (void)dropped.done();
  } else {
    auto data = by.numbers(1000, comm.rank());
    auto call = gpu.all_reduce(data.span(), by.on_stream());
    co_await comm.barrier();
    const auto waiting = [&]() -> colls::task<> { co_await call; };
    const errc code = co_await code_of(waiting);
    INFO(static_cast<int>(code));
    CHECK((code == errc{} || code == errc::cancelled));
  }
}

TEST_CASE("a dropped call waits until no peer accesses its buffers") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    stand_in::boot({.devices = seed % 3 == 0 ? 2 : 1, .seed = seed, .eager_percent = 0});
    colls::inproc::run(2, [&](host_communicator& comm) { return drop_one(comm, seed); });
    check_clean();
  }
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    stand_in::boot({.devices = seed % 3 == 0 ? 2 : 1,
                    .seed = seed,
                    .eager_percent = 0,
                    .processes = seed % 2 == 0});
    colls::threads::run(2,
                        [&](colls::threads::communicator& comm) { return drop_one(comm, seed); });
    check_clean();
  }
}

/// A rank's numbers in exportable memory.
colls::shared_buffer<number, colls::device_memory> exportable(auto& gpu, stand_in::user& by,
                                                              std::size_t count = 1000) {
  auto made = gpu.template allocate<number>(count);
  for (std::size_t i = 0; i < count; ++i) REQUIRE(made.data()[i] == 0);
  by.later([to = made.data(), count, rank = gpu.rank()] {
    for (std::size_t i = 0; i < count; ++i) to[i] = stand_in::value(rank, i);
  });
  return made;
}

/// A sum in device memory: a group is always an `ipc_operation`.
colls::task<> sum_of(auto& gpu, auto& data, stand_in::user& by) {
  co_await gpu.all_reduce(colls::group{data}, by.on_stream());
  stand_in::expect("sum", data.data(), data.size(), sum_of_two);
}

TEST_CASE("memory of allocate has zeros, and is sent once to each rank that accesses it") {
  std::uint64_t seed = 0;
  for (const bool processes : {false, true}) {
    for (const int devices : {1, 2}) {
      for (int round = 0; round < 5; ++round) {
        const stand_in::machine what{.devices = devices,
                                     .seed = ++seed,
                                     .eager_percent = static_cast<int>(seed % 3 * 40),
                                     .processes = processes};
        run(2, what, [&](auto& gpu) -> colls::task<> {
          stand_in::user by(gpu.net().peers().work_stream().device());
          auto data = exportable(gpu, by);
          co_await sum_of(gpu, data, by);
          for (int i = 0; i < 3; ++i) {
            auto part = data.span().subspan(100, 50);
            co_await gpu.all_reduce(colls::group{part}, colls::maximum(), by.on_stream());
          }
          auto out = exportable(gpu, by);
          co_await gpu.broadcast(out, 1, by.on_stream());
          stand_in::expect("sent", out.data(), out.size(),
                           [](std::size_t i) { return stand_in::value(1, i); });
          co_await gpu.all_reduce(colls::group{out}, colls::minimum(), by.on_stream());
          stand_in::expect("the least", out.data(), out.size(),
                           [](std::size_t i) { return stand_in::value(1, i); });
          co_await gpu.barrier();
          CHECK(stand_in::calls("launch") == 5 * devices);
          CHECK(stand_in::calls("import_physical") == (processes ? 2 * devices : 0));
          CHECK(stand_in::calls("open") == 0);
        });
      }
    }
  }
}

TEST_CASE("memory of allocate between threads, of one process and of several") {
  for (const bool processes : {false, true}) {
    for (const int devices : {1, 2, 3}) {
      run_threads(3, {.devices = devices, .seed = 3, .processes = processes},
                  [](auto& gpu) -> colls::task<> {
                    stand_in::user by(gpu.net().peers().work_stream().device());
                    for (int i = 0; i < 20; ++i) {
                      auto data = exportable(gpu, by, 500);
                      auto call = gpu.broadcast(data, i % 3, by.on_stream());
                      co_await call;
                      CHECK(call.copied_bytes() == 0);
                      stand_in::expect("sent", data.data(), data.size(),
                                       [i](std::size_t j) { return stand_in::value(i % 3, j); });
                    }
                  });
    }
  }
}

TEST_CASE("memory of allocate is freed while others have it mapped") {
  run(2, {.processes = true}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    for (int i = 0; i < 300; ++i) {
      auto data = exportable(gpu, by);
      auto out = exportable(gpu, by, 500);
      co_await gpu.all_reduce(data.span().subspan(0, 500), out, by.on_stream());
      stand_in::expect("sum", out.data(), 500, sum_of_two);
    }
    co_await gpu.barrier();
    CHECK(stand_in::calls("launch") == 300);
    CHECK(stand_in::calls("import_physical") == 600);
  });
}

TEST_CASE("memory of allocate is freed after the work of users' streams, on any device") {
  for (const int other : {0, 1}) {
    run(2, {.devices = 3, .eager_percent = 0}, [other](auto& gpu) -> colls::task<> {
      bool done = false;
      stand_in::user by((gpu.rank() + other) % 2);  // device 2 is never used, and not waited for
      {
        auto data = gpu.template allocate<number>(10);
        by.later([&done] { done = true; });
      }
      CHECK(done);
      co_return;
    });
  }
}

TEST_CASE("memory of allocate has descriptors only while they are sent") {
  run(2, {.processes = true}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    std::vector<colls::shared_buffer<number, colls::device_memory>> all;
    for (int i = 0; i < 30; ++i) {
      all.push_back(exportable(gpu, by));
      co_await sum_of(gpu, all.back(), by);
    }
    co_await gpu.barrier();
    CHECK(stand_in::descriptors() == 0);
    co_await gpu.barrier();
  });
}

TEST_CASE("an allocation that several ranks of a process expose is opened once") {
  for (const bool descriptors : {true, false}) {
    // Ranks 0 and 1 are of one process, 2 and 3 of another; rank 0 works for all.
    const stand_in::machine what{.processes = true, .ranks_of_each = 2, .descriptors = descriptors};
    colls::shared_buffer<number, colls::device_memory> theirs;
    cuda::device_buffer<number> by_handle;
    run(4, what, [&](auto& gpu) -> colls::task<> {
      stand_in::user by;
      auto out = by.used(100);
      if (gpu.rank() == 2 && descriptors) theirs = gpu.template allocate<number>(100);
      if (gpu.rank() == 2 && !descriptors) by_handle = by.numbers(100, 2);
      co_await gpu.barrier();
      auto own = by.numbers(100, gpu.rank());
      colls::device_span<number> in = own.span();
      if (gpu.rank() >= 2) in = descriptors ? theirs.span() : by_handle.span();
      auto call = gpu.all_reduce(in, out.span(), by.on_stream());
      co_await call;
      CHECK(call.copied_bytes() == 0);
      stand_in::expect("sum", out.data(), 100, [descriptors](std::size_t i) {
        const number twice = descriptors ? 0 : stand_in::value(2, i);
        return sum_of_two(i) + 2 * twice;
      });
      co_await gpu.barrier();
      if (gpu.rank() != 2) co_return;
      CHECK(stand_in::calls("import_physical") == (descriptors ? 1 : 0));
      CHECK(stand_in::calls("open") == (descriptors ? 2 : 3));
      theirs = {};
      by_handle = {};
    });
  }
}

TEST_CASE("ranks without descriptors share memory by handles, whatever the others do") {
  const char* const functions[] = {"can_export", "find_granularity", "make_physical",  "reserve",
                                   "map",        "set_access",       "can_access_peer"};
  for (const char* const function : functions) {
    for (const int without : {0, 1}) {
      run(2, {.devices = 2, .processes = true}, [=](auto& gpu) -> colls::task<> {
        stand_in::user by(gpu.net().peers().work_stream().device());
        const bool is_without = gpu.rank() == without;
        if (is_without) stand_in::fail(function, 801);
        auto data = exportable(gpu, by);
        co_await gpu.barrier();
        CHECK(stand_in::calls("allocate") == 1);
        co_await sum_of(gpu, data, by);
        co_await gpu.barrier();
        CHECK(stand_in::calls("launch") == 2);
        CHECK(stand_in::calls("open") == 1);
        CHECK(stand_in::calls("import_physical") == 1);
      });
    }
  }
  run(2, {.processes = true, .descriptors = false}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    auto data = exportable(gpu, by);
    co_await sum_of(gpu, data, by);
    CHECK(stand_in::calls("launch") == 1);
    CHECK(stand_in::calls("make_physical") == 0);
  });
}

TEST_CASE("a descriptor that cannot be used stages the call, and later memory has handles") {
  for (const char* const function :
       {"export_physical", "import_physical", "reserve", "map", "set_access"}) {
    run(2, {.processes = true}, [function](auto& gpu) -> colls::task<> {
      stand_in::user by(gpu.net().peers().work_stream().device());
      auto data = exportable(gpu, by);
      co_await gpu.barrier();
      if (gpu.rank() == 0) stand_in::fail(function, 801);
      co_await sum_of(gpu, data, by);
      CHECK(stand_in::calls("launch") == 0);
      co_await gpu.barrier();
      auto later = exportable(gpu, by);
      co_await sum_of(gpu, later, by);
      CHECK(stand_in::calls("launch") == 1);
      CHECK(stand_in::calls("allocate") == 2);
      CHECK(stand_in::calls("open") == 1);
    });
  }
}

TEST_CASE("allocate fails with not_enough_memory if there is no device memory") {
  run(1, {}, [](auto& gpu) -> colls::task<> {
    const auto code = [&](std::size_t count) {
      try {
        (void)gpu.template allocate<number>(count);
      } catch (const colls::error& thrown) {
        return static_cast<errc>(thrown.code().value());
      }
      return errc{};
    };
    stand_in::fail("make_physical", cuda::api::out_of_memory);
    CHECK(code(10) == errc::not_enough_memory);
    CHECK(code(SIZE_MAX / 4) == errc::not_enough_memory);
    CHECK(code(0) == errc{});
    CHECK(code(10) == errc{});
    CHECK(stand_in::calls("allocate") == 0);
    co_return;
  });
}

TEST_CASE("registered device memory is for one communicator, and only while the memory exists") {
  run(2, {.processes = true}, [](auto& gpu) -> colls::task<> {
    stand_in::user by(gpu.net().peers().work_stream().device());
    auto half = co_await gpu.split(0);
    auto data = exportable(gpu, by);
    auto good = gpu.register_buffer(data, 100, 50);
    auto others = half.register_buffer(data);
    CHECK(good.size() == 50);
    CHECK_THROWS_AS(gpu.register_buffer(data, 900, 101), colls::error);
    co_await gpu.all_reduce(good, by.on_stream());
    stand_in::expect("registered", good.data(), 50,
                     [](std::size_t i) { return sum_of_two(i + 100); });
    const auto reduces = [&gpu](auto& what) { return [&] { return gpu.all_reduce(what); }; };
    const errc of_others = co_await code_of(reduces(others));
    data = {};
    const errc of_freed = co_await code_of(reduces(good));
    CHECK(of_others == errc::invalid_argument);
    CHECK(of_freed == errc::invalid_argument);
    co_await gpu.barrier();
  });
}

TEST_CASE("a rank that drops a call on memory of allocate may free it at once") {
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    stand_in::boot({.devices = seed % 3 == 0 ? 2 : 1,
                    .seed = seed,
                    .eager_percent = 0,
                    .processes = seed % 5 != 0});
    colls::threads::run(
        2, [&](colls::threads::communicator& comm) { return drop_one(comm, seed, true); });
    check_clean();
  }
}

TEST_CASE("a buffer that a peer describes must lie in its allocation") {
  stand_in::boot({});
  cuda::mapped_memory all;
  cuda::remote_buffer remote;
  remote.allocation_base = 4096;
  remote.allocation_size = 4096;
  cuda::api::status why = 0;
  for (const auto& [at, size] : {std::pair{4095u, 1u}, {8192u, 1u}, {5000u, 3193u}, {0u, 1u}}) {
    remote.address = at;
    remote.size = size;
    CHECK(all.acquire(1, remote, {}, 0, why) == nullptr);
    CHECK(why == cuda::api::invalid_value);
  }
  CHECK(stand_in::calls("open") == 0);
}

TEST_CASE("exportable memory is not taken for another allocation at its address") {
  stand_in::boot({.processes = true});
  cuda::mapped_memory all;
  cuda::api::status why = 0;
  {
    const cuda::device_buffer<number> theirs(100);
    const std::uint64_t processes[] = {cuda::api::process(), cuda::api::process()};
    CHECK(processes[0] != processes[1]);
    cuda::handle_cache own;
    cuda::remote_buffer remote = own.describe({reinterpret_cast<std::byte*>(theirs.data()), 800});
    cuda::mapped_memory::mapping* const opened = all.acquire(1, remote, {}, 0, why);
    REQUIRE(opened != nullptr);
    cuda::mapped_memory::release(*opened);
    remote.is_exportable = 1;
    CHECK(all.acquire(1, remote, {}, 0, why) == nullptr);
    CHECK(why == cuda::mapped_memory::needs_descriptor);
    all.close_all();
  }
  check_clean();
}

TEST_CASE("the descriptor of memory is not that of other memory at its address") {
  stand_in::boot({});
  {
    const cuda::on_device here(0);
    cuda::api::status why = 0;
    const auto usage = cuda::exportable_memory::usage::user_streams;
    const auto memory = cuda::exportable_memory::allocate(100, 0, usage, why);
    REQUIRE(memory != nullptr);
    cuda::api::allocation found;
    REQUIRE(cuda::exportable_memory::find(memory.get() + 99, found));
    CHECK(found.base == memory.get());
    CHECK_FALSE(cuda::exportable_memory::find(memory.get() + found.size, found));
    CHECK_FALSE(cuda::exportable_memory::find(&why, found));
    const auto base = reinterpret_cast<std::uintptr_t>(memory.get());
    int uses = 0;
    const auto use = [&uses](int file) {
      uses += file >= 0 ? 1 : 0;
      CHECK(stand_in::descriptors() == 1);
      CHECK(::fcntl(file, F_GETFD) == FD_CLOEXEC);
    };
    cuda::exportable_memory::use_descriptor(base, found.number, use);
    CHECK(uses == 1);
    CHECK(stand_in::descriptors() == 0);
    cuda::exportable_memory::use_descriptor(base, found.number + 1, use);
    cuda::exportable_memory::use_descriptor(base + 1, found.number, use);
    CHECK(uses == 1);
  }
  check_clean();
}

/// Makes a file with a text, and reads the text of a file.
int file_of(const char* text) {
  const int made = ::memfd_create("passed", MFD_CLOEXEC);
  REQUIRE(::write(made, text, std::strlen(text)) > 0);
  return made;
}
std::string text_of(const colls::detail::descriptor& file) {
  char found[16] = {};
  return file && ::pread(file.get(), found, sizeof found - 1, 0) > 0 ? found : "";
}

TEST_CASE("descriptors stay in a mailbox until they are taken, each by its label") {
  const colls::fd_label first{1, 7};
  const colls::fd_label second{2, 7};
  colls::fd_mailbox own;
  REQUIRE(own.name() != 0);
  const colls::detail::descriptor one(file_of("one"));
  const colls::detail::descriptor other(file_of("other"));
  CHECK(text_of(own.take(first)) == "");
  CHECK(colls::fd_mailbox::send(own.name(), first, one.get()));
  CHECK(colls::fd_mailbox::send(own.name(), second, other.get()));
  CHECK(colls::fd_mailbox::send(own.name(), first, one.get()));
  CHECK(text_of(own.take(second)) == "other");
  CHECK(text_of(own.take(first)) == "one");
  CHECK(text_of(own.take(first)) == "one");  // for another call, or another rank of that process
  CHECK(text_of(own.take(first)) == "");
  CHECK_FALSE(colls::fd_mailbox::send(0, first, one.get()));
  std::uint64_t gone = 0;
  {
    const colls::fd_mailbox closed;
    gone = closed.name();
  }
  CHECK_FALSE(colls::fd_mailbox::send(gone, first, one.get()));
}

/// Connects to a mailbox, and sends nothing yet.
colls::detail::descriptor connect_to(const colls::fd_mailbox& own, int how = SOCK_CLOEXEC) {
  sockaddr_un there{};
  there.sun_family = AF_UNIX;
  const std::uint64_t name = own.name();
  std::memcpy(there.sun_path + 1, &name, sizeof name);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(there.sun_path + 1));
  colls::detail::descriptor client(::socket(AF_UNIX, SOCK_SEQPACKET | how, 0));
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&there), size) != 0) return {};
  return client;
}
std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_CASE("senders that keep connecting neither block a mailbox nor use up descriptors") {
  colls::fd_mailbox own;
  const std::size_t before = open_descriptors();
  std::atomic<bool> over{false};
  std::atomic<std::size_t> connected{0};
  std::vector<std::jthread> senders;
  for (int i = 0; i < 4; ++i) {
    senders.emplace_back([&] {
      while (!over) connected += connect_to(own, SOCK_CLOEXEC | SOCK_NONBLOCK) ? 1 : 0;
    });
  }
  while (connected < 1000) std::this_thread::yield();
  CHECK_FALSE(own.take({1, 7}));
  CHECK(connected <= 2 * 1024 + 10);  // the connections that waited, and as many again
  over = true;
  senders.clear();

  std::vector<colls::detail::descriptor> silent;
  for (int i = 0; i < 900; ++i) {
    silent.push_back(connect_to(own, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (i % 100 == 0) CHECK_FALSE(own.take({1, 7}));
  }
  CHECK_FALSE(own.take({1, 7}));
  silent.clear();
  CHECK(open_descriptors() <= before + 64);
}

TEST_CASE("a mailbox keeps a connection that has sent nothing yet") {
  colls::fd_mailbox own;
  const colls::fd_label label{1, 7};
  const colls::detail::descriptor slow = connect_to(own);
  const colls::detail::descriptor wrong = connect_to(own);
  const colls::detail::descriptor file(file_of("late"));
  CHECK(
      colls::detail::send_bytes_with_descriptor(wrong.get(), &label, sizeof label / 2, file.get()));
  CHECK(text_of(own.take(label)) == "");
  CHECK(text_of(own.take({label.process, 0})) == "");
  CHECK(colls::detail::send_bytes_with_descriptor(slow.get(), &label, sizeof label, file.get()));
  CHECK(text_of(own.take(label)) == "late");
}

}  // namespace
