// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// What the ranks of launches.cpp do: `ranks CASE` attaches MPI and checks results, refusals and
// failures. Rank 0 prints "CASE ok" if no check has failed on any rank. Every rank prints those
// that have.

#include <colls/colls.hpp>
#include <colls/mpi.hpp>
#include <colls/run.hpp>

#include <atomic>
#include <chrono>
#include <complex>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using colls::algorithm;
using colls::errc;
using colls::task;
using colls::world;

int failures = 0;
int own_rank = -1;

void expect(bool is_right, const std::string& what) {
  if (is_right) return;
  ++failures;
  std::printf("rank %d: wrong: %s\n", own_rank, what.c_str());
  std::fflush(stdout);
}

/// The error of an operation, or one without a code.
template <class Operation>
task<colls::failure> outcome(Operation started) {
  colls::failure reason;
  try {
    co_await started;
  } catch (const colls::error& thrown) {
    reason = thrown.record();
  }
  co_return reason;
}
void expect_failure(const colls::failure& found, errc code, std::string_view text,
                    const std::string& what) {
  const bool is_right =
      found.code == code && std::string_view(found.detail).find(text) != std::string_view::npos;
  expect(is_right, what + ": " + colls::to_text(found));
}

constexpr colls::options native{.algorithm = algorithm::native};

// ---- results

template <class T>
std::vector<T> values(std::size_t count, int rank) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<T>(static_cast<float>((i + static_cast<std::size_t>(rank)) % 3 + 1));
  }
  return result;
}

/// Runs `call(comm, opts, result)` on the world and on a communicator with MPI, by the algorithm
/// `pinned`, and compares the results.
template <class T, class Call>
task<> compare(world& plain, colls::mpi::communicator& fast, algorithm pinned, std::string what,
               std::vector<T> initial, Call call) {
  std::vector<T> wanted = initial;
  std::vector<T> found = initial;
  const colls::options own{.algorithm = algorithm::linear};
  co_await call(plain, own, wanted);
  co_await call(fast, colls::options{.algorithm = pinned}, found);
  expect(std::memcmp(wanted.data(), found.data(), wanted.size() * sizeof(T)) == 0, what);
}

template <class T, class Op>
task<> compare_reductions(world& plain, colls::mpi::communicator& fast, std::size_t count, Op op,
                          std::string what) {
  const int rank = plain.rank();
  const auto ranks = static_cast<std::size_t>(plain.size());
  const int root = plain.size() - 1;
  const auto by = [&](const char* name) { return what + " " + name + std::to_string(count); };
  const std::vector<T> in = values<T>(count, rank);
  const std::vector<T> all = values<T>(count * ranks, rank);
  const auto all_reduce = [&](auto& comm, auto opts, auto& out) {
    return comm.all_reduce(in, out, op, opts);
  };
  co_await compare(plain, fast, algorithm::native, by("all_reduce "), std::vector<T>(count),
                   all_reduce);
  const auto in_place = [&](auto& comm, auto opts, auto& out) {
    return comm.all_reduce(out, op, opts);
  };
  co_await compare(plain, fast, algorithm::native, by("all_reduce in place "), in, in_place);
  const auto reduce = [&](auto& comm, auto opts, auto& out) {
    return comm.reduce(in, out, root, op, opts);
  };
  co_await compare(plain, fast, algorithm::native, by("reduce "), std::vector<T>(count), reduce);
  const auto scan = [&](auto& comm, auto opts, auto& out) { return comm.scan(out, op, opts); };
  co_await compare(plain, fast, algorithm::native, by("scan "), in, scan);
  const auto exscan = [&](auto& comm, auto opts, auto& out) { return comm.exscan(out, op, opts); };
  // Rank 0 keeps its elements. They differ from those of the calls before.
  co_await compare(plain, fast, algorithm::native, by("exscan "), values<T>(count, rank + 1),
                   exscan);
  const auto scatter = [&](auto& comm, auto opts, auto& out) {
    return comm.reduce_scatter(all, out, op, opts);
  };
  co_await compare(plain, fast, algorithm::native, by("reduce_scatter "), std::vector<T>(count),
                   scatter);
  std::vector<std::size_t> counts(ranks, count);
  counts.front() += 2;
  const std::vector<T> uneven = values<T>(count * ranks + 2, rank);
  const auto scatter_v = [&](auto& comm, auto opts, auto& out) {
    return comm.reduce_scatter_v(uneven, out, counts, op, opts);
  };
  co_await compare(plain, fast, algorithm::native, by("reduce_scatter of lengths "),
                   std::vector<T>(counts[static_cast<std::size_t>(rank)]), scatter_v);
}

