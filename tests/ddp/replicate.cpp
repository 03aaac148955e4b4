// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/replicate.hpp>

#include <colls/inproc.hpp>
#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using colls::errc;
using colls::task;
using colls::ddp::fact;
using communicator = colls::inproc::communicator;
using facts = std::vector<fact>;

const facts model{{"parameter", "fc1.weight", "float [128, 9216]"},
                  {"parameter", "fc1.bias", "float [128]"},
                  {"buffer", "bn.running_mean", "float [128]"}};

/// The error of each rank if rank i has the facts `models[i]`; empty if there is none.
std::vector<std::string> errors_of(const std::vector<facts>& models) {
  std::vector<std::string> errors(models.size());
  colls::inproc::run(static_cast<int>(models.size()), [&](communicator& comm) -> task<> {
    const auto rank = static_cast<std::size_t>(comm.rank());
    try {
      task<> checking = colls::ddp::check_agreement(comm, models[rank]);
      co_await checking;
    } catch (const colls::error& thrown) {
      CHECK(thrown.record().code == errc::mismatch);
      errors[rank] = thrown.record().detail;
    }
    co_await comm.barrier();  // the communicator is still good
  });
  return errors;
}

void check_errors(const std::vector<facts>& models, const std::string& words) {
  for (const std::string& each : errors_of(models)) CHECK(each == words);
}

facts with(std::size_t index, fact other) {
  facts changed = model;
  changed[index] = std::move(other);
  return changed;
}

TEST_CASE("ranks that agree find no difference") {
  for (const std::size_t ranks : {1u, 2u, 5u}) {
    check_errors(std::vector<facts>(ranks, model), "");
    check_errors(std::vector<facts>(ranks), "");
  }
}

TEST_CASE("a different shape is named with both ranks and both shapes, on all ranks") {
  const facts other = with(1, {"parameter", "fc1.bias", "float [64]"});
  check_errors({model, model, other, model},
               "parameter 'fc1.bias' is float [128] on rank 0 and float [64] on rank 2");
}

TEST_CASE("the first difference of the first differing rank is reported") {
  facts other = with(2, {"buffer", "bn.running_mean", "float [1]"});
  other[0].value = "double [128, 9216]";
  const facts third = with(1, {"parameter", "fc1.bias", "float [64]"});
  check_errors({model, other, third},
               "parameter 'fc1.weight' is float [128, 9216] on rank 0 and double [128, 9216] on "
               "rank 1");
}

TEST_CASE("a different order is named, and an entry that another rank lacks") {
  facts swapped = model;
  std::swap(swapped[0], swapped[1]);
  check_errors({model, swapped},
               "rank 0 has the parameter 'fc1.weight' where rank 1 has the parameter 'fc1.bias'");
  check_errors({model, with(1, {"buffer", "fc1.bias", "float [128]"})},
               "rank 0 has the parameter 'fc1.bias' where rank 1 has the buffer 'fc1.bias'");
  const facts less(model.begin(), model.begin() + 2);
  check_errors({model, less}, "rank 0 has a buffer 'bn.running_mean' that rank 1 has not");
  check_errors({less, less, model}, "rank 2 has a buffer 'bn.running_mean' that rank 0 has not");
  check_errors({facts(), model}, "rank 1 has a parameter 'fc1.weight' that rank 0 has not");
}

TEST_CASE("everything takes rank 0's values, small and large pieces, in any mixture") {
  const std::size_t sizes[] = {5, 0, 200'000, 64 * 1024, 64 * 1024 - 1, 3, 100'001};
  for (const int ranks : {1, 2, 3, 5}) {
    colls::inproc::run(ranks, [&](communicator& comm) -> task<> {
      std::vector<std::vector<std::byte>> mine;
      for (const std::size_t size : sizes) {
        std::vector<std::byte>& piece = mine.emplace_back(size);
        for (std::size_t i = 0; i < size; ++i) {
          piece[i] = static_cast<std::byte>(i * 7 + mine.size() * 31 +
                                            static_cast<std::size_t>(comm.rank()) * 101);
        }
      }
      std::vector<std::span<std::byte>> pieces(mine.begin(), mine.end());
      task<> taking = colls::ddp::broadcast_pieces(comm, std::move(pieces));
      co_await taking;
      for (std::size_t k = 0; k < mine.size(); ++k) {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < mine[k].size(); ++i) {
          wrong += mine[k][i] != static_cast<std::byte>(i * 7 + (k + 1) * 31);
        }
        CHECK(wrong == 0);
      }
    });
  }
}

}  // namespace
