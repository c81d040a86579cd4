/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: io (IO_BLOCKED), hardware (HW_DRIVER), slow-not-hung (SLOW_IO_MMAP)
 * story: a checkpoint is written to, or a model read from, a file system that answers no more
 * proof: the file system is this program's own child (libfuse); at the operation named by the case it keeps the request,
 *        stops, dies (its descriptor lives on in another process) or waits for a lock of its own. flush_*: written data stays in
 *        the page cache (writeback_cache) and the daemon does not take it: the writer is throttled for its dirty pages
 * case: write_silent class=write-blocked hung=true culprit=pid needs=fuse,root
 * case: read_silent class=read-blocked hung=true culprit=pid needs=fuse,root
 * case: open_silent class=read-blocked|write-blocked hung=true culprit=pid needs=fuse,root
 * case: fsync_silent class=write-blocked hung=true culprit=pid needs=fuse,root
 * case: mmap_silent class=read-blocked hung=true culprit=pid needs=fuse,root
 * case: write_stopped class=stopped hung=true culprit=pid needs=fuse,root
 * case: read_dead class=peer-dead hung=true culprit=pid needs=fuse,root
 * case: write_locked class=lock-self hung=true culprit=pid needs=fuse,root
 * case: read_computing class=busy-cpu hung=false culprit=pid needs=fuse,root
 * case: rank_behind class=write-blocked hung=true culprit=pid needs=fuse,root
 * case: truncate_convoy class=write-blocked hung=true culprit=pid needs=fuse,root says=ckpt.bin
 * case: stat_silent class=read-blocked|write-blocked hung=true culprit=pid needs=fuse,root
 * case: flush_silent class=write-blocked hung=true culprit=pid needs=fuse,root settle=4
 * case: flush_slow class=progressing|idle|busy-cpu hung=false needs=fuse,root settle=4
 * case: flush_failed class=idle hung=false needs=fuse,root
 * case: read_slow class=progressing|idle|busy-cpu hung=false needs=fuse,root
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse_lowlevel.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "scenario.h"

#define SIZE (64L << 20)

static const char *kase;
static char zeros[1 << 20];

static bool on(const char *op)
{
	return !strncmp(kase, op, strlen(op)) || (!strcmp(op, "write") && !strcmp(kase, "rank_behind"));
}

/* What the daemon does with the request that the case names. True: the request is answered after all. */
static bool misbehave(const char *op)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	const char *how = strchr(kase, '_') + 1;

	if (!on(op))
		return true;
	if (!strcmp(how, "slow")) {
		usleep(20000);
		return true;
	}
	if (!strcmp(how, "stopped"))
		raise(SIGSTOP);
	if (!strcmp(how, "dead"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "computing"))
		burn();
	if (!strcmp(how, "locked")) {
		pthread_mutex_lock(&m);
		pthread_mutex_lock(&m);
	}
	return false; /* kept, and forgotten */
}

static void attributes(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = ino == 1 ? S_IFDIR | 0777 : S_IFREG | 0666;
	st->st_nlink = 1;
	st->st_size = ino == 1 ? 0 : SIZE;
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = 2, .attr_timeout = 100, .entry_timeout = 100 };

	if (on("stat"))
		e.attr_timeout = 0;
	(void)parent;
	(void)name;
	attributes(2, &e.attr);
	fuse_reply_entry(req, &e);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	attributes(ino, &st);
	if (ino == 1 || misbehave("stat"))
		fuse_reply_attr(req, &st, 100);
}

/* truncate() comes here with the inode's lock held, so that those behind wait for the lock. */
static void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what, struct fuse_file_info *fi)
{
	struct stat st;

	(void)attr;
	(void)what;
	(void)fi;
	attributes(ino, &st);
	if (misbehave("truncate"))
		fuse_reply_attr(req, &st, 100);
}

static void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if (misbehave("open"))
		fuse_reply_open(req, fi);
}

static void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	(void)off;
	(void)fi;
	if (misbehave("read") && misbehave("mmap"))
		fuse_reply_buf(req, zeros, size < sizeof(zeros) ? size : sizeof(zeros));
}

static void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	(void)buf;
	(void)off;
	(void)fi;
	if (!strcmp(kase, "flush_failed"))
		fuse_reply_err(req, EIO);
	else if (misbehave("write") && misbehave("flush"))
		fuse_reply_write(req, size);
}

