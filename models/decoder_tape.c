/* SPDX-License-Identifier: BSD-3-Clause */
/* Decoders on a tape. */
#include "models/decoder_impl.h"

#include <stdlib.h>
#include <string.h>

#include "models/tape_impl.h"
#include "models/try.h"

/* ---- blocks ----------------------------------------------------------------------------- */

typedef struct recorder {
	srt_decoder_t *d;
	srt_tape_t *tape;
	const srt_decoder_pass_t *pass;
	srt_decoder_io_t *io;
	const srt_decoder_tables_t *tables;
} recorder_t;

static srt_tensor_t *record_norm(const recorder_t *r, srt_tensor_t *x, const srt_decoder_pair_t *p)
{
	const srt_decoder_config_t *c = &r->d->config;
	const srt_rmsnorm_in_t in = { .eps = c->norm_eps, .one_plus = c->norm_one_plus };

	return c->norm == SRT_DECODER_RMS ?
		       srt_layer_rmsnorm_of(r->tape, x, p->weight, &in) :
		       srt_layer_layernorm(r->tape, x, p->weight, p->bias, c->norm_eps);
}

/* x, normed where the decoder has this norm. */
static srt_tensor_t *record_optional(const recorder_t *r, const srt_decoder_block_t *block,
				     srt_decoder_part_t part, srt_tensor_t *x)
{
	return block->part[part].weight != NULL ? record_norm(r, x, &block->part[part]) : x;
}

/* Queries or keys of this rank's heads, normed by head or over all ranks' heads where the decoder
 * has this norm. */
static srt_tensor_t *record_head_norm(const recorder_t *r, const srt_decoder_block_t *block,
				      srt_decoder_part_t part, srt_tensor_t *x)
{
	const srt_decoder_config_t *c = &r->d->config;
	const srt_rmsnorm_in_t in = { .eps = c->norm_eps, .one_plus = c->norm_one_plus };

	if (block->part[part].weight == NULL)
		return x;
	return c->qk_norm == SRT_DECODER_QK_WIDTH ?
		       srt_layer_rmsnorm_gathered(r->tape, x, block->part[part].weight, &in) :
		       srt_layer_rmsnorm_colwise(r->tape, x, block->part[part].weight, &in);
}

/* s z, the values between A and B. */
static srt_tensor_t *record_scaling(const recorder_t *r, srt_tensor_t *z)
{
	const float factor = (float)srt_lora_scaling(&r->d->lora);

	return factor != 1.0f ? srt_layer_scale(r->tape, z, factor) : z;
}

/* A is whole, each rank has rows of B. */
static srt_tensor_t *record_colwise(const recorder_t *r, const srt_decoder_block_t *block,
				    srt_decoder_part_t part, srt_tensor_t *x)
{
	const srt_decoder_pair_t *p = &block->part[part];
	const srt_decoder_adapter_t *adapter = &block->adapter[part];
	const int nblocks = part == SRT_DECODER_QKV ? 3 : 1;
	srt_tensor_t *y, *z;

	if (adapter->a == NULL)
		return srt_layer_linear_colwise_blocks(r->tape, x, p->weight, p->bias, nblocks);
	z = record_scaling(r, srt_layer_linear(r->tape, x, adapter->a, NULL));
	y = srt_layer_linear_colwise_blocks(r->tape, x, p->weight, p->bias, nblocks);
	return srt_layer_add(r->tape, y,
			     srt_layer_linear_colwise_blocks(r->tape, z, adapter->b, NULL,
							     nblocks));
}

/* Each rank has columns of A, B is whole. */
static srt_tensor_t *record_rowwise(const recorder_t *r, const srt_decoder_block_t *block,
				    srt_decoder_part_t part, srt_tensor_t *x)
{
	const srt_decoder_pair_t *p = &block->part[part];
	const srt_decoder_adapter_t *adapter = &block->adapter[part];
	srt_tensor_t *y, *z;

	if (adapter->a == NULL)
		return srt_layer_linear_rowwise(r->tape, x, p->weight, p->bias);
	z = record_scaling(r, srt_layer_linear_rowwise(r->tape, x, adapter->a, NULL));
	y = srt_layer_linear_rowwise(r->tape, x, p->weight, p->bias);
	return srt_layer_add(r->tape, y, srt_layer_linear(r->tape, z, adapter->b, NULL));
}

