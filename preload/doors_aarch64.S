/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doors_aarch64.S - dlsym and dlvsym as tail jumps, and the thunks. See doors_x86_64.S.
 *
 * x30 holds the caller's address at entry: it must be what libc finds there, too.
 */
#if defined(__aarch64__)
	.text
	.hidden wg_libc, wg_doors_init, wg_fn_by_name, wg_door_dlsym, wg_door_dlvsym
	.hidden wg_thunks, wg_thunk_real, wg_dlopens, wg_bypassed

	.macro	load_address reg, symbol
	adrp	\reg, \symbol
	add	\reg, \reg, :lo12:\symbol
	.endm

	.macro	save
	stp	x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	.endm

	.macro	restore
	ldp	x0, x1, [sp, #16]
	ldr	x2, [sp, #32]
	ldp	x29, x30, [sp], #48
	.cfi_adjust_cfa_offset -48
	.cfi_restore x29
	.cfi_restore x30
	.endm

	.macro	to_libc offset
9:	load_address x16, wg_libc
	ldr	x17, [x16, #\offset]
	cbz	x17, 8f
	br	x17
8:	save
	bl	wg_doors_init
	restore
	load_address x16, wg_libc
	ldr	x17, [x16, #\offset]
	cbz	x17, 7f
	br	x17
7:	mov	x0, #0
	ret
	.endm

	/* Falls through with the function id in x9, or goes to libc at 9f. */
	.macro	ours_or_libc
	cmn	x0, #1			/* RTLD_NEXT */
	b.eq	9f
	cbz	x1, 9f
	ldrb	w9, [x1]
	cmp	w9, #'c'
	b.eq	1f
	cmp	w9, #'n'
	b.eq	1f
	cmp	w9, #'_'
	b.ne	9f
1:	save
	mov	x0, x1
	bl	wg_fn_by_name
	and	x9, x0, #0xffff
	str	x9, [sp, #40]
	load_address x16, wg_libc
	ldr	x17, [x16]
	cbnz	x17, 2f
	bl	wg_doors_init
2:	ldr	x9, [sp, #40]
	restore
	cbz	x9, 9f
	.endm

	.globl	dlsym
	.type	dlsym, %function
	.balign	16
dlsym:
	.cfi_startproc
	hint	#34			/* bti c */
	ours_or_libc
	mov	x2, x30
	mov	x3, x9
	b	wg_door_dlsym
	to_libc	0
	.cfi_endproc
	.size	dlsym, .-dlsym

	.globl	dlvsym
	.type	dlvsym, %function
	.balign	16
dlvsym:
	.cfi_startproc
	hint	#34
	ours_or_libc
	mov	x3, x30
	mov	x4, x9
	b	wg_door_dlvsym
	to_libc	8
	.cfi_endproc
	.size	dlvsym, .-dlvsym

	.macro	count_dlopen
	load_address x16, wg_dlopens
5:	ldaxr	w17, [x16]
	add	w17, w17, #1
	stlxr	w9, w17, [x16]
	cbnz	w9, 5b
	.endm

	.globl	dlopen
	.type	dlopen, %function
	.balign	16
dlopen:
	.cfi_startproc
	hint	#34
	count_dlopen
	tbz	w1, #3, 9f		/* RTLD_DEEPBIND */
	load_address x16, wg_bypassed
	mov	w17, #1
	str	w17, [x16]
	to_libc	16
	.cfi_endproc
	.size	dlopen, .-dlopen

	.globl	dlmopen
	.type	dlmopen, %function
	.balign	16
dlmopen:
	.cfi_startproc
	hint	#34
	count_dlopen
	cbz	x0, 9f
	load_address x16, wg_bypassed
	mov	w17, #1
	str	w17, [x16]
	to_libc	24
	.cfi_endproc
	.size	dlmopen, .-dlmopen

	/* x16 and x17 are the linker's, x9 ... x15 nobody's at a function's entry. */
	.globl	wg_thunk_code
	.hidden	wg_thunk_code
	.balign	64
wg_thunk_code:
	.cfi_startproc
	.set	i, 0
	.rept	512
	.balign	64
	hint	#34
	adrp	x9, :gottprel:wg_thunk_real
	ldr	x9, [x9, #:gottprel_lo12:wg_thunk_real]
	mrs	x10, tpidr_el0
	adrp	x11, wg_thunks+16*i
	add	x11, x11, :lo12:(wg_thunks+16*i)
	ldp	x12, x16, [x11]
	str	x12, [x10, x9]
	br	x16
	.set	i, i+1
	.endr
	.cfi_endproc
	.size	wg_thunk_code, .-wg_thunk_code
#endif
	.section .note.GNU-stack, "", %progbits
