/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cryptography of a link, by libsodium: proofs that both ends know the token (HMAC-SHA-256 of
 * both challenges), and a sealed stream of messages each way (secretstream, XChaCha20-Poly1305).
 * Without libsodium nothing of this is available.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_SEAL_H
#define SRT_COLLECTIVES_BOOTSTRAP_SEAL_H

#include <stdbool.h>
#include <stddef.h>

#define SRT_SEAL_CHALLENGE 32u
#define SRT_SEAL_PROOF 32u
#define SRT_SEAL_HEADER 24u
#define SRT_SEAL_OVERHEAD 17u

typedef enum srt_seal_role {
	SRT_SEAL_SERVER,
	SRT_SEAL_CLIENT,
} srt_seal_role_t;

typedef struct srt_seal srt_seal_t;

bool srt_seal_is_supported(void);

/* One end of a link. NULL if there is no memory, or no libsodium. */
srt_seal_t *srt_seal_create(srt_seal_role_t role, const char *token);
/* NULL is allowed. */
void srt_seal_destroy(srt_seal_t *seal);

/* This end's challenge. */
void srt_seal_challenge(const srt_seal_t *seal, unsigned char challenge[SRT_SEAL_CHALLENGE]);
/* Stores the other end's challenge. */
void srt_seal_answer(srt_seal_t *seal, const unsigned char challenge[SRT_SEAL_CHALLENGE]);
/* This end's proof that it knows the token. */
void srt_seal_prove(const srt_seal_t *seal, unsigned char proof[SRT_SEAL_PROOF]);
/* Whether this is the other end's proof. */
bool srt_seal_check(const srt_seal_t *seal, const unsigned char proof[SRT_SEAL_PROOF]);

/* Begins this end's stream. */
bool srt_seal_begin(srt_seal_t *seal, unsigned char header[SRT_SEAL_HEADER]);
/* Begins the other end's stream. */
bool srt_seal_accept(srt_seal_t *seal, const unsigned char header[SRT_SEAL_HEADER]);
/* sealed: [nbytes + SRT_SEAL_OVERHEAD] */
bool srt_seal_message(srt_seal_t *seal, const void *plain, size_t nbytes, unsigned char *sealed);
/* plain: [nbytes - SRT_SEAL_OVERHEAD]; false if the message is not the next one of the other end */
bool srt_seal_open(srt_seal_t *seal, const unsigned char *sealed, size_t nbytes, void *plain);

#endif
