// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// One simulated run from the first call to the end of the last.

#include "job.hpp"

#include <optional>

namespace sim {

/// All ranks call once at the same time; the plan may strike some of them. Algorithms are chosen by
/// `costs`, if they are given.
class simulation final : colls::simulated_world::director {
 public:
  simulation(const options& how, job& what, const std::optional<colls::network_cost>& costs = {})
      : world_(how.ranks, how.world()), what_(what) {
    for (const auto& each : how.world().plan.faults) {
      if (each.what == colls::simulated::fault::kind::wrong_argument) {
        throw refusal("here all ranks call alike: a plan with wrong_argument is for the sim tests");
      }
    }
    world_.direct_by(static_cast<director&>(*this));
    const auto ranks = static_cast<std::size_t>(how.ranks);
    comms_.reserve(ranks);
    for (int rank = 0; rank < how.ranks; ++rank) {
      comms_.push_back(colls::simulated::join(world_, rank));
      if (costs) comms_.back().set_costs(*costs);
    }
    world_.run_until([&] { return world_.is_silent(); });
    world_.forget_counts();
    began_ = ended_ = world_.time();
    ends_ = std::vector<end>(ranks);
    calls_.resize(ranks);
    for (int rank = 0; rank < how.ranks; ++rank) begin(rank);
    silent_ = !world_.run_until([&] { return under_way_ == 0; });
  }

  const colls::simulated_world& world() const { return world_; }
  /// What a rank that no fault has struck calls on.
  const communicator& comm_of(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  colls::simulated::ticks duration() const { return ended_ - began_; }
  /// Ranks that nothing can help any more, and for whom they wait.
  std::string stuck() { return silent_ ? world_.waiting() : std::string(); }

  /// Calls `visit(failure)` for each rank whose call failed.
  template <class Visit>
  void each_failure(Visit visit) const {
    for (const auto& call : calls_) {
      if (call && call->why().code != colls::errc{}) visit(call->why());
    }
  }
  bool is_whole() const {
    bool whole = !silent_;
    for (const auto& call : calls_) whole = whole && call && call->why().code == colls::errc{};
    return whole;
  }

 private:
  using fault = colls::simulated::fault;

  struct end : colls::completion {
    simulation* of = nullptr;
    bool waited_for = false;
  };

  void begin(int rank) {
    auto& waiting = ends_[static_cast<std::size_t>(rank)];
    waiting.of = this;
    waiting.become(
        [](colls::completion& self) noexcept {
          static_cast<end&>(self).of->ended(static_cast<end&>(self));
        },
        colls::completion(nullptr, &world_[rank].queue()));
    auto& call = calls_[static_cast<std::size_t>(rank)];
    call.emplace(what_.start(comms_[static_cast<std::size_t>(rank)]));
    waiting.waited_for = true;
    ++under_way_;
    if (call->start(waiting)) ended(waiting);
  }
  void ended(end& rank) {
    if (!std::exchange(rank.waited_for, false)) return;
    --under_way_;
    ended_ = world_.time();
  }

  void strike(const fault& what) override {
    const auto rank = static_cast<std::size_t>(what.rank);
    switch (what.what) {
      case fault::kind::destroy:
        comms_[rank] = {};
        break;
      case fault::kind::cancel:
        drop(rank);
        break;
      default:
        drop(rank);
        comms_[rank] = {};
    }
  }
  void drop(std::size_t rank) {
    calls_[rank].reset();
    ended(ends_[rank]);
  }

  colls::simulated_world world_;
  job& what_;
  std::vector<communicator> comms_;
  std::vector<end> ends_;
  std::vector<std::optional<colls::operation<>>> calls_;
  std::size_t under_way_ = 0;
  bool silent_ = false;
  colls::simulated::ticks began_ = 0;
  colls::simulated::ticks ended_ = 0;
};

}  // namespace sim
