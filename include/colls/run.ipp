// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// From a launcher's start to its end: the second half of run.hpp.

#include <colls/call/revoke_on_exception.hpp>
#include <colls/driver/engine.hpp>
#include <colls/join.hpp>
#include <colls/run.hpp>

#include <cstdio>

namespace colls::detail {

COLLS_ONCE int run_world(config how, int (*rank_main)(void* state, world& all), void* state) {
  boost::asio::io_context context(1);
  const std::shared_ptr<engine> on = engine::of(context.get_executor());
  int status = 0;
  bool failed = false;
  const auto explain = [&](const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    failed = true;
  };
  try {
    world all = sync_wait(*on, colls::join(context.get_executor(), std::move(how)));
    try {
      status = rank_main(state, all);
    } catch (...) {
      explain(give_up(all));
    }
    sync_wait(*on, all.close());
  } catch (...) {
    explain(words_thrown());
  }
  return failed ? 1 : status;
}

}  // namespace colls::detail
