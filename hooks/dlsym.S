/*
 * dlsym: the doors dlsym, dlvsym and dlopen. Each asks C code first, and jumps to the real function
 * with registers and stack as they came, so that libc sees the caller and not us. In assembly
 * because a compiler makes a jump of a call only when it pleases. The exported doors go on to the
 * next object's function, those for diverted callers (libc.h) to libc's own.
 */
#if defined(__x86_64__)
    .macro door_begin name, visibility
    .text
    .globl \name
    .\visibility \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    .endm
    .macro door_end name, target
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jz 1f
    ret
1:
    jmpq *\target(%rip)
    .cfi_endproc
    .size \name, .-\name
    .endm
    .macro lookup_door name, ask, target, visibility
    door_begin \name, \visibility
    call \ask
    door_end \name, \target
    .endm
    .macro load_door name, target, visibility
    door_begin \name, \visibility
    movl %esi, %edi
    call resolve_dlopen
    xorl %eax, %eax
    door_end \name, \target
    .endm
#elif defined(__aarch64__)
    .macro door_begin name, visibility
    .text
    .globl \name
    .\visibility \name
    .type \name, %function
\name:
    .cfi_startproc
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    .endm
    .macro door_end name, target
    mov x9, x0
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_def_cfa_offset 0
    cbz x9, 1f
    mov x0, x9
    ret
1:
    adrp x9, \target
    ldr x9, [x9, :lo12:\target]
    br x9
    .cfi_endproc
    .size \name, .-\name
    .endm
    .macro lookup_door name, ask, target, visibility
    door_begin \name, \visibility
    bl \ask
    door_end \name, \target
    .endm
    .macro load_door name, target, visibility
    door_begin \name, \visibility
    mov w0, w1
    bl resolve_dlopen
    mov x0, xzr
    door_end \name, \target
    .endm
#else
#error "dlsym.S has no part for this processor"
#endif

    lookup_door dlsym, resolve_dlsym, libc_next_dlsym, protected
    lookup_door dlvsym, resolve_dlvsym, libc_next_dlvsym, protected
    load_door dlopen, libc_next_dlopen, protected
    lookup_door libc_door_dlsym, resolve_dlsym, libc_dlsym, hidden
    lookup_door libc_door_dlvsym, resolve_dlvsym, libc_dlvsym, hidden
    load_door libc_door_dlopen, libc_dlopen, hidden

    .section .note.GNU-stack, "", %progbits