template <class T>
task<> compare_movements(world& plain, colls::mpi::communicator& fast, std::size_t count,
                         std::string what) {
  const int rank = plain.rank();
  const auto self = static_cast<std::size_t>(rank);
  const auto ranks = static_cast<std::size_t>(plain.size());
  const int root = plain.size() / 2;
  const auto by = [&](const char* name) { return what + " " + name + std::to_string(count); };
  const std::vector<T> own = values<T>(count, rank);
  const std::vector<T> all = values<T>(count * ranks, rank);
  const auto pick = algorithm::native;
  const auto broadcast = [&](auto& comm, auto opts, auto& out) {
    return comm.broadcast(out, root, opts);
  };
  co_await compare(plain, fast, pick, by("broadcast "), own, broadcast);
  const auto all_gather = [&](auto& comm, auto opts, auto& out) {
    return comm.all_gather(own, out, opts);
  };
  co_await compare(plain, fast, pick, by("all_gather "), std::vector<T>(all.size()), all_gather);
  const auto all_gather_in_place = [&](auto& comm, auto opts, auto& out) {
    return comm.all_gather(std::span(out).subspan(self * count, count), out, opts);
  };
  co_await compare(plain, fast, pick, by("all_gather in place "), all, all_gather_in_place);
  const auto gather = [&](auto& comm, auto opts, auto& out) {
    return comm.gather(own, out, root, opts);
  };
  co_await compare(plain, fast, pick, by("gather "), std::vector<T>(all.size()), gather);
  const auto scatter = [&](auto& comm, auto opts, auto& out) {
    return comm.scatter(all, out, root, opts);
  };
  co_await compare(plain, fast, pick, by("scatter "), std::vector<T>(count), scatter);
  const auto all_to_all = [&](auto& comm, auto opts, auto& out) {
    return comm.all_to_all(all, out, opts);
  };
  co_await compare(plain, fast, pick, by("all_to_all "), std::vector<T>(all.size()), all_to_all);

  std::vector<std::size_t> counts(ranks, count);
  counts.back() += 3;
  const std::vector<T> part = values<T>(counts[self], rank);
  const std::vector<T> total = values<T>(count * ranks + 3, rank);
  const auto all_gather_v = [&](auto& comm, auto opts, auto& out) {
    return comm.all_gather_v(part, out, counts, opts);
  };
  co_await compare(plain, fast, pick, by("all_gather of lengths "), std::vector<T>(total.size()),
                   all_gather_v);
  const auto gather_v = [&](auto& comm, auto opts, auto& out) {
    return comm.gather_v(part, out, counts, root, opts);
  };
  co_await compare(plain, fast, pick, by("gather of lengths "), std::vector<T>(total.size()),
                   gather_v);
  const auto scatter_v = [&](auto& comm, auto opts, auto& out) {
    return comm.scatter_v(total, counts, out, root, opts);
  };
  co_await compare(plain, fast, pick, by("scatter of lengths "), std::vector<T>(part.size()),
                   scatter_v);
}

struct particle {
  double place[3];
  int kind;
  explicit particle(double x = 0) : place{x, x, x}, kind(static_cast<int>(x)) {
    std::memset(reinterpret_cast<char*>(&kind) + sizeof kind, 0, 4);
  }
};

