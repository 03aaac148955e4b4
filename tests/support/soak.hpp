// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What tests of many operations share: the resources that the process uses, the number of its
// allocations, and a round of calls. Only one file of a program may include this.

#include <colls/colls.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "counted_memory.hpp"

namespace soak {

using colls::algorithm;
using colls::operation;
using colls::task;

inline std::size_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  std::size_t pages = 0;
  std::size_t resident = 0;
  const int found = std::fscanf(file, "%zu %zu", &pages, &resident);
  std::fclose(file);
  REQUIRE(found == 2);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}
inline std::ptrdiff_t entries(const char* folder) {
  const std::filesystem::directory_iterator begin(folder);
  return std::distance(begin, std::filesystem::directory_iterator());
}

struct used {
  std::size_t resident = resident_bytes();
  std::ptrdiff_t descriptors = entries("/proc/self/fd");
  std::ptrdiff_t threads = entries("/proc/self/task");
};

struct buffers {
  explicit buffers(int ranks, std::size_t n)
      : one(n), other(n), all(n * static_cast<std::size_t>(ranks)) {}
  std::vector<float> one, other, all;
};

constexpr int calls_in_a_round = 16;
template <class Communicator>
task<> round(Communicator& comm, buffers& data, int number) {
  const int p = comm.size();
  const int root = number % p;
  co_await comm.all_reduce(data.one);
  co_await comm.template all_reduce<algorithm::ring>(data.one, colls::maximum{});
  co_await comm.all_reduce(data.one, data.other, colls::average{});
  co_await comm.barrier();
  co_await comm.broadcast(data.one, root);
  co_await comm.reduce(data.one, root);
  co_await comm.scan(data.one, colls::minimum{});
  co_await comm.exscan(data.other, colls::minimum{});
  co_await comm.all_gather(data.one, data.all);
  co_await comm.reduce_scatter(data.all, data.other, colls::maximum{});
  co_await comm.gather(data.one, data.all, root);
  co_await comm.scatter(data.all, data.one, root);
  co_await comm.all_to_all(data.all, data.all);
  operation<> kept = comm.barrier();
  operation<colls::received> got = comm.recv(data.other, (comm.rank() + 1) % p);
  co_await comm.send(data.one, (comm.rank() + p - 1) % p);
  co_await got;
  co_await kept;
}

}  // namespace soak
