/* SPDX-FileCopyrightText: 2026 The colls authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * One agreement between ranks of which some crash, some suspect each other although both live, and
 * some lose the link between them. Every message, every fault and every notice of a fault is one
 * step. The steps have the names that comments in the header give them.
 *
 * Checked: living ranks have the same decision, and its value is that of the ranks that it does not
 * list as lost. When nothing is left to happen, each living rank that survives in its own view and
 * has a quorum has decided.
 *
 * A crashed rank may have lost the last messages on each link, for example because it has crashed
 * between two of them. So nobody can tell a crash from a rank that has not gone on, and the model
 * lets a rank crash only when another one sees it. Likewise a link is cut when one end notices it:
 * what is then on its way to this end is lost, and so is all that is sent on the link from then on.
 *
 * By default all ranks have called the agreement at the start, and losses may be suspected. With
 * LATE_CALLS they call it at any time. With ALWAYS_PROVED every loss is proved. The model has no
 * messages about late ranks, no departed ranks, and one agreement. With four ranks and both crashes
 * and broken links there are too many states, unless only one link can break.
 *
 * headers: include/colls/matching/consensus.ipp
 * run: proved: CRASHES=2 ALWAYS_PROVED LATE_CALLS
 * run: two crashes: CRASHES=2 LATE_CALLS
 * run: false suspicion: SUSPICIONS=1
 * run: cut link: CUTS=1
 * run: crash, cut link of ranks 0 and 1: CRASHES=1 CUTS=1 FAULTY_LINK=0
 * run: three ranks, all faults: RANKS=3 CRASHES=2 SUSPICIONS=1 CUTS=1
 * planted: PLANT_ACCEPTANCE_LEFT_OUT: two crashes: the root does not wait for the acceptances
 * planted: PLANT_DECISION_FORGOTTEN: two crashes: a rank does not report in a larger view what it has accepted
 * planted: PLANT_MAJORITY_OF_SURVIVORS: three ranks, all faults: the quorum is counted among the survivors
 * planted: PLANT_LOST_RANKS_HEARD: proved: a rank takes the decision of a rank that it knows to be lost
 */

#ifndef RANKS
#define RANKS 4
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef SUSPICIONS
#define SUSPICIONS 0
#endif
#ifndef CUTS
#define CUTS 0
#endif
#define ROOM 12 /* of a link, which never gets full */

/* Sets of ranks are bits. */
#define NONE RANKS
#define EVERYBODY ((1 << RANKS) - 1)
#define bit_of(rank) (1 << (rank))
#define bits_of(rank) ((rank) == NONE -> 0 : bit_of(rank))
#define has(ranks, rank) (((ranks) >> (rank)) & 1)
#define count_of(ranks) (has(ranks, 0) + has(ranks, 1) + has(ranks, 2) + has(ranks, 3))

/* A view: bits of the ranks that are proved lost, and of the broken links. */
#if RANKS == 4
#define LINKS 6
#define VIEWS 1024
#else
#define LINKS 3
#define VIEWS 64
#endif
#define proved_in(view) ((view) & EVERYBODY)
#define broken_in(view) ((view) >> RANKS)
#define number_of_link(a, b) ((a) < (b) -> (b) * ((b) - 1) / 2 + (a) : (a) * ((a) - 1) / 2 + (b))
#define link_bit(a, b) (1 << (RANKS + number_of_link(a, b)))
#define contains(view, other) (((other) & ~(view)) == 0)

/* A decision: bits of the lost ranks, of those among them that are proved lost, and the value. The
 * value of a rank has the bits of all others. */
#define make_decision(lost, proved, value) ((1 << 12) + (lost) + ((proved) << 4) + ((value) << 8))
#define lost_by(decision) ((decision) & 15)
#define proved_by(decision) (((decision) >> 4) & 15)
#define value_in(decision) (((decision) >> 8) & 15)
#define own_value(rank) (EVERYBODY & ~bit_of(rank))

/* What follows from a view on a rank. Hidden variables are no part of a state: these tables are
 * filled at the start, and all others are set in each step before they are read. */
#define of(view, rank) ((view) * RANKS + (rank))
hidden byte survivors_of[VIEWS * RANKS];
hidden byte parent_of[VIEWS * RANKS];
hidden byte children_of[VIEWS * RANKS];
hidden byte facts_in[VIEWS];
#define survivors survivors_of[of(view[me], me)]
#define parent parent_of[of(view[me], me)]
#define children children_of[of(view[me], me)]

