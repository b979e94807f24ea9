/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-train: trains a GPT on the bytes of a text; `shardrun -n N shardrt-train ...` on N ranks.
 *
 * Errors in options, data and files are found on all ranks and printed once. All ranks then exit
 * after a barrier, so that the launcher does not end a rank before it has printed: with status 2
 * for wrong options, with which another start would end in the same way, else with 1. Errors in
 * environment variables are found before the rank joins a job (tool_check_config()). Other errors
 * are printed by each rank, status 1.
 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/common.h"
#include "tools/train/train.h"

#define EXIT_SIGNAL 128 /* + number of the signal that ended training */
/* In the place of a signal: the text of a rank cannot be read any more. */
#define STOP_DATA 1000

/* ---- signals: stored by the handler; all ranks agree on them between two steps ----------- */

static volatile sig_atomic_t stop_signal;

/* The first signal ends training after the step. Later ones are ignored: the launcher and the
 * terminal may both send one. SIGKILL and SIGQUIT end the process at once. */
static void store_signal(int number)
{
	if (!stop_signal)
		stop_signal = number;
}

/* Signals are stored while steps run and files are written, else they do what they did at the
 * start. One that was ignored then (nohup, a background job) stays ignored. */
static void catch_signals(int on)
{
	/* SIGHUP: the terminal was closed; SIGUSR1, SIGUSR2: warnings of batch systems */
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR2, SIGUSR1 };
	static struct sigaction inherited[sizeof(signals) / sizeof(signals[0])];
	static int is_known;
	struct sigaction action = { .sa_handler = store_signal, .sa_flags = SA_RESTART };
	const char *folder = "";
	size_t n = sizeof(signals) / sizeof(signals[0]);

	for (size_t i = 0; i < n && !is_known; i++)
		sigaction(signals[i], NULL, &inherited[i]);
	is_known = 1;

	/* The library writes the records of the flight recorder at SIGUSR1. */
	srt_config_value("SHARDRT_FLIGHT", &folder, NULL);
	n -= folder[0] != '\0';

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < n; i++)
		if (inherited[i].sa_handler != SIG_IGN)
			sigaction(signals[i], on ? &action : &inherited[i], NULL);
}

/* The signal that any rank has received, STOP_DATA or 0; and, where it is 0, whether the ranks have
 * written their files of a checkpoint. Blocking. */
static srt_status_t agree_to_stop(trainer_t *t, const char *when, int *stopped_by)
{
	const int busy = !srt_checkpoint_save_done(t->writing);
	const int mine = t->data_failed ? STOP_DATA : stop_signal;
	int who, largest;
	srt_status_t status = tool_find_largest(&t->ranks, when, 2 * mine + busy, &largest, &who);

	*stopped_by = largest / 2;
	t->all_written = largest == 0;
	t->stopping_rank = who;
	return status;
}

/* Prints why training ends after this step. */
static void report_stop(trainer_t *t, train_report_t *report, int stopped_by, int64_t step)
{
	char after[64] = "before the first step";

	if (step > 0)
		snprintf(after, sizeof(after), "after step %lld", (long long)step);
	if (t->rank == 0)
		train_report_end_line(report);
	if (stopped_by == STOP_DATA && t->rank == t->stopping_rank)
		tool_error("rank %d: %s; training ends %s", t->rank, t->why.text, after);
	if (stopped_by != STOP_DATA && t->rank == 0)
		printf("ended by signal %d %s\n", stopped_by, after);
	t->why.text[0] = '\0';
}

/* ---- ends ------------------------------------------------------------------------------- */

static int report_failure(const trainer_t *t, srt_status_t status)
{
	return tool_report_failure(&t->ranks, status);
}

/* Whether any rank has found an error that is in t->why. @return as tool_report_why(). */
static int report_mistake(trainer_t *t, const char *when, bool mine)
{
	return tool_report_why(&t->ranks, when, &t->why, mine);
}

/* ---- the run ---------------------------------------------------------------------------- */

static int is_eval_step(const trainer_t *t, int64_t step)
{
	return t->opt.eval_every > 0 && (step % t->opt.eval_every == 0 || step == t->opt.steps);
}

