/* SPDX-License-Identifier: Apache-2.0 */
/* elf_image.c - see elf_image.h. */
#include "elf_image.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHUNK 32768u
#define PAGE 4096u
#define MAX_PH 256
#define MAX_SH 65536
#define MAX_SYMS (8u << 20)
#define MAX_COPY (64ull << 20)
#define SORT_AFTER 12 /* look-ups that cost less one by one than sorting does */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

/* ---- opening and reading the file, on the thread that can be left behind --------- */

struct open_job {
	char root[64]; /* "/proc/PID/root", or "" */
	char path[4200];
	int fd, err;
	uint64_t dev, ino, size;
};

static void open_job(void *arg)
{
	struct open_job *j = arg;
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
	int root = -1, fd = -1;
	char link[64];
	struct stat st;

	j->fd = -1;
	if (j->root[0]) {
		/* The target's own symbolic links must not lead out of its root. */
		root = open(j->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0) {
			j->err = -errno;
			return;
		}
		fd = (int)syscall(SYS_openat2, root, j->path, &how, sizeof(how));
		if (fd < 0 && errno == ENOSYS)
			fd = openat(root, j->path[0] == '/' ? j->path + 1 : j->path,
				    O_PATH | O_NOFOLLOW | O_CLOEXEC);
	} else {
		fd = open(j->path, O_PATH | O_CLOEXEC);
	}
	j->err = fd < 0 ? -errno : 0;
	if (root >= 0)
		close(root);
	if (fd < 0)
		return;
	/* Look before opening: a device or a FIFO has effects when it is opened. */
	if (fstat(fd, &st)) {
		j->err = -errno;
	} else if (!S_ISREG(st.st_mode)) {
		j->err = -EINVAL;
	} else {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		j->fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		j->err = j->fd < 0 ? -errno : 0;
		j->dev = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev);
		j->ino = st.st_ino;
		j->size = (uint64_t)st.st_size;
	}
	close(fd);
}

static int open_slowly(struct wg_mem *m, const char *root, const char *path, uint64_t *dev,
		       uint64_t *ino, uint64_t *size)
{
	struct open_job *j = calloc(1, sizeof(*j));
	int fd, err;

	if (!j)
		return -ENOMEM;
	if (strlen(path) >= sizeof(j->path)) {
		free(j);
		return -ENAMETOOLONG;
	}
	snprintf(j->root, sizeof(j->root), "%s", root);
	strcpy(j->path, path);
	err = wg_mem_slow_call(m, open_job, j);
	if (err == -ETIMEDOUT)
		return err; /* j is not ours any more */
	fd = err ? err : j->err ? j->err : j->fd;
	*dev = j->dev;
	*ino = j->ino;
	*size = j->size;
	free(j);
	return fd;
}

struct read_job {
	int fd, got;
	uint64_t off;
	size_t n;
	char data[];
};