/* The messages. */
#define NEWS 1
#define REQUEST 2
#define PROPOSAL 3
#define ACCEPTANCE 4
#define DECISION 5
#define NOTHING 6
#define link(source, dest) links[(source) * RANKS + (dest)]
chan links[RANKS * RANKS] = [ROOM] of {
  byte /* kind */, byte /* value */, short /* view */, short /* decision */, byte /* facts */
};

/* The ranks. What only the rank itself reads lies in a channel, because spin stores the contents of
 * channels that are equal in many states only once. */
short view[RANKS];
short decision[RANKS]; /* the final one, or 0 */
byte called;           /* the ranks that have called the agreement */
chan memory[RANKS] = [1] of {
  byte /* flags */, byte /* requests */, byte /* acceptances */, byte /* value */,
  short /* accepted */, byte /* facts */, short /* latest */, byte /* latest_facts */
};
hidden byte flags, involved, told, in_view, sent;
hidden byte requests, acceptances; /* the children from which these have come */
hidden byte value;                 /* of the requests that have come */
hidden short latest;               /* the latest accepted decision in these requests, or 0 */
hidden byte latest_facts;
hidden short accepted; /* what this rank has accepted, or 0 */
hidden byte facts;

/* The faults. */
byte gone; /* the ranks that have crashed */
byte crashes = CRASHES;
byte suspicions = SUSPICIONS;
byte cuts = CUTS;
short doubted; /* the links whose ends suspect each other */
short cut;     /* the links that carry nothing any more */

/* A step of the rank `me`. */
#define MESSAGE 1
#define CRASH 2 /* `source` has crashed, and `me` is the first one to see it */
#define END 3   /* `me` sees that `source` has crashed */
#define SUSPICION 4
#define CUT 5
#define CALL 6
hidden byte event, source, me;
hidden byte m_kind, m_value, m_facts; /* the message */
hidden short m_view, m_decision;
hidden byte o_kind, o_value, o_facts; /* one that is still on its way */
hidden short o_view, o_decision;
hidden byte i, j, k, n, combined, newest_facts, peers, is_over, is_quiet, has_grown, starts_again;
hidden short newest, final, learnt;

inline clear(from, to) {
  do
  :: len(link(from, to)) > 0 -> link(from, to)?_, _, _, _, _
  :: else -> break
  od
}

inline remember_nothing(rank) {
  view[rank] = 0;
  decision[rank] = 0;
  memory[rank]?_, _, _, _, _, _, _, _;
  memory[rank]!0, 0, 0, 0, 0, 0, 0, 0
}

/* Replaces a message on its way to `to` by one that has the same effect there, so that fewer states
 * differ: a view that `to` contains brings nothing, and if it is smaller than that of `to`, the kind
 * of the message only decides whether there is an answer. */
inline shorten(to) {
  if
  :: !contains(view[to], o_view)
  :: contains(view[to], o_view) && o_kind == DECISION ->
     o_view = 0;
     if
     :: decision[to] != 0 -> o_kind = NOTHING
     :: else
     fi
  :: contains(view[to], o_view) && o_kind == ACCEPTANCE ->
     if
     :: decision[to] != 0 -> o_kind = NOTHING
     :: decision[to] == 0 && o_view != view[to] -> o_view = 0
     :: else
     fi
  :: contains(view[to], o_view) && o_kind < ACCEPTANCE ->
     if
     :: decision[to] != 0 || o_view != view[to] -> o_kind = NEWS; o_value = 0; o_view = 0; o_decision = 0; o_facts = 0
     :: else
     fi
  fi
}

inline put(from, to) {
  shorten(to);
  if
  :: o_kind != NOTHING ->
     assert(from != to && len(link(from, to)) < ROOM);
     link(from, to)!o_kind, o_value, o_view, o_decision, o_facts
  :: else
  fi
}

inline shorten_all(from, to) {
  n = len(link(from, to));
  do
  :: n > 0 ->
     link(from, to)?o_kind, o_value, o_view, o_decision, o_facts;
     put(from, to);
     n--
  :: else -> break
  od
}

/* Sends a message to the ranks `to`. What is sent to a crashed rank is forgotten at once. */
inline send(to, kind, its_value, its_decision, its_facts) {
  peers = (to) & ~gone;
  for (k : 0 .. RANKS - 1) {
    if
    :: has(peers, k) && !(cut & link_bit(me, k)) ->
       o_kind = kind;
       o_value = its_value;
       o_view = view[me];
       o_decision = its_decision;
       o_facts = its_facts;
       put(me, k)
    :: else
    fi
  }
}

#define broken_peer(rank) ((rank) < RANKS && (rank) != me && (view[me] & link_bit(me, rank)) -> bit_of(rank) : 0)
#define broken_peers (broken_peer(0) | broken_peer(1) | broken_peer(2) | broken_peer(3))

