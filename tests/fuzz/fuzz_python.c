/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_python.c - Python, lock and stdio readers over memory that lies.
 *
 * A real interpreter's memory is read once, page by page as the readers ask for it. Then the
 * readers run again and again over those pages with words changed: bits, small and huge
 * numbers, and above all pointers to other places that exist, which make cycles. They must
 * come back, soon, and without touching what is not theirs (run with sanitizers).
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collect/mem.h"

#define PAGE 4096u
#define MAX_PAGES 8192

static struct page {
	uint64_t addr;
	uint8_t data[PAGE];
} *pages; /* sorted by nothing: found by a hash */
static uint32_t hash_of[MAX_PAGES * 2];
static size_t npages, first_reads[MAX_PAGES], nfirst;
static pid_t target;
static const struct wg_map *maps;
static size_t nmaps;
static struct wg_arena *keep;

struct change {
	uint32_t word; /* which 8 bytes of all pages */
	uint64_t value;
};
static struct change changes[4096];
static size_t nchanges;
static uint64_t asked;

static struct page *find(uint64_t addr)
{
	size_t i = (addr / PAGE * 0x9e3779b97f4a7c15ull >> 40) % (MAX_PAGES * 2);

	while (hash_of[i]) {
		if (pages[hash_of[i] - 1].addr == addr)
			return &pages[hash_of[i] - 1];
		i = (i + 1) % (MAX_PAGES * 2);
	}
	if (!target || npages == MAX_PAGES)
		return NULL;
	{
		struct iovec here = { pages[npages].data, PAGE };
		struct iovec there = { (void *)(uintptr_t)addr, PAGE };

		if (process_vm_readv(target, &here, 1, &there, 1, 0) != PAGE)
			return NULL;
	}
	pages[npages].addr = addr;
	hash_of[i] = (uint32_t)++npages;
	return &pages[npages - 1];
}

static int read_pages(void *arg, uint64_t addr, void *buf, size_t n)
{
	size_t done = 0;

	(void)arg;
	asked++;
	while (done < n) {
		uint64_t a = addr + done, page = a & ~(uint64_t)(PAGE - 1);
		size_t o = (size_t)(a - page), k = PAGE - o < n - done ? PAGE - o : n - done;
		struct page *p = find(page);

		if (!p)
			break;
		memcpy((char *)buf + done, p->data + o, k);
		done += k;
	}
	return done ? (int)done : -14;
}

/* Apply the changes, run every reader, take the changes back. */
static void run_once(void)
{
	static uint64_t before[4096];
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p = wg_add_process(f);
	struct wg_mem *m;
	struct wg_symbols *s;

	for (size_t i = 0; i < nchanges; i++) {
		uint8_t *at = pages[changes[i].word / 512].data + changes[i].word % 512 * 8;

		memcpy(&before[i], at, 8);
		memcpy(at, &changes[i].value, 8);
	}
	p->pid = getpid(); /* for files under /proc; the memory is ours */
	for (size_t i = 0; i < nfirst; i++) {
		struct wg_thread *t = wg_add_thread(f, p);

		t->tid = (int32_t)first_reads[i];
		t->wait.op = WG_OP_FUTEX;
		t->wait.futex.addr = pages[i * 7 % (npages ? npages : 1)].addr + 64;
	}
	for (int i = 0; i < 8; i++)
		wg_add_file(f, p)->fd = i;
	m = wg_mem_open_fake(maps, nmaps, p->pid, read_pages, NULL);
	s = wg_symbols_open(m);
	wg_python_collect(f, p, m, s);
	wg_stdio_collect(f, p, m, s);
	wg_symbols_close(s);
	wg_mem_close(m);
	wg_facts_free(f);
	for (size_t i = nchanges; i-- > 0;)
		memcpy(pages[changes[i].word / 512].data + changes[i].word % 512 * 8, &before[i], 8);
}

