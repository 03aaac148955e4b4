// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Gives replacements of failed ranks their places when the ranks that are left repair the world.

#include "options.hpp"
#include "report.hpp"
#include "world.hpp"

#include <colls/bootstrap/launcher_store.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// Serves the store in which ranks that are left ask for their next world, and in which replacements
/// wait for their places. It knows what each process of this node is, by its local rank at the
/// start of the job.
class replacements {
 public:
  replacements(colls::engine& driver, const options& opts, const world& first,
               const colls::listener& listener)
      : engine_(driver),
        options_(opts),
        first_(first),
        processes_(static_cast<std::size_t>(opts.local_size)),
        server_(driver, make_hello(), colls::secret(first.secret)),
        tasks_(driver) {
    const int copy = ::fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 3);
    const std::error_code ec = copy < 0 ? colls::detail::last_error() : server_.adopt(copy);
    if (ec) throw start_error(fmt::format("cannot serve the replacements: {}", ec.message()));
    std::vector<int> all;
    for (int local = 0; local < opts.local_size; ++local) all.push_back(local);
    tasks_.start(connect(listener.local(), std::move(all)));
  }

  /// Called with each next world. `members` are the processes of its ranks.
  std::function<void(const world& next, const colls::listener& listener)> on_next_world;
  /// Returns whether the process runs.
  std::function<bool(int local)> is_running;
  /// Called when a process must end, because the other ranks go on without it.
  std::function<void(int local)> on_kill;
  /// Called when the number of replacements that wait for a place has changed.
  std::function<void(int count)> on_waiting;

  /// A replacement with this number has been started as the process `local`.
  void started(int local, int number) {
    at(local) = {process::state::starting, number, 1};
    if (store_) tasks_.start(await_arrival(local, number, 1));
  }
  /// The process has ended. If it `may_come_back`, a replacement follows.
  void ended(int local, bool may_come_back) {
    const bool has_waited = at(local).is == process::state::waiting;
    at(local).is = may_come_back ? process::state::starting : process::state::gone;
    if (has_waited) on_waiting(count(process::state::waiting));
  }
  /// Returns whether the process is a rank of a world, or was one.
  bool has_place(int local) const { return at(local).is == process::state::member; }

 private:
  struct process {
    enum class state {
      member,    // a rank of a world
      starting,  // a replacement that has not come yet
      waiting,   // a replacement without a place
      gone,      // it has ended, and no replacement follows
    };
    state is = state::member;
    int replacement = 0;  // its number, or 0 for a process of the start of the job
    int attempt = 0;      // how often it has waited for a place
  };

  process& at(int local) { return processes_[static_cast<std::size_t>(local)]; }
  const process& at(int local) const { return processes_[static_cast<std::size_t>(local)]; }

  colls::hello make_hello() const {
    return colls::detail::make_launcher_hello(first_.started_job(), first_.checksum);
  }

  colls::task<> connect(colls::endpoint address, std::vector<int> members) {
    try {
      colls::secret key(first_.secret);
      store_ = co_await colls::detail::dial_store_once(engine_, address, make_hello(), key,
                                                       colls::never, 10 * colls::seconds);
    } catch (const colls::error& failed) {
      colls::log_warn("no rank can be replaced: %s", failed.what());
      co_return;
    }
    for (int local = 0; local < options_.local_size; ++local) {
      const int number = at(local).replacement;
      if (number > 0) tasks_.start(await_arrival(local, number, 1));
    }
    tasks_.start(answer_requests(0, std::move(members)));
  }

  colls::task<> await_arrival(int local, int number, int attempt) {
    try {
      co_await store_->get(colls::detail::arrival_key(number, attempt), colls::never - 1);
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
      co_return;
    }
    process& it = at(local);
    if (it.replacement != number) co_return;
    it.is = process::state::waiting;
    it.attempt = attempt;
    on_waiting(count(process::state::waiting));
  }

  // Answers the requests of the ranks of one generation, whose processes are `members`.
  colls::task<> answer_requests(int generation, std::vector<int> members) {
    std::optional<std::vector<int>> left;  // of the last request
    try {
      for (int number = 1;; ++number) {
        const std::string text =
            co_await store_->get(colls::detail::repair_key(generation, number), colls::never - 1);
        const auto request = colls::repair_request::parse(text);
        std::string answer;
        if (const char* const problem = find_problem(request, generation, members, left)) {
          answer = std::string(colls::detail::refused_prefix) + problem;
        } else {
          left = request->left;
          auto answering = make_answer(*request, generation, members);
          answer = co_await answering;
        }
        co_await store_->set(colls::detail::repair_answer_key(generation, number), answer);
      }
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
    }
  }

  // Returns why the launcher refuses a request, or null.
  const char* find_problem(const std::optional<colls::repair_request>& request, int generation,
                           const std::vector<int>& members,
                           const std::optional<std::vector<int>>& left) {
    if (!request || request->left.back() >= static_cast<int>(members.size()))
      return "the launcher does not understand the request";
    if (request->at_least > options_.local_size)
      return "at_least is more than the number of ranks at the start";
    if (generation < confirmed_) return "other ranks have repaired the world";
    confirmed_ = generation;
    // Ranks that were left out earlier, for example in another part of a network, may not come back.
    const bool is_part = !left || std::includes(left->begin(), left->end(), request->left.begin(),
                                                request->left.end());
    return is_part ? nullptr : "other ranks have repaired the world";
  }

  colls::task<std::string> make_answer(const colls::repair_request& request, int generation,
                                       const std::vector<int>& members) {
    std::vector<int> left;
    for (const int rank : request.left) left.push_back(members[static_cast<std::size_t>(rank)]);
    const colls::time_point began = engine_.now();
    const colls::time_point deadline =
        colls::time_span::from_nanoseconds(request.wait).after(began);
    bool has_killed = false;
    while (is_awaited(left) && engine_.now() < deadline) {
      co_await engine_.sleep_until(engine_.now() + 2 * colls::milliseconds);
      // The ranks that are left may know of the end of a process before this launcher does.
      const bool is_time = engine_.now() >= began + 200 * colls::milliseconds;
      if (is_time && !std::exchange(has_killed, true)) kill_all_but(left);
    }
    const bool all_live = std::all_of(left.begin(), left.end(), [this](int local) {
      return has_place(local) && is_running(local);
    });
    if (!all_live) co_return std::string(colls::detail::lost_answer);
    const int waiting = count(process::state::waiting);
    const int total = static_cast<int>(left.size()) + waiting;
    const int needed = request.at_least > 0 ? request.at_least : options_.local_size;
    if (total < needed) {
      co_return fmt::format("{}there are {} ranks, {} of them replacements, and {} are needed",
                            colls::detail::refused_prefix, total, waiting, needed);
    }
    if (waiting == 0) co_return std::string(colls::detail::unchanged_answer);
    co_return make_next_world(left, generation, members);
  }

  int count(process::state wanted) const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [=](const process& each) { return each.is == wanted; }));
  }
  // Ends the processes that the ranks that are left have excluded.
  void kill_all_but(const std::vector<int>& left) {
    for (int local = 0; local < options_.local_size; ++local) {
      const bool is_left = std::find(left.begin(), left.end(), local) != left.end();
      if (!is_left && has_place(local)) on_kill(local);
    }
  }
  // Returns whether a replacement may come that waits for no place yet.
  bool is_awaited(const std::vector<int>& left) const {
    for (int local = 0; local < options_.local_size; ++local) {
      const bool is_left = std::find(left.begin(), left.end(), local) != left.end();
      // A process that has a place and is not left ends soon.
      if (!is_left && (has_place(local) || at(local).is == process::state::starting)) return true;
    }
    return false;
  }

  std::string make_next_world(const std::vector<int>& left, int generation,
                              const std::vector<int>& members) {
    colls::next_world next;
    world shared = first_;
    shared.generation = next.generation = generation + 1;
    shared.members.clear();
    for (int local = 0; local < options_.local_size; ++local) {
      const bool is_left = std::find(left.begin(), left.end(), local) != left.end();
      if (!is_left && at(local).is != process::state::waiting) continue;
      const auto previous = std::find(members.begin(), members.end(), local);
      shared.members.push_back(local);
      next.previous_ranks.push_back(is_left ? static_cast<int>(previous - members.begin()) : -1);
    }
    const colls::endpoint launcher = server_.local();
    const colls::listener listener = listen_at(options_, launcher.address().to_string(), 0);
    const colls::endpoint store = listener.local();
    shared.store = next.store =
        "tcp://" + colls::detail::host_and_port(store.address().to_string(), store.port());
    on_next_world(shared, listener);
    const std::string text = next.text();
    for (std::size_t rank = 0; rank < shared.members.size(); ++rank) {
      process& each = at(shared.members[rank]);
      if (each.is != process::state::waiting) continue;
      each.is = process::state::member;
      const int local = shared.members[rank];
      tasks_.start(give_place(each.replacement, each.attempt, fmt::format("{} {}", rank, text)));
      tasks_.start(await_arrival(local, each.replacement, each.attempt + 1));
    }
    tasks_.start(answer_requests(next.generation, std::move(shared.members)));
    return text;
  }

  colls::task<> give_place(int number, int attempt, std::string place) {
    try {
      co_await store_->set(colls::detail::place_key(number, attempt), place);
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
    }
  }

  colls::engine& engine_;
  const options& options_;
  const world& first_;
  std::vector<process> processes_;  // by local rank
  int confirmed_ = 0;               // the last generation of which ranks have asked for the next
  colls::store_server server_;
  std::shared_ptr<colls::tcp_store> store_;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
