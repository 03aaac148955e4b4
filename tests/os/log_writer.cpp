// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/os/log_writer.hpp>

#include "../support/logged.hpp"

#include <fstream>
#include <sstream>
#include <string>

using namespace logged;

namespace {

void a_warning() { colls::log_warn("a %s line", "warn"); }

}  // namespace

TEST_CASE("log lines go to COLLS_LOG_FILE, with host and rank in its name") {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  char folder[] = "/tmp/colls-test-log-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string pattern = std::string(folder) + "/log.%h.%r.%%";
  const std::string path = std::string(folder) + "/log." + host + ".5.%";
  const output got = in_process({{"COLLS_LOG_FILE", pattern}, {"COLLS_RANK", "5"}}, a_warning);
  CHECK(got.out.empty());
  CHECK(got.err.empty());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str() == "colls: [5] warning: a warn line\n");
  ::unlink(path.c_str());
  ::rmdir(folder);
}

TEST_CASE("a COLLS_LOG_FILE that cannot be opened is reported, and stderr is used") {
  const output got = in_process({{"COLLS_LOG_FILE", "/nowhere/at/all"}}, a_warning);
  CHECK(contains(got.err, "cannot open COLLS_LOG_FILE /nowhere/at/all"));
  CHECK(contains(got.err, "a warn line"));
}

TEST_CASE("COLLS_LOG_FILE patterns are expanded") {
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