static void read_job(void *arg)
{
	struct read_job *j = arg;
	size_t done = 0;

	while (done < j->n) {
		ssize_t k = pread(j->fd, j->data + done, j->n - done, (off_t)(j->off + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			j->got = -errno;
			return;
		}
		if (!k)
			break;
		done += (size_t)k;
	}
	j->got = (int)done;
}

/* Up to n bytes (at most 16 MiB) at off into a buffer of its own. Bytes or -errno. */
static int read_slowly(struct wg_image *i, uint64_t off, size_t n, char **data)
{
	struct read_job *j;
	int err;

	if (i->dead)
		return -EIO;
	j = malloc(sizeof(*j) + n);
	if (!j)
		return -ENOMEM;
	*j = (struct read_job){ .fd = i->fd, .off = off, .n = n };
	/* What is in the page cache can be had without any risk of waiting, and mostly is. */
	{
		struct iovec v = { j->data, n };
		ssize_t k = preadv2(i->fd, &v, 1, (off_t)off, RWF_NOWAIT);

		if (k == (ssize_t)n || (k > 0 && off + (uint64_t)k == i->size)) {
			memmove(j, j->data, (size_t)k);
			*data = (char *)j;
			return (int)k;
		}
	}
	err = wg_mem_slow_call(i->m, read_job, j);
	if (err == -ETIMEDOUT) {
		i->dead = true;
		i->fd = -1; /* stays open: the thread left behind is in it */
		return err;
	}
	if (!err && j->got < 0)
		err = j->got;
	if (err) {
		free(j);
		return err;
	}
	err = j->got;
	memmove(j, j->data, (size_t)err);
	*data = (char *)j;
	return err;
}

static int chunk_of(struct wg_image *i, uint64_t off, const char **data, size_t *left)
{
	uint64_t no = off / CHUNK;
	size_t slot = (size_t)(no % (sizeof(i->chunk) / sizeof(i->chunk[0])));
	size_t o = (size_t)(off % CHUNK);

	if (i->chunk[slot].tag != no + 1) {
		char *fresh;
		int k = read_slowly(i, no * CHUNK, CHUNK, &fresh);

		if (k < 0)
			return k;
		free(i->chunk[slot].data);
		i->chunk[slot].data = fresh;
		i->chunk[slot].tag = no + 1;
		i->chunk[slot].len = (uint32_t)k;
	}
	if (i->chunk[slot].len <= o)
		return -ENODATA;
	*data = i->chunk[slot].data + o;
	*left = i->chunk[slot].len - o;
	return 0;
}

int wg_image_read(struct wg_image *i, uint64_t off, void *buf, size_t n)
{
	char *out = buf;

	if (off > i->size || n > i->size - off)
		return -ENODATA;
	if (i->copy) {
		memcpy(buf, i->copy + off, n);
		return 0;
	}
	if (i->fd < 0)
		return -EIO;
	while (n) {
		const char *d;
		size_t k;
		int err = chunk_of(i, off, &d, &k);

		if (err)
			return err;
		if (k > n)
			k = n;
		memcpy(out, d, k);
		out += k;
		off += k;
		n -= k;
	}
	return 0;
}

/* A NUL-ended string that lies before `end`, cut to the buffer. Length or -errno. */
int wg_image_str(struct wg_image *i, uint64_t off, uint64_t end, char *buf, size_t n)
{
	size_t done = 0;

	if (!n)
		return -EINVAL;
	buf[0] = 0;
	if (end > i->size)
		end = i->size;
	while (done < n - 1) {
		size_t part = n - 1 - done < 64 ? n - 1 - done : 64;
		char *z;
		int err;

		if (off >= end)
			return -EINVAL; /* not ended inside its table */
		if (part > end - off)
			part = (size_t)(end - off);
		err = wg_image_read(i, off, buf + done, part);
		if (err)
			return err;
		z = memchr(buf + done, 0, part);
		if (z)
			return (int)(z - buf);
		done += part;
		off += part;
	}
	buf[done] = 0;
	return (int)done;
}

/* A whole table in one buffer. NULL: not readable or too large. */
static void *read_table(struct wg_image *i, uint64_t off, uint64_t n)
{
	char *all, *part;
	uint64_t done = 0;

	if (!n || off > i->size || n > i->size - off || n > (uint64_t)MAX_SYMS * sizeof(Elf64_Sym))
		return NULL;
	if (!i->copy && n <= 4u << 20) {
		int k = read_slowly(i, off, (size_t)n, &part);

		if (k == (int)n)
			return part;
		if (k >= 0) /* the file has become shorter */
			free(part);
		return NULL;
	}
	all = malloc((size_t)n);
	if (!all)
		return NULL;
	if (i->copy) {
		memcpy(all, i->copy + off, (size_t)n);
		return all;
	}
	while (done < n) {
		size_t want = n - done < 4u << 20 ? (size_t)(n - done) : 4u << 20;
		int k = read_slowly(i, off + done, want, &part);

		if (k <= 0) {
			free(all);
			return NULL;
		}
		memcpy(all + done, part, (size_t)k);
		free(part);
		done += (uint64_t)k;
	}
	return all;
}

/* ---- headers --------------------------------------------------------------------- */

static void find_build_id(struct wg_image *i)
{
	for (size_t k = 0; k < i->nph && !i->build_id_len; k++) {
		uint64_t off = i->ph[k].p_offset, end = off + i->ph[k].p_filesz;

		if (i->ph[k].p_type != PT_NOTE || end < off || i->ph[k].p_filesz > 1u << 16)
			continue;
		while (off + sizeof(Elf64_Nhdr) <= end) {
			Elf64_Nhdr n;
			char name[4];
			uint64_t desc;

			if (wg_image_read(i, off, &n, sizeof(n)) || n.n_namesz > 4096 ||
			    n.n_descsz > 65536)
				break;
			off += sizeof(n);
			desc = off + ((n.n_namesz + 3u) & ~3u);
			if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && n.n_descsz &&
			    n.n_descsz <= sizeof(i->build_id) && !wg_image_read(i, off, name, 4) &&
			    !memcmp(name, "GNU", 4) &&
			    !wg_image_read(i, desc, i->build_id, n.n_descsz)) {
				i->build_id_len = n.n_descsz;
				break;
			}
			off = desc + ((n.n_descsz + 3u) & ~3u);
		}
	}
}

