// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The headers that include all others, for odr_a.cpp and odr_b.cpp.
#pragma once

#include <colls/asio.hpp>
#include <colls/ddp/checkpoint.hpp>
#include <colls/ddp/gradient_buckets.hpp>
#include <colls/ddp/replicate.hpp>
#include <colls/ddp/sampler.hpp>
#include <colls/format.hpp>
#include <colls/run.hpp>
#include <colls/simulated.hpp>
#include <colls/threads.hpp>
