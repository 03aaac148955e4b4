// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Bootstrap through a process manager: rank 0 puts the address of its store (the key-value service
// of colls) and the secret of the job into the key-value space of the process manager, and the
// other ranks read them.

#include <colls/bootstrap/pmi_client.hpp>
#include <colls/bootstrap/pmix_client.hpp>
#include <colls/bootstrap/rank0_store.hpp>

#include <exception>
#include <memory>
#include <string>

namespace colls::detail {

/// Returns where the store of the job is. Rank 0 starts it. If `cfg` has no secret, rank 0 draws
/// one, which every process that can read the key-value space can read. `place` is where the
/// process manager is. All ranks of the job must join the same worlds in the same order. The
/// arguments must outlive the task.
inline task<store_location> bootstrap_by_pmi(engine& driver, const config& cfg, store_address place,
                                             const hello& local, time_point deadline) {
  auto opening = place.descriptor >= 0
                     ? pmi_client::open(driver, place.descriptor, cfg.rank, deadline)
                     : pmix_client::open(driver, cfg.rank, deadline);
  const auto space = co_await opening;
  const std::string key = "colls-" + std::to_string(space->number());
  store_location result;
  result.key = secret(cfg.secret, cfg.insecure);
  const bool draws = result.key.empty() && !cfg.insecure;
  if (cfg.rank == 0) {
    // If rank 0 fails, it tells the others, which otherwise wait for it in the fence.
    std::exception_ptr failed;
    std::string value = "none";
    try {
      if (draws) result.key = secret::drawn(draw_secret());
      result.server = start_store(driver, local, result.key, reachable_address(cfg));
      // A secret that the user has given is not passed on.
      value = text_of(result.server->local()) + '/' +
              (draws          ? result.key.text()
               : cfg.insecure ? "insecure"
                              : "given");
    } catch (...) {
      failed = std::current_exception();
    }
    auto putting = space->put(key, value);
    try {
      co_await putting;
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
    co_await space->fence();
    if (failed) std::rethrow_exception(failed);
    result.address = parse_address("tcp://" + text_of(result.server->local()));
    co_return result;
  }
  co_await space->fence();
  const std::string value = co_await space->get(key);
  const std::size_t slash = value.find('/');
  if (slash == value.npos) {
    raise(errc::join_failed, "rank 0 cannot serve the store: see its own error");
  }
  result.address = parse_address("tcp://" + value.substr(0, slash));
  if (!draws) co_return result;
  const std::string passed = value.substr(slash + 1);
  if (passed.size() != secret::drawn_size) {
    raise(errc::auth_failed, passed == "insecure"
                                 ? "rank 0 needs no secret (COLLS_INSECURE), and this rank does"
                                 : "rank 0 has a secret, and this rank has none: give both "
                                   "COLLS_SECRET or COLLS_SECRET_FILE, or neither");
  }
  result.key = secret::drawn(passed);
  co_return result;
}

}  // namespace colls::detail
