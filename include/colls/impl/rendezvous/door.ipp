// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How strangers are let in: the second half of door.hpp.

#include <colls/version.hpp>

#include <algorithm>
#include <cstring>
#include <new>

namespace colls {

COLLS_ONCE door::door(engine& on, listener& at, const hello& mine, const secret& shared, host& to,
                      time_point patience)
    : engine_(on),
      listener_(at),
      mine_(mine),
      shared_(shared),
      host_(to),
      patience_(patience),
      most_(std::max(16, 2 * mine.world)),
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

COLLS_ONCE void door::ready(std::uint32_t) {
  // Bounded, so that a flood does not keep the thread from its work.
  for (int accepted = 0; accepted < 64; ++accepted) {
    if (pending_strangers() >= most_ && !make_room()) return listen(false);
    detail::descriptor socket = listener_.accept();
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        rest(std::strerror(errno));
      }
      return;
    }
    try {
      strangers_.push_back({std::make_unique<stream>(engine_, std::move(socket)), awake_});
    } catch (const error& thrown) {
      return rest(thrown.record().detail);
    } catch (const std::bad_alloc&) {
      return rest(std::strerror(ENOMEM));
    }
    try {
      tasks_.start(greet(std::prev(strangers_.end())));
    } catch (const std::bad_alloc&) {
      strangers_.pop_back();
      return rest(std::strerror(ENOMEM));
    }
  }
}

COLLS_ONCE void door::rest(const char* why) {
  log_.warn("cannot take a connection at %s: %s", detail::text_of(listener_.local()).c_str(), why);
  listen(false);
}

COLLS_ONCE task<> door::greet(place who) {
  std::unique_ptr<stream> guest;
  hello peer;
  try {
    peer = co_await challenge(*who->link, mine_, shared_, &who->greeted);
    guest = std::move(who->link);
  } catch (const error& thrown) {
    ++turned_away_;
    // A few that come and leave may be ranks that ended, or computed, before they were in.
    if (thrown.record().code != errc::closed || ++gone_ % 64 == 0) {
      log_.warn("turned away at %s: %s", detail::text_of(listener_.local()).c_str(),
                thrown.record().detail);
    }
  } catch (const std::bad_alloc&) {
    ++turned_away_;
  }
  strangers_.erase(who);
  listen(true);
  if (guest) host_.enter(std::move(guest), peer);
}

COLLS_ONCE bool door::make_room() {
  const auto silent = std::count_if(strangers_.begin(), strangers_.end(), [](const stranger& it) {
    return !it.greeted && it.link->is_open();
  });
  if (silent == 0) return false;
  std::uint32_t draw = 0;
  detail::fill_random(&draw, sizeof draw);
  auto skip = static_cast<std::ptrdiff_t>(draw % static_cast<std::uint32_t>(silent));
  for (stranger& it : strangers_) {
    if (!it.greeted && it.link->is_open() && skip-- == 0) {
      it.link->close();
      return pending_strangers() < 2 * most_;
    }
  }
  return false;
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
  if (pending_strangers() < most_) listen(true);
}

}  // namespace colls
