// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/window/shared_heap.hpp>

#include "../../../support/meeting_point.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <string>

// Every fallocate and pwrite of the program comes through here.
static int interruptions = 0;
static long pieces_left = -1;  // that the system has memory for; -1: as many as are asked for
extern "C" ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  if (pieces_left == 0) {
    errno = ENOSPC;
    return -1;
  }
  if (pieces_left > 0) --pieces_left;
  return static_cast<ssize_t>(::syscall(SYS_pwrite64, fd, data, size, at));
}
extern "C" int fallocate(int fd, int mode, off_t at, off_t size) {
  if (pieces_left >= 0 && (mode & FALLOC_FL_PUNCH_HOLE) != 0) {
    pieces_left += static_cast<long>(static_cast<std::size_t>(size) / colls::shm::longest_page);
  }
  if (interruptions > 0) {
    --interruptions;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, size));
}

namespace {

using namespace colls;
using namespace colls::shm;

constexpr int ranks = 5;
constexpr int peer = 3;

/// A rank's arena and how a peer sees it.
struct ends {
  arena own;
  arena_view seen;

  ends() {
    REQUIRE(!own.make(ranks));
    segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(own.memory().descriptor()))));
    REQUIRE(!seen.map(same, ranks, peer));
  }
};

}  // namespace

