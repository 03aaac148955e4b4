// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/algorithm/shared_window.hpp>

#include "../support/reads.hpp"
#include "../support/tcp_ranks.hpp"

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

namespace {

using colls::errc;
using colls::task;

constexpr colls::options direct{.algorithm = colls::algorithm::direct};

/// Matrices over the integers modulo 2^32: their product is associative and does not commute.
struct matrix {
  std::uint32_t a, b, c, d;
  bool operator==(const matrix&) const = default;
};
struct product {
  matrix operator()(const matrix& x, const matrix& y) const {
    return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c,
            x.c * y.b + x.d * y.d};
  }
};
matrix part(int rank, std::size_t i) {
  const auto r = static_cast<std::uint32_t>(rank);
  const auto n = static_cast<std::uint32_t>(i);
  return {n + 1, r + 2, n * r + 1, 3};
}
matrix sum(int ranks, std::size_t i) {
  matrix all = part(0, i);
  for (int rank = 1; rank < ranks; ++rank) all = product()(all, part(rank, i));
  return all;
}

/// Waits until every rank sees this one's arena.
template <class T>
task<> seen(communicator& comm, const colls::shared_buffer<T>& mine) {
  const colls::const_bytes memory(reinterpret_cast<const std::byte*>(mine.data()), sizeof(T));
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (peer == comm.rank()) continue;
    const std::vector<int> mine_to_send(1);
    std::vector<int> theirs(1);
    (void)co_await comm.send_recv(mine_to_send, peer, theirs, peer, 7);
    while (colls::tcp_transport::loan(comm.net(), of_nothing()).place_for(peer, memory) == 0) {
      co_await comm.net().driver().sleep_until(comm.net().now() + colls::milliseconds / 10);
    }
  }
  co_await comm.barrier();
}

/// Elements in memory that is lent, or in a vector.
struct elements {
  elements(communicator& comm, std::size_t n, bool lent) : plain(lent ? 0 : n) {
    if (lent) shared = comm.allocate<matrix>(n);
    all = lent ? std::span<matrix>(shared.data(), n) : std::span<matrix>(plain);
  }
  void fill(int rank) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = part(rank, i);
  }
  bool is_input(int rank) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!(all[i] == part(rank, i))) return false;
    }
    return true;
  }
  bool is_whole_sum(int ranks) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!(all[i] == sum(ranks, i))) return false;
    }
    return true;
  }
  std::vector<matrix> plain;
  colls::shared_buffer<matrix> shared;
  std::span<matrix> all;
};

/// Which ranks lend what.
bool lends(int kind, int rank, bool input) {
  switch (kind) {
    case 0:
      return true;
    case 1:
      return rank % 2 == 0;
    case 2:
      return rank % 2 == 1;
    case 3:
      return input;
    case 4:
      return !input;
    default:
      return false;
  }
}

