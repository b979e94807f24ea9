/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "sft": steps of pairs of a prompt and an answer, whose loss is the mean over the answer
 * tokens of all ranks and micro-batches (replay_hf.h). The pairs of a micro-batch are packed into
 * rows of several documents; in separate rows, padded, their losses have the same bits.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_hf.h"

/* ---- the pairs of a step ------------------------------------------------------------------ */

typedef struct pair {
	int64_t n;
	int32_t *ids, *labels;
} pair_t;

static void free_pairs(pair_t *pairs, size_t npairs)
{
	for (size_t i = 0; pairs != NULL && i < npairs; i++) {
		free(pairs[i].ids);
		free(pairs[i].labels);
	}
	free(pairs);
}

static srt_status_t read_pair(const golden_t *g, int step, size_t i, pair_t *pair)
{
	const srt_safetensors_tensor_t *ids;
	char name[64];

	snprintf(name, sizeof(name), "step%d.pair%zu.input_ids", step, i);
	ids = srt_safetensors_find(g->input, name);
	if (ids == NULL || ids->ndim != 1)
		return srt_fail(SRT_ERR_FORMAT, "the case has no vector '%s'", name);
	pair->n = ids->shape[0];
	SRT_TRY(hf_read_ints(g->input, name, (size_t)pair->n, &pair->ids));
	snprintf(name, sizeof(name), "step%d.pair%zu.labels", step, i);
	return hf_read_ints(g->input, name, (size_t)pair->n, &pair->labels);
}

