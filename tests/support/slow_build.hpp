// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Whether this build runs much slower than others, because it has a sanitizer or no optimisation.
// Tests that repeat what they do at random then do it less often.

#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_slow_build = true;
#elif defined(__has_feature)
inline constexpr bool is_slow_build =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool is_slow_build = false;
#endif
