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
  /// Called when a process must end, because the other ranks go on without it.
  std::function<void(int local)> on_kill;

  /// A replacement with this number has been started as the process `local`.
  void started(int local, int number) {
    at(local) = {process::state::starting, number};
    if (store_) tasks_.start(await_arrival(local, number));
  }
  /// The process has ended. If it `may_come_back`, a replacement follows.
  void ended(int local, bool may_come_back) {
    at(local).is = may_come_back ? process::state::starting : process::state::gone;
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
      if (number > 0) tasks_.start(await_arrival(local, number));
    }
    tasks_.start(answer_requests(0, std::move(members)));
  }

  colls::task<> await_arrival(int local, int number) {
    try {
      co_await store_->get(colls::detail::arrival_key(number), colls::never - 1);
    } catch (const colls::error& lost) {
      colls::log_debug("the launcher's store: %s", lost.what());
      co_return;
    }
    process& it = at(local);
    if (it.replacement == number && it.is == process::state::starting)
      it.is = process::state::waiting;
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
    for (int local = 0; local < options_.local_size; ++local) {
      const bool is_left = std::find(left.begin(), left.end(), local) != left.end();
      if (!is_left && has_place(local) && on_kill) on_kill(local);
    }
    const colls::time_point deadline =
        colls::time_span::from_nanoseconds(request.wait).after(engine_.now());
    while (count(process::state::starting) + count_killed(left) > 0 && engine_.now() < deadline) {
      co_await engine_.sleep_until(engine_.now() + 2 * colls::milliseconds);
    }
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
  // Returns the number of processes that have a place and are not left. They end soon.
  int count_killed(const std::vector<int>& left) const {
    return count(process::state::member) - static_cast<int>(left.size());
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
      tasks_.start(give_place(each.replacement, fmt::format("{} {}", rank, text)));
    }
    tasks_.start(answer_requests(next.generation, std::move(shared.members)));
    return text;
  }

  colls::task<> give_place(int number, std::string place) {
    try {
      co_await store_->set(colls::detail::place_key(number), place);
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
