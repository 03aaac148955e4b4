// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Runs one collective on all ranks of a simulated world.

#include "job.hpp"

#include <algorithm>
#include <optional>

namespace sim {

/// All ranks call once at the same virtual time. The plan may inject faults into some of them. If
/// `costs` are given, algorithms are chosen by them.
class simulation final : colls::simulated_world::fault_handler {
 public:
  simulation(const options& opts, job& work, const std::optional<colls::network_cost>& costs = {})
      : world_(opts.ranks, opts.world()), job_(work) {
    for (const auto& planned : opts.world().plan.faults) {
      if (planned.type == colls::simulated::fault::kind::wrong_argument) {
        throw refusal("wrong_argument is not supported: all ranks make the same call here");
      }
    }
    world_.set_fault_handler(static_cast<fault_handler&>(*this));
    const auto ranks = static_cast<std::size_t>(opts.ranks);
    comms_.reserve(ranks);
    for (int rank = 0; rank < opts.ranks; ++rank) {
      comms_.push_back(colls::simulated::join(world_, rank));
      if (costs) comms_.back().set_costs(*costs);
    }
    world_.run_until([&] { return world_.is_quiescent(); });
    world_.reset_counters();
    began_ = ended_ = world_.time();
    completions_ = std::vector<call_completion>(ranks);
    calls_.resize(ranks);
    for (int rank = 0; rank < opts.ranks; ++rank) begin(rank);
    stuck_ = !world_.run_until([&] { return in_flight_ == 0; });
  }

  const colls::simulated_world& world() const { return world_; }
  /// The communicator of a rank that no fault has destroyed.
  const communicator& comm_of(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  colls::simulated::ticks duration() const { return ended_ - began_; }
  /// If no event is left and calls have not ended: the waiting ranks, and for which ranks they
  /// wait.
  std::string stuck_report() { return stuck_ ? world_.waiting_report() : std::string(); }

  /// Calls `callback(failure)` for each rank whose call failed.
  template <class Callback>
  void for_each_failure(Callback callback) const {
    for (const auto& call : calls_) {
      if (call && call->reason().code != colls::errc{}) callback(call->reason());
    }
  }
  /// Returns whether the calls of all ranks have ended without an error.
  bool has_succeeded() const {
    return !stuck_ && std::all_of(calls_.begin(), calls_.end(), [](const auto& call) {
      return call && call->reason().code == colls::errc{};
    });
  }

 private:
  using fault = colls::simulated::fault;

  struct call_completion : colls::completion {
    simulation* owner = nullptr;
    bool pending = false;
  };

  void begin(int rank) {
    auto& done = completions_[static_cast<std::size_t>(rank)];
    done.owner = this;
    done.bind(
        [](colls::completion& self) noexcept {
          auto& completed = static_cast<call_completion&>(self);
          completed.owner->ended(completed);
        },
        colls::completion(nullptr, &world_[rank].queue()));
    auto& call = calls_[static_cast<std::size_t>(rank)];
    call.emplace(job_.start(comms_[static_cast<std::size_t>(rank)]));
    done.pending = true;
    ++in_flight_;
    if (call->start(done)) ended(done);
  }
  void ended(call_completion& done) {
    if (!std::exchange(done.pending, false)) return;
    --in_flight_;
    ended_ = world_.time();
  }

  void handle(const fault& injected) override {
    const auto rank = static_cast<std::size_t>(injected.rank);
    switch (injected.type) {
      case fault::kind::destroy:
        comms_[rank] = {};
        break;
      case fault::kind::cancel:
        cancel(rank);
        break;
      default:
        cancel(rank);
        comms_[rank] = {};
    }
  }
  void cancel(std::size_t rank) {
    calls_[rank].reset();
    ended(completions_[rank]);
  }

  colls::simulated_world world_;
  job& job_;
  std::vector<communicator> comms_;
  std::vector<call_completion> completions_;
  std::vector<std::optional<colls::operation<>>> calls_;
  std::size_t in_flight_ = 0;
  bool stuck_ = false;
  colls::simulated::ticks began_ = 0;
  colls::simulated::ticks ended_ = 0;
};

}  // namespace sim
