/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrun's options: see tools/shardrun/options.h. */
#include "tools/shardrun/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <shardrt/version.h>

#include "collectives/bootstrap/wire.h"

#define EXIT_USAGE 2

static const char help_text[] =
	"Usage: shardrun -n N [options] PROGRAM [ARGUMENTS]\n"
	"Runs PROGRAM as N ranks on this machine. Sets SHARDRT_BOOTSTRAP, SHARDRT_RANK,\n"
	"SHARDRT_WORLD_SIZE, SHARDRT_LOCAL_RANK and SHARDRT_LOCAL_SIZE, which libshardrt reads.\n"
	"\n"
	"  -n, --ranks N         number of ranks, 1 to 512\n"
	"  -p, --prefix          put \"[rank] \" in front of each line of output\n"
	"  -k, --keep-going      do not end the other ranks when a rank fails\n"
	"  -t, --timeout SECONDS end the job after this time (exit status 124)\n"
	"  -g, --grace SECONDS   time between TERM and KILL when ranks are ended; default 10\n"
	"  -q, --quiet           do not report which rank failed and how\n"
	"  -h, --help            print this help and exit\n"
	"  -V, --version         print the version and exit\n"
	"\n"
	"Signals INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to every\n"
	"rank; the third INT, TERM, HUP or QUIT kills all ranks. Rank 0 reads the standard input\n"
	"unless it is a terminal. When a rank fails, the others get TERM. When a rank or shardrun\n"
	"ends, in whatever way, processes that it has left running are killed. Output that nobody\n"
	"reads for the grace time after the timeout or a signal to end is dropped. Time in which\n"
	"shardrun is stopped does not count.\n"
	"\n"
	"Exit status: 0, or that of the first rank that failed (128 + signal if it was killed);\n"
	"2 wrong options, 124 timeout, 126 PROGRAM cannot be run, 127 PROGRAM was not found.\n";

static srt_launch_writer_t *say_writer;

void srt_launch_say_by(srt_launch_writer_t *writer)
{
	say_writer = writer;
}

void srt_launch_say(const char *format, ...)
{
	char line[512];
	va_list args;
	int n = snprintf(line, sizeof(line), "shardrun: ");

	va_start(args, format);
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	n = n + m < (int)sizeof(line) - 1 ? n + m : (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (say_writer != NULL) {
		srt_launch_writer_put(say_writer, line, (size_t)n);
	} else {
		ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
		(void)ignored;
	}
}

static bool parse_seconds(const char *text, double *seconds)
{
	char *end;

	errno = 0;
	*seconds = strtod(text, &end);
	return end != text && *end == '\0' && errno == 0 && *seconds > 0 && *seconds < 1e9;
}

static bool parse_ranks(const char *text, int *nranks)
{
	char *end;

	errno = 0;
	long n = strtol(text, &end, 10);
	*nranks = (int)n;
	return end != text && *end == '\0' && errno == 0 && n >= 1 && n <= SRT_WIRE_MAX_WORLD;
}

int srt_launch_parse(int argc, char **argv, srt_launch_options_t *o)
{
	static const struct option longs[] = {
		{ "ranks", required_argument, NULL, 'n' },
		{ "prefix", no_argument, NULL, 'p' },
		{ "keep-going", no_argument, NULL, 'k' },
		{ "timeout", required_argument, NULL, 't' },
		{ "grace", required_argument, NULL, 'g' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	int c;

	*o = (srt_launch_options_t){ .grace_s = 10 };
	opterr = 0;
	/* '+': the options of shardrun end at PROGRAM. */
	while ((c = getopt_long(argc, argv, "+:n:pkt:g:qhV", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			if (!parse_ranks(optarg, &o->nranks)) {
				srt_launch_say("-n %s: the number of ranks must be 1 to %d", optarg,
					       SRT_WIRE_MAX_WORLD);
				return EXIT_USAGE;
			}
			break;
		case 'p':
			o->prefix = true;
			break;
		case 'k':
			o->keep_going = true;
			break;
		case 't':
		case 'g':
			if (!parse_seconds(optarg, c == 't' ? &o->timeout_s : &o->grace_s)) {
				srt_launch_say("--%s %s: must be a time in seconds above 0",
					       c == 't' ? "timeout" : "grace", optarg);
				return EXIT_USAGE;
			}
			break;
		case 'q':
			o->quiet = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		case 'V':
			printf("shardrun (libshardrt) %d.%d.%d\n", SRT_VERSION_MAJOR,
			       SRT_VERSION_MINOR, SRT_VERSION_PATCH);
			return fflush(stdout) == 0 ? 0 : 1;
		case ':':
			srt_launch_say("option %s needs a value; see shardrun --help",
				       argv[optind - 1]);
			return EXIT_USAGE;
		default:
			srt_launch_say("unknown option %s; see shardrun --help", argv[optind - 1]);
			return EXIT_USAGE;
		}
	}
	if (o->nranks == 0) {
		srt_launch_say(
			"-n N is missing. Usage: shardrun -n N [options] PROGRAM [ARGUMENTS]");
		return EXIT_USAGE;
	}
	if (optind == argc) {
		srt_launch_say(
			"PROGRAM is missing. Usage: shardrun -n N [options] PROGRAM [ARGUMENTS]");
		return EXIT_USAGE;
	}
	o->argv = argv + optind;
	return -1;
}
