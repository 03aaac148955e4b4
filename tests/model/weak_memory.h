/* SPDX-FileCopyrightText: 2026 The colls authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * Memory of processors that keep their stores in buffers, for the models of this folder. Spin itself
 * executes each statement at once, for all processes to see, so a model without such buffers would
 * find no missing fence.
 *
 * A store enters the buffer of its processor and reaches memory at any later time. A load sees the
 * newest store to its location in the processor's own buffer, else memory. By default stores reach
 * memory in program order, as on x86. With OUT_OF_ORDER they do so in any order, as on arm64, except
 * that stores to one location keep their order and that a release store follows all stores before it.
 * A fence waits until the buffer is empty.
 *
 * Loads execute in program order. Where the code relies on an order of loads, or of a load before a
 * store, the model that plants the bug executes the two in the other order.
 *
 * A model defines before it includes this file: CPUS, LOCATIONS, and ON_ARRIVAL(cpu, where, what), a
 * statement that runs when a store reaches memory.
 */

#define BUFFER 4 /* the stores of one processor that may be on their way */

typedef store_buffer {
  byte count;
  byte where[BUFFER];
  byte what[BUFFER];
  bit release[BUFFER]
}
store_buffer buffers[CPUS];
byte memory[LOCATIONS];
hidden byte scan;

#define relaxed 0
#define releasing 1

inline store(cpu, location, value, order) {
  d_step {
    buffers[cpu].count < BUFFER ->
    buffers[cpu].where[buffers[cpu].count] = location;
    buffers[cpu].what[buffers[cpu].count] = value;
    buffers[cpu].release[buffers[cpu].count] = order;
    buffers[cpu].count++
  }
}

inline load(cpu, location, result) {
  d_step {
    result = memory[location];
    scan = 0;
    do
    :: scan < buffers[cpu].count ->
       if
       :: buffers[cpu].where[scan] == location -> result = buffers[cpu].what[scan]
       :: else
       fi;
       scan++
    :: else -> break
    od
  }
}

/* std::atomic_thread_fence(std::memory_order_seq_cst) */
#define is_drained(cpu) (buffers[cpu].count == 0)
#define fence(cpu) is_drained(cpu)

#define same(cpu, i, k) (buffers[cpu].where[i] == buffers[cpu].where[k])
#ifdef OUT_OF_ORDER
#define overtakes(cpu, k) (buffers[cpu].count > k && !buffers[cpu].release[k])
#else
#define overtakes(cpu, k) false
#endif

inline arrive(cpu, k) {
  memory[buffers[cpu].where[k]] = buffers[cpu].what[k];
  ON_ARRIVAL(cpu, buffers[cpu].where[k], buffers[cpu].what[k]);
  scan = k;
  do
  :: scan + 1 < buffers[cpu].count ->
     buffers[cpu].where[scan] = buffers[cpu].where[scan + 1];
     buffers[cpu].what[scan] = buffers[cpu].what[scan + 1];
     buffers[cpu].release[scan] = buffers[cpu].release[scan + 1];
     scan++
  :: else -> break
  od;
  buffers[cpu].where[scan] = 0;
  buffers[cpu].what[scan] = 0;
  buffers[cpu].release[scan] = 0;
  buffers[cpu].count--
}

/* Moves the stores of one processor to memory. */
proctype drain(byte cpu) {
end_drain:
  do
  :: d_step { buffers[cpu].count > 0 -> arrive(cpu, 0) }
  :: d_step { overtakes(cpu, 1) && !same(cpu, 0, 1) -> arrive(cpu, 1) }
  :: d_step { overtakes(cpu, 2) && !same(cpu, 0, 2) && !same(cpu, 1, 2) -> arrive(cpu, 2) }
  :: d_step {
       overtakes(cpu, 3) && !same(cpu, 0, 3) && !same(cpu, 1, 3) && !same(cpu, 2, 3) ->
       arrive(cpu, 3)
     }
  od
}
