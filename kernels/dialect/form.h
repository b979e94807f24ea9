/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forms: kernels, and passes of kernels, whose code is a formula for one element. A list names
 * their tensors once, without commas:
 *
 *   IN(x) OUT(y) IO(y)           tensors of T: read, written, updated
 *   IN_F32(x) OUT_F32(y) IO_F32(y), IN_F16(x), IN_BF16(x)
 *                                tensors of that type
 *   ADD(y)                       T: added onto
 *   KEEP(y), KEPT(y)             outputs of two passes over T: an intermediate value, that floats
 *                                keep for the second pass, and what is written: first T_IS_F32 ?
 *                                y, the value kept : to be computed again
 *   PLACE(type, s)               what formulas do not read by element
 *
 * TENSORS(list) declares the places of a kernel in their order: x_p is the pointer of x, x_given
 * whether it is present. In a formula x is the element that is read, and y = ... what is written. A
 * formula is one statement or several, and has no comma outside of parentheses. Its length says
 * how runs of elements are converted: LONG from about ten operations on; SHORT; MIXED is a short
 * one with tensors of T and of floats.
 *
 *   MAP(name, length, list, formula)
 *                                a whole elementwise kernel; A is an srt_k_elem_t
 *   RANGE(length, from, to, list, formula)
 *                                the elements from <= i < to, in a KERNEL_ELEMENTWISE
 *
 * Passes over a row, in a KERNEL of one group a row, that declares `first`, the row's first
 * element. i is the column. In their lists BY_COLUMN(x) has one element a column, VALUE_OF(x, v) is
 * the constant v.
 *
 *   SUM(s, length, list, formula)
 *                                float s = the row's sum; formula: the lane's s with one element
 *   SUM_START(s); SUM_PASS(s, length, list, formula) SUM_END(s)
 *                                SUM in pieces, where the pass depends on a condition
 *   SUM_2(s, t, length, list, formula)
 *                                two sums in one pass; the formula assigns s and t
 *   MAXIMUM(m, list, x)          float m = the row's maximum; a NaN sticks
 *   EACH(length, list, formula)  the outputs
 *   EACH_ONTO(y, length, list, formula)
 *                                the output y, added onto if A.accumulate
 *   EACH_OR(x, v, length, list, formula)
 *                                the outputs; x has one element a column, or is v if it is absent
 *   ROW_STORE(p, v)              p[row] = v
 *
 * Sums over the A.rows rows of A.n columns, once in a KERNEL_COLUMNS (columns.h). r is the row.
 *
 *   COLUMN_SUM(s, list, formula), COLUMN_SUM_2(s, t, list, formula)
 *                                the sums; lists of IN, formulas as those of SUM
 *   COLUMN_TOTAL(y, old, s)      y (n) = s, or y + s if `old`
 */
#ifndef SRT_KERNELS_DIALECT_FORM_H
#define SRT_KERNELS_DIALECT_FORM_H

#include "kernels/dialect/columns.h"

/* ---- lists ---------------------------------------------------------------------------------- */
/* A member: its window, type, how an element is read and written; its name. */
#define IN(p) (READS, const T, LOAD, K_NO_STORE, p)
#define OUT(p) (WRITES, T, K_NO_LOAD, STORE, p)
#define IO(p) (UPDATES, T, LOAD, STORE, p)
#define IN_F32(p) (READS_F32, const float, LOAD_F32, K_NO_STORE, p)
#define OUT_F32(p) (WRITES_F32, float, K_NO_LOAD, STORE_F32, p)
#define IO_F32(p) (UPDATES_F32, float, LOAD_F32, STORE_F32, p)
#define IN_F16(p) (READS_F16, const uint16_t, LOAD_F16, K_NO_STORE, p)
#define IN_BF16(p) (READS_BF16, const uint16_t, LOAD_BF16, K_NO_STORE, p)
#define ADD(p) (UPDATES, T, K_NO_LOAD, K_STORE_ADD, p)
#define KEEP(p) (K_NO_WINDOW, T, K_NO_LOAD, K_STORE_KEEP, p)
#define KEPT(p) (WRITES_AGAIN, T, K_LOAD_KEPT, STORE, p)
#define BY_COLUMN(p) (K_READS_COLUMN, const T, K_LOAD_COLUMN, K_NO_STORE, p)
#define VALUE_OF(p, v) (K_NO_WINDOW, const T, v K_NO_ELEMENT, K_NO_STORE, p)
#define PLACE(type, p) (K_NO_WINDOW, type, K_NO_LOAD, K_NO_STORE, p)

