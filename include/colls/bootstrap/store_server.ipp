// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the server does: the second half of store_server.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/store_server.hpp>

namespace colls {

COLLS_ONCE store_server::store_server(engine& on, hello mine, const secret& shared)
    : engine_(on), mine_(mine), shared_(shared), tasks_(on) {
  mine_.what = purpose::store;
  engine_.add(static_cast<engine::source&>(*this), false);
}

COLLS_ONCE store_server::~store_server() {
  engine_.remove(static_cast<engine::source&>(*this));
  close();
}

COLLS_ONCE std::error_code store_server::listen(const endpoint& where) {
  if (!shared_.is_good()) return make_error_code(errc::insecure_bind);
  auto made = std::make_unique<gate>();
  if (const std::error_code ec = made->at.listen(where)) return ec;
  return open(std::move(made));
}

COLLS_ONCE std::error_code store_server::adopt(int listening) {
  auto made = std::make_unique<gate>();
  made->at.adopt(detail::descriptor(listening));
  if (!shared_.is_good()) return make_error_code(errc::insecure_bind);
  return open(std::move(made));
}

COLLS_ONCE int store_server::pending_strangers() const {
  int sum = 0;
  for (const auto& it : gates_) sum += it->guard->pending_strangers();
  return sum;
}

COLLS_ONCE std::uint64_t store_server::turned_away() const {
  std::uint64_t sum = 0;
  for (const auto& it : gates_) sum += it->guard->turned_away();
  return sum;
}

COLLS_ONCE std::string store_server::lack() const {
  for (const auto& it : gates_) {
    std::string why = it->guard->lack();
    if (!why.empty()) return why;
  }
  return {};
}

COLLS_ONCE std::size_t store_server::unsent() const {
  std::size_t sum = 0;
  for (const auto& it : guests_) sum += it->out.size() + it->sending.size();
  return sum;
}

COLLS_ONCE void store_server::announce_failure(const reported_failure& report) {
  failure why = report;
  const bool is_death = why.code == errc::peer_failed;
  if (is_death) why.communicator = 0;  // of no communicator alone: one a rank
  for (const failure& known : failures_) {
    if (known.culprit == why.culprit && known.code == why.code &&
        known.communicator == why.communicator) {
      return;
    }
  }
  if (!is_death && revocations_ == most_revocations) return;
  failures_.push_back(reported_failure(why));
  if (!is_death) ++revocations_;
  for (const auto& it : guests_) tell(*it);
}

COLLS_ONCE void store_server::make_room() {
  const std::size_t wanted = failures_.size() + guests_.size() + 2;
  if (failures_.capacity() < wanted) failures_.reserve(2 * wanted);
}

COLLS_ONCE void store_server::tell(guest& it) {
  try {
    while (it.entered && it.told < failures_.size()) {
      const failure& why = failures_[it.told];
      detail::append_frame(it.out, {.what = frame::kind::failed}, {},
                           reported_failure::bytes_of(why), it.who.checksum);
      ++it.told;
    }
  } catch (const std::bad_alloc&) {
  }
  write_soon(it);
}

COLLS_ONCE void store_server::write_soon(guest& to) {
  if (to.writing || (to.out.empty() && to.ready.empty())) return;
  try {
    tasks_.start(flush(to.shared_from_this()));
  } catch (const std::bad_alloc&) {
  }
}

COLLS_ONCE void store_server::announce_failure(int rank, std::string_view how) {
  failure why(errc::peer_failed);
  why.culprit = rank;
  why.say("%.*s", static_cast<int>(how.size()), how.data());
  make_room();
  announce_failure(reported_failure(why));
}

COLLS_ONCE task<> store_server::drain(time_point deadline) {
  drain_deadline_ = deadline;
  departure all_gone(*this);
  co_await all_gone;
}

COLLS_ONCE void store_server::close() {
  gates_.clear();
  std::string last;
  for (const auto& it : guests_) {
    if (it->writing || !it->link->is_open()) continue;
    last.clear();
    detail::append_frame(last, {.what = frame::kind::bye}, {}, {}, it->who.checksum);
    const detail::descriptor socket = it->link->release();
    // A client that is gone hears nothing.
    [[maybe_unused]] const auto ignored =
        ::send(socket.get(), last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

COLLS_ONCE std::error_code store_server::open(std::unique_ptr<gate> made) {
  const auto address = made->at.local().address();
  if (detail::is_loopback(address) || address.is_unspecified()) {
    made->keys = std::make_unique<key_server>(engine_, shared_);
    const std::error_code ec = made->keys->listen(made->at);
    lacks_local_socket_ = ec && shared_.is_drawn();
    if (lacks_local_socket_) return ec;
    if (ec) {
      made->keys.reset();
      log_debug("no local socket beside the store: %s", ec.message().c_str());
    }
  }
  made->guard =
      std::make_unique<door>(engine_, made->at, mine_, shared_, static_cast<door::host&>(*this));
  gates_.push_back(std::move(made));
  return {};
}

COLLS_ONCE void store_server::enter(std::unique_ptr<stream> link, const hello& who) {
  detail::keep_alive(link->descriptor());
  auto made = std::make_shared<guest>();
  made->where = detail::text_of(link->remote());
  made->link = std::move(link);
  made->who = who;
  tasks_.start(serve(std::move(made)));
}

COLLS_ONCE verdict store_server::judge(const hello& who) const {
  if (who.what != purpose::store) return verdict::not_now;
  if (who.world != mine_.world) return verdict::other_world;
  if (who.rank < 0) return verdict::accepted;
  const auto known = ranks_.find(who.rank);
  if (known == ranks_.end()) return verdict::accepted;
  return known->second ? verdict::rank_taken : verdict::world_complete;
}

COLLS_ONCE task<> store_server::serve(guest_ptr me) {
  const int rank = me->who.rank;
  const verdict judged = judge(me->who);
  if (judged == verdict::accepted) {
    make_room();
    guests_.reserve(guests_.size() + 1);
    if (rank >= 0) ranks_[rank] = true;
    guests_.push_back(me);
  } else {
    log_.warn("turned away rank %d of %d at %s, which came from %s: %s", rank, me->who.world,
              detail::text_of(local()).c_str(), me->where.c_str(),
              judged == verdict::other_world      ? "this world has another size"
              : judged == verdict::rank_taken     ? "that rank is here already"
              : judged == verdict::world_complete ? "that rank was here and is gone"
                                                  : "this is a store");
  }
  const char* how = nullptr;
  bool damaged = false;
  try {
    co_await give_verdict(*me->link, judged, mine_.world);
    if (judged == verdict::accepted) {
      const detail::outcome ended = co_await converse(*me);
      damaged = ended.ec == detail::damaged_frame();
    }
  } catch (const error& thrown) {
    how = thrown.record().code == errc::protocol_error ? "sent what no rank of colls would send"
                                                       : nullptr;
  } catch (const std::bad_alloc&) {
    how = "asked for more than the store has memory for";
  }
  if (judged != verdict::accepted) co_return;
  if (damaged) {
    failure why(errc::protocol_error);
    why.culprit = rank;
    std::snprintf(why.address, sizeof why.address, "%s", me->where.c_str());
    why.say("%s", detail::damaged_store_frame);
    announce_failure(reported_failure(why));
    co_await part_from(*me);
  }
  me->link->close();
  std::erase(guests_, me);
  for (const auto& [id, it] : me->waits) table_.forget(*it);
  me->waits.clear();
  me->ready.clear();
  if (!me->entered) {
    ranks_.erase(rank);
    co_return;
  }
  if (rank < 0) co_return;
  ranks_[rank] = false;
  gone();
  if (me->left || damaged) co_return;
  failure why(errc::peer_failed);
  why.culprit = rank;
  std::snprintf(why.address, sizeof why.address, "%s", me->where.c_str());
  why.say("%s", how != nullptr ? how : "its process ended without a goodbye");
  announce_failure(reported_failure(why));
}

COLLS_ONCE task<detail::outcome> store_server::converse(guest& me) {
  detail::store_head head;
  std::string key;
  std::string value;
  for (;;) {
    const detail::outcome done = co_await detail::read_head(*me.link, me.who.checksum, head);
    if (done.ec == errc::protocol_error) throw error(errc::protocol_error);
    if (!done) co_return done;
    const frame& request = head.frame;
    if (request.what >= frame::kind::reply || me.left ||
        me.entered == (request.what == frame::kind::enter)) {
      throw error(errc::protocol_error);
    }
    const detail::outcome first = co_await detail::read_text(*me.link, key, request.key_size);
    if (!first) co_return first;
    const detail::outcome second = co_await detail::read_text(*me.link, value, request.value_size);
    if (!second) co_return second;
    if (!head.is_of(key, value)) co_return detail::outcome{detail::damaged_frame()};
    handle(me, request, key, value);
    // Who asks without reading the answers waits.
    while (me.out.size() > most_unsent && me.link->is_open()) {
      co_await engine_.sleep_until(engine_.now() + 10 * milliseconds);
    }
  }
}

COLLS_ONCE task<> store_server::part_from(guest& me) {
  answer(me, {.what = frame::kind::bye}, {});
  me.link->deadline(engine_.now() + seconds);
  // A connection that is closed before all was read is reset, and what was written may be lost.
  std::array<std::byte, 4096> rest{};
  for (detail::outcome more; more;) {
    std::size_t some = 0;
    more = co_await detail::attempt(me.link->read_some(detail::whole(rest), &some));
  }
}

COLLS_ONCE void store_server::handle(guest& me, const frame& request, const std::string& key,
                                     std::string& value) {
  frame to{.what = frame::kind::reply, .id = request.id};
  std::string text;
  try {
    switch (request.what) {
      case frame::kind::enter:
        me.entered = true;
        if (me.who.rank >= 0) ++present_;
        tell(me);
        return;
      case frame::kind::set:
        table_.set(key, std::move(value));
        break;
      case frame::kind::get:
        if (const std::string* const held = table_.find(key)) {
          text = *held;
          break;
        }
        wait_for(me, request.id, {key}).key = key;
        return;
      case frame::kind::add:
        to.number = table_.add(key, request.number);
        break;
      case frame::kind::wait: {
        const auto keys = texts(value);
        if (table_.check(keys).find('0') == std::string::npos) break;
        wait_for(me, request.id, keys);
        return;
      }
      case frame::kind::check:
        text = table_.check(texts(value));
        break;
      case frame::kind::compare_set: {
        auto both = texts(value);
        if (both.size() != 2) throw error(errc::protocol_error);
        text = table_.compare_set(key, both[0], std::move(both[1]));
        break;
      }
      case frame::kind::forget:
        forget(me, request.id);
        return;
      case frame::kind::report: {
        const auto why = detail::read_failure(value, mine_.world);
        if (!why) throw error(errc::protocol_error);
        make_room();
        announce_failure(*why);
        break;
      }
      case frame::kind::goodbye:
        me.left = true;
        break;
      default:
        throw error(errc::protocol_error);
    }
  } catch (const error& refused) {
    if (refused.record().code == errc::protocol_error) throw;
    to.what = frame::kind::refused;
    answer(me, to, reported_failure::bytes_of(refused.record()));
    return;
  }
  answer(me, to, text);
}

COLLS_ONCE std::vector<std::string> store_server::texts(std::string_view joined) {
  auto split = detail::split_texts(joined);
  if (!split) throw error(errc::protocol_error);
  return std::move(*split);
}

COLLS_ONCE store_server::waiting& store_server::wait_for(guest& me, std::uint32_t id,
                                                         const std::vector<std::string>& keys) {
  if (me.waits.size() >= most_waits || me.waits.contains(id)) throw error(errc::protocol_error);
  std::size_t bytes = 0;
  for (const std::string& key : keys) bytes += key.size() + 64;
  if (bytes > most_bytes_waited_for - me.keys_waited_for) {
    detail::raise(errc::invalid_argument, "the keys that one process waits for may take %zu bytes",
                  most_bytes_waited_for);
  }
  me.ready.reserve(me.waits.size() + 1);
  waiting& made = *(me.waits[id] = std::make_unique<waiting>(*this, me, id));
  me.keys_waited_for += made.bytes = bytes;
  try {
    table_.wait(made, keys);
  } catch (...) {
    forget(me, id);
    throw;
  }
  return made;
}

COLLS_ONCE void store_server::forget(guest& me, std::uint32_t id) {
  const auto found = me.waits.find(id);
  if (found == me.waits.end()) return;
  table_.forget(*found->second);
  std::erase(me.ready, id);
  me.keys_waited_for -= found->second->bytes;
  me.waits.erase(found);
}

COLLS_ONCE void store_server::arrived(waiting& it) {
  it.owner.ready.push_back(it.id);  // for which `wait_for` has made room
  write_soon(it.owner);
}

COLLS_ONCE void store_server::answer(guest& to, const frame& head, std::string_view value) {
  detail::append_frame(to.out, head, {}, value, to.who.checksum);
  write_soon(to);
}

COLLS_ONCE void store_server::answer_ready(guest& to) {
  constexpr std::size_t at_once = std::size_t{1} << 20;
  try {
    while (!to.ready.empty() && to.out.size() < at_once) {
      const std::uint32_t id = to.ready.back();
      const waiting& it = *to.waits.at(id);
      const std::string_view value =
          it.key.empty() ? std::string_view() : std::string_view(*table_.find(it.key));
      detail::append_frame(to.out, {.what = frame::kind::reply, .id = id}, {}, value,
                           to.who.checksum);
      to.ready.pop_back();
      to.keys_waited_for -= it.bytes;
      to.waits.erase(id);
    }
  } catch (const std::bad_alloc&) {
    // The next sweep goes on.
  }
}

COLLS_ONCE task<> store_server::flush(guest_ptr to) {
  to->writing = true;
  for (answer_ready(*to); !to->out.empty(); answer_ready(*to)) {
    to->sending = std::exchange(to->out, {});
    const std::string& batch = to->sending;
    const detail::outcome done = co_await detail::attempt(
        to->link->write({reinterpret_cast<const std::byte*>(batch.data()), batch.size()}));
    to->sending = {};
    if (!done) break;
  }
  to->writing = false;
}

COLLS_ONCE void store_server::gone() {
  if (--present_ == 0) drained();
}

COLLS_ONCE void store_server::drained() {
  if (completion* const done = std::exchange(drained_, nullptr)) done->post();
}

COLLS_ONCE void store_server::sweep(time_point now) {
  for (const auto& it : guests_) tell(*it);
  if (now >= drain_deadline_) drained();
}

}  // namespace colls
