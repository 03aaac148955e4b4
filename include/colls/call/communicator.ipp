// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator.ipp: the definitions of the calls of a communicator, which are compiled once per
// transport.

#include <colls/call/batch.hpp>
#include <colls/call/communicator.hpp>
#include <colls/call/neighbours.hpp>
#include <colls/call/point_to_point.hpp>
#include <colls/call/probe.hpp>
#include <colls/call/recovery_calls.hpp>
#include <colls/call/repair_calls.hpp>
#include <colls/call/split.hpp>
#include <colls/call/start_call.hpp>
#include <colls/call/unknown_lengths.hpp>
#include <colls/call/view_call.hpp>
