// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Gives replacements of failed ranks their places when the ranks that are left repair the world.

#include "launcher_messages.hpp"
#include "options.hpp"
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

/// Answers the ranks that are left when they ask for their next world in the store of the
/// launchers, and knows the replacements that wait there for their places. Its processes are
/// numbered by node: the ranks of the start of the job come first.
class replacements {
 public:
  replacements(colls::engine& driver, const options& opts, const world& shared)
      : engine_(driver),
        options_(opts),
        shared_(shared),
        processes_(static_cast<std::size_t>(opts.size())),
        tasks_(driver) {}

  /// Called to send a message to the launcher of a node, or of all nodes (-1).
  std::function<void(int node, const std::string& text)> tell;
  /// Called with each next world. `members` are the processes of its ranks.
  std::function<void(const world& next, const colls::listener& listener)> on_next_world;
  /// Called when the number of replacements that wait for a place has changed.
  std::function<void(int count)> on_waiting;
  /// Called when a process has failed.
  std::function<void(int process)> on_failed;

  void connect(std::shared_ptr<colls::tcp_store> store) { store_ = std::move(store); }
  /// The ranks of `nodes` nodes have been told to start.
  void begin(int nodes) {
    first_nodes_ = nodes;
    world first = shared_;
    for (int process = 0; process < first_size(); ++process) {
      at(process) = {record::state::member, true};
      first.members.push_back(process);
    }
    tasks_.start(answer_requests(std::move(first)));
  }
  int first_nodes() const { return first_nodes_; }
  /// Returns whether no rank is left that could give places to replacements.
  bool is_dismissed() const { return is_dismissed_; }

  /// A node has come whose processes are replacements. Returns the number of the first of them.
  int come(int node) {
    for (int local = 0; local < options_.local_size; ++local) {
      start(node * options_.local_size + local, numbers_ + 1 + local);
    }
    numbers_ += options_.local_size;
    return numbers_ - options_.local_size + 1;
  }
  /// The launcher of a node has gone, and so have its processes.
  void lost(int node) {
    for (int local = 0; local < options_.local_size; ++local) {
      leave(node * options_.local_size + local);
    }
    dismiss_waiting();
  }

  /// Handles a message of the launcher of a node: `ended LOCAL`, once its process has ended; and
  /// then `failed LOCAL`, if a replacement is to follow, or `done LOCAL WELL`.
  void handle(int node, const std::string& kind, std::istream& in) {
    int local = -1, is_well = 0;
    if (!(in >> local) || local < 0 || local >= options_.local_size) return;
    const int process = node * options_.local_size + local;
    if (kind == "ended") {
      at(process).runs = false;
    } else if (kind == "failed") {
      if (on_failed) on_failed(process);
      replace(process);
    } else if (kind == "done" && in >> is_well) {
      if (is_well == 0 && on_failed) on_failed(process);
      has_success_ |= is_well != 0;
      leave(process);
      dismiss_waiting();
    }
  }

 private:
  struct record {
    enum class state {
      gone,      // it has ended, and no replacement follows
      member,    // a rank of a world
      starting,  // a replacement that has not come yet
      waiting,   // a replacement without a place
    };
    state is = state::gone;
    bool runs = false;
    int replacement = 0;  // its number, or 0 for a process of the start of the job
    int attempt = 0;      // how often it has waited for a place
  };

  // The value of keys that are set only to end the tasks that wait for them.
  static constexpr const char* over = "over";

  static bool contains(const std::vector<int>& processes, int each) {
    return std::find(processes.begin(), processes.end(), each) != processes.end();
  }

  record& at(int process) { return processes_[static_cast<std::size_t>(process)]; }
  const record& at(int process) const { return processes_[static_cast<std::size_t>(process)]; }
  int count_all() const { return static_cast<int>(processes_.size()); }
  int first_size() const { return first_nodes_ * options_.local_size; }
  bool has_place(int process) const { return at(process).is == record::state::member; }

  void tell_owner(const char* kind, int process, const std::string& more = "") {
    tell(process / options_.local_size,
         fmt::format("{} {}{}", kind, process % options_.local_size, more));
  }

  void announce_waiting() {
    if (on_waiting) on_waiting(count(record::state::waiting));
  }

  // A replacement with this number starts.
  void start(int process, int number) {
    at(process) = {record::state::starting, true, number, 1};
    tasks_.start(await_arrival(process, number, 1));
  }
  // A process has ended, and is no candidate for a place any more.
  void leave(int process) {
    const bool has_waited = at(process).is == record::state::waiting;
    end_wait(process);
    at(process).is = record::state::gone;
    at(process).runs = false;
    if (has_waited) announce_waiting();
  }

  // A rank has failed: another process takes its place, or the job ends.
  void replace(int process) {
    leave(process);
    dismiss_waiting();
    if (is_dismissed_) return tell_owner("no_more", process);
    if (used_ == options_.max_restarts) {
      return tell_owner(
          "no_more", process,
          fmt::format(" {} have been started, as many as --max-restarts allows", used_));
    }
    start(process, ++numbers_);
    tell_owner("replace", process, fmt::format(" {} {}", numbers_, ++used_));
  }

