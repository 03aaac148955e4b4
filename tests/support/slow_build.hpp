// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Whether this build runs much slower than others, because it has a sanitizer or no optimisation,
// or because an emulator runs it (EMULATED). Tests that repeat what they do at random then do it
// less often.

#include "sanitized.hpp"

#if defined(SANITIZED) || defined(EMULATED) || !defined(__OPTIMIZE__)
inline constexpr bool is_slow_build = true;
#else
inline constexpr bool is_slow_build = false;
#endif

// Whether an emulator runs this build. It lacks some calls of the system.
#if defined(EMULATED)
inline constexpr bool is_emulated = true;
#else
inline constexpr bool is_emulated = false;
#endif
