// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All ranks of a world in this process, on one engine, connected by the transport of
// docs/adding_a_transport.md, for tests.

#include "../extend/socketpair.hpp"
#include "process_world.hpp"

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

class socketpair_world : public process_world<my::socketpair_transport> {
 public:
  using transport = my::socketpair_transport;

  explicit socketpair_world(int size, bool has_checksums = false) : process_world(size) {
    const auto ranks = static_cast<std::size_t>(size);
    std::vector<std::vector<my::descriptor>> ends(ranks);
    for (auto& each : ends) each.resize(ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
      for (std::size_t j = i + 1; j < ranks; ++j) {
        std::tie(ends[i][j], ends[j][i]) = my::make_socketpair();
      }
    }
    for (std::size_t i = 0; i < ranks; ++i) {
      auto info = std::make_shared<colls::world_info>();
      info->rank = static_cast<int>(i);
      info->size = size;
      info->node_of.assign(ranks, 0);
      info->cfg.checksum = has_checksums;
      info->compute_local_ranks();
      nets_[i] = std::make_shared<transport>(engine_, std::move(info), std::move(ends[i]));
    }
  }
};
