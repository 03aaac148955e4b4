// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// repair_calls: repair, the call by which the ranks that are left make a new world with the
// replacements of the others.

#include <colls/call/communicator.hpp>
#include <colls/call/exchange_guard.hpp>
#include <colls/call/recovery_calls.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

namespace colls::detail {

/// What the ranks that were left tell the replacements in their new world.
struct admission {
  network_cost costs;               // of the communicator on which repair was called
  std::vector<int> previous_ranks;  // there, for each rank of the new world

  std::string text() const {
    static_assert(std::is_trivially_copyable_v<network_cost>);
    std::string bytes(sizeof costs + previous_ranks.size() * sizeof(int), '\0');
    std::memcpy(bytes.data(), &costs, sizeof costs);
    std::memcpy(bytes.data() + sizeof costs, previous_ranks.data(), bytes.size() - sizeof costs);
    return bytes;
  }
  /// Throws `protocol_error` if `text` is not for a world of `size` ranks.
  static admission parse(const std::string& text, int size) {
    admission result;
    result.previous_ranks.resize(static_cast<std::size_t>(size));
    const std::size_t ranks_size = result.previous_ranks.size() * sizeof(int);
    if (text.size() != sizeof result.costs + ranks_size)
      throw error(errc::protocol_error, "the other ranks admitted this one with an invalid text");
    std::memcpy(static_cast<void*>(&result.costs), text.data(), sizeof result.costs);
    std::memcpy(result.previous_ranks.data(), text.data() + sizeof result.costs, ranks_size);
    return result;
  }
  template <class Transport>
  void apply_to(core<Transport>& world) const {
    world.set_costs(costs);
    world.set_previous_ranks(previous_ranks);
  }
};

/// Returns the time that is left until `last`, which is at least 1 ns, because 0 means a default.
inline time_span time_left(time_point now, time_point last) {
  return time_span::from_nanoseconds(std::max<time_point>(last - now, 1));
}
inline options options_until(time_point now, time_point last) {
  options result;
  result.timeout = time_left(now, last);
  return result;
}

/// What a rank that is left has of the next world.
template <class Transport>
struct repaired_world_part {
  std::shared_ptr<Transport> net;  // null if there is no next world
  std::vector<int> previous_ranks;
  bool is_unchanged = false;  // no replacement comes in, so there is no need for a next world
  failure reason;
};

/// Returns whether `code` may be an error code, or 0, and `size` the size of the text that goes
/// with it: that of the next world, or of what explains the error.
constexpr bool is_answer_header(std::int64_t code, std::int64_t size) {
  constexpr std::int64_t max_text_size = 16 << 20;
  return code >= 0 && code <= static_cast<std::int64_t>(last_errc) && size >= 0 &&
         size <= max_text_size;
}

/// Throws `mismatch` on all ranks of `left` unless they have passed equal options.
template <class Transport>
task<> compare_repair_options(communicator<Transport>& left, recovery_options opts,
                              const options& waits) {
  const std::int64_t own[] = {opts.at_least, opts.wait.count(), opts.timeout.count()};
  std::vector<std::int64_t> all(3 * static_cast<std::size_t>(left.size()));
  auto gathering = left.all_gather(own, all, waits);
  co_await gathering;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != all[i % 3]) throw error(errc::mismatch, "the ranks passed different options");
  }
}

