// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// speech: what the ranks tell each other besides messages.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/message.hpp>

#include <new>
#include <vector>

namespace colls::threads {

/// One word: an announcement, a report, a dispute or a revocation.
struct word final : item {
  inbox* home = nullptr;
  message_key key;  // with the speaker as peer
  std::uint64_t hash = 0;
  fingerprint print;
  state_report known;
  failure why;
};

/// The last word of a rank to another.
struct farewell final : item {
  int from = -1;
  bool is_broken = false;  // it has no memory to say what is to be said
};

/// What one rank says. Its words come back when they were heard, and are used again. Those that tell
/// of nothing that the peer could not ask for again are left out where there is no memory for them.
class speech {
 public:
  speech(inboxes& all, int rank)
      : inboxes_(all), rank_(rank), farewells_(static_cast<std::size_t>(all.size())) {}

  void announce(int peer, const operation_record& waiting, const state_report& known) {
    word* const said = say(item::kind::announce);
    if (said == nullptr) return;
    said->key = announcement(rank_, waiting);
    said->hash = waiting.hash;
    said->known = known;
    tell(peer, *said);
  }
  void report(int peer, std::uint32_t communicator, const state_report& known) {
    word* const said = say(item::kind::report);
    if (said == nullptr) return;
    said->key.communicator = communicator;
    said->known = known;
    tell(peer, *said);
  }
  /// False: there is no memory for it.
  [[nodiscard]] bool dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                             const fingerprint& ours) {
    word* const said = say(item::kind::dispute);
    if (said == nullptr) return false;
    said->key = {rank_, communicator, sequence, 0};
    said->print = ours;
    tell(peer, *said);
    return true;
  }
  /// False: there is no memory for it.
  [[nodiscard]] bool revoke(int peer, std::uint32_t communicator, const failure& why) {
    word* const said = say(item::kind::revoke);
    if (said == nullptr) return false;
    said->key.communicator = communicator;
    said->why = why;
    tell(peer, *said);
    return true;
  }
  /// Once to each, and without memory. `is_broken`: for want of it, and all that is left to say.
  void goodbye(int peer, bool is_broken) noexcept {
    farewell& last = farewells_[static_cast<std::size_t>(peer)];
    last.what = item::kind::goodbye;
    last.from = rank_;
    last.is_broken = is_broken;
    inboxes_[peer].put(last);  // or the peer has left, too
  }

  /// One of its own has come back.
  void reuse(word& own) noexcept { words_.give(own); }
  /// One of another rank's goes back.
  static void heard(word& theirs) noexcept {
    theirs.what = item::kind::spent;
    theirs.home->put(theirs);
  }

 private:
  // Null: there is no memory for it.
  word* say(item::kind what) noexcept {
    try {
      word& said = words_.take();
      said.what = what;
      said.home = &inboxes_[rank_];
      said.key = {};
      said.key.peer = rank_;
      return &said;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void tell(int peer, word& said) {
    if (!inboxes_[peer].put(said)) words_.give(said);
  }

  inboxes& inboxes_;
  int rank_;
  stock<word> words_;
  std::vector<farewell> farewells_;  // by rank
};

}  // namespace colls::threads
