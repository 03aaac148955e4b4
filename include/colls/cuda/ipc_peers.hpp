// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ipc_peers: the state that one rank needs to access the device memory of other ranks on its
// machine, and to let these ranks access its own device memory. The rank permits access by remote
// keys, which it opens and closes. The rank's guard page (see guard_page.hpp) records which ranks
// access the memory.

#include <colls/base/log.hpp>
#include <colls/os/fd_mailbox.hpp>
#include <colls/cuda/guard_page.hpp>
#include <colls/cuda/ipc_memory.hpp>
#include <colls/cuda/stream.hpp>

#include <map>
#include <optional>

namespace colls::cuda {

/// The maximum number of ranks that can access each other's device memory. A kernel has at
/// most this many inputs.
inline constexpr int max_ipc_ranks = 8;

/// The condition under which an all_reduce uses the ring (ipc_ring.hpp): never, only if the ring
/// reduces the traffic between NUMA nodes, or always. If the ranks have different values, the
/// smallest of these values applies to all ranks.
enum class ring_use : std::int64_t { never, between_nodes, always };

/// The message with which each rank describes itself and its buffers to all other ranks before any
/// data moves. A rank sends the message when its input is complete and its output may be
/// overwritten.
struct peer_info {
  std::uint64_t process = 0;
  api::device_id gpu;
  std::int64_t device = 0;
  std::int64_t node = -1;         // the NUMA node of the rank's GPU, or -1 if unknown
  std::int64_t links_differ = 0;  // 1 if links to other GPUs differ in performance
  ring_use ring = ring_use::never;
  remote_key key = 0;  // the key of the exposed buffers, or 0 if nothing is exposed
  guard_address guard;
  std::uint64_t mailbox = 0;  // the name of the rank's mailbox for descriptors, or 0 if it has none
  remote_buffer in;
  remote_buffer out;
};

/// The reason why a rank cannot map the memory that a peer exposes, and a hint for the user.
struct refusal {
  const char* reason = "";
  const char* hint = "";
};

/// The state that all calls of one rank share: the descriptions of its own device memory, the
/// mappings of other ranks' device memory, the access guards, and the streams.
class ipc_peers {
 public:
  ipc_peers(int device, int rank, int ranks)
      : rank_(rank),
        ranks_(ranks),
        guard_(ranks, process_),
        guard_registration_(register_page(device, guard_)),
        streams_(device),
        work_stream_(device, guard_.progress(), static_cast<bool>(guard_registration_)) {
    check(api::identify(device, gpu_), "cudaGetDeviceProperties");
    find_links();
  }
  ipc_peers(const ipc_peers&) = delete;
  ~ipc_peers() {
    int before = work_stream_.device();
    (void)api::current_device(before);
    (void)api::use_device(work_stream_.device());
    mapped_.close_all();
    restore_device(before);
  }

  /// Returns a pool of streams. A call takes a stream from this pool and makes this stream wait for
  /// the work that the user has already enqueued on the stream `options.stream`.
  stream_pool& streams() { return streams_; }
  /// Returns the stream that does the work of every `ipc_operation` of this rank. This stream waits
  /// for no other stream.
  stream& work_stream() { return work_stream_; }
  guard_page& own_guard() { return guard_; }
  /// Closes the key of an operation that did not complete. Then waits until no peer accesses the
  /// memory that the operation exposed. A peer that has already enqueued its accesses on a stream
  /// need not do anything more, because the GPU completes the work of the stream in any case.
  /// Returns false if a peer may still access the memory, for example because the peer's process is
  /// stopped.
  bool revoke(remote_key key) {
    const auto has_reached = [this](int rank, std::uint32_t value) {
      const auto found = guards_.find(rank);
      return found != guards_.end() && found->second &&
             progress_counter{found->second.progress()}.has_reached(value);
    };
    return guard_.revoke(key, guard_page::wait_policy::while_alive, has_reached);
  }
  /// Waits until this rank's accesses to the memory of its peers are done, and then leaves the
  /// guards of all peers.
  void quiesce() {
    (void)api::synchronize(work_stream_.ref());  // Model step: quiesce_waits
    // Model step: quiesce_leaves
    for (auto& [rank, theirs] : guards_) theirs.leave_entirely(rank_);
    ++quiesce_count_;
  }
  /// Returns how often `quiesce` has been called. An operation reads this number before it enters
  /// the guards of its peers. If the number has changed when the operation wants to leave these
  /// guards, `quiesce` has already left them.
  std::uint64_t quiesce_count() const { return quiesce_count_; }
  int rank() const { return rank_; }
  std::uint64_t process() const { return process_; }

