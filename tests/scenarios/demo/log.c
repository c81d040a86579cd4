/* SPDX-License-Identifier: Apache-2.0 */
/* log: nothing is wrong. The log is silent because stdio keeps it until 4 KiB are full. */
#include "demo.h"

int main(void)
{
	CUcontext context;
	CUfunction forward;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	forward = kernel("sleep_us_40000_forward");
	for (int step = 0;; step++) {
		launch(forward, NULL);
		CHECK(cuCtxSynchronize());
		printf("step %d\n", step);
	}
}
