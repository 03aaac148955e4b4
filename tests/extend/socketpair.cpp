// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// A program whose processes are connected by a transport of its own. It is built header-only and
// with the copy of colls that is compiled once.
#include "socketpair.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

using world = colls::communicator<my::socketpair_transport>;

/// Sums, gathers and splits on a world. Returns whether the results are right.
colls::task<bool> results_are_right(world& comm) {
  const double sum = comm.size() * (comm.size() + 1) / 2.0;
  std::vector<double> data(100'000, comm.rank() + 1.0);
  co_await comm.all_reduce(data);
  bool right = data.front() == sum && data.back() == sum;
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  const std::vector<int> own{comm.rank()};
  co_await comm.all_gather(own, all);
  for (int rank = 0; rank < comm.size(); ++rank) {
    right = right && all[static_cast<std::size_t>(rank)] == rank;
  }
  auto halves = comm.split(comm.rank() % 2);
  world half = co_await halves;
  int ranks = 1;
  co_await half.all_reduce(std::span(&ranks, 1));
  co_return right&& ranks == (comm.size() + 1 - comm.rank() % 2) / 2;
}

colls::task<int> rank_main(world& comm, const char* what) {
  bool right = co_await results_are_right(comm);
  boost::asio::io_context other_context(1);
  auto copying = comm.dup(other_context.get_executor());
  world copy = co_await copying;
  right = colls::sync_wait(copy, results_are_right(copy)) && right;
  colls::sync_wait(copy, copy.close());
  if (what == std::string_view("kill")) {
    if (comm.rank() == comm.size() - 1) std::quick_exit(9);
    co_await comm.barrier();
  }
  if (comm.rank() == 0) std::printf("%s of %d ranks\n", right ? "right" : "wrong", comm.size());
  co_return right ? 0 : 1;
}

/// A transport that the rank `broken_rank` cannot make.
int broken_rank = 0;
class broken_transport final : public colls::transport_base {
 public:
  static constexpr const char* name = "broken";

  broken_transport(std::shared_ptr<colls::engine> driver, std::shared_ptr<colls::world_info> info)
      : transport_base(std::move(driver), std::move(info), {}) {}
  static colls::task<std::shared_ptr<broken_transport>> make(
      std::shared_ptr<colls::engine> driver, std::shared_ptr<colls::world_info> info) {
    if (info->rank == broken_rank) throw std::runtime_error("its card is not plugged in");
    auto naming = info->exchange("here");
    (void)co_await naming;
    co_return std::make_shared<broken_transport>(std::move(driver), std::move(info));
  }
};

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (what == std::string_view("broken")) {
    broken_rank = std::atoi(argv[2]);
    return colls::run<broken_transport>(
        [](colls::communicator<broken_transport>&) -> colls::task<> { co_return; });
  }
  return colls::run<my::socketpair_transport>(
      [what](world& comm) -> colls::task<int> { return rank_main(comm, what); });
}
