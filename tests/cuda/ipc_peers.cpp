// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/ipc_peers.hpp>

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "../stand_in/cuda.hpp"

// What a rank finds of another one's memory, and how long it waits for those who work in its own.
// The stand-in is no GPU.

namespace cuda = colls::cuda;
namespace api = cuda::api;

namespace {

using namespace std::chrono_literals;
using of_pool = cuda::detail::owned<int, stand_in::take_of_pool, api::release>;

/// Where rank 1 of `device` finds what rank 0 of device 0 lends.
std::byte* place_for(int device, colls::const_bytes data, cuda::refusal& no) {
  cuda::neighbourhood owner(0, 0, 2);
  cuda::neighbourhood other(device, 1, 2);
  const cuda::visiting_card card = owner.introduce(data, {});
  std::vector<cuda::mapped_memory::piece*> taken;
  return other.place_of(card, card.in, false, taken, no);
}

TEST_CASE("memory of a pool is for its own device, of a rank of the same process too") {
  stand_in::boot({.devices = 2});
  {
    const cuda::on_device here(0);
    const of_pool pool(100, "cudaMallocAsync");
    const cuda::device_buffer<int> usual(100);
    auto* const in_pool = reinterpret_cast<std::byte*>(pool.data());
    auto* const in_usual = reinterpret_cast<std::byte*>(usual.data());
    cuda::refusal no;
    CHECK(place_for(0, {in_pool, 400}, no) == in_pool);
    CHECK(place_for(1, {in_usual, 400}, no) == in_usual);
    CHECK(*no.why == 0);
    CHECK(place_for(1, {in_pool, 400}, no) == nullptr);
    CHECK(*no.why != 0);
  }
  CHECK(stand_in::complaints().empty());
  CHECK(stand_in::allocations() == 0);
}

/// A process with a line up at rank 0's door, as rank 1, until it is killed. It gives work to no
/// GPU; at a SIGTERM its own door says that such work has been done.
struct guest {
  pid_t process;
  cuda::door_address own;
};
guest go_inside(const cuda::door& of) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const cuda::door_address at = of.address();
  sigset_t word_to_leave;
  sigemptyset(&word_to_leave);
  sigaddset(&word_to_leave, SIGTERM);
  const pid_t child = ::fork();
  if (child == 0) {
    ::sigprocmask(SIG_BLOCK, &word_to_leave, nullptr);
    cuda::door_view seen(at, 2);
    const cuda::door mine(2, 2);
    seen.raise(1, 2, {}, 1);
    const cuda::door_address own = mine.address();
    int signal = 0;
    if (::write(ready[1], &own, sizeof own) == sizeof own &&
        ::sigwait(&word_to_leave, &signal) == 0) {
      *mine.passed() = 1;
    }
    for (;;) ::pause();
  }
  cuda::door_address own;
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
/// How long that takes.
template <class Work>
auto time_of(const Work& work) {
  const auto before = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - before;
}

TEST_CASE("of a rank inside that is killed, the end of its process is waited for") {
  cuda::door own(2, 1);
  for (const bool reaped : {false, true}) {
    const std::uint64_t ticket = own.open();
    const pid_t child = go_inside(own).process;
    std::thread killer([&] {
      std::this_thread::sleep_for(100ms);
      ::kill(child, SIGKILL);
      if (reaped) ::waitpid(child, nullptr, 0);
    });
    CHECK(own.revoke(ticket));
    if (!reaped) CHECK(is_dead(child));
    killer.join();
    if (!reaped) ::waitpid(child, nullptr, 0);
    CHECK(own.revoke(own.open()));  // nothing is expected of it any more
  }
}

TEST_CASE("a rank inside is waited for until its work is done, and not for what its program does") {
  using cuda::door;
  door own(2, 1);
  const std::uint64_t ticket = own.open();
  const guest worker = go_inside(own);
  const cuda::door_view theirs(worker.own, 2);
  REQUIRE(theirs);
  const auto is_through = [&theirs](int rank, std::uint32_t number) {
    return rank == 1 && cuda::milestone{theirs.passed()}.is_at(number);
  };
  CHECK_FALSE(own.revoke(own.open(), door::patience::a_second));
  std::atomic<bool> is_told{false};
  std::atomic<bool> is_back{false};
  std::thread teller([&] {
    std::this_thread::sleep_for(1500ms);  // longer than the second, which would be too short
    is_told = true;
    ::kill(worker.process, SIGTERM);
    for (int i = 0; i < 500 && !is_back; ++i) std::this_thread::sleep_for(10ms);
    ::kill(worker.process, SIGKILL);
  });
  CHECK(own.revoke(ticket, door::patience::of_the_living, is_through));
  CHECK(is_told);
  CHECK_FALSE(cuda::has_ended(worker.process));
  is_back = true;
  teller.join();
  end(worker.process);
}

TEST_CASE("a rank inside that is stopped is waited for for a second, by all calls together") {
  cuda::door own(2, 1);
  const pid_t child = go_inside(own).process;
  ::kill(child, SIGSTOP);
  while (!cuda::is_stopped(child)) std::this_thread::yield();
  CHECK_FALSE(cuda::is_stopped(::getpid()));
  bool left = true;
  CHECK(time_of([&] { left = own.revoke(own.open()); }) >= 900ms);
  CHECK_FALSE(left);
  const auto again = time_of([&] {
    for (int i = 0; i < 10; ++i) CHECK_FALSE(own.revoke(own.open()));
  });
  CHECK(again < 900ms);
  std::thread waker([&] {
    std::this_thread::sleep_for(100ms);
    end(child);
  });
  left = own.revoke(own.open());
  waker.join();
  CHECK(own.revoke(own.open()));
}

TEST_CASE("a rank inside of the same thread is waited for until its stream has got there") {
  stand_in::boot({.eager_percent = 0});
  {
    cuda::door own(2, api::process());
    cuda::door_view seen(own.address(), 2);
    cuda::stream by(0);
    void* const users = stand_in::make_stream();
    bool open = false;
    {
      const auto guard = stand_in::lock();
      stand_in::enqueue_meeting(users, &open, [&open] { return open; }, {});
    }
    by.follow({users});
    seen.raise(1, api::process(), by.ref(), by.next());
    CHECK_FALSE(own.revoke(own.open(), cuda::door::patience::a_second));
    std::thread opener([&] {
      std::this_thread::sleep_for(1500ms);
      const auto guard = stand_in::lock();
      open = true;
    });
    CHECK(own.revoke(own.open()));
    CHECK(api::query(by.ref()) == api::success);
    opener.join();
  }
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("ranks that wait for each other at a time have nothing begun in each other's memory") {
  stand_in::boot({});
  {
    cuda::neighbourhood one(0, 0, 2);
    cuda::neighbourhood other(0, 1, 2);
    cuda::neighbourhood* const both[] = {&one, &other};
    const std::uint64_t process = one.process();
    std::atomic<int> inside{0};
    std::vector<std::thread> ranks;
    for (const int me : {0, 1}) {
      ranks.emplace_back([&, me] {
        cuda::neighbourhood& here = *both[me];
        const std::uint64_t ticket = here.door().open();
        cuda::visiting_card card;
        card.door = both[1 - me]->door().address();
        cuda::door_view* const theirs = here.door_of(1 - me, card);
        REQUIRE(theirs != nullptr);
        theirs->raise(me, process, here.by().ref(), here.by().next());
        ++inside;
        while (inside != 2) std::this_thread::yield();
        here.rest();
        CHECK(here.revoke(ticket));
      });
    }
    for (std::thread& each : ranks) each.join();
    CHECK(one.rests() == 1);
  }
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("what is no door is not opened as one") {
  cuda::door own(2, 1);
  CHECK(cuda::door_view(own.address(), 2));
  char path[] = "/tmp/colls-no-door-XXXXXX";
  const int file = ::mkstemp(path);
  REQUIRE(file >= 0);
  ::unlink(path);
  const cuda::door_address at = own.address();
  std::vector<std::byte> page(cuda::door_page::bytes(2));
  REQUIRE(::pread(static_cast<int>(at.file), page.data(), page.size(), 0) > 0);
  REQUIRE(::write(file, page.data(), page.size()) > 0);
  CHECK_FALSE(cuda::door_view({at.process, file, at.name}, 2));
  ::close(file);
}

}  // namespace
