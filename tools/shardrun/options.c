/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrun's options: see tools/shardrun/options.h. */
#include "tools/shardrun/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/version.h>

#include "collectives/bootstrap/wire.h"

#define DEFAULT_WINDOW_S 60
#define DEFAULT_RESTART_DELAY_S 1
#define PART 256 /* has no letter */

static const char help_text[] =
	"Usage: shardrun -n N [options] PROGRAM [ARGUMENTS]\n"
	"Runs PROGRAM as N ranks, on this machine or on those of --hosts. Sets\n"
	"SHARDRT_BOOTSTRAP, SHARDRT_RANK, SHARDRT_WORLD_SIZE, SHARDRT_LOCAL_RANK and\n"
	"SHARDRT_LOCAL_SIZE, which libshardrt reads, and SHARDRT_RESTART_COUNT.\n"
	"\n"
	"  -n, --ranks N         number of ranks, 1 to 512\n"
	"  -H, --hosts LIST      run the ranks on these hosts, in order: a,b for equal shares,\n"
	"                        or a:3,b:1; sets SHARDRT_TOKEN, too\n"
	"  -R, --rsh COMMAND     the remote shell of --hosts, instead of ssh with keys\n"
	"      --part F:W:HOST   the ranks from F of W, on HOST; used by --hosts\n"
	"  -p, --prefix          put \"[rank] \" in front of each line of output\n"
	"  -k, --keep-going      do not end the other ranks when a rank fails\n"
	"  -t, --timeout SECONDS end the job after this time (exit status 124)\n"
	"  -g, --grace SECONDS   time between TERM and KILL when ranks are ended; default 10. A\n"
	"                        host of --hosts that does not answer is given up 10 s later\n"
	"  -r, --restarts N      start a failed job again, at most N times; default 0\n"
	"  -d, --restart-delay SECONDS  time before the first restart; default 1. It doubles with\n"
	"                        each one up to 30, and begins again after a start that has run\n"
	"                        for a minute\n"
	"  -m, --min-ranks M     after two failures in a row within the time of --window, start\n"
	"                        with fewer ranks: the next smaller number that divides the batch\n"
	"                        and is not below M\n"
	"  -b, --batch B         the batch for --min-ranks; if not given, the N of --ranks\n"
	"  -w, --window SECONDS  the time between two failures for --min-ranks; default 60\n"
	"  -q, --quiet           do not report which rank failed and how\n"
	"  -h, --help            print this help and exit\n"
	"  -V, --version         print the version and exit\n"
	"\n"
	"Signals INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to every\n"
	"rank; the third INT, TERM, HUP or QUIT kills all ranks. Rank 0 reads the standard input\n"
	"unless it is a terminal. When a rank fails, the others get TERM. When a rank or shardrun\n"
	"ends, in whatever way, processes of its process group that it has left running are\n"
	"killed, but not those that have left the group (setsid, a shell with job control).\n"
	"Output that nobody reads for the grace time after the timeout or a signal to end is\n"
	"dropped. Time in which shardrun is stopped does not count.\n"
	"\n"
	"A job is started again when all its ranks have ended, with the same arguments; a program\n"
	"goes on from its last checkpoint if its options say so. It is not started again after a\n"
	"signal to shardrun that ends it, after the timeout, or if the exit status is 2, 126 or 127.\n"
	"The timeout is that of all starts together.\n"
	"\n"
	"With --hosts, COMMAND HOST 'cd FOLDER && exec shardrun --part ...' runs on each host, in\n"
	"the folder of shardrun here. The ranks get the variables SHARDRT_*, UCX_*, PATH and\n"
	"LD_LIBRARY_PATH of shardrun, and read no input. They meet at the first host's name, or at\n"
	"SHARDRT_ADDRESS, on a random port from 10000 to 32767, or SHARDRT_PORT. The ranks of\n"
	"a host end when its connection is lost.\n"
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
	return end != text && *end == '\0' && errno == 0 && *seconds >= 0 && *seconds < 1e9;
}

static bool parse_int(const char *text, int least, int most, int *value)
{
	char *end;

	errno = 0;
	long n = strtol(text, &end, 10);
	*value = (int)n;
	return end != text && *end == '\0' && errno == 0 && n >= least && n <= most;
}

/* The options with a time. */
static bool parse_time_option(const char *name, const char *text, bool may_be_0, double *seconds)
{
	if (parse_seconds(text, seconds) && (may_be_0 || *seconds > 0))
		return true;
	srt_launch_say("--%s %s: must be a time in seconds%s", name, text,
		       may_be_0 ? ", 0 or more" : " above 0");
	return false;
}

/* The options with a number. */
static bool parse_int_option(const char *name, const char *text, int least, int most, int *value)
{
	if (parse_int(text, least, most, value))
		return true;
	srt_launch_say("--%s %s: must be a number from %d to %d", name, text, least, most);
	return false;
}

/* FIRST:WORLD:HOST of --part: prints an error. */
static bool parse_part(char *text, srt_launch_options_t *o)
{
	char *world = strchr(text, ':'), *host = world != NULL ? strchr(world + 1, ':') : NULL;

	if (host != NULL) {
		*world++ = *host++ = '\0';
		o->part_of = host;
		if (parse_int(text, 0, SRT_WIRE_MAX_LOCAL, &o->first) &&
		    parse_int(world, 1, SRT_WIRE_MAX_LOCAL, &o->world_size))
			return true;
	}
	srt_launch_say("--part must be of the form FIRST:WORLD:HOST");
	return false;
}