inline tell_view() { /* step: tell_view */
  if
  :: view[me] == 0 || told
  :: else ->
     told = 1;
     if
     :: broken_in(view[me]) != 0 || !has(survivors, me) -> n = EVERYBODY & ~bit_of(me) & ~proved_in(view[me]) & ~broken_peers
     :: else -> n = bits_of(parent) | children
     fi;
     send(n, NEWS, 0, 0, 0)
  fi
}

/* The rank `from` has told the decision, or NONE. */
inline finish(what, from) { /* step: finish */
  if
  :: decision[me] != 0
  :: else ->
     final = what;
     decision[me] = final;
     n = children | (lost_by(final) & ~proved_by(final) & ~broken_peers & ~bit_of(me));
     if
     :: from != NONE && from != parent -> n = n | bits_of(parent)
     :: else
     fi;
     send(n & ~bits_of(from), DECISION, 0, final, 0)
  fi
}

inline send_acceptance() { /* step: send_acceptance */
  if
  :: !in_view || sent || (children & ~acceptances) != 0
  :: else ->
     sent = 1;
     if
     :: parent == NONE -> finish(accepted, NONE)
     :: else -> send(bit_of(parent), ACCEPTANCE, 0, 0, 0)
     fi
  fi
}

inline accept(what, its_facts) { /* step: accept */
  accepted = what;
  facts = its_facts;
  in_view = 1;
#ifdef ALWAYS_PROVED
  finish(accepted, parent)
#else
  send(children, PROPOSAL, 0, accepted, facts);
#ifdef PLANT_ACCEPTANCE_LEFT_OUT
  if
  :: parent == NONE -> finish(accepted, NONE)
  :: else
  fi;
#endif
  send_acceptance()
#endif
}

inline propose() { /* step: propose */
  if
  :: newest == 0 ->
     n = EVERYBODY & ~survivors;
     newest = make_decision(n, n & proved_in(view[me]), combined)
  :: else
  fi;
  accept(newest, facts_in[view[me]])
}

#define is_majority(ranks, view) (2 * count_of(ranks) > RANKS - count_of(proved_in(view))) /* step: has_quorum */
#ifdef PLANT_MAJORITY_OF_SURVIVORS
#define has_quorum 1
#else
#define has_quorum is_majority(survivors, view[me])
#endif

inline send_request() { /* step: send_request */
  if
  :: !has(called, me) || !has(survivors, me) || !has_quorum || in_view || (children & ~requests) != 0
  :: else ->
     combined = value & own_value(me);
     newest = accepted;
     newest_facts = facts;
     if
     :: latest != 0 && (newest == 0 || latest_facts > newest_facts) -> newest = latest; newest_facts = latest_facts
     :: else
     fi;
     if
     :: parent == NONE -> propose()
     :: else -> send(bit_of(parent), REQUEST, combined, newest, newest_facts)
     fi
  fi
}

/* Handles the message, whose view this rank has merged. */
inline receive() {
  involved = 1;
  if
  :: m_kind == DECISION -> finish(m_decision, source)
  :: m_kind != DECISION && decision[me] != 0 ->
     if
     :: m_kind != ACCEPTANCE -> send(bit_of(source), DECISION, 0, decision[me], 0) /* step: answer_decision */
     :: else
     fi
  :: else ->
     tell_view();
     if
     :: m_view != view[me] -> send(bit_of(source), NEWS, 0, 0, 0) /* step: answer_view */
     :: m_view == view[me] && m_kind == REQUEST && has(children, source) ->
        assert(!has(requests, source));
        requests = requests | bit_of(source);
        value = value & m_value;
        if
        :: m_decision != 0 && (latest == 0 || m_facts > latest_facts) -> latest = m_decision; latest_facts = m_facts
        :: else
        fi;
        send_request()
     :: m_view == view[me] && m_kind == PROPOSAL && source == parent && !in_view -> accept(m_decision, m_facts)
     :: m_view == view[me] && m_kind == ACCEPTANCE && has(children, source) ->
        acceptances = acceptances | bit_of(source);
        send_acceptance()
     :: else
     fi
  fi
}

