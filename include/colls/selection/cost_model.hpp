// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cost_model: predicts the cost of a call with a given algorithm, from the formula of the algorithm
// and the costs of the network. docs/algorithms.md has a table of the formulas.

#include <colls/algorithm/description.hpp>

namespace colls {

/// A model that predicts the cost of one call on `ranks` ranks. `bytes` is the length of the whole
/// vector, or for all_to_all the length of one rank's vector. Each host runs `per_host` consecutive
/// ranks; the last host may run fewer. The model assumes that all chunks (the parts of the vector
/// that belong to one rank each) have the same length. The predicted numbers of messages and bytes
/// are sums over all ranks. The predicted time is that of the critical path (the longest chain of
/// messages).
class cost_model {
 public:
  constexpr cost_model(const network_cost& net, std::uint64_t bytes, int ranks, int per_host)
      : model_(net, bytes, ranks, per_host) {}

  /// Returns the predicted cost of the call with the algorithm `info` and the parameters of
  /// `choice`.
  constexpr cost predict(const algorithm_info& info, const algorithm_choice& choice) const {
    if (model_.ranks() == 1) return model_.finish({});
    const loggp::phase all = info.cost(model_, choice);
    const cost chain = model_.finish(all);
    if (!model_.shares_cores()) return chain;
    // The same call where each message waits for a core.
    const loggp_model waiting(model_.waiting_network(), model_.bytes(), model_.ranks(),
                              model_.per_host());
    const picoseconds waited =
        waiting.finish(info.cost(waiting, choice)).time + all.time_slices * model_.slice_wait();
    return {chain.messages, chain.bytes, loggp::max(chain.time, waited + model_.busy_time(all))};
  }

  /// Returns the length in bytes of the longest part of the vector that the algorithm cuts into
  /// segments, or 0 if it cuts nothing.
  constexpr std::uint64_t segmented_bytes(const algorithm_info& info) const {
    return info.segmented_bytes(model_);
  }

 private:
  loggp_model model_;
};

}  // namespace colls
