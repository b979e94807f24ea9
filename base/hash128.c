/* SPDX-License-Identifier: BSD-3-Clause */
/* See hash128.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "base/hash128.h"

#include <string.h>

#include "base/base.h"

#ifdef HAVE_XXHASH

#include <xxhash.h>

srt_status_t srt_hash_require(const char *call)
{
	(void)call;
	return SRT_OK;
}

uint64_t srt_xxh3_64(const void *bytes, size_t nbytes)
{
	return XXH3_64bits(bytes, nbytes);
}

/* The state of libxxhash. */
static XXH3_state_t *state_of(srt_hash128_t *hash)
{
	return (XXH3_state_t *)(void *)hash;
}

srt_status_t srt_hash128_create(const char *call, srt_hash128_t **hash)
{
	XXH3_state_t *state = XXH3_createState();

	if (state == NULL)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY, "%s: no memory for the state of a hash",
				call);
	XXH3_128bits_reset(state);
	*hash = (srt_hash128_t *)(void *)state;
	return SRT_OK;
}

void srt_hash128_destroy(srt_hash128_t *hash)
{
	XXH3_freeState(state_of(hash));
}

void srt_hash128_reset(srt_hash128_t *hash)
{
	XXH3_128bits_reset(state_of(hash));
}

void srt_hash128_add(srt_hash128_t *hash, const void *data, size_t nbytes)
{
	XXH3_128bits_update(state_of(hash), data, nbytes);
}

static void canonicalize_f32(uint32_t *values, size_t nelem)
{
	for (size_t i = 0; i < nelem; i++) {
		if ((values[i] & 0x7fffffffu) > 0x7f800000u)
			values[i] = 0x7fc00000u;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		values[i] = __builtin_bswap32(values[i]);
#endif
	}
}

/* f16 and bf16 differ by the bits of infinity and NaN. */
static void canonicalize_16(uint16_t *values, size_t nelem, unsigned infinity, uint16_t nan)
{
	for (size_t i = 0; i < nelem; i++) {
		if ((values[i] & 0x7fffu) > infinity)
			values[i] = nan;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		values[i] = __builtin_bswap16(values[i]);
#endif
	}
}

void srt_hash128_add_values(srt_hash128_t *hash, srt_dtype_t dtype, void *values, size_t nelem)
{
	if (dtype == SRT_F32)
		canonicalize_f32(values, nelem);
	else if (dtype == SRT_F16)
		canonicalize_16(values, nelem, 0x7c00u, 0x7e00u);
	else if (dtype == SRT_BF16)
		canonicalize_16(values, nelem, 0x7f80u, 0x7fc0u);
	srt_hash128_add(hash, values, nelem * srt_dtype_size(dtype));
}

void srt_hash128_get(const srt_hash128_t *hash, unsigned char result[SRT_HASH128_NBYTES])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical,
				 XXH3_128bits_digest((const XXH3_state_t *)(const void *)hash));
	memcpy(result, canonical.digest, sizeof(canonical.digest));
}

#else

srt_status_t srt_hash_require(const char *call)
{
	return srt_fail(SRT_ERR_UNSUPPORTED,
			"%s needs libxxhash, but the library was built without it: install it "
			"(Debian: libxxhash-dev) and configure again",
			call);
}

srt_status_t srt_hash128_create(const char *call, srt_hash128_t **hash)
{
	(void)hash;
	return srt_hash_require(call);
}

uint64_t srt_xxh3_64(const void *bytes, size_t nbytes)
{
	(void)bytes;
	(void)nbytes;
	return 0;
}

void srt_hash128_destroy(srt_hash128_t *hash)
{
	(void)hash;
}

/* Without libxxhash there is no state, so the others are not reached. */

void srt_hash128_reset(srt_hash128_t *hash)
{
	(void)hash;
}

void srt_hash128_add(srt_hash128_t *hash, const void *data, size_t nbytes)
{
	(void)hash;
	(void)data;
	(void)nbytes;
}

void srt_hash128_add_values(srt_hash128_t *hash, srt_dtype_t dtype, void *values, size_t nelem)
{
	(void)hash;
	(void)dtype;
	(void)values;
	(void)nelem;
}

void srt_hash128_get(const srt_hash128_t *hash, unsigned char result[SRT_HASH128_NBYTES])
{
	(void)hash;
	memset(result, 0, SRT_HASH128_NBYTES);
}

#endif
