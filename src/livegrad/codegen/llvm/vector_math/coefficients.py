"""Polynomial coefficients, constant term first, for each function and element; evaluated by `MathBuilder.polynomial`.

They are weighted minimax fits (Lawson's iteration on Chebyshev nodes, 60 digits in mpmath): the low coefficients were
rounded to the element first, and the others fitted again around them.
"""

from collections.abc import Mapping

Coefficients = Mapping[str, tuple[float, ...]]

# exp(r) - 1 = r + r²·P(r), |r| <= ln 2 / 2
EXPM1: Coefficients = {
    # Error of the rounded coefficients alone: 2^-26.1, relative to the function
    "f32": (0.49999997, 0.166665435, 0.0416675061, 0.00836655125, 0.00138642627),
    # Error of the rounded coefficients alone: 2^-55.5, relative to the function
    "f64": (
        0.5000000000000006,
        0.16666666666666605,
        0.041666666666573586,
        0.008333333333379066,
        0.0013888888932414099,
        0.00019841269742824682,
        2.480150437516402e-05,
        2.755738541562742e-06,
        2.762636526045109e-07,
        2.5061018422977272e-08,
    ),
}

# 2^r = 1 + r·P(r), |r| <= ½ (f32) or 1 (f64)
EXP2: Coefficients = {
    # Error of the rounded coefficients alone: 2^-28.3, relative to the function
    "f32": (0.693147182, 0.240226477, 0.0555035993, 0.00961850584, 0.00133908121, 0.000153264948),
    # Error of the rounded coefficients alone: 2^-56.3, relative to the function
    "f64": (
        0.6931471805599453,
        0.24022650695910022,
        0.0555041086648227,
        0.009618129107638354,
        0.0013333558146323466,
        0.00015403530386792904,
        1.5252733842222834e-05,
        1.321548879939956e-06,
        1.0178079663596241e-07,
        7.054603264113141e-09,
        4.446001149869984e-10,
        2.5910278491337264e-11,
        1.360686790964716e-12,
    ),
}

# sinh(r) = r + r³·P(r²), |r| <= ln 2 / 2
SINH: Coefficients = {
    # Error of the rounded coefficients alone: 2^-26.2, relative to the function
    "f32": (0.166665435, 0.00836655218),
    # Error of the rounded coefficients alone: 2^-61.7, relative to the function
    "f64": (
        0.16666666666666677,
        0.008333333333321436,
        0.00019841269886597407,
        2.755724374372224e-06,
        2.5109198477798385e-08,
    ),
}

# cosh(r) = 1 + r²/2 + r⁴·P(r²), |r| <= ln 2 / 2
COSH: Coefficients = {
    # Error of the rounded coefficients alone: 2^-33.2, relative to the function
    "f32": (0.0416664593, 0.00139354379),
    # Error of the rounded coefficients alone: 2^-70.0, relative to the function
    "f64": (
        0.041666666666666685,
        0.0013888888888873296,
        2.480158734915223e-05,
        2.755725188045773e-07,
        2.0921746163759023e-09,
    ),
}

# tanh(x) = x + x³·P(x²), |x| <= 0.5625
TANH: Coefficients = {
    # Error of the rounded coefficients alone: 2^-29.4, relative to the function
    "f32": (-0.333333135, 0.133324414, -0.0538365096, 0.0210042614, -0.00617589988),
    # Error of the rounded coefficients alone: 2^-59.8, relative to the function
    "f64": (
        -0.33333333333333276,
        0.1333333333332291,
        -0.05396825396162534,
        0.02186948832498542,
        -0.008863231605845255,
        0.0035920819795268763,
        -0.0014554781277825461,
        0.000588178162168119,
        -0.00023270379718156795,
        8.2344957531619e-05,
        -1.8895058627483803e-05,
    ),
}

