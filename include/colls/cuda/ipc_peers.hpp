// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// neighbourhood: what a rank keeps of the ranks whose device memory it sees, and they of it.

#include <colls/base/log.hpp>
#include <colls/cuda/access_guard.hpp>
#include <colls/cuda/fd_mailbox.hpp>
#include <colls/cuda/ipc_memory.hpp>
#include <colls/cuda/stream.hpp>

#include <map>
#include <optional>

namespace colls::cuda {

/// As many ranks as a kernel has inputs.
inline constexpr int most_visitors = 8;

/// Whether a call's sum may go round a ring of its ranks (ring_visit.hpp); the least of all holds.
enum class ring_use : std::int64_t { never, between_nodes, always };

/// What each rank tells all others before any data moves: its inputs are there by then, and what
/// its outputs held is not needed any more.
struct visiting_card {
  std::uint64_t process = 0;
  api::device_id gpu;
  std::int64_t device = 0;
  std::int64_t node = -1;         // of the host, that its GPU is next to
  std::int64_t links_differ = 0;  // whether it has links of several kinds to other GPUs
  ring_use ring = ring_use::never;
  std::uint64_t ticket = 0;  // 0: it lends nothing
  door_address door;
  std::uint64_t hatch = 0;  // its name
  lent_buffer in;
  lent_buffer out;
};

/// Why a rank does not see what another one lends, and what to look at.
struct refusal {
  const char* why = "";
  const char* hint = "";
};

/// What a rank has for such operations.
class neighbourhood {
 public:
  neighbourhood(int device, int rank, int ranks)
      : rank_(rank),
        ranks_(ranks),
        door_(ranks, process_),
        told_(pinned(device, door_)),
        streams_(device),
        by_(device, door_.passed(), static_cast<bool>(told_)) {
    check(api::identify(device, gpu_), "cudaGetDeviceProperties");
    find_links();
  }
  neighbourhood(const neighbourhood&) = delete;
  ~neighbourhood() {
    int before = by_.device();
    (void)api::current_device(before);
    (void)api::use_device(by_.device());
    mapped_.close_all();
    return_to(before);
  }

  /// For calls to wait on for what their callers' streams have.
  stream_pool& streams() { return streams_; }
  /// Does the work of all calls, and waits for no other stream.
  stream& by() { return by_; }
  cuda::door& door() { return door_; }
  /// No operation is let in by that ticket any more, and none that was is still at work: what works
  /// there is a stream, which comes to its end whatever the program does that has given it the
  /// work. False: as `door::revoke`.
  bool revoke(std::uint64_t ticket) {
    const auto is_through = [this](int rank, std::uint32_t number) {
      const auto found = doors_.find(rank);
      return found != doors_.end() && found->second &&
             milestone{found->second.passed()}.is_at(number);
    };
    return door_.revoke(ticket, door::patience::of_the_living, is_through);
  }
  /// Waits until nothing goes on that this rank has begun in others' memory, and lowers its lines.
  void rest() {
    (void)api::synchronize(by_.ref());
    for (auto& [rank, theirs] : doors_) theirs.lower_all(rank_);
    ++rests_;
  }
  /// How often; lines that were raised before are down.
  std::uint64_t rests() const { return rests_; }
  int rank() const { return rank_; }
  std::uint64_t process() const { return process_; }

  /// Who this rank is; it lends nothing.
  visiting_card name() const {
    visiting_card made;
    made.process = process_;
    made.gpu = gpu_;
    made.device = by_.device();
    made.node = node_;
    made.links_differ = links_differ_ ? 1 : 0;
    made.hatch = hatch_.name();
    return made;
  }
  visiting_card introduce(const_bytes in, const_bytes out) {
    visiting_card made = name();
    made.ticket = door_.open();
    if (made.ticket == 0) return made;
    made.door = door_.address();
    made.in = memory_.lend(in);
    made.out = memory_.lend(out);
    return made;
  }

  lent_buffer lend(const_bytes data) { return memory_.lend(data); }

  /// That rank's door; null: it cannot be seen from here.
  door_view* door_of(int rank, const visiting_card& theirs) {
    door_view& seen = doors_[rank];
    if (!seen.is_of(theirs.door)) seen = door_view(theirs.door, ranks_);
    return seen ? &seen : nullptr;
  }

