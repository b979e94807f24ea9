/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel dialect: one source for C11 on CPUs, OpenCL C 1.2 and CUDA C. docs/numerics.md says
 * what the kernels compute; this file says how their text becomes code, and c11.h, opencl.h and
 * cuda.h what is different in each compiler. Most kernels are written in the forms of form.h.
 *
 *   KERNEL(nplaces, name, args)  entry; its body is run by one group of LANES lanes
 *   KERNEL_ELEMENTWISE(nplaces, name, args)
 *                                the same where nothing hangs on the number of lanes: elementwise
 *                                kernels and sums that are free of order. CUDA carries a group by
 *                                more threads; arrays of the group have WIDTH elements
 *   KERNEL_DENSE(nplaces, name, args)
 *                                the same with few registers, where CUDA would take too many
 *   KERNEL_COLUMNS(nplaces, name, args)
 *                                sums over rows (columns.h)
 *   A.field                      the argument struct
 *   GROUP                        the group's number
 *   TENSOR(i, type, v)           place i as a pointer v; NULL when the place is absent
 *   PRIVATE(type, v)             a variable that each lane has: AT(v) in its code
 *   PRIVATE_N(type, v, n)        an array that each lane has: AT_N(v, k)
 *   SHARED(type, v, n)           memory of the group (only at the top of a kernel)
 *   SHARED_AT type *v            a function's argument that points into it
 *   TABLE(v, n) = { ... };       constant floats, outside of functions
 *   FOR_LANES(l)                 { ... } code of all lanes, up to the next synchronisation
 *   FOR_FIRST(l, n)              { ... } code of the first n lanes
 *   FOR_SPAN(l, i, first, end)   the lanes with i = first + l < end
 *   FOR_RANGE(l, i, first, end)  the lanes share first <= i < end: lane l has first + l, + LANES,
 * ...
 *   FOR_EACH(i, first, end)      the same where no variable of a lane is used (elementwise)
 *   FOR_ELEMENTS(i, nelem)       the elements of an elementwise kernel's group
 *   FOR_SPAN_IN(..., W), FOR_RANGE_IN(..., W), FOR_EACH_IN(..., W), FOR_ELEMENTS_IN(..., W)
 *                                the same with the tensors of T said in W: READS(p, at),
 *                                WRITES(p, at), UPDATES(p, at), side by side; of floats, whatever
 *                                T is, READS_F32 and so on, and READS_F16, READS_BF16;
 *                                UPDATES_IF(p, at, old): the old values are used if `old`. The loop
 *                                uses only elements p[at + i] of them and WRITES every one. CPUs
 *                                convert runs of such elements at once, CUDA loads and stores
 *                                vectors, and each loop has all tensors in W that it indexes by i
 *                                READS_IF, READS_F32_IF (p, at, given), CUDA only: 0 unless `given`
 *   FOR_EACH_MIXED_IN, FOR_ELEMENTS_MIXED_IN (..., W): the same where W has T and floats
 *   FOR_EACH_WIDE_IN(..., W)     the same with plain conversions on CPUs
 *   FOR_EACH_LONG_IN, FOR_RANGE_LONG_IN, FOR_ELEMENTS_LONG_IN (..., W): the same for a long body
 *   STORE_RUN(p, first, end, v)  p[i] = v[i - first], first <= i < end; v is an array of floats.
 *                                Only with LANES_AS_LOOP
 *   FOR_UNORDERED_IN(l, i, first, end, W)
 *                                the lanes share the range in any way: for what is free of order.
 *                                An element past the end, of zeros, must change nothing
 *   FOR_LANE_0                   { ... } code of one lane
 *   SYNC                         barrier, between code of lanes that touches the same memory
 *   UNROLLED                     before a short loop within the code of a lane
 *   PREFETCH(p, i)               p[i] to p[i + LANES - 1] are needed soon: for CPUs, in jumps over
 *                                rows, which their prefetchers do not follow
 *   TREE(v, op)                  v[0] = the lanes' v combined by halving; v SHARED, op(a, b)
 *   TREE_WIDE(v, op)             the same in a KERNEL_ELEMENTWISE
 *
 * Code outside of FOR_ is run by every lane alike and must write to nothing but plain variables.
 * Lanes of one FOR_ are independent of each other: on CPUs it is a loop that the compiler may
 * vectorise (hence no `restrict`: outputs may be inputs, element by element). On a device the lanes
 * are work-items, or with LANES_AS_LOOP (devices of CPU type) a loop as well.
 *
 * T is the storage type of the tensors' elements: float, or 16 bits when the file is compiled
 * with K_DTYPE f16 or bf16. LOAD(p, i) and STORE(p, i, v) convert, arithmetic is in float, and
 * what is not of the model's dtype (statistics, losses) is float by name: v[i], or LOAD_F32(v, i)
 * and STORE_F32(v, i, x) where v is said in W; LOAD_F16 and LOAD_BF16 are for tensors of that type.
 * What lies between two operations is never in a T, unless T_IS_F32: STORE rounds. FMA is the only
 * fused operation (EXACT_MUL_ADD_F64 may be, for its product must be exact). There is no math
 * library: sqrt is correctly rounded everywhere, the rest is math.h.
 */
