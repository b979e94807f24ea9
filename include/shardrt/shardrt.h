/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All public headers of libshardrt.
 *
 * Structs of options, descriptions and arguments that a program fills end in `reserved`, for fields
 * of later versions. Zero-initialise these structs: the library refuses a reserved field that is
 * not zero with SRT_ERR_INVALID_ARGUMENT. Structs that the library fills end in `reserved` too, and
 * it writes zeros there. Small values do not have it: views, placements, the elements of arrays
 * (segments, owners, messages, metadata), and the rows of tables in device memory.
 */
#ifndef SHARDRT_SHARDRT_H
#define SHARDRT_SHARDRT_H

#include <shardrt/backend.h>
#include <shardrt/checkpoint.h>
#include <shardrt/checkpoint_file.h>
#include <shardrt/coll.h>
#include <shardrt/config.h>
#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/dtype.h>
#include <shardrt/engine.h>
#include <shardrt/engine_optimizer.h>
#include <shardrt/engine_shard.h>
#include <shardrt/file.h>
#include <shardrt/full_params.h>
#include <shardrt/init.h>
#include <shardrt/log.h>
#include <shardrt/mesh.h>
#include <shardrt/module.h>
#include <shardrt/native.h>
#include <shardrt/ops.h>
#include <shardrt/optimizer.h>
#include <shardrt/precision.h>
#include <shardrt/scaler.h>
#include <shardrt/sharded_layer.h>
#include <shardrt/sharded_optim.h>
#include <shardrt/sharded_tensor.h>
#include <shardrt/status.h>
#include <shardrt/unit_buffer.h>
#include <shardrt/version.h>
#include <shardrt/wrap.h>

#endif
