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

/// Enters the guard of a peer's heap. Returns whether the key is open.
bool enter(const colls::shm::shared_heap_view& view, colls::shm::remote_key key = 0) {
  return colls::shm::guard_view::enter_all([&](auto action) { action(view.guard(), key); });
}

/// Waits until every rank has mapped this rank's shared heap.
template <class T>
task<> until_mapped(communicator& comm, const colls::shared_buffer<T>& mine) {
  const colls::const_bytes memory(reinterpret_cast<const std::byte*>(mine.data()), sizeof(T));
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (peer == comm.rank()) continue;
    const std::vector<int> token(1);
    std::vector<int> theirs(1);
    (void)co_await comm.send_recv(token, peer, theirs, peer, 7);
    while (colls::interprocess_transport::exposure(comm.net(), unrelated_communicator())
               .offset_for(peer, memory) == 0) {
      co_await comm.net().driver().sleep_until(comm.net().now() + colls::milliseconds / 10);
    }
  }
  co_await comm.barrier();
}

/// Elements in shared memory or in a vector.
struct elements {
  elements(communicator& comm, std::size_t n, bool is_shared) : plain(is_shared ? 0 : n) {
    if (is_shared) shared = comm.allocate<matrix>(n);
    all = is_shared ? std::span<matrix>(shared.data(), n) : std::span<matrix>(plain);
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
  bool is_full_sum(int ranks) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!(all[i] == sum(ranks, i))) return false;
    }
    return true;
  }
  std::vector<matrix> plain;
  colls::shared_buffer<matrix> shared;
  std::span<matrix> all;
};

/// Returns whether a rank exposes its input or output.
bool exposes(int kind, int rank, bool input) {
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
  elements in(comm, n, exposes(kind, rank, true));
  elements out(comm, n, exposes(kind, rank, false));
  in.fill(rank);
  co_await comm.all_reduce(in.all, out.all, product(), direct);
  CHECK(out.is_full_sum(p));
  co_await comm.all_reduce(in.all, product(), direct);
  CHECK(in.is_full_sum(p));

  // Integers, which are summed in one pass over all inputs.
  const auto numbers = [](const elements& data) {
    return std::span<std::uint32_t>(reinterpret_cast<std::uint32_t*>(data.all.data()),
                                    4 * data.all.size());
  };
  std::uint32_t factor = 0;
  for (int r = 0; r < p; ++r) factor += static_cast<std::uint32_t>(r * r + 1);
  const auto number = [](std::size_t i) { return static_cast<std::uint32_t>(i) * 2'654'435'761u; };
  const auto fill = [&](std::uint32_t scale) {
    for (std::size_t i = 0; i < 4 * n; ++i) numbers(in)[i] = scale * number(i);
  };
  const auto are_sums = [&](std::span<const std::uint32_t> sums) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i] != factor * number(i)) return false;
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

  // All ranks get the same bits, whichever input is aliased with the sum.
  const auto halves = [](const elements& data) {
    return std::span<colls::bfloat16>(reinterpret_cast<colls::bfloat16*>(data.all.data()),
                                      8 * data.all.size());
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
    CHECK((rank != root || out.is_full_sum(p)));
    CHECK(in.is_input(rank));
    co_await comm.reduce(in.all, root, product(), direct);
    CHECK((rank != root || in.is_full_sum(p)));
    if (rank == root) {
      in.fill(17);
    }
    co_await comm.broadcast(in.all, root, direct);
    CHECK((n == 0 || (in.all.front() == part(17, 0) && in.all.back() == part(17, n - 1))));
  }

  // Blocks of n elements for each rank.
  const auto ranks_in_all = static_cast<std::size_t>(p);
  const std::size_t mine = static_cast<std::size_t>(rank) * n;
  elements full(comm, n * ranks_in_all, exposes(kind, rank, true));
  elements block(comm, n, exposes(kind, rank, false));
  full.fill(rank);
  co_await comm.reduce_scatter(full.all, block.all, product(), direct);
  bool right = true;
  for (std::size_t i = 0; i < n; ++i) right &= block.all[i] == sum(p, mine + i);
  CHECK(right);
  CHECK(full.is_input(rank));
  block.fill(rank);
  co_await comm.all_gather(block.all, full.all, direct);
  for (std::size_t i = 0; i < full.all.size(); ++i) {
    right &= n == 0 || full.all[i] == part(static_cast<int>(i / n), i % n);
  }
  CHECK(right);

  for (int root = 0; root < p; ++root) {
    full.fill(99);
    block.fill(rank);
    co_await comm.gather(block.all, full.all, root, direct);
    for (std::size_t i = 0; i < full.all.size(); ++i) {
      right &= full.all[i] == (rank == root ? part(static_cast<int>(i / n), i % n) : part(99, i));
    }
    CHECK(right);
    full.fill(root + 50);
    co_await comm.scatter(full.all, block.all, root, direct);
    for (std::size_t i = 0; i < n; ++i) right &= block.all[i] == part(root + 50, mine + i);
    CHECK(right);
  }
  elements turned(comm, n * ranks_in_all, exposes(kind, rank, false));
  // Other values than before, which may still be in a bounce buffer.
  full.fill(rank + 70);
  co_await comm.all_to_all(full.all, turned.all, direct);
  for (std::size_t i = 0; i < turned.all.size(); ++i) {
    right &= turned.all[i] == part(static_cast<int>(i / n) + 70, mine + i % n);
  }
  CHECK(right);
  CHECK(full.is_input(rank + 70));

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

