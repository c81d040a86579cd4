/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c - utilization, power and memory as the driver tells outsiders, through NVML.
 *
 * The library is opened at run time in a forked child that answers over a pipe and is
 * given up on after a deadline: a call into a driver that hangs sleeps uninterruptibly,
 * and neither a thread nor a signal would end it. That it did not answer is a fact, too.
 */
#include "gpu.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sources.h"

#define DEADLINE_S 3.0

/* ---- in the child ------------------------------------------------------------------ */

/* The parts of NVML's interface that are used; its structures as its header lays them out. */
typedef void *nvml_device;
struct nvml_memory { unsigned long long total, free, used; };
struct nvml_utilization { unsigned int gpu, memory; };
struct nvml_pci {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};
struct nvml_process { /* v2 and v3 */
	unsigned int pid;
	unsigned long long bytes;
	unsigned int gpu_instance, compute_instance;
};
struct nvml_process_v1 { unsigned int pid; unsigned long long bytes; };
#define NVML_CLOCK_SM 1
#define NVML_INSUFFICIENT_SIZE 7

struct header { int32_t rc, nvml, n; };

static void put_all(int fd, const void *p, size_t n)
{
	const char *c = p;

	while (n) {
		ssize_t k = write(fd, c, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			_exit(1);
		c += k;
		n -= (size_t)k;
	}
}

static void ask_processes(void *lib, nvml_device d, struct wg_gpu_answer *a)
{
	int (*v3)(nvml_device, unsigned int *, void *) =
		(int (*)(nvml_device, unsigned int *, void *))dlsym(
			lib, "nvmlDeviceGetComputeRunningProcesses_v3");
	int (*v1)(nvml_device, unsigned int *, void *) =
		(int (*)(nvml_device, unsigned int *, void *))dlsym(
			lib, "nvmlDeviceGetComputeRunningProcesses");
	static struct nvml_process list[WG_GPU_PROCS];
	static struct nvml_process_v1 old[WG_GPU_PROCS];
	unsigned int n = WG_GPU_PROCS;
	int rc;

	if (!v3)
		v3 = (int (*)(nvml_device, unsigned int *, void *))dlsym(
			lib, "nvmlDeviceGetComputeRunningProcesses_v2");
	if (v3) {
		rc = v3(d, &n, list);
	} else if (v1) {
		rc = v1(d, &n, old);
		for (unsigned int i = 0; i < n && i < WG_GPU_PROCS; i++) {
			list[i].pid = old[i].pid;
			list[i].bytes = old[i].bytes;
		}
	} else {
		return;
	}
	if (rc && rc != NVML_INSUFFICIENT_SIZE)
		return;
	a->nprocs = (int32_t)(n < WG_GPU_PROCS ? n : WG_GPU_PROCS);
	for (int32_t i = 0; i < a->nprocs; i++) {
		a->procs[i].pid = list[i].pid <= INT32_MAX ? (int32_t)list[i].pid : 0;
		/* NVML_VALUE_NOT_AVAILABLE is all ones. */
		a->procs[i].bytes = list[i].bytes <= INT64_MAX ? (int64_t)list[i].bytes : -1;
	}
}

static int ask_nvml(void *lib, struct wg_gpu_answer *out, int32_t *n)
{
	int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
	int (*count)(unsigned int *) = (int (*)(unsigned int *))dlsym(lib, "nvmlDeviceGetCount_v2");
	int (*by_index)(unsigned int, nvml_device *) =
		(int (*)(unsigned int, nvml_device *))dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
	int (*uuid)(nvml_device, char *, unsigned int) =
		(int (*)(nvml_device, char *, unsigned int))dlsym(lib, "nvmlDeviceGetUUID");
	int (*name)(nvml_device, char *, unsigned int) =
		(int (*)(nvml_device, char *, unsigned int))dlsym(lib, "nvmlDeviceGetName");
	int (*pci)(nvml_device, struct nvml_pci *) =
		(int (*)(nvml_device, struct nvml_pci *))dlsym(lib, "nvmlDeviceGetPciInfo_v3");
	int (*memory)(nvml_device, struct nvml_memory *) =
		(int (*)(nvml_device, struct nvml_memory *))dlsym(lib, "nvmlDeviceGetMemoryInfo");
	int (*rates)(nvml_device, struct nvml_utilization *) =
		(int (*)(nvml_device, struct nvml_utilization *))dlsym(
			lib, "nvmlDeviceGetUtilizationRates");
	int (*power)(nvml_device, unsigned int *) =
		(int (*)(nvml_device, unsigned int *))dlsym(lib, "nvmlDeviceGetPowerUsage");
	int (*limit)(nvml_device, unsigned int *) =
		(int (*)(nvml_device, unsigned int *))dlsym(lib, "nvmlDeviceGetEnforcedPowerLimit");
	int (*clock)(nvml_device, int, unsigned int *) =
		(int (*)(nvml_device, int, unsigned int *))dlsym(lib, "nvmlDeviceGetClockInfo");
	unsigned int total = 0, v;
	int rc;

	if (!init || !count || !by_index)
		return -1;
	rc = init();
	if (!rc)
		rc = count(&total);
	for (unsigned int i = 0; !rc && i < total && *n < WG_GPU_MAX; i++) {
		struct wg_gpu_answer *a = &out[*n];
		struct nvml_utilization u;
		struct nvml_memory m;
		struct nvml_pci p;
		nvml_device d;

		if (by_index(i, &d)) /* lost from the bus, or not permitted: the others still answer */
			continue;
		(*n)++;
		a->index = (int32_t)i;
		if (uuid && uuid(d, a->uuid, sizeof(a->uuid)))
			a->uuid[0] = 0;
		if (name && name(d, a->name, sizeof(a->name)))
			a->name[0] = 0;
		memset(&p, 0, sizeof(p));
		if (pci && !pci(d, &p))
			memcpy(a->pci, p.bus_id, sizeof(a->pci) - 1);
		if (memory && !memory(d, &m)) {
			a->total = (int64_t)m.total;
			a->free = (int64_t)m.free;
		}
		if (rates && !rates(d, &u))
			a->utilization = u.gpu;
		if (power && !power(d, &v))
			a->power_mw = v;
		if (limit && !limit(d, &v))
			a->power_limit_mw = v;
		if (clock && !clock(d, NVML_CLOCK_SM, &v))
			a->sm_clock_mhz = v;
		ask_processes(lib, d, a);
	}
	return rc;
}

/* Without the library: who is there, from the driver's own directory. */
static void ask_proc(struct wg_gpu_answer *out, int32_t *n)
{
	DIR *d = opendir("/proc/driver/nvidia/gpus");
	struct dirent *e;

	while (d && *n < WG_GPU_MAX && (e = readdir(d))) {
		struct wg_gpu_answer *a = &out[*n];
		char path[300], buf[2048], *s;
		ssize_t k;
		int fd;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%.200s/information", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		k = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
		if (fd >= 0)
			close(fd);
		if (k <= 0)
			continue;
		buf[k] = 0;
		snprintf(a->pci, sizeof(a->pci), "%.31s", e->d_name);
		s = strstr(buf, "Model:");
		if (s)
			sscanf(s + 6, " %95[^\n]", a->name);
		s = strstr(buf, "GPU UUID:");
		if (s)
			sscanf(s + 9, " %95[^ \n]", a->uuid);
		(*n)++;
	}
	if (d)
		closedir(d);
}

static void child(int fd, const char *library) __attribute__((noreturn));
static void child(int fd, const char *library)
{
	static struct wg_gpu_answer out[WG_GPU_MAX];
	struct header h = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	void *lib;

	if (null >= 0) { /* what the library prints is not our output */
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
	}
	signal(SIGALRM, SIG_DFL);
	alarm(30); /* when the parent has gone */
	for (int i = 0; i < WG_GPU_MAX; i++) {
		out[i].index = out[i].nprocs = -1;
		out[i].total = out[i].free = out[i].utilization = -1;
		out[i].power_mw = out[i].power_limit_mw = out[i].sm_clock_mhz = -1;
	}
	lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (lib) {
		h.nvml = ask_nvml(lib, out, &h.n);
		h.rc = h.nvml ? -EIO : 0;
	} else {
		h.rc = -ENOENT;
	}
	if (!h.n)
		ask_proc(out, &h.n);
	put_all(fd, &h, sizeof(h));
	put_all(fd, out, (size_t)h.n * sizeof(*out));
	_exit(0);
}

/* ---- in the reader -------------------------------------------------------------------- */

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int get_all(int fd, void *p, size_t n, double end)
{
	char *c = p;

	while (n) {
		struct pollfd pfd = { .fd = fd, .events = POLLIN };
		double left = end - now_s();
		ssize_t k;

		if (left <= 0)
			return -ETIMEDOUT;
		k = poll(&pfd, 1, (int)(left * 1000) + 1);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			return -ETIMEDOUT;
		k = read(fd, c, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k ? -errno : -EIO;
		c += k;
		n -= (size_t)k;
	}
	return 0;
}

int wg_gpu_ask(const char *library, double seconds, struct wg_gpu_answer *out, size_t *n, int *nvml)
{
	double end = now_s() + seconds;
	struct timespec tick = { 0, 1000000 };
	struct header h;
	int fd[2], rc;
	pid_t pid;

	*n = 0;
	*nvml = 0;
	if (pipe2(fd, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0) {
		rc = -errno;
		close(fd[0]);
		close(fd[1]);
		return rc;
	}
	if (!pid) {
		close(fd[0]);
		child(fd[1], library);
	}
	close(fd[1]);
	rc = get_all(fd[0], &h, sizeof(h), end);
	if (!rc && (h.n < 0 || h.n > WG_GPU_MAX))
		rc = -EIO;
	if (!rc)
		rc = get_all(fd[0], out, (size_t)h.n * sizeof(*out), end);
	close(fd[0]);
	kill(pid, SIGKILL);
	/* A child that sleeps in the driver cannot be reaped now; init will. */
	for (int i = 0; i < 20 && waitpid(pid, NULL, WNOHANG) == 0; i++)
		nanosleep(&tick, NULL);
	if (rc)
		return rc;
	*n = (size_t)h.n;
	*nvml = h.nvml;
	for (size_t i = 0; i < *n; i++) {
		out[i].uuid[sizeof(out[i].uuid) - 1] = 0;
		out[i].name[sizeof(out[i].name) - 1] = 0;
		out[i].pci[sizeof(out[i].pci) - 1] = 0;
		if (out[i].nprocs > WG_GPU_PROCS)
			out[i].nprocs = WG_GPU_PROCS;
	}
	return h.rc;
}

/* "00000000:3B:00.0" and "0000:3b:00.0" are one device. */
static bool same_pci(const char *a, const char *b)
{
	unsigned int x[4], y[4];

	return a && b && sscanf(a, "%x:%x:%x.%x", &x[0], &x[1], &x[2], &x[3]) == 4 &&
	       sscanf(b, "%x:%x:%x.%x", &y[0], &y[1], &y[2], &y[3]) == 4 &&
	       !memcmp(x, y, sizeof(x));
}

static int64_t known(int64_t v)
{
	return v >= 0 ? v : WG_NO_INT;
}

static void fill(struct wg_facts *f, struct wg_process *p, struct wg_device *d,
		 const struct wg_gpu_answer *a)
{
	if (!d->uuid && a->uuid[0])
		d->uuid = wg_str(f->arena, a->uuid);
	if (!d->name && a->name[0])
		d->name = wg_str(f->arena, a->name);
	if (!d->pci && a->pci[0])
		d->pci = wg_str(f->arena, a->pci);
	if (a->total >= 0 && !wg_has_int(d->total)) /* CUDA's own total is a little smaller */
		d->total = a->total;
	if (a->free >= 0) {
		d->free = a->free;
		d->free_age_s = WG_NO_SEC; /* just now */
		if (wg_has_int(d->least_free) && a->free < d->least_free)
			d->least_free = a->free;
	}
	d->utilization = known(a->utilization);
	d->sm_clock_mhz = known(a->sm_clock_mhz);
	if (a->power_mw >= 0)
		d->power_w = (double)a->power_mw / 1000;
	if (a->power_limit_mw >= 0)
		d->power_limit_w = (double)a->power_limit_mw / 1000;
	memset(&d->other_processes, 0, sizeof(d->other_processes));
	for (int32_t i = 0; i < a->nprocs; i++) {
		struct wg_gpu_process *x;

		if (a->procs[i].pid == p->pid) {
			if (!wg_has_int(d->own))
				d->own = known(a->procs[i].bytes);
			continue;
		}
		x = wg_push(f->arena, &d->other_processes);
		x->pid = a->procs[i].pid;
		x->bytes = known(a->procs[i].bytes);
	}
}

int wg_gpu_collect(struct wg_facts *f)
{
	struct wg_gpu_answer *list;
	bool wanted = false;
	size_t n = 0;
	int rc, nvml = 0;

	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *p = f->procs.v[i];

		wanted = wanted || (!p->from_snapshot && !p->stub && p->alive &&
				    (p->cuda_up || p->devices.n));
	}
	/* No driver here (also: the simulated GPU, which only its own processes see). */
	if (!wanted || (access("/dev/nvidiactl", F_OK) && access("/proc/driver/nvidia", F_OK)))
		return 0;
	list = calloc(WG_GPU_MAX, sizeof(*list));
	if (!list)
		return -ENOMEM;
	rc = wg_gpu_ask("libnvidia-ml.so.1", DEADLINE_S, list, &n, &nvml);
	if (rc == -ETIMEDOUT)
		wg_add_missing(f, NULL, "device utilization and power",
			       "NVML did not answer within 3 s: the GPU's kernel driver may be stuck",
			       "see the kernel log for Xid messages");
	else if (rc == -ENOENT)
		wg_add_missing(f, NULL, "device utilization and power",
			       "libnvidia-ml.so.1 cannot be loaded here",
			       "run waitgraph where nvidia-smi works");
	else if (rc)
		wg_add_missing(f, NULL, "device utilization and power",
			       wg_fmt(f->arena, "NVML refused (error %d)", nvml ? nvml : rc), NULL);
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];
		bool none = !p->devices.n;

		if (p->from_snapshot || p->stub || !p->alive)
			continue;
		for (size_t k = 0; k < n; k++) {
			struct wg_device *d = NULL;
			bool uses = false;

			for (size_t j = 0; j < p->devices.n && !d; j++) {
				struct wg_device *x = &p->devices.v[j];

				/* A CUDA ordinal is not NVML's index: only names that are unique. */
				if ((x->uuid && !strcasecmp(x->uuid, list[k].uuid)) ||
				    same_pci(x->pci, list[k].pci))
					d = x;
			}
			for (int32_t j = 0; j < list[k].nprocs; j++)
				uses = uses || list[k].procs[j].pid == p->pid;
			if (!d && uses && none) {
				d = wg_add_device(f, p);
				d->index = list[k].index; /* of a process that is not recorded */
			}
			if (d) {
				fill(f, p, d, &list[k]);
				if (!rc)
					wg_add_source(f, p, "nvml");
			}
		}
	}
	free(list);
	return 0;
}
