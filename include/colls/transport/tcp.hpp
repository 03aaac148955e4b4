// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tcp: ranks in processes, over links that open on first use: TCP between hosts, inside a host memory
// that both processes share.

#include <colls/receive.hpp>
#include <colls/rendezvous/door.hpp>
#include <colls/rendezvous/meet.hpp>
#include <colls/shared_buffer.hpp>
#include <colls/transport.hpp>
#include <colls/transport/tcp/link.hpp>
#include <colls/transport/tcp/share.hpp>

#include <thread>
#include <unordered_map>

namespace colls {

/// One rank of a world whose ranks reach each other over TCP. All of its communicators share its
/// links, its match and its executor; nothing in it may be used from another thread.
class tcp_transport final : mover,
                            engine::source,
                            tcp::link_owner,
                            door::host,
                            failure_listener {
 public:
  static constexpr bool consumes = true;

  tcp_transport(std::shared_ptr<engine> on, std::shared_ptr<membership> who)
      : engine_(std::move(on)), who_(std::move(who)), match_(who_->rank), tasks_(*engine_) {
    match_.add(static_cast<mover&>(*this));
    engine_->add(static_cast<engine::source&>(*this));
    const hello mine = who_->greeting(purpose::link);
    if (who_->link_listener.is_open()) {
      door_.emplace(*engine_, who_->link_listener, mine, who_->key,
                    static_cast<door::host&>(*this));
    }
    if (who_->local_listener.is_open()) {
      local_door_.emplace(*engine_, who_->local_listener, mine, who_->key,
                          static_cast<door::host&>(*this));
    }
    if (who_->rendezvous != nullptr) {
      who_->rendezvous->listen_for_failures(static_cast<failure_listener*>(this));
    }
  }
  tcp_transport(const tcp_transport&) = delete;
  tcp_transport& operator=(const tcp_transport&) = delete;
  ~tcp_transport() {
    if (who_->rendezvous != nullptr) who_->rendezvous->listen_for_failures(nullptr);
    engine_->remove(static_cast<engine::source&>(*this));
    match_.remove(static_cast<mover&>(*this));
  }

  int rank() const { return who_->rank; }
  int size() const { return who_->size; }
  match& matching() override { return match_; }
  run_queue& queue() { return engine_->queue(); }
  void kick() {
    for (tcp::link* link : rings_) link->wake_peer();
    engine_->kick();
  }
  time_point now() const { return engine_->now(); }
  const char* name() const { return "tcp"; }
  network_cost costs() const { return shares_memory() ? hybrid_cost : tcp_cost; }
  engine& driver() { return *engine_; }
  int node_of(int rank) const { return who_->node_of[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<engine>& shared_engine() const { return engine_; }
  const membership& members() const { return *who_; }
  const std::shared_ptr<membership>& shared_members() const { return who_; }

  /// What the ranks of a communicator tell each other to form a world of its own on another
  /// executor: where each listens, and on which host it is.
  struct card {
    char address[48] = {};
    std::int32_t port = 0;
    std::int32_t node = 0;
  };

  /// Opens this rank's listener for such a world and says where it is.
  std::shared_ptr<membership> prepare_world(int rank, int size, card& mine) const {
    auto who = std::make_shared<membership>();
    who->rank = rank;
    who->size = size;
    who->address = who_->address;
    who->key = who_->key;
    who->job = who_->job;
    who->cfg = who_->cfg;
    mine.node = who_->node;
    if (size == 1) return who;
    if (const std::error_code ec = who->listen()) {
      detail::raise(errc::join_failed, "rank %d cannot listen at %s: %s", rank,
                    who->address.to_string().c_str(), ec.message().c_str());
    }
    const endpoint where = who->link_listener.local();
    std::snprintf(mine.address, sizeof mine.address, "%s", where.address().to_string().c_str());
    mine.port = where.port();
    return who;
  }

  /// The transport of that world, once every rank's card is known. Nobody else may turn the
  /// executor meanwhile.
  static std::shared_ptr<tcp_transport> open_world(const boost::asio::any_io_executor& executor,
                                                   std::shared_ptr<membership> who,
                                                   const std::vector<card>& cards) {
    who->node_of.clear();
    for (card each : cards) {
      each.address[sizeof each.address - 1] = 0;
      boost::system::error_code bad;
      const auto address = boost::asio::ip::make_address(each.address, bad);
      if (bad && who->size > 1) detail::raise(errc::protocol_error, "a rank told no address");
      who->book.emplace_back(address, static_cast<std::uint16_t>(each.port));
      who->node_of.push_back(each.node);
      who->job = mix(who->job, static_cast<std::uint64_t>(each.port));
    }
    who->node = who->node_of[static_cast<std::size_t>(who->rank)];
    who->local_size = static_cast<int>(
        std::count(who->node_of.begin(), who->node_of.end(), who->node));
    return std::make_shared<tcp_transport>(engine::of(executor), std::move(who));
  }

  class send_operation : tcp::outgoing {
   public:
    send_operation(tcp_transport& net, const message_key& to, const_bytes from,
                   operation_record& of)
        : net_(net) {
      key = to;
      data = from.data;
      size = from.size;
      record = &of;
    }
    send_operation(send_operation&& other) noexcept
        : send_operation(other.net_, other.key, {other.data, other.size}, *other.record) {}
    ~send_operation() {
      if (waits) on->waiting.remove(*this);
      if (queued) on->withdraw(*this);
    }

    bool start(completion& waiter) {
      if (record->communicator->failed()) {
        ec = record->communicator->why().code;
        return true;
      }
      done = &waiter;
      return net_.start(*this);
    }
    std::error_code result() const { return ec; }
    /// Nothing of it has left this rank and nobody has asked for it.
    bool untouched() const { return waits; }

   private:
    friend tcp_transport;
    tcp_transport& net_;
  };

  using recv_operation = receive_operation<tcp_transport>;
  friend recv_operation;

  using share_operation = tcp::share_operation<tcp_transport>;
  friend share_operation;

  /// `size` bytes of zeros in which the ranks of this host may work while an operation on them
  /// lasts; where there are none, or no memory can be shared, this process's own. Null: there is no
  /// memory.
  std::shared_ptr<std::byte> allocate(std::size_t size) {
    if (has_arena()) {
      if (std::byte* const at = arena_->allocate(size)) {
        return {at, [owner = arena_](std::byte* memory) { owner->free(memory); }};
      }
    }
    return detail::own_memory(size);
  }

  /// What one operation lends.
  class loan {
   public:
    explicit loan(tcp_transport& net) : net_(net) { net_.loans_.push_back(this); }
    loan(const loan&) = delete;
    loan& operator=(const loan&) = delete;
    ~loan() {
      std::erase(net_.loans_, this);
      if (ticket_ == 0) return;
      if (settled_) {
        net_.arena_->close(ticket_);
      } else {
        net_.take_back(ticket_, lent_);
      }
    }

    shm::place place_for(int peer, const_bytes data) {
      if (net_.arena_ == nullptr) return 0;
      const tcp::link* const to = net_.known_link(peer);
      if (to == nullptr || !to->is_seen || to->ended()) return 0;
      const shm::place found = net_.arena_->locate(data);
      if (found != 0 && !is_lent(data.data)) lent_[lent_[0] != nullptr ? 1 : 0] = data.data;
      return found;
    }
    /// 0: too many operations lend.
    shm::ticket ticket() {
      if (ticket_ == 0) ticket_ = net_.arena_->open();
      return ticket_;
    }
    void settle() {
      if (spoiled_) {
        throw error(errc::peer_failed, "a peer was stopped while it worked in this memory");
      }
      settled_ = true;
    }

   private:
    friend tcp_transport;

    bool is_lent(const std::byte* data) const {
      for (const std::byte* const lent : lent_) {
        if (lent != nullptr && net_.arena_->same_block(lent, data)) return true;
      }
      return false;
    }

    tcp_transport& net_;
    bool spoiled_ = false;
    shm::ticket ticket_ = 0;
    const std::byte* lent_[2] = {};  // of each block
    bool settled_ = false;
  };
  using view = shm::arena_view;
  view* view_of(int peer) {
    tcp::link* const from = known_link(peer);
    return from == nullptr ? nullptr : from->view.get();
  }
  send_operation send(const message_key& to, const_bytes from, operation_record& record) {
    return {*this, to, from, record};
  }
  recv_operation recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return {*this, from, into, record};
  }

  bool poll() override {
    // Now and then other links have their turn, too.
    if (!shared_.empty() && take_shared() && ++shared_taken_ % 16 != 0) return true;
    bool moved = false;
    for (std::size_t i = 0; i < rings_.size(); ++i) moved |= rings_[i]->pump();
    const std::size_t sockets = links_.size() - rings_.size();
    if (sockets > 4) {
      moved |= engine_->dispatch();
    } else if (sockets > 0) {
      for (auto& [peer, link] : links_) {
        if (link->is_open() && !link->has_ring()) moved |= link->pump();
      }
    }
    for (tcp::link* link : to_flush_) moved |= link->flush();
    to_flush_.clear();
    return moved;
  }

  /// Ends no peer's operation: writes what is queued, says goodbye on every link, and reads each to
  /// its end before it is closed, or until the deadline.
  task<> close(time_point deadline) {
    if (std::exchange(leaving_, true)) co_return;
    // A last word (why a communicator was revoked) may wait for a link that is still being dialled.
    while (unwritten() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    closing_ = true;
    for (auto& [peer, link] : links_) {
      if (!link->is_open()) continue;
      tcp::header frame;
      frame.kind = tcp::kind::goodbye;
      link->control(frame);
      link->flush();
    }
    while (unwritten() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    for (auto& [peer, link] : links_) {
      if (link->is_open()) link->shut_writing();
    }
    const auto reading = [this] {
      bool any = false;
      for (auto& [peer, link] : links_) any |= link->is_open();
      return any;
    };
    while (reading() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    for (auto& [peer, link] : links_) link->shut();
    if (who_->rendezvous != nullptr) {
      // Who dials us later is told that we have left, not that we died.
      try {
        co_await who_->rendezvous->set(left_key(rank()), "1", std::min(deadline, now() + seconds));
      } catch (const error& thrown) {
        log_debug("the store is gone already: %s", thrown.record().detail);
      }
    }
    door_.reset();
    local_door_.reset();
    who_->link_listener.close();
    who_->local_listener.close();
    co_await colls::leave(*who_, deadline);
  }

 private:
  void sweep(time_point time) override {
    settle_shared([=](share_operation& each) { return each.is_old(time); });
    match_.sweep(time);
    for (auto& [peer, link] : links_) {
      // A large message whose receiver expects a small one would wait without a word.
      link->waiting.each([&](tcp::outgoing& send) {
        if (send.reminded || time - send.record->started < 100 * milliseconds) return;
        send.reminded = true;
        link->control(tcp::header_for(tcp::kind::data, send.key, send.size, send.record->hash,
                                      tcp::flag::header_alone | tcp::flag::reminder));
        flush_soon(*link);
      });
    }
  }
  bool pending() const override { return match_.any_under_way(); }
  bool arm() override {
    bool armed = true;
    for (tcp::link* link : rings_) armed &= link->arm();
    return armed;
  }
  void disarm() override {
    for (tcp::link* link : rings_) link->disarm();
  }

  void flush_soon(tcp::link& link) {
    if (link.idle()) return;
    if (std::find(to_flush_.begin(), to_flush_.end(), &link) == to_flush_.end()) {
      to_flush_.push_back(&link);
    }
  }

  bool unwritten() {
    bool any = reports_ > 0;
    for (auto& [peer, link] : links_) {
      if (link->is_open()) link->flush();
      any |= !link->idle() && !link->ended() &&
             (link->is_open() || link->dialing || link->promised);
    }
    return any;
  }

  static std::string left_key(int rank) { return "colls/left/" + std::to_string(rank); }

  // ---- sending and receiving

  bool start(send_operation& send) {
    tcp::link& link = link_to(send.key.peer);
    if (link.ended() || link.said_goodbye()) {
      send.ec = left(send.key.peer, *send.record);
      return true;
    }
    const bool direct = send.key.is_point_to_point();
    send.frame = tcp::header_for(tcp::kind::data, send.key, send.size, send.record->hash);
    const bool in_turn = link.waiting.empty() || link.waiting.find(send.key) == nullptr;
    if (in_turn && send.size <= tcp::eager_limit && tcp::weight(send.size) <= link.allowance) {
      link.allowance -= tcp::weight(send.size);
      return link.enqueue(send);
    }
    if (in_turn && !direct && link.take_grant(send.key)) {
      send.frame.flags = tcp::flag::granted;
      return link.enqueue(send);
    }
    send.on = &link;
    send.waits = true;
    link.waiting.push_back(send);
    if (direct || send.size <= tcp::eager_limit) {
      send.reminded = true;
      link.control(tcp::header_for(tcp::kind::data, send.key, send.size, send.record->hash,
                                   tcp::flag::header_alone));
      link.flush();
    }
    return false;
  }

  bool start(posted& receive) {
    arrival* const message = match_.post(receive);
    if (message == nullptr) {
      const int peer = receive.key.peer;
      if (peer == posted::any_source) return false;
      const bool large = !receive.key.is_point_to_point() && receive.size > tcp::eager_limit;
      const tcp::link* const known = known_link(peer);
      if (known != nullptr && (known->ended() || known->said_goodbye())) {
        match_.unlist(receive);
        receive.ec = left(peer, *receive.record);
        return true;
      }
      if (large) grant(link_to(peer), receive);
      return false;
    }
    auto& first = static_cast<tcp::early&>(*message);
    const std::error_code ec = match_.check(receive, first.size, first.hash);
    if (!first.buffered) {
      tcp::link& link = *first.from;
      tcp::early::free(&first);
      if (ec) return refused(receive, ec, &link);
      match_.list(receive);
      receive.key.peer = link.peer();
      grant(link, receive);
      return false;
    }
    if (ec) {
      first.drop();
      return refused(receive, ec, nullptr);
    }
    if (first.filled < first.size) {
      first.from->complete_later(first, receive);
      return false;
    }
    receive.accept(first.bytes(), first.size, first.key.peer);
    receive.record->bytes += first.size;
    tcp::link& link = *first.from;
    first.drop();
    flush_soon(link);
    return true;
  }

  void grant(tcp::link& link, posted& receive, std::uint8_t flags = 0) {
    receive.granted = true;
    link.control(tcp::header_for(tcp::kind::grant, receive.key, receive.size, receive.record->hash,
                                 flags));
    link.flush();
  }

  // ---- short messages to all

  // The link to it, if that goes through shared memory.
  tcp::link* ring_to(int peer) {
    tcp::link* const to = known_link(peer);
    return to != nullptr && to->has_ring() ? to : nullptr;
  }
  // Who never waits would never look at other links.
  int looks_at_once() {
    if (++shared_in_all_ % 64 == 0) return 0;
    return engine_->spins() ? 100 : 1;
  }
  void list(share_operation& waiting) {
    waiting.listed_ = true;
    shared_.push_back(&waiting);
  }
  void unlist(share_operation& waiting) {
    waiting.listed_ = false;
    std::erase(shared_, &waiting);
  }
  bool take_shared() {
    bool any = false;
    for (std::size_t i = 0; i < shared_.size();) {
      share_operation& each = *shared_[i];
      if (!each.take()) {
        ++i;
        continue;
      }
      unlist(each);
      each.end();
      any = true;
    }
    return any;
  }
  // Those that `which` picks become other messages, which may end more of them.
  template <class Which>
  void settle_shared(Which which) {
    for (std::size_t i = 0; i < shared_.size();) {
      share_operation& each = *shared_[i];
      if (!which(each)) {
        ++i;
        continue;
      }
      unlist(each);
      each.settle_later();
      i = 0;
    }
  }

  // A message that may not go into its receive. With a dispute under way the receive waits for the
  // verdict, which names both sides.
  bool refused(posted& receive, std::error_code ec, tcp::link* announced) {
    if (ec == make_error_code(errc::truncated) && announced != nullptr) {
      grant(*announced, receive, tcp::flag::unwanted);
      receive.granted = false;
    }
    if (ec == make_error_code(errc::mismatch) && !receive.record->communicator->failed()) {
      match_.list(receive);
      return false;
    }
    receive.ec = ec;
    return true;
  }
  void refuse_later(posted& receive, std::error_code ec, tcp::link* announced) {
    if (refused(receive, ec, announced)) receive.finish(ec);
  }

  // ---- what links say

  void received(tcp::link& from, const tcp::header& frame, const std::byte* payload) override {
    const message_key key = frame.key(from.peer());
    switch (frame.kind) {
      case tcp::kind::data:
        if ((frame.flags & tcp::flag::header_alone) != 0) {
          announced(from, frame, key);
        } else {
          message(from, frame, key);
        }
        break;
      case tcp::kind::grant:
        if ((frame.flags & tcp::flag::window) != 0) {
          from.allowance += std::min<std::size_t>(frame.length, tcp::window - from.allowance);
        } else {
          granted(from, frame, key);
        }
        break;
      case tcp::kind::announce: match_.inspect(key, frame.hash); break;
      case tcp::kind::fingerprint: {
        fingerprint theirs;
        std::memcpy(static_cast<void*>(&theirs), payload, sizeof theirs);
        match_.compare(from.peer(), frame.communicator, frame.sequence, theirs);
        break;
      }
      case tcp::kind::revoke: {
        const failure why = tcp::parse_failure(payload);
        if (why.code == errc::peer_failed && why.culprit >= 0 && why.culprit != rank()) {
          match_.died(why.culprit, why, from.peer());
        } else {
          match_.revoke(frame.communicator, why, from.peer());
        }
        break;
      }
      case tcp::kind::goodbye:
        from.heard_goodbye();
        needed(from.peer());
        break;
      case tcp::kind::mapped:
        from.is_seen = true;
        break;
    }
    flush_soon(from);
  }

  void message(tcp::link& from, const tcp::header& frame, const message_key& key) {
    const bool unsolicited = (frame.flags & tcp::flag::granted) == 0;
    const auto size = static_cast<std::size_t>(frame.length);
    if (unsolicited && size > tcp::eager_limit) {
      from.fail(0, "a long message that nobody had asked for");
      return;
    }
    settle_shared([&](const share_operation& each) { return each.takes(key); });
    posted* const receive = key.is_point_to_point() && !unsolicited ? match_.take_granted(key)
                                                                    : match_.take(key);
    if (receive != nullptr) {
      if (const std::error_code ec = match_.check(*receive, size, frame.hash)) {
        refuse_later(*receive, ec, nullptr);
      } else {
        receive->received = size;
        receive->source = key.peer;
        from.deliver_to(*receive);
      }
      if (unsolicited) from.consumed(tcp::weight(size));
      return;
    }
    const communicator_state* const known = match_.find(key.communicator);
    if (!match_.inspect(key, frame.hash) || (known != nullptr && known->failed())) {
      if (unsolicited) from.consumed(tcp::weight(size));
      return;
    }
    if (!unsolicited) {
      if (known != nullptr) from.fail(0, "a message that answers no grant of ours");
      return;
    }
    tcp::early& kept = *tcp::early::make(size);
    kept.key = key;
    kept.size = size;
    kept.hash = frame.hash;
    kept.buffered = true;
    kept.from = &from;
    match_.keep(kept);
    from.deliver_to(kept);
  }

  void announced(tcp::link& from, const tcp::header& frame, const message_key& key) {
    if (!match_.inspect(key, frame.hash)) return;
    const communicator_state* const known = match_.find(key.communicator);
    if (known != nullptr && known->failed()) return;
    const bool reminder = (frame.flags & tcp::flag::reminder) != 0;
    posted* const receive = reminder ? match_.first(key) : match_.peek(key);
    if (receive != nullptr) {
      if (const std::error_code ec =
              match_.check(*receive, static_cast<std::size_t>(frame.length), frame.hash)) {
        if (!receive->listed) return;  // the check has revoked the communicator
        match_.unlist(*receive);
        refuse_later(*receive, ec, &from);
      } else if (!receive->granted) {
        if (key.is_point_to_point()) receive->key.peer = key.peer;
        grant(from, *receive);
      }
      return;
    }
    if (reminder && key.is_point_to_point()) return;
    tcp::early& kept = *tcp::early::make(0);
    kept.key = key;
    kept.size = static_cast<std::size_t>(frame.length);
    kept.hash = frame.hash;
    kept.from = &from;
    match_.keep(kept);
  }

  void granted(tcp::link& from, const tcp::header& frame, const message_key& key) {
    if (!match_.inspect(key, frame.hash)) return;
    tcp::outgoing* const send = from.waiting.take(key);
    if (send == nullptr) {
      const communicator_state* const known = match_.find(key.communicator);
      if (!key.is_point_to_point() && (known == nullptr || !known->failed())) from.bank_grant(key);
      return;
    }
    send->waits = false;
    if ((frame.flags & tcp::flag::unwanted) != 0) {
      send->finish();
      return;
    }
    send->frame.flags = tcp::flag::granted;
    if (from.enqueue(*send)) send->done->post();  // its bytes are counted
  }

  // ---- links

  /// The link to a peer; opens at its first use.
  tcp::link& link_to(int peer) {
    tcp::link& link = link_for(peer);
    if (!link.is_open() && !link.dialing && !link.promised && !link.ended() && !leaving_) {
      if (peer == rank()) {
        open_to_self(link);
      } else {
        link.dialing = true;
        tasks_.start(dial(link));
      }
    }
    return link;
  }

  // What a rank sends to itself takes the way of all messages, through two links on one socket pair.
  void open_to_self(tcp::link& out) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
      throw error(errc::too_many_files, std::strerror(errno));
    }
    detail::descriptor first(ends[0]);
    std::unique_ptr<tcp::link>& in = links_[receives_from_self];
    in = std::make_unique<tcp::link>(*engine_, static_cast<tcp::link_owner&>(*this), rank());
    in->open(detail::descriptor(ends[1]));
    out.open(std::move(first));
  }

  // A link that is dropped before it is authenticated is dialled again while anyone needs it: a
  // peer whose system takes connections lives, however long it computes. No attempt lasts longer
  // than an operation may wait for a byte. When two ranks dial each other the lower rank's link
  // stays.
  task<> dial(tcp::link& link) {
    failure why(errc::peer_failed);
    why.culprit = link.peer();
    time_point pause = 10 * milliseconds;
    time_point heard = now();
    int refusals = 0;
    bool hopeless = false;
    bool wanted = true;
    while (wanted && !link.is_open() && !link.ended() && !closing_ && !hopeless) {
      bool alive = false;
      try {
        const endpoint where = co_await who_->address_of(link.peer());
        link.address(detail::text_of(where));
        std::snprintf(why.address, sizeof why.address, "%s", link.address().c_str());
        const bool dialled = co_await dial_beside(link, where, &alive);
        if (!dialled) {
          stream connection(*engine_);
          connection.deadline(now() + silence_of_the_dead);
          const detail::outcome connected = co_await detail::attempt(connection.connect(where));
          if (connected.ec) {
            why.say("it cannot be reached: %s", connected.ec.message().c_str());
            hopeless = connected.ec == std::errc::connection_refused;
            // On one host only a flood of strangers keeps the system from answering.
            alive = node_of(link.peer()) == who_->node;
          } else {
            alive = true;
            connection.deadline(patience());
            detail::keep_alive(connection.descriptor());
            const bool accepted = co_await who_->introduce(connection, link.peer());
            if (accepted && !link.is_open() && !link.ended() && !closing_) {
              adopt(link, connection.release());
            }
          }
        }
      } catch (const error& thrown) {
        const failure& what = thrown.record();
        why.say("%.300s", what.detail);
        // Who computes in the middle of a handshake finds it refused, but not again and again.
        refusals = what.code == errc::auth_failed ? refusals + 1 : 0;
        if (what.code == errc::timeout) {
          alive = true;
          wanted = is_needed(link);
        }
        hopeless =
            refusals == 3 || what.code == errc::protocol_error || what.code == errc::peer_failed;
      }
      if (link.is_open() || hopeless || !wanted) break;
      if (alive) heard = now();
      hopeless = now() - heard >= silence_of_the_dead;
      co_await engine_->sleep_until(now() + pause);
      pause = std::min<time_point>(2 * pause, seconds);
    }
    if (hopeless && !link.is_open() && !closing_ && who_->rendezvous != nullptr) {
      try {
        const std::vector<std::string> key{left_key(link.peer())};
        const std::string left = co_await who_->rendezvous->check(key, now() + seconds);
        if (left == "1") why = left_failure(link.peer());
      } catch (const error&) {
        // The store is gone too: what the dialling found stands.
      }
    }
    link.dialing = false;
    if (!hopeless || link.is_open() || closing_) co_return;
    if (why.code == errc::closed) {
      link.heard_goodbye();
      needed(link.peer());
    } else {
      match_.died(link.peer(), why);
    }
  }

  // Whether an operation waits for it.
  bool is_needed(tcp::link& link) {
    bool any = !match_.waiting_for(link.peer()).empty();
    link.each_send([&](const tcp::outgoing&) { any = true; });
    return any;
  }
  time_point patience() const {
    return who_->cfg.timeout == never ? never : now() + who_->cfg.timeout;
  }

  // A rank of this host is reached through shared memory if both sides can. True: it was dialled.
  // `*alive`: its system took the connection.
  task<bool> dial_beside(tcp::link& link, endpoint where, bool* alive) {
    const bool only = who_->cfg.transport == "shm";
    if (!who_->local_listener.is_open() || node_of(link.peer()) != who_->node) {
      if (only) detail::raise(errc::peer_failed, "it is not on this host, and shm was asked for");
      co_return false;
    }
    detail::descriptor socket;
    std::error_code ec = std::make_error_code(std::errc::connection_refused);
    // It may take us for another user.
    if (link.refused_beside < 3) ec = shm::connect_beside(where, socket);
    *alive = !ec || ec == std::errc::resource_unavailable_try_again;
    if (*alive && ec) co_return true;  // too many at its door
    if (!ec && !shm::is_own_user(socket.get())) {
      ec = std::make_error_code(std::errc::permission_denied);
    }
    if (ec) {
      if (only) {
        detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                      ec.message().c_str());
      }
      if (!std::exchange(link.told_why, true)) {
        log_info("rank %d reaches rank %d by tcp, not by shared memory: %s", rank(), link.peer(),
                 ec.message().c_str());
      }
      co_return false;
    }
    // A rank that computes answers late; one that dies ends the connection.
    stream connection(*engine_, std::move(socket));
    connection.deadline(patience());
    bool accepted = false;
    try {
      accepted = co_await who_->introduce(connection, link.peer());
    } catch (const error& thrown) {
      if (thrown.record().code == errc::unreachable) ++link.refused_beside;
      throw;
    }
    if (!accepted || link.is_open() || link.ended() || closing_) co_return true;
    shm::segment memory;
    auto ring = std::make_unique<shm::ring>();
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    ec = memory.make(shm::link_bytes(shm::ring_for(who_->local_size, cores)));
    if (!ec) ec = ring->map(memory, 0);
    if (ec && only) {
      detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                    ec.message().c_str());
    }
    if (ec && !std::exchange(told_of_memory_, true)) {
      log_warn("rank %d reaches others on this host by sockets, not by shared memory: %s", rank(),
               ec.message().c_str());
    }
    if (!shm::pass_descriptor(connection.descriptor(), ec ? -1 : memory.descriptor())) {
      co_return true;
    }
    open(link, connection.release(), ec ? nullptr : std::move(ring));
    co_return true;
  }

  // The other side of it: the memory comes after the verdict, or the dialler has thought better.
  task<> admit_beside(std::unique_ptr<stream> guest, int peer) {
    guest->deadline(patience());
    co_await guest->readable();
    shm::segment memory;
    std::unique_ptr<shm::ring> ring;
    detail::descriptor passed;
    if (!shm::take_descriptor(guest->descriptor(), passed)) co_return;
    if (passed) {
      ring = std::make_unique<shm::ring>();
      std::error_code ec = memory.adopt(std::move(passed));
      if (!ec) ec = ring->map(memory, 1);
      if (ec) {
        detail::raise(errc::unreachable, "rank %d cannot map rank %d's memory: %s", rank(), peer,
                      ec.message().c_str());
      }
    }
    tcp::link& link = link_for(peer);
    if (link.is_open() || link.ended()) co_return;
    link.address("a process of this host");
    open(link, guest->release(), std::move(ring));
  }

  void open(tcp::link& link, detail::descriptor socket, std::unique_ptr<shm::ring> ring = nullptr) {
    const bool shares = ring != nullptr;
    if (shares) rings_.push_back(&link);
    link.open(std::move(socket), std::move(ring));
    if (shares && arena_ != nullptr) link.lend(*arena_);
    match_.each_failed(link.peer(), [&](const communicator_state& communicator) {
      tell_revoked(link, communicator.id(), communicator.why());
    });
  }

  void adopt(tcp::link& link, detail::descriptor socket) {
    detail::keep_alive(socket.get());
    if (!who_->cfg.congestion.empty()) {
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, who_->cfg.congestion.data(),
                   static_cast<socklen_t>(who_->cfg.congestion.size()));
    }
    open(link, std::move(socket));
  }