static int parse_headers(struct wg_image *i)
{
	Elf64_Ehdr *e = &i->eh;
	int err = wg_image_read(i, 0, e, sizeof(*e));

	if (err)
		return err;
	if (memcmp(e->e_ident, ELFMAG, SELFMAG) || e->e_ident[EI_CLASS] != ELFCLASS64 ||
	    e->e_ident[EI_DATA] != ELFDATA2LSB || e->e_machine != MACHINE)
		return -ENOEXEC;
	if (!e->e_phnum || e->e_phnum > MAX_PH || e->e_phentsize != sizeof(Elf64_Phdr))
		return -ENOEXEC;
	i->ph = calloc(e->e_phnum, sizeof(*i->ph));
	if (!i->ph)
		return -ENOMEM;
	err = wg_image_read(i, e->e_phoff, i->ph, e->e_phnum * sizeof(*i->ph));
	if (err)
		return err;
	i->nph = e->e_phnum;
	for (size_t k = 0; k < i->nph; k++)
		if (i->ph[k].p_type == PT_GNU_EH_FRAME && i->ph[k].p_filesz >= 12) {
			i->hdr_vaddr = i->ph[k].p_vaddr;
			i->hdr_size = i->ph[k].p_filesz;
		}
	find_build_id(i);
	return 0;
}

static void need_sections(struct wg_image *i)
{
	uint64_t n = i->eh.e_shnum;

	if (i->sh_tried)
		return;
	i->sh_tried = true;
	if (!i->eh.e_shoff || i->eh.e_shentsize != sizeof(Elf64_Shdr) || i->dead)
		return;
	if (!n) { /* extended numbering: the count stands in the first entry */
		Elf64_Shdr first;

		if (wg_image_read(i, i->eh.e_shoff, &first, sizeof(first)))
			return;
		n = first.sh_size;
	}
	if (!n || n > MAX_SH)
		return;
	i->sh = calloc((size_t)n, sizeof(*i->sh));
	if (!i->sh)
		return;
	if (wg_image_read(i, i->eh.e_shoff, i->sh, (size_t)n * sizeof(*i->sh))) {
		free(i->sh);
		i->sh = NULL;
		return;
	}
	i->nsh = (size_t)n;
}

const Elf64_Shdr *wg_image_section(struct wg_image *i, const char *name)
{
	uint64_t strndx;
	const Elf64_Shdr *str;
	char got[64];

	need_sections(i);
	if (!i->nsh)
		return NULL;
	strndx = i->eh.e_shstrndx == SHN_XINDEX ? i->sh[0].sh_link : i->eh.e_shstrndx;
	if (strndx >= i->nsh)
		return NULL;
	str = &i->sh[strndx];
	for (size_t k = 1; k < i->nsh; k++)
		if (i->sh[k].sh_name < str->sh_size &&
		    wg_image_str(i, str->sh_offset + i->sh[k].sh_name,
				 str->sh_offset + str->sh_size, got, sizeof(got)) >= 0 &&
		    !strcmp(got, name))
			return &i->sh[k];
	return NULL;
}

bool wg_image_offset(const struct wg_image *i, uint64_t vaddr, size_t n, bool ro, uint64_t *off)
{
	for (size_t k = 0; k < i->nph; k++) {
		const Elf64_Phdr *p = &i->ph[k];

		if (p->p_type != PT_LOAD || (ro && (p->p_flags & PF_W)))
			continue;
		if (vaddr >= p->p_vaddr && vaddr - p->p_vaddr < p->p_filesz &&
		    n <= p->p_filesz - (vaddr - p->p_vaddr)) {
			*off = p->p_offset + (vaddr - p->p_vaddr);
			return true;
		}
	}
	return false;
}

