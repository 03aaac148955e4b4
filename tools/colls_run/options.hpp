// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The command line of colls-run: torchrun's flags with mpirun's aliases.

#include <colls/os/cpu_affinity.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace launcher {

/// A mistake in the command line: printed in one line, exit status 2.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What happens after a rank has failed.
enum class failure_policy {
  stop,     // the others are ended
  shrink,   // the others go on: the program shrinks its communicators
  restart,  // all are ended and started again
  replace,  // another process takes its place: the program repairs its world
};
inline constexpr const char* policy_names[] = {"stop", "shrink", "restart", "replace"};

struct options {
  int local_size = 0;
  int nodes = 1;       // in a start; as given, the same as `most_nodes`
  int most_nodes = 1;  // as many as there may be
  int min_nodes = 1;   // with which the ranks start if no more come
  int node_rank = 0;
  std::string master_addr;  // empty: not given
  int master_port = 0;      // 0: not given
  std::string job;          // empty: not given
  std::vector<std::string> exported;
  double grace = 5;
  failure_policy on_failure = failure_policy::stop;
  int max_restarts = 0;
  bool prefix = true;
  std::vector<std::string> command;

  int size() const { return nodes * local_size; }
  /// Returns whether all ranks are started again after a failure.
  bool restarts() const { return on_failure == failure_policy::restart && max_restarts > 0; }
  /// Returns whether node 0 decides when ranks start, and the other launchers wait for that.
  bool is_coordinated() const {
    return restarts() || on_failure == failure_policy::replace || min_nodes < nodes;
  }
  int first_rank() const { return node_rank * local_size; }
};

namespace detail {

inline constexpr const char* examples =
    R"(Everything after the program's name belongs to the program.

Examples:
  colls-run -n 4 ./program --epochs 3       4 processes on this machine
  colls-run -n cpu -x OMP_NUM_THREADS=1 ./program
  export COLLS_SECRET_FILE=~/secret         16 processes on two machines: this and one of
  colls-run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -n 8 ./program
  colls-run --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 -n 8 ./program
                                            typed on each of them
  colls-run --max-restarts 3 -n 4 ./program
                                            all start again after a failure, three times

A rank finds its place in COLLS_RANK, COLLS_WORLD_SIZE, COLLS_LOCAL_RANK, COLLS_LOCAL_WORLD_SIZE,
COLLS_NODE_RANK, COLLS_NNODES, COLLS_STORE, COLLS_JOB and COLLS_SECRET; COLLS_TERMINAL is 1 where
its output ends at a terminal. Rank 0 has the terminal's input, the others /dev/null.
OMP_NUM_THREADS is 1 where it is not set and N is more than 1.
With --on-failure restart, COLLS_RESTART_COUNT is how often the ranks have been started again, and
COLLS_MAX_RESTARTS how often they may be. With --on-failure replace, COLLS_LAUNCHER is where ranks ask
for replacements, and COLLS_REPLACEMENT is the number of a process that is one.

Signals (INT, TERM, HUP, QUIT, USR1, USR2, TSTP, CONT) go to every rank; a second Ctrl-C kills.
When a rank fails, the others are notified at once; those that have not ended after --grace seconds
get SIGTERM, and 3 seconds later SIGKILL. The exit status is that of the rank that failed first, or
128 + n if signal n ended it; 127: the program was not found; 126: it could not be started.
With --on-failure shrink no rank is ended: the program shrinks its communicators. The exit status is
0 if a rank of this node has ended with 0 and none has failed after that. With --on-failure restart
all ranks are started again, at most --max-restarts times. With --on-failure replace another process
takes the place of the rank when the program repairs its world, at most --max-restarts times; the exit
status is as with shrink.
With --nnodes MIN:MAX the ranks start once MAX nodes have come, or MIN or more and no further one for
30 s. A node that comes later takes part in the next start, or its processes are replacements.)";

struct formatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: colls-run -n N [options] program [arguments]\n";
  }
};

inline int parse_number(const std::string& option, const std::string& text, int low, int high) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, value);
  if (ec == std::errc::invalid_argument || stop != end) {
    throw usage_error(fmt::format("{} {} is not a whole number", option, text));
  }
  if (ec != std::errc{} || value < low || value > high) {
    throw usage_error(fmt::format("{} {} is out of range: {}..{}", option, text, low, high));
  }
  return value;
}

inline int gpus() {
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string list = visible;
    if (list.empty() || list[0] == '-') return 0;
    return static_cast<int>(std::count(list.begin(), list.end(), ',')) + 1;
  }
  glob_t found{};
  const int result = ::glob("/dev/nvidia[0-9]*", 0, nullptr, &found);
  const auto count = result == 0 ? static_cast<int>(found.gl_pathc) : 0;
  ::globfree(&found);
  return count;
}

