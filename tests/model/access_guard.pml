/* SPDX-FileCopyrightText: 2026 The colls authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * The access guard of a shared heap: an owner exposes a block of its heap in two operations, and its
 * peers read and write the block in place. At any moment an operation may fail on the owner, and a
 * peer may be killed, or be stopped for so long that the owner moves the block to other pages. The
 * steps have the names that comments in the headers give them.
 *
 * Checked: once the owner has ended an exposure, no peer's store reaches the block. What a peer has
 * read and found valid is what the owner has exposed, or what a peer has written there in the same
 * operation. Every wait ends.
 *
 * By default the operations follow each other and use the same entry of the table of keys, and a peer
 * may still be at work in the first one while the second one runs. With CONCURRENT the owner exposes
 * the same block in both at once, to one peer each. With PRIVATE the peers read private memory by
 * cross-memory attach, for which they do not enter.
 *
 * headers: include/colls/os/access_guard.hpp
 * headers: include/colls/algorithm/shared_window.hpp
 * headers: include/colls/transport/interprocess/window/window_manager.ipp
 * run: in order: PEERS=1
 * run: out of order: PEERS=1 OUT_OF_ORDER
 * run: one block twice: PEERS=2 OUT_OF_ORDER CONCURRENT
 * run: private memory: PEERS=1 OUT_OF_ORDER PRIVATE
 * planted: NO_ENTER_FENCE: in order: a peer checks the key before its mark is visible
 * planted: NO_REVOKE_FENCE: in order: the owner looks at the marks before its closed key is visible
 * planted: CHECK_FIRST: in order: a peer checks the key and sets its mark then
 * planted: MARKS_FIRST: in order: the owner looks at the marks and closes the key then
 * planted: LEAVE_RELAXED: out of order: the store that clears a mark is no release store
 * planted: LEAVE_FIRST: in order: a peer clears its mark before it has written
 * planted: NO_SECOND_CHECK: in order: a peer believes what it has read without checking the key again
 * planted: SECOND_CHECK_RELAXED: out of order: the second check of the key may come before the read
 * planted: KEY_REUSED: in order: the second operation gets the key of the first
 * planted: GONE_TOO_EARLY: in order: a peer that has been killed counts as gone while its stores travel
 * planted: NO_WAIT: in order: the owner does not wait for marks
 * planted: PAGES_REUSED: in order: a block is moved to pages that a stopped peer may write
 * planted: OTHER_KEY_OPEN: one block twice: the block moves while another operation's key is open
 * planted: OTHER_KEY_WITHOUT_FENCE: one block twice: the block moves before that key is visibly closed
 * planted: NO_REVOKE_FENCE: private memory: the owner reuses private memory before its closed key is visible
 * planted: SECOND_CHECK_RELAXED: private memory: the second check of the key may come before the kernel's read
 */

#define OPERATIONS 2
#ifndef PIECES
#define PIECES 2 /* how often a peer enters in an operation */
#endif

/* The processors: that of the owner, then those of the peers. */
#define owner_cpu 0
#define CPUS (1 + PEERS)

/* Shared memory. The block has a place in the heap, and others to which it may move. */
#ifdef CONCURRENT
#define PLACES 2
#define KEY(operation) ((operation) - 1)
#else
#define PLACES 3
#define KEY(operation) 0
#endif
#define MARK(peer) (1 + (peer))
#define DONE(peer) (3 + (peer)) /* the last message of a peer */
#define BLOCK(place) (6 + (place))
#define LOCATIONS (6 + PLACES)

#ifdef KEY_REUSED
#define key_of(operation) 1
#else
#define key_of(operation) operation
#endif

/* What lies in the block: the operation times 16, and the rank. */
#define content(operation, rank) (16 * (operation) + (rank))
#define operation_of(content) ((content) / 16)
#define program_data 255
#ifdef CONCURRENT
/* The operations have the same input. The peer of the first one writes, and that of the second one
 * may read what the other has written. Neither is killed. */