task<> every_collective(communicator& comm, std::size_t n, int kind) {
  const int p = comm.size();
  const int rank = comm.rank();
  elements in(comm, n, lends(kind, rank, true));
  elements out(comm, n, lends(kind, rank, false));
  in.fill(rank);
  co_await comm.all_reduce(in.all, out.all, product(), direct);
  CHECK(out.is_whole_sum(p));
  co_await comm.all_reduce(in.all, product(), direct);
  CHECK(in.is_whole_sum(p));

  // The same of numbers, which are added up in one pass over all inputs.
  const auto numbers = [](const elements& of) {
    return std::span<std::uint32_t>(reinterpret_cast<std::uint32_t*>(of.all.data()),
                                    4 * of.all.size());
  };
  std::uint32_t factor = 0;
  for (int r = 0; r < p; ++r) factor += static_cast<std::uint32_t>(r * r + 1);
  const auto number = [](std::size_t i) { return static_cast<std::uint32_t>(i) * 2'654'435'761u; };
  const auto fill = [&](std::uint32_t by) {
    for (std::size_t i = 0; i < 4 * n; ++i) numbers(in)[i] = by * number(i);
  };
  const auto are_sums = [&](std::span<const std::uint32_t> of) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (of[i] != factor * number(i)) return false;
    }
    return true;
  };
  fill(static_cast<std::uint32_t>(rank * rank + 1));
  co_await comm.all_reduce(numbers(in), numbers(out), colls::plus(), direct);
  CHECK(are_sums(numbers(out)));
  co_await comm.all_reduce(numbers(in), colls::plus(), direct);
  CHECK(are_sums(numbers(in)));
  fill(static_cast<std::uint32_t>(rank * rank + 1));
  co_await comm.reduce(numbers(in), numbers(out), p - 1, colls::plus(), direct);
  CHECK((rank != p - 1 || are_sums(numbers(out))));
  co_await comm.reduce(numbers(in), p - 1, colls::plus(), direct);
  CHECK((rank != p - 1 || are_sums(numbers(in))));

  // However they are rounded, all ranks get the same bits, whichever input lies where the sum goes.
  const auto halves = [](const elements& of) {
    return std::span<colls::bfloat16>(reinterpret_cast<colls::bfloat16*>(of.all.data()),
                                      8 * of.all.size());
  };
  for (std::size_t i = 0; i < 8 * n; ++i) {
    halves(in)[i] =
        colls::bfloat16(static_cast<float>(number(i) >> 9) * static_cast<float>(rank + 1));
  }
  constexpr colls::options rounded{.algorithm = colls::algorithm::direct,
                                   .wire = colls::wire::storage};
  co_await comm.all_reduce(halves(in), colls::plus(), rounded);
  std::vector<std::uint16_t> least(8 * n);
  std::vector<std::uint16_t> greatest(8 * n);
  bool plausible = true;
  for (std::size_t i = 0; i < 8 * n; ++i) {
    least[i] = greatest[i] = halves(in)[i].bits();
    const float wanted = static_cast<float>(number(i) >> 9) * static_cast<float>(p * (p + 1) / 2);
    plausible &= std::abs(halves(in)[i] - wanted) <= wanted / 40;
  }
  CHECK(plausible);
  co_await comm.all_reduce(least, colls::minimum());
  co_await comm.all_reduce(greatest, colls::maximum());
  CHECK(least == greatest);

  for (int root = 0; root < p; ++root) {
    in.fill(rank);
    const auto at_root = rank == root ? out.all : std::span<matrix>();
    co_await comm.reduce(in.all, at_root, root, product(), direct);
    CHECK((rank != root || out.is_whole_sum(p)));
    CHECK(in.is_input(rank));
    co_await comm.reduce(in.all, root, product(), direct);
    CHECK((rank != root || in.is_whole_sum(p)));
    if (rank == root) {
      in.fill(17);
    }
    co_await comm.broadcast(in.all, root, direct);
    CHECK((n == 0 || (in.all.front() == part(17, 0) && in.all.back() == part(17, n - 1))));
  }

  // Blocks of n elements for each rank.
  const auto ranks_in_all = static_cast<std::size_t>(p);
  const std::size_t mine = static_cast<std::size_t>(rank) * n;
  elements whole(comm, n * ranks_in_all, lends(kind, rank, true));
  elements block(comm, n, lends(kind, rank, false));
  whole.fill(rank);
  co_await comm.reduce_scatter(whole.all, block.all, product(), direct);
  bool right = true;
  for (std::size_t i = 0; i < n; ++i) right &= block.all[i] == sum(p, mine + i);
  CHECK(right);
  CHECK(whole.is_input(rank));
  block.fill(rank);
  co_await comm.all_gather(block.all, whole.all, direct);
  for (std::size_t i = 0; i < whole.all.size(); ++i) {
    right &= n == 0 || whole.all[i] == part(static_cast<int>(i / n), i % n);
  }
  CHECK(right);

  for (int root = 0; root < p; ++root) {
    whole.fill(99);
    block.fill(rank);
    co_await comm.gather(block.all, whole.all, root, direct);
    for (std::size_t i = 0; i < whole.all.size(); ++i) {
      right &= whole.all[i] == (rank == root ? part(static_cast<int>(i / n), i % n) : part(99, i));
    }
    CHECK(right);
    whole.fill(root + 50);
    co_await comm.scatter(whole.all, block.all, root, direct);
    for (std::size_t i = 0; i < n; ++i) right &= block.all[i] == part(root + 50, mine + i);
    CHECK(right);
  }
  elements turned(comm, n * ranks_in_all, lends(kind, rank, false));
  // Other values than before, which may still lie at a desk.
  whole.fill(rank + 70);
  co_await comm.all_to_all(whole.all, turned.all, direct);
  for (std::size_t i = 0; i < turned.all.size(); ++i) {
    right &= turned.all[i] == part(static_cast<int>(i / n) + 70, mine + i % n);
  }
  CHECK(right);
  CHECK(whole.is_input(rank + 70));

  in.fill(rank);
  co_await comm.scan(in.all, product(), direct);
  for (std::size_t i = 0; i < n; ++i) right &= in.all[i] == sum(rank + 1, i);
  CHECK(right);
  in.fill(rank);
  co_await comm.exscan(in.all, product(), direct);
  for (std::size_t i = 0; i < n; ++i) {
    right &= in.all[i] == (rank == 0 ? part(0, i) : sum(rank, i));
  }
  CHECK(right);
}

}  // namespace

