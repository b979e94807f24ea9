/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: a frame, as a server, a rank that joins and the control channel receive it. */
#include "collectives/bootstrap/wire.h"
#include "tests/fuzz/fuzz.h"

#define WORLD_SIZE 4

static void check_reason(const srt_frame_reason_t *reason)
{
	FUZZ_CHECK(strlen(reason->text) < sizeof(reason->text));
	/* The status is one with a name. */
	FUZZ_CHECK(strcmp(srt_status_string((srt_status_t)reason->status),
			  srt_status_string(SRT_STATUS_COUNT)) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	uint16_t node_of[WORLD_SIZE];
	char text[300] = "";
	srt_join_frame_t joining;
	srt_frame_reason_t reason;
	srt_frame_t frame;
	const char *wrong =
		srt_frame_parse_hello(input, nbytes, WORLD_SIZE, &frame, text, sizeof(text));

	if (wrong == NULL)
		FUZZ_CHECK(nbytes == sizeof(frame) && frame.src < WORLD_SIZE &&
			   frame.world_size == WORLD_SIZE);
	else
		FUZZ_CHECK(wrong[0] != '\0' && strlen(wrong) < SRT_WIRE_TEXT);
	if (srt_frame_parse_joining(input, nbytes, &joining)) {
		FUZZ_CHECK(joining.head.nbytes + sizeof(joining.head) == nbytes);
		if (joining.head.type == SRT_FRAME_FAIL)
			check_reason(&joining.reason);
		if (joining.head.type == SRT_FRAME_NODES)
			FUZZ_CHECK(srt_frame_store_nodes(&joining, WORLD_SIZE, node_of) <=
				   WORLD_SIZE);
	}
	if (!srt_frame_parse(input, nbytes, &frame))
		return 0;
	FUZZ_CHECK(frame.nbytes + sizeof(frame) == nbytes);
	FUZZ_CHECK(strlen(frame.what) < sizeof(frame.what));
	if (frame.type > SRT_FRAME_DATA &&
	    srt_frame_parse_reason(&frame, input + sizeof(frame), &reason))
		check_reason(&reason);
	return 0;
}
