/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints texts and JSON, gathers those of other ranks; see generate.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/common.h"
#include "tools/generate/generate.h"

/* ---- JSON ------------------------------------------------------------------------------- */

static srt_status_t append_format(srt_string_t *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static srt_status_t append_format(srt_string_t *out, const char *format, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return srt_string_append(out, text, strlen(text));
}

static srt_status_t append_ids(srt_string_t *out, const char *key, const int32_t *ids, size_t n)
{
	SRT_TRY(append_format(out, ", \"%s\": [", key));
	for (size_t i = 0; i < n; i++)
		SRT_TRY(append_format(out, "%s%d", i > 0 ? ", " : "", (int)ids[i]));
	return append_format(out, "]");
}

/* JSON has no infinite numbers. */
static srt_status_t append_logprobs(srt_string_t *out, const float *values, size_t n)
{
	SRT_TRY(append_format(out, ", \"logprobs\": ["));
	for (size_t i = 0; i < n; i++) {
		SRT_TRY(append_format(out, "%s", i > 0 ? ", " : ""));
		SRT_TRY(isfinite(values[i]) ? append_format(out, "%.9g", (double)values[i]) :
					      append_format(out, "null"));
	}
	return append_format(out, "]");
}

/* A character, or what is no UTF-8, as U+FFFD. @param[in,out] at moved past it. */
static srt_status_t append_char(srt_string_t *out, const srt_string_t *text, size_t *at)
{
	const char *c = text->data + *at;
	uint32_t code;
	const int n = srt_utf8_decode(c, text->nbytes - *at, &code);

	*at += (size_t)abs(n);
	if (n < 0)
		return append_format(out, "\xef\xbf\xbd");
	if (code == '"' || code == '\\')
		return append_format(out, "\\%c", *c);
	if (code == '\n')
		return append_format(out, "\\n");
	if (code < 0x20 || (code >= 0x7f && code < 0xa0))
		return append_format(out, "\\u%04x", (unsigned)code);
	return srt_string_append(out, c, (size_t)n);
}

static srt_status_t append_text(srt_string_t *out, const srt_string_t *text)
{
	SRT_TRY(append_format(out, ", \"text\": \""));
	for (size_t at = 0; at < text->nbytes;)
		SRT_TRY(append_char(out, text, &at));
	return append_format(out, "\"");
}

static const char *find_finish(const srt_sequence_t *sequence, const generate_text_t *text)
{
	return text->stopped ? "stop" : sequence->finish == SRT_FINISH_EOS ? "eos" : "length";
}

static srt_status_t append_json(srt_string_t *out, size_t index, const srt_sequence_t *s,
				const generate_text_t *text)
{
	SRT_TRY(append_format(out, "{\"index\": %zu", index));
	SRT_TRY(append_ids(out, "prompt_ids", s->prompt, (size_t)s->nprompt));
	SRT_TRY(append_ids(out, "ids", s->tokens, (size_t)s->ntokens));
	SRT_TRY(append_logprobs(out, s->logprobs, (size_t)s->ntokens));
	SRT_TRY(append_text(out, &text->text));
	return append_format(out, ", \"finish\": \"%s\"}\n", find_finish(s, text));
}

srt_status_t generate_describe(const generate_run_t *run, size_t index,
			       const srt_sequence_t *sequence, const generate_text_t *text,
			       srt_string_t *out)
{
	if (run->opt.json)
		return append_json(out, index, sequence, text);
	if (!run->streams) /* else it was printed */
		SRT_TRY(srt_string_append(out, text->text.data, text->text.nbytes));
	return srt_string_append(out, "\n", 1);
}

/* ---- printing --------------------------------------------------------------------------- */

void generate_print(generate_run_t *run, const char *text, size_t nbytes)
{
	if (nbytes == 0 || run->cannot_print)
		return;
	if (run->on_terminal)
		tool_print_text(stdout, text, nbytes);
	else
		fwrite(text, 1, nbytes, stdout);
	run->cannot_print = fflush(stdout) != 0 || ferror(stdout);
}

/* Gathers texts of at most `most` bytes, and prints them. @param sizes of each rank's. */
static srt_status_t print_all(generate_run_t *run, const srt_string_t *mine, const uint64_t *sizes,
			      size_t most)
{
	const size_t world = (size_t)run->ranks.world;
	char *sent = calloc(1, most), *all = calloc(world, most);
	srt_status_t status;

	if (sent != NULL && all != NULL) {
		if (mine->nbytes > 0)
			memcpy(sent, mine->data, mine->nbytes);
		status = srt_comm_oob_allgather(run->ranks.comm, sent, most, all);
	} else {
		status = srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
					"no host memory to print texts of %zu bytes", most);
	}
	for (size_t r = 0; r < world && status == SRT_OK && run->ranks.rank == 0; r++)
		generate_print(run, all + r * most, (size_t)sizes[r]);
	free(sent);
	free(all);
	return status;
}

srt_status_t generate_print_row(generate_run_t *run, const srt_string_t *mine)
{
	const uint64_t nbytes = mine->nbytes;
	uint64_t *sizes, most = 0;
	srt_status_t status;

	if (run->ranks.world == 1) {
		generate_print(run, mine->data, mine->nbytes);
		return SRT_OK;
	}
	sizes = calloc((size_t)run->ranks.world, sizeof(*sizes));
	if (sizes == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to print");
	status = srt_comm_oob_allgather(run->ranks.comm, &nbytes, sizeof(nbytes), sizes);
	for (int r = 0; r < run->ranks.world; r++)
		most = sizes[r] > most ? sizes[r] : most;
	if (status == SRT_OK && most > 0)
		status = print_all(run, mine, sizes, (size_t)most);
	free(sizes);
	return status;
}

static double divide(int64_t tokens, double seconds)
{
	return seconds > 0 ? (double)tokens / seconds : 0;
}

srt_status_t generate_print_speed(generate_run_t *run)
{
	generate_speed_t *all = calloc((size_t)run->ranks.world, sizeof(*all)), sum = { 0 };
	srt_status_t status;

	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to print");
	status = srt_comm_oob_allgather(run->ranks.comm, &run->speed, sizeof(run->speed), all);
	for (int r = 0; r < run->ranks.world; r++) { /* at the same time */
		sum.prompt_tokens += all[r].prompt_tokens;
		sum.new_tokens += all[r].new_tokens;
		sum.prompt_s = all[r].prompt_s > sum.prompt_s ? all[r].prompt_s : sum.prompt_s;
		sum.new_s = all[r].new_s > sum.new_s ? all[r].new_s : sum.new_s;
	}
	free(all);
	if (status == SRT_OK && run->ranks.rank == 0)
		tool_error("prefill %lld tokens, %.1f tokens/s; decode %lld tokens, %.1f tokens/s",
			   (long long)sum.prompt_tokens, divide(sum.prompt_tokens, sum.prompt_s),
			   (long long)sum.new_tokens, divide(sum.new_tokens, sum.new_s));
	return status;
}