bool wg_image_bias(const struct wg_image *i, const struct wg_map *map, uint64_t *bias)
{
	const Elf64_Phdr *best = NULL;

	for (size_t k = 0; k < i->nph; k++) {
		const Elf64_Phdr *p = &i->ph[k];
		uint64_t from = p->p_offset & ~(uint64_t)(PAGE - 1);

		if (p->p_type != PT_LOAD || map->off < from ||
		    map->off >= p->p_offset + p->p_filesz)
			continue;
		/* Neighbouring segments can share a page of the file: the permissions tell. */
		if (!best || !!(p->p_flags & PF_X) == map->x)
			best = p;
	}
	if (!best)
		return false;
	*bias = map->lo - map->off + best->p_offset - best->p_vaddr;
	return !(*bias & (PAGE - 1));
}

/* ---- identity and opening ----------------------------------------------------------- */

static struct wg_image *image_new(struct wg_mem *m, const char *path)
{
	struct wg_image *i = calloc(1, sizeof(*i));

	if (!i)
		exit(70);
	i->m = m;
	i->fd = -1;
	i->path = path;
	return i;
}

static void set_fd(struct wg_image *i, int fd, uint64_t size)
{
	i->fd = fd;
	i->size = size;
}

static void drop_fd(struct wg_image *i)
{
	if (i->fd >= 0)
		close(i->fd);
	for (size_t k = 0; k < sizeof(i->chunk) / sizeof(i->chunk[0]); k++) {
		free(i->chunk[k].data);
		i->chunk[k].data = NULL;
		i->chunk[k].tag = 0;
	}
	i->fd = -1;
	i->size = 0;
}

/*
 * Is the open file what is mapped? Device and inode say so where they agree; they may
 * differ for the same file (overlayfs, btrfs), so the first mapped page decides then: it
 * holds the headers and mostly the build id.
 */
static bool same_file(struct wg_image *i, const struct wg_map *maps, size_t nmaps, uint64_t dev,
		      uint64_t ino)
{
	char there[PAGE], here[PAGE];

	if (dev == maps[0].dev && ino == maps[0].ino)
		return true;
	for (size_t k = 0; k < nmaps; k++) {
		if (maps[k].off || !maps[k].r || maps[k].w)
			continue;
		if (i->size < PAGE || wg_image_read(i, 0, here, PAGE) ||
		    wg_mem_read(i->m, maps[k].lo, there, PAGE))
			return false;
		return !memcmp(here, there, PAGE);
	}
	return false;
}

/* Lay what is mapped out by file offset: what the file was, as far as it is mapped. */
static int copy_memory(struct wg_image *i, const struct wg_map *maps, size_t nmaps)
{
	uint64_t end = 0;

	if (maps[0].path && !strcmp(maps[0].path, "[vdso]"))
		nmaps = 1;
	for (size_t k = 0; k < nmaps; k++) {
		uint64_t e = maps[k].off + (maps[k].hi - maps[k].lo);

		if (e < maps[k].off || e > MAX_COPY)
			return -EFBIG;
		if (e > end)
			end = e;
	}
	i->copy = calloc(1, end ? (size_t)end : 1);
	if (!i->copy)
		return -ENOMEM;
	i->size = end;
	for (size_t k = 0; k < nmaps; k++) {
		if (!maps[k].r)
			continue;
		/* Later maps of the same offset are the writable ones: keep the first. */
		for (uint64_t o = 0; o < maps[k].hi - maps[k].lo; o += PAGE) {
			char *to = i->copy + maps[k].off + o;

			if (k && maps[k].w && (to[0] || memcmp(to, to + 1, PAGE - 1)))
				continue;
			wg_mem_read_some(i->m, maps[k].lo + o, to, PAGE);
		}
	}
	return 0;
}

struct wg_image *wg_image_open(struct wg_mem *m, const struct wg_map *maps, size_t nmaps)
{
	struct wg_image *i = image_new(m, maps[0].path);
	uint64_t dev = 0, ino = 0, size = 0;
	char root[64], path[4300];
	bool found_other = false;

