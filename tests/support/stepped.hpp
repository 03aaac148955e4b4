// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Runs code one instruction at a time, so that a test can do between any two instructions what
// another thread could do there. Only for x86-64; elsewhere a case says that those which need this
// are left out.

#include <doctest/doctest.h>

#include <signal.h>

#include <utility>

#if defined(__x86_64__)

namespace stepped {

inline void (*before_next)(void* context, unsigned step);
inline void* context;
inline unsigned steps;

/// Runs `work` and calls `between(n)` after its n-th instruction. Returns the number of
/// instructions.
template <class Between, class Work>
unsigned run(Between between, Work work) {
  constexpr unsigned long long trap_flag = 0x100;
  steps = 0;
  context = &between;
  before_next = [](void* self, unsigned step) { (*static_cast<Between*>(self))(step); };
  struct sigaction trap{};
  struct sigaction before{};
  trap.sa_handler = [](int) { before_next(context, steps++); };
  REQUIRE(::sigaction(SIGTRAP, &trap, &before) == 0);
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | trap_flag);
  work();
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~trap_flag);
  REQUIRE(::sigaction(SIGTRAP, &before, nullptr) == 0);
  return steps;
}

/// Runs `work` repeatedly while `write(first)` switches between two values, so that for any two of
/// its first 2^16 instructions there is a run in which they see different values, in either order.
template <class Write, class Work>
void with_either(Write write, Work work) {
  constexpr unsigned bits = 16;
  for (unsigned bit = 0; bit < bits; ++bit) {
    for (const unsigned odd : {0U, 1U}) {
      const auto between = [&](unsigned step) { write(((step >> bit) & 1U) == odd); };
      between(0);
      CHECK(work([&](auto each) { return run(between, each); }) < 1U << bits);
    }
  }
}

}  // namespace stepped

#else

TEST_CASE("what happens between any two instructions") {
  MESSAGE("skipped: only x86-64 runs code one instruction at a time");
}

#endif
