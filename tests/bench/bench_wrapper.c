// SPDX-License-Identifier: Apache-2.0
/*
 * bench_wrapper.c - what the recorder costs a call, a look-up and a start.
 *
 * Runs itself bare and under the built libwaitgraph.so against fake_libcuda.so (bench_fake.c), whose
 * functions return at once: what is measured is ours alone. Figures of one run side by side, best of
 * several rounds; ratios count, absolute times move from machine to machine.
 *
 *	bench_wrapper [LIBWAITGRAPH FAKE_DIR]
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define MEASURE(out, n, statement)                                \
	do {                                                      \
		double best_ = 1e18;                              \
		for (int round_ = 0; round_ < ROUNDS; round_++) { \
			double t_ = now();                        \
			for (int i = 0; i < (n); i++)             \
				statement;                        \
			t_ = (now() - t_) / (n);                  \
			if (t_ < best_)                           \
				best_ = t_;                       \
		}                                                 \
		(out) = best_;                                    \
	} while (0)

enum { EVENT_QUERY, SYNC, LAUNCH, ALLOC_FREE, PROC, DLSYM_OURS, DLSYM_OTHER, FIGURES };
static const char *const names[FIGURES] = {
	"cuEventQuery (entered and left)",
	"cuStreamSynchronize (timed, marks its stream)",
	"cuLaunchKernel (stream's position included)",
	"cuMemAlloc + cuMemFree (accounting, stack)",
	"cuGetProcAddress, a wrapped name",
	"dlsym, a wrapped name",
	"dlsym, a foreign name",
};

static int worker(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned int), (*query)(void *), (*sync)(void *), (*get)(const char *, void **, int,
									     uint64_t, int *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
		      void **, void **);
	int (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
	int (*retain)(void **, int), (*current)(void *), (*create)(void **, unsigned int);
	double f[FIGURES];
	void *p, *stream = NULL, *ctx = NULL;
	uint64_t d;

	if (!cuda)
		return 1;
	*(void **)&init = dlsym(cuda, "cuInit");
	*(void **)&query = dlsym(cuda, "cuEventQuery");
	*(void **)&sync = dlsym(cuda, "cuStreamSynchronize");
	*(void **)&launch = dlsym(cuda, "cuLaunchKernel");
	*(void **)&alloc = dlsym(cuda, "cuMemAlloc_v2");
	*(void **)&release = dlsym(cuda, "cuMemFree_v2");
	*(void **)&get = dlsym(cuda, "cuGetProcAddress_v2");
	*(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
	*(void **)&current = dlsym(cuda, "cuCtxSetCurrent");
	*(void **)&create = dlsym(cuda, "cuStreamCreate");
	if (init(0) || retain(&ctx, 0) || current(ctx) || create(&stream, 1))
		return 2;
	MEASURE(f[EVENT_QUERY], 1000000, query((void *)0x1000));
	MEASURE(f[SYNC], 300000, sync(stream));
	MEASURE(f[LAUNCH], 300000, launch((void *)0x2000, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	MEASURE(f[ALLOC_FREE], 50000, (alloc(&d, 4096), release(d)));
	MEASURE(f[PROC], 100000, get("cuMemcpyHtoDAsync", &p, 12000, 0, NULL));
	MEASURE(f[DLSYM_OURS], 50000, p = dlsym(cuda, "cuStreamSynchronize"));
	MEASURE(f[DLSYM_OTHER], 50000, p = dlsym(RTLD_DEFAULT, "strlen"));
	fwrite(f, sizeof(f), 1, stdout);
	return 0;
}

static int run(const char *self, const char *preload, const char *fake, const char *mode, double *out,
	       size_t size)
{
	int fd[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(fd))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(fd[1], 1);
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		setenv("LD_LIBRARY_PATH", fake, 1);
		setenv("WAITGRAPH_DIR", "/tmp/waitgraph-bench", 1);
		execl(self, self, mode, NULL);
		_exit(127);
	}
	close(fd[1]);
	while (n < size && (got = read(fd[0], (char *)out + n, size - n)) > 0)
		n += (size_t)got;
	close(fd[0]);
	waitpid(pid, &status, 0);
	return n == size && WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -1;
}

/* Time from exec to main of a program that does nothing, in us: median of many. */
static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double start_up(const char *preload)
{
	double t[300];

	for (int i = 0; i < 300; i++) {
		double began = now();
		pid_t pid = vfork();

		if (!pid) {
			char *argv[] = { "true", NULL };
			char env[512] = "LD_PRELOAD=";
			char *envp[] = { env, NULL };

			strcat(env, preload ? preload : "");
			execve("/bin/true", argv, preload ? envp : envp + 1);
			_exit(127);
		}
		waitpid(pid, NULL, 0);
		t[i] = (now() - began) / 1000;
	}
	qsort(t, 300, sizeof(t[0]), by_value);
	return t[150];
}

int main(int argc, char **argv)
{
	double bare[FIGURES], with[FIGURES], a, b;
	const char *preload = argc > 2 ? argv[1] : BENCH_PRELOAD;
	const char *fake = argc > 2 ? argv[2] : BENCH_FAKE;
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc == 2 && !strcmp(argv[1], "worker"))
		return worker();
	if (n < 0)
		return 1;
	self[n] = 0;
	if (run(self, NULL, fake, "worker", bare, sizeof(bare)) ||
	    run(self, preload, fake, "worker", with, sizeof(with))) {
		fprintf(stderr, "bench_wrapper: the worker failed\n");
		return 1;
	}
	printf("%-46s %10s %10s %10s\n", "ns a call", "bare", "recorded", "added");
	for (int i = 0; i < FIGURES; i++)
		printf("%-46s %10.1f %10.1f %10.1f\n", names[i], bare[i], with[i], with[i] - bare[i]);
	a = start_up(NULL);
	b = start_up(preload);
	printf("%-46s %10.1f %10.1f %10.1f\n", "us to start and end /bin/true (median of 300)", a, b, b - a);
	return 0;
}
