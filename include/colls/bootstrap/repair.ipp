// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of repair.hpp: the request, and the next world.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/repair.hpp>

#include <algorithm>

namespace colls {

COLLS_ONCE task<std::string> request_next_world(engine& driver, const world_info& info,
                                                std::vector<int> left, recovery_options opts,
                                                time_point deadline) {
  const time_span wait = opts.wait ? opts.wait : info.cfg.timeout;
  const repair_request request{std::move(left), opts.at_least, wait.count()};
  std::shared_ptr<tcp_store> launcher;
  std::optional<failure> problem;
  std::string answer;
  try {
    auto dialing = detail::dial_launcher(driver, info.cfg, info.key,
                                         std::min(deadline, driver.now() + 10 * seconds));
    launcher = co_await dialing;
    // An earlier rank may have asked and failed since.
    const std::string text = request.text();
    int number = 1;
    for (;; ++number) {
      const std::string stored = co_await launcher->compare_set(
          detail::repair_key(info.number, number), {}, text, deadline);
      if (stored == text) break;
    }
    answer = co_await launcher->get(detail::repair_answer_key(info.number, number), deadline);
  } catch (const error& thrown) {
    problem = thrown.record();
  }
  if (launcher != nullptr) {
    try {
      co_await launcher->leave(driver.now() + seconds);
    } catch (const error& thrown) {
      log_debug("the launcher's store: %s", thrown.what());
    }
  }
  failure reason(errc::no_replacement);
  if (problem) throw error(reason.set_detail("the launcher does not answer: %s", problem->detail));
  if (answer.starts_with(detail::refused_prefix)) {
    throw error(reason.set_detail("%s", answer.c_str() + detail::refused_prefix.size()));
  }
  if (answer == detail::lost_answer)
    throw error(errc::peer_failed, "the launcher knows that a rank has ended meanwhile");
  if (answer == detail::unchanged_answer) answer.clear();
  co_return answer;
}

COLLS_ONCE task<repaired_world> form_next_world(engine& driver, const world_info& info,
                                                std::string text, time_point deadline) {
  auto next = next_world::parse(text);
  config cfg = info.cfg;
  cfg.rank = next ? next->rank_of(info.rank) : -1;
  if (cfg.rank < 0 || next->number <= info.number) {
    detail::raise(errc::protocol_error, "the launcher answered '%.60s' to rank %d", text.c_str(),
                  info.rank);
  }
  detail::apply(*next, cfg);
  cfg.replacement = 0;
  cfg.join_timeout = time_span::from_nanoseconds(std::max<time_point>(deadline - driver.now(), 1));
  auto forming = form_world(driver, cfg, info.transport_name);
  repaired_world result;
  result.driver = engine::get(driver.executor());
  result.info = std::make_shared<world_info>(co_await forming);
  result.info->number = next->number;
  result.previous_ranks = std::move(next->previous_ranks);
  co_return result;
}

COLLS_ONCE task<> admit_replacements(const world_info& info, std::string state,
                                     time_point deadline) {
  if (info.kv_store != nullptr) co_await info.kv_store->set("colls/admitted", state, deadline);
}

}  // namespace colls