  /// Returns a description of this rank that exposes no buffers.
  peer_info self_info() const {
    peer_info info;
    info.process = process_;
    info.gpu = gpu_;
    info.device = work_stream_.device();
    info.node = node_;
    info.links_differ = links_differ_ ? 1 : 0;
    info.mailbox = mailbox_.name();
    return info;
  }
  /// Opens a key for the buffers `in` and `out`. Returns a description of this rank that contains
  /// the key and the buffers. If no key can be opened, the description contains no buffers and its
  /// key is 0.
  peer_info expose(const_bytes in, const_bytes out) {
    peer_info info = self_info();
    info.key = guard_.open_key();
    if (info.key == 0) return info;
    info.guard = guard_.address();
    info.in = handles_.describe(in);
    info.out = handles_.describe(out);
    return info;
  }

  remote_buffer describe(const_bytes data) { return handles_.describe(data); }

  /// Returns this process's mapping of the guard of `rank`, or null if this process cannot map that
  /// guard. `peer` is the description that `rank` has sent.
  guard_page_view* guard_of(int rank, const peer_info& peer) {
    guard_page_view& view = guards_[rank];
    if (!view.refers_to(peer.guard)) view = guard_page_view(peer.guard, ranks_);
    return view ? &view : nullptr;
  }

  /// Allocates device memory with undefined contents. Other ranks can map the memory through a file
  /// descriptor. If CUDA does not support such descriptors, logs a warning and allocates memory
  /// that other ranks can map through a CUDA IPC handle. Throws if there is not enough memory.
  std::shared_ptr<std::byte> allocate(std::size_t size, exportable_memory::usage kind) {
    const on_device device_guard(work_stream_.device());
    if (exports_) {
      bool can = false;
      api::status result = api::can_export(can, work_stream_.device());
      if (result == api::success && !can) result = api::not_supported;
      if (result == api::success) {
        std::shared_ptr<std::byte> memory =
            exportable_memory::allocate(size, work_stream_.device(), kind, result);
        if (memory != nullptr) return memory;
      }
      if (result == api::out_of_memory) check(result, "cuMemCreate");
      stop_exporting(api::text(result));
    }
    const auto buffer = std::make_shared<device_buffer<std::byte>>(size);
    return {buffer, buffer->data()};
  }
  /// Makes all later calls of `allocate` use cudaMalloc. Logs `reason` in a warning, unless this
  /// function has been called before.
  void stop_exporting(const char* reason) {
    if (!std::exchange(exports_, false)) return;
    log_warn("rank %d shares what it allocates by handles of CUDA's IPC, not by descriptors: %s",
             rank_, reason);
  }
  /// Sends a descriptor of the memory of `buffer`, a buffer of this rank, to the process of `peer`.
  /// Does nothing if the peer is in this process or does not map this buffer by a descriptor.
  void send_descriptor(const peer_info& peer, const remote_buffer& buffer) const {
    if (buffer.is_exportable == 0 || peer.process == process_) return;
    const on_device device_guard(work_stream_.device());
    const fd_label label{process_, buffer.allocation_number};
    exportable_memory::use_descriptor(
        buffer.allocation_base, buffer.allocation_number, [&](int fd) {
          (void)fd_mailbox::send(peer.mailbox, label,
                                 fd);  // not checked, because the peer detects a missing descriptor
        });
  }

