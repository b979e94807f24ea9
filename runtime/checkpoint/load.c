/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unsharded parameters from one safetensors file (<shardrt/checkpoint.h>, <shardrt/file.h>).
 *
 * Each rank checks the complete header against its engine; if all ranks succeed, each reads its own
 * shards. A tied parameter is found under any of its names. A file with other names has functions
 * that know them.
 */
#include <shardrt/checkpoint.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "runtime/checkpoint/cast.h"
#include "runtime/checkpoint/doing.h"
#include "runtime/checkpoint/formats/model_file.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/source.h"
#include "runtime/checkpoint/transposed.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/values/values.h"

/* Most unused tensors of a file that are named in the log. */
#define MAX_EXTRA 8

int64_t srt_load_piece_nelem = (int64_t)1 << 21;

/* A load of this rank. */
typedef struct loading {
	srt_engine_t *engine;
	const char *call, *path;
	const srt_file_names_t *given;
	srt_file_names_t names; /* of `given`; find is NULL: the engine's names */
	srt_safetensors_t *file;
	void *elements, *block; /* of the largest piece; for transposed tensors */
	bool *used;             /* each tensor of the file: a name of the engine has it */
	srt_cast_t cast;
} loading_t;

/* A tensor of the engine in the file. */
typedef struct source {
	srt_file_source_t in_file;
	const srt_safetensors_tensor_t *tensor; /* NULL: the file does not have it */
} source_t;

static source_t find_name(const loading_t *l, const char *name)
{
	source_t s = { .in_file = { .size = sizeof(s.in_file) } };

	if (l->names.find == NULL) {
		s.tensor = srt_safetensors_find(l->file, name);
		return s;
	}
	if (l->names.find(name, &s.in_file, l->names.arg) && s.in_file.name != NULL)
		s.tensor = srt_safetensors_find(l->file, s.in_file.name);
	return s;
}

static bool keeps_values(const loading_t *l, const srt_param_t *param)
{
	return l->names.keeps != NULL && l->names.keeps(param->name, l->names.arg);
}

static source_t find_source(const loading_t *l, const srt_param_t *param)
{
	source_t s = find_name(l, param->name);

	for (size_t i = 0; s.tensor == NULL && i < param->naliases; i++)
		s = find_name(l, param->aliases[i]);
	return s.tensor != NULL ? s : find_name(l, param->name);
}

/* "[3,4]", cut where it does not fit. */
static void format_shape(const int64_t *shape, int ndim, char *out, size_t nout)
{
	size_t used = 1;

	snprintf(out, nout, "[");
	for (int i = 0; i < ndim && used < nout; i++)
		used += (size_t)snprintf(out + used, nout - used, "%s%lld", i > 0 ? "," : "",
					 (long long)shape[i]);
	if (used < nout)
		snprintf(out + used, nout - used, "]");
}

/* Whether a tensor has the needed dtype, or may be rounded to it. */
static bool fits_dtype(const loading_t *l, const srt_needed_t *needed,
		       const srt_safetensors_tensor_t *t)
{
	return t->dtype == needed->dtype ||
	       (l->names.cast && !needed->is_buffer && srt_dtype_is_float(t->dtype) &&
		srt_dtype_is_float(needed->dtype));
}

static srt_status_t check_source(const loading_t *l, const srt_needed_t *needed, const source_t *s)
{
	const srt_safetensors_tensor_t *t = s->tensor;
	const int transposed = s->in_file.transposed;
	int64_t shape[SRT_MAX_DIMS] = { 0 };
	char have[96], need[96], as[128] = "";
	const char *advice = "";

	if (t == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s has no tensor '%s', which the model needs", l->path,
				s->in_file.name != NULL ? s->in_file.name : needed->name);
	SRT_TRY(srt_source_check(&s->in_file, needed));
	memcpy(shape, needed->shape, (size_t)needed->ndim * sizeof(*shape));
	if (transposed) {
		shape[0] = needed->shape[1];
		shape[1] = needed->shape[0];
	}
	if (fits_dtype(l, needed, t) && t->ndim == needed->ndim &&
	    !memcmp(t->shape, shape, (size_t)t->ndim * sizeof(*t->shape)))
		return SRT_OK;
	format_shape(t->shape, srt_safetensors_nsizes(t), have, sizeof(have));
	format_shape(shape, needed->ndim, need, sizeof(need));
	if (l->names.find != NULL)
		snprintf(as, sizeof(as), ", which has it as %s'%.64s'",
			 transposed ? "the transpose of " : "", needed->name);
	if (strcmp(have, need) == 0 && srt_dtype_is_float(t->dtype))
		advice = l->names.find != NULL ?
				 ": set srt_file_names_t.cast to round it" :
				 ": convert the file to the model's dtype, in Python with "
				 "tensor.to(), or give the model that of the file";
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"tensor '%s' is %s %s in %s, but %s %s in the model%s%s", t->name,
			t->dtype_name, have, l->path, srt_dtype_name(needed->dtype), need, as,
			advice);
}

