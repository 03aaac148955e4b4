// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Makes every call of a communicator with elements of type int, float and a user's struct, and
// checks each element: colls-run -n 4 every_collective

#include <colls/interprocess.hpp>
#include <colls/run.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using std::size_t;

namespace {

// A function x -> a x + b. Composition is associative and not commutative, so a reduction that
// combines ranks in a wrong order gives a wrong result.
struct affine {
  static constexpr const char* name = "affine";
  std::uint32_t a, b;
  bool operator==(const affine&) const = default;
};
struct then {
  static constexpr const char* name = "then";
  affine operator()(affine f, affine g) const { return {g.a * f.a, g.a * f.b + g.b}; }
};

// Element `i` of the data of `rank`. All elements are different, and sums of floats are exact.
template <class T>
T value(int rank, size_t i) {
  const auto k = static_cast<std::uint32_t>(i);
  const auto r = static_cast<std::uint32_t>(rank);
  if constexpr (std::is_same_v<T, affine>) {
    return {2 * k + 4 * r + 3, k * k + 7 * r};
  } else if constexpr (std::is_same_v<T, int>) {
    return static_cast<int>(1'000'003 * r + k);
  } else {
    return static_cast<T>(100'000 * r + k);
  }
}

std::string text(affine f) { return std::to_string(f.a) + " x + " + std::to_string(f.b); }
std::string text(auto number) { return std::to_string(number); }

// Awaits the operation and returns its error, or none.
template <class Operation>
colls::task<colls::errc> error_of(Operation operation) {
  try {
    co_await operation;
  } catch (const colls::error& error) {
    co_return error.record().code;
  }
  co_return colls::errc{};
}

void require(bool holds, const std::string& message) {
  if (!holds) throw std::runtime_error(message);
}

// The calls with one element type and one reduction. If `n` is 0, messages consist of headers only.
template <class T, class Op>
struct calls {
  colls::world& world;
  std::string name;  // of the call and its type, for messages
  size_t n;
  Op op = {};
  int me = world.rank();
  int ranks = world.size();
  int next = (me + 1) % ranks;
  int prev = (me + ranks - 1) % ranks;

  static std::vector<T> values_of(int rank, size_t count) {
    std::vector<T> data;
    for (size_t i = 0; i < count; ++i) data.push_back(value<T>(rank, i));
    return data;
  }
  std::vector<T> own_values(size_t count) const { return values_of(me, count); }
  // Element i of the data of ranks 0 to `last`, reduced.
  T reduced(int last, size_t i) const {
    T result = value<T>(0, i);
    for (int rank = 1; rank <= last; ++rank) result = op(result, value<T>(rank, i));
    return result;
  }
  T reduced(size_t i) const { return reduced(ranks - 1, i); }

  // The counts of v-calls; some ranks have none.
  size_t count_of(int rank) const { return rank % 3 == 1 ? 0 : n + static_cast<size_t>(rank); }
  std::vector<size_t> counts() const {
    std::vector<size_t> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(count_of(rank));
    return all;
  }
  size_t all_counts() const { return begin_of(ranks); }
  size_t begin_of(int rank) const {
    size_t begin = 0;
    for (int before = 0; before < rank; ++before) begin += count_of(before);
    return begin;
  }
  size_t blocks() const { return n * static_cast<size_t>(ranks); }
  std::span<T> block(std::vector<T>& all, int rank) const {
    return std::span(all).subspan(n * static_cast<size_t>(rank), n);
  }

  // Throws unless data[i] == expected(i) for all i.
  template <class Expected>
  void check(std::span<const T> data, Expected expected) const {
    for (size_t i = 0; i < data.size(); ++i) {
      const T right = expected(i);
      if (data[i] == right) continue;
      throw std::runtime_error(name + ": rank " + std::to_string(me) + ", index " +
                               std::to_string(i) + ": got " + text(data[i]) + ", wanted " +
                               text(right));
    }
  }
  void check_unchanged(std::span<const T> data) const {
    check(data, [&](size_t i) { return value<T>(me, i); });
  }
  void check_reduced(std::span<const T> data) const {
    check(data, [&](size_t i) { return reduced(i); });
  }
  // Expects the blocks of all ranks, in rank order.
  void check_blocks(std::span<const T> data) const {
    check(data, [&](size_t i) { return value<T>(static_cast<int>(i / n), i % n); });
  }
  void check_counted(std::span<const T> data) const {
    for (int rank = 0; rank < ranks; ++rank) {
      check(data.subspan(begin_of(rank), count_of(rank)),
            [&](size_t i) { return value<T>(rank, i); });
    }
  }

  colls::task<> all_reduce() {
    const std::vector<T> in = own_values(n);
    std::vector<T> out(n);
    co_await world.all_reduce(in, out, op);
    check_reduced(out);
    check_unchanged(in);
  }
  colls::task<> all_reduce_in_place() {
    std::vector<T> data = own_values(n);
    co_await world.all_reduce(data, op);
    check_reduced(data);
  }
  colls::task<> all_reduce_grouped() {
    std::vector<T> a = own_values(n), b = own_values(2 * n + 1), c = own_values(3);
    co_await world.all_reduce(colls::group{a, b, c}, op);
    check_reduced(a);
    check_reduced(b);
    check_reduced(c);
  }
  colls::task<> reduce() {
    for (int root = 0; root < ranks; ++root) {
      const std::vector<T> in = own_values(n);
      std::vector<T> out(n);
      if (me == root) {
        co_await world.reduce(in, out, root, op);
        check_reduced(out);
      } else {
        co_await world.reduce(in, colls::none, root, op);
      }
      check_unchanged(in);
    }
  }
  colls::task<> reduce_in_place() {
    for (int root = 0; root < ranks; ++root) {
      std::vector<T> data = own_values(n);
      co_await world.reduce(data, root, op);
      me == root ? check_reduced(data) : check_unchanged(data);
    }
  }
  colls::task<> reduce_scatter() {
    const std::vector<T> in = own_values(blocks());
    std::vector<T> out(n);
    co_await world.reduce_scatter(in, out, op);
    check(out, [&](size_t i) { return reduced(n * static_cast<size_t>(me) + i); });
    check_unchanged(in);
  }
  colls::task<> reduce_scatter_in_place() {
    std::vector<T> data = own_values(blocks());
    const std::span<T> out = block(data, me);
    co_await world.reduce_scatter(data, out, op);
    check(out, [&](size_t i) { return reduced(n * static_cast<size_t>(me) + i); });
  }
  colls::task<> reduce_scatter_v() {
    const std::vector<T> in = own_values(all_counts());
    std::vector<T> out(count_of(me));
    co_await world.reduce_scatter_v(in, out, counts(), op);
    check(out, [&](size_t i) { return reduced(begin_of(me) + i); });
  }
  colls::task<> scan() {
    std::vector<T> data = own_values(n);
    co_await world.scan(data, op);
    check(data, [&](size_t i) { return reduced(me, i); });
  }
  colls::task<> exscan() {
    std::vector<T> data = own_values(n);
    co_await world.exscan(data, op);
    check(data, [&](size_t i) { return reduced(me > 0 ? me - 1 : 0, i); });
  }

  colls::task<> broadcast() {
    for (int root = 0; root < ranks; ++root) {
      std::vector<T> data = own_values(n);
      co_await world.broadcast(data, root);
      check(data, [&](size_t i) { return value<T>(root, i); });
    }
  }
  colls::task<> gather() {
    for (int root = 0; root < ranks; ++root) {
      const std::vector<T> in = own_values(n);
      std::vector<T> out(me == root ? blocks() : 0);
      if (me == root) {
        co_await world.gather(in, out, root);
      } else {
        co_await world.gather(in, colls::none, root);
      }
      check_blocks(out);
    }
  }
  colls::task<> gather_in_place() {
    const int root = ranks - 1;
    std::vector<T> all(me == root ? blocks() : n);
    const std::span<T> in = me == root ? block(all, me) : std::span(all);
    for (size_t i = 0; i < n; ++i) in[i] = value<T>(me, i);
    co_await world.gather(in, all, root);
    if (me == root) check_blocks(all);
  }
  colls::task<> gather_v() {
    for (int root = 0; root < ranks; ++root) {
      const std::vector<T> in = own_values(count_of(me));
      std::vector<T> out(me == root ? all_counts() : 0);
      co_await world.gather_v(in, out, counts(), root);
      if (me == root) check_counted(out);
    }
  }
  colls::task<> scatter() {
    for (int root = 0; root < ranks; ++root) {
      std::vector<T> out(n);
      if (me == root) {
        const std::vector<T> in = own_values(blocks());
        co_await world.scatter(in, out, root);
      } else {
        co_await world.scatter(colls::none, out, root);
      }
      check(out, [&](size_t i) { return value<T>(root, n * static_cast<size_t>(me) + i); });
    }
  }
  colls::task<> scatter_in_place() {
    const int root = ranks - 1;
    std::vector<T> all = own_values(me == root ? blocks() : n);
    const std::span<T> out = me == root ? block(all, me) : std::span(all);
    co_await world.scatter(all, out, root);
    check(out, [&](size_t i) { return value<T>(root, n * static_cast<size_t>(me) + i); });
  }
  colls::task<> scatter_v() {
    for (int root = 0; root < ranks; ++root) {
      const std::vector<T> in = own_values(me == root ? all_counts() : 0);
      std::vector<T> out(count_of(me));
      co_await world.scatter_v(in, counts(), out, root);
      check(out, [&](size_t i) { return value<T>(root, begin_of(me) + i); });
    }
  }
  colls::task<> all_gather() {
    const std::vector<T> in = own_values(n);
    std::vector<T> out(blocks());
    co_await world.all_gather(in, out);
    check_blocks(out);
  }
  colls::task<> all_gather_in_place() {
    std::vector<T> all(blocks());
    const std::span<T> in = block(all, me);
    for (size_t i = 0; i < n; ++i) in[i] = value<T>(me, i);
    co_await world.all_gather(in, all);
    check_blocks(all);
  }
  colls::task<> all_gather_v() {
    const std::vector<T> in = own_values(count_of(me));
    std::vector<T> out(all_counts());
    co_await world.all_gather_v(in, out, counts());
    check_counted(out);
  }
  void check_exchanged(std::span<const T> data) const {
    check(data, [&](size_t i) {
      return value<T>(static_cast<int>(i / n), n * static_cast<size_t>(me) + i % n);
    });
  }
  colls::task<> all_to_all() {
    const std::vector<T> in = own_values(blocks());
    std::vector<T> out(blocks());
    co_await world.all_to_all(in, out);
    check_exchanged(out);
  }
  colls::task<> all_to_all_in_place() {
    std::vector<T> data = own_values(blocks());
    co_await world.all_to_all(data, data);
    check_exchanged(data);
  }
  // Rank i sends n + i + 1 elements to every even rank, and none to odd ranks.
  colls::task<> all_to_all_v() {
    const auto between = [&](int source, int dest) {
      return dest % 2 == 1 ? 0 : n + static_cast<size_t>(source) + 1;
    };
    std::vector<size_t> sends, receives;
    size_t sent = 0, received = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sent += sends.emplace_back(between(me, rank));
      received += receives.emplace_back(between(rank, me));
    }
    const std::vector<T> in = own_values(sent);
    std::vector<T> out(received);
    co_await world.all_to_all_v(in, sends, out, receives);
    size_t offset = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const size_t count = receives[static_cast<size_t>(rank)];
      const size_t begin = static_cast<size_t>((me + 1) / 2) * between(rank, 0);
      check(std::span(out).subspan(offset, count),
            [&](size_t i) { return value<T>(rank, begin + i); });
      offset += count;
    }
  }

