// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// An operation of the user that throws, on one rank or on all, wherever it finds what a peer gave:
// the call ends on all ranks, they name the rank, and other communicators go on.

#include "../support/reads.hpp"
#include "processes.hpp"

#include <atomic>
#include <bit>
#include <stdexcept>

using namespace processes;
using colls::algorithm;
using colls::collective;
using colls::errc;

namespace {

/// Ranks are processes, so each counts its own.
struct counted_sum {
  static constexpr bool commutative = true;
  static inline std::size_t folds = 0;
  static inline std::size_t good = SIZE_MAX;  // this many, then it throws

  static void begin(std::size_t good_ones) {
    folds = 0;
    good = good_ones;
  }
  static bool threw() { return folds > good; }

  int operator()(int a, int b) const {
    if (folds++ >= good) throw std::runtime_error("rank " + std::to_string(a + b) + " had enough");
    return a + b;
  }
};

/// What is called.
struct plan {
  collective what;
  algorithm how;
};
constexpr plan plans[] = {
    {collective::all_reduce, algorithm::ring},
    {collective::all_reduce, algorithm::recursive_doubling},
    {collective::all_reduce, algorithm::direct},
    {collective::reduce_scatter, algorithm::ring},
    {collective::reduce_scatter, algorithm::direct},
    {collective::reduce, algorithm::direct},
    {collective::scan, algorithm::direct},
};

/// Between which ranks.
struct path {
  const char* transport;
  const char* reads;
  bool lent;

  bool is_read() const { return std::string_view(reads) == "always"; }
};

/// Input and output of one rank, in memory of its own or lent.
class buffers {
 public:
  buffers(colls::world& world, std::size_t in, std::size_t out, bool lent) {
    if (lent) {
      shared_[0] = world.allocate<int>(in);
      shared_[1] = world.allocate<int>(out);
      in_ = {shared_[0].data(), in};
      out_ = {shared_[1].data(), out};
    } else {
      own_[0].resize(in);
      own_[1].resize(out);
      in_ = own_[0];
      out_ = own_[1];
    }
  }

  std::span<int> in() const { return in_; }
  std::span<int> out() const { return out_; }
  void fill(int with) const {
    std::fill(in_.begin(), in_.end(), with);
    std::fill(out_.begin(), out_.end(), with);
  }
  bool have(int in, int out) const { return are(in_, in) && are(out_, out); }

 private:
  static bool are(std::span<const int> all, int value) {
    return std::all_of(all.begin(), all.end(), [=](int each) { return each == value; });
  }

  std::vector<int> own_[2];
  colls::shared_buffer<int> shared_[2];
  std::span<int> in_;
  std::span<int> out_;
};

/// Rank 0 is the root.
colls::operation<> start(const plan& by, colls::world& comm, const buffers& data) {
  const colls::options how{.algorithm = by.how};
  switch (by.what) {
    case collective::all_reduce:
      return comm.all_reduce(data.in(), data.out(), counted_sum(), how);
    case collective::reduce_scatter:
      return comm.reduce_scatter(data.in(), data.out(), counted_sum(), how);
    case collective::reduce:
      return comm.reduce(data.in(), data.out(), 0, counted_sum(), how);
    default:
      std::copy(data.in().begin(), data.in().end(), data.out().begin());
      return comm.scan(data.out(), counted_sum(), how);
  }
}

/// What an output is that began with zeros; rank r gave r + 1 everywhere.
int result(const plan& by, int rank, int ranks) {
  const int last = by.what == collective::scan ? rank + 1 : ranks;
  return by.what == collective::reduce && rank != 0 ? 0 : last * (last + 1) / 2;
}

/// Whether this rank has to fold, whatever the schedule.
bool folds(const plan& by, int rank, int ranks) {
  if (by.what == collective::reduce) return rank == 0;
  if (by.what == collective::scan) return rank > 0;
  return by.how != algorithm::recursive_doubling || std::has_single_bit(unsigned(ranks));
}

task<colls::failure> failure_of(colls::operation<> operation) {
  try {
    co_await operation;
  } catch (const colls::error& thrown) {
    co_return thrown.record();
  }
  co_return colls::failure();
}

/// Until every rank lends to all others, or reads what they have.
task<> until_in_place(colls::world& world, const path& by) {
  const buffers some(world, 1, 1, by.lent);
  const colls::const_bytes memory(reinterpret_cast<const std::byte*>(some.in().data()),
                                  sizeof(int));
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    (void)co_await world.send_recv(some.in(), peer, some.out(), peer);
    auto is_known = [&, loan = colls::tcp_transport::loan(world.net(), of_nothing())]() mutable {
      return by.lent ? loan.place_for(peer, memory) != 0
                     : loan.address_for(peer, memory, colls::readers::all) != 0;
    };
    while (!is_known()) {
      co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds / 10);
    }
  }
  co_await world.barrier();
}

