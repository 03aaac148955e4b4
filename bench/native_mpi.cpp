// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Compares ways to sum vectors of doubles in one program: MPI_Iallreduce with MPI_Wait, the same
// awaited through colls (on copies and in place), MPI_Allreduce, and colls' own all_reduce. Prints
// the least mean of some rounds in us, and the ratio to the first way.
//
//     ninja -C build bench/native-openmpi
//     mpirun.openmpi -n 2 build/bench/native-openmpi

#include <colls/colls.hpp>
#include <colls/mpi.hpp>
#include <colls/run.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

constexpr int rounds = 9;
constexpr colls::options native{.algorithm = colls::algorithm::native};

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Returns the time of one sum. `sum()` returns an operation.
template <class Sum>
colls::task<double> time_of(colls::world& world, int repetitions, Sum sum) {
  co_await world.barrier();
  const double start = now_us();
  for (int i = 0; i < repetitions; ++i) co_await sum();
  co_return (now_us() - start) / repetitions;
}

colls::task<> compare(colls::world& world) {
  colls::mpi::communicator copying = co_await colls::mpi::attach(world);
  colls::mpi::communicator in_place =
      co_await colls::mpi::attach(world, {.comm = MPI_COMM_WORLD, .in_place = true});
  MPI_Comm plain = MPI_COMM_NULL;
  colls::mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &plain), "MPI_Comm_dup");
  if (world.rank() == 0) {
    std::printf("%10s %14s %18s %18s %14s %14s\n", "bytes", "Iallreduce", "native", "in place",
                "Allreduce", "colls");
  }
  for (const std::size_t count : {1UL, 1UL << 10, 1UL << 14, 1UL << 17, 1UL << 20}) {
    const std::vector<double> in(count, 1.0);
    std::vector<double> out(count);
    const int size = static_cast<int>(count);
    const int repetitions = count < 20'000 ? 2000 : 50;
    const auto with_wait = [&]() -> colls::task<> {
      MPI_Request request = MPI_REQUEST_NULL;
      colls::mpi::check(
          MPI_Iallreduce(in.data(), out.data(), size, MPI_DOUBLE, MPI_SUM, plain, &request),
          "MPI_Iallreduce");
      colls::mpi::check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
      co_return;
    };
    const auto blocking = [&]() -> colls::task<> {
      colls::mpi::check(MPI_Allreduce(in.data(), out.data(), size, MPI_DOUBLE, MPI_SUM, plain),
                        "MPI_Allreduce");
      co_return;
    };
    double best[5] = {1e30, 1e30, 1e30, 1e30, 1e30};
    for (int round = 0; round < rounds; ++round) {
      const double times[5] = {
          co_await time_of(world, repetitions, with_wait),
          co_await time_of(world, repetitions, [&] { return copying.all_reduce(in, out, native); }),
          co_await time_of(world, repetitions,
                           [&] { return in_place.all_reduce(in, out, native); }),
          co_await time_of(world, repetitions, blocking),
          co_await time_of(world, repetitions, [&] { return world.all_reduce(in, out); })};
      for (int i = 0; i < 5; ++i) best[i] = std::min(best[i], times[i]);
    }
    if (world.rank() != 0) continue;
    std::printf("%10zu %14.2f %11.2f (%.2f) %11.2f (%.2f) %14.2f %14.2f\n", count * sizeof(double),
                best[0], best[1], best[1] / best[0], best[2], best[2] / best[0], best[3], best[4]);
  }
  colls::mpi::check(MPI_Comm_free(&plain), "MPI_Comm_free");
  co_await world.barrier();
}

}  // namespace

int main() { return colls::run(compare); }
