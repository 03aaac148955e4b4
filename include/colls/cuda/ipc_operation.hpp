// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ipc_operation: one collective of ranks that map each other's device memory. On each GPU, one rank
// is the worker. It enqueues kernels and copies on its stream, and these do the work of all ranks
// on that GPU. The other ranks wait for messages from the workers. No stream waits for another
// process, because that process may die.

#include <colls/algorithm/exposure_protocol.hpp>
#include <colls/cuda/ipc_peers.hpp>

namespace colls::cuda {

/// One rank's part in one operation. If the operation did not complete, the destructor waits until
/// this rank no longer accesses the peers' buffers, and then until the peers no longer access this
/// rank's buffers. If a peer's process is stopped, the destructor may stop waiting for this peer.
/// It then logs a warning.
template <channel Channel>
class ipc_operation {
 public:
  /// Exposes the buffers `in` and `out` to the peers if `is_suitable` is true. `is_suitable` says
  /// whether the operation can use these buffers. If it is false on any rank, `begin` returns false
  /// on all ranks. The caller must then stage the operation, that is, copy its data through host
  /// memory.
  ipc_operation(Channel net, ipc_peers& peers, const_bytes in, const_bytes out, bool is_suitable,
                ring_use ring = ring_use::never)
      : net_(net),
        peers_(peers),
        infos_(static_cast<std::size_t>(net.size())),
        in_(infos_.size()),
        out_(infos_.size()) {
    const on_device guard(peers.work_stream().device());
    if (is_suitable) infos_[own()] = peers.expose(in, out);
    infos_[own()].ring = ring;
    in_[own()] = const_cast<std::byte*>(in.data);
    out_[own()] = const_cast<std::byte*>(out.data);
  }
  ipc_operation(const ipc_operation&) = delete;
  ~ipc_operation() {
    const bool is_interrupted = infos_[own()].key != 0;
    // In `revoke`, this rank waits for its peers and cannot leave their guards. Two ranks could
    // therefore wait for each other in `revoke` forever. To prevent this, `quiesce` waits until
    // this rank's accesses to the memory of its peers are done, and then leaves the peers' guards.
    if (is_interrupted) peers_.quiesce();
    for (mapped_memory::mapping* const used : mappings_) mapped_memory::release(*used);
    if (!is_interrupted) return;
    if (peers_.revoke(infos_[own()].key)) return;
    log_warn("rank %d ends an operation while another rank may still work in its device memory",
             peers_.rank());
  }

  /// Exchanges descriptions of the buffers with all ranks and, on a worker, maps the buffers of the
  /// peers. Must be called when this rank's input is complete and its output may be overwritten.
  /// Returns true if all ranks expose their buffers and all workers have mapped them, otherwise
  /// false. The result is equal on all ranks.
  task<bool> begin() {
    co_await exchange(0, bytes_of(infos_[own()]), bytes_of(infos_[0]).data);
    bool can_run = true;
    for (const peer_info& info : infos_) can_run &= info.key != 0;
    if (can_run) {
      std::vector<access> accesses(infos_.size(), access::none);
      accesses[own()] = map_peers(false);
      co_await exchange_access(1, accesses);
      if (worst(accesses) == access::needs_descriptor) {
        send_descriptors(accesses);
        co_await exchange(3, const_bytes(), nullptr);
        accesses[own()] = map_peers(true);
        co_await exchange_access(4, accesses);
        if (worst(accesses) == access::needs_descriptor)
          peers_.stop_exporting("a descriptor was not taken");
      }
      can_run = worst(accesses) == access::full;
      if (!can_run && accesses[own()] == worst(accesses))
        peers_.log_refusal(net_.record(), refused_rank_, refusal_);
    }
    if (!can_run) close_key();
    co_return can_run;
  }

