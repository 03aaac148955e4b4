// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-bench: measures one collective over a range of sizes and checks every result.

#include "colls_bench/command_line.hpp"
#include "colls_bench/inproc.hpp"
#include "colls_bench/world.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  CLI::App app("Measures one collective over a range of sizes and checks every result.");
  bench::options opts;
  bench::declare(app, opts);
  try {
    app.parse(argc, argv);
    (void)opts.pinned();
    if (opts.on_device() && opts.transport == "inproc") {
      throw std::invalid_argument(
          "inproc does not support device memory: its ranks must be processes, as with --transport "
          "tcp");
    }
    if (opts.on_device() && bench::measure_on_devices == nullptr) {
      throw std::invalid_argument(
          "this program was built without device memory; ./dev gpu builds build-gpu/colls-bench, "
          "which supports it");
    }
    // Prefix sums are always in place.
    opts.in_place |= opts.collective == "scan" || opts.collective == "exscan";
    if (opts.transport != "inproc") return bench::run_in_world(opts);
    bench::run_in_one_process(opts);
    return 0;
  } catch (const CLI::ParseError& wrong) {
    return bench::report_parse_error(app, "colls-bench", wrong);
  } catch (const std::invalid_argument& wrong) {
    std::fprintf(stderr, "colls-bench: %s\n", wrong.what());
    return 2;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "colls-bench: %s\n", failed.what());
    return 1;
  }
}
