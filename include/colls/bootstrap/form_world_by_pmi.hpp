// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Bootstrap through a process manager: rank 0 puts the address of its store (the key-value service of
// colls) and the secret of the job into the key-value space of the process manager, and the other
// ranks read them.

#include <colls/bootstrap/pmi_client.hpp>
#include <colls/bootstrap/pmix_client.hpp>
#include <colls/bootstrap/rank0_store.hpp>

#include <exception>
#include <memory>
#include <string>

namespace colls::detail {

/// The result of the bootstrap through a process manager: the address of the store, and the secret of
/// the job.
struct pmi_bootstrap {
  store_address address;
  secret key;
  std::shared_ptr<store_server> server;  // on rank 0, else null
};

/// Starts the store of rank 0, at an address that other hosts can reach.
inline std::shared_ptr<store_server> start_reachable_store(engine& driver, const config& cfg,
                                                           const hello& local, const secret& key) {
  const boost::asio::ip::address address = reachable_address(cfg);
  auto server = std::make_shared<store_server>(driver, local, key);
  if (const std::error_code ec = server->listen({address, 0})) {
    raise(listen_error(ec), "rank 0 cannot listen at %s: %s", address.to_string().c_str(),
          ec.message().c_str());
  }
  return server;
}

/// Returns the address of the store and the secret of the job. Rank 0 starts the store. If `cfg` has no
/// secret, rank 0 draws one, and whoever can read the key-value space of the job can read it. `place` is
/// where the process manager is. All ranks of the job must join the same worlds in the same
/// order. The arguments must outlive the task.
inline task<pmi_bootstrap> bootstrap_by_pmi(engine& driver, const config& cfg, store_address place,
                                            const hello& local, time_point deadline) {
  auto opening = place.descriptor >= 0
                     ? pmi_client::open(driver, place.descriptor, cfg.rank, deadline)
                     : pmix_client::open(driver, deadline);
  const auto client = co_await opening;
  const std::string key = "colls-" + std::to_string(client->number());
  pmi_bootstrap result;
  result.key = secret(cfg.secret, cfg.insecure);
  const bool draws = result.key.empty() && !cfg.insecure;
  std::exception_ptr failed;
  if (cfg.rank == 0) {
    std::string value = "none";  // if rank 0 fails, the others do not wait for it
    try {
      if (draws) result.key = secret::drawn(draw_secret());
      result.server = start_reachable_store(driver, cfg, local, result.key);
      // The other ranks have a secret that the user has given.
      value = text_of(result.server->local()) + '/' + (draws ? result.key.text() : "given");
    } catch (...) {
      failed = std::current_exception();
    }
    co_await client->put(key, value);
  }
  co_await client->fence();
  if (failed) std::rethrow_exception(failed);
  const std::string value = co_await client->get(key);
  const std::size_t slash = value.find('/');
  if (slash == value.npos) {
    raise(errc::join_failed, "rank 0 cannot serve the store: see its own error");
  }
  result.address = parse_address("tcp://" + value.substr(0, slash));
  if (draws) {
    const std::string drawn = value.substr(slash + 1);
    if (drawn.size() != secret::drawn_size) {
      raise(errc::auth_failed,
            "rank 0 has a secret, and this rank has none: give both COLLS_SECRET or "
            "COLLS_SECRET_FILE, or neither");
    }
    result.key = secret::drawn(drawn);
  }
  co_return result;
}

}  // namespace colls::detail
