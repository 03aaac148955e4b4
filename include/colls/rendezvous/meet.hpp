// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// meet: the processes of a job find each other. Everything of joining up to the first link.

#include <colls/rendezvous/environment.hpp>
#include <colls/rendezvous/file_store.hpp>
#include <colls/rendezvous/reach.hpp>
#include <colls/when_all.hpp>

#include <memory>

namespace colls {

/// What a rank knows once all ranks have come: who is where, and how to prove to be one of them.
struct membership {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  std::vector<int> node_of{0};         // of every rank
  std::shared_ptr<store> rendezvous;   // null in a world of one
  std::shared_ptr<store_server> server;  // on the rank that serves the store, else null
  listener link_listener;              // where the other ranks dial; closed in a world of one
  boost::asio::ip::address address;    // of this host, as the other ranks reach it
  secret key;
  std::uint64_t job = 0;
  config cfg;

  /// Where a rank listens. The membership must stay where it is until the task has ended.
  task<endpoint> address_of(int peer) const;
  /// Dialling side of a link to `peer`: true if the connection is to be used, false if `peer` has
  /// another one. Throws as `prove` does.
  task<bool> introduce(stream& link, int peer) const;

  hello greeting(purpose what) const {
    hello mine;
    mine.what = what;
    mine.job = job;
    mine.rank = rank;
    mine.world = size;
    return mine;
  }
};

namespace detail {

inline std::string rank_key(int rank) { return "colls/rank/" + std::to_string(rank); }
inline std::string host_key(int rank) { return "colls/host/" + std::to_string(rank); }

/// What a rank publishes of itself.
struct rank_card {
  endpoint where;
  std::string boot;
  std::string host;
  int node = -1;  // the launcher's word
  std::int64_t pid = 0;
  std::uint64_t nonce = 0;

  std::string text() const {
    char all[512];
    std::snprintf(all, sizeof all, "%s %d %s %s %d %lld %llx", where.address().to_string().c_str(),
                  where.port(), boot.c_str(), host.c_str(), node, static_cast<long long>(pid),
                  static_cast<unsigned long long>(nonce));
    return all;
  }
  static std::optional<rank_card> parse(const std::string& text) {
    char address[64];
    char boot[64];
    char host[256];
    int port = 0;
    rank_card card;
    boost::system::error_code bad;
    if (std::sscanf(text.c_str(), "%63s %d %63s %255s %d", address, &port, boot, host,
                    &card.node) != 5) {
      return std::nullopt;
    }
    const auto numeric = boost::asio::ip::make_address(address, bad);
    if (bad || port <= 0 || port > 65535) return std::nullopt;
    card.where = {numeric, static_cast<std::uint16_t>(port)};
    card.boot = boot;
    card.host = host;
    return card;
  }
  static rank_card of_this_process() {
    rank_card mine;
    mine.boot = boot_id();
    if (mine.boot.empty()) mine.boot = "-";
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    mine.host = host[0] == 0 ? "-" : host;
    mine.pid = ::getpid();
    fill_random(&mine.nonce, sizeof mine.nonce);
    return mine;
  }
  /// Ranks with equal ones share a node.
  std::string place() const { return boot + " " + host + " " + std::to_string(node); }
};

inline std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 16; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return ranks.size() > 16 ? text + " and " + std::to_string(ranks.size() - 16) + " more" : text;
}

inline void check(const config& cfg) {
  if (cfg.size < 1 || cfg.rank < 0 || cfg.rank >= cfg.size) {
    raise(errc::join_failed, "rank %d of %d makes no sense (from %s): 0 <= rank < size", cfg.rank,
          cfg.size, cfg.source.c_str());
  }
  if (cfg.size > 1 && cfg.address.empty()) {
    raise(errc::join_failed,
          "rank %d of %d (from %s) does not know where the ranks meet: give an address "
          "tcp://host:port, or MASTER_ADDR and MASTER_PORT",
          cfg.rank, cfg.size, cfg.source.c_str());
  }
}

inline errc listen_error(std::error_code ec) {
  if (ec == std::errc::address_in_use) return errc::address_in_use;
  const bool full =
      ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system;
  return full ? errc::too_many_files : errc::join_failed;
}

inline bool is_one_host(const config& cfg) {
  return cfg.nodes == 1 || cfg.local_size == cfg.size;
}

/// `env://`: what the launcher says, except for what the program says.
inline config complete(const config& given) {
  if (given.address != "env://") return given;
  config cfg = environment();
  if (given.rank >= 0) cfg.rank = given.rank;
  if (given.size >= 0) cfg.size = given.size;
  if (!given.secret.empty()) cfg.secret = given.secret;
  if (!given.job.empty()) cfg.job = given.job;
  cfg.insecure |= given.insecure;
  cfg.congestion = given.congestion;
  return cfg;
}

/// While ranks meet, a failure that is announced ends the wait of all others.
class meeting_guard : public failure_listener {
 public:
  explicit meeting_guard(tcp_store& at) : store_(at) { store_.listen_for_failures(this); }
  meeting_guard(const meeting_guard&) = delete;
  ~meeting_guard() { store_.listen_for_failures(nullptr); }
  void rank_failed(int, const failure& why) override {
    if (!why_) why_ = why;
    store_.interrupt(why);
  }
  const std::optional<failure>& why() const { return why_; }

