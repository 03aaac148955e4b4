// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-bench: times one collective over a range of sizes, and checks every result.

#include "colls_bench/inproc.hpp"
#include "colls_bench/world.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  CLI::App app("Times one collective over a range of sizes, and checks every result.");
  bench::options how;
  bench::declare(app, how);
  try {
    app.parse(argc, argv);
    (void)how.pinned();
    // These have no other form.
    how.in_place |= how.collective == "scan" || how.collective == "exscan";
    if (how.transport != "inproc") return bench::in_a_world(how);
    bench::in_one_process(how);
    return 0;
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "colls-bench: %s\n", failed.what());
    return 1;
  }
}
