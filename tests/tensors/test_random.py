"""Random numbers: pure functions of their key, with the documented distributions."""

import math
from typing import Any

import numpy as np
import pytest

import livegrad as lg

MANY = 40_000


def key(seed: int = 0) -> lg.Tensor:
    return lg.random.key(seed)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_equal_keys_give_equal_numbers_and_different_keys_different_ones() -> None:
    first, again = lg.random.normal(key(1), (3, 4)), lg.random.normal(key(1), (3, 4))
    np.testing.assert_array_equal(first.numpy(), again.numpy())
    assert not np.any(first.numpy() == lg.random.normal(key(2), (3, 4)).numpy())


def test_numbers_do_not_depend_on_how_many_are_drawn() -> None:
    few, many = lg.random.uniform(key(), 10), lg.random.uniform(key(), (5, 10))
    np.testing.assert_array_equal(few.numpy(), many.numpy()[0])


def test_bits_match_the_threefry_test_vectors() -> None:
    # The first published test vectors of Threefry-2x32 with 20 rounds: key 0, counters 0 and 1.
    assert hex(lg.random.bits(key(0), 1).item()) == hex((0x99BA4EFE << 32) | 0x6B200159)


def test_seeds_are_integers_of_any_size_and_sign() -> None:
    assert key(-1).item() == 2**64 - 1
    assert key(2**64 + 5).item() == 5
    assert lg.random.key(lg.asarray(7)).item() == 7
    with pytest.raises(lg.UsageError, match=r"takes an integer for the seed \(test_random.py"):
        lg.random.key(1.5)  # type: ignore[arg-type]


def test_keys_that_are_split_or_folded_are_all_different() -> None:
    keys = [*lg.random.split(key(), 100).tolist(), *lg.random.split(key(1), 100).tolist()]
    keys += [lg.random.fold_in(key(), number).item() for number in range(-50, 50)]
    keys += lg.random.bits(key(), 100).tolist()
    assert len(set(keys)) == len(keys)
    assert lg.random.split(key(), 3).tolist() == lg.random.split(key(), 5).tolist()[:3]


def test_keys_are_data_so_that_another_seed_runs_the_same_code() -> None:
    for step in range(4):
        if step == 1:
            lg.reset_stats()
        lg.random.uniform(lg.random.fold_in(key(100 + step), step), 7).execute()
    assert lg.stats().programs_compiled == 0


@pytest.mark.parametrize("wrong", [0, lg.ones(2), lg.asarray(1)])
def test_other_values_than_keys_raise(wrong: Any) -> None:
    with pytest.raises(lg.UsageError, match=r"takes a key as its first argument \(test_random.py.*lg.random.key"):
        lg.random.uniform(wrong)


# --- distributions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [lg.float16, lg.float32, lg.float64])
def test_uniform_numbers_fill_their_range_evenly(dtype: Any) -> None:
    x = lg.random.uniform(key(3), MANY, low=-2.0, high=6.0, dtype=dtype)
    assert x.dtype == dtype
    value = x.numpy().astype(np.float64)
    assert value.min() >= -2.0
    assert value.max() < 6.0
    counts = np.histogram(value, 16, (-2.0, 6.0))[0]
    assert np.all(np.abs(counts - MANY / 16) < 6 * math.sqrt(MANY / 16))


def test_the_upper_end_is_never_drawn_even_by_rounding() -> None:
    low, high = 1.0, float(np.nextafter(np.float32(1), np.float32(2)))
    assert set(lg.random.uniform(key(), 1000, low=low, high=high).tolist()) == {1.0}


def test_normal_numbers_have_their_mean_spread_and_tails() -> None:
    x = lg.random.normal(key(4), MANY, mean=3.0, std=2.0, dtype=lg.float64).numpy()
    assert abs(x.mean() - 3.0) < 6 * 2.0 / math.sqrt(MANY)
    assert abs(x.std() - 2.0) < 6 * 2.0 / math.sqrt(2 * MANY)
    for limit in (0.5, 1.0, 2.0, 3.0):
        share = np.mean(np.abs(x - 3.0) > 2.0 * limit)
        expected = math.erfc(limit / math.sqrt(2.0))
        assert abs(share - expected) < 6 * math.sqrt(expected / MANY)


