/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress on standard output, and the JSON log. On a terminal one line is updated, up to five
 * times a second; a pipe gets about twenty lines.
 */
#include "tools/train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/common.h"

/* Between two updates of the line on a terminal. */
#define LINE_INTERVAL_S 0.2
/* A validation shows its progress after this time, in a pipe once in this interval. */
#define VALIDATING_AFTER_S 1.0
#define VALIDATING_INTERVAL_S 10.0

/** Monotonic seconds. */
static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Resident memory of this process, 0 if it is not known. */
static int64_t get_rss_nbytes(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long long size, resident = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%lld %lld", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

int train_report_open(train_report_t *r, trainer_t *t)
{
	memset(r, 0, sizeof(*r));
	r->device = t->device;
	r->scales = t->opt.scaler != TRAIN_SCALER_NONE;
	r->numerics = train_numerics(t->context);
	r->tensor_parts = t->opt.tensor_parts;
	r->on_terminal = isatty(STDOUT_FILENO);
	r->steps = t->opt.steps;
	r->line_every = t->opt.steps / 20 > 0 ? t->opt.steps / 20 : 1;
	r->tokens = t->opt.batch * t->length;
	if (t->opt.log == NULL)
		return 0;
	/* A run that starts from a saved model or a checkpoint continues its log. */
	r->log = fopen(t->opt.log, t->opt.init != NULL || t->opt.resume ? "a" : "w");
	if (r->log != NULL)
		return 0;
	return tool_why_system(&t->why, errno, "cannot write --log %s", t->opt.log);
}

void train_report_count(train_report_t *r, const trainer_t *t)
{
	double per_token = srt_decoder_flops_per_token(&t->config, t->length);

	/* A frozen weight has no product for its gradient, an adapter has all three. */
	if (t->lora.lora != NULL)
		per_token += 6.0 * (double)srt_decoder_lora_nparams(t->decoder) -
			     2.0 * (double)srt_decoder_nparams(&t->config, 1);
	r->flops = per_token * (double)r->tokens / (double)t->world;
}

void train_report_peak(train_report_t *r, double peak_flops)
{
	r->peak_flops = peak_flops;
	if (r->log != NULL && peak_flops > 0.0)
		printf("peak %.1f GFLOP/s a rank (measured: independent FMAs)\n",
		       1e-9 * peak_flops);
}

void train_report_resume(train_report_t *r)
{
	r->last_s = now_s();
	r->last_launches = srt_device_launches(r->device);
}

int train_report_due(const train_report_t *r, int64_t step)
{
	if (r->log != NULL || step == 1 || step == r->steps || step % r->line_every == 0)
		return 1;
	return r->on_terminal && now_s() - r->last_line_s >= LINE_INTERVAL_S;
}

void train_report_time(train_report_t *r, train_result_t *result, uint64_t launches)
{
	double now = now_s(), nsteps = (double)(result->step - r->last_step);
	double step_s = (now - r->last_s) / nsteps;

	/* smoothed for the progress line; the first steps are slower than the others */
	r->step_s = r->last_step < 2 ? step_s : 0.9 * r->step_s + 0.1 * step_s;
	result->launches = (double)(launches - r->last_launches) / nsteps;
	r->last_launches = launches;
	r->last_s = now;
	r->last_step = result->step;
	result->step_s = step_s;
	result->tokens_per_s = (double)r->tokens / step_s;
}

/* A number; JSON has null for infinities and NaN. */
static void write_number(FILE *f, const char *key, double x)
{
	if (isfinite(x))
		fprintf(f, ", \"%s\": %.9g", key, x);
	else
		fprintf(f, ", \"%s\": null", key);
}

static void write_log(const train_report_t *r, const train_result_t *result)
{
	FILE *f = r->log;

	fprintf(f, "{\"step\": %" PRId64, result->step);
	write_number(f, "loss", result->loss);
	write_number(f, "grad_norm", result->grad_norm);
	write_number(f, "lr", result->lr);
	write_number(f, "step_s", result->step_s);
	write_number(f, "tokens_per_s", result->tokens_per_s);
	write_number(f, "flops", r->flops);
	if (r->peak_flops > 0.0) {
		write_number(f, "peak_flops", r->peak_flops);
		write_number(f, "mfu", r->flops / result->step_s / r->peak_flops);
	}
	write_number(f, "launches", result->launches);
	fprintf(f, ", \"rss_bytes\": %" PRId64, get_rss_nbytes());
	fprintf(f, ", \"numerics\": \"%s\"", r->numerics);
	if (r->tensor_parts > 1)
		fprintf(f, ", \"tensor_parts\": %" PRId64, r->tensor_parts);
	if (r->scales) {
		write_number(f, "scale", result->scale);
		fprintf(f, ", \"skipped\": %" PRId32, result->skipped);
	}
	if (!isnan(result->val_loss))
		write_number(f, "val_loss", result->val_loss);
	fputs("}\n", f);
	fflush(f);
}

/* Columns of a line that the terminal does not wrap. */
static int get_terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2)
		return INT_MAX;
	return size.ws_col - 1;
}