/* The kernel keeps what is written, and brings it when it has to. */
static void fs_init(void *arg, struct fuse_conn_info *conn)
{
	(void)arg;
	if (on("flush"))
		conn->want |= FUSE_CAP_WRITEBACK_CACHE;
}

static void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	if (misbehave("fsync"))
		fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.init = fs_init,
	.lookup = fs_lookup,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.open = fs_open,
	.read = fs_read,
	.write = fs_write,
	.fsync = fs_fsync,
};

static void daemon_main(const char *dir, int up)
{
	char *argv[] = { (char *)"scenariofs", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_session *s = fuse_session_new(&args, &ops, sizeof(ops), NULL);

	if (!s || fuse_session_mount(s, dir))
		_exit(3);
	tell("cleanup_umount %s", dir);
	tell("culprit_pid %d", (int)getpid());
	if (strstr(kase, "dead") && fork() == 0)
		forever(); /* so that the connection does not end with the daemon */
	if (write(up, "x", 1) != 1)
		_exit(4);
	fuse_session_loop(s);
	_exit(0);
}

/* So much of it may be dirty at a time: else a machine of much memory takes all that is written here. */
static void few_dirty_pages(const char *dir)
{
	char path[128], text[16];
	struct stat st;
	int fd;

	if (stat(dir, &st))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/max_bytes", (unsigned int)(st.st_dev >> 8 & 0xfff),
		 (unsigned int)(st.st_dev & 0xff));
	fd = open(path, O_WRONLY); /* since 6.2; the share of the whole is small, too */
	snprintf(text, sizeof(text), "%d", 4 << 20);
	if (fd >= 0 && write(fd, text, strlen(text)) > 0)
		close(fd);
}

static int flushes(const char *dir, const char *path)
{
	int fd = open(path, O_RDWR), other = open(path, O_RDWR);

	few_dirty_pages(dir);
	if (fd < 0 || other < 0)
		return 5;
	if (!strcmp(kase, "flush_failed")) {
		/* Whoever syncs hears of it; this descriptor has not been told yet. */
		if (pwrite(fd, zeros, 4096, 0) != 4096 || !fsync(other) || errno != EIO)
			return 8;
		tell("failed_fd %d", fd);
		ready();
		forever();
	}
	ready();
	for (off_t at = 0;; at += (off_t)sizeof(zeros))
		if (pwrite(fd, zeros, sizeof(zeros), at % (SIZE * 64)) < 0)
			return 7;
}

static int use(const char *path)
{
	char *p;
	int fd;

	if (on("stat")) {
		struct stat st;

		return stat(path, &st);
	}
	fd = open(path, on("read") || on("mmap") ? O_RDONLY : O_RDWR);
	if (fd < 0)
		return 5;
	if (on("mmap")) {
		p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
		return p[SIZE / 2];
	}
	while (on("read"))
		if (pread(fd, zeros, 4096, (off_t)(rand() % (SIZE >> 12)) << 12) < 0)
			return 6;
	if (pwrite(fd, zeros, 4096, 0) < 0)
		return 7;
	return fsync(fd);
}

int main(int argc, char **argv)
{
	const char *work = getenv("SCENARIO_DIR");
	char dir[256], path[300], c;
	int up[2], status;
	pid_t pid;

	if (argc < 2 || !work || pipe(up))
		return 2;
	kase = argv[1];
	snprintf(dir, sizeof(dir), "%s/mnt", work);
	snprintf(path, sizeof(path), "%s/ckpt.bin", dir);
	mkdir(dir, 0777);
	if (fork() == 0)
		daemon_main(dir, up[1]);
	if (read(up[0], &c, 1) != 1)
		return 3;
	if (!strcmp(kase, "rank_behind")) { /* the launcher waits for the worker that writes */
		pid = fork();
		if (pid == 0)
			_exit(use(path));
		ready();
		return waitpid(pid, &status, 0) < 0;
	}
	if (!strcmp(kase, "truncate_convoy")) { /* three ranks save the same file; the last one is asked about */
		for (int i = 0; i < 2; i++) {
			if (fork() == 0)
				_exit(truncate(path, 0));
			usleep(200000);
		}
		ready();
		return truncate(path, 0);
	}
	if (on("flush"))
		return flushes(dir, path);
	ready();
	return use(path);
}
