/* SPDX-FileCopyrightText: 2026 The colls authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * One direction of a ring buffer, and how its two sides sleep and wake each other: the reader while
 * no frame has come, the writer while the ring has no room. The steps have the names that comments in
 * the headers give them.
 *
 * Checked: the reader gets every frame in order and with its payload, and neither side sleeps for
 * ever (spin reports a state in which nothing can go on).
 *
 * headers: include/colls/transport/interprocess/carrier/ring_buffer.hpp
 * headers: include/colls/transport/interprocess/carrier/shared_memory_pipe.hpp
 * run: in order:
 * run: out of order: OUT_OF_ORDER
 * planted: NO_REQUEST_FENCE: in order: the sleeper looks for frames before its flag is visible
 * planted: NO_WAKE_FENCE: in order: the waker looks at the flag before its frame is visible
 * planted: NO_FRONT_CHECK: in order: the reader does not look for frames again after it has set its flag
 * planted: NO_ROOM_CHECK: in order: the writer does not look for room again after it has set its flag
 * planted: NO_WAKE_BEFORE_SLEEP: in order: a rank sleeps without waking its peer
 * planted: FLAG_AFTER_CHECK: in order: the sleeper looks first and sets its flag then
 * planted: FLAG_STORED: in order: the waker clears the flag by a store and not by an exchange
 * planted: NUMBER_FIRST: in order: the number of a slot is stored before its payload
 * planted: NUMBER_RELAXED: out of order: the number of a slot is no release store
 * planted: PROGRESS_FIRST: in order: the reader publishes a slot before it has read it
 * planted: PROGRESS_RELAXED: out of order: the reader's progress is no release store
 * planted: FRONT_RELAXED: out of order: the load of a slot's number is no acquire load
 */

#define FRAMES 5
#define SLOTS 3
#define DUE 2 /* the reader publishes its progress after so many slots */

/* The processors, which are the ranks. */
#define writer_rank 0
#define reader_rank 1
#define CPUS 2

/* Shared memory. */
#define NUMBER(i) (i)          /* slot::number */
#define PAYLOAD(i) (SLOTS + (i)) /* the slot's bytes in the ring */
#define SLOTS_DONE (2 * SLOTS) /* reader_line::slots_done */
#define ASLEEP(rank) (2 * SLOTS + 1 + (rank)) /* sleeper_line::asleep; that of the writer lies in the other direction */
#define LOCATIONS (2 * SLOTS + 3)
#define ON_ARRIVAL(cpu, where, what) skip
#include "weak_memory.h"

chan socket[CPUS] = [1] of { bit }; /* bytes that wake */

/* connection::wake_peer; `progressed` is of the caller. */
inline wake_peer(rank, peer) {
  if
  :: progressed ->
     progressed = 0;
#ifndef NO_WAKE_FENCE
     fence(rank); /* step: wake_fence */
#endif
     load(rank, ASLEEP(peer), seen); /* step: wake_check */
     if
     :: seen != 0 ->
#ifdef FLAG_STORED
        store(rank, ASLEEP(peer), 0, relaxed);
        seen = 1;
#else
        d_step { seen = memory[ASLEEP(peer)]; memory[ASLEEP(peer)] = 0 } /* step: wake_exchange */
#endif
        if
        :: seen != 0 && len(socket[peer]) == 0 -> socket[peer]!1
        :: else /* a full socket holds bytes that wake the peer */
        fi
     :: else
     fi
  :: else
  fi
}

/* ring_buffer::write */
inline write_frame() {
#ifdef NUMBER_FIRST
  store(writer_rank, NUMBER(written % SLOTS), written + 1, releasing);
  store(writer_rank, PAYLOAD(written % SLOTS), written + 1, relaxed);
#else
  store(writer_rank, PAYLOAD(written % SLOTS), written + 1, relaxed); /* step: write_payload */
#ifdef NUMBER_RELAXED
  store(writer_rank, NUMBER(written % SLOTS), written + 1, relaxed);
#else
  store(writer_rank, NUMBER(written % SLOTS), written + 1, releasing); /* step: write_number */
#endif
#endif
  written++;
  progressed = 1
}