TEST_CASE("every collective between ranks that lend all, something or nothing") {
  for (const auto& [p, reads] : {std::pair(2, "never"), {2, "always"}, {3, "always"}, {5, ""}}) {
    CAPTURE(p);
    CAPTURE(reads);
    ranks<shm_world> world(p, reads);
    world.run([](communicator& comm) -> task<> {
      const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
      co_await seen(comm, first);
      for (int kind = 0; kind < 6; ++kind) {
        for (const std::size_t n : {0U, 1U, 7U, 3000U, 20'000U}) {
          CAPTURE(kind);
          CAPTURE(n);
          co_await every_collective(comm, n, kind);
        }
      }
      // More than desks hold.
      for (const int kind : {1, 5}) co_await every_collective(comm, 140'000, kind);
    });
  }
}

TEST_CASE("what is lent is not copied") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    constexpr std::size_t n = 100'000;
    elements data(comm, n, true);
    elements plain(comm, n, false);
    co_await seen(comm, data.shared);
    const auto mine = comm.register_buffer(data.shared);
    data.fill(comm.rank());
    auto in_place = comm.all_reduce(mine, product(), direct);
    co_await in_place;
    CHECK(data.is_whole_sum(3));
    CHECK(in_place.copied_bytes() == 0);
    auto from_root = comm.broadcast(mine, 0, direct);
    co_await from_root;
    CHECK(from_root.copied_bytes() == 0);
    // At a desk: the others' chunks out, and the sums of them in.
    plain.fill(comm.rank());
    auto copied = comm.all_reduce(plain.all, product(), direct);
    co_await copied;
    CHECK(plain.is_whole_sum(3));
    const std::uint64_t all = n * sizeof(matrix);
    CHECK(copied.copied_bytes() > 2 * (2 * all / 3) - 100);
    CHECK(copied.copied_bytes() < 2 * (2 * all / 3) + 100);
  });
}

TEST_CASE("what is lent is not copied by any collective, beyond vectors that count as short") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
    co_await seen(comm, first);
    // 32 KiB are short at most: blocks of a little more, and of very much.
    for (const std::size_t n : {2100U, 100'000U}) {
      CAPTURE(n);
      elements one(comm, n, true);
      elements all(comm, 3 * n, true);
      elements turned(comm, 3 * n, true);
      const auto block = comm.register_buffer(one.shared);
      const auto whole = comm.register_buffer(all.shared);
      const auto other = comm.register_buffer(turned.shared);
      const auto part_of_other = comm.register_buffer(turned.shared, n, n);
      one.fill(comm.rank());
      all.fill(comm.rank());
      const auto copies_nothing = [&](const char* what, auto call) -> task<> {
        co_await call;
        CAPTURE(what);
        CHECK(call.copied_bytes() == 0);
      };
      for (const colls::options& how : {direct, colls::options{}}) {
        CAPTURE(static_cast<int>(how.algorithm));
        constexpr product op;
        for (int root = 0; root < 3; ++root) {
          co_await copies_nothing("reduce", comm.reduce(block, part_of_other, root, op, how));
          co_await copies_nothing("reduce in place", comm.reduce(block, root, op, how));
          co_await copies_nothing("gather", comm.gather(block, whole, root, how));
          co_await copies_nothing("scatter", comm.scatter(whole, block, root, how));
          co_await copies_nothing("broadcast", comm.broadcast(block, root, how));
        }
        co_await copies_nothing("all_reduce", comm.all_reduce(block, part_of_other, op, how));
        co_await copies_nothing("reduce_scatter", comm.reduce_scatter(whole, block, op, how));
        co_await copies_nothing("all_gather", comm.all_gather(block, whole, how));
        co_await copies_nothing("all_to_all", comm.all_to_all(whole, other, how));
        co_await copies_nothing("scan", comm.scan(block, op, how));
        co_await copies_nothing("exscan", comm.exscan(block, op, how));
      }
    }
  });
}

namespace {

/// Whether this rank's own memory is read by its neighbour.
bool is_read(communicator& comm, std::span<const int> data) {
  const colls::const_bytes memory(reinterpret_cast<const std::byte*>(data.data()),
                                  data.size_bytes());
  const int next = (comm.rank() + 1) % comm.size();
  colls::tcp_transport::loan loan(comm.net(), of_nothing());
  return loan.address_for(next, memory, colls::readers::all) != 0;
}
task<> until_read(communicator& comm) {
  const std::vector<int> some(1);
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  (void)co_await comm.all_gather(some, all);
  while (!is_read(comm, some)) {
    co_await comm.net().driver().sleep_until(comm.net().now() + colls::milliseconds / 10);
  }
  co_await comm.barrier();
}

}  // namespace

TEST_CASE("where ranks share cores, what is read goes by its length and by who reads") {
  const int size = colls::detail::cores() + 1;
  if (size > 16) {
    MESSAGE("skipped: more ranks than cores would be " << size << " ranks");
    return;
  }
  ranks<shm_world> world(size);
  world.run([](communicator& comm) -> task<> {
    const colls::shared_buffer<int> first = comm.allocate<int>(1);
    co_await seen(comm, first);
    co_await comm.barrier();
    const std::vector<int> some(1 << 20);
    const auto is_read_by = [&](colls::readers by, std::size_t bytes) {
      const colls::const_bytes memory(reinterpret_cast<const std::byte*>(some.data()), bytes);
      const int next = (comm.rank() + 1) % comm.size();
      return colls::tcp_transport::loan(comm.net(), of_nothing()).address_for(next, memory, by) !=
             0;
    };
    constexpr std::size_t kib = 1024;
    // Where the kernel is slow nobody reads.
    const bool reads = is_read(comm, some);
    CHECK(is_read_by(colls::readers::all, 32 * kib) == reads);
    CHECK(!is_read_by(colls::readers::all, 32 * kib - 1));
    CHECK(is_read_by(colls::readers::all_to_add, 256 * kib) == reads);
    CHECK(is_read_by(colls::readers::all_to_add, 1024 * kib) == reads);
    CHECK(!is_read_by(colls::readers::all_to_add, 256 * kib - 1));
    CHECK(!is_read_by(colls::readers::all_to_add, 1024 * kib + 1));
    CHECK(!is_read_by(colls::readers::one, 64 * kib));
    CHECK(!is_read_by(colls::readers::nobody, 1024 * kib));

    // Of some ranks what is read, of others what is sent.
    const auto count = [](int rank) { return 8150 + 30 * static_cast<std::size_t>(rank); };
    std::vector<std::size_t> counts;
    std::vector<int> right;
    for (int rank = 0; rank < comm.size(); ++rank) {
      counts.push_back(count(rank));
      right.insert(right.end(), count(rank), rank);
    }
    const std::vector<int> mine(count(comm.rank()), comm.rank());
    std::vector<int> all(right.size());
    co_await comm.all_gather_v(mine, all, counts, direct);
    CHECK(all == right);
    co_await comm.barrier();
  });
}

