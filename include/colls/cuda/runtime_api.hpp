// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// runtime_api: wrappers of all functions of the CUDA runtime and driver that colls calls, except
// kernel launches. If COLLS_CUDA_STAND_IN is defined, this header only declares the wrappers. Tests
// define this macro and link a fake implementation of the wrappers, so they need no CUDA header.

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

/// The status of a CUDA call. The values are those of cudaError_t.
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

/// The kind of memory to which a pointer refers. `other` is memory that CUDA has neither allocated
/// nor registered.
enum class memory_type : std::uint8_t { other, pinned, device, managed };
struct location {
  memory_type type = memory_type::other;
  int device = -1;
};

/// The handle of a CUDA event.
struct event_ref {
  void* handle = nullptr;
};

/// An allocation of device memory. Its `number` differs from that of each earlier allocation
/// at the same address.
struct allocation {
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::uint64_t number = 0;
};
/// A handle with which another process on this machine can open an allocation (a CUDA IPC handle).
struct memory_handle {
  std::byte words[64] = {};
};
/// The handle of physical device memory, which has no address until it is mapped.
struct physical {
  unsigned long long handle = 0;
};
/// The UUID of a device. A device has the same UUID in all processes, even if the processes number
/// their devices differently.
struct device_id {
  std::byte words[16] = {};
  friend bool operator==(const device_id&, const device_id&) = default;
};

status count_devices(int& count);
status current_device(int& device);
status use_device(int device);
status count_processors(int device, int& count);
status identify(int device, device_id& id);
/// Lets the current device access memory that this process has allocated on `device`.
status enable_peer_access(int device);
/// Sets `used` to whether this process has an active CUDA context on `device`. Without such a
/// context, the process has no unfinished work on the device.
status is_in_use(bool& used, int device);
/// Sets `can` to whether `device` can access the memory of `other`.
status can_access_peer(bool& can, int device, int other);
/// Sets `rank` to the number with which CUDA rates the performance of the link from `device` to
/// `other` (cudaDevP2PAttrPerformanceRank). Links of equal performance have equal numbers.
status link_rank(int& rank, int device, int other);
/// Sets `node` to the NUMA node to which `device` is attached, or to -1 if CUDA cannot tell or
/// there is only one node.
status host_node(int& node, int device);
/// Waits for the work of all streams of the current device.
status synchronize_device();
/// Returns a random number that identifies this process. The number is not 0.
std::uint64_t process();

status allocate(void*& memory, std::size_t bytes);
status release(void* memory);
/// Allocates page-locked memory that is mapped into the address space of all devices.
status allocate_pinned(void*& memory, std::size_t bytes);
status release_pinned(void* memory);
/// Page-locks existing host memory and makes it accessible to devices until `unpin` is called.
/// Returns not_supported if devices would see the memory at a different address than the CPU.
status pin(void* memory, std::size_t bytes);
status unpin(void* memory);
status locate(const void* memory, location& found);

status find_allocation(const void* memory, allocation& found);
/// Sets `shared` to the handle with which other processes can open the allocation at `base`.
status share(memory_handle& shared, void* base);
/// Maps an allocation of another process, so that the current device can access it. Sets `base` to
/// the address of the mapping. This process must not open the allocation again before it has called
/// `close`.
status open(void*& base, const memory_handle& shared);
status close(void* base);

