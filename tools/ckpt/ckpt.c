/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt: lists, hashes, compares and converts files of parameters. */
#include "tools/ckpt/ckpt.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common.h"

static const char usage[] =
	"usage: shardrt-ckpt ls FILE\n"
	"       shardrt-ckpt hash FILE\n"
	"       shardrt-ckpt diff FILE FILE\n"
	"       shardrt-ckpt convert --to hf|shardrt [--heads N] FILE OUT\n"
	"\n"
	"Files of parameters in safetensors format, as shardrt-train --save writes them.\n"
	"\n"
	"  ls       print dtype, shape, bytes and name of each tensor\n"
	"  hash     print XXH3-128 of names, dtypes, shapes and bytes of all tensors; it does\n"
	"           not depend on their order in the file, nor on metadata\n"
	"  diff     print which tensors are missing or differ, and by how much; exit status 1\n"
	"           if any does\n"
	"  convert  write a GPT with the names and layout of another program\n"
	"\n"
	"      --to hf|shardrt  hf: a GPT-2 of Hugging Face, with a config.json in the folder of\n"
	"                       OUT if there is none; shardrt: for shardrt-train\n"
	"      --heads N        attention heads of FILE, with --to shardrt, if there is no\n"
	"                       config.json in its folder; default: one for each 64 of the width\n"
	"  -v, --version        print the version and exit\n"
	"  -h, --help           print this help and exit\n"
	"\n"
	"Exit status: 0 success, 1 the files differ, 2 wrong options, or a file that cannot be\n"
	"read or written.\n";

enum { OPT_TO = 256, OPT_HEADS };

static const struct option long_options[] = {
	{ "to", required_argument, NULL, OPT_TO },
	{ "heads", required_argument, NULL, OPT_HEADS },
	{ "version", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const struct {
	const char *name;
	int npaths;
	int (*run)(const ckpt_request_t *request);
} commands[] = {
	{ "ls", 1, ckpt_ls },
	{ "hash", 1, ckpt_hash },
	{ "diff", 2, ckpt_diff },
	{ "convert", 2, ckpt_convert },
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

ckpt_name_t ckpt_name(const char *name)
{
	ckpt_name_t shown;
	char *c = shown.text;

	snprintf(shown.text, sizeof(shown.text), "%s", name);
	for (; *c; c++) {
		const unsigned char *u = (const unsigned char *)c;

		if (u[0] == 0xc2 && u[1] >= 0x80 && u[1] < 0xa0) /* U+0080 .. U+009F */
			c[0] = c[1] = '?';
		else if (u[0] < 0x20 || u[0] == 0x7f)
			c[0] = '?';
	}
	return shown;
}

int ckpt_open(const char *path, srt_file_t **file)
{
	return srt_file_open(path, file) == SRT_OK ? 0 : ckpt_fail();
}

int ckpt_fail(void)
{
	tool_error("%s", srt_last_error());
	return CKPT_TROUBLE;
}

static int complain(const char *format, const char *word)
{
	tool_error(format, word);
	fputs("shardrt-ckpt --help lists the commands\n", stderr);
	return CKPT_TROUBLE;
}

static int parse_heads(ckpt_request_t *r)
{
	char *end;

	r->heads = strtoll(optarg, &end, 10);
	if (end != optarg && !*end && r->heads >= 1 && r->heads <= INT32_MAX)
		return 0;
	return complain("--heads must be a whole number of 1 or more, not '%s'", optarg);
}

/* @return the exit status. */
static int run_command(const ckpt_request_t *r, const char *name, int npaths)
{
	for (size_t i = 0; i < NCOMMANDS; i++) {
		const int converts = commands[i].run == ckpt_convert;

		if (strcmp(name, commands[i].name) != 0)
			continue;
		if (npaths != commands[i].npaths)
			return complain(commands[i].npaths == 1 ? "%s needs one file" :
								  "%s needs two files",
					name);
		if (converts != (r->to != NULL))
			return complain(converts ? "%s needs --to hf or --to shardrt" :
						   "%s has no option --to",
					name);
		if (r->heads && (!r->to || strcmp(r->to, "shardrt") != 0))
			return complain("--heads is for convert --to shardrt, not for %s", name);
		return commands[i].run(r);
	}
	return complain("unknown command '%s'", name);
}

int main(int argc, char **argv)
{
	ckpt_request_t r = { 0 };
	int opt, code, npaths;

	tool_start("shardrt-ckpt");
	while ((opt = getopt_long(argc, argv, "vh", long_options, NULL)) != -1) {
		switch (opt) {
		case 'v':
			puts(srt_version_string());
			return fflush(stdout) == 0 ? 0 : CKPT_TROUBLE;
		case 'h':
			fputs(usage, stdout);
			return fflush(stdout) == 0 ? 0 : CKPT_TROUBLE;
		case OPT_TO:
			r.to = optarg;
			if (strcmp(optarg, "hf") != 0 && strcmp(optarg, "shardrt") != 0)
				return complain("--to must be hf or shardrt, not '%s'", optarg);
			break;
		case OPT_HEADS:
			if (parse_heads(&r) != 0)
				return CKPT_TROUBLE;
			break;
		default: /* getopt_long() has printed the error. */
			fputs("shardrt-ckpt --help lists the options\n", stderr);
			return CKPT_TROUBLE;
		}
	}
	if (optind == argc)
		return complain("%s is missing", "a command");
	npaths = argc - optind - 1;
	for (int i = 0; i < 2 && i < npaths; i++)
		r.path[i] = argv[optind + 1 + i];
	code = run_command(&r, argv[optind], npaths);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		tool_error("standard output cannot be written");
		return CKPT_TROUBLE;
	}
	return code;
}
