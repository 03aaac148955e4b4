// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// core: the part of a communicator that checks and starts the calls. It also gives each collective
// a sequence number. The core does not depend on the types of the user's elements and operations.

#include <colls/base/function_ref.hpp>
#include <colls/base/recovery.hpp>
#include <colls/base/shared_buffer.hpp>
#include <colls/base/strided_view.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/call_queue.hpp>
#include <colls/call/gathered.hpp>
#include <colls/channel/transport.hpp>
#include <colls/matching/id_candidates.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <memory>
#include <span>

namespace colls {

template <class Transport>
class communicator;
template <class Transport>
class probed_message;
class transfer;

namespace detail {

struct view_exchange;

/// One rank's side of a communicator that uses the transport `Transport`.
/// The headers that communicator.ipp includes define the calls. A program can compile these
/// functions in a separate file. Files that only make calls then do not need the complete type of
/// the transport.
///
/// In the member functions, `type` is the id of the element type. A list of offsets is empty if all
/// blocks have equal length. Otherwise it has one more entry than there are ranks. A call copies
/// its reduction, so the caller need not keep the reduction alive.
template <class Transport>
class core final : public call_queue {
 public:
  using offsets = std::vector<std::size_t>;

  core(std::shared_ptr<Transport> net, std::uint32_t id, int rank, int size,
       std::shared_ptr<const std::vector<int>> members, bool is_world);
  ~core();

  Transport& net() const { return *net_; }
  const std::shared_ptr<Transport>& shared_net() const { return net_; }

  /// A scope in which calls whose options pin `algorithm::custom` run `custom`, an algorithm of the
  /// user's own. It is no argument of the calls, because a further argument would make every call
  /// slower.
  class [[nodiscard]] custom_pin {
   public:
    custom_pin(core& owner, const algorithm_info* custom) {
      if (owner.is_called_by_other_thread()) return;  // its call is refused
      owner.custom_ = custom;
      owner_ = &owner;
    }
    custom_pin(const custom_pin&) = delete;
    custom_pin& operator=(const custom_pin&) = delete;
    ~custom_pin() {
      if (owner_ != nullptr) owner_->custom_ = nullptr;
    }

   private:
    core* owner_ = nullptr;
  };

  /// Allocates `size` bytes of host memory, or of device memory if this communicator is for device
  /// memory, and sets them to zero. If the transport supports shared memory, the other ranks on
  /// this host can access the allocated memory during operations on it. Returns null if there is
  /// not enough memory.
  std::shared_ptr<std::byte> allocate(std::size_t size);

  /// Starts an all_reduce, a scan or an exscan.
  template <collective Coll>
  operation<> reduce_to_all(const reduction& op, const any_buffer& in, const any_buffer& out,
                            const options& opts);
  /// Starts an all_reduce of several buffers, or of several views.
  template <class Part>
  operation<> all_reduce_group(const reduction& op, std::vector<Part> parts, const options& opts);
  operation<> reduce(const reduction& op, const any_buffer& in, const any_buffer& out, int root,
                     const options& opts);
  operation<> reduce_scatter(const reduction& op, const any_buffer& in, const any_buffer& out,
                             offsets shares, const options& opts);
  operation<> barrier(const options& opts);
  operation<> broadcast(std::uint32_t type, any_buffer data, int root, const options& opts);
  operation<> all_gather(std::uint32_t type, any_buffer in, any_buffer out, offsets shares,
                         const options& opts);
  /// Starts a gather or a scatter. `own_block` is the buffer for this rank's block. `full` is the
  /// buffer for the blocks of all ranks and is used only on the root.
  template <collective Coll>
  operation<> gather_or_scatter(std::uint32_t type, any_buffer own_block, any_buffer full,
                                offsets shares, int root, const options& opts);
  operation<> all_to_all(std::uint32_t type, any_buffer in, any_buffer out, offsets sends,
                         offsets receives, const options& opts);

