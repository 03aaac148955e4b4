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
#include <map>
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
    world members_listed = first;
    for (int local = 0; local < opts.local_size; ++local) members_listed.members.push_back(local);
    tasks_.start(connect(listener.local(), std::move(members_listed)));
  }

  /// Called with each next world. `members` are the processes of its ranks.
  std::function<void(const world& next, const colls::listener& listener)> on_next_world;
  /// Returns whether the process runs.
  std::function<bool(int local)> is_running;
  /// Called when a process must end, because the other ranks go on without it.
  std::function<void(int local)> on_kill;
  /// Called when the ranks of the world with this number, which is another one than before, have asked
  /// for the next.
  std::function<void(int number)> on_request;
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
    end_wait(local);
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

  // The value of keys that are set only to end the tasks that wait for them.
  static constexpr const char* over = "over";

  static bool contains(const std::vector<int>& processes, int local) {
    return std::find(processes.begin(), processes.end(), local) != processes.end();
  }

  process& at(int local) { return processes_[static_cast<std::size_t>(local)]; }
  const process& at(int local) const { return processes_[static_cast<std::size_t>(local)]; }

  colls::hello make_hello() const {
    return colls::detail::make_launcher_hello(first_.started_job(), first_.checksum);
  }

  colls::task<> connect(colls::endpoint address, world asking) {
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
    tasks_.start(answer_requests(std::move(asking)));
  }

  // Ends the task that waits until the replacement `local`, which has ended, comes.
  void end_wait(int local) {
    const process& it = at(local);
    const int attempt = it.is == process::state::member ? it.attempt + 1 : it.attempt;
    if (store_ && it.replacement > 0)
      tasks_.start(set(colls::detail::arrival_key(it.replacement, attempt), over));
  }
  colls::task<> await_arrival(int local, int number, int attempt) {
    std::string value;
    try {
      value = co_await store_->get(colls::detail::arrival_key(number, attempt), colls::never - 1);
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
      co_return;
    }
    process& it = at(local);
    if (it.replacement != number || value == over) co_return;
    it.is = process::state::waiting;
    it.attempt = attempt;
    on_waiting(count(process::state::waiting));
  }

  // Answers the requests of the ranks of the world `asking`.
  colls::task<> answer_requests(world asking) {
    std::optional<std::vector<int>> left;  // of the last request
    try {
      for (int number = 1; asking.number >= confirmed_; ++number) {
        awaited_[asking.number] = number;
        const std::string text = co_await store_->get(
            colls::detail::repair_key(asking.number, number), colls::never - 1);
        const auto request = colls::repair_request::parse(text);
        std::string answer;
        if (const char* const problem = find_problem(request, asking, left)) {
          answer = std::string(colls::detail::refused_prefix) + problem;
        } else {
          left = request->left;
          auto answering = make_answer(*request, asking);
          answer = co_await answering;
        }
        co_await store_->set(colls::detail::repair_answer_key(asking.number, number), answer);
      }
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
    }
  }

  // Returns why the launcher refuses a request, or null.
  const char* find_problem(const std::optional<colls::repair_request>& request, const world& asking,
                           const std::optional<std::vector<int>>& left) {
    if (asking.number < confirmed_) return "other ranks have repaired the world";
    if (!request || request->left.back() >= static_cast<int>(asking.members.size()))
      return "the launcher does not understand the request";
    if (request->at_least > options_.local_size)
      return "at_least is more than the number of ranks at the start";
    confirm(asking.number);
    // Ranks that were left out earlier, for example in another part of a network, may not come back.
    const bool is_part = !left || std::includes(left->begin(), left->end(), request->left.begin(),
                                                request->left.end());
    return is_part ? nullptr : "other ranks have repaired the world";
  }

  // Ranks of the world with this number have asked for the next, so there is no earlier world any more.
  void confirm(int number) {
    if (number == confirmed_) return;
    confirmed_ = number;
    on_request(number);
    // The tasks that wait for requests of these worlds end.
    for (; !awaited_.empty() && awaited_.begin()->first < number;
         awaited_.erase(awaited_.begin())) {
      const auto [world, request] = *awaited_.begin();
      tasks_.start(set(colls::detail::repair_key(world, request), over));
    }
  }

  colls::task<std::string> make_answer(const colls::repair_request& request, const world& asking) {
    std::vector<int> left;
    for (const int rank : request.left)
      left.push_back(asking.members[static_cast<std::size_t>(rank)]);
    const colls::time_point began = engine_.now();
    const colls::time_point deadline =
        colls::time_span::from_nanoseconds(request.wait).after(began);
    bool has_killed = false;
    while (all_live(left) && is_awaited(left) && engine_.now() < deadline) {
      co_await engine_.sleep_until(engine_.now() + 2 * colls::milliseconds);
      // The ranks that are left may know of the end of a process before this launcher does.
      const auto others = static_cast<std::size_t>(count_others(left));
      const colls::time_point elapsed = engine_.now() - began;
      if (others >= left.size() && elapsed >= 2 * colls::seconds) {
        co_return fmt::format("{}most of the ranks that live are not among those that are left",
                              colls::detail::refused_prefix);
      }
      const bool is_time = others < left.size() && elapsed >= 200 * colls::milliseconds;
      if (is_time && !std::exchange(has_killed, true)) kill_all_but(left);
    }
    if (!all_live(left)) co_return std::string(colls::detail::lost_answer);
    const int waiting = count(process::state::waiting);
    const int total = static_cast<int>(left.size()) + waiting;
    const int needed = request.at_least > 0 ? request.at_least : options_.local_size;
    if (total < needed) {
      co_return fmt::format("{}there are {} ranks, {} of them replacements, and {} are needed",
                            colls::detail::refused_prefix, total, waiting, needed);
    }
    if (waiting == 0) co_return std::string(colls::detail::unchanged_answer);
    std::string answer;
    try {
      answer = make_next_world(left, asking);
    } catch (const std::exception& failed) {
      answer = fmt::format("{}the launcher cannot serve the next world: {}",
                           colls::detail::refused_prefix, failed.what());
    }
    co_return answer;
  }

  bool all_live(const std::vector<int>& left) const {
    return std::all_of(left.begin(), left.end(),
                       [this](int local) { return has_place(local) && is_running(local); });
  }
  // Returns the number of processes that run, have a place, and are not left.
  int count_others(const std::vector<int>& left) const {
    int others = 0;
    for (int local = 0; local < options_.local_size; ++local) {
      others += !contains(left, local) && has_place(local) && is_running(local) ? 1 : 0;
    }
    return others;
  }
  int count(process::state wanted) const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [=](const process& each) { return each.is == wanted; }));
  }
  // Ends the processes that the ranks that are left have excluded.
  void kill_all_but(const std::vector<int>& left) {
    for (int local = 0; local < options_.local_size; ++local) {
      if (!contains(left, local) && has_place(local)) on_kill(local);
    }
  }
  // Returns whether a replacement may come that waits for no place yet.
  bool is_awaited(const std::vector<int>& left) const {
    for (int local = 0; local < options_.local_size; ++local) {
      // A process that has a place and is not left ends soon.
      if (!contains(left, local) && (has_place(local) || at(local).is == process::state::starting))
        return true;
    }
    return false;
  }

  std::string make_next_world(const std::vector<int>& left, const world& asking) {
    colls::next_world next;
    world made = first_;
    made.number = next.number = ++worlds_;
    made.generation = next.generation = asking.generation + 1;
    made.members.clear();
    for (int local = 0; local < options_.local_size; ++local) {
      if (!contains(left, local) && at(local).is != process::state::waiting) continue;
      made.members.push_back(local);
      next.previous_ranks.push_back(contains(left, local) ? asking.rank_of(local) : -1);
    }
    const colls::endpoint launcher = server_.local();
    const colls::listener listener = listen_at(options_, launcher.address().to_string(), 0);
    const colls::endpoint store = listener.local();
    made.store = next.store =
        "tcp://" + colls::detail::host_and_port(store.address().to_string(), store.port());
    on_next_world(made, listener);
    const std::string text = next.text();
    for (std::size_t rank = 0; rank < made.members.size(); ++rank) {
      const int local = made.members[rank];
      process& each = at(local);
      if (each.is != process::state::waiting) continue;
      each.is = process::state::member;
      tasks_.start(set(colls::detail::place_key(each.replacement, each.attempt),
                       fmt::format("{} {}", rank, text)));
      tasks_.start(await_arrival(local, each.replacement, each.attempt + 1));
    }
    tasks_.start(answer_requests(std::move(made)));
    return text;
  }

  colls::task<> set(std::string key, std::string value) {
    try {
      co_await store_->set(key, value);
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
    }
  }

  colls::engine& engine_;
  const options& options_;
  const world& first_;
  std::vector<process> processes_;  // by local rank
  int worlds_ = 0;                  // that have been made after the first
  int confirmed_ = 0;           // the number of the last world whose ranks have asked for the next
  std::map<int, int> awaited_;  // by world: the number of the request that is awaited
  colls::store_server server_;
  std::shared_ptr<colls::tcp_store> store_;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
