"""Aliasing: a change that Python would show under a second name is rejected, never silently lost."""

import pytest

import livegrad as lg


@lg.differentiable
class V:
    a: float
    b: float

    def bump(self):
        self.a = self.a + 1.0
        return self.b

    def moved(self, by):
        self.a += by
        return self


@lg.differentiable
class W:
    v: V
    k: float


REFUSED = {
    "a function that changes its argument": """
def g(a):
    a[0] = 5.0
    return a[1]

def f(x: float):
    l = [x, 1.0]
    t = g(l)
    return l[0] + t
""",
    "a local function that changes its argument": """
def f(x: float):
    l = [x, 1.0]

    def g(a):
        a[0] = 5.0
        return a[1]
    t = g(l)
    return l[0] + t
""",
    "a method that changes its struct": """
def f(x: float):
    v = V(x, 1.0)
    t = v.bump()
    return v.a + t
""",
    "a function that returns its argument": """
def g(a):
    return a

def f(x: float):
    l = [x, 1.0]
    t = g(l)
    t[0] = 7.0
    return l[0]
""",
    "a lambda that returns its argument": """
def f(x: float):
    l = [x, 1.0]
    g = lambda a: a
    t = g(l)
    t[0] = 7.0
    return l[0]
""",
    "a list that an unrolled loop iterates over": """
def f(x: float):
    l = [x, 1.0, 2.0]
    s = 0.0
    for i, v in zip(lg.unroll(range(3)), l):
        l[2] = 9.0
        s += v
    return s
""",
    "rows of a loop": """
def f(x: float):
    m = [[x, 1.0], [2.0, 3.0]]
    for r in m:
        r[0] = 9.0
    return m[0][0]
""",
    "structs of a loop": """
def f(x: float):
    m = [V(x, 1.0), V(x, 2.0)]
    for r in m:
        r.a = 9.0
    return m[0].a
""",
    "a list twice in a list": """
def f(x: float):
    a = [x, 1.0]
    m = [a, a]
    m[0][0] = 9.0
    return m[1][0]
""",
    "a repeated list": """
def f(x: float):
    m = [[x, 1.0]] * 2
    m[0][0] = 9.0
    return m[1][0]
""",
    "a repeated name": """
def f(x: float):
    a = [x, 1.0]
    m = [a] * 2
    a[0] = 9.0
    return m[1][0]
""",
    "a conditional expression": """
def f(x: float):
    a = [x, 1.0]
    b = a if x > 0.0 else [0.0, 0.0]
    b[0] = 9.0
    return a[0]
""",
    "list of a list": """
def f(x: float):
    m = [[x, 1.0], [2.0, 3.0]]
    n = list(m)
    n[0][0] = 9.0
    return m[0][0]
""",
    "a field": """
def f(x: float):
    v = V(x, 1.0)
    w = W(v, 2.0)
    w.v.a = 9.0
    return v.a
""",
    "a field by keyword": """
def f(x: float):
    v = V(x, 1.0)
    w = W(v=v, k=2.0)
    w.v.a = 9.0
    return v.a
""",
    "a tuple": """
def f(x: float):
    a = [x, 1.0]
    t = (a, 1.0)
    b, _ = t
    b[0] = 9.0
    return a[0]
""",
    "an element": """
def f(x: float):
    a = [x, 1.0]
    m = [[0.0, 0.0], [1.0, 1.0]]
    m[0] = a
    a[0] = 9.0
    return m[0][0]
""",
    "an element of the same list": """
def f(x: float):
    m = [[0.0, x], [1.0, 1.0]]
    m[0] = m[1]
    m[1][0] = 9.0
    return m[0][0]
""",
    "swapped elements": """
def f(x: float):
    m = [[0.0, x], [1.0, 1.0]]
    m[0], m[1] = (m[1], m[0])
    m[1][0] = 9.0
    return m[0][0]
""",
    "a named expression": """
def f(x: float):
    c = (b := [x, 2.0])
    c[0] = 9.0
    return b[0]
""",
    "a comprehension": """
def f(x: float):
    m = [[0.0, x], [1.0, 1.0]]
    n = [r for r in m]
    n[0][0] = 9.0
    return m[0][0]
""",
    "a name in a comprehension": """
def f(x: float):
    a = [0.0, x]
    n = [a for i in range(2)]
    n[0][0] = 9.0
    return n[1][0]
""",
    "a selection by and": """
def f(x: float):
    a = [0.0, x]
    n = a and a
    n[0] = 9.0
    return a[0]
""",
    "a default": """
def f(x: float):
    a = [0.0, x]

    def g(b=a):
        b[0] = 9.0
        return b[0]
    t = g()
    return a[0] + t
""",
    "a closure": """
def f(x: float):
    a = [0.0, x]

    def g():
        return a
    t = g()
    t[0] = 8.0
    return a[0]
""",
    "an augmented list": """
def f(x: float):
    a = [0.0, x]
    b = a
    a += [1.0]
    return b[-1]
""",
    "a struct in a struct": """
def f(x: float):
    v = V(x, 1.0)
    w = W(v, 2.0)
    u = w.v
    u.a = 5.0
    return w.v.a
""",
    "joined lists": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    n = m + m
    n[0][0] = 5.0
    return m[0][0]
""",
    "a slice": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    n = m[:1]
    n[0][0] = 5.0
    return m[0][0]
""",
    "an assigned slice": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    n = [[1.0, 1.0], [1.0, 1.0]]
    n[:] = m
    n[0][0] = 5.0
    return m[0][0]
""",
    "a starred target": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    a, *b = m
    a[0] = 5.0
    return m[0][0]
""",
    "a starred list": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    n = [*m]
    n[0][0] = 5.0
    return m[0][0]
""",
    "a copied list of lists": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    n = m.copy()
    n[0][0] = 5.0
    return m[0][0]
""",
    "a global list": """
G = [1.0, 2.0]

def f(x: float):
    a = G
    a[0] = x
    return G[0]
""",
    "two names of a global list": """
G = [1.0, 2.0]

def f(x: float):
    a = G
    b = G
    a[0] = x
    return b[0]
""",
    "a name bound in a loop": """
def f(x: float):
    m = [[x, 1.0], [0.0, 2.0]]
    b = [0.0, 0.0]
    for r in m:
        b = r
    b[0] = 4.0
    return m[1][0]
""",
    "a vector": """
def f(x: float):
    v = lg.vec2(x, 1.0)
    u = v
    u.x = 3.0
    return v.x
""",
    "an augmented vector": """
def f(x: float):
    v = lg.vec2(x, 1.0)
    u = v
    u += 1.0
    return v.x
""",
    "vectors of a loop": """
def f(x: float):
    v = lg.vec2(x, 1.0)
    m = [v, lg.vec2(0.0, x)]
    for u in m:
        u.x += 3.0
    return m[1].x + v.x
""",
    "augmented vectors of a loop": """
def f(x: float):
    v = lg.vec2(x, 1.0)
    m = [v, lg.vec2(0.0, x)]
    for u in m:
        u += 3.0
    return m[1].x + v.x
""",
    "an augmented element": """
def f(x: float):
    v = [lg.vec2(x, 1.0)]
    u = v[0]
    v[0] += 3.0
    return u.x
""",
    "a row of a matrix": """
def f(x: float):
    m = lg.mat2(x, 1.0, 2.0, 3.0)
    r = m[0]
    m[0, 1] = 9.0
    return r[1]
""",
    "a detached vector": """
def f(x: float):
    v = lg.vec2(x, 1.0)
    u = lg.detach(v)
    u.x = 9.0
    return v.x
""",
    "an object in a loop's state": """
def f(x: float):
    a = [x, 1.0]
    b = [2.0, 3.0]
    for i in range(3):
        b[0] = x * i
        b = a
    return a[0] + b[0]
""",
    "one object for two arguments": """
def g(a, b):
    a[0] = b[1]
    a[1] = b[0]
    return a

def f(x: float):
    l = [x, 1.0]
    l = g(l, l)
    return l[0] + 2.0 * l[1]
""",
    "a function that calls one that changes": """
def g(a):
    a[0] = 5.0
    return a

def h(a):
    return g(a)

def f(x: float):
    l = [x, 1.0]
    t = h(l)
    return l[0] + t[1]
""",
    "a hidden variable": """
def f(x: float):
    l = [x, 1.0]

    def g(l):
        l[0] = 9.0
        return l[0]
    t = g(l)
    return l[0] + t
""",
    "a list that is changed and passed on in a loop over it": """
def f(x: float):
    l = [x, 1.0, 2.0]
    s = 0.0
    for v in l:
        l[2] = 9.0
        s += v
        l = [v, v, v]
    return s
""",
    "a default of a function": """
def g(x, a=[1.0, 2.0]):
    a[0] += x
    return a[0]

def f(x: float):
    return g(x) + g(x)
""",
}

