/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of module trees have in common: modules with a weight, a tree, units compared. */
#ifndef SRT_TESTS_MODULE_CASE_H
#define SRT_TESTS_MODULE_CASE_H

#include <shardrt/module.h>

#include "runtime/engine/engine.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

/* A pointer to a policy, whose other fields are zero. */
#define WRAP(...) (&(const srt_wrap_policy_t){ .size = sizeof(srt_wrap_policy_t), __VA_ARGS__ })

/* An engine of zero3; comm: NULL for all ranks. */
srt_engine_t *modules_create_engine(srt_context_t *context, srt_comm_t *comm);
srt_module_t *modules_add(srt_module_t *parent, const char *name, const char *kind);
/* With a weight (rows), whose reset function sets ones. */
srt_module_t *modules_add_layer(srt_module_t *parent, const char *name, const char *kind,
				int64_t rows);
/* The names of the engine's units and parameters: "root(a b) x(c)". */
void modules_check_units(srt_engine_t *engine, const char *expected);
/* root: emb 6, blocks (ModuleList): 0: attn (MultiheadAttention) 8: proj 4; fc 5 | 1: fc 5; head 2.
 * The numbers are elements. */
srt_module_t *modules_create_blocks(void);

#endif