	i->dev = maps[0].dev;
	i->ino = maps[0].ino;
	for (int way = 0; way < 4 && i->path && i->path[0] == '/'; way++) {
		int fd;

		root[0] = 0;
		if (way < 2)
			snprintf(root, sizeof(root), "/proc/%d/root", wg_mem_task(m));
		if (way == 1 && !maps[0].deleted)
			continue; /* a name that really ends in " (deleted)" */
		if (way == 3)
			snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", wg_mem_task(m),
				 (unsigned long)maps[0].lo, (unsigned long)maps[0].hi);
		else
			snprintf(path, sizeof(path), "%s%s", i->path, way == 1 ? " (deleted)" : "");
		fd = open_slowly(m, root, path, &dev, &ino, &size);
		if (fd == -ETIMEDOUT)
			break;
		if (fd < 0)
			continue;
		set_fd(i, fd, size);
		/* map_files leads to the very file that is mapped: nothing to compare. */
		if (way == 3 || same_file(i, maps, nmaps, dev, ino))
			break;
		found_other = true;
		drop_fd(i);
	}
	if (i->fd < 0) {
		i->replaced = found_other || maps[0].deleted;
		if (copy_memory(i, maps, nmaps))
			i->dead = true;
	}
	if (!i->dead && parse_headers(i))
		i->dead = true;
	if (!i->dead && i->copy)
		wg_image_bias(i, &maps[0], &i->copy_bias);
	return i;
}

struct wg_image *wg_image_open_file(struct wg_mem *m, const char *path)
{
	struct wg_image *i = image_new(m, path);
	uint64_t dev, ino, size = 0;
	int fd = open_slowly(m, "", path, &dev, &ino, &size);

	if (fd >= 0)
		set_fd(i, fd, size);
	if (fd < 0 || parse_headers(i))
		i->dead = true;
	return i;
}

void wg_image_close(struct wg_image *i)
{
	if (!i)
		return;
	wg_image_close(i->debug);
	drop_fd(i);
	free(i->copy);
	free(i->ph);
	free(i->sh);
	if (!i->shared)
		free(i->syms);
	free(i);
}

/* The debug file that Debian and others install by build id. */
struct wg_image *wg_image_debug(struct wg_image *i)
{
	char root[64], path[200];
	size_t n;

	if (i->debug_tried || i->dead || i->build_id_len < 2)
		return i->debug;
	i->debug_tried = true;
	n = (size_t)snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%02x/", i->build_id[0]);
	for (size_t k = 1; k < i->build_id_len; k++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "%02x", i->build_id[k]);
	snprintf(path + n, sizeof(path) - n, ".debug");
	snprintf(root, sizeof(root), "/proc/%d/root", wg_mem_task(i->m));
	for (int way = 0; way < 2; way++) { /* the target's own, then ours */
		uint64_t dev, ino, size = 0;
		int fd = open_slowly(i->m, way ? "" : root, path, &dev, &ino, &size);
		struct wg_image *d;

		if (fd < 0)
			continue;
		d = image_new(i->m, i->path);
		set_fd(d, fd, size);
		d->debug_tried = true;
		if (!parse_headers(d) && d->build_id_len == i->build_id_len &&
		    !memcmp(d->build_id, i->build_id, i->build_id_len)) {
			i->debug = d;
			break;
		}
		wg_image_close(d);
	}
	return i->debug;
}

/* ---- functions ------------------------------------------------------------------------ */

/* The dynamic table's view, for images without sections: memory copies, sstrip. */
struct dynamic {
	uint64_t symtab, strtab, strsz, gnu_hash, hash;
};

static bool need_dynamic(struct wg_image *i, struct dynamic *d)
{
	memset(d, 0, sizeof(*d));
	for (size_t k = 0; k < i->nph; k++) {
		uint64_t off = i->ph[k].p_offset, n = i->ph[k].p_filesz / sizeof(Elf64_Dyn);

		if (i->ph[k].p_type != PT_DYNAMIC)
			continue;
		for (uint64_t e = 0; e < n && e < 1024; e++) {
			Elf64_Dyn y;
			uint64_t v;

			if (wg_image_read(i, off + e * sizeof(y), &y, sizeof(y)) ||
			    y.d_tag == DT_NULL)
				break;
			v = y.d_un.d_ptr;
			/* In memory ld.so has added the bias to addresses. */
			if (i->copy && y.d_tag != DT_STRSZ && i->copy_bias && v >= i->copy_bias)
				v -= i->copy_bias;
			if (y.d_tag == DT_SYMTAB)
				d->symtab = v;
			else if (y.d_tag == DT_STRTAB)
				d->strtab = v;
			else if (y.d_tag == DT_STRSZ)
				d->strsz = v;
			else if (y.d_tag == DT_GNU_HASH)
				d->gnu_hash = v;
			else if (y.d_tag == DT_HASH)
				d->hash = v;
		}
	}
	return d->symtab && d->strtab && wg_image_offset(i, d->symtab, 24, false, &d->symtab) &&
	       wg_image_offset(i, d->strtab, 1, false, &d->strtab) &&
	       (!d->gnu_hash || wg_image_offset(i, d->gnu_hash, 16, false, &d->gnu_hash)) &&
	       (!d->hash || wg_image_offset(i, d->hash, 8, false, &d->hash));
}

