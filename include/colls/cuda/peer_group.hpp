// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// peer_group: lets the kernels of a communicator's ranks write into each other's peer buffers
// (see one_shot.cuh). Each rank must have a GPU of its own. With a peer group, an all_reduce of a
// short vector usually takes one kernel launch, and no message has to arrive before the launch.

#include <colls/algorithm/exposure_protocol.hpp>
#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/cuda/async_mutex.hpp>
#include <colls/cuda/ipc_peers.hpp>
#include <colls/cuda/peer_buffers.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <array>

namespace colls::cuda {

static_assert(guard_header::operation_slots == peer_buffers::slots);

/// The message that each rank sends to all others while the peer group is set up.
struct peer_group_info {
  peer_info peer;
  std::int64_t blocks = 0;  // the number of thread blocks that the device can run at a time
};

/// A rank's own peer buffers, and the pinned memory in which the rank's kernels report that they
/// have timed out while waiting for flags.
struct own_buffers {
  std::shared_ptr<std::byte> memory;
  pinned_buffer<std::uint64_t> timed_out;
};

/// A pool of a rank's unused peer buffers. The pool keeps buffers for the next communicator instead
/// of freeing them, because freeing them could block the thread. A function that frees device
/// memory may wait for all streams of the device, and one of these streams may be waiting for
/// another call of a collective.
class own_buffer_pool {
 public:
  explicit own_buffer_pool(ipc_peers& peers) : peers_(peers) {}

  /// Returns unused buffers. Allocates new buffers if the pool is empty, and throws if the
  /// allocation fails.
  own_buffers take() {
    if (free_.empty()) {
      free_.reserve(++total_);  // so that `give` cannot fail
      const on_device guard(peers_.work_stream().device());
      return {peers_.allocate(peer_buffers::bytes, exportable_memory::usage::own_streams),
              pinned_buffer<std::uint64_t>(peer_buffers::slots)};
    }
    own_buffers taken = std::move(free_.back());
    free_.pop_back();
    return taken;
  }
  void give(own_buffers&& used) noexcept { free_.push_back(std::move(used)); }

 private:
  ipc_peers& peers_;
  std::vector<own_buffers> free_;
  std::size_t total_ = 0;
};

/// One rank's part in a peer group: its own buffers, to which the peers write, and its mappings of
/// the peers' buffers.
class peer_group {
 public:
  peer_group(std::uint32_t id, ipc_peers& peers, own_buffer_pool& pool, int rank, int ranks)
      : id_(id),
        peers_(peers),
        pool_(pool),
        rank_(rank),
        infos_(index(ranks)),
        guards_(index(ranks)),
        buffers_(index(ranks)) {}
  peer_group(const peer_group&) = delete;
  ~peer_group() { release(); }

  std::uint32_t id() const { return id_; }
  bool is_refused() const { return state_ == state::refused; }
  bool is_ready() const { return state_ == state::ready; }

  std::uint64_t next_sequence() { return ++last_sequence_; }
  /// Returns the mutex that a call holds while it sets up the group. Every call acquires this mutex
  /// before it uses the group.
  async_mutex& setup_mutex() { return setup_mutex_; }
  /// Returns the mutex that the call with this sequence number holds while it uses its slot of the
  /// peer buffers.
  async_mutex& slot_mutex(std::uint64_t sequence) {
    return slot_mutexes_[sequence % peer_buffers::slots];
  }

  /// Sets up the group. All ranks must call this function. Afterwards the group is either ready for
  /// use or refused, which means that it cannot be used. The outcome is the same on all ranks.
  template <channel Channel>
  task<> make(Channel net) {
    {
      const on_device guard(peers_.work_stream().device());
      own().peer = peers_.self_info();
      int processors = 0;
      check(api::count_processors(peers_.work_stream().device(), processors),
            "cudaDeviceGetAttribute");
      own().blocks = processors;
    }
    co_await exchange(net.lane(3), own(), infos_.data());
    if (!have_distinct_gpus()) {
      state_ = state::refused;
      co_return;
    }
    if (take_buffers()) {
      {
        const on_device guard(peers_.work_stream().device());
        peers_.work_stream().clear(own_buffers_.memory.get(), peer_buffers::flag_bytes);
      }
      is_clearing_ = true;
      co_await peers_.work_stream().reached();
      is_clearing_ = false;
      expose_buffers();
    }
    co_await exchange(net.lane(4), own(), infos_.data());
    bool all_exposed = true;
    for (const peer_group_info& info : infos_) all_exposed &= info.peer.key != 0;
    std::vector<char> mapped(infos_.size(), 0);
    bool can_use = all_exposed;
    if (can_use) {
      mapped[index(rank_)] = map_peers() ? 1 : 0;
      co_await exchange(net.lane(5), mapped[index(rank_)], mapped.data());
      for (const char is_mapped : mapped) can_use &= is_mapped != 0;
    }
    state_ = can_use ? state::ready : state::refused;
    if (!can_use) release();
  }

