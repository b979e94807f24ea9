/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt: lists, verifies, hashes, compares and converts files of parameters and sharded
 * checkpoints. */
#include "tools/ckpt/ckpt.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/checkpoint_path.h"
#include "tools/common.h"

static const char usage[] =
	"usage: shardrt-ckpt ls [--boxes] FILE\n"
	"       shardrt-ckpt verify FILE...\n"
	"       shardrt-ckpt hash [--all] FILE\n"
	"       shardrt-ckpt diff [--all] FILE FILE\n"
	"       shardrt-ckpt merge [--all] FILE OUT\n"
	"       shardrt-ckpt reshard --ranks N FOLDER OUT\n"
	"       shardrt-ckpt convert --to hf|shardrt [--heads N] FILE OUT\n"
	"       shardrt-ckpt convert --to gguf [--dtype TYPE] [--tokenizer FOLDER] FILE OUT\n"
	"       shardrt-ckpt merge-lora BASE ADAPTER OUT\n"
	"\n"
	"FILE is a file of parameters in safetensors format, as shardrt-train --save writes it;\n"
	"the folder of a sharded checkpoint; or the folder that was given to shardrt-train\n"
	"--checkpoint, which means its latest checkpoint, as with --resume: a line on standard\n"
	"error has its name. What is read of a checkpoint is compared with its hashes.\n"
	"\n"
	"  ls       print dtype, shape, bytes and name of each tensor; of a checkpoint all it\n"
	"           has\n"
	"  verify   read all bytes and print each defect; of the folder of --checkpoint those\n"
	"           of all checkpoints in it; exit status 1 if there is any\n"
	"  hash     print XXH3-128 of names, dtypes, shapes and bytes of all tensors; it does\n"
	"           not depend on their order in the file, on metadata, nor on the sharding.\n"
	"           A second line, `parameters: xxh3-128 HASH`, has another hash, of the values\n"
	"           of the parameters alone: that which shardrt-train --hash prints\n"
	"  diff     print which tensors are missing or differ, and by how much; exit status 1\n"
	"           if any does\n"
	"  merge    write the unsharded tensors to one file\n"
	"  reshard  write a checkpoint again, as N ranks would with --strategy zero3\n"
	"  convert  write a GPT with the names and layout of another program\n"
	"  merge-lora  write the folder of a model of Hugging Face, BASE, with the LoRA adapters\n"
	"           of a folder of PEFT added to its weights; each keeps its dtype\n"
	"\n"
	"      --all            of a checkpoint the states of the optimizer, too, not only\n"
	"                       parameters and buffers\n"
	"      --boxes          of a checkpoint the files that the parts of each tensor are in\n"
	"      --ranks N        ranks whose files are written\n"
	"      --to hf|shardrt|gguf\n"
	"                       hf: a GPT-2 of Hugging Face, with a config.json in the folder of\n"
	"                       OUT if there is none; of a checkpoint of another model of Hugging\n"
	"                       Face OUT is a folder; shardrt: for shardrt-train; gguf: a file for\n"
	"                       llama.cpp, of a folder of Hugging Face or of a checkpoint of a\n"
	"                       model that began from one\n"
	"      --dtype f32|f16|bf16|q8_0\n"
	"                       of matrices in a GGUF file; default: that of FILE\n"
	"      --tokenizer FOLDER\n"
	"                       that has the tokenizer.json of a GGUF file; default: FILE, if it\n"
	"                       is a folder of Hugging Face\n"
	"      --heads N        attention heads of FILE, with --to shardrt, if there is no\n"
	"                       config.json in its folder; default: one for each 64 of the width\n"
	"  -v, --version        print the version and exit\n"
	"  -h, --help           print this help and exit\n"
	"\n"
	"Exit status: 0 success, 1 the files differ or have defects, 2 wrong options, or a file\n"
	"that cannot be read or written.\n";

enum { OPT_TO = 256, OPT_HEADS, OPT_ALL, OPT_BOXES, OPT_RANKS, OPT_DTYPE, OPT_TOKENIZER };

