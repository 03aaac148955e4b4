// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The calls of the CUDA runtime that colls makes, all of them and nothing else: with
// COLLS_CUDA_STAND_IN a test links a stand-in for them, and no CUDA header is needed.

#include <colls/base/buffer.hpp>

#include <cstdint>
#include <cstring>
#include <random>

#ifndef COLLS_CUDA_STAND_IN
#if !__has_include(<cuda_runtime_api.h>)
#error "colls/cuda needs the headers of the CUDA toolkit: nvcc, or -I/usr/local/cuda/include"
#endif
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif

namespace colls::cuda::api {

/// A cudaError_t.
using status = int;
inline constexpr status success = 0;
inline constexpr status invalid_value = 1;
inline constexpr status out_of_memory = 2;
inline constexpr status stub_library = 34;
inline constexpr status insufficient_driver = 35;
inline constexpr status no_device = 100;
inline constexpr status invalid_device = 101;
inline constexpr status peers_already = 704;
inline constexpr status not_ready = 600;
inline constexpr status not_supported = 801;
inline constexpr status driver_mismatch = 803;

const char* name(status);
const char* text(status);

/// Whose memory a pointer is: `other` is everything that CUDA has not allocated or registered.
enum class place : std::uint8_t { other, pinned, device, managed };
struct location {
  place where = place::other;
  int device = -1;
};

// An event, by its handle.
struct event_ref {
  void* handle = nullptr;
};

/// What cudaMalloc gave: an allocation that took a freed one's place has another number.
struct allocation {
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::uint64_t number = 0;
};
/// An allocation in words that another process of this machine understands.
struct memory_handle {
  std::byte words[64] = {};
};
/// Memory of a device without an address, by a handle of its own.
struct physical {
  unsigned long long handle = 0;
};
/// A device, whatever number a process gives it.
struct device_id {
  std::byte words[16] = {};
  friend bool operator==(const device_id&, const device_id&) = default;
};

status count_devices(int& count);
status current_device(int& device);
status use_device(int device);
status count_processors(int device, int& count);
status identify(int device, device_id& id);
/// Lets the current device work in another one's memory, as far as this process has it.
status reach(int device);
/// Whether this process has used a device, so that there may be work.
status is_in_use(bool& used, int device);
/// Whether a device can work in another one's memory.
status can_reach(bool& can, int device, int other);
/// How a device's link to another one compares with its other links: of equal ones it is equal.
status link_rank(int& rank, int device, int other);
/// The node of the host (its memory, its processor) that a device is next to; -1: CUDA does not
/// tell, or there is but one.
status host_node(int& node, int device);
/// Waits for all that streams of the current device have.
status synchronize_device();
/// Not 0, and another number in each process.
std::uint64_t process();

status allocate(void*& memory, std::size_t bytes);
status release(void* memory);
/// Page-locked, and mapped into the address space of all devices.
status allocate_pinned(void*& memory, std::size_t bytes);
status release_pinned(void* memory);
/// The same of memory that the program has, until `unpin`; not_supported where devices would have
/// another address for it.
status pin(void* memory, std::size_t bytes);
status unpin(void* memory);
status locate(const void* memory, location& found);

status find_allocation(const void* memory, allocation& found);
/// For other processes; of an allocation's base.
status share(memory_handle& shared, void* base);
/// Another process's allocation in this one's memory, for the current device: once at a time.
status open(void*& base, const memory_handle& shared);
status close(void* base);

/// Whether memory of a device can have descriptors, by which other processes get hold of it.
status can_export(bool& can, int device);
/// What sizes of such memory are multiples of.
status find_unit(std::size_t& bytes, int device);
/// It stays until the handles of all processes are dropped, those descriptors closed and the
/// addresses unmapped.
status make_physical(physical& made, std::size_t bytes, int device);
status export_physical(int& file, physical memory);
/// Of any process's export. The descriptor stays the caller's.
status import_physical(physical& made, int file);
status drop_physical(physical memory);
/// Addresses without memory.
status reserve(void*& addresses, std::size_t bytes);
status unreserve(void* addresses, std::size_t bytes);
/// No device may touch it before `let_in`. Nobody waits for work there when it is unmapped.
status map(void* addresses, std::size_t bytes, physical memory);
status unmap(void* addresses, std::size_t bytes);
status let_in(int device, void* addresses, std::size_t bytes);

/// A stream that does not wait for the default stream.
status make_stream(stream_ref& made);
status destroy_stream(stream_ref stream);
/// Whether all its work is done: success, not_ready, or what went wrong.
status query(stream_ref stream);
status synchronize(stream_ref stream);
/// Whether its work goes into a graph and is not done now. Of the default stream: or it may not be
/// used, since a stream is captured that it would wait for.
status is_captured(bool& captured, stream_ref stream);
/// Of a stream that is not the default one; not_supported where CUDA does not tell.
status device_of(int& device, stream_ref stream);

status make_event(event_ref& made);
status destroy_event(event_ref event);
status record(event_ref event, stream_ref stream);
/// What is enqueued on the stream after this waits for the event's last record.
status wait(stream_ref stream, event_ref event);

status copy(void* to, const void* from, std::size_t bytes, stream_ref stream);
/// Writes zeros.
status clear(void* to, std::size_t bytes, stream_ref stream);
/// The GPU writes `value` to pinned memory when the stream gets there, after all that the stream
/// wrote before; not_supported where it cannot.
status write(std::uint32_t* pinned, std::uint32_t value, stream_ref stream);
/// What pinned memory holds, before whatever is read after this.
std::uint32_t read(const std::uint32_t* pinned);
/// A thread of the driver calls `function`, which makes no CUDA call.
status call(void (*function)(void*), void* argument, stream_ref stream);

#ifdef COLLS_CUDA_STAND_IN

/// In place of a kernel's launch: `body(closure, thread, threads)` for every thread of the grid.
/// Copies `bytes` of the closure.
status launch(void (*body)(const void*, std::size_t, std::size_t), const void* closure,
              std::size_t bytes, std::size_t threads, stream_ref stream);

#else

static_assert(sizeof(memory_handle) == sizeof(cudaIpcMemHandle_t));

/// What goes wrong is for colls to handle or to tell: the user's cudaGetLastError does not find it,
/// but what was there before, where CUDA does not count this one (a stream that is not done).
inline status heard(cudaError_t how) {
  if (how != cudaSuccess && cudaPeekAtLastError() == how) (void)cudaGetLastError();
  return how;
}

/// As long as it lives, another thread may capture a stream in CUDA's usual mode, in which nobody
/// may ask for memory, say: what colls calls is no part of a graph.
class beside_captures {
 public:
  beside_captures() { exchange(); }
  beside_captures(const beside_captures&) = delete;
  ~beside_captures() { exchange(); }