  /// Enters the guards (see guard_page.hpp) of all peers. This tells the peers that the stream
  /// `queue` may access their buffers. Must be called before the first kernel launch of the
  /// all_reduce. Returns false if a peer no longer exposes its buffers. The caller must call
  /// `leave` afterwards, even if this function has returned false.
  bool enter(std::uint64_t sequence, stream_ref queue) {
    const int slot = slot_index(rank_, sequence);
    const stream_access access{.process = peers_.process(), .stream = queue, .operation = sequence};
    for_each_peer([&](int rank) { guards_[index(rank)].describe(slot, access); });
    return guard_view::enter_all([&](auto action) {
      for_each_peer([&](int rank) {
        action(guards_[index(rank)].guard(slot), infos_[index(rank)].peer.key);
      });
    });
  }
  /// Leaves the guards of all peers. This tells the peers that the all_reduce no longer accesses
  /// their buffers. Must be called only when the stream has done all its work for this all_reduce.
  void leave(std::uint64_t sequence) {
    for_each_peer([&](int rank) { guards_[index(rank)].leave(slot_index(rank_, sequence), 0); });
  }
  bool has_timed_out(std::uint64_t sequence) const {
    return __atomic_load_n(timed_out(sequence), __ATOMIC_ACQUIRE) == sequence;
  }
  /// Records in this rank's guard, which the peers can read, that the all_reduce has finished on
  /// this rank. Must be called when this rank has its result.
  void finish(std::uint64_t sequence) { guard_->finish(sequence); }
  /// Returns whether the kernel may be launched again. This is the case if every peer has finished
  /// this all_reduce or still exposes its buffers.
  bool can_retry(std::uint64_t sequence) {
    bool can_all = true;
    for_each_peer([&](int rank) {
      const guard_page_view& peer = guards_[index(rank)];
      can_all &= peer.is_open(infos_[index(rank)].peer.key) || peer.has_finished(sequence);
    });
    return can_all;
  }

  void launch(const reduction& op, any_buffer in, any_buffer out, std::uint64_t sequence,
              bool is_two_shot, stream_ref queue) {
    constexpr unsigned max_polls = 1000;
    const on_device guard(peers_.work_stream().device());
    __atomic_store_n(timed_out(sequence), 0, __ATOMIC_RELAXED);
    // A peer that has finished needs nothing more from this rank and may have freed its buffers.
    // Therefore the kernel gets no pointer to the buffers of that peer.
    std::vector<std::byte*> buffers = buffers_;
    for_each_peer([&](int rank) {
      if (guards_[index(rank)].has_finished(sequence)) buffers[index(rank)] = nullptr;
    });
    op.run_one_shot_on_device(
        op.op.state,
        {buffers.data(), static_cast<int>(buffers.size()), rank_, in.data(), out.data(), in.size(),
         is_two_shot, max_blocks(), sequence, timed_out(sequence), max_polls, queue});
  }

 private:
  enum class state : std::uint8_t { unknown, refused, ready };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static int slot_index(int rank, std::uint64_t sequence) {
    return static_cast<int>(index(rank) * peer_buffers::slots + sequence % peer_buffers::slots);
  }
  peer_group_info& own() { return infos_[index(rank_)]; }
  std::uint64_t* timed_out(std::uint64_t sequence) const {
    return own_buffers_.timed_out.data() + sequence % peer_buffers::slots;
  }
  std::size_t max_blocks() const {
    std::size_t result = peer_buffers::max_blocks;
    for (const peer_group_info& info : infos_) {
      result = std::min(result, static_cast<std::size_t>(info.blocks));
    }
    return result;
  }
  template <class Function>
  void for_each_peer(const Function& function) {
    for (int rank = 0; rank < static_cast<int>(infos_.size()); ++rank) {
      if (rank != rank_) function(rank);
    }
  }
  template <channel Channel, class Message>
  static auto exchange(Channel net, const Message& local, Message* all) {
    const const_bytes bytes(reinterpret_cast<const std::byte*>(&local), sizeof(Message));
    return exposure_protocol::exchange_with_all(net, bytes, reinterpret_cast<std::byte*>(all));
  }