inline int processes(const std::string& text) {
  if (text == "cpu") return colls::detail::cores();
  if (text == "gpu" || text == "auto") {
    const int found = gpus();
    if (found > 0) return found;
    if (text == "auto") return colls::detail::cores();
    throw usage_error("--nproc-per-node gpu: no GPU here");
  }
  return parse_number("--nproc-per-node", text, 1, 65536);
}

/// Splits argv before the program's name and returns the part for colls-run as CLI11 expects it:
/// torchrun's underscores become hyphens, mpirun's -np becomes -n. The rest becomes `command`.
inline std::vector<std::string> own_arguments(const CLI::App& app,
                                              const std::vector<std::string>& all,
                                              std::vector<std::string>& command) {
  std::vector<std::string> own;
  std::size_t i = 0;
  for (; i < all.size(); ++i) {
    std::string word = all[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    if (word == "-np") word = "-n";
    if (word.starts_with("--")) {
      std::replace(
          word.begin(),
          word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size())), '_',
          '-');
    }
    const bool is_long = word.starts_with("--");
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* const known = app.get_option_no_throw(name);
    const bool takes_value = known != nullptr && known->get_expected_min() > 0;
    const bool has_value = word.size() > name.size();
    if (known == nullptr || (has_value && !takes_value)) {
      throw usage_error(fmt::format("there is no option {}", all[i]));
    }
    own.push_back(word);
    if (takes_value && !has_value) {
      if (i + 1 == all.size()) throw usage_error(fmt::format("{} needs a value", all[i]));
      own.push_back(all[++i]);
    }
  }
  command.assign(all.begin() + static_cast<std::ptrdiff_t>(i), all.end());
  return own;
}

inline failure_policy parse_policy(const std::string& text) {
  for (const auto each : {failure_policy::stop, failure_policy::shrink, failure_policy::restart,
                          failure_policy::replace}) {
    if (text == policy_names[static_cast<int>(each)]) return each;
  }
  throw usage_error(fmt::format("--on-failure {} is none of stop, shrink, restart, replace", text));
}

/// Sets what happens after a failure from the texts of the options; an empty text is no option.
inline void set_policy(options& o, const std::string& policy, bool keep_going,
                       const std::string& restarts) {
  if (keep_going && !policy.empty() && policy != "shrink") {
    throw usage_error(
        fmt::format("--keep-going means --on-failure shrink, so it excludes {}", policy));
  }
  if (!restarts.empty()) o.max_restarts = parse_number("--max-restarts", restarts, 0, 1'000'000);
  if (keep_going) {
    o.on_failure = failure_policy::shrink;
  } else if (!policy.empty()) {
    o.on_failure = parse_policy(policy);
  } else if (o.max_restarts > 0) {
    o.on_failure = failure_policy::restart;
  }
  const bool starts_processes =
      o.on_failure == failure_policy::restart || o.on_failure == failure_policy::replace;
  if (starts_processes) {
    if (restarts.empty()) o.max_restarts = 3;
  } else if (o.max_restarts > 0) {
    throw usage_error(
        fmt::format("--max-restarts {} needs --on-failure restart or replace", restarts));
  }
}

inline void check(const options& o, bool node_rank_given) {
  if (o.nodes > 1 && !node_rank_given) {
    throw usage_error(fmt::format("--nnodes {} needs --node-rank, 0..{}, another one on each node",
                                  o.nodes, o.nodes - 1));
  }
  if (o.nodes > 1 && o.master_addr.empty()) {
    throw usage_error(fmt::format(
        "--nnodes {} needs --master-addr: the address of node 0 that every node can reach",
        o.nodes));
  }
  if (o.nodes > 65536 / o.local_size) {
    throw usage_error(fmt::format("{} nodes of {} processes: a world has at most 65536 ranks",
                                  o.nodes, o.local_size));
  }
  for (const std::string& variable : o.exported) {
    const std::string name = variable.substr(0, variable.find('='));
    if (name.empty()) throw usage_error(fmt::format("-x {} names no variable", variable));
    for (const char* const ours :
         {"COLLS_RANK", "COLLS_WORLD_SIZE", "COLLS_LOCAL_RANK", "COLLS_LOCAL_WORLD_SIZE",
          "COLLS_NODE_RANK", "COLLS_NNODES", "COLLS_STORE", "COLLS_JOB", "COLLS_SECRET",
          "COLLS_SECRET_FILE", "COLLS_TERMINAL", "COLLS_RESTART_COUNT", "COLLS_MAX_RESTARTS",
          "COLLS_LAUNCHER", "COLLS_REPLACEMENT"}) {
      if (name == ours) throw usage_error(fmt::format("-x {}: colls-run sets it itself", name));
    }
  }
  // A rank can take no longer name.
  if (o.job.size() > 255) throw usage_error("--rdzv-id has more than 255 characters");
  if (o.command.empty()) throw usage_error("no program to run");
  if (o.command[0].empty()) throw usage_error("the program's name is empty");
}

}  // namespace detail

