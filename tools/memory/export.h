/* SPDX-License-Identifier: Apache-2.0 */
/* export.h - traces in the forms of other tools. One function a form, one file a family. */
#ifndef WG_MEMORY_EXPORT_H
#define WG_MEMORY_EXPORT_H

#include <stdio.h>

#include "print.h"

struct wgm_form {
	const char *name, *what;
	bool binary;	/* not for a terminal */
	bool own_file;	/* writes to a path itself (SQLite) */
	/* 0 or -errno. path: of own_file forms, else NULL; at_end: folded stacks of the end. */
	int (*write)(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool at_end);
};
extern const struct wgm_form wgm_forms[];
const struct wgm_form *wgm_form_find(const char *name);

int wgm_write_perfetto(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end);
int wgm_write_folded(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end);
int wgm_write_csv(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end);
int wgm_write_openmetrics(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end);
int wgm_write_memory_viz(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end);
#ifdef WG_HAVE_SQLITE
int wgm_write_sqlite(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end);
#endif

#endif