/* The heads of each row, but for the last ones, turned by its position. */
static srt_tensor_t *record_rotary(const recorder_t *r, int has_window, int64_t copied,
				   srt_tensor_t *x)
{
	const srt_decoder_config_t *c = &r->d->config;
	const int own = has_window && c->has_window_rope;
	const srt_rope_t *rope = own ? &c->window_rope : &c->rope;
	srt_rotary_in_t in = { .positions = r->io->positions,
			       .copied = copied,
			       .head_dim = c->head_dim,
			       .dim = rope->dim };
	srt_buffer_t *table;

	if (!c->rotary)
		return x;
	table = own ? r->tables->windows : r->tables->all;
	in.npositions = r->tables->npositions;
	in.cos = srt_view(table, 0, SRT_F32);
	in.sin = srt_view(table, (size_t)(in.npositions * (in.dim / 2)) * sizeof(float), SRT_F32);
	return srt_layer_rotary(r->tape, x, &in);
}

static srt_tensor_t *record_cached(const recorder_t *r, int64_t layer, const srt_attention_in_t *in)
{
	srt_attention_cache_t cache = srt_decoder_cache_of(r->pass->cache, layer);

	cache.rows = r->io->rows;
	cache.at = r->pass->step ? NULL : &r->pass->cache->at;
	return srt_layer_attention_cached(r->tape, in, &cache);
}

static srt_tensor_t *record_attention(const recorder_t *r, int64_t layer, srt_tensor_t *x)
{
	const srt_decoder_config_t *c = &r->d->config;
	const srt_decoder_block_t *block = &r->d->blocks[layer];
	const int has_window = srt_decoder_has_window(c, layer);
	srt_attention_in_t in = {
		.batch = r->pass->batch,
		.heads = c->heads / r->d->tensor_ranks,
		.kv_heads = c->kv_heads / r->d->tensor_ranks,
		.causal = 1,
		.scale = c->scale,
		.first = has_window ? r->io->window_first : r->io->first,
		.lengths = r->io->lengths,
	};

	if (block->part[SRT_DECODER_QKV].weight != NULL) {
		in.q = record_colwise(r, block, SRT_DECODER_QKV, x);
		in.q = record_rotary(r, has_window, in.kv_heads, in.q);
	} else {
		in.q = record_colwise(r, block, SRT_DECODER_Q, x);
		in.k = record_colwise(r, block, SRT_DECODER_K, x);
		in.v = record_colwise(r, block, SRT_DECODER_V, x);
		in.q = record_head_norm(r, block, SRT_DECODER_Q_NORM, in.q);
		in.k = record_head_norm(r, block, SRT_DECODER_K_NORM, in.k);
		in.q = record_rotary(r, has_window, 0, in.q);
		in.k = record_rotary(r, has_window, 0, in.k);
		if (in.k == NULL || in.v == NULL)
			return NULL; /* not packed: the tape has the failure */
	}
	x = r->pass->cache != NULL ? record_cached(r, layer, &in) :
				     srt_layer_attention_of(r->tape, &in);
	return record_rowwise(r, block, SRT_DECODER_O, x);
}

static srt_tensor_t *record_activation(const recorder_t *r, srt_tensor_t *x)
{
	switch (r->d->config.act) {
	case SRT_GLU_GELU_TANH:
		return srt_layer_gelu(r->tape, x);
	case SRT_GLU_GELU_ERF:
		return srt_layer_gelu_erf(r->tape, x);
	default:
		return srt_layer_silu(r->tape, x);
	}
}

static srt_tensor_t *record_feed_forward(const recorder_t *r, const srt_decoder_block_t *block,
					 srt_tensor_t *x)
{
	srt_tensor_t *up, *gate;

	if (r->d->config.gated) {
		gate = record_colwise(r, block, SRT_DECODER_GATE, x);
		up = record_colwise(r, block, SRT_DECODER_UP, x);
		x = srt_layer_glu(r->tape, gate, up, r->d->config.act);
	} else {
		x = record_activation(r, record_colwise(r, block, SRT_DECODER_UP, x));
	}
	return record_rowwise(r, block, SRT_DECODER_DOWN, x);
}

static srt_tensor_t *record_block(const recorder_t *r, int64_t layer, srt_tensor_t *x)
{
	const srt_decoder_block_t *block = &r->d->blocks[layer];
	srt_tensor_t *y, *before = x;

	srt_tape_unit_begin(r->tape, block->unit);
	if (block->codes != NULL)
		srt_tape_unit_begin(r->tape, block->codes);
	if (block->adapters != NULL)
		srt_tape_unit_begin(r->tape, block->adapters);
	if (r->d->recompute)
		srt_tape_recompute_begin(r->tape);
	y = record_optional(r, block, SRT_DECODER_NORM1, x);
	y = record_attention(r, layer, y);
	y = record_optional(r, block, SRT_DECODER_POST1, y);
	x = srt_layer_add(r->tape, x, y);
	y = record_optional(r, block, SRT_DECODER_NORM2, r->d->config.parallel ? before : x);
	y = record_feed_forward(r, block, y);
	y = record_optional(r, block, SRT_DECODER_POST2, y);
	x = srt_layer_add(r->tape, x, y);
	if (r->d->recompute)
		srt_tape_recompute_end(r->tape);
	if (block->adapters != NULL)
		srt_tape_unit_end(r->tape);
	if (block->codes != NULL)
		srt_tape_unit_end(r->tape);
	srt_tape_unit_end(r->tape);
	return x;
}

