// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/ipc_peers.hpp>

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "../stand_in/cuda.hpp"

// How a rank maps a peer's memory, and how long it waits for peers that access its own. The
// stand-in is not a GPU.

namespace cuda = colls::cuda;
namespace api = cuda::api;

namespace {

using namespace std::chrono_literals;
using pool_buffer = cuda::detail::owned<int, stand_in::allocate_from_pool, api::release>;

/// Where rank 1 on `device` maps memory that rank 0 exposes on device 0.
std::byte* mapped_address(int device, colls::const_bytes data, cuda::refusal& refused) {
  cuda::ipc_peers owner(0, 0, 2);
  cuda::ipc_peers other(device, 1, 2);
  const cuda::peer_info info = owner.expose(data, {});
  std::vector<cuda::mapped_memory::mapping*> taken;
  return other.map_buffer(info, info.in, false, taken, refused);
}

TEST_CASE("memory of a CUDA pool is mapped on its own device only, within a process too") {
  stand_in::boot({.devices = 2});
  {
    const cuda::on_device here(0);
    const pool_buffer pool(100, "cudaMallocAsync");
    const cuda::device_buffer<int> usual(100);
    auto* const in_pool = reinterpret_cast<std::byte*>(pool.data());
    auto* const in_usual = reinterpret_cast<std::byte*>(usual.data());
    cuda::refusal refused;
    CHECK(mapped_address(0, {in_pool, 400}, refused) == in_pool);
    CHECK(mapped_address(1, {in_usual, 400}, refused) == in_usual);
    CHECK(*refused.reason == 0);
    CHECK(mapped_address(1, {in_pool, 400}, refused) == nullptr);
    CHECK(*refused.reason != 0);
  }
  CHECK(stand_in::complaints().empty());
  CHECK(stand_in::allocations() == 0);
}

/// Enters a guard, whatever keys are open.
void enter(const cuda::guard_page_view& seen, const cuda::stream_access& access, int slot = 1) {
  seen.describe(slot, access);
  (void)cuda::guard_view::enter_all([&](auto action) { action(seen.guard(slot), 0); });
}

/// A process that is active in rank 0's guard, as rank 1, until it is killed. It enqueues no work
/// on a GPU. At a SIGTERM it marks such work as done in its own guard page.
struct accessing_process {
  pid_t process;
  cuda::guard_address own;
};
accessing_process enter_from_process(const cuda::guard_page& of) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const cuda::guard_address address = of.address();
  sigset_t done_signal;
  sigemptyset(&done_signal);
  sigaddset(&done_signal, SIGTERM);
  const pid_t child = ::fork();
  if (child == 0) {
    ::sigprocmask(SIG_BLOCK, &done_signal, nullptr);
    cuda::guard_page_view seen(address, 2);
    const cuda::guard_page mine(2, 2);
    enter(seen, {.process = 2, .end_value = 1});
    const cuda::guard_address own = mine.address();
    int signal = 0;
    if (::write(ready[1], &own, sizeof own) == sizeof own &&
        ::sigwait(&done_signal, &signal) == 0) {
      *mine.progress() = 1;
    }
    for (;;) ::pause();
  }
  cuda::guard_address own;
  REQUIRE(::read(ready[0], &own, sizeof own) == sizeof own);
  ::close(ready[0]);
  ::close(ready[1]);
  return {child, own};
}
void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
bool is_dead(pid_t child) {
  siginfo_t found{};
  const auto id = static_cast<id_t>(child);
  return ::waitid(P_PID, id, &found, WEXITED | WNOHANG | WNOWAIT) == 0 && found.si_pid == child;
}
/// How long `work()` takes.
template <class Work>
auto time_of(const Work& work) {
  const auto before = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - before;
}

TEST_CASE("revoke waits until the process of an active rank that is killed has ended") {
  cuda::guard_page own(2, 1);
  for (const bool reaped : {false, true}) {
    const cuda::remote_key key = own.open_key();
    const pid_t child = enter_from_process(own).process;
    std::thread killer([&] {
      std::this_thread::sleep_for(100ms);
      ::kill(child, SIGKILL);
      if (reaped) ::waitpid(child, nullptr, 0);
    });
    CHECK(own.revoke(key));
    if (!reaped) CHECK(is_dead(child));
    killer.join();
    if (!reaped) ::waitpid(child, nullptr, 0);
    CHECK(own.revoke(own.open_key()));  // the ended process is no longer waited for
  }
}