#define K_READS_COLUMN(p, at) READS(p, 0)
#define K_NO_WINDOW(p, at)
#define K_NO_LOAD(p, at) 0.0f
#define K_NO_ELEMENT(p, at)
#define K_LOAD_COLUMN(p, at) LOAD(p, i)
#if T_IS_F32
#define K_LOAD_KEPT(p, at) LOAD(p, at)
#else
#define K_LOAD_KEPT(p, at) 0.0f
#endif
#define K_NO_STORE(p, at, v)
#define K_STORE_ADD(p, at, v) STORE(p, at, LOAD(p, at) + v)
#define K_STORE_KEEP(p, at, v)                                                                     \
	if (T_IS_F32)                                                                              \
	STORE(p, at, v)

/* A walk: two macros that call each other, one member of the list each. _END ends it. */
#define K_WALK(walk) K_WALK_END(walk, _END)
#define K_WALK_END(walk, end) walk##end

#define K_WINDOWS(list) K_WALK(K_WINDOW_A list)
#define K_WINDOW_A(window, type, load, store, p) window(p##_p, first) K_WINDOW_B
#define K_WINDOW_B(window, type, load, store, p) window(p##_p, first) K_WINDOW_A
#define K_WINDOW_A_END
#define K_WINDOW_B_END

