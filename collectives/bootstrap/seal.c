/* SPDX-License-Identifier: BSD-3-Clause */
/* The cryptography of a link: see seal.h. */
#include "collectives/bootstrap/seal.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_SODIUM
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SRT_SEAL_PROOF == crypto_auth_hmacsha256_BYTES, "the size of a proof");
_Static_assert(SRT_SEAL_HEADER == crypto_secretstream_xchacha20poly1305_HEADERBYTES,
	       "the size of a stream's header");
_Static_assert(SRT_SEAL_OVERHEAD == crypto_secretstream_xchacha20poly1305_ABYTES,
	       "what a message grows by");
_Static_assert(SRT_SEAL_PROOF == crypto_secretstream_xchacha20poly1305_KEYBYTES,
	       "a key is an HMAC");

struct srt_seal {
	srt_seal_role_t role;
	unsigned char key[crypto_hash_sha256_BYTES];    /* of the token */
	unsigned char challenge[2][SRT_SEAL_CHALLENGE]; /* by role */
	crypto_secretstream_xchacha20poly1305_state out, in;
};

bool srt_seal_is_supported(void)
{
	return sodium_init() >= 0;
}

srt_seal_t *srt_seal_create(srt_seal_role_t role, const char *token)
{
	srt_seal_t *seal;

	if (sodium_init() < 0)
		return NULL;
	seal = calloc(1, sizeof(*seal));
	if (seal == NULL)
		return NULL;
	seal->role = role;
	crypto_hash_sha256(seal->key, (const unsigned char *)token, strlen(token));
	randombytes_buf(seal->challenge[role], SRT_SEAL_CHALLENGE);
	return seal;
}

void srt_seal_destroy(srt_seal_t *seal)
{
	if (seal == NULL)
		return;
	sodium_memzero(seal, sizeof(*seal));
	free(seal);
}

static srt_seal_role_t other(srt_seal_role_t role)
{
	return role == SRT_SEAL_SERVER ? SRT_SEAL_CLIENT : SRT_SEAL_SERVER;
}

void srt_seal_challenge(const srt_seal_t *seal, unsigned char challenge[SRT_SEAL_CHALLENGE])
{
	memcpy(challenge, seal->challenge[seal->role], SRT_SEAL_CHALLENGE);
}

void srt_seal_answer(srt_seal_t *seal, const unsigned char challenge[SRT_SEAL_CHALLENGE])
{
	memcpy(seal->challenge[other(seal->role)], challenge, SRT_SEAL_CHALLENGE);
}

/* The HMAC of a purpose of a role and both challenges. */
static void derive(const srt_seal_t *seal, const char *purpose, srt_seal_role_t role,
		   unsigned char out[SRT_SEAL_PROOF])
{
	const unsigned char who = (unsigned char)role;
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, seal->key, sizeof(seal->key));
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)purpose, strlen(purpose));
	crypto_auth_hmacsha256_update(&state, &who, sizeof(who));
	crypto_auth_hmacsha256_update(&state, seal->challenge[0], sizeof(seal->challenge));
	crypto_auth_hmacsha256_final(&state, out);
}

void srt_seal_prove(const srt_seal_t *seal, unsigned char proof[SRT_SEAL_PROOF])
{
	derive(seal, "libshardrt proof 1", seal->role, proof);
}

bool srt_seal_check(const srt_seal_t *seal, const unsigned char proof[SRT_SEAL_PROOF])
{
	unsigned char expected[SRT_SEAL_PROOF];

	derive(seal, "libshardrt proof 1", other(seal->role), expected);
	return sodium_memcmp(proof, expected, sizeof(expected)) == 0;
}

bool srt_seal_begin(srt_seal_t *seal, unsigned char header[SRT_SEAL_HEADER])
{
	unsigned char key[SRT_SEAL_PROOF];

	derive(seal, "libshardrt stream 1", seal->role, key);
	return crypto_secretstream_xchacha20poly1305_init_push(&seal->out, header, key) == 0;
}

bool srt_seal_accept(srt_seal_t *seal, const unsigned char header[SRT_SEAL_HEADER])
{
	unsigned char key[SRT_SEAL_PROOF];

	derive(seal, "libshardrt stream 1", other(seal->role), key);
	return crypto_secretstream_xchacha20poly1305_init_pull(&seal->in, header, key) == 0;
}

bool srt_seal_message(srt_seal_t *seal, const void *plain, size_t nbytes, unsigned char *sealed)
{
	return crypto_secretstream_xchacha20poly1305_push(&seal->out, sealed, NULL, plain, nbytes,
							  NULL, 0, 0) == 0;
}

bool srt_seal_open(srt_seal_t *seal, const unsigned char *sealed, size_t nbytes, void *plain)
{
	unsigned char tag;

	return crypto_secretstream_xchacha20poly1305_pull(&seal->in, plain, NULL, &tag, sealed,
							  nbytes, NULL, 0) == 0;
}
#else
bool srt_seal_is_supported(void)
{
	return false;
}

srt_seal_t *srt_seal_create(srt_seal_role_t role, const char *token)
{
	(void)role;
	(void)token;
	return NULL;
}

void srt_seal_destroy(srt_seal_t *seal)
{
	(void)seal;
}

void srt_seal_challenge(const srt_seal_t *seal, unsigned char challenge[SRT_SEAL_CHALLENGE])
{
	(void)seal;
	(void)challenge;
}

void srt_seal_answer(srt_seal_t *seal, const unsigned char challenge[SRT_SEAL_CHALLENGE])
{
	(void)seal;
	(void)challenge;
}

void srt_seal_prove(const srt_seal_t *seal, unsigned char proof[SRT_SEAL_PROOF])
{
	(void)seal;
	(void)proof;
}

bool srt_seal_check(const srt_seal_t *seal, const unsigned char proof[SRT_SEAL_PROOF])
{
	(void)seal;
	(void)proof;
	return false;
}

bool srt_seal_begin(srt_seal_t *seal, unsigned char header[SRT_SEAL_HEADER])
{
	(void)seal;
	(void)header;
	return false;
}

bool srt_seal_accept(srt_seal_t *seal, const unsigned char header[SRT_SEAL_HEADER])
{
	(void)seal;
	(void)header;
	return false;
}

bool srt_seal_message(srt_seal_t *seal, const void *plain, size_t nbytes, unsigned char *sealed)
{
	(void)seal;
	(void)plain;
	(void)nbytes;
	(void)sealed;
	return false;
}

bool srt_seal_open(srt_seal_t *seal, const unsigned char *sealed, size_t nbytes, void *plain)
{
	(void)seal;
	(void)sealed;
	(void)nbytes;
	(void)plain;
	return false;
}
#endif