/// All native collectives, on some element types, operations and lengths.
task<> results(world& plain, colls::mpi::options opts) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain, opts);
  co_await fast.barrier(native);
  for (const std::size_t count : {0UL, 1UL, 7UL, 1000UL, 70'000UL}) {
    co_await compare_reductions<float>(plain, fast, count, colls::plus(), "float plus");
    co_await compare_movements<char>(plain, fast, count, "char");
  }
  const std::size_t some = 101;
  co_await compare_reductions<double>(plain, fast, some, colls::multiplies(), "double multiplies");
  co_await compare_reductions<double>(plain, fast, some, colls::average(), "double average");
  co_await compare_reductions<std::complex<double>>(plain, fast, some, colls::plus(), "complex");
  co_await compare_reductions<std::int8_t>(plain, fast, some, colls::minimum(), "int8 minimum");
  co_await compare_reductions<std::uint64_t>(plain, fast, some, colls::maximum(), "uint64 maximum");
  co_await compare_reductions<std::int16_t>(plain, fast, some, colls::bit_xor(), "int16 bit_xor");
  co_await compare_reductions<std::uint32_t>(plain, fast, some, colls::bit_and(), "uint32 bit_and");
  co_await compare_reductions<std::int32_t>(plain, fast, some, colls::bit_or(), "int32 bit_or");
  co_await compare_reductions<int>(plain, fast, some, colls::logical_and(), "int logical_and");
  co_await compare_reductions<colls::float16>(plain, fast, some, colls::plus(), "float16 plus");
  co_await compare_movements<particle>(plain, fast, some, "struct");

  // Several buffers at a time, and strided ones.
  std::vector<std::vector<double>> group;
  for (std::size_t i = 0; i < 80; ++i) group.push_back(values<double>(10'000 + i, fast.rank()));
  std::vector<std::span<double>> parts(group.begin(), group.end());
  co_await fast.all_reduce(parts, colls::plus(), native);
  for (std::size_t i = 0; i < group.size(); ++i) {
    std::vector<double> wanted = values<double>(10'000 + i, fast.rank());
    co_await plain.all_reduce(wanted);
    expect(group[i] == wanted, "a group of buffers");
  }
}

/// Vectors that are cut, because they are longer than what one call of MPI takes.
task<> in_pieces(world& plain) {
  colls::mpi::max_count = 5;
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
  for (const std::size_t count : {4UL, 5UL, 6UL, 23UL}) {
    const auto by = [&](const char* name) { return name + std::to_string(count); };
    const std::vector<int> in = values<int>(count, plain.rank());
    const std::vector<int> all = values<int>(count * static_cast<std::size_t>(plain.size()), 1);
    const auto all_reduce = [&](auto& comm, auto opts, auto& out) {
      return comm.all_reduce(in, out, colls::plus(), opts);
    };
    co_await compare(plain, fast, algorithm::native, by("all_reduce "), in, all_reduce);
    const auto reduce = [&](auto& comm, auto opts, auto& out) {
      return comm.reduce(in, out, 0, colls::plus(), opts);
    };
    co_await compare(plain, fast, algorithm::native, by("reduce "), in, reduce);
    const auto exscan = [&](auto& comm, auto opts, auto& out) {
      return comm.exscan(out, colls::plus(), opts);
    };
    co_await compare(plain, fast, algorithm::native, by("exscan "), in, exscan);
    const auto broadcast = [&](auto& comm, auto opts, auto& out) {
      return comm.broadcast(out, 0, opts);
    };
    co_await compare(plain, fast, algorithm::native, by("broadcast "), in, broadcast);
    const auto all_gather = [&](auto& comm, auto opts, auto& out) {
      return comm.all_gather(in, out, opts);
    };
    co_await compare(plain, fast, algorithm::native, by("all_gather "), all, all_gather);
    const auto all_to_all = [&](auto& comm, auto opts, auto& out) {
      return comm.all_to_all(all, out, opts);
    };
    co_await compare(plain, fast, algorithm::native, by("all_to_all "), all, all_to_all);
    const auto scatter = [&](auto& comm, auto opts, auto& out) {
      return comm.scatter(all, out, 0, opts);
    };
    co_await compare(plain, fast, algorithm::native, by("scatter "), in, scatter);
  }
  std::vector<int> own(6);
  std::vector<int> six(6 * static_cast<std::size_t>(plain.size()));
  expect_failure(co_await outcome(fast.reduce_scatter(six, own, colls::plus(), native)),
                 errc::not_applicable, "the counts of MPI are too small", "a long reduce_scatter");
}

/// All algorithms of colls over a communicator with MPI.
task<> every_algorithm(world& plain, colls::mpi::options opts) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain, opts);
  for (const std::size_t count : {5UL, 3000UL, 300'000UL}) {
    const std::vector<float> in = values<float>(count, plain.rank());
    const auto all_reduce = [&](auto& comm, auto by, auto& out) {
      return comm.all_reduce(in, out, colls::plus(), by);
    };
    const auto choices = fast.explain(colls::collective::all_reduce, count * sizeof(float));
    expect(choices.predictions.size() > 5, "the table has the algorithms of colls");
    for (const colls::prediction& each : choices.predictions) {
      co_await compare(plain, fast, each.choice.id, std::string("by ") + each.algorithm->name,
                       std::vector<float>(count), all_reduce);
    }
  }
  // A message, and memory that the ranks of a host share.
  std::vector<int> word{fast.rank()};
  const int next = (fast.rank() + 1) % fast.size();
  const int previous = (fast.rank() + fast.size() - 1) % fast.size();
  std::vector<int> heard(1);
  co_await fast.send_recv(word, next, heard, previous, 3);
  expect(heard[0] == previous, "send_recv");
  // What split makes has no communicator of MPI.
  colls::mpi::communicator half = co_await fast.split(fast.rank() % 2);
  std::vector<int> one{1};
  expect_failure(co_await outcome(half.all_reduce(one, native)), errc::not_applicable,
                 "attach one to this communicator", "native after split");
  co_await half.all_reduce(one);
  expect(one[0] == half.size(), "all_reduce after split");
}

/// `automatic` takes what is measured.
task<> measured(world& plain, colls::mpi::options opts) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain, opts);
  const auto has_native = [&] {
    for (const auto& each : fast.explain(colls::collective::all_reduce, 8).predictions) {
      if (each.choice.id == algorithm::native) return true;
    }
    return false;
  };
  expect(!has_native(), "nothing is known of native before measure");
  co_await fast.measure();
  expect(has_native() || fast.size() == 1, "measure prices native");
  // A communicator on which messages of colls cost much more.
  colls::network_cost slow = colls::tcp_cost;
  slow.near.latency = slow.far.latency = 1'000'000'000'000;
  for (colls::native_cost& each : slow.native) {
    for (auto& time : each.times) time = 1'000'000;
  }
  fast.set_costs(slow);
  if (fast.size() > 1) {
    const auto chosen = fast.explain(colls::collective::all_reduce, 8).chosen.id;
    expect(chosen == algorithm::native, "automatic takes what is faster");
  }
  std::vector<int> sum{1};
  co_await fast.all_reduce(sum);
  expect(sum[0] == fast.size(), "the sum by automatic");
  // MPI does not know this operation, so the algorithms of colls do it.
  const auto greater = [](int a, int b) { return a > b ? a : b; };
  std::vector<int> most{fast.rank()};
  co_await fast.all_reduce(most, greater);
  expect(most[0] == fast.size() - 1, "an operation of the user's own");
  expect_failure(co_await outcome(fast.all_reduce(most, greater, native)), errc::not_applicable,
                 "MPI has no such operation", "native with an operation of the user's own");
  std::vector<float> low{1.0F};
  expect_failure(co_await outcome(fast.all_reduce(low, colls::minimum(), native)),
                 errc::not_applicable, "MPI has no such operation", "a minimum of floats");
  co_await fast.barrier(native);
}