 private:
  void exchange() { (void)heard(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};
/// What `call()` says, beside captures.
template <class Call>
status aside(const Call& call) {
  const beside_captures guard;
  return heard(call());
}

/// A function of the driver, found at run time: a program starts where no driver is. Null: there is
/// no such function.
template <class Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const status asked =
      heard(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how));
#else
  const status asked = heard(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how));
#endif
  const bool good = asked == success && how == cudaDriverEntryPointSuccess;
  return good ? reinterpret_cast<Function>(found) : nullptr;
}

inline cudaStream_t native(stream_ref stream) { return static_cast<cudaStream_t>(stream.handle); }
inline cudaEvent_t native(event_ref event) { return static_cast<cudaEvent_t>(event.handle); }

inline const char* name(status of) { return cudaGetErrorName(static_cast<cudaError_t>(of)); }
inline const char* text(status of) { return cudaGetErrorString(static_cast<cudaError_t>(of)); }

inline status count_devices(int& count) { return heard(cudaGetDeviceCount(&count)); }
inline status current_device(int& device) { return heard(cudaGetDevice(&device)); }
inline status use_device(int device) { return heard(cudaSetDevice(device)); }
inline status count_processors(int device, int& count) {
  return heard(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
}
inline status identify(int device, device_id& id) {
  cudaDeviceProp known{};
  const status result = heard(cudaGetDeviceProperties(&known, device));
  static_assert(sizeof known.uuid == sizeof id.words);
  std::memcpy(id.words, &known.uuid, sizeof id.words);
  return result;
}
inline status reach(int device) {
  int current = 0;
  const status result = heard(cudaGetDevice(&current));
  if (result != success || current == device) return result;
  const status enabled = aside([&] { return cudaDeviceEnablePeerAccess(device, 0); });
  return enabled == peers_already ? success : enabled;
}
inline status can_reach(bool& can, int device, int other) {
  int answer = 0;
  const status result = heard(cudaDeviceCanAccessPeer(&answer, device, other));
  can = result == success && answer != 0;
  return result;
}
inline status link_rank(int& rank, int device, int other) {
  return heard(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, device, other));
}
inline status host_node(int& node, [[maybe_unused]] int device) {
  node = -1;
#if CUDART_VERSION >= 12020
  return heard(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device));
#else
  return not_supported;
#endif
}
inline std::uint64_t process() {
  static const std::uint64_t drawn = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32 | random()) | 1;
  }();
  return drawn;
}

