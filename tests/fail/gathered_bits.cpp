// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the result would be a std::vector<bool>, which has no elements in memory
#include <colls/colls.hpp>

colls::task<> rank_main(colls::inproc::communicator& comm) {
#ifdef MUST_NOT_COMPILE
  const bool bits[3] = {};
#else
  const char bits[3] = {};
#endif
  auto gathering = comm.all_gather_v(bits);
  (void)co_await gathering;
}