// ---- what is refused

task<> refused(world& plain, const std::string& what) {
  colls::mpi::options opts;
  errc code = errc::invalid_argument;
  std::atomic<int> stage = 0;
  std::thread other;
  std::string text;
  if (what == "finalised") {
    MPI_Init(nullptr, nullptr);
    MPI_Finalize();
    text = "MPI has been finalised on rank 0";
  } else if (what == "thread") {
    other = std::thread([&stage] {
      int level = 0;
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
      stage = 1;
      while (stage != 2) std::this_thread::yield();
      MPI_Finalize();
    });
    while (stage != 1) std::this_thread::yield();
    text = "MPI was initialised for one thread";
  } else if (what == "reversed") {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -plain.rank(), &opts.comm);
    text = "the same ranks in the same order";
  } else if (what == "part") {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_split(MPI_COMM_WORLD, plain.rank() == 0 ? 0 : 1, 0, &opts.comm);
    text = "rank 0 of 3 is rank 0 of 1 in options::comm";
  } else if (what == "null") {
    if (plain.rank() == 1) opts.comm = MPI_COMM_NULL;
    text = "options::comm of rank 1 is MPI_COMM_NULL";
  } else if (what == "singleton") {
    code = errc::not_applicable;
    text = "start the program with mpirun";
  }
  if (what == "half") {
    world half = co_await plain.split(plain.rank() % 2);
    const auto found = co_await outcome(colls::mpi::attach(half));
    expect_failure(found, errc::invalid_argument, "MPI is not initialised on rank 0", what);
    expect(half.failed() == nullptr, "the half stays good");
    colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
    co_await fast.barrier(native);
    co_return;
  }
  auto attaching = colls::mpi::attach(plain, opts);
  expect_failure(co_await outcome(std::move(attaching)), code, text, what);
  std::vector<int> one{1};
  co_await plain.all_reduce(one);
  expect(one[0] == plain.size(), "the world stays good");
  if (what == "reversed" || what == "null") {
    colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
    co_await fast.all_reduce(one, native);
    expect(one[0] == plain.size() * plain.size(), "a second attach");
  }
  if (what == "reversed") MPI_Comm_free(&opts.comm);
  stage = 2;
  if (other.joinable()) other.join();
}

