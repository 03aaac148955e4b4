// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// speech: what the ranks tell each other besides messages.

#include <colls/match.hpp>
#include <colls/transport/threads/message.hpp>

namespace colls::threads {

/// One word: an announcement, a report, a dispute, a revocation or a goodbye.
struct word final : item {
  inbox* home = nullptr;
  message_key key;  // with the speaker as peer
  std::uint64_t hash = 0;
  fingerprint print;
  state_report known;
  failure why;
};

/// What one rank says. Its words come back when they were heard, and are used again.
class speech {
 public:
  speech(inboxes& all, int rank) : inboxes_(all), rank_(rank) {}

  void announce(int peer, const operation_record& waiting, const state_report& known) {
    word& said = say(item::kind::announce);
    said.key = announcement(rank_, waiting);
    said.hash = waiting.hash;
    said.known = known;
    tell(peer, said);
  }
  void report(int peer, std::uint32_t communicator, const state_report& known) {
    word& said = say(item::kind::report);
    said.key.communicator = communicator;
    said.known = known;
    tell(peer, said);
  }
  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& ours) {
    word& said = say(item::kind::dispute);
    said.key = {rank_, communicator, sequence, 0};
    said.print = ours;
    tell(peer, said);
  }
  void revoke(int peer, std::uint32_t communicator, const failure& why) {
    word& said = say(item::kind::revoke);
    said.key.communicator = communicator;
    said.why = why;
    tell(peer, said);
  }
  void goodbye(int peer) { tell(peer, say(item::kind::goodbye)); }

  /// One of its own has come back.
  void reuse(word& own) noexcept { words_.give(own); }
  /// One of another rank's goes back.
  static void heard(word& theirs) noexcept {
    theirs.what = item::kind::spent;
    theirs.home->put(theirs);
  }

 private:
  word& say(item::kind what) {
    word& said = words_.take();
    said.what = what;
    said.home = &inboxes_[rank_];
    said.key = {};
    said.key.peer = rank_;
    return said;
  }
  void tell(int peer, word& said) {
    if (!inboxes_[peer].put(said)) words_.give(said);
  }

  inboxes& inboxes_;
  int rank_;
  stock<word> words_;
};

}  // namespace colls::threads
