/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a job on several hosts: see tools/shardrun/hosts.h. */
#include "tools/shardrun/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/bootstrap/wire.h"

/* The port is below those that systems give to connections. */
#define FIRST_PORT 10000
#define NPORTS 22768
/* ssh alone never notices that a network is cut, and a firewall may drop an idle connection. */
#define RSH "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15"
#define MAX_LINE 65536 /* a pipe takes as much without a reader */

extern char **environ;

/* ---- the list of hosts ---------------------------------------------------------------- */

/* Reads one "NAME" or "NAME:N"; nranks 0 = no number. */
static bool parse_host(char *text, srt_launch_host_t *host)
{
	char *colon = strrchr(text, ':'), *end = NULL;
	long n = 0;

	host->in = -1;
	if (colon != NULL) {
		*colon = '\0';
		n = strtol(colon + 1, &end, 10);
		if (end == colon + 1 || *end != '\0' || n < 1 || n > SRT_WIRE_MAX_LOCAL) {
			srt_launch_say("--hosts: host \"%s\": the number of ranks must be from 1 "
				       "to %d, not \"%s\"",
				       text, SRT_WIRE_MAX_LOCAL, colon + 1);
			return false;
		}
	}
	if (text[0] == '\0' || text[0] == '-' || strchr(text, ':') != NULL ||
	    strlen(text) >= sizeof(host->name)) {
		srt_launch_say("--hosts: \"%.100s\" is not the name of a host", text);
		return false;
	}
	snprintf(host->name, sizeof(host->name), "%s", text);
	host->nranks = (int)n;
	return true;
}

/* Gives the ranks to the hosts, in order. */
static bool split_ranks(srt_launch_options_t *o, srt_launch_hosts_t *hosts)
{
	int sum = 0, ncounted = 0;

	for (int i = 0; i < hosts->n; i++) {
		sum += hosts->host[i].nranks;
		ncounted += hosts->host[i].nranks > 0;
	}
	if (ncounted != 0 && ncounted != hosts->n) {
		srt_launch_say("--hosts: give the number of ranks of every host, or of none");
		return false;
	}
	if (o->nranks == 0)
		o->nranks = sum;
	if (ncounted > 0 && o->nranks != sum) {
		srt_launch_say("the hosts of --hosts have %d ranks, but -n is %d", sum, o->nranks);
		return false;
	}
	if (o->nranks < hosts->n || o->nranks > SRT_WIRE_MAX_LOCAL) {
		srt_launch_say("-n must be a number from %d to %d: each of the %d hosts of --hosts "
			       "needs a rank",
			       hosts->n, SRT_WIRE_MAX_LOCAL, hosts->n);
		return false;
	}
	for (int i = 0, first = 0; i < hosts->n; i++) {
		srt_launch_host_t *host = &hosts->host[i];

		if (ncounted == 0)
			host->nranks = o->nranks / hosts->n + (i < o->nranks % hosts->n);
		host->first = first;
		first += host->nranks;
	}
	return true;
}

/* ---- the command of a part ------------------------------------------------------------ */

/* A word of a command, for a shell. */
static void write_word(FILE *out, const char *word)
{
	fputs(" '", out);
	for (; *word != '\0'; word++) {
		if (*word == '\'')
			fputs("'\\''", out);
		else
			fputc(*word, out);
	}
	fputc('\'', out);
}

/* "cd FOLDER && exec shardrun --part ... PROGRAM ARGUMENTS", or NULL. */
static char *make_command(const srt_launch_options_t *o, const srt_launch_host_t *host)
{
	char *folder = getcwd(NULL, 0), *self = realpath("/proc/self/exe", NULL);
	char part[SRT_LAUNCH_HOST + 32], *text = NULL;
	size_t nbytes;
	FILE *out = folder != NULL && self != NULL ? open_memstream(&text, &nbytes) : NULL;

	if (out == NULL)
		goto free_paths;
	fputs("cd", out);
	write_word(out, folder);
	fputs(" && exec", out);
	write_word(out, self);
	snprintf(part, sizeof(part), "--part=%d:%d:%s", host->first, o->nranks, host->name);
	write_word(out, part);
	fprintf(out, " -n %d -g %.17g%s%s%s --", host->nranks, o->grace_s, o->prefix ? " -p" : "",
		o->keep_going ? " -k" : "", o->quiet ? " -q" : "");
	for (char **word = o->argv; *word != NULL; word++)
		write_word(out, *word);
	if (fclose(out) != 0) {
		free(text);
		text = NULL;
	}
free_paths:
	free(self);
	free(folder);
	return text;
}

