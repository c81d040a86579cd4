/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml.c - a libnvidia-ml.so.1 for test_gpu_source: what FAKE_NVML says, it does. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

API int nvmlInit_v2(void);
API int nvmlDeviceGetCount_v2(unsigned int *n);
API int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **d);
API int nvmlDeviceGetUUID(void *d, char *s, unsigned int n);
API int nvmlDeviceGetName(void *d, char *s, unsigned int n);
API int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m);
API int nvmlDeviceGetUtilizationRates(void *d, unsigned int *u);
API int nvmlDeviceGetPowerUsage(void *d, unsigned int *mw);
API int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned int *n, void *list);

static int says(const char *what)
{
	const char *s = getenv("FAKE_NVML");

	return s && !strcmp(s, what);
}

int nvmlInit_v2(void)
{
	printf("noise that must not reach anybody\n");
	fflush(stdout);
	if (says("hang")) {
		sigset_t all;

		sigfillset(&all); /* as deaf as a call inside a stuck driver */
		sigprocmask(SIG_BLOCK, &all, NULL);
		for (;;)
			pause();
	}
	if (says("crash"))
		raise(SIGSEGV);
	return says("refuse") ? 9 : 0;
}

int nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = 3;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **d)
{
	*d = (void *)(size_t)(i + 1);
	return i == 1 ? 15 : 0; /* lost */
}

int nvmlDeviceGetUUID(void *d, char *s, unsigned int n)
{
	snprintf(s, n, "GPU-%zu", (size_t)d);
	return 0;
}

int nvmlDeviceGetName(void *d, char *s, unsigned int n)
{
	(void)d;
	memset(s, 'x', n); /* without an end */
	return 0;
}

int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m)
{
	(void)d;
	m[0] = 1000;
	m[1] = 300;
	m[2] = 700;
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *d, unsigned int *u)
{
	u[0] = 97;
	u[1] = 3;
	return (size_t)d == 1 ? 0 : 3; /* not supported on the other */
}

int nvmlDeviceGetPowerUsage(void *d, unsigned int *mw)
{
	(void)d;
	*mw = 119500;
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned int *n, void *list)
{
	struct { unsigned int pid; unsigned long long bytes; unsigned int gi, ci; } *p = list;

	if ((size_t)d != 1)
		return 3;
	*n = 2;
	p[0].pid = 42;
	p[0].bytes = 500;
	p[1].pid = 43;
	p[1].bytes = ~0ull; /* not available */
	return 0;
}