/// A program that uses MPI itself, before, meanwhile and afterwards.
task<> own_init(world& plain) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  {
    colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
    int own = 1;
    int sum = 0;
    MPI_Request request;
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    std::vector<int> one{1};
    co_await fast.all_reduce(one, native);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(sum == plain.size() && one[0] == plain.size(), "both sums");
  }
  int own = plain.rank();
  MPI_Bcast(&own, 1, MPI_INT, 0, MPI_COMM_WORLD);
  expect(own == 0, "MPI afterwards");
}

/// Communicators of overlapping groups, attached at the same time and in another order on each
/// rank. Their sums differ, so one that is taken for another is found.
task<> opposite_order(world& plain) {
  world first = co_await plain.dup();
  world second = co_await plain.dup();
  const bool is_odd = plain.rank() % 2 != 0;
  auto one = colls::mpi::attach(is_odd ? second : first);
  auto two = colls::mpi::attach(is_odd ? first : second);
  colls::mpi::communicator a = co_await one;
  colls::mpi::communicator b = co_await two;
  if (is_odd) std::swap(a, b);
  for (int i = 0; i < 100; ++i) {
    std::vector<int> x{1};
    std::vector<int> y{1000};
    auto sum_of_x = (is_odd ? b : a).all_reduce(is_odd ? y : x, native);
    auto sum_of_y = (is_odd ? a : b).all_reduce(is_odd ? x : y, native);
    co_await sum_of_x;
    co_await sum_of_y;
    expect(x[0] == plain.size() && y[0] == 1000 * plain.size(), "sums of two communicators");
  }
  // Halves of the world, each with a communicator of MPI of its own.
  colls::mpi::options opts;
  MPI_Comm_split(MPI_COMM_WORLD, is_odd ? 1 : 0, plain.rank(), &opts.comm);
  world half = co_await plain.split(is_odd ? 1 : 0);
  if (half.size() > 1) {
    colls::mpi::communicator fast = co_await colls::mpi::attach(half, opts);
    std::vector<int> x{1};
    co_await fast.all_reduce(x, native);
    expect(x[0] == half.size(), "the sum of a half");
  }
  MPI_Comm_free(&opts.comm);
}