  colls::task<> send() {
    const std::vector<T> out = own_values(n);
    std::vector<T> in(n);
    auto sending = world.send(out, next, 7);
    co_await world.recv(in, prev, 7);
    co_await sending;
    check(in, [&](size_t i) { return value<T>(prev, i); });
  }
  colls::task<> recv() {
    const std::vector<T> out = own_values(n);
    std::vector<T> in(n + 5);  // the message may be shorter
    auto receiving = world.recv(in, prev);
    co_await world.send(out, next);
    const colls::received message = co_await receiving;
    require(message.source == prev && message.count == n, name + ": wrong source or count");
    check(std::span(in).first(n), [&](size_t i) { return value<T>(prev, i); });
  }
  colls::task<> send_recv() {
    const std::vector<T> out = own_values(n);
    std::vector<T> in(n);
    co_await world.send_recv(out, next, in, prev);
    check(in, [&](size_t i) { return value<T>(prev, i); });
  }
  colls::task<> any_source() {
    const std::vector<T> out = own_values(count_of(me));
    if (me != 0) co_await world.send(out, 0, 3);
    for (int left = me == 0 ? ranks - 1 : 0; left > 0; --left) {
      std::vector<T> in(n + static_cast<size_t>(ranks));
      const colls::received message = co_await world.recv(in, colls::any_source, 3);
      require(message.count == count_of(message.source), name + ": wrong count");
      check(std::span(in).first(message.count),
            [&](size_t i) { return value<T>(message.source, i); });
    }
    co_await world.barrier();  // otherwise rank 0 could receive a message of the next call
  }

