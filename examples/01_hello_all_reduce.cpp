// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Four ranks in one process, without launcher or library: g++ -std=c++20 -Iinclude THIS_FILE

#include <colls/colls.hpp>

#include <cstdio>
#include <vector>

colls::task<> hello(colls::inproc::communicator& comm) {
  std::vector<float> v(3, static_cast<float>(comm.rank() + 1));
  co_await comm.all_reduce(v);
  std::printf("rank %d of %d has %g %g %g\n", comm.rank(), comm.size(), v[0], v[1], v[2]);
}

int main() { colls::inproc::run(4, hello); }
