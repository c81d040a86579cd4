// SPDX-License-Identifier: Apache-2.0
/* reduce.c - the arithmetic. Narrow floats are reduced in single precision, as on the real one. */
#include <math.h>
#include <string.h>

#include "sim.h"

size_t sn_type_size(int type)
{
	switch (type) {
	case ncclInt8:
	case ncclUint8:
	case ncclFloat8e4m3:
	case ncclFloat8e5m2:
		return 1;
	case ncclFloat16:
	case ncclBfloat16:
		return 2;
	case ncclInt32:
	case ncclUint32:
	case ncclFloat32:
		return 4;
	default:
		return 8;
	}
}

/* A float of 1 sign bit, eb exponent bits and mb mantissa bits; e4m3 has no infinity. */
static float narrow_get(uint32_t v, int eb, int mb)
{
	int sign = (int)(v >> (eb + mb)) & 1, e = (int)(v >> mb) & ((1 << eb) - 1);
	int m = (int)v & ((1 << mb) - 1), bias = (1 << (eb - 1)) - 1;
	float f;

	if (e == (1 << eb) - 1 && (eb != 4 || m == 7))
		f = m ? NAN : INFINITY;
	else if (!e)
		f = ldexpf((float)m, 1 - bias - mb);
	else
		f = ldexpf((float)(m | (1 << mb)), e - bias - mb);
	return sign ? -f : f;
}

static uint32_t narrow_put(float f, int eb, int mb)
{
	uint32_t sign = signbit(f) ? 1u << (eb + mb) : 0;
	int bias = (1 << (eb - 1)) - 1, e, top = (1 << eb) - 1;
	float a = fabsf(f), scaled;
	long m;

	if (isnan(f))
		return sign | (uint32_t)(top << mb) | (uint32_t)((1 << mb) - 1);
	if (a == 0)
		return sign;
	if (isinf(f))
		return eb == 4 ? sign | 0x7e : sign | (uint32_t)(top << mb);
	frexpf(a, &e);
	e -= 1;
	if (e < 1 - bias)
		e = 1 - bias;
	scaled = ldexpf(a, mb - e);
	m = lrintf(scaled); /* to nearest, ties to even */
	if (m >= 2l << mb) {
		m >>= 1;
		e++;
	}
	if (eb == 4) {
		if (e + bias > top || (e + bias == top && m > (1l << mb) + 6))
			return sign | 0x7e;
	} else if (e + bias >= top) {
		return sign | (uint32_t)(top << mb);
	}
	if (m < 1l << mb)
		return sign | (uint32_t)m; /* subnormal */
	return sign | (uint32_t)((e + bias) << mb) | (uint32_t)(m - (1l << mb));
}

static float get16(const void *p, int type)
{
	uint16_t v;

	memcpy(&v, p, 2);
	return type == ncclFloat16 ? narrow_get(v, 5, 10) : narrow_get(v, 8, 7);
}

static void put16(void *p, int type, float f)
{
	uint16_t v = (uint16_t)(type == ncclFloat16 ? narrow_put(f, 5, 10) : narrow_put(f, 8, 7));

	memcpy(p, &v, 2);
}

static float get_narrow(const void *p, int type)
{
	uint8_t v = *(const uint8_t *)p;

	if (type == ncclFloat16 || type == ncclBfloat16)
		return get16(p, type);
	return type == ncclFloat8e4m3 ? narrow_get(v, 4, 3) : narrow_get(v, 5, 2);
}

static void put_narrow(void *p, int type, float f)
{
	if (type == ncclFloat16 || type == ncclBfloat16)
		put16(p, type, f);
	else
		*(uint8_t *)p = (uint8_t)(type == ncclFloat8e4m3 ? narrow_put(f, 4, 3)
								 : narrow_put(f, 5, 2));
}

#define COMBINE(a, b)                                                                              \
	(op == ncclProd	 ? (a) * (b)                                                               \
	 : op == ncclMax ? ((a) > (b) ? (a) : (b))                                                 \
	 : op == ncclMin ? ((a) < (b) ? (a) : (b))                                                 \
			 : (a) + (b))
#define LOOP(type_)                                                                                \
	for (uint64_t i = 0; i < n; i++)                                                           \
	((type_ *)acc)[i] = (type_)COMBINE(((type_ *)acc)[i], ((const type_ *)in)[i])