/* How many dynamic symbols there are: only the hash tables know. */
static uint64_t dynamic_count(struct wg_image *i, const struct dynamic *d)
{
	uint32_t h[4], top = 0, chain;
	uint64_t buckets, chains;

	if (d->hash && !wg_image_read(i, d->hash, h, 8))
		return h[1];
	if (!d->gnu_hash || wg_image_read(i, d->gnu_hash, h, sizeof(h)) || h[0] > MAX_SYMS)
		return 0;
	buckets = d->gnu_hash + 16 + (uint64_t)h[2] * 8;
	chains = buckets + (uint64_t)h[0] * 4;
	for (uint32_t b = 0; b < h[0]; b++) {
		uint32_t v;

		if (wg_image_read(i, buckets + (uint64_t)b * 4, &v, 4))
			return 0;
		if (v > top)
			top = v;
	}
	if (top < h[1])
		return h[1];
	do {
		if (wg_image_read(i, chains + (uint64_t)(top - h[1]) * 4, &chain, 4))
			return 0;
		top++;
	} while (!(chain & 1) && top < MAX_SYMS);
	return top;
}

static bool is_code(const struct wg_image *i, uint64_t vaddr)
{
	for (size_t k = 0; k < i->nph; k++)
		if (i->ph[k].p_type == PT_LOAD && (i->ph[k].p_flags & PF_X) &&
		    vaddr >= i->ph[k].p_vaddr && vaddr - i->ph[k].p_vaddr < i->ph[k].p_memsz)
			return true;
	return false;
}

/* Take the functions of a symbol table at `off` of `from` into i. */
static bool take_symbols(struct wg_image *i, struct wg_image *from, uint64_t off, uint64_t bytes,
			 uint64_t str_off, uint64_t str_size)
{
	uint64_t n = bytes / sizeof(Elf64_Sym);
	Elf64_Sym *raw;
	size_t k = 0;

	if (!n || n > MAX_SYMS)
		return false;
	raw = read_table(from, off, n * sizeof(*raw));
	if (!raw)
		return false;
	i->syms = malloc((size_t)n * sizeof(*i->syms));
	for (uint64_t s = 0; i->syms && s < n; s++) {
		unsigned int type = ELF64_ST_TYPE(raw[s].st_info);

		if (raw[s].st_shndx == SHN_UNDEF || !raw[s].st_size || !raw[s].st_name ||
		    raw[s].st_size > UINT32_MAX || raw[s].st_name >= str_size)
			continue;
		if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
			continue;
		if (!is_code(i, raw[s].st_value))
			continue;
		i->syms[k++] = (struct wg_sym){ raw[s].st_value, (uint32_t)raw[s].st_size,
						raw[s].st_name };
	}
	free(raw);
	if (!i->syms || !k) {
		free(i->syms);
		i->syms = NULL;
		return false;
	}
	i->nsyms = k;
	i->names = from;
	i->str_off = str_off;
	i->str_size = str_size;
	return true;
}

static bool take_section(struct wg_image *i, struct wg_image *from, uint32_t type)
{
	need_sections(from);
	for (size_t k = 1; k < from->nsh; k++) {
		const Elf64_Shdr *s = &from->sh[k], *str;

		if (s->sh_type != type || s->sh_entsize != sizeof(Elf64_Sym) ||
		    s->sh_link >= from->nsh)
			continue;
		str = &from->sh[s->sh_link];
		if (str->sh_offset > from->size ||
		    str->sh_size > from->size - str->sh_offset)
			continue;
		if (take_symbols(i, from, s->sh_offset, s->sh_size, str->sh_offset, str->sh_size))
			return true;
	}
	return false;
}

