/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.h - system calls that touch neither errno nor anything else of libc.
 *
 * For signal handlers, forked and cloned children (which may share their parent's thread-local
 * memory), and wherever errno belongs to the program. Result or -errno.
 */
#ifndef WG_SYS_H
#define WG_SYS_H

#include <stdint.h>
#include <sys/syscall.h>

#define WG_SYS_ARG(x) ((long)(x))

static inline long wg_sys6(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
#error "a machine without system calls here"
#endif
}

#define wg_sys0(n) wg_sys6(n, 0, 0, 0, 0, 0, 0)
#define wg_sys1(n, a) wg_sys6(n, WG_SYS_ARG(a), 0, 0, 0, 0, 0)
#define wg_sys2(n, a, b) wg_sys6(n, WG_SYS_ARG(a), WG_SYS_ARG(b), 0, 0, 0, 0)
#define wg_sys3(n, a, b, c) wg_sys6(n, WG_SYS_ARG(a), WG_SYS_ARG(b), WG_SYS_ARG(c), 0, 0, 0)
#define wg_sys4(n, a, b, c, d)                                                                     \
	wg_sys6(n, WG_SYS_ARG(a), WG_SYS_ARG(b), WG_SYS_ARG(c), WG_SYS_ARG(d), 0, 0)
#define wg_sys5(n, a, b, c, d, e)                                                                  \
	wg_sys6(n, WG_SYS_ARG(a), WG_SYS_ARG(b), WG_SYS_ARG(c), WG_SYS_ARG(d), WG_SYS_ARG(e), 0)

#define WG_AT_FDCWD (-100)
static inline int wg_sys_open(const char *path, int flags, int mode)
{
	return (int)wg_sys4(SYS_openat, WG_AT_FDCWD, path, flags, mode);
}

static inline int wg_sys_pid(void)
{
	return (int)wg_sys0(SYS_getpid);
}

static inline int wg_sys_tid(void)
{
	return (int)wg_sys0(SYS_gettid);
}

/* Signal sets as the kernel has them: 64 bits, signal s at bit s - 1. */
static inline uint64_t wg_sys_mask(int how, uint64_t set)
{
	uint64_t old = 0;

	wg_sys4(SYS_rt_sigprocmask, how, &set, &old, 8);
	return old;
}

static inline uint64_t wg_sys_mask_now(void)
{
	uint64_t old = 0;

	wg_sys4(SYS_rt_sigprocmask, 0, 0, &old, 8);
	return old;
}

/* Everything but what libc uses between its threads (setuid and cancellation): 32 and 33. */
#define WG_MASK_ALL (~(3ull << 31))

#endif
