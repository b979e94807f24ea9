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

#define HELLO_MAGIC 0x5352544cu
#define HELLO_VERSION 1u
#define PROOF_NBYTES ((size_t)crypto_auth_hmacsha256_BYTES)
#define HEADER_NBYTES ((size_t)crypto_secretstream_xchacha20poly1305_HEADERBYTES)

typedef unsigned char challenge_t[32];
typedef unsigned char proof_t[crypto_auth_hmacsha256_BYTES];

typedef struct hello {
	uint32_t magic, version;
	challenge_t challenge;
} hello_t;

typedef struct answer {
	challenge_t challenge;
	proof_t proof;
} answer_t;

_Static_assert(sizeof(answer_t) <= SRT_SEAL_PART && sizeof(hello_t) <= SRT_SEAL_PART &&
		       sizeof(proof_t) + HEADER_NBYTES <= SRT_SEAL_PART,
	       "the longest part");
_Static_assert(SRT_SEAL_OVERHEAD == crypto_secretstream_xchacha20poly1305_ABYTES,
	       "what a message grows by");
_Static_assert(sizeof(proof_t) == crypto_secretstream_xchacha20poly1305_KEYBYTES,
	       "a key is an HMAC");

struct srt_seal {
	srt_seal_role_t role;
	/* What is expected next: */
	enum { NOTHING, HELLO, ANSWER, PROOF, HEADER, OPEN } step;
	unsigned char key[crypto_hash_sha256_BYTES]; /* of the token */
	challenge_t challenge[2];                    /* by role */
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
	seal->step = role == SRT_SEAL_SERVER ? HELLO : NOTHING;
	crypto_hash_sha256(seal->key, (const unsigned char *)token, strlen(token));
	randombytes_buf(seal->challenge[role], sizeof(challenge_t));
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

/* The HMAC of a purpose of a role and both challenges. */
static void derive(const srt_seal_t *seal, const char *purpose, srt_seal_role_t role, proof_t out)
{
	const unsigned char who = (unsigned char)role;
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, seal->key, sizeof(seal->key));
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)purpose, strlen(purpose));
	crypto_auth_hmacsha256_update(&state, &who, sizeof(who));
	crypto_auth_hmacsha256_update(&state, seal->challenge[0], sizeof(seal->challenge));
	crypto_auth_hmacsha256_final(&state, out);
}

static bool check_proof(const srt_seal_t *seal, const proof_t proof)
{
	proof_t expected;

	derive(seal, "libshardrt proof 1", other(seal->role), expected);
	return sodium_memcmp(proof, expected, sizeof(expected)) == 0;
}

/* Begins this end's stream. Returns why not, else NULL. */
static const char *begin_stream(srt_seal_t *seal, unsigned char header[HEADER_NBYTES])
{
	proof_t key;

	derive(seal, "libshardrt stream 1", seal->role, key);
	if (crypto_secretstream_xchacha20poly1305_init_push(&seal->out, header, key) != 0)
		return "there is no memory";
	seal->step = HEADER;
	return NULL;
}

/* Begins the other end's stream. */
static bool accept_stream(srt_seal_t *seal, const unsigned char header[HEADER_NBYTES])
{
	proof_t key;

	derive(seal, "libshardrt stream 1", other(seal->role), key);
	return crypto_secretstream_xchacha20poly1305_init_pull(&seal->in, header, key) == 0;
}

size_t srt_seal_expects(const srt_seal_t *seal)
{
	static const size_t nbytes[] = {
		[HELLO] = sizeof(hello_t), [ANSWER] = sizeof(answer_t), [PROOF] = PROOF_NBYTES,
		[HEADER] = HEADER_NBYTES,  [OPEN] = SRT_SEAL_OPEN,
	};

	return nbytes[seal->step];
}

const char *srt_seal_shake(srt_seal_t *seal, const unsigned char *part,
			   unsigned char out[SRT_SEAL_PART], size_t *nbytes)
{
	hello_t hello = { .magic = HELLO_MAGIC, .version = HELLO_VERSION };
	answer_t answer;

	*nbytes = 0;
	switch (seal->step) {
	case NOTHING:
		memcpy(hello.challenge, seal->challenge[seal->role], sizeof(challenge_t));
		memcpy(out, &hello, sizeof(hello));
		*nbytes = sizeof(hello);
		seal->step = ANSWER;
		break;
	case HELLO:
		memcpy(&hello, part, sizeof(hello));
		if (hello.magic != HELLO_MAGIC)
			return "the other end is no rank of a libshardrt job";
		if (hello.version != HELLO_VERSION)
			return "the other end has another version of libshardrt";
		memcpy(seal->challenge[other(seal->role)], hello.challenge, sizeof(challenge_t));
		memcpy(answer.challenge, seal->challenge[seal->role], sizeof(challenge_t));
		derive(seal, "libshardrt proof 1", seal->role, answer.proof);
		memcpy(out, &answer, sizeof(answer));
		*nbytes = sizeof(answer);
		seal->step = PROOF;
		break;
	case ANSWER:
		memcpy(&answer, part, sizeof(answer));
		memcpy(seal->challenge[other(seal->role)], answer.challenge, sizeof(challenge_t));
		if (!check_proof(seal, answer.proof))
			return "the other end does not know the job's token";
		derive(seal, "libshardrt proof 1", seal->role, out);
		*nbytes = PROOF_NBYTES + HEADER_NBYTES;
		return begin_stream(seal, out + PROOF_NBYTES);
	case PROOF:
		if (!check_proof(seal, part))
			return "the other end does not know the job's token";
		*nbytes = HEADER_NBYTES;
		return begin_stream(seal, out);
	case HEADER:
		if (!accept_stream(seal, part))
			return "the other end broke the protocol";
		seal->step = OPEN;
		break;
	case OPEN:
		break;
	}
	return NULL;
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

size_t srt_seal_expects(const srt_seal_t *seal)
{
	(void)seal;
	return 0;
}

const char *srt_seal_shake(srt_seal_t *seal, const unsigned char *part,
			   unsigned char out[SRT_SEAL_PART], size_t *nbytes)
{
	(void)seal;
	(void)part;
	(void)out;
	(void)nbytes;
	return NULL;
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