static srt_status_t start_batch(trainer_t *t, void *arg, int64_t batch, int64_t nbatches,
				int *stopped_by)
{
	char when[64];

	snprintf(when, sizeof(when), "before batch %lld of the validation", (long long)batch);
	SRT_TRY(agree_to_stop(t, when, stopped_by));
	if (t->rank == 0 && !*stopped_by)
		train_report_validating(arg, batch, nbatches);
	return SRT_OK;
}

/* Whether --save and --checkpoint are also written after this step. */
static int is_save_step(const trainer_t *t, int64_t step)
{
	return t->opt.save_every > 0 && step % t->opt.save_every == 0 && step < t->opt.steps;
}

/* Once. */
static void warn_of_divergence(const trainer_t *t, train_report_t *report)
{
	if (t->rank != 0 || t->diverged_at == 0 || report->warned)
		return;
	report->warned = 1;
	train_report_end_line(report);
	tool_error("warning: the loss is not finite since step %lld: training has diverged, a "
		   "lower --lr may help",
		   (long long)t->diverged_at);
}

/* Waits for the results of the pending step, and reports them. */
static srt_status_t report_step(trainer_t *t, train_report_t *report)
{
	const train_pending_t p = t->pending;
	train_result_t result = { .step = p.step, .val_loss = (double)NAN };

	if (p.step == 0)
		return SRT_OK;
	t->pending.step = 0;
	if (p.reported) {
		SRT_TRY(trainer_read(t, &result));
		train_report_time(report, &result, p.launches);
	} else {
		SRT_TRY(trainer_watch(t, p.step, &result.loss));
	}
	warn_of_divergence(t, report);
	if (is_eval_step(t, p.step)) {
		SRT_TRY(trainer_evaluate(t, start_batch, report, &result.val_loss));
		train_report_resume(report);
	}
	if (p.reported && train_report_write(report, &result) != 0)
		tool_error("warning: the log is incomplete: it cannot be written");
	return SRT_OK;
}

/*
 * One step, its validation and its report. If streams are asynchronous, the results of the previous
 * step are read when this step is queued, so that the device always has work.
 */
static srt_status_t run_step(trainer_t *t, train_report_t *report, int64_t step)
{
	const int evaluates = is_eval_step(t, step), last = step == t->opt.steps;
	const int reported = t->rank == 0 && (train_report_due(report, step) || evaluates);
	const int saves = is_save_step(t, step);
	const int posts = reported || evaluates || saves || last || step % TRAIN_WATCH == 0;

	SRT_TRY(trainer_step(t, step));
	if (posts)
		SRT_TRY(trainer_post(t, step));
	SRT_TRY(report_step(t, report));
	if (!posts)
		return SRT_OK;
	t->pending = (train_pending_t){ step, reported, srt_device_launches(t->device) };
	return !t->overlaps || evaluates || saves || last ? report_step(t, report) : SRT_OK;
}

/* The result of --eval. */
static void print_evaluation(const trainer_t *t, train_report_t *report, double loss)
{
	if (t->rank != 0)
		return;
	train_report_end_line(report);
	printf("loss %.6f  perplexity %.6f  %lld tokens\n", loss, exp(loss),
	       (long long)trainer_eval_tokens(t));
}

/* Without steps there is only the validation at the end. */
static srt_status_t run_validation(trainer_t *t, train_report_t *report, int *stopped_by)
{
	const double none = (double)NAN;
	train_result_t result = { .loss = none,
				  .grad_norm = none,
				  .lr = none,
				  .step_s = none,
				  .tokens_per_s = none,
				  .launches = none,
				  .scale = none,
				  .val_loss = none };

	SRT_TRY(trainer_evaluate(t, start_batch, report, &result.val_loss));
	SRT_TRY(agree_to_stop(t, "after the validation", stopped_by));
	if (*stopped_by)
		report_stop(t, report, *stopped_by, 0);
	else if (t->opt.eval)
		print_evaluation(t, report, result.val_loss);
	else if (t->rank == 0 && train_report_write(report, &result) != 0)
		tool_error("warning: the log is incomplete: it cannot be written");
	return SRT_OK;
}

