// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Counts the program's allocations, and refuses one on request. Sanitizers have their own malloc:
// with them SANITIZED is defined and nothing is counted. Only one file of a program may include
// this.

#include "sanitized.hpp"

#include <atomic>
#include <cstddef>
#include <malloc.h>

static std::atomic<std::size_t> allocations;
static std::atomic<std::size_t> blocks_in_use;
static std::atomic<std::size_t> longest_allocation;
static std::atomic<std::size_t> bytes_in_use;
static std::atomic<std::size_t> most_bytes_in_use;
/// Counts down with each allocation; the allocation that brings it to 0 is refused. 0: none is.
static std::atomic<std::size_t> refused_allocation;

#if !defined(SANITIZED)
static bool is_refused(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (size > longest_allocation) longest_allocation = size;
  return refused_allocation != 0 && --refused_allocation == 0;
}
static void* counted(void* memory) {
  const std::size_t size = malloc_usable_size(memory);
  const std::size_t in_use = bytes_in_use.fetch_add(size, std::memory_order_relaxed) + size;
  if (in_use > most_bytes_in_use) most_bytes_in_use = in_use;
  return memory;
}
static void uncounted(void* memory) {
  bytes_in_use.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
}

// Every allocation of the program calls these functions, also those of operator new.
extern "C" {
void* __libc_malloc(std::size_t size);                     // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);  // NOLINT
void* __libc_realloc(void* memory, std::size_t size);      // NOLINT
void __libc_free(void* memory);                            // NOLINT
void* malloc(std::size_t size) {
  if (is_refused(size)) return nullptr;
  blocks_in_use.fetch_add(1, std::memory_order_relaxed);
  return counted(__libc_malloc(size));
}
void* calloc(std::size_t count, std::size_t size) {
  if (is_refused(count * size)) return nullptr;
  blocks_in_use.fetch_add(1, std::memory_order_relaxed);
  return counted(__libc_calloc(count, size));
}
void* realloc(void* memory, std::size_t size) {
  if (is_refused(size)) return nullptr;
  if (memory == nullptr) blocks_in_use.fetch_add(1, std::memory_order_relaxed);
  uncounted(memory);
  return counted(__libc_realloc(memory, size));
}
void free(void* memory) {
  if (memory != nullptr) blocks_in_use.fetch_sub(1, std::memory_order_relaxed);
  uncounted(memory);
  __libc_free(memory);
}
}
#endif
