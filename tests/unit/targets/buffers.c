/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.c - FILEs with a known number of bytes not written: argv[1] is a directory. */
#include <stdio.h>
#include <unistd.h>

static FILE *at(const char *dir, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return fopen(path, "w");
}

int main(int argc, char **argv)
{
	FILE *full, *none, *flushed, *reads;
	char buf[4];

	if (argc < 2)
		return 1;
	full = at(argv[1], "full");
	none = at(argv[1], "none");
	flushed = at(argv[1], "flushed");
	reads = fopen("/proc/self/status", "r");
	if (!full || !none || !flushed || !reads)
		return 1;
	fprintf(full, "%0321d", 7);
	fputs("gone", flushed);
	fflush(flushed);
	if (fread(buf, 1, sizeof(buf), reads) != sizeof(buf))
		return 1;
	/* The test reads the numbers of the descriptors, then leaves 5 bytes in stdout. */
	printf("ready %d %d %d %d\n", fileno(full), fileno(none), fileno(flushed), fileno(reads));
	fflush(stdout);
	fputs("12345", stdout);
	pause();
	return 0;
}
