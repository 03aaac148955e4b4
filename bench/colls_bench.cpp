// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-bench: times one collective over a range of sizes, and checks every result.

#include "colls_bench/command_line.hpp"
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
    if (how.on_device() && how.transport == "inproc") {
      throw std::invalid_argument("ranks with memory of a device are processes: --transport tcp");
    }
    if (how.on_device() && bench::measure_on_devices == nullptr) {
      throw std::invalid_argument(
          "this program has no memory of a device; build-gpu/colls-bench, of ./dev gpu, has");
    }
    // These have no other form.
    how.in_place |= how.collective == "scan" || how.collective == "exscan";
    if (how.transport != "inproc") return bench::in_a_world(how);
    bench::in_one_process(how);
    return 0;
  } catch (const CLI::ParseError& wrong) {
    return bench::refused(app, "colls-bench", wrong);
  } catch (const std::invalid_argument& wrong) {
    std::fprintf(stderr, "colls-bench: %s\n", wrong.what());
    return 2;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "colls-bench: %s\n", failed.what());
    return 1;
  }
}