TEST_CASE("what the owner writes the peer reads, and the other way") {
  ends both;
  std::byte* const block = both.own.allocate(10'000);
  REQUIRE(block != nullptr);
  const place at = both.own.locate({block + 100, 9900});
  REQUIRE(at != 0);
  CHECK(both.own.locate({block + 101, longest_page - 100}) == 0);
  CHECK(both.own.locate({block - 1, 1}) == 0);
  CHECK(both.own.locate({block, 0}) == 0);
  std::byte* const there = both.seen.at(at, 9900);
  REQUIRE(there != nullptr);
  block[100] = std::byte{1};
  block[9999] = std::byte{2};
  CHECK(there[0] == std::byte{1});
  CHECK(there[9899] == std::byte{2});
  there[5] = std::byte{3};
  CHECK(block[105] == std::byte{3});
}

TEST_CASE("a place that no buffer can have is refused") {
  ends both;
  CHECK(both.seen.at(0, 1) == nullptr);
  CHECK(both.seen.at(arena_head(ranks) - 1, 1) == nullptr);
  CHECK(both.seen.at(arena_bytes, 1) == nullptr);
  CHECK(both.seen.at(arena_bytes - 1, 2) == nullptr);
  CHECK(both.seen.at(UINT64_MAX, SIZE_MAX) == nullptr);
  CHECK(both.seen.at(arena_head(ranks), 1) != nullptr);
}

TEST_CASE("what is no arena is refused") {
  segment other;
  REQUIRE(!other.make(65536));
  arena_view seen;
  CHECK(seen.map(other, ranks, peer) == errc::protocol_error);
}

TEST_CASE("freed memory is used again, as zeros") {
  ends both;
  constexpr std::size_t unit = longest_page;
  std::byte* const first = both.own.allocate(2 * unit);
  std::byte* const second = both.own.allocate(2 * unit);
  const place at = both.own.locate({first, 2 * unit});
  CHECK(both.own.locate({second, 1}) == at + 2 * unit);
  first[17] = std::byte{9};
  both.own.free(first);
  CHECK(both.own.locate({first, 1}) == 0);
  std::byte* const third = both.own.allocate(unit);
  CHECK(both.own.locate({third, 1}) == at);
  CHECK(third[17] == std::byte{0});
  CHECK(both.own.locate({both.own.allocate(2 * unit), 1}) == at + 4 * unit);
  CHECK(both.own.allocate(arena_bytes) == nullptr);
}

TEST_CASE("a signal costs no memory") {
  interruptions = 2;
  segment made;
  CHECK(!made.make(65536));
  CHECK(interruptions == 0);
  interruptions = 1;
  ends both;
  CHECK(interruptions == 0);
  interruptions = 3;
  std::byte* const block = both.own.allocate(8192);
  CHECK((block != nullptr && interruptions == 0));
}

TEST_CASE("whatever its length a block begins where pages of any length do") {
  ends both;
  static_assert(arena_head(1) % 65536 == 0 && arena_head(10'000) % 65536 == 0);
  const std::size_t sizes[] = {1, 4096, 65'536, 65'537};
  for (const std::size_t size : sizes) {
    std::byte* const block = both.own.allocate(size);
    CHECK(both.own.locate({block, size}) % 65536 == 0);
    REQUIRE(both.own.retire(block));
    CHECK(both.own.locate({block, size}) % 65536 == 0);
  }
}

TEST_CASE("a ticket that was taken back lets nobody in, and says who is inside") {
  ends both;
  const ticket lent = both.own.open();
  REQUIRE(lent != 0);
  both.seen.raise();
  CHECK(both.seen.is_open(lent));
  CHECK(both.own.is_inside(peer));
  CHECK(!both.own.is_inside(peer - 1));
  both.own.revoke(lent);
  CHECK(both.own.is_inside(peer));
  both.seen.lower();
  CHECK(!both.own.is_inside(peer));
  both.seen.raise();
  CHECK(!both.seen.is_open(lent));
  both.seen.lower();
}

TEST_CASE(
    "of a peer that enters and an owner that takes back at the same moment one sees the other") {
  // Each stores and then loads what the other one stores: without a fence between them a processor
  // may load first, on both sides.
  ends both;
  ticket lent = both.own.open();
  bool is_seen = false;
  bool has_entered = false;
  std::uint64_t unseen = 0;
  meeting_point().run(
      100'000,
      [&](std::uint64_t) {
        both.own.revoke(lent);
        is_seen = both.own.is_inside(peer);
      },
      [&](std::uint64_t) {
        both.seen.raise();
        std::atomic_thread_fence(std::memory_order_seq_cst);
        has_entered = both.seen.is_open(lent);
      },
      [&](std::uint64_t) {
        unseen += has_entered && !is_seen;
        both.seen.lower();
        lent = both.own.open();
      });
  CHECK(unseen == 0);
}

TEST_CASE("no ticket is given twice, and there is an end of them") {
  ends both;
  std::vector<ticket> all;
  while (const ticket next = both.own.open()) all.push_back(next);
  CHECK(all.size() == tickets);
  both.own.close(all[7]);
  const ticket again = both.own.open();
  CHECK(again != 0);
  CHECK(again != all[7]);
  CHECK(!both.seen.is_open(all[7]));
  CHECK(both.seen.is_open(again));
  CHECK(both.seen.is_open(all[8]));
}

TEST_CASE("who stays inside a block that was retired writes to pages that nobody has") {
  ends both;
  std::byte* const block = both.own.allocate(8192);
  block[5000] = std::byte{4};
  const place before = both.own.locate({block, 8192});
  std::byte* const there = both.seen.at(before, 8192);
  REQUIRE(both.own.retire(block + 10));
  CHECK(block[5000] == std::byte{4});
  there[5000] = std::byte{5};
  CHECK(block[5000] == std::byte{4});
  const place now = both.own.locate({block, 8192});
  CHECK(now != before);
  CHECK(both.seen.at(now, 8192)[5000] == std::byte{4});
  std::byte* const other = both.own.allocate(8192);
  CHECK(both.own.locate({other, 1}) != before);
}

TEST_CASE("where the system does not let a block move it stays where it is") {
  ends both;
  std::byte* const block = both.own.allocate(8192);
  block[5000] = std::byte{4};
  const place before = both.own.locate({block, 8192});
  const int memory = both.own.memory().descriptor();
  struct stat first{};
  REQUIRE(::fstat(memory, &first) == 0);
  const detail::descriptor real(::dup(memory));
  const std::string same = "/proc/self/fd/" + std::to_string(memory);
  const detail::descriptor no_address(::open(same.c_str(), O_WRONLY | O_CLOEXEC));
  const detail::descriptor no_place(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const detail::descriptor* const other : {&no_address, &no_place}) {
    REQUIRE(::dup2(other->get(), memory) == memory);
    for (int times = 0; times < 3; ++times) CHECK(!both.own.retire(block));
    REQUIRE(::dup2(real.get(), memory) == memory);
    CHECK(both.own.locate({block, 8192}) == before);
    struct stat now{};
    CHECK(::fstat(memory, &now) == 0);
    CHECK(now.st_blocks == first.st_blocks);
  }
  REQUIRE(both.own.retire(block));
  CHECK(both.own.locate({block, 8192}) != before);
  CHECK(block[5000] == std::byte{4});
}

TEST_CASE("a block moves also where the system has no memory but the block's own") {
  for (const long left : {0L, 1L}) {
    CAPTURE(left);
    ends both;
    constexpr std::size_t size = 20 * longest_page;
    std::byte* const block = both.own.allocate(size);
    for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<std::byte>(i * 7 / 5);
    const place before = both.own.locate({block, size});
    struct stat first{};
    REQUIRE(::fstat(both.own.memory().descriptor(), &first) == 0);
    pieces_left = left;
    const bool moved = both.own.retire(block);
    CHECK(pieces_left >= left);
    pieces_left = -1;
    REQUIRE(moved);
    const place now = both.own.locate({block, size});
    CHECK(now != before);
    bool same = true;
    for (std::size_t i = 0; i < size; ++i) same &= block[i] == static_cast<std::byte>(i * 7 / 5);
    CHECK(same);
    struct stat last{};
    CHECK(::fstat(both.own.memory().descriptor(), &last) == 0);
    CHECK(last.st_blocks == first.st_blocks);
    both.seen.at(before, size)[5] = std::byte{1};
    CHECK(block[5] == static_cast<std::byte>(7));
    CHECK(both.seen.at(now, size)[5] == static_cast<std::byte>(7));
  }
}

TEST_CASE("a signal while memory is freed leaves nothing of it to the next block") {
  ends both;
  std::byte* const first = both.own.allocate(8192);
  first[17] = std::byte{9};
  const place at = both.own.locate({first, 1});
  interruptions = 2;
  both.own.free(first);
  CHECK(interruptions == 0);
  std::byte* const second = both.own.allocate(8192);
  CHECK(both.own.locate({second, 1}) == at);
  CHECK(second[17] == std::byte{0});
}

TEST_CASE("a process that was forked off leaves alone what its parent shares") {
  ends both;
  std::byte* const block = both.own.allocate(8192);
  block[5000] = std::byte{4};
  const ticket lent = both.own.open();
  CHECK(both.own.is_made_here());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool knows = !both.own.is_made_here() && both.own.allocate(8192) == nullptr;
    both.own.free(block);
    both.own.close(lent);
    while (both.own.open() != 0) {
    }
    both.seen.raise();
    arena young;
    const bool owns = !young.make(ranks) && young.is_made_here() && young.allocate(1) != nullptr;
    ::_exit(knows && owns && !both.seen.is_open(lent) ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(block[5000] == std::byte{4});
  CHECK(both.seen.is_open(lent));
  CHECK(!both.own.is_inside(peer));
  CHECK(both.own.open() != 0);
}

TEST_CASE("a child for which there is no memory does not touch its parent's") {
  ends both;
  const ticket lent = both.own.open();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit none{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &none) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, [](int) { ::_exit(7); });
    both.seen.raise();
    both.own.close(lent);
    ::_exit(0);
  }
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  REQUIRE(child > 0);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(!both.own.is_inside(peer));
  CHECK(both.seen.is_open(lent));
}

TEST_CASE("no core dump touches all the addresses of a peer's arena") {
  ends both;
  const auto begin =
      reinterpret_cast<std::uintptr_t>(both.seen.at(arena_head(ranks), 1)) - arena_head(ranks);
  char wanted[32];
  std::snprintf(wanted, sizeof wanted, "%zx-", static_cast<std::size_t>(begin));
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(wanted)) {
  }
  while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
  }
  CHECK(line.find(" dd") != line.npos);
}

