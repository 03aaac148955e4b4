// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/log.hpp>

#include "../support/logged.hpp"

#include <string>

using namespace logged;

namespace {

void one_of_each() {
  colls::log_warn("a %s line", "warn");
  colls::log_notice("a %s", "notice");
  colls::log_info("an %s line", "info");
  colls::log_debug("a %s line", "debug");
}

}  // namespace

TEST_CASE("COLLS_LOG decides which lines are written, and nothing is written to stdout") {
  const auto lines = [](const char* level) {
    const output got = in_process({{"COLLS_LOG", level}}, one_of_each);
    CHECK(got.out.empty());
    return got.err;
  };
  for (const char* level : {"", "warn", "nonsense"}) {
    const std::string text = lines(level);
    CHECK(contains(text, "a warn line\n"));
    CHECK(contains(text, "a notice\n"));
    CHECK(!contains(text, "info line"));
  }
  CHECK(contains(lines("info"), "an info line\n"));
  CHECK(!contains(lines("info"), "debug"));
  CHECK(contains(lines("debug"), "a debug line\n"));
  CHECK(contains(lines("DEBUG"), "a debug line\n"));
  CHECK(lines("off").empty());
}

TEST_CASE("lines contain the rank that the launcher assigned") {
  const output got = in_process({{"RANK", "3"}}, one_of_each);
  CHECK(got.err == "colls: [3] warning: a warn line\ncolls: [3] a notice\n");
}

TEST_CASE("an unknown level in COLLS_LOG is reported") {
  const output got = in_process({{"COLLS_LOG", "verbose"}}, one_of_each);
  CHECK(contains(got.err, "COLLS_LOG=verbose is none of off, warn, info, debug; warn is used"));
  CHECK(contains(got.err, "a warn line"));
  CHECK(!contains(got.err, "an info line"));
  for (const char* const good : {"WARN", "warning", "", "off", "Info", "debug"}) {
    CHECK(!contains(in_process({{"COLLS_LOG", good}}, one_of_each).err, "is none of"));
  }
}

TEST_CASE("a line that is too long is cut, not written past its end") {
  const std::string long_text(5000, 'x');
  const output got = in_process({}, [&] { colls::log_warn("%s", long_text.c_str()); });
  CHECK(got.err.size() < 1500);
  CHECK(got.err.back() == '\n');
}

TEST_CASE("lines go to the installed writer") {
  const output plain = in_process({{"COLLS_LOG_FILE", "/nowhere/at/all"}}, [] {
    colls::detail::installed_log_writer = &colls::detail::write_to_stderr;
    one_of_each();
  });
  CHECK(plain.err == "colls: [-] warning: a warn line\ncolls: [-] a notice\n");
  static std::string written;
  const output got = in_process({}, [] {
    colls::detail::installed_log_writer = [](const char* lines, std::size_t size) noexcept {
      written.append(lines, size);
    };
    one_of_each();
    if (written != "colls: [-] warning: a warn line\ncolls: [-] a notice\n") ::_exit(1);
  });
  CHECK(got.err.empty());
}
