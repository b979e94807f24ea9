/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of inputs that both attention layers have. */
#ifndef SRT_MODELS_ATTENTION_IMPL_H
#define SRT_MODELS_ATTENTION_IMPL_H

#include "models/tape_impl.h"

/* Whether a tensor is NULL (left out), or (rows,n) of this type. */
static inline int srt_attention_has_shape(const srt_tensor_t *x, srt_dtype_t dtype, int64_t rows,
					  int64_t n)
{
	return x == NULL || (x->dtype == dtype && x->rows == rows && x->n == n);
}

/* The inputs as the open units have them. */
static inline int srt_attention_enter(srt_tape_t *tape, const char *layer, srt_attention_in_t *in)
{
	srt_tensor_t **const floats[] = { &in->q, &in->k, &in->v };

	for (int j = 0; j < 3; j++) {
		if (j > 0 && *floats[j] == NULL)
			continue;
		*floats[j] = srt_tape_enter(tape, layer, *floats[j]);
		if (*floats[j] == NULL || !srt_tape_same_dtype(tape, layer, in->q, *floats[j]))
			return 0;
	}
	return (in->lengths == NULL || srt_tape_usable(tape, in->lengths)) &&
	       (in->mask == NULL || srt_tape_usable(tape, in->mask)) &&
	       (in->first == NULL || srt_tape_usable(tape, in->first));
}

#endif
