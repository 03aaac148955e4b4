// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Calls of which one rank lacks memory.

#include "communicators.hpp"
#include "counted_memory.hpp"

#include <new>
#include <vector>

#if !defined(SANITIZED)
/// Checks that the calls `start(communicator)` of three ranks end, whichever allocation of the last
/// rank is refused.
template <class Start>
void expect_end_without_memory(const Start& start) {
  using colls::errc;
  int failures = 0;
  for (std::size_t n = 1; n < 60; ++n) {
    CAPTURE(n);
    communicators all(3);
    std::vector<decltype(start(all[0]))> calls;
    for (int rank = 0; rank < 2; ++rank) calls.push_back(start(all[rank]));
    refused_allocation = n;
    try {
      calls.push_back(start(all[2]));
      all.settle();
    } catch (const std::bad_alloc&) {
      all[2].revoke("no memory");
    }
    refused_allocation = 0;
    bool any = false;
    for (auto& call : calls) {
      const errc code = failure_of(all, call).code;
      CHECK((code == errc{} || code == errc::not_enough_memory || code == errc::revoked ||
             code == errc::cancelled));  // without memory to start the call, it is dropped
      any |= code != errc{};
    }
    failures += any ? 1 : 0;
  }
  CHECK(failures > 0);
}
#endif
