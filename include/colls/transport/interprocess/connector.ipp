// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How links are opened: the second half of connector.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/driver/local_socket.hpp>
#include <colls/transport/interprocess/connector.hpp>

#include <cerrno>
#include <new>

namespace colls::tcp {

COLLS_ONCE opener::opener(engine& on, membership& who, links& all, host& to)
    : engine_(on), who_(who), links_(all), host_(to), tasks_(on) {
  const hello mine = who_.greeting(purpose::link);
  const auto open_door = [&](std::optional<door>& made, listener& at) {
    if (at.is_open()) made.emplace(engine_, at, mine, who_.key, static_cast<door::host&>(*this));
  };
  open_door(door_, who_.link_listener);
  open_door(local_door_, who_.local_listener);
}

COLLS_ONCE link& opener::to(int peer) {
  link& which = links_.at(peer);
  if (!which.is_open() && !which.dialing && !which.promised && !which.ended() && !leaving_) {
    if (peer == who_.rank) {
      open_to_self(which);
    } else {
      which.dialing = true;
      try {
        tasks_.start(dial(which));
      } catch (const std::bad_alloc&) {
        which.dialing = false;
        throw;
      }
    }
  }
  return which;
}

COLLS_ONCE void opener::probe(link& which) {
  if (which.probed || engine_.now() < which.next_probe) return;
  try {
    tasks_.start(ask_system_of(which));
  } catch (const std::bad_alloc&) {
    which.next_probe = engine_.now() + probe_pause;
  }
}

COLLS_ONCE void opener::close_doors() {
  door_.reset();
  local_door_.reset();
  who_.link_listener.close();
  who_.local_listener.close();
}

COLLS_ONCE void opener::open_to_self(link& out) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    throw error(errc::too_many_files, std::strerror(errno));
  }
  links_.open_to_self(out, detail::descriptor(ends[0]), detail::descriptor(ends[1]));
}

