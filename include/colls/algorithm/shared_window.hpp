// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_window: gives the ranks of one operation access to each other's buffers, as an MPI window
// does, until the operation ends. A rank directly accesses a peer's buffer that lies in shared
// memory which both processes have mapped. If a peer's buffer lies in the private memory of the
// peer, a rank can read the buffer by a system call (cross memory attach, CMA).

#include <colls/algorithm/exposure_protocol.hpp>
#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/cache_lines.hpp>
#include <colls/base/function_ref.hpp>
#include <colls/channel/channel.hpp>

#include <algorithm>

namespace colls::direct {

/// The message by which a rank tells a peer where the rank's input and output buffers lie. `in` and
/// `out` are offsets in memory that the peer has mapped. An offset of 0 means that the peer cannot
/// access that buffer, so the ranks must send its data as a message. `in` may also be an
/// address in the rank's private memory. In this case, the peer reads the input by CMA.
struct window_descriptor {
  std::uint64_t remote_key = 0;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};

/// One rank's side of an operation in which the ranks access each other's buffers. Its steps are
/// those of the exposure protocol: `begin` publishes, `for_each_piece` and the functions that use
/// it enter and work, and `end` tells the peers that this rank is done. After the destructor has
/// returned, no peer writes to this rank's buffers. A peer may still read from these buffers, but
/// it discards the data. All of this holds even if the operation fails.
template <channel Channel>
  requires shared_window_transport<typename Channel::transport_type>
class shared_window {
  using transport_type = typename Channel::transport_type;
  using guard_view = typename transport_type::view::guard_view;

 public:
  /// The approximate size in bytes of the pieces in which a rank accesses the buffers of its peers.
  /// A piece fits into the L1 cache. After each piece, the rank checks whether all peers still
  /// expose their buffers.
  static constexpr std::size_t piece_bytes = 32 * 1024;
  /// The largest number of bytes that this rank reads by one CMA system call. A longer read costs
  /// less per byte, but only if its data fits into the core's private cache.
  static constexpr std::size_t cma_block_bytes = 256 * 1024;

