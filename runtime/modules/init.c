/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The distributions of <shardrt/init.h> from shapes, and the defaults of PyTorch's modules. Pure
 * functions; srt_param_init() fills parameters.
 *
 * One table has the names of all modules. A name is a parameter, or a module inside with the rest
 * of the name; after the inner module's draw, the outer one may draw again, as the constructors
 * do.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/fpenv.h"

#include <shardrt/init.h>

/* ---- torch.nn.init --------------------------------------------------------------------- */

/* fan_in and fan_out of a weight. */
static srt_status_t fans(int ndim, const int64_t *shape, double *fan_in, double *fan_out)
{
	if (ndim < 2 || ndim > SRT_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a tensor of %d dimensions has no fan_in and fan_out: give a "
				"shape of 2 to %d dimensions",
				ndim, SRT_MAX_DIMS);
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT, "size %d of the shape is %lld", i,
					(long long)shape[i]);
	}
	*fan_in = (double)shape[1];
	*fan_out = (double)shape[0];
	for (int i = 2; i < ndim; i++) {
		*fan_in *= (double)shape[i];
		*fan_out *= (double)shape[i];
	}
	return SRT_OK;
}

/*
 * The functions below compute in the environment of docs/numerics.md. Their numbers are read from
 * and written to *init, in memory, so that compilers keep them between enter and leave
 * (base/fpenv.h). A fan of 0 is of a tensor without elements: any distribution does.
 */

srt_status_t srt_init_kaiming_uniform(int ndim, const int64_t *shape, double a, srt_init_t *init)
{
	double fan_in, fan_out;
	srt_fpenv_t env;

	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(init);
	SRT_TRY(fans(ndim, shape, &fan_in, &fan_out));
	*init = (srt_init_t){ .kind = SRT_INIT_UNIFORM, .low = fan_in, .high = a };
	env = srt_fpenv_enter();
	init->high = sqrt(2.0 / (1.0 + init->high * init->high)) / sqrt(init->low);
	init->high = fan_in > 0.0 ? sqrt(3.0) * init->high : 0.0;
	init->low = -init->high;
	srt_fpenv_leave(env);
	return SRT_OK;
}

srt_status_t srt_init_xavier_normal(int ndim, const int64_t *shape, double gain, srt_init_t *init)
{
	double fan_in, fan_out;
	srt_fpenv_t env;

	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(init);
	SRT_TRY(fans(ndim, shape, &fan_in, &fan_out));
	*init = (srt_init_t){ .kind = SRT_INIT_NORMAL, .mean = fan_in + fan_out, .std = gain };
	env = srt_fpenv_enter();
	init->std = init->mean > 0.0 ? init->std * sqrt(2.0 / init->mean) : 0.0;
	init->mean = 0.0;
	srt_fpenv_leave(env);
	return SRT_OK;
}

srt_status_t srt_init_xavier_uniform(int ndim, const int64_t *shape, double gain, srt_init_t *init)
{
	srt_fpenv_t env;

	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(init);
	SRT_TRY(srt_init_xavier_normal(ndim, shape, gain, init));
	env = srt_fpenv_enter();
	init->high = sqrt(3.0) * init->std;
	init->low = -init->high;
	srt_fpenv_leave(env);
	init->kind = SRT_INIT_UNIFORM;
	init->std = 0.0;
	return SRT_OK;
}

srt_status_t srt_init_linear_bias(int64_t fan_in, srt_init_t *init)
{
	srt_fpenv_t env;

	SRT_NOT_NULL(init);
	if (fan_in < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "fan_in is %lld", (long long)fan_in);
	*init = (srt_init_t){ .kind = SRT_INIT_UNIFORM, .high = (double)fan_in };
	env = srt_fpenv_enter();
	init->high = fan_in > 0 ? 1.0 / sqrt(init->high) : 0.0;
	init->low = -init->high;
	srt_fpenv_leave(env);
	return SRT_OK;
}

/* ---- the defaults of torch.nn's modules ------------------------------------------------ */

typedef srt_status_t draw_t(const srt_init_query_t *query, srt_init_t *init);

