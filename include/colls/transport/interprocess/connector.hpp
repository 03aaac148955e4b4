// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// opener: opens the links of a rank: dials peers at the first use, and lets in those who dial.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace colls::tcp {

/// Between two ranks one link opens, whoever dials: the lower rank's, if both do. Inside a host it
/// goes through shared memory where both sides can.
class opener final : door::host {
 public:
  class host {
   public:
    /// A link is there, and nothing was read from it yet.
    virtual void opened(link& which) = 0;
    /// No link to the peer opens: it has died (`errc::peer_failed`), or it has left
    /// (`errc::closed`), or this rank cannot open one, which says nothing of the peer.
    virtual void unreachable(link& which, const failure& why) = 0;
    /// Whether an operation waits for the peer.
    virtual bool is_needed(link& which) = 0;

   protected:
    ~host() = default;
  };

  opener(engine& on, membership& who, links& all, host& to);
  opener(const opener&) = delete;
  opener& operator=(const opener&) = delete;

  /// The link to a peer; opens at its first use.
  link& to(int peer);

  /// The peer's system says nothing on the link: whether it is still there. It takes who dials, and
  /// answers keep-alive, however long its process computes.
  void probe(link& which);

  /// False: it was said before. After it no link is dialled, those under way may open.
  bool leave() { return !std::exchange(leaving_, true); }
  /// No link opens any more.
  void close() { closing_ = true; }
  bool is_closing() const { return closing_; }
  void close_doors();

 private:
  /// In a task: lowers its flag.
  class until_it_ends {
   public:
    explicit until_it_ends(bool& flag) : flag_(flag) {}
    until_it_ends(const until_it_ends&) = delete;
    ~until_it_ends() { flag_ = false; }

   private:
    bool& flag_;
  };

  // What a rank sends to itself takes the way of all messages, through two links on one socket
  // pair.
  void open_to_self(link& out);

  // ---- dialling

  // A link that is dropped before it is authenticated is dialled again while anyone needs it: a
  // peer whose system takes connections lives, however long it computes. No attempt lasts longer
  // than an operation may wait for a byte. When two ranks dial each other the lower rank's link
  // stays.
  task<> dial(link& which);

  // A peer that computes has one of these at its door, however long it does: while it lets nobody
  // in, keep-alive asks on the same connection. The peer finds it closed, and hangs up.
  task<> ask_system_of(link& which);
  // What keep-alive finds out.
  static bool is_of_the_way(std::error_code ec);
  // What this rank's own system has too little of says nothing of the peer.
  static bool is_own_lack(std::error_code ec);
  bool is_beside(int peer) const {
    return who_.node_of[static_cast<std::size_t>(peer)] == who_.node;
  }
  time_point patience() const { return who_.cfg.timeout.after(engine_.now()); }

  // A rank of this host is reached through shared memory if both sides can, and its local socket is
  // not crowded for long: another user may fill that. True: it was dialled.
  // `*alive`: its system took the connection. `*why` it was not, although it is of this host.
  task<bool> dial_beside(link& which, endpoint where, bool* alive, std::error_code* why);

  // The other side of it: the memory comes after the verdict, or the dialler has thought better.
  task<> admit_beside(std::unique_ptr<stream> guest, int peer);

  // Whoever cannot be reached at all was not reached by tcp.
  void tell_of_tcp(int peer, std::error_code why);
  static void raise_for_memory(std::error_code ec);
  void tell_of_memory(std::error_code ec);
  // One side or the other has too many open files; it may close some.
  void tell_of_lack(int peer, const char* what);

  void open(link& which, detail::descriptor socket, std::unique_ptr<shm::ring> ring = nullptr);

  void adopt(link& which, detail::descriptor socket);

  // ---- letting in

  void enter(std::unique_ptr<stream> guest, const hello& who) override;

  task<> admit(std::unique_ptr<stream> guest, int peer, purpose what);

  // It may live, and not know.
  bool has_given_up(int peer);
  bool is_welcome(int peer);

  static constexpr time_point longest_crowd = 100 * milliseconds;
  static constexpr time_point silence_of_the_dead = 10 * seconds;
  static constexpr time_point probe_pause = 5 * seconds;

  engine& engine_;
  membership& who_;
  links& links_;
  host& host_;
  bool told_of_tcp_ = false;
  bool told_of_memory_ = false;
  bool told_of_lack_ = false;
  bool told_of_congestion_ = false;
  bool leaving_ = false;
  bool closing_ = false;
  std::optional<door> door_;
  std::optional<door> local_door_;
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls::tcp

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connector.ipp>
#endif
