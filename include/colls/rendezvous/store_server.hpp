// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The serving side of the tcp store, and its failure channel: rank 0 runs it, or the launcher.

#include <colls/rendezvous/door.hpp>
#include <colls/rendezvous/store_frame.hpp>

#include <memory>
#include <unordered_map>

namespace colls {

/// Serves a store to one world. A rank whose connection ends without a goodbye is announced to all
/// others as failed; nothing that a client does can end the server.
class store_server final : door::host, engine::source {
 public:
  /// `mine`: job, world, and the rank that serves (-1: a launcher).
  store_server(engine& on, hello mine, const secret& shared)
      : engine_(on), mine_(mine), shared_(shared), tasks_(on) {
    mine_.what = purpose::store;
    engine_.add(static_cast<engine::source&>(*this), false);
  }
  store_server(const store_server&) = delete;
  store_server& operator=(const store_server&) = delete;
  ~store_server() {
    engine_.remove(static_cast<engine::source&>(*this));
    close();
  }

  /// Port 0 lets the system choose. May be called for several addresses.
  std::error_code listen(const endpoint& where) {
    if (detail::is_open_ground(shared_, where.address())) {
      return make_error_code(errc::insecure_bind);
    }
    auto made = std::make_unique<gate>();
    if (const std::error_code ec = made->at.listen(where)) return ec;
    open(std::move(made));
    return {};
  }
  /// Takes over a socket that listens already.
  void adopt(int listening) {
    auto made = std::make_unique<gate>();
    made->at.adopt(detail::descriptor(listening));
    open(std::move(made));
  }

  bool is_open() const { return !gates_.empty(); }
  /// Where it listens first.
  endpoint local() const { return gates_.front()->at.local(); }
  /// Ranks that are here: they came and neither left nor failed.
  int present() const { return present_; }
  /// Whether that rank is here or was.
  bool has_come(int rank) const { return ranks_.contains(rank); }
  int pending_strangers() const {
    int sum = 0;
    for (const auto& it : gates_) sum += it->guard->pending_strangers();
    return sum;
  }
  std::uint64_t turned_away() const {
    std::uint64_t sum = 0;
    for (const auto& it : gates_) sum += it->guard->turned_away();
    return sum;
  }

  /// Bytes of answers that clients have not taken yet.
  std::size_t unsent() const {
    std::size_t sum = 0;
    for (const auto& it : guests_) sum += it->out.size();
    return sum;
  }

  /// Tells all clients, now and later ones, that `why.culprit` has failed (-1: that the world
  /// cannot form), or that `why.communicator` was revoked. The first word on each counts.
  void announce_failure(const failure& why) {
    constexpr std::size_t most = 4096;
    for (const failure& known : failures_) {
      if (known.culprit == why.culprit && known.code == why.code &&
          known.communicator == why.communicator) {
        return;
      }
    }
    if (failures_.size() == most) return;
    failures_.push_back(why);
    for (const auto& it : guests_) {
      if (it->entered) answer(*it, {.what = frame::kind::failed}, detail::bytes_of(why));
    }
  }
  void announce_failure(int rank, std::string_view how) {
    failure why(errc::peer_failed);
    why.culprit = rank;
    why.say("%.*s", static_cast<int>(how.size()), how.data());
    announce_failure(why);
  }

  /// Waits until every rank that came has left or failed.
  task<> drain(time_point deadline) {
    drain_deadline_ = deadline;
    departure all_gone(*this);
    co_await all_gone;
  }

