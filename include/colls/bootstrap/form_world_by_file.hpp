// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Bootstrap through a shared file: rank 0 writes the address of its store (the key-value service of
// the job) into the file, and the other ranks read this address.

#include <colls/bootstrap/file_store.hpp>
#include <colls/bootstrap/rank0_store.hpp>
#include <colls/bootstrap/world_info.hpp>

namespace colls::detail {

/// The result of the bootstrap through a file.
struct file_bootstrap : store_location {
  std::shared_ptr<file_store> file;  // on rank 0, else null; needed until all ranks have joined
};

/// Waits until every rank has written the id of its node into the file. A node is a group of ranks
/// that can connect to each other by local sockets. Returns whether all ranks belong to the node of
/// this process. Called on rank 0. If some ranks have not written their id by the deadline, throws
/// an error that names these ranks.
inline task<bool> are_all_ranks_local(engine& driver, const config& cfg, file_store& file,
                                      time_point deadline) {
  const time_point began = driver.now();
  std::vector<std::string> keys;
  for (int r = 0; r < cfg.size; ++r) keys.push_back(host_key(r));
  const bool all_joined = co_await ends_in_time(file.wait(keys, deadline));
  if (!all_joined) {
    const std::string present = co_await file.check(keys);
    throw error(missing_ranks_failure(cfg, present, driver.now() - began, false, {}));
  }
  const std::string own_host = rank_info::of_this_process().host_id() + " ";
  bool same = true;
  for (const std::string& key : keys) {
    const std::string entry = co_await file.get(key, deadline);
    same = same && entry.starts_with(own_host);
  }
  co_return same;
}

/// Returns the address of the store and the secret of the job. Rank 0 creates the file `name`,
/// starts the store, and writes the address of the store into the file. The other ranks wait for
/// this address. If `cfg` has no secret, the secret is the one in the file. The arguments must
/// outlive the task.
///
/// If rank 0 of an earlier start was killed, it has left a file of its own. Each start after the
/// first one therefore has a file of another name.
inline task<file_bootstrap> bootstrap_by_file(engine& driver, const config& cfg,
                                              const std::string& name, const hello& local,
                                              time_point deadline) {
  const std::string path =
      cfg.restarts > 0 ? name + ".restart-" + std::to_string(cfg.restarts) : name;
  const file_store::options opts{cfg.size, local.job, cfg.own_file};
  const bool one_host = cfg.own_file || is_one_host(cfg);
  file_bootstrap result;
  std::shared_ptr<file_store> file;
  if (cfg.own_file) make_own_directory(path);
  if (cfg.rank == 0) {
    file = result.file = file_store::create(driver, path, opts);
    if (cfg.own_file) file->remove_directory_too();
  } else {
    file = co_await file_store::open(driver, path, opts, deadline);
  }
  result.key =
      cfg.secret.empty() ? file->shared_secret(cfg.insecure) : secret(cfg.secret, cfg.insecure);
  if (!one_host) {
    const rank_info self = rank_info::of_this_process();
    const std::string entry = self.host_id() + " " + std::to_string(self.nonce);
    const std::string stored = co_await file->compare_set(host_key(cfg.rank), {}, entry, deadline);
    if (stored != entry) {
      raise(errc::rank_taken, "another process is rank %d in file://%s", cfg.rank, path.c_str());
    }
  }
  std::string store_text;
  if (cfg.rank == 0) {
    boost::asio::ip::address address = boost::asio::ip::address_v4::loopback();
    if (!one_host) {
      const bool is_single_host = co_await are_all_ranks_local(driver, cfg, *file, deadline);
      if (!is_single_host) address = reachable_address(cfg);
    }
    result.server = start_store(driver, local, result.key, address);
    store_text = "tcp://" + text_of(result.server->local());
    co_await file->set("colls/store", store_text, deadline);
  } else {
    const std::vector<std::string> key{"colls/store"};
    const bool is_published = co_await ends_in_time(file->wait(key, deadline));
    if (!is_published) {
      raise(errc::join_timeout, "rank 0 did not write its address into file://%s in time",
            path.c_str());
    }
    store_text = co_await file->get(key.front(), deadline + seconds);
  }
  result.address = parse_address(store_text);
  co_return result;
}

}  // namespace colls::detail
