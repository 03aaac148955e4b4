// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/network_interfaces.hpp>

#include <colls/bootstrap/form_world.hpp>

#include <doctest/doctest.h>

#include <algorithm>

using colls::detail::choose_address;
using colls::detail::interface_address;

namespace {

boost::asio::ip::address at(const char* text) { return boost::asio::ip::make_address(text); }

const std::vector<interface_address> host{
    {"lo", at("127.0.0.1")},    {"lo", at("::1")},         {"docker0", at("172.17.0.1")},
    {"eth0", at("10.0.0.1")},   {"eth0", at("fd00::1")},   {"eth1", at("10.0.1.1")},
    {"ib0", at("192.168.0.1")}, {"eth10", at("10.0.2.1")}, {"six", at("fd00:6::1")},
};

std::string chosen(const char* wanted, const char* usual = "172.17.0.1") {
  try {
    return choose_address(wanted, at(usual), host).to_string();
  } catch (const colls::error& failed) {
    CHECK(failed.code() == colls::errc::join_failed);
    return failed.record().detail;
  }
}

}  // namespace

TEST_CASE("interfaces are named by their beginnings, in a list, exactly, or excluded") {
  CHECK(chosen("eth") == "10.0.0.1");
  CHECK(chosen("eth1") == "10.0.1.1");
  CHECK(chosen("=eth10") == "10.0.2.1");
  CHECK(chosen("ib,eth") == "192.168.0.1");
  CHECK(chosen("eth1,ib0") == "10.0.1.1");
  CHECK(chosen("nothing,ib0") == "192.168.0.1");
  CHECK(chosen(",ib0,") == "192.168.0.1");
  CHECK(chosen("^docker") == "10.0.0.1");
  CHECK(chosen("^docker,eth") == "192.168.0.1");
  CHECK(chosen("^=docker0,eth0,eth1") == "192.168.0.1");
}

TEST_CASE("the address by which the store is reached is kept if its interface is wanted") {
  CHECK(chosen("eth", "10.0.1.1") == "10.0.1.1");
  CHECK(chosen("^docker", "192.168.0.1") == "192.168.0.1");
  CHECK(chosen("lo", "127.0.0.1") == "127.0.0.1");
  CHECK(chosen("eth", "fd00:6::1") == "fd00::1");
  CHECK(chosen("eth0", "127.0.0.1") == "10.0.0.1");
}

TEST_CASE("names that fit nothing, or only loopback, or no address of the family are refused") {
  const std::string none = chosen("wlan");
  CHECK(none.find("COLLS_SOCKET_IFNAME=wlan fits no interface that is up; this host has lo "
                  "127.0.0.1, ") == 0);
  CHECK(none.find("ib0 192.168.0.1") != none.npos);
  CHECK(chosen("=eth").find("fits no interface that is up") != none.npos);
  CHECK(chosen("lo").find("fits loopback alone, which other hosts cannot reach") != none.npos);
  CHECK(chosen("six").find("fits no interface with an IPv4 address") != none.npos);
  CHECK(chosen("ib", "fd00::1").find("fits no interface with an IPv6 address") != none.npos);
  CHECK(chosen("^lo,docker,eth,ib,six").find("fits no interface that is up") != none.npos);
}

TEST_CASE("the interfaces of this host contain loopback") {
  const auto all = colls::detail::interface_addresses();
  CHECK(std::any_of(all.begin(), all.end(), [](const interface_address& each) {
    return each.name == "lo" && each.address == at("127.0.0.1");
  }));
}