static const struct option long_options[] = {
	{ "to", required_argument, NULL, OPT_TO },
	{ "heads", required_argument, NULL, OPT_HEADS },
	{ "all", no_argument, NULL, OPT_ALL },
	{ "boxes", no_argument, NULL, OPT_BOXES },
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "tokenizer", required_argument, NULL, OPT_TOKENIZER },
	{ "version", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Bits of options. */
enum { TO = 1, HEADS = 2, ALL = 4, BOXES = 8, RANKS = 16, DTYPE = 32, TOKENIZER = 64 };

static const struct {
	const char *name;
	int npaths, most; /* arguments: at least and at most */
	int nread;        /* the first arguments: a folder of checkpoints means its latest one */
	int takes, needs; /* options */
	int writes;       /* the last argument is written */
	int (*run)(const ckpt_request_t *request);
} commands[] = {
	{ "ls", 1, 1, 1, BOXES, 0, 0, ckpt_ls },
	{ "verify", 1, INT32_MAX, 0, 0, 0, 0, ckpt_verify },
	{ "hash", 1, 1, 1, ALL, 0, 0, ckpt_hash },
	{ "diff", 2, 2, 2, ALL, 0, 0, ckpt_diff },
	{ "merge", 2, 2, 1, ALL, 0, 1, ckpt_merge },
	{ "reshard", 2, 2, 1, RANKS, RANKS, 1, ckpt_reshard },
	{ "convert", 2, 2, 1, TO | HEADS | DTYPE | TOKENIZER, TO, 1, ckpt_convert },
	{ "merge-lora", 3, 3, 0, 0, 0, 1, ckpt_merge_lora },
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

ckpt_name_t ckpt_name(const char *name)
{
	ckpt_name_t shown;

	snprintf(shown.text, sizeof(shown.text), "%s", name);
	tool_make_printable(shown.text);
	return shown;
}

int ckpt_open(const char *path, int all, srt_file_t **file)
{
	return (all ? srt_file_open_all : srt_file_open)(path, file) == SRT_OK ? 0 : ckpt_fail();
}

/* ---- signals while a file or folder is written ------------------------------------------ */

static volatile sig_atomic_t stopped_by; /* a signal; 0: none */
static struct rlimit file_limit;         /* of the size of files, at the start */

/* From now on each write fails, so the command ends as with a full disk: without a temporary file.
 * A second signal ends the process at once. */
static void stop_writing(int signo)
{
	const struct rlimit none = { 0, file_limit.rlim_max };

	stopped_by = signo;
	setrlimit(RLIMIT_FSIZE, &none); /* a plain call of the system: safe in a handler */
}

/* What was ignored at the start stays ignored. */
static void catch_signals(void)
{
	static const int signals[] = { SIGHUP, SIGINT, SIGTERM };
	const struct sigaction action = { .sa_handler = stop_writing,
					  .sa_flags = SA_RESETHAND | SA_RESTART };
	struct sigaction inherited;

	if (getrlimit(RLIMIT_FSIZE, &file_limit) != 0)
		return;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (sigaction(signals[i], NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
}

/* Runs a command that writes a file or folder. It ends by the signal that has stopped it. */
static int run_writing(int (*run)(const ckpt_request_t *request), const ckpt_request_t *r)
{
	int code;

	catch_signals();
	code = run(r);
	if (stopped_by == 0 || code == 0)
		return code;
	setrlimit(RLIMIT_FSIZE, &file_limit);
	tool_error("stopped by signal %d (%s): nothing was written to %s", (int)stopped_by,
		   strsignal(stopped_by), r->path[r->npaths - 1]);
	signal(stopped_by, SIG_DFL);
	raise(stopped_by);
	return code;
}

int ckpt_fail(void)
{
	if (stopped_by == 0) /* else the failure is that of stop_writing() */
		tool_error("%s", srt_error_last());
	return CKPT_TROUBLE;
}

static int complain(const char *format, const char *word)
{
	tool_error(format, word);
	fputs("shardrt-ckpt --help lists the commands\n", stderr);
	return CKPT_TROUBLE;
}

/* Sets *value; 0 or CKPT_TROUBLE. */
static int parse_number(const char *option, int64_t *value)
{
	char *end;

	*value = strtoll(optarg, &end, 10);
	if (end != optarg && !*end && *value >= 1 && *value <= INT32_MAX)
		return 0;
	tool_error("%s must be a whole number from 1 to %d, not '%s'", option, INT32_MAX, optarg);
	return CKPT_TROUBLE;
}

/* @return 0, or CKPT_TROUBLE after the error was printed. */
static int check_options(int given, int takes, int needs, const char *name)
{
	static const char *const names[] = { "--to",    "--heads", "--all",      "--boxes",
					     "--ranks", "--dtype", "--tokenizer" };

	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
		const char *format = NULL;

		if (given & ~takes & 1 << i)
			format = "%s has no option %s";
		if (needs & ~given & 1 << i)
			format = "%s needs %s";
		if (format == NULL)
			continue;
		tool_error(format, name, names[i]);
		fputs("shardrt-ckpt --help lists the options\n", stderr);
		return CKPT_TROUBLE;
	}
	return 0;
}

/* Replaces the paths of folders of checkpoints by those of the latest ones, which are in `found`.
 * @return 0, or CKPT_TROUBLE after the error was printed. */
static int find_checkpoints(ckpt_request_t *r, int n, tool_found_t *found)
{
	for (int i = 0; i < n; i++) {
		if (tool_find_checkpoint(r->path[i], &found[i]) != 0) {
			tool_error("%s", found[i].why);
			return CKPT_TROUBLE;
		}
		tool_report_found(r->path[i], &found[i]);
		r->path[i] = found[i].path;
	}
	return 0;
}

/* @return the exit status. */
static int run_command(ckpt_request_t *r, const char *name, int given)
{
	static tool_found_t found[2]; /* r->path is in it; too large for the stack */

	for (size_t i = 0; i < NCOMMANDS; i++) {
		if (strcmp(name, commands[i].name) != 0)
			continue;
		if (r->npaths < commands[i].npaths || r->npaths > commands[i].most)
			return complain(commands[i].npaths == 1 ? "%s needs one file" :
					commands[i].npaths == 2 ? "%s needs two files" :
								  "%s needs three folders",
					name);
		if (check_options(given, commands[i].takes, commands[i].needs, name) != 0)
			return CKPT_TROUBLE;
		if (r->heads && strcmp(r->to, "shardrt") != 0)
			return complain("--heads is for convert --to shardrt, not for --to %s",
					r->to);
		if ((r->dtype != NULL || r->tokenizer != NULL) && strcmp(r->to, "gguf") != 0)
			return complain("--dtype and --tokenizer are for convert --to gguf, not "
					"for --to %s",
					r->to);
		if (find_checkpoints(r, commands[i].nread, found) != 0)
			return CKPT_TROUBLE;
		return commands[i].writes ? run_writing(commands[i].run, r) : commands[i].run(r);
	}
	return complain("unknown command '%s'", name);
}

/* Whether a word is in a list, each word of which has a blank before and after it. */
static int is_one_of(const char *word, const char *list)
{
	const size_t n = strlen(word);
	const char *at = strstr(list, word);

	return at != NULL && n > 0 && strchr(word, ' ') == NULL && at[-1] == ' ' && at[n] == ' ';
}

/* Sets what the option gives, and its bit. @return 0 or CKPT_TROUBLE. */
static int set_option(ckpt_request_t *r, int opt, int *given)
{
	switch (opt) {
	case OPT_TO:
		*given |= TO;
		r->to = optarg;
		return is_one_of(optarg, " hf shardrt gguf ") ?
			       0 :
			       complain("--to must be hf, shardrt or gguf, not '%s'", optarg);
	case OPT_HEADS:
		*given |= HEADS;
		return parse_number("--heads", &r->heads);
	case OPT_DTYPE:
		*given |= DTYPE;
		r->dtype = optarg;
		return is_one_of(optarg, " f32 f16 bf16 q8_0 ") ?
			       0 :
			       complain("--dtype must be f32, f16, bf16 or q8_0, not '%s'", optarg);
	case OPT_TOKENIZER:
		*given |= TOKENIZER;
		r->tokenizer = optarg;
		return 0;
	case OPT_ALL:
		*given |= ALL;
		r->all = 1;
		return 0;
	case OPT_BOXES:
		*given |= BOXES;
		r->boxes = 1;
		return 0;
	case OPT_RANKS:
		*given |= RANKS;
		return parse_number("--ranks", &r->ranks);
	default: /* getopt_long() has printed the error. */
		fputs("shardrt-ckpt --help lists the options\n", stderr);
		return CKPT_TROUBLE;
	}
}

int main(int argc, char **argv)
{
	ckpt_request_t r = { 0 };
	int opt, code, given = 0;

	tool_start("shardrt-ckpt");
	while ((opt = getopt_long(argc, argv, "vh", long_options, NULL)) != -1) {
		if (opt == 'v' || opt == 'h') {
			fputs(opt == 'h' ? usage : srt_version_string(), stdout);
			if (opt == 'v')
				putchar('\n');
			return fflush(stdout) == 0 ? 0 : CKPT_TROUBLE;
		}
		if (set_option(&r, opt, &given) != 0)
			return CKPT_TROUBLE;
	}
	if (optind == argc)
		return complain("%s is missing", "a command");
	r.npaths = argc - optind - 1;
	r.path = argv + optind + 1;
	code = run_command(&r, argv[optind], given);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		tool_error("standard output cannot be written");
		return CKPT_TROUBLE;
	}
	return code;
}