/// Throws usage_error, or CLI::CallForHelp with `help` filled in.
inline options parse(const std::vector<std::string>& arguments, std::string& help) {
  options o;
  std::string processes, nodes = "1", node_rank, port, grace = "5", policy, restarts;
  bool standalone = false, no_prefix = false, keep_going = false;

  CLI::App app("Starts N copies of a program that find each other as the ranks of one world.",
               "colls-run");
  app.set_help_flag("-h,--help", "Print this help");
  app.formatter(std::make_shared<detail::formatter>());
  const auto option = [&app](const char* names, auto& value, const char* type, const char* text) {
    return app.add_option(names, value, text)->option_text(type)->allow_extra_args(false);
  };
  option("-n,--nproc-per-node", processes, "N",
         "Processes on this node (also -np): a number, cpu, gpu or auto (GPUs, else cores)");
  option("--nnodes", nodes, "N|MIN:MAX",
         "Nodes, each with its own colls-run (default 1), or the least and the most");
  option("--node-rank", node_rank, "N", "Which of them this one is, from 0");
  option("--master-addr", o.master_addr, "ADDRESS",
         "Where node 0 serves the others (default 127.0.0.1 for one node)");
  option("--master-port", port, "PORT", "Its port (default 29500; for one node one that is free)");
  option("--rdzv-id", o.job, "NAME",
         "A name for the job, equal on all nodes, if others have the same secret and port");
  app.add_flag("--standalone", standalone, "One node: nothing to agree on with others (default)");
  option("-x", o.exported, "VAR[=VALUE]", "Set a variable for the ranks; repeat for more");
  option("--grace", grace, "SECONDS",
         "How long the others may run after a rank has failed (default 5)");
  option("--on-failure", policy, "POLICY", "stop (default), shrink, restart or replace: see below");
  option("--max-restarts", restarts, "N",
         "How often all may start again, or ranks may be replaced (default 3)");
  app.add_flag("--keep-going", keep_going, "The same as --on-failure shrink");
  app.add_flag("--no-prefix", no_prefix, "Print lines without [rank] before them");
  bool ignored = false;
  app.add_flag("--no-python,--oversubscribe,--allow-run-as-root", ignored,
               "Accepted for command lines of torchrun and mpirun; without effect");
  app.footer(detail::examples);

  std::vector<std::string> own = detail::own_arguments(app, arguments, o.command);
  std::reverse(own.begin(), own.end());
  help = app.help();
  try {
    app.parse(own);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ArgumentMismatch& wrong) {
    const std::string message = wrong.what();  // begins with the option's name
    throw usage_error(fmt::format("{} is given twice", message.substr(0, message.find(':'))));
  } catch (const CLI::ParseError& wrong) {
    throw usage_error(wrong.what());
  }

  if (processes.empty()) throw usage_error("how many processes? pass -n N");
  o.local_size = detail::processes(processes);
  const std::size_t colon = nodes.find(':');
  o.min_nodes = detail::parse_number("--nnodes", nodes.substr(0, colon), 1, 65536);
  o.nodes = colon == nodes.npos
                ? o.min_nodes
                : detail::parse_number("--nnodes", nodes.substr(colon + 1), 1, 65536);
  o.most_nodes = o.nodes;
  if (o.nodes < o.min_nodes) {
    throw usage_error(fmt::format("--nnodes {}: the least number of nodes comes first", nodes));
  }
  if (standalone && o.nodes > 1) {
    throw usage_error(fmt::format("--standalone is one node, --nnodes {} are more", o.nodes));
  }
  if (!node_rank.empty()) {
    o.node_rank = detail::parse_number("--node-rank", node_rank, 0, o.nodes - 1);
  }
  if (!port.empty()) {
    o.master_port = detail::parse_number("--master-port", port, o.nodes > 1 ? 1 : 0, 65535);
  }
  const char* const end = grace.data() + grace.size();
  const auto [stop, ec] = std::from_chars(grace.data(), end, o.grace);
  if (ec != std::errc{} || stop != end || !(o.grace >= 0) || o.grace > 1e6) {
    throw usage_error(fmt::format("--grace {} is not a number of seconds", grace));
  }
  o.prefix = !no_prefix;
  detail::set_policy(o, policy, keep_going, restarts);
  detail::check(o, !node_rank.empty());
  return o;
}

}  // namespace launcher