TEST_CASE("every collective between ranks that expose all, some or none of their buffers") {
  for (const auto& [p, reads] : {std::pair(2, "never"), {2, "always"}, {3, "always"}, {5, ""}}) {
    CAPTURE(p);
    CAPTURE(reads);
    ranks<shm_world> world(p, reads);
    world.run([](communicator& comm) -> task<> {
      const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
      co_await until_mapped(comm, first);
      for (int kind = 0; kind < 6; ++kind) {
        for (const std::size_t n : {0U, 1U, 7U, 3000U, 20'000U}) {
          CAPTURE(kind);
          CAPTURE(n);
          co_await every_collective(comm, n, kind);
        }
      }
      // More than a bounce buffer holds.
      for (const int kind : {1, 5}) co_await every_collective(comm, 140'000, kind);
    });
  }
}

TEST_CASE("exposed buffers are not copied") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    constexpr std::size_t n = 100'000;
    elements data(comm, n, true);
    elements plain(comm, n, false);
    co_await until_mapped(comm, data.shared);
    const auto mine = comm.register_buffer(data.shared);
    data.fill(comm.rank());
    auto in_place = comm.all_reduce(mine, product(), direct);
    co_await in_place;
    CHECK(data.is_full_sum(3));
    CHECK(in_place.copied_bytes() == 0);
    auto from_root = comm.broadcast(mine, 0, direct);
    co_await from_root;
    CHECK(from_root.copied_bytes() == 0);
    // Through a bounce buffer: the other ranks' chunks of the input, and the sums of them.
    plain.fill(comm.rank());
    auto copied = comm.all_reduce(plain.all, product(), direct);
    co_await copied;
    CHECK(plain.is_full_sum(3));
    const std::uint64_t all = n * sizeof(matrix);
    CHECK(copied.copied_bytes() > 2 * (2 * all / 3) - 100);
    CHECK(copied.copied_bytes() < 2 * (2 * all / 3) + 100);
  });
}

TEST_CASE("no collective copies exposed buffers, except short vectors") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
    co_await until_mapped(comm, first);
    // Vectors of up to 32 KiB are short: blocks of a little more, and of much more.
    for (const std::size_t n : {2100U, 100'000U}) {
      CAPTURE(n);
      elements one(comm, n, true);
      elements all(comm, 3 * n, true);
      elements turned(comm, 3 * n, true);
      const auto block = comm.register_buffer(one.shared);
      const auto full = comm.register_buffer(all.shared);
      const auto other = comm.register_buffer(turned.shared);
      const auto part_of_other = comm.register_buffer(turned.shared, n, n);
      one.fill(comm.rank());
      all.fill(comm.rank());
      const auto copies_nothing = [&](const char* name, auto call) -> task<> {
        co_await call;
        CAPTURE(name);
        CHECK(call.copied_bytes() == 0);
      };
      for (const colls::options& opts : {direct, colls::options{}}) {
        CAPTURE(static_cast<int>(opts.algorithm));
        constexpr product op;
        for (int root = 0; root < 3; ++root) {
          co_await copies_nothing("reduce", comm.reduce(block, part_of_other, root, op, opts));
          co_await copies_nothing("reduce in place", comm.reduce(block, root, op, opts));
          co_await copies_nothing("gather", comm.gather(block, full, root, opts));
          co_await copies_nothing("scatter", comm.scatter(full, block, root, opts));
          co_await copies_nothing("broadcast", comm.broadcast(block, root, opts));
        }
        co_await copies_nothing("all_reduce", comm.all_reduce(block, part_of_other, op, opts));
        co_await copies_nothing("reduce_scatter", comm.reduce_scatter(full, block, op, opts));
        co_await copies_nothing("all_gather", comm.all_gather(block, full, opts));
        co_await copies_nothing("all_to_all", comm.all_to_all(full, other, opts));
        co_await copies_nothing("scan", comm.scan(block, op, opts));
        co_await copies_nothing("exscan", comm.exscan(block, op, opts));
      }
    }
  });
}

