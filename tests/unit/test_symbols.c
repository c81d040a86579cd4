/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, memory, ELF files and names; deadlines. */
#include "target.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "collect/deadline.h"
#include "collect/elf_image.h"

static struct target self(void)
{
	struct target t = { .pid = getpid(), .out = -1 };

	look_at(&t);
	return t;
}

static void end_self(struct target *t)
{
	t->pid = 0; /* not to be killed */
	end_target(t);
}

__attribute__((noinline)) static int known_function(int x)
{
	return x * 3 + getpid();
}

static void own_names(void **state)
{
	struct target t = self();
	uint64_t pc = (uint64_t)(uintptr_t)known_function;
	struct wg_frame fr;

	(void)state;
	assert_int_not_equal(known_function(1), 0);
	wg_symbols_frame(t.s, t.f, pc + 1, false, &fr);
	assert_string_equal(fr.symbol, "known_function");
	assert_int_equal(fr.offset, 1);
	assert_non_null(strstr(fr.module, "test_symbols"));
	/* As a return address the first byte belongs to what lies before. */
	wg_symbols_frame(t.s, t.f, pc, true, &fr);
	assert_true(!fr.symbol || strcmp(fr.symbol, "known_function"));
	/* Not code: the module and an offset, no name. */
	wg_symbols_frame(t.s, t.f, (uint64_t)(uintptr_t)stdout, false, &fr);
	assert_null(fr.symbol);
	wg_symbols_frame(t.s, t.f, 12345, false, &fr);
	assert_null(fr.symbol);
	assert_null(fr.module);
	wg_symbols_frame(t.s, t.f, UINT64_MAX - 5, false, &fr);
	assert_null(fr.symbol);
	end_self(&t);
}

static void exported(void **state)
{
	struct target t = self();
	void *list = dlsym(RTLD_DEFAULT, "_IO_list_all");

	(void)state;
	assert_non_null(list);
	assert_int_equal(wg_symbols_find(t.s, "libc.so", "_IO_list_all"), (uint64_t)(uintptr_t)list);
	assert_int_equal(wg_symbols_find(t.s, NULL, "_IO_list_all"), (uint64_t)(uintptr_t)list);
	assert_int_equal(wg_symbols_find(t.s, NULL, "no_such_symbol_anywhere"), 0);
	end_self(&t);
}

static void vdso(void **state)
{
	struct target t = self();
	uint64_t at = getauxval(AT_SYSINFO_EHDR);
	struct wg_image *i;
	const struct wg_map *x;
	uint64_t v, n;

	(void)state;
	if (!at) {
		print_message("SKIPPED: no vdso\n");
		skip();
	}
	x = wg_mem_map_at(t.m, at);
	assert_non_null(x);
	i = wg_image_open(t.m, x, 1);
	assert_false(i->dead);
	assert_true(wg_image_export(i, "__vdso_clock_gettime", &v, &n));
	wg_image_close(i);
	end_self(&t);
}

