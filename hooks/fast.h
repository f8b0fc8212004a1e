/*
 * fast: the body of a hook of class GATE: the fast way (gate_enter, the driver's function,
 * gate_leave) in assembly on x86-64, since a compiler spends as much again on arguments that it
 * moves out of the way and back. Elsewhere, and under sanitizers that must see it, in C. Runs on
 * the program's threads. Must never touch an argument or a register that its caller keeps.
 *
 * The frame is an ordinary one: arguments that lie on the stack are pushed again for the driver,
 * narrow ones by a narrow load, which the store that it must wait for can answer at once. To leave
 * them in place by taking the return address off the stack would save five instructions and a
 * cycle. But then whoever walks a copy of the stack, as perf and crash reporters do, loses its way
 * there, and the kernel ends a program that has uretprobes on both functions: their return
 * addresses lie at one place, so it takes the first for one that was jumped over. Nothing is kept
 * in registers over the call; the record is looked up again behind it.
 */
#ifndef CUSLICE_HOOKS_FAST_H
#define CUSLICE_HOOKS_FAST_H

#include <stddef.h>

#include "gate.h"
#include "pairs.h"
#include "real.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define FAST_IN_C 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__) || \
    !defined(__LP64__)
#define FAST_IN_C 1
#endif

/* In a function with a submission: gate_unwind hears when an exception passes through its frame. */
#define FAST_PERSONALITY ".cfi_personality 0x1b, gate_unwind\n"
#define FAST_UNWIND() __asm__ volatile(FAST_PERSONALITY)

#ifdef FAST_IN_C

#define FAST(name, slow, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        FAST_UNWIND(); \
        struct gate_mark *mark = gate_enter((uintptr_t)__builtin_frame_address(0)); \
        if (__builtin_expect(mark == NULL, 0)) \
            return slow(PAIRS_PASS(__VA_ARGS__)); \
        CUresult rc = real.name(PAIRS_PASS(__VA_ARGS__)); \
        gate_leave(mark, 0); \
        return rc; \
    }

#else

/* The parameters are used in assembly, which the compiler does not see. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Of the parameters, what lies on the stack, and which of that is four bytes wide or less. */
#define FAST_REGISTERS 6
#define FAST_STACK(...) \
    (PAIRS_COUNT(__VA_ARGS__) > FAST_REGISTERS ? PAIRS_COUNT(__VA_ARGS__) - FAST_REGISTERS : 0)
#define FAST_NARROW(...) (PAIRS_NARROW(__VA_ARGS__) >> FAST_REGISTERS)
/* Keeps the stack aligned. */
#define FAST_PAD(...) (FAST_STACK(__VA_ARGS__) % 2 ? 0 : 8)

_Static_assert(offsetof(struct guest, gate) == 0, "fast.h reads the first gate's words");

/* The numbered steps: 1 mark up; 2 closed, or another's turn: the slow way; 3 the driver, with its
 * stack arguments, last one first, each found at the same distance since the stack grows by what
 * was pushed; 4 counted, mark down. */
#define FAST(name, slow, ...) \
    __attribute__((naked)) CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        __asm__ volatile( \
            FAST_PERSONALITY "movq gate_mark_mine@gottpoff(%%rip), %%rax\n" \
                             "movq %%fs:(%%rax), %%rax\n" \
                             "cmpq %%rsp, %c[inside](%%rax)\n" /* 1 */ \
                             "ja 8f\n" \
                             "movq %%rsp, %c[inside](%%rax)\n" \
                             "movq guest+%c[lease](%%rip), %%r11\n" /* 2 */ \
                             "testq %%r11, %%r11\n" \
                             "jz 9f\n" \
                             "movq guest+%c[token](%%rip), %%r10\n" \
                             "cmpq %%r11, (%%r10)\n" \
                             "jne 9f\n" \
                             "movq real+%c[real](%%rip), %%r11\n" /* 3 */ \
                             ".if %c[pad]\n" \
                             "subq $%c[pad], %%rsp\n" \
                             ".cfi_adjust_cfa_offset %c[pad]\n" \
                             ".endif\n" \
                             ".set fast_left, %c[stack]\n" \
                             ".rept %c[stack]\n" \
                             ".set fast_left, fast_left - 1\n" \
                             ".if (%c[narrow] >> fast_left) & 1\n" \
                             "movl 8*%c[stack]+%c[pad](%%rsp), %%eax\n" \
                             "pushq %%rax\n" \
                             ".else\n" \
                             "pushq 8*%c[stack]+%c[pad](%%rsp)\n" \
                             ".endif\n" \
                             ".cfi_adjust_cfa_offset 8\n" \
                             ".endr\n" \
                             "callq *%%r11\n" \
                             "addq $8*%c[stack]+%c[pad], %%rsp\n" \
                             ".cfi_adjust_cfa_offset -(8*%c[stack]+%c[pad])\n" \
                             "movq gate_mark_mine@gottpoff(%%rip), %%rcx\n" /* 4 */ \
                             "movq %%fs:(%%rcx), %%rcx\n" \
                             "incq %c[submissions](%%rcx)\n" \
                             "movq $0, %c[inside](%%rcx)\n" \
                             "retq\n" \
                             "9: movq $0, %c[inside](%%rax)\n" \
                             "8: jmp " #slow "\n" \
            : \
            : [stack] "i"(FAST_STACK(__VA_ARGS__)), [pad] "i"(FAST_PAD(__VA_ARGS__)), \
              [narrow] "i"(FAST_NARROW(__VA_ARGS__)), [real] "i"(offsetof(struct real, name)), \
              [lease] "i"(offsetof(struct gate, lease)), \
              [token] "i"(offsetof(struct gate, token)), \
              [inside] "i"(offsetof(struct gate_mark, inside)), \
              [submissions] "i"(offsetof(struct gate_mark, submissions))); \
    }

#endif

#endif