COLLS_ONCE task<> opener::dial(link& which) {
  const until_it_ends dialling(which.dialing);
  // Whoever wants the link is not listed yet with what it waits for, and on one host a connection
  // can be refused at once: a death that is told here and now would find nothing to end.
  co_await others_first();
  failure why(errc::peer_failed);
  why.culprit = which.peer();
  time_point pause = 10 * milliseconds;
  time_point heard = engine_.now();
  bool hopeless = false;
  bool wanted = true;
  while (wanted && !which.is_open() && !which.ended() && !closing_ && !hopeless) {
    bool alive = false;
    bool has_address = false;
    bool dropped = false;
    try {
      const until_it_ends opening(which.half_open);
      const endpoint where = co_await who_.address_of(which.peer());
      has_address = true;
      which.address(detail::text_of(where));
      std::snprintf(why.address, sizeof why.address, "%s", which.address().c_str());
      std::error_code not_beside;
      const bool dialled = co_await dial_beside(which, where, &alive, &not_beside);
      if (!dialled) {
        stream connection(engine_);
        connection.deadline(engine_.now() + silence_of_the_dead);
        const detail::outcome connected = co_await detail::attempt(connection.connect(where));
        if (connected.ec) {
          why.say("it cannot be reached: %s", connected.ec.message().c_str());
          hopeless = connected.ec == std::errc::connection_refused;
          // On one host only a flood of strangers keeps the system from answering.
          alive = is_beside(which.peer()) || is_own_lack(connected.ec);
          if (is_own_lack(connected.ec)) tell_of_lack(which.peer(), connected.ec.message().c_str());
        } else {
          alive = true;
          connection.deadline(patience());
          detail::keep_alive(connection.descriptor());
          which.half_open = true;
          const bool accepted = co_await who_.introduce(connection, which.peer());
          if (accepted && !which.is_open() && !which.ended() && !closing_) {
            tell_of_tcp(which.peer(), not_beside);
            adopt(which, connection.release());
          }
        }
      }
    } catch (const error& thrown) {
      const failure& what = thrown.record();
      if (!has_address && what.code == errc::unreachable) {
        // The peer may live: this rank cannot ask where it listens.
        why = what;
        why.culprit = -1;
        why.address[0] = 0;
        why.say("no link to rank %d: only the store knows where it listens, and %.200s",
                which.peer(), what.detail);
        hopeless = true;
        break;
      }
      if (what.code == errc::crypto_failed || what.code == errc::insecure_bind) {
        // What this rank cannot do says nothing of the peer.
        why = what;
        why.culprit = who_.rank;
        hopeless = true;
        break;
      }
      why.say("%.300s", what.detail);
      dropped = what.code == errc::unreachable;
      if (what.code == errc::timeout) {
        alive = true;
        wanted = host_.is_needed(which);
      }
      if (what.code == errc::too_many_files) {
        alive = true;
        tell_of_lack(which.peer(), what.detail);
      }
      hopeless = what.code == errc::auth_failed || what.code == errc::protocol_error ||
                 what.code == errc::peer_failed;
    } catch (const std::bad_alloc&) {
      alive = true;  // for all that is known
    }
    if (which.is_open() || hopeless || !wanted) break;
    if (alive) heard = engine_.now();
    hopeless = engine_.now() - heard >= silence_of_the_dead;
    co_await engine_.sleep_until(engine_.now() + pause);
    // In a crowd of strangers a connection may be dropped again and again before it is served.
    pause = std::min<time_point>(2 * pause, dropped ? 50 * milliseconds : seconds);
  }
  const bool looks_dead = hopeless && why.code == errc::peer_failed;
  if (looks_dead && !which.is_open() && !closing_ && who_.rendezvous != nullptr) {
    try {
      const std::vector<std::string> key{detail::left_key(which.peer())};
      const std::string left = co_await who_.rendezvous->check(key, engine_.now() + seconds);
      if (left == "1") why = has_left(which.peer());
    } catch (const error&) {
      // The store is gone too: what the dialling found stands.
    }
  }
  if (!hopeless || which.is_open() || closing_) co_return;
  // Dialled for words alone: whoever needs it dials again.
  if (why.code != errc::closed && !host_.is_needed(which)) co_return;
  host_.unreachable(which, why);
}

COLLS_ONCE task<> opener::ask_system_of(link& which) {
  which.probed = true;
  const until_it_ends asking(which.probed);
  bool answers = true;
  try {
    const endpoint where = co_await who_.address_of(which.peer());
    stream connection(engine_);
    connection.deadline(engine_.now() + silence_of_the_dead);
    const detail::outcome connected = co_await detail::attempt(connection.connect(where));
    answers = connected || is_own_lack(connected.ec);
    if (connected) {
      detail::keep_alive(connection.descriptor());
      (void)::shutdown(connection.descriptor(), SHUT_WR);  // what is wrong shows when it is read
      connection.deadline(never);
      const detail::outcome left = co_await detail::attempt(connection.readable());
      answers = !is_of_the_way(left.ec);
    }
  } catch (const error&) {
    // Nobody here knows where it listens.
  } catch (const std::bad_alloc&) {
  }
  which.next_probe = engine_.now() + probe_pause;
  if (!answers && which.is_silent(engine_.now())) which.fail(ETIMEDOUT);
}

COLLS_ONCE bool opener::is_of_the_way(std::error_code ec) {
  return ec == std::errc::timed_out || ec == std::errc::host_unreachable ||
         ec == std::errc::network_unreachable || ec == std::errc::network_down;
}

COLLS_ONCE bool opener::is_own_lack(std::error_code ec) {
  return ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system ||
         ec == std::errc::no_buffer_space || ec == std::errc::not_enough_memory ||
         ec == std::errc::address_not_available;
}