#define may_write(peer) (peer == 1)
#define may_read(peer) (peer == 2)
#define is_of(content, operation) (operation_of(content) == 1 || operation_of(content) == 2)
#else
#define may_write(peer) true
#define may_read(peer) true
#define is_of(content, operation) (operation_of(content) == operation)
#endif

byte place;                      /* of the block, as its owner has mapped it */
byte place_of[OPERATIONS + 1];   /* what the messages with the remote keys say; 1 more */
bit has_ended[OPERATIONS + 1];   /* the owner's exposure */
bit is_killed[PEERS + 1];
bit is_gone[PEERS + 1];          /* the system has closed the sockets of the peer's process */

/* No store of a peer reaches the block after the end of the operation. */
#define ON_ARRIVAL(cpu, location, value) \
  assert(cpu == owner_cpu || location != BLOCK(place) || !has_ended[operation_of(value)])
#include "weak_memory.h"

inline access_block() {
  if
  :: may_write(me) -> store(me, BLOCK(at), content(operation, me), relaxed) /* step: work */
  :: may_read(me) -> load(me, BLOCK(at), found);                            /* step: work */
     has_read = 1
  fi
}

inline check_again() {
#ifndef NO_SECOND_CHECK
  load(me, KEY(operation), seen); /* step: second_check */
#endif
  assert(!has_read || seen != key_of(operation) || is_of(found, operation))
}

proctype peer(byte me) {
  byte operation, piece, seen, found, at;
  bit has_read;
  {
    operation = 1;
    do
    :: operation <= OPERATIONS ->
#ifdef CONCURRENT
       operation = me;
#endif
       place_of[operation] != 0; /* the owner's message has come */
       at = place_of[operation] - 1;
       piece = 0;
       do
       :: piece < PIECES ->
          has_read = 0;
#ifdef PRIVATE
          load(me, BLOCK(at), found);
          has_read = 1;
#ifdef SECOND_CHECK_RELAXED
          load(me, KEY(operation), seen);
          load(me, BLOCK(at), found);
          assert(seen != key_of(operation) || is_of(found, operation));
#else
          check_again();
#endif
          if
          :: seen != key_of(operation) -> break
          :: else
          fi;
#else
#ifdef CHECK_FIRST
          load(me, KEY(operation), seen);
          store(me, MARK(me), 1, releasing);
          fence(me);
#else
          store(me, MARK(me), 1, releasing); /* step: enter_mark */
#ifndef NO_ENTER_FENCE
          fence(me); /* step: enter_fence */
#endif
          load(me, KEY(operation), seen); /* step: enter_check */
#endif
          if
          :: seen == key_of(operation) ->
#ifdef LEAVE_FIRST
             store(me, MARK(me), 0, releasing);
#endif
#ifdef SECOND_CHECK_RELAXED
             if
             :: access_block(); check_again()
             :: load(me, KEY(operation), seen);
                access_block();
                assert(!has_read || seen != key_of(operation) || is_of(found, operation))
             fi
#else
             access_block();
             check_again()
#endif
          :: else
          fi;
#ifdef LEAVE_RELAXED
          store(me, MARK(me), 0, relaxed);
#else
          store(me, MARK(me), 0, releasing); /* step: leave */
#endif
          if
          :: seen != key_of(operation) -> break /* waits for the revocation */
          :: else
          fi;
#endif
          piece++
       :: else ->
          store(me, DONE(me), operation, releasing); /* the message that the peer is done */
          break
       od;
#ifdef CONCURRENT
       operation = OPERATIONS;
#endif
       operation++
    :: else -> break
    od
  } unless { is_killed[me] }
}

/* Kills a peer at any moment. */
proctype killer(byte me) {
  is_killed[me] = 1;
#ifndef GONE_TOO_EARLY
  is_drained(me);
#endif
  is_gone[me] = 1
}

