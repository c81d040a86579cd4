/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outfile.h - a result on the disk: written under another name and moved into place when it
 * is whole; what already stands there is kept unless the user insists.
 */
#ifndef WG_MEMORY_OUTFILE_H
#define WG_MEMORY_OUTFILE_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

struct wgm_outfile {
	FILE *out;	  /* stdout without a path */
	char *temporary;  /* NULL: stdout */
	const char *path;
};

/* 0, or -errno: -EEXIST when it is there and not `force`. */
int wgm_outfile_open(struct wgm_outfile *f, const char *path, bool force);
/* Moves it into place (whole), or takes it away. 0 or -errno. */
int wgm_outfile_close(struct wgm_outfile *f, bool whole);
const char *wgm_outfile_why(int err);

static inline int wg_exit_of_outfile(int err)
{
	return err == -EACCES || err == -EPERM || err == -EROFS ? 77 : err == -EEXIST ? 64 :
	       err == -ENOENT || err == -ENOTDIR ? 66 : 70;
}

#endif
