// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of form_world.hpp: the steps of the bootstrap.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/form_world.hpp>
#include <colls/bootstrap/form_world_by_file.hpp>
#include <colls/bootstrap/form_world_by_pmi.hpp>
#include <colls/bootstrap/known_variables.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/bootstrap/launcher_store.hpp>
#include <colls/bootstrap/network_interfaces.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/os/procfs.hpp>

#include <map>
#include <memory>

namespace colls {

namespace detail {

/// Throws if the system refuses the congestion control algorithm `name`. This check is necessary
/// because a connection that cannot use the algorithm only logs a warning.
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

/// Stands for the version of UCX if the program has none.
inline const std::string without_ucx = "none";

[[noreturn]] COLLS_ONCE void raise_without_ucx(int rank, const std::string& transport) {
  raise(errc::join_failed,
        "rank %d was told to use %s, and its program has no UCX: include <colls/transport/ucx.hpp> "
        "in one of its files and link it with -lucp -lucs",
        rank, transport.c_str());
}

COLLS_ONCE void validate(const config& cfg) {
  if (cfg.size < 1 || cfg.rank < 0 || cfg.rank >= cfg.size) {
    raise(errc::join_failed, "rank %d of %d makes no sense (from %s): 0 <= rank < size", cfg.rank,
          cfg.size, cfg.source.c_str());
  }
  const auto compare = [&](const char* quantity, int value, int limit) {
    if (value < 0 || limit < 0 || value < limit) return;
    raise(errc::join_failed, "%s %d of %d makes no sense (from %s)", quantity, value, limit,
          cfg.source.c_str());
  };
  compare("local rank", cfg.local_rank, cfg.local_size);
  compare("node", cfg.node, cfg.nodes);
  compare("local size", cfg.local_size, cfg.size + 1);
  if (!cfg.transport.empty() && cfg.transport != "hybrid" && cfg.transport != "tcp" &&
      cfg.transport != "shm" && !uses_ucx(cfg.transport.str())) {
    raise(errc::join_failed, "the transport '%s' is none of hybrid, tcp, shm, ucx, ucx_only",
          cfg.transport.c_str());
  }
  if (!cfg.reads.empty() && cfg.reads != "always" && cfg.reads != "never") {
    raise(errc::join_failed, "COLLS_READS=%s is none of always, never", cfg.reads.c_str());
  }
  if (!cfg.congestion.empty()) check_congestion(cfg.congestion.str());
  if (cfg.restarts < 0 || cfg.max_restarts < 0 || cfg.generation < 0 || cfg.replacement < 0) {
    raise(errc::join_failed, "config::%s is negative",
          cfg.restarts < 0       ? "restarts"
          : cfg.max_restarts < 0 ? "max_restarts"
          : cfg.generation < 0   ? "generation"
                                 : "replacement");
  }
  if (cfg.replacement > 0 && cfg.launcher.empty()) {
    raise(errc::join_failed, "COLLS_REPLACEMENT=%d is set, and COLLS_LAUNCHER is not",
          cfg.replacement);
  }
  if (cfg.join_timeout.count() <= 0 || cfg.timeout.count() <= 0) {
    raise(errc::join_failed, "config::%s is no time to wait: it must be more than 0",
          cfg.timeout.count() > 0 ? "join_timeout" : "timeout");
  }
  if (cfg.size > 1 && cfg.address.empty()) {
    raise(errc::join_failed,
          "rank %d of %d (from %s) does not know where the ranks meet: give an address "
          "tcp://host:port, or MASTER_ADDR and MASTER_PORT",
          cfg.rank, cfg.size, cfg.source.c_str());
  }
}

COLLS_ONCE config complete_from_environment(const config& opts) {
  if (opts.address != "env://") return opts;
  const config defaults;
  config cfg = environment();
  const auto take = [&](auto... fields) {
    ((opts.*fields == defaults.*fields ? void() : void(cfg.*fields = opts.*fields)), ...);
  };
  take(&config::rank, &config::size, &config::local_rank, &config::local_size, &config::node,
       &config::nodes, &config::secret, &config::job, &config::restarts, &config::max_restarts,
       &config::generation, &config::replacement, &config::launcher, &config::join_timeout,
       &config::timeout, &config::insecure, &config::source, &config::congestion,
       &config::transport, &config::reads, &config::socket_ifname, &config::checksum,
       &config::ports, &config::served, &config::own_file, &config::store_fd);
  return cfg;
}

/// A listener for failures during the bootstrap. When another rank announces a failure, the
/// listener stores the reason and makes the requests of this rank to the store fail.
class failure_watch : public failure_listener {
 public:
  explicit failure_watch(tcp_store& client) : store_(client), previous_(client.listener()) {
    store_.listen_for_failures(this);
  }
  failure_watch(const failure_watch&) = delete;
  ~failure_watch() { store_.listen_for_failures(previous_); }
  void rank_failed(int, const reported_failure& report) override {
    if (!reason_) reason_ = report.reason();
    store_.interrupt(report);
  }
  const std::optional<failure>& reason() const { return reason_; }