/// Sets `can` to whether physical memory of a device can be exported to other processes as file
/// descriptors.
status can_export(bool& can, int device);
/// Sets `bytes` to the granularity that CUDA recommends for the sizes of exportable memory. The
/// size that is given to `make_physical` must be a multiple of this granularity.
status find_granularity(std::size_t& bytes, int device);
/// Allocates physical memory. The memory exists until all processes have dropped its handles,
/// closed its descriptors and unmapped it.
status make_physical(physical& memory, std::size_t bytes, int device);
status export_physical(int& file, physical memory);
/// Sets `memory` to a new handle of the physical memory to which the file descriptor `file` refers.
/// This process or another process may have exported the memory. The caller still owns the file
/// descriptor.
status import_physical(physical& memory, int file);
status drop_physical(physical memory);
/// Reserves a range of addresses to which no memory is mapped yet.
status reserve(void*& addresses, std::size_t bytes);
status unreserve(void* addresses, std::size_t bytes);
/// Maps `memory` at `addresses`, which `reserve` must have returned. Devices cannot access the
/// mapping until `set_access` has been called.
status map(void* addresses, std::size_t bytes, physical memory);
/// Removes a mapping. Does not wait for work that may still access the memory.
status unmap(void* addresses, std::size_t bytes);
status set_access(int device, void* addresses, std::size_t bytes);

/// Creates a stream that does not synchronize with the default stream.
status make_stream(stream_ref& stream);
status destroy_stream(stream_ref stream);
/// Returns success if all work of the stream is done, and not_ready if some of it is not done. If
/// an error has occurred, returns that error.
status query(stream_ref stream);
status synchronize(stream_ref stream);
/// Sets `captured` to whether `stream` is being captured into a graph. CUDA forbids the use of the
/// default stream while another stream that synchronizes with it is being captured. In this case,
/// sets `captured` to true for the default stream, too.
status is_captured(bool& captured, stream_ref stream);
/// Sets `device` to the device of `stream`, which must not be the default stream. Returns
/// not_supported if CUDA cannot tell.
status device_of(int& device, stream_ref stream);

status make_event(event_ref& event);
status destroy_event(event_ref event);
status record(event_ref event, stream_ref stream);
/// Makes all work that is enqueued on `stream` after this call wait for `event`. If the event was
/// last recorded by `record(event, other)`, it completes when all work that was enqueued on `other`
/// before that call is done.
status wait(stream_ref stream, event_ref event);

status copy(void* dest, const void* source, std::size_t bytes, stream_ref stream);
/// Enqueues a memset on `stream` that sets `bytes` bytes at `dest` to 0.
status clear(void* dest, std::size_t bytes, stream_ref stream);
/// Enqueues a write of `value` to the word `*pinned` of pinned memory. The write is ordered after
/// all earlier writes of the stream. Returns not_supported if the driver or the device does not
/// support this operation.
status write(std::uint32_t* pinned, std::uint32_t value, stream_ref stream);
/// Returns the word `*pinned` of pinned memory. Reads the word with acquire order.
std::uint32_t read(const std::uint32_t* pinned);
/// Enqueues a host function. When `stream` reaches it, a thread of the CUDA driver calls
/// `function(argument)`. The function must not call CUDA.
status call(void (*function)(void*), void* argument, stream_ref stream);

#ifdef COLLS_CUDA_STAND_IN

/// Replaces a kernel launch in tests that use a fake CUDA. Copies the `bytes` bytes at `closure`
/// and enqueues one call of `body` for each simulated GPU thread. The arguments of such a call are
/// a pointer to the copy, the index of the thread, and the number of threads.
status launch(void (*body)(const void*, std::size_t, std::size_t), const void* closure,
              std::size_t bytes, std::size_t threads, stream_ref stream);

#else

static_assert(sizeof(memory_handle) == sizeof(cudaIpcMemHandle_t));

/// Returns `code`, the status of a CUDA call. If CUDA has recorded `code` as its last error, clears
/// that record, so that the user's cudaGetLastError does not report an error that colls handles
/// itself. CUDA does not record some statuses, such as cudaErrorNotReady. If `code` is one of them,
/// an earlier error of the user's own calls stays recorded.
inline status consume_error(cudaError_t code) {
  if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
  return code;
}

/// A scope in which the thread may make CUDA calls, such as allocations, while another thread
/// captures a stream into a graph. CUDA's default capture mode forbids such calls during a capture.
/// The calls do not become part of the graph.
class relaxed_capture_mode {
 public:
  relaxed_capture_mode() { exchange(); }
  relaxed_capture_mode(const relaxed_capture_mode&) = delete;
  ~relaxed_capture_mode() { exchange(); }