static void write_line(train_report_t *r, const train_result_t *result)
{
	double left = r->step_s * (double)(r->steps - result->step);
	int evaluated = !isnan(result->val_loss);
	char line[256], memory[32], scaler[64] = "";

	if (result->step == 0) {
		printf("step 0/%" PRId64 "  validation loss %.4f\n", r->steps, result->val_loss);
		fflush(stdout);
		return;
	}
	if (r->scales)
		snprintf(scaler, sizeof(scaler), "scale %g, %" PRId32 " skipped  ", result->scale,
			 result->skipped);
	snprintf(line, sizeof(line),
		 "step %" PRId64 "/%" PRId64 "  loss %.4f  %s%.0f tokens/s  %s  %lld:%02d left",
		 result->step, r->steps, result->loss, scaler, (double)r->tokens / r->step_s,
		 tool_bytes((double)get_rss_nbytes(), memory), (long long)(left / 60),
		 (int)fmod(left, 60));
	if (evaluated)
		printf("%s%s  validation loss %.4f\n", r->on_terminal ? "\r\033[K" : "", line,
		       result->val_loss);
	else if (r->on_terminal) /* a wrapped line cannot be updated, so it is cut */
		printf("\r\033[K%.*s", get_terminal_columns(), line);
	else
		puts(line);
	r->line_open = r->on_terminal && !evaluated;
	fflush(stdout);
	r->last_line_s = now_s();
}

int train_report_write(train_report_t *r, const train_result_t *result)
{
	int first_or_last = result->step == 1 || result->step == r->steps;

	if (r->log != NULL)
		write_log(r, result);
	if (first_or_last || result->step % r->line_every == 0 || !isnan(result->val_loss) ||
	    (r->on_terminal && now_s() - r->last_line_s >= LINE_INTERVAL_S))
		write_line(r, result);
	if (r->log == NULL || !ferror(r->log))
		return 0;
	fclose(r->log); /* the failure is reported once, and training continues */
	r->log = NULL;
	return -1;
}

void train_report_validating(train_report_t *r, int64_t batch, int64_t nbatches)
{
	double now = now_s();

	if (batch == 1)
		r->validating_s = now + VALIDATING_AFTER_S;
	if (now < r->validating_s)
		return;
	if (r->on_terminal)
		printf("\r\033[Kvalidating: %.0f %%",
		       100.0 * (double)(batch - 1) / (double)nbatches);
	else
		printf("validating: %" PRId64 " of %" PRId64 " batches\n", batch - 1, nbatches);
	r->line_open = r->on_terminal;
	fflush(stdout);
	r->validating_s = now + (r->on_terminal ? LINE_INTERVAL_S : VALIDATING_INTERVAL_S);
}

void train_report_end_line(train_report_t *r)
{
	if (r->line_open)
		putchar('\n');
	r->line_open = 0;
	fflush(stdout);
}

int train_report_close(train_report_t *r)
{
	int failed = 0;

	train_report_end_line(r);
	if (r->log != NULL)
		failed = ferror(r->log) | (fclose(r->log) != 0);
	r->log = NULL;
	return failed ? -1 : 0;
}
