/* SPDX-License-Identifier: Apache-2.0 */
/* kallsyms.c - names of kernel functions from /proc/kallsyms, kept compact. */
#include "kallsyms.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RELOAD_S 30	   /* not more often for addresses that nothing covers */
#define LARGEST (1 << 20) /* bytes: no function is larger, what lies further off is not covered */
#define MOST_NAMES (64u << 20)

struct symbol {
	uint64_t addr;
	uint32_t name; /* offset in names; "name" or "name [module]" */
};

struct wg_kallsyms {
	struct symbol *v;
	size_t n, cap;
	char *names;
	size_t len, room;
	time_t loaded;
	pthread_mutex_t lock;
};

static int by_addr(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int add(struct wg_kallsyms *k, uint64_t addr, const char *name, const char *module)
{
	size_t n = strlen(name) + (module ? strlen(module) + 3 : 0) + 1;

	if (k->n == k->cap) {
		size_t cap = k->cap ? k->cap + k->cap / 4 : 1 << 16;
		struct symbol *v = realloc(k->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		k->v = v;
		k->cap = cap;
	}
	if (k->len + n > k->room) {
		size_t room = k->room ? k->room + k->room / 4 : 1 << 20;
		char *names = room <= MOST_NAMES ? realloc(k->names, room) : NULL;

		if (!names)
			return -ENOMEM;
		k->names = names;
		k->room = room;
	}
	k->v[k->n].addr = addr;
	k->v[k->n++].name = (uint32_t)k->len;
	k->len += (size_t)sprintf(k->names + k->len, module ? "%s [%s]" : "%s", name, module) + 1;
	return 0;
}

static int load(struct wg_kallsyms *k)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[512];
	int seen = 0;

	if (!f)
		return -errno;
	k->n = k->len = 0;
	while (fgets(line, sizeof(line), f)) {
		char type, name[256], module[128];
		unsigned long long addr;
		int got = sscanf(line, "%llx %c %255s [%127[^]]]", &addr, &type, name, module);

		/* Text only; the padding before functions is nobody's frame. */
		if (got < 3 || !strchr("tTwW", type) || !addr || !strncmp(name, "__pfx_", 6))
			continue;
		seen = 1;
		if (add(k, addr, name, got == 4 ? module : NULL))
			break;
	}
	fclose(f);
	qsort(k->v, k->n, sizeof(*k->v), by_addr);
	k->loaded = time(NULL);
	return seen ? 0 : -EPERM;
}

struct wg_kallsyms *wg_kallsyms_open(int *hidden)
{
	struct wg_kallsyms *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	pthread_mutex_init(&k->lock, NULL);
	*hidden = load(k) != 0;
	return k;
}

void wg_kallsyms_close(struct wg_kallsyms *k)
{
	if (!k)
		return;
	pthread_mutex_destroy(&k->lock);
	free(k->v);
	free(k->names);
	free(k);
}

static const struct symbol *find(const struct wg_kallsyms *k, uint64_t addr)
{
	size_t lo = 0, hi = k->n;

	while (lo < hi) { /* the first beyond addr */
		size_t mid = lo + (hi - lo) / 2;

		if (k->v[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || addr - k->v[lo - 1].addr > LARGEST)
		return NULL;
	/* Of several names for one address the first that was listed, as the kernel prefers. */
	while (lo > 1 && k->v[lo - 2].addr == k->v[lo - 1].addr)
		lo--;
	return &k->v[lo - 1];
}

int wg_kallsyms_name(struct wg_kallsyms *k, uint64_t addr, char *out, size_t n)
{
	const struct symbol *s;

	out[0] = 0;
	pthread_mutex_lock(&k->lock);
	s = find(k, addr);
	if (!s && k->n && time(NULL) - k->loaded > RELOAD_S) {
		load(k);
		s = find(k, addr);
	}
	if (s)
		snprintf(out, n, "%s", k->names + s->name);
	pthread_mutex_unlock(&k->lock);
	return s ? 0 : -ENOENT;
}
