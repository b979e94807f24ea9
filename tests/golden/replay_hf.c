/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay_hf FOLDER: replays a case that was recorded of Hugging Face's packages. Prints one line,
 * PASS, FAIL or SKIP, after what differs. Exit status: 0, 1, or 77 for a kind that is not replayed.
 */
#include <stdio.h>
#include <string.h>

#include "tests/golden/replay_hf.h"

static const struct {
	const char *kind;
	int (*replay)(const hf_case_t *c);
} kinds[] = {
	{ "tokenizer", hf_replay_tokenizer },
};

static int replay(const hf_case_t *c)
{
	const char *kind = json_string_value(json_object_get(c->json, "kind"));

	for (size_t i = 0; kind != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].kind, kind) == 0)
			return kinds[i].replay(c);
	printf("SKIP: cases of kind \"%s\" are not replayed\n", kind != NULL ? kind : "");
	return HF_SKIP;
}

int main(int argc, char **argv)
{
	hf_case_t c = { .folder = argc == 2 ? argv[1] : NULL };
	char path[4096];
	json_error_t error;
	int result;

	if (argc != 2) {
		fprintf(stderr, "usage: replay_hf FOLDER\n");
		return 2;
	}
	snprintf(path, sizeof(path), "%s/case.json", c.folder);
	c.json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (c.json == NULL) {
		fprintf(stderr, "%s: %s\n", path, error.text);
		return 2;
	}
	result = replay(&c);
	if (result != HF_SKIP)
		printf("%s %s\n", result == HF_PASS ? "PASS" : "FAIL",
		       strrchr(c.folder, '/') != NULL ? strrchr(c.folder, '/') + 1 : c.folder);
	json_decref(c.json);
	return result;
}
