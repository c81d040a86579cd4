/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scenario.h - how a planted program tells the runner its truth (see run.py): lines in the
 * file named by SCENARIO_OUT. Written with plain write(2), so that it works in any thread,
 * after fork and under held stdio locks.
 */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int tid_now(void)
{
	return (int)syscall(SYS_gettid);
}

__attribute__((format(printf, 1, 2))) static inline void tell(const char *fmt, ...)
{
	const char *path = getenv("SCENARIO_OUT");
	char line[256];
	va_list ap;
	int fd, n;

	if (!path)
		path = "/dev/stderr";
	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		_exit(99);
	close(fd);
}

static inline void ready(void)
{
	tell("ready");
}

static inline int is(int argc, char **argv, const char *name)
{
	return argc > 1 && !strcmp(argv[1], name);
}

static inline pthread_t spawn(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, fn, arg))
		_exit(98);
	return t;
}

/* Work without end, made of arithmetic only; nice, so that what runs beside it is not starved. */
static inline void burn(void)
{
	static volatile double sum;

	if (nice(15) == -1000)
		_exit(97);
	for (unsigned long i = 1;; i++)
		sum = sum * 0.999 + (double)(i % 977) / 3.0;
}

static inline void forever(void)
{
	for (;;)
		pause();
}

#endif