  bool have_distinct_gpus() const {
    for (const peer_group_info& info : infos_) {
      int count = 0;
      for (const peer_group_info& other : infos_) count += other.peer.gpu == info.peer.gpu ? 1 : 0;
      if (count != 1 || info.blocks < 1) return false;
    }
    return true;
  }
  bool take_buffers() {
    try {
      own_buffers_ = pool_.take();
    } catch (const error&) {
      return false;
    }
    guard_ = std::make_unique<guard_page>(slot_index(static_cast<int>(infos_.size()), 0),
                                          peers_.process());
    return true;
  }
  /// Allows the peers to access this rank's buffers, and stores a description of the buffers in
  /// `own()`. Sends a file descriptor of the buffers to each peer that needs one to map them. Must
  /// be called before this rank sends `own()`, because a peer that has received `own()` expects
  /// that the descriptor has arrived too.
  void expose_buffers() {
    const on_device guard(peers_.work_stream().device());
    own().peer.key = guard_->open_key();
    if (own().peer.key == 0) return;
    own().peer.guard = guard_->address();
    own().peer.in = peers_.describe({own_buffers_.memory.get(), peer_buffers::bytes});
    buffers_[index(rank_)] = own_buffers_.memory.get();
    for_each_peer(
        [&](int rank) { peers_.send_descriptor(infos_[index(rank)].peer, own().peer.in); });
  }
  void release() {
    for (mapped_memory::mapping* const used : mappings_) mapped_memory::release(*used);
    mappings_.clear();
    if (own_buffers_.memory == nullptr) return;
    if (is_clearing_) (void)api::synchronize(peers_.work_stream().ref());
    const remote_key key = own().peer.key;
    if (key == 0 || guard_->revoke(key, guard_page::wait_policy::one_second)) {
      pool_.give(std::move(own_buffers_));
    } else {
      log_warn("rank %d leaves memory to a rank that may still write there", peers_.rank());
      // A peer may still write to the memory. If all peers have mapped the memory through a file
      // descriptor, this rank can free its buffers, because the mappings of the peers keep the
      // memory allocated. Otherwise this rank never frees the buffers, so that a late write of a
      // peer does no harm.
      if (!peers_keep_mapping()) (void)new own_buffers(std::move(own_buffers_));
    }
    own_buffers_ = {};
  }
  bool peers_keep_mapping() {
    bool all_keep = own().peer.in.is_exportable != 0;
    for_each_peer(
        [&](int rank) { all_keep &= infos_[index(rank)].peer.process != peers_.process(); });
    return all_keep;
  }
  bool map_peers() {
    const on_device guard(peers_.work_stream().device());
    const int slots = slot_index(static_cast<int>(infos_.size()), 0);
    bool all_mapped = true;
    for_each_peer([&](int rank) {
      const peer_info& peer = infos_[index(rank)].peer;
      guards_[index(rank)] = guard_page_view(peer.guard, slots);
      refusal refused;  // not logged here, because `ipc_operation` logs it
      buffers_[index(rank)] = peers_.map_buffer(peer, peer.in, true, mappings_, refused);
      all_mapped &= guards_[index(rank)] && buffers_[index(rank)] != nullptr;
    });
    return all_mapped;
  }

  std::uint32_t id_;
  ipc_peers& peers_;
  own_buffer_pool& pool_;
  int rank_;
  state state_ = state::unknown;
  std::vector<peer_group_info> infos_;
  std::vector<guard_page_view> guards_;
  std::vector<std::byte*> buffers_;
  std::vector<mapped_memory::mapping*> mappings_;
  own_buffers own_buffers_;
  bool is_clearing_ = false;
  std::unique_ptr<guard_page> guard_;
  std::uint64_t last_sequence_ = 0;
  async_mutex setup_mutex_;
  std::array<async_mutex, peer_buffers::slots> slot_mutexes_;
};

/// The peer groups of one rank's communicators.
class peer_groups {
 public:
  explicit peer_groups(ipc_peers& peers) : peers_(peers), pool_(peers) {}

  /// Returns the group of `comm`. Creates the group if it does not exist. Also destroys the groups
  /// of communicators that no longer exist.
  peer_group& find_or_make(const communicator_state& comm, const tag_matcher& matcher) {
    const auto has_ended = [&matcher](const std::unique_ptr<peer_group>& group) {
      return matcher.find(group->id()) == nullptr;
    };
    groups_.erase(std::remove_if(groups_.begin(), groups_.end(), has_ended), groups_.end());
    for (const auto& known : groups_) {
      if (known->id() == comm.id()) return *known;
    }
    return *groups_.emplace_back(
        std::make_unique<peer_group>(comm.id(), peers_, pool_, comm.rank(), comm.size()));
  }