 private:
  tcp_store& store_;
  failure_listener* previous_;
  std::optional<failure> reason_;
};

/// Passes the texts of `world_info::exchange` by the store. Rank 0 collects them and publishes them
/// together. `number` counts the exchanges of the world.
COLLS_ONCE task<std::vector<std::string>> pass_texts_by_store(std::shared_ptr<tcp_store> client,
                                                              int rank, int size, int number,
                                                              std::string own,
                                                              time_point deadline) {
  const failure_watch guard(*client);
  const std::string all_key = "colls/exchange/" + std::to_string(number);
  const std::string prefix = all_key + '/';  // the key of a rank's text, before the rank
  // The other ranks wait longer, so that they hear from rank 0 which rank is late.
  const time_point last = deadline < never - 2 * seconds ? deadline + 2 * seconds : never;
  if (rank != 0) {
    const std::string key = prefix + std::to_string(rank);
    co_await client->set(key, own, deadline);
    const std::string joined = co_await client->get(all_key, last);
    auto all = split_strings(joined);
    if (!all || all->size() != static_cast<std::size_t>(size))
      raise(errc::protocol_error, "rank 0 has not published the texts of all ranks");
    co_return std::move(*all);
  }
  std::vector<std::string> all{std::move(own)};
  for (int r = 1; r < size; ++r) {
    const std::vector<std::string> key{prefix + std::to_string(r)};
    const bool is_there = co_await ends_in_time(client->wait(key, deadline));
    if (!is_there) {
      failure reason(errc::timeout);
      reason.culprit = r;
      throw error(reason.set_detail("rank %d has joined and does not make its transport", r));
    }
    all.push_back(co_await client->get(key.front(), last));
    check_passed_text(all.back(), r);
  }
  const std::string joined = join_strings(all);
  co_await client->set(all_key, joined, last);
  co_return all;
}

/// Waits until the other ranks admit the replacement that this process is, and returns what they
/// tell it. Throws if a rank fails meanwhile.
COLLS_ONCE task<std::string> read_admission(std::shared_ptr<tcp_store> client,
                                            time_point deadline) {
  const failure_watch guard(*client);
  co_return co_await client->get("colls/admitted", deadline);
}

class world_bootstrap {
 public:
  world_bootstrap(engine& driver, const config& cfg, const char* transport)
      : engine_(driver),
        transport_(transport),
        began_(driver.now()),
        deadline_(began_ + std::min(cfg.join_timeout.count(), max_wait)) {
    info_.rank = cfg.rank;
    info_.size = cfg.size;
    info_.cfg = cfg;
    info_.transport_name = transport;
    info_.job = hash_of(restarted_job(cfg.job.str(), cfg.restarts));
    info_.key = secret(info_.cfg.secret, info_.cfg.insecure);
  }