/// Gets the next world of the ranks of `left` from the launcher, and forms it with all its ranks.
template <class Transport>
task<repaired_world_part<Transport>> form_repaired_world(communicator<Transport>& left,
                                                         recovery_options opts,
                                                         time_point deadline) {
  repaired_world_part<Transport> result;
  auto& net = left.underlying_core().net();
  const options waits = options_until(net.now(), deadline);
  // Rank 0 tells the others these numbers (see `is_answer_header`), and the text.
  std::int64_t numbers[2] = {};
  std::string text;
  try {
    auto comparing = compare_repair_options(left, opts, waits);
    co_await comparing;
    if (left.rank() == 0) {
      std::vector<int> ranks;
      for (int rank = 0; rank < left.size(); ++rank) ranks.push_back(left.world_rank(rank));
      // `request_next_world` is found by the namespace of its argument, because only some
      // transports have worlds of processes.
      auto requesting =
          request_next_world(net.driver(), net.info(), std::move(ranks), opts, deadline);
      try {
        text = co_await requesting;
      } catch (...) {
        const failure reason = failure_of(std::current_exception());
        numbers[0] = static_cast<int>(reason.code);
        text = reason.detail;
      }
      numbers[1] = static_cast<std::int64_t>(text.size());
    }
    auto telling = left.broadcast(numbers, 0, waits);
    co_await telling;
    if (!is_answer_header(numbers[0], numbers[1]))
      throw error(errc::protocol_error, "rank 0 passed something that is no answer of a launcher");
    text.resize(static_cast<std::size_t>(numbers[1]));
    auto telling_text = left.broadcast(text, 0, waits);
    co_await telling_text;
    if (numbers[0] != 0) throw error(static_cast<errc>(numbers[0]), text.c_str());
    result.is_unchanged = text.empty();
    if (result.is_unchanged) co_return result;
    auto forming = form_next_world(net.driver(), net.info(), std::move(text), deadline);
    auto formed = co_await forming;
    const exchange_guard closes_exchange(formed.info);
    auto making = Transport::make(std::move(formed.driver), formed.info);
    result.net = co_await making;
    result.previous_ranks = std::move(formed.previous_ranks);
  } catch (...) {
    result.reason = failure_of(std::current_exception());
  }
  co_return result;
}

/// The errors with which the ranks of `left` could not form the next world. They are equal on all
/// ranks.
struct repair_errors {
  std::vector<std::int64_t> codes;  // 0 for a rank that has the next world

  /// Returns whether another attempt may succeed, because a replacement has failed.
  bool is_worth_repeating() const {
    return std::all_of(codes.begin(), codes.end(), [](std::int64_t each) {
      const auto code = static_cast<errc>(each);
      return each == 0 || code == errc::peer_failed || code == errc::unreachable ||
             code == errc::closed || code == errc::revoked;
    });
  }
};

template <class Transport>
task<repair_errors> gather_repair_errors(communicator<Transport>& left, errc own,
                                         const options& waits) {
  const std::int64_t code[] = {static_cast<int>(own)};
  repair_errors result;
  result.codes.resize(static_cast<std::size_t>(left.size()));
  auto gathering = left.all_gather(code, result.codes, waits);
  co_await gathering;
  co_return result;
}

/// Returns the error of this rank, or, if it has none, one that names the first rank that has one.
template <class Transport>
failure describe_repair_error(const communicator<Transport>& left, const repair_errors& all,
                              const failure& own) {
  const auto first =
      std::find_if(all.codes.begin(), all.codes.end(), [](auto each) { return each != 0; });
  if (own.code != errc{} || first == all.codes.end()) return own;
  failure reason(static_cast<errc>(*first));
  reason.set_detail("rank %d could not join the world after the repair",
                    left.world_rank(static_cast<int>(first - all.codes.begin())));
  return reason;
}

/// Gives the ranks of `left` the next world, or shrinks `left` until it has no lost rank and throws
/// the error with which all of them end.
template <class Transport>
task<repaired_world_part<Transport>> take_next_world(communicator<Transport>& left,
                                                     recovery_options opts, time_span wait,
                                                     time_span limit) {
  constexpr int max_attempts = 4;
  auto& net = left.underlying_core().net();
  recovery_options agreed_opts;
  agreed_opts.quorum = opts.quorum;
  for (int attempt = 1;; ++attempt) {
    const time_point deadline = limit.after(wait.after(net.now()));
    auto forming = form_repaired_world(left, opts, deadline);
    repaired_world_part<Transport> part = co_await forming;
    // The ranks take the next world, or none of them does. A rank may wait until `deadline`.
    const time_point last = limit.after(deadline);
    agreed_opts.timeout = time_left(net.now(), last);
    const bool has_world = part.net != nullptr || part.is_unchanged;
    auto agreeing = left.agree(has_world ? 1 : 0, agreed_opts);
    agreement agreed = co_await agreeing;
    if (agreed.lost.empty() && agreed.value == 1) co_return std::move(part);
    part.net = nullptr;
    if (agreed.lost.empty()) {
      auto gathering = gather_repair_errors(left, has_world ? errc{} : part.reason.code,
                                            options_until(net.now(), last));
      std::optional<repair_errors> all;
      try {
        all = co_await gathering;
      } catch (const error& thrown) {
        log_debug("a rank was lost in a repair: %s", thrown.what());
      }
      const bool is_last = all && (attempt == max_attempts || !all->is_worth_repeating());
      if (is_last) throw error(describe_repair_error(left, *all, part.reason));
      if (all) continue;
    }
    auto shrinking = left.shrink(agreed_opts);
    left = co_await shrinking;
  }
}

