/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contents of kernel cases' places: a hash of an element's position, in integers and exact
 * float operations, so that all compilers and machines fill in the same bits.
 */
#include "kernels/cases/cases.h"

#include <string.h>

#include "base/base.h"

static const srt_k_param_state_t sample_params[3] = { { 1, 7, 0.4f, 0.01f },
						      { 0, 3, 0.3f, 0.02f },
						      { 1, 1, 0.1f, 0.001f } };
static const srt_k_group_t sample_groups[2] = { { 1.0f, 0.1f }, { 0.5f, 0.0f } };

static const uint32_t edge_bits[] = {
	0x00000000u, 0x80000000u, 0x00000001u, 0x80000001u, 0x007fffffu, 0x00800000u,
	0x807fffffu, 0x3f800000u, 0xbf800000u, 0x477fefffu, /* f16: the last that is finite, */
	0x477ff000u,                                        /* the first that is not */
	0x477fe000u, 0xc77fe000u, 0x387fc000u,              /* its largest subnormal, */
	0x33000000u,                                        /* half of its least one */
	0x33000001u, 0x33800000u, 0xb3c00000u, 0x42b17218u, 0xc2cff1b5u, /* ends of exp */
	0x03800000u, 0x037fffffu, /* 2^-120, where moments end */
};
static const uint32_t hard_bits[] = {
	0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u, 0x7f800001u,
	0x7f7fffffu, 0xff7fffffu, 0x7f7f8000u, 0x7f7f7fffu, /* bf16: the first that is not finite */
};

static uint32_t bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

static uint64_t mix(uint64_t h)
{
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

/* In (-1, 1) by 2^-3 .. 2^1, 24 bits. */
static uint32_t mild_bits(uint64_t h)
{
	return bits_of((float)((int32_t)(h & 0xffffff) - 0x800000) * 0x1p-23f *
		       (0.125f * (float)(1 << ((h >> 24) % 5))));
}

static uint32_t edge_value(uint64_t h)
{
	uint32_t u = mild_bits(h), which = (uint32_t)(h >> 40);

	switch (which % 6) {
	case 0:
		return edge_bits[which / 6 % SRT_ARRAY_LEN(edge_bits)];
	case 1: /* halfway between two f16, or next to it */
		return ((u & ~0x1fffu) | 0x1000u) + which / 6 % 3 - 1;
	case 2: /* the same of bf16 */
		return ((u & ~0xffffu) | 0x8000u) + which / 6 % 3 - 1;
	default:
		return u;
	}
}

/* Element i of a place as bits of a float. */
static uint32_t value(uint64_t seed, int64_t i, srt_kernel_input_t input, unsigned rare)
{
	uint64_t h = mix(seed + (uint64_t)i * 0x9e3779b97f4a7c15u);
	uint32_t which = (uint32_t)(h >> 33);

	if (input == SRT_INPUT_MILD)
		return mild_bits(h);
	if (input == SRT_INPUT_EDGE || which % rare)
		return edge_value(h);
	which /= rare;
	if (which % 4 == 0)
		return (uint32_t)mix(h);
	return hard_bits[which / 4 % SRT_ARRAY_LEN(hard_bits)];
}

/* To nearest even, as the kernels store; a NaN to the canonical one. */
static uint16_t half_of(uint32_t u)
{
	uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;

	if (a > 0x7f800000u)
		return 0x7e00;
	if (a >= 0x477ff000u)
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x38800000u) /* subnormal: the unit of 0.5f + x is the unit of the result */
		return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000u));
	return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1) - 0x38000000u) >> 13);
}