  task<world_info> run() {
    address_ = parse_address(cfg().address);
    const hello local = info_.make_hello(connection_purpose::store);
    port_list ports;
    if (address_.kind == store_address::kind::tcp) ports = cfg().ports;
    if (address_.kind == store_address::kind::file) {
      file_bootstrap result =
          co_await bootstrap_by_file(engine_, cfg(), address_.path, local, deadline_);
      file_ = std::move(result.file);
      set_location(std::move(result));
    } else if (address_.kind == store_address::kind::pmi) {
      set_location(co_await bootstrap_by_pmi(engine_, cfg(), address_, local, deadline_));
    } else if (!cfg().served) {
      // If the launcher says that all ranks run on one machine, every rank can reach rank 0 at the
      // loopback address, whatever the host name resolves to.
      if (is_one_host(cfg()) && !is_loopback(address_.host)) address_.host = "127.0.0.1";
      if (cfg().rank == 0) {
        info_.server = co_await host_store(engine_, cfg(), address_, local, info_.key, deadline_);
      }
    }
    if (info_.server) {
      address_.host = info_.server->local().address().to_string();
      ports = {info_.server->local().port()};
    }
    store_ = co_await dial_store(engine_, address_, ports, local, info_.key, deadline_,
                                 cfg().timeout.count());
    info_.kv_store = store_;
    std::exception_ptr failed;
    {
      failure_watch guard(*store_);
      try {
        co_await publish();
        if (cfg().rank == 0) {
          co_await gather_ranks();
        } else {
          co_await receive_world_info();
        }
        if (store_->server_rank() >= 0) co_await release_server();
      } catch (...) {
        failed = std::current_exception();
      }
      // Another rank may announce a failure after the last request of this rank to the store has
      // completed. No request has then thrown an error, so this rank must check here whether a
      // failure was announced.
      if (!failed && guard.reason()) failed = std::make_exception_ptr(error(*guard.reason()));
      if (failed) {
        const bool is_news = !guard.reason() && !store_->is_lost();
        if (is_news) co_await report(failed);
        co_await leave_store();
      }
    }
    if (failed) std::rethrow_exception(failed);
    info_.deadline = deadline_;
    info_.pass_texts = [client = store_, rank = cfg().rank, size = cfg().size, deadline = deadline_,
                        count = std::make_shared<int>(0)](std::string own) {
      return pass_texts_by_store(client, rank, size, (*count)++, std::move(own), deadline);
    };
    info_.read_admission = [client = store_, deadline = deadline_] {
      return read_admission(client, deadline);
    };
    assign_local_rank();
    co_return std::move(info_);
  }

 private:
  // The maximum duration of the bootstrap. It is less than `never`, because a store treats `never`
  // as the absence of a deadline.
  static constexpr time_point max_wait = never / 2;

  const config& cfg() const { return info_.cfg; }

  void set_location(store_location&& place) {
    address_ = std::move(place.address);
    info_.key = std::move(place.key);
    info_.server = std::move(place.server);
  }

  task<failure> describe_missing_ranks(std::vector<std::string> keys) {
    std::string present;
    try {
      present = co_await store_->check(keys, engine_.now() + 2 * seconds);
    } catch (const error& thrown) {
      if (thrown.record().code != errc::timeout) throw;
    }
    co_return missing_ranks_failure(cfg(), present, engine_.now() - began_,
                                    store_->local_address().is_loopback(),
                                    info_.server ? info_.server->accept_error() : std::string());
  }

  // Listens for connections from other ranks at the IP address from which this rank has connected
  // to the store. Publishes the listening address in the store. Throws `rank_taken` if another
  // process has published an address for this rank.
  task<> publish() {
    info_.address = store_->local_address();
    if (const std::string wanted = cfg().socket_ifname.str(); !wanted.empty()) {
      info_.address = choose_address(wanted, info_.address, interface_addresses());
    }
    if (const std::error_code ec = info_.listen()) {
      raise(listen_error(ec), "rank %d cannot listen at %s: %s", cfg().rank,
            info_.address.to_string().c_str(), ec.message().c_str());
    }
    rank_info local = rank_info::of_this_process();
    local.address = info_.peer_listener.local();
    if (!cfg().transport.empty()) local.transport = cfg().transport.str();
    if (uses_ucx(local.transport)) {
      local.transport += '-' + (ucx_fabric != nullptr ? ucx_fabric->version() : without_ucx);
    }
    if (transport_ != nullptr) local.transport = std::string(transport_) + '/' + local.transport;
    local.checksum = cfg().checksum;
    const std::string text = local.text();
    const std::string stored =
        co_await store_->compare_set(rank_key(cfg().rank), {}, text, deadline_);
    if (stored != text) {
      const auto other = rank_info::parse(stored);
      raise(errc::rank_taken, "another process is rank %d of the world at %s (it listens at %s)",
            cfg().rank, cfg().address.c_str(), other ? text_of(other->address).c_str() : "?");
    }
    log_debug("rank %d listens at %s", cfg().rank, text_of(local.address).c_str());
  }

  std::vector<std::string> all_keys() const {
    std::vector<std::string> keys;
    for (int r = 0; r < cfg().size; ++r) keys.push_back(rank_key(r));
    return keys;
  }

  // Waits until all ranks have joined, and then builds and publishes the node map, which tells the
  // node of each rank. Called on rank 0.
  task<> gather_ranks() {
    const std::vector<std::string> keys = all_keys();
    for (bool has_warned = false;;) {
      const time_point until =
          has_warned ? deadline_ : std::min(deadline_, engine_.now() + 30 * seconds);
      const bool all_joined = co_await ends_in_time(store_->wait(keys, until));
      if (all_joined) break;
      const failure reason = co_await describe_missing_ranks(keys);
      if (engine_.now() >= deadline_) throw error(reason);
      has_warned = true;
      log_warn("%s", reason.detail);
    }
    std::vector<std::string> entries(keys.size());
    constexpr std::size_t batch = 256;
    for (std::size_t first = 0; first < keys.size(); first += batch) {
      std::vector<task<>> work;
      for (std::size_t r = first; r < std::min(keys.size(), first + batch); ++r) {
        work.push_back(fetch(keys[r], &entries[r]));
      }
      when_all together(std::move(work));
      co_await together;
    }
    build_node_map(entries);
    co_await store_->set("colls/world", world_info_text(info_), deadline_);
  }