/* Sets `learnt` to what the step adds to the view. */
inline begin() {
  learnt = 0;
  if
  :: event == MESSAGE ->
     link(source, me)?m_kind, m_value, m_view, m_decision, m_facts;
     learnt = m_view /* step: merge_view */
  :: event == CRASH ->
     crashes--;
     gone = gone | bit_of(source);
     remember_nothing(source);
     for (i : 0 .. RANKS - 1) { clear(i, source) };
     clear(source, me);
     learnt = bit_of(source)
  :: event == END ->
     clear(source, me);
     learnt = bit_of(source)
  :: event == SUSPICION ->
     learnt = link_bit(source, me);
     if
     :: !(doubted & learnt) -> suspicions--; doubted = doubted | learnt
     :: else
     fi
  :: event == CUT ->
     learnt = link_bit(source, me);
     if
     :: !(cut & learnt) -> cuts--; cut = cut | learnt
     :: else
     fi;
     clear(source, me)
  :: event == CALL -> called = called | bit_of(me)
  fi
}

inline grow() { /* step: grow */
  view[me] = view[me] | learnt; /* step: rebuild_tree */
  told = 0;
  in_view = 0;
  sent = 0;
  requests = 0;
  acceptances = 0;
  value = EVERYBODY;
  latest = 0;
  latest_facts = 0;
#ifdef PLANT_DECISION_FORGOTTEN
  accepted = 0;
  facts = 0;
#endif
}

inline check_decisions() {
  assert(decision[me] == 0 || value_in(decision[me]) == lost_by(decision[me]));
  is_over = 1;
  for (i : 0 .. RANKS - 1) {
    assert(decision[i] == 0 || decision[me] == 0 || decision[i] == decision[me]);
    is_over = is_over && (has(gone, i) || decision[i] != 0)
  };
  if
  :: is_over -> /* all that can follow is equal */
     for (i : 0 .. RANKS - 1) {
       for (j : 0 .. RANKS - 1) { clear(i, j) };
       remember_nothing(i)
     };
     gone = EVERYBODY;
     called = EVERYBODY;
     crashes = 0;
     suspicions = 0;
     cuts = 0;
     doubted = 0;
     cut = 0
  :: else
  fi
}

#define has_notice(source, dest) \
  (has(gone, source) && !has(view[dest], source) || (source != dest && ((doubted | cut) & ~view[dest] & link_bit(source, dest))))

inline check_end() {
  is_quiet = contains(called, EVERYBODY & ~gone);
  for (i : 0 .. RANKS - 1) {
    for (j : 0 .. RANKS - 1) {
      is_quiet = is_quiet && (has(gone, j) || (len(link(i, j)) == 0 && !has_notice(i, j)))
    }
  };
  if
  :: is_quiet ->
     for (i : 0 .. RANKS - 1) {
       n = survivors_of[of(view[i], i)];
       assert(has(gone, i) || decision[i] != 0 || !has(n, i) || !is_majority(n, view[i]))
     }
  :: else
  fi
}

inline step() {
  begin();
  memory[me]?flags, requests, acceptances, value, accepted, facts, latest, latest_facts;
  involved = flags & 1;
  told = (flags >> 1) & 1;
  in_view = (flags >> 2) & 1;
  sent = (flags >> 3) & 1;
  starts_again = event == CALL && decision[me] == 0;
  has_grown = !contains(view[me], learnt);
  if
  :: has_grown -> grow(); starts_again = decision[me] == 0 && (has(called, me) || involved)
  :: else
  fi;
  if
  :: starts_again -> tell_view(); send_request()
  :: else
  fi;
  if
  :: event == MESSAGE -> receive()
  :: else
  fi;
  /* What is not needed any more is cleared. */
  involved = involved && !has(called, me);
  if
  :: decision[me] != 0 -> memory[me]!0, 0, 0, 0, 0, 0, 0, 0
  :: decision[me] == 0 && in_view -> memory[me]!involved + 2 * told + 4 + 8 * sent, 0, acceptances, 0, accepted, facts, 0, 0
  :: else -> memory[me]!involved + 2 * told, requests, acceptances, value, accepted, facts, latest, latest_facts
  fi;
  if
  :: has_grown || decision[me] != 0 ->
     for (i : 0 .. RANKS - 1) {
       shorten_all(i, me);
#if defined(ALWAYS_PROVED) && !defined(PLANT_LOST_RANKS_HEARD)
       if
       :: has(view[me], i) -> clear(i, me) /* step: ignore_lost */
       :: else
       fi
#endif
     }
  :: else
  fi;
  check_decisions();
  check_end()
}