 private:
  tcp_store& store_;
  std::optional<failure> why_;
};

class meeting {
 public:
  meeting(engine& on, config cfg) : engine_(on), deadline_(on.now() + cfg.join_timeout) {
    all_.rank = cfg.rank;
    all_.size = cfg.size;
    all_.cfg = std::move(cfg);
    all_.job = hash_of(all_.cfg.job);
    all_.key = secret(all_.cfg.secret, all_.cfg.insecure);
  }

  task<membership> run() {
    place_ = parse_address(cfg().address);
    if (place_.kind == meeting_place::kind::file) {
      co_await meet_at_file();
    } else {
      // One host by the launcher's word: whatever its name resolves to, loopback reaches it.
      if (is_one_host(cfg()) && !cfg().served && !is_loopback(place_.host)) {
        place_.host = "127.0.0.1";
      }
      if (cfg().rank == 0 && !cfg().served) co_await serve();
    }
    const hello mine = all_.greeting(purpose::store);
    const std::vector<int> ports =
        all_.server ? std::vector<int>{all_.server->local().port()} : cfg().ports;
    if (all_.server) place_.host = all_.server->local().address().to_string();
    store_ = co_await reach_store(engine_, place_, ports, mine, all_.key, deadline_, cfg().timeout);
    all_.rendezvous = store_;
    std::exception_ptr failed;
    {
      meeting_guard guard(*store_);
      try {
        co_await publish();
        if (cfg().rank == 0) {
          co_await gather();
        } else {
          co_await hear();
        }
      } catch (...) {
        failed = std::current_exception();
      }
      if (failed) {
        const bool is_news = !guard.why() && !store_->is_lost();
        if (is_news) co_await tell(failed);
        co_await give_up();
      }
    }
    if (failed) std::rethrow_exception(failed);
    find_own_node();
    co_return std::move(all_);
  }

 private:
  const config& cfg() const { return all_.cfg; }

  static bool is_loopback(const std::string& host) {
    boost::system::error_code no_number;
    const auto address = boost::asio::ip::make_address(host, no_number);
    return host == "localhost" || (!no_number && address.is_loopback());
  }

  void make_server() {
    hello mine = all_.greeting(purpose::store);
    all_.server = std::make_shared<store_server>(engine_, mine, all_.key);
  }

  [[noreturn]] void refuse_open_ground(const std::string& where) {
    raise(errc::insecure_bind, "rank %d would listen at %s, which others can reach, without a secret",
          cfg().rank, where.c_str());
  }

  // Rank 0, when no launcher does: binds the first port that is free, on all addresses of the host.
  task<> serve() {
    make_server();
    if (cfg().store_fd >= 0) {
      all_.server->adopt(cfg().store_fd);
      co_return;
    }
    const std::vector<int> ports = cfg().ports.empty() ? std::vector<int>{place_.port} : cfg().ports;
    const std::string place = host_and_port(place_.host, ports.front());
    // A job that was just ended may take a moment to let go of its port.
    const time_point patience = std::min(deadline_, engine_.now() + 2 * seconds);
    std::string why;
    const auto addresses = addresses_of(place_.host, &why);
    if (addresses.empty()) {
      raise(errc::resolve_failed, "rank 0 should listen at %s: %s", place.c_str(), why.c_str());
    }
    for (std::error_code last;;) {
      for (const int port : ports) {
        for (const auto& address : addresses) {
          const endpoint where(address, static_cast<std::uint16_t>(port));
          if (address.is_unspecified() && !cfg().insecure) {
            raise(errc::insecure_bind, "rank 0 would listen at %s, on every network of this host",
                  place.c_str());
          }
          const std::error_code ec = all_.server->listen(where);
          if (ec == errc::insecure_bind) refuse_open_ground(text_of(where));
          if (ec) last = ec;
        }
        if (all_.server->is_open()) {
          log_info("rank 0 serves the store at %s", text_of(all_.server->local()).c_str());
          co_return;
        }
      }
      const bool in_use = last == std::errc::address_in_use;
      if (!in_use || engine_.now() >= patience) {
        raise(listen_error(last), "rank 0 cannot listen at %s: %s%s",
              place.c_str(), last.message().c_str(),
              last == std::errc::address_not_available
                  ? " (rank 0 has to run on the host that MASTER_ADDR names)"
                  : "");
      }
      co_await engine_.sleep_until(engine_.now() + 100 * milliseconds);
    }
  }