static bool make_argv(const srt_launch_options_t *o, srt_launch_host_t *host)
{
	static char shell[] = "/bin/sh", c[] = "-c";

	host->argv[0] = host->argv[3] = shell;
	host->argv[1] = c;
	host->argv[4] = host->name;
	host->argv[5] = make_command(o, host);
	if (host->argv[5] == NULL ||
	    asprintf(&host->argv[2], "exec %s \"$@\"", o->rsh != NULL ? o->rsh : RSH) < 0) {
		srt_launch_say("cannot make the command for host %s: %s", host->name,
			       strerror(errno));
		return false;
	}
	return true;
}

/* Whether the name means another machine on each host. */
static bool is_loopback(const srt_launch_host_t *host)
{
	const char *at = strrchr(host->name, '@'), *name = at != NULL ? at + 1 : host->name;

	return strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0;
}

/* The ranks of other hosts must reach the first one: prints an error. */
static bool check_first(const srt_launch_hosts_t *hosts)
{
	const char *address = getenv("SHARDRT_ADDRESS");

	if (!is_loopback(&hosts->host[0]) || (address != NULL && address[0] != '\0'))
		return true;
	for (int i = 1; i < hosts->n; i++) {
		if (is_loopback(&hosts->host[i]))
			continue;
		srt_launch_say("--hosts: %s cannot reach the first host as \"%s\": give the "
			       "name that it has in the network, or set SHARDRT_ADDRESS to it",
			       hosts->host[i].name, hosts->host[0].name);
		return false;
	}
	return true;
}

/* SHARDRT_PORT, which the ranks read as a part of an address: prints an error. */
static bool check_port(void)
{
	const char *text = getenv("SHARDRT_PORT");
	char *end;
	long port;

	if (text == NULL || text[0] == '\0')
		return true;
	port = strtol(text, &end, 10);
	if (*end == '\0' && port >= 1 && port <= 65535)
		return true;
	srt_launch_say("SHARDRT_PORT=%s: must be a number from 1 to 65535", text);
	return false;
}

bool srt_launch_hosts_parse(srt_launch_options_t *o, srt_launch_hosts_t *hosts)
{
	char *list = strdup(o->hosts), *rest = list, *text;
	bool ok = list != NULL;

	for (const char *p = o->hosts; *p != '\0'; p++)
		hosts->n += *p == ',';
	hosts->host = calloc((size_t)hosts->n + 1, sizeof(*hosts->host));
	ok = ok && hosts->host != NULL;
	hosts->n = 0;
	while (ok && (text = strsep(&rest, ",")) != NULL)
		ok = parse_host(text, &hosts->host[hosts->n++]);
	free(list);
	ok = ok && check_port() && check_first(hosts) && split_ranks(o, hosts);
	for (int i = 0; ok && i < hosts->n; i++)
		ok = make_argv(o, &hosts->host[i]);
	return ok;
}

void srt_launch_hosts_free(srt_launch_hosts_t *hosts)
{
	for (int i = 0; i < hosts->n; i++) {
		srt_launch_host_close(&hosts->host[i]);
		free(hosts->host[i].argv[2]);
		free(hosts->host[i].argv[5]);
	}
	free(hosts->host);
	free(hosts->header);
}

/* ---- a start -------------------------------------------------------------------------- */