/*
 * Tables of functions by file, kept for as long as the reader runs: the ranks of a job map
 * the same libraries, and reading hundreds of thousands of symbols is what takes time.
 */
struct wg_symtab {
	uint64_t dev, ino, size;
	uint8_t build_id[64];
	size_t build_id_len;
	struct wg_sym *syms;
	size_t nsyms, nlookups;
	bool sorted, from_debug;
	uint64_t str_off, str_size;
};
#define MAX_TABLES 512
static struct wg_symtab tables[MAX_TABLES];
static size_t ntables;

static bool recall_symbols(struct wg_image *i)
{
	struct wg_image *from = i;

	for (size_t k = 0; k < ntables && i->ino && i->fd >= 0; k++) {
		struct wg_symtab *t = &tables[k];

		if (t->ino != i->ino || t->dev != i->dev || t->size != i->size ||
		    t->build_id_len != i->build_id_len ||
		    memcmp(t->build_id, i->build_id, t->build_id_len))
			continue;
		if (t->from_debug)
			from = wg_image_debug(i);
		if (!from)
			return false;
		i->shared = t;
		i->syms = t->syms;
		i->nsyms = t->nsyms;
		i->sorted = t->sorted;
		i->names = from;
		i->str_off = t->str_off;
		i->str_size = t->str_size;
		return true;
	}
	return false;
}

static void remember_symbols(struct wg_image *i)
{
	struct wg_symtab *t = &tables[ntables];

	/* What was read from memory, or never checked against a mapping, is not of this file. */
	if (!i->nsyms || !i->ino || i->fd < 0 || ntables == MAX_TABLES)
		return;
	*t = (struct wg_symtab){ .dev = i->dev, .ino = i->ino, .size = i->size,
		.build_id_len = i->build_id_len, .syms = i->syms, .nsyms = i->nsyms,
		.from_debug = i->names != i, .str_off = i->str_off, .str_size = i->str_size };
	memcpy(t->build_id, i->build_id, sizeof(t->build_id));
	i->shared = t;
	ntables++;
}

static void read_symbols(struct wg_image *i)
{
	struct wg_image *d;
	struct dynamic dy;

	if (take_section(i, i, SHT_SYMTAB))
		return;
	d = wg_image_debug(i);
	if (d && take_section(i, d, SHT_SYMTAB))
		return;
	if (take_section(i, i, SHT_DYNSYM))
		return;
	if (need_dynamic(i, &dy))
		take_symbols(i, i, dy.symtab, dynamic_count(i, &dy) * sizeof(Elf64_Sym), dy.strtab,
			     dy.strsz);
}

static void need_symbols(struct wg_image *i)
{
	if (i->syms_tried)
		return;
	i->syms_tried = true;
	if (i->dead || recall_symbols(i))
		return;
	read_symbols(i);
	remember_symbols(i);
}

static int sym_cmp(const void *a, const void *b)
{
	const struct wg_sym *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->size < y->size ? 1 : x->size > y->size ? -1 : 0; /* the tighter one last */
}

static bool covers(const struct wg_sym *s, uint64_t a)
{
	return a >= s->addr && a - s->addr < s->size;
}

/* How far a name is from what a person would call the function: lower is better. */
static int oddness(struct wg_image *i, const struct wg_sym *s)
{
	char name[256] = "";
	int n = 0;

	if (wg_image_str(i->names, i->str_off + s->name, i->str_off + i->str_size, name,
			 sizeof(name)) <= 0)
		return 1000;
	if (!strncmp(name, "_Z", 2) || !strncmp(name, "_R", 2))
		return 0;
	while (name[n] == '_')
		n++;
	if (!strncmp(name, "__GI_", 5) || strstr(name, "_alias_"))
		n += 10;
	return n;
}