/// Native calls of many parts beside others. All ranks must begin them in the same order, also if
/// some of them take part late.
task<> same_order(world& plain) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
  const std::size_t rows = 1000;
  const std::size_t columns = 2000;
  std::vector<double> table(2 * rows * columns, 1.0);
  std::vector<std::vector<double>> group(70, std::vector<double>(20'000, 2.0));
  std::vector<double> plain_data(1000, 3.0);
  const auto wait_a_little = [&](auto& call) {
    for (int i = 0; plain.rank() % 2 != 0 && i < 20'000; ++i) (void)call.done();
  };
  const colls::strided_view every_second(table.data(), {rows, columns}, {2 * columns, 2});
  auto first = fast.all_reduce(every_second, native);
  wait_a_little(first);
  auto second = fast.all_reduce(plain_data, native);
  wait_a_little(second);
  std::vector<std::span<double>> parts(group.begin(), group.end());
  auto third = fast.all_reduce(parts, native);
  wait_a_little(third);
  std::vector<double> last(1000, 4.0);
  auto fourth = fast.all_reduce(last, native);
  co_await fourth;
  co_await third;
  co_await second;
  co_await first;
  const double ranks = plain.size();
  expect(table[0] == ranks && table[1] == 1.0, "the sum of a view");
  expect(plain_data.back() == 3 * ranks, "the sum after it");
  expect(group.back().back() == 2 * ranks && last.back() == 4 * ranks, "the sums of a group");
}

/// The parts of some leaves in reductions end before MPI has sent all their data, because the root
/// is late. The root gets the data although they then wait for it and drop the communicator.
task<> progress(world& plain) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
  const std::size_t calls = 60;
  std::vector<std::vector<double>> data(calls, std::vector<double>(7000, 1.0));
  std::vector<std::vector<double>> sums(calls, std::vector<double>(7000));
  co_await plain.barrier();
  if (plain.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::vector<colls::operation<>> started;
  for (std::size_t i = 0; i < calls; ++i) {
    started.push_back(fast.reduce(data[i], sums[i], 0, native));
  }
  for (auto& each : started) co_await each;
  fast = colls::mpi::communicator();
  co_await plain.barrier({.timeout = std::chrono::seconds(10)});
  expect(plain.rank() != 0 || sums.back().back() == plain.size(), "the last sum");
}

/// Groups of colls and of MPI that have the same sizes, but other ranks.
task<> other_groups(world& plain) {
  MPI_Init(nullptr, nullptr);
  const int rank = plain.rank();
  colls::mpi::options opts;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &opts.comm);         // 0 and 2, 1 and 3
  world pair = co_await plain.split(rank / 2, rank == 3 ? 0 : 1);  // 0 and 1, 3 and 2
  const auto found = co_await outcome(colls::mpi::attach(pair, opts));
  expect(found.code == errc::invalid_argument, colls::to_text(found));
  expect(pair.failed() == nullptr, "the pair stays good");
  MPI_Comm_free(&opts.comm);
}

/// An attachment that rank 1 drops fails on all ranks. A later one of the same communicator of MPI
/// is refused, or passes if no rank had begun to duplicate it; one of another passes.
task<> dropped_attach(world& plain) {
  MPI_Init(nullptr, nullptr);
  colls::mpi::options other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other.comm);
  for (int polls = 0; polls < 400; polls += 40) {
    world copy = co_await plain.dup();
    {
      auto call = colls::mpi::attach(copy);
      if (plain.rank() == 1) {
        for (int i = 0; i < polls && !call.done(); ++i) {
        }
      } else {
        const auto found = co_await outcome(std::move(call));
        expect(found.code == errc{} || found.code == errc::cancelled, colls::to_text(found));
      }
    }
    co_await plain.barrier();
    const auto again = co_await outcome(colls::mpi::attach(plain));
    expect(again.code == errc{} || again.code == errc::not_applicable, colls::to_text(again));
    expect(plain.failed() == nullptr, "the world stays good");
  }
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain, other);
  std::vector<int> one{1};
  co_await fast.all_reduce(one, native);
  expect(one[0] == plain.size(), "the sum by another communicator of MPI");
}