static void demangling(void **state)
{
	struct wg_facts *f = wg_facts_new();
	char bomb[2048] = "_Z1fPFviE";

	(void)state;
	assert_string_equal(wg_demangle(f, "main"), "main");
	if (!strcmp(wg_demangle(f, "_Z3fooi"), "_Z3fooi")) {
		print_message("SKIPPED: built without a demangler\n");
		wg_facts_free(f);
		skip();
	}
	assert_string_equal(wg_demangle(f, "_Z3fooi"), "foo(int)");
	assert_string_equal(wg_demangle(f, "_ZN5outer3barENSt7__cxx1112basic_stringIcSt11char_"
					   "traitsIcESaIcEEE"),
			    "outer::bar(std::__cxx11::basic_string<char, std::char_traits<char>, "
			    "std::allocator<char> >)");
	assert_string_equal(wg_demangle(f, "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
			    "core::fmt::Write::write_fmt");
	assert_string_equal(wg_demangle(f, "_RNvC6_123foo3bar"), "123foo::bar");
	assert_string_equal(wg_demangle(f, "_Znonsense"), "_Znonsense");
	/* Each parameter says the one before twice: the demangler must be stopped. */
	for (int i = 0; i < 60; i++) {
		static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
		char id[8], type[32];
		int k = 2 * i;

		if (k < 36)
			snprintf(id, sizeof(id), "%c", digit[k]);
		else
			snprintf(id, sizeof(id), "%c%c", digit[k / 36], digit[k % 36]);
		snprintf(type, sizeof(type), "PFvS%s_S%s_E", id, id);
		strcat(bomb, type);
	}
	assert_string_equal(wg_demangle(f, bomb), bomb);
	wg_facts_free(f);
}

static void maps_text(void **state)
{
	struct wg_arena *a = wg_arena_new();
	char text[] = "00400000-00401000 r-xp 00000000 08:01 42                 /a b\\012c\n"
		      "00500000-00501000 rw-s 00001000 00:05 7                  /dev/shm/x (deleted)\n"
		      "00500800-00502000 rw-p 00000000 00:00 0 \n"
		      "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0          [stack]\n"
		      "zzz-00401000 r-xp 0 0:0 0 /bad\n"
		      "00700000-00600000 r-xp 00000000 08:01 42                 /backwards\n"
		      "00300000-00301000 ---p 00000000 00:00 0 \n"
		      "00800000-00801000 r--p 0000";
	const struct wg_map *m;
	size_t n;

	(void)state;
	m = wg_maps_parse(a, text, sizeof(text) - 1, &n);
	assert_int_equal(n, 4);
	assert_int_equal(m[0].lo, 0x300000);
	assert_false(m[0].r);
	assert_string_equal(m[1].path, "/a b\nc");
	assert_int_equal(m[1].dev, 8ull << 20 | 1);
	assert_int_equal(m[1].ino, 42);
	assert_true(m[1].x && !m[1].w && !m[1].shared);
	assert_string_equal(m[2].path, "/dev/shm/x");
	assert_true(m[2].deleted && m[2].shared && m[2].w);
	assert_int_equal(m[2].off, 0x1000);
	assert_string_equal(m[3].path, "[stack]");
	wg_arena_free(a);
}

static void memory(void **state)
{
	struct target t = self();
	size_t n = 3 << 20;
	char *a = malloc(n), *b = malloc(n), small[16];
	char *hole = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *late;

	(void)state;
	for (size_t i = 0; i < n; i++)
		a[i] = (char)(i * 31 >> 3);
	assert_int_equal(wg_mem_read(t.m, (uint64_t)(uintptr_t)a, b, n), 0);
	assert_memory_equal(a, b, n);
	assert_int_equal(wg_mem_read_str(t.m, (uint64_t)(uintptr_t)"hello", small, sizeof(small)), 5);
	assert_int_equal(wg_mem_read_str(t.m, (uint64_t)(uintptr_t)"hello", small, 4), 3);
	assert_string_equal(small, "hel");
	/* Up to the edge of what is mapped, and not beyond. */
	munmap(hole + 8192, 4096);
	memset(hole, 'x', 8192);
	assert_int_equal(wg_mem_read_some(t.m, (uint64_t)(uintptr_t)hole + 8190, small, 8), 2);
	assert_true(wg_mem_read(t.m, (uint64_t)(uintptr_t)hole + 8190, small, 8) < 0);
	assert_int_equal(wg_mem_read(t.m, 8, small, 8), -EFAULT);
	assert_int_equal(wg_mem_read(t.m, UINT64_MAX - 3, small, 8), -EFAULT);
	/* What is mapped later is found; what changed is seen after forgetting. */
	usleep(60000);
	late = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	late[0] = 7;
	assert_int_equal(wg_mem_read(t.m, (uint64_t)(uintptr_t)late, small, 1), 0);
	assert_int_equal(small[0], 7);
	late[0] = 8;
	wg_mem_forget(t.m);
	assert_int_equal(wg_mem_read(t.m, (uint64_t)(uintptr_t)late, small, 1), 0);
	assert_int_equal(small[0], 8);
	munmap(late, 4096);
	munmap(hole, 8192);
	free(a);
	free(b);
	end_self(&t);
}

static int touched;
static int touch(void *arg, uint64_t addr, void *buf, size_t n)
{
	(void)arg;
	(void)addr;
	touched++;
	memset(buf, 0, n);
	return (int)n;
}

/* Registers of a device: reading them can have effects. */
static void devices_untouched(void **state)
{
	const struct wg_map maps[] = {
		{ .lo = 0x10000, .hi = 0x20000, .r = true, .path = "/dev/nvidia0", .ino = 3 },
		{ .lo = 0x20000, .hi = 0x30000, .r = true, .path = "/dev/shm/x", .ino = 4 },
		{ .lo = 0x30000, .hi = 0x40000, .r = true, .path = "anon_inode:[x]", .ino = 5 },
	};
	struct wg_mem *m = wg_mem_open_fake(maps, 3, 1, touch, NULL);
	char b[8];

	(void)state;
	assert_int_equal(wg_mem_read(m, 0x10008, b, 8), -EACCES);
	assert_int_equal(wg_mem_read(m, 0x1fff8, b, 8), -EACCES);
	assert_int_equal(wg_mem_read(m, 0x30000, b, 8), -EACCES);
	assert_int_equal(touched, 0);
	assert_int_equal(wg_mem_read(m, 0x20000, b, 8), 0);
	assert_int_equal(touched, 1);
	wg_mem_close(m);
}

static void copy(const char *from, const char *to)
{
	char cmd[4096];

	snprintf(cmd, sizeof(cmd), "cp %s %s", from, to);
	assert_int_equal(system(cmd), 0);
}

/* Every name that is given for a program whose file has been replaced or removed is right. */
static void replaced_file(void **state)
{
	char dir[] = "/tmp/wg-test-XXXXXX", path[64];
	const char *argv[] = { path, NULL };

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/program", dir);
	for (int way = 0; way < 2; way++) {
		struct target t;
		size_t named = 0;

		copy(TARGETS "waits-O0", path);
		assert_true(start_target(&t, argv));
		unlink(path);
		if (way)
			copy(TARGETS "buffers", path); /* another program under its name */
		look_at(&t);
		wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false);
		for (size_t i = 0; i < t.p->threads.n; i++) {
			const struct wg_thread *x = &t.p->threads.v[i];

			for (size_t k = 0; k < x->native_stack.n; k++) {
				const struct wg_frame *fr = &x->native_stack.v[k];

				if (!fr->symbol || !strstr(fr->module, "/program"))
					continue;
				named++;
				assert_true(!strcmp(fr->symbol, "leaf") || !strcmp(fr->symbol, "middle") ||
					    !strcmp(fr->symbol, "waiter") || !strcmp(fr->symbol, "main") ||
					    !strcmp(fr->symbol, "_start") ||
					    !strcmp(fr->symbol, "wait_in_compare") ||
					    !strcmp(fr->symbol, "sleep_on_word") ||
					    !strcmp(fr->symbol, "handler"));
			}
		}
		/* Root reaches the mapped file itself; others have what is in memory. */
		if (!geteuid())
			assert_true(named > 20);
		unlink(path);
		end_target(&t);
	}
	rmdir(dir);
}