  task<> fetch(const std::string& key, std::string* result) {
    *result = co_await store_->get(key, deadline_);
  }

  void build_node_map(const std::vector<std::string>& entries) {
    std::map<std::string, int> numbers;
    std::string boot;
    std::string transport;
    bool checksum = false;
    bool several_machines = false;
    bool has_warned = false;
    int on_loopback = -1;
    struct machine_record {
      int first;  // the first rank on the machine
      int number;
    };
    std::map<std::string, machine_record> machines;
    std::vector<core_set> usable;  // the usable cores of each machine
    info_.node_of.clear();
    info_.machine_of.clear();
    for (std::size_t r = 0; r < entries.size(); ++r) {
      const auto entry = rank_info::parse(entries[r]);
      if (!entry) {
        raise(errc::protocol_error, "rank %zu published something that is not of colls: %.100s", r,
              entries[r].c_str());
      }
      if (r == 0) transport = entry->transport, checksum = entry->checksum;
      if (entry->transport.ends_with('-' + without_ucx)) {
        raise_without_ucx(static_cast<int>(r), entry->transport);
      }
      if (entry->transport != transport) {
        raise(errc::join_failed,
              "rank 0 was told to use %s and rank %zu %s: all ranks must have the same "
              "COLLS_TRANSPORT, join with the same transport and have the same version of it",
              transport.c_str(), r, entry->transport.c_str());
      }
      if (entry->checksum != checksum) {
        raise(errc::join_failed,
              "rank 0 was told to work %s checksums and rank %zu %s: COLLS_CHECKSUM must be the "
              "same on all ranks",
              checksum ? "with" : "without", r, checksum ? "without" : "with");
      }
      const int next = static_cast<int>(numbers.size());
      const auto [position, is_new] = numbers.try_emplace(entry->host_id(), next);
      info_.node_of.push_back(position->second);
      const machine_record record{static_cast<int>(r), static_cast<int>(machines.size())};
      const machine_record host = machines.try_emplace(entry->machine(), record).first->second;
      if (is_new) info_.machine_of.push_back(host.number);
      if (is_new && host.first != static_cast<int>(r) && entry->boot != "-" &&
          uses_shared_memory(cfg().transport.str()) && !std::exchange(has_warned, true)) {
        log_warn(
            "ranks %d and %zu run on one machine in different network namespaces: they share no "
            "memory",
            host.first, r);
      }
      usable.resize(machines.size());
      usable[static_cast<std::size_t>(host.number)].add(entry->cores);
      several_machines = several_machines || (r > 0 && entry->boot != boot);
      boot = entry->boot;
      if (entries.size() <= max_address_book_size) info_.address_book.push_back(entry->address);
      if (entry->address.address().is_loopback()) on_loopback = static_cast<int>(r);
    }
    for (const core_set& cores : usable) info_.cores_of.push_back(cores.count());
    if (on_loopback >= 0 && several_machines) {
      raise(
          errc::join_failed,
          "rank %d listens on loopback and other ranks run on other hosts: MASTER_ADDR must be an "
          "address that all hosts reach",
          on_loopback);
    }
  }

  task<> receive_world_info() {
    const std::vector<std::string> map_key{"colls/world"};
    const bool all_joined = co_await ends_in_time(store_->wait(map_key, deadline_));
    if (!all_joined) {
      const failure reason = co_await describe_missing_ranks(all_keys());
      throw error(reason);
    }
    const std::string map = co_await store_->get(map_key.front(), deadline_ + seconds);
    if (!parse_world_info(map, info_)) {
      raise(errc::protocol_error, "rank 0 published something that is not of colls: %.100s",
            map.c_str());
    }
  }

  // On the rank that hosts the store, waits until all other ranks have received the node map. On
  // the other ranks, tells the store that this rank has received the node map. After the bootstrap,
  // the hosting rank may start to compute and does not serve the store meanwhile. Without the wait,
  // the other ranks might therefore not receive the node map in time.
  task<> release_server() {
    const std::vector<std::string> all_received{"colls/heard by all"};
    if (info_.server) {
      co_await store_->wait(all_received, deadline_);
    } else {
      const std::int64_t count = co_await store_->add("colls/heard", 1, deadline_);
      if (count == cfg().size - 1) co_await store_->set(all_received.front(), "1", deadline_);
    }
  }