/* Options that do not fit together: prints an error. */
static bool check_hosts(const srt_launch_options_t *o)
{
	if (o->hosts != NULL && o->min_ranks > 0)
		srt_launch_say("--min-ranks needs ranks of one machine: it cannot be given with "
			       "--hosts");
	else if (o->rsh != NULL && o->hosts == NULL)
		srt_launch_say("--rsh needs --hosts");
	else if (o->part_of != NULL && (o->hosts != NULL || o->restarts > 0))
		srt_launch_say("--part excludes --hosts and --restarts");
	else if (o->part_of != NULL && o->first + o->nranks > o->world_size)
		srt_launch_say("--part: ranks %d to %d are not below %d", o->first,
			       o->first + o->nranks - 1, o->world_size);
	else
		return true;
	return false;
}

/* Checks --restarts. */
static bool check_restarts(srt_launch_options_t *o)
{
	bool fits = false;

	if (o->keep_going && o->restarts > 0)
		srt_launch_say(
			"--keep-going leaves ranks running when a rank fails, but --restarts "
			"needs that all end: give only one of them");
	else if (o->min_ranks > 0 && o->restarts == 0)
		srt_launch_say("--min-ranks needs --restarts");
	else if (o->min_ranks > o->nranks)
		srt_launch_say("--min-ranks %d is more than the %d ranks of -n", o->min_ranks,
			       o->nranks);
	else if (o->restart_delay_s >= 0 && o->restarts == 0)
		srt_launch_say("--restart-delay needs --restarts");
	else if ((o->batch > 0 || o->window_s > 0) && o->min_ranks == 0)
		srt_launch_say("--%s needs --min-ranks", o->batch > 0 ? "batch" : "window");
	else if (o->batch > 0 && o->batch % o->nranks != 0)
		srt_launch_say("the %d ranks of -n do not divide --batch %d", o->nranks, o->batch);
	else
		fits = true;
	if (o->batch == 0)
		o->batch = o->nranks;
	if (o->restart_delay_s < 0)
		o->restart_delay_s = DEFAULT_RESTART_DELAY_S;
	if (!(o->window_s > 0))
		o->window_s = DEFAULT_WINDOW_S;
	return fits;
}

int srt_launch_parse(int argc, char **argv, srt_launch_options_t *o)
{
	static const struct option longs[] = {
		{ "ranks", required_argument, NULL, 'n' },
		{ "hosts", required_argument, NULL, 'H' },
		{ "rsh", required_argument, NULL, 'R' },
		{ "part", required_argument, NULL, PART },
		{ "prefix", no_argument, NULL, 'p' },
		{ "keep-going", no_argument, NULL, 'k' },
		{ "timeout", required_argument, NULL, 't' },
		{ "grace", required_argument, NULL, 'g' },
		{ "restarts", required_argument, NULL, 'r' },
		{ "restart-delay", required_argument, NULL, 'd' },
		{ "min-ranks", required_argument, NULL, 'm' },
		{ "batch", required_argument, NULL, 'b' },
		{ "window", required_argument, NULL, 'w' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	int c;
	bool ok = true;

	*o = (srt_launch_options_t){ .grace_s = 10, .restart_delay_s = -1 };
	opterr = 0;
	/* '+': the options of shardrun end at PROGRAM. */
	while (ok &&
	       (c = getopt_long(argc, argv, "+:n:H:R:pkt:g:r:d:m:b:w:qhV", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			ok = parse_int_option("ranks", optarg, 1, SRT_WIRE_MAX_LOCAL, &o->nranks);
			break;
		case 'H':
			o->hosts = optarg;
			break;
		case 'R':
			o->rsh = optarg;
			break;
		case PART:
			ok = parse_part(optarg, o);
			break;
		case 'p':
			o->prefix = true;
			break;
		case 'k':
			o->keep_going = true;
			break;
		case 't':
			ok = parse_time_option("timeout", optarg, false, &o->timeout_s);
			break;
		case 'g':
			ok = parse_time_option("grace", optarg, false, &o->grace_s);
			break;
		case 'r':
			ok = parse_int_option("restarts", optarg, 0, 1000000, &o->restarts);
			break;
		case 'd':
			ok = parse_time_option("restart-delay", optarg, true, &o->restart_delay_s);
			break;
		case 'm':
			ok = parse_int_option("min-ranks", optarg, 1, SRT_WIRE_MAX_LOCAL,
					      &o->min_ranks);
			break;
		case 'b':
			ok = parse_int_option("batch", optarg, 1, INT_MAX, &o->batch);
			break;
		case 'w':
			ok = parse_time_option("window", optarg, false, &o->window_s);
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
			return SRT_LAUNCH_USAGE;
		default:
			srt_launch_say("unknown option %s; see shardrun --help", argv[optind - 1]);
			return SRT_LAUNCH_USAGE;
		}
	}
	if (!ok)
		return SRT_LAUNCH_USAGE;
	if (o->nranks == 0 && o->hosts == NULL) {
		srt_launch_say(
			"-n N is missing. Usage: shardrun -n N [options] PROGRAM [ARGUMENTS]");
		return SRT_LAUNCH_USAGE;
	}
	if (optind == argc) {
		srt_launch_say(
			"PROGRAM is missing. Usage: shardrun -n N [options] PROGRAM [ARGUMENTS]");
		return SRT_LAUNCH_USAGE;
	}
	if (!check_hosts(o) || !check_restarts(o))
		return SRT_LAUNCH_USAGE;
	o->argv = argv + optind;
	return -1;
}