static srt_status_t draw_zero(const srt_init_query_t *query, srt_init_t *init)
{
	(void)query;
	*init = (srt_init_t){ .kind = SRT_INIT_CONSTANT };
	return SRT_OK;
}

static srt_status_t draw_one(const srt_init_query_t *query, srt_init_t *init)
{
	(void)query;
	*init = (srt_init_t){ .kind = SRT_INIT_CONSTANT, .value = 1.0 };
	return SRT_OK;
}

static srt_status_t draw_linear_weight(const srt_init_query_t *query, srt_init_t *init)
{
	return srt_init_kaiming_uniform(query->ndim, query->shape, sqrt(5.0), init);
}

static srt_status_t draw_linear_bias(const srt_init_query_t *query, srt_init_t *init)
{
	return srt_init_linear_bias(query->fan_in, init);
}

static srt_status_t draw_embedding(const srt_init_query_t *query, srt_init_t *init)
{
	*init = (srt_init_t){ .kind = SRT_INIT_NORMAL,
			      .std = 1.0,
			      .has_zero_row = query->has_padding,
			      .zero_row = query->has_padding ? query->padding_idx : 0 };
	return SRT_OK;
}

static srt_status_t draw_xavier_uniform(const srt_init_query_t *query, srt_init_t *init)
{
	return srt_init_xavier_uniform(query->ndim, query->shape, 1.0, init);
}

static srt_status_t draw_xavier_normal(const srt_init_query_t *query, srt_init_t *init)
{
	return srt_init_xavier_normal(query->ndim, query->shape, 1.0, init);
}

/* The names of each kind: parameters and buffers, and modules inside. "#" is any number. */
static const struct entry {
	const char *kind, *name;
	draw_t *draw;       /* of a parameter or buffer */
	const char *inside; /* else the kind of the module inside */
} entries[] = {
	{ "Linear", "weight", draw_linear_weight, NULL },
	{ "Linear", "bias", draw_linear_bias, NULL },
	{ "Embedding", "weight", draw_embedding, NULL },
	{ "LayerNorm", "weight", draw_one, NULL },
	{ "LayerNorm", "bias", draw_zero, NULL },
	{ "BatchNorm1d", "weight", draw_one, NULL },
	{ "BatchNorm1d", "bias", draw_zero, NULL },
	{ "BatchNorm1d", "running_mean", draw_zero, NULL },
	{ "BatchNorm1d", "running_var", draw_one, NULL },
	{ "BatchNorm1d", "num_batches_tracked", draw_zero, NULL },
	{ "MultiheadAttention", "in_proj_weight", draw_xavier_uniform, NULL },
	{ "MultiheadAttention", "q_proj_weight", draw_xavier_uniform, NULL },
	{ "MultiheadAttention", "k_proj_weight", draw_xavier_uniform, NULL },
	{ "MultiheadAttention", "v_proj_weight", draw_xavier_uniform, NULL },
	{ "MultiheadAttention", "in_proj_bias", draw_zero, NULL },
	{ "MultiheadAttention", "bias_k", draw_xavier_normal, NULL },
	{ "MultiheadAttention", "bias_v", draw_xavier_normal, NULL },
	{ "MultiheadAttention", "out_proj", NULL, "Linear" },
	{ "TransformerEncoderLayer", "self_attn", NULL, "MultiheadAttention" },
	{ "TransformerEncoderLayer", "linear1", NULL, "Linear" },
	{ "TransformerEncoderLayer", "linear2", NULL, "Linear" },
	{ "TransformerEncoderLayer", "norm1", NULL, "LayerNorm" },
	{ "TransformerEncoderLayer", "norm2", NULL, "LayerNorm" },
	{ "TransformerDecoderLayer", "self_attn", NULL, "MultiheadAttention" },
	{ "TransformerDecoderLayer", "multihead_attn", NULL, "MultiheadAttention" },
	{ "TransformerDecoderLayer", "linear1", NULL, "Linear" },
	{ "TransformerDecoderLayer", "linear2", NULL, "Linear" },
	{ "TransformerDecoderLayer", "norm1", NULL, "LayerNorm" },
	{ "TransformerDecoderLayer", "norm2", NULL, "LayerNorm" },
	{ "TransformerDecoderLayer", "norm3", NULL, "LayerNorm" },
	{ "TransformerEncoder", "layers.#", NULL, "TransformerEncoderLayer" },
	{ "TransformerEncoder", "norm", NULL, "LayerNorm" },
	{ "TransformerDecoder", "layers.#", NULL, "TransformerDecoderLayer" },
	{ "TransformerDecoder", "norm", NULL, "LayerNorm" },
	{ "Transformer", "encoder", NULL, "TransformerEncoder" },
	{ "Transformer", "decoder", NULL, "TransformerDecoder" },
};

