// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The communicators of all ranks on this thread, for tests that make the calls of one rank after
// another.

#include <colls/colls.hpp>
#include <doctest/doctest.h>

#include <string>
#include <vector>

/// Every rank's communicator of an inproc world.
class communicators {
 public:
  explicit communicators(int size) : world_(size) {
    for (int rank = 0; rank < size; ++rank) all_.push_back(colls::inproc::join(world_, rank));
  }

  colls::inproc::communicator& operator[](int rank) { return all_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(all_.size()); }
  colls::inproc_world& world() { return world_; }

  /// Polls the world until it makes no more progress.
  void settle() {
    while (world_.poll()) {
    }
  }

  template <class Operation>
  auto wait(Operation&& operation) {
    return colls::sync_wait(world_, std::forward<Operation>(operation));
  }

  /// Calls `make(communicator)` for every rank, and then awaits all operations.
  template <class Make>
  void all(const Make& make) {
    std::vector<decltype(make(all_[0]))> started;
    for (auto& each : all_) started.push_back(make(each));
    for (auto& each : started) wait(each);
  }

  /// Checks that a barrier of all ranks still succeeds.
  void check_good() {
    all([](colls::inproc::communicator& comm) { return comm.barrier(); });
  }

 private:
  colls::inproc_world world_;
  std::vector<colls::inproc::communicator> all_;
};

/// Waits until the operation has ended and returns its failure, with code 0 if it succeeded.
template <class Operation>
colls::failure failure_of(communicators& all, Operation& operation) {
  try {
    all.wait(operation);
  } catch (const colls::error& thrown) {
    CHECK(std::string(thrown.what()).find("colls: rank ") == 0);
    return thrown.record();
  }
  return {};
}

inline bool says(const colls::failure& why, const std::string& words) {
  return std::string(why.detail).find(words) != std::string::npos;
}