static void mark_used(const loading_t *l, const srt_safetensors_tensor_t *t)
{
	if (t != NULL)
		l->used[t - srt_safetensors_tensor(l->file, 0)] = true;
}

/* Sets l->used. Of the names of a tied parameter one is used. */
static void find_used(const loading_t *l)
{
	const srt_engine_t *engine = l->engine;

	for (size_t i = 0; i < engine->nparams; i++)
		if (!keeps_values(l, engine->params[i]))
			mark_used(l, find_source(l, engine->params[i]).tensor);
	for (size_t i = 0; i < engine->unit_buffers.n; i++)
		mark_used(l, find_name(l, engine->unit_buffers.all[i]->name).tensor);
}

/* Logs tensors that the model does not use, at most MAX_EXTRA by name. */
static void report_extra(const loading_t *l)
{
	const srt_file_names_t *names = &l->names;
	const srt_safetensors_tensor_t *t;
	size_t nextra = 0;

	find_used(l);
	for (size_t i = 0; (t = srt_safetensors_tensor(l->file, i)) != NULL; i++) {
		if (l->used[i] || (names->ignores != NULL && names->ignores(t->name, names->arg)))
			continue;
		if (nextra++ < MAX_EXTRA)
			srt_log(SRT_LOG_WARN, "%s: tensor '%s' is not used by the model", l->path,
				srt_printable(t->name).text);
	}
	if (nextra > MAX_EXTRA)
		srt_log(SRT_LOG_WARN, "%s: %zu more tensors are not used by the model", l->path,
			nextra - MAX_EXTRA);
}

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Most elements of a shard that are read at once: all where a file has the transpose, in which they
 * do not follow each other. */
static int64_t count_piece(const srt_param_t *p, const source_t *s)
{
	return s->in_file.transposed ? p->shard.nelem :
				       srt_min64(p->shard.nelem, srt_load_piece_nelem);
}

/* Everything that can be wrong with the file, before anything is changed. Then allocates. */
static srt_status_t check_file(loading_t *l)
{
	const srt_engine_t *engine = l->engine;
	size_t largest = 0;
	source_t s;

	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *p = engine->params[i];

		if (keeps_values(l, p))
			continue;
		s = find_source(l, p);
		SRT_TRY(check_source(l,
				     &(srt_needed_t){ p->name, p->dtype, p->ndim, p->shape, false },
				     &s));
		largest = most(largest,
			       (size_t)count_piece(p, &s) * most(srt_dtype_size(p->dtype),
								 srt_dtype_size(s.tensor->dtype)));
	}
	for (size_t i = 0; i < engine->unit_buffers.n; i++) {
		const srt_unit_buffer_t *b = engine->unit_buffers.all[i];

		s = find_name(l, b->name);
		SRT_TRY(check_source(l,
				     &(srt_needed_t){ b->name, b->dtype, b->ndim, b->shape, true },
				     &s));
		largest = most(largest, b->nbytes);
	}
	l->used = srt_calloc(srt_safetensors_count(l->file) + 1, sizeof(*l->used),
			     "the tensors of a file");
	l->elements = srt_calloc(largest + 1, 1, "elements to be loaded");
	if (l->given != NULL)
		l->block = srt_calloc(SRT_TRANSPOSED_NBYTES, 1, "a block of a transposed tensor");
	return l->used == NULL || l->elements == NULL || (l->given != NULL && l->block == NULL) ?
		       SRT_ERR_OUT_OF_MEMORY :
		       SRT_OK;
}