namespace {

/// Returns whether the next rank can read this rank's private memory.
bool is_read(communicator& comm, std::span<const int> data) {
  const colls::const_bytes memory(reinterpret_cast<const std::byte*>(data.data()),
                                  data.size_bytes());
  const int next = (comm.rank() + 1) % comm.size();
  colls::interprocess_transport::exposure exposure(comm.net(), unrelated_communicator());
  return exposure.address_for(next, memory, colls::readers::all) != 0;
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

TEST_CASE("where ranks share cores, reads by CMA depend on the length and on the readers") {
  const int size = colls::detail::cores() + 1;
  if (size > 16) {
    MESSAGE("skipped: more ranks than cores would be " << size << " ranks");
    return;
  }
  ranks<shm_world> world(size);
  world.run([](communicator& comm) -> task<> {
    const colls::shared_buffer<int> first = comm.allocate<int>(1);
    co_await until_mapped(comm, first);
    co_await comm.barrier();
    const std::vector<int> some(1 << 20);
    const auto is_read_by = [&](colls::readers pattern, std::size_t bytes) {
      const colls::const_bytes memory(reinterpret_cast<const std::byte*>(some.data()), bytes);
      const int next = (comm.rank() + 1) % comm.size();
      return colls::interprocess_transport::exposure(comm.net(), unrelated_communicator())
                 .address_for(next, memory, pattern) != 0;
    };
    constexpr std::size_t kib = 1024;
    // If the kernel reads slowly, no rank reads.
    const bool reads = is_read(comm, some);
    CHECK(is_read_by(colls::readers::all, 32 * kib) == reads);
    CHECK(!is_read_by(colls::readers::all, 32 * kib - 1));
    CHECK(is_read_by(colls::readers::all_to_reduce, 256 * kib) == reads);
    CHECK(is_read_by(colls::readers::all_to_reduce, 1024 * kib) == reads);
    CHECK(!is_read_by(colls::readers::all_to_reduce, 256 * kib - 1));
    CHECK(!is_read_by(colls::readers::all_to_reduce, 1024 * kib + 1));
    CHECK(!is_read_by(colls::readers::one, 64 * kib));
    CHECK(!is_read_by(colls::readers::no_rank, 1024 * kib));

    // The data of some ranks is read, that of others is sent.
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

/// Runs `main` as each rank once all ranks can read each other's memory.
template <class Main>
void where_ranks_read(int size, Main main) {
  if (!kernel_lets_read()) {
    MESSAGE("skipped: this system does not let a process read another process's memory");
    return;
  }
  ranks<shm_world> world(size, "always");
  world.run([&main](communicator& comm) -> task<> {
    co_await until_read(comm);
    co_await main(comm);
  });
}

/// Memory that only its own process can read. Empty if the system has none.
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
  /// The memory has been remapped and has another owner.
  void moved() { data_ = nullptr; }

 private:
  std::size_t size_;
  int* data_ = nullptr;
};

}  // namespace

TEST_CASE("a read returns the exposed data, or the call fails") {
  where_ranks_read(3, [](communicator& comm) -> task<> {
    constexpr std::size_t n = 300'000;
    std::vector<int> data(n, comm.rank());
    co_await comm.broadcast(data, 1, direct);
    CHECK(std::count(data.begin(), data.end(), 1) == n);
    // The root exposes its buffer, abandons the call, and goes on using the buffer.
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

/// Lets a rank read memory after its exposure has ended, by `read(window, data)`, and checks that
/// the data is not used.
template <class Read>
void check_read_after_end(Read read_exposed) {
  where_ranks_read(2, [&read_exposed](communicator& comm) -> task<> {
    using channel = colls::basic_channel<colls::interprocess_transport>;
    using shared_window = colls::direct::shared_window<channel>;
    colls::tag_matcher& matching = comm.net().matching();
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
      std::optional<shared_window> window(std::in_place, channel(comm.net(), record), memory,
                                          colls::const_bytes(), colls::readers::all);
      co_await window->begin(memory.size);
      if (comm.rank() == 0) {
        window.reset();
        std::fill(data.begin(), data.end(), 40);
        co_await comm.send(token, 1, 5);
        (void)co_await comm.recv(token, 1, 6);
        matching.revoke(state, colls::failure(errc::cancelled));
      } else {
        (void)co_await comm.recv(token, 0, 5);
        REQUIRE(window->accesses_in(0));
        bool is_used = false;
        const auto read = [&]() -> task<> {
          co_await read_exposed(*window, std::span(data));
          is_used = true;
        };
        const auto report = [&]() -> task<> {
          CHECK(!is_used);
          co_await comm.send(token, 0, 6);
        };
        errc seen_code{};
        try {
          co_await colls::when_all(read(), report());
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

TEST_CASE("data that is read after the exposure has ended is not used") {
  check_read_after_end(
      [](auto& window, std::span<int> data) -> task<> { co_await window.get(data, 0); });
}
TEST_CASE("data that is read after the exposure has ended is not summed") {
  check_read_after_end([](auto& window, std::span<int> data) -> task<> {
    (void)co_await window.get_block(data, 0, 0);
  });
}

TEST_CASE("data that cannot be read is sent, and is not exposed to that reader again") {
  constexpr std::size_t n = 600'000;  // more than a bounce buffer holds
  if (secret_memory(n).all().empty()) {
    MESSAGE("skipped: this system has no memfd_secret");
    return;
  }
  where_ranks_read(3, [](communicator& comm) -> task<> {
    const secret_memory secret(n);
    const std::span<int> mine = secret.all();
    std::vector<int> plain(n, comm.rank() + 1);
    std::fill(mine.begin(), mine.end(), comm.rank() + 1);
    const bool hides = comm.rank() == 1;
    std::vector<int> full(3 * n);
    const auto is_right = [&] {
      bool right = true;
      for (std::size_t i = 0; i < 3 * n; ++i) right &= full[i] == static_cast<int>(i / n) + 1;
      return right;
    };
    for (int times = 0; times < 3; ++times) {
      std::fill(full.begin(), full.end(), 0);
      co_await comm.all_gather(hides ? mine : std::span<int>(plain), full, direct);
      CHECK(is_right());
      CHECK(is_read(comm, plain) == !hides);
    }
    std::fill(full.begin(), full.end(), 0);
    co_await comm.gather(hides ? mine : std::span<int>(plain), full, 0, direct);
    CHECK((comm.rank() != 0 || is_right()));
    co_await comm.broadcast(hides ? mine : std::span<int>(plain), 1, direct);
    CHECK((hides || std::count(plain.begin(), plain.end(), 2) == n));
  });
}

namespace {

/// Memory whose second half only its own process can read. Each half consists of whole pages.
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

TEST_CASE("a sum continues with messages where its inputs cannot be read any further") {
  constexpr std::size_t n = 768 * 1024;  // chunks of three ranks are four CMA blocks long
  if (half_secret_memory(n).all().empty()) {
    MESSAGE("skipped: this system has no memfd_secret");
    return;
  }
  enum class call { reduce_scatter, reduce, reduce_in_place, reduce_short };
  for (const call variant :
       {call::reduce_scatter, call::reduce, call::reduce_in_place, call::reduce_short}) {
    for (const int hiding : {0, 1, 2}) {
      CAPTURE(static_cast<int>(variant));
      CAPTURE(hiding);
      where_ranks_read(3, [&](communicator& comm) -> task<> {
        const std::size_t count = variant == call::reduce_short ? 24 * 1024 : n;
        const int rank = comm.rank();
        std::optional<half_secret_memory> secret;
        if (rank == hiding) secret.emplace(count);
        std::vector<int> plain(count);
        const std::span<int> in = secret ? secret->all() : std::span(plain);
        for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<int>(i) * (rank + 1);
        const auto is_sum = [](std::span<const int> sums, std::size_t first) {
          for (std::size_t i = 0; i < sums.size(); ++i) {
            if (sums[i] != static_cast<int>(first + i) * 6) return false;
          }
          return true;
        };
        std::vector<int> out(count);
        if (variant == call::reduce_scatter) {
          const std::span<int> mine(out.data(), count / 3);
          co_await comm.reduce_scatter(in, mine, colls::plus(), direct);
          CHECK(is_sum(mine, static_cast<std::size_t>(rank) * mine.size()));
        } else if (variant == call::reduce_in_place) {
          co_await comm.reduce(in, 2, colls::plus(), direct);
          CHECK((rank != 2 || is_sum(in, 0)));
        } else {
          co_await comm.reduce(in, out, 2, colls::plus(), direct);
          CHECK((rank != 2 || is_sum(out, 0)));
        }
        // Afterwards some rank exposes its buffer to no rank, or not to all.
        std::vector<int> third(n / 3);
        plain.assign(n, rank + 1);
        co_await comm.reduce_scatter(plain, third, colls::plus(), direct);
        CHECK(std::count(third.begin(), third.end(), 6) == std::ssize(third));
      });
    }
  }
}

TEST_CASE("after a rank abandons a sum no peer uses its input") {
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

TEST_CASE("counts that do not match are found with buffers in any memory") {
  for (const bool is_shared : {false, true}) {
    CAPTURE(is_shared);
    ranks<shm_world> world(2);
    world.run([is_shared](communicator& comm) -> task<> {
      constexpr std::size_t n = 50'000;
      const colls::shared_buffer<int> shared = comm.allocate<int>(2 * n);
      co_await until_mapped(comm, shared);
      // Rank 0 expects more from rank 1 than rank 1 sends.
      const std::size_t sent[2][2] = {{n, n}, {n, n}};
      const std::size_t expected[2][2] = {{n, n + 1}, {n, n}};
      const auto me = static_cast<std::size_t>(comm.rank());
      const std::vector<int> own(2 * n, comm.rank());
      const std::span<const int> in(is_shared ? shared.data() : own.data(), 2 * n);
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

TEST_CASE("operations without a bounce buffer use messages, and bounce buffers are few") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    using bounce_buffer = colls::interprocess_transport::bounce_buffer;
    const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
    co_await until_mapped(comm, first);
    constexpr std::size_t n = 3000;
    constexpr std::uint64_t bounced_bytes = 2 * (2 * n / 3) * sizeof(matrix);
    elements data(comm, n, false);
    std::vector<std::unique_ptr<bounce_buffer>> taken;
    for (const bool has_bounce_buffer : {true, false, true}) {
      // Some ranks use bounce buffers, others do not.
      while (!has_bounce_buffer && comm.rank() > 0 && taken.size() < 100) {
        taken.push_back(std::make_unique<bounce_buffer>(comm.net()));
        if (taken.back()->data() == nullptr) break;
      }
      CHECK(taken.size() * bounce_buffer::size <= 32 << 20);
      data.fill(comm.rank());
      auto sum = comm.all_reduce(data.all, product(), direct);
      co_await sum;
      CHECK(data.is_full_sum(3));
      const bool bounced = sum.copied_bytes() < bounced_bytes + 100;
      CHECK((bounced || !has_bounce_buffer));
      CHECK((!bounced || has_bounce_buffer));
      taken.clear();
    }
  });
}

TEST_CASE("after a rank abandons an operation no peer uses its buffers") {
  ranks<shm_world> world(3);
  world.run([](communicator& comm) -> task<> {
    elements data(comm, 1'000'000, true);
    co_await until_mapped(comm, data.shared);
    data.fill(comm.rank());
    // All ranks have left the barrier when the communicator ends.
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

TEST_CASE("a forked child of a rank exposes nothing and has no bounce buffer") {
  ranks<shm_world> world(2);
  world.run([](communicator& comm) -> task<> {
    const colls::shared_buffer<matrix> first = comm.allocate<matrix>(1);
    co_await until_mapped(comm, first);
    elements data(comm, 1000, false);
    data.fill(comm.rank());
    co_await comm.all_reduce(data.all, product(), direct);
    if (comm.rank() == 1) co_return;
    const colls::const_bytes memory(reinterpret_cast<const std::byte*>(first.data()), 1);
    const auto can_expose = [&] {
      return colls::interprocess_transport::exposure(comm.net(), unrelated_communicator())
                 .offset_for(1, memory) != 0;
    };
    const auto has_bounce_buffer = [&] {
      return colls::interprocess_transport::bounce_buffer(comm.net()).data() != nullptr;
    };
    CHECK((can_expose() && has_bounce_buffer()));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(can_expose() || has_bounce_buffer() ? 1 : 0);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK((can_expose() && has_bounce_buffer()));
  });
}

namespace {

/// The pages that the shared heaps of this process occupy.
std::size_t bytes_in_shared_heaps() {
  std::size_t all = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat found{};
    if (::fstat(fd, &found) != 0 || found.st_size != off_t{colls::shm::shared_heap_bytes}) continue;
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
    "a rank that cannot relocate memory in which a peer is stopped waits, and relocates it later") {
  constexpr std::size_t small = colls::shm::max_page_size;
  constexpr std::size_t large = std::size_t{16} << 20;
  ranks<shm_world> world(2);
  colls::shared_buffer<std::byte> first = world.all[0].allocate<std::byte>(small);
  colls::shared_buffer<std::byte> second = world.all[0].allocate<std::byte>(large);
  world.run([&](communicator& comm) -> task<> {
    const colls::shared_buffer<std::byte> own = comm.allocate<std::byte>(1);
    co_await until_mapped(comm, own);
  });
  const colls::const_bytes blocks[] = {{first.data(), small}, {second.data(), large}};
  first[7] = second[large - 1] = std::byte{9};

  std::optional<colls::interprocess_transport::exposure> exposure(std::in_place, world.all[0].net(),
                                                                  unrelated_communicator());
  colls::shm::heap_offset before[2];
  for (int i = 0; i < 2; ++i) before[i] = exposure->offset_for(1, blocks[i]);
  REQUIRE((before[0] != 0 && before[1] != 0 && exposure->remote_key() != 0));
  colls::shm::shared_heap_view& peer = *world.all[1].net().view_of(0);
  enter(peer);
  const std::size_t held = bytes_in_shared_heaps();

  // For a while the first block can be relocated and the second cannot.
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
  exposure.reset();
  const double work = seconds_of(CLOCK_THREAD_CPUTIME_ID) - worked;
  const double time = seconds_of(CLOCK_MONOTONIC) - began;
  relief.join();
  peer.guard().leave();
  CHECK(time > 0.7);
  CHECK(work < time / 2);
  CHECK(bytes_in_shared_heaps() == held);
  exposure.emplace(world.all[0].net(), unrelated_communicator());
  for (int i = 0; i < 2; ++i) CHECK(exposure->offset_for(1, blocks[i]) != before[i]);
  CHECK((first[7] == std::byte{9} && second[large - 1] == std::byte{9}));
}

namespace {

/// Rank 0 of two has exposed a block and ends the exposure before its peer is done.
struct ended_exposure {
  static constexpr std::size_t size = colls::shm::max_page_size;

  ranks<shm_world> world{2};
  colls::shared_buffer<std::byte> block = world.all[0].allocate<std::byte>(size);
  std::optional<colls::interprocess_transport::exposure> exposure;
  colls::shm::shared_heap_view* peer = nullptr;  // the block's owner, as rank 1 sees it
  colls::shm::remote_key remote_key = 0;
  std::byte* there = nullptr;  // the block, as rank 1 sees it

  ended_exposure() {
    world.run([](communicator& comm) -> task<> {
      const colls::shared_buffer<std::byte> own = comm.allocate<std::byte>(1);
      co_await until_mapped(comm, own);
    });
    exposure.emplace(world.all[0].net(), unrelated_communicator());
    const colls::shm::heap_offset at = exposure->offset_for(1, {block.data(), size});
    remote_key = exposure->remote_key();
    peer = world.all[1].net().view_of(0);
    REQUIRE((at != 0 && remote_key != 0 && peer != nullptr));
    there = peer->at(at, size);
    REQUIRE(there != nullptr);
  }
  void fill_as_peer(std::byte value) const { std::fill_n(there, size, value); }
  bool is_filled_with(std::byte value) const {
    return std::all_of(block.data(), block.data() + size,
                       [=](std::byte each) { return each == value; });
  }
};

}  // namespace

TEST_CASE("a rank that ends an exposure waits until its peer has left the memory") {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    ended_exposure all;
    std::atomic<bool> has_begun = false;
    std::atomic<bool> has_returned = false;
    bool was_open = false;
    std::thread peer([&] {
      was_open = enter(*all.peer, all.remote_key);
      has_begun = true;
      while (all.peer->guard().is_open(all.remote_key)) std::this_thread::yield();
      // Shorter than the time after which a rank counts as stopped: only an owner that does not
      // wait returns.
      const auto limit = steady_clock::now() + milliseconds(10);
      while (!has_returned && steady_clock::now() < limit) std::this_thread::yield();
      all.fill_as_peer(std::byte{7});
      all.peer->guard().leave();
    });
    while (!has_begun) std::this_thread::yield();
    all.exposure.reset();
    std::fill_n(all.block.data(), ended_exposure::size, std::byte{40});
    has_returned = true;
    peer.join();
    CHECK(was_open);
    CHECK(all.is_filled_with(std::byte{40}));
  }
}

TEST_CASE("what a stopped peer writes after the exposure has ended is lost") {
  ended_exposure all;
  std::fill_n(all.block.data(), ended_exposure::size, std::byte{40});
  enter(*all.peer);
  all.exposure.reset();
  all.fill_as_peer(std::byte{7});
  all.peer->guard().leave();
  CHECK(all.is_filled_with(std::byte{40}));
}

TEST_CASE("a scan down a chain does not wait for peers inside the exposed memory") {
  ranks<shm_world> world(2);
  world.run([&](communicator& comm) -> task<> {
    elements data(comm, 20'000, comm.rank() == 0);
    const colls::shared_buffer<matrix> own = comm.allocate<matrix>(1);
    co_await until_mapped(comm, own);
    const auto offset = [&] {
      const colls::const_bytes block(reinterpret_cast<const std::byte*>(data.all.data()), 1);
      return colls::interprocess_transport::exposure(comm.net(), unrelated_communicator())
          .offset_for(1, block);
    };
    const colls::shm::heap_offset before = comm.rank() == 0 ? offset() : 0;
    // Rank 1 is stopped in memory that rank 0 exposes to another operation.
    colls::shm::shared_heap_view& inside = *world.all[1].net().view_of(0);
    enter(inside);
    data.fill(comm.rank());
    co_await comm.scan(data.all, product(), direct);
    bool right = true;
    for (std::size_t i = 0; i < data.all.size(); ++i) {
      right &= data.all[i] == sum(comm.rank() + 1, i);
    }
    CHECK(right);
    co_await comm.barrier();
    inside.guard().leave();
    if (comm.rank() == 0) CHECK((before != 0 && offset() == before));
  });
}

TEST_CASE("a mismatch is found before any buffer is touched") {
  ranks<shm_world> world(2);
  world.run([](communicator& comm) -> task<> {
    elements data(comm, 1000, true);
    co_await until_mapped(comm, data.shared);
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

TEST_CASE("memory is freed and allocated again") {
  ranks<shm_world> world(2);
  world.run([](communicator& comm) -> task<> {
    const matrix* at = nullptr;
    for (int i = 0; i < 100; ++i) {
      colls::shared_buffer<matrix> data = comm.allocate<matrix>(100'000);
      CHECK(data[99'999] == matrix{});
      data[99'999] = part(1, 1);
      if (i == 0) co_await until_mapped(comm, data);
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

TEST_CASE("sums in the element's type have the same bits whichever ranks expose their buffers") {
  constexpr std::size_t n = 30'000;
  ranks<shm_world> world(3);
  std::vector<colls::bfloat16> first;
  world.run([&](communicator& comm) -> task<> {
    colls::options opts = direct;
    opts.wire = colls::wire::storage;
    for (const int kind : {5, 1, 0}) {
      auto shared = comm.allocate<colls::bfloat16>(n);
      std::vector<colls::bfloat16> plain(n);
      const bool is_shared = exposes(kind, comm.rank(), true);
      const std::span<colls::bfloat16> data =
          is_shared ? std::span(shared.data(), n) : std::span(plain);
      // If the sum is rounded after each addition it stays 1; if it is rounded once it does not.
      for (auto& each : data) each = colls::bfloat16(comm.rank() == 0 ? 1.0f : 0.0029296875f);
      co_await comm.all_reduce(data, colls::plus(), opts);
      if (first.empty()) first.assign(data.begin(), data.end());
      CHECK(std::memcmp(first.data(), data.data(), n * sizeof(colls::bfloat16)) == 0);
      co_await comm.barrier();
    }
  });
}
