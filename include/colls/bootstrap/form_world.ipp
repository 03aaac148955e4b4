// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How ranks meet: the second half of form_world.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/form_world.hpp>
#include <colls/bootstrap/form_world_by_file.hpp>
#include <colls/bootstrap/known_variables.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/os/procfs.hpp>

#include <map>
#include <memory>

namespace colls {

namespace detail {

/// Links that have another congestion control than the one asked for would be no error later.
COLLS_ONCE void check_congestion(const std::string& name) {
  const std::error_code ec = try_congestion(name);
  if (!ec) return;
  const auto names = [](const char* which) {
    std::string text = read_small_file(
        (std::string("/proc/sys/net/ipv4/tcp_") + which + "_congestion_control").c_str());
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.empty() ? "unknown" : text;
  };
  raise(errc::invalid_argument,
        "config::congestion is '%s', which this system refuses: %s (there are %s; without "
        "privileges %s)",
        name.c_str(), ec.message().c_str(), names("available").c_str(), names("allowed").c_str());
}

COLLS_ONCE void check(const config& cfg) {
  if (cfg.size < 1 || cfg.rank < 0 || cfg.rank >= cfg.size) {
    raise(errc::join_failed, "rank %d of %d makes no sense (from %s): 0 <= rank < size", cfg.rank,
          cfg.size, cfg.source.c_str());
  }
  const auto compare = [&](const char* what, int part, int whole) {
    if (part < 0 || whole < 0 || part < whole) return;
    raise(errc::join_failed, "%s %d of %d makes no sense (from %s)", what, part, whole,
          cfg.source.c_str());
  };
  compare("local rank", cfg.local_rank, cfg.local_size);
  compare("node", cfg.node, cfg.nodes);
  compare("local size", cfg.local_size, cfg.size + 1);
  if (!cfg.transport.empty() && cfg.transport != "hybrid" && cfg.transport != "tcp" &&
      cfg.transport != "shm") {
    raise(errc::join_failed, "the transport '%s' is none of hybrid, tcp, shm",
          cfg.transport.c_str());
  }
  if (!cfg.reads.empty() && cfg.reads != "always" && cfg.reads != "never") {
    raise(errc::join_failed, "COLLS_READS=%s is none of always, never", cfg.reads.c_str());
  }
  if (!cfg.congestion.empty()) check_congestion(cfg.congestion.str());
  if (cfg.join_timeout.count() <= 0 || cfg.timeout.count() <= 0) {
    raise(errc::join_failed, "config::%s is no time to wait: it has to be more than 0",
          cfg.timeout.count() > 0 ? "join_timeout" : "timeout");
  }
  if (cfg.size > 1 && cfg.address.empty()) {
    raise(errc::join_failed,
          "rank %d of %d (from %s) does not know where the ranks meet: give an address "
          "tcp://host:port, or MASTER_ADDR and MASTER_PORT",
          cfg.rank, cfg.size, cfg.source.c_str());
  }
}

/// `env://`: what the launcher says, except for what the program says.
COLLS_ONCE config complete(const config& given) {
  if (given.address != "env://") return given;
  const config unsaid;
  config cfg = environment();
  const auto take = [&](auto... fields) {
    ((given.*fields == unsaid.*fields ? void() : void(cfg.*fields = given.*fields)), ...);
  };
  take(&config::rank, &config::size, &config::local_rank, &config::local_size, &config::node,
       &config::nodes, &config::secret, &config::job, &config::join_timeout, &config::timeout,
       &config::insecure, &config::source, &config::congestion, &config::transport, &config::reads,
       &config::checksum, &config::ports, &config::served, &config::own_file, &config::store_fd);
  return cfg;
}

/// While ranks meet, a failure that is announced ends the wait of all others.
class meeting_guard : public failure_listener {
 public:
  explicit meeting_guard(tcp_store& at) : store_(at) { store_.listen_for_failures(this); }
  meeting_guard(const meeting_guard&) = delete;
  ~meeting_guard() { store_.listen_for_failures(nullptr); }
  void rank_failed(int, const reported_failure& why) override {
    if (!why_) why_ = why.why();
    store_.interrupt(why);
  }
  const std::optional<failure>& why() const { return why_; }