namespace {

/// Runs `main` as each rank once they all read each other's memory.
template <class Main>
void where_ranks_read(int size, Main main) {
  if (!kernel_lets_read()) {
    MESSAGE("skipped: this system lets no process read another one");
    return;
  }
  ranks<shm_world> world(size, "always");
  world.run([&main](communicator& comm) -> task<> {
    co_await until_read(comm);
    co_await main(comm);
  });
}

/// Memory that its process alone can read; null where the system has none.
class secret_memory {
 public:
  explicit secret_memory(std::size_t count) : size_(count * sizeof(int)) {
    const int fd = static_cast<int>(::syscall(SYS_memfd_secret, 0));
    if (fd < 0) return;
    if (::ftruncate(fd, static_cast<off_t>(size_)) == 0) {
      void* const at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (at != MAP_FAILED) data_ = static_cast<int*>(at);
    }
    ::close(fd);
  }
  secret_memory(const secret_memory&) = delete;
  secret_memory& operator=(const secret_memory&) = delete;
  ~secret_memory() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::span<int> all() const { return {data_, data_ == nullptr ? 0 : size_ / sizeof(int)}; }
  /// It lies elsewhere now, and is another's.
  void moved() { data_ = nullptr; }

 private:
  std::size_t size_;
  int* data_ = nullptr;
};

}  // namespace

TEST_CASE("what is read is what was lent, or the call fails") {
  where_ranks_read(3, [](communicator& comm) -> task<> {
    constexpr std::size_t n = 300'000;
    std::vector<int> data(n, comm.rank());
    co_await comm.broadcast(data, 1, direct);
    CHECK(std::count(data.begin(), data.end(), 1) == n);
    // The root tells where its buffer lies, gives the call up, and goes on with the buffer.
    std::vector<int> token(1);
    errc seen_code{};
    if (comm.rank() == 1) {
      for (const int peer : {0, 2}) (void)co_await comm.recv(token, peer, 9);
      std::fill(data.begin(), data.end(), 5);
      {
        const colls::operation<> dropped = comm.broadcast(data, 1, direct);
      }
      std::fill(data.begin(), data.end(), 40);
    } else {
      co_await comm.send(token, 1, 9);
      try {
        co_await comm.broadcast(data, 1, direct);
      } catch (const colls::error& thrown) {
        seen_code = thrown.record().code;
      }
      CHECK(seen_code == errc::cancelled);
    }
  });
}