  /// Turns everybody away; clients see an orderly end.
  void close() {
    gates_.clear();
    std::string last;
    detail::append_frame(last, {.what = frame::kind::bye}, {}, {});
    for (const auto& it : guests_) {
      if (it->writing || !it->link->is_open()) continue;
      const detail::descriptor socket = it->link->release();
      [[maybe_unused]] const auto ignored =
          ::send(socket.get(), last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }

 private:
  using frame = detail::store_frame;

  struct gate {
    listener at;
    std::unique_ptr<door> guard;
  };

  struct guest;
  struct waiting final : detail::store_table::waiter {
    waiting(store_server& at, guest& of, std::uint32_t request)
        : server(at), owner(of), id(request) {}
    void ready() override { server.arrived(*this); }
    store_server& server;
    guest& owner;
    std::uint32_t id;
    std::string key;  // of a get; empty: of a wait
  };

  struct guest : std::enable_shared_from_this<guest> {
    std::unique_ptr<stream> link;
    hello who;
    std::string where;
    bool entered = false;
    bool left = false;
    bool writing = false;
    std::string out;
    std::unordered_map<std::uint32_t, std::unique_ptr<waiting>> waits;
  };
  using guest_ptr = std::shared_ptr<guest>;

  struct departure {
    explicit departure(store_server& of) : server(of) {}
    departure(const departure&) = delete;
    ~departure() { server.drained_ = nullptr; }
    bool start(completion& done) {
      if (server.present_ == 0) return true;
      server.drained_ = &done;
      return false;
    }
    void result() {}
    store_server& server;
  };

  static constexpr std::size_t most_waits = 4096;
  static constexpr std::size_t most_unsent = std::size_t{32} << 20;

  void open(std::unique_ptr<gate> made) {
    made->guard =
        std::make_unique<door>(engine_, made->at, mine_, shared_, static_cast<door::host&>(*this));
    gates_.push_back(std::move(made));
  }

  void enter(std::unique_ptr<stream> link, const hello& who) override {
    detail::keep_alive(link->descriptor());
    auto made = std::make_shared<guest>();
    made->where = detail::text_of(link->remote());
    made->link = std::move(link);
    made->who = who;
    tasks_.start(serve(std::move(made)));
  }

  verdict judge(const hello& who) const {
    if (who.what != purpose::store) return verdict::not_now;
    if (who.world != mine_.world) return verdict::other_world;
    if (who.rank < 0) return verdict::accepted;
    const auto known = ranks_.find(who.rank);
    if (known == ranks_.end()) return verdict::accepted;
    return known->second ? verdict::rank_taken : verdict::world_complete;
  }

  task<> serve(guest_ptr me) {
    const int rank = me->who.rank;
    const verdict judged = judge(me->who);
    if (judged == verdict::accepted) {
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
    try {
      co_await give_verdict(*me->link, judged, mine_.world);
      if (judged == verdict::accepted) co_await converse(*me);
    } catch (const error& thrown) {
      how = thrown.record().code == errc::protocol_error ? "sent what no rank of colls would send"
                                                         : nullptr;
    }
    if (judged != verdict::accepted) co_return;
    me->link->close();
    std::erase(guests_, me);
    for (const auto& [id, it] : me->waits) table_.forget(*it);
    me->waits.clear();
    if (!me->entered) {
      ranks_.erase(rank);
      co_return;
    }
    if (rank < 0) co_return;
    ranks_[rank] = false;
    gone();
    if (me->left) co_return;
    failure why(errc::peer_failed);
    why.culprit = rank;
    std::snprintf(why.address, sizeof why.address, "%s", me->where.c_str());
    why.say("%s", how != nullptr ? how : "its process ended without a goodbye");
    announce_failure(why);
  }

  // Ends when the connection does. The caller keeps the guest.
  task<> converse(guest& me) {
    std::array<std::byte, frame::size> head{};
    std::string key;
    std::string value;
    for (;;) {
      const detail::outcome done = co_await detail::attempt(me.link->read(detail::whole(head)));
      if (!done) co_return;
      const std::optional<frame> request = detail::parse_store_frame(head);
      if (!request || request->what >= frame::kind::reply || me.left ||
          me.entered == (request->what == frame::kind::enter)) {
        throw error(errc::protocol_error);
      }
      const detail::outcome first = co_await detail::read_text(*me.link, key, request->key_size);
      if (!first) co_return;
      const detail::outcome second =
          co_await detail::read_text(*me.link, value, request->value_size);
      if (!second) co_return;
      handle(me, *request, key, value);
      // Who asks without reading the answers waits.
      while (me.out.size() > most_unsent && me.link->is_open()) {
        co_await engine_.sleep_until(engine_.now() + 10 * milliseconds);
      }
    }
  }

  void handle(guest& me, const frame& request, const std::string& key, std::string& value) {
    frame to{.what = frame::kind::reply, .id = request.id};
    std::string text;
    try {
      switch (request.what) {
        case frame::kind::enter:
          me.entered = true;
          if (me.who.rank >= 0) ++present_;
          for (const failure& why : failures_) {
            answer(me, {.what = frame::kind::failed}, detail::bytes_of(why));
          }
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
          if (const auto found = me.waits.find(request.id); found != me.waits.end()) {
            table_.forget(*found->second);
            me.waits.erase(found);
          }
          return;
        case frame::kind::report:
          if (const auto why = detail::read_failure(value)) announce_failure(*why);
          break;
        case frame::kind::goodbye:
          me.left = true;
          break;
        default:
          throw error(errc::protocol_error);
      }
    } catch (const error& refused) {
      if (refused.record().code == errc::protocol_error) throw;
      to.what = frame::kind::refused;
      answer(me, to, detail::bytes_of(refused.record()));
      return;
    }
    answer(me, to, text);
  }

  static std::vector<std::string> texts(std::string_view joined) {
    auto split = detail::split_texts(joined);
    if (!split) throw error(errc::protocol_error);
    return std::move(*split);
  }

  waiting& wait_for(guest& me, std::uint32_t id, const std::vector<std::string>& keys) {
    if (me.waits.size() >= most_waits || me.waits.contains(id)) throw error(errc::protocol_error);
    waiting& made = *(me.waits[id] = std::make_unique<waiting>(*this, me, id));
    table_.wait(made, keys);
    return made;
  }

  void arrived(waiting& it) {
    guest& owner = it.owner;
    const std::uint32_t id = it.id;
    const std::string text = it.key.empty() ? std::string() : *table_.find(it.key);
    owner.waits.erase(id);
    answer(owner, {.what = frame::kind::reply, .id = id}, text);
  }

  void answer(guest& to, const frame& head, std::string_view value) {
    detail::append_frame(to.out, head, {}, value);
    if (!to.writing) tasks_.start(flush(to.shared_from_this()));
  }

  task<> flush(guest_ptr to) {
    to->writing = true;
    while (!to->out.empty()) {
      const std::string batch = std::exchange(to->out, {});
      const detail::outcome done = co_await detail::attempt(
          to->link->write({reinterpret_cast<const std::byte*>(batch.data()), batch.size()}));
      if (!done) break;
    }
    to->writing = false;
  }

  void gone() {
    if (--present_ == 0) drained();
  }
  void drained() {
    if (completion* const done = std::exchange(drained_, nullptr)) done->post();
  }

  bool poll() override { return false; }
  bool pending() const override { return drained_ != nullptr; }
  void sweep(time_point now) override {
    if (now >= drain_deadline_) drained();
  }

  engine& engine_;
  hello mine_;
  secret shared_;
  detail::store_table table_;
  std::unordered_map<int, bool> ranks_;  // those that came; false: left or failed
  std::vector<failure> failures_;
  std::vector<guest_ptr> guests_;
  int present_ = 0;
  rate_limited_log log_{10};
  completion* drained_ = nullptr;
  time_point drain_deadline_ = never;
  task_group tasks_;
  std::vector<std::unique_ptr<gate>> gates_;  // last: strangers enter through them
};

}  // namespace colls
