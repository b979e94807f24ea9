/* SPDX-License-Identifier: BSD-3-Clause */
/* a / sqrt(n) in the default floating-point environment. */
#include "models/over_sqrt.h"

#include <fenv.h>
#include <math.h>

/* Volatile: the compiler may else compute before or after the environment changes. */
float srt_model_over_sqrt(float a, int64_t n)
{
	volatile int64_t count = n;
	volatile float root, result;
	fenv_t env;

	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	root = sqrtf((float)count);
	result = a / root;
	fesetenv(&env);
	return result;
}
