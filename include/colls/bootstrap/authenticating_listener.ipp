// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How strangers are let in: the second half of authenticating_listener.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

namespace colls {

namespace detail {

inline constexpr time_point eviction_pause = milliseconds;
inline constexpr time_point longest_burst = 64 * eviction_pause;

/// One line a minute about all strangers at all doors of this process.
COLLS_ONCE void tell_of_strangers(const endpoint& where, const char* what) {
  static std::mutex guard;
  static rate_limited_log log{60};
  const std::lock_guard lock(guard);
  log.warn("turned away at %s: %s", text_of(where).c_str(), what);
}

}  // namespace detail

COLLS_ONCE door::door(engine& on, listener& at, const hello& mine, const secret& shared, host& to,
                      time_point patience)
    : engine_(on),
      listener_(at),
      mine_(mine),
      shared_(shared),
      host_(to),
      patience_(patience),
      most_(std::clamp(2 * mine.world, 64, 1024)),
      last_sweep_(on.now()),
      tasks_(on) {
  engine_.watch(listener_.descriptor(), EPOLLIN, *this);
  try {
    engine_.add(static_cast<engine::source&>(*this), false);
  } catch (...) {
    engine_.unwatch(listener_.descriptor(), *this);
    throw;
  }
}

COLLS_ONCE door::~door() {
  engine_.remove(static_cast<engine::source&>(*this));
  engine_.unwatch(listener_.descriptor(), *this);
}

COLLS_ONCE std::string door::lack() const {
  return lack_ != 0 && engine_.now() - lacked_ < 10 * seconds ? std::strerror(lack_)
                                                              : std::string();
}

COLLS_ONCE void door::ready(std::uint32_t) {
  // Those that come in this turn keep their places in it, and most of the others do: a process that
  // seldom gets a core must not close connections before it has looked at what they say.
  int old = pending_strangers();
  const int kept = old - most_ / 8;
  // Bounded, so that a flood does not keep the thread from its work.
  for (int accepted = 0; accepted < 64; ++accepted) {
    const bool full = pending_strangers() >= most_;
    if (full && old <= kept) return;
    if (full && !may_evict(old)) return rest(5 * milliseconds);
    detail::descriptor socket = listener_.accept();
    if (!socket) {
      if (!detail::is_lack(errno)) return;
      const int error = errno;
      if (!may_evict(old)) return refuse(error);
      evict(old);
      continue;
    }
    // A rank of another user comes by TCP. Whatever else that user wants, it has no place here.
    if (shm::is_local(socket.get()) && !detail::is_own_user(socket.get())) {
      ++turned_away_;
      continue;
    }
    if (full) evict(old);
    try {
      strangers_.push_back({std::make_unique<stream>(engine_, std::move(socket)), awake_});
    } catch (const error&) {
      return refuse(ENOSPC);
    } catch (const std::bad_alloc&) {
      return refuse(ENOMEM);
    }
    try {
      tasks_.start(greet(std::prev(strangers_.end())));
    } catch (const std::bad_alloc&) {
      strangers_.pop_back();
      return refuse(ENOMEM);
    }
  }
}

COLLS_ONCE void door::refuse(int error) {
  lack_ = error;
  lacked_ = engine_.now();
  const hello_bytes answer = write_hello(refusal(purpose::no_descriptor, mine_.rank));
  spare_.refuse(listener_, [&](int socket) {
    ++turned_away_;
    hello_bytes unread;
    // What is not read when a connection is closed resets it, and may cost the peer the answer.
    (void)::recv(socket, unread.data(), unread.size(), MSG_DONTWAIT);
    // A peer that the answer does not reach finds the connection closed.
    (void)::send(socket, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  const std::string why = std::string("no connection can be taken: ") + std::strerror(error);
  detail::tell_of_strangers(listener_.local(), why.c_str());
  rest(100 * milliseconds);
}

COLLS_ONCE void door::rest(time_point span) {
  rests_until_ = engine_.now() + span;
  listen(false);
  try {
    tasks_.start(wake_at(rests_until_));
  } catch (const std::bad_alloc&) {
    // The next sweep after that time opens the door.
  }
}

COLLS_ONCE task<> door::wake_at(time_point due) { co_await engine_.sleep_until(due); }

COLLS_ONCE task<> door::greet(place who) {
  std::unique_ptr<stream> guest;
  hello peer;
  {
    const taken_place taken(*this, who);
    try {
      peer = co_await challenge(*who->link, mine_, shared_);
      guest = std::move(who->link);
    } catch (const error& thrown) {
      ++turned_away_;
      // A few that come and leave may be ranks that ended, or computed, before they were in.
      if (who->evicted) {
        detail::tell_of_strangers(listener_.local(),
                                  "so many come that they take each other's place");
      } else if (thrown.record().code != errc::closed || ++gone_ % 64 == 0) {
        detail::tell_of_strangers(listener_.local(), thrown.record().detail);
      }
    } catch (const std::bad_alloc&) {
      ++turned_away_;
    }
  }
  if (guest) host_.enter(std::move(guest), peer);
}

COLLS_ONCE bool door::may_evict(int old) {
  const time_point time = engine_.now();
  next_eviction_ = std::max(next_eviction_, time - detail::longest_burst);
  return old > 0 && next_eviction_ <= time;
}

COLLS_ONCE void door::evict(int& old) {
  std::uint32_t draw = 0;
  detail::fill_random(&draw, sizeof draw);
  auto skip = draw % static_cast<std::uint32_t>(old);
  for (stranger& it : strangers_) {
    if (it.evicted || skip-- > 0) continue;
    it.evicted = true;
    ++evicted_;
    --old;
    next_eviction_ += detail::eviction_pause;
    return it.link->close();
  }
}

COLLS_ONCE void door::listen(bool wanted) {
  if (listening_ == wanted) return;
  listening_ = wanted;
  engine_.rewatch(listener_.descriptor(), wanted ? static_cast<std::uint32_t>(EPOLLIN) : 0U, *this);
}

COLLS_ONCE void door::sweep(time_point now) {
  awake_ += std::min<time_point>(now - last_sweep_, 200 * milliseconds);
  last_sweep_ = now;
  for (stranger& it : strangers_) {
    if (it.link && awake_ - it.came >= patience_) it.link->close();
  }
  if (now >= rests_until_) listen(true);
}

}  // namespace colls