/// Whether inputs go the way that is meant: what is lent is not copied, what is read is copied
/// once.
task<bool> goes_that_way(colls::world& world, const path& way) {
  const std::size_t n = 200'000;
  const std::size_t others = std::size_t(world.size()) - 1;
  const buffers data(world, n * (others + 1), n, way.lent);
  counted_sum::begin(SIZE_MAX);
  auto sound = start({collective::reduce_scatter, algorithm::direct}, world, data);
  co_await sound;
  const std::size_t copies = way.lent ? 0 : way.is_read() ? 1 : 2;
  co_return sound.copied_bytes() == copies* others* n * sizeof(int);
}

constexpr int everybody = -1;

/// One call, in which rank `culprit` throws after `good` folds. Says what is wrong with it; nothing
/// if all is right.
task<std::string> ends_everywhere(colls::world& world, const path& way, const plan& by,
                                  std::size_t n, int culprit, std::size_t good) {
  const int rank = world.rank();
  const int p = world.size();
  const std::size_t length = by.what == collective::reduce_scatter ? n * std::size_t(p) : n;
  const buffers data(world, length, n, way.lent);
  std::fill(data.in().begin(), data.in().end(), rank + 1);
  colls::world comm = co_await world.dup();
  const bool mine = culprit == everybody || culprit == rank;
  counted_sum::begin(mine ? good : SIZE_MAX);
  std::string wrong;
  colls::failure why = co_await failure_of(start(by, comm, data));
  const bool threw = counted_sum::threw();
  const bool ended_well = why.code == errc{};
  if (ended_well) {
    if (threw) wrong += "the call ended well where it threw; ";
    if (!data.have(rank + 1, result(by, rank, p))) wrong += "a wrong result; ";
    why = co_await failure_of(comm.barrier());
  }
  // From here on nothing of it is touched by a peer.
  constexpr int untouched = -77;
  data.fill(untouched);

  std::vector<int> throwers(std::size_t(p), 0);
  const std::vector<int> me(1, threw);
  (void)co_await world.all_gather(me, throwers);
  const bool any = std::find(throwers.begin(), throwers.end(), 1) != throwers.end();
  // Where all may throw, those that come later are told before they do.
  if (culprit == everybody ? !any : mine && folds(by, rank, p) && !threw) wrong += "no throw; ";
  if (any && why.code != errc::user_op_failed) {
    wrong += "not the user's operation: " + std::string(colls::error(why).what()) + "; ";
  } else if (any) {
    if (why.culprit < 0 || throwers[std::size_t(why.culprit)] == 0) {
      wrong += "named rank " + std::to_string(why.culprit) + "; ";
    }
    if (threw && why.culprit != rank && culprit != everybody) wrong += "did not name itself; ";
    if (!contains(why.detail, "had enough")) wrong += "said " + std::string(why.detail) + "; ";
    if (!ended_well && why.operation != by.what) wrong += "in another operation; ";
    const colls::failure later = co_await failure_of(comm.barrier());
    if (later.code != why.code || later.culprit != why.culprit) wrong += "another error later; ";
  } else if (why.code != errc{}) {
    wrong += std::string(colls::error(why).what()) + "; ";
  }

  // The world is older, and good.
  std::vector<int> sum(20'000, rank + 1);
  for (const algorithm how : {algorithm::ring, algorithm::direct}) {
    std::fill(sum.begin(), sum.end(), rank + 1);
    co_await world.all_reduce(sum, {.algorithm = how});
    if (std::count(sum.begin(), sum.end(), p * (p + 1) / 2) != 20'000) wrong += "a wrong sum; ";
  }
  co_await world.barrier();
  if (!data.have(untouched, untouched)) wrong += "a buffer was touched afterwards; ";
  co_return wrong;
}

task<> every_call(colls::world& world, const line& test, const path& way) {
  if (way.lent || way.is_read()) co_await until_in_place(world, way);
  if (!co_await goes_that_way(world, way)) test.say("inputs go another way");
  const int p = world.size();
  for (const plan& by : plans) {
    for (const std::size_t n : {std::size_t(6), std::size_t(3000), std::size_t(200'000)}) {
      for (const std::size_t good : {std::size_t{0}, n / 6}) {
        for (int culprit = everybody; culprit < p; ++culprit) {
          const std::string wrong = co_await ends_everywhere(world, way, by, n, culprit, good);
          if (wrong.empty()) continue;
          test.say(std::string(name(by.what)) + " " + name(by.how) + " of " + std::to_string(n) +
                   ", rank " + std::to_string(culprit) + " throws after " + std::to_string(good) +
                   ": " + wrong);
        }
      }
    }
  }
  test.say("right");
}

void throws_on(const path& way) {
  for (int p = 2; p <= 5; ++p) {
    CAPTURE(p);
    colls::config how;
    how.transport = way.transport;
    how.reads = way.reads;
    job all(
        p, [=](colls::world& world, const line& test) { return every_call(world, test, way); },
        how);
    for (int rank = 0; rank < p; ++rank) {
      CAPTURE(rank);
      CHECK(all.hear(rank, 100) == "right");
    }
    for (int rank = 0; rank < p; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

}  // namespace

TEST_CASE("an operation of the user throws as it folds what a socket brought") {
  throws_on({"tcp", "", false});
}

TEST_CASE("an operation of the user throws as it folds from a ring in shared memory") {
  throws_on({"shm", "never", false});
}

TEST_CASE("an operation of the user throws as it folds what peers have lent") {
  throws_on({"shm", "never", true});
}

TEST_CASE("an operation of the user throws as it folds what it reads of its peers") {
  if (!kernel_lets_read()) {
    MESSAGE("skipped: this system lets no process read another one");
    return;
  }
  throws_on({"shm", "always", false});
}

namespace {

/// What two ranks know of each other while both are inside of an operation.
struct moments {
  std::atomic<bool> peer_folds = false;
  std::atomic<bool> has_failed = false;

  /// Memory that processes share.
  static moments& shared() {
    void* const at =
        ::mmap(nullptr, sizeof(moments), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    return *new (at) moments;
  }
  static void wait_for(const std::atomic<bool>& moment) {
    while (!moment) ::usleep(100);
  }
};

/// Throws on rank 0 while rank 1 is inside of a fold, which ends after the call of rank 0.
struct crossed_sum {
  static constexpr bool commutative = true;
  static inline moments* at = nullptr;
  static inline int rank = 0;

  int operator()(int a, int b) const {
    if (rank == 0) {
      moments::wait_for(at->peer_folds);
      throw std::runtime_error("had enough");
    }
    at->peer_folds = true;
    moments::wait_for(at->has_failed);
    return a + b;
  }
};

}  // namespace

TEST_CASE("an operation of the user throws while a peer folds, and what was lent to that is free") {
  moments& both = moments::shared();
  job all(2,
          [&](colls::world& world, const line& test) -> task<> {
            const path way{"shm", "never", true};
            co_await until_in_place(world, way);
            constexpr std::size_t n = 200'000;
            const buffers data(world, n, n, way.lent);
            data.fill(1);
            colls::world comm = co_await world.dup();
            crossed_sum::at = &both;
            crossed_sum::rank = world.rank();
            const colls::failure why = co_await failure_of(comm.all_reduce(
                data.in(), data.out(), crossed_sum(), {.algorithm = algorithm::direct}));
            constexpr int untouched = -77;
            data.fill(untouched);
            if (world.rank() == 0) both.has_failed = true;
            co_await world.barrier();
            test.say(why.code == errc::user_op_failed && why.culprit == 0 ? "told" : why.detail);
            test.say(data.have(untouched, untouched) ? "untouched" : "touched");
          },
          {.transport = "shm", .reads = "never"});
  CHECK(all.all_say("told"));
  CHECK(all.all_say("untouched"));
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
  ::munmap(&both, sizeof both);
}