ACCEPTED = {
    "two buffers": """
def f(x: float):
    now = [x, 1.0, 2.0]
    for _ in range(3):
        following = now.copy()
        for i in range(1, 3):
            following[i] = now[i] + now[i - 1]
        now = following
    return now[2]
""",
    "three buffers": """
def f(x: float):
    before = [x, 1.0]
    now = [x, 2.0]
    for i in range(3):
        following = [0.0, 0.0]
        following[0] = now[0] + before[1]
        following[1] = now[1] * 0.5
        before = now
        now = following
    return before[0] + now[0]
""",
    "swapped names": """
def f(x: float):
    a = [x, 1.0]
    b = [2.0, 3.0]
    a, b = (b, a)
    a[0] = 9.0
    return b[0] + a[0]
""",
    "a list that is changed while a loop iterates over it": """
def f(x: float):
    l = [x, 1.0, 2.0]
    s = 0.0
    for i, v in enumerate(l):
        l[2] = 9.0
        l[i] = v * 2.0
        s += v
    return s + l[0] + l[2]
""",
    "rows that were read in a loop": """
def f(x: float):
    m = [[x, 1.0], [2.0, 3.0]]
    s = 0.0
    for row in m:
        s += row[0]
    s += sum([row[1] for row in m])
    m[0][1] = s
    return m[0][1] + m[1][1]
""",
    "a replaced element": """
def f(x: float):
    m = [[x, 1.0], [2.0, 3.0]]
    r = m[0]
    m[0] = [7.0, 8.0]
    return r[0] + m[0][0]
""",
    "a replaced field": """
def f(x: float):
    v = V(x, 1.0)
    w = W(v, 2.0)
    w.v = V(5.0, x)
    return v.a + w.v.a + w.v.b
""",
    "a struct that a method changes and returns": """
def f(x: float):
    v = V(x, 1.0)
    for _ in range(3):
        v = v.moved(2.0)
    return v.a + v.b
""",
    "a changed argument that is returned at once": """
def g(a):
    a[0] = 5.0
    return a

def h(x):
    l = [x, 1.0]
    return g(l)

def f(x: float):
    return h(x)[0] + h(x)[1]
""",
    "deep copies": """
def f(x: float):
    m = [[x, 1.0], [2.0, 3.0]]
    n = lg.copy(m)
    n[0][0] = 9.0
    return m[0][0] + n[0][0]
""",
    "components": """
def f(x: float):
    v = lg.vec2(x, 1.0)
    s = v.xy
    s.x = 5.0
    return v.x + s.x
""",
    "a list that a local function creates": """
def f(x: float):

    def g(k):
        c = [k, 2.0]
        c[0] += 1.0
        return c
    t = g(x)
    u = g(2.0)
    t[0] += 1.0
    u[1] = 7.0
    return t[0] + u[0] + u[1]
""",
    "a name that was rebound to another list": """
def f(x: float):
    a = [x, 1.0]
    b = a
    b = [3.0, 4.0]
    a[0] = 9.0
    return a[0] + b[0]
""",
}


def function_of(text: str):
    return lg.run_source(text, {"lg": lg, "V": V, "W": W})["f"]


@pytest.mark.parametrize("title", REFUSED)
def test_a_change_that_is_visible_under_another_name_is_rejected(title: str) -> None:
    with pytest.raises(lg.FunctionError, match="LG106"):
        lg.function(function_of(REFUSED[title]))(3.0)


@pytest.mark.parametrize("title", ACCEPTED)
def test_a_change_that_no_other_name_sees_is_accepted(title: str) -> None:
    expected = function_of(ACCEPTED[title])(3.0)
    assert lg.function(function_of(ACCEPTED[title]))(3.0) == expected


def test_arguments_from_python_are_passed_by_value() -> None:
    @lg.function
    def changed(values: list[float]) -> float:
        values[0] = 5.0
        return values[0] + values[1]

    values = [1.0, 2.0]
    assert changed(values) == 7.0
    assert values == [1.0, 2.0]
