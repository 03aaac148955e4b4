// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Defines SANITIZED in builds with an address or thread sanitizer, and ADDRESS_SANITIZED in those
// with the former.

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZED 1
#elif defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED 1
#elif __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef ADDRESS_SANITIZED
#define SANITIZED 1
#endif
