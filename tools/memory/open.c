/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - the traces that a command line names. */
#include "print.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int code_of(int err)
{
	switch (-err) {
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case ENXIO:
		return 66;
	case EACCES:
	case EPERM:
		return 77;
	default:
		return 65;
	}
}

static int add(const char *verb, const char *path, struct wgm_analysis ***all, size_t *n,
	       struct wgm_analysis *(*analyse)(struct wgm_trace *))
{
	struct wgm_analysis *a, **more;
	struct wgm_trace *t;
	char why[320];
	int err = wgm_trace_open(path, &t, why, sizeof(why));

	if (err) {
		fprintf(stderr, "waitgraph %s: %s: %s\n", verb, path, why);
		return code_of(err);
	}
	a = analyse(t);
	if (!a) {
		fprintf(stderr, "waitgraph %s: %s: %s\n", verb, path, t->why);
		wgm_trace_close(t);
		return 65;
	}
	more = realloc(*all, (*n + 1) * sizeof(*more));
	if (!more)
		abort();
	more[(*n)++] = a;
	*all = more;
	return 0;
}

static int is_trace(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 6 && !strcmp(d->d_name + n - 6, ".trace");
}

int wgm_open_all(const char *verb, char **paths, int n, struct wgm_analysis ***all, size_t *count,
		 struct wgm_analysis *(*analyse)(struct wgm_trace *))
{
	int worst = 0, code;

	*all = NULL;
	*count = 0;
	for (int i = 0; i < n; i++) {
		struct dirent **names;
		struct stat st;
		int found;

		if (stat(paths[i], &st) || !S_ISDIR(st.st_mode)) {
			code = add(verb, paths[i], all, count, analyse);
			worst = code ? code : worst;
			continue;
		}
		found = scandir(paths[i], &names, is_trace, alphasort);
		if (found < 0) {
			fprintf(stderr, "waitgraph %s: %s: %s\n", verb, paths[i], strerror(errno));
			worst = code_of(-errno);
			continue;
		}
		if (!found) {
			fprintf(stderr, "waitgraph %s: %s: no *.trace in this directory\n", verb,
				paths[i]);
			worst = worst ? worst : 66;
		}
		for (int k = 0; k < found; k++) {
			char *path;

			if (asprintf(&path, "%s/%s", paths[i], names[k]->d_name) < 0)
				abort();
			code = add(verb, path, all, count, analyse);
			worst = code ? code : worst;
			free(path);
			free(names[k]);
		}
		free(names);
	}
	wgm_join(*all, *count);
	return worst;
}

void wgm_close_all(struct wgm_analysis **all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		wgm_trace_close(all[i]->t);
	free(all);
	wgm_objects_close();
}
