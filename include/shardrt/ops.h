/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on tensors: the library's own compute. Optional: <shardrt/shardrt.h> does not include
 * this header, and a program with its own kernels needs no operation.
 *
 * All are asynchronous in the stream's order, row-major, and follow docs/numerics.md bit for bit in
 * exact mode. Each argument has its shape in parentheses; sizes are in elements unless a name has
 * another unit; a size of 0 is allowed: nothing is written to a result without elements, and a sum
 * of no terms is +0. Inputs and outputs must not overlap unless a description says "in place".
 * `accumulate` = 0 stores the result, 1 does one separate add onto what is there. All views of a
 * call have one dtype, SRT_F32, SRT_F16 or SRT_BF16, unless stated: mean, rstd, stats, losses and
 * scratch are SRT_F32.
 *
 * Common errors: SRT_ERR_INVALID_ARGUMENT (negative size, view outside its buffer, misaligned
 * offset), SRT_ERR_UNSUPPORTED (no kernel for the dtype). Thread-safe for different streams.
 */
#ifndef SHARDRT_OPS_H
#define SHARDRT_OPS_H

#include <shardrt/ops_elements.h>
#include <shardrt/ops_products.h>
#include <shardrt/ops_rows.h>

#endif
