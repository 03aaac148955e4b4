// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A STAND-IN for the CUDA runtime, on host memory: no GPU takes part, and nothing that passes with
// it says that it works on one. It shows whether colls waits for what it has to wait for. Streams
// do their work as late as they may (when somebody waits for it) or at once, by a seed, in any
// order that their events allow; device memory is host memory that nothing has copied to yet.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace stand_in {

struct machine {
  int devices = 1;
  std::uint64_t seed = 1;
  int eager_percent = 20;     // how often somebody's work is done before anybody waits for it
  bool streams_write = true;  // false: colls takes the callback of the host instead
  bool processes = false;     // every rank counts as a process of its own,
  int ranks_of_each = 1;      // or so many
  bool ipc = true;            // processes may open each other's memory
  bool peers = true;          // devices may work in each other's memory
  int nodes = 1;              // device d is next to node d % nodes of the host,
  bool alike = false;         // over whose links others are reached as quickly as those beside it
  bool descriptors = true;    // memory can have descriptors
  bool pins = true;           // streams may write to memory that the program has
  int hidden = 0;             // GPUs that this process does not see, before those that it numbers
};

/// A new machine. Nothing of the last one is used any more.
void boot(machine what);

/// What CUDA forbids, or colls promises not to do, and was done all the same: memory that was
/// released or unmapped under pending work, copies beyond an allocation, to memory that is not
/// pinned, work in another process's memory after that has freed it or this one has closed it, ...
std::vector<std::string> complaints();

/// Commands of streams that have not been done.
std::size_t pending();
/// Allocations that live, and those of other processes that are open; handles of physical memory
/// and addresses that were reserved.
std::size_t allocations();
/// Descriptors of physical memory that this process has open, by export or passed.
std::size_t descriptors();
/// Calls of a function of the seam since boot.
int calls(const char* function);
/// Threads of the last kernel that was launched since.
std::size_t launched_threads();

/// The n-th call of this function from now on fails (once).
void fail(const char* function, int status, int nth = 1);
/// A sticky error: from now on the devices do nothing, and say this.
void break_devices(int status);

/// As cudaMallocAsync: device memory that other devices and processes do not get at.
int take_of_pool(void*& memory, std::size_t bytes);

/// A user's stream, its kernels and their end.
void* make_stream(int device = 0);
void enqueue(void* stream, void (*work)(void*), void* argument);
void synchronize(void* stream);
/// What it gets goes into a graph from now on, or no longer.
void capture(void* stream, bool begins);

// For the stand-ins of what stands on CUDA; they hold the lock.

std::unique_lock<std::recursive_mutex> lock();
struct span {
  const void* first;
  std::size_t bytes;
};
/// Work of a stream that is done when `step()` says so, which is asked once its turn has come. Who
/// waits for it gets other streams on up to their part in the meeting.
void enqueue_meeting(void* stream, const void* meeting, std::function<bool()> step,
                     const std::vector<span>& uses);
/// Counts a call of a function, and says what it must fail with.
int fault_of(const char* function);
int draw(int below);
void note(std::string complaint);

}  // namespace stand_in
