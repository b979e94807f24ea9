/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/engine/reserved_case.h"

#include "tests/harness/check.h"

void reserved_check(const reserved_case_t *cases, size_t ncases)
{
	char field[64];

	for (size_t c = 0; c < ncases; c++) {
		CHECK_OK(cases[c].call(0, 0));
		for (int i = 0; i < 4; i++) {
			snprintf(field, sizeof(field), "%s.reserved[%d] is 7,", cases[c].type, i);
			CHECK_STATUS(cases[c].call(i, 7), SRT_ERR_INVALID_ARGUMENT);
			CHECK_ERROR_HAS(field);
		}
		CHECK_STATUS(cases[c].call(3, UINT64_C(1) << 63), SRT_ERR_INVALID_ARGUMENT);
	}
}
