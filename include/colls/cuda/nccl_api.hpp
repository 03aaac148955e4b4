// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// nccl_api: wrappers of all NCCL functions that colls calls. If COLLS_CUDA_STAND_IN is defined, the
// wrappers are only declared; a test then links a fake implementation of them and needs no NCCL
// header.

#include <colls/cuda/runtime_api.hpp>

#ifndef COLLS_CUDA_STAND_IN
#if !__has_include(<nccl.h>)
#error "colls/cuda/nccl.hpp needs NCCL's header: -I the folder of nccl.h, and link with -lnccl"
#endif
#include <nccl.h>
#endif

namespace colls::cuda::nccl_api {

/// A status of NCCL, with the values of ncclResult_t.
using status = int;
inline constexpr status success = 0;
inline constexpr status unhandled_cuda_error = 1;
inline constexpr status system_error = 2;
inline constexpr status internal_error = 3;
inline constexpr status invalid_argument = 4;
inline constexpr status invalid_usage = 5;
inline constexpr status remote_error = 6;
inline constexpr status in_progress = 7;

const char* text(status);

/// The element types of NCCL, with the values of ncclDataType_t.
enum class type : int {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16
};
/// The reduction operations of NCCL, with the values of ncclRedOp_t.
enum class op : int { sum, prod, max, min, avg };

/// The handle of an NCCL communicator.
struct comm_ref {
  void* handle = nullptr;
};
struct unique_id {
  char bytes[128];
};

/// Sets `number` to the version of NCCL, which is 22809 for NCCL 2.28.9, for example.
status version(int& number);
status make_id(unique_id& id);
/// Creates a non-blocking communicator. If this function or a later call on the communicator
/// returns in_progress, the caller must call `async_error` until it no longer reports in_progress.
/// Until then, the caller must not use the communicator for anything else.
status make_comm(comm_ref& comm, int ranks, const unique_id& id, int rank);
status async_error(comm_ref comm, status& state);
/// Aborts the operations that are in flight on the device, and frees the communicator.
status abort(comm_ref comm);
/// Begins the orderly destruction of the communicator: makes NCCL deliver the data that this rank
/// has sent. When this is done, the caller must call `destroy`.
status finalize(comm_ref comm);
status destroy(comm_ref comm);

/// Begins a group. Calls between `group_start` and `group_end` are enqueued together.
status group_start();
status group_end();
status all_reduce(const void* in, void* out, std::size_t count, type element, op operation,
                  comm_ref comm, stream_ref stream);
status reduce(const void* in, void* out, std::size_t count, type element, op operation, int root,
              comm_ref comm, stream_ref stream);
status reduce_scatter(const void* in, void* out, std::size_t count_of_out, type element,
                      op operation, comm_ref comm, stream_ref stream);
status broadcast(const void* in, void* out, std::size_t bytes, int root, comm_ref comm,
                 stream_ref stream);
status all_gather(const void* in, void* out, std::size_t bytes_of_in, comm_ref comm,
                  stream_ref stream);
status send(const void* data, std::size_t bytes, int peer, comm_ref comm, stream_ref stream);
status recv(void* data, std::size_t bytes, int peer, comm_ref comm, stream_ref stream);

/// Returns whether NCCL's header declares the functions that `gather`, `scatter` and `all_to_all`
/// call. The header declares these functions in NCCL 2.28 and later. With an older header, these
/// three wrappers return invalid_usage.
bool has_blocks();
/// Gathers the blocks of all ranks, which have equal sizes, into `blocks` on the root. The root's
/// own block may already be at its place in `blocks`.
status gather(const void* block, void* blocks, std::size_t bytes_of_block, int root, comm_ref comm,
              stream_ref stream);
status scatter(const void* blocks, void* block, std::size_t bytes_of_block, int root, comm_ref comm,
               stream_ref stream);
/// Sends one block to each rank and receives one from each rank. All blocks have equal sizes. `in`
/// and `out` must not overlap.
status all_to_all(const void* in, void* out, std::size_t bytes_of_block, comm_ref comm,
                  stream_ref stream);

#ifdef COLLS_CUDA_STAND_IN

inline constexpr int header_version = 22809;

#else

inline constexpr int header_version = NCCL_VERSION_CODE;

static_assert(ncclInProgress == in_progress && ncclRemoteError == remote_error &&
              ncclInvalidUsage == invalid_usage);
static_assert(ncclInt8 == static_cast<int>(type::int8) &&
              ncclUint64 == static_cast<int>(type::uint64) &&
              ncclFloat16 == static_cast<int>(type::float16) &&
              ncclFloat64 == static_cast<int>(type::float64) &&
              ncclBfloat16 == static_cast<int>(type::bfloat16));
static_assert(ncclSum == static_cast<int>(op::sum) && ncclProd == static_cast<int>(op::prod) &&
              ncclMax == static_cast<int>(op::max) && ncclMin == static_cast<int>(op::min) &&
              ncclAvg == static_cast<int>(op::avg));
static_assert(sizeof(ncclUniqueId) == sizeof(unique_id));

inline ncclComm_t native(comm_ref comm) { return static_cast<ncclComm_t>(comm.handle); }
inline ncclDataType_t native(type element) { return static_cast<ncclDataType_t>(element); }
inline ncclRedOp_t native(op operation) { return static_cast<ncclRedOp_t>(operation); }

inline const char* text(status code) { return ncclGetErrorString(static_cast<ncclResult_t>(code)); }

inline status version(int& number) { return ncclGetVersion(&number); }
inline status make_id(unique_id& id) {
  return ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(&id));
}
inline status make_comm(comm_ref& comm, int ranks, const unique_id& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t handle = nullptr;
  const status result = ncclCommInitRankConfig(
      &handle, ranks, *reinterpret_cast<const ncclUniqueId*>(&id), rank, &config);
  comm.handle = handle;
  return result;
}
inline status async_error(comm_ref comm, status& state) {
  ncclResult_t result = ncclSuccess;
  const status returned = ncclCommGetAsyncError(native(comm), &result);
  state = result;
  return returned;
}
inline status abort(comm_ref comm) { return ncclCommAbort(native(comm)); }
inline status finalize(comm_ref comm) { return ncclCommFinalize(native(comm)); }
inline status destroy(comm_ref comm) { return ncclCommDestroy(native(comm)); }

