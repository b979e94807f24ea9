/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cryptography of a link, by libsodium: a handshake that proves that both ends know the token
 * (HMAC-SHA-256 of both challenges), and a sealed stream of messages each way (secretstream,
 * XChaCha20-Poly1305). Without libsodium nothing of this is available.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_SEAL_H
#define SRT_COLLECTIVES_BOOTSTRAP_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SRT_SEAL_OVERHEAD 17u
/* Longest part of a handshake. */
#define SRT_SEAL_PART 64u
/* What is expected when the handshake is complete. */
#define SRT_SEAL_OPEN SIZE_MAX

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

/* Bytes of the next part of the handshake that the other end sends, or SRT_SEAL_OPEN. The client
 * begins: it expects a part of no bytes. */
size_t srt_seal_expects(const srt_seal_t *seal);
/* Takes that part, and writes the part that this end sends then, of *nbytes bytes. Returns why the
 * handshake has failed, else NULL. */
const char *srt_seal_shake(srt_seal_t *seal, const unsigned char *part,
			   unsigned char out[SRT_SEAL_PART], size_t *nbytes);

/* Once the handshake is complete: */
/* sealed: [nbytes + SRT_SEAL_OVERHEAD] */
bool srt_seal_message(srt_seal_t *seal, const void *plain, size_t nbytes, unsigned char *sealed);
/* plain: [nbytes - SRT_SEAL_OVERHEAD]; false if the message is not the next one of the other end */
bool srt_seal_open(srt_seal_t *seal, const unsigned char *sealed, size_t nbytes, void *plain);

#endif
