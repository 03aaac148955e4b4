// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: when_any waits for operations that outlive it: give them names
#include <colls/colls.hpp>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  auto barrier = comm.barrier();
#ifdef MUST_NOT_COMPILE
  (void)co_await colls::when_any(barrier, comm.barrier());
#else
  auto other = comm.barrier();
  (void)co_await colls::when_any(barrier, other);
#endif
}
