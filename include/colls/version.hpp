// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// version: the version of colls.

#define COLLS_VERSION_MAJOR 0
#define COLLS_VERSION_MINOR 1
#define COLLS_VERSION_PATCH 0
