// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transport: what algorithms need of a network, and what its words mean.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/channel/multi_send_recv.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

/// Moves tagged bytes between the ranks of a world.
///
/// | expression | means |
/// |---|---|
/// | `net.rank()`, `net.size()` | this rank and the number of ranks, in the world |
/// | `net.send(key, from, record)` | an operation (see `startable`) whose result is an error_code; it ends when `from` may be used again, not when the peer has it. `key.peer` is the destination |
/// | `net.recv(key, into, record)` | the same; it ends when `into` holds the message. A message is paired with a receive by its key, first in first out |
/// | `net.now()` | nanoseconds of its clock |
/// | `net.matching()` | the match that pairs its messages; shared with other transports of the rank |
/// | `net.queue()`, `net.kick()` | the run queue of its thread; somebody posted to it from outside of a poll |
/// | `net.driver()` | what turns it, for `sync_wait` and `done()`: its `poll` moves bytes without waiting; completions are posted to the run queue, never called by what moves them |
/// | `net.node_of(rank)` | the host of a rank of the world, numbered from 0 |
/// | `net.close(deadline)` | a task: leaves the world without ending a peer's operation |
///
/// Both operations check `record->communicator->failed()` when they start, end with that error when
/// the communicator is revoked, and touch their bytes no more once they have ended or were
/// destroyed. Up to the eager limit a message may be sent before its receive is posted; a longer
/// one moves only into a posted receive and never blocks another key. `record` must stay alive
/// until the operation has ended.
template <class Transport>
concept transport = requires(Transport& net, const message_key& key, const_bytes from,
                             mutable_bytes into, operation_record& record) {
  { net.rank() } -> std::same_as<int>;
  { net.size() } -> std::same_as<int>;
  { net.send(key, from, record) } -> startable;
  { net.recv(key, into, record) } -> startable;
  { net.now() } -> std::same_as<time_point>;
  { net.matching() } -> std::same_as<match&>;
  { net.queue() } -> std::same_as<run_queue&>;
  net.kick();
  net.driver();
  { net.node_of(0) } -> std::same_as<int>;
  net.close(net.now());
};

/// A refinement: peers that sleep are not woken by each message. `net.hand_over()` wakes those that
/// were written to, before somebody computes.
template <class Transport>
concept waking_transport = transport<Transport> && requires(Transport& net) { net.hand_over(); };

/// A refinement: a posted receive may take the message where the sender left it, by `fold`, so
/// that a reduction needs no scratch.
template <class Transport>
concept consuming_transport = transport<Transport> && Transport::consumes;

/// A refinement: all ranks run on one thread, so the last to come does the work of all.
/// `net.meet(lane, mine, record)` is an operation that ends at once for that one, which is told
/// where `mine` of the others lies; they wait until it releases them (see
/// `inproc::meet_operation`).
template <class Transport>
concept meeting_transport =
    transport<Transport> && requires(Transport& net, void* mine, operation_record& record) {
      { net.meet(std::uint16_t(), mine, record) } -> startable;
    };

/// A refinement: says what its messages cost, equally on all ranks, until `measure` finds out.
template <class Transport>
concept priced_transport = transport<Transport> && requires(const Transport& net) {
  { net.costs() } -> std::same_as<network_cost>;
};

/// A refinement: it can run without payload. Then messages have lengths and no bytes, and nothing
/// looks at a buffer or takes memory for one.
template <class Transport>
concept phantom_transport = consuming_transport<Transport> && requires(const Transport& net) {
  { net.is_phantom() } -> std::same_as<bool>;
};

/// Which ranks read what lies in memory of one of them: one, while the others do nothing; all at
/// once; all at once, to add it up.
enum class readers { nobody, one, all, all_to_add };

/// A refinement: an operation can lend its buffers to peers, which work in them where they lie.
/// `net.allocate(size)` gives memory for such buffers. `loan(net, communicator)` is one operation's part:
/// `place_for(peer, bytes)` says where they lie for a peer, or 0; `ticket()` is its permission;
/// `address_for(peer, bytes, by)` says the same of any memory, for a peer that can read it, where
/// that is quicker than to send it;
/// `unread(peer)`: that one could not after all.
/// `settle()` says that all peers are done. It is destroyed when nobody touches them any more, and
/// waits for that. `net.view_of(peer)` is what this rank sees of a peer: `at(place, size)`;
/// `raise()`, a fence and then `is_open(ticket)` before anything is touched; `lower()` afterwards.
/// What has `is_own(place)` is in no view: `read(into, place)`, if it `reads_owner()`, and
/// afterwards a fence and `is_open(ticket)`.
/// A `desk(net)` has up to `size` bytes of such memory for one operation at `data()`, or null.
template <class Transport>
concept lending_transport = transport<Transport> && requires(Transport& net) {
  typename Transport::loan;
  typename Transport::view;
  typename Transport::desk;
  { net.lends(const_bytes()) } -> std::same_as<bool>;
  { net.allocate(std::size_t()) } -> std::same_as<std::shared_ptr<std::byte>>;
  { net.view_of(0) } -> std::same_as<typename Transport::view*>;
};

/// A refinement: short messages to many ranks and from many, of a rank that may do both, are one
/// operation, `round_operation(net, lane, give, take, record)`. They are messages as others are.
template <class Transport>
concept round_transport = transport<Transport> && startable<typename Transport::round_operation>;

/// A refinement: it moves what another transport moves, `net.below()`, on other memory.
template <class Transport, class Below>
concept stands_on = std::same_as<typename Transport::below_type, Below>;

}  // namespace colls
