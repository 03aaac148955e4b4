// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Communicators of all ranks on this thread, for tests that call on them one by one.

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

  /// Turns the world until nothing moves any more.
  void settle() {
    while (world_.poll()) {
    }
  }

  template <class Operation>
  auto wait(Operation&& operation) {
    return colls::sync_wait(world_, std::forward<Operation>(operation));
  }

  /// Calls `make(communicator)` on every rank and awaits all.
  template <class Make>
  void all(const Make& make) {
    std::vector<decltype(make(all_[0]))> started;
    for (auto& each : all_) started.push_back(make(each));
    for (auto& each : started) wait(each);
  }

  /// Whether a barrier of all ranks still works.
  void check_good() {
    all([](colls::inproc::communicator& comm) { return comm.barrier(); });
  }

 private:
  colls::inproc_world world_;
  std::vector<colls::inproc::communicator> all_;
};

/// How the operation failed: waits for its end, and a code of 0 says that it did not fail.
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
