// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../../bench/colls_bench/measure.hpp"

#include <colls/inproc.hpp>

#include <doctest/doctest.h>

namespace {

using colls::inproc::communicator;

/// A broken barrier: each rank waits for itself only.
class lone_barrier final : public bench::workload<communicator> {
 public:
  explicit lone_barrier(communicator& alone) : alone_(alone) {}
  std::uint64_t unit() const override { return 1; }
  void resize(std::uint64_t) override {}
  void fill() override {}
  bench::call_of<communicator> start() override { return alone_.barrier(); }
  std::uint64_t wrong() const override { return 0; }
  double bus_factor() const override { return 1; }
  std::uint64_t bytes_touched() const override { return 0; }

 private:
  communicator& alone_;
};

}  // namespace

TEST_CASE("a barrier that a rank leaves before all have entered is counted as wrong") {
  colls::inproc::run(3, [](communicator& comm) -> colls::task<> {
    bench::options opts;
    opts.collective = "barrier";
    const auto barrier = bench::make_workload(comm, opts);
    const std::uint64_t none = co_await bench::early_exits(*barrier, comm);
    CHECK(none == 0);
    communicator alone = co_await comm.split(comm.rank());
    lone_barrier other(alone);
    const std::uint64_t some = co_await bench::early_exits(other, comm);
    CHECK(some > 0);
    opts.iterations = 1;
    bool is_wrong = false;
    try {
      co_await bench::measure(other, comm, opts);
    } catch (const std::runtime_error&) {
      is_wrong = true;
    }
    CHECK(is_wrong);
  });
}