TEST_CASE("revoke waits for an active rank's work, and not for its program") {
  using cuda::guard_page;
  guard_page own(2, 1);
  const cuda::remote_key key = own.open_key();
  const accessing_process worker = enter_from_process(own);
  const cuda::guard_page_view theirs(worker.own, 2);
  REQUIRE(theirs);
  const auto has_reached = [&theirs](int rank, std::uint32_t number) {
    return rank == 1 && cuda::progress_counter{theirs.progress()}.has_reached(number);
  };
  CHECK_FALSE(own.revoke(own.open_key(), guard_page::wait_policy::one_second));
  std::atomic<bool> has_signalled{false};
  std::atomic<bool> is_back{false};
  std::thread signaller([&] {
    std::this_thread::sleep_for(1500ms);  // longer than the one second of the other policy
    has_signalled = true;
    ::kill(worker.process, SIGTERM);
    for (int i = 0; i < 500 && !is_back; ++i) std::this_thread::sleep_for(10ms);
    ::kill(worker.process, SIGKILL);
  });
  CHECK(own.revoke(key, guard_page::wait_policy::while_alive, has_reached));
  CHECK(has_signalled);
  CHECK_FALSE(cuda::has_ended(worker.process));
  is_back = true;
  signaller.join();
  end(worker.process);
}

TEST_CASE("revoke waits a second for an active rank that is stopped, all calls together") {
  cuda::guard_page own(2, 1);
  const pid_t child = enter_from_process(own).process;
  ::kill(child, SIGSTOP);
  while (colls::detail::is_stopped(child) != true) std::this_thread::yield();
  CHECK(colls::detail::is_stopped(::getpid()) == false);
  bool left = true;
  CHECK(time_of([&] { left = own.revoke(own.open_key()); }) >= 900ms);
  CHECK_FALSE(left);
  const auto again = time_of([&] {
    for (int i = 0; i < 10; ++i) CHECK_FALSE(own.revoke(own.open_key()));
  });
  CHECK(again < 900ms);
  std::thread waker([&] {
    std::this_thread::sleep_for(100ms);
    end(child);
  });
  left = own.revoke(own.open_key());
  waker.join();
  CHECK(own.revoke(own.open_key()));
}

TEST_CASE("revoke waits for the stream of an active rank of the same thread") {
  stand_in::boot({.eager_percent = 0});
  {
    cuda::guard_page own(2, api::process());
    cuda::guard_page_view seen(own.address(), 2);
    cuda::stream by(0);
    void* const users = stand_in::make_stream();
    bool open = false;
    {
      const auto guard = stand_in::lock();
      stand_in::enqueue_barrier(users, &open, [&open] { return open; }, {});
    }
    by.follow({users});
    enter(seen, {.process = api::process(), .stream = by.ref(), .end_value = by.next_value()});
    CHECK_FALSE(own.revoke(own.open_key(), cuda::guard_page::wait_policy::one_second));
    std::thread opener([&] {
      std::this_thread::sleep_for(1500ms);
      const auto guard = stand_in::lock();
      open = true;
    });
    CHECK(own.revoke(own.open_key()));
    CHECK(api::query(by.ref()) == api::success);
    opener.join();
  }
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("ranks that wait for each other quiesce first") {
  stand_in::boot({});
  {
    cuda::ipc_peers one(0, 0, 2);
    cuda::ipc_peers other(0, 1, 2);
    cuda::ipc_peers* const both[] = {&one, &other};
    const std::uint64_t process = one.process();
    std::atomic<int> inside{0};
    std::vector<std::thread> ranks;
    for (const int me : {0, 1}) {
      ranks.emplace_back([&, me] {
        cuda::ipc_peers& here = *both[me];
        const cuda::remote_key key = here.own_guard().open_key();
        cuda::peer_info info;
        info.guard = both[1 - me]->own_guard().address();
        cuda::guard_page_view* const theirs = here.guard_of(1 - me, info);
        REQUIRE(theirs != nullptr);
        cuda::stream& queue = here.work_stream();
        enter(*theirs, {.process = process, .stream = queue.ref(), .end_value = queue.next_value()},
              me);
        ++inside;
        while (inside != 2) std::this_thread::yield();
        here.quiesce();
        CHECK(here.revoke(key));
      });
    }
    for (std::thread& each : ranks) each.join();
    CHECK(one.quiesce_count() == 1);
  }
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("a file that is no guard page is not mapped as one") {
  cuda::guard_page own(2, 1);
  CHECK(cuda::guard_page_view(own.address(), 2));
  char path[] = "/tmp/colls-no-guard-XXXXXX";
  const int file = ::mkstemp(path);
  REQUIRE(file >= 0);
  ::unlink(path);
  const cuda::guard_address address = own.address();
  std::vector<std::byte> page(cuda::mapped_guard_page::bytes(2));
  REQUIRE(::pread(static_cast<int>(address.fd), page.data(), page.size(), 0) > 0);
  REQUIRE(::write(file, page.data(), page.size()) > 0);
  CHECK_FALSE(cuda::guard_page_view({address.pid, file, address.id}, 2));
  ::close(file);
}

}  // namespace