  void enter(std::unique_ptr<stream> guest, const hello& who) override {
    tasks_.start(admit(std::move(guest), who.rank, who.what));
  }

  task<> admit(std::unique_ptr<stream> guest, int peer, purpose what) {
    bool promised = false;
    try {
      const bool local = shm::is_local(guest->descriptor());
      const bool known = what == purpose::link && peer >= 0 && peer < size() && peer != rank() &&
                         (!local || shm::is_own_user(guest->descriptor()));
      const verdict answer = !known || closing_ ? verdict::not_now
                             : is_welcome(peer) ? verdict::accepted
                                                : verdict::duplicate;
      promised = answer == verdict::accepted;
      if (promised) link_for(peer).promised = true;
      co_await give_verdict(*guest, answer);
      if (!promised) co_return;
      tcp::link& link = link_for(peer);
      if (local) {
        co_await admit_beside(std::move(guest), peer);
      } else if (!link.is_open() && !link.ended()) {
        link.address(detail::text_of(guest->remote()));
        adopt(link, guest->release());
      }
    } catch (const error& thrown) {
      log_debug("rank %d went away while it was let in: %s", peer, thrown.record().detail);
    }
    if (!promised) co_return;
    tcp::link& link = link_for(peer);
    link.promised = false;
    if (!link.is_open() && is_needed(link)) link_to(peer);
  }