# log(1 + f) = f - f²/2 + f³·P(f), ¾ <= 1 + f <= 1½ (f32) or √½ <= 1 + f <= √2 (f64)
LOG: Coefficients = {
    # Error of the rounded coefficients alone: 2^-27.6, relative to the function
    "f32": (
        0.333334506,
        -0.250001103,
        0.19990848,
        -0.166468769,
        0.144776255,
        -0.13163954,
        0.1047263,
        -0.0451530144,
    ),
    # Error of the rounded coefficients alone: 2^-59.2, relative to the function
    "f64": (
        0.33333333333333454,
        -0.24999999999998915,
        0.19999999999945817,
        -0.16666666666915728,
        0.14285714293870772,
        -0.12499999981904462,
        0.11111110514602007,
        -0.10000000388277036,
        0.09090933549364044,
        -0.08333345635320885,
        0.07691713602060075,
        -0.07142001886871033,
        0.06675159971924899,
        -0.06269786918089222,
        0.0581767734086995,
        -0.053268158333661775,
        0.05416501892212415,
        -0.06275244914407074,
        0.05695644600424759,
        -0.02426418751755111,
    ),
}

# log2(1 + f) = log2(e)·f + f²·P(f), -1/48 <= f <= 1/32
LOG2_NEAR_ONE: Coefficients = {
    # Error of the rounded coefficients alone: 2^-32.5, relative to the function
    "f32": (-0.721347511, 0.480900466, -0.360788792, 0.282660365),
}

# Reciprocals of mantissas between ¾ and 1½, in units of 1/128, indexed by the mantissa's upper five bits: the first
# half is for mantissas from 1 on, the second from ¾ to 1. They have few enough bits that m·reciprocal - 1 is exact in
# float32 for every mantissa m, and it is at most 1/32.
RECIPROCALS_IN_128 = (
    *(128, 122, 118, 116, 112, 109, 106, 104, 101, 99, 96, 94, 92, 90, 88, 86),
    *(168, 166, 162, 160, 156, 154, 150, 148, 144, 142, 140, 138, 136, 134, 132, 128),
)

# 2·log2(e)·atanh(s) = s·(2·log2(e) + s²·(⅔·log2(e) + s²·P(s²))), |s| <= 3 - √8
LOG2_ATANH: Coefficients = {
    # Error of the rounded coefficients alone: 2^-74.1, relative to the function
    "f64": (
        0.5770780163555854,
        0.41219858311109375,
        0.3205988979855388,
        0.2623081878119121,
        0.22195320396195456,
        0.19235307326056353,
        0.16992980338870242,
        0.1480616669703558,
        0.1746006870718745,
    ),
}

# sin(r) = r + r³·P(r²), |r| <= π/2
SIN_TO_HALF_PI: Coefficients = {
    # Error of the rounded coefficients alone: 2^-27.0, relative to the function
    "f32": (-0.166666582, 0.00833303016, -0.000198068505, 2.59950684e-06),
    # Error of the rounded coefficients alone: 2^-60.9, relative to the function
    "f64": (
        -0.16666666666666666,
        0.008333333333333194,
        -0.00019841269841205475,
        2.755731921007023e-06,
        -2.5052106747558148e-08,
        1.605893238119599e-10,
        -7.642780287156626e-13,
        2.718780596552984e-15,
    ),
}

# tan(r) = r + r³·P(r²), |r| <= π/4
TAN: Coefficients = {
    # Error of the rounded coefficients alone: 2^-29.0, relative to the function
    "f32": (0.333333552, 0.133324638, 0.0540834777, 0.0211568791, 0.0111680077, -0.000339090475, 0.00459071342),
    # Error of the rounded coefficients alone: 2^-55.2, relative to the function
    "f64": (
        0.33333333333332277,
        0.13333333333481961,
        0.05396825389515979,
        0.02186949034879136,
        0.008863208953410957,
        0.0035923793614794667,
        0.0014542202741199591,
        0.0005972836545487625,
        0.00021595837331233144,
        0.0001495174832075823,
        -4.438179327342556e-05,
        0.00010571058027291971,
        -5.350656024747936e-05,
        2.2904410652979828e-05,
    ),
}