 private:
  ipc_peers& peers_;
  own_buffer_pool pool_;
  std::vector<std::unique_ptr<peer_group>> groups_;
};

/// An operation that completes at the next poll by the driver (the event loop).
class next_poll : polled_condition {
 public:
  struct request {
    using operation = next_poll;
  };
  explicit next_poll(const request&) {}
  bool start(completion& done) {
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {}

 private:
  bool poll() noexcept override {
    done_->post();
    return true;
  }
  completion* done_ = nullptr;
};

/// One rank's part in one all_reduce of a peer group. The destructor waits until the stream has
/// done the work of the call.
template <channel Channel>
class one_shot_call {
 public:
  one_shot_call(Channel net, peer_group& group, std::uint64_t sequence, stream& queue)
      : net_(net), group_(group), sequence_(sequence), queue_(queue) {}
  one_shot_call(const one_shot_call&) = delete;
  ~one_shot_call() {
    if (!has_entered_) return;
    (void)api::synchronize(queue_.ref());
    leave();
  }

  /// Enqueues the all_reduce on the stream and waits until it is done. Meanwhile all ranks exchange
  /// empty messages. The header of each message contains a fingerprint (a hash) of the sender's
  /// call, so that the ranks can check that all of them have made the same call. The kernels do not
  /// wait for the messages.
  task<> run(const reduction& op, any_buffer in, any_buffer out, bool is_two_shot) {
    const bool is_open = group_.enter(sequence_, queue_.ref());
    has_entered_ = true;
    const auto exchange = [&](int lane) {
      return multi_send_recv::exchange_with_all(net_.lane(lane), const_bytes(), nullptr);
    };
    if (!is_open) {
      // The operation has failed on a peer, which will revoke the operation. The exchange may still
      // complete, because the peer may have sent its message before the failure.
      leave();
      co_await exchange(6);
      co_await exposure_protocol::await_revocation(net_, (net_.rank() + 1) % net_.size());
    }
    co_await when_all(attempt(op, in, out, is_two_shot), exchange(6));
    while (group_.has_timed_out(sequence_)) {
      co_await next_poll::request();
      const communicator_state& comm = *net_.record().communicator;
      if (comm.failed()) throw error(comm.reason());
      if (has_entered_ && !group_.can_retry(sequence_)) leave();  // the peer revokes the operation
      if (has_entered_) co_await attempt(op, in, out, is_two_shot);
    }
    group_.finish(sequence_);
    leave();
    net_.record().bytes += bytes(in).size;
    net_.record().bytes_in_place += bytes(in).size;
  }

 private:
  void leave() {
    group_.leave(sequence_);
    has_entered_ = false;
  }
  task<> attempt(const reduction& op, any_buffer in, any_buffer out, bool is_two_shot) {
    try {
      group_.launch(op, in, out, sequence_, is_two_shot, queue_.ref());
      co_await queue_.reached();
    } catch (const error& thrown) {
      net_.revoke(thrown.record());  // aborts the concurrent exchange too
      throw;
    }
  }

  Channel net_;
  peer_group& group_;
  std::uint64_t sequence_;
  stream& queue_;
  bool has_entered_ = false;
};

/// Performs an all_reduce with kernels that use the peer buffers of `group`. Writes the reduction
/// of `in` over all ranks to `out` and returns true. If the ranks cannot use the peer group,
/// returns false on all ranks and leaves `out` unchanged. The kernels run on `queue`. Before the
/// call, the caller must make `queue` wait for the user's stream (see `stream::follow`).
template <channel Channel>
task<bool> one_shot_all_reduce(Channel net, peer_group& group, stream& queue, any_buffer in,
                               any_buffer out, const reduction& op) {
  const std::uint64_t sequence = group.next_sequence();
  const communicator_state& comm = *net.record().communicator;
  {
    async_mutex::lock lock(group.setup_mutex());
    co_await lock.acquire();
    if (comm.failed()) throw error(comm.reason());
    if (!group.is_ready() && !group.is_refused()) co_await group.make(net);
  }
  if (group.is_refused()) co_return false;
  async_mutex::lock lock(group.slot_mutex(sequence));
  co_await lock.acquire();
  if (comm.failed()) throw error(comm.reason());
  one_shot_call call(net, group, sequence, queue);
  co_await call.run(op, in, out, shot_count(bytes(in).size, in.element_size(), net.size()) == 2);
  co_return true;
}

}  // namespace colls::cuda
