// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transport: the concept of a network as algorithms use it, and its refinements.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/channel/multi_send_recv.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

/// Moves tagged bytes between the ranks of a world.
///
/// | expression | meaning |
/// |---|---|
/// | `net.rank()`, `net.size()` | this rank and the number of ranks in the world |
/// | `net.send(key, data, record)` | an operation (see `startable`) whose result is an error_code. It ends when `data` may be reused, not when the peer has the message. `key.peer` is the destination |
/// | `net.recv(key, buffer, record)` | an operation that ends when `buffer` holds the message. Messages match receives by key, first in first out. `key.peer` is the source |
/// | `net.now()` | the time of its clock, in nanoseconds |
/// | `net.matching()` | the tag_matcher that matches its messages, shared with other transports of the rank |
/// | `net.queue()` | the run queue of its thread |
/// | `net.wake_driver()` | wakes the driver after a completion was posted to the run queue from outside of a poll |
/// | `net.driver()` | the driver that runs it, for `sync_wait` and `done()`. Its `poll` moves bytes without waiting; completions are posted to the run queue, never called by the code that moves bytes |
/// | `net.node_of(rank)` | the host of a rank of the world, numbered from 0 |
/// | `net.close(deadline)` | a task that leaves the world without ending an operation of a peer |
///
/// Both operations check `record->communicator->failed()` when they start, end with that error when
/// the communicator is revoked, and do not touch their bytes after they have ended or were
/// destroyed. Up to the eager limit a message may be sent before its receive is posted. A longer
/// message moves only into a posted receive and never blocks another key. `record` must stay alive
/// until the operation has ended.
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

/// A refinement: a message does not wake a sleeping peer at once. `net.wake_peers()` wakes the
/// peers that this rank has written to. It is called before this rank computes.
template <class Transport>
concept waking_transport = transport<Transport> && requires(Transport& net) { net.wake_peers(); };

/// A refinement: a posted receive can consume a message in place with `fold`, so a reduction needs
/// no scratch.
template <class Transport>
concept consuming_transport = transport<Transport> && Transport::consumes;

/// A refinement: all ranks run on one thread, and the last rank to arrive does the work of all.
/// `net.arrive(lane, arguments, record)` is an operation that ends at once for the last arriver,
/// which gets the `arguments` of the other ranks. The others wait until it releases them (see
/// `inproc::completion_barrier`).
template <class Transport>
concept completion_barrier_transport =
    transport<Transport> && requires(Transport& net, void* arguments, operation_record& record) {
      { net.arrive(std::uint16_t(), arguments, record) } -> startable;
    };

/// A refinement: `net.costs()` estimates the cost of its messages. The estimate is equal on all
/// ranks and holds until `measure` replaces it.
template <class Transport>
concept priced_transport = transport<Transport> && requires(const Transport& net) {
  { net.costs() } -> std::same_as<network_cost>;
};

/// A refinement: it can run without payload. Messages then have lengths and no bytes, and no code
/// reads a buffer or allocates memory for one.
template <class Transport>
concept phantom_transport = consuming_transport<Transport> && requires(const Transport& net) {
  { net.is_phantom() } -> std::same_as<bool>;
};

/// The ranks that read from the memory of one rank: one rank while the others are idle, all at
/// once, or all at once to reduce it.
enum class readers { none, one, all, all_to_reduce };

/// A refinement: an operation can expose its buffers to peers, which access them in place.
/// `net.allocate(size)` returns memory for such buffers. `net.can_expose(data)` returns whether
/// `data` lies in such memory.
///
/// `exposure(net, communicator)` is the owner's side of one operation:
/// - `offset_for(peer, data)` exposes `data` to `peer` and returns its offset in the peer's view,
///   or 0 if the peer cannot access it.
/// - `address_for(peer, data, readers)` does the same for memory of this rank that lies in no view
///   and that the peer reads through the kernel. It returns 0 if the peer cannot read it or a
///   message is faster.
/// - `remote_key()` returns the key with which peers access what is exposed, or 0 if too many keys
///   are open.
/// - `disable_reads(peer)` is called after the peer failed to read. From then on `address_for`
///   returns 0 for that peer.
/// - `complete()` is called after all peers have reported that they are done. It throws if a peer
///   was stopped inside the memory.
/// - The destructor closes the key. If `complete()` was not called, it waits until no peer accesses
///   the buffers.
///
/// `net.view_of(peer)` returns this rank's view of the buffers that a peer exposes, or null. To
/// access them, call `enter()`, then a sequentially consistent fence, then check
/// `is_open(remote_key)`; access the bytes through `at(offset, size)`, and then call `leave()`. An
/// offset for which `is_private(offset)` holds lies in no view: if `can_read_owner()`, call
/// `read(buffer, offset)`, then a fence, and then check `is_open(remote_key)`.
///
/// `bounce_buffer(net)` holds `size` bytes of such memory for one operation. `data()` returns its
/// address, or null if there is none.
template <class Transport>
concept shared_window_transport = transport<Transport> && requires(Transport& net) {
  typename Transport::exposure;
  typename Transport::view;
  typename Transport::bounce_buffer;
  { net.can_expose(const_bytes()) } -> std::same_as<bool>;
  { net.allocate(std::size_t()) } -> std::same_as<std::shared_ptr<std::byte>>;
  { net.view_of(0) } -> std::same_as<typename Transport::view*>;
};

/// A refinement: short messages to and from many ranks are one operation,
/// `multi_send_recv_operation(net, lane, sends, receives, record)`. Its messages match those of
/// `send` and `recv`.
template <class Transport>
concept multi_send_recv_transport =
    transport<Transport> && startable<typename Transport::multi_send_recv_operation>;

/// A refinement: it moves its messages through another transport, `net.next_layer()`, from memory
/// of a different kind.
template <class Transport, class NextLayer>
concept layered_on = std::same_as<typename Transport::next_layer_type, NextLayer>;

}  // namespace colls