namespace {

/// A rank reads memory that was taken back: by `read(lent, data)`.
template <class Read>
void is_not_used(Read read_back) {
  where_ranks_read(2, [&read_back](communicator& comm) -> task<> {
    using channel = colls::basic_channel<colls::tcp_transport>;
    using lending = colls::direct::lending<channel>;
    colls::match& matching = comm.net().matching();
    colls::communicator_state state(77, comm.rank(), 2, nullptr);
    matching.add(state);
    colls::operation_record record;
    record.communicator = &state;
    record.sequence = state.take_sequence({});
    record.hash = colls::hash_of({});
    matching.begin(record);
    std::vector<int> data(100'000, comm.rank());
    std::vector<int> token(1);
    {
      const auto memory = colls::bytes(std::span(data));
      std::optional<lending> lent(std::in_place, channel(comm.net(), record), memory,
                                  colls::const_bytes(), colls::readers::all);
      co_await lent->begin(memory.size);
      if (comm.rank() == 0) {
        lent.reset();
        std::fill(data.begin(), data.end(), 40);
        co_await comm.send(token, 1, 5);
        (void)co_await comm.recv(token, 1, 6);
        matching.revoke(state, colls::failure(errc::cancelled));
      } else {
        (void)co_await comm.recv(token, 0, 5);
        REQUIRE(lent->sees_in(0));
        bool is_used = false;
        const auto read = [&]() -> task<> {
          co_await read_back(*lent, std::span(data));
          is_used = true;
        };
        const auto tell = [&]() -> task<> {
          CHECK(!is_used);
          co_await comm.send(token, 0, 6);
        };
        errc seen_code{};
        try {
          co_await colls::when_all(read(), tell());
        } catch (const colls::error& thrown) {
          seen_code = thrown.record().code;
        }
        CHECK(seen_code == errc::cancelled);
      }
    }
    matching.end(record);
    matching.remove(state);
    co_await comm.barrier();
  });
}

}  // namespace

TEST_CASE("what is read once it was taken back is not used") {
  is_not_used([](auto& lent, std::span<int> data) -> task<> { co_await lent.copy_in(data, 0); });
}
TEST_CASE("no sum is made of what is read once it was taken back") {
  is_not_used(
      [](auto& lent, std::span<int> data) -> task<> { (void)co_await lent.copy_some(data, 0, 0); });
}

TEST_CASE("what cannot be read is sent, and nothing is lent to who could not") {
  constexpr std::size_t n = 600'000;  // more than a desk holds
  if (secret_memory(n).all().empty()) {
    MESSAGE("skipped: no memfd_secret here");
    return;
  }
  where_ranks_read(3, [](communicator& comm) -> task<> {
    const secret_memory secret(n);
    const std::span<int> mine = secret.all();
    std::vector<int> plain(n, comm.rank() + 1);
    std::fill(mine.begin(), mine.end(), comm.rank() + 1);
    const bool hides = comm.rank() == 1;
    std::vector<int> whole(3 * n);
    const auto is_right = [&] {
      bool right = true;
      for (std::size_t i = 0; i < 3 * n; ++i) right &= whole[i] == static_cast<int>(i / n) + 1;
      return right;
    };
    for (int times = 0; times < 3; ++times) {
      std::fill(whole.begin(), whole.end(), 0);
      co_await comm.all_gather(hides ? mine : std::span<int>(plain), whole, direct);
      CHECK(is_right());
      CHECK(is_read(comm, plain) == !hides);
    }
    std::fill(whole.begin(), whole.end(), 0);
    co_await comm.gather(hides ? mine : std::span<int>(plain), whole, 0, direct);
    CHECK((comm.rank() != 0 || is_right()));
    co_await comm.broadcast(hides ? mine : std::span<int>(plain), 1, direct);
    CHECK((hides || std::count(plain.begin(), plain.end(), 2) == n));
  });
}

namespace {

/// Memory of which its process alone can read the second half, on pages.
class half_secret_memory {
 public:
  explicit half_secret_memory(std::size_t count) : secret_(count / 2), size_(count * sizeof(int)) {
    const int prot = PROT_READ | PROT_WRITE;
    void* const at = ::mmap(nullptr, size_, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || secret_.all().empty()) return;
    data_ = static_cast<int*>(at);
    std::span<int> hidden = secret_.all();
    if (::mremap(hidden.data(), size_ / 2, size_ / 2, MREMAP_MAYMOVE | MREMAP_FIXED,
                 data_ + count / 2) == MAP_FAILED) {
      data_ = nullptr;
    }
    secret_.moved();
  }
  half_secret_memory(const half_secret_memory&) = delete;
  half_secret_memory& operator=(const half_secret_memory&) = delete;
  ~half_secret_memory() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::span<int> all() const { return {data_, data_ == nullptr ? 0 : size_ / sizeof(int)}; }

