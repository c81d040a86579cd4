/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doors_x86_64.S - dlsym and dlvsym as tail jumps, and the thunks.
 *
 * libc finds the caller (RTLD_NEXT, RTLD_DEFAULT) by the return address on the stack, so whatever is
 * not ours must reach it by a jump with every register and the stack as they were. Names are looked
 * at only when they begin like one of ours.
 */
#if defined(__x86_64__)
	.text
	.hidden wg_libc, wg_doors_init, wg_fn_by_name, wg_door_dlsym, wg_door_dlvsym
	.hidden wg_thunks, wg_thunk_real, wg_dlopens, wg_bypassed

	/* wg_libc: dlsym, dlvsym, dlopen, dlmopen in this order */
	.macro	to_libc offset
9:	movq	wg_libc+\offset(%rip), %rax
	testq	%rax, %rax
	jz	8f
	jmp	*%rax
8:	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	call	wg_doors_init
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	movq	wg_libc+\offset(%rip), %rax
	testq	%rax, %rax
	jz	7f
	jmp	*%rax
7:	ret				/* libc without it: NULL */
	.endm

	/* Falls through with the function id in %eax, or goes to libc at 9f. */
	.macro	ours_or_libc
	cmpq	$-1, %rdi		/* RTLD_NEXT: the order is the caller's, and we stand in it */
	je	9f
	testq	%rsi, %rsi
	jz	9f
	movzbl	(%rsi), %eax
	cmpb	$'c', %al		/* cu..., cuda... */
	je	1f
	cmpb	$'n', %al		/* nccl... */
	je	1f
	cmpb	$'_', %al		/* __cudaLaunchKernel */
	jne	9f
1:	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	movq	%rsi, %rdi
	call	wg_fn_by_name
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testw	%ax, %ax
	jz	9f
	cmpq	$0, wg_libc(%rip)
	jne	2f
	pushq	%rax
	.cfi_adjust_cfa_offset 8
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	wg_doors_init
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	popq	%rax
	.cfi_adjust_cfa_offset -8
2:
	.endm

	.globl	dlsym
	.type	dlsym, @function
	.balign	16
dlsym:
	.cfi_startproc
	endbr64
	ours_or_libc
	movzwl	%ax, %ecx
	movq	(%rsp), %rdx
	jmp	wg_door_dlsym
	to_libc	0
	.cfi_endproc
	.size	dlsym, .-dlsym

	.globl	dlvsym
	.type	dlvsym, @function
	.balign	16
dlvsym:
	.cfi_startproc
	endbr64
	ours_or_libc
	movzwl	%ax, %r8d
	movq	(%rsp), %rcx
	jmp	wg_door_dlvsym
	to_libc	8
	.cfi_endproc
	.size	dlvsym, .-dlvsym

	/* dlopen goes by the caller's RUNPATH: jumped to, never called. Only looked at. */
	.globl	dlopen
	.type	dlopen, @function
	.balign	16
dlopen:
	.cfi_startproc
	endbr64
	lock incl wg_dlopens(%rip)
	testl	$8, %esi		/* RTLD_DEEPBIND */
	jz	9f
	movl	$1, wg_bypassed(%rip)
	to_libc	16
	.cfi_endproc
	.size	dlopen, .-dlopen

	.globl	dlmopen
	.type	dlmopen, @function
	.balign	16
dlmopen:
	.cfi_startproc
	endbr64
	lock incl wg_dlopens(%rip)
	testq	%rdi, %rdi		/* LM_ID_BASE is where we are, too */
	jz	9f
	movl	$1, wg_bypassed(%rip)
	to_libc	24
	.cfi_endproc
	.size	dlmopen, .-dlmopen

	/* 512 thunks of 64 bytes: wg_thunk_real = table[i].real; goto table[i].wrapper */
	.globl	wg_thunk_code
	.hidden	wg_thunk_code
	.balign	64
wg_thunk_code:
	.cfi_startproc
	.set	i, 0
	.rept	512
	.balign	64
	endbr64
	movq	wg_thunk_real@gottpoff(%rip), %r10
	movq	wg_thunks+16*i(%rip), %r11
	movq	%r11, %fs:(%r10)
	jmp	*wg_thunks+16*i+8(%rip)
	.set	i, i+1
	.endr
	.cfi_endproc
	.size	wg_thunk_code, .-wg_thunk_code
#endif
	.section .note.GNU-stack, "", %progbits