#define K_VALUES(list) K_WALK(K_VALUE_A list)
#define K_VALUE_A(window, type, load, store, p)                                                    \
	float p = load(p##_p, first + i);                                                          \
	K_VALUE_B
#define K_VALUE_B(window, type, load, store, p)                                                    \
	float p = load(p##_p, first + i);                                                          \
	K_VALUE_A
#define K_VALUE_A_END
#define K_VALUE_B_END

#define K_STORES(list) K_WALK(K_STORE_A list)
#define K_STORE_A(window, type, load, store, p)                                                    \
	store(p##_p, first + i, p);                                                                \
	K_STORE_B
#define K_STORE_B(window, type, load, store, p)                                                    \
	store(p##_p, first + i, p);                                                                \
	K_STORE_A
#define K_STORE_A_END
#define K_STORE_B_END

#define K_FETCHES(list) K_WALK(K_FETCH_A list)
#define K_FETCH_A(window, type, load, store, p)                                                    \
	PREFETCH(p##_p, k_ahead);                                                                  \
	K_FETCH_B
#define K_FETCH_B(window, type, load, store, p)                                                    \
	PREFETCH(p##_p, k_ahead);                                                                  \
	K_FETCH_A
#define K_FETCH_A_END
#define K_FETCH_B_END

#define TENSORS(list) K_WALK(K_TENSOR_0 list)
#define K_TENSOR_0(window, type, load, store, p) K_PLACE_OF(0, type, p) K_TENSOR_1
#define K_TENSOR_1(window, type, load, store, p) K_PLACE_OF(1, type, p) K_TENSOR_2
#define K_TENSOR_2(window, type, load, store, p) K_PLACE_OF(2, type, p) K_TENSOR_3
#define K_TENSOR_3(window, type, load, store, p) K_PLACE_OF(3, type, p) K_TENSOR_4
#define K_TENSOR_4(window, type, load, store, p) K_PLACE_OF(4, type, p) K_TENSOR_5
#define K_TENSOR_5(window, type, load, store, p) K_PLACE_OF(5, type, p) K_TENSOR_6
#define K_TENSOR_6(window, type, load, store, p) K_PLACE_OF(6, type, p) K_TENSOR_7
#define K_TENSOR_7(window, type, load, store, p) K_PLACE_OF(7, type, p) K_TENSOR_8
#define K_TENSOR_8(window, type, load, store, p) K_PLACE_OF(8, type, p) K_TENSOR_9
#define K_TENSOR_9(window, type, load, store, p) K_PLACE_OF(9, type, p) K_TENSOR_10
#define K_TENSOR_1_END
#define K_TENSOR_2_END
#define K_TENSOR_3_END
#define K_TENSOR_4_END
#define K_TENSOR_5_END
#define K_TENSOR_6_END
#define K_TENSOR_7_END
#define K_TENSOR_8_END
#define K_TENSOR_9_END
#define K_TENSOR_10_END
#define K_PLACE_OF(i, type, p)                                                                     \
	TENSOR(i, type, p##_p);                                                                    \
	const int p##_given K_UNUSED = p##_p != 0;

#define K_COUNT(list) K_WALK(K_COUNT_0 list)
#define K_COUNT_0(window, type, load, store, p) K_COUNT_1
#define K_COUNT_1(window, type, load, store, p) K_COUNT_2
#define K_COUNT_2(window, type, load, store, p) K_COUNT_3
#define K_COUNT_1_END 1
#define K_COUNT_2_END 2
#define K_COUNT_3_END 3

/* ---- elementwise ----------------------------------------------------------------------------- */
#define K_MAP_SHORT FOR_ELEMENTS_IN
#define K_MAP_LONG FOR_ELEMENTS_LONG_IN
#define K_MAP_MIXED FOR_ELEMENTS_MIXED_IN
#define MAP(name, length, list, formula)                                                           \
	KERNEL_ELEMENTWISE(K_COUNT(list), name, srt_k_elem_t)                                      \
	{                                                                                          \
		const int64_t first = 0;                                                           \
		TENSORS(list)                                                                      \
                                                                                                   \
		K_MAP_##length(i, A.nelem, K_WINDOWS(list))                                        \
		{                                                                                  \
			K_VALUES(list)                                                             \
			formula;                                                                   \
			K_STORES(list)                                                             \
		}                                                                                  \
	}

#define K_RANGE_SHORT FOR_EACH_IN
#define K_RANGE_MIXED FOR_EACH_MIXED_IN
#define RANGE(length, from, to, list, formula)                                                     \
	do {                                                                                       \
		const int64_t first = 0;                                                           \
                                                                                                   \
		K_RANGE_##length(i, from, to, K_WINDOWS(list))                                     \
		{                                                                                  \
			K_VALUES(list)                                                             \
			formula;                                                                   \
			K_STORES(list)                                                             \
		}                                                                                  \
	} while (0)

/* ---- rows ------------------------------------------------------------------------------------ */
#define K_ROW_SHORT FOR_RANGE_IN
#define K_ROW_LONG FOR_RANGE_LONG_IN
#define EACH(length, list, formula)                                                                \
	K_ROW_##length(l, i, 0, A.n, K_WINDOWS(list))                                              \
	{                                                                                          \
		K_VALUES(list)                                                                     \
		formula;                                                                           \
		K_STORES(list)                                                                     \
	}

/* Two loops, each without a condition: for vectors of CPUs, and registers of GPUs. */
#define EACH_ONTO(y, length, list, formula)                                                        \
	if (A.accumulate)                                                                          \
		EACH(length, ADD(y) list, formula)                                                 \
	else                                                                                       \
		EACH(length, OUT(y) list, formula)
#define EACH_OR(x, v, length, list, formula)                                                       \
	if (x##_given)                                                                             \
		EACH(length, BY_COLUMN(x) list, formula)                                           \
	else                                                                                       \
		EACH(length, VALUE_OF(x, v) list, formula)
#define ROW_STORE(p, v)                                                                            \
	FOR_LANE_0                                                                                 \
	{                                                                                          \
		p[GROUP] = v;                                                                      \
	}

/* A lane's part of s is s_part; those of all lanes are s_parts. */
#define K_FOLD_START(s, value)                                                                     \
	PRIVATE(float, s##_part);                                                                  \
	SHARED(float, s##_parts, LANES);                                                           \
	FOR_LANES(l)                                                                               \
	AT(s##_part) = value
#define K_FOLD_PASS(s, length, list, formula)                                                      \
	K_ROW_##length(l, i, 0, A.n, K_WINDOWS(list))                                              \
	{                                                                                          \
		K_VALUES(list)                                                                     \
		float s = AT(s##_part);                                                            \
                                                                                                   \
		AT(s##_part) = formula;                                                            \
		K_STORES(list)                                                                     \
	}
#define K_FOLD_END(s, op)                                                                          \
	FOR_LANES(l)                                                                               \
		s##_parts[l] = AT(s##_part);                                                       \
	TREE(s##_parts, op);                                                                       \
	float s = s##_parts[0]
#define SUM_START(s) K_FOLD_START(s, 0.0f)
#define SUM_PASS(s, length, list, formula) K_FOLD_PASS(s, length, list, formula)
#define SUM_END(s) K_FOLD_END(s, PLUS)
#define SUM(s, length, list, formula)                                                              \
	SUM_START(s);                                                                              \
	SUM_PASS(s, length, list, formula)                                                         \
	SUM_END(s)
#define MAXIMUM(m, list, x)                                                                        \
	K_FOLD_START(m, -INFINITY);                                                                \
	K_FOLD_PASS(m, SHORT, list, MAX_NAN(m, x))                                                 \
	K_FOLD_END(m, MAX_NAN)
#define SUM_2(s, t, length, list, formula)                                                         \
	SUM_START(s);                                                                              \
	SUM_START(t);                                                                              \
	K_ROW_##length(l, i, 0, A.n, K_WINDOWS(list))                                              \
	{                                                                                          \
		K_VALUES(list)                                                                     \
		float s = AT(s##_part);                                                            \
		float t = AT(t##_part);                                                            \
                                                                                                   \
		formula;                                                                           \
		AT(s##_part) = s;                                                                  \
		AT(t##_part) = t;                                                                  \
	}                                                                                          \
	SUM_END(s);                                                                                \
	SUM_END(t)

/* ---- columns --------------------------------------------------------------------------------- */
#define K_ROW_BLOCKS ((A.rows + SRT_K_ROW_BLOCK - 1) / SRT_K_ROW_BLOCK)
#define K_COLUMN_PRIVATE(s)                                                                        \
	PRIVATE(float, s);                                                                         \
	PRIVATE_N(float, s##_levels, K_LEVELS)
#define K_COLUMN_CLEAR(s)                                                                          \
	FOR_LANES(l)                                                                               \
	AT(s) = 0.0f
#define K_COLUMN_ROW(list)                                                                         \
	const int64_t first = r * A.n;                                                             \
	const int64_t k_ahead = MIN_OF(r + K_ROWS_AHEAD, A.rows - 1) * A.n + COLUMNS_FIRST;        \
                                                                                                   \
	(void)k_ahead;                                                                             \
	K_FETCHES(list)                                                                            \
	FOR_COLUMNS_IN(l, i, COLUMNS_FIRST, A.n, K_WINDOWS(list))
#define COLUMN_SUM(s, list, formula)                                                               \
	SHARED_TOTALS;                                                                             \
	K_COLUMN_PRIVATE(s);                                                                       \
	FOR_BLOCKS(k, K_ROW_BLOCKS) {                                                              \
		K_COLUMN_CLEAR(s);                                                                 \
		FOR_ROWS(r, k, A.rows) {                                                           \
			K_COLUMN_ROW(list)                                                         \
			{                                                                          \
				K_VALUES(list)                                                     \
				float s = AT(s);                                                   \
                                                                                                   \
				AT(s) = formula;                                                   \
			}                                                                          \
		}                                                                                  \
		BLOCK_PUSH(s##_levels, s, k);                                                      \
	}                                                                                          \
	BLOCK_TOTAL(s##_levels, s, K_ROW_BLOCKS)
#define COLUMN_SUM_2(s, t, list, formula)                                                          \
	SHARED_TOTALS;                                                                             \
	K_COLUMN_PRIVATE(s);                                                                       \
	K_COLUMN_PRIVATE(t);                                                                       \
	FOR_BLOCKS(k, K_ROW_BLOCKS) {                                                              \
		K_COLUMN_CLEAR(s);                                                                 \
		K_COLUMN_CLEAR(t);                                                                 \
		FOR_ROWS(r, k, A.rows) {                                                           \
			K_COLUMN_ROW(list)                                                         \
			{                                                                          \
				K_VALUES(list)                                                     \
				float s = AT(s);                                                   \
				float t = AT(t);                                                   \
                                                                                                   \
				formula;                                                           \
				AT(s) = s;                                                         \
				AT(t) = t;                                                         \
			}                                                                          \
		}                                                                                  \
		BLOCK_PUSH(s##_levels, s, k);                                                      \
		BLOCK_PUSH(t##_levels, t, k);                                                      \
	}                                                                                          \
	BLOCK_TOTAL(s##_levels, s, K_ROW_BLOCKS);                                                  \
	BLOCK_TOTAL(t##_levels, t, K_ROW_BLOCKS)
#define COLUMN_TOTAL(y, old, s)                                                                    \
	FOR_TOTALS(l, j, COLUMNS_FIRST, A.n)                                                       \
	STORE(y##_p, j, (old) ? LOAD(y##_p, j) + AT(s) : AT(s))

#endif