template <class Transport>
task<communicator<Transport>> repair_body(core<Transport>& lost, call_base& owner,
                                          recovery_options opts) {
  auto& net = lost.net();
  const time_span standard = time_span::from_nanoseconds(lost.state().inactivity);
  const time_span limit = opts.timeout ? opts.timeout : standard;
  const time_span wait = opts.wait ? opts.wait : standard;
  auto shrinking = lost.shrink_body(owner, opts.quorum, collective::repair);
  communicator<Transport> left = co_await shrinking;
  auto taking = take_next_world(left, opts, wait, limit);
  repaired_world_part<Transport> part;
  try {
    part = co_await taking;
  } catch (...) {
    // Another rank that still waits for the agreement needs what this rank knows.
    lost.keep(std::make_shared<communicator<Transport>>(std::move(left)));
    throw;
  }
  if (part.is_unchanged) {
    std::vector<int> previous_ranks;
    for (int rank = 0; rank < left.size(); ++rank)
      previous_ranks.push_back(lost.state().rank_of(left.world_rank(rank)));
    left.underlying_core().set_previous_ranks(std::move(previous_ranks));
    co_return std::move(left);
  }
  const auto& info = part.net->info();
  auto made = std::make_unique<core<Transport>>(part.net, 0, info.rank, info.size, nullptr, true);
  made->state().inactivity = lost.state().inactivity;
  made->set_local_rank(info.local_rank);
  admission admitted{lost.tuning().costs(), {}};
  for (const int previous : part.previous_ranks) {
    admitted.previous_ranks.push_back(previous < 0 ? -1 : lost.state().rank_of(previous));
  }
  admitted.apply_to(*made);
  core<Transport>& next = *made;
  communicator<Transport> world(std::move(made));
  bool all_are_there = true;
  try {
    const time_point last = limit.after(net.now());
    auto admitting = admit_replacements(info, admitted.text(), last);
    co_await admitting;
    auto meeting = world.barrier(options_until(net.now(), last));
    co_await meeting;
  } catch (const error& thrown) {
    // The next world fails on all ranks, which its next call tells.
    all_are_there = false;
    world.revoke(thrown.record().detail);
  }
  // See above.
  if (!all_are_there) next.keep(std::make_shared<communicator<Transport>>(std::move(left)));
  if constexpr (requires { net.leave_store(time_point{}); }) {
    auto leaving = net.leave_store(net.now() + seconds);
    co_await leaving;
  }
  co_return std::move(world);  // nvcc does not move a local variable implicitly
}

template <class Transport>
bool core<Transport>::has_replacing_launcher() const {
  if constexpr (world_transport<Transport>) {
    return !net_->info().cfg.launcher.empty();
  } else {
    return false;
  }
}

template <class Transport>
operation<communicator<Transport>> core<Transport>::repair(const recovery_options& opts) {
  return start_recovery<communicator<Transport>>(
      collective::repair, opts, [&](call_base& call) -> task<communicator<Transport>> {
        if constexpr (world_transport<Transport>) {
          return repair_body(*this, call, opts);
        } else {
          return shrink_body(call, opts.quorum, collective::repair);  // such a call is refused
        }
      });
}

template <class Transport>
std::uint32_t core<Transport>::generation() const {
  if constexpr (world_transport<Transport>) {
    return static_cast<std::uint32_t>(net_->info().cfg.generation);
  } else {
    return 0;
  }
}

template <class Transport>
int core<Transport>::waiting() {
  if constexpr (requires { net_->waiting(); }) {
    // The calls of a rank that is alone end without a poll.
    if (state().size() == 1) poll_once(net_);
    return net_->waiting();
  } else {
    return 0;
  }
}

}  // namespace colls::detail
