"""Exact discrete Laplace and Gaussian noise of a sum (shared_specs/cards.md). No leaf allocates.

Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), Algorithms 1 to 3.
A job is [position in the pool, its end, t, 2 c, t m, m]. Each leaf reads from pool[job[0]] on;
beyond job[1] no result counts.
"""

from tern.compat import micropython, ptr8, ptr32


@micropython.viper
def uniform(pool: ptr8, job: ptr32, n: int) -> int:
    """Draw an integer in 0..n-1, n <= 2**20, all equally likely."""
    at = job[0]
    end = job[1]
    mask = n - 1
    mask |= mask >> 1
    mask |= mask >> 2
    mask |= mask >> 4
    mask |= mask >> 8
    mask |= mask >> 16
    u = 0
    if mask:
        u = n
    while u >= n and at <= end:
        u = pool[at]
        at += 1
        if mask > 255:
            u |= pool[at] << 8
            at += 1
        if mask > 65535:
            u |= pool[at] << 16
            at += 1
        u &= mask
    job[0] = at
    return u


@micropython.viper
def decays(pool, job, a: int, n: int, b: int, m: int) -> int:
    """Draw Bernoulli(exp(-(a / n) (b / m))), a <= n, b <= m.

    With a = n = b = m = 1 it is that of exp(-1).
    """
    parameters = ptr32(job)
    k = 1
    going = 1
    if a == 0 or b == 0:
        going = 0
    while going:
        if (
            (n > 1 and int(uniform(pool, job, n)) >= a)
            or (m > 1 and int(uniform(pool, job, m)) >= b)
            or (k > 1 and int(uniform(pool, job, k)) > 0)
        ):
            going = 0
        else:
            k += 1
    if parameters[0] > parameters[1]:
        k = 0
    return k & 1


@micropython.viper
def noise(pool, job) -> int:
    """Draw Z: discrete Laplace of scale t where c is 0, else discrete Gaussian of variance c t / m.

    |Y| is at least 2**9 t, beyond which 32 bits do not hold it, with a probability of exp(-511).
    """
    parameters = ptr32(job)
    t = parameters[2]
    double_c = parameters[3]
    z = 0
    done = 0
    while done == 0 and parameters[0] <= parameters[1]:
        z = int(uniform(pool, job, t))
        if int(decays(pool, job, z, t, 1, 1)):
            while int(decays(pool, job, 1, 1, 1, 1)):
                z += t
            negative = int(uniform(pool, job, 2))
            if z or negative == 0:  # there is no negative zero
                done = 1
                if double_c:
                    distance = parameters[5] * z - (double_c >> 1)
                    if distance < 0:
                        distance = 0 - distance
                    wide = parameters[4]
                    x = distance // double_c
                    v = distance // wide
                    e = distance - x * double_c
                    g = distance - v * wide
                    i = x
                    while i and done:
                        j = v
                        while j and done:
                            done = int(decays(pool, job, 1, 1, 1, 1))
                            j -= 1
                        i -= 1
                    i = x
                    while i and done:
                        done = int(decays(pool, job, g, wide, 1, 1))
                        i -= 1
                    i = v
                    while i and done:
                        done = int(decays(pool, job, e, double_c, 1, 1))
                        i -= 1
                    if done:
                        done = int(decays(pool, job, e, double_c, g, wide))
                if negative:
                    z = 0 - z
    return z