  /// Device memory of any content, which the other ranks get hold of by a descriptor. Where that
  /// cannot be, as the log says, handles of CUDA's IPC have to do.
  std::shared_ptr<std::byte> allocate(std::size_t size, passable_memory::work who) {
    const on_device guard(by_.device());
    if (passes_) {
      bool can = false;
      api::status why = api::can_export(can, by_.device());
      if (why == api::success && !can) why = api::not_supported;
      if (why == api::success) {
        std::shared_ptr<std::byte> made = passable_memory::allocate(size, by_.device(), who, why);
        if (made != nullptr) return made;
      }
      if (why == api::out_of_memory) check(why, "cuMemCreate");
      do_not_pass(api::text(why));
    }
    const auto made = std::make_shared<device_buffer<std::byte>>(size);
    return {made, made->data()};
  }
  /// From now on.
  void do_not_pass(const char* why) {
    if (!std::exchange(passes_, false)) return;
    log_warn("rank %d shares what it allocates by handles of CUDA's IPC, not by descriptors: %s",
             rank_, why);
  }
  /// Passes another process a descriptor of what this rank lends.
  void pass(const visiting_card& to, const lent_buffer& lent) const {
    if (lent.is_passable == 0 || to.process == process_) return;
    const on_device guard(by_.device());
    const hatch_label label{process_, lent.number};
    passable_memory::with_descriptor(lent.base, lent.number, [&](int file) {
      (void)hatch::pass(to.hatch, label, file);  // that it has not come is for the other to find
    });
  }

  /// Where what a rank lends lies in this process; null: nowhere, `no` says why. A mapping is
  /// added to `taken`. `passed`: whether that rank has passed the descriptor.
  std::byte* place_of(const visiting_card& theirs, const lent_buffer& lent, bool passed,
                      std::vector<mapped_memory::piece*>& taken, refusal& no) {
    constexpr const char* no_peers =
        "GPUs that are not the same have to reach each other (nvidia-smi topo -p2p rw)";
    const bool is_of_this_process = theirs.process == process_;
    if (is_of_this_process && theirs.device == by_.device()) {
      return reinterpret_cast<std::byte*>(lent.at);
    }
    // What other processes cannot open (pools, memory mapped by users) peers of this one may not
    // touch either: letting a device in is for what cudaMalloc gives.
    auto why = static_cast<api::status>(lent.refusal);
    if (why != api::success) {
      no = {api::text(why),
            "others see memory of cudaMalloc or allocate, no managed memory, no pool and nothing "
            "that a program has mapped itself"};
      return nullptr;
    }
    if (is_of_this_process) {
      const auto [at, is_new] = reached_.try_emplace(static_cast<int>(theirs.device));
      if (is_new) at->second = api::reach(at->first);
      why = at->second;
      if (why == api::success) return reinterpret_cast<std::byte*>(lent.at);
      no = {api::text(why), no_peers};
      return nullptr;
    }
    colls::detail::descriptor file;
    if (passed && lent.is_passable != 0) file = hatch_.take({theirs.process, lent.number});
    mapped_memory::piece* const found = mapped_.take(theirs.process, lent, file, by_.device(), why);
    if (found != nullptr) {
      taken.push_back(found);
      return static_cast<std::byte*>(found->base) + (lent.at - lent.base);
    }
    if (why == mapped_memory::lacking) {
      no = {"it was not passed a descriptor",
            "both have to be in one network namespace, of one user, with descriptors to spare "
            "(ulimit -n)"};
    } else if (lent.is_passable != 0) {
      no = {api::text(why), no_peers};
    } else {
      no = {api::text(why),
            "both have to be in one ipc namespace, and see GPUs that reach each other "
            "(CUDA_VISIBLE_DEVICES, nvidia-smi topo -p2p rw)"};
    }
    return nullptr;
  }

  /// Says once why calls are staged.
  void refuse(const operation_record& call, int rank, const refusal& no) {
    if (std::exchange(refused_, true)) return;
    log_warn(
        "rank %d cannot work in device memory of rank %d, so %s #%llu on communicator %x and "
        "calls like it are staged through the host: %s. Hint: %s",
        rank_, rank, colls::name(call.what), static_cast<unsigned long long>(call.sequence),
        call.communicator->id(), no.why, no.hint);
  }

 private:
  /// To the devices that this process sees. What CUDA does not tell is left out.
  void find_links() {
    const int device = by_.device();
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
  static pinning pinned(int device, const cuda::door& page) {
    const on_device guard(device);
    return pinning(page.memory());
  }

  int rank_;
  int ranks_;
  std::uint64_t process_ = api::process();
  api::device_id gpu_;
  int node_ = -1;
  bool links_differ_ = false;
  cuda::door door_;
  pinning told_;  // where `by_` tells how far it has come
  cuda::hatch hatch_;
  std::map<int, door_view> doors_;
  std::map<int, api::status> reached_;  // devices that this one works in
  shared_memory memory_;
  std::uint64_t rests_ = 0;
  bool refused_ = false;
  bool passes_ = true;
  mapped_memory mapped_;
  stream_pool streams_;
  stream by_;
};

}  // namespace colls::cuda
