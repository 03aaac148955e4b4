// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transport: the concept of a network through which algorithms send and receive, and refinements of
// this concept.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/channel/multi_send_recv.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

/// A network that moves tagged bytes between the ranks of a world.
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
///   rank.
/// - `net.queue()` returns the run queue of the transport's thread.
/// - `net.wake_driver()` wakes the driver. This function is called after a completion was posted to
///   the run queue from outside of a poll.
/// - `net.driver()` returns the driver (event loop) that runs the transport, for `sync_wait` and
///   `done()`. The driver's `poll` moves bytes without waiting. Completions are posted to the run
///   queue and never called by the code that moves bytes.
/// - `net.node_of(rank)` returns the number of the host on which world rank `rank` runs. Hosts are
///   numbered from 0.
/// - `net.close(deadline)` returns a task that leaves the world without failing an operation of a
///   peer.
///
/// Sends and receives check `record->communicator->failed()` when they start. If the communicator
/// is revoked, they complete with the error of the communicator. A send or receive does not access
/// its buffer after it has completed or was destroyed. A message up to the eager limit may be sent
/// before its receive is posted. The payload of a longer message is sent only after the receive is
/// posted. A message that waits for its receive never blocks messages with another key. `record`
/// must stay alive until the operation has completed.
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

/// A transport whose messages do not wake a sleeping peer at once. `net.wake_peers()` wakes the
/// peers that this rank has written to. This function is called before this rank stops polling, for
/// example to compute.
template <class Transport>
concept waking_transport = transport<Transport> && requires(Transport& net) { net.wake_peers(); };

/// A transport that can pass the pieces of a message to the `fold` of a posted receive instead of
/// writing them to a buffer, so that a reduction needs no scratch memory.
template <class Transport>
concept consuming_transport = transport<Transport> && Transport::consumes;

/// A transport whose ranks all run on one thread, so that the last rank to arrive at a barrier can
/// do the work of all ranks. `net.arrive(lane, arguments, record)` returns an operation that joins
/// the barrier. The operation completes immediately for the last rank, which gets the `arguments`
/// of the other ranks. The other ranks wait until the last rank releases them (see
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

/// A transport that can simulate a network without payload. If `net.is_phantom()` returns true,
/// messages have lengths but no bytes, and buffers are neither accessed nor allocated.
template <class Transport>
concept phantom_transport = consuming_transport<Transport> && requires(const Transport& net) {
  { net.is_phantom() } -> std::same_as<bool>;
};

/// Tells which ranks read from the memory of one rank: no rank, one rank while the others are idle,
/// all ranks at the same time, or all ranks at the same time in order to reduce the data.
enum class readers { no_rank, one, all, all_to_reduce };

/// A transport on which an operation can expose its buffers to peers, which access the buffers in
/// place. `net.allocate(size)` returns memory for such buffers. `net.can_expose(data)` returns
/// whether `data` lies in such memory.
///
/// `exposure(net, communicator)` is the owner's side of one operation:
/// - `offset_for(peer, data)` exposes `data` to `peer`. It returns the offset of `data` in the
///   peer's view, or 0 if the peer cannot access `data`.
/// - `address_for(peer, data, readers)` exposes memory of this rank that lies in no view. The peer
///   reads this memory by a system call. `address_for` returns the offset by which the peer reads
///   `data`, or 0 if the peer cannot read the memory or if sending a message is faster.
/// - `remote_key()` returns the key with which peers access the exposed buffers, or 0 if too many
///   keys are open.
/// - `disable_reads(peer)` is called after the peer has failed to read. From then on `address_for`
///   returns 0 for that peer.
/// - `complete()` is called after all peers have reported that they no longer access the buffers.
///   It throws if a peer was stopped during an access.
/// - The destructor closes the key. If `complete()` was not called, the destructor waits until no
///   peer accesses the buffers.
///
/// `net.view_of(peer)` returns this rank's view of the buffers that a peer exposes, or null. To
/// access the buffers, call `enter()`, then issue a sequentially consistent fence, and then check
/// `is_open(remote_key)`. Access the bytes through `at(offset, size)`, and call `leave()`
/// afterwards. An offset for which `is_private(offset)` returns true denotes memory that lies in no
/// view. If `can_read_owner()` returns true, read such an offset by calling `read(buffer, offset)`,
/// then issue a fence, and then check `is_open(remote_key)`.
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

/// A transport that moves its messages through another transport, `net.next_layer()`. The buffers
/// of the two transports lie in different kinds of memory.
template <class Transport, class NextLayer>
concept layered_on = std::same_as<typename Transport::next_layer_type, NextLayer>;

}  // namespace colls
