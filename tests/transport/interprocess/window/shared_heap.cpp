// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/window/shared_heap.hpp>

#include "../../../support/slow_build.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <string>

// These functions replace fallocate and pwrite in the whole program.
static int interruptions = 0;
static long pieces_left = -1;  // pages that the system has memory for; -1: any number
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
    pieces_left += static_cast<long>(static_cast<std::size_t>(size) / colls::shm::max_page_size);
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

/// The shared heap of a rank, and a peer's view of it.
struct ends {
  shared_heap heap;
  shared_heap_view view;

  bool enter(remote_key key) const {
    return guard_view::enter_all([&](auto action) { action(view.guard(), key); });
  }

  ends() {
    REQUIRE(!heap.make(ranks));
    segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(heap.memory().descriptor()))));
    REQUIRE(!view.map(same, ranks, peer));
  }
};

}  // namespace

TEST_CASE("the owner and a peer each read what the other writes") {
  ends both;
  std::byte* const block = both.heap.allocate(10'000);
  REQUIRE(block != nullptr);
  const heap_offset at = both.heap.locate({block + 100, 9900});
  REQUIRE(at != 0);
  CHECK(both.heap.locate({block + 101, max_page_size - 100}) == 0);
  CHECK(both.heap.locate({block - 1, 1}) == 0);
  CHECK(both.heap.locate({block, 0}) == 0);
  std::byte* const there = both.view.at(at, 9900);
  REQUIRE(there != nullptr);
  block[100] = std::byte{1};
  block[9999] = std::byte{2};
  CHECK(there[0] == std::byte{1});
  CHECK(there[9899] == std::byte{2});
  there[5] = std::byte{3};
  CHECK(block[105] == std::byte{3});
}

TEST_CASE("an offset that no buffer can have is refused") {
  ends both;
  CHECK(both.view.at(0, 1) == nullptr);
  CHECK(both.view.at(heap_header_bytes(ranks) - 1, 1) == nullptr);
  CHECK(both.view.at(shared_heap_bytes, 1) == nullptr);
  CHECK(both.view.at(shared_heap_bytes - 1, 2) == nullptr);
  CHECK(both.view.at(UINT64_MAX, SIZE_MAX) == nullptr);
  CHECK(both.view.at(heap_header_bytes(ranks), 1) != nullptr);
}

TEST_CASE("a segment that is no shared heap is refused") {
  segment other;
  REQUIRE(!other.make(65536));
  shared_heap_view view;
  CHECK(view.map(other, ranks, peer) == errc::protocol_error);
}

TEST_CASE("freed memory is reused and holds zeros") {
  ends both;
  constexpr std::size_t unit = max_page_size;
  std::byte* const first = both.heap.allocate(2 * unit);
  std::byte* const second = both.heap.allocate(2 * unit);
  const heap_offset at = both.heap.locate({first, 2 * unit});
  CHECK(both.heap.locate({second, 1}) == at + 2 * unit);
  first[17] = std::byte{9};
  both.heap.free(first);
  CHECK(both.heap.locate({first, 1}) == 0);
  std::byte* const third = both.heap.allocate(unit);
  CHECK(both.heap.locate({third, 1}) == at);
  CHECK(third[17] == std::byte{0});
  CHECK(both.heap.locate({both.heap.allocate(2 * unit), 1}) == at + 4 * unit);
  CHECK(both.heap.allocate(shared_heap_bytes) == nullptr);
}

TEST_CASE("an allocation that a signal interrupts continues") {
  interruptions = 2;
  segment made;
  CHECK(!made.make(65536));
  CHECK(interruptions == 0);
  interruptions = 1;
  ends both;
  CHECK(interruptions == 0);
  interruptions = 3;
  std::byte* const block = both.heap.allocate(8192);
  CHECK((block != nullptr && interruptions == 0));
}

TEST_CASE("blocks of any length begin at a multiple of every page size") {
  ends both;
  static_assert(heap_header_bytes(1) % 65536 == 0 && heap_header_bytes(10'000) % 65536 == 0);
  const std::size_t sizes[] = {1, 4096, 65'536, 65'537};
  for (const std::size_t size : sizes) {
    std::byte* const block = both.heap.allocate(size);
    CHECK(both.heap.locate({block, size}) % 65536 == 0);
    REQUIRE(both.heap.relocate(block));
    CHECK(both.heap.locate({block, size}) % 65536 == 0);
  }
}

TEST_CASE("a peer that stays inside a relocated block writes to pages that are not reused") {
  ends both;
  std::byte* const block = both.heap.allocate(8192);
  block[5000] = std::byte{4};
  const heap_offset before = both.heap.locate({block, 8192});
  std::byte* const there = both.view.at(before, 8192);
  REQUIRE(both.heap.relocate(block + 10));
  CHECK(block[5000] == std::byte{4});
  there[5000] = std::byte{5};
  CHECK(block[5000] == std::byte{4});
  const heap_offset now = both.heap.locate({block, 8192});
  CHECK(now != before);
  CHECK(both.view.at(now, 8192)[5000] == std::byte{4});
  std::byte* const other = both.heap.allocate(8192);
  CHECK(both.heap.locate({other, 1}) != before);
}

TEST_CASE("a block that the system does not let move stays where it is") {
  ends both;
  std::byte* const block = both.heap.allocate(8192);
  block[5000] = std::byte{4};
  const heap_offset before = both.heap.locate({block, 8192});
  const int memory = both.heap.memory().descriptor();
  struct stat first{};
  REQUIRE(::fstat(memory, &first) == 0);
  const detail::descriptor real(::dup(memory));
  const std::string same = "/proc/self/fd/" + std::to_string(memory);
  const detail::descriptor no_address(::open(same.c_str(), O_WRONLY | O_CLOEXEC));
  const detail::descriptor no_place(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const detail::descriptor* const other : {&no_address, &no_place}) {
    REQUIRE(::dup2(other->get(), memory) == memory);
    for (int times = 0; times < 3; ++times) CHECK(!both.heap.relocate(block));
    REQUIRE(::dup2(real.get(), memory) == memory);
    CHECK(both.heap.locate({block, 8192}) == before);
    struct stat now{};
    CHECK(::fstat(memory, &now) == 0);
    CHECK(now.st_blocks == first.st_blocks);
  }
  REQUIRE(both.heap.relocate(block));
  CHECK(both.heap.locate({block, 8192}) != before);
  CHECK(block[5000] == std::byte{4});
}

TEST_CASE("a block moves even if the system has no memory beyond the block's own") {
  for (const long left : {0L, 1L}) {
    CAPTURE(left);
    ends both;
    constexpr std::size_t size = 20 * max_page_size;
    std::byte* const block = both.heap.allocate(size);
    for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<std::byte>(i * 7 / 5);
    const heap_offset before = both.heap.locate({block, size});
    struct stat first{};
    REQUIRE(::fstat(both.heap.memory().descriptor(), &first) == 0);
    pieces_left = left;
    const bool moved = both.heap.relocate(block);
    CHECK(pieces_left >= left);
    pieces_left = -1;
    REQUIRE(moved);
    const heap_offset now = both.heap.locate({block, size});
    CHECK(now != before);
    bool same = true;
    for (std::size_t i = 0; i < size; ++i) same &= block[i] == static_cast<std::byte>(i * 7 / 5);
    CHECK(same);
    struct stat last{};
    CHECK(::fstat(both.heap.memory().descriptor(), &last) == 0);
    CHECK(last.st_blocks == first.st_blocks);
    both.view.at(before, size)[5] = std::byte{1};
    CHECK(block[5] == static_cast<std::byte>(7));
    CHECK(both.view.at(now, size)[5] == static_cast<std::byte>(7));
  }
}

TEST_CASE("freed memory holds zeros for the next block although a signal interrupts its release") {
  ends both;
  std::byte* const first = both.heap.allocate(8192);
  first[17] = std::byte{9};
  const heap_offset at = both.heap.locate({first, 1});
  interruptions = 2;
  both.heap.free(first);
  CHECK(interruptions == 0);
  std::byte* const second = both.heap.allocate(8192);
  CHECK(both.heap.locate({second, 1}) == at);
  CHECK(second[17] == std::byte{0});
}

TEST_CASE("a forked child does not change the heap that its parent shares") {
  ends both;
  std::byte* const block = both.heap.allocate(8192);
  block[5000] = std::byte{4};
  const remote_key key = both.heap.guard().open_key();
  CHECK(both.heap.is_creator_process());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_forked = !both.heap.is_creator_process() && both.heap.allocate(8192) == nullptr;
    both.heap.free(block);
    both.heap.guard().close_key(key);
    while (both.heap.guard().open_key() != 0) {
    }
    (void)both.enter(key);
    shared_heap child_heap;
    const bool has_heap = !child_heap.make(ranks) && child_heap.is_creator_process() &&
                          child_heap.allocate(1) != nullptr;
    ::_exit(is_forked && has_heap && !both.view.guard().is_open(key) ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(block[5000] == std::byte{4});
  CHECK(both.view.guard().is_open(key));
  CHECK(!both.heap.guard().is_inside(peer));
  CHECK(both.heap.guard().open_key() != 0);
}

TEST_CASE("a forked child that has no memory for its own pages cannot touch its parent's heap") {
  if (is_emulated) {
    MESSAGE("skipped: the emulator does not limit address space");
    return;
  }
  ends both;
  const remote_key key = both.heap.guard().open_key();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit none{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &none) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, [](int) { ::_exit(7); });
    (void)both.enter(key);
    both.heap.guard().close_key(key);
    ::_exit(0);
  }
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  REQUIRE(child > 0);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(!both.heap.guard().is_inside(peer));
  CHECK(both.view.guard().is_open(key));
}

TEST_CASE("no core dump touches all the addresses of a peer's shared heap") {
  if (is_emulated) {
    MESSAGE("skipped: the emulator ignores MADV_DONTDUMP");
    return;
  }
  ends both;
  const auto begin = reinterpret_cast<std::uintptr_t>(both.view.at(heap_header_bytes(ranks), 1)) -
                     heap_header_bytes(ranks);
  char prefix[32];
  std::snprintf(prefix, sizeof prefix, "%zx-", static_cast<std::size_t>(begin));
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(prefix)) {
  }
  while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
  }
  CHECK(line.find(" dd") != line.npos);
}

