// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// run: the definition of `run_world`, which run.hpp declares.

#include <colls/call/revoke_on_exception.hpp>
#include <colls/driver/engine.hpp>
#include <colls/join.ipp>
#include <colls/run.hpp>

#include <cstdio>

namespace colls::detail {

template <class Transport>
int run_world(config cfg, int (*rank_main)(void* state, communicator<Transport>& comm),
              void* state) {
  boost::asio::io_context context(1);
  const std::shared_ptr<engine> driver = engine::get(context.get_executor());
  int status = 0;
  bool failed = false;
  const auto report = [&](const std::string& reason) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    failed = true;
  };
  try {
    communicator<Transport> comm =
        sync_wait(*driver, colls::join<Transport>(context.get_executor(), std::move(cfg)));
    try {
      status = rank_main(state, comm);
    } catch (...) {
      report(revoke_on_exception(comm));
    }
    sync_wait(*driver, comm.close());
  } catch (...) {
    report(exception_text());
  }
  return failed ? 1 : status;
}

}  // namespace colls::detail