/* n elements of the shard from element `first` of it on. */
static srt_status_t read_piece(const loading_t *l, const srt_param_t *p, const source_t *s,
			       int64_t first, int64_t n)
{
	const int cell = srt_cell_index(l->engine, l->engine->rank);
	const size_t elem = srt_dtype_size(s->tensor->dtype);
	const int64_t begin = p->shard.first + first, end = begin + n;

	if (s->in_file.transposed)
		return srt_transposed_read(p, l->file, s->tensor, l->block, l->elements);
	for (int64_t at = begin, run, whole, follow; at < end; at += run) {
		run = srt_min64(srt_cell_run(p, cell, at, &whole), end - at);
		whole = srt_source_find(whole, (int64_t)s->tensor->nelem,
					s->in_file.interleaved_heads, &follow);
		run = srt_min64(run, follow);
		SRT_TRY(srt_safetensors_read(l->file, s->tensor, (size_t)whole * elem,
					     (size_t)run * elem,
					     (char *)l->elements + (size_t)(at - begin) * elem));
	}
	return SRT_OK;
}

static srt_status_t load_pieces(loading_t *l, const srt_param_t *p, srt_stream_t *stream,
				srt_stream_t *home)
{
	const source_t s = find_source(l, p);
	const size_t elem = srt_dtype_size(p->dtype);

	for (int64_t at = 0, n; at < p->shard.nelem; at += n) {
		n = srt_min64(count_piece(p, &s), p->shard.nelem - at);
		SRT_TRY(read_piece(l, p, &s, at, n));
		if (s.tensor->dtype != p->dtype)
			SRT_TRY(srt_cast_shard(&l->cast, l->engine, s.tensor->dtype, p->dtype,
					       (size_t)n, l->elements, stream));
		SRT_TRY(srt_buffer_copy_from_host(p->views.local.buffer,
						  p->views.local.offset + (size_t)at * elem,
						  l->elements, (size_t)n * elem, home));
	}
	return SRT_OK;
}

static srt_status_t load_shard(loading_t *l, srt_param_t *p, srt_stream_t *stream)
{
	srt_stream_t *home;
	srt_status_t status, ended;

	SRT_TRY(srt_param_write_begin(p, l->call, stream, &home));
	status = load_pieces(l, p, stream, home);
	ended = srt_param_write_end(p, home, stream); /* also of a part */
	return status != SRT_OK ? status : ended;
}

static srt_status_t load_buffer(const loading_t *l, srt_unit_buffer_t *b, srt_stream_t *stream)
{
	SRT_TRY(srt_safetensors_read(l->file, find_name(l, b->name).tensor, 0, b->nbytes,
				     l->elements));
	return srt_unit_buffer_set(b, l->elements, stream);
}

/* The file that a rank has opened, for the other ranks. */
typedef struct opened {
	srt_safetensors_identity_t identity;
	int64_t copies; /* this rank accepts copies */
	char path[96];  /* its end */
} opened_t;

/* How the files of two ranks differ; NULL: they are the same. */
static const char *find_difference(const opened_t *a, const opened_t *b)
{
	const srt_safetensors_identity_t *x = &a->identity, *y = &b->identity;

	if (x->nbytes != y->nbytes)
		return "the sizes of the files differ";
	if (x->header_hash != y->header_hash)
		return "the headers of the files differ";
	if (x->mtime_s != y->mtime_s || x->mtime_ns != y->mtime_ns)
		return "the times of the last write to the files differ";
	if ((x->device != y->device || x->inode != y->inode) && (!a->copies || !b->copies))
		return "these are two files of one header and time "
		       "(SHARDRT_LOAD_COPIES=yes on all ranks accepts copies)";
	return NULL;
}

