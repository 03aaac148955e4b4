// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../../bench/colls_bench/measure.hpp"

#include <colls/inproc.hpp>

#include <doctest/doctest.h>

namespace {

using colls::inproc::communicator;

/// What passes for a barrier: each rank's is its own.
class apart final : public bench::workload<communicator> {
 public:
  explicit apart(communicator& alone) : alone_(alone) {}
  std::uint64_t unit() const override { return 1; }
  void resize(std::uint64_t) override {}
  void fill() override {}
  bench::call_of<communicator> start() override { return alone_.barrier(); }
  std::uint64_t wrong() const override { return 0; }
  double bus_factor() const override { return 1; }
  std::uint64_t touched() const override { return 0; }

 private:
  communicator& alone_;
};

}  // namespace

TEST_CASE("a barrier that somebody leaves before all have come is counted as wrong") {
  colls::inproc::run(3, [](communicator& comm) -> colls::task<> {
    bench::options how;
    how.collective = "barrier";
    const auto barrier = bench::make_workload(comm, how);
    const std::uint64_t none = co_await bench::early_exits(*barrier, comm);
    CHECK(none == 0);
    communicator alone = co_await comm.split(comm.rank());
    apart other(alone);
    const std::uint64_t some = co_await bench::early_exits(other, comm);
    CHECK(some > 0);
    how.iterations = 1;
    bool is_wrong = false;
    try {
      co_await bench::measure(other, comm, how);
    } catch (const std::runtime_error&) {
      is_wrong = true;
    }
    CHECK(is_wrong);
  });
}