/* ---- the whole -------------------------------------------------------------------------- */

/* Whether the program gives positions of tokens, which are else those in their row. */
static int has_positions(const srt_decoder_pass_t *pass)
{
	return pass->documents || pass->cache != NULL;
}

/* Inputs: positions where they are not the row's, first keys where not all are seen, and where a
 * cache has the keys. */
static void record_inputs(const recorder_t *r)
{
	const srt_decoder_config_t *c = &r->d->config;
	const int64_t rows = r->pass->batch * r->pass->context;

	*r->io = (srt_decoder_io_t){ .batch = r->pass->batch,
				     .context = r->pass->context,
				     .window = c->window,
				     .cache = r->pass->cache };
	r->io->ids = srt_tape_input(r->tape, SRT_I32, rows, 1);
	if (c->rotary || has_positions(r->pass))
		r->io->positions = srt_tape_input(r->tape, SRT_I32, rows, 1);
	if (r->pass->documents)
		r->io->first = srt_tape_input(r->tape, SRT_I32, rows, 1);
	if (c->window > 0)
		r->io->window_first = srt_tape_input(r->tape, SRT_I32, rows, 1);
	if (r->pass->cache != NULL)
		r->io->rows = srt_tape_input(r->tape, SRT_I32, rows, 1);
	if (r->pass->step)
		r->io->lengths = srt_tape_input(r->tape, SRT_I32, rows, 1);
}

/* A factor of at least 2^-14 and less than 65504 as the dtype has it, to nearest even. */
static float round_factor(float factor, srt_dtype_t dtype)
{
	const int dropped = dtype == SRT_BF16 ? 16 : dtype == SRT_F16 ? 13 : 0;
	uint32_t bits;

	if (dropped == 0)
		return factor;
	memcpy(&bits, &factor, sizeof(bits));
	bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
	bits &= ~((1u << dropped) - 1);
	memcpy(&factor, &bits, sizeof(bits));
	return factor;
}

static srt_tensor_t *record_embedding(const recorder_t *r)
{
	const srt_decoder_config_t *c = &r->d->config;
	/* Given positions are looked up one by one, those of whole rows by row. */
	srt_param_t *by_row = has_positions(r->pass) ? NULL : r->d->positions;
	srt_tensor_t *x, *y;

	x = srt_layer_embedding_rowwise_padded(r->tape, r->io->ids, r->d->embedding, by_row,
					       r->pass->context, c->has_padding ? c->padding : -1);
	if (x != NULL && c->embed_scale != 0.0f)
		x = srt_layer_scale(r->tape, x, round_factor(c->embed_scale, srt_tensor_dtype(x)));
	if (r->d->positions == NULL || by_row != NULL)
		return x;
	y = srt_layer_embedding(r->tape, r->io->positions, r->d->positions, NULL, 1);
	return srt_layer_add(r->tape, x, y);
}

static void keep_hidden(const recorder_t *r, int64_t i, srt_tensor_t *x)
{
	if (r->pass->hidden == NULL)
		return;
	r->pass->hidden[i] = x;
	srt_tape_keep(r->tape, x);
}

/* Logits as the root gives them away, of this rank's part of the vocabulary. */
static srt_tensor_t *record_logits(const recorder_t *r, srt_tensor_t *x)
{
	x = srt_layer_linear_colwise(r->tape, x, r->d->head, NULL);
	if (r->d->config.softcap != 0.0f)
		x = srt_layer_softcap(r->tape, x, r->d->config.softcap);
	return srt_tape_unit_output(r->tape, x);
}

/* The fused head has its logits in the dtype of x; that widens to fp32 without a change. Logits
 * that are capped, or that the root rounds to another dtype, are made apart. */
static srt_tensor_t *record_loss(const recorder_t *r, srt_tensor_t *x)
{
	const srt_dtype_t output = srt_tape_output_dtype(r->tape, x);
	srt_tensor_t *targets = r->io->targets;

	if (x == NULL ||
	    (r->d->config.softcap == 0.0f && (output == srt_tensor_dtype(x) || output == SRT_F32)))
		return srt_layer_head_loss_colwise(r->tape, x, r->d->head, targets, 0);
	return srt_layer_cross_entropy_colwise(r->tape, record_logits(r, x), targets,
					       r->d->config.vocab);
}