  bool is_welcome(int peer) const {
    const auto found = links_.find(peer);
    if (found == links_.end()) return true;
    const tcp::link& link = *found->second;
    return !link.is_open() && !link.ended() && !(link.dialing && rank() < peer);
  }
  tcp::link& link_for(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return *last_used_;
    std::unique_ptr<tcp::link>& slot = links_[peer];
    if (slot == nullptr) {
      slot = std::make_unique<tcp::link>(*engine_, static_cast<tcp::link_owner&>(*this), peer);
    }
    last_used_ = slot.get();
    return *slot;
  }
  tcp::link* known_link(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return last_used_;
    const auto found = links_.find(peer);
    return found == links_.end() ? nullptr : found->second.get();
  }

  // ---- lending

  // Whether ranks of one host do at all; equal on all ranks.
  bool shares_memory() const { return !(who_->cfg.transport == "tcp"); }

  // Made at the first use.
  bool has_arena() {
    if (arena_ != nullptr || !may_lend_) return arena_ != nullptr;
    may_lend_ = false;
    if (!shares_memory() || !who_->local_listener.is_open()) return false;
    auto made = std::make_shared<shm::arena>();
    if (const std::error_code ec = made->make(size())) {
      log_info("rank %d has no memory for its peers to work in: %s", rank(), ec.message().c_str());
      return false;
    }
    arena_ = std::move(made);
    for (tcp::link* link : rings_) {
      if (link->is_open()) link->lend(*arena_);
    }
    return true;
  }