  /// Starts an all_reduce, a scan or an exscan of strided views.
  template <collective Coll>
  operation<> reduce_view_to_all(const reduction& op, const any_view& in, const any_view& out,
                                 const options& opts);
  operation<> reduce_view(const reduction& op, const any_view& in, const any_view& out, int root,
                          const options& opts);
  operation<> reduce_scatter_view(const reduction& op, const any_view& in, const any_view& out,
                                  offsets shares, const options& opts);
  /// Starts a broadcast, an all_gather, a gather or a scatter of strided views. `own` is this
  /// rank's block, or the data of a broadcast. `all` is the blocks of all ranks, and is used only
  /// on ranks that have them.
  template <collective Coll>
  operation<> move_view(std::uint32_t type, const any_view& own, const any_view& all,
                        offsets shares, int root, const options& opts);
  operation<> all_to_all_view(std::uint32_t type, const any_view& in, const any_view& out,
                              offsets sends, offsets receives, const options& opts);
  /// Starts exchanges of views with other ranks. `agreed` is the fingerprint of the call.
  operation<> exchange_views(const fingerprint& agreed, std::vector<view_exchange> pairs,
                             const options& opts);
  operation<> send_view(const any_view& data, int dest, int tag, const options& opts);
  operation<received> recv_view(const any_view& data, peer source, recv_tag tag,
                                const options& opts);
  operation<received> send_recv_view(const any_view& outgoing, int dest, const any_view& incoming,
                                     peer source, int tag, const options& opts);

  /// Checks the arguments of a call of unknown lengths, and returns its fingerprint.
  fingerprint check_unknown_lengths(const unknown_lengths_request& call, const options& opts,
                                    checks& check);
  /// Returns the body of a call of unknown lengths, which fills `result`.
  task<> run_unknown_lengths(call_base& owner, unknown_lengths_request call,
                             resizable_result& result, const options& opts);
  /// Starts an all_gather or an all_to_all between neighbours. `in_pieces` tells whether one of the
  /// buffers may be strided.
  operation<> exchange_with_neighbours(collective coll, std::uint32_t type, const any_view& in,
                                       const any_view& out, bool in_pieces, neighbour_graph graph,
                                       const options& opts);

  operation<> measure(const options& opts);
  explanation explain(collective coll, std::uint64_t bytes, const options& opts,
                      const algorithm_info* custom) const;

  operation<> send(any_buffer data, int dest, int tag, const options& opts);
  /// Starts a send of bytes that the call owns.
  operation<> send_bytes(std::vector<std::byte> data, int dest, int tag, const options& opts);
  operation<received> recv(any_buffer data, peer source, recv_tag tag, const options& opts);
  operation<received> send_recv(any_buffer outgoing, int dest, any_buffer incoming, peer source,
                                int tag, const options& opts);
  operation<std::vector<received>> batch(std::span<const transfer> transfers, const options& opts);
  operation<probed_message<Transport>> probe(peer source, recv_tag tag, const options& opts);
  /// Starts a receive of the message that `probed` owns. Sets `probed` to null, unless the call is
  /// refused.
  operation<received> recv_probed(unexpected_message*& probed, const any_view& data,
                                  const options& opts);
  /// Starts a receive whose body is the task `body(call, key)`.
  template <class Value, class Body>
  operation<Value> receive(peer source, recv_tag tag, const options& opts, const Body& body);
  /// Starts a receive of a message of unknown length into a new vector. A message that is longer
  /// than `most` bytes fails with `errc::truncated`. If `probed` is not null, receives the message
  /// that it owns.
  template <class T>
  operation<std::vector<T>> recv_vector(peer source, recv_tag tag, unexpected_message** probed,
                                        std::size_t most, const options& opts);
  /// Receives the message that `probed` owns, or, if that is null, the next message with the key
  /// `key`. `resize(count)` provides the buffer for `count` elements of `element_size` bytes. It is
  /// not called for a message that is longer than `most` bytes.
  task<received> recv_resized(call_base& owner, message_key key, unexpected_message*& probed,
                              std::size_t element_size, std::size_t most,
                              function_ref<any_buffer(std::size_t)> resize);