// ---- failures

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Calls that do not match: MPI waits for ever or says nonsense, and colls names both calls.
task<> mismatch(world& plain) {
  // MPI itself would end well with other operations, and with wrong sums. No rank gets more than it
  // expects, because Open MPI 4.1 then frees memory that it has not allocated.
  for (const char* const kind : {"operations", "lengths", "collectives", "roots", "algorithms"}) {
    colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
    const bool is_other = plain.rank() == plain.size() - 1;
    std::vector<double> data(is_other && kind == std::string_view("lengths") ? 20'000 : 10'000);
    co_await plain.barrier();
    const auto start = std::chrono::steady_clock::now();
    colls::failure found;
    if (kind == std::string_view("roots")) {
      found = co_await outcome(fast.broadcast(data, is_other ? 1 : 0, native));
    } else if (is_other && kind == std::string_view("operations")) {
      found = co_await outcome(fast.all_reduce(data, colls::multiplies(), native));
    } else if (is_other && kind == std::string_view("collectives")) {
      found = co_await outcome(fast.reduce(data, 0, native));
    } else if (kind == std::string_view("lengths")) {
      found = co_await outcome(fast.broadcast(data, 0, native));
    } else if (is_other && kind == std::string_view("algorithms")) {
      found = co_await outcome(fast.all_reduce(data, {.algorithm = algorithm::ring}));
    } else {
      found = co_await outcome(fast.all_reduce(data, native));
    }
    // The part of a rank in a broadcast may have ended well.
    if (found.code == errc{}) found = co_await outcome(fast.barrier());
    expect(seconds_since(start) < 1, std::string("in time: ") + kind);
    expect(found.code == errc::mismatch, kind + (": " + colls::to_text(found)));
    expect(fast.failed() != nullptr, "the communicator has failed");
    co_await plain.barrier();
  }
}

/// Drops a call that one rank has not made. Its buffer is freed, and nothing touches it.
task<> dropped(world& plain) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
  const bool is_late = plain.rank() == 0;
  co_await plain.barrier();
  auto data = std::make_unique<std::vector<double>>(500'000, 1.0);
  const auto start = std::chrono::steady_clock::now();
  if (!is_late) {
    auto call = fast.all_reduce(*data, native);
    for (int i = 0; i < 100; ++i) (void)call.done();
  }
  expect(seconds_since(start) < 0.25, "dropping waits for nothing");
  std::fill(data->begin(), data->end(), 7.0);
  co_await plain.barrier();
  std::vector<double> other(500'000, 1.0);
  const colls::failure late = co_await outcome(fast.all_reduce(other, native));
  expect(late.code == errc::cancelled, "the communicator has failed");
  for (const double each : *data) {
    if (each != 7.0) {
      expect(false, "a dropped buffer was written");
      break;
    }
  }
  data.reset();
  co_await plain.barrier();
}

/// The main function of rank 1 throws. No rank waits in MPI_Finalize for another.
task<> throws(world& plain) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
  std::vector<double> data(1000);
  co_await fast.all_reduce(data, native);
  co_await plain.barrier();
  if (plain.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others are in the next call
    throw std::runtime_error("planned");
  }
  const colls::failure found = co_await outcome(fast.all_reduce(data, native));
  expect(found.code == errc::closed || found.code == errc::revoked, colls::to_text(found));
  // The world fails, too, a little later.
  auto& driver = plain.net().driver();
  const colls::time_point limit = driver.now() + 5 * colls::seconds;
  while (plain.failed() == nullptr && driver.now() < limit) {
    co_await driver.sleep_until(driver.now() + colls::milliseconds);
  }
}