  // By the file the ranks learn the secret and the address of rank 0, nothing else.
  task<> meet_at_file() {
    const file_store::options how{cfg().size, all_.job, cfg().own_file};
    std::shared_ptr<file_store> file;
    if (cfg().own_file) make_own_directory(place_.path);
    if (cfg().rank == 0) {
      file = file_store::create(engine_, place_.path, how);
      if (cfg().own_file) file->remove_directory_too();
      file_ = file;
    } else {
      file = co_await file_store::open(engine_, place_.path, how, deadline_);
    }
    if (cfg().secret.empty()) all_.key = file->shared_secret(cfg().insecure);
    const bool one_host = cfg().own_file || is_one_host(cfg());
    if (!one_host) {
      const rank_card card = rank_card::of_this_process();
      const std::string mine = card.text();
      const std::string held = co_await file->compare_set(host_key(cfg().rank), {}, mine, deadline_);
      if (held != mine) {
        raise(errc::rank_taken, "another process is rank %d in file://%s", cfg().rank,
              place_.path.c_str());
      }
    }
    std::string where;
    if (cfg().rank == 0) {
      boost::asio::ip::address address = boost::asio::ip::address_v4::loopback();
      if (!one_host) {
        const bool alone = co_await is_everybody_here(*file);
        if (!alone) address = default_address();
      }
      make_server();
      if (const std::error_code ec = all_.server->listen({address, 0})) {
        raise(listen_error(ec), "rank 0 cannot listen at %s: %s", address.to_string().c_str(),
              ec.message().c_str());
      }
      where = "tcp://" + text_of(all_.server->local());
      co_await file->set("colls/store", where, deadline_);
    } else {
      try {
        where = co_await file->get("colls/store", deadline_);
      } catch (const error& late) {
        if (late.record().code != errc::timeout) throw;
      }
      if (where.empty()) {
        raise(errc::join_timeout, "rank 0 did not write its address into file://%s in time",
              place_.path.c_str());
      }
    }
    place_ = parse_address(where);
  }

  // Rank 0: whether all ranks run on this host; waits for them to say so.
  task<bool> is_everybody_here(file_store& file) {
    std::vector<std::string> keys;
    for (int r = 0; r < cfg().size; ++r) keys.push_back(host_key(r));
    bool late = false;
    try {
      co_await file.wait(keys, deadline_);
    } catch (const error& thrown) {
      if (thrown.record().code != errc::timeout) throw;
      late = true;
    }
    if (late) {
      const std::string there = co_await file.check(keys);
      throw error(missing(there));
    }
    const std::string here = boot_id();
    bool same = true;
    for (const std::string& key : keys) {
      const std::string text = co_await file.get(key, deadline_);
      same = same && text.find(" " + here + " ") != std::string::npos;
    }
    co_return same;
  }

  static boost::asio::ip::address default_address() {
    // Documentation addresses: any address that is routed like the rest of the world.
    for (const char* far : {"198.51.100.1", "2001:db8::1"}) {
      const auto local = address_towards({boost::asio::ip::make_address(far), 9});
      if (local) return *local;
    }
    raise(errc::join_failed, "this host has no address that other hosts could reach");
  }

  failure missing(const std::string& there) const {
    std::vector<int> absent;
    for (std::size_t r = 0; r < there.size(); ++r) {
      if (there[r] == '0') absent.push_back(static_cast<int>(r));
    }
    failure why(errc::join_timeout);
    if (absent.size() == 1) why.culprit = absent.front();
    why.say("rank %d waited %.1f s at %s, still waiting for rank%s %s of %d: start %s with the same "
            "address and job%s",
            cfg().rank, static_cast<double>(cfg().join_timeout) * 1e-9, cfg().address.c_str(),
            absent.size() == 1 ? "" : "s", ranks_text(absent).c_str(), cfg().size,
            absent.size() == 1 ? "it" : "them",
            store_ && store_->local_address().is_loopback() && !is_one_host(cfg())
                ? " (that address is loopback here: other hosts cannot reach it)"
                : "");
    return why;
  }

