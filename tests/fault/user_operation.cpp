// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// An operation of the user throws, on one rank or on all, wherever the data of a peer lies: the
// call ends on all ranks, they name the rank, and other communicators go on.

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

/// A sum that counts its folds. Ranks are processes, so each has its own counter.
struct counted_sum {
  static constexpr bool commutative = true;
  static inline std::size_t folds = 0;
  static inline std::size_t good = SIZE_MAX;  // the folds before it throws

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

/// A collective and its algorithm.
struct plan {
  collective coll;
  algorithm algo;
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

/// The way that data takes between ranks.
struct path {
  const char* transport;
  const char* reads;
  bool is_exposed;  // whether buffers lie in shared memory

  bool is_read() const { return std::string_view(reads) == "always"; }
};

/// Input and output of one rank, in private or shared memory.
class buffers {
 public:
  buffers(colls::world& world, std::size_t in, std::size_t out, bool is_exposed) {
    if (is_exposed) {
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
  const colls::options opts{.algorithm = by.algo};
  switch (by.coll) {
    case collective::all_reduce:
      return comm.all_reduce(data.in(), data.out(), counted_sum(), opts);
    case collective::reduce_scatter:
      return comm.reduce_scatter(data.in(), data.out(), counted_sum(), opts);
    case collective::reduce:
      return comm.reduce(data.in(), data.out(), 0, counted_sum(), opts);
    default:
      std::copy(data.in().begin(), data.in().end(), data.out().begin());
      return comm.scan(data.out(), counted_sum(), opts);
  }
}

/// Returns the elements of an output that was zero before, if all elements of rank r are r + 1.
int result(const plan& by, int rank, int ranks) {
  const int last = by.coll == collective::scan ? rank + 1 : ranks;
  return by.coll == collective::reduce && rank != 0 ? 0 : last * (last + 1) / 2;
}

/// Whether this rank has to fold in any schedule.
bool folds(const plan& by, int rank, int ranks) {
  if (by.coll == collective::reduce) return rank == 0;
  if (by.coll == collective::scan) return rank > 0;
  return by.algo != algorithm::recursive_doubling || std::has_single_bit(unsigned(ranks));
}

task<colls::failure> failure_of(colls::operation<> operation) {
  try {
    co_await operation;
  } catch (const colls::error& thrown) {
    co_return thrown.record();
  }
  co_return colls::failure();
}

/// Waits until every rank can access the buffers of all others, in shared memory or by reading.
task<> until_in_place(colls::world& world, const path& by) {
  const buffers some(world, 1, 1, by.is_exposed);
  const colls::const_bytes memory(reinterpret_cast<const std::byte*>(some.in().data()),
                                  sizeof(int));
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    (void)co_await world.send_recv(some.in(), peer, some.out(), peer);
    colls::interprocess_transport::exposure exposure(world.net(), unrelated_communicator());
    auto is_known = [&] {
      return by.is_exposed ? exposure.offset_for(peer, memory) != 0
                           : exposure.address_for(peer, memory, colls::readers::all) != 0;
    };
    while (!is_known()) {
      co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds / 10);
    }
  }
  co_await world.barrier();
}

/// Whether inputs take the way of the test: exposed buffers are not copied, and what peers read is
/// copied once.
task<bool> goes_that_way(colls::world& world, const path& way) {
  const std::size_t n = 200'000;
  const std::size_t others = std::size_t(world.size()) - 1;
  const buffers data(world, n * (others + 1), n, way.is_exposed);
  counted_sum::begin(SIZE_MAX);
  auto sound = start({collective::reduce_scatter, algorithm::direct}, world, data);
  co_await sound;
  const std::size_t copies = way.is_exposed ? 0 : way.is_read() ? 1 : 2;
  co_return sound.copied_bytes() == copies* others* n * sizeof(int);
}

constexpr int all_ranks = -1;

/// Makes one call, in which rank `culprit` throws after `good` folds. Returns a text of what is
/// wrong; empty: nothing.
task<std::string> ends_everywhere(colls::world& world, const path& way, const plan& by,
                                  std::size_t n, int culprit, std::size_t good) {
  const int rank = world.rank();
  const int p = world.size();
  const std::size_t length = by.coll == collective::reduce_scatter ? n * std::size_t(p) : n;
  const buffers data(world, length, n, way.is_exposed);
  std::fill(data.in().begin(), data.in().end(), rank + 1);
  colls::world comm = co_await world.dup();
  const bool mine = culprit == all_ranks || culprit == rank;
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
  // From here on no peer touches the buffers.
  constexpr int untouched = -77;
  data.fill(untouched);

  std::vector<int> throwers(std::size_t(p), 0);
  const std::vector<int> me(1, threw);
  (void)co_await world.all_gather(me, throwers);
  const bool any = std::find(throwers.begin(), throwers.end(), 1) != throwers.end();
  // Where all ranks may throw, some are told of the failure before they throw.
  if (culprit == all_ranks ? !any : mine && folds(by, rank, p) && !threw) wrong += "no throw; ";
  if (any && why.code != errc::user_op_failed) {
    wrong += "not the user's operation: " + std::string(colls::error(why).what()) + "; ";
  } else if (any) {
    if (why.culprit < 0 || throwers[std::size_t(why.culprit)] == 0) {
      wrong += "named rank " + std::to_string(why.culprit) + "; ";
    }
    if (threw && why.culprit != rank && culprit != all_ranks) wrong += "did not name itself; ";
    if (!contains(why.detail, "had enough")) wrong += "reported " + std::string(why.detail) + "; ";
    if (!ended_well && why.operation != by.coll) wrong += "in another operation; ";
    const colls::failure later = co_await failure_of(comm.barrier());
    if (later.code != why.code || later.culprit != why.culprit) wrong += "another error later; ";
  } else if (why.code != errc{}) {
    wrong += std::string(colls::error(why).what()) + "; ";
  }

  // The world is another communicator and still works.
  std::vector<int> sum(20'000, rank + 1);
  for (const algorithm algo : {algorithm::ring, algorithm::direct}) {
    std::fill(sum.begin(), sum.end(), rank + 1);
    co_await world.all_reduce(sum, {.algorithm = algo});
    if (std::count(sum.begin(), sum.end(), p * (p + 1) / 2) != 20'000) wrong += "a wrong sum; ";
  }
  co_await world.barrier();
  if (!data.have(untouched, untouched)) wrong += "a buffer was touched afterwards; ";
  co_return wrong;
}

task<> every_call(colls::world& world, const line& test, const path& way) {
  if (way.is_exposed || way.is_read()) co_await until_in_place(world, way);
  if (!co_await goes_that_way(world, way)) test.say("inputs go another way");
  const int p = world.size();
  for (const plan& by : plans) {
    for (const std::size_t n : {std::size_t(6), std::size_t(3000), std::size_t(200'000)}) {
      for (const std::size_t good : {std::size_t{0}, n / 6}) {
        for (int culprit = all_ranks; culprit < p; ++culprit) {
          const std::string wrong = co_await ends_everywhere(world, way, by, n, culprit, good);
          if (wrong.empty()) continue;
          test.say(std::string(name(by.coll)) + " " + name(by.algo) + " of " + std::to_string(n) +
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
    colls::config cfg;
    cfg.transport = way.transport;
    cfg.reads = way.reads;
    job all(
        p, [=](colls::world& world, const line& test) { return every_call(world, test, way); },
        cfg);
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

TEST_CASE("an operation of the user throws as it folds what peers expose") {
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

/// The states of two ranks that each sees while both are inside of an operation.
struct moments {
  std::atomic<bool> peer_folds = false;
  std::atomic<bool> has_failed = false;

  /// Returns one in memory that the processes share.
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

TEST_CASE("an operation of the user throws while a peer folds, and its exposed input is free") {
  moments& both = moments::shared();
  job all(2,
          [&](colls::world& world, const line& test) -> task<> {
            const path way{"shm", "never", true};
            co_await until_in_place(world, way);
            constexpr std::size_t n = 200'000;
            const buffers data(world, n, n, way.is_exposed);
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
