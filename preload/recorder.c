// SPDX-License-Identifier: Apache-2.0
/*
 * recorder.c - the recorder file: made, filled with what stands at its head, reserved piece by
 * piece, and the threads' slots in it.
 *
 * The file is sparse and laid out for many threads and streams; pages are reserved before they are
 * touched (fallocate at the start, MADV_POPULATE_WRITE later), so that a full tmpfs is an error code
 * and not a SIGBUS. No descriptor is kept: a program that closes "all" of them must not close ours,
 * nor we write to what took its number.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "inflight.h"
#include "lifecycle.h"
#include "sys.h"
#include "text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE 4096ull
#define CHUNK 65536ull
#define THREADS 8192u
#define LEFT_OVER 32 /* files of processes that are gone: so many of the newest stay */

struct wgrec_header *wg_rec;

static const struct layout {
	enum wgrec_kind kind;
	uint32_t entry_size;
	uint32_t capacity, reserved; /* entries */
} layouts[] = {
	{ WGREC_NAMES, sizeof(struct wgrec_name), WG_FN_COUNT, WG_FN_COUNT },
	{ WGREC_THREADS, sizeof(struct wgrec_thread), THREADS, 64 },
	{ WGREC_DEVICES, sizeof(struct wgrec_device), 64, 64 },
	{ WGREC_STREAMS, sizeof(struct wgrec_stream), 1024, 32 },
	{ WGREC_POSITIONS, sizeof(uint32_t), 64 * 1024, 0 },
	{ WGREC_EVENTS, sizeof(struct wgrec_event), 16384, 0 },
	{ WGREC_COMMS, sizeof(struct wgrec_comm), 256, 0 },
	{ WGREC_FAILURES, sizeof(struct wgrec_failure), 32, 32 },
	{ WGREC_STRINGS, 1, 1 << 20, 32768 },
	{ WGREC_NOTES, sizeof(struct wgrec_note), 64, 64 },
	{ WGREC_ENV, 1, 65536, 0 },
	{ WGREC_ITEMS, sizeof(struct wgrec_item), 512 * WGREC_STREAM_ITEMS, 0 },
	{ WGREC_COLLS, sizeof(struct wgrec_coll), 256 * (WGREC_COMM_COLLS + WGREC_COMM_P2P), 0 },
	{ WGREC_PEERS, sizeof(struct wgrec_peer), 65536, 0 },
	{ WGREC_TASKS, sizeof(struct wgrec_task), THREADS, 0 },
};
#define SECTIONS (sizeof(layouts) / sizeof(layouts[0]))
_Static_assert(SECTIONS <= WGREC_MAX_SECTIONS, "header.sections");

static struct {
	uint64_t offset;
	_Atomic uint64_t reserved; /* bytes from offset on that may be touched */
} sections[SECTIONS];
static uint64_t file_size;
static uint32_t owner_pid;
static char file_path[64]; /* "" : a memfd */
static uint64_t file_dev, file_ino;

static int section_of(enum wgrec_kind kind)
{
	for (unsigned int i = 0; i < SECTIONS; i++)
		if (layouts[i].kind == kind)
			return (int)i;
	return -1;
}

void *wg_rec_section(enum wgrec_kind kind, uint64_t *capacity)
{
	struct wgrec_header *h = wg_rec;
	int i = section_of(kind);

	if (!h || i < 0) {
		if (capacity)
			*capacity = 0;
		return NULL;
	}
	if (capacity)
		*capacity = layouts[i].capacity;
	return (char *)h + sections[i].offset;
}

/* ---- reserving ------------------------------------------------------------------------- */

/* Kernels before 5.14: by name, if the name still leads to our file. */
static bool reserve_by_path(uint64_t offset, uint64_t bytes)
{
	struct stat st;
	bool ok = false;
	int fd;

	if (!file_path[0])
		return false;
	fd = wg_sys_open(file_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && st.st_dev == file_dev && st.st_ino == file_ino)
		ok = !wg_sys4(SYS_fallocate, fd, 0, offset, bytes);
	wg_sys1(SYS_close, fd);
	return ok;
}