#ifndef SRT_KERNELS_DIALECT_DIALECT_H
#define SRT_KERNELS_DIALECT_DIALECT_H

#include "kernels/args.h"

#ifdef __FAST_MATH__
#error "the numeric contract (docs/numerics.md) forbids -ffast-math"
#endif

#define LANES SRT_K_LANES
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))
/* A maximum in which a NaN sticks. */
#define MAX_NAN(m, v) ((v) > (m) || (v) != (v) ? (v) : (m))
#define PLUS(a, b) ((a) + (b))
#define K_UNUSED __attribute__((unused))

#if defined(SRT_K_OPENCL)
#include "kernels/dialect/opencl.h"
#elif defined(__CUDACC__)
#include "kernels/dialect/cuda.h"
#else
#include "kernels/dialect/c11.h"
#endif

#ifndef KERNEL_ELEMENTWISE
#define KERNEL_ELEMENTWISE(nplaces, name, args) KERNEL(nplaces, name, args)
#define KERNEL_COLUMNS(nplaces, name, args) KERNEL(nplaces, name, args)
#endif
#ifndef KERNEL_DENSE
#define KERNEL_DENSE(nplaces, name, args) KERNEL_ELEMENTWISE(nplaces, name, args)
#endif
#ifndef NTHREADS
#define NTHREADS LANES
#define WIDTH LANES
#endif

/* An inner loop must be gone before lanes can become vectors. */
#if defined(SRT_K_OPENCL) || defined(__CUDACC__) || defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED
#endif