/// Rank 1 dies in a native call. MPI says nothing of it.
task<> death(world& plain) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain);
  std::vector<double> data(1000);
  for (int i = 0; i < 10; ++i) co_await fast.all_reduce(data, native);
  co_await plain.barrier();
  const auto start = std::chrono::steady_clock::now();
  if (plain.rank() == 1) ::raise(SIGKILL);
  const colls::failure found = co_await outcome(fast.all_reduce(data, native));
  expect(seconds_since(start) < 1, "in time");
  expect(found.code == errc::peer_failed && found.culprit == 1, colls::to_text(found));
}

/// Vectors of more than 2^31 elements and bytes.
task<> huge(world& plain, colls::mpi::options opts) {
  colls::mpi::communicator fast = co_await colls::mpi::attach(plain, opts);
  const std::size_t count = (std::size_t{1} << 31) + 1000;
  std::vector<std::uint8_t> data(count, 1);
  data.back() = static_cast<std::uint8_t>(plain.rank() + 1);
  co_await fast.all_reduce(data, native);
  const int ranks = plain.size();
  expect(data.front() == ranks && data[count / 2] == ranks, "a long all_reduce");
  expect(data.back() == ranks * (ranks + 1) / 2, "the end of a long all_reduce");
  data.back() = static_cast<std::uint8_t>(plain.rank() + 7);
  co_await fast.broadcast(data, 0, native);
  expect(data.back() == 7, "the end of a long broadcast");
}

task<> run_case(world& plain, const std::string& name) {
  own_rank = plain.rank();
  colls::mpi::options in_place;
  in_place.in_place = true;
  if (name == "results") co_await results(plain, {});
  if (name == "results_in_place") co_await results(plain, in_place);
  if (name == "in_pieces") co_await in_pieces(plain);
  if (name == "every_algorithm") co_await every_algorithm(plain, {});
  if (name == "measured") co_await measured(plain, {});
  if (name.starts_with("refused_")) co_await refused(plain, name.substr(8));
  if (name == "own_init") co_await own_init(plain);
  if (name == "opposite_order") co_await opposite_order(plain);
  if (name == "mismatch") co_await mismatch(plain);
  if (name == "dropped") co_await dropped(plain);
  if (name == "same_order") co_await same_order(plain);
  if (name == "other_groups") co_await other_groups(plain);
  if (name == "dropped_attach") co_await dropped_attach(plain);
  if (name == "progress") co_await progress(plain);
  if (name == "throws") co_await throws(plain);
  if (name == "death") co_await death(plain);
  if (name == "huge") co_await huge(plain, in_place);
  // A launcher ends all ranks when the first one exits without having finalised MPI, as after a
  // failure. So the ranks say how they have fared before.
  if (plain.failed() != nullptr) {
    if (failures == 0) std::printf("rank %d: %s ok\n", own_rank, name.c_str());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    co_return;
  }
  std::vector<int> all{failures};
  co_await plain.all_reduce(all);
  if (all[0] == 0 && own_rank == 0) std::printf("%s ok\n", name.c_str());
  std::fflush(stdout);
  co_await plain.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "results";
  // By this signal MPICH's launcher tells the others that a rank has died.
  std::signal(SIGUSR1, SIG_IGN);
  const int status = colls::run([&](world& plain) { return run_case(plain, name); });
  if (name == "own_init" || name == "refused_reversed" || name == "refused_part" ||
      name == "other_groups") {
    MPI_Finalize();
  }
  return status != 0 || failures != 0 ? 1 : 0;
}