  // A call starts its operation at once. Operations may be kept and awaited in any order.
  colls::task<> kept_operations() {
    const std::vector<T> in = own_values(n);
    std::vector<T> a = own_values(n), b = own_values(n), c(blocks());
    auto first = world.all_reduce(a, op);
    auto second = world.broadcast(b, ranks - 1);
    auto third = world.all_gather(in, c);
    if (me % 2 == 0) co_await third;
    co_await second;
    co_await first;
    if (me % 2 == 1) co_await third;
    check_reduced(a);
    check(b, [&](size_t i) { return value<T>(ranks - 1, i); });
    check_blocks(c);
  }

  // An algorithm can be pinned at compile time or by an option. If it does not support the call,
  // the call fails; no other algorithm is used instead.
  colls::task<> pinned_algorithm() {
    std::vector<T> data = own_values(n);
    co_await world.all_reduce<colls::algorithm::recursive_doubling>(data, op);
    check_reduced(data);
    data = own_values(n);
    co_await world.all_reduce(data, op, {.timeout = 60s, .order = colls::order::rank});
    check_reduced(data);
    data = own_values(n);
    auto ring = world.all_reduce(data, op, {.algorithm = colls::algorithm::ring, .segment = 8192});
    if constexpr (colls::commutative_for<Op, T>) {
      co_await ring;
      check_reduced(data);
    } else {
      require(co_await error_of(std::move(ring)) == colls::errc::not_applicable, name);
    }
  }