/* shared_heap::relocate, and window_manager::relocate before it */
inline relocate(moved_operation) {
#ifdef CONCURRENT
#ifndef OTHER_KEY_OPEN
  store(owner_cpu, KEY(3 - moved_operation), 0, releasing);
#ifndef OTHER_KEY_WITHOUT_FENCE
  fence(owner_cpu); /* step: relocate_revokes */
#endif
  is_other_revoked = 1;
#endif
#endif
  d_step {
    is_moved = 1;
#ifdef PAGES_REUSED
    place = place;
#else
    memory[BLOCK(place + 1)] = memory[BLOCK(place)];
    memory[BLOCK(place)] = 0;
    place++
#endif
  }
}

inline end_exposure(ended) {
#ifdef MARKS_FIRST
  is_empty = 1;
  waiting = 0;
  do
  :: waiting < PEERS ->
     waiting++;
     load(owner_cpu, MARK(waiting), seen);
     is_empty = is_empty && seen == 0
  :: else -> break
  od;
#endif
  store(owner_cpu, KEY(ended), 0, releasing); /* step: revoke_key */
#ifndef NO_REVOKE_FENCE
  fence(owner_cpu); /* step: revoke_fence */
#endif
  waiting = 0;
#ifdef MARKS_FIRST
  if
  :: is_empty -> waiting = PEERS
  :: else
  fi;
#endif
#ifdef PRIVATE
  waiting = PEERS; /* peers only read */
#endif
#ifdef NO_WAIT
  waiting = PEERS;
#endif
  is_moved = 0;
  do
  :: waiting < PEERS && !is_moved ->
     waiting++;
     do
     :: is_gone[waiting] -> break
     :: load(owner_cpu, MARK(waiting), seen); /* step: revoke_wait */
        if
        :: seen == 0 -> break
        :: seen != 0 && place + 1 < PLACES && !is_gone[waiting] -> relocate(ended); break
        :: seen != 0 && (memory[MARK(waiting)] == 0 || is_gone[waiting]) /* looks again later */
        fi
     od
  :: else -> break
  od;
  waiting = 0
}

inline expose(opened) {
  store(owner_cpu, KEY(opened), key_of(opened), releasing); /* step: open_key */
  is_drained(owner_cpu); /* the message with the key follows what was stored before */
  place_of[opened] = place + 1
}

/* After the exposure the block belongs to the program. */
inline end_operation(ended) {
  has_ended[ended] = 1;
  store(owner_cpu, BLOCK(place), program_data, relaxed)
}

#if PEERS == 2
#define are_done(operation) (memory[DONE(1)] == operation && memory[DONE(2)] == operation)
#else
#define are_done(operation) (memory[DONE(1)] == operation)
#endif

proctype owner() {
  byte operation, seen, waiting;
  bit is_moved, is_other_revoked;
#ifdef MARKS_FIRST
  bit is_empty;
#endif
#ifdef CONCURRENT
  store(owner_cpu, BLOCK(place), content(1, 0), relaxed);
  expose(1);
  expose(2);
  end_exposure(1);
  has_ended[1] = 1;
  if
  :: !is_other_revoked && memory[DONE(2)] == 2 -> store(owner_cpu, KEY(2), 0, releasing)
  :: end_exposure(2)
  fi;
  end_operation(2)
#else
  operation = 1;
  do
  :: operation <= OPERATIONS ->
     store(owner_cpu, BLOCK(place), content(operation, 0), relaxed);
     expose(operation);
     if
     :: are_done(operation) -> store(owner_cpu, KEY(operation), 0, releasing) /* step: close_key */
     :: end_exposure(operation)
     fi;
     end_operation(operation);
     operation++
  :: else -> break
  od
#endif
}

init {
  byte rank;
  atomic {
    run drain(owner_cpu);
    run owner();
    rank = 1;
    do
    :: rank <= PEERS ->
       run drain(rank);
       run peer(rank);
#ifndef CONCURRENT
       if
       :: run killer(rank)
       :: skip /* the peer lives */
       fi;
#endif
       rank++
    :: else -> break
    od
  }
}