static void record_end(const recorder_t *r, srt_tensor_t *x)
{
	const srt_decoder_pass_t *pass = r->pass;

	if (pass->loss) {
		r->io->targets = srt_tape_input(r->tape, SRT_I32, pass->batch * pass->context, 1);
		r->io->loss = record_loss(r, x);
		srt_tape_keep(r->tape, r->io->loss);
	} else {
		x = srt_layer_gather_columns(r->tape, record_logits(r, x), r->d->config.vocab);
		r->io->logits = srt_layer_cast(r->tape, x, SRT_F32);
		srt_tape_keep(r->tape, r->io->logits);
	}
	srt_tape_unit_end(r->tape);
}

/* Whether the ranks of a pass have their own rows. */
static int cuts_rows(const srt_decoder_t *d, const srt_decoder_pass_t *pass)
{
	return d->sequence_parallel && pass->loss && pass->hidden == NULL && pass->cache == NULL;
}

static srt_status_t check_pass(const srt_decoder_t *d, const srt_decoder_pass_t *pass)
{
	const srt_decoder_config_t *c = &d->config;

	if (pass->batch < 1 || pass->context < 1 || pass->context > c->context ||
	    pass->batch > INT32_MAX / pass->context)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: %lld rows of %lld tokens, but rows have 1 to %lld "
				      "tokens, and at most %d in all",
				      (long long)pass->batch, (long long)pass->context,
				      (long long)c->context, INT32_MAX);
	if (pass->cache == NULL ?
		    pass->step :
		    pass->documents || (pass->step ? pass->context : pass->batch) != 1)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"decoder: a pass with a cache has one row, or with `step` one "
			"token of each row, and no documents; `step` needs a cache");
	if (cuts_rows(d, pass) && !c->rotary && has_positions(pass) && d->tensor_ranks > 1)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "decoder: learned positions of documents are not for "
				      "sequence parallelism");
	return SRT_OK;
}

srt_status_t srt_decoder_record(srt_decoder_t *d, srt_tape_t *tape, const srt_decoder_pass_t *pass,
				srt_decoder_io_t *io)
{
	srt_decoder_io_t made;
	recorder_t r = { .d = d, .tape = tape, .pass = pass, .io = &made };
	srt_tensor_t *x;

	SRT_TRY(check_pass(d, pass));
	/* given positions go up to the decoder's context */
	if (d->config.rotary)
		SRT_TRY(srt_decoder_find_tables(d, tape->device,
						has_positions(pass) ? d->config.context :
								      pass->context,
						&r.tables));
	srt_tape_set_mesh(tape, d->mesh, SRT_MODEL_TENSOR_DIM);
	srt_tape_set_tensor_parts(tape, d->config.tensor_parts);
	if (cuts_rows(d, pass))
		srt_tape_set_sequence_parallel(tape);
	if (pass->weights != NULL)
		srt_tape_set_values(tape, srt_decoder_weights_find, pass->weights);
	if (d->is_int8)
		srt_tape_set_scales(tape, srt_decoder_find_scales, d);
	record_inputs(&r);
	srt_tape_unit_begin(tape, d->root);
	x = record_embedding(&r);
	for (int64_t i = 0; i < d->config.layers; i++) {
		keep_hidden(&r, i, x);
		x = record_block(&r, i, x);
	}
	if (pass->row != NULL)
		x = srt_layer_row(tape, x, pass->row);
	x = record_norm(&r, x, &d->norm);
	keep_hidden(&r, d->config.layers, x);
	record_end(&r, x);
	SRT_TRY(srt_tape_finish(tape));
	*io = made;
	return SRT_OK;
}

srt_status_t srt_decoder_record_loss(srt_decoder_t *decoder, srt_tape_t *tape, int64_t batch,
				     int64_t context, srt_decoder_io_t *io)
{
	const srt_decoder_pass_t pass = { .batch = batch, .context = context, .loss = 1 };

	return srt_decoder_record(decoder, tape, &pass, io);
}

srt_mem_kind_t srt_decoder_mem_kind(const srt_decoder_t *decoder)
{
	return decoder->tensor_ranks > 1 ?
		       srt_comm_mem_kind(srt_mesh_comm(decoder->mesh, SRT_MODEL_TENSOR_DIM)) :
		       SRT_MEM_DEVICE;
}

srt_status_t srt_decoder_memory(srt_decoder_t *d, srt_device_t *device, int64_t batch,
				int64_t context, size_t *nbytes, size_t *scratch)
{
	srt_decoder_io_t io;
	srt_tape_t *tape;
	srt_status_t status;

	SRT_TRY(srt_tape_create(device, SRT_TAPE_TRAINING, &tape));
	status = srt_decoder_record_loss(d, tape, batch, context, &io);
	if (status == SRT_OK) {
		*nbytes = srt_tape_nbytes(tape);
		*scratch = srt_tape_scratch_nbytes(tape);
	}
	srt_tape_destroy(tape);
	return status;
}
