// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// How colls-run passes on the output of its ranks, and its input to them.

#include "launcher.hpp"

#include <map>

using namespace launcher_test;

TEST_CASE("10^5 lines of 4 ranks arrive whole, in each rank's order") {
  run it(shell(4, "seq -f 'line %.0f of the output of a rank, long enough to be cut' 1 25000"));
  CHECK(it.wait() == 0);
  std::map<std::string, int> count;
  int wrong = 0;
  for (const std::string& line : lines_of(it.out())) {
    const std::string rank = line.substr(0, 4);
    const std::string rest = " line " + std::to_string(++count[rank]) +
                             " of the output of a rank, long enough to be cut";
    if (line.substr(std::min<std::size_t>(3, line.size())) != rest) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(count.size() == 4);
  for (const auto& [rank, lines] : count) CHECK(lines == 25000);
}

TEST_CASE("standard error stays standard error") {
  run it(shell(2, "echo to out; echo to err >&2"));
  CHECK(it.wait() == 0);
  const strings out = lines_of(it.out()), err = lines_of(it.err());
  CHECK(std::count(out.begin(), out.end(), "[1] to out") == 1);
  CHECK(std::count(err.begin(), err.end(), "[1] to err") == 1);
  CHECK(out.size() == 2);
  CHECK(err.size() == 2);
}

TEST_CASE("the last line needs no newline, and an empty one has its prefix") {
  run it(shell(1, "echo; printf 'no newline'; printf 'nor here' >&2"));
  CHECK(it.wait() == 0);
  CHECK(it.out() == "[0] \n[0] no newline\n");
  CHECK(it.err() == "[0] nor here\n");
}

TEST_CASE("bytes are passed as they are") {
  run it(shell(1, R"(printf 'a\rb\tc\000d\377\r\n')"));
  CHECK(it.wait() == 0);
  CHECK(it.out() == std::string("[0] a\rb\tc\0d\377\r\n", 14));
}

TEST_CASE("--no-prefix") {
  run it(shell(2, "echo plain; echo plain >&2", {"--no-prefix"}));
  CHECK(it.wait() == 0);
  CHECK(it.out() == "plain\nplain\n");
  CHECK(it.err() == "plain\nplain\n");
}

TEST_CASE("a line of 10 MB comes in bounded pieces and without loss") {
  run it(shell(2, "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end"));
  CHECK(it.wait() == 0);
  std::size_t longest = 0, all = 0, ends = 0;
  for (const std::string& line : lines_of(it.out())) {
    longest = std::max(longest, line.size());
    all += static_cast<std::size_t>(std::count(line.begin(), line.end(), 'x'));
    ends += line.ends_with("] end") ? 1U : 0U;
  }
  CHECK(longest <= 65536 + 8);
  CHECK(all == 20000000);
  CHECK(ends == 2);
}

TEST_CASE("a line is seen while the rank goes on") {
  run it(shell(2, "echo started; sleep 100"));
  CHECK(it.shows("started", 2));
}

TEST_CASE("an output that is closed has printed its last line, though the rank goes on") {
  run it(shell(1, "printf 'no newline'; exec >&-; sleep 100"));
  CHECK(it.shows("[0] no newline\n"));
}

TEST_CASE("a rank that closes its outputs goes on, and its exit is seen") {
  run it(shell(2, "exec >&- 2>&-; read wait; exit 4"));
  CHECK(it.wait() == 4);
  CHECK(it.out() == "");
}

TEST_CASE("standard input goes to rank 0, the others find it empty") {
  run it(shell(3, "echo got $(cat)"), {.input = "what was typed"});
  CHECK(it.wait() == 0);
  CHECK(it.shows("[0] got what was typed\n"));
  CHECK(it.shows("[1] got\n"));
  CHECK(it.shows("[2] got\n"));
}

TEST_CASE("a slow reader holds up the ranks and not the launcher's memory") {
  // 40 MB a rank, of which the reader takes 100 kB.
  run it(shell(2, "[ $COLLS_RANK = 0 ] && seq 1 6000000; echo done >&2; exit 3"),
         {.read_limit = 100000});
  CHECK(it.shows("[1] done"));
  CHECK(it.shows("rank 1 failed: exit code 3"));  // seen although the output is not read
  CHECK(!it.shows("[0] done", 1, 1.5));
  std::ifstream file("/proc/" + std::to_string(it.pid()) + "/status");
  const std::string status((std::istreambuf_iterator<char>(file)), {});
  const auto at = status.find("VmHWM:");
  REQUIRE(at != status.npos);
  CHECK(std::atoi(status.c_str() + at + 6) < 40000);  // kB
}

TEST_CASE("a slow reader gets everything in the end") {
  run it(shell(1, "seq 1 500000"), {.read_limit = 1000});
  CHECK(it.shows("[0] 1\n"));
  it.read_on();
  CHECK(it.wait() == 0);
  CHECK(lines_of(it.out()).size() == 500000);
  CHECK(lines_of(it.out()).back() == "[0] 500000");
}

TEST_CASE("an output without a reader is closed for the ranks, as without a launcher") {
  run it(shell(2, "while echo still here; do :; done 2>&-; exit 0"), {.close_output = true});
  CHECK(it.wait(5) == 128 + SIGPIPE);
  CHECK(contains(it.err(), "the reader of colls-run's output has closed it"));
}

TEST_CASE("a progress line is shown and updated on a terminal") {
  run it(
      shell(2,
            "[ $COLLS_RANK = 1 ] && { printf '\\r 10%%'; read wait </dev/null; sleep 0.2;"
            " printf '\\r 90%%'; sleep 0.2; printf '\\r100%%\\n'; exit; }; sleep 0.1; echo other"),
      {.terminal = true});
  CHECK(it.wait() == 0);
  CAPTURE(it.out());
  const auto ten = it.out().find("[1]  10%"), ninety = it.out().find("\r\x1b[K[1]  90%"),
             hundred = it.out().find("\r\x1b[K[1] 100%\r\n");
  CHECK(ten < ninety);
  CHECK(ninety < hundred);
  CHECK(hundred != std::string::npos);
  // Another rank's line pushes it down and does not destroy it.
  CHECK(contains(it.out(), "\r\x1b[K[0] other\r\n[1]  10%"));
}

TEST_CASE("a rank is told whether a terminal shows its output") {
  for (const bool terminal : {false, true}) {
    run it(shell(1, "echo terminal=$COLLS_TERMINAL"),
           {.environment = {"COLLS_TERMINAL=7"}, .terminal = terminal});
    CHECK(it.wait() == 0);
    CHECK(contains(it.out(), terminal ? "terminal=1\r\n" : "terminal=\n"));
  }
}

TEST_CASE("a live line never wraps") {
  run it(shell(1, "printf '\\r'; head -c 300 /dev/zero | tr '\\0' =; sleep 0.3; echo"),
         {.terminal = true});
  CHECK(it.wait() == 0);
  const std::string live = it.out().substr(0, it.out().find('\r'));
  CHECK(live == "[0] " + std::string(75, '='));
  CHECK(contains(it.out(), "[0] " + std::string(300, '=') + "\r\n"));
}

TEST_CASE("a question without a newline is seen on a terminal, and the answer reaches rank 0") {
  run it(
      shell(2, "[ $COLLS_RANK = 0 ] || exit 0; printf 'name? '; read name; echo hello $name; cat"),
      {.terminal = true});
  CHECK(it.shows("[0] name? "));
  it.type("world\n");
  CHECK(it.shows("[0] name? hello world"));
  it.type("more\n");
  CHECK(it.shows("[0] more"));
  it.type("\x04");  // Ctrl-D
  CHECK(it.wait(5) == 0);
}