#define choose(what, from, to) event = what; source = from; me = to
#ifdef FAULTY_LINK
#define may_fail(a, b) (number_of_link(a, b) == FAULTY_LINK)
#else
#define may_fail(a, b) 1
#endif
#define is_new(a, b) (may_fail(a, b) && !((doubted | cut | view[b]) & link_bit(a, b)))
#define steps_of_pair(a, b) \
  :: d_step { !has(gone, b) && len(link(a, b)) > 0 -> choose(MESSAGE, a, b) } \
  :: d_step { !has(gone, b) && crashes > 0 && !has(gone, a) -> choose(CRASH, a, b) } \
  :: d_step { !has(gone, b) && has(gone, a) && (!has(view[b], a) || len(link(a, b)) > 0) -> choose(END, a, b) } \
  :: d_step { !has(gone, b) && suspicions > 0 && is_new(a, b) -> choose(SUSPICION, a, b) } \
  :: d_step { !has(gone, b) && (doubted & ~view[b] & link_bit(a, b)) -> choose(SUSPICION, a, b) } \
  :: d_step { !has(gone, b) && cuts > 0 && is_new(a, b) -> choose(CUT, a, b) } \
  :: d_step { !has(gone, b) && (cut & link_bit(a, b)) && (!(view[b] & link_bit(a, b)) || len(link(a, b)) > 0) -> choose(CUT, a, b) }
#define steps_of(a) :: d_step { !has(gone, a) && !has(called, a) -> choose(CALL, NONE, a) }

/* The ranks that `me` goes on with in the view `learnt`. */
inline find_survivors() {
  n = EVERYBODY & ~proved_in(learnt);
  if
  :: broken_in(learnt) == 0
  :: else ->
     n = bit_of(me); /* the part to which the rank is connected */
     for (k : 1 .. RANKS) {
       for (i : 0 .. RANKS - 1) {
         for (j : 0 .. RANKS - 1) {
           if
           :: i != j && has(n, i) && !has(learnt, j) && !(learnt & link_bit(i, j)) -> n = n | bit_of(j)
           :: else
           fi
         }
       }
     };
     for (k : 1 .. RANKS) {
       value = 0; /* the most broken links of a rank inside the part */
       for (i : 0 .. RANKS - 1) {
         combined = 0;
         for (j : 0 .. RANKS - 1) {
           if
           :: i != j && has(n, i) && has(n, j) && (learnt & link_bit(i, j)) -> combined++
           :: else
           fi
         };
         if
         :: combined > 0 && combined >= value -> value = combined; source = i
         :: else
         fi
       };
       if
       :: value > 0 -> n = n & ~bit_of(source)
       :: else
       fi
     }
  fi;
  survivors_of[of(learnt, me)] = n
}

/* A binomial tree: the parent of an index is the index without its lowest bit. */
inline find_tree() {
  parent_of[of(learnt, me)] = NONE;
  children_of[of(learnt, me)] = 0;
  k = count_of(n & (bit_of(me) - 1)); /* the index of `me` */
  j = 0;                              /* the index of `i` */
  for (i : 0 .. RANKS - 1) {
    if
    :: has(n, me) && has(n, i) ->
       if
       :: k != 0 && j == (k & (k - 1)) -> parent_of[of(learnt, me)] = i
       :: j != 0 && k == (j & (j - 1)) -> children_of[of(learnt, me)] = children_of[of(learnt, me)] | bit_of(i)
       :: else
       fi;
       j++
    :: else
    fi
  }
}

inline fill_tables() {
  for (learnt : 0 .. VIEWS - 1) {
    facts_in[learnt] = 0;
    for (i : 0 .. RANKS + LINKS - 1) { facts_in[learnt] = facts_in[learnt] + has(learnt, i) };
    for (me : 0 .. RANKS - 1) {
      find_survivors();
      find_tree()
    }
  }
}

active proctype world() {
  d_step {
    fill_tables();
    for (i : 0 .. RANKS - 1) { memory[i]!0, 0, 0, EVERYBODY, 0, 0, 0, 0 };
    event = CALL;
    source = NONE;
    me = 0
  };
#ifndef LATE_CALLS
  do
  :: d_step { me < RANKS -> step(); me++ }
  :: me == RANKS -> break
  od;
#endif
end:
  atomic {
    if
    steps_of_pair(0, 1)
    steps_of_pair(0, 2)
    steps_of_pair(1, 0)
    steps_of_pair(1, 2)
    steps_of_pair(2, 0)
    steps_of_pair(2, 1)
#if RANKS == 4
    steps_of_pair(0, 3)
    steps_of_pair(1, 3)
    steps_of_pair(2, 3)
    steps_of_pair(3, 0)
    steps_of_pair(3, 1)
    steps_of_pair(3, 2)
#endif
#ifdef LATE_CALLS
    steps_of(0)
    steps_of(1)
    steps_of(2)
#if RANKS == 4
    steps_of(3)
#endif
#endif
    fi;
    d_step { step() }
  };
  goto end
}