 private:
  tcp_store& store_;
  std::optional<failure> why_;
};

class meeting {
 public:
  meeting(engine& on, const config& cfg)
      : engine_(on),
        began_(on.now()),
        deadline_(began_ + std::min(cfg.join_timeout.count(), most)) {
    all_.rank = cfg.rank;
    all_.size = cfg.size;
    all_.cfg = cfg;
    all_.job = hash_of(all_.cfg.job);
    all_.key = secret(all_.cfg.secret, all_.cfg.insecure);
  }

  task<membership> run() {
    place_ = parse_address(cfg().address);
    const hello mine = all_.greeting(purpose::store);
    port_list ports = cfg().ports;
    if (place_.kind == meeting_place::kind::file) {
      file_meeting found = co_await meet_at_file(engine_, cfg(), place_.path, mine, deadline_);
      place_ = std::move(found.place);
      all_.key = std::move(found.key);
      all_.server = std::move(found.server);
      file_ = std::move(found.file);
    } else if (!cfg().served) {
      // One host by the launcher's word: whatever its name resolves to, loopback reaches it.
      if (is_one_host(cfg()) && !is_loopback(place_.host)) place_.host = "127.0.0.1";
      if (cfg().rank == 0) {
        all_.server = co_await serve_store(engine_, cfg(), place_, mine, all_.key, deadline_);
      }
    }
    if (all_.server) {
      place_.host = all_.server->local().address().to_string();
      ports = {all_.server->local().port()};
    }
    store_ = co_await reach_store(engine_, place_, ports, mine, all_.key, deadline_,
                                  cfg().timeout.count());
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
        if (store_->server_rank() >= 0) co_await let_go_of_the_server();
      } catch (...) {
        failed = std::current_exception();
      }
      // Announced after the last answer: the store is given up all the same.
      if (!failed && guard.why()) failed = std::make_exception_ptr(error(*guard.why()));
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
  // Of waiting: later than anything, and no `never`, which to a store is no deadline at all.
  static constexpr time_point most = never / 2;

  const config& cfg() const { return all_.cfg; }

  task<failure> who_is_missing(std::vector<std::string> keys) {
    std::string there;
    try {
      there = co_await store_->check(keys, engine_.now() + 2 * seconds);
    } catch (const error& thrown) {
      if (thrown.record().code != errc::timeout) throw;
    }
    co_return missing_ranks(cfg(), there, engine_.now() - began_,
                            store_->local_address().is_loopback(),
                            all_.server ? all_.server->lack() : std::string());
  }

  // Opens the listener for links at the address that routes to the store and tells everybody.
  task<> publish() {
    all_.address = store_->local_address();
    if (const std::error_code ec = all_.listen()) {
      raise(listen_error(ec), "rank %d cannot listen at %s: %s", cfg().rank,
            all_.address.to_string().c_str(), ec.message().c_str());
    }
    rank_card mine = rank_card::of_this_process();
    mine.where = all_.link_listener.local();
    if (!cfg().transport.empty()) mine.transport = cfg().transport.str();
    mine.checksum = cfg().checksum;
    const std::string text = mine.text();
    const std::string held =
        co_await store_->compare_set(rank_key(cfg().rank), {}, text, deadline_);
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
      const time_point until = told ? deadline_ : std::min(deadline_, engine_.now() + 30 * seconds);
      const bool all_here = co_await in_time(store_->wait(keys, until));
      if (all_here) break;
      const failure why = co_await who_is_missing(keys);
      if (engine_.now() >= deadline_) throw error(why);
      told = true;
      log_warn("%s", why.detail);
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
    co_await store_->set("colls/world", membership_text(all_), deadline_);
  }

  task<> fetch(const std::string& key, std::string* into) {
    *into = co_await store_->get(key, deadline_);
  }