COLLS_ONCE task<bool> opener::dial_beside(link& which, endpoint where, bool* alive,
                                          std::error_code* why) {
  const bool only = who_.cfg.transport == "shm";
  if (!who_.local_listener.is_open() || !is_beside(which.peer())) {
    if (only) {
      detail::raise(errc::peer_failed, "shm was asked for, and %s",
                    is_beside(which.peer())
                        ? "this rank has no local socket"
                        : "it runs on another host, or in another network namespace");
    }
    co_return false;
  }
  detail::descriptor socket;
  std::error_code ec = std::make_error_code(std::errc::connection_refused);
  // It may take us for another user.
  if (which.refused_beside < 3) ec = shm::connect_beside(where, socket);
  const bool is_crowded = ec == std::errc::resource_unavailable_try_again;
  *alive = !ec || is_crowded;
  if (!is_crowded) {
    which.crowded_since = never;
  } else if (which.crowded_since == never) {
    which.crowded_since = engine_.now();
  }
  if (is_crowded && (only || engine_.now() - which.crowded_since < longest_crowd)) co_return true;
  if (is_own_lack(ec)) detail::raise(errc::too_many_files, "%s", ec.message().c_str());
  if (!ec && !detail::is_own_user(socket.get())) {
    ec = std::make_error_code(std::errc::permission_denied);
  }
  if (ec) {
    if (only) {
      detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                    ec.message().c_str());
    }
    *why = ec;
    co_return false;
  }
  // A rank that computes answers late; one that dies ends the connection.
  stream connection(engine_, std::move(socket));
  connection.deadline(patience());
  bool accepted = false;
  try {
    accepted = co_await who_.introduce(connection, which.peer());
  } catch (const error& thrown) {
    if (thrown.record().code == errc::unreachable) ++which.refused_beside;
    throw;
  }
  if (!accepted || which.is_open() || which.ended() || closing_) co_return true;
  shm::segment memory;
  auto ring = std::make_unique<shm::ring>(who_.cfg.checksum);
  ec = memory.make(shm::link_bytes(shm::ring_for(who_.local_size, who_.shares_cores())));
  if (!ec) ec = ring->map(memory, 0);
  if (!ec && !shm::pass_descriptor(connection.descriptor(), memory.descriptor())) {
    if (errno == EPIPE || errno == ECONNRESET) co_return true;
    ec = {errno, std::system_category()};
  }
  if (ec && only) raise_for_memory(ec);
  if (ec) {
    tell_of_memory(ec);
    if (!shm::pass_descriptor(connection.descriptor(), -1)) co_return true;
  }
  // The other end opens before it says so: this one has to stay until it has heard that.
  connection.deadline(never);
  auto shared = shm::answer::no;
  which.half_open = true;
  const detail::outcome heard =
      co_await detail::attempt(connection.read({reinterpret_cast<std::byte*>(&shared), 1}));
  which.half_open = false;
  if (!heard || which.is_open() || which.ended()) co_return true;
  if (shared != shm::answer::yes) {
    if (only) detail::raise(errc::peer_failed, "it cannot share memory with this rank");
    ring.reset();
  }
  open(which, connection.release(), std::move(ring));
  co_return true;
}

COLLS_ONCE task<> opener::admit_beside(std::unique_ptr<stream> guest, int peer) {
  guest->deadline(patience());
  co_await guest->readable();
  shm::segment memory;
  std::unique_ptr<shm::ring> ring;
  detail::descriptor passed;
  std::error_code ec;
  if (!shm::take_descriptor(guest->descriptor(), passed, ec)) co_return;
  if (passed) {
    ring = std::make_unique<shm::ring>(who_.cfg.checksum);
    ec = memory.adopt(std::move(passed));
    if (!ec) ec = ring->map(memory, 1);
  }
  if (ec) ring.reset();
  link& which = links_.at(peer);
  if (which.is_open() || which.ended() || closing_) co_return;
  const auto shared = ring != nullptr ? shm::answer::yes : shm::answer::no;
  if (!shm::give_answer(guest->descriptor(), shared)) co_return;
  if (ec && who_.cfg.transport == "shm") raise_for_memory(ec);
  if (ec) tell_of_memory(ec);
  which.address("a process of this host");
  open(which, guest->release(), std::move(ring));
}

