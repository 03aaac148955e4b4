// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transport: defines the concept `transport` and the concepts that refine it. A transport is a
// network through which algorithms send and receive messages.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/channel/multi_send_recv.hpp>
#include <colls/coroutine/task.hpp>
#include <colls/matching/tag_matcher.hpp>

#include <memory>
#include <type_traits>

namespace colls {

/// A network that transfers tagged messages between the ranks of a world.
///
/// A transport `net` has these members:
/// - `net.rank()` and `net.size()` return this rank and the number of ranks in the world.
/// - `net.send(key, data, record)` returns an operation (see `startable`) whose result is an
///   error_code. The operation completes when `data` may be reused, not when the peer has the
///   message. `key.peer` is the destination.
/// - `net.recv(key, buffer, record)` returns an operation that completes when `buffer` holds the
///   message. Messages match receives by key, first in first out. `key.peer` is the source.
/// - `net.now()` returns the current time of the transport's clock in nanoseconds.
/// - `net.matching()` returns the tag_matcher that matches the messages of all transports of this
///   rank. The transport has added an implementation of `failure_hooks` to the matcher, or moves
///   its messages through a transport that has.
/// - `net.queue()` returns the run queue of the transport's thread.
/// - `net.wake_driver()` makes the driver run the posted completions soon. The library calls this
///   function after it has posted a completion to the run queue outside of a poll.
/// - `net.driver()` returns the driver (event loop) that runs the transport, for `sync_wait` and
///   `done()`. The driver's `poll` transfers data without waiting. The code that transfers data
///   only posts completions to the run queue and never runs their handlers itself.
/// - `net.node_of(rank)` returns the number of the host on which world rank `rank` runs. Hosts are
///   numbered from 0.
/// - `net.close(deadline)` returns a task by which this rank leaves the world. The operations of a
///   peer that need nothing more from this rank do not fail. The task waits for other ranks until
///   `deadline` at the latest.
///
/// Sends and receives check `record->communicator->failed()` when they start. If the communicator
/// is revoked, they complete with the error of the communicator. Once a send or receive has
/// completed or has been destroyed, the transport does not access its buffer. A transport may send
/// a message up to the eager limit before the peer has posted the receive. It sends the payload of
/// a longer message only after the peer has posted the receive. A message that waits for its
/// receive never blocks messages with another key. `record` must stay alive until the operation has
/// completed.
template <class Transport>
concept transport = requires(Transport& net, const message_key& key, const_bytes data,
                             mutable_bytes buffer, operation_record& record) {
  { net.rank() } -> std::same_as<int>;
  { net.size() } -> std::same_as<int>;
  { net.send(key, data, record) } -> startable;
  { net.recv(key, buffer, record) } -> startable;
  { net.now() } -> std::same_as<time_point>;
  { net.matching() } -> std::same_as<tag_matcher&>;
  { net.queue() } -> std::same_as<run_queue&>;
  net.wake_driver();
  net.driver();
  { net.node_of(0) } -> std::same_as<int>;
  net.close(net.now());
};

/// A transport that can be made for a world of processes, by `join`, `run` and `dup(executor)`.
/// `Transport::make(driver, info)` returns a `task<std::shared_ptr<Transport>>`, whose result is
/// the transport of this rank. `driver` and `info` are shared pointers to the engine of an executor
/// and to the `world_info`, which describes the world. `net.driver()` and `net.info()` return both.
/// `Transport::name` is a string. Ranks whose transports have different names do not join.
template <class Transport>
concept world_transport = transport<Transport> && requires(Transport& net) {
  { Transport::name } -> std::convertible_to<const char*>;
  {
    Transport::make(std::shared_ptr<std::remove_cvref_t<decltype(net.driver())>>(),
                    std::shared_ptr<std::remove_cvref_t<decltype(net.info())>>())
  } -> std::same_as<task<std::shared_ptr<Transport>>>;
};

/// A transport whose messages do not immediately wake a sleeping peer. `net.wake_peers()` wakes the
/// sleeping peers to which this rank has written or whose data it has read. The library calls this
/// function when this rank may stop polling, for example because the program computes.
template <class Transport>
concept waking_transport = transport<Transport> && requires(Transport& net) { net.wake_peers(); };

/// A transport that can pass a received message piece by piece to a function
/// (`posted_receive::fold`) instead of writing the message to a buffer. A reduction that receives
/// its data in this way needs no scratch memory.
template <class Transport>
concept consuming_transport = transport<Transport> && Transport::consumes;

/// A transport that can read a message that is sent piece by piece, so that its bytes need not be
/// contiguous in memory. Before a send operation starts, `read_from(payload)` makes the operation
/// send the bytes of a `payload_source` that are as many as those of the message. The message must
/// be longer than `eager_limit`, because the transport may copy a shorter one when it is sent.
template <class Transport>
concept sourcing_transport =
    consuming_transport<Transport> &&
    requires(Transport& net, const message_key& key, operation_record& record,
             payload_source& payload) { net.send(key, const_bytes(), record).read_from(payload); };

/// A transport whose ranks all run on one thread. Therefore the last rank to arrive at a barrier
/// can do the work of all ranks. `net.arrive(lane, arguments, record)` returns an operation that
/// joins the barrier. `arguments` points to data of the calling rank or is null. On the last
/// rank, the operation completes immediately and gives access to the `arguments` of all other
/// ranks. On every other rank, the operation completes when the last rank releases that rank (see
/// `inproc::completion_barrier`).
template <class Transport>
concept completion_barrier_transport =
    transport<Transport> && requires(Transport& net, void* arguments, operation_record& record) {
      { net.arrive(std::uint16_t(), arguments, record) } -> startable;
    };

/// A transport that estimates the cost of its messages. `net.costs()` returns the estimate, which
/// is equal on all ranks. A communicator uses the estimate until `measure` or `set_costs` replaces
/// it.
template <class Transport>
concept priced_transport = transport<Transport> && requires(const Transport& net) {
  { net.costs() } -> std::same_as<network_cost>;
};

/// A transport that can simulate a network without transferring payload. If `net.is_phantom()`
/// returns true, messages have lengths but no contents, and no code accesses or allocates buffers
/// for them.
template <class Transport>
concept phantom_transport = consuming_transport<Transport> && requires(const Transport& net) {
  { net.is_phantom() } -> std::same_as<bool>;
};

/// A pattern of reads from the memory of one rank. Either no rank reads, or one rank reads while
/// the others are idle, or all ranks read at the same time. With `all_to_reduce`, all ranks read at
/// the same time and reduce the data.
enum class readers { no_rank, one, all, all_to_reduce };

/// A transport on which an operation can expose its buffers to peers. The peers access the buffers
/// directly, without messages. `net.allocate(size)` returns memory for such buffers.
/// `net.can_expose(data)` returns whether `data` lies in such memory. Peers map this memory. The
/// mapping of a peer is called the peer's view of this rank's memory.
///
/// An operation exposes its buffers through an object of type `exposure`, which it constructs with
/// `exposure(net, communicator)`:
/// - `offset_for(peer, data)` exposes `data` to `peer`. It returns the offset of `data` in the
///   peer's view, or 0 if the peer cannot access `data`.
/// - `address_for(peer, data, readers)` exposes private memory, which is memory that lies in no
///   view. The peer reads private memory by a system call. `address_for` returns the offset that
///   the peer passes to `read`. It returns 0 if the peer cannot read the memory or if a message
///   would be faster.
/// - `remote_key()` returns the key with which peers access the exposed buffers, or 0 if too many
///   keys are open.
/// - `disable_reads(peer)` makes all later calls of `address_for` for that peer return 0. The
///   operation calls it after the peer has failed to read private memory.
/// - `complete()` must be called after all peers have reported that they no longer access the
///   buffers. It throws if this rank has revoked the key early, which happens if a peer seemed to
///   be stopped while the peer accessed the memory.
/// - The destructor closes the key. If `complete()` was not called, the destructor waits until no
///   peer can write to the buffers. Peers discard what they still read from the buffers.
///
/// `net.view_of(peer)` returns this rank's view of the memory of a peer, or null if there is no
/// view. `guard()` of the view returns the view's guard, an object of type `view::guard_view`. To
/// access the buffers of peers, call `guard_view::enter_all(for_each)`, where `for_each(action)`
/// calls `action(guard, remote_key)` for each of these peers. If the result is true, access the
/// bytes through `at(offset, size)`. After reading, check `guard_view::are_still_open(for_each)`,
/// and in any case call `leave()` of each guard. If `is_private(offset)` returns true, the offset
/// denotes private memory. If `can_read_owner()` returns true, this rank can read private memory:
/// call `read(buffer, offset)`, and then check `are_still_open`, without entering.
///
/// `bounce_buffer(net)` holds `bounce_buffer::size` bytes of memory that one operation can expose.
/// `data()` of the bounce buffer returns the address of this memory, or null if no memory was free.
template <class Transport>
concept shared_window_transport = transport<Transport> && requires(Transport& net) {
  typename Transport::exposure;
  typename Transport::view;
  typename Transport::bounce_buffer;
  { net.can_expose(const_bytes()) } -> std::same_as<bool>;
  { net.allocate(std::size_t()) } -> std::same_as<std::shared_ptr<std::byte>>;
  { net.view_of(0) } -> std::same_as<typename Transport::view*>;
};

/// A transport that can send short messages to many ranks and receive short messages from many
/// ranks in one operation, `multi_send_recv_operation(net, lane, sends, receives, record)`. A
/// message that this operation sends may match a receive of `recv`, and a message of `send` may
/// match this operation.
template <class Transport>
concept multi_send_recv_transport =
    transport<Transport> && startable<typename Transport::multi_send_recv_operation>;

/// A transport that has algorithms of its own in the table (`native_algorithms`).
/// `net.native_obstacle(state, call, costs)` returns why they cannot do a call on a communicator,
/// or null, equally on all ranks. `Transport::measure_collectives(channel, costs)` is a task that
/// stores their times in `costs`.
template <class Transport>
concept native_transport = requires(const Transport& net, const communicator_state& comm,
                                    const fingerprint& call, const network_cost& costs) {
  { net.native_obstacle(comm, call, costs) } -> std::same_as<const char*>;
};

/// A transport that moves its messages through another transport, `net.next_layer()`. The buffers
/// of the two transports lie in different kinds of memory.
template <class Transport, class NextLayer>
concept layered_on = std::same_as<typename Transport::next_layer_type, NextLayer>;

}  // namespace colls