static bool reserve(unsigned int i, uint64_t bytes)
{
	uint64_t have = sections[i].reserved, size = layouts[i].capacity * (uint64_t)layouts[i].entry_size;
	uint64_t from, to;
	long rc;

	if (bytes <= have)
		return true;
	if (bytes > size)
		return false;
	to = (bytes + CHUNK - 1) / CHUNK * CHUNK;
	if (to > size)
		to = size;
	from = (sections[i].offset + have) / PAGE * PAGE;
	rc = wg_sys3(SYS_madvise, (char *)wg_rec + from,
		     (sections[i].offset + to + PAGE - 1) / PAGE * PAGE - from, MADV_POPULATE_WRITE);
	if (rc == -EINVAL)
		rc = reserve_by_path(from, sections[i].offset + to - from) ? 0 : -ENOSPC;
	if (rc) {
		wg_note("no room in shared memory: the recorder file is full");
		return false;
	}
	while (have < to && !__atomic_compare_exchange_n((uint64_t *)&sections[i].reserved, &have, to,
							 false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return true;
}

bool wg_rec_use(enum wgrec_kind kind, uint64_t upto)
{
	struct wgrec_header *h = wg_rec;
	int i = section_of(kind);
	uint64_t *used, was;

	if (!h || i < 0 || upto > layouts[i].capacity || !reserve((unsigned int)i, upto * layouts[i].entry_size))
		return false;
	used = &h->sections[i].used;
	was = __atomic_load_n(used, __ATOMIC_RELAXED);
	while (was < upto && !__atomic_compare_exchange_n(used, &was, upto, false, __ATOMIC_RELEASE,
							  __ATOMIC_RELAXED))
		;
	return true;
}

/* ---- strings and notes --------------------------------------------------------------------- */

#define STRING_INDEX 16384u /* private: offsets of strings that are there already */
static uint32_t string_index[STRING_INDEX];
static uint64_t string_end;

uint32_t wg_rec_string(const char *s)
{
	char *base = wg_rec_section(WGREC_STRINGS, NULL);
	uint32_t h = 2166136261u;
	uint64_t at;
	size_t n;

	if (!base || !s || !*s)
		return 0;
	for (n = 0; s[n] && n < 1023; n++)
		h = (h ^ (unsigned char)s[n]) * 16777619u;
	h ^= h >> 15;
	for (uint32_t step = 0; step < 64; step++) {
		uint32_t *slot = &string_index[(h + step) % STRING_INDEX];
		uint32_t known = __atomic_load_n(slot, __ATOMIC_ACQUIRE), none = 0;

		if (known && !strncmp(base + known, s, n) && !base[known + n])
			return known;
		if (known)
			continue;
		at = __atomic_fetch_add(&string_end, n + 1, __ATOMIC_RELAXED);
		if (!wg_rec_use(WGREC_STRINGS, at + n + 1)) {
			__atomic_fetch_sub(&string_end, n + 1, __ATOMIC_RELAXED);
			return 0;
		}
		memcpy(base + at, s, n);
		base[at + n] = 0;
		/* Somebody else took this place meanwhile: two copies do no harm. */
		__atomic_compare_exchange_n(slot, &none, (uint32_t)at, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED);
		return (uint32_t)at;
	}
	return 0; /* the index is crowded */
}

static const char *known[64]; /* notes, by their place in the section */

void wg_note(const char *text)
{
	uint64_t capacity;
	struct wgrec_note *notes = wg_rec_section(WGREC_NOTES, &capacity);

	for (uint32_t i = 0; notes && i < capacity && i < 64; i++) {
		const char *none = NULL;

		if (__atomic_compare_exchange_n(&known[i], &none, text, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE)) {
			strncpy(notes[i].text, text, sizeof(notes[i].text) - 1);
			none = text;
			wg_rec_use(WGREC_NOTES, i + 1);
		}
		if (none != text && strcmp(none, text))
			continue;
		notes[i].last = wg_ticks();
		__atomic_fetch_add(&notes[i].count, 1, __ATOMIC_RELEASE);
		return;
	}
}

/* ---- who we are ------------------------------------------------------------------------------ */

static long read_file(const char *path, char *buf, size_t size)
{
	int fd = wg_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	long n, sum = 0;

	if (fd < 0)
		return fd;
	while ((size_t)sum + 1 < size && (n = wg_sys3(SYS_read, fd, buf + sum, size - 1 - (size_t)sum)) > 0)
		sum += n;
	wg_sys1(SYS_close, fd);
	buf[sum] = 0;
	return sum;
}

/* Field 22 of a /proc/PID/stat. The name in it may contain anything, also ") 1 2". */
static uint64_t start_ticks_in(const char *stat)
{
	const char *p = strrchr(stat, ')');

	for (int field = 2; p && field < 22; field++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	return p ? strtoull(p, NULL, 10) : 0;
}

static const struct {
	const char *rank, *world, *local;
} launchers[] = {
	{ "RANK", "WORLD_SIZE", "LOCAL_RANK" },
	{ "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID" },
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK" },
	{ "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" },
};

static int32_t env_number(const char *name)
{
	const char *s = getenv(name);
	int32_t v = 0;

	if (!s || !*s)
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || v > 100000000)
			return -1;
		v = v * 10 + (*s - '0');
	}
	return v;
}

static void find_rank(struct wgrec_header *h)
{
	struct wg_text t = wg_text(h->rank_source, sizeof(h->rank_source));

	h->rank = h->world = h->local_rank = -1;
	for (unsigned int i = 0; i < sizeof(launchers) / sizeof(launchers[0]) && h->rank < 0; i++) {
		h->rank = env_number(launchers[i].rank);
		if (h->rank < 0)
			continue;
		h->world = env_number(launchers[i].world);
		h->local_rank = env_number(launchers[i].local);
		wg_puts(&t, launchers[i].rank);
	}
}

static void fill_header(struct wgrec_header *h)
{
	struct utsname uts;
	struct wg_text t;
	struct stat st;
	char buf[4096];
	long n;

	h->version = WGREC_VERSION;
	h->min_version = WGREC_MIN_VERSION;
	h->endian = WGREC_ENDIAN;
	h->header_size = sizeof(*h);
	h->file_size = file_size;
	h->pid = owner_pid;
	h->ppid = (uint32_t)getppid();
	h->start_ticks = read_file("/proc/self/stat", buf, sizeof(buf)) > 0 ? start_ticks_in(buf) : 0;
	if (!stat("/proc/self/ns/pid", &st))
		h->pidns = st.st_ino;
	if (read_file("/proc/sys/kernel/random/boot_id", buf, sizeof(buf)) > 0) {
		buf[strcspn(buf, "\n")] = 0;
		t = wg_text(h->boot_id, sizeof(h->boot_id));
		wg_puts(&t, buf);
	}
	if (!uname(&uts)) {
		t = wg_text(h->host, sizeof(h->host));
		wg_puts(&t, uts.nodename);
	}
	find_rank(h);
	h->signal = wg_settings.signal;
	t = wg_text(h->dir, sizeof(h->dir));
	wg_puts(&t, wg_settings.dir);
	n = read_file("/proc/self/cmdline", buf, sizeof(buf));
	while (n > 0 && !buf[n - 1])
		n--;
	for (long i = 0; i < n; i++)
		if (!buf[i])
			buf[i] = ' ';
	t = wg_text(h->command, sizeof(h->command));
	if (n > 0)
		wg_putn(&t, buf, (size_t)n);
	h->nsections = SECTIONS;
	for (unsigned int i = 0; i < SECTIONS; i++)
		h->sections[i] = (struct wgrec_section){
			.kind = layouts[i].kind,
			.entry_size = layouts[i].entry_size,
			.offset = sections[i].offset,
			.capacity = layouts[i].capacity,
		};
	memcpy((char *)h + sections[section_of(WGREC_NAMES)].offset, wg_names, sizeof(wg_names));
	h->sections[section_of(WGREC_NAMES)].used = WG_FN_COUNT;
	h->sections[section_of(WGREC_DEVICES)].used = 64;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(h->magic, WGREC_MAGIC, sizeof(h->magic));
}

/* What decides how CUDA and NCCL behave. Nothing else of the environment: it may hold secrets. */
static void copy_env(void)
{
	static const char *const prefixes[] = {
		"CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "OMP_", "KMP_", "RANK=", "WORLD_SIZE=",
		"LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT=", "SLURM_PROCID=",
		"SLURM_LOCALID=", "SLURM_NTASKS=", "SLURM_JOB_ID=", "SLURM_STEP_ID=", "SLURM_NODEID=",
		"OMPI_COMM_WORLD_", "PMI_RANK=", "PMI_SIZE=", "NVIDIA_VISIBLE_DEVICES=", "GLOO_",
		"SIMGPU_", "PYTHONUNBUFFERED=", "TOKENIZERS_PARALLELISM=",
	};
	char *base = wg_rec_section(WGREC_ENV, NULL);
	uint64_t at = 0;

	for (char **e = environ; base && e && *e; e++)
		for (unsigned int i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
			size_t n = strlen(*e) + 1;

			if (strncmp(*e, prefixes[i], strlen(prefixes[i])))
				continue;
			if (n < 4096 && wg_rec_use(WGREC_ENV, at + n)) {
				memcpy(base + at, *e, n);
				at += n;
			}
			break;
		}
}

/* ---- the file --------------------------------------------------------------------------------- */

static void lay_out(void)
{
	uint64_t at = (sizeof(struct wgrec_header) + 63) / 64 * 64;

	for (unsigned int i = 0; i < SECTIONS; i++) {
		uint64_t size = layouts[i].capacity * (uint64_t)layouts[i].entry_size;
		bool alone = layouts[i].kind == WGREC_POSITIONS; /* pages that CUDA pins */

		if (alone)
			at = (at + PAGE - 1) / PAGE * PAGE;
		sections[i].offset = at;
		sections[i].reserved = layouts[i].reserved * (uint64_t)layouts[i].entry_size;
		at += size;
		at = alone ? (at + PAGE - 1) / PAGE * PAGE : (at + 63) / 64 * 64;
	}
	file_size = (at + PAGE - 1) / PAGE * PAGE;
}

/* The directory is ours alone, or it is not used. */
static int open_dir(char *path, size_t size)
{
	struct wg_text t = wg_text(path, size);
	struct stat st;
	int fd;

	wg_puts(&t, "/dev/shm/waitgraph-");
	wg_putu(&t, geteuid());
	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return -EPERM;
	}
	if (st.st_mode & 077)
		fchmod(fd, 0700);
	return fd;
}