  /// Starts a split, a group or a dup, depending on `coll`. `shape` is a hash of the listed ranks
  /// for a group, and 0 for a split or a dup. It must be equal on all ranks.
  operation<communicator<Transport>> split(collective coll, int color, int key, std::uint64_t shape,
                                           const options& opts);
  template <class Executor>
  operation<communicator<Transport>> dup(const Executor& executor, const options& opts);
  /// Starts an attach, which makes a communicator that has the same ranks and uses the transport
  /// `net`. `net` moves its messages through the transport of this communicator.
  template <class NewTransport>
  operation<communicator<NewTransport>> attach(std::shared_ptr<NewTransport> net,
                                               std::uint64_t shape, const options& opts);
  operation<agreement> agree(std::uint64_t value, const recovery_options& opts);
  operation<communicator<Transport>> shrink(const recovery_options& opts);
  operation<communicator<Transport>> repair(const recovery_options& opts);
  /// Returns the generation of the world of this communicator.
  std::uint32_t generation() const;
  /// Returns the number of replacements that wait, as far as this rank knows.
  int waiting();
  /// Keeps `object` as long as this communicator.
  void keep(std::shared_ptr<const void> object) { kept_ = std::move(object); }
  operation<> close(time_span deadline);

 private:
  /// The ids that this rank has reserved for the result of a shrink.
  struct reserved_ids {
    reserved_ids(core& parent, std::uint64_t agreement)
        : number(agreement),
          ids(parent.matching(), parent.state(), collective::shrink, agreement, 1) {}

    std::uint64_t number;  // of the agreement by which the ranks shrink the communicator
    id_candidates ids;
  };

  /// Begins a call of the agreements of this communicator, or refuses it.
  template <class Value, class Body>
  operation<Value> start_recovery(collective coll, const recovery_options& opts, const Body& body);
  /// Returns the ids that this rank offers to the agreement `number`, or null if there is no
  /// memory.
  std::shared_ptr<reserved_ids> reserve_shrink_ids(std::uint64_t number) noexcept;
  /// Returns the body of `shrink`, or of the first part of `repair`, depending on `coll`.
  task<communicator<Transport>> shrink_body(call_base& owner, quorum needed, collective coll);
  template <class T>
  friend task<communicator<T>> repair_body(core<T>& lost, call_base& owner, recovery_options opts);
  bool has_replacing_launcher() const;
  /// Returns why this communicator refuses `coll`, which is one of the recovery calls. The failure
  /// has no code if it does not.
  failure recovery_obstacle(collective coll);

  time_point now() const override;
  int host_of(int rank) const override;
  void progress() override;
  void wake_driver() override;
  void call_ended(call_base& ended_call) noexcept override;

  // Returns the algorithm of the user's own that a call of `coll` pins, or null.
  const algorithm_info* custom_of(const options& opts, collective coll) const {
    const bool is_custom =
        opts.algorithm == algorithm::custom && custom_ != nullptr && custom_->operation == coll;
    return is_custom ? custom_ : nullptr;
  }
  // Checks the destination and the tag of a send, and returns the key of its message.
  message_key send_key(checks& check, int dest, int tag) const;
  // Checks the source and the tag of a receive, and returns the key of its message.
  message_key receive_key(checks& check, peer source, recv_tag tag) const;
  task<probed_message<Transport>> probe_body(call_base& owner, message_key key);

  /// Chooses an algorithm for a call of the collective `Coll`, and starts the call. If `check` has
  /// failed or if no algorithm can do the call, returns an operation that has failed.
  /// `make_fingerprint()` returns the fingerprint of the call before an algorithm is chosen (see
  /// `fingerprint_of`). `make_query()` returns the selection query of the call. `arguments(call,
  /// use)` passes the arguments of the algorithm to `use`. If `is_plain` is true, these arguments
  /// are all that the algorithm needs. Otherwise, or if the algorithm does not work on the caller's
  /// buffers, `body(call, channel, algorithm)` returns the coroutine of the call.
  template <collective Coll, class MakeFingerprint, class MakeQuery, class Arguments, class Body>
  operation<> launch(const MakeFingerprint& make_fingerprint, const MakeQuery& make_query,
                     const options& opts, checks& check, std::size_t working_bytes, bool is_plain,
                     const Arguments& arguments, const Body& body);
  /// Chooses an algorithm for a call of strided views, and starts the call. The arguments are those
  /// of `launch`.
  template <collective Coll, class Body>
  operation<> launch_body(const fingerprint& requested, const selection_query& query,
                          const options& opts, checks& check, std::size_t working_bytes,
                          const Body& body);
  /// Makes `check` fail unless `own` is this rank's share and `all`, if not null, the shares of all
  /// ranks.
  void check_blocks(checks& check, const any_view* all, const any_view& own, const offsets& shares);
  /// Returns the number of the first element of this rank's block among those of all ranks.
  std::size_t first_of_own_block(const any_view& own, const offsets& shares) const;
  /// Returns the cache entry for a call with the fingerprint `requested`. The entry contains the
  /// algorithm of the call. If the cache has no such entry, chooses an algorithm and adds an entry.
  /// If the call must be refused, makes `check` fail and returns null. `launch` calls this function
  /// only if the last call of the same collective had a different fingerprint, or if the call pins
  /// an algorithm of the user's own.
  template <collective Coll>
  const call_cache::entry* choose(fingerprint requested, const selection_query& query,
                                  const options& opts, checks& check);