 private:
  secret_memory secret_;
  std::size_t size_;
  int* data_ = nullptr;
};

}  // namespace

TEST_CASE("a sum goes on where its inputs cannot be read any further") {
  constexpr std::size_t n = 768 * 1024;  // chunks of three ranks are four windows long
  if (half_secret_memory(n).all().empty()) {
    MESSAGE("skipped: no memfd_secret here");
    return;
  }
  enum class call { reduce_scatter, reduce, reduce_in_place, reduce_short };
  for (const call what :
       {call::reduce_scatter, call::reduce, call::reduce_in_place, call::reduce_short}) {
    for (const int hiding : {0, 1, 2}) {
      CAPTURE(static_cast<int>(what));
      CAPTURE(hiding);
      where_ranks_read(3, [&](communicator& comm) -> task<> {
        const std::size_t count = what == call::reduce_short ? 24 * 1024 : n;
        const int rank = comm.rank();
        std::optional<half_secret_memory> secret;
        if (rank == hiding) secret.emplace(count);
        std::vector<int> plain(count);
        const std::span<int> in = secret ? secret->all() : std::span(plain);
        for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<int>(i) * (rank + 1);
        const auto is_sum = [](std::span<const int> of, std::size_t first) {
          for (std::size_t i = 0; i < of.size(); ++i) {
            if (of[i] != static_cast<int>(first + i) * 6) return false;
          }
          return true;
        };
        std::vector<int> out(count);
        if (what == call::reduce_scatter) {
          const std::span<int> mine(out.data(), count / 3);
          co_await comm.reduce_scatter(in, mine, colls::plus(), direct);
          CHECK(is_sum(mine, static_cast<std::size_t>(rank) * mine.size()));
        } else if (what == call::reduce_in_place) {
          co_await comm.reduce(in, 2, colls::plus(), direct);
          CHECK((rank != 2 || is_sum(in, 0)));
        } else {
          co_await comm.reduce(in, out, 2, colls::plus(), direct);
          CHECK((rank != 2 || is_sum(out, 0)));
        }
        // Afterwards some rank lends to none, or not to all.
        std::vector<int> third(n / 3);
        plain.assign(n, rank + 1);
        co_await comm.reduce_scatter(plain, third, colls::plus(), direct);
        CHECK(std::count(third.begin(), third.end(), 6) == std::ssize(third));
      });
    }
  }
}

TEST_CASE("a rank that gives a sum up has its input for itself afterwards") {
  where_ranks_read(3, [](communicator& comm) -> task<> {
    constexpr std::size_t n = 300'000;
    std::vector<int> data(3 * n, comm.rank());
    std::vector<int> sum(n);
    co_await comm.reduce_scatter(data, sum, colls::plus(), direct);
    CHECK(std::count(sum.begin(), sum.end(), 3) == n);
    std::vector<int> token(1);
    errc seen_code{};
    if (comm.rank() == 1) {
      for (const int peer : {0, 2}) (void)co_await comm.recv(token, peer, 9);
      {
        const colls::operation<> dropped = comm.reduce_scatter(data, sum, colls::plus(), direct);
      }
      std::fill(data.begin(), data.end(), 40);
    } else {
      co_await comm.send(token, 1, 9);
      try {
        co_await comm.reduce_scatter(data, sum, colls::plus(), direct);
      } catch (const colls::error& thrown) {
        seen_code = thrown.record().code;
      }
      CHECK(seen_code == errc::cancelled);
    }
  });
}

TEST_CASE("lists of counts that do not fit are found out wherever buffers lie") {
  for (const bool lends : {false, true}) {
    CAPTURE(lends);
    ranks<shm_world> world(2);
    world.run([lends](communicator& comm) -> task<> {
      constexpr std::size_t n = 50'000;
      const colls::shared_buffer<int> shared = comm.allocate<int>(2 * n);
      co_await seen(comm, shared);
      // Rank 0 expects more of rank 1 than that one has for it.
      const std::size_t sent[2][2] = {{n, n}, {n, n}};
      const std::size_t expected[2][2] = {{n, n + 1}, {n, n}};
      const auto me = static_cast<std::size_t>(comm.rank());
      const std::vector<int> own(2 * n, comm.rank());
      const std::span<const int> in(lends ? shared.data() : own.data(), 2 * n);
      std::vector<int> out(expected[me][0] + expected[me][1]);
      errc seen_code{};
      try {
        co_await comm.all_to_all_v(in, sent[me], out, expected[me], direct);
      } catch (const colls::error& thrown) {
        seen_code = thrown.record().code;
      }
      CHECK((comm.rank() == 1 || seen_code == errc::mismatch));  // rank 1 may be done before
    });
  }
}

TEST_CASE("operations that find no desk go by messages, and desks are few") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    using desk = colls::tcp_transport::desk;
    const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
    co_await seen(comm, first);
    constexpr std::size_t n = 3000;
    constexpr std::uint64_t at_desks = 2 * (2 * n / 3) * sizeof(matrix);
    elements data(comm, n, false);
    std::vector<std::unique_ptr<desk>> taken;
    for (const bool has_desk : {true, false, true}) {
      // Some ranks work at desks, others do not.
      while (!has_desk && comm.rank() > 0 && taken.size() < 100) {
        taken.push_back(std::make_unique<desk>(comm.net()));
        if (taken.back()->data() == nullptr) break;
      }
      CHECK(taken.size() * desk::size <= 32 << 20);
      data.fill(comm.rank());
      auto sum = comm.all_reduce(data.all, product(), direct);
      co_await sum;
      CHECK(data.is_whole_sum(3));
      const bool went_there = sum.copied_bytes() < at_desks + 100;
      CHECK((went_there || !has_desk));
      CHECK((!went_there || has_desk));
      taken.clear();
    }
  });
}

TEST_CASE("a rank that gives an operation up has its buffers for itself afterwards") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    elements data(comm, 1'000'000, true);
    co_await seen(comm, data.shared);
    data.fill(comm.rank());
    // Nobody is in the barrier any more when the communicator ends.
    std::vector<int> token(1);
    if (comm.rank() == 1) {
      for (const int peer : {0, 2}) (void)co_await comm.recv(token, peer, 9);
      {
        const colls::operation<> dropped = comm.all_reduce(data.all, product(), direct);
      }
      data.fill(40);
      co_await comm.net().driver().sleep_until(comm.net().now() + 20 * colls::milliseconds);
      bool untouched = true;
      for (std::size_t i = 0; i < data.all.size(); ++i) untouched &= data.all[i] == part(40, i);
      CHECK(untouched);
    } else {
      errc seen_code{};
      co_await comm.send(token, 1, 9);
      try {
        co_await comm.all_reduce(data.all, product(), direct);
      } catch (const colls::error& thrown) {
        seen_code = thrown.record().code;
      }
      CHECK(seen_code == errc::cancelled);
    }
  });
}