inline status allocate(void*& memory, std::size_t bytes) {
  return aside([&] { return cudaMalloc(&memory, bytes); });
}
inline status release(void* memory) {
  return aside([&] { return cudaFree(memory); });
}
inline status synchronize_device() {
  const status waited = aside([] { return cudaDeviceSynchronize(); });
  if (waited != cudaErrorStreamCaptureUnsupported) return waited;
  // CUDA waits for no device of which a stream is captured, but to free memory.
  void* some = nullptr;
  const status made = allocate(some, 1);
  return made == success ? release(some) : made;
}
inline status allocate_pinned(void*& memory, std::size_t bytes) {
  constexpr unsigned how = cudaHostAllocPortable | cudaHostAllocMapped;
  return aside([&] { return cudaHostAlloc(&memory, bytes, how); });
}
inline status release_pinned(void* memory) {
  return aside([&] { return cudaFreeHost(memory); });
}
inline status unpin(void* memory) {
  return aside([&] { return cudaHostUnregister(memory); });
}
inline status pin(void* memory, std::size_t bytes) {
  constexpr unsigned how = cudaHostRegisterPortable | cudaHostRegisterMapped;
  const status result = aside([&] { return cudaHostRegister(memory, bytes, how); });
  if (result != success) return result;
  void* there = nullptr;
  const status found = heard(cudaHostGetDevicePointer(&there, memory, 0));
  if (found == success && there == memory) return success;
  (void)unpin(memory);
  return not_supported;
}
inline status locate(const void* memory, location& found) {
  cudaPointerAttributes known{};
  const status result = heard(cudaPointerGetAttributes(&known, memory));
  if (result != success) return result;
  found.device = known.device;
  switch (known.type) {
    case cudaMemoryTypeHost:
      found.where = place::pinned;
      break;
    case cudaMemoryTypeDevice:
      found.where = place::device;
      break;
    case cudaMemoryTypeManaged:
      found.where = place::managed;
      break;
    default:
      found.where = place::other;
      break;
  }
  return success;
}

