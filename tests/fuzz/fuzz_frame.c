/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: a message of the control channel. */
#include "collectives/bootstrap/control_channel_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	srt_frame_t frame;
	srt_frame_reason_t reason;

	if (!srt_frame_parse(input, nbytes, &frame))
		return 0;
	FUZZ_CHECK(frame.nbytes + sizeof(frame) == nbytes);
	FUZZ_CHECK(strlen(frame.what) < sizeof(frame.what));
	if (frame.type == SRT_FRAME_DATA ||
	    !srt_frame_parse_reason(&frame, input + sizeof(frame), &reason))
		return 0;
	FUZZ_CHECK(strlen(reason.text) < sizeof(reason.text));
	/* The status is one with a name. */
	FUZZ_CHECK(strcmp(srt_status_string((srt_status_t)reason.status),
			  srt_status_string(SRT_STATUS_COUNT)) != 0);
	return 0;
}
