// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The command line of colls-sim.

#include <CLI/CLI.hpp>

#include <colls/transport/simulated/simulated_transport.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace sim {

/// A request of the user that cannot be carried out: printed in one line, exit status 2.
struct refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct options {
  std::string collective;
  std::string algorithm = "auto";
  int ranks = 0;
  std::optional<std::uint64_t> count;
  std::optional<std::uint64_t> bytes;
  std::string dtype = "float";
  int root = 0;
  std::uint64_t segment = 0;
  int radix = 0;
  colls::simulated::network_settings network;
  std::string topology = "flat";
  std::uint64_t seed = 0;
  std::string payload = "real";
  std::string plan;
  std::string trace;
  std::string draw;

  bool is_phantom() const { return payload == "phantom"; }

  colls::collective operation() const {
    for (int i = 1; i <= static_cast<int>(colls::collective::exscan); ++i) {
      const auto known = static_cast<colls::collective>(i);
      if (known != colls::collective::split && name(known) == collective) return known;
    }
    throw refusal("no collective is named " + collective);
  }
  colls::algorithm pinned_algorithm() const {
    if (const auto known = colls::algorithm_of(algorithm)) return *known;
    throw refusal("no algorithm is named " + algorithm);
  }
  /// The number of elements of the whole vector.
  std::uint64_t elements(std::size_t size) const {
    if (operation() == colls::collective::barrier) return 0;
    if (count && bytes) throw refusal("give --count or --bytes, not both");
    if (count) {
      if (*count > (std::uint64_t{1} << 43) / size) throw refusal("--count is too large");
      return *count;
    }
    if (!bytes) throw refusal("a size is missing: --count N elements, or --bytes N");
    if (*bytes > std::uint64_t{1} << 43) throw refusal("--bytes is too large");
    if (*bytes % size != 0) {
      throw refusal("--bytes " + std::to_string(*bytes) + " is no multiple of " +
                    std::to_string(size) + ", the size of " + dtype);
    }
    return *bytes / size;
  }
  colls::simulated_world::settings world() const {
    colls::simulated_world::settings result;
    result.network = network;
    result.network.wiring = colls::simulated::topology::parse(topology);
    result.seed = seed;
    result.phantom = is_phantom();
    result.traced = !trace.empty() || !draw.empty();
    if (plan.empty()) return result;
    std::ifstream file(plan);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file || std::filesystem::is_directory(plan)) throw refusal("cannot read the plan " + plan);
    result.plan = colls::simulated::fault_plan::parse(text);
    return result;
  }
};

inline void declare(CLI::App& app, options& opts) {
  // CLI11 reads -1 as the largest unsigned number.
  const CLI::Validator natural(
      [](std::string& text) {
        const bool is_natural = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
        return is_natural ? std::string() : "'" + text + "' is not a natural number";
      },
      "");
  app.add_option("collective", opts.collective, "all_reduce, broadcast, barrier, ...")->required();
  app.add_option("--algorithm", opts.algorithm, "A name, or auto")->capture_default_str();
  app.add_option("--ranks", opts.ranks)->required();
  app.add_option("--count", opts.count, "Elements of the whole vector")->check(natural);
  app.add_option("--bytes", opts.bytes, "The same in bytes: 8, 64K, 16M")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--dtype", opts.dtype)
      ->check(CLI::IsMember({"float", "double", "int32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--root", opts.root)->capture_default_str();
  app.add_option("--segment", opts.segment, "Bytes of a pipelined piece; 0: the algorithm's choice")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--radix", opts.radix, "Of bruck, dissemination, knomial_tree; 0: the default")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--latency-us", opts.network.latency_us)->capture_default_str();
  app.add_option("--overhead-us", opts.network.overhead_us, "Of each message, at either end")
      ->capture_default_str();
  app.add_option("--bandwidth", opts.network.bandwidth, "GB/s of a link")->capture_default_str();
  app.add_option("--topology", opts.topology, "flat, nodes:8, fat_tree:16:4, torus:8x8x4")
      ->capture_default_str();
  app.add_option("--seed", opts.seed)->check(natural)->capture_default_str();
  app.add_option("--payload", opts.payload, "phantom: messages have lengths but no bytes")
      ->check(CLI::IsMember({"real", "phantom"}))
      ->capture_default_str();
  app.add_option("--plan", opts.plan, "A file with a plan of faults");
  app.add_option("--trace", opts.trace, "Write a trace for Perfetto or chrome://tracing");
  app.add_option("--draw", opts.draw, "Write a picture (SVG) of the messages of 2 to 32 ranks");
}

}  // namespace sim