 private:
  void exchange() { (void)consume_error(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};
/// Runs `call()`, which makes a CUDA call, in the scope of a `relaxed_capture_mode`. Returns the
/// status of the CUDA call.
template <class Call>
status outside_capture(const Call& call) {
  const relaxed_capture_mode guard;
  return consume_error(call());
}

/// Returns a pointer to the function `name` of the CUDA driver, or null if the driver has no such
/// function. Looks the function up at run time, so that a program can also start on a machine
/// without a driver.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const status answered = consume_error(
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
  const status answered =
      consume_error(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
  const bool good = answered == success && found == cudaDriverEntryPointSuccess;
  return good ? reinterpret_cast<Function>(function) : nullptr;
}

inline cudaStream_t native(stream_ref stream) { return static_cast<cudaStream_t>(stream.handle); }
inline cudaEvent_t native(event_ref event) { return static_cast<cudaEvent_t>(event.handle); }

inline const char* name(status code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
inline const char* text(status code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

inline status count_devices(int& count) { return consume_error(cudaGetDeviceCount(&count)); }
inline status current_device(int& device) { return consume_error(cudaGetDevice(&device)); }
inline status use_device(int device) { return consume_error(cudaSetDevice(device)); }
inline status count_processors(int device, int& count) {
  return consume_error(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
}
inline status identify(int device, device_id& id) {
  cudaDeviceProp known{};
  const status result = consume_error(cudaGetDeviceProperties(&known, device));
  static_assert(sizeof known.uuid == sizeof id.words);
  std::memcpy(id.words, &known.uuid, sizeof id.words);
  return result;
}
inline status enable_peer_access(int device) {
  int current = 0;
  const status result = consume_error(cudaGetDevice(&current));
  if (result != success || current == device) return result;
  const status enabled = outside_capture([&] { return cudaDeviceEnablePeerAccess(device, 0); });
  return enabled == peers_already ? success : enabled;
}
inline status can_access_peer(bool& can, int device, int other) {
  int answer = 0;
  const status result = consume_error(cudaDeviceCanAccessPeer(&answer, device, other));
  can = result == success && answer != 0;
  return result;
}
inline status link_rank(int& rank, int device, int other) {
  return consume_error(
      cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, device, other));
}
inline status host_node(int& node, [[maybe_unused]] int device) {
  node = -1;
#if CUDART_VERSION >= 12020
  return consume_error(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device));
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
  return outside_capture([&] { return cudaMalloc(&memory, bytes); });
}
inline status release(void* memory) {
  return outside_capture([&] { return cudaFree(memory); });
}
inline status synchronize_device() {
  const status waited = outside_capture([] { return cudaDeviceSynchronize(); });
  if (waited != cudaErrorStreamCaptureUnsupported) return waited;
  // CUDA rejects cudaDeviceSynchronize while a stream of the device is being captured. But cudaFree
  // still waits for the device. Therefore this function allocates one byte and frees it.
  void* memory = nullptr;
  const status allocated = allocate(memory, 1);
  return allocated == success ? release(memory) : allocated;
}
inline status allocate_pinned(void*& memory, std::size_t bytes) {
  constexpr unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
  return outside_capture([&] { return cudaHostAlloc(&memory, bytes, flags); });
}
inline status release_pinned(void* memory) {
  return outside_capture([&] { return cudaFreeHost(memory); });
}
inline status unpin(void* memory) {
  return outside_capture([&] { return cudaHostUnregister(memory); });
}
inline status pin(void* memory, std::size_t bytes) {
  constexpr unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  const status result = outside_capture([&] { return cudaHostRegister(memory, bytes, flags); });
  if (result != success) return result;
  void* mapped = nullptr;
  const status found = consume_error(cudaHostGetDevicePointer(&mapped, memory, 0));
  if (found == success && mapped == memory) return success;
  (void)unpin(memory);
  return not_supported;
}
inline status locate(const void* memory, location& found) {
  cudaPointerAttributes known{};
  const status result = consume_error(cudaPointerGetAttributes(&known, memory));
  if (result != success) return result;
  found.device = known.device;
  switch (known.type) {
    case cudaMemoryTypeHost:
      found.type = memory_type::pinned;
      break;
    case cudaMemoryTypeDevice:
      found.type = memory_type::device;
      break;
    case cudaMemoryTypeManaged:
      found.type = memory_type::managed;
      break;
    default:
      found.type = memory_type::other;
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
  const auto pointer = reinterpret_cast<CUdeviceptr>(memory);
  CUdeviceptr base = 0;
  const auto answered = static_cast<status>(get_range(&base, &found.size, pointer));
  if (answered != success) return answered;
  found.base = reinterpret_cast<std::byte*>(base);
  unsigned long long number = 0;
  const auto numbered =
      static_cast<status>(get_attribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
  found.number = number;
  return numbered;
}
inline status share(memory_handle& shared, void* base) {
  cudaIpcMemHandle_t handle{};
  const status result = outside_capture([&] { return cudaIpcGetMemHandle(&handle, base); });
  std::memcpy(shared.words, &handle, sizeof handle);
  return result;
}
inline status open(void*& base, const memory_handle& shared) {
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, shared.words, sizeof handle);
  return outside_capture(
      [&] { return cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess); });
}
inline status close(void* base) {
  return outside_capture([&] { return cudaIpcCloseMemHandle(base); });
}

/// Calls `function`, a function of the CUDA driver, in the scope of a `relaxed_capture_mode`.
/// Returns the status of this call. If the driver does not have the function, `function` is null.
/// In this case, returns not_supported.
template <class Function, class... Arguments>
status call_driver(Function* function, Arguments... arguments) {
  const relaxed_capture_mode guard;
  return function == nullptr ? not_supported : static_cast<status>(function(arguments...));
}
inline CUdeviceptr device_pointer(void* addresses) {
  return reinterpret_cast<CUdeviceptr>(addresses);
}
inline CUmemAllocationProp exportable_properties(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}
inline status is_in_use(bool& used, int device) {
  using function = CUresult(CUdevice, unsigned*, int*);
  static function* const ask = driver_function<function*>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  const status result = call_driver(ask, device, &flags, &active);
  used = active != 0;
  return result;
}
inline status can_export(bool& can, int device) {
  using function = CUresult(int*, CUdevice_attribute, CUdevice);
  static function* const ask = driver_function<function*>("cuDeviceGetAttribute");
  can = true;
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int has = 0;
    const status result = call_driver(ask, &has, attribute, device);
    can = can && result == success && has != 0;
    if (result != success) return result;
  }
  return success;
}
inline status find_granularity(std::size_t& bytes, int device) {
  using function =
      CUresult(std::size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
  static function* const find = driver_function<function*>("cuMemGetAllocationGranularity");
  const CUmemAllocationProp properties = exportable_properties(device);
  return call_driver(find, &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}
inline status make_physical(physical& memory, std::size_t bytes, int device) {
  using function = CUresult(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                            unsigned long long);
  static function* const create = driver_function<function*>("cuMemCreate");
  const CUmemAllocationProp properties = exportable_properties(device);
  return call_driver(create, &memory.handle, bytes, &properties, 0ULL);
}
inline status export_physical(int& file, physical memory) {
  using function =
      CUresult(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
  static function* const share = driver_function<function*>("cuMemExportToShareableHandle");
  return call_driver(share, &file, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
}
inline status import_physical(physical& memory, int file) {
  using function = CUresult(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType);
  static function* const adopt = driver_function<function*>("cuMemImportFromShareableHandle");
  void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
  return call_driver(adopt, &memory.handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
inline status drop_physical(physical memory) {
  using function = CUresult(CUmemGenericAllocationHandle);
  static function* const drop = driver_function<function*>("cuMemRelease");
  return call_driver(drop, memory.handle);
}
inline status reserve(void*& addresses, std::size_t bytes) {
  using function =
      CUresult(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
  static function* const take = driver_function<function*>("cuMemAddressReserve");
  CUdeviceptr found = 0;
  const status result = call_driver(take, &found, bytes, std::size_t{0}, CUdeviceptr{0}, 0ULL);
  addresses = reinterpret_cast<void*>(found);
  return result;
}
inline status unreserve(void* addresses, std::size_t bytes) {
  using function = CUresult(CUdeviceptr, std::size_t);
  static function* const give = driver_function<function*>("cuMemAddressFree");
  return call_driver(give, device_pointer(addresses), bytes);
}
inline status map(void* addresses, std::size_t bytes, physical memory) {
  using function = CUresult(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                            unsigned long long);
  static function* const map_memory = driver_function<function*>("cuMemMap");
  return call_driver(map_memory, device_pointer(addresses), bytes, std::size_t{0}, memory.handle,
                     0ULL);
}
inline status unmap(void* addresses, std::size_t bytes) {
  using function = CUresult(CUdeviceptr, std::size_t);
  static function* const unmap_memory = driver_function<function*>("cuMemUnmap");
  return call_driver(unmap_memory, device_pointer(addresses), bytes);
}
inline status set_access(int device, void* addresses, std::size_t bytes) {
  using function = CUresult(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);
  static function* const allow = driver_function<function*>("cuMemSetAccess");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return call_driver(allow, device_pointer(addresses), bytes, &access, std::size_t{1});
}

inline status make_stream(stream_ref& stream) {
  cudaStream_t handle = nullptr;
  const status result = consume_error(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  stream.handle = handle;
  return result;
}
inline status destroy_stream(stream_ref stream) {
  return consume_error(cudaStreamDestroy(native(stream)));
}
inline status query(stream_ref stream) {
  return outside_capture([&] { return cudaStreamQuery(native(stream)); });
}
inline status synchronize(stream_ref stream) {
  return outside_capture([&] { return cudaStreamSynchronize(native(stream)); });
}

inline status is_captured(bool& captured, stream_ref stream) {
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const status result = consume_error(cudaStreamIsCapturing(native(stream), &found));
  captured = found != cudaStreamCaptureStatusNone;
  if (result != cudaErrorStreamCaptureImplicit) return result;
  captured = true;
  return success;
}
inline status device_of([[maybe_unused]] int& device, [[maybe_unused]] stream_ref stream) {
#if CUDART_VERSION >= 12080
  return consume_error(cudaStreamGetDevice(native(stream), &device));
#else
  return not_supported;
#endif
}

inline status make_event(event_ref& event) {
  cudaEvent_t handle = nullptr;
  const status result = consume_error(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming));
  event.handle = handle;
  return result;
}
inline status destroy_event(event_ref event) {
  return consume_error(cudaEventDestroy(native(event)));
}
inline status record(event_ref event, stream_ref stream) {
  return consume_error(cudaEventRecord(native(event), native(stream)));
}
inline status wait(stream_ref stream, event_ref event) {
  return consume_error(cudaStreamWaitEvent(native(stream), native(event), 0));
}

inline status copy(void* dest, const void* source, std::size_t bytes, stream_ref stream) {
  return consume_error(cudaMemcpyAsync(dest, source, bytes, cudaMemcpyDefault, native(stream)));
}
inline status clear(void* dest, std::size_t bytes, stream_ref stream) {
  return consume_error(cudaMemsetAsync(dest, 0, bytes, native(stream)));
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
  return consume_error(cudaLaunchHostFunc(native(stream), function, argument));
}

#endif

}  // namespace colls::cuda::api
