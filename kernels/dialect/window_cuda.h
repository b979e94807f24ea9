/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LOAD, STORE and the loops with windows for CUDA. Within a loop that names its tensors a tensor's
 * name is a window: the elements that a thread works on in one turn, in registers. All windows are
 * filled before the turn's code and written back after it, so that a thread has several independent
 * loads in flight even if its inputs may overlap its outputs.
 *
 * A turn of the elementwise loops is K_TURN elements of each thread, or one chunk where many
 * tensors may take part (FOR_EACH). A chunk is 16 bytes of T, loaded and stored as one vector where
 * the address allows it; in loops that mix T with other types (_MIXED_IN) 16 bytes of floats, so
 * that neighbouring threads' vectors are neighbours for all. A chunk that lies across an end of the
 * range, or is not aligned, is loaded and stored by elements; what is outside the range is 0 in a
 * window and never stored. A turn of the loops over lanes is K_LANE_TURN elements of each lane,
 * LANES apart, in the order of the lane's sum.
 *
 * A group may have any number of threads in these loops: blockDim says it. Included by dialect.h.
 */
#ifndef SRT_KERNELS_DIALECT_WINDOW_CUDA_H
#define SRT_KERNELS_DIALECT_WINDOW_CUDA_H

#define K_TURN 8
#define K_LANE_TURN 4
#define K_CHUNK (16 / (int)sizeof(T))
#define K_MIXED_CHUNK 4

#ifdef __cplusplus
#define K_NOW static __device__ __forceinline__
#else
#define K_NOW FN
#endif

/*
 * Windows of floats and of 16-bit elements, as they are stored; registers all: every index is a
 * constant. Nothing is done with what is loaded before it is used, which would wait for it: of
 * 16-bit elements those of a vector lie two in a word, those of lanes one.
 */
typedef struct k_words {
	uint32_t w[K_TURN];
} k_words_t;
typedef struct k_halves {
	uint32_t w[K_TURN];
} k_halves_t;
/* Words of WRITES: LOAD of them does not compile. */
typedef struct k_new_words {
	uint32_t w[K_TURN];
} k_new_words_t;
typedef struct k_new_halves {
	uint32_t w[K_TURN];
} k_new_halves_t;

/* 16 bytes or 8 between registers and memory that is aligned to as many. */
#ifdef __CUDA_ARCH__
K_NOW void k_load_4(uint32_t *w, const void *p)
{
	asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
}
K_NOW void k_load_2(uint32_t *w, const void *p)
{
	asm volatile("ld.global.v2.b32 {%0, %1}, [%2];"
		     : "=r"(w[0]), "=r"(w[1])
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
}
K_NOW void k_store_4(void *p, const uint32_t *w)
{
	asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
		     : "memory");
}
K_NOW void k_store_2(void *p, const uint32_t *w)
{
	asm volatile("st.global.v2.b32 [%0], {%1, %2};"
		     :
		     : "l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1])
		     : "memory");
}
#else           /* where this text is run by a CPU */
#ifndef K_TOUCH /* the vector is one access: for who checks what GPUs ask of its address */
#define K_TOUCH(p, nbytes, write) ((void)0)
#endif
#define K_MOVE(to, from, n)                                                                        \
	for (int w_ = 0; w_ < (n); w_++)                                                           \
	((uint32_t *)(to))[w_] = ((const uint32_t *)(from))[w_]
K_NOW void k_load_4(uint32_t *w, const void *p)
{
	K_TOUCH(p, 16, 0);
	K_MOVE(w, p, 4);
}
K_NOW void k_load_2(uint32_t *w, const void *p)
{
	K_TOUCH(p, 8, 0);
	K_MOVE(w, p, 2);
}
K_NOW void k_store_4(void *p, const uint32_t *w)
{
	K_TOUCH(p, 16, 1);
	K_MOVE(p, w, 4);
}
K_NOW void k_store_2(void *p, const uint32_t *w)
{
	K_TOUCH(p, 8, 1);
	K_MOVE(p, w, 2);
}
#endif

/* A thread's turn: chunk c begins c * stride elements after its first one; of all these the
 * elements from <= e < to belong to the range. */
