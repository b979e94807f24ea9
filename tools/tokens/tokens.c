/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-tokens: encodes texts to a file of tokens, decodes it, counts tokens. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/tokenizer.h>
#include <shardrt/version.h>

#include "models/data/tokens.h"
#include "tools/common.h"

static const char usage[] =
	"usage: shardrt-tokens encode --tokenizer FOLDER [--special] [--end TOKEN] TEXT... OUT\n"
	"       shardrt-tokens decode --tokenizer FOLDER [--skip-special] TOKENS\n"
	"       shardrt-tokens count --tokenizer FOLDER [--special] [--end TOKEN] TEXT...\n"
	"\n"
	"  encode  write the tokens of texts, one after the other, to a file for shardrt-train\n"
	"          --tokens: 16 bits each, or 32 if the vocabulary is larger. Prints their number\n"
	"          and the vocabulary, which --vocab must be at least\n"
	"  decode  print the text of such a file\n"
	"  count   print the number of tokens that encode would write\n"
	"\n"
	"TEXT is a file of UTF-8. All of it is in memory, with its tokens.\n"
	"\n"
	"      --tokenizer FOLDER  tokenizer.json, or the folder that has it\n"
	"      --special           add the tokens of its template to each text, such as one at\n"
	"                          the beginning\n"
	"      --end TOKEN         add this token after each text, for example '<|endoftext|>'\n"
	"      --skip-special      leave out special tokens\n"
	"  -v, --version           print the version and exit\n"
	"  -h, --help              print this help and exit\n"
	"\n"
	"Exit status: 0 success, 1 a file that cannot be read, written or encoded, 2 wrong\n"
	"options.\n";

enum { FAILED = 1 };

/* What the command line asks for. */
typedef struct {
	const char *folder, *end_token;
	int special, skip_special;
	char **paths;
	int npaths;
	srt_tokenizer_t *tokenizer;
	int32_t end; /* -1: none */
} request_t;

/* Where tokens go: a file, or nowhere if they are counted. */
typedef struct {
	FILE *file;
	uint64_t ntokens;
	int item; /* bytes of a token: 2 or 4 */
} out_t;

static int complain(const char *format, const char *word)
{
	tool_error(format, word);
	fputs("shardrt-tokens --help lists the commands and options\n", stderr);
	return TOOL_EXIT_USAGE;
}

static int fail(void)
{
	tool_error("%s", srt_error_last());
	return FAILED;
}

static int fail_file(const char *what, const char *path)
{
	tool_error("cannot %s %s: %s", what, path, strerror(errno));
	return FAILED;
}

/* Reads a file. @param[out] data freed by the caller. @return 0 or FAILED. */
static int read_file(const char *path, unsigned char **data, size_t *nbytes)
{
	FILE *f = fopen(path, "rb");
	size_t capacity = 0, n = 1;

	*data = NULL;
	*nbytes = 0;
	while (f != NULL && n > 0) {
		if (*nbytes == capacity) {
			unsigned char *grown = realloc(*data, capacity = 2 * capacity + 65536);

			if (grown == NULL)
				break;
			*data = grown;
		}
		n = fread(*data + *nbytes, 1, capacity - *nbytes, f);
		*nbytes += n;
	}
	if (f == NULL || n > 0 || ferror(f)) {
		fail_file("read", path);
		if (f != NULL)
			fclose(f);
		free(*data);
		return FAILED;
	}
	fclose(f);
	return 0;
}

/* ---- encode and count ------------------------------------------------------------------------ */

/* @return 0, or -1 if the file cannot be written. */
static int put_tokens(out_t *out, const int32_t *ids, size_t n)
{
	out->ntokens += n;
	for (size_t i = 0; out->file != NULL && i < n; i++) {
		const unsigned char bytes[4] = { (unsigned char)ids[i],
						 (unsigned char)(ids[i] >> 8),
						 (unsigned char)(ids[i] >> 16),
						 (unsigned char)(ids[i] >> 24) };

		if (fwrite(bytes, (size_t)out->item, 1, out->file) != 1)
			return -1;
	}
	return 0;
}

