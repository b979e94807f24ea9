/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: a message of the bootstrap, as the launcher and as a rank receive it. */
#include "collectives/bootstrap/wire.h"
#include "tests/fuzz/fuzz.h"

#define WORLD_SIZE 4

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	srt_wire_hello_t hello;
	srt_wire_reply_t reply;
	char text[300] = "";
	const char *wrong =
		srt_wire_parse_hello(input, nbytes, WORLD_SIZE, &hello, text, sizeof(text));

	if (wrong == NULL)
		FUZZ_CHECK(nbytes == sizeof(hello) && hello.rank < WORLD_SIZE &&
			   hello.world_size == WORLD_SIZE);
	else /* fits in a reply */
		FUZZ_CHECK(wrong[0] != '\0' && strlen(wrong) < sizeof(reply.text));
	if (!srt_wire_parse_reply(input, nbytes, &reply))
		return 0;
	FUZZ_CHECK(nbytes == sizeof(reply) &&
		   (reply.type != SRT_WIRE_FAIL || strlen(reply.text) < sizeof(reply.text)));
	for (int rank = 0; rank < WORLD_SIZE; rank++)
		if (srt_wire_is_peer(&reply, rank, WORLD_SIZE))
			FUZZ_CHECK(reply.rank < WORLD_SIZE && (int)reply.rank != rank);
	return 0;
}
