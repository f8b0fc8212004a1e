/*
 * pairs: turns a row's `type, name, type, name, ...` into a parameter list (PAIRS_DECLARE) or
 * an argument list (PAIRS_PASS), or the bits of those that are at most four bytes wide, the first
 * parameter's lowest (PAIRS_NARROW), or a macro's text for each (PAIRS_EACH).
 * Up to twelve parameters, which is one more than any driver function in hooks.def has.
 */
#ifndef CUSLICE_HOOKS_PAIRS_H
#define CUSLICE_HOOKS_PAIRS_H

#define PAIRS_D1(t, n) t n
#define PAIRS_D2(t, n, ...) t n, PAIRS_D1(__VA_ARGS__)
#define PAIRS_D3(t, n, ...) t n, PAIRS_D2(__VA_ARGS__)
#define PAIRS_D4(t, n, ...) t n, PAIRS_D3(__VA_ARGS__)
#define PAIRS_D5(t, n, ...) t n, PAIRS_D4(__VA_ARGS__)
#define PAIRS_D6(t, n, ...) t n, PAIRS_D5(__VA_ARGS__)
#define PAIRS_D7(t, n, ...) t n, PAIRS_D6(__VA_ARGS__)
#define PAIRS_D8(t, n, ...) t n, PAIRS_D7(__VA_ARGS__)
#define PAIRS_D9(t, n, ...) t n, PAIRS_D8(__VA_ARGS__)
#define PAIRS_D10(t, n, ...) t n, PAIRS_D9(__VA_ARGS__)
#define PAIRS_D11(t, n, ...) t n, PAIRS_D10(__VA_ARGS__)
#define PAIRS_D12(t, n, ...) t n, PAIRS_D11(__VA_ARGS__)

#define PAIRS_P1(t, n) n
#define PAIRS_P2(t, n, ...) n, PAIRS_P1(__VA_ARGS__)
#define PAIRS_P3(t, n, ...) n, PAIRS_P2(__VA_ARGS__)
#define PAIRS_P4(t, n, ...) n, PAIRS_P3(__VA_ARGS__)
#define PAIRS_P5(t, n, ...) n, PAIRS_P4(__VA_ARGS__)
#define PAIRS_P6(t, n, ...) n, PAIRS_P5(__VA_ARGS__)
#define PAIRS_P7(t, n, ...) n, PAIRS_P6(__VA_ARGS__)
#define PAIRS_P8(t, n, ...) n, PAIRS_P7(__VA_ARGS__)
#define PAIRS_P9(t, n, ...) n, PAIRS_P8(__VA_ARGS__)
#define PAIRS_P10(t, n, ...) n, PAIRS_P9(__VA_ARGS__)
#define PAIRS_P11(t, n, ...) n, PAIRS_P10(__VA_ARGS__)
#define PAIRS_P12(t, n, ...) n, PAIRS_P11(__VA_ARGS__)

#define PAIRS_N1(t, n) (sizeof(t) <= 4)
#define PAIRS_N2(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N1(__VA_ARGS__) << 1)
#define PAIRS_N3(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N2(__VA_ARGS__) << 1)
#define PAIRS_N4(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N3(__VA_ARGS__) << 1)
#define PAIRS_N5(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N4(__VA_ARGS__) << 1)
#define PAIRS_N6(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N5(__VA_ARGS__) << 1)
#define PAIRS_N7(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N6(__VA_ARGS__) << 1)
#define PAIRS_N8(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N7(__VA_ARGS__) << 1)
#define PAIRS_N9(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N8(__VA_ARGS__) << 1)
#define PAIRS_N10(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N9(__VA_ARGS__) << 1)
#define PAIRS_N11(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N10(__VA_ARGS__) << 1)
#define PAIRS_N12(t, n, ...) ((sizeof(t) <= 4) | PAIRS_N11(__VA_ARGS__) << 1)

#define PAIRS_E1(f, t, n) f(t, n)
#define PAIRS_E2(f, t, n, ...) f(t, n) PAIRS_E1(f, __VA_ARGS__)
#define PAIRS_E3(f, t, n, ...) f(t, n) PAIRS_E2(f, __VA_ARGS__)
#define PAIRS_E4(f, t, n, ...) f(t, n) PAIRS_E3(f, __VA_ARGS__)
#define PAIRS_E5(f, t, n, ...) f(t, n) PAIRS_E4(f, __VA_ARGS__)
#define PAIRS_E6(f, t, n, ...) f(t, n) PAIRS_E5(f, __VA_ARGS__)
#define PAIRS_E7(f, t, n, ...) f(t, n) PAIRS_E6(f, __VA_ARGS__)
#define PAIRS_E8(f, t, n, ...) f(t, n) PAIRS_E7(f, __VA_ARGS__)
#define PAIRS_E9(f, t, n, ...) f(t, n) PAIRS_E8(f, __VA_ARGS__)
#define PAIRS_E10(f, t, n, ...) f(t, n) PAIRS_E9(f, __VA_ARGS__)
#define PAIRS_E11(f, t, n, ...) f(t, n) PAIRS_E10(f, __VA_ARGS__)
#define PAIRS_E12(f, t, n, ...) f(t, n) PAIRS_E11(f, __VA_ARGS__)

#define PAIRS_PICK(a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7, a8, b8, a9, b9, a10, \
                   b10, a11, b11, a12, b12, count, ...) \
    count
#define PAIRS_COUNT(...) \
    PAIRS_PICK(__VA_ARGS__, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, \
               2, 1, 1, 0)
#define PAIRS_JOIN_(a, b) a##b
#define PAIRS_JOIN(a, b) PAIRS_JOIN_(a, b)
#define PAIRS_DECLARE(...) PAIRS_JOIN(PAIRS_D, PAIRS_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define PAIRS_PASS(...) PAIRS_JOIN(PAIRS_P, PAIRS_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define PAIRS_EACH(f, ...) PAIRS_JOIN(PAIRS_E, PAIRS_COUNT(__VA_ARGS__))(f, __VA_ARGS__)
#define PAIRS_NARROW(...) PAIRS_JOIN(PAIRS_N, PAIRS_COUNT(__VA_ARGS__))(__VA_ARGS__)

#endif