TEST_CASE("private memory of an owner is read, if it is the process that it claims to be") {
  if (is_emulated) {
    MESSAGE("skipped: the emulator lets no process read another one");
    return;
  }
  ends both;
  CHECK(!both.view.can_read_owner());
  CHECK(both.view.attach_owner(0));
  // Another process with other memory at the owner's addresses, such as one that got the process id
  // of an owner that has exited.
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    std::ifstream maps("/proc/self/maps");
    for (std::string each; std::getline(maps, each);) {
      if (each.find("memfd:colls") == each.npos) continue;
      const std::uintptr_t first = std::stoul(each, nullptr, 16);
      const std::uintptr_t last = std::stoul(each.substr(each.find('-') + 1), nullptr, 16);
      (void)::mmap(reinterpret_cast<void*>(first), last - first, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    (void)!::write(ready[1], "!", 1);
    ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(both.view.attach_owner(other) == std::errc::no_such_process);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  for (const int end : ready) ::close(end);
  CHECK(both.view.attach_owner(other) == std::errc::no_such_process);
  CHECK(!both.view.can_read_owner());
  REQUIRE(!both.view.attach_owner(::getpid()));
  CHECK(both.view.can_read_owner());

  std::vector<std::byte> remote(10'001, std::byte{7});
  std::vector<std::byte> local(remote.size());
  const heap_offset address = private_memory | reinterpret_cast<std::uintptr_t>(remote.data());
  CHECK(shared_heap_view::is_private(address));
  CHECK(!shared_heap_view::is_private(shared_heap_bytes));
  CHECK(!both.view.read({local.data(), local.size()}, address));
  CHECK(local == remote);
  const time_point taken = both.view.time_to_read([] { return time_point{0}; });
  CHECK(taken == 0);

  // One half is not mapped: reading both fails.
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::munmap(pages + 4096, 4096);
  const heap_offset half = private_memory | reinterpret_cast<std::uintptr_t>(pages);
  CHECK(!both.view.read({local.data(), 4096}, half));
  CHECK(both.view.read({local.data(), 8192}, half) == std::errc::bad_address);
  ::munmap(pages, 4096);
}