static uint16_t bfloat_of(uint32_t u)
{
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return 0x7fc0;
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* f, h or b. */
static char float_type(const srt_kernel_place_t *place, srt_dtype_t dtype)
{
	if (place->type != 't')
		return place->type;
	return dtype == SRT_F16 ? 'h' : dtype == SRT_BF16 ? 'b' : 'f';
}

size_t srt_kernel_place_width(const srt_kernel_place_t *place, srt_dtype_t dtype)
{
	switch (place->fill) {
	case 's':
		return sizeof(srt_k_step_state_t);
	case 'p':
		return sizeof(srt_k_param_state_t);
	case 'g':
		return sizeof(srt_k_segment_t);
	case 'q':
		return sizeof(srt_k_segment8_t);
	case 'h':
		return sizeof(srt_k_group_t);
	default:
		break;
	}
	switch (float_type(place, dtype)) {
	case 'd':
	case 'l':
		return 8;
	case 'y':
		return 1;
	case 'h':
	case 'b':
		return 2;
	default:
		return 4;
	}
}

size_t srt_kernel_place_nbytes(const srt_kernel_place_t *place, srt_dtype_t dtype)
{
	return place->fill == '-' ? 0 : (size_t)place->nelem * srt_kernel_place_width(place, dtype);
}

static void fill_values(const srt_kernel_case_t *c, int number, const srt_kernel_place_t *place,
			srt_dtype_t dtype, srt_kernel_input_t input, unsigned char *bytes)
{
	char type = float_type(place, dtype);
	uint64_t seed = mix(srt_kernel_name_hash(c->name) + (uint64_t)number);

	for (int64_t i = 0; i < place->nelem; i++) {
		uint32_t u = value(seed, i, input, c->family->rare);
		uint16_t s;

		if (place->fill == '+')
			u &= 0x7fffffffu;
		if (type == 'f') {
			memcpy(bytes + 4 * i, &u, 4);
			continue;
		}
		s = type == 'h' ? half_of(u) : bfloat_of(u);
		memcpy(bytes + 2 * i, &s, 2);
	}
}

/* The largest bit pattern of |x|, as absmax has it. */
static void fill_maximum(const srt_kernel_place_t *next, srt_dtype_t dtype, const unsigned char *x,
			 unsigned char *bytes)
{
	char type = float_type(next, dtype);
	uint32_t max = 0;

	for (int64_t i = 0; i < next->nelem; i++) {
		uint32_t u = 0;

		if (type == 'f')
			memcpy(&u, x + 4 * i, 4);
		else
			memcpy(&u, x + 2 * i, 2);
		u &= type == 'f' ? 0x7fffffffu : 0x7fffu;
		max = u > max ? u : max;
	}
	if (type == 'b')
		max <<= 16;
	if (type == 'h') { /* exact: 2^112 makes up for the two biases */
		max = max >= 0x7c00 ? (max << 13 | 0x7f800000u) : max << 13;
		if (max < 0x7f800000u)
			max = bits_of(float_of(max) * 0x1p112f);
	}
	memcpy(bytes, &max, 4);
}

/* Numbers below place->below. Hard: some are outside. */
static void fill_ids(const srt_kernel_place_t *place, srt_kernel_input_t input,
		     unsigned char *bytes)
{
	for (int64_t i = 0; i < place->nelem; i++) {
		uint64_t h = mix((uint64_t)i + (place->fill == 'e')); /* mix(0) is 0 */
		int64_t id = place->fill == 'd' ? place->below - 1 - i :
						  (int64_t)(h % (uint64_t)place->below);

		if (input == SRT_INPUT_HARD && i % 5 == 4)
			id = i % 2 && place->fill != 't' ? -1 : place->below;
		if (place->fill == 'u' && i % 3 == 2)
			id = -1;
		memcpy(bytes + 4 * i, &(int32_t){ (int32_t)id }, 4);
	}
}

/* What sparse gradients are made of: 22 keys in each run of 64 entries. */
static void fill_coo(const srt_kernel_place_t *place, unsigned char *bytes)
{
	for (int64_t i = 0; i < place->nelem; i++) {
		int64_t rest = place->below - i * SRT_K_ELEMENTS, x = place->below;

		if (place->fill == 'k') {
			memcpy(bytes + 8 * i, &(int64_t){ i % 64 / 3 }, 8);
			continue;
		}
		if (place->fill == 'c') {
			rest = rest < SRT_K_ELEMENTS ? rest : SRT_K_ELEMENTS;
			x = rest / 64 * 22 + (rest % 64 + 2) / 3;
		}
		if (place->fill == 'j')
			x = (int64_t)(mix((uint64_t)i) % (uint64_t)place->below);
		if (place->fill == 'r')
			x = 2 * i;
		memcpy(bytes + 4 * i, &(int32_t){ (int32_t)x }, 4);
	}
}

/* n elements: a row; one of a parameter that is not used; rows of 300; n / 16 with fp32 moments,
 * which lie before the codes. */
static void fill_segments8(int64_t n, unsigned char *bytes)
{
	const int64_t rows = n / 1200, floats = n / 16 + (n > 0);
	const int64_t sizes[] = { n - n / 8 - 300 * rows - floats, n / 8, 300 * rows, floats };
	const int32_t groups[] = { 0, 1, 1, 0 }, params[] = { 0, 1, 2, 2 };
	int64_t offset = 0, block = 0;

	for (int i = 0; i < 4; i++) {
		const int64_t row = i == 2 ? 300 : sizes[i];
		srt_k_segment8_t s = { .offset = offset,
				       .row = row,
				       .block = block,
				       .state = i == 3 ? 0 : 4 * floats + offset,
				       .absmax = i == 3 ? -1 : block,
				       .group = groups[i],
				       .param = params[i] };

		memcpy(bytes + (size_t)i * sizeof(s), &s, sizeof(s));
		offset += sizes[i];
		block += i == 2 ? 2 * rows : (row + SRT_K_CODE_BLOCK - 1) / SRT_K_CODE_BLOCK;
	}
}

static void fill_structs(const srt_kernel_place_t *place, srt_kernel_input_t input, bool found_inf,
			 unsigned char *bytes)
{
	int64_t n = place->below;
	srt_k_step_state_t state = { .step = 7,
				     .lr = 1e-3f,
				     .clip_coef = input == SRT_INPUT_MILD ? 0.75f : 1.0f,
				     .found_inf = found_inf ? 1.0f : 0.0f,
				     .scale = 1024.0f,
				     .inv_scale = 1.0f / 1024.0f,
				     .base_lr = 1e-3f,
				     .min_lr = 1e-4f,
				     .warmup = input == SRT_INPUT_EDGE ? 10 : 3,
				     .lr_steps = 50,
				     .schedule = (int32_t)n,
				     .decay_steps = n ? 45 : 0 };
	/* The second parameter is not used; a gap lies before the last. */
	srt_k_segment_t segments[2] = { { n > 8, n / 2, 0, 0 },
					{ n > 8 ? n / 2 + 5 : n / 2, 0, 1, 2 } };

	segments[1].nelem = n - segments[1].offset;
	if (place->fill == 's')
		memcpy(bytes, &state, sizeof(state));
	if (place->fill == 'p')
		memcpy(bytes, sample_params, sizeof(sample_params));
	if (place->fill == 'g')
		memcpy(bytes, segments, sizeof(segments));
	if (place->fill == 'h')
		memcpy(bytes, sample_groups, sizeof(sample_groups));
}

void srt_kernel_place_fill(const srt_kernel_case_t *c, int number, const srt_kernel_place_t *places,
			   srt_dtype_t dtype, srt_kernel_input_t input, bool found_inf,
			   unsigned char *bytes, const unsigned char *next)
{
	const srt_kernel_place_t *place = &places[number];

	switch (place->fill) {
	case 'v':
	case '+':
		fill_values(c, number, place, dtype, input, bytes);
		break;
	case 'i':
	case 'e':
	case 't':
	case 'u':
	case 'd':
		fill_ids(place, input, bytes);
		break;
	case 'y':
		for (int64_t i = 0; i < place->nelem; i++)
			bytes[i] = (unsigned char)mix((uint64_t)i);
		break;
	case 'n':
		for (int64_t i = 0; i < place->nelem; i++)
			memcpy(bytes + 8 * i, &(double){ (double)(i % 99 + 1) * 0.75 }, 8);
		break;
	case '0':
		memset(bytes, 0, srt_kernel_place_nbytes(place, dtype));
		break;
	case 'k':
	case 'c':
	case 'j':
	case 'r':
	case '#':
		fill_coo(place, bytes);
		break;
	case 'o':
		break;
	case 'q':
		fill_segments8(place->below, bytes);
		break;
	case 'm':
		fill_maximum(place + 1, dtype, next, bytes);
		break;
	default:
		fill_structs(place, input, found_inf, bytes);
	}
}

void srt_kernel_place_canonical(const srt_kernel_place_t *place, srt_dtype_t dtype,
				unsigned char *bytes)
{
	if (place->fill == '-' || float_type(place, dtype) != 'f')
		return;
	for (int64_t i = 0; i < place->nelem; i++) {
		uint32_t u;

		memcpy(&u, bytes + 4 * i, 4);
		if ((u & 0x7fffffffu) > 0x7f800000u)
			memcpy(bytes + 4 * i, &(uint32_t){ 0x7fc00000u }, 4);
	}
}
