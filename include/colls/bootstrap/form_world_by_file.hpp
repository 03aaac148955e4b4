// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks that share a file find rank 0 by it.

#include <colls/bootstrap/file_store.hpp>
#include <colls/bootstrap/rank0_store.hpp>
#include <colls/bootstrap/world_info.hpp>

namespace colls::detail {

/// What a rank takes from the file: where rank 0 is, and the secret. Rank 0 is there already.
struct file_meeting {
  meeting_place place;
  secret key;
  std::shared_ptr<store_server> server;  // rank 0's
  std::shared_ptr<file_store> file;      // rank 0's: goes when nobody needs it any more
};

/// Rank 0: whether all ranks run on this host; waits for them to say so.
inline task<bool> is_everybody_here(engine& on, const config& cfg, file_store& file,
                                    time_point deadline) {
  const time_point began = on.now();
  std::vector<std::string> keys;
  for (int r = 0; r < cfg.size; ++r) keys.push_back(host_key(r));
  const bool all_here = co_await in_time(file.wait(keys, deadline));
  if (!all_here) {
    const std::string there = co_await file.check(keys);
    throw error(missing_ranks(cfg, there, on.now() - began, false, {}));
  }
  const std::string here = rank_card::of_this_process().place() + " ";
  bool same = true;
  for (const std::string& key : keys) {
    const std::string card = co_await file.get(key, deadline);
    same = same && card.starts_with(here);
  }
  co_return same;
}

/// What is given must stay alive until the task has ended.
inline task<file_meeting> meet_at_file(engine& on, const config& cfg, const std::string& path,
                                       const hello& mine, time_point deadline) {
  const file_store::options how{cfg.size, mine.job, cfg.own_file};
  const bool one_host = cfg.own_file || is_one_host(cfg);
  file_meeting found;
  std::shared_ptr<file_store> file;
  if (cfg.own_file) make_own_directory(path);
  if (cfg.rank == 0) {
    file = found.file = file_store::create(on, path, how);
    if (cfg.own_file) file->remove_directory_too();
  } else {
    file = co_await file_store::open(on, path, how, deadline);
  }
  found.key =
      cfg.secret.empty() ? file->shared_secret(cfg.insecure) : secret(cfg.secret, cfg.insecure);
  if (!one_host) {
    const rank_card mine_alone = rank_card::of_this_process();
    const std::string card = mine_alone.place() + " " + std::to_string(mine_alone.nonce);
    const std::string held = co_await file->compare_set(host_key(cfg.rank), {}, card, deadline);
    if (held != card) {
      raise(errc::rank_taken, "another process is rank %d in file://%s", cfg.rank, path.c_str());
    }
  }
  std::string where;
  if (cfg.rank == 0) {
    boost::asio::ip::address address = boost::asio::ip::address_v4::loopback();
    if (!one_host) {
      const bool alone = co_await is_everybody_here(on, cfg, *file, deadline);
      if (!alone) address = default_address();
    }
    found.server = std::make_shared<store_server>(on, mine, found.key);
    if (const std::error_code ec = found.server->listen({address, 0})) {
      raise(listen_error(ec), "rank 0 cannot listen at %s: %s", address.to_string().c_str(),
            ec.message().c_str());
    }
    where = "tcp://" + text_of(found.server->local());
    co_await file->set("colls/store", where, deadline);
  } else {
    const std::vector<std::string> key{"colls/store"};
    const bool there = co_await in_time(file->wait(key, deadline));
    if (!there) {
      raise(errc::join_timeout, "rank 0 did not write its address into file://%s in time",
            path.c_str());
    }
    where = co_await file->get(key.front(), deadline + seconds);
  }
  found.place = parse_address(where);
  co_return found;
}

}  // namespace colls::detail