  /// Maps `buffer`, a buffer of `peer`, and returns the address of the buffer in this process. If
  /// the buffer is in another process, appends its mapping to `mappings`. If the buffer cannot be
  /// mapped, returns null and sets `refused` to the reason. `is_sent` says whether the peer has
  /// sent the descriptor of the buffer.
  std::byte* map_buffer(const peer_info& peer, const remote_buffer& buffer, bool is_sent,
                        std::vector<mapped_memory::mapping*>& mappings, refusal& refused) {
    constexpr const char* no_peers =
        "GPUs that are not the same have to reach each other (nvidia-smi topo -p2p rw)";
    const bool is_of_this_process = peer.process == process_;
    if (is_of_this_process && peer.device == work_stream_.device()) {
      return reinterpret_cast<std::byte*>(buffer.address);
    }
    // Other processes cannot open memory from pools or memory that the user has mapped, so
    // `share_status` is an error for such memory. CUDA's peer access does not cover such memory
    // either, so the other devices of this process cannot access it. Therefore this check comes
    // before the code that enables peer access.
    auto result = static_cast<api::status>(buffer.share_status);
    if (result != api::success) {
      refused = {
          api::text(result),
          "others see memory of cudaMalloc or allocate, no managed memory, no pool and nothing "
          "that a program has mapped itself"};
      return nullptr;
    }
    if (is_of_this_process) {
      const auto [access, is_new] = peer_access_.try_emplace(static_cast<int>(peer.device));
      if (is_new) access->second = api::enable_peer_access(access->first);
      result = access->second;
      if (result == api::success) return reinterpret_cast<std::byte*>(buffer.address);
      refused = {api::text(result), no_peers};
      return nullptr;
    }
    colls::detail::descriptor fd;
    if (is_sent && buffer.is_exportable != 0)
      fd = mailbox_.take({peer.process, buffer.allocation_number});
    mapped_memory::mapping* const found =
        mapped_.acquire(peer.process, buffer, fd, work_stream_.device(), result);
    if (found != nullptr) {
      mappings.push_back(found);
      return static_cast<std::byte*>(found->base) + (buffer.address - buffer.allocation_base);
    }
    if (result == mapped_memory::needs_descriptor) {
      refused = {"it has not received a descriptor",
                 "both have to be in one network namespace, of one user, with descriptors to spare "
                 "(ulimit -n)"};
    } else if (buffer.is_exportable != 0) {
      refused = {api::text(result), no_peers};
    } else {
      refused = {api::text(result),
                 "both have to be in one ipc namespace, and see GPUs that reach each other "
                 "(CUDA_VISIBLE_DEVICES, nvidia-smi topo -p2p rw)"};
    }
    return nullptr;
  }

  /// Logs that this rank cannot map the memory of `rank`, and that therefore the operation in
  /// `record` and similar operations are staged (their data is copied through host memory). The
  /// warning contains the reason and the hint in `refused`. Only the first call of this function
  /// logs anything.
  void log_refusal(const operation_record& record, int rank, const refusal& refused) {
    if (std::exchange(refusal_logged_, true)) return;
    log_warn(
        "rank %d cannot work in device memory of rank %d, so %s #%llu on communicator %x and "
        "calls like it are staged through the host: %s. Hint: %s",
        rank_, rank, colls::name(record.operation),
        static_cast<unsigned long long>(record.sequence), record.communicator->id(), refused.reason,
        refused.hint);
  }

 private:
  /// Sets `node_` to the NUMA node of this rank's device, or to -1 if CUDA does not know the node.
  /// Compares the performance of the links from this device to the other devices of this process.
  /// Sets `links_differ_` to true if any two links differ. Ignores a link if CUDA does not know its
  /// performance.
  void find_links() {
    const int device = work_stream_.device();
    if (api::host_node(node_, device) != api::success) node_ = -1;
    int count = 0;
    (void)api::count_devices(count);
    std::optional<int> first;
    for (int other = 0; other < count; ++other) {
      int rank = 0;
      if (other == device || api::link_rank(rank, device, other) != api::success) continue;
      links_differ_ |= first.value_or(rank) != rank;
      first = rank;
    }
  }
  static host_registration register_page(int device, const guard_page& guard) {
    const on_device device_guard(device);
    return host_registration(guard.memory());
  }

  int rank_;
  int ranks_;
  std::uint64_t process_ = api::process();
  api::device_id gpu_;
  int node_ = -1;
  bool links_differ_ = false;
  guard_page guard_;
  host_registration guard_registration_;  // registers the page to which `work_stream_` writes
  fd_mailbox mailbox_;
  std::map<int, guard_page_view> guards_;
  std::map<int, api::status> peer_access_;  // for each device, the result of enabling access
  handle_cache handles_;
  std::uint64_t quiesce_count_ = 0;
  bool refusal_logged_ = false;
  bool exports_ = true;
  mapped_memory mapped_;
  stream_pool streams_;
  stream work_stream_;
};

}  // namespace colls::cuda
