// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "cuda.hpp"

#include <colls/cuda/runtime_api.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>

namespace stand_in {
namespace {

namespace api = colls::cuda::api;
using colls::stream_ref;

constexpr int already_mapped = 208;
constexpr int invalid_handle = 400;

struct range {
  const std::byte* begin;
  std::size_t size;
  bool overlaps(const std::byte* other, std::size_t bytes) const {
    return begin < other + bytes && other < begin + size;
  }
};

struct stream;
struct event {
  int device = 0;
  std::uint64_t recorded = 0;  // the number of the last record that was enqueued
  std::uint64_t reached = 0;   // the number of the last record that was done
  stream* last = nullptr;
};

struct command {
  std::function<void()> work;
  std::vector<range> touches;
  event* waits = nullptr;  // the event whose `record` this waits for
  std::uint64_t record = 0;
  const std::uint32_t* writes = nullptr;
  stream* recorded_on = nullptr;  // the stream of that record; the event may have later ones
  std::function<bool()> step{};   // returns true if the command may be done
  const void* barrier = nullptr;
  bool is_function = false;  // a host function
};

struct stream {
  int device = 0;
  bool is_users = false;
  bool is_captured = false;
  std::deque<command> commands;
  bool is_running = false;  // a wait is running its commands
};

struct allocation {
  std::size_t size;
  api::memory_type type;
  int device;
  std::uint64_t number;
  int file = -1;           // of memory that can be mapped a second time
  bool is_opened = false;  // memory of another process
  bool is_orphan = false;  // its owner has freed it
  const std::byte* owner_address = nullptr;
  bool is_mapped = false;              // a mapping of physical memory
  bool is_from_pool = false;           // no other device or process may access it
  bool is_host_memory = false;         // pinned, and not allocated here
  std::vector<int> accessible_from{};  // the devices that may access it
  /// Whether memory of the owner at `at` lies in a block with this. Drivers map complete blocks of
  /// the owner's addresses.
  bool shares_block(const std::byte* at, std::size_t bytes) const {
    constexpr std::uintptr_t block = 2 << 20;
    const auto first = [](const std::byte* of) {
      return reinterpret_cast<std::uintptr_t>(of) / block;
    };
    return first(at) <= first(owner_address + size - 1) &&
           first(owner_address) <= first(at + bytes - 1);
  }
};

struct physical_handle {
  int file;  // the memory exists as long as it is open or mapped anywhere
  std::size_t size;
  int device;
  bool is_imported;
};
constexpr std::size_t unit = 65536;
constexpr char physical_name[] = "stand-in physical";
bool is_physical(const std::string& descriptor) {
  std::error_code none;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + descriptor, none);
  return path.string().find(physical_name) != std::string::npos;
}

struct state {
  std::recursive_mutex guard;
  machine what;
  std::mt19937_64 random;
  int broken = 0;
  std::map<int, stream> defaults;
  std::vector<std::unique_ptr<stream>> streams;
  std::vector<std::unique_ptr<event>> events;  // kept, to detect the use of destroyed handles
  std::vector<event*> dead_events;
  std::map<const std::byte*, allocation> memory;
  std::map<const std::byte*, std::size_t> released;  // and not allocated again
  std::uint64_t allocated = 0;
  std::map<unsigned long long, physical_handle> handles;
  std::map<ino_t, int> device_of;
  std::set<int> used;  // devices
  int boots = 0;
  std::map<std::byte*, std::size_t> reserved;
  int ranks = 0;
  int processes = 0;
  std::vector<std::string> complaints;
  std::map<std::string, int> calls;
  std::size_t launched_threads = 0;
  std::map<std::string, std::pair<int, int>> faults;  // (nth, status)
};

state& gpu() {
  static state one;
  return one;
}
thread_local int current = 0;
thread_local int context_of = 0;  // the boot whose runtime this thread has called

void complain(std::string what);
void make_context(int device) {
  gpu().used.insert(device);
  context_of = gpu().boots;
}
/// Called by functions of the driver, which make no context themselves.
void needs_context(const char* function) {
  if (context_of != gpu().boots) complain(std::string(function) + " is called without a context");
}

bool chance(int percent) { return static_cast<int>(gpu().random() % 100) < percent; }
void complain(std::string what) { gpu().complaints.push_back(std::move(what)); }

stream& of(stream_ref by) {
  if (by.handle == nullptr) {
    stream& found = gpu().defaults[current];
    found.device = current;
    return found;
  }
  return *static_cast<stream*>(by.handle);
}
std::vector<stream*> all_streams() {
  std::vector<stream*> all;
  for (auto& [device, one] : gpu().defaults) all.push_back(&one);
  for (auto& one : gpu().streams) all.push_back(one.get());
  return all;
}

bool can_run(const stream& on) {
  if (on.commands.empty()) return false;
  const command& first = on.commands.front();
  if (first.step && gpu().broken == 0) return first.step();
  return first.waits == nullptr || first.waits->reached >= first.record;
}
void run_first(stream& on) {
  const command first = std::move(on.commands.front());
  on.commands.pop_front();
  if (first.work && gpu().broken == 0) first.work();
}
bool advance(stream& on);
/// Does the first `count` commands, and the commands of other streams for which they wait. Returns
/// false if something else has to be done first.
bool run_until(stream& on, std::size_t count) {
  if (std::exchange(on.is_running, true)) return false;
  bool done = true;
  while (done && count > 0 && !on.commands.empty()) {
    done = advance(on);
    if (done) --count;
  }
  on.is_running = false;
  return done;
}
bool advance(stream& on) {
  const command& first = on.commands.front();
  if (first.step && !can_run(on)) {
    for (stream* other : all_streams()) {
      const auto is_same = [&](const command& each) { return each.barrier == first.barrier; };
      const auto found = std::find_if(other->commands.begin(), other->commands.end(), is_same);
      if (other == &on || found == other->commands.end()) continue;
      (void)run_until(*other, static_cast<std::size_t>(found - other->commands.begin()));
      if (!other->commands.empty()) (void)can_run(*other);
    }
    if (!can_run(on)) return false;
  }
  while (!can_run(on)) {
    stream& other = *first.recorded_on;
    if (other.commands.empty()) break;
    if (!run_until(other, 1)) return false;
  }
  run_first(on);
  return true;
}
/// Does some commands early, before they are waited for.
void run_some() {
  while (chance(gpu().what.eager_percent)) {
    const std::vector<stream*> all = all_streams();
    if (all.empty()) return;
    stream& one = *all[gpu().random() % all.size()];
    if (can_run(one)) run_first(one);
  }
}
void enqueue(stream_ref on, command what) {
  of(on).commands.push_back(std::move(what));
  run_some();
}

/// The start of every call: counts it, and determines the status with which it must fail.
class entry {
 public:
  explicit entry(const char* function) : lock_(gpu().guard) {
    ++gpu().calls[function];
    const auto planned = gpu().faults.find(function);
    if (planned != gpu().faults.end() && --planned->second.first == 0) {
      status_ = planned->second.second;
      gpu().faults.erase(planned);
    } else if (gpu().what.devices == 0) {
      status_ = api::no_device;
    } else {
      status_ = gpu().broken;
    }
  }
  bool failed() const { return status_ != api::success; }
  int status() const { return status_; }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  int status_;
};

const std::pair<const std::byte* const, allocation>* find(const void* at) {
  const auto* const wanted = static_cast<const std::byte*>(at);
  auto after = gpu().memory.upper_bound(wanted);
  if (after == gpu().memory.begin()) return nullptr;
  --after;
  return wanted < after->first + after->second.size ? &*after : nullptr;
}

void check_range(const char* what, const void* at, std::size_t bytes, int device = -1) {
  const auto* const found = find(at);
  if (found == nullptr) {
    complain(std::string(what) + " is neither device memory nor pinned");
  } else if (static_cast<const std::byte*>(at) + bytes > found->first + found->second.size) {
    complain(std::string(what) + " leaves its allocation");
  } else if (found->second.is_orphan) {
    complain(std::string(what) + " belongs to another process, which has freed it");
  } else if (found->second.is_mapped && device >= 0 &&
             std::count(found->second.accessible_from.begin(), found->second.accessible_from.end(),
                        device) == 0) {
    complain(std::string(what) + " cannot be accessed from that device");
  } else if (found->second.is_from_pool && device >= 0 && device != found->second.device) {
    complain(std::string(what) + " is in a pool of another device");
  }
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
std::byte* map_file(int file, std::size_t bytes) {
  void* const at = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

int take(void*& memory, std::size_t bytes, api::memory_type type) {
  make_context(current);
  allocation made{bytes, type, current, ++gpu().allocated};
  if (gpu().what.processes && type == api::memory_type::device) {
    made.file = ::memfd_create("stand-in", MFD_CLOEXEC);
    if (::ftruncate(made.file, static_cast<off_t>(whole_pages(bytes))) != 0) std::abort();
    memory = map_file(made.file, bytes);
  } else {
    memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  if (memory == nullptr) return api::out_of_memory;
  std::memset(memory, 0xcd, bytes);
  std::erase_if(gpu().released, [&](const auto& each) {
    return range{each.first, each.second}.overlaps(static_cast<const std::byte*>(memory), bytes);
  });
  gpu().memory[static_cast<const std::byte*>(memory)] = made;
  return api::success;
}
void free_pages(const std::byte* at, const allocation& what) {
  auto* const memory = const_cast<std::byte*>(at);
  if (what.is_mapped || what.is_host_memory) return;  // reserved addresses, or the program's own
  if (what.file < 0 && !what.is_opened) return std::free(memory);
  ::munmap(memory, whole_pages(what.size));
  if (what.file >= 0) ::close(what.file);
}

void check_unused(const std::byte* at, std::size_t bytes, const char* otherwise) {
  if (gpu().broken != 0) return;  // no command will be done
  for (stream* on : all_streams()) {
    for (command& each : on->commands) {
      for (const range& used : each.touches) {
        if (!used.overlaps(at, bytes)) continue;
        complain(otherwise);
        each.work = nullptr;  // the memory's next user must find it unchanged
      }
    }
  }
}

int give(void* memory, api::memory_type type) {
  const auto found = gpu().memory.find(static_cast<const std::byte*>(memory));
  if (found == gpu().memory.end() || found->second.type != type || found->second.is_opened ||
      found->second.is_mapped || found->second.is_host_memory) {
    complain("memory is released that was not allocated");
    return api::invalid_value;
  }
  check_unused(found->first, found->second.size, "memory is released under pending work");
  for (auto& [at, other] : gpu().memory) {
    if (!other.is_opened || other.number != found->second.number) continue;
    check_unused(at, other.size, "memory is released under pending work of another process");
    other.is_orphan = true;
  }
  // As cudaFree does. Work of colls stays pending, so that a missing wait is found.
  for (stream* on : all_streams()) {
    if (on->is_users) run_until(*on, on->commands.size());
  }
  std::memset(memory, 0xdd, found->second.size);
  gpu().released[found->first] = found->second.size;
  free_pages(found->first, found->second);
  gpu().memory.erase(found);
  return api::success;
}

/// The memory that a kernel may access: all that its arguments point to.
std::vector<range> pointed_to(const void* closure, std::size_t bytes, int device) {
  std::vector<range> all;
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const std::byte* pointer = nullptr;
    std::memcpy(&pointer, static_cast<const std::byte*>(closure) + at, sizeof pointer);
    const auto* const found = find(pointer);
    for (const auto& [begin, size] : gpu().released) {
      const bool is_gone = found == nullptr && range{begin, size}.overlaps(pointer, 1);
      if (is_gone) complain("a kernel works on memory that was released");
    }
    if (found == nullptr) continue;
    check_range("what a kernel works on", pointer, 1, device);
    all.push_back({pointer, 1});
  }
  return all;
}

}  // namespace

void boot(machine what) {
  state& all = gpu();
  const std::lock_guard lock(all.guard);
  all.what = what;
  all.random.seed(what.seed);
  all.broken = 0;
  all.defaults.clear();
  all.streams.clear();
  all.events.clear();
  all.dead_events.clear();
  for (const auto& [at, each] : all.memory) free_pages(at, each);
  all.memory.clear();
  for (const auto& [number, each] : all.handles) ::close(each.file);
  all.handles.clear();
  for (const auto& [at, bytes] : all.reserved) ::munmap(at, bytes);
  all.reserved.clear();
  all.device_of.clear();
  all.used.clear();
  ++all.boots;
  all.released.clear();
  all.ranks = 0;
  all.processes = 0;
  all.complaints.clear();
  all.calls.clear();
  all.launched_threads = 0;
  all.faults.clear();
  current = 0;
}

std::vector<std::string> complaints() {
  const std::lock_guard lock(gpu().guard);
  return gpu().complaints;
}
std::size_t pending() {
  const std::lock_guard lock(gpu().guard);
  std::size_t count = 0;
  for (const stream* on : all_streams()) count += on->commands.size();
  return count;
}
std::size_t allocations() {
  const std::lock_guard lock(gpu().guard);
  return gpu().memory.size() + gpu().handles.size() + gpu().reserved.size();
}
std::size_t descriptors() {
  std::vector<std::string> open;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    open.push_back(each.path().filename().string());
  }
  const std::lock_guard lock(gpu().guard);
  const auto all = std::count_if(open.begin(), open.end(), is_physical);
  return static_cast<std::size_t>(all) - gpu().handles.size();
}
int calls(const char* function) {
  const std::lock_guard lock(gpu().guard);
  return gpu().calls[function];
}
std::size_t launched_threads() {
  const std::lock_guard lock(gpu().guard);
  return gpu().launched_threads;
}
void fail(const char* function, int status, int nth) {
  const std::lock_guard lock(gpu().guard);
  gpu().faults[function] = {nth, status};
}
void break_devices(int status) {
  const std::lock_guard lock(gpu().guard);
  gpu().broken = status;
}

int allocate_from_pool(void*& memory, std::size_t bytes) {
  const std::lock_guard lock(gpu().guard);
  const int result = take(memory, bytes, api::memory_type::device);
  gpu().memory[static_cast<const std::byte*>(memory)].is_from_pool = true;
  return result;
}

void* make_stream(int device) {
  const std::lock_guard lock(gpu().guard);
  gpu().streams.push_back(std::make_unique<stream>());
  make_context(device);
  gpu().streams.back()->device = device;
  gpu().streams.back()->is_users = true;
  return gpu().streams.back().get();
}
void enqueue(void* on, void (*work)(void*), void* argument) {
  const std::lock_guard lock(gpu().guard);
  enqueue(stream_ref{on}, {[work, argument] { work(argument); }, {}, nullptr, 0, nullptr});
}
void enqueue_barrier(void* on, const void* barrier, std::function<bool()> step,
                     const std::vector<span>& uses) {
  std::vector<range> touches;
  for (const span& each : uses) {
    check_range("what NCCL works on", each.first, each.bytes);
    touches.push_back({static_cast<const std::byte*>(each.first), each.bytes});
  }
  enqueue(stream_ref{on},
          {{}, std::move(touches), nullptr, 0, nullptr, nullptr, std::move(step), barrier});
}
std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(gpu().guard); }
int fault_of(const char* function) {
  const entry now(function);
  return now.status();
}
int draw(int below) { return static_cast<int>(gpu().random() % static_cast<unsigned>(below)); }
void note(std::string what) { complain(std::move(what)); }