struct left_over {
	uint64_t mtime;
	char name[40];
};

/* PID-START.rec of a process that is not there any more (seen from our own PID namespace). */
static bool is_left_over(int dir, const char *name, uint64_t pidns, uint64_t *mtime)
{
	struct wgrec_header h;
	char path[64], stat_line[1024], *end;
	unsigned long pid = strtoul(name, &end, 10);
	unsigned long long start;
	struct wg_text t = wg_text(path, sizeof(path));
	struct stat st;
	bool ours;
	int fd;

	if (*end != '-')
		return false;
	start = strtoull(end + 1, &end, 10);
	if (strcmp(end, ".rec"))
		return false;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	ours = !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       pread(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
	       !memcmp(h.magic, WGREC_MAGIC, sizeof(h.magic)) && h.pidns == pidns;
	close(fd);
	if (!ours)
		return false; /* another container's: whether that process lives is not ours to say */
	*mtime = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	wg_puts(&t, "/proc/");
	wg_putu(&t, pid);
	wg_puts(&t, "/stat");
	return read_file(path, stat_line, sizeof(stat_line)) <= 0 || start_ticks_in(stat_line) != start;
}

/* Of the files that were left behind the newest 32 stay (this one not counted). */
static void tidy(int dir, uint64_t pidns)
{
	struct left_over kept[LEFT_OVER];
	unsigned int n = 0;
	char buf[4096];
	long got;
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	while ((got = wg_sys3(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
		for (long at = 0; at < got;) {
			struct { /* linux_dirent64 */
				uint64_t ino;
				int64_t off;
				unsigned short length;
				unsigned char type;
				char name[];
			} *e = (void *)(buf + at);
			struct left_over here;
			unsigned int oldest = 0;

			at += e->length;
			if (strlen(e->name) >= sizeof(here.name) ||
			    !is_left_over(dir, e->name, pidns, &here.mtime))
				continue;
			strcpy(here.name, e->name);
			if (n < LEFT_OVER) {
				kept[n++] = here;
				continue;
			}
			for (unsigned int i = 1; i < n; i++)
				if (kept[i].mtime < kept[oldest].mtime)
					oldest = i;
			if (kept[oldest].mtime < here.mtime) {
				struct left_over swap = kept[oldest];

				kept[oldest] = here;
				here = swap;
			}
			unlinkat(dir, here.name, 0);
		}
	close(fd);
}

/*
 * The directory is everybody's: data loaders keep their batches there, and writing to a full one is
 * SIGBUS for whoever comes second. A small one is left alone, there is the memfd.
 */
static bool would_fill(int fd)
{
	struct statfs fs;
	uint64_t needed = PAGE;

	for (unsigned int i = 0; i < SECTIONS; i++)
		needed += sections[i].reserved;
	if (fstatfs(fd, &fs) || !fs.f_blocks)
		return false;
	return fs.f_bavail * (uint64_t)fs.f_bsize < needed + fs.f_blocks * (uint64_t)fs.f_bsize / 8;
}

static int reserve_at_start(int fd)
{
	if (ftruncate(fd, (off_t)file_size))
		return -errno;
	for (unsigned int i = 0; i < SECTIONS; i++) {
		uint64_t from = i ? sections[i].offset : 0; /* the header goes with the first */
		uint64_t to = sections[i].offset + sections[i].reserved;

		if (to > from && wg_sys4(SYS_fallocate, fd, 0, from, to - from))
			return -ENOSPC;
	}
	return 0;
}

static int create_on_tmpfs(void)
{
	char dir_path[48], name[48], stat_line[1024];
	struct wg_text t = wg_text(name, sizeof(name));
	struct stat st;
	uint64_t start = 0;
	int dir = open_dir(dir_path, sizeof(dir_path)), fd, rc;

	if (dir < 0)
		return dir;
	if (read_file("/proc/self/stat", stat_line, sizeof(stat_line)) > 0)
		start = start_ticks_in(stat_line);
	wg_putu(&t, owner_pid);
	wg_puts(&t, "-");
	wg_putu(&t, start);
	wg_puts(&t, ".rec");
	tidy(dir, stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino);
	fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST) {
		/* Same process, another program: what exec() left behind. */
		unlinkat(dir, name, 0);
		fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	}
	rc = fd < 0 ? -errno : would_fill(fd) ? -ENOSPC : reserve_at_start(fd);
	if (rc && fd >= 0) {
		close(fd);
		unlinkat(dir, name, 0);
	}
	close(dir);
	if (rc)
		return rc;
	t = wg_text(file_path, sizeof(file_path));
	wg_puts(&t, dir_path);
	wg_puts(&t, "/");
	wg_puts(&t, name);
	if (!fstat(fd, &st)) {
		file_dev = st.st_dev;
		file_ino = st.st_ino;
	}
	return fd;
}

static int create_in_memory(void)
{
	int fd = memfd_create("waitgraph-rec", MFD_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = reserve_at_start(fd);
	if (rc) {
		close(fd);
		return rc;
	}
	file_path[0] = 0;
	return fd;
}

int wg_recorder_create(void)
{
	struct rlimit limit;
	void *p;
	int fd;

	lay_out();
	/* Beyond this limit even ftruncate() raises SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < file_size)
		return -EFBIG;
	owner_pid = (uint32_t)wg_sys_pid();
	fd = create_on_tmpfs();
	if (fd < 0)
		fd = create_in_memory();
	if (fd < 0)
		return fd;
	p = mmap(NULL, file_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		int rc = -errno;

		close(fd);
		if (file_path[0])
			unlink(file_path);
		return rc;
	}
	/*
	 * A memfd must stay open to be found through /proc/PID/fd. Out of the way of programs that
	 * expect the lowest free number.
	 */
	if (!file_path[0]) {
		int high = fcntl(fd, F_DUPFD_CLOEXEC, 200);

		if (high >= 0)
			close(fd);
	} else {
		close(fd);
	}
	madvise(p, file_size, MADV_DONTFORK); /* a child must not write about its parent */
	memset(string_index, 0, sizeof(string_index));
	string_end = 1; /* offset 0 is "" */
	fill_header(p);
	wg_rec = p;
	copy_env();
	return 0;
}

void wg_recorder_flag(uint32_t set, uint32_t clear)
{
	struct wgrec_header *h = wg_rec;

	if (!h || owner_pid != (uint32_t)wg_sys_pid())
		return;
	__atomic_or_fetch(&h->flags, set, __ATOMIC_RELEASE);
	__atomic_and_fetch(&h->flags, ~clear, __ATOMIC_RELEASE);
}

/* At a normal end. Only the name goes: other threads may still be writing. */
void wg_recorder_remove(void)
{
	struct stat st;

	if (!wg_rec || !file_path[0] || owner_pid != (uint32_t)wg_sys_pid())
		return;
	if (!lstat(file_path, &st) && st.st_dev == file_dev && st.st_ino == file_ino)
		unlink(file_path);
}

/* ---- threads -------------------------------------------------------------------------------------- */

#define GONE 0x80000000u /* being looked at by the collector */
static uint32_t slot_tid[THREADS]; /* 0 free; private, so that nobody can lead us astray */
static uint32_t slots_used;
static uint64_t retired_calls;
static pthread_key_t exit_key;
static bool have_exit_key;

static void clear_slot(struct wgrec_thread *t)
{
	__atomic_store_n(&t->tid, 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(&retired_calls, t->calls_done, __ATOMIC_RELAXED);
	memset((char *)t + offsetof(struct wgrec_thread, depth), 0,
	       sizeof(*t) - offsetof(struct wgrec_thread, depth));
}

static struct wgrec_thread *take_slot(uint32_t tid)
{
	struct wgrec_thread *threads = wg_rec_section(WGREC_THREADS, NULL);
	uint32_t used = __atomic_load_n(&slots_used, __ATOMIC_ACQUIRE);

	if (!threads)
		return NULL;
	/* A thread of that number ended without a word: its slot is the one to take. */
	for (uint32_t i = 0; i < used; i++)
		if (__atomic_load_n(&slot_tid[i], __ATOMIC_RELAXED) == tid) {
			clear_slot(&threads[i]);
			return &threads[i];
		}
	for (uint32_t i = 0; i < THREADS; i++) {
		uint32_t none = 0;

		if (__atomic_load_n(&slot_tid[i], __ATOMIC_RELAXED) ||
		    !__atomic_compare_exchange_n(&slot_tid[i], &none, tid, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		if (!wg_rec_use(WGREC_THREADS, i + 1)) {
			__atomic_store_n(&slot_tid[i], 0, __ATOMIC_RELEASE);
			return NULL;
		}
		while (used < i + 1 && !__atomic_compare_exchange_n(&slots_used, &used, i + 1, false,
								    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			;
		return &threads[i];
	}
	return NULL;
}

struct wgrec_thread *wg_rec_thread(void)
{
	struct wg_thread *self = &wg_self;
	struct wgrec_thread *t;
	uint32_t tid;

	if (wg_likely(self->slot != NULL) || self->no_slot || !wg_rec)
		return self->slot;
	tid = (uint32_t)wg_sys_tid();
	t = take_slot(tid);
	if (!t) {
		self->no_slot = true;
		__atomic_fetch_add(&wg_rec->lost_threads, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	wg_sys5(SYS_prctl, PR_GET_NAME, t->name, 0, 0, 0);
	t->fsbase = (uint64_t)(uintptr_t)__builtin_thread_pointer();
	t->depth = 0;
	__atomic_store_n(&t->tid, tid, __ATOMIC_RELEASE);
	self->slot = t;
	self->device = WG_DEVICE_UNKNOWN;
	/*
	 * Told when the thread ends. Keys below 32 need no allocation; when ours is higher, the
	 * collector below finds out within a second instead.
	 */
	if (have_exit_key && exit_key < 32)
		pthread_setspecific(exit_key, t);
	wg_signal_hold();
	return t;
}

static void release(struct wgrec_thread *t)
{
	struct wgrec_thread *threads = wg_rec_section(WGREC_THREADS, NULL);
	uint64_t i = threads ? (uint64_t)(t - threads) : THREADS;

	if (i >= THREADS)
		return;
	clear_slot(t);
	__atomic_store_n(&slot_tid[i], 0, __ATOMIC_RELEASE);
}

void wg_thread_release(void)
{
	struct wgrec_thread *t = wg_self.slot;

	wg_self.slot = NULL;
	wg_self.depth = 0;
	if (t && wg_rec)
		release(t);
}

static void thread_ends(void *value)
{
	if (value && value == wg_self.slot && *wg_gate)
		wg_thread_release();
}

void wg_thread_key(void)
{
	if (!have_exit_key)
		have_exit_key = !pthread_key_create(&exit_key, thread_ends);
}

void wg_thread_gc(void)
{
	struct wgrec_thread *threads = wg_rec_section(WGREC_THREADS, NULL);
	uint32_t used = __atomic_load_n(&slots_used, __ATOMIC_ACQUIRE);
	int pid = wg_sys_pid();

	for (uint32_t i = 0; threads && i < used; i++) {
		uint32_t tid = __atomic_load_n(&slot_tid[i], __ATOMIC_ACQUIRE), marked = tid | GONE;

		if (!tid || (tid & GONE) || wg_sys3(SYS_tgkill, pid, tid, 0) != -ESRCH)
			continue;
		/* Marked first, asked again: a new thread may have got the number just now. */
		if (!__atomic_compare_exchange_n(&slot_tid[i], &tid, marked, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		if (wg_sys3(SYS_tgkill, pid, tid, 0) == -ESRCH) {
			clear_slot(&threads[i]);
			__atomic_store_n(&slot_tid[i], 0, __ATOMIC_RELEASE);
		} else {
			__atomic_store_n(&slot_tid[i], tid, __ATOMIC_RELEASE);
		}
	}
}

uint64_t wg_calls_done(void)
{
	struct wgrec_thread *threads = wg_rec_section(WGREC_THREADS, NULL);
	uint32_t used = __atomic_load_n(&slots_used, __ATOMIC_ACQUIRE);
	uint64_t sum = __atomic_load_n(&retired_calls, __ATOMIC_RELAXED);

	for (uint32_t i = 0; threads && i < used; i++)
		if (__atomic_load_n(&slot_tid[i], __ATOMIC_RELAXED))
			sum += __atomic_load_n(&threads[i].calls_done, __ATOMIC_RELAXED);
	return sum;
}

/* The mapping is not in the child (MADV_DONTFORK): only what pointed there is forgotten. */
void wg_recorder_fork_child(void)
{
	wg_rec = NULL;
	owner_pid = 0;
	file_path[0] = 0;
	memset(slot_tid, 0, sizeof(slot_tid[0]) * slots_used);
	slots_used = 0;
	retired_calls = 0;
	memset(known, 0, sizeof(known));
}