/* @param[out] stopped_by 0, STOP_DATA, or the signal that ended training before its last step. */
static srt_status_t run_steps(trainer_t *t, train_report_t *report, int *stopped_by)
{
	char when[64];
	double loss;

	catch_signals(1);
	if (t->opt.log != NULL)
		train_report_peak(report, trainer_peak(t));
	train_report_resume(report);
	report->last_step = t->done;
	*stopped_by = 0;
	if (t->opt.steps == 0 && t->opt.eval_every > 0)
		return run_validation(t, report, stopped_by);
	for (int64_t step = t->done + 1; step <= t->opt.steps && !*stopped_by; step++) {
		SRT_TRY(run_step(t, report, step));
		if (step < t->opt.steps && !t->data_failed)
			trainer_load_batch(t, step + 1); /* the ranks agree on a failure */
		snprintf(when, sizeof(when), "after step %lld", (long long)step);
		SRT_TRY(agree_to_stop(t, when, stopped_by));
		t->done = step;
		if (t->all_written)
			SRT_TRY(trainer_warn_of_save(t, report, t->checkpointed,
						     trainer_end_checkpoint(t)));
		if (*stopped_by)
			SRT_TRY(report_step(t, report));
		else if (is_save_step(t, step) && !t->diverged_at)
			SRT_TRY(trainer_save_between(t, report, step));
		if (!*stopped_by)
			continue;
		report_stop(t, report, *stopped_by, step);
		SRT_TRY(trainer_post(t, step)); /* all ranks must agree whether to save */
		SRT_TRY(trainer_watch(t, step, &loss));
	}
	return srt_stream_sync(t->stream);
}

static srt_status_t print_hash(trainer_t *t)
{
	unsigned char hash[16];

	SRT_TRY(srt_engine_hash(t->engine, hash, t->stream));
	if (t->rank != 0)
		return SRT_OK;
	printf("hash: numerics %d %s, ", srt_numerics_version(), train_numerics(t->context));
	if (t->opt.tensor_parts > 1)
		printf("%" PRId64 " tensor parts, ", t->opt.tensor_parts);
	printf("xxh3-128 ");
	for (int i = 0; i < 16; i++)
		printf("%02x", hash[i]);
	putchar('\n');
	return SRT_OK;
}

/* After the steps: files, sample, hash. There is no sample after a signal. */
static srt_status_t finish_run(trainer_t *t, train_report_t *report, int stopped_by)
{
	SRT_TRY(trainer_save_last(t, report, stopped_by));
	catch_signals(stopped_by !=
		      0); /* the launcher may repeat the signal that ended the steps */
	if (t->opt.sample > 0 && !stopped_by)
		SRT_TRY(trainer_generate(t, t->opt.sample, stdout));
	return t->opt.hash ? print_hash(t) : SRT_OK;
}

/* After a failure that other ranks may not have: they do not complete a checkpoint either, so that
 * no rank waits for another one. Returns the code. */
static int abort_checkpoint(trainer_t *t, int code)
{
	if (t->writing != NULL)
		srt_comm_abort(t->comm, "training failed while a checkpoint was written");
	return code;
}

/* Output that cannot be written is a failure at the end, or a warning if its reader has ended (as
 * head does). @return the exit status. */
static int check_output(const trainer_t *t, int code)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	int is_unread;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	is_unread = poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
	tool_error("%srank %d: the standard output is incomplete: %s", is_unread ? "warning: " : "",
		   t->rank, is_unread ? "nobody reads it" : "it cannot be written");
	return code == 0 && !is_unread ? EXIT_FAILURE : code;
}