proctype writer() {
  byte written, done, seen;
  bit progressed, nothing_written;
  do
  :: written < FRAMES && written - done < SLOTS ->
     write_frame();
     if
     :: wake_peer(writer_rank, reader_rank)
     :: skip
     fi
  :: written < FRAMES && written - done == SLOTS ->
     load(writer_rank, SLOTS_DONE, done); /* step: read_progress */
     if
     :: written - done < SLOTS
     :: else -> /* connection::arm */
        nothing_written = 1;
#ifdef FLAG_AFTER_CHECK
        load(writer_rank, SLOTS_DONE, done);
        store(writer_rank, ASLEEP(writer_rank), 1, relaxed);
        fence(writer_rank);
#else
        store(writer_rank, ASLEEP(writer_rank), 1, relaxed); /* step: request_flag */
#ifndef NO_REQUEST_FENCE
        fence(writer_rank); /* step: request_fence */
#endif
#ifndef NO_ROOM_CHECK
        load(writer_rank, SLOTS_DONE, done); /* step: request_room_check */
#endif
#endif
        if
        :: written - done < SLOTS -> write_frame(); nothing_written = 0
        :: else
        fi;
#ifndef NO_WAKE_BEFORE_SLEEP
        wake_peer(writer_rank, reader_rank); /* step: request_wakes_peer */
#endif
        if
        :: nothing_written -> socket[writer_rank]?_ /* sleeps */
        :: else
        fi;
        store(writer_rank, ASLEEP(writer_rank), 0, relaxed) /* step: cancel_flag */
     fi
  :: written == FRAMES -> break
  od;
  wake_peer(writer_rank, reader_rank) /* the end of a call */
}

/* ring_buffer::front */
inline look_at_front() { load(reader_rank, NUMBER(taken % SLOTS), seen) } /* step: front_number */

inline read_payload() {
  load(reader_rank, PAYLOAD(taken % SLOTS), seen); /* step: front_payload */
  assert(seen == taken + 1)
}

/* ring_buffer::publish */
inline publish(order) {
  store(reader_rank, SLOTS_DONE, taken + 1, order); /* step: publish_progress */
  published = taken + 1;
  progressed = 1
}

inline take_frame() {
#ifdef PROGRESS_RELAXED
  if
  :: taken + 1 - published >= DUE -> publish(relaxed); read_payload()
  :: read_payload();
     if
     :: taken + 1 - published >= DUE -> publish(relaxed)
     :: else
     fi
  fi;
#else
#ifdef PROGRESS_FIRST
  if
  :: taken + 1 - published >= DUE -> publish(releasing)
  :: else
  fi;
  read_payload();
#else
  read_payload();
  if
  :: taken + 1 - published >= DUE -> publish(releasing)
  :: else
  fi;
#endif
#endif
  taken++
}

proctype reader() {
  byte taken, published, seen, early;
  bit progressed;
  do
  :: taken < FRAMES ->
#ifdef FRONT_RELAXED
     load(reader_rank, PAYLOAD(taken % SLOTS), early);
#endif
     look_at_front();
     if
     :: seen == taken + 1 ->
#ifdef FRONT_RELAXED
        if
        :: assert(early == taken + 1)
        :: skip
        fi;
#endif
        take_frame();
        if
        :: wake_peer(reader_rank, writer_rank)
        :: skip
        fi
     :: seen != taken + 1 -> /* connection::arm */
#ifdef FLAG_AFTER_CHECK
        look_at_front();
        store(reader_rank, ASLEEP(reader_rank), 1, relaxed);
        fence(reader_rank);
#else
        store(reader_rank, ASLEEP(reader_rank), 1, relaxed); /* step: request_flag */
#ifndef NO_REQUEST_FENCE
        fence(reader_rank); /* step: request_fence */
#endif
#ifndef NO_FRONT_CHECK
        look_at_front(); /* step: request_front_check */
#endif
#endif
        early = seen;
#ifndef NO_WAKE_BEFORE_SLEEP
        wake_peer(reader_rank, writer_rank); /* step: request_wakes_peer */
#endif
        if
        :: early != taken + 1 -> socket[reader_rank]?_ /* sleeps */
        :: else
        fi;
        early = 0;
        store(reader_rank, ASLEEP(reader_rank), 0, relaxed) /* step: cancel_flag */
     fi
  :: taken == FRAMES -> break
  od;
  wake_peer(reader_rank, writer_rank) /* the end of a call */
}

init {
  atomic {
    run drain(writer_rank);
    run drain(reader_rank);
    run writer();
    run reader()
  }
}
