// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Connects the ranks of one node in one start with the coordinator.

#include "coordinator.hpp"
#include "failure_channel.hpp"
#include "job.hpp"
#include "launcher_link.hpp"
#include "launcher_messages.hpp"
#include "options.hpp"
#include "world.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// What a launcher needs to take part in a job whose starts node 0 decides.
struct coordination {
  coordination(colls::engine& engine, const options& o, const world& shared,
               const colls::listener& socket)
      : link(engine, o, shared) {
    if (o.node_rank == 0) local_coordinator.emplace(engine, o, shared, socket);
  }
  launcher_link link;
  std::optional<coordinator> local_coordinator;  // on node 0
  bool has_ended = false;                        // the coordinator has said so while ranks ran
};

/// Connects a job with the coordinator, for one start.
class coordinated_job {
 public:
  using open_channel = std::function<void(const world&, const colls::listener&)>;

  coordinated_job(coordination& with, job& running, const options& o, const world& shared,
                  std::vector<std::unique_ptr<failure_channel>>& channels, open_channel open)
      : with_(with),
        running_(running),
        options_(o),
        next_(shared),
        channels_(channels),
        open_(std::move(open)) {
    running.on_ended = [this](int local) { with_.link.send(fmt::format("ended {}", local)); };
    running.on_replacement_needed = [this](int local) {
      with_.link.send(fmt::format("failed {}", local));
    };
    running.on_done = [this](int local, bool is_well) {
      with_.link.send(fmt::format("done {} {}", local, is_well ? 1 : 0));
    };
    running.on_final = [this] {
      if (!with_.has_ended) with_.link.send("final");
    };
    with.link.on_change = [this] { receive(); };
    if (with.local_coordinator) serve(*with.local_coordinator);
    receive();
  }
  coordinated_job(const coordinated_job&) = delete;
  ~coordinated_job() {
    with_.link.on_change = nullptr;
    if (!with_.local_coordinator) return;
    with_.local_coordinator->on_print = nullptr;
    with_.local_coordinator->on_node_lost = nullptr;
    if (auto& replacing = with_.local_coordinator->replacing()) {
      replacing->on_next_world = nullptr;
      replacing->on_waiting = nullptr;
      replacing->on_failed = nullptr;
    }
  }

 private:
  void serve(coordinator& center) {
    center.on_print = [this](const std::string& line) { running_.print(line); };
    center.on_node_lost = [this](int node) {
      for (const auto& each : channels_) {
        each->announce_unjoined(node * options_.local_size, options_.local_size,
                                "the launcher of its node is gone, and it had not joined");
      }
    };
    auto& replacing = center.replacing();
    if (!replacing) return;
    replacing->on_next_world = [this](const world& next, const colls::listener& listener) {
      open_(next, listener);
    };
    replacing->on_waiting = [this](int count) {
      for (const auto& each : channels_) each->announce_waiting(count);
    };
    // The launcher of another node may not have opened its channel yet.
    replacing->on_failed = [this](int process) {
      const int local = process - options_.first_rank();
      if (local >= 0 && local < options_.local_size) return;
      for (const auto& each : channels_)
        each->announce_unjoined(process, 1, "it failed, and had not joined");
    };
  }

  void receive() {
    while (const auto text = with_.link.take()) handle(*text);
    if (!with_.link.problem().empty())
      running_.handle_reported_failure(-1, with_.link.problem(), true);
  }

  void handle(const std::string& text) {
    std::istringstream in(text);
    const std::string kind = kind_of(in);
    int number = 0;
    if (kind == "end") {
      with_.has_ended = true;
      return running_.end(rest_of(in));
    }
    if (kind == "world") {
      const bool is_known =
          with_.local_coordinator.has_value();  // the coordinator has said so itself
      if (!is_known && next_.read(in, options_.most_nodes * options_.local_size))
        open_(next_, colls::listener());
      return;
    }
    if (!(in >> number) || number < 0) return;
    if (kind == "confirm") {
      std::erase_if(channels_, [=](const auto& each) { return each->world_number() < number; });
    } else if (kind == "dismiss") {
      running_.dismiss_waiting(number != 0);
    } else if (number < options_.local_size) {
      int replacement = 0, used = 0;
      if (kind == "kill") running_.kill(number);
      if (kind == "no_more") running_.refuse_replacement(number, rest_of(in));
      if (kind == "replace" && in >> replacement >> used)
        running_.start_replacement(number, replacement, used);
    }
  }

  coordination& with_;
  job& running_;
  const options& options_;
  world next_;
  std::vector<std::unique_ptr<failure_channel>>& channels_;
  open_channel open_;
};

}  // namespace launcher