static int run_trainer(trainer_t *t)
{
	train_report_t report = { 0 };
	int stopped_by = 0, any, who, code;
	srt_status_t status;

	code = report_mistake(t, "on the options and the text",
			      trainer_prepare(t) != 0 ||
				      (t->rank == 0 && (trainer_open_checkpoints(t) != 0 ||
							train_report_open(&report, t) != 0)));
	if (code != 0)
		goto out;
	code = t->data != NULL ? report_mistake(t, "on the texts", trainer_compare_data(t) != 0) :
				 0;
	if (code == 0 && t->opt.sft_show > 0)
		code = report_mistake(t, "on the examples",
				      t->rank == 0 && trainer_show_examples(t, stdout) != 0);
	if (code != 0 || t->opt.sft_show > 0)
		goto out;
	status = trainer_build(t);
	if (status == SRT_OK) {
		status = trainer_start_values(t);
		if (status == SRT_OK && t->opt.resume)
			status = trainer_resume(t);
		code = t->why.text[0] || status == SRT_OK ?
			       report_mistake(t, "on the first values", t->why.text[0] != 0) :
			       0;
		if (code != 0)
			goto out;
	}
	if (status == SRT_OK && t->data != NULL && t->done < t->opt.steps) {
		code = report_mistake(t, "on the first batch",
				      trainer_load_batch(t, t->done + 1) != 0);
		if (code != 0)
			goto out;
	}
	if (status == SRT_OK && t->rank == 0 && t->opt.generate == 0) {
		train_report_count(&report, t);
		trainer_describe(t, stdout);
		fflush(stdout); /* the first step or validation may take long */
	}
	if (status == SRT_OK && t->opt.generate > 0)
		status = trainer_generate(t, t->opt.generate, stdout);
	else if (status == SRT_OK)
		status = run_steps(t, &report, &stopped_by);
	if (train_report_close(&report) != 0)
		tool_error("warning: the log is incomplete: it cannot be written");
	if (status == SRT_OK)
		status = finish_run(t, &report, stopped_by);
	if (status == SRT_OK) /* no rank exits while another one saves */
		status = tool_find_largest(&t->ranks, "at the end", 0, &any, &who);
	if (status != SRT_OK)
		code = abort_checkpoint(t, report_failure(t, status));
	else if (t->save_failed || stopped_by == STOP_DATA ||
		 (t->diverged_at && (t->opt.save != NULL || t->opt.checkpoint != NULL)))
		code = EXIT_FAILURE;
	else
		code = stopped_by ? EXIT_SIGNAL + stopped_by : 0;
out:
	train_report_close(&report);
	return check_output(t, code);
}

static int print_and_stop(const train_options_t *o, int rank)
{
	if (rank != 0)
		return EXIT_SUCCESS;
	if (o->version)
		printf("shardrt-train %s\n", srt_version_string());
	else
		train_options_help(stdout);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	trainer_t t = { 0 };
	srt_context_options_t options = { .size = sizeof(options) };
	int bad_options, code;
	const char *rank = "0";
	srt_status_t status;

	tool_start("shardrt-train");
	srt_config_value("SHARDRT_RANK", &rank, NULL);
	t.rank = t.ranks.rank = atoi(rank);
	bad_options = train_options_parse(argc, argv, &t.opt, t.why.text, sizeof(t.why.text)) != 0;
	t.why.status = TOOL_EXIT_USAGE;
	if (!bad_options && (t.opt.help || t.opt.version))
		return print_and_stop(&t.opt, t.rank);
	signal(SIGPIPE, SIG_IGN); /* the run goes on if nobody reads its output */
	code = tool_check_config();
	if (code != 0)
		return code;
	if (!bad_options) {
		options.threads = (int)t.opt.threads;
		options.numerics = (srt_numerics_t)t.opt.numerics;
	}
	status = srt_context_create(&options, &t.context);
	if (status != SRT_OK)
		return report_failure(&t, status);
	t.rank = srt_context_rank(t.context);
	t.world = srt_context_world_size(t.context);
	t.device = srt_context_device(t.context);
	t.comm = srt_context_world(t.context);
	t.ranks = (tool_ranks_t){ .comm = t.comm, .rank = t.rank, .world = t.world };
	code = report_mistake(&t, "on the options", bad_options);
	if (code == 0)
		code = run_trainer(&t);
	trainer_destroy(&t);
	return code;
}