void sn_reduce(const struct ncclComm *c, void *acc, const void *in, uint64_t n, int type, int op)
{
	size_t z = sn_type_size(type);

	(void)c;
	switch (type) {
	case ncclInt8:
		LOOP(int8_t);
		break;
	case ncclUint8:
		LOOP(uint8_t);
		break;
	case ncclInt32:
		LOOP(int32_t);
		break;
	case ncclUint32:
		LOOP(uint32_t);
		break;
	case ncclInt64:
		LOOP(int64_t);
		break;
	case ncclUint64:
		LOOP(uint64_t);
		break;
	case ncclFloat32:
		LOOP(float);
		break;
	case ncclFloat64:
		LOOP(double);
		break;
	default:
		for (uint64_t i = 0; i < n; i++) {
			float a = get_narrow((uint8_t *)acc + i * z, type);
			float b = get_narrow((const uint8_t *)in + i * z, type);

			put_narrow((uint8_t *)acc + i * z, type, COMBINE(a, b));
		}
	}
}

/* Multiplies n elements; for ints the product is truncated. */
static void scale(void *p, uint64_t n, int type, double by)
{
	size_t z = sn_type_size(type);

	for (uint64_t i = 0; i < n; i++) {
		void *at = (uint8_t *)p + i * z;

		switch (type) {
		case ncclInt8:
			*(int8_t *)at = (int8_t)(*(int8_t *)at * by);
			break;
		case ncclUint8:
			*(uint8_t *)at = (uint8_t)(*(uint8_t *)at * by);
			break;
		case ncclInt32:
			*(int32_t *)at = (int32_t)(*(int32_t *)at * by);
			break;
		case ncclUint32:
			*(uint32_t *)at = (uint32_t)(*(uint32_t *)at * by);
			break;
		case ncclInt64:
			*(int64_t *)at = (int64_t)((double)*(int64_t *)at * by);
			break;
		case ncclUint64:
			*(uint64_t *)at = (uint64_t)((double)*(uint64_t *)at * by);
			break;
		case ncclFloat32:
			*(float *)at = (float)(*(float *)at * by);
			break;
		case ncclFloat64:
			*(double *)at *= by;
			break;
		default:
			put_narrow(at, type, (float)(get_narrow(at, type) * by));
		}
	}
}

static double scalar(const struct ncclComm *c, int op, int type)
{
	const void *p = c->redops[op - ncclNumOps].where;

	if (!c->redops[op - ncclNumOps].device)
		return c->redops[op - ncclNumOps].value;
	switch (type) { /* in device memory, read when the operation runs */
	case ncclInt8:
		return *(const int8_t *)p;
	case ncclUint8:
		return *(const uint8_t *)p;
	case ncclInt32:
		return *(const int32_t *)p;
	case ncclUint32:
		return *(const uint32_t *)p;
	case ncclInt64:
		return (double)*(const int64_t *)p;
	case ncclUint64:
		return (double)*(const uint64_t *)p;
	case ncclFloat32:
		return (double)*(const float *)p;
	case ncclFloat64:
		return *(const double *)p;
	default:
		return (double)get_narrow(p, type);
	}
}

/* What a rank puts on the table: its data, multiplied where the operation says so. */
void sn_reduce_begin(const struct ncclComm *c, void *acc, const void *in, uint64_t n, int type,
		     int op)
{
	memcpy(acc, in, n * sn_type_size(type));
	if (op >= ncclNumOps)
		scale(acc, n, type, scalar(c, op, type));
}

void sn_reduce_end(const struct ncclComm *c, void *acc, uint64_t n, int type, int op)
{
	if (op != ncclAvg)
		return;
	if (type == ncclInt8 || type == ncclUint8 || (type >= ncclInt32 && type <= ncclUint64)) {
		for (uint64_t i = 0; i < n; i++) {
			switch (type) {
			case ncclInt8:
				((int8_t *)acc)[i] = (int8_t)(((int8_t *)acc)[i] / c->ranks);
				break;
			case ncclUint8:
				((uint8_t *)acc)[i] = (uint8_t)(((uint8_t *)acc)[i] / c->ranks);
				break;
			case ncclInt32:
				((int32_t *)acc)[i] /= c->ranks;
				break;
			case ncclUint32:
				((uint32_t *)acc)[i] /= (uint32_t)c->ranks;
				break;
			case ncclInt64:
				((int64_t *)acc)[i] /= c->ranks;
				break;
			default:
				((uint64_t *)acc)[i] /= (uint64_t)c->ranks;
			}
		}
	} else {
		scale(acc, n, type, 1.0 / c->ranks);
	}
}
