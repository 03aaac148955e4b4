// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Measures another library with the loop, the checks and the report of colls-bench. A program
// passes a communicator of its library, which has the calls of a colls communicator; each call
// blocks.

#include "../colls_bench/command_line.hpp"
#include "../colls_bench/measure.hpp"
#include "../colls_bench/processes.hpp"

#include <colls/sync_wait.hpp>

#include <cstdio>
#include <exception>

namespace bench {

/// The awaitable result of a blocking call, which has ended already.
struct completed_call {
  bool start(colls::completion&) const noexcept { return true; }
  void result() const noexcept {}
};

template <class Buffer>
using element = std::remove_cvref_t<decltype(*std::data(std::declval<Buffer&>()))>;

[[noreturn]] inline void throw_unsupported(const options& opts, const std::string& feature) {
  throw std::invalid_argument(opts.library + " does not support " + feature);
}

/// Measures on one rank. Blocking calls need no driver that makes progress.
template <class Communicator>
void measure_blocking(Communicator& comm, const options& opts) {
  struct null_driver {
    colls::run_queue& queue() { return queue_; }
    bool poll() { return false; }
    void idle(unsigned) {}
    void enter() {}
    void leave() {}
    colls::run_queue queue_;
  } driver;
  const auto work = make_workload(comm, opts);
  colls::sync_wait(driver, measure(*work, comm, opts));
}

/// The `main` function of such a program; calls `run(opts) -> int`. The launcher or the library
/// chooses the transport.
template <class Run>
int peer_main(int argc, char** argv, const char* library, Run run) {
  CLI::App app(std::string("Measures a collective of ") + library +
               " as colls-bench measures colls.");
  options opts;
  opts.library = library;
  opts.transport = "as launched";
  declare(app, opts);
  try {
    app.parse(argc, argv);
    if (!opts.congestion.empty()) {
      throw_unsupported(opts, "--congestion: it uses the system's congestion control");
    }
    return run(opts);
  } catch (const CLI::ParseError& wrong) {
    return report_parse_error(app, library, wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
  }
}

}  // namespace bench