  // Ends the replacements that wait for a place if no rank is left that could give them one.
  void dismiss_waiting() {
    const bool has_ranks = std::any_of(
        processes_.begin(), processes_.end(),
        [](const record& each) { return each.runs && each.is == record::state::member; });
    if (has_ranks || std::exchange(is_dismissed_, true)) return;
    tell(-1, fmt::format("dismiss {}", has_success_ ? 1 : 0));
  }

  // Ends the task that waits until the replacement `process`, which has ended, comes.
  void end_wait(int process) {
    const auto& it = at(process);
    const int attempt = it.is == record::state::member ? it.attempt + 1 : it.attempt;
    if (it.replacement > 0)
      tasks_.start(set(colls::detail::arrival_key(it.replacement, attempt), over));
  }
  colls::task<> await_arrival(int process, int number, int attempt) {
    std::string value;
    try {
      value = co_await store_->get(colls::detail::arrival_key(number, attempt), colls::never - 1);
    } catch (const colls::error& lost) {
      colls::log_debug("the launchers' store: %s", lost.what());
      co_return;
    }
    auto& it = at(process);
    if (it.replacement != number || value == over) co_return;
    it.is = record::state::waiting;
    it.attempt = attempt;
    announce_waiting();
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
      colls::log_debug("the launchers' store: %s", lost.what());
    }
  }

  // Returns why the launcher refuses a request, or null.
  const char* find_problem(const std::optional<colls::repair_request>& request, const world& asking,
                           const std::optional<std::vector<int>>& left) {
    if (asking.number < confirmed_) return "other ranks have repaired the world";
    if (!request || request->left.back() >= static_cast<int>(asking.members.size()))
      return "the launcher does not understand the request";
    if (request->at_least > count_all()) return "at_least is more ranks than the job may have";
    confirm(asking.number);
    // Ranks that were left out earlier, for example in another part of a network, may not come
    // back.
    const bool is_part = !left || std::includes(left->begin(), left->end(), request->left.begin(),
                                                request->left.end());
    return is_part ? nullptr : "other ranks have repaired the world";
  }

  // Ranks of the world with this number have asked for the next, so there is no earlier world any
  // more.
  void confirm(int number) {
    if (number == confirmed_) return;
    confirmed_ = number;
    tell(-1, fmt::format("confirm {}", number));
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
    const int waiting = count(record::state::waiting);
    const int total = static_cast<int>(left.size()) + waiting;
    const int needed = request.at_least > 0 ? request.at_least : first_size();
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
                       [this](int each) { return has_place(each) && at(each).runs; });
  }
  // Returns the number of processes that run, have a place, and are not left.
  int count_others(const std::vector<int>& left) const {
    int others = 0;
    for (int each = 0; each < count_all(); ++each) {
      others += !contains(left, each) && has_place(each) && at(each).runs ? 1 : 0;
    }
    return others;
  }
  int count(record::state wanted) const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [=](const record& each) { return each.is == wanted; }));
  }
  // Ends the processes that the ranks that are left have excluded.
  void kill_all_but(const std::vector<int>& left) {
    for (int each = 0; each < count_all(); ++each) {
      if (!contains(left, each) && has_place(each)) tell_owner("kill", each);
    }
  }
  // Returns whether a replacement may come that waits for no place yet.
  bool is_awaited(const std::vector<int>& left) const {
    for (int each = 0; each < count_all(); ++each) {
      // A process that has a place and is not left ends soon.
      if (!contains(left, each) && (has_place(each) || at(each).is == record::state::starting))
        return true;
    }
    return false;
  }

  std::string make_next_world(const std::vector<int>& left, const world& asking) {
    colls::next_world next;
    world made = shared_;
    made.number = next.number = ++worlds_;
    made.generation = next.generation = asking.generation + 1;
    for (int each = 0; each < count_all(); ++each) {
      if (!contains(left, each) && at(each).is != record::state::waiting) continue;
      made.members.push_back(each);
      next.previous_ranks.push_back(contains(left, each) ? asking.rank_of(each) : -1);
    }
    const colls::listener listener = listen_for_ranks(options_);
    made.store = next.store = address_of(listener, options_);
    on_next_world(made, listener);
    tell(-1, made.text());
    const std::string text = next.text();
    for (std::size_t rank = 0; rank < made.members.size(); ++rank) {
      const int member = made.members[rank];
      auto& each = at(member);
      if (each.is != record::state::waiting) continue;
      each.is = record::state::member;
      tasks_.start(set(colls::detail::place_key(each.replacement, each.attempt),
                       fmt::format("{} {}", rank, text)));
      tasks_.start(await_arrival(member, each.replacement, each.attempt + 1));
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
  const world& shared_;
  std::vector<record> processes_;
  int first_nodes_ = 0;         // that were there at the start of the job
  int numbers_ = 0;             // of the replacements so far
  int used_ = 0;                // those of them that have followed a failure
  bool has_success_ = false;    // a process has ended with exit status 0
  bool is_dismissed_ = false;   // the replacements that wait are ended
  int worlds_ = 0;              // that have been made after the first
  int confirmed_ = 0;           // the number of the last world whose ranks have asked for the next
  std::map<int, int> awaited_;  // by world: the number of the request that is awaited
  std::shared_ptr<colls::tcp_store> store_;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