inline status group_start() { return ncclGroupStart(); }
inline status group_end() { return ncclGroupEnd(); }
inline status all_reduce(const void* in, void* out, std::size_t count, type element, op operation,
                         comm_ref comm, stream_ref stream) {
  return ncclAllReduce(in, out, count, native(element), native(operation), native(comm),
                       api::native(stream));
}
inline status reduce(const void* in, void* out, std::size_t count, type element, op operation,
                     int root, comm_ref comm, stream_ref stream) {
  return ncclReduce(in, out, count, native(element), native(operation), root, native(comm),
                    api::native(stream));
}
inline status reduce_scatter(const void* in, void* out, std::size_t count_of_out, type element,
                             op operation, comm_ref comm, stream_ref stream) {
  return ncclReduceScatter(in, out, count_of_out, native(element), native(operation), native(comm),
                           api::native(stream));
}
inline status broadcast(const void* in, void* out, std::size_t bytes, int root, comm_ref comm,
                        stream_ref stream) {
  return ncclBroadcast(in, out, bytes, ncclInt8, root, native(comm), api::native(stream));
}
inline status all_gather(const void* in, void* out, std::size_t bytes_of_in, comm_ref comm,
                         stream_ref stream) {
  return ncclAllGather(in, out, bytes_of_in, ncclInt8, native(comm), api::native(stream));
}
inline status send(const void* data, std::size_t bytes, int peer, comm_ref comm,
                   stream_ref stream) {
  return ncclSend(data, bytes, ncclInt8, peer, native(comm), api::native(stream));
}
inline status recv(void* data, std::size_t bytes, int peer, comm_ref comm, stream_ref stream) {
  return ncclRecv(data, bytes, ncclInt8, peer, native(comm), api::native(stream));
}

#if NCCL_VERSION_CODE >= 22800
inline bool has_blocks() { return true; }
inline status gather(const void* block, void* blocks, std::size_t bytes_of_block, int root,
                     comm_ref comm, stream_ref stream) {
  return ncclGather(block, blocks, bytes_of_block, ncclInt8, root, native(comm),
                    api::native(stream));
}
inline status scatter(const void* blocks, void* block, std::size_t bytes_of_block, int root,
                      comm_ref comm, stream_ref stream) {
  return ncclScatter(blocks, block, bytes_of_block, ncclInt8, root, native(comm),
                     api::native(stream));
}
inline status all_to_all(const void* in, void* out, std::size_t bytes_of_block, comm_ref comm,
                         stream_ref stream) {
  return ncclAlltoAll(in, out, bytes_of_block, ncclInt8, native(comm), api::native(stream));
}
#else
inline bool has_blocks() { return false; }
inline status gather(const void*, void*, std::size_t, int, comm_ref, stream_ref) {
  return invalid_usage;
}
inline status scatter(const void*, void*, std::size_t, int, comm_ref, stream_ref) {
  return invalid_usage;
}
inline status all_to_all(const void*, void*, std::size_t, comm_ref, stream_ref) {
  return invalid_usage;
}
#endif

#endif

}  // namespace colls::cuda::nccl_api
