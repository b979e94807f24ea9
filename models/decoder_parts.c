/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a block. */
#include "models/decoder_impl.h"

int srt_decoder_has_part(const srt_decoder_config_t *c, int part)
{
	const int is_packed = c->names->part[SRT_DECODER_QKV] != NULL;

	switch (part) {
	case SRT_DECODER_NORM1:
	case SRT_DECODER_NORM2:
		return c->placement != SRT_DECODER_POST;
	case SRT_DECODER_POST1:
	case SRT_DECODER_POST2:
		return c->placement != SRT_DECODER_PRE;
	case SRT_DECODER_QKV:
		return is_packed;
	case SRT_DECODER_Q:
	case SRT_DECODER_K:
	case SRT_DECODER_V:
		return !is_packed;
	case SRT_DECODER_Q_NORM:
	case SRT_DECODER_K_NORM:
		return c->qk_norm != SRT_DECODER_QK_NONE;
	case SRT_DECODER_GATE:
		return c->gated;
	default:
		return 1;
	}
}

int srt_decoder_is_linear(int part)
{
	switch (part) {
	case SRT_DECODER_QKV:
	case SRT_DECODER_Q:
	case SRT_DECODER_K:
	case SRT_DECODER_V:
	case SRT_DECODER_O:
	case SRT_DECODER_GATE:
	case SRT_DECODER_UP:
	case SRT_DECODER_DOWN:
		return 1;
	default:
		return 0;
	}
}