  /// Ends the operation without doing its work. After `begin` has returned true, either all ranks
  /// call `decline`, or no rank calls it.
  void decline() { close_key(); }
  /// If this rank is a worker, calls `work(*this)`, which enqueues the work. Completes when all
  /// workers have done their work.
  template <class Work>
  task<> run(const Work& work) {
    if (works()) co_await run_part(work);
    co_await end();
  }
  /// Performs a part of this rank's work. Calls `work(*this)`, which enqueues the part on the work
  /// stream, and waits until the stream has done it. After the last part, the caller must call
  /// `end`.
  template <class Work>
  task<> run_part(const Work& work) {
    const std::uint64_t quiesce_count = peers_.quiesce_count();
    const bool is_open = enter();
    if (is_open) {
      try {
        {
          const on_device guard(peers_.work_stream().device());
          work(*this);  // Model step: work
        }
        co_await peers_.work_stream().reached();
      } catch (const error& thrown) {
        // The exception alone would end only this part of the operation. Therefore this function
        // revokes the operation, so that all other parts fail too, on this rank and on its peers.
        peers_.quiesce();
        net_.revoke(thrown.record());
        throw;
      }
    }
    // Each peer's guard counts the operations of this rank that may access the peer's memory. If
    // another call has called `quiesce` since this function began, `quiesce` has already set these
    // counts to 0. They must then not be decremented again.
    if (quiesce_count == peers_.quiesce_count()) leave_all_guards();
    if (is_open) co_return;
    // A peer has closed its key, because the operation has failed on that peer. The peer will
    // revoke the operation, but only after all ranks have stopped accessing the peer's memory.
    co_await exposure_protocol::await_revocation(net_, (net_.rank() + 1) % net_.size());
  }
  /// Waits until all ranks have done their work. Must be called after this rank has done its own
  /// work.
  task<> end() {
    co_await exchange(2, const_bytes(), nullptr);
    close_key();
  }

  const Channel& net() const { return net_; }
  const std::vector<peer_info>& infos() const { return infos_; }

  /// Returns the worker that does the work of `rank`. This worker is the lowest rank on the GPU of
  /// `rank`.
  int worker_for(int rank) const {
    int first = 0;
    while (!(infos_[index(first)].gpu == infos_[index(rank)].gpu)) ++first;
    return first;
  }
  bool works_for(int rank) const { return worker_for(rank) == net_.rank(); }
  bool works() const { return works_for(net_.rank()); }
  /// Returns the number of workers. There is one worker on each GPU that the ranks use.
  /// `worker_index` returns the number of workers whose rank is lower than this rank.
  int workers() const { return workers_before(net_.size()); }
  int worker_index() const { return workers_before(net_.rank()); }

  std::byte* in(int rank) const { return in_[index(rank)]; }
  std::byte* out(int rank) const { return out_[index(rank)]; }

  void copy(std::byte* dest, const std::byte* source, std::size_t size) {
    if (dest == source || size == 0) return;
    peers_.work_stream().copy(dest, source, size);
    count_bytes(size);
  }
  /// Enqueues a reduction on the work stream. The reduction combines the buffers of `ins` in order
  /// and writes the result to each buffer of `outs`. The kernel applies `op.prepare` to each input.
  /// `ranks` is the number of ranks that contribute to the final result. If `ranks` is not 0, the
  /// kernel also applies `op.finish` to the result. If `ranks` is 0, the result is a partial one.
  void fold(const reduction& op, const std::vector<const void*>& ins,
            const std::vector<std::byte*>& outs, std::size_t elements, int ranks) {
    if (elements == 0) return;
    const std::size_t size = elements * op.storage_size;
    void* const second = outs.size() > 1 ? outs[1] : nullptr;
    op.run_on_device(op.op.state, {ins.data(), ins.size(), outs[0], second, elements, ranks,
                                   peers_.work_stream().ref()});
    count_bytes(size);
    for (std::size_t i = 2; i < outs.size(); ++i) copy(outs[i], outs[0], size);
  }

 private:
  // The extent to which a rank has mapped the memory that it needs. The values are in ascending
  // order, because `worst` returns the smallest value of all ranks. `needs_descriptor` means that
  // the rank can map the rest after its peers have sent file descriptors of their memory to it.
  enum class access : char { none, needs_descriptor, full };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t own() const { return index(net_.rank()); }
  static mutable_bytes bytes_of(peer_info& info) {
    return {reinterpret_cast<std::byte*>(&info), sizeof info};
  }
  int workers_before(int end) const {
    int count = 0;
    for (int rank = 0; rank < end; ++rank) count += worker_for(rank) == rank ? 1 : 0;
    return count;
  }
  void count_bytes(std::size_t size) {
    net_.record().bytes += size;
    net_.record().bytes_in_place += size;
  }