  /// Makes a window in which each peer may read the memory `in(peer)` of this rank and write to the
  /// memory `out(peer)`. `cma_readers` says which ranks read an input that lies in private memory.
  template <std::invocable<int> In, std::invocable<int> Out>
  shared_window(Channel net, const In& in, const Out& out, readers cma_readers = readers::no_rank)
      : net_(net),
        exposure_(net.net(), *net.record().communicator),
        local_(static_cast<std::size_t>(net.size())),
        remote_(local_.size()),
        views_(local_.size()),
        cma_(cma_readers == readers::no_rank ? 0 : local_.size()) {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer == net.rank()) continue;
      window_descriptor& local = local_[index(peer)];
      const const_bytes input = in(peer);
      local.in = exposure_.offset_for(net.world_rank(peer), input);
      local.out = exposure_.offset_for(net.world_rank(peer), out(peer));
      if (local.in == 0 && !cma_.empty()) {
        local.in = exposure_.address_for(net.world_rank(peer), input, cma_readers);
        cma_[index(peer)].exposed = input;
      }
      if (local.in != 0 || local.out != 0) local.remote_key = exposure_.remote_key();
      if (local.remote_key == 0) local = {};
    }
  }
  /// Makes a window that exposes the same `in` and `out` to all peers.
  shared_window(Channel net, const_bytes in, const_bytes out,
                readers cma_readers = readers::no_rank)
      : shared_window(net, [&](int) { return in; }, [&](int) { return out; }, cma_readers) {}
  shared_window(const shared_window&) = delete;
  shared_window& operator=(const shared_window&) = delete;

  /// If this rank does not expose its input to every peer, withdraws the input from all peers.
  /// Afterwards either all peers or no peer can access the input. Must be called before `begin`.
  void expose_to_all_or_none() {
    const auto is_exposed = [](const window_descriptor& local) { return local.in != 0; };
    const auto peers = std::count_if(local_.begin(), local_.end(), is_exposed);
    if (peers == net_.size() - 1) return;
    for (window_descriptor& local : local_) drop_input(local);
  }
  /// Returns whether every rank exposes its input to all other ranks. Must be called after `begin`,
  /// and only if all ranks have called `expose_to_all_or_none`.
  bool all_expose() const {
    for (int peer = 0; peer < net_.size(); ++peer) {
      if (peer == net_.rank()) continue;
      if (!exposes_in(peer) || !accesses_in(peer)) return false;
    }
    return true;
  }
  /// Decides whether the ranks read inputs in private memory by CMA. Returns this decision, which
  /// is the same on all ranks. It is true if at least one input lies in private memory and every
  /// rank exposes its input to all other ranks. `part(peer)` must return the part of this rank's
  /// input that `peer` will read. If the decision is false, no rank can access an input in private
  /// memory, so the ranks must send such inputs as messages. Must be called after `begin`, and only
  /// if all ranks have called `expose_to_all_or_none`.
  template <class Part>
  bool all_use_cma(const Part& part) {
    if (!uses_cma() && std::none_of(local_.begin(), local_.end(), is_private)) return false;
    if (all_expose()) {
      for (int peer = 0; peer < net_.size(); ++peer) cma_[index(peer)].exposed = part(peer);
      return true;
    }
    for (int peer = 0; peer < net_.size(); ++peer) {
      for (window_descriptor* const side : {&local_[index(peer)], &remote_[index(peer)]}) {
        if (is_private(*side)) drop_input(*side);
      }
      if (remote_[index(peer)].remote_key == 0) views_[index(peer)] = nullptr;
    }
    return false;
  }

  /// Returns whether the input of some peer lies in that peer's private memory.
  bool uses_cma() const { return std::any_of(remote_.begin(), remote_.end(), is_private); }

  /// Ends the use of the window without the messages that `end` exchanges. May be called only if no
  /// rank accesses a buffer of a peer. In this case, all ranks must call this function instead of
  /// `end`.
  void end_unused() { exposure_.complete(); }

  /// The operation that `begin` returns. It exchanges the window descriptors and then maps the
  /// peers' buffers.
  template <class Extent>
  class key_exchange {
   public:
    key_exchange(shared_window& window, const Extent& extent, const multi_send_buffers& sends,
                 const multi_recv_buffers& recvs)
        : window_(window), extent_(extent), messages_(window.net_, sends, recvs) {}
    bool start(completion& done) { return messages_.start(done); }
    void result() {
      messages_.result();
      window_.map_peers(extent_);
    }

   private:
    shared_window& window_;
    Extent extent_;
    exposure_protocol::exchange<Channel> messages_;
  };
  /// Returns an operation that sends descriptors to the ranks `dests` and receives the descriptors
  /// of the ranks `sources`. `extent(peer)` is the largest number of bytes that this rank will
  /// access in a buffer of `peer`.
  template <class Extent>
  key_exchange<Extent> begin(const Extent& extent, pattern::rank_range dests,
                             pattern::rank_range sources) {
    return {*this, extent, multi_send_buffers::blocks(dests, block_of_rank_0(local_)),
            multi_recv_buffers::blocks(sources, block_of_rank_0(remote_))};
  }
  /// Returns an operation that exchanges descriptors with all ranks. `size` is the largest number
  /// of bytes that this rank will access in a buffer of a peer.
  auto begin(std::size_t size) {
    const auto extent = [=](int) { return size; };
    return begin(extent, multi_send_recv::all_ranks(net_), multi_send_recv::all_ranks(net_));
  }

  /// Returns whether this rank exposes its input to `peer`.
  bool exposes_in(int peer) const { return local_[index(peer)].in != 0; }
  /// Returns whether this rank exposes its output to `peer`.
  bool exposes_out(int peer) const { return local_[index(peer)].out != 0; }
  /// Returns whether this rank can access the input of `peer`.
  bool accesses_in(int peer) const { return remote_[index(peer)].in != 0; }
  /// Returns whether this rank can access the output of `peer`.
  bool accesses_out(int peer) const { return remote_[index(peer)].out != 0; }
  /// Returns whether the input and output of `peer` are the same buffer.
  bool is_in_place(int peer) const { return remote_[index(peer)].in == remote_[index(peer)].out; }

  /// Returns the address at which this process has mapped the input of `peer`.
  std::byte* remote_in(int peer) const {
    return views_[index(peer)]->at(remote_[index(peer)].in, 0);
  }
  /// Returns the address at which this process has mapped the output of `peer`.
  std::byte* remote_out(int peer) const {
    return views_[index(peer)]->at(remote_[index(peer)].out, 0);
  }

  /// Overwrites bytes in a part of `peer`'s input. `peer` can then write new data to the cache
  /// lines of this part faster (see `detail::touch_lines`). The part begins at byte `offset` and
  /// has `size` bytes. Does nothing unless `peer` exposes its input also as its output. Must be
  /// called within an access epoch, after this part has been read for the last time.
  void touch_input(int peer, std::size_t offset, std::size_t size) const {
    if (accesses_out(peer) && is_in_place(peer)) {
      detail::touch_lines(remote_out(peer) + offset, size);
    }
  }

  /// A scope in which this rank may access the mapped memory of its peers. If the object converts
  /// to false, a peer has closed its remote key, and this rank must not access the memory. The
  /// object must be destroyed before the coroutine that created it suspends.
  class access_epoch {
   public:
    explicit access_epoch(const shared_window& window)
        : window_(window), valid_(guard_view::enter_all(window.each_guard())) {}
    access_epoch(const access_epoch&) = delete;
    access_epoch& operator=(const access_epoch&) = delete;
    ~access_epoch() {
      window_.each_guard()([](const guard_view& guard, std::uint64_t) { guard.leave(); });
    }
    explicit operator bool() const { return valid_; }
    /// Returns whether the data that this rank has read in this epoch is valid. The data is valid
    /// if the remote keys of all peers are still open, because a peer that aborts the operation
    /// closes its remote key before it replaces the exposed pages.
    bool is_still_valid() const {
      return valid_ && guard_view::are_still_open(window_.each_guard());
    }

   private:
    const shared_window& window_;
    bool valid_;
  };

  /// Divides `count` elements of `element` bytes each into pieces. For each piece, calls
  /// `work(first, n)` within an access epoch. The piece has `n` elements and begins at the element
  /// `first`. Suspends after some of the pieces so that other operations of this thread can run.
  /// Throws if a peer has abandoned the operation.
  task<> for_each_piece(std::size_t count, std::size_t element,
                        function_ref<void(std::size_t, std::size_t)> work) {
    const std::size_t step = elements_in(piece_bytes, element);
    const int next = (net_.rank() + 1) % net_.size();
    for (std::size_t position = 0; position < count; position += step) {
      const std::size_t n = std::min(step, count - position);
      bool good = false;
      {
        const access_epoch epoch(*this);
        good = static_cast<bool>(epoch);
        if (good) {
          work(position, n);  // Model step: work
          good = epoch.is_still_valid();
        }
      }
      if (!good) co_await exposure_protocol::await_revocation(net_, next);
      net_.record().bytes += n * element;
      net_.record().bytes_in_place += n * element;
      if (should_yield(n * element)) co_await yield_to_others();
    }
  }

  /// Copies elements of `peer`'s input to `dest`, beginning at byte `offset` of the input. May be
  /// called only once for each element, because it may overwrite the input after the read (see
  /// `touch_input`). If this rank fails to read the input by CMA, `end` receives the data as a
  /// message and stores it in `dest`.
  template <buffer Data>
  task<> get(Data dest, int peer, std::size_t offset = 0) {
    if (is_private(remote_[index(peer)])) return cma_get(bytes(dest), peer, offset);
    return get_mapped(dest, peer, offset, true);
  }
  /// Copies elements of `peer`'s input to `dest`, beginning at byte `offset` of the input. Returns
  /// false if this rank fails to read the input by CMA. Unlike `get`, may be called several times
  /// for the same element. `dest` should fit into the cache.
  template <buffer Data>
  task<bool> get_block(Data dest, int peer, std::size_t offset) {
    if (is_private(remote_[index(peer)])) co_return co_await cma_read(bytes(dest), peer, offset);
    co_await get_mapped(dest, peer, offset, false);
    co_return true;
  }
  /// Copies `source` to `dest`, which is an address in the mapped memory of a peer.
  template <buffer Data>
  task<> put(std::byte* dest, Data source) {
    const std::size_t element = element_size(source);
    const auto work = [&](std::size_t position, std::size_t n) {
      net_.copy({dest + position * element, n * element}, bytes(source.subspan(position, n)));
    };
    co_await for_each_piece(source.size(), element, work);
  }

  /// Returns whether the caller should suspend now, so that other operations of this thread can
  /// run. `size` is the number of bytes that the caller has processed since the previous call.
  bool should_yield(std::size_t size) {
    bytes_since_yield_ += size;
    if (bytes_since_yield_ < yield_interval) return false;
    bytes_since_yield_ = 0;
    return true;
  }
  task<> yield_to_others() {
    co_await yield{};
    net_.throw_if_failed();
  }

  /// Tells the peers that this rank no longer accesses their buffers, and waits until the peers
  /// have reported that they no longer access this rank's buffers. If a rank failed to read a
  /// peer's data by CMA, the peer then sends that rank the data as a message.
  task<> end() {
    const bool may_use_cma = !cma_.empty();
    const mutable_bytes missing =
        may_use_cma ? mutable_bytes(&cma_[0].is_missing, 1) : mutable_bytes();
    const mutable_bytes wanted =
        may_use_cma ? mutable_bytes(&cma_[0].is_wanted, 1) : mutable_bytes();
    const std::size_t stride = may_use_cma ? sizeof(cma_transfer) : 0;
    const auto sends =
        multi_send_buffers::spaced(multi_send_recv::all_ranks(net_), missing, stride);
    const auto recvs = multi_recv_buffers::spaced(multi_send_recv::all_ranks(net_), wanted, stride);
    co_await exposure_protocol::exchange<Channel>(
        net_, sends.where_nonzero(remote_[0].remote_key, sizeof(window_descriptor)),
        recvs.where_nonzero(local_[0].remote_key, sizeof(window_descriptor)));
    bool is_incomplete = false;
    for (int peer = 0; may_use_cma && peer < net_.size(); ++peer) {
      is_incomplete |= has_missing(peer);
    }
    if (is_incomplete) co_await send_missing();
    exposure_.complete();
  }

  /// Returns an operation that concurrently runs the operations `make(peer)` for all other ranks
  /// for which `predicate(peer)` is true.
  template <class Predicate, class Make>
  auto for_each_peer(const Predicate& predicate, const Make& make) const {
    using operation = detail::awaited<decltype(make(0))>;
    std::vector<operation, detail::recycling_allocator<operation>> operations;
    for (int peer = 0; peer < net_.size(); ++peer) {
      if (peer == net_.rank() || !predicate(peer)) continue;
      if (operations.empty()) operations.reserve(local_.size());
      operations.emplace_back(make(peer));
    }
    return when_all(std::move(operations));
  }

 private:
  template <class T>
  using list = std::vector<T, detail::recycling_allocator<T>>;
  static constexpr std::size_t yield_interval = 4 * 1024 * 1024;

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  /// The state of the CMA reads between this rank and one peer, in both directions.
  struct cma_transfer {
    const_bytes exposed;
    mutable_bytes missing;   // the destination of data that this rank failed to read
    std::byte is_missing{};  // nonzero if the peer must send that data
    std::byte is_wanted{};   // nonzero if this rank must send `exposed`
  };

  template <class Extent>
  void map_peers(const Extent& extent) {
    for (int peer = 0; peer < net_.size(); ++peer) {
      const window_descriptor& remote = remote_[index(peer)];
      if (remote.remote_key == 0) continue;
      auto* const view = net_.net().view_of(net_.world_rank(peer));
      const auto is_mapped = [&](std::uint64_t offset) {
        return offset == 0 || view->at(offset, extent(peer)) != nullptr;
      };
      const bool is_accessible =
          view != nullptr && is_mapped(remote.out) &&
          (is_private(remote) ? !cma_.empty() && view->can_read_owner() : is_mapped(remote.in));
      if (!is_accessible) {
        throw error(errc::protocol_error, "a peer exposes memory that is not mapped here");
      }
      views_[index(peer)] = view;
    }
  }

  static bool is_private(const window_descriptor& side) {
    return transport_type::view::is_private(side.in);
  }
  bool has_missing(int peer) const {
    const cma_transfer& transfer = cma_[index(peer)];
    return transfer.is_missing != std::byte{} || transfer.is_wanted != std::byte{};
  }
  static void drop_input(window_descriptor& side) {
    side.in = 0;
    if (side.out == 0) side.remote_key = 0;
  }

  template <buffer Data>
  task<> get_mapped(Data dest, int peer, std::size_t offset, bool is_last_read) {
    const std::size_t element = element_size(dest);
    const auto work = [&](std::size_t position, std::size_t n) {
      const std::size_t first = offset + position * element;
      net_.copy(bytes(dest.subspan(position, n)), {remote_in(peer) + first, n * element});
      if (is_last_read) touch_input(peer, first, n * element);
    };
    co_await for_each_piece(dest.size(), element, work);
  }

  // Reads from a peer's private memory by CMA. Returns false if the memory cannot be read. A peer
  // that aborts the operation closes its remote key before it releases the memory. Therefore the
  // data is valid only if the key is still open after the read.
  task<bool> cma_read(mutable_bytes dest, int peer, std::size_t offset) {
    const window_descriptor& remote = remote_[index(peer)];
    const auto& view = *views_[index(peer)];
    const bool has_read = !view.read(dest, remote.in + offset);
    const bool is_open =
        guard_view::are_still_open([&](auto action) { action(view.guard(), remote.remote_key); });
    if (!is_open) co_await exposure_protocol::await_revocation(net_, peer);
    if (has_read) net_.record().bytes += dest.size;
    co_return has_read;
  }

  task<> cma_get(mutable_bytes dest, int peer, std::size_t offset) {
    for (std::size_t position = 0; position < dest.size; position += cma_block_bytes) {
      const std::size_t size = std::min(cma_block_bytes, dest.size - position);
      if (!co_await cma_read({dest.data + position, size}, peer, offset + position)) {
        cma_[index(peer)].missing = dest;
        cma_[index(peer)].is_missing = std::byte{1};
        co_return;
      }
      if (should_yield(size)) co_await yield_to_others();
    }
  }

  task<> send_missing() {
    const auto is_missing = [&](int peer) { return cma_[index(peer)].is_missing != std::byte{}; };
    const auto is_wanted = [&](int peer) { return cma_[index(peer)].is_wanted != std::byte{}; };
    const auto recv = [&](int peer) { return net_.recv(peer, cma_[index(peer)].missing); };
    const auto send = [&](int peer) {
      exposure_.disable_reads(net_.world_rank(peer));
      return net_.send(peer, cma_[index(peer)].exposed);
    };
    co_await when_all(for_each_peer(is_wanted, send), for_each_peer(is_missing, recv));
  }

  static mutable_bytes block_of_rank_0(list<window_descriptor>& all) {
    return {reinterpret_cast<std::byte*>(all.data()), sizeof(window_descriptor)};
  }
  // Returns a function that calls `action(guard, key)` for each peer whose memory this rank
  // accesses.
  auto each_guard() const {
    return [this](auto action) {
      for (std::size_t i = 0; i < views_.size(); ++i) {
        if (views_[i] != nullptr) action(views_[i]->guard(), remote_[i].remote_key);
      }
    };
  }

  Channel net_;
  typename transport_type::exposure exposure_;
  list<window_descriptor> local_;   // the descriptors that this rank sends
  list<window_descriptor> remote_;  // the descriptors that this rank receives
  list<typename transport_type::view*> views_;
  list<cma_transfer> cma_;  // one per rank; empty unless inputs may be read by CMA
  std::size_t bytes_since_yield_ = 0;
};

}  // namespace colls::direct