/* What the ranks get of this environment. A value of several lines does not fit the header. */
static bool is_passed_on(const char *variable)
{
	static const char *const names[] = { "SHARDRT_", "UCX_", "PATH=", "LD_LIBRARY_PATH=" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strncmp(variable, names[i], strlen(names[i])) == 0)
			return strchr(variable, '\n') == NULL;
	}
	return false;
}

/* The host of rank 0 for the others, without the name of a user. */
static const char *get_address(const srt_launch_hosts_t *hosts)
{
	const char *address = getenv("SHARDRT_ADDRESS");
	const char *at = strrchr(hosts->host[0].name, '@');

	if (address != NULL && address[0] != '\0')
		return address;
	return at != NULL ? at + 1 : hosts->host[0].name;
}

bool srt_launch_hosts_open_start(srt_launch_hosts_t *hosts, int restart_count)
{
	const char *address = get_address(hosts), *port = getenv("SHARDRT_PORT");
	char token[33], digits[9], chosen[12];
	FILE *out;

	if (!srt_wire_random(token, 16) || !srt_wire_random(digits, 4))
		return false;
	/* Another one for each start: a process of an earlier start may still listen. */
	snprintf(chosen, sizeof(chosen), "%lu", FIRST_PORT + strtoul(digits, NULL, 16) % NPORTS);
	free(hosts->header);
	hosts->header = NULL;
	out = open_memstream(&hosts->header, &hosts->nbytes);
	if (out == NULL)
		return false;
	for (char **variable = environ; *variable != NULL; variable++) {
		if (is_passed_on(*variable))
			fprintf(out, "%s\n", *variable);
	}
	fprintf(out,
		strchr(address, ':') != NULL ? "SHARDRT_BOOTSTRAP=tcp:[%s]:%s\n" :
					       "SHARDRT_BOOTSTRAP=tcp:%s:%s\n",
		address, port != NULL && port[0] != '\0' ? port : chosen);
	fprintf(out, "SHARDRT_TOKEN=%s\nSHARDRT_RESTART_COUNT=%d\n\n", token, restart_count);
	return fclose(out) == 0;
}

int srt_launch_host_open(const srt_launch_hosts_t *hosts, srt_launch_host_t *host)
{
	int fds[2];
	ssize_t n;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -1;
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	n = write(fds[1], hosts->header, hosts->nbytes);
	if (n != (ssize_t)hosts->nbytes) {
		close(fds[0]);
		close(fds[1]);
		if (n >= 0)
			errno = E2BIG;
		return -1;
	}
	host->in = fds[1];
	return fds[0];
}

void srt_launch_host_signal(const srt_launch_host_t *host, int signo)
{
	const unsigned char byte = (unsigned char)signo;

	if (host->in >= 0 && write(host->in, &byte, 1) != 1 && errno != EPIPE)
		srt_launch_say("cannot pass on signal %d to host %s: %s", signo, host->name,
			       strerror(errno));
}

void srt_launch_host_close(srt_launch_host_t *host)
{
	if (host->in >= 0)
		close(host->in);
	host->in = -1;
}

/* ---- the other end -------------------------------------------------------------------- */

/* Reads one line, a byte at a time: what follows the header is for others. Its length, or -1. */
static ssize_t read_line(char *line, size_t size)
{
	for (size_t n = 0; n < size; n++) {
		ssize_t got;

		do {
			got = read(STDIN_FILENO, line + n, 1);
		} while (got < 0 && errno == EINTR);
		if (got <= 0)
			return -1;
		if (line[n] == '\n') {
			line[n] = '\0';
			return (ssize_t)n;
		}
	}
	return -1;
}

bool srt_launch_part_open(void)
{
	char *line = malloc(MAX_LINE);
	ssize_t n = -1;

	while (line != NULL && (n = read_line(line, MAX_LINE)) > 0) {
		char *equal = strchr(line, '=');

		if (equal == NULL)
			break;
		*equal = '\0';
		if (setenv(line, equal + 1, 1) != 0)
			break;
	}
	free(line);
	if (n != 0)
		srt_launch_say(
			"--part is for shardrun --hosts, which writes to its standard input: "
			"the connection was lost, or something else has written");
	return n == 0;
}