void capture(void* on, bool begins) {
  const std::lock_guard lock(gpu().guard);
  static_cast<stream*>(on)->is_captured = begins;
}
void synchronize(void* on) { (void)api::synchronize({on}); }

}  // namespace stand_in

namespace colls::cuda::api {

using namespace stand_in;

const char* name(status of) {
  switch (of) {
    case success:
      return "cudaSuccess";
    case invalid_value:
      return "cudaErrorInvalidValue";
    case out_of_memory:
      return "cudaErrorMemoryAllocation";
    case no_device:
      return "cudaErrorNoDevice";
    case insufficient_driver:
      return "cudaErrorInsufficientDriver";
    case not_ready:
      return "cudaErrorNotReady";
    case not_supported:
      return "cudaErrorNotSupported";
    case invalid_handle:
      return "cudaErrorInvalidResourceHandle";
  }
  return "cudaErrorUnknown";
}
const char* text(status of) { return of == no_device ? "no device in the stand-in" : "stand-in"; }

status count_devices(int& count) {
  const entry now("count_devices");
  count = gpu().what.devices;
  return now.status();
}
status current_device(int& device) {
  const entry now("current_device");
  device = current;
  return now.status();
}
status use_device(int device) {
  const entry now("use_device");
  if (now.failed()) return now.status();
  if (device < 0 || device >= gpu().what.devices) return invalid_device;
  current = device;
  make_context(device);
  return success;
}
status count_processors(int, int& count) {
  const entry now("count_processors");
  count = 3;
  return now.status();
}
status identify(int device, device_id& id) {
  const entry now("identify");
  id.words[0] = static_cast<std::byte>(gpu().what.hidden + device + 1);
  return now.status();
}
status enable_peer_access(int device) {
  const entry now("enable_peer_access");
  if (now.failed()) return now.status();
  return device == current || gpu().what.peers ? success : not_supported;
}
status is_in_use(bool& used, int device) {
  const entry now("is_in_use");
  used = gpu().used.count(device) != 0;
  return now.status();
}
status can_access_peer(bool& can, int, int) {
  const entry now("can_access_peer");
  can = gpu().what.peers;
  return now.status();
}
status link_rank(int& rank, int device, int other) {
  const entry now("link_rank");
  const int nodes = gpu().what.nodes;
  rank = device % nodes != other % nodes && !gpu().what.equal_links ? 1 : 0;
  return now.status();
}
status host_node(int& node, int device) {
  const entry now("host_node");
  node = device % gpu().what.nodes;
  return now.status();
}
status synchronize_device() {
  const entry now("synchronize_device");
  // Users' work is done. Work of colls stays pending, so that a missing wait is found.
  for (stream* on : all_streams()) {
    if (!on->is_users || on->device != current) continue;
    if (run_until(*on, on->commands.size())) continue;
    complain("a device is waited for while a user's stream there waits for another call");
  }
  return now.status();
}
std::uint64_t process() {
  const std::lock_guard lock(gpu().guard);
  if (!gpu().what.processes) return 1;
  const int each = gpu().what.ranks_of_each;
  gpu().processes = (++gpu().ranks + each - 1) / each;
  return static_cast<std::uint64_t>(::getpid()) << 32 | static_cast<unsigned>(gpu().processes);
}

status allocate(void*& memory, std::size_t bytes) {
  const entry now("allocate");
  return now.failed() ? now.status() : take(memory, bytes, memory_type::device);
}
status release(void* memory) {
  const entry now("release");
  return give(memory, memory_type::device);
}
status allocate_pinned(void*& memory, std::size_t bytes) {
  const entry now("allocate_pinned");
  return now.failed() ? now.status() : take(memory, bytes, memory_type::pinned);
}
status release_pinned(void* memory) {
  const entry now("release_pinned");
  return give(memory, memory_type::pinned);
}
status pin(void* memory, std::size_t bytes) {
  const entry now("pin");
  if (now.failed()) return now.status();
  if (!gpu().what.pins) return not_supported;
  make_context(current);
  stand_in::allocation made{bytes, memory_type::pinned, current, ++gpu().allocated};
  made.is_host_memory = true;
  gpu().memory[static_cast<const std::byte*>(memory)] = made;
  return success;
}
status unpin(void* memory) {
  const entry now("unpin");
  const auto found = gpu().memory.find(static_cast<const std::byte*>(memory));
  if (found == gpu().memory.end() || !found->second.is_host_memory) {
    complain("memory is unpinned that was not pinned");
    return invalid_value;
  }
  check_unused(found->first, found->second.size, "memory is unpinned under pending work");
  gpu().memory.erase(found);
  return now.status();
}
status locate(const void* memory, location& found) {
  const entry now("locate");
  if (now.failed()) return now.status();
  const auto* const known = find(memory);
  found = known != nullptr ? location{known->second.type, known->second.device} : location{};
  return success;
}

status find_allocation(const void* memory, allocation& found) {
  const entry now("find_allocation");
  if (now.failed()) return now.status();
  needs_context("find_allocation");
  const auto* const known = find(memory);
  if (known == nullptr) return invalid_value;
  if (known->second.device != current) complain("an allocation of another device is queried");
  found = {const_cast<std::byte*>(known->first), known->second.size, known->second.number};
  return success;
}
status share(memory_handle& shared, void* base) {
  const entry now("share");
  if (now.failed()) return now.status();
  const auto* const known = find(base);
  if (known == nullptr || known->first != base || known->second.is_opened ||
      known->second.is_mapped || known->second.is_from_pool) {
    return invalid_value;
  }
  const std::uint64_t words[] = {known->second.number, static_cast<std::uint64_t>(::getpid())};
  std::memcpy(shared.words, words, sizeof words);
  return success;
}
status open(void*& base, const memory_handle& shared) {
  const entry now("open");
  if (now.failed()) return now.status();
  if (!gpu().what.ipc) return not_supported;
  std::uint64_t words[2];
  std::memcpy(words, shared.words, sizeof words);
  if (words[1] != static_cast<std::uint64_t>(::getpid())) return invalid_handle;
  const std::uint64_t number = words[0];
  const stand_in::allocation* owners = nullptr;
  const std::byte* address_there = nullptr;
  int times = 1;
  for (const auto& [at, each] : gpu().memory) {
    if (each.number != number) continue;
    if (!each.is_opened) {
      owners = &each;
      address_there = at;
    }
    times += each.is_opened ? 1 : 0;
  }
  if (owners == nullptr) return invalid_handle;
  if (times >= gpu().processes) {
    complain("memory is opened twice, or by its owner");
    return already_mapped;
  }
  for (const auto& [at, each] : gpu().memory) {
    // With two processes, such memory is open in the one that opens now; with more it is not known
    // where it is open.
    if (gpu().processes != 2 || !each.is_orphan || each.device != owners->device) continue;
    if (!each.shares_block(address_there, owners->size)) continue;
    ++gpu().calls["open refused because of freed memory"];
    return already_mapped;
  }
  stand_in::allocation opened{owners->size, memory_type::device, owners->device, number};
  opened.is_opened = true;
  opened.owner_address = address_there;
  base = map_file(owners->file, owners->size);
  gpu().memory[static_cast<const std::byte*>(base)] = opened;
  return success;
}
status close(void* base) {
  const entry now("close");
  const auto found = gpu().memory.find(static_cast<const std::byte*>(base));
  if (found == gpu().memory.end() || !found->second.is_opened || found->second.is_mapped) {
    complain("memory is closed that was not opened");
    return invalid_value;
  }
  check_unused(found->first, found->second.size, "memory is closed under pending work");
  free_pages(found->first, found->second);
  gpu().memory.erase(found);
  return now.status();
}

status can_export(bool& can, int) {
  const entry now("can_export");
  can = gpu().what.descriptors;
  return now.status();
}
status find_granularity(std::size_t& bytes, int) {
  const entry now("find_granularity");
  bytes = unit;
  return now.status();
}
status make_physical(physical& made, std::size_t bytes, int device) {
  const entry now("make_physical");
  if (now.failed()) return now.status();
  needs_context("make_physical");
  if (bytes == 0 || bytes % unit != 0) return invalid_value;
  if (device != current) complain("memory is made while another device is in use");
  const int file = ::memfd_create(physical_name, MFD_CLOEXEC);
  struct stat found{};
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0 || ::fstat(file, &found) != 0) std::abort();
  std::byte* const used = map_file(file, bytes);
  std::memset(used, 0xcd, bytes);
  ::munmap(used, bytes);
  made.handle = ++gpu().allocated;
  gpu().handles[made.handle] = {file, bytes, device, false};
  gpu().device_of[found.st_ino] = device;
  return success;
}
status export_physical(int& file, physical memory) {
  const entry now("export_physical");
  if (now.failed()) return now.status();
  const auto found = gpu().handles.find(memory.handle);
  if (found == gpu().handles.end()) return invalid_value;
  file = ::fcntl(found->second.file, F_DUPFD, 0);  // CUDA does not promise FD_CLOEXEC
  return success;
}
status import_physical(physical& made, int file) {
  const entry now("import_physical");
  if (now.failed()) return now.status();
  struct stat found{};
  if (!is_physical(std::to_string(file)) || ::fstat(file, &found) != 0) return invalid_value;
  made.handle = ++gpu().allocated;
  gpu().handles[made.handle] = {::fcntl(file, F_DUPFD_CLOEXEC, 0),
                                static_cast<std::size_t>(found.st_size),
                                gpu().device_of[found.st_ino], true};
  return success;
}
status drop_physical(physical memory) {
  const entry now("drop_physical");
  const auto found = gpu().handles.find(memory.handle);
  if (found == gpu().handles.end()) {
    complain("a handle is dropped that does not exist");
    return invalid_value;
  }
  ::close(found->second.file);
  gpu().handles.erase(found);
  return now.status();
}
status reserve(void*& addresses, std::size_t bytes) {
  const entry now("reserve");
  if (now.failed()) return now.status();
  if (bytes == 0 || bytes % unit != 0) return invalid_value;
  addresses = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (addresses == MAP_FAILED) return out_of_memory;
  gpu().reserved[static_cast<std::byte*>(addresses)] = bytes;
  return success;
}
status unreserve(void* addresses, std::size_t bytes) {
  const entry now("unreserve");
  const auto found = gpu().reserved.find(static_cast<std::byte*>(addresses));
  if (found == gpu().reserved.end() || found->second != bytes ||
      gpu().memory.count(found->first) != 0) {
    complain("addresses are unreserved that were not reserved, or are in use");
    return invalid_value;
  }
  ::munmap(addresses, bytes);
  gpu().reserved.erase(found);
  return now.status();
}
status map(void* addresses, std::size_t bytes, physical memory) {
  const entry now("map");
  if (now.failed()) return now.status();
  needs_context("map");
  const auto found = gpu().handles.find(memory.handle);
  const auto place = gpu().reserved.find(static_cast<std::byte*>(addresses));
  if (found == gpu().handles.end() || place == gpu().reserved.end() || place->second < bytes ||
      found->second.size < bytes) {
    return invalid_value;
  }
  const auto& [file, size, device, is_imported] = found->second;
  if (::mmap(addresses, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    return out_of_memory;
  }
  stand_in::allocation made{bytes, memory_type::device, device, ++gpu().allocated};
  made.is_opened = is_imported;
  made.is_mapped = true;
  gpu().memory[place->first] = made;
  return success;
}
status unmap(void* addresses, std::size_t bytes) {
  const entry now("unmap");
  const auto found = gpu().memory.find(static_cast<std::byte*>(addresses));
  if (found == gpu().memory.end() || !found->second.is_mapped || found->second.size != bytes) {
    complain("memory is unmapped that was not mapped");
    return invalid_value;
  }
  check_unused(found->first, bytes, "memory is unmapped under pending work");
  ::mmap(addresses, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  gpu().memory.erase(found);
  return now.status();
}
status set_access(int device, void* addresses, std::size_t bytes) {
  const entry now("set_access");
  if (now.failed()) return now.status();
  const auto found = gpu().memory.find(static_cast<std::byte*>(addresses));
  if (found == gpu().memory.end() || !found->second.is_mapped || found->second.size != bytes ||
      (device != found->second.device && !gpu().what.peers)) {
    return invalid_value;
  }
  found->second.accessible_from.push_back(device);
  ::mprotect(addresses, bytes, PROT_READ | PROT_WRITE);
  return success;
}

status make_stream(stream_ref& made) {
  const entry now("make_stream");
  if (now.failed()) return now.status();
  made.handle = stand_in::make_stream(current);
  static_cast<stream*>(made.handle)->is_users = false;
  return success;
}
status destroy_stream(stream_ref on) {
  const entry now("destroy_stream");
  // In CUDA the stream would still do its work. But colls destroys only streams whose pending
  // commands wait for others and write that they have done so.
  const auto is_work = [](const command& each) {
    return each.waits == nullptr && each.writes == nullptr;
  };
  const auto& left = of(on).commands;
  if (std::any_of(left.begin(), left.end(), is_work) && gpu().broken == 0) {
    complain("a stream is destroyed with its work");
    of(on).commands.clear();
  }
  return now.status();
}
status query(stream_ref on) {
  const entry now("query");
  if (now.failed()) return now.status();
  // A stream makes progress by itself.
  if (chance(20)) run_until(of(on), of(on).commands.size());
  return of(on).commands.empty() ? success : not_ready;
}
status synchronize(stream_ref on) {
  const entry now("synchronize");
  if (!run_until(of(on), of(on).commands.size()) && gpu().broken == 0) {
    complain("a stream is waited for that cannot make progress");
  }
  return now.status();
}

status is_captured(bool& captured, stream_ref on) {
  const entry now("is_captured");
  captured = of(on).is_captured;
  return now.status();
}
status device_of(int& device, stream_ref on) {
  const entry now("device_of");
  device = of(on).device;
  return now.status();
}

status make_event(event_ref& made) {
  const entry now("make_event");
  if (now.failed()) return now.status();
  gpu().events.push_back(std::make_unique<event>());
  gpu().events.back()->device = current;
  made.handle = gpu().events.back().get();
  return success;
}
status destroy_event(event_ref of) {
  const entry now("destroy_event");
  gpu().dead_events.push_back(static_cast<event*>(of.handle));
  return now.status();
}
status record(event_ref mark, stream_ref on) {
  const entry now("record");
  if (now.failed()) return now.status();
  if (of(on).is_captured) complain("an event is captured into a graph");
  auto* const known = static_cast<event*>(mark.handle);
  const auto& dead = gpu().dead_events;
  if (std::find(dead.begin(), dead.end(), known) != dead.end()) return invalid_handle;
  if (known->device != of(on).device) return invalid_handle;
  const std::uint64_t number = ++known->recorded;
  known->last = &of(on);
  enqueue(on, {[known, number] { known->reached = std::max(known->reached, number); },
               {},
               nullptr,
               0,
               nullptr});
  return success;
}
status wait(stream_ref on, event_ref mark) {
  const entry now("wait");
  if (now.failed()) return now.status();
  auto* const known = static_cast<event*>(mark.handle);
  enqueue(on, {{}, {}, known, known->recorded, nullptr, known->last});
  return success;
}

status copy(void* to, const void* from, std::size_t bytes, stream_ref on) {
  const entry now("copy");
  if (now.failed()) return now.status();
  check_range("the target of a copy", to, bytes, of(on).device);
  check_range("the source of a copy", from, bytes, of(on).device);
  for (const void* const side : {static_cast<const void*>(to), from}) {
    const auto* const known = find(side);
    if (known != nullptr && known->second.type == memory_type::pinned &&
        known->second.device != of(on).device) {
      complain("memory was pinned by another device than the one that copies it");
    }
  }
  enqueue(on, {[=] { std::memcpy(to, from, bytes); },
               {{static_cast<const std::byte*>(to), bytes},
                {static_cast<const std::byte*>(from), bytes}},
               nullptr,
               0,
               nullptr});
  return success;
}
status clear(void* to, std::size_t bytes, stream_ref on) {
  const entry now("clear");
  if (now.failed()) return now.status();
  check_range("what is cleared", to, bytes, of(on).device);
  // CUDA's guide permits copies on a stream of another device, but no kernels.
  if (of(on).device != current) complain("memory is cleared by another device's stream");
  enqueue(on, {[=] { std::memset(to, 0, bytes); },
               {{static_cast<const std::byte*>(to), bytes}},
               nullptr,
               0,
               nullptr});
  return success;
}
status write(std::uint32_t* pinned, std::uint32_t value, stream_ref on) {
  const entry now("write");
  if (now.failed()) return now.status();
  if (!gpu().what.streams_write) return not_supported;
  needs_context("write");
  check_range("what a stream writes", pinned, sizeof value);
  if (of(on).device != current) complain("a stream writes that is not of the current device");
  enqueue(on, {[=] { *pinned = value; },
               {{reinterpret_cast<const std::byte*>(pinned), sizeof value}},
               nullptr,
               0,
               pinned});
  return success;
}
status call(void (*function)(void*), void* argument, stream_ref on) {
  const entry now("call");
  if (now.failed()) return now.status();
  enqueue(on, {[=] { function(argument); }, {}, nullptr, 0, nullptr, nullptr, {}, nullptr, true});
  return success;
}
/// The caller waits for this number, so sooner or later the streams that will write it make
/// progress. If these are not known (a host function writes it, or this is another mapping of the
/// page), any stream does.
std::uint32_t read(const std::uint32_t* pinned) {
  const std::lock_guard lock(gpu().guard);
  if (!chance(50)) {
    bool found = false;
    for (stream* on : all_streams()) {
      for (std::size_t i = 0; i < on->commands.size() && !found; ++i) {
        found = on->commands[i].writes == pinned;
        if (found) run_until(*on, i + 1);
      }
    }
    const auto calls = [](const stream* on) {
      return std::any_of(on->commands.begin(), on->commands.end(),
                         [](const command& each) { return each.is_function; });
    };
    std::vector<stream*> all = all_streams();
    std::erase_if(all, [](const stream* on) { return on->commands.empty(); });
    if (!found && !all.empty() &&
        (find(pinned) == nullptr || std::any_of(all.begin(), all.end(), calls))) {
      stream& one = *all[gpu().random() % all.size()];
      run_until(one, 1);
    }
  }
  return *pinned;
}

status launch(void (*body)(const void*, std::size_t, std::size_t), const void* closure,
              std::size_t bytes, std::size_t threads, stream_ref on) {
  const entry now("launch");
  if (now.failed()) return now.status();
  if (of(on).device != current) complain("a kernel is launched on another device's stream");
  gpu().launched_threads = threads;
  const auto kept =
      std::make_shared<std::vector<std::max_align_t>>(bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(kept->data(), closure, bytes);
  const std::size_t first = gpu().random() % threads;
  enqueue(on, {[=] {
                 for (std::size_t i = 0; i < threads; ++i) {
                   body(kept->data(), (first + i) % threads, threads);
                 }
               },
               pointed_to(closure, bytes, current), nullptr, 0, nullptr});
  return success;
}

}  // namespace colls::cuda::api
