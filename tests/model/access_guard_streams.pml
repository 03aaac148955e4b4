/* SPDX-FileCopyrightText: 2026 The colls authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * The access guard between two ranks that access each other's device memory: a rank's accesses are
 * work on its stream, so they go on while its program does something else, and also while its process
 * is being killed. At any moment an operation may fail on a rank, a program may stop making calls, a
 * process may be killed, and a device may fail. The steps have the names that comments in the headers
 * give them.
 *
 * Checked: once a rank has ended an exposure, no store of its peer's stream reaches its memory. Every
 * wait ends, also if both ranks revoke at once, and no rank waits for a program.
 *
 * headers: include/colls/os/access_guard.hpp
 * headers: include/colls/cuda/guard_page.hpp
 * headers: include/colls/cuda/ipc_operation.hpp
 * headers: include/colls/cuda/ipc_peers.hpp
 * headers: include/colls/cuda/stream.hpp
 * run: out of order: OUT_OF_ORDER
 * planted: NO_ENTER_FENCE: out of order: a rank checks the key before its mark is visible
 * planted: NO_REVOKE_FENCE: out of order: the owner looks at the mark before its closed key is visible
 * planted: END_AFTER_CHECK: out of order: the end value is stored when the key has been checked
 * planted: PROGRESS_FIRST: out of order: a stream reports its progress before it has worked
 * planted: PROGRESS_RELAXED: out of order: a stream's progress is no release store
 * planted: GONE_TOO_EARLY: out of order: a process counts as ended when its program has
 * planted: NO_QUIESCE: out of order: a rank revokes without leaving its peer's guard, and the devices have failed
 * planted: NO_PROGRESS: out of order: the owner waits for the mark alone, and so for a program
 */

#define RANKS 2
#define other(rank) (1 - (rank))

/* The processors: those of the programs, then those of the devices. */
#define gpu(rank) (RANKS + (rank))
#define CPUS (2 * RANKS)

/* Shared memory; the first four are in the guard of a rank and speak of its peer. */
#define KEY(rank) (rank)
#define MARK(rank) (2 + (rank))
#define END_VALUE(rank) (4 + (rank))
#define MEMORY(rank) (6 + (rank))
#define PROGRESS(rank) (8 + (rank)) /* of the rank's own stream */
#define LOCATIONS 10

bit has_ended[RANKS]; /* the exposure of a rank's memory */
bit has_key[RANKS];   /* the message with the remote key has come */
bit is_done[RANKS];   /* the last message has come */
bit is_killed[RANKS];
bit has_no_context[RANKS]; /* the driver has ended what a killed process had on its device */
bit is_stopped[RANKS];
bit is_gone[RANKS];

/* The stream of a rank. */
#define idle 0
#define working 1
#define ended 2 /* it has done its work, or the device has failed */
byte state[RANKS];
bit has_failed; /* the devices */

#define ON_ARRIVAL(cpu, location, value) \
  assert(cpu < RANKS || location != MEMORY(other(cpu - RANKS)) || !has_ended[other(cpu - RANKS)])
#include "weak_memory.h"

proctype stream(byte rank) {
end_idle:
  {
    state[rank] == working;
#ifdef PROGRESS_FIRST
    store(gpu(rank), PROGRESS(rank), 1, releasing);
    store(gpu(rank), MEMORY(other(rank)), 1, relaxed);
#else
    store(gpu(rank), MEMORY(other(rank)), 1, relaxed); /* step: work */
#ifdef PROGRESS_RELAXED
    store(gpu(rank), PROGRESS(rank), 1, relaxed);
#else
    store(gpu(rank), PROGRESS(rank), 1, releasing); /* step: write_progress */
#endif
#endif
    is_drained(gpu(rank))
  } unless { has_failed || has_no_context[rank] };
  is_drained(gpu(rank));
  state[rank] = ended
}

inline leave() {
  store(me, MARK(other(me)), 0, releasing); /* step: leave */
}

/* The operation fails, or the call is dropped. */
inline fail() {
#ifndef NO_QUIESCE
  state[me] != working; /* step: quiesce_waits */
  leave();              /* step: quiesce_leaves */
#endif
  store(me, KEY(me), 0, releasing); /* step: revoke_key */
#ifndef NO_REVOKE_FENCE
  fence(me); /* step: revoke_fence */
#endif
  do
  :: load(me, MARK(me), seen); /* step: revoke_wait */
     if
     :: seen == 0 -> has_ended[me] = 1; break
     :: seen != 0 ->
        load(me, END_VALUE(me), end_value);
#ifndef NO_PROGRESS
        load(me, PROGRESS(other(me)), seen); /* step: revoke_progress */
        if
        :: seen >= end_value -> has_ended[me] = 1; break
        :: else
        fi;
#endif
        if
        :: is_gone[other(me)] -> has_ended[me] = 1; break
        :: is_stopped[other(me)] && has_failed -> break /* gives up, and keeps the memory */
        :: memory[MARK(me)] == 0 || (memory[PROGRESS(other(me))] >= memory[END_VALUE(me)]
#ifdef NO_PROGRESS
           && false
#endif
           ) /* looks again later */
        fi
     fi
  od
}

proctype program(byte me) {
  byte seen, end_value;
  {
    store(me, KEY(me), 1, releasing); /* step: open_key */
    is_drained(me);
    has_key[me] = 1;
    if
    :: has_key[other(me)] ->
#ifndef END_AFTER_CHECK
       store(me, END_VALUE(other(me)), 1, relaxed); /* step: enter_end_value */
#endif
       store(me, MARK(other(me)), 1, releasing); /* step: enter_mark */
#ifndef NO_ENTER_FENCE
       fence(me); /* step: enter_fence */
#endif
       load(me, KEY(other(me)), seen); /* step: enter_check */
#ifdef END_AFTER_CHECK
       store(me, END_VALUE(other(me)), 1, relaxed);
#endif
       if
       :: seen == 1 ->
          atomic {
            if
            :: state[me] == idle -> state[me] = working
            :: else /* the device has failed */
            fi
          }
          if
          :: state[me] == ended ->
             leave();
             is_drained(me);
             is_done[me] = 1;
             if
             :: is_done[other(me)] ->
                store(me, KEY(me), 0, releasing); /* step: close_key */
                has_ended[me] = 1
             :: fail()
             fi
          :: fail()
          :: is_stopped[me] = 1 /* the program makes no more calls */
          fi
       :: else ->
          leave();
          fail() /* as the peer's revocation says */
       fi
    :: fail()
    fi
  } unless { is_killed[me] }
}

/* Kills a process. The system ends the program first, and the process when the device has ended its work. */
proctype killer(byte rank) {
  is_killed[rank] = 1;
#ifndef GONE_TOO_EARLY
  is_drained(rank);
  has_no_context[rank] = 1;
  state[rank] == ended;
#endif
  is_gone[rank] = 1
}

proctype failure() { has_failed = 1 }

init {
  byte rank;
  atomic {
    do
    :: rank < RANKS ->
       run drain(rank);
       run drain(gpu(rank));
       run program(rank);
       run stream(rank);
       if
       :: run killer(rank)
       :: skip /* the process lives */
       fi;
       rank++
    :: else -> break
    od;
    if
    :: run failure()
    :: skip /* the devices work */
    fi
  }
}