/* A file cut short while it is read must cost names, not a signal. */
static void truncated_file(void **state)
{
	char path[] = "/tmp/wg-test-XXXXXX";
	struct target t = self();
	struct wg_image *i;
	struct wg_sym sym;
	uint64_t v, n;
	struct stat st;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	copy(TARGETS "waits-O0", path);
	assert_int_equal(fstat(fd, &st), 0);
	i = wg_image_open_file(t.m, path);
	assert_false(i->dead);
	assert_int_equal(ftruncate(fd, 4096), 0);
	wg_image_function(i, 0x1300, &sym);
	wg_image_export(i, "main", &v, &n);
	wg_image_section(i, ".debug_info");
	wg_image_debug(i);
	wg_image_close(i);
	assert_int_equal(ftruncate(fd, 10), 0);
	i = wg_image_open_file(t.m, path);
	assert_true(i->dead);
	wg_image_close(i);
	close(fd);
	unlink(path);
	i = wg_image_open_file(t.m, "/dev/zero");
	assert_true(i->dead); /* not a file */
	wg_image_close(i);
	end_self(&t);
}

static void for_ever(void *arg)
{
	(void)arg;
	sleep(1000);
}

static void at_once(void *arg)
{
	*(int *)arg = 7;
}

static void deadlines(void **state)
{
	struct wg_patient *p = NULL;
	double ms = now_ms();
	int v = 0;

	(void)state;
	assert_int_equal(wg_with_deadline(0.05, for_ever, NULL), -ETIMEDOUT);
	assert_int_equal(wg_with_deadline(5, at_once, &v), 0);
	assert_int_equal(v, 7);
	assert_int_equal(wg_patient_do(&p, 0.05, for_ever, NULL), -ETIMEDOUT);
	assert_null(p);
	for (int i = 0; i < 1000; i++) {
		v = 0;
		assert_int_equal(wg_patient_do(&p, 5, at_once, &v), 0);
		assert_int_equal(v, 7);
	}
	wg_patient_end(&p);
	assert_true(now_ms() - ms < 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_names),	cmocka_unit_test(exported),
		cmocka_unit_test(vdso),		cmocka_unit_test(demangling),
		cmocka_unit_test(maps_text),	cmocka_unit_test(memory),
		cmocka_unit_test(devices_untouched), cmocka_unit_test(replaced_file),
		cmocka_unit_test(truncated_file), cmocka_unit_test(deadlines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