  void lent(tcp::link& from, detail::descriptor arena) override {
    if (from.view != nullptr) return;
    shm::segment theirs;
    auto mapped = std::make_unique<shm::arena_view>();
    std::error_code ec = theirs.adopt(std::move(arena));
    if (!ec) ec = mapped->map(theirs, size(), rank());
    if (ec) {
      log_info("rank %d cannot see the memory that rank %d lends: %s", rank(), from.peer(),
               ec.message().c_str());
      return;
    }
    from.view = std::move(mapped);
    tcp::header frame;
    frame.kind = tcp::kind::mapped;
    from.control(frame);
    flush_soon(from);
  }

  // Other operations that lend the same block have their results in its old pages.
  bool retire(const std::byte* buffer) {
    for (loan* other : loans_) {
      for (const std::byte* lent : other->lent_) {
        other->spoiled_ |= lent != nullptr && arena_->same_block(lent, buffer);
      }
    }
    return arena_->retire(buffer);
  }

  // An operation has ended, and peers may be in its buffers: until each has looked up, has died, or
  // has been stopped there, which takes other pages.
  void take_back(shm::ticket lent, const std::byte* const (&buffers)[2]) noexcept {
    arena_->revoke(lent);
    const time_point began = now();
    bool retired = false;
    for (auto& [peer, link] : links_) {
      while (link->is_seen && !retired && arena_->is_inside(peer) && !link->peer_is_gone()) {
        ::sched_yield();
        if (now() - began < patience_of_loans) continue;
        retired = true;
        for (const std::byte* buffer : buffers) retired &= buffer == nullptr || retire(buffer);
      }
    }
  }