  void draw_node_map(const std::vector<std::string>& cards) {
    std::map<std::string, int> numbers;
    std::string boot;
    std::string transport;
    bool checksum = false;
    bool several_machines = false;
    bool told = false;
    int on_loopback = -1;
    struct machine {
      int first;  // rank
      int number;
    };
    std::map<std::string, machine> machines;
    std::vector<core_set> usable;  // of every machine
    all_.node_of.clear();
    all_.machine_of.clear();
    for (std::size_t r = 0; r < cards.size(); ++r) {
      const auto card = rank_card::parse(cards[r]);
      if (!card) {
        raise(errc::protocol_error, "rank %zu published what no rank of colls would: %.100s", r,
              cards[r].c_str());
      }
      if (r == 0) transport = card->transport, checksum = card->checksum;
      if (card->transport != transport) {
        raise(errc::join_failed,
              "rank 0 was told to go by %s and rank %zu by %s: COLLS_TRANSPORT has to be the same "
              "on all ranks",
              transport.c_str(), r, card->transport.c_str());
      }
      if (card->checksum != checksum) {
        raise(errc::join_failed,
              "rank 0 was told to work %s checksums and rank %zu %s: COLLS_CHECKSUM has to be the "
              "same on all ranks",
              checksum ? "with" : "without", r, checksum ? "without" : "with");
      }
      const int next = static_cast<int>(numbers.size());
      const auto [place, is_new] = numbers.try_emplace(card->place(), next);
      all_.node_of.push_back(place->second);
      const machine its{static_cast<int>(r), static_cast<int>(machines.size())};
      const machine on = machines.try_emplace(card->machine(), its).first->second;
      if (is_new) all_.machine_of.push_back(on.number);
      if (is_new && on.first != static_cast<int>(r) && card->boot != "-" && transport != "tcp" &&
          !std::exchange(told, true)) {
        log_warn(
            "ranks %d and %zu run on one machine in different network namespaces: they share no "
            "memory",
            on.first, r);
      }
      usable.resize(machines.size());
      usable[static_cast<std::size_t>(on.number)].add(card->cores);
      several_machines = several_machines || (r > 0 && card->boot != boot);
      boot = card->boot;
      if (cards.size() <= longest_book) all_.book.push_back(card->where);
      if (card->where.address().is_loopback()) on_loopback = static_cast<int>(r);
    }
    for (const core_set& each : usable) all_.cores_of.push_back(each.count());
    if (on_loopback >= 0 && several_machines) {
      raise(
          errc::join_failed,
          "rank %d listens on loopback and other ranks run on other hosts: MASTER_ADDR must be an "
          "address that all hosts reach",
          on_loopback);
    }
  }

  task<> hear() {
    const std::vector<std::string> map_key{"colls/world"};
    const bool all_here = co_await in_time(store_->wait(map_key, deadline_));
    if (!all_here) {
      const failure why = co_await who_is_missing(all_keys());
      throw error(why);
    }
    const std::string map = co_await store_->get(map_key.front(), deadline_ + seconds);
    if (!read_membership(map, all_)) {
      raise(errc::protocol_error, "rank 0 published what no rank of colls would: %.100s",
            map.c_str());
    }
  }

  // The rank that serves the store may compute for long as soon as it has joined: it stays until
  // nobody needs it to join.
  task<> let_go_of_the_server() {
    const std::vector<std::string> all_heard{"colls/heard by all"};
    if (all_.server) {
      co_await store_->wait(all_heard, deadline_);
    } else {
      const std::int64_t heard = co_await store_->add("colls/heard", 1, deadline_);
      if (heard == cfg().size - 1) co_await store_->set(all_heard.front(), "1", deadline_);
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
    all_.find_own_place();
    all_.nodes = static_cast<int>(all_.machine_of.size());
    // The launcher's local ranks, unless it sees other nodes than we do.
    if (cfg().local_rank >= 0 && cfg().local_rank < all_.local_size &&
        (cfg().local_size < 0 || cfg().local_size == all_.local_size)) {
      all_.local_rank = cfg().local_rank;
    }
  }

  engine& engine_;
  time_point began_;
  time_point deadline_;
  membership all_;
  meeting_place place_;
  std::shared_ptr<tcp_store> store_;
  std::shared_ptr<file_store> file_;  // rank 0's: taken away when all have come
};

}  // namespace detail

COLLS_ONCE task<membership> meet(engine& on, config given) {
  const config cfg = detail::complete(given);
  detail::check(cfg);
  warn_about_unknown_variables();
  detail::hide_secret_from_children();
  log_info("rank %d of %d from %s, meeting at %s", cfg.rank, cfg.size, cfg.source.c_str(),
           cfg.size == 1 ? "nowhere" : cfg.address.c_str());
  if (cfg.size == 1) {
    membership alone;
    alone.cfg = cfg;
    co_return std::move(alone);  // nvcc does not move by itself
  }
  detail::meeting all(on, cfg);
  auto running = all.run();
  try {
    co_return co_await running;
  } catch (const error& thrown) {
    failure why = thrown.record();
    if (why.observer < 0) why.observer = cfg.rank;
    throw error(why);
  }
}

}  // namespace colls