/* @return 0 or FAILED. */
static int encode_text(const request_t *r, const char *path, out_t *out)
{
	unsigned char *text;
	size_t nbytes, nids;
	int32_t *ids;
	int bad;

	if (read_file(path, &text, &nbytes) != 0)
		return FAILED;
	if (srt_tokenizer_encode(r->tokenizer, (const char *)text, nbytes,
				 r->special ? SRT_TOKENIZER_ADD_SPECIAL : 0, &ids,
				 &nids) != SRT_OK) {
		tool_error("%s: %s", path, srt_error_last());
		free(text);
		return FAILED;
	}
	free(text);
	bad = put_tokens(out, ids, nids) != 0 || (r->end >= 0 && put_tokens(out, &r->end, 1) != 0);
	free(ids);
	if (bad)
		return fail_file("write", "the tokens");
	if (out->ntokens <= UINT32_MAX)
		return 0;
	tool_error("a file of tokens has at most %u of them", UINT32_MAX);
	return FAILED;
}

static int encode_texts(const request_t *r, int n, out_t *out)
{
	for (int i = 0; i < n; i++)
		if (encode_text(r, r->paths[i], out) != 0)
			return FAILED;
	return 0;
}

static int run_count(const request_t *r)
{
	out_t out = { .file = NULL };

	if (encode_texts(r, r->npaths, &out) != 0)
		return FAILED;
	printf("%llu\n", (unsigned long long)out.ntokens);
	return 0;
}

/* Writes the tokens to an open file. @return 0 or FAILED. */
static int write_tokens(const request_t *r, const char *path, out_t *out)
{
	unsigned char header[SRT_TOKENS_HEADER_NBYTES];

	srt_tokens_make_header(out->ntokens, out->item, header);
	if (fwrite(header, sizeof(header), 1, out->file) != 1)
		return fail_file("write", path);
	if (encode_texts(r, r->npaths - 1, out) != 0)
		return FAILED;
	srt_tokens_make_header(out->ntokens, out->item, header); /* with their number */
	if (fseek(out->file, 0, SEEK_SET) != 0 ||
	    fwrite(header, sizeof(header), 1, out->file) != 1 || fflush(out->file) != 0)
		return fail_file("write", path);
	return 0;
}

/* The file gets its name when it is complete. */
static int run_encode(const request_t *r)
{
	const char *path = r->paths[r->npaths - 1];
	const int64_t vocab = srt_tokenizer_vocab_size(r->tokenizer);
	out_t out = { .item = vocab <= UINT16_MAX + 1 ? 2 : 4 };
	char partial[4096];
	int code;

	if (snprintf(partial, sizeof(partial), "%s.partial", path) >= (int)sizeof(partial))
		return complain("the name %s is too long", path);
	out.file = fopen(partial, "wb");
	if (out.file == NULL)
		return fail_file("write", partial);
	code = write_tokens(r, partial, &out);
	if (fclose(out.file) != 0 && code == 0)
		code = fail_file("write", partial);
	if (code == 0 && rename(partial, path) != 0)
		code = fail_file("write", path);
	if (code != 0) {
		remove(partial);
		return code;
	}
	printf("%llu tokens of %d bits, vocabulary %lld\n", (unsigned long long)out.ntokens,
	       8 * out.item, (long long)vocab);
	return 0;
}

/* ---- decode ---------------------------------------------------------------------------------- */

/* The tokens of a file. @return freed by the caller; NULL without memory. */
static int32_t *get_ids(const unsigned char *bytes, const srt_tokens_t *tokens)
{
	const size_t item = (size_t)tokens->item;
	int32_t *ids = malloc((tokens->ntokens + 1) * sizeof(*ids));

	for (uint64_t i = 0; ids != NULL && i < tokens->ntokens; i++) {
		uint32_t id = 0;

		for (size_t k = 0; k < item; k++)
			id |= (uint32_t)bytes[tokens->first + i * item + k] << 8 * k;
		ids[i] = (int32_t)id;
	}
	return ids;
}