  struct entry {
    const char* name;
    colls::task<> (calls::*run)();
  };
  static constexpr entry table[] = {
      {"all_reduce", &calls::all_reduce},
      {"all_reduce_in_place", &calls::all_reduce_in_place},
      {"all_reduce_grouped", &calls::all_reduce_grouped},
      {"reduce", &calls::reduce},
      {"reduce_in_place", &calls::reduce_in_place},
      {"reduce_scatter", &calls::reduce_scatter},
      {"reduce_scatter_in_place", &calls::reduce_scatter_in_place},
      {"reduce_scatter_v", &calls::reduce_scatter_v},
      {"scan", &calls::scan},
      {"exscan", &calls::exscan},
      {"broadcast", &calls::broadcast},
      {"gather", &calls::gather},
      {"gather_in_place", &calls::gather_in_place},
      {"gather_v", &calls::gather_v},
      {"scatter", &calls::scatter},
      {"scatter_in_place", &calls::scatter_in_place},
      {"scatter_v", &calls::scatter_v},
      {"all_gather", &calls::all_gather},
      {"all_gather_in_place", &calls::all_gather_in_place},
      {"all_gather_v", &calls::all_gather_v},
      {"all_to_all", &calls::all_to_all},
      {"all_to_all_in_place", &calls::all_to_all_in_place},
      {"all_to_all_v", &calls::all_to_all_v},
      {"send", &calls::send},
      {"recv", &calls::recv},
      {"send_recv", &calls::send_recv},
      {"any_source", &calls::any_source},
      {"kept_operations", &calls::kept_operations},
      {"pinned_algorithm", &calls::pinned_algorithm},
  };
};