static void learn(void)
{
	const char *script =
		"import threading, time, sys\n"
		"L = threading.Lock(); R = threading.RLock(); C = threading.Condition()\n"
		"def hold():\n with L:\n  time.sleep(1e5)\n"
		"def wait():\n with L: pass\n"
		"def cond():\n with C: C.wait()\n"
		"def deep(n):\n return deep(n - 1) if n else time.sleep(1e5)\n"
		"f = open('/dev/null', 'w'); f.write('x' * 10)\n"
		"for g in (hold, wait, cond, lambda: deep(30)):\n"
		" threading.Thread(target=g, daemon=True).start()\n"
		"time.sleep(.2)\nprint('ready', flush=True)\ntime.sleep(1e5)\n";
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p = wg_add_process(f);
	struct wg_map *copy;
	struct wg_mem *m;
	char c, path[64];
	int fd[2];
	DIR *d;

	pages = calloc(MAX_PAGES, sizeof(*pages));
	keep = wg_arena_new();
	if (!pages || pipe(fd))
		exit(1);
	target = fork();
	if (!target) {
		dup2(fd[1], 1);
		execlp("/usr/bin/python3", "python3", "-c", script, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	if (read(fd[0], &c, 1) != 1) {
		fprintf(stderr, "SKIPPED: no /usr/bin/python3 to learn from\n");
		exit(0);
	}
	usleep(100000);
	snprintf(path, sizeof(path), "/proc/%d/task", target);
	d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (isdigit((unsigned char)e->d_name[0]) && nfirst < 64)
			first_reads[nfirst++] = (size_t)atoi(e->d_name);
	if (d)
		closedir(d);
	p->pid = target;
	m = wg_mem_open(f, p, -1);
	maps = wg_mem_maps(m, &nmaps);
	if (!nmaps) {
		fprintf(stderr, "SKIPPED: another process' memory cannot be read here\n");
		kill(target, SIGKILL);
		exit(0);
	}
	copy = wg_alloc(keep, nmaps * sizeof(*copy));
	memcpy(copy, maps, nmaps * sizeof(*copy));
	for (size_t i = 0; i < nmaps; i++)
		if (copy[i].path) {
			char *s = wg_alloc(keep, strlen(copy[i].path) + 1);

			strcpy(s, copy[i].path);
			copy[i].path = s;
		}
	maps = copy;
	wg_mem_close(m);
	wg_facts_free(f);
	run_once(); /* fetches every page that the readers want */
	kill(target, SIGKILL);
	waitpid(target, NULL, 0);
	target = 0;
	close(fd[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!pages)
		learn();
	nchanges = 0;
	for (; size >= 12 && nchanges < 4096; data += 12, size -= 12) {
		uint32_t w;

		memcpy(&w, data, 4);
		changes[nchanges].word = w % (uint32_t)(npages * 512);
		memcpy(&changes[nchanges].value, data + 4, 8);
		nchanges++;
	}
	run_once();
	return 0;
}

#ifndef WG_LIBFUZZER
static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t rnd(void)
{
	static uint64_t x = 0x2545f4914f6cdd1dull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

int main(int argc, char **argv)
{
	double end = now_s() + (argc > 1 ? atof(argv[1]) : 5), slowest = 0;
	uint64_t runs = 0, most = 0;

	learn();
	printf("%zu pages, %zu threads\n", npages, nfirst);
	while (now_s() < end) {
		double t = now_s();

		nchanges = 1 + rnd() % (rnd() % 8 ? 40 : 2000);
		for (size_t i = 0; i < nchanges; i++) {
			struct change *c = &changes[i];
			const struct page *p = &pages[rnd() % npages];
			uint64_t old;

			c->word = (uint32_t)(rnd() % (npages * 512));
			memcpy(&old, pages[c->word / 512].data + c->word % 512 * 8, 8);
			/* Words that mean something are those that are not zero. */
			for (int k = 0; !old && k < 20; k++) {
				c->word = (uint32_t)(rnd() % (npages * 512));
				memcpy(&old, pages[c->word / 512].data + c->word % 512 * 8, 8);
			}
			switch (rnd() % 6) {
			case 0:
				c->value = old ^ 1ull << rnd() % 64;
				break;
			case 1: /* another place that exists */
				c->value = p->addr + rnd() % 512 * 8;
				break;
			case 2: /* itself, or a neighbour: a cycle */
				c->value = pages[c->word / 512].addr + c->word % 512 * 8 -
					   rnd() % 16 * 8;
				break;
			case 3:
				c->value = rnd() % 3 ? UINT64_MAX >> rnd() % 40 : 0;
				break;
			case 4: /* a pointer seen elsewhere: the wrong kind of object */
				memcpy(&c->value, p->data + rnd() % 512 * 8, 8);
				break;
			default:
				c->value = old + (rnd() % 65) - 32;
			}
		}
		asked = 0;
		run_once();
		t = now_s() - t;
		if (t > slowest)
			slowest = t;
		if (asked > most)
			most = asked;
		runs++;
	}
	printf("%llu runs, slowest %.1f ms, most reads %llu\n", (unsigned long long)runs,
	       slowest * 1e3, (unsigned long long)most);
#ifdef __SANITIZE_ADDRESS__ /* and -O0: ten times as long for the same reads, which are what is bounded */
	slowest /= 10;
#endif
	if (slowest > 5) {
		fprintf(stderr, "a run took %.1f s\n", slowest);
		return 1;
	}
	return 0;
}
#endif