def test_neighbouring_numbers_and_keys_are_not_correlated() -> None:
    x = lg.random.normal(key(5), MANY).numpy().astype(np.float64)
    other = lg.random.normal(lg.random.split(key(5))[0], MANY).numpy()
    for a, b in ((x[1:], x[:-1]), (x, other)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / math.sqrt(MANY)


def test_bernoulli_numbers_are_true_with_their_probability() -> None:
    p = lg.asarray([0.0, 0.25, 1.0])
    shares = lg.mean(lg.random.bernoulli(key(6), p, (MANY, 3)), axis=0).numpy()
    assert (shares[0], shares[2]) == (0.0, 1.0)
    assert abs(shares[1] - 0.25) < 6 * math.sqrt(0.19 / MANY)
    assert lg.random.bernoulli(key(6), p).shape == (3,)
    with pytest.raises(lg.ShapeError, match="cannot broadcast"):
        lg.random.bernoulli(key(6), p, (3, 2))


@pytest.mark.parametrize(("low", "high"), [(0, 7), (-3, 4), (10, 11)])
def test_integers_fill_their_range_evenly(low: int, high: int) -> None:
    x = lg.random.integers(key(7), low, high, MANY).numpy()
    counts = np.bincount(x - low, minlength=high - low)
    assert len(counts) == high - low
    assert np.all(np.abs(counts - MANY / (high - low)) < 6 * math.sqrt(MANY / (high - low)))


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (-(2**63), 2**63, "int64"),
        (0, 2**64, "uint64"),
        (-(2**62), 2**62 + 2**61, "int64"),
        (5, 2**40 + 1, "uint64"),
        (-128, 128, "int8"),
        (0, 2**32, "uint32"),
    ],
)
def test_integers_reach_over_large_ranges(low: int, high: int, dtype: str) -> None:
    x = [int(number) for number in lg.random.integers(key(8), low, high, 4000, dtype=getattr(lg, dtype)).numpy()]
    assert min(x) >= low
    assert max(x) < high
    places = np.array([(number - low) / (high - low) for number in x])
    assert abs(places.mean() - 0.5) < 6 * math.sqrt(1 / 12 / 4000)
    assert places.min() < 0.02
    assert places.max() > 0.98


def test_scaled_bits_are_the_exact_product() -> None:
    bits, second = (lg.random.bits(key(9), 64).tolist() for _ in range(2))
    small = lg.random.integers(key(9), 0, 1000, 64).tolist()
    assert small == [word * 1000 >> 64 for word in bits]
    assert bits == second


def test_empty_or_oversized_ranges_raise() -> None:
    with pytest.raises(lg.UsageError, match="cannot draw from 3 up to 3"):
        lg.random.integers(key(), 3, 3)
    with pytest.raises(lg.UsageError, match="within -128 to 128"):
        lg.random.integers(key(), 0, 129, dtype=lg.int8)
    with pytest.raises(lg.DtypeError, match="draws integers"):
        lg.random.integers(key(), 0, 2, dtype=lg.float32)
    with pytest.raises(lg.DtypeError, match="draws floats"):
        lg.random.normal(key(), dtype=lg.int32)


def test_categories_are_drawn_with_their_probability() -> None:
    p = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = lg.asarray(np.log(p).astype(np.float32))
    x = lg.random.categorical(key(10), logits, shape=MANY).numpy()
    shares = np.bincount(x, minlength=4) / MANY
    assert np.all(np.abs(shares - p) <= 6 * np.sqrt(p * (1 - p) / MANY))
    batch = lg.random.categorical(key(10), lg.zeros((5, 3, 2)), axis=1)
    assert batch.shape == (5, 2)
    assert set(batch.numpy().ravel().tolist()) <= {0, 1, 2}


def test_permutations_keep_all_slices_and_reach_all_orders() -> None:
    x = lg.asarray(np.arange(12).reshape(3, 4))
    moved = lg.random.permutation(key(11), x, axis=1).numpy()
    order = [int(np.flatnonzero(moved[0] == column)[0]) for column in range(4)]
    np.testing.assert_array_equal(moved[:, order], x.numpy())
    orders = {tuple(lg.random.permutation(lg.random.key(seed), 3).tolist()) for seed in range(60)}
    assert len(orders) == 6


def test_derivatives_pass_to_the_parameters_of_a_distribution() -> None:
    low, high = np.array([-1.0]), np.array([[2.0], [3.0]])
    lg.check_gradients(lambda a, b: lg.random.uniform(key(), (2, 3), low=a, high=b, dtype=lg.float64), low, high)
    lg.check_gradients(lambda m, s: lg.random.normal(key(), (2, 3), mean=m, std=s, dtype=lg.float64), low, high)


def test_drawing_is_one_kernel() -> None:
    lg.reset_stats()
    (lg.random.normal(key(12), (50, 40), std=2.0) + 1.0).execute()
    assert (lg.stats().kernels_run, lg.stats().library_calls) == (1, 0)


def test_filling_without_a_seed_gives_each_tensor_different_numbers():
    first, second, third = lg.empty(8), lg.empty(8), lg.empty(8)
    first.fill_random()
    second.fill_random()
    assert first.tolist() != second.tolist()
    second.fill_random(seed=3)
    third.fill_random(seed=3)
    assert second.tolist() == third.tolist()