typedef struct k_run {
	int chunk, nturn, stride;
	int from, to;
} k_run_t;

K_NOW k_run_t k_run(int chunk, int nturn, int stride, int64_t first, int64_t end)
{
	k_run_t r;

	r.chunk = chunk;
	r.nturn = nturn;
	r.stride = stride;
	r.from = first > 0 ? (int)first : 0;
	r.to = (int)MIN_OF(end, (int64_t)1 << 30);
	return r;
}

/* Which of the turn's elements e is, from the thread's first one. */
#define K_OFFSET(r, e) ((e) / (r).chunk * (r).stride + (e) % (r).chunk)
#define K_WITHIN(r, e) (K_OFFSET(r, e) >= (r).from && K_OFFSET(r, e) < (r).to)
#define K_ALIGNED(p, nbytes) (((uint64_t)(p) & ((nbytes)-1)) == 0)

/* Chunk c whole and p, where it begins, aligned. */
#define K_IS_VECTOR(r, c, p, nbytes)                                                               \
	((c) * (r).stride >= (r).from && (c) * (r).stride + (r).chunk <= (r).to &&                 \
	 K_ALIGNED(p, nbytes))

K_NOW k_words_t k_words_of(const float *p, k_run_t r)
{
	k_words_t x = { { 0 } };

	UNROLLED
	for (int e = 0; e < r.nturn; e += 4) {
		const float *q = p + K_OFFSET(r, e);

		if (K_IS_VECTOR(r, e / r.chunk, q, 16)) {
			k_load_4(x.w + e, q);
		} else {
			UNROLLED
			for (int k = 0; k < 4; k++)
				x.w[e + k] = K_WITHIN(r, e + k) ? (uint32_t)BITS_OF(q[k]) : 0;
		}
	}
	return x;
}
K_NOW void k_put_words(const uint32_t *w, float *p, k_run_t r)
{
	UNROLLED
	for (int e = 0; e < r.nturn; e += 4) {
		float *q = p + K_OFFSET(r, e);

		if (K_IS_VECTOR(r, e / r.chunk, q, 16)) {
			k_store_4(q, w + e);
		} else {
			UNROLLED
			for (int k = 0; k < 4; k++)
				if (K_WITHIN(r, e + k))
					q[k] = FLOAT_OF((int32_t)w[e + k]);
		}
	}
}

/* Chunk by chunk: of eight elements, or of four. */
#define K_PAIR(r, p, e, k)                                                                         \
	((K_WITHIN(r, (e) + (k)) ? (uint32_t)(p)[k] : 0) |                                         \
	 (K_WITHIN(r, (e) + (k) + 1) ? (uint32_t)(p)[(k) + 1] << 16 : 0))
K_NOW k_halves_t k_halves_of(const uint16_t *p, k_run_t r)
{
	k_halves_t x = { { 0 } };

	UNROLLED
	for (int e = 0; e < r.nturn; e += r.chunk == 8 ? 8 : 4) {
		const uint16_t *q = p + K_OFFSET(r, e);

		if (r.chunk == 8 && K_IS_VECTOR(r, e / r.chunk, q, 16)) {
			k_load_4(x.w + e / 2, q);
		} else if (r.chunk == 4 && K_IS_VECTOR(r, e / r.chunk, q, 8)) {
			k_load_2(x.w + e / 2, q);
		} else {
			UNROLLED
			for (int k = 0; k < r.chunk; k += 2)
				x.w[(e + k) / 2] = K_PAIR(r, q, e, k);
		}
	}
	return x;
}
K_NOW void k_put_halves(const uint32_t *w, uint16_t *p, k_run_t r)
{
	UNROLLED
	for (int e = 0; e < r.nturn; e += r.chunk == 8 ? 8 : 4) {
		uint16_t *q = p + K_OFFSET(r, e);

		if (r.chunk == 8 && K_IS_VECTOR(r, e / r.chunk, q, 16)) {
			k_store_4(q, w + e / 2);
		} else if (r.chunk == 4 && K_IS_VECTOR(r, e / r.chunk, q, 8)) {
			k_store_2(q, w + e / 2);
		} else {
			UNROLLED
			for (int k = 0; k < r.chunk; k++)
				if (K_WITHIN(r, e + k))
					q[k] = (uint16_t)(w[(e + k) / 2] >> 16 * (k & 1));
		}
	}
}

