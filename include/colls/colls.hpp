// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// colls: a list of includes, floors 0 to 4 and the inproc transport.

#include <colls/buffer.hpp>
#include <colls/channel.hpp>
#include <colls/communicator.hpp>
#include <colls/error.hpp>
#include <colls/fwd.hpp>
#include <colls/half.hpp>
#include <colls/inproc.hpp>
#include <colls/op.hpp>
#include <colls/options.hpp>
#include <colls/sync_wait.hpp>
#include <colls/task.hpp>
#include <colls/version.hpp>
#include <colls/when_all.hpp>
