/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Examples of answers in rows: each example once in an epoch, for every number of ranks.
 */
#include <stdlib.h>

#include "models/data/pack.h"
#include "models/hash.h"
#include "tests/models/sft_case.h"

/* First fit, row by row. */
static void test_first_fit(void)
{
	enum { MOST = 300 };
	int64_t lengths[MOST], room[MOST];
	size_t row[MOST], nrows;

	for (size_t n = 0; n < MOST; n += 1 + n / 4) {
		const int64_t capacity = 1 + (int64_t)(srt_counter_hash(3, n, 0) % 50);
		size_t want_rows = 0;

		for (size_t i = 0; i < n; i++)
			lengths[i] = 1 + (int64_t)(srt_counter_hash(4, n, i) % (uint64_t)capacity);
		CHECK_OK_OR_DIE(srt_pack_first_fit(lengths, n, capacity, row, &nrows));
		for (size_t i = 0; i < n; i++) {
			size_t want = 0;

			while (want < want_rows && room[want] < lengths[i])
				want++;
			if (want == want_rows)
				room[want_rows++] = capacity;
			room[want] -= lengths[i];
			CHECK_INT(row[i], want);
		}
		CHECK_INT(nrows, want_rows);
	}
}

enum { CONTEXT = 48, NEXAMPLES = 103, BATCH = 6 };

/* Example i has the prompt of one byte i + 1 and an answer of i % 37 + 1 bytes. */
static srt_sft_t *open_rows(uint64_t seed)
{
	srt_sft_source_t source = sft_of_bytes(CONTEXT);
	FILE *f = fopen(sft_path, "wb");
	srt_sft_t *sft = NULL;

	CHECK_OR_DIE(f != NULL);
	for (int i = 0; i < NEXAMPLES; i++) {
		fprintf(f, "{\"prompt\": \"\\u00%02x\", \"completion\": \"", i + 1);
		for (int k = 0; k <= i % 37; k++)
			fputc('a' + k % 26, f);
		fputs("\"}\n", f);
	}
	CHECK_OR_DIE(fclose(f) == 0);
	source.seed = seed;
	source.batch = BATCH;
	CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
	return sft;
}

/* Counts the examples of a row, whose first tokens tell them. @return its targets. */
static int64_t count_row(const int32_t *ids, const int32_t *targets, const int32_t *positions,
			 int *seen)
{
	int64_t n = 0;

	for (int t = 0; t < CONTEXT; t++) {
		if (positions[t] == 0 && targets[t] >= 0)
			seen[ids[t] - 1]++;
		CHECK(positions[t] == (t > 0 && positions[t] != 0 ? positions[t - 1] + 1 : 0));
		/* targets are the next tokens of the same example */
		if (t + 1 < CONTEXT && positions[t + 1] != 0 && targets[t] >= 0)
			CHECK_INT(targets[t], ids[t + 1]);
		else if (targets[t] >= 0)
			CHECK_INT(targets[t], SRT_SFT_BYTES_EOS);
		n += targets[t] >= 0;
	}
	return n;
}

static void test_epochs(void)
{
	srt_sft_t *sft = open_rows(7), *other = open_rows(8);
	static int32_t ids[BATCH * CONTEXT], targets[BATCH * CONTEXT], positions[BATCH * CONTEXT];
	static int32_t again[BATCH * CONTEXT];
	int same_epochs = 0, same_seeds = 0;
	int seen[NEXAMPLES];
	int64_t step = 1, first[3], total;

	for (int64_t epoch = 0; epoch < 3; epoch++) {
		int64_t e, before, sum = 0;

		memset(seen, 0, sizeof(seen));
		first[epoch] = step;
		for (;; step++) {
			int64_t n = 0;

			CHECK_OK_OR_DIE(srt_sft_find_epoch(sft, step, &e, &before));
			if (e != epoch)
				break;
			CHECK_INT(before, first[epoch] - 1);
			CHECK_OK_OR_DIE(
				srt_sft_batch(sft, step, 0, BATCH, ids, targets, positions));
			for (int r = 0; r < BATCH; r++)
				n += count_row(ids + r * CONTEXT, targets + r * CONTEXT,
					       positions + r * CONTEXT, seen);
			CHECK_OK_OR_DIE(srt_sft_ntargets(sft, step, &total));
			CHECK_INT(total, n);
			CHECK(n > 0);
			sum += n;
		}
		for (int i = 0; i < NEXAMPLES; i++)
			CHECK_MSG(seen[i] == 1, "epoch %d has example %d %d times", (int)epoch, i,
				  seen[i]);
		CHECK_INT(sum, srt_sft_info(sft).nanswer_tokens);
	}
	/* an earlier step again, by parts as ranks read it; other epochs and seeds differ */
	for (int parts = 1; parts <= BATCH; parts++) {
		if (BATCH % parts != 0)
			continue;
		CHECK_OK_OR_DIE(srt_sft_batch(sft, 1, 0, BATCH, ids, targets, positions));
		for (int p = 0; p < parts; p++)
			CHECK_OK_OR_DIE(srt_sft_batch(sft, 1, p * (BATCH / parts), BATCH / parts,
						      again + p * (BATCH / parts) * CONTEXT,
						      targets, positions));
		CHECK(memcmp(ids, again, sizeof(ids)) == 0);
	}
	CHECK_OK_OR_DIE(srt_sft_batch(other, 1, 0, BATCH, again, targets, positions));
	for (int r = 0; r < BATCH; r++)
		same_seeds += ids[r * CONTEXT] == again[r * CONTEXT];
	CHECK_OK_OR_DIE(srt_sft_batch(sft, first[1], 0, BATCH, again, targets, positions));
	for (int r = 0; r < BATCH; r++)
		same_epochs += ids[r * CONTEXT] == again[r * CONTEXT];
	CHECK(same_seeds < BATCH / 2 && same_epochs < BATCH / 2);
	CHECK(srt_sft_info(sft).fill > 0.8 && srt_sft_info(sft).fill <= 1.0);
	CHECK(srt_sft_info(sft).hash == srt_sft_info(other).hash);
	srt_sft_destroy(sft);
	srt_sft_destroy(other);
}

/* Rows of validation have all examples once, in the order of the file where they fit. */
static void test_windows(void)
{
	srt_sft_t *sft = open_rows(7);
	const int64_t n = srt_sft_nwindows(sft);
	int32_t ids[CONTEXT], targets[CONTEXT], positions[CONTEXT];
	int seen[NEXAMPLES] = { 0 };
	int64_t sum = 0;

	CHECK_INT(n, srt_sft_info(sft).nrows);
	CHECK_INT(srt_sft_window_targets(sft, 0), 0);
	for (int64_t w = 0; w < n; w++) {
		srt_sft_window(sft, w, ids, targets, positions);
		if (w == 0)
			CHECK_INT(ids[0], 1);
		sum += count_row(ids, targets, positions, seen);
		CHECK_INT(srt_sft_window_targets(sft, w + 1), sum);
	}
	for (int i = 0; i < NEXAMPLES; i++)
		CHECK_INT(seen[i], 1);
	CHECK_INT(sum, srt_sft_info(sft).nanswer_tokens);
	srt_sft_window(sft, n, ids, targets, positions);
	CHECK_INT(count_row(ids, targets, positions, seen), 0);
	srt_sft_destroy(sft);
}

int main(void)
{
	sft_case_begin();
	test_first_fit();
	test_epochs();
	test_windows();
	sft_case_end();
	return check_done();
}