static int run_decode(const request_t *r)
{
	srt_tokens_t tokens;
	unsigned char *bytes;
	char why[256], *text;
	size_t nbytes;
	int32_t *ids;
	srt_status_t status;

	if (read_file(r->paths[0], &bytes, &nbytes) != 0)
		return FAILED;
	if (srt_tokens_find(bytes, nbytes, &tokens, why, sizeof(why)) != 0) {
		tool_error("%s: %s", r->paths[0], why);
		free(bytes);
		return FAILED;
	}
	ids = get_ids(bytes, &tokens);
	free(bytes);
	if (ids == NULL)
		return fail_file("decode", r->paths[0]);
	status = srt_tokenizer_decode(r->tokenizer, ids, tokens.ntokens, r->skip_special, &text,
				      &nbytes);
	free(ids);
	if (status != SRT_OK)
		return fail();
	fwrite(text, 1, nbytes, stdout); /* main() checks standard output */
	free(text);
	return 0;
}

/* ---- the command line ------------------------------------------------------------------------ */

enum { OPT_TOKENIZER = 256, OPT_SPECIAL, OPT_END, OPT_SKIP };

static const struct option long_options[] = {
	{ "tokenizer", required_argument, NULL, OPT_TOKENIZER },
	{ "special", no_argument, NULL, OPT_SPECIAL },
	{ "end", required_argument, NULL, OPT_END },
	{ "skip-special", no_argument, NULL, OPT_SKIP },
	{ "version", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const struct {
	const char *name;
	int least, most; /* paths */
	int encodes;     /* else it has --skip-special */
	int (*run)(const request_t *r);
} commands[] = {
	{ "encode", 2, INT32_MAX, 1, run_encode },
	{ "decode", 1, 1, 0, run_decode },
	{ "count", 1, INT32_MAX, 1, run_count },
};

static int run_command(request_t *r, size_t c)
{
	int code;

	if (r->folder == NULL)
		return complain("%s is missing: --tokenizer FOLDER", "the tokenizer");
	if (r->npaths < commands[c].least || r->npaths > commands[c].most)
		return complain("%s needs other files", commands[c].name);
	if (commands[c].encodes ? r->skip_special : r->special || r->end_token != NULL)
		return complain(commands[c].encodes ? "%s has no option --skip-special" :
						      "%s has no options --special and --end",
				commands[c].name);
	if (srt_tokenizer_open(r->folder, &r->tokenizer) != SRT_OK)
		return fail();
	r->end = r->end_token != NULL ? srt_tokenizer_find(r->tokenizer, r->end_token) : -1;
	code = r->end_token != NULL && r->end < 0 ?
		       complain("the tokenizer has no token '%s'", r->end_token) :
		       commands[c].run(r);
	srt_tokenizer_close(r->tokenizer);
	return code;
}

static int find_command(request_t *r, const char *name)
{
	for (size_t c = 0; c < sizeof(commands) / sizeof(commands[0]); c++)
		if (strcmp(commands[c].name, name) == 0)
			return run_command(r, c);
	return complain("unknown command '%s'", name);
}

/* Sets what an option gives. @return 0, or TOOL_EXIT_USAGE for an unknown one. */
static int set_option(request_t *r, int opt)
{
	switch (opt) {
	case OPT_TOKENIZER:
		r->folder = optarg;
		return 0;
	case OPT_SPECIAL:
		r->special = 1;
		return 0;
	case OPT_END:
		r->end_token = optarg;
		return 0;
	case OPT_SKIP:
		r->skip_special = 1;
		return 0;
	default:
		fputs("shardrt-tokens --help lists the options\n", stderr);
		return TOOL_EXIT_USAGE;
	}
}

int main(int argc, char **argv)
{
	request_t r = { .end = -1 };
	int opt, code;

	tool_start("shardrt-tokens");
	while ((opt = getopt_long(argc, argv, "vh", long_options, NULL)) != -1) {
		if (opt == 'v' || opt == 'h') {
			if (opt == 'v')
				printf("shardrt-tokens %s\n", srt_version_string());
			else
				fputs(usage, stdout);
			return fflush(stdout) == 0 ? 0 : FAILED;
		}
		if (set_option(&r, opt) != 0)
			return TOOL_EXIT_USAGE;
	}
	if (optind == argc)
		return complain("%s is missing", "a command");
	r.npaths = argc - optind - 1;
	r.paths = argv + optind + 1;
	code = find_command(&r, argv[optind]);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		tool_error("standard output cannot be written");
		return FAILED;
	}
	return code;
}