  // ---- ends

  // The launcher or the store says that a rank has died.
  void rank_failed(int peer, const failure& why) override {
    if (why.code != errc::peer_failed) {
      match_.revoke(why.communicator, why, rank());
    } else if (peer >= 0 && peer != rank()) {
      match_.died(peer, why, rank());
    }
  }

  // Who has no link to us learns it by the failure channel.
  task<> report(failure why) {
    ++reports_;
    try {
      co_await who_->rendezvous->report_failure(why, now() + seconds);
    } catch (const error& thrown) {
      log_debug("the store is gone: %s", thrown.record().detail);
    }
    --reports_;
  }

  void lost(tcp::link& which, const failure& why) override {
    if (which.said_goodbye()) {
      needed(which.peer());
    } else if (!closing_) {
      match_.died(which.peer(), why);
    }
    which.fail_sends(why.code, [](const tcp::outgoing&) { return true; });
    which.fail_receive(why.code, [](const posted&) { return true; });
  }

  failure left_failure(int peer) const {
    failure why(errc::closed);
    why.culprit = peer;
    why.say("rank %d has left", peer);
    return why;
  }
  std::error_code left(int peer, operation_record& record) {
    failure why = left_failure(peer);
    why.operation = record.what;
    why.sequence = record.hash != 0 ? record.sequence : 0;
    why.communicator = record.communicator->id();
    match_.revoke(*record.communicator, why);
    return record.communicator->why().code;
  }
  // `peer` has left: whatever still waits for it, or to be taken by it, waits in vain.
  void needed(int peer) {
    settle_shared([](const share_operation&) { return true; });
    std::vector<communicator_state*> by = match_.waiting_for(peer);
    link_for(peer).each_send(
        [&](const tcp::outgoing& send) { by.push_back(send.record->communicator); });
    for (communicator_state* communicator : by) {
      match_.revoke(*communicator, left_failure(peer));
    }
  }

