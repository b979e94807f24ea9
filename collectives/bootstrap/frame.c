/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses frames of the control channel. Pure: reads the message and writes the results. */
#include <stdio.h>
#include <string.h>

#include "collectives/bootstrap/control_channel_internal.h"

bool srt_frame_parse(const void *message, size_t nbytes, srt_frame_t *frame)
{
	if (nbytes < sizeof(*frame))
		return false;
	memcpy(frame, message, sizeof(*frame));
	frame->what[sizeof(frame->what) - 1] = '\0';
	return frame->magic == SRT_FRAME_MAGIC && frame->nbytes == nbytes - sizeof(*frame) &&
	       frame->type >= SRT_FRAME_DATA && frame->type <= SRT_FRAME_HEARTBEAT;
}

bool srt_frame_parse_reason(const srt_frame_t *frame, const void *payload,
			    srt_frame_reason_t *reason)
{
	if (frame->nbytes != sizeof(*reason))
		return false;
	memcpy(reason, payload, sizeof(*reason));
	reason->text[sizeof(reason->text) - 1] = '\0';
	return reason->status >= 0 && reason->status < SRT_STATUS_COUNT;
}

srt_frame_reason_t srt_frame_unreachable(int rank, int carrier)
{
	srt_frame_reason_t reason = { .status = SRT_ERR_PEER_DEAD };

	snprintf(reason.text, sizeof(reason.text),
		 "rank %d cannot be reached: rank %d, which carried its messages, is gone", rank,
		 carrier);
	return reason;
}
