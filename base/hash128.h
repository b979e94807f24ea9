/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * XXH3-128 of bytes, and of the values of parameters: every NaN of a dtype counts as one NaN, so
 * that the hash does not depend on the device that made it. srt_engine_hash() and the hashes of
 * files (<shardrt/file.h>) are made by it. XXH3-64 of blocks, for sharded checkpoints. Both need
 * libxxhash: without it there is no hash.
 */
#ifndef SRT_BASE_HASH128_H
#define SRT_BASE_HASH128_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>
#include <shardrt/status.h>

/* Bytes of a result. */
#define SRT_HASH128_NBYTES 16

/* The state of a hash. Used by one thread at a time. */
typedef struct srt_hash128 srt_hash128_t;

/* SRT_ERR_UNSUPPORTED without libxxhash. call: what needs a hash, for the message. */
srt_status_t srt_hash_require(const char *call);
/* XXH3-64, after srt_hash_require(). */
uint64_t srt_xxh3_64(const void *bytes, size_t nbytes);

/* srt_hash_require(), or SRT_ERR_OUT_OF_MEMORY; *hash is set on success only. */
srt_status_t srt_hash128_create(const char *call, srt_hash128_t **hash);
/* NULL is allowed. */
void srt_hash128_destroy(srt_hash128_t *hash);
/* Begins again. */
void srt_hash128_reset(srt_hash128_t *hash);
void srt_hash128_add(srt_hash128_t *hash, const void *data, size_t nbytes);
/* Elements of f32, f16, bf16 or u8, in their order, little-endian. Changes them: NaN becomes
 * 7fc00000, 7e00 in f16, 7fc0 in bf16. The pieces of a tensor may have any sizes. */
void srt_hash128_add_values(srt_hash128_t *hash, srt_dtype_t dtype, void *values, size_t nelem);
/* The canonical (big-endian) form of all that was added. */
void srt_hash128_get(const srt_hash128_t *hash, unsigned char result[SRT_HASH128_NBYTES]);

#endif
