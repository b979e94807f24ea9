/* SPDX-License-Identifier: BSD-3-Clause */
/* The delays of shardrun --restarts, by the times of failures that the test gives. */
#include "tools/shardrun/restart.h"

#include "tests/harness/check.h"

/* A failure of the start that began at started_at_s, lasted_s later. */
static double delay_after(srt_launch_restarts_t *restarts, const srt_launch_options_t *o,
			  double started_at_s, double lasted_s)
{
	char why[200];

	restarts->started_at_s = started_at_s;
	CHECK_INT(srt_launch_restart(restarts, o, 4, 1, started_at_s + lasted_s, why, sizeof(why)),
		  4);
	return restarts->delay_s;
}

int main(void)
{
	static const double delays[] = { 1, 2, 4, 8, 16, 30, 30 };
	srt_launch_options_t o = { .restarts = 100, .restart_delay_s = 1 };
	srt_launch_restarts_t restarts = { 0 };

	for (size_t i = 0; i < sizeof(delays) / sizeof(delays[0]); i++)
		CHECK(delay_after(&restarts, &o, 1000, 59) == delays[i]);
	CHECK(delay_after(&restarts, &o, 2000, 60) == 1);
	CHECK(delay_after(&restarts, &o, 3000, 0) == 2);

	restarts = (srt_launch_restarts_t){ 0 };
	o.restart_delay_s = 100; /* longer than the most that it grows to */
	CHECK(delay_after(&restarts, &o, 0, 0) == 100);
	CHECK(delay_after(&restarts, &o, 0, 0) == 100);

	restarts = (srt_launch_restarts_t){ 0 };
	o.restart_delay_s = 0;
	CHECK(delay_after(&restarts, &o, 0, 0) == 0);
	CHECK(delay_after(&restarts, &o, 0, 0) == 0);
	return check_done();
}