/* What a module draws again, after the modules inside it. */
static srt_status_t draw_again(const srt_init_query_t *query, srt_init_t *init)
{
	if (strcmp(query->kind, "MultiheadAttention") == 0 &&
	    strcmp(query->name, "out_proj.bias") == 0)
		return draw_zero(query, init);
	if (strcmp(query->kind, "Transformer") == 0 && query->ndim > 1)
		return draw_xavier_uniform(query, init);
	return SRT_OK;
}

/* The end of what `pattern` matches at the beginning of a name, up to its end or a point. */
static const char *match(const char *pattern, const char *name)
{
	for (; *pattern != '\0'; pattern++) {
		if (*pattern == '#' && *name >= '0' && *name <= '9') {
			while (*name >= '0' && *name <= '9')
				name++;
		} else if (*pattern != *name++) {
			return NULL;
		}
	}
	return *name == '\0' || *name == '.' ? name : NULL;
}

/* Lists all kinds, or the names of one. */
static void list_names(const char *kind, char *text, size_t nbytes)
{
	size_t at = 0;

	for (size_t i = 0; i < SRT_ARRAY_LEN(entries) && at < nbytes; i++) {
		const struct entry *e = &entries[i];
		const bool is_first = i == 0 || strcmp(e->kind, entries[i - 1].kind) != 0;

		if (kind != NULL ? strcmp(e->kind, kind) == 0 : is_first)
			at += (size_t)snprintf(text + at, nbytes - at, "%s%s%s", at > 0 ? ", " : "",
					       kind != NULL ? e->name : e->kind,
					       kind != NULL && e->inside != NULL ? ".*" : "");
	}
}

static srt_status_t fail_unknown(const srt_init_query_t *query, bool is_kind)
{
	char text[512];

	list_names(is_kind ? query->kind : NULL, text, sizeof(text));
	if (!is_kind)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"the default distributions of a module '%s' are not known, but "
				"those of: %s",
				query->kind, text);
	return srt_fail(SRT_ERR_NOT_FOUND,
			"a module %s has no parameter '%s' with a default distribution, but: %s",
			query->kind, query->name, text);
}

static srt_status_t find_default(const srt_init_query_t *query, srt_init_t *init)
{
	srt_init_query_t inner = *query;
	bool is_kind = false;
	const char *rest;

	for (size_t i = 0; i < SRT_ARRAY_LEN(entries); i++) {
		const struct entry *e = &entries[i];

		if (strcmp(e->kind, query->kind) != 0)
			continue;
		is_kind = true;
		rest = match(e->name, query->name);
		if (rest == NULL || (*rest == '.') != (e->inside != NULL))
			continue;
		if (e->draw != NULL)
			return e->draw(query, init);
		inner.kind = e->inside;
		inner.name = rest + 1;
		SRT_TRY(find_default(&inner, init));
		return draw_again(query, init);
	}
	return fail_unknown(query, is_kind);
}

srt_status_t srt_init_default(const srt_init_query_t *query, srt_init_t *init)
{
	srt_init_query_t read = SRT_INIT_QUERY_INIT;
	srt_init_t found;

	SRT_NOT_NULL(query);
	SRT_NOT_NULL(init);
	SRT_TRY(srt_struct_read(&read, sizeof(read), query, "srt_init_query_t"));
	SRT_TRY(srt_check_not_null(read.kind, __func__, "query->kind"));
	SRT_TRY(srt_check_not_null(read.name, __func__, "query->name"));
	if (read.ndim > 0)
		SRT_TRY(srt_check_not_null(read.shape, __func__, "query->shape"));
	SRT_TRY(find_default(&read, &found));
	*init = found;
	return SRT_OK;
}