// ---- calls without elements

void require_int(const char* name, int result, int expected) {
  require(result == expected,
          std::string(name) + ": got " + text(result) + ", wanted " + text(expected));
}

constexpr const char* places_names[] = {"rank",       "size", "local_rank",
                                        "local_size", "node", "nodes"};
colls::task<> places(colls::world& world) {
  struct place {
    int rank, node, local_rank;
  };
  const place own[] = {{world.rank(), world.node(), world.local_rank()}};
  std::vector<place> all(static_cast<size_t>(world.size()));
  co_await world.all_gather(own, all);
  int local_size = 0;
  int nodes = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const place& other = all[static_cast<size_t>(rank)];
    require_int("rank", other.rank, rank);
    if (other.node == world.node()) require_int("local_rank", other.local_rank, local_size++);
    nodes += other.local_rank == 0;
  }
  require_int("local_size", world.local_size(), local_size);
  require_int("nodes", world.nodes(), nodes);
}

colls::task<> barrier(colls::world& world) { co_await world.barrier(); }

// An all_reduce and a gather on a communicator that `call` made from the world.
colls::task<> use(colls::world& comm, const char* call, int rank, int size) {
  require_int(call, comm.rank(), rank);
  require_int(call, comm.size(), size);
  calls<affine, then> all{comm, call, 100};
  co_await all.all_reduce();
  co_await all.gather();
}

// One communicator of the odd ranks and one of the even ranks, the highest rank first.
colls::task<> split(colls::world& world) {
  const int color = world.rank() % 2;
  colls::world half = co_await world.split(color, -world.rank());
  const int size = (world.size() + 1 - color) / 2;
  co_await use(half, "split", size - 1 - world.rank() / 2, size);
  const colls::world others = co_await world.split(world.rank() == 0 ? -1 : 0);
  require_int("split with a negative color", bool(others), world.rank() != 0);
}

// A communicator of all ranks but rank 0, the highest rank first.
colls::task<> group(colls::world& world) {
  std::vector<int> ranks;
  for (int rank = world.size() - 1; rank > 0; --rank) ranks.push_back(rank);
  colls::world comm = co_await world.group(ranks);
  require_int("group", bool(comm), world.rank() != 0);
  if (comm) co_await use(comm, "group", world.size() - 1 - world.rank(), world.size() - 1);
}

// Calls on a duplicate are independent of calls on the world.
colls::task<> dup(colls::world& world) {
  colls::world copy = co_await world.dup();
  int a[] = {1};
  int b[] = {2};
  auto first = world.rank() % 2 == 0 ? world.all_reduce(a) : copy.all_reduce(b);
  auto second = world.rank() % 2 == 0 ? copy.all_reduce(b) : world.all_reduce(a);
  co_await first;
  co_await second;
  require_int("dup", a[0], world.size());
  require_int("dup", b[0], 2 * world.size());
  co_await use(copy, "dup", world.rank(), world.size());
}

