// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/log.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace {

struct output {
  std::string out;
  std::string err;
};

std::string drain(int descriptor) {
  std::string all;
  char piece[512];
  for (ssize_t got; (got = ::read(descriptor, piece, sizeof piece)) > 0;) {
    all.append(piece, static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  return all;
}

/// What a process of its own writes, with these variables set, since the level is read once.
output in_process(std::initializer_list<std::pair<const char*, std::string>> variables,
                  const std::function<void()>& body) {
  int out[2];
  int err[2];
  REQUIRE(::pipe(out) == 0);
  REQUIRE(::pipe(err) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    body();
    ::_exit(0);
  }
  ::close(out[1]);
  ::close(err[1]);
  output got{drain(out[0]), drain(err[0])};
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return got;
}

void one_of_each() {
  colls::log_warn("a %s line", "warn");
  colls::log_info("an %s line", "info");
  colls::log_debug("a %s line", "debug");
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("COLLS_LOG decides what is written, and stdout stays clean") {
  const auto lines = [](const char* level) {
    const output got = in_process({{"COLLS_LOG", level}}, one_of_each);
    CHECK(got.out.empty());
    return got.err;
  };
  for (const char* level : {"", "warn", "nonsense"}) {
    const std::string text = lines(level);
    CHECK(contains(text, "a warn line\n"));
    CHECK(!contains(text, "info line"));
  }
  CHECK(contains(lines("info"), "an info line\n"));
  CHECK(!contains(lines("info"), "debug"));
  CHECK(contains(lines("debug"), "a debug line\n"));
  CHECK(contains(lines("DEBUG"), "a debug line\n"));
  CHECK(lines("off").empty());
}

TEST_CASE("lines name the rank that the launcher gave") {
  const output got = in_process({{"RANK", "3"}}, one_of_each);
  CHECK(got.err == "colls: [3] warning: a warn line\n");
}

TEST_CASE("COLLS_LOG_FILE takes the lines instead, with host and rank in its name") {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  char folder[] = "/tmp/colls-test-log-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string pattern = std::string(folder) + "/log.%h.%r.%%";
  const std::string path = std::string(folder) + "/log." + host + ".5.%";
  const output got = in_process({{"COLLS_LOG_FILE", pattern}, {"COLLS_RANK", "5"}}, one_of_each);
  CHECK(got.out.empty());
  CHECK(got.err.empty());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str() == "colls: [5] warning: a warn line\n");
  ::unlink(path.c_str());
  ::rmdir(folder);
}

TEST_CASE("a COLLS_LOG_FILE that cannot be opened is said, and stderr used") {
  const output got = in_process({{"COLLS_LOG_FILE", "/nowhere/at/all"}}, one_of_each);
  CHECK(contains(got.err, "cannot open COLLS_LOG_FILE /nowhere/at/all"));
  CHECK(contains(got.err, "a warn line"));
}

TEST_CASE("a COLLS_LOG that is no level is said") {
  const output got = in_process({{"COLLS_LOG", "verbose"}}, one_of_each);
  CHECK(
      contains(got.err, "COLLS_LOG=verbose is none of off, warn, info, debug; it counts as warn"));
  CHECK(contains(got.err, "a warn line"));
  CHECK(!contains(got.err, "an info line"));
  for (const char* const good : {"WARN", "warning", "", "off", "Info", "debug"}) {
    CHECK(!contains(in_process({{"COLLS_LOG", good}}, one_of_each).err, "is none of"));
  }
}

TEST_CASE("patterns") {
  const auto expand = [](const char* pattern, std::size_t room = 64) {
    char into[64];
    colls::detail::expand_log_file(pattern, "12", into, room);
    return std::string(into);
  };
  CHECK(expand("plain") == "plain");
  CHECK(expand("a.%r.b") == "a.12.b");
  CHECK(expand("%%r") == "%r");
  CHECK(expand("%x") == "%x");
  CHECK(expand("end%") == "end%");
  CHECK(expand("%p") == std::to_string(::getpid()));
  CHECK(expand("0123456789", 5) == "0123");
}

TEST_CASE("a line that is too long is cut, not written past its end") {
  const std::string long_text(5000, 'x');
  const output got = in_process({}, [&] { colls::log_warn("%s", long_text.c_str()); });
  CHECK(got.err.size() < 1500);
  CHECK(got.err.back() == '\n');
}

TEST_CASE("rate-limited warnings come once in a period and tell how many were left out") {
  const output got = in_process({}, [] {
    colls::rate_limited_log log(1);
    for (int i = 0; i < 100; ++i) log.warn("number %d", i);
    ::usleep(2'100'000);
    log.warn("later");
    if (log.seen() != 101) ::_exit(1);
  });
  CHECK(got.err ==
        "colls: [-] warning: number 0\ncolls: [-] warning: later (and 99 more like it)\n");
}

TEST_CASE("unknown COLLS_ variables are warned of, with the name that may be meant") {
  char wrong[] = "COLLS_TIMEOUTS=5";
  char far[] = "COLLS_BANANA=1";
  char known[] = "COLLS_SECRET=x=y";
  char other[] = "NCCL_DEBUG=INFO";
  char* all[] = {wrong, far, known, other, nullptr};
  const output got = in_process({}, [&] {
    if (colls::warn_about_unknown_variables(all) != 2) ::_exit(1);
  });
  CHECK(contains(got.err, "COLLS_TIMEOUTS means nothing to colls: is COLLS_TIMEOUT meant?"));
  CHECK(contains(got.err, "COLLS_BANANA means nothing to colls\n"));
  CHECK(!contains(got.err, "SECRET"));
  CHECK(!contains(got.err, "NCCL"));
  CHECK(colls::warn_about_unknown_variables(nullptr) == 0);
}

TEST_CASE("edit distance") {
  using colls::detail::edit_distance;
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("COLLS_RANKS", "COLLS_RANK") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}
