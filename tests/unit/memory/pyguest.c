/* SPDX-License-Identifier: Apache-2.0 */
/* pyguest.c - the memory side as a library for ctypes: Python frames, as the recorder sees them. */
#include "../memory_guest.h"

int guest_begin(const char *dir);
int guest_frames(char *out, int room);
void guest_failing(unsigned long asked);
void guest_end(void);

int guest_begin(const char *dir)
{
	return guest_start(dir, 4u << 20);
}

int guest_frames(char *out, int room)
{
	struct wg_pyline lines[WGTR_PYFRAMES];
	int n = wg_python_take(lines, WGTR_PYFRAMES), at = 0;

	for (int i = 0; i < n && at < room; i++)
		at += snprintf(out + at, (size_t)(room - at), "%s:%u in %s\n", lines[i].file,
			       lines[i].line, lines[i].function);
	return n;
}

void guest_failing(unsigned long asked)
{
	guest_fail(0, WG_MEM_DEVICE, asked);
}

void guest_end(void)
{
	wg_mem_exit();
}
