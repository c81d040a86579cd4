// SPDX-License-Identifier: Apache-2.0
/* fake_user.c - a library linked with one release of the runtime. */
struct dim { unsigned int x, y, z; };
int cudaStreamQuery(void *stream);
int cudaLaunchKernel(const void *f, struct dim grid, struct dim block, void **args, unsigned long shared,
		     void *stream);

int user(void);
int user(void)
{
	volatile int r = cudaStreamQuery(0); /* volatile: not a jump, the caller's address shows */

	return r;
}

static void stub(void)
{
}

/* The compiler makes this a jump: only the function that is launched tells whose call it is. */
int launches(void);
int launches(void)
{
	struct dim one = { 1, 1, 1 };

	return cudaLaunchKernel((const void *)stub, one, one, 0, 0, 0);
}
