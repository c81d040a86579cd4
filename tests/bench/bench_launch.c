// SPDX-License-Identifier: Apache-2.0
/*
 * bench_launch.c - what the recorder costs a kernel launch, and an NCCL-free stream loop, on whatever
 * libcuda is found: the simulated GPU (what we add is then most of it) or a real one.
 *
 *	bench_launch [RECORDER [ROUNDS [LAUNCHES]]]
 *
 * It starts itself bare and recorded in turn, so that both see the same machine, and prints the
 * medians side by side with their ratio. A run takes the best of several turns: noise only adds.
 *
 *	launch, own stream    an empty kernel on a non-blocking stream, synchronised at the end
 *	launch, legacy        the same on the legacy default stream (PyTorch's own)
 *	launch + sync         a synchronisation after each launch: each is covered by a write
 *	record + query        cuEventRecord, cuEventQuery: what PyTorch's allocator and watchdog do
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASES 4
static const char *const names[CASES] = { "launch, own stream", "launch, legacy", "launch + sync",
					  "record + query" };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *cuda;
static void *need(const char *name)
{
	void *f = dlsym(cuda, name);

	if (!f) {
		fprintf(stderr, "bench_launch: no %s\n", name);
		exit(70);
	}
	return f;
}
#define CU(name, params) ((int (*) params)need(#name))

static void ok(int r, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "bench_launch: %s: %d\n", what, r);
	exit(70);
}

/* Real drivers compile it; the simulated one goes by the kernel's name. */
static const char ptx[] = ".version 6.0\n.target sm_60\n.address_size 64\n"
			  ".visible .entry empty() { ret; }\n";

static int measure(int launches)
{
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);
	int (*sync)(void *), (*record)(void *, void *), (*query)(void *);
	void *ctx, *module, *f, *own, *event;
	double best[CASES];

	cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!cuda) {
		fprintf(stderr, "bench_launch: %s\n", dlerror());
		return 70;
	}
	ok(CU(cuInit, (unsigned))(0), "cuInit");
	ok(CU(cuDevicePrimaryCtxRetain, (void **, int))(&ctx, 0), "retain");
	ok(CU(cuCtxSetCurrent, (void *))(ctx), "current");
	ok(CU(cuModuleLoadData, (void **, const void *))(&module, ptx), "module");
	ok(CU(cuModuleGetFunction, (void **, void *, const char *))(&f, module, "empty"), "function");
	ok(CU(cuStreamCreate, (void **, unsigned))(&own, 1), "stream");
	ok(CU(cuEventCreate, (void **, unsigned))(&event, 2), "event");
	*(void **)&launch = need("cuLaunchKernel");
	*(void **)&sync = need("cuStreamSynchronize");
	*(void **)&record = need("cuEventRecord");
	*(void **)&query = need("cuEventQuery");
	for (int c = 0; c < CASES; c++) {
		void *s = c == 1 ? NULL : own;

		best[c] = 1e18;
		for (int turn = 0; turn < 7; turn++) {
			int n = c == 2 ? launches / 10 : launches;
			double t = now();

			for (int k = 0; k < n; k++) {
				if (c == 3) {
					record(event, s);
					query(event);
					continue;
				}
				launch(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
				if (c == 2)
					sync(s);
			}
			sync(s);
			t = (now() - t) / n;
			if (t < best[c])
				best[c] = t;
		}
		printf("%.1f ", best[c]);
	}
	printf("\n");
	return 0;
}

static int run(const char *self, const char *recorder, const char *launches, double *out)
{
	char line[256] = "";
	int fd[2], status;
	FILE *in;
	pid_t pid;

	if (pipe(fd))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(fd[1], 1);
		close(fd[0]);
		close(fd[1]);
		if (recorder)
			setenv("LD_PRELOAD", recorder, 1);
		else
			unsetenv("LD_PRELOAD");
		execl(self, self, "--measure", launches, NULL);
		_exit(127);
	}
	close(fd[1]);
	in = fdopen(fd[0], "r");
	if (!fgets(line, sizeof(line), in))
		line[0] = 0;
	fclose(in);
	waitpid(pid, &status, 0);
	return status || sscanf(line, "%lf %lf %lf %lf", &out[0], &out[1], &out[2], &out[3]) != CASES ?
		       -1 :
		       0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	const char *recorder = argc > 1 ? argv[1] : WG_BUILD_DIR "/lib/libwaitgraph.so";
	const char *launches = argc > 3 ? argv[3] : "20000";
	int rounds = argc > 2 ? atoi(argv[2]) : 5;
	double bare[CASES][64], recorded[CASES][64], v[CASES];
	char self[512];
	ssize_t n;

	if (argc == 3 && !strcmp(argv[1], "--measure"))
		return measure(atoi(argv[2]));
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0 || rounds < 1 || rounds > 64)
		return 64;
	self[n] = 0;
	for (int r = 0; r < rounds; r++) {
		if (run(self, NULL, launches, v))
			return 70;
		for (int c = 0; c < CASES; c++)
			bare[c][r] = v[c];
		if (run(self, recorder, launches, v))
			return 70;
		for (int c = 0; c < CASES; c++)
			recorded[c][r] = v[c];
	}
	printf("%-20s %12s %12s %9s %8s   (ns, median of %d)\n", "", "bare", "recorded", "added",
	       "ratio", rounds);
	for (int c = 0; c < CASES; c++) {
		double b, w;

		qsort(bare[c], (size_t)rounds, sizeof(double), by_value);
		qsort(recorded[c], (size_t)rounds, sizeof(double), by_value);
		b = bare[c][rounds / 2];
		w = recorded[c][rounds / 2];
		printf("%-20s %12.1f %12.1f %9.1f %7.3fx\n", names[c], b, w, w - b, w / b);
	}
	return 0;
}