  auto exchange(int lane, const_bytes local, std::byte* all) {
    return exposure_protocol::exchange_with_all(net_.lane(lane), local, all);
  }

  auto exchange_access(int lane, std::vector<access>& accesses) {
    auto* const all = reinterpret_cast<std::byte*>(accesses.data());
    return exchange(lane, const_bytes(all + own(), sizeof(access)), all);
  }
  static access worst(const std::vector<access>& accesses) {
    return *std::min_element(accesses.begin(), accesses.end());
  }
  void send_descriptors(const std::vector<access>& accesses) const {
    for_each_peer([&](int rank, int) {
      const peer_info& peer = infos_[index(rank)];
      const peer_info& local = infos_[own()];
      if (accesses[index(rank)] != access::needs_descriptor) return;
      peers_.send_descriptor(peer, local.in);
      if (local.out.allocation_base != local.in.allocation_base)
        peers_.send_descriptor(peer, local.out);
    });
  }

  template <class Function>
  void for_each_peer(const Function& function) const {
    for (int rank = 0; rank < net_.size(); ++rank) {
      if (rank != net_.rank()) function(rank, net_.world_rank(rank));
    }
  }

  /// Maps the memory of other ranks that this rank needs. Every rank needs the guards
  /// (guard_page.hpp) of all workers, because the workers' streams write their progress to these
  /// guards. A worker also needs the guards and buffers of all other ranks. `is_sent` says whether
  /// the peers have already sent the file descriptors that this rank needs. If the result is not
  /// `access::full`, this function sets `refusal_` to the reason.
  access map_peers(bool is_sent) {
    access result = access::full;
    const on_device guard(peers_.work_stream().device());
    guards_.resize(infos_.size());
    for_each_peer([&](int rank, int world_rank) {
      if (!works() && worker_for(rank) != rank) return;
      const peer_info& peer = infos_[index(rank)];
      const auto refuse = [&](const refusal& reason, access granted) {
        if (granted < result) {
          result = granted;
          refusal_ = reason;
          refused_rank_ = world_rank;
        }
      };
      guards_[index(rank)] = peers_.guard_of(world_rank, peer);
      if (guards_[index(rank)] == nullptr) {
        refuse({"its process is not visible from here",
                "both have to be in one pid namespace, of one user"},
               access::none);
      }
      if (!works()) return;
      const auto map = [&](const remote_buffer& buffer) -> std::byte* {
        if (result == access::none || buffer.size == 0) return nullptr;
        refusal reason;
        std::byte* const address = peers_.map_buffer(peer, buffer, is_sent, mappings_, reason);
        if (address != nullptr) return address;
        const bool by_descriptor = buffer.is_exportable != 0 && peer.process != peers_.process();
        refuse(reason, by_descriptor ? access::needs_descriptor : access::none);
        return nullptr;
      };
      in_[index(rank)] = map(peer.in);
      out_[index(rank)] = map(peer.out);
    });
    return result;
  }

  bool enter() {
    stream& queue = peers_.work_stream();
    const stream_access own_access{
        .process = peers_.process(), .stream = queue.ref(), .end_value = queue.next_value()};
    for_each_peer(
        [&](int rank, int) { guards_[index(rank)]->describe(peers_.rank(), own_access); });
    return guard_view::enter_all([&](auto action) {
      for_each_peer([&](int rank, int) {
        action(guards_[index(rank)]->guard(peers_.rank()), infos_[index(rank)].key);
      });
    });
  }
  void leave_all_guards() {
    const std::uint32_t end_value = peers_.work_stream().next_value() - 1;
    for_each_peer([&](int rank, int) { guards_[index(rank)]->leave(peers_.rank(), end_value); });
  }
  void close_key() {
    if (infos_[own()].key != 0) peers_.own_guard().close_key(std::exchange(infos_[own()].key, 0));
  }

  Channel net_;
  ipc_peers& peers_;
  std::vector<peer_info> infos_;
  std::vector<std::byte*> in_;
  std::vector<std::byte*> out_;
  std::vector<guard_page_view*> guards_;
  std::vector<mapped_memory::mapping*> mappings_;
  refusal refusal_;  // the reason why this rank cannot map what it needs
  int refused_rank_ = 0;
};

}  // namespace colls::cuda
