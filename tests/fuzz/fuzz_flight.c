/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: files of the flight recorder, separated by a byte 1, as shardrt-info --flight reads them.
 * The report of those that are accepted is written, to nothing.
 */
#include "tests/fuzz/fuzz.h"
#include "tools/info/flight.h"

#define MAX_FILES 4

/* Texts of a file can be shown on a terminal. */
static void check_text(const char *text)
{
	for (; *text != '\0'; text++)
		FUZZ_CHECK((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static void check_file(const flight_file_t *file)
{
	FUZZ_CHECK(file->rank >= 0 && file->rank < file->world_size);
	for (size_t c = 0; c < file->ncomms; c++) {
		const flight_comm_t *comm = &file->comms[c];

		check_text(comm->name.text);
		check_text(comm->failure);
		for (size_t r = 0; r < comm->nranks; r++)
			FUZZ_CHECK(comm->ranks[r] >= 0 && comm->ranks[r] < file->world_size);
		for (size_t w = 0; w < comm->nwaits; w++) {
			FUZZ_CHECK(comm->waits[w].nlisted <= FLIGHT_NRANKS);
			check_text(comm->waits[w].name.text);
		}
		for (size_t i = 0; i < comm->ncalls; i++)
			check_text(comm->calls[i].name.text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	static FILE *nothing;
	flight_file_t files[MAX_FILES];
	size_t nfiles = 0, from = 0;
	char why[256] = "";

	if (nothing == NULL)
		nothing = fopen("/dev/null", "w");
	FUZZ_CHECK(nothing != NULL);
	for (size_t i = 0; i <= nbytes && nfiles < MAX_FILES; i++) {
		flight_file_t *file = &files[nfiles];

		if (i < nbytes && input[i] != 1)
			continue;
		snprintf(file->path, sizeof(file->path), "file %zu", nfiles);
		if (flight_parse((const char *)input + from, i - from, file, why) == 0) {
			check_file(file);
			nfiles++;
		} else {
			check_text(why);
		}
		from = i + 1;
	}
	if (nfiles > 0 && flight_report(files, nfiles, nothing, why) != 0)
		FUZZ_CHECK(why[0] != '\0');
	for (size_t i = 0; i < nfiles; i++)
		flight_clear(&files[i]);
	return 0;
}