bool wg_image_function(struct wg_image *i, uint64_t vaddr, struct wg_sym *out)
{
	const struct wg_sym *best = NULL;
	size_t lo = 0, hi, from = 0, to;
	int least = INT_MAX;

	need_symbols(i);
	to = i->nsyms;
	if (!i->nsyms)
		return false;
	/* A few look-ups in a table of millions cost less than sorting it. */
	if (i->shared) {
		i->nlookups = ++i->shared->nlookups;
		i->sorted = i->shared->sorted;
	} else {
		i->nlookups++;
	}
	if (!i->sorted && (i->nlookups > SORT_AFTER || i->nsyms < 4096)) {
		qsort(i->syms, i->nsyms, sizeof(*i->syms), sym_cmp);
		i->sorted = true;
		if (i->shared)
			i->shared->sorted = true;
	}
	if (!i->sorted) {
		for (size_t k = 0; k < i->nsyms; k++)
			if (covers(&i->syms[k], vaddr) &&
			    (!best || sym_cmp(&i->syms[k], best) > 0))
				best = &i->syms[k];
	} else {
		hi = i->nsyms;
		while (lo < hi) {
			size_t mid = (lo + hi) / 2;

			if (i->syms[mid].addr <= vaddr)
				lo = mid + 1;
			else
				hi = mid;
		}
		/* Functions do not nest, but hand-written ones overlap: look a little back. */
		for (size_t k = 0; k < 32 && k < lo && !best; k++)
			if (covers(&i->syms[lo - 1 - k], vaddr))
				best = &i->syms[lo - 1 - k];
	}
	if (!best)
		return false;
	*out = *best;
	/* Aliases of one function: all are true, one is what people know. */
	if (i->sorted) {
		from = (size_t)(best - i->syms);
		to = from + 1;
		while (from > 0 && i->syms[from - 1].addr == best->addr)
			from--;
	}
	for (size_t k = from; k < to; k++) {
		int odd;

		if (i->syms[k].addr != best->addr || i->syms[k].size != best->size)
			continue;
		odd = oddness(i, &i->syms[k]);
		if (odd < least) {
			least = odd;
			*out = i->syms[k];
		}
	}
	return true;
}

/* ---- exported symbols ------------------------------------------------------------------ */

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;

	for (; *s; s++)
		h = h * 33 + (unsigned char)*s;
	return h;
}

static bool is_export(struct wg_image *i, uint64_t symtab, uint64_t strtab, uint64_t strend,
		      uint64_t index, const char *name, uint64_t *vaddr, uint64_t *size)
{
	Elf64_Sym s;
	char got[256];

	if (wg_image_read(i, symtab + index * sizeof(s), &s, sizeof(s)) ||
	    s.st_shndx == SHN_UNDEF || wg_image_str(i, strtab + s.st_name, strend, got,
						    sizeof(got)) < 0 ||
	    strcmp(got, name))
		return false;
	*vaddr = s.st_value;
	*size = s.st_size;
	return true;
}

bool wg_image_export(struct wg_image *i, const char *name, uint64_t *vaddr, uint64_t *size)
{
	uint32_t h[4], hash = gnu_hash(name), at, chain;
	uint64_t bloom, buckets, chains, word, end, n;
	struct dynamic d;

	if (i->dead || !need_dynamic(i, &d))
		return false;
	end = d.strsz && d.strsz <= i->size ? d.strtab + d.strsz : i->size;
	if (!d.gnu_hash) {
		n = dynamic_count(i, &d);
		for (uint64_t k = 1; k < n && k < MAX_SYMS; k++)
			if (is_export(i, d.symtab, d.strtab, end, k, name, vaddr, size))
				return true;
		return false;
	}
	if (wg_image_read(i, d.gnu_hash, h, sizeof(h)) || !h[0] || !h[2])
		return false;
	bloom = d.gnu_hash + 16;
	buckets = bloom + (uint64_t)h[2] * 8;
	chains = buckets + (uint64_t)h[0] * 4;
	if (wg_image_read(i, bloom + hash / 64 % h[2] * 8, &word, 8) ||
	    !(word >> hash % 64 & word >> (h[3] < 32 ? hash >> h[3] : 0) % 64 & 1))
		return false;
	if (wg_image_read(i, buckets + (uint64_t)(hash % h[0]) * 4, &at, 4) || at < h[1])
		return false;
	for (uint32_t k = 0; k < 65536; k++, at++) {
		if (wg_image_read(i, chains + (uint64_t)(at - h[1]) * 4, &chain, 4))
			return false;
		if ((chain | 1) == (hash | 1) &&
		    is_export(i, d.symtab, d.strtab, end, at, name, vaddr, size))
			return true;
		if (chain & 1)
			return false;
	}
	return false;
}