COLLS_ONCE void opener::tell_of_tcp(int peer, std::error_code why) {
  if (!why || std::exchange(told_of_tcp_, true)) return;
  log_warn("rank %d reaches rank %d by tcp, not by shared memory: %s", who_.rank, peer,
           why.message().c_str());
}

COLLS_ONCE void opener::raise_for_memory(std::error_code ec) {
  detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                ec.message().c_str());
}

COLLS_ONCE void opener::tell_of_memory(std::error_code ec) {
  if (std::exchange(told_of_memory_, true)) return;
  log_warn("rank %d reaches others on this host by sockets, not by shared memory: %s", who_.rank,
           ec.message().c_str());
}

COLLS_ONCE void opener::tell_of_lack(int peer, const char* what) {
  if (std::exchange(told_of_lack_, true)) return;
  log_warn("rank %d cannot open a link to rank %d yet: %s", who_.rank, peer, what);
}

COLLS_ONCE void opener::open(link& which, detail::descriptor socket,
                             std::unique_ptr<shm::ring> ring) {
  if (!socket) return which.fail(ECONNRESET);  // the peer has closed its end meanwhile
  try {
    links_.open(which, std::move(socket), std::move(ring));
  } catch (const std::exception&) {
    return which.break_off();  // the peer has opened its end, and sees this one close
  }
  host_.opened(which);
}

COLLS_ONCE void opener::adopt(link& which, detail::descriptor socket) {
  detail::keep_alive(socket.get());
  // Tried when the rank joined: it has lost a right since, or the system its module.
  const auto& name = who_.cfg.congestion;
  std::error_code ec;
  if (!name.empty()) ec = detail::set_congestion(socket.get(), name);
  if (ec && !std::exchange(told_of_congestion_, true)) {
    log_warn("rank %d has links without the congestion control '%s': %s", who_.rank, name.c_str(),
             ec.message().c_str());
  }
  open(which, std::move(socket));
}

COLLS_ONCE void opener::enter(std::unique_ptr<stream> guest, const hello& who) {
  tasks_.start(admit(std::move(guest), who.rank, who.what));
}

COLLS_ONCE task<> opener::admit(std::unique_ptr<stream> guest, int peer, purpose what) {
  bool promised = false;
  try {
    const bool local = shm::is_local(guest->descriptor());
    const bool known = what == purpose::link && peer >= 0 && peer < who_.size && peer != who_.rank;
    const verdict answer = !known || closing_   ? verdict::not_now
                           : is_welcome(peer)   ? verdict::accepted
                           : has_given_up(peer) ? verdict::given_up
                                                : verdict::duplicate;
    promised = answer == verdict::accepted;
    if (promised) links_.at(peer).promised = true;
    co_await give_verdict(*guest, answer);
    if (!promised) co_return;
    link& which = links_.at(peer);
    if (local) {
      co_await admit_beside(std::move(guest), peer);
    } else if (!which.is_open() && !which.ended()) {
      which.address(detail::text_of(guest->remote()));
      adopt(which, guest->release());
    }
  } catch (const error& thrown) {
    log_debug("rank %d went away while it was let in: %s", peer, thrown.record().detail);
  } catch (const std::bad_alloc&) {
    log_debug("there was no memory to let rank %d in", peer);
  }
  if (!promised) co_return;
  link& which = links_.at(peer);
  which.promised = false;
  if (!which.is_open() && host_.is_needed(which)) to(peer);
}

COLLS_ONCE bool opener::has_given_up(int peer) {
  const link* const known = links_.known(peer);
  return known != nullptr && known->ended() && !known->said_goodbye();
}

COLLS_ONCE bool opener::is_welcome(int peer) {
  const link* const known = links_.known(peer);
  return known == nullptr ||
         (!known->is_open() && !known->ended() && !(known->dialing && who_.rank < peer));
}

}  // namespace colls::tcp