  // Announces the error `failed` to the other ranks, so that they stop waiting for this rank.
  // Announces nothing if another process has already joined as this rank, because the world can
  // form without this process in that case.
  task<> report(std::exception_ptr failed) {
    failure reason(errc::join_failed);
    try {
      std::rethrow_exception(failed);
    } catch (const error& thrown) {
      reason = thrown.record();
    } catch (const std::exception& thrown) {
      reason.set_detail("rank %d gave up joining: %.200s", cfg().rank, thrown.what());
    }
    if (reason.code == errc::rank_taken || reason.code == errc::world_complete) co_return;
    reason.culprit = -1;
    reason.observer = cfg().rank;
    try {
      co_await store_->report_failure(reason, engine_.now() + seconds);
    } catch (const error&) {
      co_return;  // the store is gone, so no rank can be told
    }
  }

  // Tells the store that this rank is leaving, and closes the connection to the store. On the rank
  // that hosts the store, also waits until the other ranks have left, so that the store can tell
  // them why the world cannot form. Takes at most 1 s.
  task<> leave_store() {
    const time_point until = engine_.now() + seconds;
    co_await store_->leave(until);
    if (info_.server) co_await info_.server->drain(until);
  }

  void assign_local_rank() {
    info_.compute_local_ranks();
    info_.nodes = static_cast<int>(info_.machine_of.size());
    // The launcher may divide the ranks into nodes differently than the node map does. The local
    // rank that the launcher has given is therefore used only if it fits the node map.
    if (cfg().local_rank >= 0 && cfg().local_rank < info_.local_size &&
        (cfg().local_size < 0 || cfg().local_size == info_.local_size)) {
      info_.local_rank = cfg().local_rank;
    }
  }

  engine& engine_;
  const char* transport_;
  time_point began_;
  time_point deadline_;
  world_info info_;
  store_address address_;
  std::shared_ptr<tcp_store> store_;
  // The file store of rank 0, or null on other ranks and if the address is not a `file://` address.
  // The destructor of the file store removes the file. This member therefore keeps the file store
  // until the end of the bootstrap.
  std::shared_ptr<file_store> file_;
};

}  // namespace detail

namespace detail {

/// Forms the world at the address that `cfg` gives.
inline task<world_info> form_world_at_address(engine& driver, config cfg, const char* transport) {
  log_info("rank %d of %d from %s, meeting at %s", cfg.rank, cfg.size, cfg.source.c_str(),
           cfg.size == 1 ? "nowhere" : cfg.address.c_str());
  if (cfg.size == 1) {
    if (uses_ucx(cfg.transport.str()) && ucx_fabric == nullptr) {
      raise_without_ucx(cfg.rank, cfg.transport.str());
    }
    world_info single;
    single.cfg = cfg;
    single.transport_name = transport;
    single.key = secret(single.cfg.secret, single.cfg.insecure);
    co_return std::move(single);  // nvcc does not move a local variable implicitly
  }
  world_bootstrap bootstrap(driver, cfg, transport);
  auto running = bootstrap.run();
  try {
    co_return co_await running;
  } catch (const error& thrown) {
    failure reason = thrown.record();
    if (reason.observer < 0) reason.observer = cfg.rank;
    throw error(reason);
  }
}

}  // namespace detail

COLLS_ONCE task<world_info> form_world(engine& driver, config opts, const char* transport,
                                       int attempt) {
  const config cfg = detail::complete_from_environment(opts);
  detail::validate(cfg);
  warn_about_unknown_variables();
  detail::hide_secret_from_children();
  // colls-run says this itself.
  if (cfg.rank == 0 && cfg.max_restarts > 0 && cfg.source.str() != "colls-run") {
    log_notice("start %d of %d: job %s", cfg.restarts + 1, cfg.max_restarts + 1,
               detail::restarted_job(cfg.job.str(), cfg.restarts).c_str());
  }
  detail::placement place{cfg};
  if (cfg.replacement > 0) {
    auto placing = detail::take_place(driver, cfg, attempt);
    place = co_await placing;
  }
  auto forming = detail::form_world_at_address(driver, place.cfg, transport);
  world_info formed = co_await forming;
  formed.number = place.world;
  co_return std::move(formed);  // nvcc does not move a local variable implicitly
}

}  // namespace colls
