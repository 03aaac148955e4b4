// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// colls: the main header. Contains all collectives, and the transport `inproc`, whose ranks all run
// in one process.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/buffer.hpp>
#include <colls/base/error.hpp>
#include <colls/base/half.hpp>
#include <colls/base/op.hpp>
#include <colls/base/options.hpp>
#include <colls/call/communicator.hpp>
#include <colls/channel/channel.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/task.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/inproc.hpp>
#include <colls/version.hpp>
#include <colls/when_any.hpp>
