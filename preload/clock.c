// SPDX-License-Identifier: Apache-2.0
/*
 * clock.c - ticks and what they mean.
 *
 * Ticks are the processor's counter where it runs at one rate through all sleep states and on all
 * cores (x86-64: invariant TSC, and the kernel itself trusts it; aarch64: always), else
 * CLOCK_MONOTONIC in nanoseconds.
 */
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "inflight.h"
#include "lifecycle.h"
#include "sys.h"

bool wg_no_tsc;
uint64_t wg_long_wait = 300000; /* 100 us at 3 GHz until the rate is known */
static uint64_t mult;		/* ns = ticks * mult >> 32; 0: ticks are ns */
static struct wg_clock_sample origin;

uint64_t wg_mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t counter(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#else
	return wg_mono_ns();
#endif
}

uint64_t wg_ticks(void)
{
	return wg_likely(!wg_no_tsc) ? counter() : wg_mono_ns();
}

uint64_t wg_ticks_to_ns(uint64_t ticks)
{
	uint64_t m = __atomic_load_n(&mult, __ATOMIC_RELAXED);

	return m ? (uint64_t)(((unsigned __int128)ticks * m) >> 32) : ticks;
}

/* Both clocks at one moment: of some tries that in which the least time passed between. */
void wg_clock_sample(struct wg_clock_sample *s)
{
	uint64_t best = UINT64_MAX;
	struct timespec real;

	for (int i = 0; i < 8; i++) {
		uint64_t a = counter(), ns = wg_mono_ns(), b = counter();

		if (b - a >= best)
			continue;
		best = b - a;
		s->ticks = a + (b - a) / 2;
		s->mono_ns = ns;
	}
	clock_gettime(CLOCK_REALTIME, &real);
	s->real_ns = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
}

static bool counter_is_steady(void)
{
#if defined(__x86_64__)
	unsigned int a, b, c, d;
	char source[16] = "";
	int fd;

	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & (1u << 8)))
		return false;
	fd = wg_sys_open("/sys/devices/system/clocksource/clocksource0/current_clocksource", 0, 0);
	if (fd < 0)
		return true; /* a sandbox without /sys: the processor says so itself */
	wg_sys3(SYS_read, fd, source, sizeof(source) - 1);
	wg_sys1(SYS_close, fd);
	/* kvm-clock, Hyper-V and Xen derive theirs from the TSC; hpet and acpi_pm distrust it. */
	return strncmp(source, "hpet", 4) && strncmp(source, "acpi_pm", 7) &&
	       strncmp(source, "jiffies", 7);
#else
	return true;
#endif
}

static void publish(void)
{
	struct wgrec_header *h = wg_rec;

	__atomic_store_n(&wg_long_wait,
			 mult ? (uint64_t)(((unsigned __int128)100000 << 32) / mult) : 100000,
			 __ATOMIC_RELAXED);
	if (h)
		__atomic_store_n(&h->clock.mult, mult, __ATOMIC_RELEASE);
}

#if !defined(__aarch64__) /* which says its rate itself */
static void measure(const struct wg_clock_sample *from, const struct wg_clock_sample *to)
{
	uint64_t ticks = to->ticks - from->ticks, ns = to->mono_ns - from->mono_ns;

	if (ticks && ns)
		__atomic_store_n(&mult, (uint64_t)(((unsigned __int128)ns << 32) / ticks),
				 __ATOMIC_RELAXED);
}
#endif

void wg_clock_start(const struct wg_clock_sample *before)
{
	struct wgrec_header *h = wg_rec;

	if (!origin.mono_ns) {
		wg_no_tsc = !counter_is_steady();
		origin = *before;
#if defined(__aarch64__)
		uint64_t hz;

		__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
		mult = hz ? (uint64_t)(((unsigned __int128)1000000000u << 32) / hz) : 0;
#else
		struct wg_clock_sample now;

		/* cuInit takes long enough on a real driver; else half a millisecond is waited. */
		do
			wg_clock_sample(&now);
		while (!wg_no_tsc && now.mono_ns - origin.mono_ns < 500000);
		if (!wg_no_tsc)
			measure(&origin, &now);
#endif
	}
	if (h) {
		h->clock.tsc0 = wg_no_tsc ? origin.mono_ns : origin.ticks;
		h->clock.mono0_ns = origin.mono_ns;
		h->clock.real0_ns = origin.real_ns;
	}
	publish();
}

/* The longer the baseline, the better: asked from the helper thread. */
void wg_clock_improve(void)
{
#if defined(__x86_64__)
	struct wg_clock_sample now;

	if (wg_no_tsc)
		return;
	wg_clock_sample(&now);
	if (now.mono_ns - origin.mono_ns > 100000000u) {
		measure(&origin, &now);
		publish();
	}
#endif
}
