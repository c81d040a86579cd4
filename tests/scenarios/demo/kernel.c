/* SPDX-License-Identifier: Apache-2.0 */
/* kernel: training goes well until one kernel never ends; the sync polls at 100 % CPU. */
#include "demo.h"

int main(void)
{
	CUcontext context;
	CUfunction forward, bad;
	CUstream stream;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	forward = kernel("sleep_us_5000_forward");
	bad = kernel("spin_on_peer_flag");
	for (int step = 0;; step++) {
		for (int i = 0; i < 12; i++)
			launch(step == 20 && i == 4 ? bad : forward, stream);
		CHECK(cuStreamSynchronize(stream));
		printf("step %d\n", step);
		fflush(stdout);
	}
}
