// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The command line of colls-run, one argument a line.
//
// covers: tools/colls_run/options.hpp: parse_number processes own_arguments check parse

#include "input.hpp"

#include <colls_run/options.hpp>

#include <cmath>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz::input(data, size).rest();
  std::vector<std::string> arguments;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    arguments.emplace_back(line);
  }
  std::string help;
  try {
    const launcher::options found = launcher::parse(arguments, help);
    fuzz::require(
        found.local_size >= 1 && found.nodes >= 1 && found.local_size <= 65536 / found.nodes,
        "a world has 1 to 65536 ranks");
    fuzz::require(found.node_rank >= 0 && found.node_rank < found.nodes, "a node is one of them");
    fuzz::require(found.master_port >= 0 && found.master_port < 65536, "a port");
    fuzz::require(std::isfinite(found.grace) && found.grace >= 0, "a time");
    fuzz::require(!found.command.empty(), "a program to run");
    fuzz::require(found.nodes == 1 || !found.master_addr.empty(), "nodes meet somewhere");
  } catch (const launcher::usage_error& wrong) {
    fuzz::require(wrong.what()[0] != 0, "a mistake has a sentence");
  } catch (const CLI::CallForHelp&) {
    fuzz::require(!help.empty(), "there is help");
  }
  return 0;
}