TEST_CASE("a process that was forked off a rank lends nothing and has no desk") {
  ranks<shm_world> world(2);
  world.run([](communicator& comm) -> task<> {
    const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
    co_await seen(comm, first);
    elements data(comm, 1000, false);
    data.fill(comm.rank());
    co_await comm.all_reduce(data.all, product(), direct);
    if (comm.rank() == 1) co_return;
    const colls::const_bytes memory(reinterpret_cast<const std::byte*>(first.data()), 1);
    const auto lends = [&] {
      return colls::tcp_transport::loan(comm.net(), of_nothing()).place_for(1, memory) != 0;
    };
    const auto has_desk = [&] { return colls::tcp_transport::desk(comm.net()).data() != nullptr; };
    CHECK((lends() && has_desk()));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(lends() || has_desk() ? 1 : 0);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK((lends() && has_desk()));
  });
}

namespace {

/// What the arenas of this process hold.
std::size_t bytes_in_arenas() {
  std::size_t all = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat found{};
    if (::fstat(fd, &found) != 0 || found.st_size != off_t{colls::shm::arena_bytes}) continue;
    all += static_cast<std::size_t>(found.st_blocks) * 512;
  }
  return all;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE(
    "a rank that cannot move the memory where a peer was stopped waits, and moves it when it can") {
  constexpr std::size_t small = colls::shm::longest_page;
  constexpr std::size_t large = std::size_t{16} << 20;
  ranks<shm_world> world(2);
  colls::shared_buffer<std::byte> first = world.all[0].allocate<std::byte>(small);
  colls::shared_buffer<std::byte> second = world.all[0].allocate<std::byte>(large);
  world.run([&](communicator& comm) -> task<> {
    const colls::shared_buffer<std::byte> own = comm.allocate<std::byte>(1);
    co_await seen(comm, own);
  });
  const colls::const_bytes blocks[] = {{first.data(), small}, {second.data(), large}};
  first[7] = second[large - 1] = std::byte{9};

  std::optional<colls::tcp_transport::loan> lent(std::in_place, world.all[0].net(), of_nothing());
  colls::shm::place before[2];
  for (int i = 0; i < 2; ++i) before[i] = lent->place_for(1, blocks[i]);
  REQUIRE((before[0] != 0 && before[1] != 0 && lent->ticket() != 0));
  colls::shm::arena_view& peer = *world.all[1].net().view_of(0);
  peer.raise();
  const std::size_t held = bytes_in_arenas();

  // The first block may be moved, the second not; for a while.
  std::atomic<bool> begun = false;
  rlimit all{};
  ::getrlimit(RLIMIT_FSIZE, &all);
  std::thread relief([&] {
    while (!begun) ::usleep(1000);
    ::usleep(700'000);
    ::setrlimit(RLIMIT_FSIZE, &all);
  });
  rlimit some = all;
  some.rlim_cur = before[1] + large + 2 * small;
  begun = true;
  ::setrlimit(RLIMIT_FSIZE, &some);
  const double worked = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  const double began = seconds_of(CLOCK_MONOTONIC);
  lent.reset();
  const double work = seconds_of(CLOCK_THREAD_CPUTIME_ID) - worked;
  const double time = seconds_of(CLOCK_MONOTONIC) - began;
  relief.join();
  peer.lower();
  CHECK(time > 0.7);
  CHECK(work < time / 2);
  CHECK(bytes_in_arenas() == held);
  lent.emplace(world.all[0].net(), of_nothing());
  for (int i = 0; i < 2; ++i) CHECK(lent->place_for(1, blocks[i]) != before[i]);
  CHECK((first[7] == std::byte{9} && second[large - 1] == std::byte{9}));
}

namespace {

/// Rank 0 of two has lent a block, and gives it up before its peer is done with it.
struct given_up {
  static constexpr std::size_t size = colls::shm::longest_page;

  ranks<shm_world> world{2};
  colls::shared_buffer<std::byte> block = world.all[0].allocate<std::byte>(size);
  std::optional<colls::tcp_transport::loan> lent;
  colls::shm::arena_view* peer = nullptr;  // the block's owner, as rank 1 sees it
  colls::shm::ticket ticket = 0;
  std::byte* there = nullptr;  // the block, as rank 1 sees it

  given_up() {
    world.run([](communicator& comm) -> task<> {
      const colls::shared_buffer<std::byte> own = comm.allocate<std::byte>(1);
      co_await seen(comm, own);
    });
    lent.emplace(world.all[0].net(), of_nothing());
    const colls::shm::place at = lent->place_for(1, {block.data(), size});
    ticket = lent->ticket();
    peer = world.all[1].net().view_of(0);
    REQUIRE((at != 0 && ticket != 0 && peer != nullptr));
    there = peer->at(at, size);
    REQUIRE(there != nullptr);
  }
  void fill_as_peer(std::byte with) const { std::fill_n(there, size, with); }
  bool is_filled_with(std::byte with) const {
    return std::all_of(block.data(), block.data() + size,
                       [=](std::byte each) { return each == with; });
  }
};

}  // namespace

TEST_CASE("a rank that takes its memory back waits until its peer has left it") {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    given_up all;
    std::atomic<bool> has_begun = false;
    std::atomic<bool> has_returned = false;
    bool was_open = false;
    std::thread peer([&] {
      all.peer->raise();
      std::atomic_thread_fence(std::memory_order_seq_cst);
      was_open = all.peer->is_open(all.ticket);
      has_begun = true;
      while (all.peer->is_open(all.ticket)) std::this_thread::yield();
      // Shorter than a rank takes to count as stopped: only an owner that does not wait returns.
      const auto limit = steady_clock::now() + milliseconds(10);
      while (!has_returned && steady_clock::now() < limit) std::this_thread::yield();
      all.fill_as_peer(std::byte{7});
      all.peer->lower();
    });
    while (!has_begun) std::this_thread::yield();
    all.lent.reset();
    std::fill_n(all.block.data(), given_up::size, std::byte{40});
    has_returned = true;
    peer.join();
    CHECK(was_open);
    CHECK(all.is_filled_with(std::byte{40}));
  }
}

TEST_CASE("what a peer that was stopped in memory writes after it was taken back is lost") {
  given_up all;
  std::fill_n(all.block.data(), given_up::size, std::byte{40});
  all.peer->raise();
  all.lent.reset();
  all.fill_as_peer(std::byte{7});
  all.peer->lower();
  CHECK(all.is_filled_with(std::byte{40}));
}

TEST_CASE("a scan that goes down a chain awaits nobody in what was lent to it") {
  ranks<shm_world> world(2);
  world.run([&](communicator& comm) -> task<> {
    elements data(comm, 20'000, comm.rank() == 0);
    const colls::shared_buffer<matrix> own = comm.allocate<matrix>(1);
    co_await seen(comm, own);
    const auto place = [&] {
      const colls::const_bytes block(reinterpret_cast<const std::byte*>(data.all.data()), 1);
      return colls::tcp_transport::loan(comm.net(), of_nothing()).place_for(1, block);
    };
    const colls::shm::place before = comm.rank() == 0 ? place() : 0;
    // Rank 1 is stopped in what rank 0 has lent to another operation.
    colls::shm::arena_view& inside = *world.all[1].net().view_of(0);
    inside.raise();
    data.fill(comm.rank());
    co_await comm.scan(data.all, product(), direct);
    bool right = true;
    for (std::size_t i = 0; i < data.all.size(); ++i) {
      right &= data.all[i] == sum(comm.rank() + 1, i);
    }
    CHECK(right);
    co_await comm.barrier();
    inside.lower();
    if (comm.rank() == 0) CHECK((before != 0 && place() == before));
  });
}

TEST_CASE("ranks that call differently find out before anything is touched") {
  ranks<shm_world> world(2);
  world.run([](communicator& comm) -> task<> {
    elements data(comm, 1000, true);
    co_await seen(comm, data.shared);
    data.fill(comm.rank());
    errc seen_code{};
    try {
      co_await comm.all_reduce(data.all.first(comm.rank() == 0 ? 1000 : 999), product(), direct);
    } catch (const colls::error& thrown) {
      seen_code = thrown.record().code;
    }
    CHECK(seen_code == errc::mismatch);
    bool untouched = true;
    for (std::size_t i = 0; i < 1000; ++i) untouched &= data.all[i] == part(comm.rank(), i);
    CHECK(untouched);
  });
}

TEST_CASE("memory is given back and taken again") {
  ranks<shm_world> world(2);
  world.run([](communicator& comm) -> task<> {
    const matrix* at = nullptr;
    for (int i = 0; i < 100; ++i) {
      colls::shared_buffer<matrix> data = comm.allocate<matrix>(100'000);
      CHECK(data[99'999] == matrix{});
      data[99'999] = part(1, 1);
      if (i == 0) co_await seen(comm, data);
      at = data.data();
    }
    CHECK(at != nullptr);
    errc seen_code{};
    try {
      (void)comm.allocate<matrix>(SIZE_MAX / 2);
    } catch (const colls::error& thrown) {
      seen_code = thrown.record().code;
    }
    CHECK(seen_code == errc::not_enough_memory);
  });
}

TEST_CASE("sums in the element's type have the same bits whoever lends") {
  constexpr std::size_t n = 30'000;
  ranks<shm_world> world(3);
  std::vector<colls::bfloat16> first;
  world.run([&](communicator& comm) -> task<> {
    colls::options how = direct;
    how.wire = colls::wire::storage;
    for (const int kind : {5, 1, 0}) {
      auto shared = comm.allocate<colls::bfloat16>(n);
      std::vector<colls::bfloat16> plain(n);
      const bool lent = lends(kind, comm.rank(), true);
      const std::span<colls::bfloat16> data = lent ? std::span(shared.data(), n) : std::span(plain);
      // Rounded after each addition 1 stays; rounded once it does not.
      for (auto& each : data) each = colls::bfloat16(comm.rank() == 0 ? 1.0f : 0.0029296875f);
      co_await comm.all_reduce(data, colls::plus(), how);
      if (first.empty()) first.assign(data.begin(), data.end());
      CHECK(std::memcmp(first.data(), data.data(), n * sizeof(colls::bfloat16)) == 0);
      co_await comm.barrier();
    }
  });
}
