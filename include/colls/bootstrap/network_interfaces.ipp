// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The functions of network_interfaces.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/fixed_string.hpp>
#include <colls/bootstrap/network_interfaces.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace colls::detail {

COLLS_ONCE std::vector<interface_address> interface_addresses() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    raise(errc::join_failed, "the system does not tell its network interfaces: %s",
          std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, ::freeifaddrs);
  std::vector<interface_address> result;
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    if (each->ifa_addr->sa_family == AF_INET) {
      sockaddr_in ip4{};
      std::memcpy(&ip4, each->ifa_addr, sizeof ip4);
      const boost::asio::ip::address_v4 address(ntohl(ip4.sin_addr.s_addr));
      result.push_back({each->ifa_name, address});
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 ip6{};
      std::memcpy(&ip6, each->ifa_addr, sizeof ip6);
      boost::asio::ip::address_v6::bytes_type bytes;
      std::memcpy(bytes.data(), &ip6.sin6_addr, bytes.size());
      const boost::asio::ip::address_v6 address(bytes);
      // Other hosts cannot use it without the name of their own interface.
      if (!address.is_link_local()) result.push_back({each->ifa_name, address});
    }
  }
  return result;
}

COLLS_ONCE boost::asio::ip::address choose_address(const std::string& wanted,
                                                   const boost::asio::ip::address& usual,
                                                   const std::vector<interface_address>& all) {
  std::string list = wanted;
  const bool excludes = list.starts_with('^');
  if (excludes) list.erase(0, 1);
  const bool is_exact = list.starts_with('=');
  if (is_exact) list.erase(0, 1);
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  // The position in the list of the name that stands for the interface, or the size of the list.
  const auto position = [&](const interface_address& each) {
    const auto stands_for = [&](const std::string& name) {
      return is_exact ? each.name == name : each.name.starts_with(name);
    };
    return std::find_if(names.begin(), names.end(), stands_for) - names.begin();
  };
  std::vector<interface_address> fitting;
  for (const interface_address& each : all) {
    const bool is_named = position(each) != std::ssize(names);
    if (is_named != excludes) fitting.push_back(each);
  }
  const auto is_of_family = [&](const interface_address& each) {
    return each.address.is_v4() == usual.is_v4();
  };
  const interface_address* chosen = nullptr;
  for (const interface_address& each : fitting) {
    if (each.address == usual) return usual;
    if (!is_of_family(each) || (each.address.is_loopback() && !usual.is_loopback())) continue;
    if (chosen == nullptr || (!excludes && position(each) < position(*chosen))) chosen = &each;
  }
  if (chosen != nullptr) return chosen->address;
  std::string known;
  for (const interface_address& each : all) {
    known += (known.empty() ? "" : ", ") + each.name + ' ' + each.address.to_string();
  }
  const char* const lack = fitting.empty() ? "fits no interface that is up"
                           : std::any_of(fitting.begin(), fitting.end(), is_of_family)
                               ? "fits loopback alone, which other hosts cannot reach"
                           : usual.is_v4() ? "fits no interface with an IPv4 address"
                                           : "fits no interface with an IPv6 address";
  raise(errc::join_failed, "COLLS_SOCKET_IFNAME=%s %s; this host has %s", wanted.c_str(), lack,
        known.empty() ? "none" : known.c_str());
}

}  // namespace colls::detail
