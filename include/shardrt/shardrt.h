/* SPDX-License-Identifier: BSD-3-Clause */
/* All public headers of libshardrt. */
#ifndef SHARDRT_SHARDRT_H
#define SHARDRT_SHARDRT_H

#include <shardrt/backend.h>
#include <shardrt/checkpoint.h>
#include <shardrt/coll.h>
#include <shardrt/config.h>
#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/dtype.h>
#include <shardrt/engine.h>
#include <shardrt/log.h>
#include <shardrt/ops.h>
#include <shardrt/status.h>
#include <shardrt/version.h>

#endif