  // Opens the listener for links at the address that routes to the store and tells everybody.
  task<> publish() {
    all_.address = store_->local_address();
    if (is_open_ground(all_.key, all_.address)) refuse_open_ground(all_.address.to_string());
    if (const std::error_code ec = all_.link_listener.listen({all_.address, 0})) {
      raise(listen_error(ec), "rank %d cannot listen at %s: %s", cfg().rank,
            all_.address.to_string().c_str(), ec.message().c_str());
    }
    rank_card mine = rank_card::of_this_process();
    mine.where = all_.link_listener.local();
    mine.node = cfg().node;
    const std::string text = mine.text();
    const std::string held = co_await store_->compare_set(rank_key(cfg().rank), {}, text, deadline_);
    if (held != text) {
      const auto other = rank_card::parse(held);
      raise(errc::rank_taken, "another process is rank %d of the world at %s (it listens at %s)",
            cfg().rank, cfg().address.c_str(), other ? text_of(other->where).c_str() : "?");
    }
    log_debug("rank %d listens at %s", cfg().rank, text_of(mine.where).c_str());
  }

  std::vector<std::string> all_keys() const {
    std::vector<std::string> keys;
    for (int r = 0; r < cfg().size; ++r) keys.push_back(rank_key(r));
    return keys;
  }

  // Rank 0: waits for all, draws the node map, and gives it to all.
  task<> gather() {
    const std::vector<std::string> keys = all_keys();
    for (bool told = false;;) {
      const time_point until =
          told ? deadline_ : std::min(deadline_, engine_.now() + 30 * seconds);
      bool late = false;
      try {
        co_await store_->wait(keys, until);
      } catch (const error& thrown) {
        if (thrown.record().code != errc::timeout) throw;
        late = true;
      }
      if (!late) break;
      const std::string there = co_await store_->check(keys, engine_.now() + 2 * seconds);
      if (there.find('0') == std::string::npos) break;
      if (engine_.now() >= deadline_) throw error(missing(there));
      told = true;
      log_warn("%s", missing(there).detail);
    }
    std::vector<std::string> cards(keys.size());
    constexpr std::size_t at_once = 256;
    for (std::size_t first = 0; first < keys.size(); first += at_once) {
      std::vector<task<>> some;
      for (std::size_t r = first; r < std::min(keys.size(), first + at_once); ++r) {
        some.push_back(fetch(keys[r], &cards[r]));
      }
      when_all together(std::move(some));
      co_await together;
    }
    draw_node_map(cards);
    std::string map;
    for (const int node : all_.node_of) map += std::to_string(node) + " ";
    co_await store_->set("colls/world", map, deadline_);
    file_.reset();  // nobody needs the file any more
  }

  task<> fetch(const std::string& key, std::string* into) {
    *into = co_await store_->get(key, deadline_);
  }

  void draw_node_map(const std::vector<std::string>& cards) {
    std::map<std::string, int> numbers;
    std::map<std::string, int> machines;
    int on_loopback = -1;
    all_.node_of.clear();
    for (std::size_t r = 0; r < cards.size(); ++r) {
      const auto card = rank_card::parse(cards[r]);
      if (!card) {
        raise(errc::protocol_error, "rank %zu published what no rank of colls would: %.100s", r,
              cards[r].c_str());
      }
      const int next = static_cast<int>(numbers.size());
      all_.node_of.push_back(numbers.try_emplace(card->place(), next).first->second);
      machines.try_emplace(card->boot, 0);
      if (card->where.address().is_loopback()) on_loopback = static_cast<int>(r);
    }
    if (on_loopback >= 0 && machines.size() > 1) {
      raise(errc::join_failed,
            "rank %d listens on loopback and other ranks run on other hosts: MASTER_ADDR must be an "
            "address that all hosts reach",
            on_loopback);
    }
  }

