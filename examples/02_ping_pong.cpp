// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The send and recv tutorial of PyTorch in C++: colls-run -n 2 ping_pong

#include <colls/run.hpp>

#include <cstdio>

// Blocking style: each operation ends before the next one starts.
colls::task<> ping_pong(colls::world& world) {
  float x[] = {0};
  if (world.rank() == 0) {
    x[0] += 1;
    co_await world.send(x, 1);
    co_await world.recv(x, 1);
  } else {
    co_await world.recv(x, 0);
    x[0] += 2;
    co_await world.send(x, 0);
  }
  std::printf("Rank %d has data %g\n", world.rank(), x[0]);
}

// Overlapped, as with isend and irecv: a call starts its operation at once, and the operation is
// awaited later. Until then the program must not touch the buffers.
colls::task<> overlapped(colls::world& world) {
  const int peer = 1 - world.rank();
  float out[] = {static_cast<float>(world.rank() + 1)};
  float in[] = {0};
  auto sending = world.send(out, peer);
  std::printf("Rank %d started sending\n", world.rank());
  auto receiving = world.recv(in, peer);
  std::printf("Rank %d started receiving\n", world.rank());
  co_await receiving;
  co_await sending;
  std::printf("Rank %d has data %g\n", world.rank(), in[0] + out[0]);
}

int main() {
  return colls::run([](colls::world& world) -> colls::task<int> {
    if (world.size() != 2) {
      std::fprintf(stderr, "usage: colls-run -n 2 ping_pong\n");
      co_return 2;
    }
    co_await ping_pong(world);
    co_await overlapped(world);
    co_return 0;
  });
}