/* The words of a lane's elements, LANES apart. */
K_NOW k_words_t k_lane_words_of(const float *p, k_run_t r)
{
	k_words_t x = { { 0 } };

	UNROLLED
	for (int e = 0; e < K_LANE_TURN; e++)
		x.w[e] = e * LANES < r.to ? (uint32_t)BITS_OF(p[e * LANES]) : 0;
	return x;
}
K_NOW k_halves_t k_lane_halves_of(const uint16_t *p, k_run_t r)
{
	k_halves_t x = { { 0 } };

	UNROLLED
	for (int e = 0; e < K_LANE_TURN; e++)
		x.w[e] = e * LANES < r.to ? p[e * LANES] : 0;
	return x;
}
K_NOW void k_put_lane_words(const uint32_t *w, float *p, k_run_t r)
{
	UNROLLED
	for (int e = 0; e < K_LANE_TURN; e++)
		if (e * LANES < r.to)
			p[e * LANES] = FLOAT_OF((int32_t)w[e]);
}
K_NOW void k_put_lane_halves(const uint32_t *w, uint16_t *p, k_run_t r)
{
	UNROLLED
	for (int e = 0; e < K_LANE_TURN; e++)
		if (e * LANES < r.to)
			p[e * LANES] = (uint16_t)w[e];
}

K_NOW k_words_t k_no_words(void)
{
	k_words_t x = { { 0 } };

	return x;
}
K_NOW k_halves_t k_no_halves(void)
{
	k_halves_t x = { { 0 } };

	return x;
}

