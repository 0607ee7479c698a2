"""The derivative flow check: losing a derivative is an error, wherever it is stored and read back."""

import pytest

import livegrad as lg


def lookup(x):
    return x * 2.0


@lg.differentiable
class Noise:
    x: float
    seed: lg.no_diff[float]


def gradient(body: str):
    text = "@lg.differentiable\ndef f(x: float) -> float:\n" + "".join(f"    {line}\n" for line in body.split("; "))
    f = lg.run_source(text, {"lg": lg, "lookup": lookup, "Noise": Noise})["f"]
    return lg.bwd_diff(f)(3.0, 1.0)[0]


CONTAINERS = {
    "a tuple": "v = (lookup(x), 1.0); return v[0]",
    "a list": "v = [lookup(x)]; return v[0]",
    "a list beside others": "v = [lookup(x), x]; return v[0] + v[1]",
    "a repeated list": "v = [lookup(x)] * 2; return v[0]",
    "a comprehension": "v = [lookup(x) * k for k in range(3)]; return v[1]",
    "a slice": "v = [lookup(x), x, x][:2]; return v[0]",
    "joined lists": "v = [lookup(x)] + [x]; return v[0]",
    "a copy": "v = list((lookup(x), x)); return v[0]",
    "a sum": "return sum([lookup(x), x])",
    "zipped lists": "t = 0.0; for a, b in zip([lookup(x)], [x]): t += a; return t",
    "unpacked values": "a, *b = [x, lookup(x), x]; return b[0]",
    "a vector": "v = lg.dvec2(lookup(x), 1.0); return v.x",
    "a struct": "n = Noise(lookup(x), 1.0); return n.x",
    "a list of structs": "n = [Noise(lookup(x), 1.0)]; return n[0].x",
}


@pytest.mark.parametrize("body", CONTAINERS.values(), ids=CONTAINERS)
def test_a_call_that_loses_a_derivative_is_rejected_wherever_its_result_is_stored(body):
    with pytest.raises(lg.FunctionError, match="LG301: the derivative is lost in the call of `lookup`"):
        gradient(body)


READ_BACK = {
    "at once": "n = Noise(1.0, x * x); return n.seed",
    "beside a derivative": "n = Noise(x, x * x); return n.seed * n.x",
    "from a list": "n = [Noise(x, x * x)]; return n[0].seed",
    "from a tuple": "n = (Noise(x, x * x), 1.0); return n[0].seed",
    "after an assignment": "n = Noise(x, 1.0); n.seed = x * x; return n.seed",
    "after an augmented assignment": "n = Noise(x, 1.0); n.seed += x * x; return n.seed",
    "after a loop": "n = Noise(x, 1.0); for i in range(3): n.seed = n.seed * x; return n.seed",
    "after a branch": "n = Noise(x, 1.0); n.seed = x if x > 1.0 else 2.0; return n.seed",
    "from field to field": "n = Noise(x, x * x); m = Noise(1.0, n.seed); return m.seed",
    "from a copy": "n = Noise(x, x * x); m = n.copy(); return m.seed",
}


@pytest.mark.parametrize("body", READ_BACK.values(), ids=READ_BACK)
def test_a_derivative_that_is_read_back_from_a_no_diff_field_is_rejected(body):
    with pytest.raises(lg.FunctionError, match="LG302: the derivative is lost in the field `seed`"):
        gradient(body)


ALLOWED = {
    "a constant": ("n = Noise(x, 2.0); return n.seed * n.x", 2.0),
    "what was detached": ("n = Noise(x, lg.detach(x * x)); return n.seed * n.x", 9.0),
    "a comparison": ("n = Noise(1.0, x * x); return x if n.seed > 0.0 else 2.0 * x", 1.0),
    "a call for another field": ("n = Noise(lookup(x), 2.0); return n.seed * x", 2.0),
    "a list that nobody reads": ("v = [lookup(x)]; return x * len(v)", 1.0),
}


@pytest.mark.parametrize(("body", "expected"), ALLOWED.values(), ids=ALLOWED)
def test_functions_that_lose_no_derivative_are_accepted(body, expected):
    assert gradient(body) == expected
