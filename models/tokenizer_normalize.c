/* SPDX-License-Identifier: BSD-3-Clause */
/* The normalizing steps of a tokenizer: text -> text. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_UTF8PROC
#include <utf8proc.h>
#endif

#include "models/tokenizer_impl.h"
#include "models/try.h"

srt_status_t srt_tokenizer_replace(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				   const char *text, size_t nbytes, srt_string_t *out)
{
	srt_matches_t m = srt_matches_begin(step->pattern, matcher, text, nbytes);
	size_t start, stop, copied = 0;
	bool found;

	for (;;) {
		SRT_TRY(srt_matches_next(&m, &found, &start, &stop));
		if (!found)
			return srt_string_append(out, text + copied, nbytes - copied);
		SRT_TRY(srt_string_append(out, text + copied, start - copied));
		SRT_TRY(srt_string_append(out, step->text.data, step->text.nbytes));
		copied = stop;
	}
}

#ifdef HAVE_UTF8PROC
/* Appends the normal form of a part. */
static srt_status_t map_part(const char *text, size_t nbytes, unsigned flags, srt_string_t *out)
{
	utf8proc_uint8_t *mapped = NULL;
	const utf8proc_ssize_t n =
		utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)nbytes, &mapped,
			     (utf8proc_option_t)flags);
	srt_status_t status;

	if (n < 0)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "Unicode normalization: %s",
				      utf8proc_errmsg(n));
	status = srt_string_append(out, (const char *)mapped, (size_t)n);
	free(mapped);
	return status;
}

/* No normal form joins a character of ASCII to what is before it: a part begins at the last such
 * character before others and ends at the next one. */
static srt_status_t map_text(const char *text, size_t nbytes, unsigned flags, srt_string_t *out)
{
	size_t done = 0;

	for (size_t i = 0; i < nbytes; i++) {
		const size_t start = i > 0 ? i - 1 : 0;

		if ((text[i] & 0x80) == 0)
			continue;
		SRT_TRY(srt_string_append(out, text + done, start - done));
		while (i < nbytes && (text[i] & 0x80) != 0)
			i++;
		SRT_TRY(map_part(text + start, i - start, flags, out));
		done = i;
	}
	return srt_string_append(out, text + done, nbytes - done);
}
#else
/* A tokenizer with such a step is not opened in this build. */
static srt_status_t map_text(const char *text, size_t nbytes, unsigned flags, srt_string_t *out)
{
	(void)flags;
	return srt_string_append(out, text, nbytes);
}
#endif

static srt_status_t apply(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
			  const srt_string_t *text, srt_string_t *out)
{
	if (step->kind == SRT_STEP_UNICODE)
		return map_text(text->data, text->nbytes, step->flags, out);
	if (step->kind == SRT_STEP_REPLACE)
		return srt_tokenizer_replace(step, matcher, text->data, text->nbytes, out);
	SRT_TRY(srt_string_append(out, step->text.data, step->text.nbytes));
	return srt_string_append(out, text->data, text->nbytes);
}

srt_status_t srt_tokenizer_normalize(const srt_tokenizer_steps_t *steps, srt_matcher_t *matcher,
				     bool is_cut, srt_string_t *text)
{
	for (size_t i = 0; i < steps->n && text->nbytes > 0; i++) {
		srt_string_t out = { .nbytes = 0 };
		srt_status_t status;

		if (is_cut && steps->step[i].kind == SRT_STEP_PREPEND)
			continue;
		status = apply(&steps->step[i], matcher, text, &out);
		free(text->data);
		*text = out;
		SRT_TRY(status);
	}
	return SRT_OK;
}
