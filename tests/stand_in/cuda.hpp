// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A STAND-IN for the CUDA runtime, on host memory. No GPU takes part: a test that passes with it
// does not show that anything works on a GPU. It shows whether colls waits for everything that it
// must wait for. Streams do their work as late as possible (when it is waited for) or at once, by a
// seed, in any order that their events allow. Device memory is host memory with undefined contents.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace stand_in {

struct machine {
  int devices = 1;
  std::uint64_t seed = 1;
  int eager_percent = 20;     // how often work is done before it is waited for
  bool streams_write = true;  // false: colls uses host functions instead
  bool processes = false;     // every rank counts as a process of its own,
  int ranks_of_each = 1;      // or every so many ranks
  bool ipc = true;            // processes may open each other's memory
  bool peers = true;          // devices may access each other's memory
  int nodes = 1;              // device d is attached to NUMA node d % nodes,
  bool equal_links = false;   // links between nodes are as fast as links within a node
  bool descriptors = true;    // memory can have descriptors
  bool pins = true;           // the program's own memory can be pinned
  int hidden = 0;             // GPUs that this process does not see, before its device 0
};

/// Starts a new machine. Nothing of the last one may be used any more.
void boot(machine what);

/// What was done although CUDA forbids it or colls promises not to do it: memory was released or
/// unmapped under pending work, a copy went beyond an allocation or to memory that is not pinned,
/// work used another process's memory after its owner had freed it or this process had closed it,
/// ...
std::vector<std::string> complaints();

/// The number of commands of streams that have not been done.
std::size_t pending();
/// The number of live allocations, opened allocations of other processes, handles of physical
/// memory and reserved address ranges.
std::size_t allocations();
/// The number of open descriptors of physical memory in this process, exported or received.
std::size_t descriptors();
/// The number of calls of a function of runtime_api.hpp since boot.
int calls(const char* function);
/// The number of threads of the last kernel that was launched since boot.
std::size_t launched_threads();

/// Makes the nth call of this function from now on fail, once.
void fail(const char* function, int status, int nth = 1);
/// A sticky error: from now on the devices do nothing, and report this status.
void break_devices(int status);

/// As cudaMallocAsync: device memory that other devices and processes cannot access.
int allocate_from_pool(void*& memory, std::size_t bytes);

/// Makes a user's stream, gives it work, and waits until its work is done.
void* make_stream(int device = 0);
void enqueue(void* stream, void (*work)(void*), void* argument);
void synchronize(void* stream);
/// Begins or ends the capture of a stream into a graph.
void capture(void* stream, bool begins);

// For stand-ins of libraries that use CUDA. The caller holds the lock.

std::unique_lock<std::recursive_mutex> lock();
struct span {
  const void* first;
  std::size_t bytes;
};
/// Gives a stream a command that is done when `step()` returns true. `step` is called once the
/// command is the stream's first. A wait for the command first runs the other streams up to their
/// commands with the same `barrier`.
void enqueue_barrier(void* stream, const void* barrier, std::function<bool()> step,
                     const std::vector<span>& uses);
/// Counts a call of a function, and returns the status with which it must fail, or success.
int fault_of(const char* function);
int draw(int below);
void note(std::string complaint);

}  // namespace stand_in
