/* SPDX-License-Identifier: Apache-2.0 */
/* outfile.c - see outfile.h. */
#include "outfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int wgm_outfile_open(struct wgm_outfile *f, const char *path, bool force)
{
	struct stat st;
	int fd;

	f->path = path;
	f->temporary = NULL;
	f->out = stdout;
	if (!path)
		return 0;
	if (!lstat(path, &st) && !force)
		return -EEXIST;
	if (asprintf(&f->temporary, "%s.XXXXXX", path) < 0)
		abort();
	fd = mkstemp(f->temporary);
	if (fd < 0) {
		int err = -errno;

		free(f->temporary);
		return err;
	}
	f->out = fdopen(fd, "w");
	if (!f->out)
		abort();
	return 0;
}

int wgm_outfile_close(struct wgm_outfile *f, bool whole)
{
	mode_t mask = umask(0);
	int err = 0;

	umask(mask);
	if (fflush(f->out) || ferror(f->out))
		err = errno ? -errno : -EIO;
	if (!f->temporary)
		return err;
	fchmod(fileno(f->out), 0666 & ~mask);
	if (fclose(f->out) && !err)
		err = -errno;
	if (whole && !err && rename(f->temporary, f->path))
		err = -errno;
	if (!whole || err)
		unlink(f->temporary);
	free(f->temporary);
	return err;
}

const char *wgm_outfile_why(int err)
{
	return err == -EEXIST ? "is there already (-f replaces it)" : strerror(-err);
}