/* Loops of one turn, that a name may mean another thing within. */
#define K_TENSOR(p, at, type)                                                                      \
	for (int p##_go = 1; p##_go; p##_go = 0)                                                   \
		for (type *p##_at = (p) + (at) + k_at; p##_go; p##_go = 0)
/* k_r.chunk is a constant: one side remains. */
#define K_FILL(window, p) (k_r.chunk > 1 ? k_##window##_of(p, k_r) : k_lane_##window##_of(p, k_r))
#define K_DRAIN(window, w, p)                                                                      \
	(k_r.chunk > 1 ? k_put_##window(w, p, k_r) : k_put_lane_##window(w, p, k_r))
#define K_READS(p, at, type, window)                                                               \
	K_TENSOR(p, at, const type)                                                                \
	for (k_##window##_t p = K_FILL(window, p##_at); p##_go; p##_go = 0)
/* Zeros unless `given`: p may be no address. */
#define K_READS_IF(p, at, given, type, window)                                                     \
	K_TENSOR(p, at, const type)                                                                \
	for (k_##window##_t p = (given) ? K_FILL(window, p##_at) : k_no_##window(); p##_go;        \
	     p##_go = 0)
#define K_WRITES(p, at, type, window)                                                              \
	K_TENSOR(p, at, type)                                                                      \
	for (k_new_##window##_t p = { { 0 } }; p##_go; K_DRAIN(window, p.w, p##_at), p##_go = 0)
#define K_UPDATES(p, at, type, window)                                                             \
	K_TENSOR(p, at, type)                                                                      \
	for (k_##window##_t p = K_FILL(window, p##_at); p##_go;                                    \
	     K_DRAIN(window, p.w, p##_at), p##_go = 0)
/* An update of which `old` says whether what was there is used. */
#define K_UPDATES_IF(p, at, old, type, window)                                                     \
	K_TENSOR(p, at, type)                                                                      \
	for (k_##window##_t p = (old) ? K_FILL(window, p##_at) : k_no_##window(); p##_go;          \
	     K_DRAIN(window, p.w, p##_at), p##_go = 0)
#if T_IS_F32
#define UPDATES_IF(p, at, old) K_UPDATES_IF(p, at, old, float, words)
#define READS(p, at) READS_F32(p, at)
#define READS_IF(p, at, given) READS_F32_IF(p, at, given)
#define WRITES(p, at) WRITES_F32(p, at)
#define UPDATES(p, at) UPDATES_F32(p, at)
#else
#define UPDATES_IF(p, at, old) K_UPDATES_IF(p, at, old, uint16_t, halves)
#define READS(p, at) K_READS(p, at, uint16_t, halves)
#define READS_IF(p, at, given) K_READS_IF(p, at, given, uint16_t, halves)
#define WRITES(p, at) K_WRITES(p, at, uint16_t, halves)
#define UPDATES(p, at) K_UPDATES(p, at, uint16_t, halves)
#endif
#define READS_F32(p, at) K_READS(p, at, float, words)
#define READS_F32_IF(p, at, given) K_READS_IF(p, at, given, float, words)
#define WRITES_F32(p, at) K_WRITES(p, at, float, words)
#define UPDATES_F32(p, at) K_UPDATES(p, at, float, words)
#define READS_F16(p, at) K_READS(p, at, uint16_t, halves)
#define READS_BF16(p, at) K_READS(p, at, uint16_t, halves)

/* Elements by what p is: a window's element k_e of the turn, or p[i]. k_two: two lie in a word. */
enum { k_e = 0, k_two = 0 };
#define K_WHICH int64_t i K_UNUSED, int e K_UNUSED, int two K_UNUSED
#ifdef __cplusplus
#define K_GETTER(name) k_get
#define K_SETTER(name) k_set
#define K_GET(p, i) k_get(&(p), i, k_e, k_two)
#define K_SET(p, i, v) k_set(&(p), i, k_e, k_two, v)
#else
#define K_GETTER(name) k_get_##name
#define K_SETTER(name) k_set_##name
#define K_BY_TYPE(what, p, ...)                                                                    \
	_Generic((p), __VA_ARGS__ k_words_t                                                        \
		 : k_##what##_words, k_halves_t                                                    \
		 : k_##what##_halves, float *                                                      \
		 : k_##what##_floats, const float *                                                \
		 : k_##what##_floats, uint16_t *                                                   \
		 : k_##what##_shorts, const uint16_t *                                             \
		 : k_##what##_shorts)
#define K_GET(p, i) K_BY_TYPE(get, p, )((void *)&(p), i, k_e, k_two)
#define K_SET(p, i, v)                                                                             \
	K_BY_TYPE(set, p, k_new_words_t : k_set_new_words, k_new_halves_t : k_set_new_halves, )    \
	((void *)&(p), i, k_e, k_two, v)
#endif
K_NOW float K_GETTER(words)(const k_words_t *p, K_WHICH)
{
	return FLOAT_OF((int32_t)p->w[e]);
}
K_NOW uint16_t K_GETTER(halves)(const k_halves_t *p, K_WHICH)
{
	return (uint16_t)(two ? p->w[e / 2] >> 16 * (e & 1) : p->w[e]);
}
K_NOW float K_GETTER(floats)(const float *const *p, K_WHICH)
{
	return (*p)[i];
}
K_NOW uint16_t K_GETTER(shorts)(const uint16_t *const *p, K_WHICH)
{
	return (*p)[i];
}
K_NOW void K_SETTER(words)(k_words_t *p, K_WHICH, float v)
{
	p->w[e] = (uint32_t)BITS_OF(v);
}
K_NOW void k_put_half(uint32_t *w, int e, int two, uint16_t v)
{
	w += two ? e / 2 : e;
	*w = !two ? v : (e & 1) ? (*w & 0xffffu) | (uint32_t)v << 16 : (*w & 0xffff0000u) | v;
}
K_NOW void K_SETTER(halves)(k_halves_t *p, K_WHICH, uint16_t v)
{
	k_put_half(p->w, e, two, v);
}
K_NOW void K_SETTER(new_words)(k_new_words_t *p, K_WHICH, float v)
{
	p->w[e] = (uint32_t)BITS_OF(v);
}
K_NOW void K_SETTER(new_halves)(k_new_halves_t *p, K_WHICH, uint16_t v)
{
	k_put_half(p->w, e, two, v);
}
K_NOW void K_SETTER(floats)(float *const *p, K_WHICH, float v)
{
	(*p)[i] = v;
}
K_NOW void K_SETTER(shorts)(uint16_t *const *p, K_WHICH, uint16_t v)
{
	(*p)[i] = v;
}
#define LOAD(p, i) K_PASTE(from, _, K_DTYPE)(K_GET(p, i))
#define STORE(p, i, v) K_SET(p, i, K_PASTE(to, _, K_DTYPE)(v))
#define LOAD_F32(p, i) K_GET(p, i)
#define STORE_F32(p, i, v) K_SET(p, i, v)
#define LOAD_F16(p, i) k_from_f16(K_GET(p, i))
#define LOAD_BF16(p, i) k_from_bf16(K_GET(p, i))

/* The threads' turns in a range, of nturn elements each, and the elements of one. */
#define K_TURNS(begin, first, end, chunk, nturn, stride)                                           \
	for (int64_t k_first = (first), k_end = (end), k_at = (begin) + LANE * (chunk);            \
	     k_at < k_end; k_at += (nturn) / (chunk) * (stride))                                   \
		for (int k_go = 1; k_go; k_go = 0)                                                 \
			for (k_run_t k_r =                                                         \
				     k_run(chunk, nturn, stride, k_first - k_at, k_end - k_at);    \
			     k_go; k_go = 0)
#define K_EACH_IN(i, first, end, chunk, nturn, windows)                                            \
	K_TURNS((first) & -(int64_t)(chunk), first, end, chunk, nturn, (int)blockDim.x * (chunk))  \
	windows UNROLLED for (int k_e = 0, k_two = 1; k_e < (nturn);                               \
			      k_e++) for (int64_t i = k_at + K_OFFSET(k_r, k_e), i##_once = 1;     \
					  i##_once; i##_once = 0)
#define FOR_EACH_IN(i, first, end, windows) K_EACH_IN(i, first, end, K_CHUNK, K_CHUNK, windows)
#define FOR_EACH_MIXED_IN(i, first, end, windows)                                                  \
	K_EACH_IN(i, first, end, K_MIXED_CHUNK, K_MIXED_CHUNK, windows)
#define FOR_EACH_WIDE_IN(i, first, end, windows) FOR_EACH_MIXED_IN(i, first, end, windows)
#define FOR_EACH_LONG_IN(i, first, end, windows) FOR_EACH_IN(i, first, end, windows)
#define FOR_UNORDERED_IN(l, i, first, end, windows)                                                \
	K_EACH_IN(i, first, end, K_CHUNK, K_TURN, windows)
#define FOR_ELEMENTS_IN(i, nelem, windows)                                                         \
	K_EACH_IN(i, GROUP *SRT_K_ELEMENTS, MIN_OF((GROUP + 1) * SRT_K_ELEMENTS, nelem), K_CHUNK,  \
		  K_TURN, windows)
#define FOR_ELEMENTS_LONG_IN(i, nelem, windows) FOR_ELEMENTS_IN(i, nelem, windows)
#define FOR_ELEMENTS_MIXED_IN(i, nelem, windows)                                                   \
	K_EACH_IN(i, GROUP *SRT_K_ELEMENTS, MIN_OF((GROUP + 1) * SRT_K_ELEMENTS, nelem),           \
		  K_MIXED_CHUNK, K_TURN, windows)
#define FOR_RANGE_LONG_IN(l, i, first, end, windows) FOR_RANGE_IN(l, i, first, end, windows)
#define FOR_SPAN_IN(l, i, first, end, windows) FOR_SPAN(l, i, first, end)
#define FOR_RANGE_IN(l, i, first, end, windows)                                                    \
	K_TURNS(first, first, end, 1, K_LANE_TURN, LANES)                                          \
	windows UNROLLED for (int k_e = 0, k_two = 0; k_e < K_LANE_TURN;                           \
			      k_e++) for (int64_t l = LANE, i = k_at + k_e * LANES,                \
					  l##_once = k_e * LANES < k_r.to;                         \
					  l##_once; l##_once = 0)

#endif