// A duplicate on another executor: a second thread uses it while this thread uses the world.
colls::task<> use_and_close(colls::world& comm, int rank, int size) {
  co_await use(comm, "dup with an executor", rank, size);
  co_await comm.close();
}
colls::task<> dup_executor(colls::world& world) {
  boost::asio::io_context context(1);
  colls::world copy = co_await world.dup(context.get_executor());
  std::exception_ptr failed;
  std::jthread second([&] {
    try {
      colls::sync_wait(copy, use_and_close(copy, world.rank(), world.size()));
    } catch (...) {
      failed = std::current_exception();
    }
  });
  co_await use(world, "the world", world.rank(), world.size());
  second.join();
  if (failed) std::rethrow_exception(failed);
}

// The operation ends with an error, and the world remains usable.
colls::task<> timeout(colls::world& world) {
  int x[1];
  auto unmatched = world.recv(x, colls::any_source, 99, {.timeout = 10ms});
  require(co_await error_of(std::move(unmatched)) == colls::errc::timeout, "timeout");
}

colls::task<> invalid_argument(colls::world& world) {
  int x[1];
  auto wrong_root = world.broadcast(x, world.size());
  require(co_await error_of(std::move(wrong_root)) == colls::errc::invalid_argument, "wrong root");
}

// One rank revokes a communicator. Its calls fail on all ranks, which get the reason, and the world
// remains usable.
colls::task<> revoke(colls::world& world) {
  colls::world copy = co_await world.dup();
  if (world.rank() == world.size() - 1) copy.revoke("it was only an example");
  require(co_await error_of(copy.barrier()) == colls::errc::revoked, "revoke");
  require(std::string(copy.failed()->detail) == "it was only an example", "revoke: the reason");
}

colls::task<> close(colls::world& world) {
  colls::world copy = co_await world.dup();
  co_await copy.barrier();
  co_await copy.close();
  require(co_await error_of(copy.barrier()) == colls::errc::closed, "close");
}

// ---- the main program

// Prints a line on rank 0 once every rank has made the call.
colls::task<> report(colls::world& world, const char* name) {
  co_await world.barrier();
  if (world.rank() != 0) co_return;
  std::printf("%s ok\n", name);
  std::fflush(stdout);
}

template <class T, class Op>
colls::task<> call(colls::world& world, size_t index, const char* type) {
  static constexpr size_t sizes[] = {0, 1, 1000, 30'000};
  for (const size_t n : sizes) {
    const auto& [name, run] = calls<T, Op>::table[index];
    calls<T, Op> all{world, std::string(name) + " of " + type, n};
    co_await (all.*run)();
  }
}

colls::task<> every(colls::world& world) {
  using ints = calls<int, colls::plus>;
  for (size_t i = 0; i < std::size(ints::table); ++i) {
    co_await call<int, colls::plus>(world, i, "int");
    co_await call<float, colls::plus>(world, i, "float");
    co_await call<affine, then>(world, i, "a struct");
    co_await report(world, ints::table[i].name);
  }
  struct entry {
    const char* name;
    colls::task<> (*run)(colls::world&);
  };
  static constexpr entry others[] = {
      {"barrier", barrier},
      {"split", split},
      {"group", group},
      {"dup", dup},
      {"dup_executor", dup_executor},
      {"timeout", timeout},
      {"invalid_argument", invalid_argument},
      {"revoke", revoke},
      {"close", close},
  };
  for (const entry& other : others) {
    co_await other.run(world);
    co_await report(world, other.name);
  }
  co_await places(world);
  for (const char* name : places_names) co_await report(world, name);
}

}  // namespace

int main() {
  return colls::run([](colls::world& world) { return every(world); });
}
