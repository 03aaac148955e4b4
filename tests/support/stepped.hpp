// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Code that runs one instruction at a time, so that whatever another thread could do between any two
// of them happens there. x86-64 alone.

#include <doctest/doctest.h>

#include <signal.h>

#include <utility>

namespace stepped {

inline void (*before_next)(void* context, unsigned step);
inline void* context;
inline unsigned steps;

/// Runs `work`; `between(n)` is called after its n-th instruction. How many there were.
template <class Between, class Work>
unsigned run(Between between, Work work) {
  constexpr unsigned long long trap_flag = 0x100;
  steps = 0;
  context = &between;
  before_next = [](void* of, unsigned step) { (*static_cast<Between*>(of))(step); };
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

/// Runs `work` again and again while `write(first)` lets it see one of two values, so that for any
/// two of its first 2^16 instructions there is a run in which they see different ones, either way.
template <class Write, class Work>
void with_either(Write write, Work work) {
  constexpr unsigned bits = 16;
  for (unsigned bit = 0; bit < bits; ++bit) {
    for (const unsigned odd : {0U, 1U}) {
      const auto at = [&](unsigned step) { write(((step >> bit) & 1U) == odd); };
      at(0);
      CHECK(work([&](auto each) { return run(at, each); }) < 1U << bits);
    }
  }
}

}  // namespace stepped