inline status find_allocation(const void* memory, allocation& found) {
  using range = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  using attribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
  static const range get_range = driver_function<range>("cuMemGetAddressRange");
  static const attribute get_attribute = driver_function<attribute>("cuPointerGetAttribute");
  if (get_range == nullptr || get_attribute == nullptr) return not_supported;
  const auto at = reinterpret_cast<CUdeviceptr>(memory);
  CUdeviceptr base = 0;
  const auto asked = static_cast<status>(get_range(&base, &found.size, at));
  if (asked != success) return asked;
  found.base = reinterpret_cast<std::byte*>(base);
  unsigned long long number = 0;
  const auto numbered =
      static_cast<status>(get_attribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
  found.number = number;
  return numbered;
}
inline status share(memory_handle& shared, void* base) {
  cudaIpcMemHandle_t made{};
  const status result = aside([&] { return cudaIpcGetMemHandle(&made, base); });
  std::memcpy(shared.words, &made, sizeof made);
  return result;
}
inline status open(void*& base, const memory_handle& shared) {
  cudaIpcMemHandle_t from{};
  std::memcpy(&from, shared.words, sizeof from);
  return aside([&] { return cudaIpcOpenMemHandle(&base, from, cudaIpcMemLazyEnablePeerAccess); });
}
inline status close(void* base) {
  return aside([&] { return cudaIpcCloseMemHandle(base); });
}

/// not_supported where the driver has no such function.
template <class Function, class... Arguments>
status by_driver(Function* function, Arguments... arguments) {
  const beside_captures guard;
  return function == nullptr ? not_supported : static_cast<status>(function(arguments...));
}
inline CUdeviceptr at(void* addresses) { return reinterpret_cast<CUdeviceptr>(addresses); }
inline CUmemAllocationProp exportable(int device) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = device;
  return kind;
}
inline status is_in_use(bool& used, int device) {
  using function = CUresult(CUdevice, unsigned*, int*);
  static function* const ask = driver_function<function*>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  const status result = by_driver(ask, device, &flags, &active);
  used = active != 0;
  return result;
}
inline status can_export(bool& can, int device) {
  using function = CUresult(int*, CUdevice_attribute, CUdevice);
  static function* const ask = driver_function<function*>("cuDeviceGetAttribute");
  can = true;
  for (const CUdevice_attribute each :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int has = 0;
    const status result = by_driver(ask, &has, each, device);
    can = can && result == success && has != 0;
    if (result != success) return result;
  }
  return success;
}
inline status find_unit(std::size_t& bytes, int device) {
  using function =
      CUresult(std::size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
  static function* const find = driver_function<function*>("cuMemGetAllocationGranularity");
  const CUmemAllocationProp kind = exportable(device);
  return by_driver(find, &bytes, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}
inline status make_physical(physical& made, std::size_t bytes, int device) {
  using function = CUresult(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                            unsigned long long);
  static function* const create = driver_function<function*>("cuMemCreate");
  const CUmemAllocationProp kind = exportable(device);
  return by_driver(create, &made.handle, bytes, &kind, 0ULL);
}
inline status export_physical(int& file, physical memory) {
  using function =
      CUresult(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
  static function* const share = driver_function<function*>("cuMemExportToShareableHandle");
  return by_driver(share, &file, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
}
inline status import_physical(physical& made, int file) {
  using function = CUresult(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType);
  static function* const adopt = driver_function<function*>("cuMemImportFromShareableHandle");
  void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
  return by_driver(adopt, &made.handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
inline status drop_physical(physical memory) {
  using function = CUresult(CUmemGenericAllocationHandle);
  static function* const drop = driver_function<function*>("cuMemRelease");
  return by_driver(drop, memory.handle);
}
inline status reserve(void*& addresses, std::size_t bytes) {
  using function =
      CUresult(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
  static function* const take = driver_function<function*>("cuMemAddressReserve");
  CUdeviceptr found = 0;
  const status result = by_driver(take, &found, bytes, std::size_t{0}, CUdeviceptr{0}, 0ULL);
  addresses = reinterpret_cast<void*>(found);
  return result;
}
inline status unreserve(void* addresses, std::size_t bytes) {
  using function = CUresult(CUdeviceptr, std::size_t);
  static function* const give = driver_function<function*>("cuMemAddressFree");
  return by_driver(give, at(addresses), bytes);
}
inline status map(void* addresses, std::size_t bytes, physical memory) {
  using function = CUresult(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                            unsigned long long);
  static function* const put = driver_function<function*>("cuMemMap");
  return by_driver(put, at(addresses), bytes, std::size_t{0}, memory.handle, 0ULL);
}
inline status unmap(void* addresses, std::size_t bytes) {
  using function = CUresult(CUdeviceptr, std::size_t);
  static function* const take_away = driver_function<function*>("cuMemUnmap");
  return by_driver(take_away, at(addresses), bytes);
}
inline status let_in(int device, void* addresses, std::size_t bytes) {
  using function = CUresult(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);
  static function* const allow = driver_function<function*>("cuMemSetAccess");
  CUmemAccessDesc who{};
  who.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  who.location.id = device;
  who.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return by_driver(allow, at(addresses), bytes, &who, std::size_t{1});
}

inline status make_stream(stream_ref& made) {
  cudaStream_t stream = nullptr;
  const status result = heard(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  made.handle = stream;
  return result;
}
inline status destroy_stream(stream_ref stream) { return heard(cudaStreamDestroy(native(stream))); }
inline status query(stream_ref stream) {
  return aside([&] { return cudaStreamQuery(native(stream)); });
}
inline status synchronize(stream_ref stream) {
  return aside([&] { return cudaStreamSynchronize(native(stream)); });
}

inline status is_captured(bool& captured, stream_ref stream) {
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const status result = heard(cudaStreamIsCapturing(native(stream), &found));
  captured = found != cudaStreamCaptureStatusNone;
  if (result != cudaErrorStreamCaptureImplicit) return result;
  captured = true;
  return success;
}
inline status device_of([[maybe_unused]] int& device, [[maybe_unused]] stream_ref stream) {
#if CUDART_VERSION >= 12080
  return heard(cudaStreamGetDevice(native(stream), &device));
#else
  return not_supported;
#endif
}

inline status make_event(event_ref& made) {
  cudaEvent_t event = nullptr;
  const status result = heard(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  made.handle = event;
  return result;
}
inline status destroy_event(event_ref event) { return heard(cudaEventDestroy(native(event))); }
inline status record(event_ref event, stream_ref stream) {
  return heard(cudaEventRecord(native(event), native(stream)));
}
inline status wait(stream_ref stream, event_ref event) {
  return heard(cudaStreamWaitEvent(native(stream), native(event), 0));
}

inline status copy(void* to, const void* from, std::size_t bytes, stream_ref stream) {
  return heard(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)));
}
inline status clear(void* to, std::size_t bytes, stream_ref stream) {
  return heard(cudaMemsetAsync(to, 0, bytes, native(stream)));
}
inline status write(std::uint32_t* pinned, std::uint32_t value, stream_ref stream) {
  using function = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
  static const function write_value = driver_function<function>("cuStreamWriteValue32");
  if (write_value == nullptr) return not_supported;
  return static_cast<status>(write_value(native(stream), reinterpret_cast<CUdeviceptr>(pinned),
                                         value, CU_STREAM_WRITE_VALUE_DEFAULT));
}
inline std::uint32_t read(const std::uint32_t* pinned) {
  return __atomic_load_n(pinned, __ATOMIC_ACQUIRE);
}
inline status call(void (*function)(void*), void* argument, stream_ref stream) {
  return heard(cudaLaunchHostFunc(native(stream), function, argument));
}

#endif

}  // namespace colls::cuda::api
