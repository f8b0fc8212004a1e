/*
 * dlsym: asks resolve_dlsym whether it has an answer; if not, jumps to libc's dlsym with registers
 * and stack as they came, so that libc sees the caller and not us. In assembly because a compiler
 * makes a jump of a call only when it pleases.
 */
#if defined(__x86_64__)
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call resolve_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jz 1f
    ret
1:
    jmpq *resolve_dlsym_target(%rip)
    .cfi_endproc
    .size dlsym, .-dlsym
#elif defined(__aarch64__)
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    stp x0, x1, [sp, #16]
    bl resolve_dlsym
    mov x9, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    cbz x9, 1f
    mov x0, x9
    ret
1:
    adrp x9, resolve_dlsym_target
    ldr x9, [x9, :lo12:resolve_dlsym_target]
    br x9
    .cfi_endproc
    .size dlsym, .-dlsym
#else
#error "dlsym.S has no part for this processor"
#endif
    .section .note.GNU-stack, "", %progbits
