"""LLVM IR of conversions between half and single precision, for processors without instructions for them.

LLVM emits calls of these functions, which compiler-rt usually defines; `llvm_jit.py` provides them instead. Results are
those of the F16C instructions, including NaN payloads.
"""

EXPORTS = ("__extendhfsf2", "__truncsfhf2")

# Adds 112, the difference of the biases, to the exponent, and for infinity and NaN another 112. A subnormal half is the
# difference of two normal singles.
_EXTEND = """
define float @__extendhfsf2(half %value) {
  %narrow = bitcast half %value to i16
  %bits = zext i16 %narrow to i32
  %sign_bit = and i32 %bits, 32768
  %sign = shl i32 %sign_bit, 16
  %magnitude = and i32 %bits, 32767
  %shifted = shl i32 %magnitude, 13
  %normal = add i32 %shifted, 939524096
  %special = add i32 %normal, 939524096
  %is_special = icmp uge i32 %magnitude, 31744
  %quiet = or i32 %special, 4194304
  %is_nan = icmp ugt i32 %magnitude, 31744
  %above = add i32 %normal, 8388608
  %above_float = bitcast i32 %above to float
  %difference = fsub float %above_float, 0x3F10000000000000
  %subnormal = bitcast float %difference to i32
  %is_subnormal = icmp ult i32 %magnitude, 1024
  %finite = select i1 %is_subnormal, i32 %subnormal, i32 %normal
  %number = select i1 %is_special, i32 %special, i32 %finite
  %result = select i1 %is_nan, i32 %quiet, i32 %number
  %signed = or i32 %result, %sign
  %float = bitcast i32 %signed to float
  ret float %float
}
"""

# Rounds to nearest, ties to even. Adding 0.5 shifts the bits of a subnormal half to the end of the single, rounded.
_TRUNCATE = """
define half @__truncsfhf2(float %value) {
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %sign_bit = lshr i32 %bits, 16
  %sign = and i32 %sign_bit, 32768
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %moved = sub i32 %magnitude, 939520001
  %rounded = add i32 %moved, %odd
  %normal = lshr i32 %rounded, 13
  %positive = bitcast i32 %magnitude to float
  %aligned = fadd float %positive, 5.000000e-01
  %aligned_bits = bitcast float %aligned to i32
  %subnormal = sub i32 %aligned_bits, 1056964608
  %is_subnormal = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_subnormal, i32 %subnormal, i32 %normal
  %is_large = icmp uge i32 %magnitude, 1199570944
  %number = select i1 %is_large, i32 31744, i32 %finite
  %payload = and i32 %shifted, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %result = select i1 %is_nan, i32 %nan, i32 %number
  %signed = or i32 %result, %sign
  %narrow = trunc i32 %signed to i16
  %half = bitcast i16 %narrow to half
  ret half %half
}
"""

TEXT = _EXTEND + _TRUNCATE