TEST_CASE("what an owner has in memory of its own is read, if it is the process that it says") {
  ends both;
  CHECK(!both.seen.reads_owner());
  CHECK(both.seen.find_owner(0));
  // Another process that has something else at the owner's addresses, as one that was given the
  // number of an owner which is gone may.
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    std::ifstream maps("/proc/self/maps");
    for (std::string each; std::getline(maps, each);) {
      if (each.find("memfd:colls") == each.npos) continue;
      const std::uintptr_t from = std::stoul(each, nullptr, 16);
      const std::uintptr_t to = std::stoul(each.substr(each.find('-') + 1), nullptr, 16);
      (void)::mmap(reinterpret_cast<void*>(from), to - from, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    (void)!::write(ready[1], "!", 1);
    ::pause();
  }
  char word = 0;
  REQUIRE(::read(ready[0], &word, 1) == 1);
  CHECK(both.seen.find_owner(other) == std::errc::no_such_process);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  for (const int end : ready) ::close(end);
  CHECK(both.seen.find_owner(other) == std::errc::no_such_process);
  CHECK(!both.seen.reads_owner());
  REQUIRE(!both.seen.find_owner(::getpid()));
  CHECK(both.seen.reads_owner());

  std::vector<std::byte> theirs(10'001, std::byte{7});
  std::vector<std::byte> mine(theirs.size());
  const place lent = own_memory | reinterpret_cast<std::uintptr_t>(theirs.data());
  CHECK(arena_view::is_own(lent));
  CHECK(!arena_view::is_own(arena_bytes));
  CHECK(!both.seen.read({mine.data(), mine.size()}, lent));
  CHECK(mine == theirs);
  const time_point taken = both.seen.time_to_read([] { return time_point{0}; });
  CHECK(taken == 0);

  // Half of it is not there: the whole is not read.
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::munmap(pages + 4096, 4096);
  const place half = own_memory | reinterpret_cast<std::uintptr_t>(pages);
  CHECK(!both.seen.read({mine.data(), 4096}, half));
  CHECK(both.seen.read({mine.data(), 8192}, half) == std::errc::bad_address);
  ::munmap(pages, 4096);
}