static srt_status_t read_pairs(const golden_t *g, int step, size_t npairs, pair_t **pairs)
{
	*pairs = srt_calloc(npairs + 1, sizeof(**pairs), "pairs");
	if (*pairs == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < npairs; i++)
		SRT_TRY(read_pair(g, step, i, *pairs + i));
	return SRT_OK;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Rows of a micro-batch, and where each of its pairs begins. */
typedef struct rows {
	int64_t rows, length, answer_tokens;
	int32_t *ids, *targets, *positions;
	size_t npairs;
	const pair_t **pairs;
	int64_t *at;
} rows_t;

static void free_rows(rows_t *b)
{
	free(b->ids);
	free(b->pairs);
	free(b->at);
	*b = (rows_t){ 0 };
}

/* Chooses a place for each pair: the first row with room for it, or a separate one. */
static srt_status_t place(rows_t *b, bool packed)
{
	int64_t *used = srt_calloc(b->npairs + 1, sizeof(*used), "rows");

	if (used == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < b->npairs; i++) {
		int64_t row = packed ? 0 : b->rows;

		while (used[row] + b->pairs[i]->n > b->length)
			row++;
		b->at[i] = row * b->length + used[row];
		used[row] += b->pairs[i]->n;
		b->rows = row + 1 > b->rows ? row + 1 : b->rows;
	}
	free(used);
	return SRT_OK;
}

/* What follows the pairs of a row is a document without targets. */
static srt_status_t fill(rows_t *b)
{
	const size_t n = (size_t)(b->rows * b->length);

	b->ids = srt_calloc(3 * n + 1, sizeof(*b->ids), "rows");
	if (b->ids == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	b->targets = b->ids + n;
	b->positions = b->targets + n;
	for (size_t i = 0; i < n; i++)
		b->targets[i] = -1;
	for (size_t i = 0; i < b->npairs; i++) {
		const pair_t *pair = b->pairs[i];

		for (int64_t t = 0; t < pair->n; t++) {
			const int64_t to = b->at[i] + t;

			b->ids[to] = pair->ids[t];
			b->positions[to] = (int32_t)t;
			if (t + 1 < pair->n && pair->labels[t + 1] >= 0)
				b->targets[to] = pair->labels[t + 1];
			b->answer_tokens += b->targets[to] >= 0;
		}
	}
	return SRT_OK;
}

/* The pairs of a micro-batch, `list`, in rows of `length` tokens. */
static srt_status_t make_rows(const json_t *list, const pair_t *pairs, size_t npairs,
			      int64_t length, bool packed, rows_t *b)
{
	*b = (rows_t){ .length = length, .npairs = json_array_size(list) };
	b->pairs = srt_calloc(b->npairs + 1, sizeof(pair_t *), "pairs");
	b->at = srt_calloc(b->npairs + 1, sizeof(*b->at), "pairs");
	if (b->pairs == NULL || b->at == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < b->npairs; i++) {
		const double pair = json_number_value(json_array_get(list, i));

		if (pair < 0 || pair >= (double)npairs || pairs[(size_t)pair].n > length)
			return srt_fail(SRT_ERR_FORMAT, "a micro-batch has no pair %g of %lld",
					pair, (long long)length);
		b->pairs[i] = pairs + (size_t)pair;
	}
	SRT_TRY(place(b, packed));
	return fill(b);
}

/* ---- a world ------------------------------------------------------------------------------ */

typedef struct sft {
	hf_run_t r;
	const json_t *world; /* what was recorded with this number of ranks */
	const json_t *split; /* of this rank: pairs by micro-batch */
	size_t npairs, nmicro;
	int64_t rows, length; /* of the tape */
	int64_t longest;      /* pair of the first step */
	double total;         /* answer tokens of a step */
	float **alone;        /* losses of the first step's micro-batches in separate rows */
} sft_t;

/* The shape of a micro-batch in rows that are as long as the model allows. */
static srt_status_t find_shape(sft_t *s)
{
	pair_t *pairs;
	srt_status_t status = read_pairs(s->r.golden, 1, s->npairs, &pairs);

	for (size_t i = 0; i < s->npairs && status == SRT_OK; i++) {
		s->length += pairs[i].n;
		s->longest = pairs[i].n > s->longest ? pairs[i].n : s->longest;
	}
	if (s->length > s->r.config.context)
		s->length = s->r.config.context;
	for (size_t m = 0; m < s->nmicro && status == SRT_OK; m++) {
		rows_t b;

		status = make_rows(json_array_get(s->split, m), pairs, s->npairs, s->length, true,
				   &b);
		s->rows = b.rows > s->rows ? b.rows : s->rows;
		free_rows(&b);
	}
	free_pairs(pairs, s->npairs);
	return status;
}

/* The tape has s->rows rows on each rank; those that a micro-batch lacks are empty. */
static srt_status_t feed(sft_t *s, const rows_t *b)
{
	const size_t n = (size_t)(s->r.nmine * b->length), have = (size_t)(b->rows * b->length);
	int32_t *ids = srt_calloc(3 * n + 1, sizeof(*ids), "rows");
	srt_status_t status;

	if (ids == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(ids, b->ids, have * sizeof(*ids));
	memset(ids + n, 0xff, n * sizeof(*ids)); /* -1 */
	memcpy(ids + n, b->targets, have * sizeof(*ids));
	memcpy(ids + 2 * n, b->positions, have * sizeof(*ids));
	status = srt_decoder_put_tokens(&s->r.io, ids, ids + n, s->r.stream);
	if (status == SRT_OK)
		status = srt_decoder_put_positions(&s->r.io, ids + 2 * n, s->r.stream);
	free(ids);
	return status;
}

/* The losses of a micro-batch of the first step, each pair in a separate row. */
static srt_status_t run_alone(sft_t *s, const pair_t *pairs, size_t m)
{
	const srt_decoder_pass_t pass = { .context = s->longest, .documents = 1, .loss = 1 };
	const json_t *list = json_array_get(s->split, m);
	rows_t b;
	srt_status_t status;

	status = make_rows(list, pairs, s->npairs, pass.context, false, &b);
	if (status == SRT_OK)
		status = hf_record(&s->r, SRT_TAPE_FORWARD, b.rows * s->r.ndata, &pass);
	if (status == SRT_OK)
		status = feed(s, &b);
	if (status == SRT_OK)
		status = srt_tape_forward(s->r.tape, s->r.stream);
	if (status == SRT_OK)
		status = hf_read_tensor(&s->r, s->r.io.loss, s->alone + m);
	free_rows(&b);
	return status;
}

/* Compares the losses of the packed pairs of a micro-batch with those alone. */
static void compare_alone(sft_t *s, const rows_t *b, size_t m, const float *losses)
{
	for (size_t i = 0; i < b->npairs; i++)
		verdict_exact(s->r.verdict,
			      !memcmp(losses + b->at[i], s->alone[m] + (int64_t)i * s->longest,
				      (size_t)b->pairs[i]->n * sizeof(*losses)),
			      "pair %zu of micro-batch %zu has other bits alone than in a row", i,
			      m);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* The recorded numbers of a micro-batch of this rank. */
static const json_t *find_recorded(const sft_t *s, int step, const char *what, size_t m)
{
	const json_t *steps = json_object_get(s->world, "steps");
	const json_t *ranks = json_object_get(json_array_get(steps, (size_t)step - 1), "ranks");

	return json_array_get(json_object_get(json_array_get(ranks, (size_t)s->r.data_rank), what),
			      m);
}

/* Forward and backward pass of a micro-batch; its losses are compared. @param[out] sum of them,
 * mean: their mean. */
static srt_status_t run_micro(sft_t *s, int step, const pair_t *pairs, size_t m, float *sum,
			      float *mean)
{
	const size_t n = (size_t)(s->rows * s->length);
	const srt_view_t none = { 0 };
	float *losses = NULL;
	double total = 0;
	char key[96];
	rows_t b;
	srt_status_t status =
		make_rows(json_array_get(s->split, m), pairs, s->npairs, s->length, true, &b);

	if (status == SRT_OK)
		status = feed(s, &b);
	if (status == SRT_OK)
		status = srt_engine_microbatch(s->r.engine, (int)m, (int)s->nmicro);
	if (status == SRT_OK)
		status = srt_tape_forward(s->r.tape, s->r.stream);
	if (status == SRT_OK)
		status = srt_tape_backward(s->r.tape, 1.0f / (float)s->total, none, s->r.stream);
	if (status == SRT_OK)
		status = hf_read_tensor(&s->r, s->r.io.loss, &losses);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		total += (double)losses[i];
	*sum = (float)total;
	*mean = *sum / (float)b.answer_tokens;
	if (status == SRT_OK) {
		if (step == 1)
			compare_alone(s, &b, m, losses);
		snprintf(key, sizeof(key), "step%d.rank%d.micro%zu.loss_sum", step, s->r.data_rank,
			 m);
		verdict_scalar(s->r.verdict, s->r.golden, key, total,
			       golden_scalar(find_recorded(s, step, "loss_sum", m)));
		verdict_exact(s->r.verdict,
			      (double)b.answer_tokens ==
				      json_number_value(find_recorded(s, step, "answer_tokens", m)),
			      "step %d, micro-batch %zu: %lld answer tokens", step, m,
			      (long long)b.answer_tokens);
	}
	free(losses);
	free_rows(&b);
	return status;
}

/* The losses of a step: the mean over all answer tokens, and the mean of the means of
 * micro-batches, which is another number. Collective. */
static srt_status_t compare_losses(sft_t *s, int step, const float *sums, const float *means)
{
	const json_t *recorded =
		json_array_get(json_object_get(s->r.golden->json, "steps"), (size_t)step - 1);
	double sum, wrong;
	char key[96];

	SRT_TRY(hf_sum(&s->r, sums, s->nmicro, &sum));
	SRT_TRY(hf_sum(&s->r, means, s->nmicro, &wrong));
	snprintf(key, sizeof(key), "step%d.loss", step);
	verdict_scalar(s->r.verdict, s->r.golden, key, (double)(float)(sum / s->total),
		       golden_scalar(json_object_get(recorded, "loss")));
	if (step == 1)
		verdict_scalar(s->r.verdict, s->r.golden, "wrong_mean_of_means_step1",
			       wrong / (double)((size_t)s->r.ndata * s->nmicro),
			       golden_scalar(
				       json_object_get(s->world, "wrong_mean_of_means_step1")));
	return SRT_OK;
}

static srt_status_t run_step(sft_t *s, int step, const pair_t *pairs)
{
	const json_t *recorded =
		json_array_get(json_object_get(s->r.golden->json, "steps"), (size_t)step - 1);
	float *sums = srt_calloc(2 * s->nmicro + 1, sizeof(*sums), "losses");
	srt_step_info_t info = SRT_STEP_INFO_INIT;
	srt_status_t status = sums != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	char key[96];

	for (size_t m = 0; m < s->nmicro && status == SRT_OK; m++)
		status = run_micro(s, step, pairs, m, sums + m, sums + s->nmicro + m);
	if (status == SRT_OK)
		status = compare_losses(s, step, sums, sums + s->nmicro);
	free(sums);
	SRT_TRY(status);
	SRT_TRY(srt_engine_finish_backward(s->r.engine, s->r.stream));
	snprintf(key, sizeof(key), "step%d.grad.", step);
	SRT_TRY(hf_compare_params(&s->r, key, SRT_PARAM_GRAD));
	SRT_TRY(srt_engine_step(s->r.engine, s->r.stream));
	SRT_TRY(srt_engine_get_step_info(s->r.engine, &info, s->r.stream));
	snprintf(key, sizeof(key), "step%d.grad_norm", step);
	verdict_scalar(s->r.verdict, s->r.golden, key, (double)info.grad_norm,
		       golden_scalar(json_object_get(recorded, "grad_norm")));
	snprintf(key, sizeof(key), "step%d.param.", step);
	return hf_compare_params(&s->r, key, SRT_PARAM_VALUE);
}

static srt_status_t run_steps(sft_t *s)
{
	srt_decoder_pass_t pass = { .documents = 1, .loss = 1 };
	pair_t *pairs;
	srt_status_t status = read_pairs(s->r.golden, 1, s->npairs, &pairs);

	for (size_t m = 0; m < s->nmicro && status == SRT_OK; m++)
		status = run_alone(s, pairs, m);
	free_pairs(pairs, s->npairs);
	pass.context = s->length;
	if (status == SRT_OK)
		status = hf_record(&s->r, SRT_TAPE_TRAINING, s->rows * s->r.ndata, &pass);
	for (int step = 1; step <= s->r.golden->nsteps && status == SRT_OK; step++) {
		status = read_pairs(s->r.golden, step, s->npairs, &pairs);
		if (status == SRT_OK)
			status = run_step(s, step, pairs);
		free_pairs(pairs, s->npairs);
	}
	return status;
}

/* What was recorded with this number of ranks. All of them have as many micro-batches. */
static srt_status_t find_world(sft_t *s, int ranks)
{
	const json_t *json = s->r.golden->json;
	char name[16];

	snprintf(name, sizeof(name), "%d", ranks);
	s->world = json_object_get(json_object_get(json, "worlds"), name);
	if (s->world == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED, "it was not recorded with %d ranks", ranks);
	s->nmicro = json_array_size(json_array_get(json_object_get(s->world, "split"), 0));
	s->npairs = json_array_size(json_object_get(json, "pairs"));
	s->total = golden_number(json, "total_answer_tokens", 0);
	if (s->npairs == 0 || s->nmicro == 0 || s->total < 1)
		return srt_fail(SRT_ERR_FORMAT, "the case has no pairs");
	s->alone = srt_calloc(s->nmicro, sizeof(*s->alone), "losses");
	return s->alone != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static srt_status_t run_world(sft_t *s)
{
	const json_t *json = s->r.golden->json;
	const hf_engine_t how = {
		.folder = golden_text(json, "model"),
		.dtype = SRT_F32,
		.matrix_decay =
			(float)golden_number(json_object_get(json, "optimizer"), "weight_decay", 0),
		.optim = hf_read_optim(s->r.golden),
		.max_norm = (float)golden_number(json_object_get(json, "clip"), "max_norm", 0),
		.microbatches = (int)s->nmicro,
	};

	SRT_TRY(hf_open(&s->r, &how));
	s->split = json_array_get(json_object_get(s->world, "split"), (size_t)s->r.data_rank);
	if (json_array_size(s->split) != s->nmicro)
		return srt_fail(SRT_ERR_FORMAT, "the ranks have different micro-batches");
	SRT_TRY(find_shape(s));
	return run_steps(s);
}

/* All that was recorded is of a step that is run. */
static void check_keys(const sft_t *s)
{
	const golden_t *g = s->r.golden;

	for (size_t i = 0; i < srt_safetensors_count(g->expect); i++) {
		const char *key = srt_safetensors_tensor(g->expect, i)->name;
		char what[8] = "";
		int step = 0;

		sscanf(key, "step%d.%5[a-z].", &step, what);
		verdict_exact(s->r.verdict,
			      step >= 1 && step <= g->nsteps &&
				      (!strcmp(what, "grad") || !strcmp(what, "param")),
			      "%s was not compared", key);
	}
}

srt_status_t replay_hf_sft(golden_t *g, srt_context_t *context, const hf_options_t *options,
			   verdict_t *v)
{
	sft_t s = { .r = { .golden = g, .context = context, .options = options, .verdict = v } };
	srt_status_t status = find_world(&s, srt_context_world_size(context) / options->tp);

	check_keys(&s);
	if (status == SRT_OK)
		status = run_world(&s);
	for (size_t m = 0; s.alone != NULL && m < s.nmicro; m++)
		free(s.alone[m]);
	free(s.alone);
	hf_close(&s.r);
	return status;
}