  std::shared_ptr<Transport> net_;
  std::shared_ptr<reserved_ids> shrink_ids_;  // of the last agreement that is to shrink it, or null
  std::shared_ptr<const void> kept_;
  const algorithm_info* custom_ = nullptr;  // the base of an `algorithm_entry`, see `custom_pin`
};

template <class Transport>
core<Transport>::core(std::shared_ptr<Transport> net, std::uint32_t id, int rank, int size,
                      std::shared_ptr<const std::vector<int>> members, bool is_world)
    : call_queue(net->matching(), net->queue(), id, rank, size, std::move(members), is_world),
      net_(std::move(net)) {
  static_assert(transport<Transport>);
  if (!matching().has_hooks()) {
    shut_down();
    throw error(errc::invalid_argument,
                "this transport has added no failure_hooks to its matcher, so its ranks would wait "
                "for peers that have failed");
  }
  try {
    if constexpr (priced_transport<Transport>) set_costs(net_->costs());
  } catch (...) {
    shut_down();
    throw;
  }
}
template <class Transport>
core<Transport>::~core() {
  shut_down();
}

template <class Transport>
std::shared_ptr<std::byte> core<Transport>::allocate(std::size_t size) {
  check_thread();
  if constexpr (std::is_same_v<transport_memory_t<Transport>, device_memory>) {
    // An allocation of 0 bytes could return null. The caller would take this for a lack of memory,
    // so this function allocates at least one byte.
    return net_->allocate(size != 0 ? size : 1);
  } else if constexpr (shared_window_transport<Transport>) {
    return net_->allocate(size);
  } else {
    return allocate_private_memory(size);
  }
}

template <class Transport>
time_point core<Transport>::now() const {
  return net_->now();
}
template <class Transport>
int core<Transport>::host_of(int rank) const {
  return net_->node_of(rank);
}
/// Polls the transport once. Called when the user asks whether an operation has ended. The user may
/// compute for a long time before the next poll. Therefore, if the poll has made progress, this
/// function wakes the driver, which writes the remaining output to the peers. The parameter `net`
/// is a copy, because the poll can destroy the object that contains the caller's pointer.
template <class Transport>
void poll_once(const std::shared_ptr<Transport> net) {
  if (net->driver().poll()) net->wake_driver();
}
template <class Transport>
void core<Transport>::progress() {
  poll_once(net_);
}
template <class Transport>
void core<Transport>::wake_driver() {
  net_->wake_driver();
}
template <class Transport>
void core<Transport>::call_ended(call_base& ended_call) noexcept {
  call_queue::call_ended(ended_call);
  // The coroutine that awaits the call may compute for a long time before this rank polls again.
  // Therefore this rank wakes the sleeping peers now.
  if constexpr (waking_transport<Transport>) net_->wake_peers();
}

/// Stores the options that transports of device memory read from the record of a call.
template <class Transport>
void set_device_options(operation_record& record, const options& opts) {
  if constexpr (std::is_same_v<transport_memory_t<Transport>, device_memory>) {
    record.stream = opts.stream;
    record.pinned = opts.algorithm;
    record.reduction_order = opts.order;
  }
}

}  // namespace detail

}  // namespace colls
