/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gated activations and both gradients, dense and in packed rows, against the kernels of the
 * activations and single products, in f32, f16 and bf16.
 */
#include "tests/kernels/kernel_check.h"

typedef struct gate {
	srt_kernel_id_t glu, glu_backward;
	srt_kernel_id_t act, act_backward;
} gate_t;

static const gate_t gates[] = {
	{ SRT_K_GLU_SILU, SRT_K_GLU_SILU_BACKWARD, SRT_K_SILU, SRT_K_SILU_BACKWARD },
	{ SRT_K_GLU_GELU_TANH, SRT_K_GLU_GELU_TANH_BACKWARD, SRT_K_GELU_TANH,
	  SRT_K_GELU_TANH_BACKWARD },
	{ SRT_K_GLU_GELU_ERF, SRT_K_GLU_GELU_ERF_BACKWARD, SRT_K_GELU_ERF,
	  SRT_K_GELU_ERF_BACKWARD },
};

/* One element by an activation's own kernel: of x, or the gradient from dy = a at x = b. */
static float eval(srt_kernel_id_t kernel, float a, float b)
{
	const srt_k_elem_t args = { .nelem = 1 };
	float y;
	unsigned char *places[3] = { (unsigned char *)&y, (unsigned char *)&a,
				     (unsigned char *)&b };

	srt_kernel_cpu(kernel, SRT_F32, SRT_ISA_BASELINE)(places, &args, 0, 1);
	return y;
}

typedef struct glu {
	srt_dtype_t dtype;
	const gate_t *gate;
	int64_t rows, n, ld; /* ld: from a row to the next of all but y and dy */
	float *g, *u, *dy;
	float *old, *want, *want2;
} glu_t;

static float *make(const glu_t *t, int64_t ld)
{
	float *x = kc_floats(t->rows * ld, kc_hard);

	kc_round(t->dtype, x, t->rows * ld);
	return x;
}

static void check_forward(const glu_t *t, int in_place)
{
	const srt_k_glu_t args = { .rows = t->rows, .n = t->n, .ldg = t->ld, .ldu = t->ld };

	for (int64_t i = 0; i < t->rows * t->n; i++) {
		const int64_t at = i / t->n * t->ld + i % t->n;

		t->want[i] = eval(t->gate->act, t->g[at], 0.0f) * t->u[at];
	}
	kc_begin_as(t->dtype, t->gate->glu, &args, in_place ? "in place of u" : "forward");
	kc_out(in_place ? t->u : NULL, t->want, t->rows * t->n);
	kc_in_t(t->g, t->rows * t->ld);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(t->u, t->rows * t->ld);
	kc_run();
}

/* In place: dg is g, and du is u. Else dg or du are added onto. */
static void check_backward(const glu_t *t, int in_place, int add_dg, int add_du)
{
	const srt_k_glu_t args = { .rows = t->rows,
				   .n = t->n,
				   .ldg = t->ld,
				   .ldu = t->ld,
				   .lddg = t->ld,
				   .lddu = t->ld,
				   .add_dg = add_dg,
				   .add_du = add_du };
	const float *dg_old = in_place ? t->g : t->old, *du_old = in_place ? t->u : t->old;

	memcpy(t->want, dg_old, (size_t)(t->rows * t->ld) * sizeof(float));
	memcpy(t->want2, du_old, (size_t)(t->rows * t->ld) * sizeof(float));
	for (int64_t i = 0; i < t->rows * t->n; i++) {
		const int64_t at = i / t->n * t->ld + i % t->n;
		const float dg = eval(t->gate->act_backward, t->dy[i] * t->u[at], t->g[at]);
		const float du = t->dy[i] * eval(t->gate->act, t->g[at], 0.0f);

		t->want[at] = add_dg ? dg_old[at] + dg : dg;
		t->want2[at] = add_du ? du_old[at] + du : du;
	}
	kc_begin_as(t->dtype, t->gate->glu_backward, &args, in_place ? "in place" : "backward");
	kc_out(dg_old, t->want, t->rows * t->ld);
	kc_out(du_old, t->want2, t->rows * t->ld);
	kc_in_t(t->dy, t->rows * t->n);
	if (in_place) {
		kc_same(0);
		kc_same(1);
	} else {
		kc_in_t(t->g, t->rows * t->ld);
		kc_in_t(t->u, t->rows * t->ld);
	}
	kc_run();
}

static void test_glu(srt_dtype_t dtype, const gate_t *gate, int64_t rows, int64_t n, int64_t ld)
{
	glu_t t = { .dtype = dtype, .gate = gate, .rows = rows, .n = n, .ld = ld };

	t.g = make(&t, ld);
	t.u = make(&t, ld);
	t.dy = make(&t, n);
	t.old = make(&t, ld);
	t.want = kc_floats(rows * ld, NULL);
	t.want2 = kc_floats(rows * ld, NULL);
	check_forward(&t, 0);
	if (ld == n)
		check_forward(&t, 1);
	check_backward(&t, 0, 0, 0);
	check_backward(&t, 0, 1, 0);
	check_backward(&t, 0, 0, 1);
	check_backward(&t, 1, 0, 0);
	free(t.g);
	free(t.u);
	free(t.dy);
	free(t.old);
	free(t.want);
	free(t.want2);
}

int main(void)
{
	for (size_t k = 0; k < sizeof(gates) / sizeof(gates[0]); k++) {
		for (int d = SRT_F32; d <= SRT_BF16; d++) {
			const srt_dtype_t dtype = (srt_dtype_t)d;

			test_glu(dtype, &gates[k], 0, 4, 4);
			test_glu(dtype, &gates[k], 1, 1, 1);
			test_glu(dtype, &gates[k], 5, 67, 67);
			test_glu(dtype, &gates[k], 3, 131, 263);
			test_glu(dtype, &gates[k], 2, 4099, 8200);
		}
	}
	return kc_done();
}