/* ---- lanes ------------------------------------------------------------------------------ */
#ifdef LANES_AS_LOOP
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* what it cannot vectorise, it need not */
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__) && !defined(SRT_K_OPENCL) && !defined(__CUDACC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif
#define PRIVATE(type, v) type v##_[LANES]
#define PRIVATE_N(type, v, n) type v##_[n][LANES]
#define AT(v) v##_[l]
#define AT_N(v, k) v##_[k][l]
#define SHARED(type, v, n) type v[n]
#define SHARED_AT
#define SYNC ((void)0)
#define FOR_LANE_0
#define FOR_LANES(l) INDEPENDENT for (int64_t l = 0; l < LANES; l++)
#define FOR_FIRST(l, n) INDEPENDENT for (int64_t l = 0; l < (n); l++)
#define FOR_SPAN(l, i, first, end)                                                                 \
	INDEPENDENT for (int64_t l = 0, i = (first), l##_end = MIN_OF(LANES, (end) - (first));     \
			 l < l##_end; l++, i++)
#define FOR_RANGE(l, i, first, end)                                                                \
	for (int64_t i##_0 = (first); i##_0 < (end); i##_0 += LANES)                               \
		FOR_SPAN(l, i, i##_0, end)
#define FOR_EACH(i, first, end) INDEPENDENT for (int64_t i = (first); i < (end); i++)
#else
#define PRIVATE(type, v) type v##_
#define PRIVATE_N(type, v, n) type v##_[n]
#define AT(v) v##_
#define AT_N(v, k) v##_[k]
#if defined(__CUDACC__)
#define SHARED(type, v, n) __shared__ type v[n]
#define SHARED_AT
#else
#define SHARED(type, v, n) __local type v[n]
#define SHARED_AT __local
#endif
#define SYNC BARRIER
#define FOR_LANE_0 if (LANE == 0)
#define FOR_LANES(l) for (int l = LANE, l##_once = 1; l##_once; l##_once = 0)
#define FOR_FIRST(l, n) for (int l = LANE, l##_once = l < (n); l##_once; l##_once = 0)
#define FOR_SPAN(l, i, first, end)                                                                 \
	for (int64_t l = LANE, i = (first) + l, l##_once = i < (end); l##_once; l##_once = 0)
#define FOR_RANGE(l, i, first, end) for (int64_t l = LANE, i = (first) + l; i < (end); i += LANES)
#define FOR_EACH(i, first, end) for (int64_t i = (first) + LANE; i < (end); i += NTHREADS)
#endif

/* Elements of an elementwise kernel's group. */
#define FOR_ELEMENTS(i, nelem)                                                                     \
	FOR_EACH(i, GROUP * SRT_K_ELEMENTS, MIN_OF((GROUP + 1) * SRT_K_ELEMENTS, nelem))

#define TREE(v, op) K_TREE(v, op, LANES)
#define TREE_WIDE(v, op) K_TREE(v, op, NTHREADS)
#define K_TREE(v, op, n)                                                                           \
	for (int v##_half = (n) / 2; v##_half; v##_half /= 2) {                                    \
		SYNC;                                                                              \
		FOR_FIRST(l, v##_half)                                                             \
			v[l] = op(v[l], v[l + v##_half]);                                          \
	}                                                                                          \
	SYNC

/* ---- places ------------------------------------------------------------------------------ */
#define K_PLACES_1 K_PLACE(0)
#define K_PLACES_2 K_PLACES_1 K_PLACE(1)
#define K_PLACES_3 K_PLACES_2 K_PLACE(2)
#define K_PLACES_4 K_PLACES_3 K_PLACE(3)
#define K_PLACES_5 K_PLACES_4 K_PLACE(4)
#define K_PLACES_6 K_PLACES_5 K_PLACE(5)
#define K_PLACES_7 K_PLACES_6 K_PLACE(6)
#define K_PLACES_8 K_PLACES_7 K_PLACE(7)
#define K_PLACES_9 K_PLACES_8 K_PLACE(8)
#define K_PLACES_10 K_PLACES_9 K_PLACE(9)
#define K_PLACES_11 K_PLACES_10 K_PLACE(10)

/* ---- element types ----------------------------------------------------------------------- */
/*
 * The including file defines K_DTYPE as f32 (what it is if it does not), f16 or bf16. The 16-bit
 * types are storage: widened exactly, rounded once to nearest even, NaN stored as 7e00 or 7fc0.
 * Written in 32-bit integers and selections, which every compiler makes vectors of; where the CPU
 * has instructions for it, they are equal for all inputs (tests/kernels/test_half).
 */
FN float k_from_f32(float v)
{
	return v;
}
FN float k_to_f32(float v)
{
	return v;
}
FN float k_rounded_f32(float v)
{
	return v;
}
FN float k_from_bf16(uint16_t h)
{
	return FLOAT_OF((int32_t)((uint32_t)h << 16));
}
/*
 * c ? a : b, c = 0 or 1, by bits: many selections in one loop are branches to gcc, that it makes no
 * vectors of.
 */
FN int32_t k_select(int c, int32_t a, int32_t b)
{
	return b ^ ((a ^ b) & -c);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#include "kernels/dialect/half_cuda.h"
#else
FN float k_from_f16(uint16_t h)
{
	int32_t m = (int32_t)(h & 0x7fff) << 13, sign = h & 0x8000;
	/* A subnormal: f 2^-24 = 2^-14 (1 + f 2^-10) - 2^-14. */
	float below = FLOAT_OF(m + 0x38800000) - 0x1p-14f;
	int32_t bits = m + (m >= 0x0f800000 ? 0x70000000 : 0x38000000);

	bits = m < 0x00800000 ? BITS_OF(below) : bits;
	return FLOAT_OF((int32_t)((uint32_t)bits | (uint32_t)sign << 16));
}
FN uint16_t k_to_f16(float v)
{
	int32_t a = BITS_OF(v) & 0x7fffffff;
	/* Below 2^-14 the sum's last place is that of a half: the addition rounds. */
	int32_t below = BITS_OF(FLOAT_OF(a) + 0.5f) - 0x3f000000;
	int32_t r = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;

	r = a < 0x38800000 ? below : r;
	r = a >= 0x47800000 ? 0x7c00 : r;
	r = r | ((BITS_OF(v) >> 16) & 0x8000);
	return (uint16_t)(a > 0x7f800000 ? 0x7e00 : r);
}
/*
 * What k_from_f16 makes of k_to_f16(v), for less: 1.5 times a power of two whose last place is
 * that of the half, added and taken away, rounds.
 */
FN float k_rounded_f16(float v)
{
	int32_t a = BITS_OF(v) & 0x7fffffff;
	int32_t power = MAX_OF(a & 0x7f800000, 0x38800000);
	/* unsigned: that of a large one passes 2^31 */
	float by = FLOAT_OF((int32_t)((uint32_t)power + 0x06c00000));
	int32_t r = BITS_OF((FLOAT_OF(a) + by) - by);

	r = k_select(a >= 0x477ff000, 0x7f800000, r);
	r = r | (BITS_OF(v) & (int32_t)0x80000000u);
	return FLOAT_OF(k_select(a > 0x7f800000, 0x7fc00000, r));
}
FN uint16_t k_to_bf16(float v)
{
	uint32_t u = (uint32_t)BITS_OF(v);

	u = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
	return (uint16_t)(v != v ? 0x7fc0 : u);
}
FN float k_rounded_bf16(float v)
{
	uint32_t u = (uint32_t)BITS_OF(v);

	u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
	return FLOAT_OF(k_select(v != v, 0x7fc00000, (int32_t)u));
}
#endif

#ifndef K_DTYPE
#define K_DTYPE f32
#endif
#define K_PASTE_(a, b, c) k_##a##b##c
#define K_PASTE(a, b, c) K_PASTE_(a, b, c)
#define K_NAME(name) K_PASTE(name, _, K_DTYPE)
#define k_wide_f32 1
#define k_wide_f16 0
#define k_wide_bf16 0
#define k_half_f32 0
#define k_half_f16 1
#define k_half_bf16 0
#define T_IS_F16 K_PASTE(half, _, K_DTYPE)
/* 1: STORE does not round, so a tensor can hold an intermediate value. */
#define T_IS_F32 K_PASTE(wide, _, K_DTYPE)
#if T_IS_F32
#define T float
#else
#define T uint16_t
#endif
/* What STORE and LOAD would make of it. */
#define ROUND(v) K_PASTE(rounded, _, K_DTYPE)(v)

#if defined(__CUDACC__) && !defined(LANES_AS_LOOP)
#include "kernels/dialect/window_cuda.h"
#else
#if !defined(SRT_K_OPENCL) && !defined(__CUDACC__) && defined(__F16C__)
#include "kernels/dialect/window.h"
#else
#define LOAD(p, i) K_PASTE(from, _, K_DTYPE)((p)[i])
#define STORE(p, i, v) ((p)[i] = K_PASTE(to, _, K_DTYPE)(v))
/* LOAD of a tensor of f16, whatever T is. */
#define LOAD_F16(p, i) k_from_f16((p)[i])
#define FOR_EACH_IN(i, first, end, windows) FOR_EACH(i, first, end)
#define FOR_SPAN_IN(l, i, first, end, windows) FOR_SPAN(l, i, first, end)
#define FOR_RANGE_IN(l, i, first, end, windows) FOR_RANGE(l, i, first, end)
#define FOR_EACH_LONG_IN(i, first, end, windows) FOR_EACH(i, first, end)
#define FOR_RANGE_LONG_IN(l, i, first, end, windows) FOR_RANGE(l, i, first, end)
#endif
#define LOAD_F32(p, i) ((p)[i])
#define STORE_F32(p, i, v) ((p)[i] = (v))
#define LOAD_BF16(p, i) k_from_bf16((p)[i])
#define READS_F32(p, at)
#define WRITES_F32(p, at)
#define UPDATES_F32(p, at)
#define READS_BF16(p, at)
#define FOR_EACH_MIXED_IN(i, first, end, windows) FOR_EACH_IN(i, first, end, windows)
#define FOR_EACH_WIDE_IN(i, first, end, windows) FOR_EACH(i, first, end)
#define FOR_UNORDERED_IN(l, i, first, end, windows) FOR_RANGE_IN(l, i, first, end, windows)
#define K_OF_GROUP(each, i, nelem, windows)                                                        \
	each(i, GROUP *SRT_K_ELEMENTS, MIN_OF((GROUP + 1) * SRT_K_ELEMENTS, nelem), windows)
#define FOR_ELEMENTS_IN(i, nelem, windows) K_OF_GROUP(FOR_EACH_IN, i, nelem, windows)
#define FOR_ELEMENTS_MIXED_IN(i, nelem, windows) FOR_ELEMENTS_IN(i, nelem, windows)
#define FOR_ELEMENTS_LONG_IN(i, nelem, windows) K_OF_GROUP(FOR_EACH_LONG_IN, i, nelem, windows)
#endif
#ifndef STORE_RUN
#define STORE_RUN(p, first, end, v)                                                                \
	FOR_EACH(i, first, end)                                                                    \
	STORE(p, i, (v)[i - (first)])
#endif
/* What an earlier loop has left in p is read where T_IS_F32. */
#if T_IS_F32
#define WRITES_AGAIN(p, at) UPDATES(p, at)
#else
#define WRITES_AGAIN(p, at) WRITES(p, at)
#endif

#endif