/* All ranks must have opened the same file, or they load parts of two models. Collective. */
static srt_status_t compare_files(srt_engine_t *engine, const srt_safetensors_t *file,
				  const char *path)
{
	size_t n = strlen(path);
	opened_t mine = { .identity = *srt_safetensors_identity(file) };
	opened_t *all = srt_calloc((size_t)engine->world, sizeof(*all), "identities of files");
	const char *copies = "no", *difference;
	srt_status_t status = all == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;

	srt_config_value("SHARDRT_LOAD_COPIES", &copies, NULL);
	mine.copies = strcmp(copies, "yes") == 0;
	snprintf(mine.path, sizeof(mine.path), "%s%s", n > 92 ? "..." : "",
		 n > 92 ? path + n - 92 : path);
	status = srt_share_status(engine, srt_describe_doing("checking", path, NULL), status);
	if (status == SRT_OK)
		status =
			srt_comm_oob_allgather_for(engine->comm,
						   srt_describe_doing("comparing", path, NULL).text,
						   &mine, sizeof(mine), all);
	for (int r = 1; r < engine->world && status == SRT_OK; r++) {
		difference = find_difference(&all[0], &all[r]);
		if (difference != NULL)
			status = srt_fail(SRT_ERR_MISMATCH,
					  "rank %d has opened %s (inode %llu, %llu bytes), rank 0 "
					  "has opened %s (inode %llu, %llu bytes): %s; load a file "
					  "that all ranks see and that no job replaces meanwhile",
					  r, all[r].path, (unsigned long long)all[r].identity.inode,
					  (unsigned long long)all[r].identity.nbytes, all[0].path,
					  (unsigned long long)all[0].identity.inode,
					  (unsigned long long)all[0].identity.nbytes, difference);
	}
	free(all);
	return status;
}

static srt_status_t load_all(loading_t *l, srt_stream_t *stream)
{
	for (size_t i = 0; i < l->engine->nparams; i++)
		if (!keeps_values(l, l->engine->params[i]))
			SRT_TRY(load_shard(l, l->engine->params[i], stream));
	for (size_t i = 0; i < l->engine->unit_buffers.n; i++)
		SRT_TRY(load_buffer(l, l->engine->unit_buffers.all[i], stream));
	SRT_TRY(srt_safetensors_check_unchanged(l->file));
	return srt_stream_sync(stream); /* the copies to the device may have failed */
}

static srt_status_t open_file(loading_t *l)
{
	SRT_TRY(srt_check_not_null(l->path, l->call, "path"));
	if (l->given != NULL) {
		SRT_TRY(srt_struct_read(&l->names, sizeof(l->names), l->given, "srt_file_names_t"));
		if (l->names.find == NULL)
			return srt_check_not_null(NULL, l->call, "names->find");
	}
	SRT_TRY(srt_model_file_open(l->path, &l->file));
	return check_file(l);
}

static srt_status_t load_engine(loading_t *l, srt_stream_t *stream)
{
	srt_engine_t *engine = l->engine;
	srt_status_t status;

	SRT_TRY(srt_check_not_null(engine, l->call, "engine"));
	SRT_TRY(srt_check_not_null(stream, l->call, "stream"));
	SRT_TRY(srt_engine_require_built(engine, l->call));
	SRT_TRY(srt_full_check(engine, l->call));
	status = srt_share_status(engine, srt_describe_doing("checking", l->path, NULL),
				  open_file(l));
	if (status == SRT_OK)
		status = compare_files(engine, l->file, l->path);
	if (status == SRT_OK && engine->rank == 0)
		report_extra(l);
	if (status == SRT_OK)
		status = srt_share_status(engine, srt_describe_doing("loading", l->path, NULL),
					  load_all(l, stream));
	srt_cast_close(&l->cast);
	free(l->block);
	free(l->used);
	free(l->elements);
	srt_safetensors_close(l->file);
	return status;
}

srt_status_t srt_engine_load(srt_engine_t *engine, const char *path, srt_stream_t *stream)
{
	loading_t l = { .engine = engine, .call = "srt_engine_load", .path = path };

	return load_engine(&l, stream);
}

srt_status_t srt_engine_load_named(srt_engine_t *engine, const char *path,
				   const srt_file_names_t *names, srt_stream_t *stream)
{
	loading_t l = {
		.engine = engine, .call = "srt_engine_load_named", .path = path, .given = names
	};

	SRT_NOT_NULL(names);
	return load_engine(&l, stream);
}
