/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All public headers of libshardrt but the optional ones: <shardrt/ops.h>, the operations on
 * tensors; <shardrt/opencl.h> and <shardrt/cuda.h>, the types of drivers; <shardrt/shardrt.hpp>,
 * for C++17. <shardrt/models/...> are those of libshardrt-models. <shardrt/engine.h>,
 * <shardrt/module.h> and <shardrt/checkpoint.h> are what a program that trains a model reads, in
 * this order.
 *
 * Structs of options, descriptions and arguments that a program fills, or that the library fills
 * for it, begin with `size`. The macro SRT_..._INIT next to a struct sets it, and the defaults of
 * the other fields:
 *
 *     srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
 *
 *     options.strategy = SRT_STRATEGY_DDP;
 *
 * Where all other defaults are zero, { .size = sizeof(options), ... } is the same. Later versions
 * add fields at the end of a struct. A program that was compiled with an earlier header goes on
 * working: the library takes the defaults of the fields that it does not have. A size of 0 is
 * SRT_ERR_INVALID_ARGUMENT; a later header's field that is not zero is SRT_ERR_UNSUPPORTED in a
 * library that does not have it. All elements of an array have the size of the first.
 *
 * Small values do not grow: views, placements, the elements of arrays (segments, owners, messages,
 * metadata, boxes, shapes of copies).
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
#include <shardrt/file.h>
#include <shardrt/init.h>
#include <shardrt/log.h>
#include <shardrt/mesh.h>
#include <shardrt/module.h>
#include <shardrt/native.h>
#include <shardrt/optimizer.h>
#include <shardrt/scaler.h>
#include <shardrt/sharded_layer.h>
#include <shardrt/sharded_optim.h>
#include <shardrt/sharded_tensor.h>
#include <shardrt/status.h>
#include <shardrt/version.h>

#endif