  void revoked(communicator_state& communicator, const failure& why, int told_by) override {
    if (told_by < 0 && who_->rendezvous != nullptr) tasks_.start(report(why));
    for (std::size_t i = 0; i < shared_.size();) {
      share_operation& each = *shared_[i];
      if (!each.is_of(communicator)) {
        ++i;
        continue;
      }
      unlist(each);
      each.fail(why.code);
    }
    for (auto& [peer, link] : links_) {
      link->fail_sends(why.code, [&](const tcp::outgoing& send) {
        return send.key.communicator == communicator.id();
      });
      link->fail_receive(why.code, [&](const posted& receive) {
        return receive.key.communicator == communicator.id();
      });
      link->drop_grants(communicator.id());
      if (peer == told_by || link->ended() || communicator.rank_of(peer) < 0) continue;
      tell_revoked(*link, communicator.id(), why);
    }
  }
  static void tell_revoked(tcp::link& link, std::uint32_t communicator, const failure& why) {
    tcp::header frame;
    frame.kind = tcp::kind::revoke;
    frame.communicator = communicator;
    frame.length = sizeof(failure);
    link.control(frame, &why);
    link.flush();
  }

  void announce(int peer, const operation_record& waiting) override {
    tcp::link& link = link_to(peer);
    if (link.ended()) return;
    link.control(tcp::header_for(tcp::kind::announce, announcement(peer, waiting), 0, waiting.hash));
    link.flush();
  }

  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& ours) override {
    tcp::header frame;
    frame.kind = tcp::kind::fingerprint;
    frame.communicator = communicator;
    frame.sequence = sequence;
    frame.length = sizeof ours;
    tcp::link& link = link_to(peer);
    link.control(frame, &ours);
    link.flush();
  }

  void refuse(int peer, const failure& why) override {
    tcp::header frame;
    frame.kind = tcp::kind::revoke;
    frame.communicator = why.communicator;
    frame.length = sizeof why;
    tcp::link& link = link_to(peer);
    link.control(frame, &why);
    flush_soon(link);
  }

  int awaited_by(const operation_record& sending) override {
    int found = -1;
    for (auto& [peer, link] : links_) {
      link->each_send([&, to = peer](const tcp::outgoing& send) {
        if (send.record == &sending) found = to;
      });
    }
    return found;
  }

  static constexpr int receives_from_self = -1;
  static constexpr time_point silence_of_the_dead = 10 * seconds;
  static constexpr time_point patience_of_loans = 200 * milliseconds;

  std::shared_ptr<engine> engine_;
  std::shared_ptr<membership> who_;
  match match_;
  std::unordered_map<int, std::unique_ptr<tcp::link>> links_;
  tcp::link* last_used_ = nullptr;
  std::vector<tcp::link*> rings_;  // the links through shared memory
  std::vector<tcp::link*> to_flush_;
  std::shared_ptr<shm::arena> arena_;
  bool may_lend_ = true;
  std::vector<loan*> loans_;
  std::vector<share_operation*> shared_;  // that wait, in the order of their calls
  unsigned shared_in_all_ = 0;
  unsigned shared_taken_ = 0;
  int reports_ = 0;
  bool told_of_memory_ = false;
  bool leaving_ = false;  // close() has begun
  bool closing_ = false;  // goodbye was said
  std::optional<door> door_;
  std::optional<door> local_door_;
  task_group tasks_;  // last: its tasks use all of the above
};
static_assert(consuming_transport<tcp_transport> && lending_transport<tcp_transport> &&
              sharing_transport<tcp_transport>);

}  // namespace colls