# asin(x) = x + x³·P(x²), |x| <= ½
ASIN: Coefficients = {
    # Error of the rounded coefficients alone: 2^-27.6, relative to the function
    "f32": (0.166667521, 0.074953109, 0.0454688817, 0.0241863001, 0.0421555489),
    # Error of the rounded coefficients alone: 2^-59.9, relative to the function
    "f64": (
        0.1666666666666676,
        0.07499999999970883,
        0.0446428571745376,
        0.03038194271118266,
        0.02237221489545159,
        0.017351613617081818,
        0.013980801868367403,
        0.011399061104363511,
        0.01077943848166575,
        0.0037094146611413247,
        0.021700290263204698,
        -0.020989140029214925,
        0.032622538059705435,
    ),
}

# atan(x) = x + x³·P(x²), |x| <= 1
ATAN: Coefficients = {
    # Error of the rounded coefficients alone: 2^-28.5, relative to the function
    "f32": (
        -0.333332986,
        0.19998534,
        -0.142641008,
        0.109514892,
        -0.084015049,
        0.0579254963,
        -0.0311468374,
        0.0108983917,
        -0.00179007894,
    ),
    # Error of the rounded coefficients alone: 2^-56.9, relative to the function
    "f64": (
        -0.33333333333333065,
        0.19999999999951037,
        -0.1428571428255316,
        0.11111111006428323,
        -0.0909090699302851,
        0.07692279728413769,
        -0.06666403186235755,
        0.05880522794394001,
        -0.05253496789860482,
        0.047222499599974176,
        -0.042189931115032955,
        0.036638185852022574,
        -0.029898034517560845,
        0.021977783079015944,
        -0.01389396862693015,
        0.00719187719098774,
        -0.0028825552744072475,
        0.0008304928245055526,
        -0.00015198234722677521,
        1.3207290338709255e-05,
    ),
}

# erf(x) = x + x·P(x²), |x| <= 1
ERF_SMALL: Coefficients = {
    # Error of the rounded coefficients alone: 2^-29.3, relative to the function
    "f32": (0.128379166, -0.37612626, 0.112835832, -0.0268536918, 0.00518807396, -0.00080078782, 7.8461082e-05),
    # Error of the rounded coefficients alone: 2^-56.8, relative to the function
    "f64": (
        0.1283791670955126,
        -0.376126389031839,
        0.11283791670960251,
        -0.026866170645975036,
        0.005223977633291476,
        -0.0008548327479777542,
        0.00012055350557179196,
        -1.4926113930834897e-05,
        1.6470614637700022e-06,
        -1.6474061503990815e-07,
        1.5744617572073797e-08,
        -1.755086001032688e-09,
        2.6562218265300925e-10,
        -3.054337643025808e-11,
    ),
}

# erfc(x) = exp(-P(x - c)), 1 <= x <= 4 (f32, c = 0) or 6 (f64, c = 2.5)
ERFC_EXPONENT: Coefficients = {
    # Error of the rounded coefficients alone: 2^-29.8, relative to the function
    "f32": (0.000340290571, 1.12709415, 0.638136744, 0.103113592, -0.0218412224, 0.00294841453, -0.000186452584),
    # Error of the rounded coefficients alone: 2^-59.2, relative to the function
    "f64": (
        7.806815272727266,
        5.352680750986433,
        0.9438937335242085,
        0.010858072737412069,
        -0.0021654769027240665,
        0.00042093256434441473,
        -7.703078085718298e-05,
        1.2755857220248051e-05,
        -1.7690270099863014e-06,
        1.558990348965006e-07,
        1.262294999115786e-08,
        -1.0851011024840367e-08,
        3.5404802951906663e-09,
        -8.785668679015408e-10,
        1.3720702830735974e-10,
        -1.778788449679568e-11,
        8.89594430176967e-12,
        7.379855816793936e-13,
        -1.0465107392408e-12,
    ),
}