  task<> hear() {
    std::string map;
    bool late = false;
    try {
      map = co_await store_->get("colls/world", deadline_);
    } catch (const error& thrown) {
      if (thrown.record().code != errc::timeout) throw;
      late = true;
    }
    if (late) {
      const std::vector<std::string> keys = all_keys();
      std::string there;
      there = co_await store_->check(keys, engine_.now() + 2 * seconds);
      throw error(missing(there));
    }
    all_.node_of.clear();
    for (const char* at = map.c_str(); *at != 0;) {
      char* end = nullptr;
      all_.node_of.push_back(static_cast<int>(std::strtol(at, &end, 10)));
      at = *end == ' ' ? end + 1 : end;
      if (end == at) break;
    }
    if (all_.node_of.size() != static_cast<std::size_t>(cfg().size)) {
      raise(errc::protocol_error, "rank 0 published a node map of %zu ranks, of %d",
            all_.node_of.size(), cfg().size);
    }
  }

  // The others must not wait for a rank that does not come: the world cannot form.
  task<> tell(std::exception_ptr failed) {
    failure why(errc::join_failed);
    try {
      std::rethrow_exception(failed);
    } catch (const error& thrown) {
      why = thrown.record();
    } catch (const std::exception& thrown) {
      why.say("rank %d gave up joining: %.200s", cfg().rank, thrown.what());
    }
    if (why.code == errc::rank_taken || why.code == errc::world_complete) co_return;
    why.culprit = -1;
    why.observer = cfg().rank;
    try {
      co_await store_->report_failure(why, engine_.now() + seconds);
    } catch (const error&) {
      co_return;  // nobody is left to be told
    }
  }

  // Leaves in order, so that what was told arrives.
  task<> give_up() {
    const time_point until = engine_.now() + seconds;
    co_await store_->leave(until);
    if (all_.server) co_await all_.server->drain(until);
  }

  void find_own_node() {
    const auto mine = static_cast<std::size_t>(cfg().rank);
    all_.node = all_.node_of[mine];
    all_.nodes = *std::max_element(all_.node_of.begin(), all_.node_of.end()) + 1;
    all_.local_rank = 0;
    all_.local_size = 0;
    for (std::size_t r = 0; r < all_.node_of.size(); ++r) {
      if (all_.node_of[r] != all_.node) continue;
      if (r < mine) ++all_.local_rank;
      ++all_.local_size;
    }
    // The launcher's local ranks, unless it sees other nodes than we do.
    if (cfg().local_rank >= 0 && cfg().local_rank < all_.local_size &&
        (cfg().local_size < 0 || cfg().local_size == all_.local_size)) {
      all_.local_rank = cfg().local_rank;
    }
  }

  engine& engine_;
  time_point deadline_;
  membership all_;
  meeting_place place_;
  std::shared_ptr<tcp_store> store_;
  std::shared_ptr<file_store> file_;  // rank 0's: taken away when all have come
};

inline task<membership> meet(engine& on, std::unique_ptr<config> given) {
  config cfg = complete(*given);
  check(cfg);
  warn_about_unknown_variables();
  log_info("rank %d of %d from %s, meeting at %s", cfg.rank, cfg.size, cfg.source.c_str(),
           cfg.size == 1 ? "nowhere" : cfg.address.c_str());
  if (cfg.size == 1) {
    membership alone;
    alone.cfg = std::move(cfg);
    co_return alone;
  }
  meeting all(on, std::move(cfg));
  auto running = all.run();
  co_return co_await running;
}

}  // namespace detail

/// Waits until all ranks of the world have come, within `cfg.join_timeout`. Afterwards every rank
/// has the same node map and a listener that every other rank can reach and knows. A world of one
/// opens nothing. Throws an error that names ranks, hosts and what to do.
inline task<membership> meet(engine& on, const config& cfg) {
  return detail::meet(on, std::make_unique<config>(cfg));
}

/// The orderly end: says goodbye to the store; the rank that serves it stays until all others have
/// said goodbye or died, or the deadline is past.
inline task<> leave(membership& all, time_point deadline) {
  if (all.rendezvous) co_await all.rendezvous->leave(deadline);
  if (all.server) {
    co_await all.server->drain(deadline);
    all.server->close();
  }
}

inline task<endpoint> membership::address_of(int peer) const {
  const std::string text = co_await rendezvous->get(detail::rank_key(peer));
  const auto card = detail::rank_card::parse(text);
  if (!card) detail::raise(errc::protocol_error, "rank %d published no address", peer);
  co_return card->where;
}

inline task<bool> membership::introduce(stream& link, int peer) const {
  const hello mine = greeting(purpose::link);
  const hello theirs = co_await prove(link, mine, key);
  if (theirs.rank != peer) {
    detail::raise(errc::unreachable, "rank %d listens where rank %d was expected", theirs.rank,
                  peer);
  }
  const verdict answer = co_await await_verdict(link, mine);
  co_return answer == verdict::accepted;
}

}  // namespace colls
