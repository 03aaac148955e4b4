// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// network_interfaces: chooses the address at which a rank listens by the names of interfaces
// (COLLS_SOCKET_IFNAME).

#include <boost/asio/ip/address.hpp>

#include <string>
#include <vector>

namespace colls::detail {

/// An address of a network interface.
struct interface_address {
  std::string name;  // of the interface, such as eth0
  boost::asio::ip::address address;
};

/// Returns the addresses of the interfaces that are up. Throws `join_failed` if the system does not
/// tell them.
std::vector<interface_address> interface_addresses();

/// Returns the address of `all` at which a rank listens. `wanted` lists names of interfaces,
/// separated by commas. A name stands for all interfaces that begin with it, or, with `=` before
/// the list, for that interface alone; `^` before the list excludes these interfaces. (NCCL reads
/// NCCL_SOCKET_IFNAME in this way.) `usual` is the address by which this rank reaches the store. It
/// is returned if its interface is wanted, otherwise the first wanted address of its family. Throws
/// `join_failed` if there is none, or only loopback although `usual` is not.
boost::asio::ip::address choose_address(const std::string& wanted,
                                        const boost::asio::ip::address& usual,
                                        const std::vector<interface_address>& all);

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/network_interfaces.ipp>
#endif
